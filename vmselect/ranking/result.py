"""The ranking: rows in order, what was left out and why, and the views that a decision needs."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vmselect import __version__
from vmselect._checks import check_flag, check_indent
from vmselect._hooks import hook
from vmselect.catalog import describe_age
from vmselect.errors import RankingError
from vmselect.estimation.autotune_wait import price_waits
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.ranking import selection_cost, text, views
from vmselect.ranking.candidates import OFFER_FIELDS, Candidates, name_unsold
from vmselect.ranking.decision import FEASIBLE, FIRST_LIMIT, OTHER_MARKET, Assessment, assess
from vmselect.ranking.epochs import Studied
from vmselect.ranking.measures import LIMITED, MEASURES
from vmselect.ranking.rows import Excluded, Ints, Lazy, Row
from vmselect.ranking.settings import Settings
from vmselect.ranking.warnings import candidate_findings
from vmselect.units import printable, printable_lines

if TYPE_CHECKING:
    import pandas as pd

    from vmselect.convergence import ConvergenceStudy


class Ranking:
    """Candidates in order of the objective, best first; made by :func:`vmselect.rank`.

    With several epoch counts, ``rows`` starts with the one that decides; ``rank`` counts within each epoch count.
    Made from a convergence study, it ranks pairs of VM type and batch size, and ``study`` and ``demands`` are what
    their epochs and minimum metrics came from.

    >>> import vmselect as vs
    >>> def line(name, start, epoch):
    ...     return vs.Profile.from_times(instance_type=name, batch_size=64, init_seconds=start,
    ...                                  first_epoch_seconds=epoch, later_epoch_seconds=[epoch])
    >>> ranking = vs.rank([line("g4dn.xlarge", 10, 30), line("g5.xlarge", 60, 12), line("my-pc", 0, 90)],
    ...                   epochs=[1, 10], catalog=vs.Catalog.embedded(), objective="time", method="malta-epoch")
    >>> ranking.best.instance_type, len(ranking), [row.instance_type for row in ranking.pareto]
    ('g5.xlarge', 4, ['g5.xlarge', 'g4dn.xlarge'])
    >>> print(ranking.excluded[0])
    my-pc, batch 64: the catalog has no price of my-pc; add one with catalog.with_offers
    >>> ranking.relative("time").round(2).to_dict("list")
    {1: [1.8, 1.0], 10: [1.0, 1.72]}
    >>> [change.epochs for change in ranking.crossovers("time")], ranking.settled_from("time")
    ([3], 3)
    >>> ranking.against("g4dn.xlarge").loc["g5.xlarge"].round(2).to_dict()
    {'price_ratio': 1.91, 'speed_up': 1.72, 'cost_ratio': 1.11}
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
    ) -> None:
        self.candidates = candidates
        self.settings = settings
        self.assessment: Assessment = assess(candidates, settings)
        self.always_excluded = tuple(excluded)
        """What was left out whatever the settings: no price at all, out of memory, and the like."""
        self.studied = studied
        self._findings = tuple(findings)

    # -- rows ----------------------------------------------------------------------------------------------------

    @property
    def deciding_column(self) -> int:
        """Position of the epoch count that decides, among ``settings.epochs``."""
        return self.settings.epochs.index(self.settings.decide_at) if self.settings.decide_at is not None else 0

    @cached_property
    def positions(self) -> tuple[Ints, Ints]:
        """For each row, the position of its candidate and of its epoch count."""
        order = self.assessment.order
        columns = sorted(range(len(order)), key=lambda column: column != self.deciding_column)
        rows = [order[column] for column in columns]
        return (
            np.concatenate(rows) if rows else np.zeros(0, dtype=np.intp),
            np.repeat(np.array(columns, dtype=np.intp), [len(part) for part in rows]),
        )

    @cached_property
    def rows(self) -> Sequence[Row]:
        """Every feasible candidate at every epoch count, best first."""
        which, column = self.positions
        return Lazy(len(which), lambda i: self.row(int(which[i]), int(column[i])))

    @property
    def deciding_rows(self) -> Sequence[Row]:
        """The part of ``rows`` at the deciding epoch count, best first."""
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
        """The winner at the deciding epoch count; where nothing is feasible, a :class:`RankingError` says why."""
        if not self:
            raise RankingError(text.nothing_feasible(self))
        return self.deciding_rows[0]

    @property
    def pareto(self) -> tuple[Row, ...]:
        """Rows at the deciding epoch count that no other beats in both time and cost, in order of rank."""
        column = self.deciding_column
        front = [i for i in self.assessment.order[column] if self.assessment.pareto[i, column]]
        return tuple(self.row(int(i), column) for i in front)

    def row(self, candidate: int, column: int) -> Row:
        """The row of one candidate at one epoch count (positions among candidates and epoch counts)."""
        result, at = self.assessment, (candidate, column)
        one, who = self.candidates.of(candidate), self.candidates.identity(candidate)
        measures = self.measures_of(*at)
        own: dict[str, Any] = {
            field: value
            for name in ("time", "cost")
            for field, value in zip(MEASURES[name].fields, measures[name], strict=True)
        }
        return Row(
            rank=int(result.rank[at]),
            instance_type=one.instance_type,
            batch_size=one.batch_size,
            **{name: who[name] for name in OFFER_FIELDS},
            epochs=_count(result.epochs[self.candidates.machine_estimate[candidate], column]),
            **own,
            usd_per_hour=float(self.candidates.usd_per_hour[candidate]),
            price_date=who["date"],
            score=float(result.score[at]),
            tied_with_best=bool(result.tied[at]),
            pareto=bool(result.pareto[at]),
            terms=self.terms_of(candidate, column),
            method=one.runtime.method,
            findings=self.findings_of(candidate, column),
            title=self.candidates.title(candidate),
            factors=one.factors,
            basis=one.basis,
            measures=measures,
        )

    def measures_of(self, candidate: int, column: int) -> dict[str, Interval[float]]:
        """Every measure of one candidate at one epoch count."""
        at = candidate, column
        found = self.assessment.measures
        return {name: Interval(*(float(part[at]) for part in spread)) for name, spread in found.items()}

    @cached_property
    def excluded(self) -> Sequence[Excluded]:
        """Every candidate that was left out, with the reason; those at the deciding epoch count come first."""
        return self._excluded(sorted(range(len(self.assessment.order)), key=lambda c: c != self.deciding_column))

    @cached_property
    def deciding_excluded(self) -> Sequence[Excluded]:
        """The part of ``excluded`` that concerns the deciding epoch count."""
        return self._excluded([self.deciding_column])

    def _excluded(self, columns: Sequence[int]) -> Sequence[Excluded]:
        limits = self.assessment.limits[:, columns]
        position, which = np.nonzero(((limits != FEASIBLE) & (limits != OTHER_MARKET)).T)
        known = len(self._out_at_all_epochs)

        def make(i: int) -> Excluded:
            if i < known:
                return self._out_at_all_epochs[i]
            at = int(which[i - known]), columns[int(position[i - known])]
            epochs = _count(self.assessment.epochs[self.candidates.machine_estimate[at[0]], at[1]])
            broken = LIMITED[int(self.assessment.limits[at]) - FIRST_LIMIT]
            value = float(self.assessment.measures[broken.name].value[at])
            assert broken.limit is not None
            reason = broken.why_over(self.settings, value, epochs)
            return Excluded(self.candidates.title(at[0]), broken.limit.reason_code, reason, epochs)

        return Lazy(known + len(which), make)

    @cached_property
    def _out_at_all_epochs(self) -> tuple[Excluded, ...]:
        wanted = self.assessment.limits[:, 0] != OTHER_MARKET
        return (*self.always_excluded, *name_unsold(self.candidates, self.settings, wanted=wanted))

    def count_reasons(self) -> Counter[str]:
        """How many were left out at the deciding epoch count, by reason code."""
        codes = self.assessment.limits[:, self.deciding_column]
        broken = {m.limit.reason_code: int((codes == FIRST_LIMIT + i).sum()) for i, m in enumerate(LIMITED) if m.limit}
        return Counter(excluded.reason_code for excluded in self._out_at_all_epochs) + Counter(broken)

    # -- findings and text ----------------------------------------------------------------------------------------

    def findings_of(self, candidate: int, column: int | None = None) -> tuple[Finding, ...]:
        """Findings about one candidate and, at an epoch count, about its limits."""
        found = candidate_findings(self.candidates, candidate, self.settings)
        if column is None:
            return found
        position = self.candidates.machine_estimate[candidate]
        found = price_waits(
            found,
            idle_seconds=self.candidates.of(candidate).runtime.idle_seconds,
            epochs=float(self.assessment.epochs[position, column]),
            usd_per_hour=float(self.candidates.usd_per_hour[candidate]),
        )
        for measure in LIMITED:
            most, high = measure.limit_of(self.settings), self.assessment.measures[measure.name].high
            if most is not None and high[candidate, column] > most:
                found += (measure.warn_over(float(high[candidate, column])),)
        return found

    def terms_of(self, candidate: int, column: int) -> dict[str, float]:
        """Where the time of one candidate at one epoch count goes."""
        position = self.candidates.machine_estimate[candidate]
        terms = self.candidates.of(candidate).runtime.terms_at(float(self.assessment.epochs[position, column]))
        lost = self.assessment.time.value[candidate, column] - self.assessment.work.value[position, column]
        return {**terms, "interruptions": float(lost)} if lost else terms

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Findings about the ranking as a whole, the age of its prices, and its winner."""
        ranked = self.assessment.limits[:, 0] != OTHER_MARKET
        age = describe_age(set(self.candidates.offers["date"].astype(str).to_numpy()[self.candidates.offer[ranked]]))
        winner = self.best.findings if self else ()
        return tuple(dict.fromkeys([*self._findings, *([age] if age else []), *winner]))

    @property
    def verdict(self) -> str:
        """The answer in a sentence or two."""
        return text.verdict(self)

    def __str__(self) -> str:
        return printable_lines(text.as_text(self))

    def __repr__(self) -> str:
        return f"<Ranking of {len(self)} rows: {printable(self.verdict)}>"

    # -- the study, where there was one --------------------------------------------------------------------------

    @property
    def study(self) -> ConvergenceStudy | None:
        """The convergence study that the epochs came from, if one was given."""
        return self.studied.study if self.studied else None

    @property
    def demands(self) -> dict[str, float]:
        """Metric name to the final value that was demanded."""
        return dict(self.studied.demands) if self.studied else {}

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The batch sizes that are feasible, ascending."""
        sizes = {self.candidates.of(int(i)).batch_size for i in np.unique(self.positions[0])}
        return tuple(sorted(size for size in sizes if size is not None))

    def metric(self, batch_size: int | None) -> float | None:
        """Final value of the monitored metric at a batch size, where a study knows it."""
        return self.studied.metric(batch_size) if self.studied else None

    # -- data out ------------------------------------------------------------------------------------------------

    def to_frame(self) -> pd.DataFrame:
        """The rows as a DataFrame, with the fields of :class:`Row` as columns."""
        return to_frame(self)

    def payload(self, *, rows: bool = True, which: Sequence[int] | None = None) -> dict[str, Any]:
        """Everything as plain values, enough to rank again elsewhere; see docs/reference/ranking.md.

        ``which`` are the positions of the candidates to tell of, where not all of very many are wanted.
        """
        return to_payload(self, rows=rows, which=which)

    def to_json(self, *, rows: bool = True, indent: int | None = None) -> str:
        """The payload as JSON text."""
        return json.dumps(
            self.payload(rows=check_flag("rows", rows)),
            indent=check_indent(indent),
            ensure_ascii=False,
            allow_nan=False,
        )

    # -- comparisons ---------------------------------------------------------------------------------------------

    def rerank(self, **changes: Any) -> Ranking:
        """The same candidates under other ``epochs``, ``objective``, ``market``, limits, billing or interruptions."""
        return self._changed(self.settings.changed(**changes), self._findings)

    def with_findings(self, findings: Sequence[Finding]) -> Ranking:
        """The same ranking with more findings, such as which machines a sweep did not probe."""
        return self._changed(self.settings, (*self._findings, *findings))

    def _changed(self, settings: Settings, findings: tuple[Finding, ...]) -> Ranking:
        return Ranking(
            self.candidates, settings, excluded=self.always_excluded, findings=findings, studied=self.studied
        )

    def relative(self, objective: str = "cost") -> pd.DataFrame:
        """A row per candidate, a column per epoch count, each column divided by its minimum: the best is 1.00."""
        return views.relative(self, objective)

    def strategies(self, objective: str = "time") -> pd.DataFrame:
        """The same, ranked by single iterations only: strategies that are known to mislead, beside the estimate."""
        return views.strategies(self, objective)

    def crossovers(self, objective: str = "cost", *, up_to: int = views.HORIZON) -> tuple[views.Crossover, ...]:
        """Where the winner changes as the number of epochs grows from 1 to ``up_to``."""
        return views.crossovers(self, objective, up_to=up_to)

    def settled_from(self, objective: str = "cost", *, up_to: int = views.HORIZON) -> int:
        """The epoch count from which the whole order stays as it is, up to ``up_to``."""
        return views.settled_from(self, objective, up_to=up_to)

    def against(self, instance_type: str) -> pd.DataFrame:
        """Price ratio, speed-up and cost ratio of each candidate relative to ``instance_type``."""
        return views.against(self, instance_type)

    def selection_cost(self) -> selection_cost.SelectionCost:
        """What choosing cost, against running everything everywhere; with a study a :class:`MethodologyCost`.

        Pairs that end below the minimum metric count too: without a study, one learns that by training them.
        """
        return selection_cost.selection_cost(self)

    # -- showing -------------------------------------------------------------------------------------------------
    def chart(self, kind: str = "time-cost", **options: Any) -> Any:
        """An Altair chart; see docs/reference/report.md for the kinds."""
        return hook("ranking_chart")(self, kind, **options)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the self-contained report page and return its path."""
        written: Path = hook("ranking_page")(self, path)
        return written

    def _repr_html_(self) -> str:
        html: str = hook("ranking_html")(self)
        return html


def _count(epochs: float) -> float:
    """An epoch count as a whole number where it is one."""
    return int(epochs) if float(epochs).is_integer() else float(epochs)


# A ranking as a table and as plain values for JSON.


FORMAT = 1
COSTS = ("study_seconds", "study_usd", "probe_seconds", "probe_usd", "exhaustive_seconds", "exhaustive_usd", "fraction")


def to_frame(ranking: Ranking) -> pd.DataFrame:
    """A row per :class:`Row`, a column per field; measures that have no field of their own follow."""
    import pandas as pd

    which, column = ranking.positions
    result, candidates = ranking.assessment, ranking.candidates
    at = which, column
    columns: dict[str, Any] = {
        "rank": result.rank[at], "score": result.score[at], "tied_with_best": result.tied[at],
        "pareto": result.pareto[at], "epochs": result.epochs[candidates.machine_estimate[which], column],
        "price_date": candidates.column("date")[which], "usd_per_hour": candidates.usd_per_hour[which],
    }  # fmt: skip
    for measure in MEASURES.values():
        columns |= dict(zip(measure.fields, (p[at] for p in result.measures[measure.name]), strict=True))
    columns |= {name: candidates.column(name)[which] for name in OFFER_FIELDS}
    for name in ("instance_type", "batch_size", "factors", "basis"):
        columns[name] = candidates.per_machine_estimate(attrgetter(name))[which]
    columns["method"] = candidates.per_machine_estimate(lambda one: one.runtime.method)[which]
    places = list(zip(which.tolist(), column.tolist(), strict=True))
    columns["terms"] = [ranking.terms_of(*place) for place in places]
    columns["findings"] = [ranking.findings_of(*place) for place in places]
    columns["title"] = [candidates.title(candidate) for candidate, _ in places]
    columns["measures"] = [ranking.measures_of(*place) for place in places]
    names = dict.fromkeys([*(field.name for field in fields(Row)), *columns])
    frame = pd.DataFrame({name: columns[name] for name in names})
    if ranking.studied:
        metrics = [ranking.metric(size) for size in frame["batch_size"]]
        frame.insert(list(frame.columns).index("batch_size") + 1, "metric", metrics)
    whole = (frame["epochs"] % 1 == 0).all()
    return frame.astype({"epochs": int}) if whole else frame


def to_payload(ranking: Ranking, *, rows: bool, which: Sequence[int] | None) -> dict[str, Any]:
    """Plain values, all of them finite: identities, prices, coefficients, settings, and with ``rows`` the results.

    Without them, what is excluded is only what no settings bring back.
    """
    findings: dict[Finding, int] = {}

    def number(found: tuple[Finding, ...]) -> list[int]:
        return [findings.setdefault(finding, len(findings)) for finding in found]

    candidates = ranking.candidates
    whole = number(ranking.findings)
    plain: dict[str, Any] = {
        "format": FORMAT,
        "writer": f"vmselect {__version__}",
        "verdict": ranking.verdict,
        "settings": ranking.settings.to_dict(),
        "machines": [
            {
                "instance_type": one.instance_type,
                "provider": one.provider,
                "batch_size": one.batch_size,
                "factors": dict(one.factors),
                "title": one.title,
                "basis": one.basis,
                "repetitions": one.repetitions,
                "probe_seconds": one.probe_seconds,
                "method": one.runtime.method,
                "runtime": one.runtime.coefficients(),
                "iterations": one.iterations,
                "epochs": list(one.epochs) if one.epochs else None,
            }
            for one in candidates.machine_estimates
        ],
        "candidates": [
            {"machine": int(candidates.machine_estimate[i]), "title": candidates.title(i)}
            | candidates.identity(i)
            | {
                "usd_per_hour": float(candidates.usd_per_hour[i]),
                "moving_usd": float(candidates.moving_usd[i]),
                "billing_increment_seconds": float(candidates.increment_seconds[i]),
                "billing_minimum_seconds": float(candidates.minimum_seconds[i]),
                "findings": number(ranking.findings_of(i)),
            }
            for i in (range(len(candidates)) if which is None else which)
        ],
        "excluded": [asdict(excluded) for excluded in (ranking.excluded if rows else ranking.always_excluded)],
    }
    if rows:
        plain["rows"] = [
            vars(row)
            | {"candidate": int(candidate), "findings": number(row.findings), "factors": dict(row.factors)}
            | {"measures": {name: value._asdict() for name, value in row.measures.items()}}
            for row, candidate in zip(ranking.rows, ranking.positions[0], strict=True)
        ]
    plain["ranking_findings"] = whole
    plain["findings"] = [asdict(finding) for finding in findings]
    if ranking.studied:
        sizes = sorted({one.batch_size for one in candidates.machine_estimates if one.batch_size})
        cost = ranking.selection_cost()
        plain["study"] = ranking.studied.to_dict(sizes, {name: getattr(cost, name) for name in COSTS})
    return plain
