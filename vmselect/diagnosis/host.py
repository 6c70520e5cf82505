"""Processors that are too busy, held back, or shared with somebody else."""

from __future__ import annotations

from vmselect.diagnosis.evidence import (
    Causes,
    Diagnosis,
    busy_processors,
    count_cores,
    steady_mean,
    usable_cores,
    waits_for_input,
)
from vmselect.records import Profile
from vmselect.units import format_bytes

CPU_THRESHOLD = 0.9
"""The share above which processors count as saturated."""

CONTENDED = 0.85
"""Others' work does no harm while cores are free: from this use on they are not."""

OTHERS = 0.15
"""Share of the usable cores' time that others may take before they are called neighbours: without them a training that
uses the rest would gain up to 1.2x."""

STEAL = 0.05
HELD_BACK = 0.05
"""Said sooner than the others: nobody on the machine can do anything about what its host or a limit takes."""

FULLY_USED = 0.9


def find_saturation(profile: Profile, threshold: float | None = None) -> Causes:
    """Processors above the threshold where they are not the ones that should be busy.

    Where they do the computing, busy is what they ought to be; with a ``threshold`` given it is said all the same.
    """
    busy = busy_processors(profile)
    if busy is None or busy.share <= (CPU_THRESHOLD if threshold is None else threshold):
        return
    if threshold is None and not profile.environment.framework_gpus and not waits_for_input(profile):
        return
    yield Diagnosis(
        "cpu-saturated",
        f"{busy.said} during steady steps.",
        f"{busy.more.capitalize()}, or give them less to do: prepare data once, and run nothing beside.",
        "info",
        busy.evidence,
    )


def find_limit(profile: Profile) -> Causes:
    """A training that uses up all the cores that it may use, which are not all there are."""
    cores, used = count_cores(profile), steady_mean(profile, "process_cores")
    held = steady_mean(profile, "container_throttled_share")
    limit = profile.usage.limits.container_cores if profile.usage else None
    if held is not None and limit is not None and held >= HELD_BACK:
        yield Diagnosis(
            "cpu-limited",
            f"The container may use {limit:g} cores and was held back in {held:.0%} of the scheduler's periods.",
            "Give the container more cores, or judge the machine without that limit.",
            "warning",
            {"container_cores": limit, "container_throttled_share": held},
        )
    elif cores and used is not None and profile.environment.cpu_cores and cores < profile.environment.cpu_cores:
        if used < FULLY_USED * cores:
            return
        yield Diagnosis(
            "cpu-limited",
            f"The process may use {cores:g} of the machine's {profile.environment.cpu_cores} cores, and uses "
            f"{used / cores:.0%} of that.",
            "Let it use all cores (taskset, the batch system, the container), or price the machine as one of "
            f"{cores:g} cores.",
            "info",
            {"usable_cores": float(cores), "cpu_cores": float(profile.environment.cpu_cores), "process_cores": used},
        )


def find_neighbours(profile: Profile) -> Causes:
    """Somebody else at work on the same cores: another program, or another machine on the same host."""
    steal = steady_mean(profile, "steal_share")
    if steal is not None and steal >= STEAL:
        yield Diagnosis(
            "noisy-neighbour",
            f"The host gave {steal:.0%} of the processors' time to other machines (steal time).",
            "Probe again, at another time or on another machine of this type; dedicated hosts have no neighbours.",
            "warning",
            {"steal_share": steal},
        )
    cores, others = usable_cores(profile), steady_mean(profile, "other_cores")
    busy = steady_mean(profile, "usable_cpu_share")
    # The other workers of one training are no neighbours.
    if not cores or others is None or busy is None or profile.environment.workers > 1:
        return
    if busy >= CONTENDED and others >= OTHERS * cores:
        pressure = steady_mean(profile, "cpu_pressure_share")
        yield Diagnosis(
            "noisy-neighbour",
            f"Other programs took {others / cores:.0%} of the {cores} core{'s' * (cores != 1)} that the training may "
            f"use, while {busy:.0%} of their time was in use.",
            "End the other programs, then probe again.",
            "warning",
            {"other_cores": others, "usable_cores": float(cores), "usable_cpu_share": busy}
            | ({} if pressure is None else {"cpu_pressure_share": pressure}),
        )


# Main memory that runs out, and disks that are kept busy.


SWAP_BYTES_PER_SECOND = 2**20
LITTLE_MEMORY = 0.05
FULL_CONTAINER = 0.95
MEMORY_PRESSURE = 0.05
IO_PRESSURE = 0.15
"""Share of the time in which something waited for a disk: were it the training, it would gain up to 1.2x without."""


def find_swapping(profile: Profile) -> Causes:
    """Memory that is moved to disk and back while steps run."""
    rate = steady_mean(profile, "swap_bytes_per_second")
    if rate is not None and rate >= SWAP_BYTES_PER_SECOND:
        yield Diagnosis(
            "swapping",
            f"The machine moved {format_bytes(int(rate))} a second between memory and disk during steady steps.",
            "Use less memory (a smaller batch, less read ahead, fewer programs), or a machine with more of it.",
            "warning",
            {"swap_bytes_per_second": rate},
        )


def find_full_memory(profile: Profile) -> Causes:
    """Memory that is nearly used up, of the machine or of the container."""
    free = steady_mean(profile, "memory_available_share")
    used = steady_mean(profile, "container_memory_share")
    pressure = steady_mean(profile, "memory_pressure_share") or 0.0
    remedy = "Use less memory (a smaller batch, less read ahead, fewer programs), or a machine with more of it."
    if free is not None and free < LITTLE_MEMORY:
        yield Diagnosis(
            "memory-full",
            f"Only {free:.0%} of the machine's memory was free during steady steps.",
            remedy,
            "warning",
            {"memory_available_share": free, "memory_pressure_share": pressure},
        )
    elif used is not None and used > FULL_CONTAINER and pressure >= MEMORY_PRESSURE:
        # A container's use includes files kept in memory, which cost nothing; pressure tells that it does.
        yield Diagnosis(
            "memory-full",
            f"The container used {used:.0%} of the memory that it may, and programs waited for memory {pressure:.0%} "
            "of the time.",
            remedy,
            "warning",
            {"container_memory_share": used, "memory_pressure_share": pressure},
        )


def find_busy_disk(profile: Profile) -> Causes:
    """A disk that somebody waited for much of the time."""
    pressure = steady_mean(profile, "io_pressure_share")
    if pressure is None or pressure < IO_PRESSURE:
        return
    own = sum(steady_mean(profile, f"process_{what}_bytes_per_second") or 0.0 for what in ("read", "write"))
    rate = sum(steady_mean(profile, f"disk_{what}_bytes_per_second") or 0.0 for what in ("read", "write"))
    mine = rate > 0 and own >= rate / 2
    yield Diagnosis(
        "disk-busy",
        f"Programs waited for the disk {pressure:.0%} of the time during steady steps, at "
        f"{format_bytes(int(rate))} a second, {'most' if mine else 'little'} of it this training's own.",
        "Read and write less during steps (keep data in memory, save less often), or use a faster disk."
        if mine
        else "End what else uses the disk, then probe again.",
        "info",
        {"io_pressure_share": pressure, "disk_bytes_per_second": rate, "process_bytes_per_second": own},
    )
