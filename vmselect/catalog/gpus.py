"""GPUs and accelerators: their names, however they are written, and their published figures."""

from __future__ import annotations

import re

import pandas as pd

from vmselect._files import pricing_folder

# Names in price lists, in lower case, whose spelling differs from the catalog's by more than dashes.
_NAMES = {
    "gaudi hl-205": "Gaudi",
    "radeon mi25": "MI25",
    "radeon pro v520": "Radeon-Pro-V520",
    "rtx-pro-6000": "RTX-PRO-6000",
    "rtxpro6000": "RTX-PRO-6000",
    "t4g": "T4G",
    "v520": "Radeon-Pro-V520",
}
# Price lists give the sizes of these models one name; they differ in their memory.
_SIZES_GIB: dict[tuple[str, float], str] = {("A100", 80): "A100-80GB", ("V100", 32): "V100-32GB"}


def name_gpu(name: str, memory_gib: float | None = None) -> str:
    """Return the catalog's name of the GPU or accelerator ``name``, or ``name`` with dashes for blanks if unknown.

    >>> name_gpu("A100", 80), name_gpu("RTXPRO6000")
    ('A100-80GB', 'RTX-PRO-6000')
    """
    model = _NAMES.get(name.lower(), name.replace(" ", "-"))
    return model if memory_gib is None else _SIZES_GIB.get((model, memory_gib), model)


def fold_gpu(model: str) -> str:
    """Return the name of a GPU in lower case and with uniform separators, so that names can be compared."""
    return re.sub(r"[\s_-]+", "-", model).casefold()


def gpu_specs() -> pd.DataFrame:
    """Return the peak compute rates of each GPU or accelerator model.

    The column ``basis`` states which numbers are published, derived or assumed.
    """
    return pd.read_csv(pricing_folder() / "gpu-specs.csv", index_col="model", keep_default_na=False, na_values=[""])
