"""Step times in the order they were measured, warm-up shown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pandas as pd

from vmselect.errors import RankingError
from vmselect.report.drawing import altair, themed
from vmselect.units import format_seconds

if TYPE_CHECKING:
    from vmselect.ranking import Ranking
    from vmselect.records import Profile, Steps

LABELS = ("first", "warmup", "opening", "steady", "partial")
COLOURS = ("#d55e00", "#a67c00", "#b04e8a", "#0072b2", "#5b6470")


def step_points(profile: Profile, *, most: int = 2_000) -> dict[str, Any]:
    """Position, seconds per step and label of each kept reading, and the median of the steady ones.

    At most ``most`` readings are given: all that are not steady, and of the steady ones every so many.
    """
    steps = profile.timeline.steps
    positions = _positions(steps)
    kept = _thin(steps.label, most)
    rows = steps.rows
    return {
        "title": profile.title,
        "position": [positions[i] for i in kept],
        "seconds": [rows[i].each for i in kept],
        "label": [rows[i].label for i in kept],
        "steady_seconds": statistics.median(steps.steady_seconds) if steps.steady_seconds else None,
        "readings": steps.readings,
    }


def _positions(steps: Steps) -> list[int]:
    """The number of each reading's last step, counted from the start of the fit."""
    if len(steps) == steps.readings:
        return list(accumulate(steps.covers))
    # Some readings were not kept, so they are placed by the epoch and the batch they belong to.
    per_epoch = max(steps.batch, default=0) + 1
    return [step.epoch * per_epoch + step.batch + 1 for step in steps.rows]


def _thin(labels: Sequence[str], most: int) -> list[int]:
    if len(labels) <= most:
        return list(range(len(labels)))
    special = [i for i, label in enumerate(labels) if label != "steady"][: most // 2]
    steady = [i for i, label in enumerate(labels) if label == "steady"]
    stride = -(-len(steady) // (most - len(special)))
    return sorted([*special, *steady[::stride]])


def steps_chart(ranking: Ranking, *, instance_type: str | None = None) -> Any:
    """Step times of one machine: the ranking's best, or ``instance_type``."""
    alt = altair()
    wanted = instance_type or ranking.best.instance_type
    profiles = [
        p
        for one in ranking.candidates.machine_estimates
        if one.instance_type == wanted
        for p in one.records
        if len(p.timeline.steps)
    ]
    if not profiles:
        raise RankingError(
            f"There are no step times of {wanted}: its profile holds whole epochs, or it was not measured."
        )
    points = step_points(profiles[0])
    data = pd.DataFrame({name: points[name] for name in ("position", "seconds", "label")})
    data["milliseconds"] = data["seconds"] * 1e3
    wide = data["seconds"].max() > 8 * max(data["seconds"].min(), 1e-12)
    shown = [label for label in LABELS if label in set(data["label"])]
    colours = [COLOURS[LABELS.index(label)] for label in shown]
    dots = (
        alt.Chart(data)
        .mark_circle(size=42, opacity=0.8)
        .encode(
            x=alt.X("position:Q", title="Step"),
            y=alt.Y("milliseconds:Q", title="Milliseconds a step", scale=alt.Scale(type="log" if wide else "linear")),
            color=alt.Color("label:N", title="Kind of step", scale=alt.Scale(domain=shown, range=colours)),
            tooltip=["position:Q", "milliseconds:Q", "label:N"],
        )
    )
    layers = [dots]
    if points["steady_seconds"]:
        line = pd.DataFrame({"milliseconds": [points["steady_seconds"] * 1e3]})
        layers.append(alt.Chart(line).mark_rule(color="#0072b2", opacity=0.6).encode(y="milliseconds:Q"))
        words = f"{points['title']}: steady at {format_seconds(points['steady_seconds'])} a step"
    else:
        words = points["title"]
    return themed(alt.layer(*layers), title=words)
