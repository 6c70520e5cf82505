"""Runs, each with one independent value, read from records, rows of a table, or numbers.

A run is one measurement, such as a record. Steps are readings inside a run, not repetitions of the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from vmselect._checks import check_choice, check_name, is_number, list_items, maybe, several, show
from vmselect.comparison.metrics import Metric, Terms, find_metric
from vmselect.errors import ArgumentError, ComparisonError
from vmselect.estimation.grouping import check_comparable
from vmselect.findings import Finding
from vmselect.records import Profile, Record
from vmselect.records.identity import MACHINE_NAMES, NOT_FACTORS, distinct, identify

READ: Mapping[str, Callable[[Any], Any]] = {
    **{name: attrgetter(name) for name in ("instance_type", "provider", "region", "kind")},
    "model": lambda r: getattr(r, "model", None),
    "batch_size": lambda r: getattr(r, "batch_size", None),
    **{name: attrgetter(f"environment.{name}") for name in ("backend", "precision", "jit", "workers", "replicas")},
    "cores": lambda r: r.environment.usable_cores,
    "gpu": lambda r: r.environment.gpus[0].name if r.environment.gpus else None,
    "cpu": lambda r: r.environment.cpu_model,
    "operating_system": lambda r: r.environment.operating_system,
    "created": lambda r: r.created.date().isoformat(),
}
"""Names by which every record can be grouped, in addition to its factors, and functions that read them."""

TASK_KEYS = frozenset(READ) - {"model", "batch_size", "kind"}
"""Names by which records can be grouped that do not affect what is trained; a custom factor may affect it."""

UNKNOWN = "unknown"

Levels = tuple[Any, ...]


@dataclass(frozen=True)
class Run:
    """One measurement: its value, its levels of the grouping factors, and the readings (``series``) inside it."""

    levels: Levels
    value: float
    series: tuple[float, ...] = ()
    title: str = ""
    date: str | None = None
    moment: float | None = None
    """When the run began, in seconds since 1970; None if the user gave its times."""
    scenario: Levels = ()
    """Levels of the factors ``within``: groups are compared only among runs with the same levels."""


@dataclass(frozen=True)
class Runs:
    """All runs of a comparison, their metric, and findings about them."""

    names: tuple[str, ...]
    metric: Metric
    runs: tuple[Run, ...]
    findings: tuple[Finding, ...] = ()
    records: tuple[Record, ...] = ()

    def by_group(self) -> dict[str, list[Run]]:
        """The runs of each group, by the name of the group, sorted by level."""
        found: dict[Levels, list[Run]] = {}
        for run in self.runs:
            found.setdefault(run.levels, []).append(run)
        return {name_levels(levels): found[levels] for levels in sorted(found, key=sort_key)}


def name_levels(levels: Levels) -> str:
    """The name of the group with these ``levels``."""
    return " · ".join(str(level) for level in levels)


def sort_key(levels: Sequence[Any]) -> tuple[tuple[bool, float, str], ...]:
    """A sort key that orders levels: numbers by size, then texts."""
    return tuple((not is_number(level), float(level) if is_number(level) else 0.0, str(level)) for level in levels)


def unwrap(value: Any) -> Any:
    """A numpy scalar as a Python value; any other value unchanged."""
    return value.item() if hasattr(value, "item") else value


def collect_runs(
    data: Any,
    *,
    names: Any,
    metric: str | None,
    better: str | None = None,
    terms: Terms,
    model: str | None = None,
    what: str = "by",
) -> Runs:
    """Runs from records, from rows (a DataFrame, or mappings) with a column for each of ``names``, or from numbers."""
    wanted, model = several(check_name, what, names), maybe(check_name, "model", model)
    metric = maybe(check_name, "metric", metric)
    better = maybe(check_choice, "better", better, choices=("less", "more"))
    groups = _read_groups(data) if isinstance(data, Mapping) else {"": _read_items(data)}
    items = [(name, item) for name, values in groups.items() for item in values]
    if all(isinstance(item, Record) for _, item in items):
        records = [item for _, item in items]
        member = {item.id: name for name, item in items} if isinstance(data, Mapping) else None
        if member and len(member) < sum(len({item.id for item in values}) for values in groups.values()):
            raise ComparisonError("The same record is in two groups. Put each record in one group only.")
        found = _from_records(records, wanted, metric or "step_seconds", better, terms, model, member)
    elif isinstance(data, Mapping):
        known = find_metric(metric or "value", better=better)
        found = _from_values(wanted[:1], known, [((name,), value) for name, value in items])
    else:
        found = _from_rows([row for _, row in items], wanted, metric, better)
    if not found.runs:
        raise ComparisonError(
            f"No run contains a finite value of the {found.metric.noun}. Compare another metric, or measure again."
        )
    return found


def _read_groups(data: Mapping[Any, Any]) -> dict[str, list[Any]]:
    """The records or numbers of each group, by the name of the group."""
    groups: dict[str, list[Any]] = {}
    for name, values in data.items():
        if isinstance(values, Record):
            values = [values]
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise ArgumentError(f"The values of {str(name)!r} must be a list of numbers, not {show(values)}.")
        groups[str(name)] = list(values)
    if not any(groups.values()):
        raise ArgumentError("All groups are empty. Give at least one group with its numbers.")
    return groups


def _read_items(data: Any) -> list[Any]:
    """A list of records, or a list of rows as mappings."""
    if hasattr(data, "to_dict") and hasattr(data, "columns"):
        data = data.to_dict("records")
    items = [data] if isinstance(data, (Record, str, bytes)) else list_items(data)
    if not items:
        raise ArgumentError("No records were given. Pass records, or a mapping of group names to numbers.")
    kind = Record if isinstance(items[0], Record) else Mapping
    for item in items:
        if not isinstance(item, kind):
            raise ArgumentError(
                f"{show(item)} cannot be compared. Pass records, rows (dicts), or a dict of names to numbers."
            )
    return items


def _from_rows(rows: Sequence[Mapping[Any, Any]], names: tuple[str, ...], metric: str | None, better: Any) -> Runs:
    columns = list(dict.fromkeys(str(key) for row in rows for key in row))
    if metric is None:
        raise ArgumentError(f"metric= is missing. Pass one of the columns: {', '.join(columns)}.")
    for name in (*names, metric):
        if name not in columns:
            raise ArgumentError(f"The rows have no column {name!r}. Choose one of: {', '.join(columns)}.")

    def level(value: Any) -> Any:
        value = unwrap(value)
        return UNKNOWN if value is None or value != value else value

    values = [(tuple(level(row.get(name)) for name in names), row.get(metric)) for row in rows]
    return _from_values(names, find_metric(metric, better=better), values)


def _from_values(names: tuple[str, ...], metric: Metric, values: Iterable[tuple[Levels, Any]]) -> Runs:
    runs, missing = [], []
    for levels, value in values:
        value = unwrap(value)
        if isinstance(value, bool) or not isinstance(value, (int, float, type(None))):
            raise ArgumentError(f"The values of {name_levels(levels)!r} contain {show(value)}. Give numbers only.")
        if value is None or not math.isfinite(value):
            missing.append(levels)
        else:
            runs.append(Run(levels, float(value)))
    return Runs(names, metric, tuple(runs), tuple(_find_missing(missing, metric)))


def _find_missing(missing: Sequence[Levels], metric: Metric) -> list[Finding]:
    if not missing:
        return []
    where = ", ".join(f"{missing.count(levels)} of {name_levels(levels)}" for levels in dict.fromkeys(missing))
    message = f"Runs that do not contain the {metric.noun} are excluded: {where}."
    return [Finding("missing-values", message, "Measure these runs again, or compare a metric that all runs contain.")]


def read_level(record: Record, name: str) -> Any:
    """The level of the factor ``name`` in a record. A factor takes precedence over an attribute of the same name."""
    if name in record.factors:
        return record.factors[name]
    value = READ[name](record) if name in READ else None
    return UNKNOWN if value is None else value


def _from_records(
    records: Sequence[Record],
    names: tuple[str, ...],
    metric: str,
    better: str | None,
    terms: Terms,
    model: str | None,
    member: Mapping[str, str] | None,
) -> Runs:
    """Runs from records, grouped by the factors ``names``, or by ``member``, which maps record IDs to groups."""
    unique = distinct(records)
    if model is not None:
        unique = [record for record in unique if getattr(record, "model", None) == model]
        if not unique:
            raise ComparisonError(f"No record has the model {model!r}. Pass another model, or leave model= out.")
    if member is None:
        _check_names(unique, names)
    levels = {r.id: (member[r.id],) if member else tuple(read_level(r, name) for name in names) for r in unique}
    known = find_metric(metric, unique, better=better)
    findings = _check_comparable(unique, names, levels)
    copies = len(records) - len({record.id for record in records})
    if copies:
        message = f"{copies} records are copies of other records. Each record counts once."
        findings.insert(0, Finding("copies", message, "Pass each record once.", "info"))
    runs, missing = [], []
    for record in unique:
        title = str(getattr(record, "title", record.file_stem))
        date = record.created.date().isoformat()
        moment = None if getattr(record, "outcome", "given") == "given" else record.created.timestamp()
        series = tuple(map(float, known.series(record))) if known.series else ()
        for value in known.read_runs(record, terms):
            if value is None or not math.isfinite(value):
                missing.append(levels[record.id])
            else:
                runs.append(Run(levels[record.id], value, series, title, date, moment))
    findings += _find_missing(missing, known)
    return Runs(names, known, tuple(runs), tuple(findings), tuple(unique))


def _check_names(records: Sequence[Record], names: Sequence[str]) -> None:
    factors = sorted({key for record in records for key in record.factors})
    for name in names:
        if name not in READ and name not in factors:
            known = ", ".join([*READ, *(factor for factor in factors if factor not in READ)])
            raise ArgumentError(f"No record has the factor {name!r}. Choose one of: {known}.")
        if all(read_level(record, name) == UNKNOWN for record in records):
            raise ComparisonError(f"The {name} is unknown in all records. Group by another factor.")


def _check_comparable(records: Sequence[Record], names: Sequence[str], levels: Mapping[str, Levels]) -> list[Finding]:
    """Raise an error if records of one group are of different models or data; return findings on other differences."""
    kinds = {record.kind for record in records}
    if len(kinds) > 1 and "kind" not in names:
        raise ComparisonError(f"The records are of different kinds ({', '.join(sorted(kinds))}). Pass only one kind.")
    profiles = [record for record in records if isinstance(record, Profile)]
    parts: dict[Levels, list[Profile]] = {}
    for profile in profiles:
        parts.setdefault(levels[profile.id], []).append(profile)
    # A custom factor, or the model, may change what is trained; a machine may not.
    together = [profiles] if set(names) <= TASK_KEYS | NOT_FACTORS else list(parts.values())
    findings: list[Finding] = []
    for some in together:
        findings += check_comparable(some, ignore=names, error=ComparisonError) if some else ()
    return [*dict.fromkeys(findings), *_find_other_settings(parts, names)]


def _find_other_settings(parts: Mapping[Levels, Sequence[Profile]], names: Sequence[str]) -> list[Finding]:
    """Findings about settings other than ``names`` that differ inside groups or between groups."""
    values_of: dict[str, dict[Levels, set[Any]]] = {}
    for levels, some in parts.items():
        for identity in map(identify, some):
            settings = {"batch_size": identity.batch_size, "instance_type": identity.instance_type}
            for name, value in {**dict(identity.factors), **settings}.items():
                same = name in MACHINE_NAMES and not MACHINE_NAMES.isdisjoint(names)
                if name not in names and value is not None and not same:
                    values_of.setdefault(name, {}).setdefault(levels, set()).add(value)
    inside = sorted(name for name, by in values_of.items() if any(len(values) > 1 for values in by.values()))
    between = sorted(
        name for name, by in values_of.items() if name not in inside and len({frozenset(v) for v in by.values()}) > 1
    )
    found = []
    if inside:
        message = f"Runs of the same group differ in {', '.join(inside)}, which increases their spread."
        found.append(Finding("mixed-settings", message, "Group by these factors too, or use vmselect.stats.effects."))
    if between:
        message = f"The groups also differ in {', '.join(between)}, which may explain a difference."
        remedy = "Measure all groups with the same settings, or group by these factors too."
        found.append(Finding("confounded", message, remedy, "warning" if "batch_size" in between else "info"))
    return found
