"""Step times in the order they were measured, warm-up shown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pandas as pd

from vmselect.errors import RankingError
from vmselect.report.drawing import altair, records_of, themed
from vmselect.units import format_seconds

if TYPE_CHECKING:
    from vmselect.ranking import Ranking
    from vmselect.records import Profile, Steps

COLORS = {"first": "#d55e00", "warmup": "#a67c00", "opening": "#b04e8a", "steady": "#0072b2", "partial": "#5b6470"}


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
    profile = next((one for one in records_of(ranking, instance_type) if len(one.timeline.steps)), None)
    if profile is None:
        raise RankingError(
            f"There are no step times of {instance_type or ranking.best.instance_type}: its profile holds whole "
            "epochs, or it was not measured."
        )
    points = step_points(profile)
    data = pd.DataFrame({name: points[name] for name in ("position", "seconds", "label")})
    data["milliseconds"] = data["seconds"] * 1e3
    wide = data["seconds"].max() > 8 * max(data["seconds"].min(), 1e-12)
    shown = [label for label in COLORS if label in set(data["label"])]
    dots = (
        alt.Chart(data)
        .mark_circle(size=42, opacity=0.8)
        .encode(
            x=alt.X("position:Q", title="Step"),
            y=alt.Y("milliseconds:Q", title="Milliseconds per step", scale=alt.Scale(type="log" if wide else "linear")),
            color=alt.Color(
                "label:N", title="Kind of step", scale=alt.Scale(domain=shown, range=[COLORS[label] for label in shown])
            ),
            tooltip=["position:Q", "milliseconds:Q", "label:N"],
        )
    )
    if not points["steady_seconds"]:
        return themed(dots, title=points["title"])
    line = pd.DataFrame({"milliseconds": [points["steady_seconds"] * 1e3]})
    rule = alt.Chart(line).mark_rule(color="#0072b2", opacity=0.6).encode(y="milliseconds:Q")
    title = f"{points['title']}: {format_seconds(points['steady_seconds'])} per steady step"
    return themed(alt.layer(dots, rule), title=title)
