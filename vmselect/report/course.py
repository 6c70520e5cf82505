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

PANEL_WIDTH, PANEL_HEIGHT = 300, 260


def course_points(records: Iterable[Record]) -> dict[str, pd.DataFrame]:
    """Times and metrics as numbers: ``times`` with machine, epoch (from 1) and seconds; ``metrics`` with their values.

    Times come from trainings whose epochs were seen whole, metrics from studies of convergence.
    """
    from vmselect.records import Profile
    from vmselect.records.convergence import ConvergenceRecord

    times: list[dict[str, Any]] = []
    metrics: list[dict[str, Any]] = []
    for record in records:
        if isinstance(record, Profile):
            times += [
                {"machine": record.title, "epoch": epoch.epoch + 1, "seconds": epoch.seconds}
                for epoch in record.timeline.epochs
                if epoch.complete
            ]
        elif isinstance(record, ConvergenceRecord):
            for run in record.runs:
                machine = f"{run.instance_type or 'unknown machine'}, batch {run.batch_size}"
                metrics += [
                    {"machine": machine, "epoch": epoch, "metric": run.rule.monitor, "value": value}
                    for epoch, value in run.curve.points
                    if math.isfinite(value)
                ]
    return {
        "times": pd.DataFrame(times, columns=["machine", "epoch", "seconds"]),
        "metrics": pd.DataFrame(metrics, columns=["machine", "epoch", "metric", "value"]),
    }


def course_chart(records: Iterable[Record]) -> Any:
    """Seconds of each epoch on the left, the metric after it on the right; a line for each machine."""
    alt = altair()
    points = course_points(records)
    times, metrics = points["times"], points["metrics"]
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
        panels.append(panel(metrics, "value", ", ".join(dict.fromkeys(metrics["metric"]))))
    return styled(alt.hconcat(*panels).properties(title="Epoch by epoch"))
