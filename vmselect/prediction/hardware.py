"""Machine types of a catalog with their GPUs, and the GPUs on which a profile was trained."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from vmselect.catalog import Catalog
from vmselect.catalog.gpus import GpuFigures, figures_of, identify_gpu, nominal_memory_gib
from vmselect.records import Profile
from vmselect.records.identity import count_nodes

NO_GPU, NO_FIGURES, SEVERAL_GPUS = "no_gpu_probed", "no_gpu_figures", "several_gpus"
CONTRADICTORY = "contradictory_records"


class Machine(NamedTuple):
    """A machine type of the price catalog, with its GPUs."""

    instance_type: str
    provider: str
    gpu_model: str
    gpu_count: float
    gpu_memory_gib: float | None = None


class Refusal(NamedTuple):
    """Reason why a time cannot be predicted, and which probe would help."""

    code: str
    reason: str


@dataclass(frozen=True)
class MachineTypes:
    """The machine types of a catalog, by instance type."""

    catalog: Catalog

    @cached_property
    def by_name(self) -> Mapping[str, tuple[Machine, ...]]:
        """Machine types by instance type; two providers may use the same name."""
        columns = ["instance_type", "provider", "gpu_model", "gpu_count", "gpu_memory_gib"]
        # Facts of probed machines are needed also where the catalog is restricted to other machines.
        rows = self.catalog.unrestricted.offers(market=None)[columns].drop_duplicates(["instance_type", "provider"])
        by_name: dict[str, list[Machine]] = {}
        for name, provider, gpu, count, gib in rows.itertuples(index=False):
            gpus = 0.0 if count is None or math.isnan(count) else float(count)
            memory = nominal_memory_gib(str(gpu or "")) if gib is None or math.isnan(gib) else float(gib)
            machine = Machine(str(name), str(provider), str(gpu or ""), gpus, memory)
            by_name.setdefault(machine.instance_type, []).append(machine)
        return {name: tuple(machines) for name, machines in by_name.items()}

    def find(self, instance_type: str | None, provider: str | None) -> Machine | None:
        """The machine type of a record; None if the catalog does not contain it."""
        machines = self.by_name.get(instance_type or "", ())
        return next((machine for machine in machines if provider in (None, machine.provider)), None)


def read_gpu(profile: Profile, types: MachineTypes) -> GpuFigures | Refusal:
    """Published figures of the single GPU on which a profile was trained; a refusal if there is no such GPU."""
    seen, machine = profile.environment, types.find(profile.instance_type, profile.provider)
    name = profile.instance_type or "this machine"
    sold = machine.gpu_model if machine and machine.gpu_count > 0 else None
    recorded = identify_gpu(seen.gpus[0].name) if seen.gpus else None
    if seen.framework_gpus == 0 or not (seen.gpus or sold):
        problem = f"{name} trained without a GPU"
        return Refusal(NO_GPU, f"{problem}; probe a machine with one NVIDIA GPU, such as g4dn.xlarge")
    if recorded and sold and not _same_gpu(recorded, sold):
        problem = f"the record of {name} names the GPU {recorded}, but {name} has {sold}"
        return Refusal(CONTRADICTORY, f"{problem}; probe again with the actual instance_type=")
    used = max(seen.replicas, seen.workers, count_nodes(profile))
    # Times that a user typed in do not tell how many of the machine's GPUs were used.
    unknown = profile.outcome == "given" and machine is not None and machine.gpu_count > 1
    if used > 1 or unknown:
        many = "an unknown number of GPUs" if unknown else f"{used} GPUs"
        return Refusal(SEVERAL_GPUS, f"{name} trained on {many}; probe a machine with one GPU, such as g4dn.xlarge")
    gpu = recorded or sold or seen.gpus[0].name
    figures = figures_of(gpu)
    if figures is None:
        problem = f"the GPU of {name} ({gpu}) has no published figures"
        return Refusal(NO_FIGURES, f"{problem}; probe a machine with a GPU of pricing/gpu-specs.csv, such as T4")
    return figures


def _same_gpu(recorded: str, sold: str) -> bool:
    """Whether two names may be of one GPU. Records do not always name the variant (memory size, SXM or PCIe)."""
    return recorded == sold or recorded.split("-")[0] == sold.split("-")[0]


def count_gpus(profile: Profile, types: MachineTypes) -> tuple[str, int] | None:
    """Model and number of the GPUs of one machine on which the profile trained; None if they are not known."""
    seen, machine = profile.environment, types.find(profile.instance_type, profile.provider)
    sold = machine.gpu_model if machine and machine.gpu_count > 0 else None
    gpu = sold or (identify_gpu(seen.gpus[0].name) or seen.gpus[0].name if seen.gpus else None)
    # One process per GPU reports workers, one process for all GPUs reports replicas: both count all machines.
    total, nodes = max(seen.replicas, seen.workers), count_nodes(profile)
    unknown = profile.outcome == "given" and total == 1 and machine is not None and machine.gpu_count > 1
    if gpu is None or seen.framework_gpus == 0 or unknown or max(total, nodes) % nodes:
        return None
    return gpu, max(total, nodes) // nodes
