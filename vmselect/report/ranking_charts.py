"""Charts of a ranking: cost against time; both against epochs, batch size and number of GPUs; and terms of the time.

Each chart has two functions: ``*_points`` returns its numbers, ``*_chart`` draws them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from vmselect.errors import RankingError
from vmselect.ranking.options import NO_LIMITS
from vmselect.ranking.views import BASIS_MARKS
from vmselect.report.charts import (
    ACCENT,
    BLUE,
    GREY,
    HEIGHT,
    LIGHT_PINK,
    ORANGE,
    PINK,
    PLAIN,
    SERIES,
    TEAL,
    WIDTH,
    Chart,
    altair,
    axis_unit,
    color_by,
    deciding_rows,
    draw,
    labels,
    require_some,
    steps_chart,
    styled,
    themed,
    usage_chart,
)
from vmselect.report.price_charts import prices_chart
from vmselect.report.record_charts import disk_chart, validations_chart
from vmselect.units import SECONDS_PER_HOUR, format_epoch_count, hours

if TYPE_CHECKING:
    import numpy.typing as npt

    from vmselect.ranking import Ranking, Row
    from vmselect.scoring.score import Accuracy
    from vmselect.serving.autoscaling import Day
    from vmselect.serving.rank import ServingRanking

MAX_POINTS = 400
MAX_LABELS = 12
MAX_EPOCH_LINES = MAX_BATCH_LINES = len(SERIES)
MAX_BARS = 12
TIME_TITLE, COST_TITLE, EFFICIENCY_TITLE = "Hours of training", "Cost in USD", "Efficiency"
PROBED = "probed"
SIDES = (("left", 7, -10), ("left", 7, 11), ("left", 9, 0), ("right", -9, 0), ("right", -7, -10), ("right", -7, 11))
"""Possible positions of a label relative to its point: alignment and offset in pixels, best first."""

TERM_COLORS = {
    "boot": PLAIN,
    "data_in": "#2a9d8f",
    "initialization": "#7a6f63",
    "first_iteration": ORANGE,
    "steady_iterations": BLUE,
    "partial_batch": "#3a8fc7",
    "first_validation": PINK,
    "later_validations": LIGHT_PINK,
    "epoch_boundaries": "#a88600",
    "model_out": "#6b8e23",
    "interruptions": GREY,
}

Value = Literal["time", "cost"]
Area = tuple[float, float, float, float]
"""Left, right, lower and upper end of a rectangle in pixels."""


# -- time against cost -------------------------------------------------------------------------------------------------


def time_cost_points(ranking: Ranking, *, most: int = MAX_POINTS) -> pd.DataFrame:
    """A row per candidate at the epoch count that decides the ranking, best first: hours and USD.

    ``kind`` is ``best``, ``Pareto front`` or ``other``; ``basis`` is ``probed`` or one of the ``BASIS_MARKS``.
    """
    rows = deciding_rows(ranking, most=most)
    kinds = ["best" if row.rank == 1 else "Pareto front" if row.pareto else "other" for _, row in rows]
    return _points(rows, "usd_per_hour").assign(kind=kinds)


def _points(rows: Sequence[tuple[str, Row]], *more: str) -> pd.DataFrame:
    """DataFrame with the label, rank, hours, USD and basis of each row, and the additional fields named in ``more``."""
    fields = ["rank", "seconds", "seconds_low", "seconds_high", "cost_usd", "cost_low", "cost_high", *more]
    values = [[label, *(getattr(row, field) for field in fields)] for label, row in rows]
    frame = pd.DataFrame(values, columns=["machine", *fields])
    frame[["seconds", "seconds_low", "seconds_high"]] /= SECONDS_PER_HOUR
    frame["basis"] = [BASIS_MARKS.get(row.basis, PROBED) for _, row in rows]
    return frame.rename(columns=lambda name: name.replace("seconds", "hours"))


def time_cost_chart(ranking: Ranking) -> Chart:
    """Draw cost against time, with a point per candidate."""
    alt = altair()
    data = time_cost_points(ranking)
    require_some(ranking, data)
    kinds = {"best": ACCENT, "Pareto front": TEAL, "other": PLAIN}
    wide = max((_span(data[name]) for name in ("hours", "cost_usd")), default=1.0) > 12
    scale = alt.Scale(type="log", nice=False, padding=24) if wide else alt.Scale(zero=True)
    axis = alt.Axis(tickCount=6)
    x = alt.X("hours:Q", title=TIME_TITLE, scale=scale, axis=axis)
    y = alt.Y("cost_usd:Q", title=COST_TITLE, scale=scale, axis=axis)
    color = color_by("kind", kinds, title=None, legend=alt.Legend(symbolOpacity=1))
    base = alt.Chart(data).encode(color=color)
    front = alt.Chart(data[data["kind"] != "other"]).mark_line(strokeDash=[2, 4], color=ACCENT)
    tooltip = ["machine:N", "rank:Q", "hours:Q", "cost_usd:Q", "usd_per_hour:Q", "basis:N"]
    layers = [
        front.encode(x=x, y=y, order="hours:Q"),
        base.mark_rule(opacity=0.5).encode(x=alt.X("hours_low:Q", title=TIME_TITLE), x2="hours_high:Q", y=y),
        base.mark_rule(opacity=0.5).encode(x=x, y=alt.Y("cost_low:Q", title=COST_TITLE), y2="cost_high:Q"),
        *_marks(data, size=80, tooltip=tooltip, x=x, y=y, color=color),
    ]
    named = data.head(MAX_LABELS)
    most = (data["hours_high"].max(), data["cost_high"].max())
    joined = data[data["kind"] != "other"].sort_values("hours")
    line = list(zip(joined["hours"], joined["cost_usd"], strict=True))
    sides = choose_sides(named["hours"], named["cost_usd"], named["machine"], most=most, log=wide, line=line)
    for align, dx, dy in SIDES:
        here = named[[side == (align, dx, dy) for side in sides]]
        text = alt.Chart(here).mark_text(align=align, dx=dx, dy=dy, color="#1b1f24")
        layers.append(text.encode(x=x, y=y, text="machine:N"))
    count = ranking.settings.decide_at
    epochs = format_epoch_count(count) if count else "epochs from the convergence study"
    return themed(alt.layer(*layers), title=f"Time against cost, {epochs}")


def _marks(data: pd.DataFrame, *, size: int, tooltip: list[str], **encoding: Chart) -> list[Chart]:
    """Chart layers with a circle per row of ``data``.

    The circles of machines that were never probed are hollow, and dashed if no machine was probed at all.
    """
    alt = altair()
    hollow = data["basis"] != PROBED
    filled = alt.Chart(data[~hollow]).mark_circle(size=size, opacity=1).encode(tooltip=tooltip, **encoding)
    if not hollow.any():
        return [filled]
    seen = [mark for mark in BASIS_MARKS.values() if mark in set(data["basis"])]
    scale = alt.Scale(domain=[PROBED, *seen], range=[PLAIN, *["white"] * len(seen)])
    legend = alt.Legend(symbolType="circle", symbolStrokeColor=PLAIN, symbolOpacity=1)
    fill = alt.Fill("basis:N", title=None, scale=scale, legend=legend)
    layers = [filled]
    for mark in seen:
        dash: dict[str, Any] = {"strokeDash": [3, 2]} if mark == BASIS_MARKS["described"] else {}
        rings = alt.Chart(data[data["basis"] == mark]).mark_point(size=size, opacity=1, strokeWidth=2, **dash)
        layers.append(rings.encode(fill=fill, tooltip=tooltip, **encoding))
    return layers


def choose_sides(
    x: Iterable[float],
    y: Iterable[float],
    texts: Iterable[str],
    *,
    most: tuple[float, float],
    log: bool,
    line: Sequence[tuple[float, float]] = (),
) -> list[tuple[str, int, int] | None]:
    """For each point, the first of :data:`SIDES` at which its label overlaps no other label or point; None if none.

    Sides at which the label does not cross the ``line``, given by its corners, are preferred. ``most`` is the largest
    value on each axis. No label crosses the vertical axis.
    """
    across = _pixels([*x, *(corner[0] for corner in line)], WIDTH, most=most[0], log=log)
    up = _pixels([*y, *(corner[1] for corner in line)], HEIGHT, most=most[1], log=log)
    places, names = list(zip(across, up, strict=True)), list(texts)
    points, corners = places[: len(names)], places[len(names) :]
    drawn = [_around(place, 1.0) for place in _along(corners)]
    taken = [_around(point, 5.0) for point in points]
    chosen: list[tuple[str, int, int] | None] = []
    for (a, b), text in zip(points, names, strict=True):
        width = 6.2 * len(text)
        areas: dict[tuple[str, int, int], Area] = {}
        for align, dx, dy in SIDES:
            left = a + dx - (width if align == "right" else 0)
            area = (left, left + width, b - dy - 6, b - dy + 6)
            if left >= 0 and _is_free(area, taken):
                areas[align, dx, dy] = area
        side = next((side for side, area in areas.items() if _is_free(area, drawn)), next(iter(areas), None))
        chosen.append(side)
        taken += [areas[side]] if side else []
    return chosen


def _around(point: tuple[float, float], margin: float) -> Area:
    return point[0] - margin, point[0] + margin, point[1] - margin, point[1] + margin


def _is_free(area: Area, others: Iterable[Area]) -> bool:
    return all(area[1] < o[0] or area[0] > o[1] or area[3] < o[2] or area[2] > o[3] for o in others)


def _along(corners: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield points of the line through ``corners``, at most 4 pixels apart."""
    for (a, b), (c, d) in pairwise(corners):
        parts = max(1, math.ceil(math.hypot(c - a, d - b) / 4))
        yield from ((a + (c - a) * k / parts, b + (d - b) * k / parts) for k in range(parts + 1))


