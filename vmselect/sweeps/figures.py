"""Published figures of GPUs: how much faster than a measured machine another one can be at most."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vmselect.catalog import gpu_specs
from vmselect.diagnosis import find_causes
from vmselect.errors import CatalogError
from vmselect.records import Profile

if TYPE_CHECKING:
    from vmselect.catalog import Catalog
    from vmselect.sweeps.plan import Trial

_WITHOUT_TENSOR_CORES = ("Kepler", "Maxwell", "Pascal")
"""Where no rate of half precision is published, these compute it at the rate of single precision."""

_WITHOUT_TF32 = (*_WITHOUT_TENSOR_CORES, "Volta", "Turing")
"""NVIDIA's later architectures compute single precision on tensor cores too, at half the rate of half precision."""

_HOLDS_NOTHING_UP = ("gpu-memory-empty", "gpu-memory-full")
"""Findings about GPU memory, which slow no step down."""


@dataclass(frozen=True)
class Figures:
    """The published rates of all GPUs of one trial together, and its processors."""

    vendor: str
    gpus: float
    single_tflops: float
    half_tflops: float
    tf32_tflops: float | None
    memory_gb_per_second: float
    vcpus: float


def figures_of(trial: Trial, catalog: Catalog) -> Figures | None:
    """The figures of all nodes of a trial; None without a GPU, or where something is not published.

    >>> from vmselect.catalog import Catalog
    >>> from vmselect.sweeps import Plan
    >>> plan = Plan("python train.py", factors={"instance_type": ["g4dn.xlarge", "c5.large"]}, seed=None)
    >>> [found and found.single_tflops for found in (figures_of(t, Catalog.embedded()) for t in plan.trials)]
    [8.1, None]
    """
    named = trial.instance_type
    if named is None:
        return None
    try:
        offers = catalog.offers(instance_type=named, market=None)
    except CatalogError:
        return None
    columns = zip(offers["gpu_model"], offers["gpu_count"], offers["vcpus"], strict=True)
    facts = {(str(model), float(gpus), float(vcpus)) for model, gpus, vcpus in columns}
    if len(facts) != 1:  # one name of two clouds, or none at all
        return None
    model, gpus, vcpus = facts.pop()
    specs = gpu_specs()
    if model not in specs.index or not gpus > 0 or not vcpus > 0:
        return None
    published = _read(specs.loc[model])
    return published and _times(replace(published, vcpus=vcpus * trial.nodes), gpus * trial.nodes)


def speed_up(measured: Figures, candidate: Figures) -> float | None:
    """How many times faster ``candidate`` can be at most: the best ratio of any of their figures, and at least 1.

    A training may be held up by any of them, or by none (then all machines are equally fast), so the greatest ratio
    is the limit. None between vendors, whose software differs.

    >>> t4 = Figures("NVIDIA", 1, 8.1, 65, None, 320, 4)
    >>> v100 = Figures("NVIDIA", 1, 15.7, 125, None, 900, 8)
    >>> speed_up(t4, v100), speed_up(v100, t4)
    (2.8125, 1.0)
    """
    if measured.vendor != candidate.vendor:
        return None
    ratios = [
        candidate.single_tflops / measured.single_tflops,
        candidate.half_tflops / measured.half_tflops,
        candidate.memory_gb_per_second / measured.memory_gb_per_second,
        candidate.vcpus / measured.vcpus,
    ]
    if candidate.tf32_tflops is not None:
        ratios.append(candidate.tf32_tflops / (measured.tf32_tflops or measured.single_tflops))
    return max(1.0, *ratios)


def figures_used(published: Figures | None, profiles: Sequence[Profile]) -> Figures | None:
    """The figures of the GPUs that a measured training used; None if its times do not depend on GPUs.

    A training that something else held up (its input, its processors, a neighbour), or that used no GPU, could be any
    faster elsewhere. One that used one GPU of four is compared by that one.
    """
    if published is None:
        return None
    for profile in profiles:
        held_up = any(cause.code not in _HOLDS_NOTHING_UP for cause in find_causes(profile))
        if profile.environment.framework_gpus == 0 or held_up:
            return None
        if published.tf32_tflops is None and "bfloat16" in (profile.environment.precision or ""):
            return None  # computed by other means there than on later GPUs
    used = min(published.gpus, min(profile.environment.replicas for profile in profiles))
    return _times(published, used / published.gpus)


def _read(row: Any) -> Figures | None:
    """One GPU's row of the published figures, if it is complete and nothing in it is assumed."""
    single, half, memory = (
        None if value is None or not math.isfinite(value) else float(value)
        for value in (row["fp32_tflops"], row["fp16_tflops"], row["memory_gb_per_second"])
    )
    if half is None and row["architecture"] in _WITHOUT_TENSOR_CORES:
        half = single
    if single is None or half is None or memory is None or str(row["basis"]).startswith("assumed"):
        return None
    tf32 = max(single, half / 2) if row["vendor"] == "NVIDIA" and row["architecture"] not in _WITHOUT_TF32 else None
    return Figures(str(row["vendor"]), 1.0, single, half, tf32, memory, 0.0)


def _times(one: Figures, gpus: float) -> Figures:
    return replace(
        one, gpus=one.gpus * gpus, single_tflops=one.single_tflops * gpus, half_tflops=one.half_tflops * gpus,
        tf32_tflops=None if one.tf32_tflops is None else one.tf32_tflops * gpus,
        memory_gb_per_second=one.memory_gb_per_second * gpus,
    )  # fmt: skip
