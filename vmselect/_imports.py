"""Late imports: functions of higher layers, optional packages, and public names that are loaded when first used.

Lower layers do not import higher layers. A method in a lower layer that is implemented in a higher layer calls
``hook(name)`` instead. ``HOOKS`` lists every such call; no other module may import ``vmselect`` modules by a string.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from vmselect.errors import MissingPackageError

HOOKS: Mapping[str, str] = {
    "profile_findings": "vmselect.diagnosis:check_profile",
    "ranking_chart": "vmselect.report:chart",
    "ranking_page": "vmselect.report:write_page",
    "ranking_html": "vmselect.report:to_html",
    "accuracy_chart": "vmselect.report.ranking_charts:accuracy_chart",
    "day_chart": "vmselect.report.ranking_charts:day_chart",
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
"""All calls from lower to higher layers, such as ``ranking.report()``, which the report package implements.

Maps the name of each hook to ``module:function``. The module is imported when the hook is called.
"""


def hook(name: str) -> Callable[..., Any]:
    """Import and return the function of a higher layer that ``HOOKS`` lists under ``name``."""
    module, function = HOOKS[name].split(":")
    implementation: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return implementation


def require(module: str, *, extra: str, needed_by: str) -> ModuleType:
    """Import and return the optional package ``module``. If it is missing, the error names the extra to install.

    ``needed_by`` is the feature that needs the package, as the subject of the message.
    """
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise MissingPackageError(
            f"{needed_by} needs the package {module.partition('.')[0]!r}, which is not installed ({missing}). "
            f'Install it with: pip install "vmselect[{extra}]"'
        ) from missing


def load_on_use(package: str, homes: Mapping[str, Sequence[str]]) -> tuple[list[str], Callable[[str], Any]]:
    """Return the public names of ``package``, and a ``__getattr__`` that imports each of them on first use.

    ``homes`` maps each module to the public names that it defines. A name that equals the end of its module's name is
    that module itself, a namespace.
    """
    home = {name: module for module, names in homes.items() for name in names}

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(home[name])
        value = module if home[name] == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return sorted(home), load
