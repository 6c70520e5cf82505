"""Time against cost, with intervals and the Pareto front."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from vmselect.errors import RankingError
from vmselect.report.chart_style import (
    ACCENT,
    HEIGHT,
    PLAIN,
    SERIES,
    WIDTH,
    altair,
    deciding_rows,
    draw,
    labels,
    require_some,
    themed,
)
from vmselect.report.training_charts import steps_chart, usage_chart
from vmselect.units import count_epochs, hours

if TYPE_CHECKING:
    from vmselect.ranking import Ranking

MOST_POINTS = 400
MOST_NAMES = 12
SIDES = (("left", 7, -10), ("left", 7, 11), ("left", 9, 0), ("right", -9, 0), ("right", -7, -10), ("right", -7, 11))
"""Where a name may stand beside its point: alignment and offset in pixels, best first."""


def time_cost_points(ranking: Ranking, *, most: int = MOST_POINTS) -> pd.DataFrame:
    """A row per candidate at the deciding epoch count: hours and dollars with intervals, and what kind of point it is.

    ``kind`` is ``best``, ``Pareto front`` or ``other``. The best ``most`` candidates are given.
    """
    columns = [
        "machine", "rank", "hours", "hours_low", "hours_high",
        "cost_usd", "cost_low", "cost_high", "usd_per_hour", "kind",
    ]  # fmt: skip
    points = [
        (
            label, row.rank, hours(row.seconds), hours(row.seconds_low), hours(row.seconds_high),
            row.cost_usd, row.cost_low, row.cost_high, row.usd_per_hour,
            "best" if row.rank == 1 else "Pareto front" if row.pareto else "other",
        )
        for label, row in deciding_rows(ranking, most=most)
    ]  # fmt: skip
    return pd.DataFrame(points, columns=columns)


def time_cost_chart(ranking: Ranking) -> Any:
    """Draw :func:`time_cost_points`: down and to the left is better."""
    alt = altair()
    data = time_cost_points(ranking)
    require_some(ranking, data)
    kinds = alt.Scale(domain=["best", "Pareto front", "other"], range=[ACCENT, "#58a9e0", PLAIN])
    wide = max((_span(data[name]) for name in ("hours", "cost_usd")), default=1.0) > 12
    scale = alt.Scale(type="log", nice=False, padding=24) if wide else alt.Scale(zero=True)
    axis = alt.Axis(tickCount=6)
    x = alt.X("hours:Q", title="Hours of training", scale=scale, axis=axis)
    y = alt.Y("cost_usd:Q", title="Cost in USD", scale=scale, axis=axis)
    base = alt.Chart(data).encode(
        color=alt.Color("kind:N", scale=kinds, title=None, legend=alt.Legend(symbolOpacity=1))
    )
    front = alt.Chart(data[data["kind"] != "other"]).mark_line(strokeDash=[2, 4], color=ACCENT)
    tooltip = ["machine:N", "rank:Q", "hours:Q", "cost_usd:Q", "usd_per_hour:Q"]
    layers = [
        front.encode(x=x, y=y, order="hours:Q"),
        base.mark_rule(opacity=0.5).encode(x=alt.X("hours_low:Q", title="Hours of training"), x2="hours_high:Q", y=y),
        base.mark_rule(opacity=0.5).encode(x=x, y=alt.Y("cost_low:Q", title="Cost in USD"), y2="cost_high:Q"),
        base.mark_circle(size=80, opacity=1).encode(x=x, y=y, tooltip=tooltip),
    ]
    named = data.head(MOST_NAMES)
    most = (data["hours_high"].max(), data["cost_high"].max())
    sides = choose_sides(named["hours"], named["cost_usd"], named["machine"], most=most, log=wide)
    for align, dx, dy in SIDES:
        here = named[[side == (align, dx, dy) for side in sides]]
        text = alt.Chart(here).mark_text(align=align, dx=dx, dy=dy, color="#1b1f24")
        layers.append(text.encode(x=x, y=y, text="machine:N"))
    return themed(alt.layer(*layers), title=f"Time against cost, {_at(ranking)}")


def choose_sides(
    x: Iterable[float], y: Iterable[float], texts: Iterable[str], *, most: tuple[float, float], log: bool
) -> list[tuple[str, int, int] | None]:
    """For each point, the side on which its name covers no other name or point, or None where there is none.

    ``most`` is how far the axes reach. Names stay right of the vertical one.
    """
    across = _pixels(x, WIDTH, most=most[0], log=log)
    up = _pixels(y, HEIGHT, most=most[1], log=log)
    taken = [(a - 5, a + 5, b - 5, b + 5) for a, b in zip(across, up, strict=True)]
    chosen: list[tuple[str, int, int] | None] = []
    for a, b, text in zip(across, up, texts, strict=True):
        width = 6.2 * len(text)
        chosen.append(None)
        for align, dx, dy in SIDES:
            left = a + dx - (width if align == "right" else 0)
            area = (left, left + width, b - dy - 6, b - dy + 6)
            if left >= 0 and all(area[1] < t[0] or area[0] > t[1] or area[3] < t[2] or area[2] > t[3] for t in taken):
                taken.append(area)
                chosen[-1] = (align, dx, dy)
                break
    return chosen


def _pixels(values: Iterable[float], size: int, *, most: float, log: bool) -> list[float]:
    """Where values come to lie on an axis of ``size`` pixels, accurate enough to find names that collide."""
    *placed, high = [math.log(max(value, 1e-12)) if log else value for value in (*values, most)]
    low = min(placed, default=0.0) if log else 0.0
    return [size * (value - low) / ((high - low) or 1.0) for value in placed]


def _at(ranking: Ranking) -> str:
    count = ranking.settings.decide_at
    return count_epochs(count) if count else "epochs of the study"


def _span(values: pd.Series[float]) -> float:
    """How many times the smallest value the largest is."""
    return float(values.max() / values.min()) if len(values) and values.min() > 0 else 1.0


# Simulated runtime and cost against the number of epochs, with the crossovers.


Value = Literal["time", "cost"]
MAX_EPOCH_LINES = 7


def epochs_points(ranking: Ranking, value: Value, *, most: int = MAX_EPOCH_LINES) -> pd.DataFrame:
    """A row per line and epoch count: machine, epochs, value and its interval (hours for time, USD for cost).

    The lines are the leaders at some epoch count and then the best of the ranking, ``most`` in all.
    """
    counts = _counts(ranking)
    wider = ranking.rerank(epochs=counts, deadline_hours=None, budget_usd=None)
    spread = wider.assessment.measures[value]
    unit = hours if value == "time" else float
    lines = _lines(wider, value, most)
    named = labels(ranking.candidates, lines)
    frames = [
        pd.DataFrame(
            {
                "machine": named[i],
                "epochs": counts,
                "value": [unit(v) for v in spread.value[i]],
                "low": [unit(v) for v in spread.low[i]],
                "high": [unit(v) for v in spread.high[i]],
            }
        )
        for i in lines
    ]
    columns = ["machine", "epochs", "value", "low", "high"]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)


def crossover_points(ranking: Ranking, value: Value) -> pd.DataFrame:
    """A row per change of the leader within the chart: epochs, the new leader, and its value there."""
    rows: list[tuple[int, str, float]] = []
    for change in ranking.crossovers(value, up_to=_counts(ranking)[-1]):
        wider = ranking.rerank(epochs=change.epochs, objective=value, deadline_hours=None, budget_usd=None)
        there = min(wider.rows[:2], key=lambda row: row.score)  # the leader, whichever of the tied is preferred
        rows.append((change.epochs, there.instance_type, hours(there.seconds) if value == "time" else there.cost_usd))
    return pd.DataFrame(rows, columns=["epochs", "machine", "value"])


def epochs_chart(ranking: Ranking, value: Value) -> Any:
    """Draw :func:`epochs_points`: a line per machine, the best one's interval, rings where the leader changes."""
    alt = altair()
    changes, data = crossover_points(ranking, value), epochs_points(ranking, value)
    require_some(ranking, data)
    title = "Hours of training" if value == "time" else "Cost in USD"
    names = list(dict.fromkeys(data["machine"]))
    color = alt.Color(
        "machine:N", title=None, scale=alt.Scale(domain=names, range=list(SERIES[: len(names)])), legend=None
    )
    x, y = alt.X("epochs:Q", title="Epochs"), alt.Y("value:Q", title=title)
    ends = data.groupby("machine", sort=False).tail(1)
    leader = ends.nsmallest(1, "value")["machine"]
    ends = ends.assign(value=_spread_apart(ends["value"].tolist(), share=0.042))
    lines = alt.Chart(data)
    layers: list[Any] = [
        alt.Chart(data[data["machine"].isin(leader)])
        .mark_area(opacity=0.15)
        .encode(x=x, y=alt.Y("low:Q", title=title), y2="high:Q", color=color),
        lines.mark_line().encode(
            x=x, y=y, color=color, tooltip=["machine:N", "epochs:Q", "value:Q", "low:Q", "high:Q"]
        ),
        alt.Chart(ends).mark_text(align="left", dx=6).encode(x=x, y=y, text="machine:N", color=color),
    ]
    if len(changes):
        rings = alt.Chart(changes)
        layers.append(
            rings.mark_point(size=90, opacity=1, color="#1b1f24", filled=False).encode(
                x=x, y=y, tooltip=["epochs:Q", "machine:N"]
            )
        )
        words = rings.mark_text(dy=-14, color="#1b1f24").encode(x=x, y=y, text=alt.Text("from:N"))
        layers.append(words.transform_calculate(**{"from": "'from ' + datum.epochs"}))
    what = "Training time" if value == "time" else "Cost"
    return themed(alt.layer(*layers), title=f"{what} against epochs; rings mark a new leader")


