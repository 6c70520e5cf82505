"""The ranking: ordered rows, excluded candidates with reasons, tables, and comparisons of epoch counts.

Also its forecast records, and its estimates compared with real trainings that were measured to their end.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from vmselect._checks import check_count, check_flag, check_number, maybe
from vmselect._imports import hook
from vmselect._io import Place
from vmselect.catalog import describe_age
from vmselect.errors import ArgumentError, RankingError
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.ranking import views
from vmselect.ranking.candidates import OFFER_FIELDS, Candidates, candidate_findings
from vmselect.ranking.decision import (
    OTHER_MARKET,
    Assessment,
    Shortfall,
    assess,
    explain_excess,
    find_shortfall,
    judge_spot_deadline,
    list_excluded,
)
from vmselect.ranking.estimates import Studied, recalibrate
from vmselect.ranking.hosts import HostNeed, find_smaller_host, is_oversized, list_hosts
from vmselect.ranking.knees import describe_knee, describe_start
from vmselect.ranking.measures import LIMITED, MEASURES, cost_of
from vmselect.ranking.next_probe import NextProbe, find_next_probe
from vmselect.ranking.options import Settings
from vmselect.ranking.renting import renting_findings
from vmselect.ranking.rows import Excluded, Ints, Lazy, Row
from vmselect.ranking.scripts import refuse_script
from vmselect.ranking.variants import variant_findings, variant_table
from vmselect.records import Forecast, Profile, Record
from vmselect.records.base import new_id
from vmselect.records.forecast import NEVER_PROBED, Bounds, Source, find_gpu, make_forecast, save_forecasts
from vmselect.records.identity import Identity, group_repetitions, read_records
from vmselect.scoring.forecast import Unscored, error_percent, list_run_seconds, read_any
from vmselect.scoring.recalibration import Recalibration
from vmselect.scoring.score import MEASURED, Accuracy, AccuracyRow, kendall_tau
from vmselect.scoring.score import regret as measure_regret
from vmselect.units import format_count, printable, printable_lines

if TYPE_CHECKING:
    from vmselect.catalog import Catalog
    from vmselect.convergence import ConvergenceStudy


@dataclass(frozen=True)
class Inputs:
    """Inputs of a ranking besides its profiles: what the user passed of the workload, IDs of history records, prices.

    ``example`` is True for a ranking of example records, whose prices are old on purpose.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    history: tuple[str, ...] = ()
    example: bool = False
    catalog: Catalog | None = None


NO_INPUTS = Inputs()


