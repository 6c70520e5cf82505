"""Inference records: latency and throughput of calls to a model's ``predict``, a function or a service."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from vmselect._checks import check_count, check_factors, check_name, check_number, check_seconds, list_items, maybe
from vmselect.errors import ArgumentError
from vmselect.findings import Finding, warnings_first
from vmselect.records.base import Count, Name, Number, Part, Placement, PositiveCount, Record, Seconds, Text, given_as
from vmselect.records.usage import Usage
from vmselect.units import BYTES_PER_MB

MAX_READINGS = 100_000

Label = Literal["warmup", "steady"]
Rate = Annotated[float, Field(gt=0, le=1e9)]


# -- histograms of latencies -------------------------------------------------------------------------------------------

GROWTH = 1.01
"""Buckets of latencies grow by one percent, so that percentiles of many calls take little memory."""

MIN_SECONDS = 1e-9
MAX_SECONDS = 1e10

_LOG_GROWTH = math.log(GROWTH)


def bucket_of(seconds: float) -> int:
    """Index of the bucket that contains a latency of ``seconds``."""
    return math.floor(math.log(min(max(seconds, MIN_SECONDS), MAX_SECONDS)) / _LOG_GROWTH)


def bucket_seconds(bucket: int) -> float:
    """Geometric middle of a bucket in seconds, at most half a percent away from any latency in the bucket."""
    return math.exp((bucket + 0.5) * _LOG_GROWTH)


def count_buckets(seconds: Iterable[float]) -> dict[int, int]:
    """Number of latencies in each bucket, by bucket index."""
    return dict(sorted(Counter(map(bucket_of, seconds)).items()))


def percentile_of(values: Sequence[float], percentile: float) -> float:
    """The smallest of ``values`` that at least ``percentile`` percent of the values do not exceed."""
    return sorted(values)[_rank(len(values), percentile) - 1]


def percentile_of_buckets(counts: Mapping[int, int], percentile: float) -> float:
    """The percentile of the latencies in a histogram, accurate to half a percent."""
    left = _rank(sum(counts.values()), percentile)
    for bucket in sorted(counts):
        left -= counts[bucket]
        if left <= 0:
            return bucket_seconds(bucket)
    raise ValueError("the histogram is empty")


def _rank(count: int, percentile: float) -> int:
    # Rounding keeps binary fractions from carrying 99 % of 100 calls past the 99th.
    return max(1, math.ceil(round(percentile / 100 * count, 9)))


# -- records -----------------------------------------------------------------------------------------------------------


class InferenceSetup(Part):
    """The called model or function and the load: ``rate`` calls per second.

    If ``rate`` is None, the load is a closed loop: each client starts its next call when the previous one returns.
    """

    source: Literal["predict", "evaluate", "callable", "given"]
    model: Text | None = None
    parameters: Count | None = None
    batch_size: PositiveCount | None = None
    clients: PositiveCount = 1
    rate: Rate | None = None
    bytes_per_item: Annotated[float, Field(ge=0, le=1e15)] | None = None


class Calls(Part):
    """The successful calls of a measurement: exact sums without warm-up, and the times of a sample of the calls.

    These times are columns with the first calls and a random sample of later calls: ``number`` of the call,
    scheduled ``start`` (seconds since the first call), ``latency`` since the scheduled start, ``service`` time since
    the actual start, items in the ``batch``, and ``label``. ``buckets`` and ``counts`` are a
    histogram (:func:`count_buckets`) of all latencies without warm-up.
    """

    total: Count = 0
    items: Count = 0
    latency_seconds: Seconds = 0.0
    service_seconds: Seconds = 0.0
    longest_seconds: Seconds = 0.0
    seconds: Seconds = 0.0
    """Seconds from the first call to the last response."""
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
            raise ValueError("the columns number, start, latency, service, batch and label differ in length")
        if len(self.buckets) != len(self.counts) or sum(self.counts) != self.total:
            raise ValueError("the counts of the histogram do not add up to total")
        if len(set(self.buckets)) != len(self.buckets):
            raise ValueError("the histogram contains the same bucket twice")
        if self.label.count("steady") > self.total or self.items < self.total:
            raise ValueError(
                "total is smaller than the number of calls labelled steady, or items is smaller than total"
            )
        return self

    @property
    def steady(self) -> tuple[float, ...]:
        """Latency in seconds of each sampled call after the warm-up."""
        return tuple(value for value, label in zip(self.latency, self.label, strict=True) if label == "steady")

    @property
    def steady_service(self) -> tuple[float, ...]:
        """Service time in seconds of each sampled call after the warm-up."""
        return tuple(value for value, label in zip(self.service, self.label, strict=True) if label == "steady")

    def percentile(self, percentile: float) -> float | None:
        """The latency in seconds that ``percentile`` percent of the calls did not exceed; None if there is no call."""
        if not self.total:
            return None
        steady = self.steady
        if len(steady) == self.total:
            return percentile_of(steady, percentile)
        counts = dict(zip(self.buckets, self.counts, strict=True))
        return min(self.longest_seconds, percentile_of_buckets(counts, percentile))


class InferenceRecord(Record):
    """Measured latency and throughput of a model, function or service.

    ``first_seconds`` is the duration of the very first call, which includes compilation. ``preparing`` contains the
    durations of warm-up calls before the measurement. ``errors`` maps kinds of errors to numbers of failed calls.

    >>> record = InferenceRecord.from_times(instance_type="g5.xlarge", batch_size=32, call_seconds=[0.02] * 99 + [0.5])
    >>> record.percentile(50), record.percentile(99), record.percentile(100)
    (0.02, 0.02, 0.5)
    >>> round(record.items_per_second)
    1290
    """

    kind: Literal["inference"] = "inference"
    format: Literal[1] = 1
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
        """A record from durations of calls that another tool measured with ``clients`` concurrent clients."""
        seconds = tuple(check_seconds("call_seconds", value) for value in list_items(call_seconds))
        if not seconds:
            raise ArgumentError("call_seconds is empty. Pass the duration of at least one call in seconds.")
        size = check_count("batch_size", batch_size)
        workers = check_count("clients", clients)
        counts = count_buckets(seconds)
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
        """Number of items in each call."""
        return self.setup.batch_size

    @property
    def model(self) -> str | None:
        """Name of the model or function that was called."""
        return self.setup.model

    @property
    def file_stem(self) -> str:
        """Start of the file name: instance type and batch size."""
        return f"{self.instance_type or 'unknown'}-inference-{self.batch_size or 'unknown'}"

    @property
    def title(self) -> str:
        """A short name for messages and tables: instance type, batch size, clients and rate."""
        how = f", {self.setup.rate:g} calls/s" if self.setup.rate else ""
        clients = f", {self.setup.clients} clients" if self.setup.clients > 1 else ""
        return f"{self.instance_type or 'unknown machine'}, batch {self.batch_size or 'unknown'}{clients}{how}"

    def percentile(self, percentile: float) -> float | None:
        """The latency in seconds that ``percentile`` percent of the calls after the warm-up did not exceed."""
        return self.calls.percentile(check_number("percentile", percentile, above=0, most=100))

    @property
    def p50_seconds(self) -> float | None:
        """Median of the latency, in seconds."""
        return self.calls.percentile(50)

    @property
    def p95_seconds(self) -> float | None:
        """95th percentile of the latency, in seconds."""
        return self.calls.percentile(95)

    @property
    def p99_seconds(self) -> float | None:
        """99th percentile of the latency, in seconds."""
        return self.calls.percentile(99)

    @property
    def call_seconds(self) -> float | None:
        """Mean service time of a call in seconds, excluding time in the queue."""
        return self.calls.service_seconds / self.calls.total if self.calls.total else None

    @property
    def seconds_per_item(self) -> float | None:
        """Mean service time per item, in seconds."""
        return self.calls.service_seconds / self.calls.items if self.calls.items else None

    @property
    def seconds_per_mb(self) -> float | None:
        """Mean service time in seconds per megabyte (1,000,000 bytes) of input; None if item sizes are unknown."""
        size = self.setup.bytes_per_item
        per_item = self.seconds_per_item
        return per_item / size * BYTES_PER_MB if size and per_item is not None else None

    @property
    def items_per_second(self) -> float | None:
        """Throughput in items per second. Without a fixed ``rate``, this is the capacity of the machine."""
        return self.calls.items / self.calls.seconds if self.calls.seconds else None

    @property
    def calls_per_second(self) -> float | None:
        """Throughput in calls per second."""
        return self.calls.total / self.calls.seconds if self.calls.seconds else None

    @property
    def mb_per_second(self) -> float | None:
        """Throughput in megabytes of input per second; None if the size of an item is unknown."""
        size, rate = self.setup.bytes_per_item, self.items_per_second
        return rate * size / BYTES_PER_MB if size and rate is not None else None

    @property
    def failed(self) -> int:
        """Number of calls that failed."""
        return sum(self.errors.values())

    @property
    def is_saturated(self) -> bool:
        """Whether the throughput was clearly below the requested ``rate``."""
        if self.setup.rate is None or self.calls_per_second is None:
            return False
        # The measurement ends with the response to its last call, so two calls below the rate are no saturation.
        return (self.calls.total + 2) < 0.95 * self.setup.rate * self.calls.seconds

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Warnings and information about this record, each with a remedy."""
        return self.list_findings()

    def list_findings(self, *, saturation: bool = True) -> tuple[Finding, ...]:
        """All findings, or those that do not concern saturation, which is no problem if the capacity is measured."""
        return warnings_first([*(_find_saturation(self) if saturation else ()), *_find(self)])


