"""What is scored, as named facts: rows of a ranking, comparisons, or a table of one's own; each with its origin."""

from __future__ import annotations

import datetime as dt
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from vmselect._checks import (
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
from vmselect._files import read_text
from vmselect.comparison.comparison import Answer, Comparison, plain_rows
from vmselect.comparison.metrics import ALIASES, METRICS, Better, Terms, find_metric, guess_better
from vmselect.errors import ArgumentError, ComparisonError
from vmselect.records import Record

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 1_000

ROW_FACTS: Mapping[str, tuple[str, str, str]] = {
    "cost": ("cost_usd", "USD", "predicted time x price"),
    "time": ("seconds", "s", "predicted from the measured steps"),
    "price": ("usd_per_hour", "USD/h", "catalog"),
    "memory_gib": ("memory_gib", "GiB", "catalog"),
    "vcpus": ("vcpus", "", "catalog"),
    "gpu_count": ("gpu_count", "", "catalog"),
    "gpu_model": ("gpu_model", "", "catalog"),
    "provider": ("provider", "", "catalog"),
    "region": ("region", "", "catalog"),
    "market": ("market", "", "catalog"),
    "service": ("service", "", "catalog"),
    "instance_type": ("instance_type", "", "measured"),
    "batch_size": ("batch_size", "", "measured"),
}
"""Facts in a row of a ranking: attribute, unit and origin."""


@runtime_checkable
class Ranked(Protocol):
    """What a score needs of a ranking, which this layer does not import."""

    @property
    def deciding_rows(self) -> Sequence[Any]:
        """Rows at the deciding epoch count, best first: attributes as in :data:`ROW_FACTS`, and ``measures``."""


@dataclass(frozen=True)
class Fact:
    """A value, where it comes from and of which day; an interval where it is estimated."""

    value: Any
    unit: str = ""
    source: str = "given"
    date: str | None = None
    low: float | None = None
    high: float | None = None


Facts = dict[str, dict[str, Fact]]
"""Candidate to the name of a fact to the fact."""


def collect_facts(scored: Any, *, records: Any = None) -> Facts:
    """Facts of each candidate, from a ranking, one or several comparisons, or a mapping of mappings."""
    if isinstance(scored, Comparison):
        return _from_comparisons([scored])
    if isinstance(scored, Mapping):
        return read_facts(scored)
    if isinstance(scored, Ranked):
        return _from_ranking(scored, records)
    if isinstance(scored, Sequence) and scored and all(isinstance(one, Comparison) for one in scored):
        return _from_comparisons(scored)
    raise ArgumentError(
        f"{show(scored)} cannot be scored. Pass a ranking, comparisons, or a mapping of names to their facts."
    )


def read_facts(given: Mapping[Any, Any]) -> Facts:
    """Candidates with their facts, as a file or a caller writes them."""
    return {
        str(name): {key: read_fact(value) for key, value in check_mapping(f"the facts of {name}", facts).items()}
        for name, facts in given.items()
    }


def read_fact(value: Any) -> Fact:
    """A fact as a file writes it: a plain value, or one with its source and date."""
    if isinstance(value, Fact):
        return value
    if isinstance(value, Mapping):
        if "value" not in value or set(value) - {"value", "unit", "source", "date"}:
            raise ArgumentError(f"A fact has the keys value, unit, source and date, not {', '.join(map(str, value))}.")
        date = value.get("date")
        return Fact(
            _plain(value["value"]),
            str(value.get("unit") or ""),
            str(value.get("source") or "given"),
            date.isoformat() if isinstance(date, dt.date) else None if date is None else str(date),
        )
    return Fact(_plain(value))


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    if value is not None and not isinstance(value, (str, bool, int, float)):
        raise ArgumentError(f"{show(value)} is no fact. Give a number, a text, or true or false.")
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _from_comparisons(comparisons: Sequence[Comparison]) -> Facts:
    found: Facts = {}
    for one in comparisons:
        for name, summary in one.summaries.items():
            date = max((run.date for run in one.members[name] if run.date), default=None)
            origin = _count_runs(summary.count)
            found.setdefault(name, {})[one.metric.name] = Fact(summary.mean, one.metric.unit, origin, date)
    return found


def _from_ranking(ranking: Ranked, records: Any) -> Facts:
    rows = ranking.deciding_rows[:MOST_ROWS]
    if not rows:
        raise ComparisonError("The ranking has no feasible row to score. Loosen its limits.")
    measured = _measured(records)
    found: Facts = {}
    for row, name in zip(rows, _titles(rows), strict=True):
        facts = dict(measured.get((row.instance_type, row.batch_size), {}))
        for key, (attribute, unit, source) in ROW_FACTS.items():
            value = getattr(row, attribute)
            if value is None:
                continue
            low, high = row.measures[key][1:] if key in row.measures else (None, None)
            date = row.price_date if source != "measured" and key != "time" else None
            facts[key] = Fact(_plain(value), unit, source, date, low, high)
        found[name] = facts
    return found


def _titles(rows: Sequence[Any]) -> list[str]:
    """A name for each row: its instance type, and whatever else tells it from the others."""
    telling = [
        name
        for name in ("batch_size", "region", "service", "provider", "market")
        if len({getattr(row, name) for row in rows}) > 1
    ]
    plain = [row.instance_type for row in rows]
    if len(set(plain)) == len(plain):
        return plain
    return [" · ".join([row.instance_type, *(str(getattr(row, name)) for name in telling)]) for row in rows]


def _measured(records: Any) -> dict[tuple[str | None, int | None], dict[str, Fact]]:
    """Means of every metric over the records of each machine and batch size."""
    if records is None:
        return {}
    many = [records] if isinstance(records, Record) else list_items(records)
    if not all(isinstance(record, Record) for record in many):
        raise ArgumentError("records must be records, as vmselect.load_records reads them.")
    values: dict[tuple[str | None, int | None], dict[str, list[float]]] = {}
    dates: dict[tuple[str | None, int | None], str] = {}
    needs_more = {"total_seconds", "cost_usd"}
    for record in many:
        key = (record.instance_type, getattr(record, "batch_size", None))
        dates[key] = max(dates.get(key, ""), record.created.date().isoformat())
        own = list(getattr(record, "metrics", None) or {})
        for name in [*(name for name in METRICS if name not in needs_more), *own]:
            value = find_metric(name, [record]).read(record, Terms())
            if value is not None and is_number(value):
                values.setdefault(key, {}).setdefault(name, []).append(value)
    return {
        key: {
            name: Fact(
                math.fsum(some) / len(some),
                METRICS[name].unit if name in METRICS else "",
                _count_runs(len(some)),
                dates[key],
            )
            for name, some in by_name.items()
        }
        for key, by_name in values.items()
    }


def _count_runs(count: int) -> str:
    return f"mean of {count} run{'' if count == 1 else 's'}"


# Scores of candidates, each traceable to the number it rests on, its origin and its date.


PART_COLUMNS = (
    "candidate", "need", "value", "unit", "low", "high", "condition", "grade", "weight", "points", "source", "date",
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """What one need gives one candidate: ``grade`` from 0 to 1 times its share of all weights, in points of 100."""

    candidate: str
    need: str
    fact: Fact
    grade: float
    weight: float
    points: float
    condition: str = ""


@dataclass(frozen=True, eq=False)
class Scores(Answer):
    """Candidates with their scores, best first; made by :meth:`vmselect.Requirements.score`."""

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
        """The candidate with the highest score, or None where all are out."""
        return next(iter(self.totals), None)

    @property
    def table(self) -> pd.DataFrame:
        """A row per candidate that meets every must-have: rank, score, and the points of each need."""
        import pandas as pd

        points = {(part.candidate, part.need): part.points for part in self.all_parts}
        rows = [
            {"rank": rank, "candidate": name, "score": score, **{need: points[name, need] for need in self.needs}}
            for rank, (name, score) in enumerate(self.totals.items(), start=1)
        ]
        return pd.DataFrame(rows, columns=["rank", "candidate", "score", *self.needs])

    @property
    def parts(self) -> pd.DataFrame:
        """A row per candidate and need: the number, its origin and date, and what it gave."""
        import pandas as pd

        rows = [vars(part) | vars(part.fact) for part in self.all_parts]
        return pd.DataFrame(rows, columns=list(PART_COLUMNS))

    @property
    def side_by_side(self) -> pd.DataFrame:
        """A row per need, a column per candidate with its value, and who is best."""
        import pandas as pd

        rows = []
        for need in self.needs:
            here = [part for part in self.all_parts if part.need == need]
            top = max((part.grade for part in here), default=0.0)
            winners = [part.candidate for part in here if part.grade == top and top > 0]
            rows.append(
                {
                    "need": need,
                    **{part.candidate: part.fact.value for part in here},
                    "best": ", ".join(winners) if len(winners) < len(here) or len(here) == 1 else "equal",
                }
            )
        return pd.DataFrame(rows, columns=["need", *self.candidates, "best"])

    @property
    def verdict(self) -> str:
        """Who scores best, and by what."""
        if not self.totals:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.excluded.items())
            return f"{self.title}: no candidate meets the must-haves ({reasons})."
        (best, score), *rest = self.totals.items()
        own = [part for part in self.all_parts if part.candidate == best and part.weight > 0]
        first = [part.need for part in own if part.grade == 1]
        why = f", first in {', '.join(first)}" if first and rest else ""
        after = f"; then {rest[0][0]} with {rest[0][1]:.1f}" if rest else ""
        out = f"; {len(self.excluded)} left out" if self.excluded else ""
        return f"{self.title}: {best} scores {score:.1f} of 100{why}{after}{out}."

    def payload(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "title": self.title,
            "best": self.best,
            "table": plain_rows(self.table),
            "parts": plain_rows(self.parts),
            "excluded": dict(self.excluded),
            "verdict": self.verdict,
        }

    def __repr__(self) -> str:
        return f"<Scores of {len(self.totals)}: {self}>"


# Requirements: what matters to the user, with weights and must-haves, turned into a score that can be traced.
#
# A graded need scores best / value where less is better, value / best where more is; a condition scores 1 or 0. The
# total
# is the weighted mean, from 0 to 100. A candidate that misses a must-have is out, with the reason.


LIMIT_BYTES = 1_000_000
KEYS = ("weight", "better", "at_least", "at_most", "one_of", "must")
LESS_BY_NAME = ("cost", "time", "price")


@dataclass(frozen=True)
class Need:
    """One thing that matters: how much (``weight``), which way is better, within which bounds, and whether it must be.

    >>> Need("memory_gib", at_least=16, must=True).weight
    0.0
    """

    name: str
    weight: float | None = None
    better: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    one_of: Sequence[Any] | None = None
    must: bool = False

    def __post_init__(self) -> None:
        name = check_name("the name of a need", self.name)
        set_own = object.__setattr__  # what was given becomes what it means, once
        set_own(self, "name", name)
        set_own(self, "must", check_flag(f"must of {name}", self.must))
        for bound in ("at_least", "at_most"):
            set_own(self, bound, maybe(check_number, f"{bound} of {name}", getattr(self, bound)))
        if self.one_of is not None:
            several = isinstance(self.one_of, (list, tuple, set, frozenset))
            choices = tuple(self.one_of) if several else (self.one_of,)
            if not choices:
                raise ArgumentError(f"one_of of {name} is empty. Give at least one value.")
            set_own(self, "one_of", choices)
        if self.better not in (None, "less", "more"):
            raise ArgumentError(f"better of {name} must be 'less' or 'more', not {show(self.better)}.")
        if self.must and not self.is_condition:
            raise ArgumentError(
                f"{name} must be met, but nothing says what that means. Add at_least, at_most or one_of."
            )
        weight = self.weight if self.weight is not None else 0.0 if self.must else 1.0
        set_own(self, "weight", check_number(f"weight of {name}", weight, least=0, most=1e6))

    @property
    def is_condition(self) -> bool:
        """Whether it can be met or missed."""
        return self.at_least is not None or self.at_most is not None or self.one_of is not None

    @property
    def direction(self) -> Better | None:
        """Which way is better, as told or as the name tells; None for a condition that is only met or missed."""
        if self.better is not None:
            return "less" if self.better == "less" else "more"
        if self.is_condition:
            return None
        if self.name in LESS_BY_NAME:
            return "less"
        known = METRICS.get(ALIASES.get(self.name, self.name))
        return known.better if known else guess_better(self.name)

    def is_met(self, value: Any) -> bool:
        """Whether a value keeps the bounds; an unknown one does not."""
        if value is None:
            return False
        if self.one_of is not None and not any(_alike(value, choice) for choice in self.one_of):
            return False
        if self.at_least is None and self.at_most is None:
            return True
        if not is_number(value):
            return False
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)

    def describe(self) -> str:
        """The condition in words."""
        parts = [
            f"at least {self.at_least:g}" if self.at_least is not None else "",
            f"at most {self.at_most:g}" if self.at_most is not None else "",
            f"one of {', '.join(map(str, self.one_of))}" if self.one_of is not None else "",
        ]
        return " and ".join(filter(None, parts))