def _counts(ranking: Ranking) -> list[int]:
    """Epoch counts to draw: from 1 to twice the deciding one, at most sixty of them."""
    settings = ranking.settings
    most = max(10, 2 * (settings.decide_at or 1), *settings.epochs, 1)
    return sorted({int(n) for n in np.linspace(1, most, 60).round()})


def _spread_apart(values: list[float], *, share: float) -> list[float]:
    """Values moved up until no two are closer than ``share`` of the largest, so that names there can be read."""
    gap = share * max(values, default=0.0)
    placed, floor = list(values), -gap
    for i in sorted(range(len(values)), key=values.__getitem__):
        placed[i] = floor = max(values[i], floor + gap)
    return placed


def _lines(wider: Ranking, value: Value, most: int) -> list[int]:
    order = wider.assessment.order
    spread = wider.assessment.measures[value].value
    leaders = [int(rows[np.argmin(spread[rows, column])]) for column, rows in enumerate(order) if len(rows)]
    decided = [int(i) for i in order[len(order) // 2][: 4 * most]] if order else []
    return list(dict.fromkeys([*leaders, *decided]))[:most]


# The best candidates as bars, split by what the time goes into.


COLORS = {
    "boot": "#8b939d",
    "data_in": "#2a9d8f",
    "initialization": "#b6bcc3",
    "first_iteration": "#d55e00",
    "steady_iterations": "#0072b2",
    "partial_batch": "#56a4d8",
    "first_validation": "#b04e8a",
    "later_validations": "#d9a3c3",
    "epoch_boundaries": "#c9a227",
    "model_out": "#8fcfc6",
    "interruptions": "#5b6470",
}


def terms_points(ranking: Ranking, *, most: int = 12) -> pd.DataFrame:
    """A row per candidate and term at the deciding epoch count: machine, rank, term, seconds, hours, cost_usd.

    The cost of a term is its share of the candidate's cost.
    """
    points = [
        (label, row.rank, term, seconds, hours(seconds), row.cost_usd * seconds / row.seconds if row.seconds else 0.0)
        for label, row in deciding_rows(ranking, most=most)
        for term, seconds in row.terms.items()
    ]
    return pd.DataFrame(points, columns=["machine", "rank", "term", "seconds", "hours", "cost_usd"])


def terms_chart(ranking: Ranking) -> Any:
    """Draw :func:`terms_points`: cost where cost weighs more in the objective, otherwise time."""
    alt = altair()
    data = terms_points(ranking)
    require_some(ranking, data)
    by_time = ranking.settings.objective["time"] > ranking.settings.objective["cost"]
    field, title = ("hours", "Hours of training") if by_time else ("cost_usd", "Cost in USD")
    shown = [term for term in COLORS if term in set(data["term"])]
    bars = (
        alt.Chart(data)
        .mark_bar()
        .encode(
            y=alt.Y("machine:N", title=None, sort=alt.SortField("rank")),
            x=alt.X(f"{field}:Q", title=title, stack=True),
            color=alt.Color(
                "term:N", title=None, scale=alt.Scale(domain=shown, range=[COLORS[term] for term in shown])
            ),
            order=alt.Order("place:Q"),
            tooltip=["machine:N", "term:N", "seconds:Q", "hours:Q", "cost_usd:Q"],
        )
        .transform_calculate(place=f"indexof({shown!r}, datum.term)")
    )
    rows = max(1, data["machine"].nunique())
    return themed(bars, title="Where it goes: the best candidates by term", height=28 * rows)


# Machine and batch size together: time, cost and metric against the batch size.


MAX_BATCH_LINES = len(SERIES)


def batch_points(ranking: Ranking, *, most: int = MAX_BATCH_LINES) -> pd.DataFrame:
    """A row per instance type and batch size: epochs, hours and dollars with intervals, at the cheapest price.

    The machines are the first ``most`` in the ranking.
    """
    column = ranking.deciding_column
    pairs: dict[tuple[str, int], Any] = {}
    for i in ranking.assessment.order[column]:
        row = ranking.row(int(i), column)
        if row.batch_size is None:
            continue
        known = pairs.setdefault((row.instance_type, row.batch_size), row)
        if row.cost_usd < known.cost_usd:
            pairs[row.instance_type, row.batch_size] = row
    machines = list(dict.fromkeys(name for name, _ in pairs))[:most]
    points = [
        (
            name, size, row.epochs, hours(row.seconds), hours(row.seconds_low), hours(row.seconds_high),
            row.cost_usd, row.cost_low, row.cost_high,
        )
        for name in machines
        for (machine, size), row in sorted(pairs.items(), key=lambda pair: pair[0][1])
        if machine == name
    ]  # fmt: skip
    columns = [
        "machine", "batch_size", "epochs", "hours", "hours_low", "hours_high", "cost_usd", "cost_low", "cost_high",
    ]  # fmt: skip
    return pd.DataFrame(points, columns=columns)


def metric_points(ranking: Ranking) -> pd.DataFrame:
    """A row per batch size that the study or a candidate has: the final metric."""
    if ranking.study is None:
        raise RankingError("A metric by batch size needs a convergence study: make the ranking with vmselect.select.")
    sizes = sorted(
        {
            *ranking.study.batch_sizes,
            *(one.batch_size for one in ranking.candidates.machine_estimates if one.batch_size),
        }
    )
    known = [(size, metric) for size in sizes if (metric := ranking.metric(size)) is not None]
    return pd.DataFrame(known, columns=["batch_size", "metric"])


def batch_time_chart(ranking: Ranking) -> Any:
    """Draw hours against batch size, a line per machine."""
    alt = altair()
    data = batch_points(ranking)
    require_some(ranking, data)
    x, color = _batch_axis(data), _color(data)
    lines = alt.Chart(data).encode(x=x, color=color)
    title = "Hours of training"
    tooltip = ["machine:N", "batch_size:Q", "epochs:Q", "hours:Q", "cost_usd:Q"]
    layers = [
        lines.mark_rule(opacity=0.5).encode(y=alt.Y("hours_low:Q", title=title), y2="hours_high:Q"),
        lines.mark_line(point=True).encode(y=alt.Y("hours:Q", title=title), tooltip=tooltip),
    ]
    return themed(alt.layer(*layers), title="Training time against batch size")


def cost_time_chart(ranking: Ranking) -> Any:
    """Draw cost against time, a line per machine through its batch sizes."""
    alt = altair()
    data = batch_points(ranking)
    require_some(ranking, data)
    zero = alt.Scale(zero=True)
    x = alt.X("hours:Q", title="Hours of training", scale=zero)
    y = alt.Y("cost_usd:Q", title="Cost in USD", scale=zero)
    base = alt.Chart(data).encode(x=x, y=y)
    tooltip = ["machine:N", "batch_size:Q", "epochs:Q", "hours:Q", "cost_usd:Q"]
    layers = [
        base.mark_line(opacity=0.4).encode(color=_color(data), order="batch_size:Q"),
        base.mark_circle(size=70, opacity=1).encode(color=_color(data), tooltip=tooltip),
        base.mark_text(dy=-10, color="#1b1f24").encode(text="batch_size:N"),
    ]
    return themed(alt.layer(*layers), title="Cost against time; the numbers are batch sizes")


def batch_metric_chart(ranking: Ranking) -> Any:
    """Draw the final metric against the batch size, with what was demanded of it."""
    data = metric_points(ranking)
    require_some(ranking, data)
    assert ranking.study is not None
    alt = altair()
    title = f"Final {ranking.study.monitor}"
    y = alt.Y("metric:Q", title=title, scale=alt.Scale(zero=False))
    line = alt.Chart(data).mark_line(point=True, color=ACCENT)
    layers = [line.encode(x=_batch_axis(data), y=y, tooltip=["batch_size:Q", "metric:Q"])]
    demanded = ranking.demands.get(ranking.study.monitor)
    if demanded is not None:
        rule = alt.Chart(pd.DataFrame({"metric": [demanded]})).mark_rule(color="#8a5300", strokeDash=[5, 4])
        layers.append(rule.encode(y=y))
    return themed(alt.layer(*layers), title=f"{title} against batch size")


def _batch_axis(data: pd.DataFrame) -> Any:
    alt = altair()
    sizes = sorted({int(size) for size in data["batch_size"]})
    scale = alt.Scale(type="log", base=2, nice=False, padding=16)
    return alt.X("batch_size:Q", title="Batch size", scale=scale, axis=alt.Axis(values=sizes))


def _color(data: pd.DataFrame) -> Any:
    alt = altair()
    names = list(dict.fromkeys(data["machine"]))
    return alt.Color(
        "machine:N",
        title=None,
        scale=alt.Scale(domain=names, range=list(SERIES[: len(names)])),
        legend=alt.Legend(symbolOpacity=1),
    )


# Charts by name.


CHARTS: Mapping[str, Callable[..., Any]] = {
    "time-cost": time_cost_chart,
    "epochs-time": partial(epochs_chart, value="time"),
    "epochs-cost": partial(epochs_chart, value="cost"),
    "terms": terms_chart,
    "steps": steps_chart,
    "usage": usage_chart,
    "batch-time": batch_time_chart,
    "cost-time": cost_time_chart,
    "batch-metric": batch_metric_chart,
}
"""Every chart that a ranking can draw; the epochs charts need given epochs, the metric chart needs a study."""


def chart(
    ranking: Ranking, kind: str = "time-cost", *, path: str | os.PathLike[str] | None = None, **options: Any
) -> Any:
    """The chart of that name, an Altair chart; with ``path`` it is also written as PNG, SVG, JSON or HTML.

    >>> import vmselect as vs
    >>> profile = vs.Profile.from_times(instance_type="g4dn.xlarge", first_epoch_seconds=40, later_epoch_seconds=30)
    >>> chart(vs.rank(profile, epochs=10), "time-cost").to_dict()["title"]
    'Time against cost, 10 epochs'
    """
    return draw(CHARTS, kind, ranking, path, options)
