"""Doubts that only show when a measurement meets a price: other hardware, several machines, unused GPUs, spot."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from vmselect.findings import Finding
from vmselect.ranking.candidates import Candidates
from vmselect.ranking.estimates import MachineEstimate
from vmselect.ranking.settings import Settings
from vmselect.records import Profile

THIN_BATCH = 32
"""Examples per GPU below which a batch is called thin: a GPU is then mostly waiting between small pieces of work."""

MORE_CORES = 1.5
"""Times the priced vCPUs above which the cores that were seen are those of another machine."""


def candidate_findings(candidates: Candidates, candidate: int, settings: Settings) -> tuple[Finding, ...]:
    """Findings about one candidate: its measurement, its use of the machine, its market."""
    one, who = candidates.of(candidate), candidates.identity(candidate)
    found = [*one.findings, *_other_hardware(one, who), *_several_machines(one), *_use_of_gpus(one, who["gpu_count"])]
    if who["market"] == "spot":
        found.append(_spot(settings))
    return tuple(found)


def _other_hardware(one: MachineEstimate, offer: Mapping[str, Any]) -> Iterator[Finding]:
    """What was seen and is not what the price is for; fewer may be a container's, and say nothing."""
    for priced, found in (*_other_gpus(one, offer), *_more_cores(one, offer)):
        yield Finding(
            "hardware-contradicts-price",
            f"{one.instance_type} is priced with {priced}, and the probe saw {found}.",
            "Say on which instance type the probe ran: instance_type= or VMSELECT_INSTANCE_TYPE.",
        )


def _other_gpus(one: MachineEstimate, offer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    seen = next((record.environment.gpus for record in one.records if record.environment.gpus), ())
    if not seen or offer["gpu_count"] is None:
        return
    sold = re.split(r"[-\s]", offer["gpu_model"] or "")[0].lower()
    others = [gpu.name for gpu in seen if sold not in re.split(r"[^a-z0-9]+", gpu.name.lower())]
    named = sold in ("rtx", "radeon", "tpu") or not others
    if len(seen) <= max(1, offer["gpu_count"]) and offer["gpu_count"] > 0 and named:
        return
    found = f"{len(seen)} x {(others or [seen[0].name])[0]}"
    priced = f"{offer['gpu_count']:g} x {offer['gpu_model']}" if offer["gpu_model"] else "no GPU"
    yield priced, found


def _more_cores(one: MachineEstimate, offer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    cores, vcpus = next(filter(None, map(_usable_cores, one.records)), 0), offer["vcpus"]
    if vcpus and cores > MORE_CORES * vcpus:
        yield f"{vcpus:g} vCPUs", f"{cores:g} cores"


def _usable_cores(profile: Profile) -> float | None:
    """Cores that the training could use: of a larger machine, those that its container allowed."""
    seen = profile.environment.usable_cores or profile.environment.cpu_cores
    allowed = profile.usage.limits.container_cores if profile.usage else None
    return min(filter(None, (seen, allowed)), default=None)


def _several_machines(one: MachineEstimate) -> Iterator[Finding]:
    if one.nodes > 1:
        yield Finding(
            "several-machines",
            f"{one.title}: its workers are taken to be on {one.nodes} machines, so the price is "
            f"{one.nodes} times that of one.",
            "If they were on fewer, give the number of machines as the factor nodes (VMSELECT_FACTORS).",
            "info",
        )


def _use_of_gpus(one: MachineEstimate, gpu_count: float | None) -> Iterator[Finding]:
    if not gpu_count or gpu_count < 1:
        return
    used = one.gpus_used
    if used is not None and used < gpu_count:
        remedy = (
            "Use a distribution strategy, or rent a smaller machine of the same kind."
            if used
            else "Install the driver and the framework's build for GPUs and probe again, or rent one without them."
        )
        yield Finding("unused-gpus", f"{one.title} trained on {used} of its {gpu_count:g} GPUs.", remedy)
    spread_over = (used if used else gpu_count) * one.nodes
    if one.batch_size and spread_over > 1 and one.batch_size / spread_over < THIN_BATCH:
        yield Finding(
            "thin-batch",
            f"{one.title}: a batch of {one.batch_size} over {spread_over:g} GPUs is "
            f"{one.batch_size / spread_over:.3g} examples each.",
            "Use a larger batch on this machine, or one with fewer GPUs.",
            "info",
        )


def _spot(settings: Settings) -> Finding:
    if settings.interruptions is None:
        return Finding(
            "spot-uninterrupted",
            "Spot times and costs assume that no machine is taken away.",
            "Pass interruptions= (--interruptions-per-hour and --checkpoint-minutes).",
        )
    return Finding(
        "spot-expected",
        f"Spot times and costs are expectations: {settings.interruptions.factor:.3g} times the uninterrupted run, "
        "without the wait for a new one.",
        "Check the interruption rate of this machine type and region.",
        "info",
    )
