"""Smaller hosts: what a training needs of its host, and the cheapest machine with the same GPUs that has as much.

The need is measured: cores of the training and memory in use, at their highest, plus a reserve. A host with less
memory also has a smaller file cache, and another processor may be slower, so the remedy is to probe the other machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vmselect.findings import Finding
from vmselect.records import Profile
from vmselect.records.usage import Phase
from vmselect.units import format_count, format_usd

if TYPE_CHECKING:
    import pandas as pd

    from vmselect.catalog import Catalog

RESERVE = 1.25
"""Needed cores and memory relative to the highest use that was sampled. Chosen by judgement."""
OVERSIZED = 0.5
"""Largest share of the host's vCPUs or memory that a training needs on an oversized host. Chosen by judgement."""
LIMITED = 0.7
"""Share of the cores that the training may use above which its need may be larger than its use."""
BURSTABLE = r"t\d\w*\.|Standard_B\d|e2-(?:micro|small|medium)$|f1-micro$|g1-small$"
"""Names of machines with CPU credits (AWS, Azure) or shared cores (Google Cloud), or their start. Their speed in the
minutes of a probe does not last."""
LASTING: tuple[Phase, ...] = ("steady_steps", "validation", "boundary")
"""Phases that take most of a training. Starting and compiling may use more cores, but only once."""


@dataclass(frozen=True)
class HostNeed:
    """Cores and memory that a training used at most, and the vCPUs and memory of a host that suffices.

    ``gpus`` is the number of GPUs that it used, 0 if unknown.
    """

    used_cores: float
    used_gib: float
    vcpus: int
    memory_gib: float
    gpus: int = field(default=0, compare=False)

    @classmethod
    def of(cls, profiles: Iterable[Profile]) -> HostNeed | None:
        """The largest need of ``profiles``, repetitions on one machine; None if one has too few samples."""
        needs = [_read(profile) for profile in profiles]
        complete = [need for need in needs if need is not None]
        if not complete or len(complete) < len(needs):
            return None
        return cls(*(max(getattr(need, name) for need in complete) for name in cls.__dataclass_fields__))


def _read(profile: Profile) -> HostNeed | None:
    usage = profile.usage
    if usage is None or profile.environment.workers > 1:  # workers may share a machine
        return None
    cores = [s.p95 for phase in LASTING if (s := usage.phases.get(phase, {}).get("process_cores")) is not None]
    memory = [s.maximum for phase in usage.phases.values() if (s := phase.get("memory_used_bytes")) is not None]
    allowed = min(
        filter(None, (usage.limits.cores, usage.limits.container_cores, profile.environment.usable_cores)),
        default=None,
    )
    if not cores or not memory or allowed is None:
        return None
    # With other programs on the cores, or on a limited number of them, the training might use more than it could.
    others = max((s.mean for phase in LASTING if (s := usage.phases.get(phase, {}).get("other_cores"))), default=0.0)
    used, gib = max(cores), max(*memory, profile.environment.peak_memory_bytes or 0) / 2**30
    free = used + max(0.0, others) < LIMITED * allowed
    wanted = RESERVE * used if free else max(RESERVE * used, allowed)
    return HostNeed(used, gib, max(1, math.ceil(wanted)), RESERVE * gib, gpus=profile.environment.framework_gpus or 0)


def is_oversized(need: HostNeed, vcpus: float | None, memory_gib: float | None) -> bool:
    """Whether a host with these vCPUs and this memory has far more of one of them than ``need``; False if unknown."""
    if not vcpus or not memory_gib or math.isnan(vcpus) or math.isnan(memory_gib):
        return False
    return need.vcpus <= OVERSIZED * vcpus or need.memory_gib <= OVERSIZED * memory_gib


def list_hosts(
    need: HostNeed, offers: pd.DataFrame, catalog: Catalog, *, gpu_model: str, gpu_count: float
) -> pd.DataFrame:
    """The ``offers`` of machines with these GPUs that have as many vCPUs and as much memory as ``need``.

    They are prices of ``catalog``. Retired and burstable machines, stale prices and implausible ones are left out.
    """
    same = offers["gpu_count"].fillna(0) == gpu_count
    if gpu_count:
        same &= offers["gpu_model"] == gpu_model
    enough = (offers["vcpus"] >= need.vcpus) & (offers["memory_gib"] >= need.memory_gib)
    unfit = offers["retired"].astype(bool) | offers["stale"].astype(bool) | offers["instance_type"].str.match(BURSTABLE)
    hosts = offers[same & enough & ~unfit]
    return hosts[~catalog.is_implausible(hosts)]


def find_smaller_host(need: HostNeed, rented: Mapping[str, Any], hosts: pd.DataFrame) -> Finding | None:
    """Finding that names the cheapest of the ``hosts``, if the host of ``rented`` is oversized.

    ``rented`` has the columns of its row in the catalog, and ``hosts`` are those of :func:`list_hosts`. Only offers of
    the same provider, region, market and service are considered.
    """
    vcpus, memory, gpus = (rented[name] for name in ("vcpus", "memory_gib", "gpu_count"))
    # A machine that is sold without the GPUs of the training had them attached, and others would lack them.
    if not is_oversized(need, vcpus, memory) or need.gpus > max(0.0, gpus or 0.0):
        return None
    cheaper = hosts["usd_per_hour"] < rented["usd_per_hour"]
    for name in ("provider", "region", "market", "service"):
        cheaper &= hosts[name] == rented[name]
    if not cheaper.any():
        return None
    best = hosts.loc[hosts.loc[cheaper, "usd_per_hour"].idxmin()]
    name, has_gpus = str(best["instance_type"]), bool(gpus and gpus > 0)
    device = f" with {gpus:g} x {rented['gpu_model']}" if has_gpus else ""
    other = "the same GPUs" if has_gpus else "maybe a slower processor"
    cpus = format_count(need.vcpus, "vCPU")
    return Finding(
        "oversized-host",
        f"The training used at most {need.used_cores:.1f} of {vcpus:g} vCPUs and {need.used_gib:.3g} of "
        f"{memory:g} GiB of memory: a host with {cpus} and {need.memory_gib:.3g} GiB suffices. The "
        f"cheapest such machine{device} is {name} ({best['vcpus']:g} vCPUs, {best['memory_gib']:g} GiB) for "
        f"{format_usd(float(best['usd_per_hour']))} instead of {format_usd(float(rented['usd_per_hour']))} per hour.",
        f"Probe {name}, which has {other}. To test the limits on this machine first, run a sweep with the factors "
        "cores and memory_gib.",
        "info",
    )
