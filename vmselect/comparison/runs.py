"""What is compared: the value of a metric in each run, read from records, rows of a table, or numbers.

A run is one independent measurement, such as a record. Steps are readings inside a run, not repetitions of the run.

A metric that is not in :data:`METRICS` is looked up in ``record.metrics``, and ``usage.<quantity>`` in the usage
samples. To add a metric, add an entry to :data:`METRICS`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Literal, cast

from vmselect._checks import check_choice, check_count, check_name, is_number, list_items, maybe, several, show
from vmselect.catalog import Catalog
from vmselect.energy.grids import DEFAULT
from vmselect.energy.power import measured_power
from vmselect.errors import ArgumentError, CatalogError, ComparisonError, EstimateError
from vmselect.estimation import estimate
from vmselect.findings import Finding
from vmselect.records import Profile, Record
from vmselect.records.identity import (
    MACHINE_NAMES,
    NOT_FACTORS,
    Value,
    check_comparable,
    count_nodes,
    distinct,
    identify,
)
from vmselect.records.step_times import step_seconds
from vmselect.units import JOULES_PER_KWH, cost_usd

Better = Literal["less", "more"]
Reader = Callable[[Any, "Terms"], "float | None"]
Series = Callable[[Record], Sequence[float]]


PER_RUN = ("total_seconds", "cost_usd", "energy_kwh", "co2_kg")
"""Metrics with a value for each run, if a record contains the total times of several runs."""


@dataclass(frozen=True)
class Terms:
    """Number of epochs, catalog, market and region, for metrics that a record does not contain, such as the cost."""

    epochs: int | None = None
    catalog: Catalog | None = None
    market: str = "on_demand"
    region: str | None = None

    def __post_init__(self) -> None:
        checked = {
            "epochs": maybe(check_count, "epochs", self.epochs),
            "market": check_name("market", self.market),
            "region": maybe(check_name, "region", self.region),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.catalog is not None and not isinstance(self.catalog, Catalog):
            raise ArgumentError(f"catalog must be a Catalog, not {show(self.catalog)}. Read one with Catalog.load.")

    def usd_per_hour(self, profile: Profile) -> float | None:
        """Price of all machines of a training; None if the catalog has no price."""
        if profile.instance_type is None:
            return None
        catalog = self.catalog or Catalog.default()
        try:
            price = catalog.price(profile.instance_type, region=self.region or profile.region, market=self.market)
        except CatalogError:
            return None
        return price * count_nodes(profile)


@dataclass(frozen=True)
class Metric:
    """A quantity that is compared between runs.

    ``readers`` maps a kind of record to the function that reads the value of a run; ``series`` reads its single steps.
    ``better`` is ``less``, ``more`` or None if unknown; a comparison then has no winner.
    """

    name: str
    noun: str
    unit: str
    better: Better | None
    readers: Mapping[str, Reader] = field(default_factory=dict)
    series: Series | None = None

    def read(self, record: Record, terms: Terms) -> float | None:
        """The value of the metric in ``record``, or None if the record does not contain it."""
        reader = self.readers.get(record.kind) or self.readers.get("*")
        value = reader(record, terms) if reader else None
        return None if value is None else float(value)

    def read_runs(self, record: Record, terms: Terms) -> list[float | None]:
        """The value of every run that ``record`` contains; a record with given total times may contain several."""
        value = self.read(record, terms)
        totals = record.timeline.run_seconds if isinstance(record, Profile) and terms.epochs is None else ()
        if self.name not in PER_RUN or len(totals) < 2 or value is None:
            return [value]
        mean = math.fsum(totals) / len(totals)
        return [value * seconds / mean if mean else value for seconds in totals]


# -- readers of trainings ----------------------------------------------------------------------------------------------


def _steady_steps(record: Record) -> list[float]:
    return list(record.timeline.steps.steady_seconds) if isinstance(record, Profile) else []


def _later_epochs(record: Record) -> list[float]:
    if not isinstance(record, Profile):
        return []
    whole = [epoch.seconds for epoch in record.timeline.epochs if epoch.complete]
    return whole[1:] or whole


def _epoch_seconds(profile: Profile, terms: Terms) -> float | None:
    """Mean time of complete epochs after the first (or of the only epoch), else steps per epoch x mean step time."""
    measured = _mean(_later_epochs(profile))
    step = step_seconds(profile)
    if measured is None and step is not None and profile.steps_per_epoch:
        return step * profile.steps_per_epoch
    return measured


def _validation_seconds(profile: Profile, terms: Terms) -> float | None:
    """Mean time of complete validations after the first, which includes compilation (or of the only validation)."""
    whole = [validation.seconds for validation in profile.timeline.whole_validations]
    return _mean(whole[1:] or whole)


def _throughput(profile: Profile, terms: Terms) -> float | None:
    step = step_seconds(profile)
    return profile.batch_size / step if step and profile.batch_size else None


def _throughputs(record: Record) -> list[float]:
    size = record.batch_size if isinstance(record, Profile) else None
    return [size / seconds for seconds in _steady_steps(record) if seconds] if size else []


def _total_seconds(profile: Profile, terms: Terms) -> float | None:
    """The predicted time of ``terms.epochs`` epochs; if that is None, the measured time of the whole training."""
    if terms.epochs is None:
        if profile.total_seconds is None:
            raise ArgumentError("The number of epochs is missing. Pass epochs= to predict the total time.")
        return profile.total_seconds
    try:
        return estimate(profile, epochs=terms.epochs).seconds
    except EstimateError:  # a finding lists the runs without a value
        return None


def _cost_usd(profile: Profile, terms: Terms) -> float | None:
    price = terms.usd_per_hour(profile)
    seconds = None if price is None else _total_seconds(profile, terms)
    return None if price is None or seconds is None else cost_usd(seconds, price)


def _energy_kwh(profile: Profile, terms: Terms) -> float | None:
    """Energy of the whole machines: training time multiplied by their measured power in steady steps."""
    power = measured_power([profile], name=profile.title)
    seconds = None if power is None else _total_seconds(profile, terms)
    return None if power is None or seconds is None else power.watts * count_nodes(profile) * seconds / JOULES_PER_KWH


def _co2_kg(profile: Profile, terms: Terms) -> float | None:
    """CO2 of the energy in the region of the record, or in ``terms.region``; None if the grid is unknown."""
    factor = DEFAULT.factor(profile.provider or "", terms.region or profile.region or "")
    energy = None if factor is None else _energy_kwh(profile, terms)
    return None if factor is None or energy is None else energy * factor.kg_per_kwh


def _utilization(profile: Profile, terms: Terms) -> float | None:
    """Mean GPU utilization during steady steps in percent, or CPU utilization if there is no GPU."""
    phase = profile.usage.phases.get("steady_steps", {}) if profile.usage is not None else {}
    cards = [summary.mean for name, summary in phase.items() if re.fullmatch(r"gpu\d+_busy_share", name)]
    busy = _mean(cards)
    if busy is None:
        busy = next((phase[name].mean for name in ("usable_cpu_share", "cpu_share") if name in phase), None)
    return None if busy is None else 100 * busy


def _used(quantity: str) -> Reader:
    """A reader of the mean of a sampled usage quantity; None if the record has no samples."""
    return lambda record, terms: usage.mean(quantity) if (usage := getattr(record, "usage", None)) else None


def _recorded(name: str) -> Reader:
    """A reader of the custom metric ``name`` in ``record.metrics``."""
    return lambda record, terms: (getattr(record, "metrics", None) or {}).get(name)


def _attribute(name: str) -> Reader:
    """A reader of the attribute ``name`` of a record; None if the record does not have it."""
    return lambda record, terms: getattr(record, name, None)


def _calls(record: Record) -> Sequence[float]:
    return calls.steady_service if (calls := getattr(record, "calls", None)) else ()


def _files(direction: str) -> Series:
    return lambda record: moved.file_seconds_per_mb if (moved := getattr(record, direction, None)) else ()


# -- the registry ------------------------------------------------------------------------------------------------------


def _any(name: str, noun: str, unit: str, better: Better, series: Series | None = None) -> Metric:
    """A metric that is read from the attribute of the same name, for every kind of record."""
    return Metric(name, noun, unit, better, {"*": _attribute(name)}, series)


def _training(name: str, noun: str, reader: Reader, series: Series | None = None, unit: str = "s") -> Metric:
    """A metric of training records for which less is better."""
    return Metric(name, noun, unit, "less", {"training": reader}, series)


_THROUGHPUT = {"training": _throughput, "inference": _attribute("items_per_second")}

METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        _training("step_seconds", "step time", lambda profile, terms: step_seconds(profile), _steady_steps),
        _training(
            "first_step_seconds",
            "first step",
            lambda profile, _: _mean(step.each for step in profile.timeline.steps.labelled("first")),
        ),
        _training("epoch_seconds", "epoch time", _epoch_seconds, _later_epochs),
        _training("validation_seconds", "validation time", _validation_seconds),
        _training("init_seconds", "initialization", lambda profile, terms: profile.timeline.init_seconds),
        Metric("throughput", "throughput", "examples/s", "more", _THROUGHPUT, _throughputs),
        _training("total_seconds", "training time", _total_seconds),
        _training("cost_usd", "cost", _cost_usd, unit="USD"),
        _training("energy_kwh", "energy", _energy_kwh, unit="kWh"),
        _training("co2_kg", "CO2", _co2_kg, unit="kg"),
        Metric("step_joules", "energy of a step", "J", "less", {"training": _attribute("step_joules")}),
        Metric("utilization", "utilization", "%", "more", {"training": _utilization}),
        Metric(
            "peak_memory_bytes",
            "peak memory",
            "B",
            "less",
            {"*": lambda record, _: record.environment.peak_memory_bytes},
        ),
        Metric("call_seconds", "call time", "s", "less", {"inference": _attribute("call_seconds")}, _calls),
        _any("p50_seconds", "median latency", "s", "less", _calls),
        _any("p95_seconds", "95th percentile of latency", "s", "less"),
        _any("p99_seconds", "99th percentile of latency", "s", "less"),
        _any("seconds_per_item", "time per item", "s", "less"),
        _any("seconds_per_mb", "time per megabyte", "s/MB", "less"),
        _any("items_per_second", "items per second", "items/s", "more"),
        _any("mb_per_second", "megabytes per second", "MB/s", "more"),
        _any("upload_seconds_per_mb", "upload time per megabyte", "s/MB", "less", _files("upload")),
        _any("upload_mb_per_second", "upload rate", "MB/s", "more"),
        _any("download_seconds_per_mb", "download time per megabyte", "s/MB", "less", _files("download")),
        _any("download_mb_per_second", "download rate", "MB/s", "more"),
    )
}
"""Registered metrics by name."""

ALIASES = {
    "cost": "cost_usd",
    "energy": "energy_kwh",
    "co2": "co2_kg",
    "total": "total_seconds",
    "predicted_total": "total_seconds",
    "time": "total_seconds",
    "utilisation": "utilization",
}

MORE = frozenset(("accuracy", "acc", "auc", "precision", "recall", "f1", "score", "throughput", "map", "iou", "uptime"))
LESS = frozenset(
    (
        *("loss", "error", "mae", "mape", "mse", "msle", "rmse", "crossentropy", "nll", "perplexity"),
        *("seconds", "time", "runtime", "latency", "cost", "usd", "bytes"),
    )
)
"""Words in the name of a metric that show whether more or less is better. LESS has precedence: less accuracy_loss is
better."""


def find_metric(name: str, records: Iterable[Record] = (), *, better: Better | None = None) -> Metric:
    """The metric ``name``. If it is not registered, ``better`` or the name determines which direction is better."""
    metric = METRICS.get(ALIASES.get(name, name))
    if metric is not None:
        return metric if better is None else replace(metric, better=better)
    records = list(records)
    if name.startswith("usage."):
        # More utilization is better on a GPU that is paid for, but not of a disk: the caller has to say.
        quantity = name.removeprefix("usage.")
        return Metric(name, quantity.replace("_", " "), "", better, {"*": _used(quantity)})
    recorded = sorted({key for record in records for key in getattr(record, "metrics", None) or {}})
    if records and name not in recorded:
        raise ComparisonError(f"No record contains {name!r}. Choose one of: {', '.join([*METRICS, *recorded])}.")
    return Metric(name, name.replace("_", " "), "", better or guess_better(name), {"*": _recorded(name)})


def guess_better(name: str) -> Better | None:
    """Whether ``less`` or ``more`` is better, inferred from the words of a metric's name; None if unknown."""
    if "per_second" in name.lower():
        return "more"
    parts = re.findall(r"[a-z0-9]+", name.lower())
    words = {*parts, *(part.rstrip("0123456789") for part in parts)}
    if words & LESS:
        return "less"
    return "more" if words & MORE else None


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return math.fsum(numbers) / len(numbers) if numbers else None


