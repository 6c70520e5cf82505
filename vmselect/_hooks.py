"""All calls from lower to higher layers, such as ``ranking.report()``, which the report package implements.

Lower layers do not import higher layers. A method in a lower layer that is implemented in a higher layer calls
``hook(name)`` instead. ``HOOKS`` lists every such call; no other module may import ``vmselect`` modules by a string.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

HOOKS: Mapping[str, str] = {
    "profile_findings": "vmselect.diagnosis:check_profile",
    "ranking_chart": "vmselect.report:chart",
    "ranking_page": "vmselect.report:write_page",
    "ranking_html": "vmselect.report:to_html",
    "accuracy_chart": "vmselect.report.ranking_charts:accuracy_chart",
    "serving_chart": "vmselect.report.ranking_charts:serving_chart",
    "recalibrate_estimate": "vmselect.scoring.recalibration:recalibrate_estimate",
    "score_chart": "vmselect.report.comparison_charts:score_chart",
    "score_page": "vmselect.report.page:write_score",
    "score_html": "vmselect.report.notebook:score_html",
    "comparison_page": "vmselect.report.page:write_comparisons",
    "comparison_chart": "vmselect.report.comparison_charts:comparison_chart",
    "comparison_html": "vmselect.report.notebook:comparison_html",
    "effects_chart": "vmselect.report.comparison_charts:effects_chart",
    "effects_html": "vmselect.report.notebook:effects_html",
    "scores_html": "vmselect.report.notebook:scores_html",
}
"""Maps the name of each hook to ``module:function``. The module is imported when the hook is called."""


def hook(name: str) -> Callable[..., Any]:
    """Import and return the function of a higher layer that ``HOOKS`` lists under ``name``."""
    module, function = HOOKS[name].split(":")
    implementation: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return implementation
