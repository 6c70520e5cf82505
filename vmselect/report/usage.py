"""Utilization of a machine while it was measured, with the phases of the training marked."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from vmselect.errors import RankingError
from vmselect.report.drawing import SERIES, altair, records_of, themed

if TYPE_CHECKING:
    from vmselect.ranking import Ranking
    from vmselect.records import InferenceRecord, Profile, TransferRecord, Usage
    from vmselect.records.usage import Phase

PHASES = {
    "initialization": ("initialization", "#e9ecef"),
    "first_step": ("first step", "#fbe3d6"),
    "steady_steps": ("steady steps", "#ffffff"),
    "validation": ("validation", "#dcebf7"),
    "boundary": ("between epochs", "#f3e3ee"),
    "first_call": ("first call", "#fbe3d6"),
    "calls": ("calls", "#ffffff"),
    "upload": ("upload", "#fbe3d6"),
    "download": ("download", "#dcebf7"),
}
"""How each phase is called and shaded."""


MOST_SAMPLES, MOST_CHART_SAMPLES = 200, 1_000
"""Samples of each quantity in the page, and in a chart."""
MOST_BANDS = 1_000
"""Runs of one phase that it holds: all of a training, since 240 samples of each phase are kept."""

SLACK = 1.01
"""Of the last samples none may be kept where they are thinned out: the others stand for a little more than a share."""


def usage_points(title: str, usage: Usage, *, most: int = MOST_SAMPLES) -> dict[str, Any]:
    """Utilization over time as plain values: at most ``most`` samples of each quantity, phases with begin and end.

    Every quantity is a share: of the cores that the training may use (all processes, and this training alone), of
    memory, of the GPUs (their mean), and of the time in which a process waited for a disk.
    """
    stride = -(-len(usage.seconds) // most)
    quantities = [
        {
            "name": name,
            "points": [
                [at, round(value, 3)]
                for at, value in list(zip(usage.seconds, column, strict=True))[::stride]
                if value is not None
            ],
        }
        for name, column in _shares(usage).items()
    ]
    longest = sorted(_phases(usage), key=lambda band: band["begin"] - band["end"])[:MOST_BANDS]
    return {
        "title": title,
        "interval_seconds": usage.interval_seconds,
        "phases": sorted(longest, key=lambda band: float(band["begin"])),
        "quantities": quantities,
    }


def _shares(usage: Usage) -> Mapping[str, list[float | None]]:
    cores = usage.limits.cores or 1
    series = usage.series
    cards = [column for name, column in series.items() if re.fullmatch(r"gpu\d+_busy_share", name)]
    whole: dict[str, list[float | None]] = {
        "processors": list(series.get("usable_cpu_share", ())),
        "this training": [_capped(value, cores) for value in series.get("process_cores", ())],
        "memory": [None if free is None else 1 - free for free in series.get("memory_available_share", ())],
        "GPUs": [_mean(values) for values in zip(*cards, strict=True)] if cards else [],
        "waiting for disk": list(series.get("io_pressure_share", ())),
    }
    return {name: column for name, column in whole.items() if any(value is not None for value in column)}


def _capped(value: float | None, cores: int) -> float | None:
    return None if value is None else min(1.0, value / cores)


def _mean(values: tuple[float | None, ...]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _phases(usage: Usage) -> list[dict[str, Any]]:
    """Begin and end of each run of samples of one phase; a sample reaches back to the one before, if it can.

    Each phase is thinned out for itself. So where a sample stands for less than the time since the one before, what is
    missing was thinned out: it goes to the phase whose samples could not reach back as far as they stand for.
    """
    kept = Counter(usage.phase)
    seen = {phase: max(found.values(), key=lambda one: one.seconds) for phase, found in usage.phases.items() if found}
    owed = {phase: 0.0 for phase, whole in seen.items() if whole.count > kept[phase] > 0}
    bands: list[dict[str, Any]] = []

    def shade(phase: Phase, begin: float, end: float) -> None:
        name = PHASES[phase][0]
        if bands and bands[-1]["phase"] == name:
            bands[-1]["end"] = end
        else:
            bands.append({"phase": name, "begin": begin, "end": end})

    before = 0.0
    for at, phase in zip(usage.seconds, usage.phase, strict=True):
        begin = before
        reach = SLACK * seen[phase].seconds / kept[phase] if phase in seen else math.inf
        # Not all samples are equally long.
        if max(owed.values(), default=0.0) > 0 and at - reach - before > usage.interval_seconds / 2:
            begin = round(at - reach, 3)
            missing = max(owed, key=lambda one: owed[one])
            shade(missing, before, begin)
            owed[missing] -= begin - before
        shade(phase, begin, at)
        if phase in owed:
            owed[phase] += reach - (at - begin)
        before = at
    return bands


def usage_chart(
    source: Profile | InferenceRecord | TransferRecord | Ranking, *, instance_type: str | None = None
) -> Any:
    """Utilization of one machine over time: of a record, or of a ranking's best machine or ``instance_type``."""
    from vmselect.ranking import Ranking

    alt = altair()
    records = records_of(source, instance_type) if isinstance(source, Ranking) else [source]
    sampled = next((record for record in records if record.usage is not None and record.usage.seconds), None)
    if sampled is None or sampled.usage is None:
        who = records[0].title if records else instance_type or "This machine"
        raise RankingError(f"{who}: utilization was not sampled. Probe again with sample=1.0.")
    points = usage_points(sampled.title, sampled.usage, most=MOST_CHART_SAMPLES)
    phases = pd.DataFrame(points["phases"])
    samples = pd.DataFrame(
        [
            {"quantity": one["name"], "seconds": at, "share": share}
            for one in points["quantities"]
            for at, share in one["points"]
        ]
    )
    shown = [name for name, _ in PHASES.values() if name in set(phases["phase"])]
    colors = dict(PHASES.values())
    bands = (
        alt.Chart(phases)
        .mark_rect(stroke="#d5d8dc", strokeWidth=0.5)
        .encode(
            x=alt.X("begin:Q", title="Seconds since the start"),
            x2="end:Q",
            color=alt.Color(
                "phase:N",
                title="Phase",
                scale=alt.Scale(domain=shown, range=[colors[name] for name in shown]),
                legend=alt.Legend(symbolStrokeColor="#8b939d", symbolStrokeWidth=0.5),
            ),
            tooltip=["phase:N", alt.Tooltip("begin:Q", format=".1f"), alt.Tooltip("end:Q", format=".1f")],
        )
    )
    names = [one["name"] for one in points["quantities"]]
    lines = (
        alt.Chart(samples)
        .mark_line(interpolate="step-before", point=alt.OverlayMarkDef(size=18), strokeWidth=1.8)
        .encode(
            x="seconds:Q",
            y=alt.Y("share:Q", title="In use", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("quantity:N", title="Quantity", scale=alt.Scale(domain=names, range=list(SERIES))),
            tooltip=["quantity:N", alt.Tooltip("seconds:Q", format=".1f"), alt.Tooltip("share:Q", format=".0%")],
        )
    )
    layered = alt.layer(bands, lines).resolve_scale(color="independent")
    return themed(layered, title=f"{points['title']}: utilization")