def _pixels(values: Iterable[float], size: int, *, most: float, log: bool) -> list[float]:
    """Approximate positions of ``values`` on an axis of ``size`` pixels, whose largest value is ``most``."""
    *placed, high = [math.log(max(value, 1e-12)) if log else value for value in (*values, most)]
    low = min(placed, default=0.0) if log else 0.0
    return [size * (value - low) / ((high - low) or 1.0) for value in placed]


def _span(values: pd.Series[float]) -> float:
    """The ratio of the largest to the smallest of ``values``."""
    return float(values.max() / values.min()) if len(values) and values.min() > 0 else 1.0


# -- against epochs ----------------------------------------------------------------------------------------------------


def epochs_points(ranking: Ranking, value: Value, *, most: int = MAX_EPOCH_LINES) -> pd.DataFrame:
    """A row per candidate and number of epochs: label, epochs, and hours or USD with interval.

    Candidates that are best at some number of epochs come first, then the best of the ranking; at most ``most``.
    """
    counts = _counts(ranking)
    unlimited = ranking.rerank(epochs=counts, **NO_LIMITS)
    interval = unlimited.assessment.measures[value]
    per_unit = SECONDS_PER_HOUR if value == "time" else 1.0
    lines = _choose_lines(unlimited, interval.value, most)
    named = labels(ranking.candidates, lines)
    points = {"machine": [named[i] for i in lines for _ in counts], "epochs": [*counts] * len(lines)}
    numbers = {name: part[lines].ravel() / per_unit for name, part in interval._asdict().items()}
    return pd.DataFrame({**points, **numbers})


