"""What all charts share (style, units, labels, files), and the charts of records: steps, utilization, epochs.

Each chart has two functions: ``*_points`` returns its numbers, ``*_chart`` draws them.
"""

from __future__ import annotations

import io
import itertools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd

from vmselect import _io
from vmselect._checks import check_choice, check_path
from vmselect._imports import require
from vmselect.errors import ArgumentError, RankingError
from vmselect.records.step_times import step_seconds
from vmselect.units import format_seconds

if TYPE_CHECKING:
    from vmselect.ranking import Ranking, Row
    from vmselect.ranking.candidates import Candidates
    from vmselect.records import InferenceRecord, Profile, Record, Steps, TransferRecord, Usage
    from vmselect.records.convergence import ConvergenceRun
    from vmselect.records.usage import Phase

Chart: TypeAlias = Any
"""A chart, or a part of one, of the optional package altair."""
Points: TypeAlias = dict[str, Any]
"""Numbers of a chart by name, as values for JSON."""

ACCENT, PLAIN = "#0a5fb4", "#8b939d"
BLUE, ORANGE, TEAL, PINK, OCHRE, INDIGO, GREY = SERIES = (
    "#0072b2", "#c24f00", "#008068", "#b04e8a", "#8a6500", "#332288", "#5b6470",
)  # fmt: skip
"""Line colors that color-blind readers can distinguish, on screen and on paper; ``page.css`` has the same ones.

Names of lines are written in them, so that each has a contrast of at least 4.5:1 with white.
"""

LIGHT_PINK = "#c572a4"
"""Of later occurrences of what is drawn in pink the first time."""

WIDTH, HEIGHT = 560, 360
SECONDS_UNITS = ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (180.0, 1.0, "s"), (10_800.0, 1 / 60, "min"))
"""Units of time on an axis: largest value in seconds for which the unit is used, factor from seconds, and name.

Longer times are in hours.
"""

SUFFIXES = (".png", ".svg", ".json", ".html")
FILE_STARTS = (b"<!doctype html", b"<html", b"<svg", b"\x89png")
"""First bytes of page and chart files, in lower case. A chart as JSON contains ``VEGA_SCHEMA`` instead."""
VEGA_SCHEMA = b"vega.github.io/schema"
MAX_FILE_BYTES = 64 * 2**20
_MARKUP = re.compile("<(?=[!/]|script)", re.IGNORECASE)
"""Start of an HTML tag or comment that a browser would recognize inside a script element."""


def altair() -> Chart:
    """Import the package altair. If it is missing, the error names the command that installs it."""
    return require("altair", extra="plots", needed_by="A chart")


def color_by(field: str, colors: Mapping[str, str], **options: object) -> Chart:
    """Altair color encoding of ``field``; ``colors`` maps its values to colors."""
    alt = altair()
    scale = alt.Scale(domain=list(colors), range=list(colors.values()))
    return alt.Color(f"{field}:N", scale=scale, **options)


def axis_unit(largest: float, unit: str) -> tuple[float, str]:
    """Conversion factor from ``unit`` to the unit of an axis with values up to ``largest``, and name of that unit."""
    if unit != "s":
        return 1.0, unit
    return next(((factor, name) for limit, factor, name in SECONDS_UNITS if largest < limit), (1 / 3600, "h"))


def capitalize(text: str, unit: str = "") -> str:
    """``text`` with a capital first letter, followed by ``unit``. Other letters stay as they are."""
    return f"{text[:1].upper()}{text[1:]}{f', {unit}' if unit else ''}"


def require_some(ranking: Ranking, shown: Sized) -> None:
    """Raise RankingError if ``shown``, the data of a chart, is empty."""
    if not len(shown):
        raise RankingError(f"The ranking has no candidate to draw. {ranking.verdict}")


def themed(chart: Chart, *, title: str, height: int = HEIGHT) -> Chart:
    """``chart`` with ``title``, the common width and the common style."""
    return styled(chart.properties(width=WIDTH, height=height, title=title))


def styled(chart: Chart) -> Chart:
    """``chart`` in the common style, with texts made safe for an HTML page. All charts use this function."""
    style = {"labelColor": GREY, "titleColor": GREY, "titleFontWeight": "normal", "gridColor": "#e2e3df"}
    return _disarm(
        chart.configure_view(stroke=None)
        .configure_axis(domainColor=PLAIN, tickColor=PLAIN, **style)
        .configure_title(anchor="start", fontSize=14, color="#1b1f24", offset=12)
        .configure_legend(labelColor="#1b1f24", titleColor=GREY, titleFontWeight="normal")
    )


