"""Energy and CO2 of trainings: how CO2 is computed (``Emissions``), and files of codecarbon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmselect._imports import load_on_use

if TYPE_CHECKING:
    from vmselect.energy.codecarbon import load_emissions as load_emissions
    from vmselect.energy.codecarbon import save_emissions as save_emissions
    from vmselect.energy.grids import Emissions as Emissions

_HOMES = {
    "vmselect.energy.codecarbon": ("load_emissions", "save_emissions"),
    "vmselect.energy.grids": ("Emissions",),
}
__all__, __getattr__ = load_on_use(__name__, _HOMES)