def crossover_points(ranking: Ranking, value: Value) -> pd.DataFrame:
    """A row per crossover within the chart: epochs, instance type of the new best candidate, and its hours or USD."""
    rows: list[tuple[int, str, float]] = []
    for change in ranking.crossovers(value, up_to=_counts(ranking)[-1]):
        best = ranking.rerank(epochs=change.epochs, objective=value, **NO_LIMITS).best
        rows.append((change.epochs, best.instance_type, hours(best.seconds) if value == "time" else best.cost_usd))
    return pd.DataFrame(rows, columns=["epochs", "machine", "value"])


def epochs_chart(ranking: Ranking, value: Value) -> Chart:
    """Draw time or cost against epochs: a line per candidate, interval of the best one, and a ring per crossover."""
    alt = altair()
    changes, data = crossover_points(ranking, value), epochs_points(ranking, value)
    require_some(ranking, data)
    title = TIME_TITLE if value == "time" else COST_TITLE
    color = _color(data, legend=None)
    x, y = alt.X("epochs:Q", title="Epochs"), alt.Y("value:Q", title=title)
    ends = data.groupby("machine", sort=False).tail(1)
    leader = ends.nsmallest(1, "value")["machine"]
    ends = ends.assign(value=_spread_apart(ends["value"].tolist(), share=0.042))
    band = alt.Chart(data[data["machine"].isin(leader)]).mark_area(opacity=0.15)
    tooltip = ["machine:N", "epochs:Q", "value:Q", "low:Q", "high:Q"]
    layers: list[Chart] = [
        band.encode(x=x, y=alt.Y("low:Q", title=title), y2="high:Q", color=color),
        alt.Chart(data).mark_line().encode(x=x, y=y, color=color, tooltip=tooltip),
        alt.Chart(ends).mark_text(align="left", dx=6).encode(x=x, y=y, text="machine:N", color=color),
    ]
    if len(changes):
        base = alt.Chart(changes).encode(x=x, y=y)
        rings = base.mark_point(size=90, opacity=1, color="#1b1f24", filled=False)
        layers.append(rings.encode(tooltip=["epochs:Q", "machine:N"]))
        words = base.mark_text(dy=-14, color="#1b1f24").encode(text=alt.Text("from:N"))
        layers.append(words.transform_calculate(**{"from": "'from ' + datum.epochs"}))
    measure = "Training time" if value == "time" else "Cost"
    return themed(alt.layer(*layers), title=f"{measure} against epochs; rings mark where the best candidate changes")


