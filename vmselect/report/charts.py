"""Charts by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from vmselect.report.batches import batch_metric_chart, batch_time_chart, cost_time_chart
from vmselect.report.drawing import draw
from vmselect.report.epochs import epochs_chart
from vmselect.report.steps import steps_chart
from vmselect.report.terms import terms_chart
from vmselect.report.time_cost import time_cost_chart
from vmselect.report.usage import usage_chart

if TYPE_CHECKING:
    from vmselect.ranking import Ranking

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
