"""From a tally to a record: warm-up found, sums corrected for it, facts about the machine added, the file written."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vmselect.probe.inference.tally import Reading, Tally
from vmselect.records.inference import Calls, InferenceRecord, InferenceSetup, Label, subtract_counts
from vmselect.records.warmup import detect_warmup
from vmselect.units import format_seconds


def build_calls(tally: Tally) -> Calls:
    """The calls of a load. Those at its start whose service times stand apart from the later ones are warm-up."""
    readings = tally.readings()
    labels = label_calls(readings)
    warm = [reading for reading, label in zip(readings, labels, strict=True) if label == "warmup"]
    total = tally.calls - len(warm)
    counts = subtract_counts(tally.histogram, [reading.latency_ns / 1e9 for reading in warm])
    steady_from = readings[len(warm)].intended_ns if total else 0
    longest = tally.longest_ns
    if warm and longest == max(reading.latency_ns for reading in warm):
        kept = [reading.latency_ns for reading in readings[len(warm) :]]
        longest = max(kept) if len(kept) == total else min(longest, round(_top_edge(counts) * 1e9))
    return Calls(
        total=total,
        items=tally.items - sum(reading.items for reading in warm),
        latency_seconds=(tally.latency_ns - sum(reading.latency_ns for reading in warm)) / 1e9,
        service_seconds=(tally.service_ns - sum(reading.service_ns for reading in warm)) / 1e9,
        longest_seconds=longest / 1e9 if total else 0.0,
        seconds=max(0.0, tally.seconds() - steady_from / 1e9) if total else 0.0,
        number=tuple(reading.number for reading in readings),
        start=tuple(reading.intended_ns / 1e9 for reading in readings),
        latency=tuple(reading.latency_ns / 1e9 for reading in readings),
        service=tuple(reading.service_ns / 1e9 for reading in readings),
        batch=tuple(reading.items for reading in readings),
        label=labels,
        buckets=tuple(counts),
        counts=tuple(counts.values()),
    )


def label_calls(readings: Sequence[Reading]) -> tuple[Label, ...]:
    """Warm-up or steady, by service time per item: waiting in a queue is no warming up."""
    # Only the first calls in a row are all kept; a sample of later ones has no information on the start.
    row = 0
    while row < len(readings) and readings[row].number == row:
        row += 1
    warm = detect_warmup([reading.service_ns / reading.items for reading in readings[:row]])
    return tuple("warmup" if position < warm else "steady" for position in range(len(readings)))


def keep_record(record: InferenceRecord, path: Path | None, *, announce: bool) -> None:
    """Write the record, if there is a path, and print one line about it if ``announce``."""
    where = f"; record in {record.save(path)}" if path is not None else ""
    if announce:
        sys.stdout.write(describe(record, where) + "\n")
        sys.stdout.flush()


def describe(record: InferenceRecord, where: str = "") -> str:
    """One line about a load."""
    calls = record.calls
    shown = [f"p{percent} {format_seconds(value)}" for percent in (50, 99) if (value := calls.percentile(percent))]
    rate = record.items_per_second
    if rate is not None:
        shown.append(f"{rate:,.0f} items/s" if rate >= 100 else f"{rate:.3g} items/s")
    if record.failed:
        shown.append(f"{record.failed:,} failed")
    return f"vmselect: {calls.total:,} calls, {', '.join(shown)}{where}" if shown else f"vmselect: no calls{where}"


def make_setup(tally: Tally, *, bytes_per_item: float | None, **facts: Any) -> InferenceSetup:
    """The setup of a load; the size of an item is as given, else as the inputs showed."""
    if bytes_per_item is None and tally.sized_items:
        bytes_per_item = tally.size_bytes / tally.sized_items
    return InferenceSetup(bytes_per_item=bytes_per_item, **facts)


def _top_edge(counts: Mapping[int, int]) -> float:
    from vmselect.records.histogram import GROWTH, value_of

    return value_of(max(counts)) * GROWTH**0.5 if counts else 0.0
