"""Charts of serving and moving data: cost and latency against load, percentiles, time per megabyte by batch."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from vmselect._checks import show
from vmselect.errors import ArgumentError, RankingError
from vmselect.records import InferenceRecord, TransferRecord
from vmselect.report.chart_style import SERIES, altair, draw, save_if, themed
from vmselect.units import BYTES_PER_MB

if TYPE_CHECKING:
    from vmselect.ranking import ServingRanking

PERCENTILES = (50, 75, 90, 95, 99, 99.9, 100)
MOST_READINGS = 4_000


# -- points ------------------------------------------------------------------------------------------------------------


def load_points(ranking: ServingRanking) -> pd.DataFrame:
    """A row per machine and load: instances, dollars per hour, latency in milliseconds."""
    rows = [
        {
            "service": " · ".join(
                [row.instance_type, f"batch {row.batch_size}", *([row.market] if row.market != "on_demand" else [])]
            ),
            "load": row.load, "instances": row.instances, "hourly_usd": row.hourly_usd,
            "latency_ms": row.latency_seconds * 1e3,
        }
        for row in ranking
        if row.load is not None
    ]  # fmt: skip
    if not rows:
        raise RankingError(
            "There is no load to draw. Rank with load=[...] items per second, of which some are feasible."
        )
    return pd.DataFrame(rows).sort_values(["service", "load"], ignore_index=True)


def percentile_points(records: Iterable[InferenceRecord]) -> pd.DataFrame:
    """A row per record and percentile of its latency, in milliseconds."""
    rows = [
        {"record": record.title, "percentile": percentile, "latency_ms": value * 1e3}
        for record in records
        for percentile in PERCENTILES
        if (value := record.calls.percentile(percentile)) is not None
    ]
    if not rows:
        raise ArgumentError("There are no latencies to draw. Give inference records with answered calls.")
    return pd.DataFrame(rows)


def mb_points(records: Sequence[InferenceRecord | TransferRecord], way: str = "download") -> pd.DataFrame:
    """A row per batch or file, in order: seconds for a megabyte, as the founding study draws them.

    Of a transfer record, ``way`` is ``upload`` or ``download``.
    """
    if way not in ("upload", "download"):
        raise ArgumentError(f"way must be upload or download, not {show(way)}.")
    rows: list[dict[str, Any]] = []
    sizes = {record.setup.batch_size for record in records if isinstance(record, InferenceRecord)}
    drawn: Counter[str] = Counter()
    for record in records:
        if isinstance(record, InferenceRecord):
            size = record.setup.bytes_per_item
            calls = zip(record.calls.service, record.calls.batch, strict=True)
            values = [taken / (items * size) * BYTES_PER_MB for taken, items in calls] if size else []
        else:
            direction = getattr(record, way)
            values = list(direction.file_seconds_per_mb) if direction is not None else []
        who = record.provider or record.instance_type or "unknown"
        if isinstance(record, InferenceRecord) and len(sizes) > 1:
            who += f" · batch {record.setup.batch_size}"
        # Repetitions follow one another: drawn over each other they would not be one line.
        rows += [
            {"who": who, "batch": number, "seconds_per_mb": value}
            for number, value in enumerate(values[:MOST_READINGS], start=1 + drawn[who])
        ]
        drawn[who] += len(values[:MOST_READINGS])
    if not rows:
        raise ArgumentError("No record holds seconds per megabyte. Probe with bytes_per_item=.")
    return pd.DataFrame(rows)


# -- drawings ----------------------------------------------------------------------------------------------------------


def cost_load_chart(ranking: ServingRanking) -> Any:
    """Dollars per hour against load: a step up for every instance more."""
    return _lines(
        load_points(ranking), x=("load", "Load, items/s"), y=("hourly_usd", "Cost, USD per hour"), color="service",
        title="Cost against load", interpolate="step-before",
    )  # fmt: skip


def latency_load_chart(ranking: ServingRanking) -> Any:
    """The chosen percentile of latency against load."""
    return _lines(
        load_points(ranking), x=("load", "Load, items/s"), y=("latency_ms", f"p{ranking.percentile:g} latency, ms"),
        color="service", title="Latency against load",
    )  # fmt: skip


def percentile_chart(records: Iterable[InferenceRecord], *, path: str | os.PathLike[str] | None = None) -> Any:
    """Percentiles of latency, one line per record."""
    drawn = _lines(
        percentile_points(records), x=("percentile", "Percentile"), y=("latency_ms", "Latency, ms"), color="record",
        title="Latency percentiles", ordinal=True,
    )  # fmt: skip
    return save_if(drawn, path)


def mb_chart(
    records: Sequence[InferenceRecord | TransferRecord], way: str = "download", *,
    path: str | os.PathLike[str] | None = None,
) -> Any:  # fmt: skip
    """Seconds per megabyte, batch by batch."""
    drawn = _lines(
        mb_points(records, way), x=("batch", "Batch"), y=("seconds_per_mb", "Time, s/MB"), color="who",
        title="Time per megabyte",
    )  # fmt: skip
    return save_if(drawn, path)


CHARTS: dict[str, Callable[[Any], Any]] = {"cost-load": cost_load_chart, "latency-load": latency_load_chart}


def chart(ranking: ServingRanking, kind: str = "cost-load", *, path: str | os.PathLike[str] | None = None) -> Any:
    """The chart of that name; with ``path`` it is also written as PNG, SVG, JSON or HTML."""
    return draw(CHARTS, kind, ranking, path, {})


def _lines(
    points: pd.DataFrame,
    *,
    x: tuple[str, str],
    y: tuple[str, str],
    color: str,
    title: str,
    interpolate: str = "linear",
    ordinal: bool = False,
) -> Any:
    alt = altair()
    drawn = (
        alt.Chart(points)
        .mark_line(point=len(points) <= 200, interpolate=interpolate)
        .encode(
            x=alt.X(x[0], type="ordinal" if ordinal else "quantitative", title=x[1]),
            y=alt.Y(y[0], type="quantitative", title=y[1]),
            color=alt.Color(color, type="nominal", title=None, scale=alt.Scale(range=list(SERIES))),
            tooltip=list(points.columns),
        )
    )
    return themed(drawn, title=title)
