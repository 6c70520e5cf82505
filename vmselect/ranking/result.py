"""The ranking: ordered rows, excluded candidates with reasons, tables, and comparisons of epoch counts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from vmselect._checks import check_count, check_flag, check_number, maybe
from vmselect._imports import hook
from vmselect._io import Place
from vmselect.catalog import describe_age
from vmselect.errors import RankingError
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.ranking import limits, text, views
from vmselect.ranking.accuracy import Inputs, compare_with_real, make_forecasts
from vmselect.ranking.candidates import OFFER_FIELDS, Candidates, candidate_findings
from vmselect.ranking.decision import OTHER_MARKET, Assessment, assess
from vmselect.ranking.estimates import Studied, recalibrate
from vmselect.ranking.measures import LIMITED, MEASURES
from vmselect.ranking.next_probe import NextProbe, find_next_probe
from vmselect.ranking.options import Settings
from vmselect.ranking.rows import Excluded, Ints, Lazy, Row
from vmselect.records import Profile, Record
from vmselect.records.forecast import save_forecasts
from vmselect.scoring.recalibration import Recalibration
from vmselect.scoring.score import Accuracy
from vmselect.units import count_of, printable, printable_lines

if TYPE_CHECKING:
    from vmselect.convergence import ConvergenceStudy

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
            raise RankingError(text.nothing_feasible(self))
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
        return limits.list_excluded(self, self._columns)

    @cached_property
    def deciding_excluded(self) -> Sequence[Excluded]:
        """Candidates excluded at the epoch count that decides the ranking, with reasons."""
        return limits.list_excluded(self, [self.deciding_column])

    @cached_property
    def in_market(self) -> Ints:
        """Indices of the candidates in the chosen markets, including those that exceed a limit."""
        return np.flatnonzero(self.assessment.limits[:, 0] != OTHER_MARKET)

    def findings_of(self, candidate: int, column: int | None = None) -> tuple[Finding, ...]:
        """Findings about a candidate; with ``column`` (index of an epoch count), also about limits it may exceed."""
        findings = candidate_findings(self.candidates, candidate, self.settings)
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
                findings += (limits.judge_spot_deadline(self, candidate, column),)
            elif high[candidate, column] > most:
                findings += (limits.explain_excess(self, limited, candidate, column),)
        return findings

    def terms_of(self, candidate: int, column: int) -> dict[str, float]:
        """Parts of the time of a candidate at an epoch count: seconds by name."""
        position = self.candidates.machine_estimate[candidate]
        terms = self.candidates.of(candidate).runtime.terms_at(float(self.epochs_of(candidate, column)))
        lost = self.assessment.measures["time"].value[candidate, column] - self.assessment.work.value[position, column]
        return {**terms, "interruptions": float(lost)} if lost else terms

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Findings about the ranking as a whole, the age of its prices, and its best candidate."""
        dates = self.candidates.offers["date"].astype(str).to_numpy()
        age = None if self.inputs.example else describe_age(set(dates[self.candidates.offer[self.in_market]]))
        winner = self.best.findings if self else ()
        energy = text.energy_findings(self) if self and self.settings.asks_for("co2") else ()
        return tuple(dict.fromkeys([*self._findings, *([age] if age else []), *winner, *energy]))

    @property
    def shortfall(self) -> limits.Shortfall | None:
        """If no candidate meets the deadline and the budget: the nearest one and what it lacks; else None."""
        return limits.find_shortfall(self)

    @property
    def verdict(self) -> str:
        """Text with the machine to rent, its time and cost, and the candidates that may be as good."""
        return text.verdict(self)

    def __str__(self) -> str:
        return printable_lines(text.as_text(self))

    def __repr__(self) -> str:
        return f"<Ranking of {count_of(len(self), 'row')}: {printable(self.verdict)}>"

    @property
    def study(self) -> ConvergenceStudy | None:
        """The convergence study from which the numbers of epochs come; None if there is none."""
        return self.studied.study if self.studied else None

    def to_frame(self) -> pd.DataFrame:
        """The rows as a DataFrame, with the fields of :class:`Row` and of the measures asked for as columns."""
        return views.make_frame(self)

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
        """Further tables: ``strategies``, ``settled_from`` and ``relative_to`` an instance type."""
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

    def selection_cost(self) -> views.SelectionCost:
        """Cost of the probes (and of the study) compared with the cost of training all candidates completely.

        With a study, this is a :class:`MethodologyCost`, which includes candidates below the required metric.
        """
        return views.sum_selection_cost(self)

    def chart(self, kind: str = "time-cost", **options: Any) -> Any:
        """An Altair chart of the ranking; docs/how-to/read-the-report.md lists the kinds."""
        return hook("ranking_chart")(self, kind, **options)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the report as a self-contained HTML page to ``path`` and return its path."""
        written: Path = hook("ranking_page")(self, path)
        return written

    def _repr_html_(self) -> str:
        html: str = hook("ranking_html")(self)
        return html
