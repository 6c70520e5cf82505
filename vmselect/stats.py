"""Statistics of measurements beyond ``compare``: effects of factors, speed-up of several machines, requirements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmselect._imports import load_on_use

if TYPE_CHECKING:
    from vmselect.comparison.effects import effects as effects
    from vmselect.comparison.requirements import Requirements as Requirements
    from vmselect.comparison.speedup import scaling as scaling

_HOMES = {
    "vmselect.comparison.effects": ("effects",),
    "vmselect.comparison.requirements": ("Requirements",),
    "vmselect.comparison.speedup": ("scaling",),
}
__all__, __getattr__ = load_on_use(__name__, _HOMES)
