"""Names of GPUs in price lists, and the rules that give each the name of ``gpu-specs.csv``.

Price lists write one GPU as RTX4090, RTX_4090 or GeForce RTX 4090, and give variants that differ in memory or form (on
a board, SXM, or as a card, PCIe) one name. The name is compared without separators and vendors; then the memory and
words for the form, in the name or in the machine's name, choose the variant.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import NamedTuple

from vmselect.catalog.gpus import fold_gpu, gpu_specs

NAMES = {
    "GAUDIHL205": "Gaudi",
    "GAUDI2D": "Gaudi2",
    "M4000": "Quadro-M4000",
    "MI300XOAM": "MI300X",
    "P4000": "Quadro-P4000",
    "RTX3060TI": "RTX-3060-Ti",
    "RTX4070STI": "RTX-4070-Ti-SUPER",
    "RTX4070TISUPER": "RTX-4070-Ti-SUPER",
    "RTX6000ADAGENERATION": "RTX-6000-Ada",
    "RTXPRO6000S": "RTX-PRO-6000",
    "RTXPRO6000BLACKWELLSERVEREDITION": "RTX-PRO-6000",
    "RTXPRO6000BLACKWELLWORKSTATIONEDITION": "RTX-PRO-6000-WS",
    "RTXPRO6000WK": "RTX-PRO-6000-WS",
    "V520": "Radeon-Pro-V520",
    **{f"RTXA{number}": f"A{number}" for number in (4000, 4500, 5000, 6000)},
}
"""Names whose spelling differs from that of ``gpu-specs.csv`` by more than separators and vendors."""
UNKNOWN = frozenset({"RTX-3060-Ti", "RTX-4070-Ti-SUPER"})
"""Models of shipped prices without figures in ``gpu-specs.csv``."""


class Variant(NamedTuple):
    """A model of ``gpu-specs.csv`` that price lists call like other models: its memory and form."""

    model: str
    memory_gib: float
    form: str = ""


VARIANTS: dict[str, tuple[Variant, ...]] = {
    "A100": (
        Variant("A100", 40, "sxm"),
        Variant("A100-80GB", 80, "sxm"),
        Variant("A100-PCIe", 40, "pcie"),
        Variant("A100-80GB-PCIe", 80, "pcie"),
    ),
    "H100": (Variant("H100", 80, "sxm"), Variant("H100-PCIe", 80, "pcie"), Variant("H100-NVL", 94, "nvl")),
    "H200": (Variant("H200", 141, "sxm"),),
    "B200": (Variant("B200", 180, "sxm"),),
    "V100": (Variant("V100", 16, "sxm"), Variant("V100-32GB", 32, "sxm"), Variant("V100-PCIe", 16, "pcie")),
    # Nebius and others call three generations RTX6000.
    "RTX6000": (Variant("RTX-6000", 24), Variant("RTX-6000-Ada", 48), Variant("RTX-PRO-6000", 96)),
}
"""Variants by their common name; the first one is meant if neither memory nor form is known."""
FORMS = {"sxm": r"sxm\d?|hgx|nvlink", "pcie": r"pcie", "nvl": r"nvl"}
"""Words for the form of a GPU."""
CARDS = frozenset({"hyperstack", "ibm", "ovhcloud", "runpod", "scaleway"})
"""Providers whose A100, H100 and V100 are cards unless their name says SXM."""
MEANT = {("nebius", "RTX6000"): "RTX-PRO-6000"}
"""Variants that providers mean by a common name, where a list does not state the memory."""
NEAR = 0.1
"""Largest relative difference of two sizes of the same memory: drivers report up to 7 % less than the nominal size."""
_VENDORS = re.compile(r"\b(?:nvidia|tesla|geforce|quadro|amd|instinct|radeon|intel|habana|hbm\d\w?)\b", re.I)
_MEMORY = re.compile(r"(?<![0-9a-z])(\d+) ?gb?(?![0-9a-z])", re.I)


def name_gpu(name: str, memory_gib: float | None = None, *, provider: str = "", machine: str = "") -> str:
    """Return the model of ``gpu-specs.csv`` that a price list calls ``name``; ``name`` with dashes if it is unknown.

    ``memory_gib`` is the memory of one whole GPU. ``machine`` is other text about the machine, such as its name.

    >>> name_gpu("A100", 80), name_gpu("RTXPRO6000"), name_gpu("RTX6000", 96), name_gpu("H100", machine="1x_h100_pcie")
    ('A100-80GB', 'RTX-PRO-6000', 'RTX-PRO-6000', 'H100-PCIe')
    """
    memory = None if memory_gib is None or memory_gib != memory_gib else float(memory_gib)  # NaN is unknown
    return _name(name.strip(), memory, provider, machine)


@functools.lru_cache(maxsize=4096)
def _name(name: str, memory_gib: float | None, provider: str, machine: str) -> str:
    plain = name.replace(" ", "-")
    if not name:
        return ""
    words = re.sub(r"[_-]+", " ", name)
    base, form = _split_form(words)
    if sizes := _MEMORY.findall(base):
        memory_gib, base = float(sizes[-1]), _MEMORY.sub(" ", base)
    common = _compact(_VENDORS.sub(" ", base))
    variants = VARIANTS.get(common, ())
    if not variants:
        spellings = (words, _VENDORS.sub(" ", words), base, _VENDORS.sub(" ", base))
        models = (NAMES.get(key) or _models().get(key) for key in map(_compact, spellings))
        return next((model for model in models if model), plain)
    form = form or _split_form(re.sub(r"[_-]+", " ", re.sub(r"nvlink", "", machine, flags=re.I)))[1]
    if not form and provider in CARDS and any(variant.form == "pcie" for variant in variants):
        form = "pcie"
    fitting = [variant for variant in variants if not form or not variant.form or variant.form == form]
    if memory_gib is None and (provider, common) in MEANT:
        return MEANT[provider, common]
    if memory_gib is not None:
        fitting = [variant for variant in fitting if abs(memory_gib / variant.memory_gib - 1) <= NEAR]
    if fitting:
        return fitting[0].model
    # A known name would promise figures of another variant.
    return f"{plain}-{memory_gib:g}GB" if memory_gib is not None and _compact(plain) in _models() else plain


def find_gpus(name: str, models: Iterable[str]) -> list[str]:
    """Return those of ``models`` that a user, a price list or a driver calls ``name``.

    >>> find_gpus("RTX4090", ["RTX-4090", "T4"]), find_gpus("tesla t4", ["RTX-4090", "T4"]), find_gpus("T5", ["T4"])
    (['RTX-4090'], ['T4'], [])
    """
    listed = list(models)
    same = [model for model in listed if fold_gpu(model) == fold_gpu(name)]
    return same or [model for model in listed if fold_gpu(model) == fold_gpu(name_gpu(name))]


def variants_of(model: str) -> tuple[str, ...]:
    """Return other models with the chip of ``model`` and at least its memory: as a card, on a board, or with more.

    >>> variants_of("H100"), variants_of("A100-80GB"), variants_of("T4")
    (('H100-PCIe', 'H100-NVL'), ('A100-80GB-PCIe',), ())
    """
    for variants in VARIANTS.values():
        for this in variants:
            if this.form and fold_gpu(this.model) == fold_gpu(model):
                return tuple(v.model for v in variants if v.model != this.model and v.memory_gib >= this.memory_gib)
    return ()


def _split_form(words: str) -> tuple[str, str]:
    """Return ``words`` without the words for the form of a GPU, and the form; empty if there is none."""
    for form, pattern in FORMS.items():
        rest, count = re.subn(rf"(?<![a-z0-9])(?:{pattern})(?![a-z])", " ", words, flags=re.I)
        if count:
            return rest, form
    return words, ""


def _compact(name: str) -> str:
    return re.sub(r"[^A-Z0-9]", "", name.upper())


@functools.cache
def _models() -> dict[str, str]:
    return {_compact(str(model)): str(model) for model in gpu_specs().index}