def _disarm(chart: Chart) -> Chart:
    """``chart`` with an invisible character in texts that could begin or end an HTML script element.

    Altair writes charts as unescaped JSON into a script element, in HTML files and in notebooks.
    """
    alt = altair()
    with alt.data_transformers.enable("default", max_rows=None):
        spec = chart.to_dict(context={"pre_transform": False})
    text = json.dumps(spec)
    safe = _MARKUP.sub(r"<\\u2060", text)
    return chart if safe == text else alt.Chart.from_dict(json.loads(safe))


def draw(
    charts: Mapping[str, Callable[..., Chart]],
    subject: object,
    kind: str,
    *,
    path: str | os.PathLike[str] | None = None,
    **options: object,
) -> Chart:
    """Draw ``subject`` with the function ``charts[kind]``. If ``path`` is given, also write the chart to it."""
    chart = charts[check_choice("kind", kind, list(charts))](subject, **options)
    if path is not None:
        save_chart(chart, path)
    return chart


def check_target(path: str | os.PathLike[str]) -> Path:
    """``path`` as a Path, after a check that it is a new file or an existing page or chart of vmselect.

    Any other existing file raises ArgumentError, because it was probably named by mistake and would be lost.
    """
    target = check_path("path", path)
    if _io.has_folder(target):
        raise ArgumentError(f"{target} is a folder. Give the path of a file, such as {target / 'report.html'}.")
    if _io.has_file(target):
        old = _io.read_bytes(target, noun="page or chart", limit=MAX_FILE_BYTES, error=ArgumentError)
        if old and not old[:16].lower().startswith(FILE_STARTS) and VEGA_SCHEMA not in old:
            raise ArgumentError(f"{target} exists and is not a page or chart of vmselect. Choose another path.")
    return target


def save_chart(chart: Chart, path: str | os.PathLike[str], *, scale: float = 2.0) -> Path:
    """Write ``chart`` as PNG, SVG, Vega-Lite JSON or self-contained HTML, depending on the suffix of ``path``.

    ``scale`` multiplies the width and height of a PNG in pixels.
    """
    target = check_target(path)
    suffix = target.suffix.lower()
    if suffix not in SUFFIXES:
        raise ArgumentError(f"{target.name} lacks the suffix of a chart file. Use one of: {', '.join(SUFFIXES)}.")
    if suffix != ".json":
        require("vl_convert", extra="plots", needed_by=f"A chart as {suffix}")
    # "inline" embeds the script, so that the HTML file loads nothing.
    options: dict[str, dict[str, float]] = {".png": {"scale_factor": scale}, ".html": {"inline": True}}
    drawn: io.BytesIO | io.StringIO = io.BytesIO() if suffix == ".png" else io.StringIO()
    chart.save(drawn, format=suffix[1:], **options.get(suffix, {}))
    content = drawn.getvalue()
    return _io.write_bytes(target, content if isinstance(content, bytes) else content.encode(), error=ArgumentError)


def labels(candidates: Candidates, which: Iterable[int]) -> dict[int, str]:
    """A short label for each candidate in ``which``: its instance type, and the fields in which candidates differ.

    Labels omit the market ``on_demand``.
    """
    identities = {int(i): candidates.identity(int(i)) for i in which}
    fields = ("batch_size", "varied", "region", "service", "provider", "market")
    varying = [name for name in fields if len({identity[name] for identity in identities.values()}) > 1]
    repeated = Counter(identity["instance_type"] for identity in identities.values())
    named = {}
    for i, identity in identities.items():
        more = varying if repeated[identity["instance_type"]] > 1 else ()
        parts = [
            f"batch {identity[name]}" if name == "batch_size" else str(identity[name])
            for name in more
            if identity[name] not in (None, "on_demand")
        ]
        named[i] = " · ".join([identity["instance_type"], *parts])
    return named


def records_of(ranking: Ranking, instance_type: str | None) -> list[Profile]:
    """The profiles of ``instance_type`` in ``ranking``, by default of the best candidate."""
    instance_type = instance_type or ranking.best.instance_type
    estimates = ranking.candidates.machine_estimates
    return [
        profile for estimate in estimates if estimate.instance_type == instance_type for profile in estimate.records
    ]


def deciding_rows(ranking: Ranking, *, most: int | None = None) -> list[tuple[str, Row]]:
    """Labels and rows of the candidates, best first; at most ``most`` if it is given."""
    column = ranking.deciding_column
    order = ranking.assessment.order[column][:most]
    named = labels(ranking.candidates, order)
    return [(named[int(i)], ranking.row(int(i), column)) for i in order]


