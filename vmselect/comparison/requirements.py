# Models that are made from dataclasses are variables for mypy, not types.
# mypy: disable-error-code="valid-type,call-arg"
"""Requirements with weights and mandatory conditions, and the scores of candidates by these requirements.

A requirement (class ``Need``) is graded by best / value if less is better, and by value / best if more is better; an
uptime is graded by its downtime. A condition has the grade 1 or 0. The score of a candidate is the weighted mean of its
grades, from 0 to 100. A candidate that fails a mandatory condition (``must``) is excluded, with the reason. Every grade
comes with the fact on which it is based, and with the source and date of that fact.

The models of the JSON (:class:`ScoresOutput`) are at the end of this module.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Protocol, get_type_hints, runtime_checkable

import pandas as pd
import yaml

from vmselect._checks import (
    check_choice,
    check_flag,
    check_mapping,
    check_name,
    check_number,
    check_path,
    is_number,
    list_items,
    maybe,
    show,
)
from vmselect._io import read_text
from vmselect._models import OpenOutput, Output, make_model, plain
from vmselect.comparison.groups import Comparison, Result
from vmselect.comparison.runs import ALIASES, METRICS, Terms, find_metric, guess_better
from vmselect.errors import ArgumentError, ComparisonError
from vmselect.records import Record

Plain = str | bool | int | float | None
"""A value of a fact; None if it is unknown."""

MAX_ROWS = 1_000
MAX_FILE_BYTES = 1_000_000
KEYS = ("weight", "better", "at_least", "at_most", "one_of", "must")
FACT_KEYS = ("value", "unit", "source", "date")
LESS_BY_NAME = ("cost", "time", "price")
PART_COLUMNS = (
    "candidate", "need", "value", "unit", "low", "high", "condition", "grade", "weight", "points", "source", "date",
)  # fmt: skip
ROW_FACTS: Mapping[str, tuple[str, str, str]] = {
    "cost": ("cost_usd", "USD", "predicted time x price"),
    "time": ("seconds", "s", "predicted from the measured steps"),
    "price": ("usd_per_hour", "USD/h", "catalog"),
    "memory_gib": ("memory_gib", "GiB", "catalog"),
    **{
        name: (name, "", "catalog")
        for name in ("vcpus", "gpu_count", "gpu_model", "provider", "region", "market", "service")
    },
    "instance_type": ("instance_type", "", "measured"),
    "batch_size": ("batch_size", "", "measured"),
}
"""Facts that a row of a ranking provides: name of its attribute, unit, and source."""


# -- facts about candidates --------------------------------------------------------------------------------------------


@runtime_checkable
class Ranked(Protocol):
    """The attributes of a ranking that scoring uses. This module may not import rankings, which are a higher layer."""

    @property
    def deciding_rows(self) -> Sequence[Any]:
        """Ranked candidates at the deciding number of epochs, best first, with the attributes in :data:`ROW_FACTS`."""


@dataclass(frozen=True)
class Fact:
    """A value of a candidate with its source and date, and with an interval if it is estimated."""

    value: Plain
    unit: str = ""
    source: str = "given"
    date: str | None = None
    low: float | None = None
    high: float | None = None


Facts = dict[str, dict[str, Fact]]
"""Facts by the name of the candidate and the name of the fact."""


def collect_facts(scored: object, *, records: object = None) -> Facts:
    """Facts of each candidate, read from a ranking, one or more comparisons, or a mapping of names to facts."""
    if isinstance(scored, Mapping):
        return read_facts(scored)
    if isinstance(scored, Ranked):
        return _from_ranking(scored, records)
    comparisons = list_items(scored)
    if not comparisons or not all(isinstance(item, Comparison) for item in comparisons):
        raise ArgumentError(
            f"{show(scored)} cannot be scored. Pass a ranking, comparisons, or a mapping of candidates to their facts."
        )
    candidates: Facts = {}
    for comparison in comparisons:
        for name, summary in comparison.summaries.items():
            date = max((run.date for run in comparison.members[name] if run.date), default=None)
            fact = Fact(summary.mean, comparison.metric.unit, _describe_runs(summary.count), date)
            candidates.setdefault(name, {})[comparison.metric.name] = fact
    return candidates


def read_facts(candidates: Mapping[str, object]) -> Facts:
    """Facts of each candidate, read from a mapping that a file or a caller provides."""
    return {
        str(name): {key: _read_fact(value) for key, value in check_mapping(f"the facts of {name}", facts).items()}
        for name, facts in candidates.items()
    }


def _read_fact(value: object) -> Fact:
    """One fact about a candidate, from a plain value or from a mapping with the keys :data:`FACT_KEYS`."""
    if not isinstance(value, Mapping):
        return Fact(_check_plain(value))
    if "value" not in value or set(value) - set(FACT_KEYS):
        raise ArgumentError(
            f"A fact has the keys {', '.join(map(str, value))}. The key 'value' is required; 'unit', 'source' and "
            "'date' are optional."
        )
    date = value.get("date")
    return Fact(
        _check_plain(value["value"]),
        str(value.get("unit") or ""),
        str(value.get("source") or "given"),
        date.isoformat() if isinstance(date, dt.date) else None if date is None else str(date),
    )


def _check_plain(value: object) -> Plain:
    value = plain(value)
    if not isinstance(value, (str, bool, int, float, type(None))):
        raise ArgumentError(f"The value of a fact must be a number, a text, true or false, not {show(value)}.")
    return value


def _from_ranking(ranking: Ranked, records: object) -> Facts:
    rows = ranking.deciding_rows[:MAX_ROWS]
    if not rows:
        raise ComparisonError("All candidates of the ranking are excluded. Relax the deadline or the budget.")
    measured = _from_records(records)
    candidates: Facts = {}
    for row, name in zip(rows, _name_rows(rows), strict=True):
        # What the ranking states about its own candidate takes precedence over means of records.
        facts = dict(measured.get((row.instance_type, row.batch_size), {}))
        for key, (attribute, unit, source) in ROW_FACTS.items():
            value = getattr(row, attribute)
            if value is None:
                continue
            low, high = row.measures[key][1:] if key in row.measures else (None, None)
            date = row.price_date if source != "measured" and key != "time" else None
            facts[key] = Fact(_check_plain(value), unit, source, date, low, high)
        candidates[name] = facts
    return candidates


def _name_rows(rows: Sequence[Any]) -> list[str]:
    """A name for each candidate: its instance type and, if that is not unique, all attributes that differ."""
    names = [row.instance_type for row in rows]
    if len(set(names)) == len(names):
        return names
    varied = [
        name
        for name in ("batch_size", "region", "service", "provider", "market")
        if len({getattr(row, name) for row in rows}) > 1
    ]
    return [" · ".join([row.instance_type, *(str(getattr(row, name)) for name in varied)]) for row in rows]


def _from_records(records: object) -> dict[tuple[str | None, int | None], dict[str, Fact]]:
    """Mean of every metric over the records of each instance type and batch size."""
    many = [] if records is None else [records] if isinstance(records, Record) else list_items(records)
    if not all(isinstance(record, Record) for record in many):
        raise ArgumentError("records contains other objects than records. Read records with vmselect.load_records.")
    values: dict[tuple[str | None, int | None], dict[str, list[float]]] = {}
    dates: dict[tuple[str | None, int | None], str] = {}
    registered = [name for name in METRICS if name not in ("total_seconds", "cost_usd")]  # these need epochs
    for record in many:
        key = (record.instance_type, getattr(record, "batch_size", None))
        dates[key] = max(dates.get(key, ""), record.created.date().isoformat())
        for name in [*registered, *(getattr(record, "metrics", None) or {})]:
            value = find_metric(name, [record]).read(record, Terms())
            if value is not None and is_number(value):
                values.setdefault(key, {}).setdefault(name, []).append(value)
    return {
        key: {
            name: Fact(math.fsum(runs) / len(runs), find_metric(name).unit, _describe_runs(len(runs)), dates[key])
            for name, runs in by_name.items()
        }
        for key, by_name in values.items()
    }


def _describe_runs(count: int) -> str:
    return f"mean of {count} run{'' if count == 1 else 's'}"


# -- scores ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """The ``points`` of a candidate for one requirement: ``grade`` (0 to 1) x ``weight`` (share of all) x 100."""

    candidate: str
    need: str
    fact: Fact
    grade: float
    weight: float
    points: float
    condition: str = ""


@dataclass(frozen=True, eq=False)
class Scores(Result):
    """Candidates with their scores, best first; made by :meth:`vmselect.stats.Requirements.score`."""

    _table = "scores_html"

    candidates: tuple[str, ...]
    needs: tuple[str, ...]
    all_parts: tuple[Part, ...]
    excluded: Mapping[str, str]
    title: str

    @cached_property
    def totals(self) -> dict[str, float]:
        """Score of each candidate, from 0 to 100, best first."""
        sums = {
            name: math.fsum(part.points for part in self.all_parts if part.candidate == name)
            for name in self.candidates
        }
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    @property
    def best(self) -> str | None:
        """The candidate with the highest score, or None if all are excluded."""
        return next(iter(self.totals), None)

    @property
    def table(self) -> pd.DataFrame:
        """A row per candidate that is not excluded: rank, score, and the points for each requirement."""
        points = {(part.candidate, part.need): part.points for part in self.all_parts}
        rows = [
            {"rank": rank, "candidate": name, "score": score, **{need: points[name, need] for need in self.needs}}
            for rank, (name, score) in enumerate(self.totals.items(), start=1)
        ]
        return pd.DataFrame(rows, columns=["rank", "candidate", "score", *self.needs])

    @property
    def parts(self) -> pd.DataFrame:
        """A row per candidate and requirement: the value, its source and date, its grade and its points."""
        rows = [vars(part) | vars(part.fact) for part in self.all_parts]
        return pd.DataFrame(rows, columns=list(PART_COLUMNS))

    def to_output(self) -> ScoresOutput:
        """The scores as the model that is printed as JSON."""
        return ScoresOutput.of(self)

    @property
    def side_by_side(self) -> pd.DataFrame:
        """A row per requirement: the value of each candidate, and the name of the best candidate."""
        rows = []
        for need in self.needs:
            here = [part for part in self.all_parts if part.need == need]
            top = max((part.grade for part in here), default=0.0)
            winners = [part.candidate for part in here if part.grade == top and top > 0]
            best = ", ".join(winners) if len(winners) < len(here) or len(here) == 1 else "equal"
            rows.append({"need": need, **{part.candidate: part.fact.value for part in here}, "best": best})
        return pd.DataFrame(rows, columns=["need", *self.candidates, "best"])

    @property
    def verdict(self) -> str:
        """Sentence with the best candidate, its score, and the requirements that it meets best."""
        if not self.totals:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.excluded.items())
            return f"{self.title}: no candidate meets the mandatory conditions ({reasons})."
        (best, score), *rest = self.totals.items()
        first = [part.need for part in self.all_parts if part.candidate == best and part.weight > 0 and part.grade == 1]
        why = f", first in {', '.join(first)}" if first and rest else ""
        after = f"; then {rest[0][0]} with {rest[0][1]:.1f}" if rest else ""
        out = f"; {len(self.excluded)} excluded" if self.excluded else ""
        return f"{self.title}: {best} scores {score:.1f} of 100{why}{after}{out}."

    def __repr__(self) -> str:
        return f"<Scores of {len(self.totals)}: {self}>"


# -- requirements ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Need:
    """A requirement: ``weight``, whether ``less`` or ``more`` is ``better``, its conditions, and ``must`` if mandatory.

    >>> Need("memory_gib", at_least=16, must=True).weight
    0.0
    """

    name: str
    weight: float | None = None
    better: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    one_of: Sequence[Plain] | None = None
    must: bool = False

    def __post_init__(self) -> None:
        name = check_name("the name of a requirement", self.name)
        # A mandatory condition excludes candidates; it does not also earn points unless a weight asks for that.
        weight = self.weight if self.weight is not None else 0.0 if self.must else 1.0
        checked = {
            "name": name,
            "must": check_flag(f"must of {name}", self.must),
            "weight": check_number(f"weight of {name}", weight, least=0, most=1e6),
            "better": maybe(check_choice, f"better of {name}", self.better, choices=("less", "more")),
            "at_least": maybe(check_number, f"at_least of {name}", self.at_least),
            "at_most": maybe(check_number, f"at_most of {name}", self.at_most),
        }
        if self.one_of is not None:
            several = isinstance(self.one_of, (list, tuple, set, frozenset))
            checked["one_of"] = tuple(self.one_of) if several else (self.one_of,)
            if not checked["one_of"]:
                raise ArgumentError(f"one_of of {name} is empty. Give at least one value.")
        for attribute, value in checked.items():
            object.__setattr__(self, attribute, value)
        if self.must and not self.is_condition:
            raise ArgumentError(f"Requirement {name} has must=True but no condition. Add at_least, at_most or one_of.")

    @property
    def is_condition(self) -> bool:
        """Whether this requirement has a condition: ``at_least``, ``at_most`` or ``one_of``."""
        return self.at_least is not None or self.at_most is not None or self.one_of is not None

    @property
    def direction(self) -> str | None:
        """Whether ``less`` or ``more`` is better, as given or inferred from the name; None for a pure condition."""
        if self.better is not None or self.is_condition:
            return self.better
        if self.name in LESS_BY_NAME:
            return "less"
        metric = METRICS.get(ALIASES.get(self.name, self.name))
        return metric.better if metric else guess_better(self.name) or ("more" if self._names_uptime else None)

    @property
    def is_uptime(self) -> bool:
        """Whether the name is that of an uptime (service-level agreement), of which more is better.

        It is graded by the downtime: 99.95 % is five times the downtime of 99.99 %, not nearly the same.
        """
        return self._names_uptime and self.direction == "more"

    @property
    def _names_uptime(self) -> bool:
        words = set(re.findall(r"[a-z]+", self.name.lower()))
        return bool(words & {"sla", "uptime", "availability"}) or {"service", "level"} <= words

    def is_met(self, value: Plain) -> bool:
        """Whether ``value`` meets the condition. An unknown value (None) does not meet it."""
        if value is None:
            return False
        if self.one_of is not None and str(value).casefold() not in {str(choice).casefold() for choice in self.one_of}:
            return False
        if self.at_least is not None and not (is_number(value) and value >= self.at_least):
            return False
        return self.at_most is None or (is_number(value) and value <= self.at_most)

    def grade(self, value: Plain, best: float | None) -> float:
        """Return the grade of ``value`` from 0 to 1.

        If more is better, the grade is ``value / best``, where ``best`` is the best value of all candidates. If less is
        better, it is ``best / value``. An uptime is graded by its downtime. In all cases it is 0 if a limit is not met.
        If neither is better, it is 1 if the condition is met, else 0. Without a condition, a fact that is true or
        false, such as ``managed``, has the grade 1 if it is true. Other values without a direction or a ``best`` (None
        if no candidate has a number) have the grade 0.
        """
        if value is None:
            return 0.0
        if self.direction is None and self.is_condition:
            return float(self.is_met(value))
        if self.direction is None or not is_number(value) or best is None:
            return float(value is True)  # is_number excludes bools, so they end here
        if self.is_condition and not self.is_met(value):
            return 0.0
        if value == best:
            return 1.0  # also if both are 0
        whole = 1.0 if best <= 1 else 100.0
        if self.is_uptime and value <= best <= whole:
            return (whole - best) / (whole - value)
        if min(value, best) <= 0:
            return 0.0  # a ratio with zero or a negative number has no meaning
        return float(best / value if self.direction == "less" else value / best)

    def describe(self) -> str:
        """The condition as text."""
        parts = [
            f"at least {self.at_least:g}" if self.at_least is not None else "",
            f"at most {self.at_most:g}" if self.at_most is not None else "",
            f"one of {', '.join(map(str, self.one_of))}" if self.one_of is not None else "",
        ]
        return " and ".join(filter(None, parts))


@dataclass(frozen=True)
class Requirements:
    """Requirements, and facts about candidates that are neither measured nor in the catalog.

    >>> needs = Requirements({"cost": 3, "uptime": 1, "memory_gib": {"at_least": 16, "must": True}})
    >>> scores = needs.score({"A": {"cost": 2.0, "uptime": 99.99, "memory_gib": 16},
    ...                       "B": {"cost": 1.0, "uptime": 99.95, "memory_gib": 8},
    ...                       "C": {"cost": 4.0, "uptime": 99.95, "memory_gib": 32}})
    >>> scores.best, scores.table["score"].round(1).tolist(), scores.excluded
    ('A', [100.0, 42.5], {'B': 'memory_gib is 8, not at least 16'})
    """

    needs: Any
    facts: Mapping[str, Mapping[str, Fact]] = field(default_factory=dict)
    title: str = "requirements"

    def __post_init__(self) -> None:
        object.__setattr__(self, "needs", _read_needs(self.needs))
        object.__setattr__(self, "facts", read_facts(check_mapping("facts", self.facts)))
        object.__setattr__(self, "title", check_name("title", self.title))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Requirements:
        """Read a file of requirements (YAML or JSON); see docs/how-to/compare-machines.md."""
        where = check_path("path", path)
        text = read_text(where, noun="requirements file", limit=MAX_FILE_BYTES, error=ComparisonError)
        try:
            data = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, RecursionError) as broken:
            raise ComparisonError(f"{where} is not valid YAML: {' '.join(str(broken).split())[:200]}.") from None
        if not isinstance(data, dict) or "needs" not in data or set(data) - {"needs", "facts", "title"}:
            raise ComparisonError(f"{where} lacks 'needs' or has unknown keys. Use 'needs', 'facts' and 'title'.")
        try:
            return cls(data["needs"], data.get("facts") or {}, data.get("title") or where.stem)
        except ArgumentError as wrong:
            raise ComparisonError(f"{where}: {wrong}") from None

    def score(self, ranking: object, *, records: object = None) -> Scores:
        """Score the candidates of a ranking, the groups of comparisons, or a mapping of candidates to facts.

        ``records`` provide metrics that a ranking does not contain, such as throughput or a custom metric.
        """
        everyone = self._add_own_facts(collect_facts(ranking, records=records))
        # Candidates that miss a mandatory condition do not define the best value of a requirement either.
        excluded = {name: reason for name, facts in everyone.items() if (reason := self._find_missed_must(facts))}
        kept = {name: facts for name, facts in everyone.items() if name not in excluded}
        names = {name for facts in everyone.values() for name in facts}
        unknown = [need.name for need in self.needs if need.weight > 0 and need.name not in names]
        if unknown:
            raise ComparisonError(
                f"{unknown[0]!r} is unknown for all candidates. Add it to 'facts', or use: {', '.join(sorted(names))}."
            )
        total = math.fsum(need.weight for need in self.needs)
        parts = []
        for need in self.needs:
            facts_here = {name: facts.get(need.name, Fact(None)) for name, facts in kept.items()}
            numbers = [fact.value for fact in facts_here.values() if is_number(fact.value)]
            if need.weight > 0:
                _check_gradable(need, facts_here)
            best = None
            if need.direction is not None and numbers:
                best = float(min(numbers) if need.direction == "less" else max(numbers))
            share = need.weight / total if total else 0.0
            for name, fact in facts_here.items():
                grade = need.grade(fact.value, best)
                parts.append(Part(name, need.name, fact, grade, share, 100 * share * grade, need.describe()))
        return Scores(tuple(kept), tuple(need.name for need in self.needs), tuple(parts), excluded, self.title)

    def _add_own_facts(self, candidates: Facts) -> Facts:
        """Facts of each candidate, with the user's facts about its provider, region, instance type or name added."""
        everyone: Facts = {}
        for name, facts in candidates.items():
            labels = [facts[key].value for key in ("provider", "region", "instance_type") if key in facts]
            everyone[name] = dict(facts)
            # From the general to the particular: a fact about a candidate replaces one about its region.
            for label in [*labels, name]:
                everyone[name] |= self.facts.get(str(label), {})
        return everyone

    def _find_missed_must(self, facts: Mapping[str, Fact]) -> str | None:
        for need in self.needs:
            value = facts.get(need.name, Fact(None)).value
            if need.must and not need.is_met(value):
                shown = "unknown" if value is None else f"{value:g}" if is_number(value) else str(value)
                return f"{need.name} is {shown}, not {need.describe()}"
        return None


