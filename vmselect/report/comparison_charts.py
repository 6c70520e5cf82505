"""Charts of comparisons, of effects, and of scores of forecasts.

Functions ``*_plot`` return the data of a chart: ``kind`` (boxes, intervals, lines or series), ``title``, ``lede`` (the
text below the title), ``label`` (for screen readers), ``axis``, and numbers in the unit of the axis. ``text`` is the
tooltip of a point or bar. Functions ``_draw_*`` draw the data with Altair; in the HTML page,
``assets/comparison_charts.js`` draws them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from vmselect.comparison.groups import format_percent, format_value, in_order
from vmselect.comparison.significance import summarize
from vmselect.errors import ArgumentError, ComparisonError
from vmselect.report.charts import (
    ACCENT,
    ORANGE,
    PLAIN,
    SERIES,
    Chart,
    Points,
    altair,
    axis_unit,
    capitalize,
    color_by,
    draw,
    styled,
    themed,
)

if TYPE_CHECKING:
    from vmselect.comparison.effects import Effects
    from vmselect.comparison.groups import Comparison
    from vmselect.comparison.runs import Run
    from vmselect.scoring.score import Score

MAX_GROUPS = MAX_ROWS = 60
MAX_POINTS = 2_000
MAX_PANELS = 6
MAX_PAGE_SERIES, MAX_SERIES_CHARTS, MAX_READINGS = 6, 12, 400
ROW_HEIGHT = 44

Plot = Points


# -- data --------------------------------------------------------------------------------------------------------------


def comparison_plots(comparison: Comparison) -> list[Plot]:
    """Data of the charts of a comparison on the page: all runs, differences of groups, and level shifts."""
    differences = [differences_plot(comparison)] if len(comparison.members) > 1 else []
    shifted = comparison.shifts[["group", "run"]].drop_duplicates().head(MAX_PAGE_SERIES)
    series = [series_plot(comparison, group, run) for group, run in shifted.itertuples(index=False)]
    groups = comparison.run_shifts["group"].drop_duplicates().head(MAX_PAGE_SERIES)
    return [runs_plot(comparison), *differences, *series, *(run_series_plot(comparison, group) for group in groups)]


def effects_plots(effects: Effects) -> list[Plot]:
    """Data of the charts of effects on the page: main effects, interactions as lines and as intervals, and all runs."""
    interactions = [_interactions_plot(effects)] if len(effects.interactions) else []
    return [main_plot(effects), *interaction_plots(effects), *interactions, _cells_plot(effects)]


def runs_plot(comparison: Comparison) -> Plot:
    """Data of a chart with a box plot per group and all runs as points."""
    noun, by = comparison.metric.noun, ", ".join(comparison.by).replace("_", " ")
    return _boxes(comparison.members, noun, comparison.metric.unit, label=f"{noun} by {by}, one point per run")


def _cells_plot(effects: Effects) -> Plot:
    cells: dict[str, list[Run]] = {}
    for position, run in zip(effects.positions, effects.runs.runs, strict=True):
        levels = [effects.fit.levels[i][at] for i, at in enumerate(position)]
        cells.setdefault(", ".join(f"{n} = {v}" for n, v in zip(effects.names, levels, strict=True)), []).append(run)
    noun = effects.metric.noun
    return _boxes(dict(sorted(cells.items())), noun, effects.metric.unit, label=f"{noun} by combination of levels")


def _boxes(members: Mapping[str, Sequence[Run]], noun: str, unit: str, *, label: str) -> Plot:
    shown = dict(itertools.islice(members.items(), MAX_GROUPS))
    runs = [run for group in shown.values() for run in group]
    factor, named = axis_unit(max(abs(run.value) for run in runs), unit)
    stride = -(-len(runs) // MAX_POINTS)
    rows = []
    for name, group in shown.items():
        summary = summarize([run.value for run in group])
        edges = (summary.minimum, summary.quartile_1, summary.median, summary.quartile_3, summary.maximum)
        points = [
            {
                "value": run.value * factor,
                # A fixed pattern instead of random jitter, so that the same data gives the same picture.
                "offset": ((i * 7) % 11 - 5) / 11,
                "text": [name, format_value(run.value, unit), *(part for part in (run.title, run.date) if part)],
            }
            for i, run in enumerate(group[::stride])
        ]
        rows.append({"name": name, "edges": [edge * factor for edge in edges], "points": points})
    parts = [f"the first {MAX_GROUPS} of {len(members)} groups"] if len(members) > len(shown) else []
    parts += [f"one in {stride} of {len(runs):,} runs"] if stride > 1 else []
    return {
        "kind": "boxes",
        "title": "All runs",
        "lede": "The box contains the middle half of the runs, with the median as a line. The thin line spans all runs."
        + (f" Shown: {', '.join(parts)}." if parts else ""),
        "label": label,
        "axis": capitalize(noun, named),
        "rows": rows,
    }


def differences_plot(comparison: Comparison) -> Plot:
    """Data of a chart with the difference of each group from the baseline in percent, with intervals."""
    plot = _intervals(
        comparison.groups,
        lambda row: row["group"],
        title=f"Difference from {comparison.baseline}",
        lede="Bars are intervals. If a bar includes 0, the runs do not show a difference.",
        label=f"Difference of each group from {comparison.baseline} in percent",
        axis="Difference, percent",
    )
    for row in plot["rows"]:
        if row["name"] == comparison.baseline:
            row["text"] = [row["name"], "the baseline"]
    return plot


def main_plot(effects: Effects) -> Plot:
    """Data of a chart with the effect of each level in percent of the average, with intervals."""
    return _intervals(
        effects.main,
        lambda row: f"{row['factor']} = {row['level']}",
        color_by=lambda row: row["factor"],
        title="Effect of each level",
        lede="Relative to the average over all levels of all factors. Bars are intervals.",
        label=f"Effect of each level on the {effects.metric.noun} in percent of the average",
        axis="Percent of the average",
    )


def _interactions_plot(effects: Effects) -> Plot:
    return _intervals(
        effects.interactions,
        lambda row: f"{row['factor_1']} = {row['level_1']}, {row['factor_2']} = {row['level_2']}",
        color_by=lambda row: (row["factor_1"], row["factor_2"]),
        title="Interaction effects",
        lede="What two levels together add to their separate effects. If a bar includes 0, no interaction is shown.",
        label="Interaction effect of each combination of two levels, in percent of the average",
        axis="Percent of the average",
    )


def _intervals(
    frame: pd.DataFrame,
    name_row: Callable[[Mapping[Hashable, Any]], str],
    *,
    color_by: Callable[[Mapping[Hashable, Any]], object] = lambda _: None,
    **texts: str,
) -> Plot:
    """Data of a chart with a percentage and its interval per row of ``frame``, which ``name_row`` names.

    Rows with equal results of ``color_by`` have the same color.
    """
    rows = frame.head(MAX_ROWS).to_dict("records")
    colors = list(dict.fromkeys(map(color_by, rows)))
    bars = []
    for row in rows:
        ends = {key: row[f"percent{suffix}"] for key, suffix in (("value", ""), ("low", "_low"), ("high", "_high"))}
        bars.append(
            {
                "name": name_row(row),
                "slot": colors.index(color_by(row)) % len(SERIES),
                **{key: None if pd.isna(end) else end for key, end in ends.items()},
                "text": [name_row(row), format_percent(row)],
            }
        )
    return {"kind": "intervals", **texts, "rows": bars}


def interaction_plots(effects: Effects) -> list[Plot]:
    """Data of a line chart per pair of factors: mean of each pair of levels. Non-parallel lines show an interaction."""
    cells = effects.cells[effects.cells["count"] > 0]
    noun, unit = effects.metric.noun, effects.metric.unit
    plots = []
    for first, second in itertools.islice(itertools.combinations(effects.names, 2), MAX_PANELS):
        means = cells.groupby([first, second], sort=False)["mean"].mean()
        factor, named = axis_unit(float(means.abs().max()), unit)
        lines: dict[str, list[Plot]] = {}
        for (level, other), mean in zip(means.index, means, strict=True):
            name = f"{second} = {other}"
            point = {"level": str(level), "value": mean * factor, "text": [name, str(level), format_value(mean, unit)]}
            lines.setdefault(name, []).append(point)
        plots.append(
            {
                "kind": "lines",
                "narrow": True,
                "title": f"{first} x {second}",
                "lede": "",
                "label": f"Average {noun} by {first} x {second}",
                "axis": capitalize(noun, named),
                "factor": first,
                "levels": list(dict.fromkeys(str(level) for level, _ in means.index)),
                "lines": [
                    {"name": name, "slot": slot, "points": points}
                    for slot, (name, points) in enumerate(itertools.islice(lines.items(), len(SERIES)))
                ],
            }
        )
    return plots


def series_plot(comparison: Comparison, group: str, run: int) -> Plot:
    """Data of a chart of the measured values of a run in order, with the median of each part between level shifts."""
    shifts = comparison.shifts
    after = shifts[(shifts["group"] == group) & (shifts["run"] == run)]["after"]
    return _ordered_plot(
        comparison, comparison.members[group][run - 1].series, after, noun="reading", title=f"{group}, run {run}",
        lede="The level shifted during this run. The line is the median before and after each shift.",
    )  # fmt: skip


def run_series_plot(comparison: Comparison, group: str) -> Plot:
    """Data of a chart of the runs of a group in order, with the median of each part between level shifts."""
    shifts = comparison.run_shifts
    return _ordered_plot(
        comparison, [run.value for run in in_order(comparison.members[group])],
        shifts[shifts["group"] == group]["after"], noun="run", title=f"{group}, run by run",
        lede="The level shifted between these runs. The line is the median before and after each shift.",
    )  # fmt: skip


def _ordered_plot(
    comparison: Comparison, values: Sequence[float], after: Iterable[int], *, noun: str, title: str, lede: str
) -> Plot:
    unit = comparison.metric.unit
    series = pd.Series(values)
    part = pd.cut(series.index, [-1, *(int(edge) - 1 for edge in after), len(series)], labels=False)
    levels = series.groupby(part).transform("median")
    factor, named = axis_unit(float(series.quantile(0.98)), unit)
    points = [
        {
            "position": i + 1,
            "value": series[i] * factor,
            "level": levels[i] * factor,
            "text": [format_value(series[i], unit), f"{noun} {i + 1:,}"],
        }
        for i in range(0, len(series), -(-len(series) // MAX_READINGS))
    ]
    return {
        "kind": "series",
        "narrow": True,
        "title": title,
        "lede": lede,
        "label": f"{comparison.metric.noun} of {title}, {noun} by {noun}",
        "axis": capitalize(comparison.metric.noun, named),
        "points": points,
    }


# -- drawings ----------------------------------------------------------------------------------------------------------


def _draw_boxes(comparison: Comparison) -> Chart:
    alt = altair()
    plot = runs_plot(comparison)
    names = [row["name"] for row in plot["rows"]]
    points = pd.DataFrame(
        [
            {"group": row["name"], "value": point["value"], "offset": point["offset"], "run": point["text"][-1]}
            for row in plot["rows"]
            for point in row["points"]
        ]
    )
    x = alt.X("value:Q", title=plot["axis"], scale=alt.Scale(zero=False, padding=12))
    y = alt.Y("group:N", title=None, sort=names, axis=alt.Axis(labelLimit=240))
    dots = alt.Chart(points).mark_circle(size=46, opacity=0.75, color=ACCENT)
    offset = alt.YOffset("offset:Q", scale=alt.Scale(domain=[-1, 1]))
    layers = [dots.encode(x=x, y=y, yOffset=offset, tooltip=["group:N", "run:N", "value:Q"])]
    if len(points) > len(names):
        columns = ["low", "quartile_1", "value", "quartile_3", "high"]
        boxes = alt.Chart(pd.DataFrame([row["edges"] for row in plot["rows"]], columns=columns).assign(group=names))
        layers = [
            boxes.mark_rule(color=PLAIN).encode(x=alt.X("low:Q", title=plot["axis"]), x2="high:Q", y=y),
            boxes.mark_bar(size=26, fill="#e8ecf1", stroke=PLAIN).encode(x="quartile_1:Q", x2="quartile_3:Q", y=y),
            boxes.mark_tick(size=26, thickness=2, color="#1b1f24").encode(x=x, y=y),
            *layers,
        ]
    return themed(alt.layer(*layers), title=_title(comparison), height=max(120, ROW_HEIGHT * len(names) + 20))


def _draw_differences(comparison: Comparison) -> Chart:
    return _draw_intervals(differences_plot(comparison), title=_title(comparison))


def _draw_main(effects: Effects) -> Chart:
    plot = main_plot(effects)
    return _draw_intervals(plot, title=plot["label"])


def _draw_intervals(plot: Plot, *, title: str) -> Chart:
    alt = altair()
    data = pd.DataFrame(plot["rows"])
    y = alt.Y("name:N", title=None, sort=list(data["name"]), axis=alt.Axis(labelLimit=260))
    color = alt.Color("slot:N", legend=None, scale=alt.Scale(domain=list(range(len(SERIES))), range=list(SERIES)))
    zero = alt.Chart(pd.DataFrame({"value": [0.0]})).mark_rule(color=PLAIN, strokeDash=[3, 3]).encode(x="value:Q")
    dots = alt.Chart(data).mark_circle(size=90, opacity=1)
    rules = alt.Chart(data.dropna(subset=["low", "high"])).mark_rule(strokeWidth=2)
    layers = [
        zero,
        rules.encode(x=alt.X("low:Q", title=plot["axis"]), x2="high:Q", y=y, color=color),
        dots.encode(x=alt.X("value:Q", title=plot["axis"]), y=y, color=color, tooltip=["name:N", "value:Q"]),
    ]
    return themed(alt.layer(*layers), title=title, height=max(120, ROW_HEIGHT * len(data)))


def scenario_points(comparison: Comparison, cost: Comparison | None = None) -> pd.DataFrame:
    """A row per scenario and group: the mean of the metric, and the mean cost (nan if it is not known)."""
    if not comparison.within:
        raise ComparisonError("The comparison has no scenarios. Compare again with within=[names of factors].")
    points = comparison.scenarios[["scenario", "group", "mean"]]
    if cost is None:
        return points.assign(cost=float("nan"))
    money = cost.scenarios[["scenario", "group", "mean"]].rename(columns={"mean": "cost"})
    return points.merge(money, on=["scenario", "group"], how="left")


def _draw_scenarios(comparison: Comparison, cost: Comparison | None = None) -> Chart:
    alt = altair()
    data = scenario_points(comparison, cost)
    factor, unit = axis_unit(float(data["mean"].max()), comparison.metric.unit)
    data["mean"] *= factor
    groups = dict(zip(comparison.members, SERIES, strict=False))
    scale = alt.Scale(domain=list(groups), range=list(groups.values()))
    color = alt.Color("group:N", title=None, sort=None, scale=scale)
    x = alt.X("scenario:N", title=", ".join(comparison.within), sort=None, axis=alt.Axis(labelAngle=-30))
    axis = capitalize(comparison.metric.noun, unit)
    bars = alt.Chart(data).mark_bar(opacity=0.75).encode(
        x=x, xOffset=alt.XOffset("group:N", sort=None), y=alt.Y("mean:Q", title=axis), color=color,
        tooltip=["scenario:N", "group:N", "mean:Q", "cost:Q"],
    )  # fmt: skip
    if cost is None:
        return themed(bars, title=_title(comparison))
    named = capitalize(cost.metric.noun, cost.metric.unit)
    y = alt.Y("cost:Q", title=named, axis=alt.Axis(orient="right", grid=False))
    lines = alt.Chart(data.dropna(subset=["cost"])).mark_line(point=True, strokeWidth=2)
    layers = alt.layer(bars, lines.encode(x=x, y=y, color=color)).resolve_scale(y="independent")
    return themed(layers, title=f"{_title(comparison)}: bars; {cost.metric.noun}: lines")


def _draw_series(comparison: Comparison) -> Chart:
    alt = altair()
    runs = [
        (group, i) for group, members in comparison.members.items() for i, run in enumerate(members, 1) if run.series
    ]
    if not runs:
        raise ComparisonError(
            "The records of these runs contain no times of single steps. Draw the chart 'boxes' instead."
        )
    charts = []
    for group, number in runs[:MAX_SERIES_CHARTS]:
        plot = series_plot(comparison, group, number)
        base = alt.Chart(pd.DataFrame(plot["points"])).encode(x=alt.X("position:Q", title="Reading"))
        y = alt.Y("value:Q", title=plot["axis"], scale=alt.Scale(zero=False))
        dots = base.mark_circle(size=14, opacity=0.45, color=PLAIN).encode(y=y)
        level = base.mark_line(color=ACCENT, strokeWidth=2, interpolate="step").encode(y="level:Q")
        charts.append(alt.layer(dots, level).properties(width=560, height=110, title=plot["title"]))
    return styled(alt.vconcat(*charts, title=_title(comparison)))


def reading_points(comparison: Comparison) -> pd.DataFrame:
    """A row per run of each group in order: ``group``, ``position`` from 1, ``value``, ``created`` (None if unknown).

    Where each group is a single run with readings, such as the batches of one session, the rows are its readings.
    """
    single = all(len(runs) == 1 and runs[0].series for runs in comparison.members.values())
    rows: list[tuple[str, int, float, float | None]] = []
    for group, runs in comparison.members.items():
        readings = [(value, None) for value in runs[0].series] if single else []
        for position, (value, created) in enumerate(readings or [(r.value, r.created) for r in in_order(runs)], 1):
            rows.append((group, position, value, created))
    return pd.DataFrame(rows, columns=["group", "position", "value", "created"])


def _draw_readings(comparison: Comparison, *, calendar: bool = False) -> Chart:
    """Draw every run (or reading) of all groups as a point, and the mean of each group as a line."""
    alt = altair()
    data = reading_points(comparison)
    if calendar and data["created"].isna().any():
        raise ComparisonError("Plain numbers and readings have no date. Draw the chart 'runs' instead.")
    factor, unit = axis_unit(float(data["value"].quantile(0.98)), comparison.metric.unit)
    data["value"] *= factor
    means = data.groupby("group", sort=False)["value"].mean()
    label = {
        group: f"{group}, mean {format_value(mean / factor, comparison.metric.unit)}" for group, mean in means.items()
    }
    data["group"] = data["group"].map(label)
    colors = dict(zip(label.values(), itertools.cycle(SERIES), strict=False))
    color = color_by("group", colors, title=None, sort=None, legend=alt.Legend(orient="top", labelLimit=320, columns=2))
    x = alt.X("position:Q", title="Run, in order")
    if calendar:
        data["moment"] = pd.to_datetime(data["created"], unit="s", utc=True).dt.strftime("%Y-%m-%dT%H:%M:%SZ")
        x = alt.X("moment:T", title="Date (UTC)", scale=alt.Scale(type="utc"))
    kept = data.iloc[:: -(-len(data) // MAX_POINTS)].drop(columns="created")
    y = alt.Y("value:Q", title=capitalize(comparison.metric.noun, unit), scale=alt.Scale(zero=False))
    dots = (
        alt.Chart(kept).mark_circle(size=26, opacity=0.75).encode(x=x, y=y, color=color, tooltip=["group:N", "value:Q"])
    )
    lines = pd.DataFrame({"group": [label[str(name)] for name in means.index], "value": means.to_numpy()})
    rules = alt.Chart(lines).mark_rule(strokeWidth=2, strokeDash=[6, 4]).encode(y="value:Q", color=color)
    return themed(alt.layer(dots, rules), title=_title(comparison))


def _draw_interactions(effects: Effects) -> Chart:
    alt = altair()
    plots = interaction_plots(effects)
    if not plots:
        raise ComparisonError("A chart of interactions requires at least two factors. Draw the chart 'main' instead.")
    charts = []
    for plot in plots:
        points = [point | {"line": line["name"]} for line in plot["lines"] for point in line["points"]]
        base = alt.Chart(pd.DataFrame(points)).encode(
            x=alt.X("level:N", title=plot["factor"], sort=None, axis=alt.Axis(labelAngle=0)),
            y=alt.Y("value:Q", title=plot["axis"]),
            color=alt.Color("line:N", title=None, sort=None, scale=alt.Scale(range=list(SERIES))),
        )
        lines = alt.layer(base.mark_line(strokeWidth=2), base.mark_circle(size=60, opacity=1))
        charts.append(lines.properties(width=200, height=180, title=plot["title"]))
    joined = alt.concat(*charts, columns=3).resolve_scale(color="independent", x="independent")
    return styled(joined)


def _title(comparison: Comparison) -> str:
    return capitalize(f"{comparison.metric.noun} by {', '.join(comparison.by).replace('_', ' ')}")


COMPARISON_CHARTS: Mapping[str, Callable[..., Chart]] = {
    "boxes": _draw_boxes,
    "differences": _draw_differences,
    "runs": _draw_readings,
    "calendar": partial(_draw_readings, calendar=True),
    "series": _draw_series,
    "scenarios": _draw_scenarios,
}
comparison_chart = partial(draw, COMPARISON_CHARTS)
"""Draw a comparison as chart ``kind``: ``boxes``, ``differences``, ``runs``, ``calendar``, ``series`` or
``scenarios``."""
effects_chart = partial(draw, {"main": _draw_main, "interactions": _draw_interactions})
"""Draw effects as chart ``kind``: ``main`` or ``interactions``."""


# -- scores of forecasts -----------------------------------------------------------------------------------------------

SHOWN_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
"""Confidence levels in the chart of the HTML page."""


def reliability_plot(score: Score) -> Plot:
    """The data of the reliability chart (observed against promised coverage) for the HTML page."""
    data = score.reliability
    shown = data[data["confidence"].isin(SHOWN_LEVELS)]
    names = [f"{level:.0%}" for level in shown["confidence"]]

    observed = [
        {"level": level, "value": 100 * row["coverage"], "low": 100 * row["low"], "high": 100 * row["high"],
         "text": ["observed", level, f"{row['coverage']:.0%} ({row['low']:.0%} to {row['high']:.0%})"]}
        for level, row in zip(names, shown.to_dict("records"), strict=True)
    ]  # fmt: skip
    promised = [
        {"level": level, "value": 100 * value, "text": ["promised", level]}
        for level, value in zip(names, shown["confidence"], strict=True)
    ]

    return {
        "kind": "lines",
        "title": "Reliability",
        "lede": "Share of the real times inside the intervals, by the confidence level that was promised. "
        "Intervals are too narrow where the observed line is below the promised one. Vertical lines are 90% intervals.",
        "label": "Observed and promised coverage by confidence level",
        "axis": "Coverage (%)",
        "factor": "confidence",
        "levels": names,
        "lines": [
            {"name": "observed", "slot": 0, "points": observed},
            {"name": "promised", "slot": 6, "points": promised},
        ],
    }


def reliability_chart(score: Score) -> Chart:
    """Draw the observed coverage, with its interval, against the promised coverage; the diagonal is perfect."""
    alt = altair()
    data = score.reliability
    _require(score)
    percent = alt.Axis(format="%")
    x = alt.X("confidence:Q", title="Promised coverage", axis=percent, scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("coverage:Q", title="Observed coverage", axis=percent, scale=alt.Scale(domain=[0, 1]))
    ends = pd.DataFrame({"confidence": [0.0, 1.0], "coverage": [0.0, 1.0]})
    diagonal = alt.Chart(ends).mark_line(color=PLAIN, strokeDash=[4, 4]).encode(x=x, y=y)
    band = alt.Chart(data).mark_area(color=ACCENT, opacity=0.15).encode(x=x, y=alt.Y("low:Q"), y2="high:Q")
    tooltip = ["confidence:Q", "coverage:Q", "low:Q", "high:Q"]
    observed = alt.Chart(data).mark_line(color=ACCENT, point=True).encode(x=x, y=y, tooltip=tooltip)
    return themed(alt.layer(band, diagonal, observed), title=f"Reliability of {len(score)} forecasts")


def error_points(score: Score) -> pd.DataFrame:
    """A row per forecast: title, real hours, predicted hours with interval, and whether the real time is inside."""
    rows = [
        (case.title, case.real_seconds / 3600, *(part / 3600 for part in case.estimate), case.inside)
        for case in score.cases[-MAX_POINTS:]
    ]
    data = pd.DataFrame(rows, columns=["training", "real", "forecast", "low", "high", "inside"])
    return data.assign(interval=data["inside"].map({True: "inside", False: "outside"}))


def error_chart(score: Score) -> Chart:
    """Draw the forecasts with their intervals against the real times, both in hours on a log scale."""
    alt = altair()
    _require(score)
    data = error_points(score)
    data = data[(data["real"] > 0) & (data["forecast"] > 0)]
    data = data.assign(low=data["low"].clip(lower=data["forecast"] / 100))
    log = alt.Scale(type="log", nice=False, padding=12)
    x = alt.X("real:Q", title="Real hours", scale=log)
    color = color_by("interval", {"inside": ACCENT, "outside": ORANGE}, title="Real time")
    tooltip = ["training:N", "real:Q", "forecast:Q", "low:Q", "high:Q"]
    base = alt.Chart(data)
    rules = base.mark_rule().encode(x=x, y=alt.Y("low:Q", title="Forecast hours", scale=log), y2="high:Q", color=color)
    points = base.mark_circle(size=50).encode(x=x, y=alt.Y("forecast:Q", scale=log), color=color, tooltip=tooltip)
    least, most = (float(data[["real", "forecast"]].agg(end).agg(end)) for end in ("min", "max"))
    ends = pd.DataFrame({"real": [least, most], "forecast": [least, most]})
    diagonal = alt.Chart(ends).mark_line(color=PLAIN, strokeDash=[4, 4]).encode(x=x, y=alt.Y("forecast:Q", scale=log))
    return themed(alt.layer(diagonal, rules, points), title=f"Forecasts of {len(score)} trainings")


def _require(score: Score) -> None:
    if not score:
        raise ArgumentError(f"There is nothing to draw. {score.verdict}")


score_chart = partial(draw, {"reliability": reliability_chart, "errors": error_chart})
"""Draw a score as chart ``kind``: ``reliability`` or ``errors``."""