# -- runs --------------------------------------------------------------------------------------------------------------

BUILT_IN_FACTORS: Mapping[str, Callable[[Record], Value | None]] = {
    **{name: attrgetter(name) for name in ("instance_type", "provider", "region", "kind")},
    "model": lambda record: getattr(record, "model", None),
    "batch_size": lambda record: getattr(record, "batch_size", None),
    **{name: attrgetter(f"environment.{name}") for name in ("backend", "precision", "jit", "workers", "replicas")},
    "cores": attrgetter("environment.usable_cores"),
    "gpu": lambda record: record.environment.gpus[0].name if record.environment.gpus else None,
    "cpu": attrgetter("environment.cpu_model"),
    "operating_system": attrgetter("environment.operating_system"),
    "created": lambda record: record.created.date().isoformat(),
}
"""Names by which every record can be grouped, in addition to its factors, and functions that read them."""

TASK_KEYS = frozenset(BUILT_IN_FACTORS) - {"model", "batch_size", "kind"}
"""Names by which records can be grouped that do not affect what is trained; a custom factor may affect it."""

UNKNOWN = "unknown"

Levels = tuple[Value, ...]
"""Levels of the factors that define a group or a scenario."""


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
    created: float | None = None
    """When the record was made, in seconds since 1970; None for plain numbers."""
    scenario: Levels = ()
    """Levels of the factors ``within``: groups are compared only among runs with the same levels."""


