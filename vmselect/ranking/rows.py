"""Rows of a ranking and excluded candidates. There may be a million, so each is made only when it is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt

from vmselect.errors import EstimateError
from vmselect.findings import Finding, findings_html
from vmselect.intervals import Interval
from vmselect.units import format_epoch_count, format_seconds, format_usd, printable

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]
Item = TypeVar("Item")

MAX_SHOWN = 100
"""Maximum number of items of a sequence that a notebook shows."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A candidate at one epoch count: time in seconds and cost in USD, each with its interval, and its rank."""

    rank: int
    instance_type: str
    provider: str
    service: str
    region: str
    regions_compared: int
    """Number of regions of which ``region`` is the cheapest for this machine and market; 1 if no other was compared."""
    market: str
    batch_size: int | None
    epochs: float
    seconds: float
    seconds_low: float
    seconds_high: float
    usd_per_hour: float
    price_date: str | None
    cost_usd: float
    cost_low: float
    cost_high: float
    score: float
    chance: float
    """Probability that this feasible candidate has the best objective. The probabilities of all candidates sum to 1."""
    tied_with_best: bool
    """Whether the row is recommended, or is in the smallest set of rows that contains the best candidate with the
    confidence of the ranking."""
    pareto: bool
    gpu_model: str | None
    gpu_count: float | None
    vcpus: float | None
    memory_gib: float | None
    terms: dict[str, float]
    """Parts of ``seconds`` by name; ``interruptions`` is the expected time lost to interruptions of a spot machine."""
    method: str
    findings: tuple[Finding, ...]
    title: str
    """Text with instance type, provider, region, market and factors."""
    factors: Mapping[str, Any]
    """Batch size, ``nodes`` (number of machines) and varied factors."""
    basis: str
    """Basis of ``seconds``: ``measured``, ``interpolated``, ``extrapolated``, ``predicted`` or ``described``."""
    interval_only: bool
    """Whether only the intervals are meaningful, because ``seconds`` and ``cost_usd`` are too uncertain."""
    measures: Mapping[str, Interval[float] | None]
    """Intervals of all measures by name: ``time`` in seconds, ``cost`` in USD, ``energy`` in kWh and ``co2`` in kg.
    None if the measure is unknown."""
    limit_chances: Mapping[str, float]
    """Probability of keeping each limit that is set, by name of the measure: ``time`` (deadline), ``cost``, ``co2``."""

    @property
    def bound(self) -> str:
        """Text with the largest speed-up that a faster GPU can give, if steps wait for input data; else empty."""
        return next((bound for finding in self.findings if (bound := getattr(finding, "bound", ""))), "")

    def __str__(self) -> str:
        return printable(f"{self.title}: {format_epoch_count(self.epochs)} in {self.time_text} for {self.cost_text}")

    def _repr_html_(self) -> str:
        return f"<p><bdi>{escape(str(self))}</bdi></p>{findings_html(self.findings)}"

    @property
    def place(self) -> str:
        """Text with the region, and the number of regions of which it is the cheapest."""
        count = self.regions_compared
        return self.region if count == 1 else f"{self.region}, cheapest of {count} regions"

    @property
    def time_text(self) -> str:
        """Text with the time and its interval, or only its interval."""
        return self.text_of((self.seconds, self.seconds_low, self.seconds_high), format_seconds)

    @property
    def cost_text(self) -> str:
        """Text with the cost and its interval, or only its interval."""
        return self.text_of((self.cost_usd, self.cost_low, self.cost_high), format_usd)

    def text_of(self, spread: tuple[float, float, float], write: Callable[[float], str]) -> str:
        """Text of a value with its bounds (``spread``), or only of its bounds if the value is too uncertain."""
        value, low, high = map(write, spread)
        return f"{low} to {high}" if self.interval_only else f"{value} ({low} to {high})"


@dataclass(frozen=True)
class Excluded:
    """A candidate that is not ranked, and the reason."""

    candidate: str
    reason_code: str
    reason: str
    """Text without a final period, so that it can be part of a sentence."""
    epochs: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", self.reason.rstrip(". "))

    def __str__(self) -> str:
        return printable(f"{self.candidate}: {self.reason}")

    @classmethod
    def unestimated(cls, candidate: str, error: EstimateError, *names: str) -> Excluded:
        """Exclude a candidate whose time cannot be estimated, with the message of ``error`` as reason."""
        reason = str(error)
        for name in (candidate, *names):
            reason = reason.removeprefix(f"{name}: ")
        return cls(candidate, "no_estimate", reason)


class Lazy(Sequence[Item], Generic[Item]):
    """A sequence of ``length`` items; ``make`` creates an item from its position when it is read."""

    def __init__(self, length: int, make: Callable[[int], Item]) -> None:
        self._length = length
        self._make = make

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, index: int | slice) -> Item | tuple[Item, ...]:
        if isinstance(index, slice):
            return tuple(self._make(i) for i in range(*index.indices(self._length)))
        if not -self._length <= index < self._length:
            raise IndexError(f"index {index} is out of range: the sequence has {self._length} items")
        return self._make(index % self._length)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        more = ", ..." if self._length > 3 else ""
        return f"[{', '.join(map(repr, self[:3]))}{more}]"

    def _repr_html_(self) -> str:
        items = "".join(f"<li><bdi>{escape(str(item))}</bdi></li>" for item in self[:MAX_SHOWN])
        more = f"<p>The first {MAX_SHOWN} of {self._length:,}.</p>" if self._length > MAX_SHOWN else ""
        return f"<ol>{items}</ol>{more}"


def only_finite(row: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of ``row`` with None instead of infinity and NaN, which JSON does not have."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
