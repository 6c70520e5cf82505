"""Machine and batch size together: time, cost and metric against the batch size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from vmselect.errors import RankingError
from vmselect.report.drawing import ACCENT, SERIES, altair, require_some, themed
from vmselect.units import hours

if TYPE_CHECKING:
    from vmselect.ranking import Ranking

MOST_LINES = len(SERIES)


def batch_points(ranking: Ranking, *, most: int = MOST_LINES) -> pd.DataFrame:
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