@dataclass(frozen=True)
class Runs:
    """All runs of a comparison, their metric, and findings about them.

    ``missing`` are findings about runs without a value, ``settings`` about settings that differ besides ``names``, and
    ``remarks`` about all else.
    """

    names: tuple[str, ...]
    metric: Metric
    runs: tuple[Run, ...]
    missing: tuple[Finding, ...] = ()
    settings: tuple[Finding, ...] = ()
    remarks: tuple[Finding, ...] = ()
    records: tuple[Record, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings about the runs."""
        return (*self.remarks, *self.settings, *self.missing)

    def by_group(self) -> dict[str, list[Run]]:
        """The runs of each group, by the name of the group, sorted by level."""
        groups: dict[Levels, list[Run]] = {}
        for run in self.runs:
            groups.setdefault(run.levels, []).append(run)
        return {name_levels(levels): groups[levels] for levels in sorted(groups, key=sort_key)}


def name_levels(levels: Levels) -> str:
    """The name of the group with these ``levels``."""
    return " · ".join(str(level) for level in levels)


def sort_key(levels: Sequence[object]) -> tuple[tuple[bool, float, str], ...]:
    """A sort key that orders levels: numbers by size, then texts."""
    return tuple((not is_number(level), float(level) if is_number(level) else 0.0, str(level)) for level in levels)


def unwrap(value: Any) -> Any:
    """A numpy scalar as a Python value; any other value unchanged."""
    return value.item() if hasattr(value, "item") else value


def collect_runs(
    data: object,
    *,
    names: str | Sequence[str],
    metric: str | None,
    direction: str | None = None,
    terms: Terms,
    model: str | None = None,
    argument: str = "by",
) -> Runs:
    """Runs from records, from rows (a DataFrame, or mappings) with a column for each of ``names``, or from numbers.

    ``argument`` is how the caller's argument with the ``names`` is called, for messages.
    """
    factors, model = several(check_name, argument, names), maybe(check_name, "model", model)
    metric = maybe(check_name, "metric", metric)
    better = cast("Better | None", maybe(check_choice, "better", direction, choices=("less", "more")))
    groups = _read_groups(data) if isinstance(data, Mapping) else {"": _read_items(data)}
    items = [(name, item) for name, values in groups.items() for item in values]
    if all(isinstance(item, Record) for _, item in items):
        records = [item for _, item in items]
        member = {item.id: name for name, item in items} if isinstance(data, Mapping) else None
        if member and len(member) < sum(len({item.id for item in values}) for values in groups.values()):
            raise ComparisonError("The same record is in two groups. Put each record in one group only.")
        runs = _from_records(records, factors, metric or "step_seconds", better, terms, model, member)
    elif isinstance(data, Mapping):
        plain = find_metric(metric or "value", better=better)
        runs = _from_values(factors[:1], plain, [((name,), value) for name, value in items])
    else:
        runs = _from_rows([row for _, row in items], factors, metric, better)
    if not runs.runs:
        others = _list_metrics(runs.records, terms)
        remedy = f"Pass metric=, as one of: {', '.join(others)}" if others else "Compare another metric"
        raise ComparisonError(f"No run contains a finite value of the {runs.metric.noun}. {remedy}, or measure again.")
    return runs


def _list_metrics(records: Iterable[Record], terms: Terms) -> list[str]:
    """Names of the metrics that some of ``records`` contain."""

    def contains(metric: Metric, record: Record) -> bool:
        try:
            value = metric.read(record, terms)
        except ArgumentError:  # the number of epochs is missing
            return False
        return value is not None and math.isfinite(value)

    records = list(records)
    registered = [name for name, metric in METRICS.items() if any(contains(metric, record) for record in records)]
    custom = {name for record in records for name in getattr(record, "metrics", None) or {}}
    return [*registered, *sorted(custom - set(registered))]


def _read_groups(data: Mapping[object, object]) -> dict[str, list[Any]]:
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


def _read_items(data: object) -> list[Any]:
    """A list of records, or a list of rows as mappings."""
    # A DataFrame of pandas or of another library; importing pandas only to recognize it would take a second.
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


def _from_rows(
    rows: Sequence[Mapping[str, object]], names: tuple[str, ...], metric: str | None, better: Better | None
) -> Runs:
    columns = list(dict.fromkeys(str(key) for row in rows for key in row))
    if metric is None:
        raise ArgumentError(f"metric= is missing. Pass one of the columns: {', '.join(columns)}.")
    for name in (*names, metric):
        if name not in columns:
            raise ArgumentError(f"The rows have no column {name!r}. Choose one of: {', '.join(columns)}.")

    def level(cell: object) -> Value:
        value = unwrap(cell)
        return UNKNOWN if value is None or value != value else value  # only NaN differs from itself

    values = [(tuple(level(row.get(name)) for name in names), row.get(metric)) for row in rows]
    return _from_values(names, find_metric(metric, better=better), values)


def _from_values(names: tuple[str, ...], metric: Metric, values: Iterable[tuple[Levels, object]]) -> Runs:
    runs, missing = [], []
    for levels, cell in values:
        value = unwrap(cell)
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


def read_level(record: Record, name: str) -> Value:
    """The level of the factor ``name`` in a record. A factor takes precedence over an attribute of the same name."""
    if name in record.factors:
        return record.factors[name]
    value = BUILT_IN_FACTORS[name](record) if name in BUILT_IN_FACTORS else None
    return UNKNOWN if value is None else value


def _from_records(
    records: Sequence[Record],
    names: tuple[str, ...],
    metric: str,
    better: Better | None,
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
    levels: dict[str, Levels] = {
        record.id: (member[record.id],) if member else tuple(read_level(record, name) for name in names)
        for record in unique
    }
    measured = find_metric(metric, unique, better=better)
    remarks, settings = _check_comparable(unique, names, levels)
    copies = len(records) - len({record.id for record in records})
    if copies:
        message = f"{copies} records are copies of other records. Each record counts once."
        remarks.insert(0, Finding("copies", message, "Pass each record once.", "info"))
    runs, missing = [], []
    for record in unique:
        title = str(getattr(record, "title", record.file_stem))
        date = record.created.date().isoformat()
        moment = None if getattr(record, "outcome", "given") == "given" else record.created.timestamp()
        series = tuple(map(float, measured.series(record))) if measured.series else ()
        created = record.created.timestamp()
        for value in measured.read_runs(record, terms):
            if value is None or not math.isfinite(value):
                missing.append(levels[record.id])
            else:
                runs.append(Run(levels[record.id], value, series, title, date, moment, created))
    without = tuple(_find_missing(missing, measured))
    return Runs(names, measured, tuple(runs), without, tuple(settings), tuple(remarks), tuple(unique))


def _check_names(records: Sequence[Record], names: Sequence[str]) -> None:
    """Raise an error if no record has a factor of ``names``, or if its level is unknown in all records."""
    factors = sorted({key for record in records for key in record.factors})
    for name in names:
        if name not in BUILT_IN_FACTORS and name not in factors:
            choices = ", ".join([*BUILT_IN_FACTORS, *(factor for factor in factors if factor not in BUILT_IN_FACTORS)])
            raise ArgumentError(f"No record has the factor {name!r}. Choose one of: {choices}.")
        if all(read_level(record, name) == UNKNOWN for record in records):
            raise ComparisonError(f"The {name} is unknown in all records. Group by another factor.")


def _check_comparable(
    records: Sequence[Record], names: Sequence[str], levels: Mapping[str, Levels]
) -> tuple[list[Finding], list[Finding]]:
    """Raise an error if records of one group are of different models or data.

    Return findings about software and about other settings that differ.
    """
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
    for group in filter(None, together):
        findings += check_comparable(group, ignore=names, error=ComparisonError)
    return list(dict.fromkeys(findings)), _find_other_settings(parts, names)


def _find_other_settings(parts: Mapping[Levels, Sequence[Profile]], names: Sequence[str]) -> list[Finding]:
    """Findings about settings other than ``names`` that differ inside groups or between groups."""
    values_of: dict[str, dict[Levels, set[Value]]] = {}
    for levels, profiles in parts.items():
        for identity in map(identify, profiles):
            settings = {"batch_size": identity.batch_size, "instance_type": identity.instance_type}
            for name, value in {**dict(identity.factors), **settings}.items():
                same = name in MACHINE_NAMES and not MACHINE_NAMES.isdisjoint(names)
                if name not in names and value is not None and not same:
                    values_of.setdefault(name, {}).setdefault(levels, set()).add(value)
    inside = sorted(name for name, by in values_of.items() if any(len(values) > 1 for values in by.values()))
    between = sorted(
        name for name, by in values_of.items() if name not in inside and len({frozenset(v) for v in by.values()}) > 1
    )
    findings = []
    if inside:
        message = f"Runs of the same group differ in {', '.join(inside)}, which increases their spread."
        findings.append(
            Finding("mixed-settings", message, "Group by these factors too, or use vmselect.stats.effects.")
        )
    if between:
        message = f"The groups also differ in {', '.join(between)}, which may explain a difference."
        remedy = "Measure all groups with the same settings, or group by these factors too."
        # A larger batch makes every step longer; other settings may not matter at all.
        findings.append(Finding("confounded", message, remedy, "warning" if "batch_size" in between else "info"))
    return findings
