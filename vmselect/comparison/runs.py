"""From whatever the caller has (records, rows of a table, plain numbers) to runs: one independent value each.

A run is one measurement: a record. Its steps are readings inside it and no repetitions. What records have in common,
and what keeps them from being compared, :mod:`vmselect.grouping` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vmselect import grouping
from vmselect._checks import check_choice, check_name, is_number, list_items, maybe, several, show
from vmselect.comparison.metrics import Metric, Terms, find_metric, guess_better
from vmselect.errors import ArgumentError, ComparisonError
from vmselect.findings import Finding
from vmselect.records import Profile, Record

READ: Mapping[str, Callable[[Any], Any]] = {
    "instance_type": lambda r: r.instance_type,
    "provider": lambda r: r.provider,
    "region": lambda r: r.region,
    "kind": lambda r: r.kind,
    "model": lambda r: getattr(r, "model", None),
    "batch_size": lambda r: getattr(r, "batch_size", None),
    "backend": lambda r: r.environment.backend,
    "precision": lambda r: r.environment.precision,
    "jit": lambda r: r.environment.jit,
    "cores": lambda r: r.environment.usable_cores,
    "workers": lambda r: r.environment.workers,
    "replicas": lambda r: r.environment.replicas,
    "gpu": lambda r: r.environment.gpus[0].name if r.environment.gpus else None,
    "cpu": lambda r: r.environment.cpu_model,
    "operating_system": lambda r: r.environment.operating_system,
    "created": lambda r: r.created.date().isoformat(),
}
"""What every record holds beside its factors."""

TASK_KEYS = frozenset(READ) - {"model", "batch_size", "kind"}
"""Varying one of these does not change what is trained; a factor of the user's own may."""

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Run:
    """One measurement: its value, the levels by which it is grouped, and the readings inside it."""

    levels: tuple[Any, ...]
    value: float
    series: tuple[float, ...] = ()
    title: str = ""
    date: str | None = None


@dataclass(frozen=True)
class Runs:
    """All runs of a question, the metric they are about, and the findings about them."""

    names: tuple[str, ...]
    metric: Metric
    runs: tuple[Run, ...]
    findings: tuple[Finding, ...] = ()
    records: tuple[Record, ...] = ()

    def by_group(self) -> dict[str, list[Run]]:
        """Runs under the name of their group; groups in the order of their levels."""
        found: dict[tuple[Any, ...], list[Run]] = {}
        for run in self.runs:
            found.setdefault(run.levels, []).append(run)
        return {name_levels(levels): found[levels] for levels in sorted(found, key=order_of)}


def name_levels(levels: Sequence[Any]) -> str:
    """A group's name.

    >>> name_levels(("jax", 64))
    'jax · 64'
    """
    return " · ".join(str(level) for level in levels)


def order_of(levels: Sequence[Any]) -> tuple[tuple[bool, float, str], ...]:
    """Numbers by size, before texts."""
    return tuple((not is_number(level), float(level) if is_number(level) else 0.0, str(level)) for level in levels)


def collect_runs(
    data: Any,
    *,
    names: Any,
    metric: Any,
    better: Any = None,
    terms: Terms | None = None,
    model: str | None = None,
    what: str = "by",
) -> Runs:
    """Runs from records, from rows (a DataFrame, or mappings) with a column for each name, or from named numbers."""
    wanted, model = several(check_name, what, names), maybe(check_name, "model", model)
    metric = maybe(check_name, "metric", metric)
    better = maybe(check_choice, "better", better, choices=("less", "more"))
    found = _read_runs(data, wanted, metric, better, terms or Terms(), model)
    if not found.runs:
        raise ComparisonError(f"There is no finite {found.metric.noun} to compare. Give at least one number.")
    return found


def _read_runs(
    data: Any, wanted: tuple[str, ...], metric: str | None, better: Any, terms: Terms, model: str | None
) -> Runs:
    if isinstance(data, Mapping):
        return _from_mapping(data, wanted, metric, better, terms, model)
    if hasattr(data, "to_dict") and hasattr(data, "columns"):
        data = data.to_dict("records")
    if isinstance(data, Record):
        data = [data]
    if isinstance(data, (str, bytes)) or not isinstance(data, Iterable):
        raise ArgumentError(
            f"There are no records in {show(data)}. Pass records (vmselect.load_records), or a mapping of names to "
            "numbers."
        )
    rows = list_items(data)
    if not rows:
        raise ArgumentError("There is no record to compare. Pass records, or a mapping of names to numbers.")
    if all(isinstance(row, Record) for row in rows):
        return _from_records(rows, wanted, metric or "step_seconds", better, terms, model)
    if all(isinstance(row, Mapping) for row in rows):
        return _from_rows(rows, wanted, metric, better)
    odd = next(row for row in rows if not isinstance(row, (Record, Mapping)))
    raise ArgumentError(f"{show(odd)} is no record. Pass records, rows, or a mapping of names to numbers.")