def _find(record: InferenceRecord) -> Iterator[Finding]:
    calls, setup = record.calls, record.setup
    if record.outcome == "interrupted":
        detail = f" ({record.detail})" if record.detail else ""
        yield Finding(
            "interrupted", f"The measurement was interrupted{detail}, so the record is incomplete.", "Measure again."
        )
    yield from record.find_unknown_machine()
    if record.failed:
        kinds = ", ".join(f"{count} {name}" for name, count in sorted(record.errors.items()))
        share = record.failed / (record.failed + calls.total)
        yield Finding("failed-calls", f"{share:.2%} of the calls failed ({kinds}).", "Fix the cause and measure again.")
    if 0 < calls.total < 100:
        yield Finding(
            "few-calls",
            f"Only {calls.total} calls were measured, so the 99th percentile is the latency of the slowest call.",
            "Pass more inputs, or a larger calls= to repeat the inputs.",
            "info",
        )
    median = calls.percentile(50)
    if setup.rate is None and median and setup.source != "given" and calls.longest_seconds > 10 * median:
        yield Finding(
            "closed-loop",
            f"The slowest call took {calls.longest_seconds / median:.0f} times the median latency. While a client "
            "waits, it starts no calls that would be slow too (closed loop), so the high percentiles are too low.",
            "Measure with a fixed number of calls per second (rate=).",
            "info",
        )


def _find_saturation(record: InferenceRecord) -> Iterator[Finding]:
    if record.is_saturated:
        yield Finding(
            "saturated",
            f"The machine completed {record.calls_per_second:.3g} of {record.setup.rate:g} requested calls per second. "
            "The queue grew, so the latencies depend on how long the measurement lasted.",
            "Lower rate=, or raise clients= if the CPU or GPU is not fully used.",
        )