@dataclass(frozen=True)
class Requirements:
    """Needs, and facts that neither measurement nor catalog know; from Python or from a small file.

    >>> needs = Requirements({"cost": 3, "uptime": 1, "memory_gib": {"at_least": 16, "must": True}})
    >>> scores = needs.score({"A": {"cost": 2.0, "uptime": 99.99, "memory_gib": 16},
    ...                       "B": {"cost": 1.0, "uptime": 99.95, "memory_gib": 8},
    ...                       "C": {"cost": 4.0, "uptime": 99.95, "memory_gib": 32}})
    >>> scores.best, scores.table["score"].round(1).tolist(), scores.excluded
    ('A', [100.0, 62.5], {'B': 'memory_gib is 8, not at least 16'})
    """

    needs: Any
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    title: str = "requirements"

    def __post_init__(self) -> None:
        object.__setattr__(self, "needs", _read_needs(self.needs))
        object.__setattr__(self, "facts", read_facts(check_mapping("facts", self.facts)))
        object.__setattr__(self, "title", check_name("title", self.title))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Requirements:
        """Read a file of requirements (YAML, or JSON, which is YAML too); see docs/reference/comparison.md."""
        where = check_path("path", path)
        text = read_text(where, noun="requirements file", limit=LIMIT_BYTES, error=ComparisonError)
        import yaml

        try:
            data = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, RecursionError) as broken:
            reason = " ".join(str(broken).split())[:200]
            raise ComparisonError(f"{where}: this is no YAML: {reason}. Correct it, and try again.") from None
        if not isinstance(data, dict) or "needs" not in data or set(data) - {"needs", "facts", "title"}:
            raise ComparisonError(f"{where}: a requirements file has the keys needs and, if wanted, facts and title.")
        try:
            return cls(data["needs"], data.get("facts") or {}, data.get("title") or where.stem)
        except ArgumentError as wrong:
            raise ComparisonError(f"{where}: {wrong}") from None

    def score(self, ranking: Any, *, records: Any = None) -> Scores:
        """Score the rows of a ranking, the groups of comparisons, or a mapping of names to facts.

        ``records`` let needs be metrics that a ranking does not hold: throughput, utilisation, a metric of your own.
        """
        everyone = self._with_own_facts(collect_facts(ranking, records=records))
        excluded = {name: reason for name, facts in everyone.items() if (reason := self._missed(facts))}
        kept = {name: facts for name, facts in everyone.items() if name not in excluded}
        weighted = [need for need in self.needs if need.weight > 0]
        known = {name for facts in everyone.values() for name in facts}
        for need in weighted:
            if need.name not in known:
                raise ComparisonError(
                    f"Nobody tells {need.name!r}. Known here: {', '.join(sorted(known))}; or add it under facts."
                )
        total = math.fsum(need.weight for need in weighted)
        parts = []
        for need in self.needs:
            best = _best(need, [facts.get(need.name) for facts in kept.values()])
            for name, facts in kept.items():
                fact = facts.get(need.name, Fact(None))
                grade = _grade(need, fact.value, best)
                share = need.weight / total if total else 0.0
                parts.append(Part(name, need.name, fact, grade, share, 100 * share * grade, need.describe()))
        return Scores(tuple(kept), tuple(need.name for need in self.needs), tuple(parts), excluded, self.title)

    def _with_own_facts(self, found: Facts) -> Facts:
        """Facts of the file beside those found: under a candidate's name, its instance type, region or provider."""
        everyone: Facts = {}
        for name, facts in found.items():
            labels = [facts[key].value for key in ("provider", "region", "instance_type") if key in facts]
            own: dict[str, Fact] = {}
            for label in [*labels, name]:
                own |= dict(self.facts.get(str(label), {}))
            everyone[name] = {**facts, **own}
        return everyone

    def _missed(self, facts: Mapping[str, Fact]) -> str | None:
        for need in self.needs:
            value = facts.get(need.name, Fact(None)).value
            if need.must and not need.is_met(value):
                shown = "unknown" if value is None else f"{value:g}" if is_number(value) else str(value)
                return f"{need.name} is {shown}, not {need.describe()}"
        return None


