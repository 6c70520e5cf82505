"""Statistics of measurements beyond ``compare``: effects of factors, speed-up of several machines, requirements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmselect._optional import load_on_use

if TYPE_CHECKING:
    from vmselect.comparison import Requirements as Requirements
    from vmselect.comparison import effects as effects
    from vmselect.comparison import scaling as scaling

_HOMES = {"vmselect.comparison": ("Requirements", "effects", "scaling")}
__all__, __getattr__ = load_on_use(__name__, _HOMES)