def _counts(ranking: Ranking) -> list[int]:
    """At most sixty numbers of epochs to draw: from 1 to twice the epoch count that decides the ranking."""
    settings = ranking.settings
    most = max(10, 2 * (settings.decide_at or 1), *settings.epochs, 1)
    return sorted({int(n) for n in np.linspace(1, most, 60).round()})


def _spread_apart(values: list[float], *, share: float) -> list[float]:
    """Increase ``values`` until no two are closer than ``share`` of the largest, so that labels do not overlap."""
    gap = share * max(values, default=0.0)
    placed, floor = list(values), -gap
    for i in sorted(range(len(values)), key=values.__getitem__):
        placed[i] = floor = max(values[i], floor + gap)
    return placed


def _choose_lines(unlimited: Ranking, values: npt.NDArray[np.float64], max_lines: int) -> list[int]:
    """Indices of the candidates to draw: the best at each number of epochs, then the best at the middle number.

    ``unlimited`` is the ranking at all numbers of epochs of the chart, without limits. Its ``order`` has an array per
    number of epochs: the indices of the candidates, best first by the objective. ``values`` has a row per candidate and
    a column per number of epochs: the time or cost that is drawn, which may order them differently from the objective.
    """
    order = unlimited.assessment.order
    leaders = [int(rows[np.argmin(values[rows, column])]) for column, rows in enumerate(order) if len(rows)]
    # Even if all leaders are among the first max_lines, these are enough to fill up the chart.
    runners_up = [int(i) for i in order[len(order) // 2][:max_lines]] if order else []
    return list(dict.fromkeys([*leaders, *runners_up]))[:max_lines]


# -- terms -------------------------------------------------------------------------------------------------------------


def terms_points(ranking: Ranking, *, most: int = MAX_BARS) -> pd.DataFrame:
    """A row per candidate and term of its time: machine, rank, term, seconds, hours, cost_usd.

    The cost of a term is its share of the candidate's cost.
    """
    points = [
        (label, row.rank, term, seconds, hours(seconds), row.cost_usd * seconds / row.seconds if row.seconds else 0.0)
        for label, row in deciding_rows(ranking, most=most)
        for term, seconds in row.terms.items()
    ]
    return pd.DataFrame(points, columns=["machine", "rank", "term", "seconds", "hours", "cost_usd"])


def terms_chart(ranking: Ranking) -> Chart:
    """Draw the terms of the time of each candidate, or of its cost if cost has the larger weight in the objective."""
    alt = altair()
    data = terms_points(ranking)
    require_some(ranking, data)
    by_time = ranking.settings.objective["time"] > ranking.settings.objective["cost"]
    field, title = ("hours", TIME_TITLE) if by_time else ("cost_usd", COST_TITLE)
    colors = {term: color for term, color in TERM_COLORS.items() if term in set(data["term"])}
    ordered = alt.Chart(data).transform_calculate(place=f"indexof({list(colors)!r}, datum.term)")
    bars = ordered.mark_bar().encode(
        y=alt.Y("machine:N", title=None, sort=alt.SortField("rank")),
        x=alt.X(f"{field}:Q", title=title, stack=True),
        color=color_by("term", colors, title=None),
        order=alt.Order("place:Q"),
        tooltip=["machine:N", "term:N", "seconds:Q", "hours:Q", "cost_usd:Q"],
    )
    rows = max(1, data["machine"].nunique())
    return themed(bars, title="Terms of the best candidates", height=28 * rows)


# -- against batch size ------------------------------------------------------------------------------------------------


def batch_points(ranking: Ranking, *, most: int = MAX_BATCH_LINES) -> pd.DataFrame:
    """A row per instance type and batch size, with its cheapest offer: epochs, hours and USD with intervals.

    Only the ``most`` best instance types are included.
    """
    rows = [row for row in ranking.deciding_rows if row.batch_size]
    machines = list(dict.fromkeys(row.instance_type for row in rows))[:most]
    cheapest: dict[tuple[str, int | None], Row] = {}
    for row in sorted(rows, key=lambda row: row.cost_usd):
        if row.instance_type in machines:
            cheapest.setdefault((row.instance_type, row.batch_size), row)
    pairs = sorted(cheapest, key=lambda pair: (machines.index(pair[0]), pair[1]))
    return _points([(pair[0], cheapest[pair]) for pair in pairs], "batch_size", "epochs")


def metric_points(ranking: Ranking) -> pd.DataFrame:
    """Return a row per batch size, with the metric that its trainings reach, such as the accuracy."""
    if ranking.studied is None:
        raise RankingError("This ranking has no convergence study. Pass one as epochs= of vmselect.rank.")
    measured = {estimate.batch_size for estimate in ranking.candidates.machine_estimates if estimate.batch_size}
    sizes = sorted(measured.union(ranking.studied.study.batch_sizes))
    rows = [(size, metric) for size in sizes if (metric := ranking.studied.metric(size)) is not None]
    return pd.DataFrame(rows, columns=["batch_size", "metric"])


def batch_time_chart(ranking: Ranking) -> Chart:
    """Draw training time against batch size, with a line per instance type."""
    alt = altair()
    data = batch_points(ranking)
    require_some(ranking, data)
    x, color = _batch_axis(data), _color(data)
    lines = alt.Chart(data).encode(x=x, color=color)
    tooltip = ["machine:N", "batch_size:Q", "epochs:Q", "hours:Q", "cost_usd:Q", "basis:N"]
    layers = [
        lines.mark_rule(opacity=0.5).encode(y=alt.Y("hours_low:Q", title=TIME_TITLE), y2="hours_high:Q"),
        lines.mark_line().encode(y=alt.Y("hours:Q", title=TIME_TITLE)),
        *_marks(data, size=40, tooltip=tooltip, x=x, y=alt.Y("hours:Q", title=TIME_TITLE), color=color),
    ]
    return themed(alt.layer(*layers), title="Training time against batch size")


def cost_time_chart(ranking: Ranking) -> Chart:
    """Draw cost against time, with a line per instance type that connects its batch sizes."""
    alt = altair()
    data = batch_points(ranking)
    require_some(ranking, data)
    zero = alt.Scale(zero=True)
    x = alt.X("hours:Q", title=TIME_TITLE, scale=zero)
    y = alt.Y("cost_usd:Q", title=COST_TITLE, scale=zero)
    base = alt.Chart(data).encode(x=x, y=y)
    tooltip = ["machine:N", "batch_size:Q", "epochs:Q", "hours:Q", "cost_usd:Q", "basis:N"]
    layers = [
        base.mark_line(opacity=0.4).encode(color=_color(data), order="batch_size:Q"),
        *_marks(data, size=70, tooltip=tooltip, x=x, y=y, color=_color(data)),
        base.mark_text(dy=-10, color="#1b1f24").encode(text="batch_size:N"),
    ]
    return themed(alt.layer(*layers), title="Cost against time; the numbers are batch sizes")


def batch_metric_chart(ranking: Ranking) -> Chart:
    """Draw the final metric against the batch size, with the required metric as a line."""
    data = metric_points(ranking)
    require_some(ranking, data)
    assert ranking.study is not None  # metric_points has checked it
    alt = altair()
    title = f"Final {ranking.study.monitor}"
    y = alt.Y("metric:Q", title=title, scale=alt.Scale(zero=False))
    line = alt.Chart(data).mark_line(point=True, color=ACCENT)
    layers = [line.encode(x=_batch_axis(data), y=y, tooltip=["batch_size:Q", "metric:Q"])]
    required = ranking.study.required.get(ranking.study.monitor)
    if required is not None:
        rule = alt.Chart(pd.DataFrame({"metric": [required]})).mark_rule(color="#8a5300", strokeDash=[5, 4])
        layers.append(rule.encode(y=y))
    return themed(alt.layer(*layers), title=f"{title} against batch size")


def _batch_axis(data: pd.DataFrame) -> Chart:
    alt = altair()
    sizes = sorted({int(size) for size in data["batch_size"]})
    scale = alt.Scale(type="log", base=2, nice=False, padding=16)
    return alt.X("batch_size:Q", title="Batch size", scale=scale, axis=alt.Axis(values=sizes))


def _color(data: pd.DataFrame, **options: object) -> Chart:
    colors = dict(zip(dict.fromkeys(data["machine"]), SERIES, strict=False))
    return color_by("machine", colors, title=None, **{"legend": altair().Legend(symbolOpacity=1), **options})


# -- against the number of GPUs ----------------------------------------------------------------------------------------


def gpus_points(ranking: Ranking) -> pd.DataFrame:
    """A row per GPU model (``machine``), total number of GPUs (``gpus``) and ``measure``: time, cost or efficiency.

    ``value`` is the shortest time in hours, the lowest cost in USD, or the efficiency of the fastest row. Efficiency is
    relative to one GPU of the same model, and NaN if the ranking has no row with one such GPU. ``low`` and ``high`` are
    the interval of time and cost; for the efficiency, both are ``value``.
    """
    table = ranking.scaling
    if table.empty:
        raise RankingError(
            "The ranking has no GPU machine to draw. Rank profiles of GPU machines, with numbers of GPUs such as "
            "gpus=[1, 2, 4]."
        )
    table = table.assign(basis=[BASIS_MARKS.get(basis, PROBED) for basis in table["basis"]])
    groups = table.groupby(["gpu_model", "gpus"])
    fastest, cheapest = (table.loc[groups[name].idxmin()] for name in ("seconds", "cost_usd"))
    points = []
    for title, rows, names, unit in (
        (TIME_TITLE, fastest, ["seconds", "seconds_low", "seconds_high"], SECONDS_PER_HOUR),
        (COST_TITLE, cheapest, ["cost_usd", "cost_low", "cost_high"], 1.0),
        (EFFICIENCY_TITLE, fastest, ["efficiency", "efficiency", "efficiency"], 1.0),
    ):
        values = (rows[names] / unit).set_axis(["value", "low", "high"], axis=1)
        points.append(values.assign(machine=rows["gpu_model"], gpus=rows["gpus"], measure=title, basis=rows["basis"]))
    return pd.concat(points, ignore_index=True)


def gpus_chart(ranking: Ranking) -> Chart:
    """Draw the shortest time, the lowest cost and the efficiency against the number of GPUs.

    Rings mark the number of GPUs with the shortest time and the lowest cost of each GPU model.
    """
    alt = altair()
    data = gpus_points(ranking)
    x = alt.X("gpus:Q", title="GPUs", axis=alt.Axis(values=sorted(set(data["gpus"]))))
    panels = []
    for title, mine in data.dropna(subset=["value"]).groupby("measure", sort=False):
        y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=True))
        color = _color(data)
        layers = [
            alt.Chart(mine).mark_line().encode(x=x, y=y, color=color),
            *_marks(mine, size=50, tooltip=["machine:N", "gpus:Q", "value:Q", "basis:N"], x=x, y=y, color=color),
        ]
        if title != EFFICIENCY_TITLE:
            ends = alt.Y("low:Q", title=title)
            best = mine.loc[mine.groupby("machine")["value"].idxmin()]
            ring = alt.Chart(best).mark_point(size=200, opacity=1, color="#1b1f24", filled=False)
            layers.append(alt.Chart(mine).mark_rule(opacity=0.5).encode(x=x, y=ends, y2="high:Q", color=color))
            layers.append(ring.encode(x=x, y=y))
        panels.append(alt.layer(*layers).properties(width=WIDTH // 3, height=HEIGHT))
    title = "Time, cost and efficiency against the number of GPUs; rings mark the lowest"
    return styled(alt.hconcat(*panels).properties(title=title))


# -- charts of a ranking, by name --------------------------------------------------------------------------------------

CHARTS: Mapping[str, Callable[..., Chart]] = {
    "time-cost": time_cost_chart,
    "epochs-time": partial(epochs_chart, value="time"),
    "epochs-cost": partial(epochs_chart, value="cost"),
    "terms": terms_chart,
    "steps": steps_chart,
    "validations": validations_chart,
    "disk": disk_chart,
    "usage": usage_chart,
    "batch-time": batch_time_chart,
    "cost-time": cost_time_chart,
    "batch-metric": batch_metric_chart,
    "gpus": gpus_chart,
    "prices": prices_chart,
}
"""The charts of a ranking by name. ``epochs-*`` require that the user gave numbers of epochs, ``batch-metric`` requires
a convergence study."""


chart = partial(draw, CHARTS)
"""Draw the chart ``CHARTS[kind]`` of a ranking. If ``path`` is given, also write it as PNG, SVG, JSON or HTML."""


# -- real against estimated --------------------------------------------------------------------------------------------


def accuracy_points(accuracy: Accuracy) -> pd.DataFrame:
    """Two rows per training: its ``real`` time and its ``estimate`` with the interval, in seconds."""
    several = len({(row.title, row.epochs) for row in accuracy}) > len({row.title for row in accuracy})
    rows: list[tuple[object, ...]] = []
    for row in accuracy:
        titled = f"{row.title}, {format_epoch_count(row.epochs)}" if several else row.title
        rows.append((titled, "real", row.real_seconds, math.nan, math.nan))
        rows.append((titled, "estimate", row.seconds, row.seconds_low, row.seconds_high))
    return pd.DataFrame(rows, columns=["training", "kind", "seconds", "low", "high"])


def real_estimate_chart(accuracy: Accuracy) -> Chart:
    """Draw a pair of bars (real time and estimate) per training, with the interval of the estimate."""
    alt = altair()
    data = accuracy_points(accuracy)
    factor, unit = axis_unit(float(data[["seconds", "high"]].max().max()), "s")
    data[["seconds", "low", "high"]] *= factor
    y = alt.Y("training:N", sort=None, title=None, axis=alt.Axis(labelLimit=260))
    colors = color_by("kind", {"real": PLAIN, "estimate": ACCENT}, title=None)
    offset = alt.YOffset("kind:N", sort=["real", "estimate"])
    base = alt.Chart(data)
    bars = base.mark_bar().encode(
        x=alt.X("seconds:Q", title=f"Time, {unit}"), y=y, yOffset=offset, color=colors,
        tooltip=["training:N", "kind:N", "seconds:Q", "low:Q", "high:Q"],
    )  # fmt: skip
    interval = alt.Chart(data[data["kind"] == "estimate"]).mark_rule(color="#1b1f24")
    rules = interval.encode(x=alt.X("low:Q", title=f"Time, {unit}"), x2="high:Q", y=y, yOffset=offset)
    title = f"Real against estimated: mean error {accuracy.mean_error_percent:.3g} %"
    return themed(alt.layer(bars, rules), title=title, height=max(80, 44 * len(accuracy)))


accuracy_chart = partial(draw, {"real-estimate": real_estimate_chart})
"""Draw real and estimated times as chart ``kind``: ``real-estimate``."""


# -- serving -----------------------------------------------------------------------------------------------------------


def load_points(ranking: ServingRanking) -> pd.DataFrame:
    """A row per machine type (with batch size) and load: number of instances, USD per hour, latency in milliseconds."""
    rows = [
        {
            "service": " · ".join(
                [row.instance_type, f"batch {row.batch_size}", *([row.market] if row.market != "on_demand" else [])]
            ),
            "load": row.load,
            "instances": row.instances,
            "hourly_usd": row.hourly_usd,
            "latency_ms": row.latency_seconds * 1e3,
        }
        for row in ranking
        if row.load is not None
    ]
    if not rows:
        raise RankingError(
            "The ranking has no load for which a machine is feasible. Rank with load=[...], in items per second."
        )
    return pd.DataFrame(rows).sort_values(["service", "load"], ignore_index=True)


def _draw_load(ranking: ServingRanking, *, field: str, axis: str, title: str, interpolate: str = "linear") -> Chart:
    alt = altair()
    points = load_points(ranking)
    lines = alt.Chart(points).mark_line(point=len(points) <= 200, interpolate=interpolate)
    drawn = lines.encode(
        x=alt.X("load:Q", title="Load, items/s"),
        y=alt.Y(f"{field}:Q", title=axis.format(f"{ranking.percentile:g}")),
        color=alt.Color("service:N", title=None, scale=alt.Scale(range=list(SERIES))),
        tooltip=list(points.columns),
    )
    return themed(drawn, title=title)


SERVING_CHARTS = {
    "cost-load": partial(
        _draw_load, field="hourly_usd", axis="Cost, USD per hour", title="Cost against load", interpolate="step-before"
    ),
    "latency-load": partial(_draw_load, field="latency_ms", axis="p{} latency, ms", title="Latency against load"),
}
serving_chart = partial(draw, SERVING_CHARTS)
"""Draw a ranking of machines for serving as chart ``kind``: ``cost-load`` or ``latency-load``."""


def draw_day(day: Day) -> Chart:
    """Draw the paid instances of an autoscaled day as an area, those that are ready as a line, and the load below."""
    alt = altair()
    hours = {"scale": alt.Scale(domain=[0, 24]), "axis": alt.Axis(values=list(range(0, 25, 3)))}
    colors = {"paid": PLAIN, "ready": ACCENT}
    rows = day.minutes.melt("hour", list(colors), var_name="kind", value_name="instances")
    counts = alt.Axis(tickMinStep=1, format="d")
    base = alt.Chart(rows).encode(
        x=alt.X("hour:Q", title=None, **hours), y=alt.Y("instances:Q", title="Instances", stack=None, axis=counts),
        color=color_by("kind", colors, title=None),
    )  # fmt: skip
    paid = base.transform_filter("datum.kind == 'paid'").mark_area(interpolate="step-after")
    ready = base.transform_filter("datum.kind == 'ready'").mark_line(interpolate="step-after", strokeWidth=2)
    load = alt.Chart(day.minutes[["hour", "load"]]).mark_area(color=ACCENT, opacity=0.3)
    below = load.encode(x=alt.X("hour:Q", title="Hour of the day", **hours), y=alt.Y("load:Q", title="Load, items/s"))
    parts = (alt.layer(paid, ready).properties(width=WIDTH, height=220), below.properties(width=WIDTH, height=110))
    return styled(alt.vconcat(*parts).properties(title=f"{day.instance_type}, autoscaled: {day.usd:.2f} USD a day"))


day_chart = partial(draw, {"day": draw_day})
"""Draw a day of an autoscaled service as chart ``kind``: ``day``."""
