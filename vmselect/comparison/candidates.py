"""What is scored, as named facts: rows of a ranking, comparisons, or a table of one's own; each with its origin."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from vmselect._checks import check_mapping, is_number, list_items, show
from vmselect.comparison.metrics import METRICS, Terms, find_metric
from vmselect.comparison.result import Comparison
from vmselect.errors import ArgumentError, ComparisonError
from vmselect.records import Record

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