def _check_gradable(need: Need, facts: Mapping[str, Fact]) -> None:
    """Raise ComparisonError if one of the ``facts`` would get the grade 0 only because of how it is written."""
    is_pure_condition = need.direction is None and need.is_condition
    for name, fact in facts.items():
        if isinstance(fact.value, str) and not (is_pure_condition and need.one_of is not None):
            raise ComparisonError(
                f"{need.name} of {name} is the text {show(fact.value)}, which cannot be graded. Give a number, or "
                "state with one_of which texts are good."
            )
        if need.direction is None and not is_pure_condition and is_number(fact.value):
            raise ComparisonError(
                f"{need.name} of {name} is {fact.value:g}, and whether less or more is better is unknown. Add "
                "'better: less' or 'better: more' to the requirement."
            )
    numbers = [fact.value for fact in facts.values() if is_number(fact.value)] if need.is_uptime else []
    uptimes = [value for value in numbers if value > 0]
    if uptimes and min(uptimes) <= 1 < max(uptimes):
        raise ComparisonError(
            f"{need.name} is {min(uptimes):g} of one candidate and {max(uptimes):g} of another, a share and a "
            "percentage. Give all as percentages, as in 99.95."
        )


def _read_needs(values: object) -> tuple[Need, ...]:
    needs = []
    for name, value in check_mapping("needs", values).items():
        options = {"weight": value} if is_number(value) else check_mapping(f"the requirement {name}", value)
        unknown = set(options) - set(KEYS)
        if unknown:
            raise ArgumentError(
                f"Requirement {name} has unknown keys: {', '.join(sorted(unknown))}. Known keys: {', '.join(KEYS)}."
            )
        needs.append(Need(name, **options))
    if not needs:
        raise ArgumentError("needs is empty. Give at least one requirement.")
    return tuple(needs)


# -- JSON output -------------------------------------------------------------------------------------------------------


class ScoreRow(OpenOutput):
    """A candidate (a group of runs) with its score, and with its points for each requirement."""

    rank: int
    candidate: str
    score: float


ScorePart = make_model(
    "ScorePart", "The points of a candidate in one requirement.",
    candidate=str, need=str, condition=str, grade=float, weight=float, points=float,
    **{field.name: get_type_hints(Fact)[field.name] for field in fields(Fact)},
)  # fmt: skip


class ScoresOutput(Output):
    """Groups of runs, scored by requirements."""

    title: str
    best: str | None
    table: list[ScoreRow]
    parts: list[ScorePart]
    excluded: dict[str, str]
    verdict: str
