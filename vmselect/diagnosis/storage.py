"""Main memory that runs out, and disks that are kept busy."""

from __future__ import annotations

from vmselect.diagnosis.base import Causes, Diagnosis, steady_mean
from vmselect.records import Profile
from vmselect.units import format_bytes

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
