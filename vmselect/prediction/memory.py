"""Checks whether a training fits into GPU memory; ``estimate_memory``: peak memory, and largest batch size per GPU."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pandas as pd

from vmselect._checks import check_count, check_name, several, show
from vmselect.catalog import Catalog
from vmselect.catalog.gpus import fold_gpu, gpu_vendor, identify_gpu, nominal_memory_gib
from vmselect.errors import ArgumentError, EstimateError
from vmselect.findings import Finding
from vmselect.gpu_memory import (
    GIB,
    REPORTED_SHARE,
    MemoryModel,
    examples_per_gpu,
    fit_memory,
    read_peak,
    reported_bytes,
)
from vmselect.intervals import Interval
from vmselect.prediction.hardware import Machine, MachineTypes, Refusal
from vmselect.records import Profile
from vmselect.records.identity import read_records, work_key
from vmselect.units import format_bytes

TOO_LITTLE_MEMORY = "too_little_gpu_memory"
TIGHT_MEMORY = "tight-gpu-memory"
UNKNOWN_MEMORY = Finding(
    "gpu-memory-unknown",
    "No record contains the peak GPU memory of the training, so it is not known whether the training fits into the GPU "
    "memory of machines that were never probed.",
    "Probe on a GPU with this version of vmselect, or pass the memory that a GPU must have at least, in GiB, as "
    "gpu_memory_gib= (--gpu-memory-gib).",
    "info",
)
PEAK_COLUMNS = ("model", "batch_size", "peak_gib", "low_gib", "high_gib", "basis")
COLUMNS = ("answer", "model", "gpu_model", "gpu_memory_gib", "usable_gib", *PEAK_COLUMNS[1:])


class _Run(NamedTuple):
    """A training that ran, or ran out of memory, with ``size`` examples per GPU on GPUs with ``memory`` bytes."""

    size: int
    memory: float
    instance_type: str


class MemoryCheck:
    """Compares the GPU memory that a training requires with the memory of GPUs.

    A batch size fits into a GPU if this or a larger batch size was trained on a GPU with at most as much memory. It
    does not fit if this or a smaller batch size ran out of memory on a GPU with at least as much memory. Otherwise, the
    estimated peak memory decides.
    """

    def __init__(self, profiles: Sequence[Profile], types: MachineTypes) -> None:
        self.model = fit_memory(profiles)
        self._types = types
        self._reported = {
            fold_gpu(name): float(whole)
            for profile in profiles
            if (whole := reported_bytes(profile)) and (name := self._gpu_name(profile))
        }
        self._ran = list(self._runs(p for p in profiles if p.outcome != "out_of_memory"))
        self._failed = list(self._runs(p for p in profiles if _ran_out(p)))

    def gpu_bytes(self, gpu_model: str, nominal_gib: float | None) -> float | None:
        """Bytes of memory that a GPU reports; None if unknown.

        If no profile recorded them for this GPU model, they are :data:`REPORTED_SHARE` of the nominal memory: the least
        that a driver reports.
        """
        nominal = nominal_memory_gib(gpu_model) if nominal_gib is None else nominal_gib
        reported = self._reported.get(fold_gpu(gpu_model))
        # GPUs of one name are sold in several sizes.
        if reported is not None and (nominal is None or abs(reported / (nominal * GIB) - 1) < 2 * (1 - REPORTED_SHARE)):
            return reported
        return None if nominal is None else REPORTED_SHARE * nominal * GIB

    def check(self, machine: Machine, size: int, *, gpu_bytes: float | None = None) -> Refusal | Finding | None:
        """A refusal if ``size`` examples per GPU do not fit, a finding if they may not fit, or None.

        None means that they fit, or that this is unknown. ``gpu_bytes`` is the memory that the GPU of the machine
        reported, if it was recorded.
        """
        memory = gpu_bytes or self.gpu_bytes(machine.gpu_model, machine.gpu_memory_gib)
        if memory is None or any(run.size >= size and run.memory <= memory for run in self._ran):
            return None
        gpu = f"its GPU ({machine.gpu_model})" if machine.gpu_model else "its GPU"
        failed = next((run for run in self._failed if run.size <= size and run.memory >= memory), None)
        if failed is not None:
            why = f"{gpu} has no more memory than that of {failed.instance_type}, where batch size {failed.size}"
            return Refusal(TOO_LITTLE_MEMORY, f"{why} ran out of memory; {self._advise(memory)}")
        if self.model is None:
            return None
        usable, peak = self.model.usable_bytes(memory), self.model.peak(size)
        if not peak.high > usable:  # also if the peak is not known
            return None
        needs = f"{size} examples per step need about {format_bytes(peak.value)} of GPU memory"
        offers = f"{gpu} offers {format_bytes(usable)} to a training"
        if peak.value > usable:
            return Refusal(TOO_LITTLE_MEMORY, f"{needs}, and {offers}; {self._advise(memory)}")
        message = f"{machine.instance_type} may run out of memory: {needs} ({_range(peak)}), and {offers}."
        return Finding(TIGHT_MEMORY, message, f"Probe {machine.instance_type} first; {self._advise(memory)}.")

    def largest(self, memory: float) -> int | None:
        """Largest batch size per GPU that fits into a GPU that reports ``memory`` bytes; None if unknown."""
        estimate = self.model.largest(self.model.usable_bytes(memory)) if self.model is not None else None
        ran = max((run.size for run in self._ran if run.memory <= memory), default=None)
        limit = min((run.size - 1 for run in self._failed if run.memory >= memory), default=None)
        if estimate is None:
            return ran if limit is not None else None
        # What ran or failed on such a GPU overrules the estimate.
        return max(estimate if limit is None else min(estimate, limit), ran or 0)

    def _advise(self, memory: float) -> str:
        size = self.largest(memory)
        if size is None:
            return "use a smaller batch size"
        return f"the largest batch size that fits one GPU is {size}" if size else "no batch size fits"

    def _gpu_name(self, profile: Profile) -> str | None:
        seen = profile.environment.gpus
        machine = self._types.find(profile.instance_type, profile.provider)
        return (machine.gpu_model if machine else "") or (identify_gpu(seen[0].name) if seen else None)

    def _runs(self, profiles: Iterable[Profile]) -> Iterable[_Run]:
        for profile in profiles:
            name, size = self._gpu_name(profile), examples_per_gpu(profile)
            if not size or profile.environment.framework_gpus == 0:
                continue
            machine = self._types.find(profile.instance_type, profile.provider)
            memory: float | None = reported_bytes(profile)
            if memory is None and name:
                memory = self.gpu_bytes(name, machine.gpu_memory_gib if machine else None)
            if memory:
                yield _Run(size, memory, profile.instance_type or "another machine")


def _ran_out(profile: Profile) -> bool:
    """Whether the memory of a GPU, not of the host, ran out."""
    host = (profile.detail or "").startswith("MemoryError")
    return profile.outcome == "out_of_memory" and bool(profile.environment.framework_gpus) and not host


def _range(peak: Interval[float]) -> str:
    return f"{format_bytes(peak.low)} to {format_bytes(peak.high)}"


def estimate_memory(
    profiles: Profile | Iterable[Profile],
    *,
    batch_size: int | Iterable[int] | None = None,
    gpu: str | Iterable[str] | None = None,
    catalog: Catalog | None = None,
) -> pd.DataFrame:
    """Peak GPU memory by batch size, and the largest batch size that fits one GPU of each type, with intervals.

    ::

        memory = vs.estimate_memory(vs.load_profiles("profiles/"), batch_size=256)
        memory[memory["answer"] == "largest"]

    The column ``answer`` has two values. Rows with ``peak`` contain the peak memory at each probed batch size, or at
    each of ``batch_size``. Rows with ``largest`` contain the largest batch size for each GPU type of the catalog, or
    for each of ``gpu``, and the peak memory at that batch size; the batch size is 0 if none fits, and missing if it is
    unknown. Batch sizes are per GPU. ``usable_gib`` is the part of the GPU memory that a training can use. The method
    is described in docs/explanation/prediction.md.
    """
    listed = read_records(profiles, Profile, error=EstimateError)
    sizes = None if batch_size is None else several(check_count, "batch_size", batch_size)
    models = None if gpu is None else several(check_name, "gpu", gpu)
    if not isinstance(catalog, Catalog | None):
        raise ArgumentError(f"catalog is {show(catalog)}. Pass a catalog, such as vmselect.Catalog.load(path).")
    if not any(read_peak(profile) for profile in listed):
        raise EstimateError(
            "No profile contains the peak GPU memory of its training. Probe on a GPU, with torch, JAX or TensorFlow."
        )
    types = MachineTypes(Catalog.default() if catalog is None else catalog)
    works: dict[Any, list[Profile]] = {}
    for profile in listed:
        works.setdefault(work_key(profile, None), []).append(profile)
    rows: list[dict[str, Any]] = []
    for group in works.values():
        check = MemoryCheck(group, types)
        if check.model is not None:
            rows += _rows(check, check.model, group[0].model, sizes, _list_gpus(group, types, models))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _rows(
    check: MemoryCheck,
    model: MemoryModel,
    name: str | None,
    sizes: Sequence[int] | None,
    cards: list[tuple[str, float]],
) -> Iterable[dict[str, Any]]:
    for size in sizes or [size for size, _ in model.peaks]:
        yield {"answer": "peak", "model": name, **_peak(model, size)}
    for card, nominal in cards:
        memory = check.gpu_bytes(card, nominal)
        assert memory is not None
        about = {"answer": "largest", "model": name, "gpu_model": card, "gpu_memory_gib": nominal}
        about |= {"usable_gib": model.usable_bytes(memory) / GIB}
        largest = check.largest(memory)
        yield about | (_peak(model, largest) if largest else {"batch_size": largest})


def _peak(model: MemoryModel, size: int) -> dict[str, Any]:
    peak = model.peak(size)
    gib = {f"{name}_gib": value / GIB for name, value in zip(("peak", "low", "high"), peak, strict=True)}
    return {"batch_size": size, **gib, "basis": None if math.isnan(peak.value) else model.basis(size)}


def _list_gpus(
    profiles: Sequence[Profile], types: MachineTypes, models: Sequence[str] | None
) -> list[tuple[str, float]]:
    """Models and nominal memory (GiB) of GPUs in the catalog: of the probed vendor, or those named in ``models``."""
    sold = {
        (machine.gpu_model, machine.gpu_memory_gib)
        for machines in types.by_name.values()
        for machine in machines
        if machine.gpu_count >= 1 and machine.gpu_model and machine.gpu_memory_gib
    }
    if models is None:
        names = [gpu.name for profile in profiles for gpu in profile.environment.gpus]
        # A framework build runs on GPUs of one vendor; records without GPU names are taken as NVIDIA's.
        vendors = {gpu_vendor(model) for name in names if (model := identify_gpu(name))} - {None} or {"NVIDIA"}
        matching = {(model, memory) for model, memory in sold if gpu_vendor(model) in vendors}
        return sorted(matching, key=lambda pair: (pair[1], pair[0]))
    listed: list[tuple[str, float]] = []
    for name in models:
        same = sorted((model, memory) for model, memory in sold if fold_gpu(model) == fold_gpu(name))
        if not same and (memory := nominal_memory_gib(name)):
            same = [(name, memory)]
        if not same:
            raise ArgumentError(f"The GPU {show(name)} is unknown. Choose a model of the catalog, such as T4 or A100.")
        listed += same
    return listed