class Ranking:
    """Candidates in order of the objective, best first; made by :func:`vmselect.rank`.

    With several epoch counts, each has its own ranks. The last one decides: it
    determines ``best``, and ``rows`` starts with its rows. With a convergence ``study``, the candidates are pairs of
    instance type and batch size.

    >>> import vmselect as vs
    >>> def line(name, start, epoch):
    ...     return vs.Profile.from_times(instance_type=name, batch_size=64, init_seconds=start,
    ...                                  first_epoch_seconds=epoch, later_epoch_seconds=[epoch])
    >>> ranking = vs.rank([line("g4dn.xlarge", 10, 30), line("g5.xlarge", 60, 12), line("my-pc", 0, 90)],
    ...                   epochs=[1, 10], catalog=vs.Catalog.embedded(), objective="time", method="malta-epoch")
    >>> ranking.best.instance_type, len(ranking), [one.candidate for one in ranking.excluded]
    ('g5.xlarge', 4, ['my-pc, batch 64'])
    >>> ranking.relative("time").round(2).to_dict("list")
    {1: [1.8, 1.0], 10: [1.0, 1.72]}
    >>> [change.epochs for change in ranking.crossovers("time")]
    [3]
    >>> ranking.rerank(objective="cost").best.instance_type
    'g4dn.xlarge'
    """

    def __init__(
        self,
        candidates: Candidates,
        settings: Settings,
        *,
        excluded: Sequence[Excluded] = (),
        findings: Sequence[Finding] = (),
        studied: Studied | None = None,
        inputs: Inputs = NO_INPUTS,
    ) -> None:
        self.candidates = candidates
        self.settings = settings
        self.assessment: Assessment = assess(candidates, settings)
        self.always_excluded = tuple(excluded)
        """Candidates excluded under all settings, such as those without any price or out of memory."""
        self.studied = studied
        self.inputs = inputs
        self._findings = tuple(findings)

    @property
    def deciding_column(self) -> int:
        """Index in ``settings.epochs`` of the epoch count that decides the ranking; 0 if a study gives the epochs."""
        return max(0, len(self.settings.epochs) - 1)

    @property
    def _columns(self) -> list[int]:
        """Indices of the epoch counts in ``settings.epochs``, the one that decides the ranking first."""
        return sorted(range(len(self.assessment.order)), key=lambda column: column != self.deciding_column)

    @cached_property
    def positions(self) -> tuple[Ints, Ints]:
        """Index of the candidate and index of the epoch count of each row, as two arrays."""
        columns = self._columns
        rows = [self.assessment.order[column] for column in columns]
        return np.concatenate(rows), np.repeat(np.array(columns, dtype=np.intp), [len(part) for part in rows])

    @cached_property
    def rows(self) -> Sequence[Row]:
        """Rows of all feasible candidates at all epoch counts, best first."""
        which, column = self.positions
        return Lazy(len(which), lambda i: self.row(int(which[i]), int(column[i])))

    @property
    def deciding_rows(self) -> Sequence[Row]:
        """Rows at the epoch count that decides the ranking, best first."""
        order = self.assessment.order[self.deciding_column]
        return Lazy(len(order), lambda i: self.row(int(order[i]), self.deciding_column))

    def __len__(self) -> int:
        return len(self.positions[0])

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __bool__(self) -> bool:
        return len(self.deciding_rows) > 0

    @property
    def best(self) -> Row:
        """Best row, for the epoch count that decides. Raises :class:`RankingError` if no candidate is feasible."""
        if not self:
            raise RankingError(views.nothing_feasible(self))
        return self.deciding_rows[0]

    @property
    def likely_best(self) -> tuple[Row, ...]:
        """The smallest set of rows that contains the truly best candidate with the confidence of the settings.

        The most probable row is first. The recommended row may be missing. Rows of other epoch counts are not included.
        """
        column = self.deciding_column
        order, chance = self.assessment.order[column], self.assessment.chance[:, column]
        ranked = order[np.argsort(-chance[order], kind="stable")]
        before = np.cumsum(chance[ranked]) - chance[ranked]
        return tuple(self.row(int(i), column) for i in ranked[before < self.settings.confidence - 1e-9])

    @property
    def expected_regret(self) -> dict[str, float]:
        """Expected amount by which the recommended candidate exceeds the truly best one, by measure of the objective.

        Empty if no candidate is feasible.
        """
        return dict(self.assessment.regret[self.deciding_column])

    @cached_property
    def next_probe(self) -> NextProbe | None:
        """The machine whose probe improves the choice most per dollar; None if no probe is worth its price.

        Only machines that were never probed are considered, so ``rank`` needs ``machines=``.
        """
        return self.choose_probe()

    def choose_probe(self, *, enough_regret: float | None = None) -> NextProbe | None:
        """:attr:`next_probe` for another ``enough_regret``: the expected regret below which no probe is needed.

        It is a fraction of the objective, by default 2 % with a history of other trainings and 5 % without.
        """
        return find_next_probe(self, maybe(check_number, "enough_regret", enough_regret, least=0))

    @cached_property
    def variants(self) -> pd.DataFrame:
        """Untested advice from the description of the training: other precisions and a compiled step.

        A row per variant of the best machine with each GPU model: how many times faster its steps are expected to be
        (``speed_up`` with ``speed_up_low`` and ``speed_up_high``), and time and cost of the training. Empty if the
        training is not described.
        """
        return variant_table(self)

    @cached_property
    def scaling(self) -> pd.DataFrame:
        """The cheapest and the fastest row of each GPU model and total number of GPUs, at the deciding epochs.

        ``speed_up`` and ``efficiency`` are relative to the fastest row with one GPU of that model.
        """
        return views.scaling_table(self)

    @property
    def scaling_verdict(self) -> str:
        """Text with the fastest and the cheapest number of GPUs of each GPU model; empty if there is no choice."""
        return printable(views.describe_scaling(self.scaling))

    @property
    def pareto(self) -> tuple[Row, ...]:
        """Rows of the Pareto front of time and cost at the epoch count that decides the ranking, in order of rank."""
        column = self.deciding_column
        front = [i for i in self.assessment.order[column] if self.assessment.pareto[i, column]]
        return tuple(self.row(int(i), column) for i in front)

    def row(self, candidate: int, column: int) -> Row:
        """Row of a candidate at an epoch count, both given by their index."""
        result, at = self.assessment, (candidate, column)
        machine, offer = self.candidates.of(candidate), self.candidates.identity(candidate)
        measures = self.measures_of(*at)
        own: dict[str, Any] = {}
        for name in ("time", "cost"):
            own |= zip(MEASURES[name].fields, measures[name], strict=True)
        return Row(
            rank=int(result.rank[at]),
            instance_type=machine.instance_type,
            batch_size=machine.batch_size,
            **{name: offer[name] for name in OFFER_FIELDS},
            epochs=self.epochs_of(candidate, column),
            **own,
            usd_per_hour=float(self.candidates.usd_per_hour[candidate]),
            price_date=offer["date"],
            score=float(result.score[at]),
            chance=float(result.chance[at]),
            tied_with_best=bool(result.tied[at]),
            pareto=bool(result.pareto[at]),
            terms=self.terms_of(candidate, column),
            method=machine.runtime.method,
            findings=self.findings_of(candidate, column),
            title=self.candidates.title(candidate),
            factors=machine.factors,
            basis=machine.basis,
            interval_only=machine.interval_only,
            measures=measures,
            limit_chances={name: float(chance[at]) for name, chance in result.limit_chances.items()},
        )

    def epochs_of(self, candidate: int, column: int) -> float:
        """Number of epochs of a candidate at the epoch count with the index ``column``; an int if it is whole."""
        epochs = float(self.assessment.epochs[self.candidates.machine_estimate[candidate], column])
        return int(epochs) if epochs.is_integer() else epochs

    def measures_of(self, candidate: int, column: int) -> dict[str, Any]:
        """Intervals of all measures of a candidate at an epoch count; None where a measure is unknown."""
        result, at = self.assessment.measures, (candidate, column)
        measures = {}
        for name, measure in MEASURES.items():
            if name in result:
                spread = Interval(*(float(part[at]) for part in result[name]))
            else:  # not computed for all candidates, as the settings do not ask for it
                alone = self.candidates.take(np.array([candidate]))
                time = Interval(*(part[at].reshape(1, 1) for part in result["time"]))
                spread = Interval(*(part.item() for part in measure.of(alone, self.settings, time)))
            measures[name] = None if np.isnan(spread.value) else spread
        return measures

    @cached_property
    def excluded(self) -> Sequence[Excluded]:
        """All excluded candidates with reasons, starting with those at the epoch count that decides the ranking."""
        return list_excluded(self, self._columns)

    @cached_property
    def deciding_excluded(self) -> Sequence[Excluded]:
        """Candidates excluded at the epoch count that decides the ranking, with reasons."""
        return list_excluded(self, [self.deciding_column])

    @cached_property
    def in_market(self) -> Ints:
        """Indices of the candidates in the chosen markets, including those that exceed a limit."""
        return np.flatnonzero(self.assessment.limits[:, 0] != OTHER_MARKET)

    def findings_of(self, candidate: int, column: int | None = None) -> tuple[Finding, ...]:
        """Findings about a candidate; with ``column`` (index of an epoch count), also about limits it may exceed."""
        findings = candidate_findings(self.candidates, candidate, self.settings)
        findings += self._smaller_host(candidate)
        runtime = self.candidates.of(candidate).runtime
        if column is None:
            return (*findings, *runtime.find_waits(), *runtime.find_early_stopping())
        epochs, price = float(self.epochs_of(candidate, column)), float(self.candidates.usd_per_hour[candidate])
        stops = runtime.find_early_stopping(epochs) if self.settings.epochs else ()
        findings = (*findings, *runtime.find_waits(epochs, price), *stops)
        for limited in LIMITED:
            most = limited.limit_of(self.settings)
            if most is None:
                continue
            high = self.assessment.measures[limited.name].high
            if limited.name == "time" and self.candidates.is_spot[candidate]:
                findings += (judge_spot_deadline(self, candidate, column),)
            elif high[candidate, column] > most:
                findings += (explain_excess(self, limited, candidate, column),)
        return findings

    def _smaller_host(self, candidate: int) -> tuple[Finding, ...]:
        """A finding if the host of a measured candidate is oversized and a cheaper machine suffices."""
        candidates, catalog = self.candidates, self.inputs.catalog
        position, machine = int(candidates.machine_estimate[candidate]), candidates.of(candidate)
        if machine.basis != "measured" or catalog is None:
            return ()
        need = candidates.once(("host need", position), lambda: HostNeed.of(machine.records))
        offer = candidates.offers.iloc[int(candidates.offer[candidate])]
        rented = {str(name): value for name, value in offer.items()}
        if need is None or not is_oversized(need, rented["vcpus"], rented["memory_gib"]):
            return ()
        gpu_model, gpu_count = str(rented["gpu_model"]), max(0.0, float(rented["gpu_count"] or 0))
        hosts = candidates.once(
            ("hosts", position, gpu_model, gpu_count),
            lambda: list_hosts(need, catalog.offers(market=None), catalog, gpu_model=gpu_model, gpu_count=gpu_count),
        )
        finding = find_smaller_host(need, rented, hosts)
        return () if finding is None else (finding,)

    def terms_of(self, candidate: int, column: int) -> dict[str, float]:
        """Parts of the time of a candidate at an epoch count: seconds by name."""
        position = self.candidates.machine_estimate[candidate]
        terms = self.candidates.of(candidate).runtime.terms_at(float(self.epochs_of(candidate, column)))
        lost = self.assessment.measures["time"].value[candidate, column] - self.assessment.work.value[position, column]
        return {**terms, "interruptions": float(lost)} if lost else terms

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Findings about the ranking as a whole, the age of its prices, and its best candidate."""
        # Old prices of machines that cannot be the best do not matter to the choice.
        likely = np.flatnonzero(self.assessment.tied[:, self.deciding_column]) if self else self.in_market
        dates = self.candidates.offers["date"].astype(str).to_numpy()
        catalog = self.inputs.catalog
        as_of = catalog.as_of if catalog is not None else None
        age = None if self.inputs.example else describe_age(set(dates[self.candidates.offer[likely]]), today=as_of)
        age = self.outdated or age
        winner = self.best.findings if self else ()
        if self:
            candidate = int(self.assessment.order[self.deciding_column][0])
            epochs = float(self.epochs_of(candidate, self.deciding_column))
            winner += tuple(describe_start(self.candidates.of(candidate).runtime, epochs))
            winner += tuple(describe_knee(self.candidates.machine_estimates, self.best.instance_type))
        energy = views.energy_findings(self) if self and self.settings.asks_for("co2") else ()
        variants = (*variant_findings(self), *renting_findings(self)) if self else ()
        return tuple(dict.fromkeys([*self._findings, *([age] if age else []), *winner, *energy, *variants]))

    @property
    def outdated(self) -> Finding | None:
        """Finding that no price of the catalog is of the last year, so that all costs are uncertain; else None."""
        return self.inputs.catalog.outdated if self.inputs.catalog is not None else None

    @property
    def shortfall(self) -> Shortfall | None:
        """If no candidate meets the deadline and the budget: the nearest one and what it lacks; else None."""
        return find_shortfall(self)

    @property
    def verdict(self) -> str:
        """Text with the machine to rent, its time and cost, and the candidates that may be as good."""
        return views.verdict(self)

    @property
    def headline(self) -> str:
        """The first line of the verdict: the machine to rent, its price, and the probability that it is the best."""
        return views.headline(self)

    @property
    def details(self) -> str:
        """The rest of the verdict: time and cost of the choice, alternatives, and what a probe would add."""
        return views.details(self)

    def __str__(self) -> str:
        return printable_lines(views.as_text(self))

    def __repr__(self) -> str:
        return f"<Ranking of {format_count(len(self), 'row')}: {printable(self.verdict)}>"

    @property
    def study(self) -> ConvergenceStudy | None:
        """The convergence study from which the numbers of epochs come; None if there is none."""
        return self.studied.study if self.studied else None

    def to_frame(self, *, details: bool = False) -> pd.DataFrame:
        """The rows as a DataFrame, with the fields of :class:`Row` and of the measures asked for as columns.

        Fields that are dictionaries or lists, such as ``terms`` and ``findings``, are columns only with ``details``.
        """
        return views.make_frame(self, details=check_flag("details", details))

    def to_json(self, *, rows: bool = True, top: int | None = None, indent: int | None = None) -> str:
        """The ranking as JSON text, with all data to rank again; see docs/reference/ranking.md.

        With ``rows=False``, rows and candidates excluded by the settings are omitted. With ``top``, only the first
        ``top`` rows and excluded candidates are included, with their machines, and ``omitted`` counts the others.
        """
        # The models take time to import, and most rankings are never written as JSON.
        from vmselect.ranking.output import ranking_inputs, ranking_output

        top = maybe(check_count, "top", top)
        output = ranking_output(self, top=top) if check_flag("rows", rows) else ranking_inputs(self)
        return output.to_json(indent=indent)

    def rerank(self, **changes: Any) -> Ranking:
        """Rank the same candidates with changed arguments of :func:`vmselect.rank`, such as ``epochs=``."""
        return self._changed(self.settings.changed(**changes), self._findings)

    def recalibrated(self, records: Iterable[Record]) -> Ranking:
        """The ranking with times and intervals corrected by the outcomes of earlier forecasts in ``records``.

        A finding reports each correction.
        """
        learned = Recalibration.of(records, method=self.settings.method, confidence=self.settings.confidence)
        estimates, findings = recalibrate(self.candidates.machine_estimates, learned)
        candidates = replace(self.candidates, machine_estimates=tuple(estimates), computed={})
        return Ranking(
            candidates, self.settings, excluded=self.always_excluded, findings=(*self._findings, *findings),
            studied=self.studied, inputs=self.inputs,
        )  # fmt: skip

    def with_findings(self, findings: Sequence[Finding], *, example: bool = False) -> Ranking:
        """A copy of the ranking with additional findings, such as the machines that a sweep did not probe.

        ``example`` marks a ranking of example records, whose prices are old on purpose.
        """
        inputs = replace(self.inputs, example=self.inputs.example or example)
        return self._changed(self.settings, (*self._findings, *findings), inputs)

    def _changed(self, settings: Settings, findings: tuple[Finding, ...], inputs: Inputs | None = None) -> Ranking:
        return Ranking(
            self.candidates, settings, excluded=self.always_excluded, findings=findings, studied=self.studied,
            inputs=inputs or self.inputs,
        )  # fmt: skip

    def keep(self, folder: str | os.PathLike[str], *, top: int = 20) -> list[Place]:
        """Save the predictions of the ranking as forecast records in ``folder``; return the paths of the files.

        Each file contains the best offer of one machine and batch size, for the epoch count that decides. At most
        ``top`` files are written, best first. :func:`vmselect.score` compares them with the real trainings.

        >>> import tempfile
        >>> import vmselect as vs
        >>> profiles = [vs.Profile.from_times(instance_type=name, batch_size=64, first_epoch_seconds=seconds,
        ...                                   later_epoch_seconds=[seconds] * 3)
        ...             for name, seconds in (("g4dn.xlarge", 30), ("g5.xlarge", 12))]
        >>> folder = tempfile.mkdtemp()
        >>> len(vs.rank(profiles, epochs=10).keep(folder))
        2
        >>> sorted((one.instance_type, one.rank) for one in vs.load_records(folder))
        [('g4dn.xlarge', 2), ('g5.xlarge', 1)]
        """
        return save_forecasts(make_forecasts(self, top), folder)

    def relative(self, objective: str = "cost") -> pd.DataFrame:
        """Time or cost of each candidate (row) at each epoch count (column), divided by the minimum of the column."""
        return views.relative_values(self, objective)

    def crossovers(self, objective: str = "cost", *, up_to: int = views.HORIZON) -> tuple[views.Crossover, ...]:
        """Epoch counts from 1 to ``up_to`` at which the best candidate changes.

        Only candidates that are feasible at the epoch count that decides the ranking are compared.
        """
        return views.find_crossovers(self, objective, up_to)

    @property
    def tables(self) -> views.Tables:
        """Further tables: ``strategies``, ``settled_from``, ``startup``, ``knees`` and ``relative_to`` a type."""
        return views.Tables(self)

    def against(self, watched: Profile | Iterable[Profile]) -> Accuracy:
        """Compare the estimates with the real times of complete trainings of the same machines and batch sizes.

        ``watched`` are profiles with a total time: from a probe with ``stop=False``, or from
        :meth:`Profile.from_times` with ``total_seconds``. Each is compared with the estimate for its number of epochs.

        >>> import vmselect as vs
        >>> def profile(name, **times):
        ...     return vs.Profile.from_times(instance_type=name, batch_size=64, epochs=10, **times)
        >>> probes = [profile(name, first_epoch_seconds=seconds + 5, later_epoch_seconds=[seconds] * 3)
        ...           for name, seconds in (("g4dn.xlarge", 30), ("g5.xlarge", 12))]
        >>> real = [profile("g4dn.xlarge", total_seconds=[308, 310]), profile("g5.xlarge", total_seconds=126)]
        >>> print(vs.rank(probes).against(real).verdict)
        mean error 1.04 % of the real time; 2 of 2 inside the 90% interval; by time: Kendall's tau 1.00, ...
        """
        return compare_with_real(self, watched)

    def selection_cost(self, *, trainings: int | None = None) -> views.SelectionCost:
        """Cost of the probes (and of the study) compared with the cost of training all candidates completely.

        ``trainings`` is the number of complete trainings of each candidate to compare with, by default as many as it
        was probed (with a study: as many as the study has runs at its batch size). With a study, this is a
        :class:`MethodologyCost`, which includes candidates below the required metric.
        """
        return views.sum_selection_cost(self, maybe(check_count, "trainings", trainings))

    def chart(self, kind: str = "time-cost", **options: Any) -> Any:
        """An Altair chart of the ranking; docs/how-to/read-the-report.md lists the kinds."""
        return hook("ranking_chart")(self, kind, **options)

    def report(self, path: str | os.PathLike[str], *, records: Iterable[Record] = ()) -> Path:
        """Write the report as a self-contained HTML page to ``path`` and return its path.

        The page sums up watched trainings of the ranking and among ``records``, with kept forecasts among ``records``.
        """
        written: Path = hook("ranking_page")(self, path, records=read_any(records))
        return written

    def _repr_html_(self) -> str:
        html: str = hook("ranking_html")(self)
        return html


def make_forecasts(ranking: Ranking, top: int) -> list[Forecast]:
    """Return at most ``top`` forecasts, for the best offers. Each machine and batch size has one forecast."""
    top = check_count("top", top)
    refuse_script(ranking.candidates.machine_estimates, "A forecast")
    column, together = ranking.deciding_column, new_id()
    forecasts: dict[int, Forecast] = {}
    for candidate in ranking.assessment.order[column]:
        position = int(ranking.candidates.machine_estimate[candidate])
        if position not in forecasts:
            forecasts[position] = _make_forecast(ranking, int(candidate), column, together)
        if len(forecasts) == top:
            break
    return list(forecasts.values())


def _make_forecast(ranking: Ranking, candidate: int, column: int, together: str) -> Forecast:
    row, machine = ranking.row(candidate, column), ranking.candidates.of(candidate)
    # A predicted machine has no records of its own: the forecast used those of the probed machines.
    records = (
        machine.records
        or (machine.description and (machine.description,))
        or tuple(
            record
            for other in ranking.candidates.machine_estimates
            for record in other.records
            if other.batch_size == machine.batch_size
        )
    )
    arguments = dict(ranking.inputs.arguments)
    if machine.basis != "measured":
        arguments["batch_size"] = machine.batch_size
    predicted = machine.basis in NEVER_PROBED
    history = ranking.inputs.history if predicted else ()
    source = Source(records=records, arguments=arguments, basis=machine.basis, history=history)
    seconds = Interval(row.seconds, row.seconds_low, row.seconds_high)
    if machine.adjustment:
        source = replace(source, own=machine.adjustment.undo(seconds))
    gpu = row.gpu_model or (None if predicted else find_gpu(records))
    return make_forecast(
        source, Identity.of_settings(machine.instance_type, row.provider, machine.factors), seconds,
        epochs=float(row.epochs), method=row.method, confidence=ranking.settings.confidence, region=row.region,
        cost_usd=Bounds(value=row.cost_usd, low=row.cost_low, high=row.cost_high), usd_per_hour=row.usd_per_hour,
        market=row.market, price_date=row.price_date, gpu=gpu, ranking=together, rank=row.rank,
        chance=min(1.0, max(0.0, row.chance)), findings=row.findings,
    )  # fmt: skip


def compare_with_real(ranking: Ranking, watched: Profile | Iterable[Profile]) -> Accuracy:
    """Compare the estimates of ``ranking`` with ``watched`` trainings; see :meth:`Ranking.against`."""
    profiles = read_records(watched, Profile, error=RankingError)
    refuse_script(ranking.candidates.machine_estimates, "A comparison with real trainings")
    used = {record.id for machine in ranking.candidates.machine_estimates for record in machine.records}
    for profile in profiles:
        if profile.total_seconds is None:
            raise ArgumentError(
                f"{profile.title}: the profile has no total time. Measure whole trainings with "
                "IterationProbe(stop=False), or pass total_seconds= to Profile.from_times."
            )
        if profile.id in used:
            raise ArgumentError(
                f"{profile.title}: this training is also a profile of the ranking, so it does not test the estimate. "
                "Rank the other profiles only."
            )
    rows: list[AccuracyRow] = []
    excluded: list[Unscored] = []
    for identity, group in group_repetitions(profiles).items():
        for epochs in dict.fromkeys(profile.epochs_trained for profile in group):
            same = [profile for profile in group if profile.epochs_trained == epochs]
            row = _make_row(ranking, identity, same, epochs)
            if isinstance(row, Unscored):
                excluded.append(row)
            else:
                rows.append(row)
    if not rows:
        reasons = "; ".join(map(str, excluded[:3]))
        raise RankingError(
            f"The ranking estimates none of these trainings: {reasons}. Rank profiles of the same machines."
        )
    rows.sort(key=lambda row: (row.epochs, row.seconds, row.title))
    # Without a study, the order of machines is only meaningful among trainings of as many epochs.
    comparable = bool(ranking.studied) or len({(row.batch_size, row.epochs) for row in rows}) == len(
        {row.batch_size for row in rows}
    )
    pairs = {"time": [(row.seconds, row.real_seconds) for row in rows]}
    pairs["cost"] = [(row.cost_usd, row.real_cost_usd) for row in rows]
    ordered = comparable and len(rows) > 1
    return Accuracy(
        rows=tuple(rows),
        kendall_tau={name: kendall_tau(pairs[name]) if ordered else None for name in MEASURED},
        regret={name: measure_regret(pairs[name]) if ordered else None for name in MEASURED},
        excluded=tuple(excluded),
        confidence=ranking.settings.confidence,
    )


def _make_row(
    ranking: Ranking, identity: Identity, group: Sequence[Profile], epochs: int | None
) -> AccuracyRow | Unscored:
    candidates, title = ranking.candidates, group[0].title
    factors = identity.settings
    machines = {
        position
        for position, machine in enumerate(candidates.machine_estimates)
        if machine.instance_type == identity.instance_type
        and machine.factors == factors
        and (machine.provider is None or identity.provider is None or machine.provider == identity.provider)
    }
    # The best-ranked offer of the machine states its price; an offer that misses a limit is better than none.
    ranked = [int(candidate) for candidate in ranking.assessment.order[ranking.deciding_column]]
    others = [int(candidate) for candidate in ranking.in_market if int(candidate) not in set(ranked)]
    offers = [candidate for candidate in ranked + others if int(candidates.machine_estimate[candidate]) in machines]
    if not offers:
        return Unscored(title, "no_estimate", "the ranking has no candidate with this machine and these factors")
    candidate = offers[0]
    position = int(candidates.machine_estimate[candidate])
    if ranking.studied:
        estimate = ranking.assessment.work.map(lambda part: float(part[position, 0]))
        count = float(ranking.assessment.epochs[position, 0])
    else:
        count = float(epochs or ranking.settings.decide_at or 0)
        runtime = candidates.machine_estimates[position].runtime
        estimate = Interval(runtime.seconds(count), *runtime.interval(count))
    totals = list_run_seconds(group)
    real = math.fsum(totals) / len(totals)

    return AccuracyRow(
        title=title, instance_type=identity.instance_type or "", batch_size=identity.batch_size,
        epochs=int(count) if count.is_integer() else count, runs=len(totals), real_seconds=real,
        seconds=estimate.value, seconds_low=estimate.low, seconds_high=estimate.high,
        error_percent=error_percent(estimate.value, real), inside=bool(estimate.contains(real)),
        real_cost_usd=cost_of(candidates, candidate, ranking.settings, real),
        cost_usd=cost_of(candidates, candidate, ranking.settings, estimate.value),
    )  # fmt: skip
