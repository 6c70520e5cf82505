"""``retrieve_and_infer``: throughput of downloading data and then running inference on them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import pandas as pd

from vmselect._checks import check_name, check_number, several
from vmselect.comparison.groups import to_frame
from vmselect.comparison.runs import name_levels, read_level, sort_key
from vmselect.errors import ComparisonError
from vmselect.intervals import Interval
from vmselect.records import InferenceRecord, TransferRecord
from vmselect.records.identity import read_records

COLUMNS = (
    "group", "downloads", "inferences", "download_seconds_per_mb", "inference_seconds_per_mb",
    "mb_per_second", "mb_per_second_low", "mb_per_second_high", "overlapped_mb_per_second",
)  # fmt: skip


def retrieve_and_infer(
    transfers: Any, inferences: Any, *, by: str | Sequence[str] = "provider", confidence: float = 0.95
) -> pd.DataFrame:
    """Megabytes per second if each batch is downloaded and then passed to the model: a table with a row per group.

    ``mb_per_second`` is 1 / (``download_seconds_per_mb`` + ``inference_seconds_per_mb``), with an interval from the
    spread of the records (nan for single records). ``overlapped_mb_per_second`` is the rate of the slower of download
    and inference, which is reached if the next batch is downloaded during inference. ``by`` names factors that both
    kinds of records contain. The inference records must contain ``bytes_per_item``.

    >>> moved = TransferRecord.from_times(instance_type="g5.xlarge", provider="aws", url="s3://data", megabytes=100,
    ...                                      download_seconds=78)
    >>> calls = InferenceRecord.from_times(instance_type="g5.xlarge", provider="aws", batch_size=10,
    ...                                       bytes_per_item=1e6, call_seconds=[6.3] * 9)
    >>> retrieve_and_infer(moved, calls)["mb_per_second"].round(2).tolist()
    [0.71]
    """
    names = several(check_name, "by", by)
    confidence = check_number("confidence", confidence, least=0.5, most=0.999)
    downloads: dict[tuple[Any, ...], list[float]] = {}
    calls: dict[tuple[Any, ...], list[float]] = {}
    for transfer in read_records(transfers, TransferRecord):
        if transfer.download_seconds_per_mb is not None:
            levels = tuple(read_level(transfer, name) for name in names)
            downloads.setdefault(levels, []).append(transfer.download_seconds_per_mb)
    for call in read_records(inferences, InferenceRecord):
        if call.seconds_per_mb is not None:
            calls.setdefault(tuple(read_level(call, name) for name in names), []).append(call.seconds_per_mb)
    both = sorted(downloads.keys() & calls.keys(), key=sort_key)
    if not both:
        raise ComparisonError(
            f"No {', '.join(names)} has both a download record and an inference record with a known size of its items. "
            "Pass bytes_per_item= to the inference probe, or group by another factor."
        )
    rows = []
    for levels in both:
        download, inference = (statistics.fmean(times) for times in (downloads[levels], calls[levels]))
        rate = _invert(downloads[levels], calls[levels], confidence)
        slowest = max(download, inference)
        rows.append(
            (
                name_levels(levels), len(downloads[levels]), len(calls[levels]), download, inference, *rate,
                1 / slowest if slowest else math.inf,
            )
        )  # fmt: skip
    named = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    return to_frame(named, COLUMNS, other_types=("group", "downloads", "inferences"))


def _invert(downloads: Sequence[float], calls: Sequence[float], confidence: float) -> Interval[float]:
    """1 / (mean of ``downloads`` + mean of ``calls``), with Welch's interval."""
    total = statistics.fmean(downloads) + statistics.fmean(calls)
    if not total:
        return Interval(math.inf, math.nan, math.nan)
    if min(len(downloads), len(calls)) < 2:
        return Interval(1 / total, math.nan, math.nan)
    parts = [statistics.variance(values) / len(values) for values in (downloads, calls)]
    spread = math.fsum(parts)
    if not spread:
        return Interval.exact(1 / total)
    from scipy.special import stdtrit

    freedom = spread**2 / math.fsum(p * p / (len(v) - 1) for p, v in zip(parts, (downloads, calls), strict=True))
    width = float(stdtrit(freedom, 0.5 + confidence / 2)) * math.sqrt(spread)
    return Interval(1 / total, 1 / (total + width), 1 / (total - width) if total > width else math.inf)