# -- named numbers, and rows -------------------------------------------------------------------------------------------


def _from_mapping(
    data: Mapping[Any, Any], names: tuple[str, ...], metric: str | None, better: Any, terms: Terms, model: str | None
) -> Runs:
    groups = {str(key): _as_list(str(key), values) for key, values in data.items()}
    if not groups:
        raise ArgumentError("The mapping is empty. Give at least one name with its numbers.")
    if any(isinstance(item, Record) for values in groups.values() for item in values):
        records = [item for values in groups.values() for item in values]
        if not all(isinstance(item, Record) for item in records):
            raise ArgumentError("The mapping mixes records and numbers. Give one kind.")
        member = {item.id: name for name, values in groups.items() for item in values}
        if len(member) < sum(len({item.id for item in values}) for values in groups.values()):
            raise ComparisonError("A record stands in two groups. Give each measurement once.")
        return _from_records(records, names, metric or "step_seconds", better, terms, model, member=member)
    name = metric or "value"
    known = Metric(name, name.replace("_", " "), "", better or (guess_better(name) if metric else None))
    if metric is not None and better is None:
        known = _named(metric) or known
    rows = [(key, value) for key, values in groups.items() for value in values]
    return _finite(names[:1], known, [((key,), value) for key, value in rows])


def _as_list(name: str, values: Any) -> list[Any]:
    if isinstance(values, Record):
        return [values]
    if is_number(values) or isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise ArgumentError(f"The values of {name!r} must be several numbers, not {show(values)}.")
    return list(values)


def _from_rows(rows: Sequence[Mapping[Any, Any]], names: tuple[str, ...], metric: str | None, better: Any) -> Runs:
    columns = list(dict.fromkeys(str(key) for row in rows for key in row))
    if metric is None:
        raise ArgumentError(f"metric= is missing: which column is compared? The columns are: {', '.join(columns)}.")
    for name in (*names, metric):
        if name not in columns:
            raise ArgumentError(f"There is no column {name!r}. The columns are: {', '.join(columns)}.")
    known = _named(metric) if better is None else None
    known = known or Metric(metric, metric.replace("_", " "), "", better or guess_better(metric))
    read = [(tuple(_level(row.get(name)) for name in names), row.get(metric)) for row in rows]
    return _finite(names, known, read)


def _named(metric: str) -> Metric | None:
    """A registered metric, which knows its unit; no other."""
    try:
        return find_metric(metric)
    except ComparisonError:
        return None


def _level(value: Any) -> Any:
    """A level as a plain value: what is missing is unknown."""
    value = value.item() if hasattr(value, "item") else value
    return UNKNOWN if value is None or value != value else value


def _finite(names: tuple[str, ...], metric: Metric, read: Sequence[tuple[tuple[Any, ...], Any]]) -> Runs:
    runs: list[Run] = []
    missing: dict[tuple[Any, ...], int] = {}
    for levels, value in read:
        value = value.item() if hasattr(value, "item") else value
        if value is not None and not isinstance(value, (int, float)):
            raise ArgumentError(f"The values of {name_levels(levels)!r} hold {show(value)}, which is no number.")
        if value is None or isinstance(value, bool) or not math.isfinite(value):
            if isinstance(value, bool):
                raise ArgumentError(f"The values of {name_levels(levels)!r} hold {value}, which is no number.")
            missing[levels] = missing.get(levels, 0) + 1
            continue
        runs.append(Run(levels, float(value)))
    return Runs(names, metric, tuple(runs), tuple(_missing(missing, metric)))


def _missing(missing: Mapping[tuple[Any, ...], int], metric: Metric) -> list[Finding]:
    if not missing:
        return []
    where = ", ".join(f"{count} of {name_levels(levels)}" for levels, count in missing.items())
    return [
        Finding(
            "missing-values",
            f"Some runs have no {metric.noun}: {where}.",
            "They are left out; measure them again, or compare something that all of them tell.",
        )
    ]


# -- records -----------------------------------------------------------------------------------------------------------


def read_level(record: Record, name: str) -> Any:
    """The level of a factor in a record: what was varied on purpose comes first."""
    if name in record.factors:
        return record.factors[name]
    value = READ[name](record) if name in READ else None
    return UNKNOWN if value is None else value


