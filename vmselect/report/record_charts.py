"""Charts of further parts of records: validations, disk operations, and the quality of a classifier.

Each chart has two functions: ``*_points`` returns its numbers, ``*_chart`` draws them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pandas as pd

from vmselect.comparison.classification import COUNT
from vmselect.errors import RankingError
from vmselect.report.charts import (
    ACCENT,
    BLUE,
    LIGHT_PINK,
    MAX_CHART_SAMPLES,
    OCHRE,
    ORANGE,
    PINK,
    TEAL,
    WIDTH,
    Chart,
    altair,
    axis_unit,
    color_by,
    records_of,
    require_some,
    styled,
    themed,
)

if TYPE_CHECKING:
    from vmselect.ranking import Ranking
    from vmselect.records import InferenceRecord, Profile, TransferRecord, Usage

ROW_HEIGHT = 40
MAX_ROWS = 24
"""Maximum number of trainings in a chart."""
DISK_COLORS = {"reads": BLUE, "writes": ORANGE}
CLASS_COLORS = {"precision": BLUE, "recall": TEAL, "f1": OCHRE}
VALIDATION_COLORS = {"first": PINK, "later": LIGHT_PINK}


# -- validations -------------------------------------------------------------------------------------------------------


def validation_points(profiles: Iterable[Profile]) -> pd.DataFrame:
    """A row per training and kind of validation: seconds of the first one, and the mean of the later ones.

    ``training`` is the title of the profile, ``kind`` is ``first`` or ``later``. Passes that a probe ended early are
    omitted. Repetitions on one machine are averaged.
    """
    rows = []
    for profile in profiles:
        whole = profile.timeline.whole_validations
        first, later = whole[:1], whole[1:]
        for kind, passes in (("first", first), ("later", later)):
            if passes:
                rows.append((profile.title, kind, statistics.fmean(part.seconds for part in passes)))
    frame = pd.DataFrame(rows, columns=["training", "kind", "seconds"])
    return frame.groupby(["training", "kind"], sort=False)["seconds"].mean().reset_index()


def validations_chart(source: Ranking | Iterable[Profile]) -> Chart:
    """Draw the time of the first and of later validations, a pair of bars per training."""
    from vmselect.ranking import Ranking

    alt = altair()
    if isinstance(source, Ranking):
        require_some(source, source.deciding_rows)
        profiles = [profile for machine in source.candidates.machine_estimates for profile in machine.records]
    else:
        profiles = list(source)
    data = validation_points(profiles)
    if data.empty:
        raise RankingError("The profiles contain no complete validation. Probe a training that validates.")
    titles = list(dict.fromkeys(data["training"]))[:MAX_ROWS]
    data = data[data["training"].isin(titles)]
    factor, unit = axis_unit(float(data["seconds"].max()), "s")
    bars = alt.Chart(data.assign(value=data["seconds"] * factor)).mark_bar()
    drawn = bars.encode(
        x=alt.X("value:Q", title=f"Time of a validation, {unit}"),
        y=alt.Y("training:N", sort=titles, title=None, axis=alt.Axis(labelLimit=260)),
        yOffset=alt.YOffset("kind:N", sort=list(VALIDATION_COLORS)),
        color=color_by("kind", VALIDATION_COLORS, title="Validation"),
        tooltip=["training:N", "kind:N", "value:Q"],
    )
    return themed(drawn, title="First and later validations", height=max(100, ROW_HEIGHT * len(titles)))


# -- disk operations ---------------------------------------------------------------------------------------------------


FEW_SAMPLES = 3
"""Fewer samples make no visible area, so they are drawn as points too."""


def disk_points(usage: Usage) -> pd.DataFrame:
    """A row per sample and direction: ``seconds`` since the start, ``direction``, ``operations`` per second."""
    names = {"reads": "disk_read_operations_per_second", "writes": "disk_write_operations_per_second"}
    rows = [
        (at, direction, value)
        for direction, name in names.items()
        for at, value in zip(usage.seconds, usage.series.get(name, ()), strict=False)
        if value is not None
    ]
    return pd.DataFrame(rows, columns=["seconds", "direction", "operations"])


def disk_chart(
    source: Profile | InferenceRecord | TransferRecord | Ranking, *, instance_type: str | None = None
) -> Chart:
    """Draw the disk operations per second over time: reads above, writes below."""
    from vmselect.ranking import Ranking

    alt = altair()
    records = records_of(source, instance_type) if isinstance(source, Ranking) else [source]
    drawn = ((record.title, disk_points(record.usage)) for record in records if record.usage is not None)
    title, data = next(((title, points) for title, points in drawn if len(points)), ("", pd.DataFrame()))
    if data.empty:
        raise RankingError("The record contains no samples of disk operations. Probe again with sample=1.0.")
    panels = []
    for direction, color in DISK_COLORS.items():
        here = data[data["direction"] == direction].reset_index(drop=True)
        # Of many samples, the highest of each short time is kept, because the peaks matter.
        stride = max(1, -(-len(here) // MAX_CHART_SAMPLES))
        lines = alt.Chart(here.loc[here.groupby(here.index // stride)["operations"].idxmax()]).mark_area(
            interpolate="step-before", color=color, opacity=0.35, line={"color": color, "strokeWidth": 1.5},
            point={"color": color, "size": 30} if len(here) < FEW_SAMPLES else False,
        )  # fmt: skip
        drawn_lines = lines.encode(
            x=alt.X("seconds:Q", title="Seconds since the start" if direction == "writes" else None),
            y=alt.Y("operations:Q", title=f"{direction.capitalize()} per second"),
            tooltip=["seconds:Q", "operations:Q"],
        )
        panels.append(drawn_lines.properties(width=WIDTH, height=130))
    return styled(alt.vconcat(*panels).resolve_scale(x="shared").properties(title=f"{title}: disk operations"))


# -- quality of a classifier -------------------------------------------------------------------------------------------


def confusion_points(metrics: Mapping[str, float]) -> pd.DataFrame:
    """A row per true and given class: number of examples, and share of the examples of the true class."""
    rows = [(*name.removeprefix(COUNT).split("/"), count) for name, count in metrics.items() if name.startswith(COUNT)]
    frame = pd.DataFrame([row for row in rows if len(row) == 3], columns=["true", "given", "count"])
    return frame.assign(share=frame["count"] / frame.groupby("true")["count"].transform("sum"))


def classes_chart(record: Profile | InferenceRecord) -> Chart:
    """Draw the confusion matrix of a record, and precision, recall and F1 of each class beside it."""
    alt = altair()
    matrix = confusion_points(record.metrics)
    names = list(dict.fromkeys(matrix["true"]))
    rows = [
        (name, part, record.metrics[f"{part}_{name}"])
        for name in names
        for part in CLASS_COLORS
        if f"{part}_{name}" in record.metrics
    ]
    if not rows:
        raise RankingError(
            "The record has no confusion matrix. Pass metrics=vmselect.stats.classification_metrics(...) to the probe."
        )
    size = max(120, 40 * len(names))
    x, y = alt.X("given:N", title="Given class", sort=names), alt.Y("true:N", title="True class", sort=names)
    cells = alt.Chart(matrix).encode(x=x, y=y)
    shade = alt.Color("share:Q", legend=None, scale=alt.Scale(domain=[0, 1], range=["#f2f5f8", ACCENT]))
    dark = alt.condition("datum.share > 0.55", alt.value("white"), alt.value("#1b1f24"))
    squares = cells.mark_rect().encode(color=shade, tooltip=["true:N", "given:N", "count:Q", "share:Q"])
    left = alt.layer(squares, cells.mark_text().encode(text="count:Q", color=dark)).properties(width=size, height=size)
    quality = pd.DataFrame(rows, columns=["class", "metric", "value"])
    bars = alt.Chart(quality).mark_bar().encode(
        x=alt.X("value:Q", title=None, scale=alt.Scale(domain=[0, 1])), y=alt.Y("class:N", title=None, sort=names),
        yOffset=alt.YOffset("metric:N", sort=list(CLASS_COLORS)), color=color_by("metric", CLASS_COLORS, title=None),
        tooltip=["class:N", "metric:N", "value:Q"],
    )  # fmt: skip
    return styled(alt.hconcat(left, bars.properties(width=260, height=size)).properties(title=record.title))
