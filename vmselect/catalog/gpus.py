"""GPUs and accelerators: their published figures, and the models of names that drivers report."""

from __future__ import annotations

import functools
import math
import re
from typing import Any, Literal, NamedTuple

import pandas as pd

from vmselect._io import pricing_folder

Precision = Literal["half", "single", "strict"]
"""``half`` is float16, bfloat16 or mixed precision. ``single`` is float32 as frameworks run it by default, with TF32
on GPUs that have it. ``strict`` is float32 with TF32 switched off."""

WITHOUT_FAST_HALF = frozenset({"Kepler", "Maxwell", "Pascal"})
WITHOUT_TF32 = frozenset({*WITHOUT_FAST_HALF, "Volta", "Turing"})
TF32_SHARE = 0.5
"""Peak rate of TF32 relative to the dense peak rate of float16, as published for all NVIDIA GPUs that have both."""


def fold_gpu(model: str) -> str:
    """Return the name of a GPU in lower case and with uniform separators, so that names can be compared."""
    return re.sub(r"[\s_-]+", "-", model).casefold()


def spell_gpu(model: str) -> str:
    """Return the name of a GPU as ``gpu-specs.csv`` spells it; ``model`` if it is not there.

    >>> spell_gpu("rtx_4090"), spell_gpu("my GPU")
    ('RTX-4090', 'my GPU')
    """
    return _spellings().get(fold_gpu(model), model)


@functools.cache
def _spellings() -> dict[str, str]:
    return {fold_gpu(str(model)): str(model) for model in gpu_specs().index}


def gpu_specs() -> pd.DataFrame:
    """Return the peak compute rates of each GPU or accelerator model.

    The column ``basis`` states which numbers are published, derived or assumed.
    """
    return pd.read_csv(pricing_folder() / "gpu-specs.csv", index_col="model", keep_default_na=False, na_values=[""])


class GpuFigures(NamedTuple):
    """Published figures of one GPU: peak rates in TFLOPS, memory bandwidth in GB/s."""

    model: str
    vendor: str
    architecture: str
    fp32_tflops: float
    fp16_tflops: float
    memory_gb_per_second: float

    @property
    def family(self) -> str:
        """Hardware for matrix products (none, tensor cores, or tensor cores with TF32), which determines algorithms."""
        if self.architecture in WITHOUT_FAST_HALF:
            return "no tensor cores"
        return "tensor cores" if self.architecture in WITHOUT_TF32 else "TF32"

    def matrix_tflops(self, precision: Precision) -> float:
        """Peak rate of matrix products in TFLOPS."""
        if precision == "half" and self.architecture not in WITHOUT_FAST_HALF:
            return self.fp16_tflops
        if precision == "single" and self.architecture not in WITHOUT_TF32:
            return max(self.fp32_tflops, TF32_SHARE * self.fp16_tflops)
        return self.fp32_tflops

    def features(self, precision: Precision) -> tuple[float, float, float]:
        """Logarithms of float32 rate, rate of matrix products and memory bandwidth, each relative to a T4 GPU."""
        rates = (self.fp32_tflops / 8.1, self.matrix_tflops(precision) / 65.0, self.memory_gb_per_second / 320.0)
        return math.log(rates[0]), math.log(rates[1]), math.log(rates[2])


def figures_of(gpu: str) -> GpuFigures | None:
    """Published figures of the GPU model ``gpu``; None if a required figure is not published.

    >>> figures_of("T4").memory_gb_per_second
    320.0
    """
    return _figures().get(fold_gpu(gpu))


def gpu_vendor(gpu: str) -> str | None:
    """Vendor of the GPU model ``gpu``; None if the model is not known."""
    return _column("vendor").get(fold_gpu(gpu))


def nominal_memory_gib(gpu: str) -> float | None:
    """Nominal memory of the GPU model ``gpu`` in GiB; None if the model is not known.

    >>> nominal_memory_gib("A100-80GB")
    80.0
    """
    memory = _column("memory_gb").get(fold_gpu(gpu))
    return None if memory is None else float(memory)


def tdp_watts(gpu: str) -> float | None:
    """Thermal design power of the GPU model ``gpu`` in watts; None if it is not published.

    >>> tdp_watts("T4"), tdp_watts("no such GPU")
    (70.0, None)
    """
    watts = float(_column("tdp_watts").get(fold_gpu(gpu), math.nan))
    return watts if watts > 0 else None  # False for NaN, a missing figure


@functools.cache
def _column(name: str) -> dict[str, Any]:
    """The column ``name`` of the published figures by folded GPU name."""
    return {fold_gpu(str(model)): value for model, value in gpu_specs()[name].items()}


@functools.cache
def _figures() -> dict[str, GpuFigures]:
    figures = {}
    for model, row in gpu_specs().iterrows():
        # GPUs without fast float16 units compute float16 at the rate of float32.
        half = row["fp32_tflops"] if row["architecture"] in WITHOUT_FAST_HALF else row["fp16_tflops"]
        rates = [float(value) for value in (row["fp32_tflops"], half, row["memory_gb_per_second"])]
        if all(rate > 0 for rate in rates):  # False for NaN, a missing figure
            figures[fold_gpu(str(model))] = GpuFigures(str(model), row["vendor"], row["architecture"], *rates)
    return figures


def read_precision(name: str | None) -> Precision:
    """Precision class of a dtype policy or data type ``name``; ``single`` (float32) if it is None or unknown.

    >>> read_precision("mixed_bfloat16"), read_precision(None), read_precision("fp32-strict")
    ('half', 'single', 'strict')
    """
    if name is not None and "strict" in name:
        return "strict"
    return "half" if name is not None and re.search(r"16", name) else "single"


def identify_gpu(name: str) -> str | None:
    """GPU model of ``gpu-specs.csv`` for a ``name`` that a driver reports; None if there is none.

    >>> identify_gpu("NVIDIA A100-SXM4-80GB"), identify_gpu("Tesla T4"), identify_gpu("NVIDIA GeForce GTX 1080 Ti")
    ('A100-80GB', 'T4', 'GTX-1080Ti')
    """
    words = _words(name)
    matching = [model for model, parts in _words_of_models().items() if parts <= words]
    # The longest name is the most specific one: A100-80GB, not A100.
    return max(matching, key=lambda model: (len(_words_of_models()[model]), len(model)), default=None)


def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", re.sub(r"(\d)[ -]?ti\b", r"\1ti", name.lower())))


@functools.cache
def _words_of_models() -> dict[str, frozenset[str]]:
    return {str(model): _words(str(model)) for model in gpu_specs().index}
