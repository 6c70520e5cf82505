"""The record of inference: calls of a model's ``predict``, a function or a service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from vmselect._checks import check_count, check_factors, check_name, check_number, check_seconds, list_items, maybe
from vmselect.errors import ArgumentError
from vmselect.findings import Finding, warnings_first
from vmselect.records import latency_histogram
from vmselect.records.record import Count, Name, Number, Part, Placement, PositiveCount, Record, Seconds, Text, given_as
from vmselect.records.usage import Usage
from vmselect.units import BYTES_PER_MB

FORMAT: Final = 1
"""Number of the file format that this version writes."""

MAX_READINGS = 100_000

Label = Literal["warmup", "steady"]
Rate = Annotated[float, Field(gt=0, le=1e9)]


class InferenceSetup(Part):
    """The callee and the load: a closed loop (``rate`` is None) or ``rate`` calls per second."""

    source: Literal["predict", "evaluate", "callable", "given"]
    model: Text | None = None
    parameters: Count | None = None
    batch_size: PositiveCount | None = None
    clients: PositiveCount = 1
    rate: Rate | None = None
    bytes_per_item: Annotated[float, Field(ge=0, le=1e15)] | None = None


class Calls(Part):
    """The answered calls of a load: exact sums without warm-up, and readings of some calls.

    The columns hold the first calls and a random sample of the others: their order, intended start (seconds since the
    load began), latency from the intended start, service time from the real start, items, and label. ``buckets`` and
    ``counts`` are a :mod:`histogram <vmselect.records.latency_histogram>` of all latencies without warm-up.
    """

    total: Count = 0
    items: Count = 0
    latency_seconds: Seconds = 0.0
    service_seconds: Seconds = 0.0
    longest_seconds: Seconds = 0.0
    seconds: Seconds = 0.0
    """From the first call to the last answer."""
    number: tuple[Count, ...] = Field(default=(), max_length=MAX_READINGS)
    start: tuple[Seconds, ...] = Field(default=(), max_length=MAX_READINGS)
    latency: tuple[Seconds, ...] = Field(default=(), max_length=MAX_READINGS)
    service: tuple[Seconds, ...] = Field(default=(), max_length=MAX_READINGS)
    batch: tuple[PositiveCount, ...] = Field(default=(), max_length=MAX_READINGS)
    label: tuple[Label, ...] = Field(default=(), max_length=MAX_READINGS)
    buckets: tuple[int, ...] = Field(default=(), max_length=10_000)
    counts: tuple[PositiveCount, ...] = Field(default=(), max_length=10_000)

    @model_validator(mode="after")
    def _agrees(self) -> Calls:
        columns = (self.number, self.start, self.latency, self.service, self.batch, self.label)
        if len({len(column) for column in columns}) != 1:
            raise ValueError("the columns of readings differ in length")
        if len(self.buckets) != len(self.counts) or sum(self.counts) != self.total:
            raise ValueError("the histogram does not count the calls")
        if len(set(self.buckets)) != len(self.buckets):
            raise ValueError("the histogram names a bucket twice")
        if self.label.count("steady") > self.total or self.items < self.total:
            raise ValueError("there are more readings than calls, or fewer items")
        return self

    @property
    def steady(self) -> tuple[float, ...]:
        """Latencies of the readings without warm-up."""
        return tuple(value for value, label in zip(self.latency, self.label, strict=True) if label == "steady")

    @property
    def steady_service(self) -> tuple[float, ...]:
        """Service times of the readings without warm-up."""
        return tuple(value for value, label in zip(self.service, self.label, strict=True) if label == "steady")

    def percentile(self, percentile: float) -> float | None:
        """The latency that ``percentile`` percent of the calls did not exceed; None without calls."""
        if not self.total:
            return None
        steady = self.steady
        if len(steady) == self.total:
            return latency_histogram.percentile(steady, percentile)
        counts = dict(zip(self.buckets, self.counts, strict=True))
        return min(self.longest_seconds, latency_histogram.percentile_of_buckets(counts, percentile))


class InferenceRecord(Record):
    """A load of calls. ``first_seconds`` is the very first call, which compiles.

    ``preparing`` are warm-up calls before the load. ``errors`` counts failed calls by kind.

    >>> record = InferenceRecord.from_times(instance_type="g5.xlarge", batch_size=32, call_seconds=[0.02] * 99 + [0.5])
    >>> record.percentile(50), record.percentile(99), record.percentile(100)
    (0.02, 0.02, 0.5)
    >>> round(record.items_per_second)
    1290
    """

    kind: Literal["inference"] = "inference"
    format: Literal[1] = FORMAT
    outcome: Literal["whole", "interrupted", "given"] = "whole"
    detail: Text | None = None
    setup: InferenceSetup
    first_seconds: Seconds | None = None
    preparing: tuple[Seconds, ...] = Field(default=(), max_length=MAX_READINGS)
    calls: Calls = Calls()
    errors: Mapping[Name, Count] = Field(default_factory=dict, max_length=50)
    metrics: Mapping[Name, Number] = Field(default_factory=dict, max_length=200)
    usage: Usage | None = None

    @classmethod
    @given_as("record of inference")
    def from_times(
        cls,
        *,
        instance_type: str,
        call_seconds: float | Sequence[float],
        batch_size: int = 1,
        clients: int = 1,
        rate: float | None = None,
        first_seconds: float | None = None,
        bytes_per_item: float | None = None,
        model: str | None = None,
        provider: str | None = None,
        region: str | None = None,
        factors: Mapping[str, bool | int | float | str] | None = None,
    ) -> InferenceRecord:
        """A record from seconds of each call that another tool measured with ``clients`` concurrent clients."""
        seconds = tuple(check_seconds("call_seconds", value) for value in list_items(call_seconds))
        if not seconds:
            raise ArgumentError("call_seconds is empty. Give the seconds of at least one call.")
        size = check_count("batch_size", batch_size)
        workers = check_count("clients", clients)
        counts = latency_histogram.count_buckets(seconds)
        kept = min(len(seconds), MAX_READINGS)
        steady: Label = "steady"
        return cls(
            outcome="given",
            placement=Placement.given(instance_type=instance_type, provider=provider, region=region),
            setup=InferenceSetup(
                source="given",
                model=maybe(check_name, "model", model),
                batch_size=size,
                clients=workers,
                rate=maybe(check_number, "rate", rate, above=0),
                bytes_per_item=maybe(check_number, "bytes_per_item", bytes_per_item, least=0),
            ),
            first_seconds=maybe(check_seconds, "first_seconds", first_seconds),
            calls=Calls(
                total=len(seconds),
                items=len(seconds) * size,
                latency_seconds=sum(seconds),
                service_seconds=sum(seconds),
                longest_seconds=max(seconds),
                seconds=sum(seconds) / workers if rate is None else max(len(seconds) / rate, max(seconds)),
                number=tuple(range(kept)),
                start=(0.0,) * kept,
                latency=seconds[:kept],
                service=seconds[:kept],
                batch=(size,) * kept,
                label=(steady,) * kept,
                buckets=tuple(counts),
                counts=tuple(counts.values()),
            ),
            factors=check_factors("factors", factors),
        )

    @property
    def batch_size(self) -> int | None:
        """Items in a call."""
        return self.setup.batch_size

    @property
    def model(self) -> str | None:
        """Name of the model or function."""
        return self.setup.model

    @property
    def file_stem(self) -> str:
        """Instance type and batch size."""
        return f"{self.instance_type or 'unknown'}-inference-{self.batch_size or 'unknown'}"

    @property
    def title(self) -> str:
        """A short name for messages and tables."""
        how = f", {self.setup.rate:g} calls/s" if self.setup.rate else ""
        clients = f", {self.setup.clients} clients" if self.setup.clients > 1 else ""
        return f"{self.instance_type or 'unknown machine'}, batch {self.batch_size or 'unknown'}{clients}{how}"

    def percentile(self, percentile: float) -> float | None:
        """The latency that ``percentile`` percent of the calls did not exceed, without warm-up."""
        return self.calls.percentile(check_number("percentile", percentile, above=0, most=100))

    @property
    def p50_seconds(self) -> float | None:
        """Median latency."""
        return self.calls.percentile(50)

    @property
    def p95_seconds(self) -> float | None:
        """95th percentile of the latency."""
        return self.calls.percentile(95)

    @property
    def p99_seconds(self) -> float | None:
        """99th percentile of the latency."""
        return self.calls.percentile(99)

    @property
    def call_seconds(self) -> float | None:
        """Mean service time of a call, without queueing."""
        return self.calls.service_seconds / self.calls.total if self.calls.total else None

    @property
    def seconds_per_item(self) -> float | None:
        """Mean service time of an item."""
        return self.calls.service_seconds / self.calls.items if self.calls.items else None

    @property
    def seconds_per_mb(self) -> float | None:
        """Mean service time of a megabyte (1,000,000 bytes) of input; None where its size is unknown."""
        size = self.setup.bytes_per_item
        per_item = self.seconds_per_item
        return per_item / size * BYTES_PER_MB if size and per_item is not None else None

    @property
    def items_per_second(self) -> float | None:
        """Throughput in items; in a closed loop the capacity of the machine."""
        return self.calls.items / self.calls.seconds if self.calls.seconds else None

    @property
    def calls_per_second(self) -> float | None:
        """Throughput in calls."""
        return self.calls.total / self.calls.seconds if self.calls.seconds else None

    @property
    def mb_per_second(self) -> float | None:
        """Throughput in megabytes of input; None where their size is unknown."""
        size, rate = self.setup.bytes_per_item, self.items_per_second
        return rate * size / BYTES_PER_MB if size and rate is not None else None

    @property
    def failed(self) -> int:
        """Calls that failed."""
        return sum(self.errors.values())

    @property
    def is_saturated(self) -> bool:
        """Whether clearly fewer calls were answered than the rate of an open loop requested."""
        if self.setup.rate is None or self.calls_per_second is None:
            return False
        # A run of few calls ends one answer after its last start, so two calls less than the rate are no saturation.
        return (self.calls.total + 2) < 0.95 * self.setup.rate * self.calls.seconds

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Warnings and information about this record, each with a remedy."""
        return warnings_first(_find(self))