def _read_needs(given: Any) -> tuple[Need, ...]:
    if isinstance(given, Mapping):
        items = [
            Need(name, weight=value) if is_number(value) else _read_need(name, value)
            for name, value in check_mapping("needs", given).items()
        ]
    elif isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
        items = [one if isinstance(one, Need) else _read_need(None, one) for one in given]
    else:
        raise ArgumentError(f"needs must map names to weights or conditions, not {show(given)}.")
    if not items:
        raise ArgumentError("There is no need to score by. Give at least one.")
    names = [need.name for need in items]
    if len(set(names)) < len(names):
        raise ArgumentError(f"A need is named twice ({', '.join(names)}). Give each once.")
    return tuple(items)


def _read_need(name: str | None, value: Any) -> Need:
    about = check_mapping(f"the need {name}" if name else "a need", value)
    if name is None:
        name = about.pop("name", None)
    unknown = set(about) - set(KEYS)
    if unknown:
        raise ArgumentError(
            f"The need {name} has unknown keys ({', '.join(sorted(unknown))}). Known: {', '.join(KEYS)}."
        )
    return Need(check_name("the name of a need", name), **about)


def _best(need: Need, facts: Sequence[Fact | None]) -> float | None:
    values = [fact.value for fact in facts if fact is not None and is_number(fact.value)]
    if need.direction is None or not values:
        return None
    return float(min(values) if need.direction == "less" else max(values))


def _grade(need: Need, value: Any, best: float | None) -> float:
    """From 0 to 1: how near the best, or whether the condition is met."""
    if value is None:
        return 0.0
    if need.direction is None:
        return float(need.is_met(value)) if need.is_condition else float(value is True)
    if not is_number(value) or best is None:
        return float(value is True)
    if need.is_condition and not need.is_met(value):
        return 0.0
    if value == best:
        return 1.0
    if min(value, best) <= 0:
        return 0.0
    return float(best / value if need.direction == "less" else value / best)


def _alike(value: Any, choice: Any) -> bool:
    return str(value).casefold() == str(choice).casefold()