STEP_COLORS = {
    "first": ORANGE,
    "warmup": OCHRE,
    "opening": PINK,
    "steady": BLUE,
    "partial": GREY,
}
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
"""Displayed name and color of each phase."""

MAX_PAGE_SAMPLES, MAX_CHART_SAMPLES = 200, 1_000
"""Maximum number of samples of each quantity on the page, and in a chart."""
MAX_BANDS = 1_000
"""Maximum number of colored bands (phases) in a chart. A training has fewer: its record has 240 samples per phase."""
SLACK = 1.01
"""Tolerance factor for the time that a stored sample represents: the last samples of a phase may not be stored."""
MAX_LINES, MAX_EPOCHS = len(SERIES), 300
PANEL_WIDTH, PANEL_HEIGHT = 300, 260


# -- step times --------------------------------------------------------------------------------------------------------


def step_points(profile: Profile, *, most: int = 2_000) -> Points:
    """Number, time and label of each measured step in the profile, and the median time of the steady steps.

    If there are more than ``most`` measured steps, only some of the steady steps are returned.
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
        "steady_seconds": step_seconds(profile),
        "readings": steps.readings,
    }


def _positions(steps: Steps) -> list[int]:
    """For each measured time, the number of the last step it covers, counted from the start of the training."""
    if len(steps) == steps.readings:
        return list(accumulate(steps.covers))
    # Some readings were not kept, so that the number follows from epoch and batch.
    per_epoch = max(steps.batch, default=0) + 1
    return [step.epoch * per_epoch + step.batch + 1 for step in steps.rows]


def _thin(labels: Sequence[str], most: int) -> list[int]:
    if len(labels) <= most:
        return list(range(len(labels)))
    special = [i for i, label in enumerate(labels) if label != "steady"][: most // 2]
    steady = [i for i, label in enumerate(labels) if label == "steady"]
    stride = -(-len(steady) // (most - len(special)))
    return sorted([*special, *steady[::stride]])


def steps_chart(ranking: Ranking, *, instance_type: str | None = None) -> Chart:
    """Draw the step times of ``instance_type``, by default of the best candidate."""
    alt = altair()
    profile = next((profile for profile in records_of(ranking, instance_type) if len(profile.timeline.steps)), None)
    if profile is None:
        raise RankingError(f"The profiles of {instance_type or ranking.best.instance_type} contain no step times.")
    points = step_points(profile)
    data = pd.DataFrame({name: points[name] for name in ("position", "seconds", "label")})
    data["milliseconds"] = data["seconds"] * 1e3
    wide = data["seconds"].max() > 8 * max(data["seconds"].min(), 1e-12)
    colors = {label: color for label, color in STEP_COLORS.items() if label in set(data["label"])}
    scale = alt.Scale(type="log" if wide else "linear")
    circles = alt.Chart(data).mark_circle(size=42, opacity=0.8)
    dots = circles.encode(
        x=alt.X("position:Q", title="Step"),
        y=alt.Y("milliseconds:Q", title="Milliseconds per step", scale=scale),
        color=color_by("label", colors, title="Kind of step"),
        tooltip=["position:Q", "milliseconds:Q", "label:N"],
    )
    if not points["steady_seconds"]:
        return themed(dots, title=points["title"])
    line = pd.DataFrame({"milliseconds": [points["steady_seconds"] * 1e3]})
    rule = alt.Chart(line).mark_rule(color=BLUE, opacity=0.6).encode(y="milliseconds:Q")
    title = f"{points['title']}: {format_seconds(points['steady_seconds'])} per steady step"
    return themed(alt.layer(dots, rule), title=title)


# -- utilization -------------------------------------------------------------------------------------------------------


def usage_points(title: str, usage: Usage, *, most: int = MAX_PAGE_SAMPLES) -> Points:
    """At most ``most`` samples of each utilization over time, and the start and end of each phase.

    The quantities are CPU utilization (of all processes, and of this training alone), memory in use, the mean
    utilization of the GPUs, and the share of time in which a process waited for a disk.
    """
    shares = _shares(usage).iloc[:: -(-len(usage.seconds) // most)].round(3)
    quantities = [{"name": name, "points": [list(point) for point in shares[name].dropna().items()]} for name in shares]
    longest = sorted(_phases(usage), key=lambda band: band["begin"] - band["end"])[:MAX_BANDS]
    return {
        "title": title,
        "interval_seconds": usage.interval_seconds,
        "phases": sorted(longest, key=lambda band: float(band["begin"])),
        "quantities": quantities,
    }


def _shares(usage: Usage) -> pd.DataFrame:
    """The samples as a frame: a row per sample, a column per quantity."""
    series = pd.DataFrame(dict(usage.series), index=range(len(usage.seconds)), dtype=float)
    machine = series.reindex(
        columns=["usable_cpu_share", "process_cores", "memory_available_share", "io_pressure_share"]
    )
    shares = {
        "CPU cores": machine["usable_cpu_share"],
        "this training": (machine["process_cores"] / (usage.limits.cores or 1)).clip(upper=1.0),
        "memory": 1 - machine["memory_available_share"],
        "GPUs": series.filter(regex=r"^gpu\d+_busy_share$").mean(axis=1),
        "waiting for disk": machine["io_pressure_share"],
    }
    return pd.DataFrame(shares).set_axis(list(usage.seconds)).dropna(axis=1, how="all")


def _phases(usage: Usage) -> list[Points]:
    """Name, start and end (in seconds) of each phase of the training, in chronological order.

    The record contains only some of the samples, but the total time of each phase. A stored sample represents an equal
    share of the total time of its phase. If the time since the previous sample is longer than that share, the remainder
    is assigned to the phase whose total time is covered least so far.
    """
    kept = Counter(usage.phase)
    seen = {phase: max(parts.values(), key=lambda part: part.seconds) for phase, parts in usage.phases.items() if parts}
    owed = {phase: 0.0 for phase, whole in seen.items() if whole.count > kept[phase] > 0}
    bands: list[Points] = []

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
        # Samples differ a little in length: ignore small rests.
        if max(owed.values(), default=0.0) > 0 and at - reach - before > usage.interval_seconds / 2:
            begin = round(at - reach, 3)
            missing = max(owed, key=lambda phase: owed[phase])
            shade(missing, before, begin)
            owed[missing] -= begin - before
        shade(phase, begin, at)
        if phase in owed:
            owed[phase] += reach - (at - begin)
        before = at
    return bands


def usage_chart(
    source: Profile | InferenceRecord | TransferRecord | Ranking, *, instance_type: str | None = None
) -> Chart:
    """Draw utilization over time: of a record, or of an instance type in a ranking (by default the best one)."""
    from vmselect.ranking import Ranking

    alt = altair()
    records = records_of(source, instance_type) if isinstance(source, Ranking) else [source]
    sampled = next((record for record in records if record.usage is not None and record.usage.seconds), None)
    if sampled is None or sampled.usage is None:
        title = records[0].title if records else instance_type or "this machine"
        raise RankingError(f"The record of {title} contains no samples of utilization. Probe again with sample=1.0.")
    points = usage_points(sampled.title, sampled.usage, most=MAX_CHART_SAMPLES)
    phases = pd.DataFrame(points["phases"])
    samples = pd.DataFrame(
        [
            {"quantity": quantity["name"], "seconds": at, "share": share}
            for quantity in points["quantities"]
            for at, share in quantity["points"]
        ]
    )
    at = np.searchsorted(phases["end"], samples["seconds"]).clip(max=len(phases) - 1)
    samples["phase"] = phases["phase"].to_numpy()[at]
    colors = {name: color for name, color in PHASES.values() if name in set(phases["phase"])}
    legend = alt.Legend(symbolStrokeColor=PLAIN, symbolStrokeWidth=0.5)
    bands = (
        alt.Chart(phases)
        .mark_rect(stroke="#d5d8dc", strokeWidth=0.5)
        .encode(
            x=alt.X("begin:Q", title="Seconds since the start"),
            x2="end:Q",
            color=color_by("phase", colors, title="Phase", legend=legend),
            tooltip=["phase:N", alt.Tooltip("begin:Q", format=".1f"), alt.Tooltip("end:Q", format=".1f")],
        )
    )
    names = [quantity["name"] for quantity in points["quantities"]]
    seconds, share = alt.Tooltip("seconds:Q", format=".1f"), alt.Tooltip("share:Q", format=".0%")
    steps = alt.Chart(samples).mark_line(interpolate="step-before", point=alt.OverlayMarkDef(size=18), strokeWidth=1.8)
    lines = steps.encode(
        x="seconds:Q",
        y=alt.Y("share:Q", title="Utilization", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
        color=alt.Color("quantity:N", title="Quantity", scale=alt.Scale(domain=names, range=list(SERIES))),
        tooltip=["quantity:N", seconds, share, "phase:N"],
    )
    layered = alt.layer(bands, lines).resolve_scale(color="independent")
    return themed(layered, title=f"{points['title']}: utilization")


# -- epoch curves ------------------------------------------------------------------------------------------------------


def epoch_curve_points(
    records: Iterable[Record], *, runs: Iterable[ConvergenceRun] = (), metric: str | None = None
) -> Points:
    """A line per machine: ``times`` with points ``[epoch, seconds]``, ``metrics`` with points ``[epoch, value]``.

    Times come from complete epochs of profiles. Metrics come from convergence records and ``runs``, or else from the
    metrics that profiles logged after each epoch. A line is the median of the repetitions on a machine. The default of
    ``metric`` is the first metric found; of logged metrics, a validation metric that is not a loss is preferred.
    """
    from vmselect.records import Profile
    from vmselect.records.convergence import ConvergenceRecord

    times: list[tuple[str, int, float]] = []
    observed, logged = list(runs), []
    for record in records:
        if isinstance(record, Profile):
            logged += [record] if record.logs is not None else []
            times += [
                (record.title, epoch.epoch + 1, epoch.seconds) for epoch in record.timeline.epochs if epoch.complete
            ]
        elif isinstance(record, ConvergenceRecord):
            observed += record.runs
    monitored = [run.rule.monitor for run in observed for _, v in run.curve.points if math.isfinite(v)]
    names = dict.fromkeys(name for profile in logged for name in (profile.logs.values if profile.logs else ()))
    preferred = sorted(names, key=lambda name: (not name.startswith("val_"), "loss" in name))
    metric = metric or next(iter([*monitored, *preferred]), None)
    metrics = [
        (f"{run.instance_type or 'unknown machine'}, batch {run.batch_size}", epoch, value)
        for run in observed
        if run.rule.monitor == metric
        for epoch, value in run.curve.points
        if math.isfinite(value)
    ]
    metrics += [
        (profile.title, epoch + 1, value)
        for profile in logged
        # Where a study observed the metric, its curves are drawn instead of the logs of the same trainings.
        if profile.logs and metric and metric in profile.logs.values
        if not any(run.rule.monitor == metric for run in observed)
        for epoch, value in zip(profile.logs.epoch, profile.logs.values[metric], strict=True)
        if value is not None
    ]
    return {"times": _lines(times), "metric": metric if metrics else None, "metrics": _lines(metrics)}


def _lines(points: list[tuple[str, int, float]]) -> list[Points]:
    """A line of at most ``MAX_EPOCHS`` points for each of the first ``MAX_LINES`` machines."""
    frame = pd.DataFrame(points, columns=["machine", "epoch", "value"])
    medians = frame.groupby(["machine", "epoch"], sort=False)["value"].median().reset_index()
    lines = []
    for machine, line in itertools.islice(medians.groupby("machine", sort=False), MAX_LINES):
        kept = line.sort_values("epoch").iloc[:: -(-len(line) // MAX_EPOCHS)]
        pairs = [[int(epoch), float(f"{value:.5g}")] for epoch, value in zip(kept["epoch"], kept["value"], strict=True)]
        lines.append({"name": str(machine), "points": pairs})
    return lines


def epoch_curves_chart(records: Iterable[Record], *, metric: str | None = None) -> Chart:
    """Draw the time of each epoch on the left, and ``metric`` after each epoch on the right."""
    alt = altair()
    points = epoch_curve_points(records, metric=metric)
    if not points["times"] and not points["metrics"]:
        raise RankingError("The records contain no complete epoch to draw. Probe with EpochProbe, or with stop=False.")
    machines = list(dict.fromkeys(line["name"] for name in ("times", "metrics") for line in points[name]))
    color = alt.Color("machine:N", title="Machine", scale=alt.Scale(domain=machines, range=list(SERIES)))
    panels = []
    for name, title in (("times", "Training time per epoch, seconds"), ("metrics", points["metric"])):
        rows = [
            {"machine": line["name"], "epoch": epoch, "value": value}
            for line in points[name]
            for epoch, value in line["points"]
        ]
        chart = alt.Chart(pd.DataFrame(rows)).mark_line(point=alt.OverlayMarkDef(size=22))
        encoded = chart.encode(
            x=alt.X("epoch:Q", title="Epoch", axis=alt.Axis(tickMinStep=1, format="d")),
            y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=name == "times")),
            color=color,
            tooltip=["machine:N", "epoch:Q", alt.Tooltip("value:Q", format=".4g")],
        )
        panels += [encoded.properties(width=PANEL_WIDTH, height=PANEL_HEIGHT)] if rows else []
    return styled(alt.hconcat(*panels).properties(title="Epoch by epoch"))
