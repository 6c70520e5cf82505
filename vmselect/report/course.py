"""Epoch curves: the duration of each epoch and the metric after it, for one machine or several."""

from __future__ import annotations

import itertools
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


def course_points(records: Iterable[Record], *, runs: Iterable[ConvergenceRun] = ()) -> dict[str, Any]:
    """A line per machine: ``times`` with ``[epoch, seconds]``, ``metrics`` with ``[epoch, value]`` of ``metric``.

    Times come from complete epochs of trainings, metrics from convergence records and ``runs``. Repetitions on a
    machine are one line, the median of each epoch. Of several metrics the first is given.
    """
    from vmselect.records import Profile
    from vmselect.records.convergence import ConvergenceRecord

    times: list[tuple[str, int, float]] = []
    observed = list(runs)
    for record in records:
        if isinstance(record, Profile):
            times += [(record.title, one.epoch + 1, one.seconds) for one in record.timeline.epochs if one.complete]
        elif isinstance(record, ConvergenceRecord):
            observed += record.runs
    metric = next((run.rule.monitor for run in observed for _, v in run.curve.points if math.isfinite(v)), None)
    metrics = [
        (f"{run.instance_type or 'unknown machine'}, batch {run.batch_size}", epoch, value)
        for run in observed
        if run.rule.monitor == metric
        for epoch, value in run.curve.points
        if math.isfinite(value)
    ]
    return {"times": _lines(times), "metric": metric if metrics else None, "metrics": _lines(metrics)}


def _lines(points: list[tuple[str, int, float]]) -> list[dict[str, Any]]:
    """A line for each of the first machines, thinned to what can be seen."""
    frame = pd.DataFrame(points, columns=["machine", "epoch", "value"])
    medians = frame.groupby(["machine", "epoch"], sort=False)["value"].median().reset_index()
    lines = []
    for machine, some in itertools.islice(medians.groupby("machine", sort=False), MOST_LINES):
        kept = some.sort_values("epoch").iloc[:: -(-len(some) // MOST_POINTS)]
        pairs = [[int(epoch), float(f"{value:.5g}")] for epoch, value in zip(kept["epoch"], kept["value"], strict=True)]
        lines.append({"name": str(machine), "points": pairs})
    return lines


def course_chart(records: Iterable[Record]) -> Any:
    """Draw :func:`course_points`: seconds of each epoch on the left, the metric after it on the right."""
    alt = altair()
    points = course_points(records)
    if not points["times"] and not points["metrics"]:
        raise RankingError("There is no complete epoch to draw. Probe with EpochProbe, or with stop=False.")
    machines = list(dict.fromkeys(line["name"] for name in ("times", "metrics") for line in points[name]))
    color = alt.Color("machine:N", title="Machine", scale=alt.Scale(domain=machines, range=list(SERIES)))
    panels = []
    for name, title in (("times", "Seconds of training in the epoch"), ("metrics", points["metric"])):
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
