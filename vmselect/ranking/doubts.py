"""Doubts that only show when a measurement meets the machine's price list: unused GPUs, thin batches, spot."""

from __future__ import annotations

from collections.abc import Iterator

from vmselect.findings import Finding
from vmselect.ranking.candidates import Candidates, Machine
from vmselect.ranking.settings import Settings
from vmselect.units import SECONDS_PER_HOUR, format_seconds, format_usd

THIN_BATCH = 32
"""Examples per GPU below which a batch is called thin: a GPU is then mostly waiting between small pieces of work."""


def candidate_findings(candidates: Candidates, candidate: int, settings: Settings) -> tuple[Finding, ...]:
    """What is doubtful about one candidate: its measurement, its use of the machine, its market."""
    machine = candidates.machines[candidates.machine[candidate]]
    who = candidates.identity(candidate)
    found = [*machine.findings, *_use_of_gpus(machine, who["gpu_count"])]
    if who["market"] == "spot":
        found.append(_spot(settings))
    return tuple(found)


def limit_findings(settings: Settings, *, seconds_high: float, cost_high: float) -> Iterator[Finding]:
    """A feasible run whose interval reaches over a limit may still break it."""
    if settings.deadline_hours is not None and seconds_high > settings.deadline_hours * SECONDS_PER_HOUR:
        yield Finding(
            "may-miss-deadline",
            f"The run may take {format_seconds(seconds_high)}, which is over the deadline.",
            "Probe for more steps to narrow the interval, or take a faster machine.",
        )
    if settings.budget_usd is not None and cost_high > settings.budget_usd:
        yield Finding(
            "may-exceed-budget",
            f"The run may cost {format_usd(cost_high)}, which is over the budget.",
            "Probe for more steps to narrow the interval, or take a cheaper machine.",
        )


def _use_of_gpus(machine: Machine, gpu_count: float | None) -> Iterator[Finding]:
    if not gpu_count or gpu_count < 1:
        return
    used = machine.gpus_used
    if used is not None and used < gpu_count:
        yield Finding(
            "unused-gpus",
            f"{machine.title} trained on {used} of its {gpu_count:g} GPUs.",
            "Use a distribution strategy, or rent a smaller machine of the same kind.",
        )
    spread_over = used if used else gpu_count
    if machine.batch_size and spread_over > 1 and machine.batch_size / spread_over < THIN_BATCH:
        yield Finding(
            "thin-batch",
            f"{machine.title}: a batch of {machine.batch_size} over {spread_over:g} GPUs is "
            f"{machine.batch_size / spread_over:.3g} examples each.",
            "Use a larger batch on this machine, or one with fewer GPUs.",
            "note",
        )


def _spot(settings: Settings) -> Finding:
    if settings.interruptions is None:
        return Finding(
            "spot-uninterrupted",
            "Spot times and costs assume that no machine is taken away.",
            "Pass interruptions= with a rate, a checkpoint interval and a restart time.",
        )
    return Finding(
        "spot-expected",
        f"Spot times and costs are expectations: {settings.interruptions.factor:.3g} times the uninterrupted run, "
        "without the wait for a new machine.",
        "Check the interruption rate of this machine type and region.",
        "note",
    )
