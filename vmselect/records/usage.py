"""What the machine did while it was measured: samples of its use, summed up by phase."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from vmselect.records.base import Count, Facts, Number, Seconds, Text

MAX_SAMPLES = 4_000

Phase = Literal["initialization", "first_step", "steady_steps", "validation"]


class Summary(Facts):
    """One quantity over one phase."""

    count: Count
    mean: Number
    maximum: Number
    p50: Number
    p95: Number


class Usage(Facts):
    """Samples taken every ``interval_seconds``: a summary of each quantity in each phase, and a bounded series.

    ``series`` holds a column for every quantity beside the columns ``seconds`` (since the start of the fit) and
    ``phase``; what could not be read at a moment is None there.
    """

    interval_seconds: Seconds
    phases: Mapping[Phase, Mapping[Text, Summary]] = Field(default_factory=dict)
    seconds: tuple[Seconds, ...] = Field(default=(), max_length=MAX_SAMPLES)
    phase: tuple[Phase, ...] = Field(default=(), max_length=MAX_SAMPLES)
    series: Mapping[Text, Annotated[tuple[Number | None, ...], Field(max_length=MAX_SAMPLES)]] = Field(
        default_factory=dict, max_length=500
    )
