"""Public namespace ``vmselect.stats``: functions of the package comparison.

It contains no code of its own. ``vmselect.compare`` is used so often that it is outside of this namespace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmselect._imports import load_on_use

if TYPE_CHECKING:
    from vmselect.comparison.classification import classification_metrics as classification_metrics
    from vmselect.comparison.effects import effects as effects
    from vmselect.comparison.requirements import Requirements as Requirements
    from vmselect.comparison.shares import worker_shares as worker_shares
    from vmselect.comparison.speedup import scaling as scaling

_HOMES = {
    "vmselect.comparison.classification": ("classification_metrics",),
    "vmselect.comparison.effects": ("effects",),
    "vmselect.comparison.requirements": ("Requirements",),
    "vmselect.comparison.shares": ("worker_shares",),
    "vmselect.comparison.speedup": ("scaling",),
}
__all__, __getattr__ = load_on_use(__name__, _HOMES)
