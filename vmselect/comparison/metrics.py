"""The registry of metrics: their units, whether less or more is better, and functions that read them from records.

A name that is not registered is looked up in ``record.metrics``, and ``usage.<quantity>`` in the usage samples. To add
a metric, add an entry to :data:`METRICS`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from vmselect._checks import check_count, check_name, maybe, show
from vmselect.catalog import Catalog
from vmselect.energy.grids import DEFAULT
from vmselect.energy.power import measured_power
from vmselect.errors import ArgumentError, CatalogError, ComparisonError, EstimateError
from vmselect.estimation import estimate
from vmselect.records import Profile, Record
from vmselect.records.identity import count_nodes
from vmselect.records.step_times import step_seconds
from vmselect.units import JOULES_PER_KWH, cost_usd

Better = Literal["less", "more"]
Reader = Callable[[Any, "Terms"], "float | None"]
Series = Callable[[Any], Sequence[float]]


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


def _steady_steps(record: Any) -> list[float]:
    return list(record.timeline.steps.steady_seconds) if isinstance(record, Profile) else []


def _later_epochs(record: Any) -> list[float]:
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
    whole = [validation.seconds for validation in profile.timeline.validations if not validation.truncated]
    return _mean(whole[1:] or whole)


def _throughput(profile: Profile, terms: Terms) -> float | None:
    step = step_seconds(profile)
    return profile.batch_size / step if step and profile.batch_size else None


def _throughputs(record: Any) -> list[float]:
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
    if profile.instance_type is None:
        return None
    catalog = terms.catalog or Catalog.default()
    try:
        price = catalog.price(profile.instance_type, region=terms.region or profile.region, market=terms.market)
    except CatalogError:
        return None
    seconds = _total_seconds(profile, terms)
    return None if seconds is None else cost_usd(seconds, price * count_nodes(profile))


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


def _calls(record: Any) -> Sequence[float]:
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
            "first_step_seconds", "first step", lambda p, _: _mean(s.each for s in p.timeline.steps.labelled("first"))
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
            "peak_memory_bytes", "peak memory", "B", "less", {"*": lambda r, terms: r.environment.peak_memory_bytes}
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


def find_metric(name: str, records: Iterable[Record] = (), *, better: str | None = None) -> Metric:
    """The metric ``name``. If it is not registered, ``better`` or the name determines which direction is better."""
    given: Any = better
    known = METRICS.get(ALIASES.get(name, name))
    if known is not None:
        return known if better is None else replace(known, better=given)
    records = list(records)
    if name.startswith("usage."):
        quantity = name.removeprefix("usage.")
        return Metric(name, quantity.replace("_", " "), "", given, {"*": _used(quantity)})
    recorded = sorted({key for record in records for key in getattr(record, "metrics", None) or {}})
    if records and name not in recorded:
        raise ComparisonError(f"No record contains {name!r}. Choose one of: {', '.join([*METRICS, *recorded])}.")
    return Metric(name, name.replace("_", " "), "", given or guess_better(name), {"*": _recorded(name)})


def guess_better(name: str) -> Better | None:
    """Whether ``less`` or ``more`` is better, inferred from the words of a metric's name; None if unknown."""
    if "per_second" in name.lower():
        return "more"
    found = re.findall(r"[a-z0-9]+", name.lower())
    words = {*found, *(word.rstrip("0123456789") for word in found)}
    if words & LESS:
        return "less"
    return "more" if words & MORE else None


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return math.fsum(found) / len(found) if found else None