def _from_records(
    records: Sequence[Record],
    names: tuple[str, ...],
    metric: str,
    better: Any,
    terms: Terms,
    model: str | None,
    member: Mapping[str, str] | None = None,
) -> Runs:
    unique = grouping.distinct(records)
    if model is not None:
        unique = [record for record in unique if getattr(record, "model", None) == model]
        if not unique:
            raise ComparisonError(f"No record is of the model {model!r}. Leave model= out to see which there are.")
    if member is None:
        _check_names(unique, names)
    levels = {r.id: (member[r.id],) if member else tuple(read_level(r, name) for name in names) for r in unique}
    known = find_metric(metric, unique, better=better)
    findings = [*_repeated(records, unique), *_check_alike(unique, names, levels)]
    runs: list[Run] = []
    missing: dict[tuple[Any, ...], int] = {}
    for record in unique:
        value = known.read(record, terms)
        if value is None or not math.isfinite(value):
            missing[levels[record.id]] = missing.get(levels[record.id], 0) + 1
            continue
        date = record.created.date().isoformat()
        title = str(getattr(record, "title", record.file_stem))
        runs.append(Run(levels[record.id], value, tuple(known.read_series(record)), title, date))
    findings += _missing(missing, known)
    if not runs:
        raise ComparisonError(f"None of the {len(unique)} records tells its {known.noun} ({known.name}).")
    return Runs(names, known, tuple(runs), tuple(findings), tuple(unique))


def _check_names(records: Sequence[Record], names: Sequence[str]) -> None:
    factors = sorted({key for record in records for key in record.factors})
    for name in names:
        if name not in READ and name not in factors:
            varied = f"; varied here: {', '.join(factors)}" if factors else ""
            raise ArgumentError(f"No record has a factor {name!r}. Every record tells: {', '.join(READ)}{varied}.")
        if all(read_level(record, name) == UNKNOWN for record in records):
            raise ComparisonError(f"No record tells its {name}. Group by something else, or name it when probing.")


def _repeated(given: Sequence[Record], unique: Sequence[Record]) -> list[Finding]:
    ids = [record.id for record in given]
    copies = len(ids) - len(set(ids))
    if not copies:
        return []
    return [
        Finding(
            "copies", f"{copies} records are copies of others.", "A copy is no repetition; each counts once.", "info"
        )
    ]


def _check_alike(
    records: Sequence[Record], names: Sequence[str], levels: Mapping[str, tuple[Any, ...]]
) -> list[Finding]:
    """Refuse groups in which different things were trained; say what else differs."""
    kinds = {record.kind for record in records}
    if len(kinds) > 1 and "kind" not in names:
        raise ComparisonError(f"The records are of different kinds ({', '.join(sorted(kinds))}). Choose one kind.")
    profiles = [record for record in records if isinstance(record, Profile)]
    parts: dict[tuple[Any, ...], list[Profile]] = {}
    for profile in profiles:
        parts.setdefault(levels[profile.id], []).append(profile)
    # A factor of the user's own, or the model, may change what is trained; a machine may not.
    together = [profiles] if set(names) <= TASK_KEYS | grouping.KNOWN_FACTORS else list(parts.values())
    findings: list[Finding] = []
    for some in together:
        software = grouping.check_comparable(some, error=ComparisonError) if some else ()
        findings += [finding for finding in software if not any(name in finding.message for name in names)]
    return [*dict.fromkeys(findings), *_settings(parts, names)]


def _settings(parts: Mapping[tuple[Any, ...], Sequence[Profile]], names: Sequence[str]) -> list[Finding]:
    """What else than the names differs inside groups, or between them."""
    values_of: dict[str, dict[tuple[Any, ...], set[Any]]] = {}
    for levels, some in parts.items():
        for profile in some:
            identity = grouping.identify(profile)
            facts = {
                **dict(identity.factors),
                "batch_size": identity.batch_size,
                "instance_type": identity.instance_type,
            }
            for name, value in facts.items():
                if name not in names and value is not None and not _same_thing(name, names):
                    values_of.setdefault(name, {}).setdefault(levels, set()).add(value)
    inside = sorted(name for name, by in values_of.items() if any(len(values) > 1 for values in by.values()))
    between = sorted(
        name for name, by in values_of.items() if name not in inside and len({frozenset(v) for v in by.values()}) > 1
    )
    found = []
    if inside:
        listed = ", ".join(inside)
        found.append(
            Finding(
                "mixed-settings",
                f"Runs of one group differ in {listed}: their spread is not that of repetitions.",
                f"Group by {listed} as well, choose one value, or ask vmselect.effects for the part of each.",
            )
        )
    if between:
        listed = ", ".join(between)
        grave = "batch_size" in between
        found.append(
            Finding(
                "confounded",
                f"The groups differ in {listed} too, so a difference may be due to that.",
                "Measure all groups alike, or group by it as well.",
                "warning" if grave else "info",
            )
        )
    return found


def _same_thing(name: str, names: Sequence[str]) -> bool:
    """A machine, its type and its provider go together: grouping by one is grouping by the others."""
    machine = {"instance_type", "machine", "provider", "region"}
    return name in machine and not machine.isdisjoint(names)
