"""What can be compared: a registry of metrics, each with its unit, its better direction and its reader.

A name that is not registered is looked for among what the user recorded (``record.metrics``) and among the sampled
quantities of the machine (``usage.<quantity>``). A new metric is one entry in :data:`METRICS`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from vmselect._checks import check_count, check_name, maybe, show
from vmselect.errors import ArgumentError, ComparisonError, EstimateError
from vmselect.grouping import count_nodes
from vmselect.records import Profile, Record

if TYPE_CHECKING:
    from vmselect.catalog import Catalog

Better = Literal["less", "more"]
Reader = Callable[[Any, "Terms"], "float | None"]
Series = Callable[[Any], Sequence[float]]


@dataclass(frozen=True)
class Terms:
    """What some metrics need beside the record: how many epochs, at which prices."""

    epochs: int | None = None
    catalog: Catalog | None = None
    market: str = "on_demand"
    region: str | None = None

    def __post_init__(self) -> None:
        from vmselect.catalog import Catalog

        checked = {
            "epochs": maybe(check_count, "epochs", self.epochs),
            "market": check_name("market", self.market),
            "region": maybe(check_name, "region", self.region),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.catalog is not None and not isinstance(self.catalog, Catalog):
            raise ArgumentError(
                f"catalog is {show(self.catalog)}. Load a price file first, with vmselect.Catalog.load(...)."
            )


@dataclass(frozen=True)
class Metric:
    """One quantity. ``readers`` maps a kind of record to the function that reads it; ``series`` gives single readings.

    ``better`` is None where it is unknown which way is better: then there is no winner.
    """

    name: str
    noun: str
    unit: str
    better: Better | None
    readers: Mapping[str, Reader] = field(default_factory=dict)
    series: Series | None = None

    def read(self, record: Record, terms: Terms) -> float | None:
        """The value of one run, or None where the record does not hold it."""
        reader = self.readers.get(record.kind) or self.readers.get("*")
        value = reader(record, terms) if reader else None
        return None if value is None else float(value)

    def read_series(self, record: Record) -> list[float]:
        """Readings inside one run in order, where there are any."""
        return [float(value) for value in self.series(record)] if self.series else []


# -- readers of trainings ----------------------------------------------------------------------------------------------


def _steady_steps(record: Any) -> list[float]:
    return list(record.timeline.steps.steady_seconds) if isinstance(record, Profile) else []


def _step_seconds(profile: Profile, terms: Terms) -> float | None:
    steady = profile.timeline.steps.labelled("steady")
    covered = sum(step.covers for step in steady)
    return math.fsum(step.seconds for step in steady) / covered if covered else None


def _first_step_seconds(profile: Profile, terms: Terms) -> float | None:
    return _mean(step.each for step in profile.timeline.steps.labelled("first"))


def _later_epochs(record: Any) -> list[float]:
    if not isinstance(record, Profile):
        return []
    whole = [epoch.seconds for epoch in record.timeline.epochs if epoch.complete]
    return whole[1:] or whole


def _epoch_seconds(profile: Profile, terms: Terms) -> float | None:
    """Whole epochs after the first, or the first where it is alone; where a probe cut them short, steps add up."""
    measured = _mean(_later_epochs(profile))
    step = _step_seconds(profile, terms)
    if measured is None and step is not None and profile.steps_per_epoch:
        return step * profile.steps_per_epoch
    return measured


def _validation_seconds(profile: Profile, terms: Terms) -> float | None:
    """Whole validations after the first, which compiles; or the first where it is alone."""
    whole = [validation.seconds for validation in profile.timeline.validations if not validation.truncated]
    return _mean(whole[1:] or whole)


def _throughput(profile: Profile, terms: Terms) -> float | None:
    step = _step_seconds(profile, terms)
    return profile.batch_size / step if step and profile.batch_size else None


def _throughputs(record: Any) -> list[float]:
    size = record.batch_size if isinstance(record, Profile) else None
    return [size / seconds for seconds in _steady_steps(record) if seconds] if size else []


def _total_seconds(profile: Profile, terms: Terms) -> float | None:
    """The predicted time of ``epochs`` epochs; the true one where no number was asked for and all was watched."""
    if terms.epochs is None:
        if profile.total_seconds is None:
            raise ArgumentError(
                "The number of epochs is missing: a total is predicted for a number of epochs. Pass epochs=."
            )
        return profile.total_seconds
    from vmselect.estimation import estimate

    try:
        return estimate(profile, epochs=terms.epochs).seconds
    except EstimateError:  # this run cannot be predicted; a finding lists it with the others
        return None


def _cost_usd(profile: Profile, terms: Terms) -> float | None:
    from vmselect.catalog import Catalog
    from vmselect.errors import CatalogError
    from vmselect.units import cost_usd

    if profile.instance_type is None:
        return None
    catalog = terms.catalog or Catalog.default()
    try:
        price = catalog.price(profile.instance_type, region=terms.region or profile.region, market=terms.market)
    except CatalogError:
        return None
    seconds = _total_seconds(profile, terms)
    return None if seconds is None else cost_usd(seconds, price * count_nodes(profile))


def _utilisation(profile: Profile, terms: Terms) -> float | None:
    """Mean use of the GPUs while steps ran, or of the processor where there is no GPU."""
    phase = profile.usage.phases.get("steady_steps", {}) if profile.usage is not None else {}
    cards = [summary.mean for name, summary in phase.items() if re.fullmatch(r"gpu\d+_busy_share", name)]
    busy = _mean(cards)
    if busy is None:
        busy = next((phase[name].mean for name in ("usable_cpu_share", "cpu_share") if name in phase), None)
    return None if busy is None else 100 * busy


def _used(quantity: str) -> Reader:
    def read(record: Any, terms: Terms) -> float | None:
        usage = getattr(record, "usage", None)
        return None if usage is None else usage.mean(quantity)

    return read


def _recorded(name: str) -> Reader:
    def read(record: Any, terms: Terms) -> float | None:
        value: float | None = (getattr(record, "metrics", None) or {}).get(name)
        return value

    return read


def _attribute(name: str) -> Reader:
    """The attribute of this name, where the record has it."""
    return lambda record, terms: getattr(record, name, None)


def _calls(record: Any) -> Sequence[float]:
    calls = getattr(record, "calls", None)
    return calls.steady_service if calls is not None else ()


def _files(way: str) -> Series:
    def read(record: Any) -> Sequence[float]:
        direction = getattr(record, way, None)
        return direction.file_seconds_per_mb if direction is not None else ()

    return read


# -- the registry ------------------------------------------------------------------------------------------------------


def _any(name: str, noun: str, unit: str, better: Better, series: Series | None = None) -> Metric:
    """A metric that is an attribute of the same name, whatever the kind of record."""
    return Metric(name, noun, unit, better, {"*": _attribute(name)}, series)


def _training(name: str, noun: str, reader: Reader, series: Series | None = None, unit: str = "s") -> Metric:
    """A metric of trainings of which less is better."""
    return Metric(name, noun, unit, "less", {"training": reader}, series)


_THROUGHPUT = {"training": _throughput, "inference": _attribute("items_per_second")}

METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        _training("step_seconds", "step time", _step_seconds, _steady_steps),
        _training("first_step_seconds", "first step", _first_step_seconds),
        _training("epoch_seconds", "epoch time", _epoch_seconds, _later_epochs),
        _training("validation_seconds", "validation time", _validation_seconds),
        _training("init_seconds", "initialization", lambda profile, terms: profile.timeline.init_seconds),
        Metric("throughput", "throughput", "examples/s", "more", _THROUGHPUT, _throughputs),
        _training("total_seconds", "training time", _total_seconds),
        _training("cost_usd", "cost", _cost_usd, unit="USD"),
        Metric("utilisation", "utilisation", "%", "more", {"training": _utilisation}),
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
"""Every metric that has a name of its own."""

ALIASES = {"cost": "cost_usd", "total": "total_seconds", "predicted_total": "total_seconds", "time": "total_seconds"}

MORE = frozenset(("accuracy", "acc", "auc", "precision", "recall", "f1", "score", "throughput", "map", "iou", "uptime"))
LESS = frozenset(
    (
        *("loss", "error", "mae", "mape", "mse", "msle", "rmse", "crossentropy", "nll", "perplexity"),
        *("seconds", "time", "runtime", "latency", "cost", "usd", "bytes"),
    )
)
"""Words of a name; a loss of accuracy is a loss, so these win."""


def find_metric(name: str, records: Iterable[Record] = (), *, better: str | None = None) -> Metric:
    """The metric of that name; for a name of the user's own, which way is better is told by ``better`` or the name.

    >>> find_metric("step_seconds").better, guess_better("val_accuracy"), guess_better("depth")
    ('less', 'more', None)
    """
    own: Any = better
    known = METRICS.get(ALIASES.get(name, name))
    if known is not None:
        return known if better is None else Metric(**{**vars(known), "better": own})
    records = list(records)
    if name.startswith("usage."):
        quantity = name.removeprefix("usage.")
        return Metric(name, quantity.replace("_", " "), "", own, {"*": _used(quantity)})
    recorded = sorted({key for record in records for key in getattr(record, "metrics", None) or {}})
    if records and name not in recorded:
        kept = f"; recorded here: {', '.join(recorded)}" if recorded else ""
        raise ComparisonError(f"No record holds {name!r}. The metrics are: {', '.join(METRICS)}{kept}.")
    return Metric(name, name.replace("_", " "), "", own or guess_better(name), {"*": _recorded(name)})


def guess_better(name: str) -> Better | None:
    """Which way is better, as far as the words of a name tell.

    >>> [guess_better(name) for name in ("val_mape", "mAP50", "accuracy_loss", "tokens_per_second")]
    ['less', 'more', 'less', 'more']
    """
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