def _find(record: InferenceRecord) -> Iterator[Finding]:
    calls, setup = record.calls, record.setup
    if record.outcome == "interrupted":
        detail = f" ({record.detail})" if record.detail else ""
        yield Finding("interrupted", f"The load was interrupted{detail}.", "Measure again.")
    yield from record.find_unknown_machine()
    if record.failed:
        kinds = ", ".join(f"{count} {name}" for name, count in sorted(record.errors.items()))
        share = record.failed / (record.failed + calls.total)
        yield Finding("failed-calls", f"{share:.2%} of the calls failed ({kinds}).", "Find out why, and measure again.")
    if record.is_saturated:
        yield Finding(
            "saturated",
            f"{record.calls_per_second:.3g} of {setup.rate:g} calls per second were answered, so the queue grew and "
            "the latencies depend on the length of the load.",
            "Lower rate=, or raise clients= if the machine has capacity.",
        )
    if 0 < calls.total < 100:
        yield Finding(
            "few-calls",
            f"{calls.total} calls are too few for a 99th percentile, which is the slowest of them.",
            "Give more inputs, or calls= to repeat them.",
            "info",
        )
    median = calls.percentile(50)
    if setup.rate is None and median and setup.source != "given" and calls.longest_seconds > 10 * median:
        yield Finding(
            "closed-loop",
            f"The slowest call took {calls.longest_seconds / median:.0f} times the median, and a closed loop makes no "
            "calls meanwhile, so high percentiles are too low.",
            "Measure at a rate (rate=).",
            "info",
        )


def merge_steady(records: Sequence[InferenceRecord]) -> list[float]:
    """Service times of the calls of several records, sorted."""
    return sorted(value for record in records for value in record.calls.steady_service)


def subtract_counts(counts: Mapping[int, int], seconds: Sequence[float]) -> dict[int, int]:
    """A histogram without the given times, which are warm-up."""
    left = Counter(dict(counts))
    left.subtract(latency_histogram.count_buckets(seconds))
    return {bucket: count for bucket, count in sorted(left.items()) if count > 0}
