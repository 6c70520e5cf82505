"""The course of trainings: what each epoch took and what the metric was, side by side, for one machine or several."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd

from vmselect.errors import RankingError
from vmselect.report.drawing import SERIES, altair, styled

if TYPE_CHECKING:
    from vmselect.records import Record
    from vmselect.records.convergence import ConvergenceRun

PANEL_WIDTH, PANEL_HEIGHT = 300, 260
MOST_LINES, MOST_POINTS = 7, 300


def course_points(records: Iterable[Record], *, runs: Iterable[ConvergenceRun] = ()) -> dict[str, pd.DataFrame]:
    """Times and metrics as numbers: ``times`` with machine, epoch (from 1) and seconds; ``metrics`` with their values.

    Times come from trainings whose epochs were seen whole, metrics from studies of convergence and their ``runs``.
    """
    from vmselect.records import Profile
    from vmselect.records.convergence import ConvergenceRecord

    times: list[dict[str, Any]] = []
    watched = list(runs)
    for record in records:
        if isinstance(record, Profile):
            times += [
                {"machine": record.title, "epoch": epoch.epoch + 1, "seconds": epoch.seconds}
                for epoch in record.timeline.epochs
                if epoch.complete
            ]
        elif isinstance(record, ConvergenceRecord):
            watched += record.runs
    metrics = [
        {
            "machine": f"{run.instance_type or 'unknown machine'}, batch {run.batch_size}",
            "epoch": epoch,
            "metric": run.rule.monitor,
            "value": value,
        }
        for run in watched
        for epoch, value in run.curve.points
        if math.isfinite(value)
    ]
    return {
        "times": pd.DataFrame(times, columns=["machine", "epoch", "seconds"]),
        "metrics": pd.DataFrame(metrics, columns=["machine", "epoch", "metric", "value"]),
    }


def course_lines(records: Iterable[Record], *, runs: Iterable[ConvergenceRun] = ()) -> dict[str, Any]:
    """The same for the page: a line for each of the first machines, each thinned to what can be seen."""
    times, metrics, monitor = _medians(course_points(records, runs=runs))
    return {"times": _lines(times, "seconds"), "metric": monitor, "metrics": _lines(metrics, "value")}


def _medians(points: dict[str, pd.DataFrame]) -> tuple[pd.DataFrame, pd.DataFrame, str | None]:
    """What is drawn: times, the values of one metric, its name; of a machine's repetitions the median of each epoch."""
    times, metrics = points["times"], points["metrics"]
    monitor = next(iter(metrics["metric"]), None)  # one scale holds one metric
    return _median(times, "seconds"), _median(metrics[metrics["metric"] == monitor], "value"), monitor


def _median(frame: pd.DataFrame, value: str) -> pd.DataFrame:
    grouped = frame.astype({value: float}).groupby(["machine", "epoch"], sort=False)
    return grouped[value].median().reset_index()


def _lines(frame: pd.DataFrame, value: str) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for machine, some in frame.groupby("machine", sort=False):
        if len(lines) == MOST_LINES:
            break
        kept = some.sort_values("epoch").iloc[:: -(-len(some) // MOST_POINTS)]
        points = [[int(epoch), float(f"{seen:.5g}")] for epoch, seen in zip(kept["epoch"], kept[value], strict=True)]
        lines.append({"name": str(machine), "points": points})
    return lines


def course_chart(records: Iterable[Record]) -> Any:
    """Seconds of each epoch on the left, the metric after it on the right; a line for each machine.

    Repetitions of a machine are one line, the median of each epoch; of several metrics the first is drawn.
    """
    alt = altair()
    times, metrics, monitor = _medians(course_points(records))
    if times.empty and metrics.empty:
        raise RankingError("There is no whole epoch to draw: probe with EpochProbe, or with stop=False.")
    machines = list(dict.fromkeys([*times["machine"], *metrics["machine"]]))
    colour = alt.Color("machine:N", title="Machine", scale=alt.Scale(domain=machines, range=list(SERIES)))

    def panel(data: pd.DataFrame, value: str, title: str) -> Any:
        return (
            alt.Chart(data)
            .mark_line(point=alt.OverlayMarkDef(size=22))
            .encode(
                x=alt.X("epoch:Q", title="Epoch", axis=alt.Axis(tickMinStep=1, format="d")),
                y=alt.Y(f"{value}:Q", title=title, scale=alt.Scale(zero=value == "seconds")),
                color=colour,
                tooltip=["machine:N", "epoch:Q", alt.Tooltip(f"{value}:Q", format=".4g")],
            )
            .properties(width=PANEL_WIDTH, height=PANEL_HEIGHT)
        )

    panels = []
    if not times.empty:
        panels.append(panel(times, "seconds", "Seconds of training in the epoch"))
    if not metrics.empty:
        panels.append(panel(metrics, "value", str(monitor)))
    return styled(alt.hconcat(*panels).properties(title="Epoch by epoch"))
