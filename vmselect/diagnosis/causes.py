"""The checks, one function for each cause of a slow training.

The thresholds for GPUs are choices, not measurements. Only GPUs that the framework uses are checked.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, combinations
from typing import NamedTuple

from vmselect._checks import check_share, maybe, show
from vmselect.errors import ArgumentError
from vmselect.findings import Finding
from vmselect.records import Profile
from vmselect.units import format_bytes, format_seconds

MIN_SAMPLED_SECONDS = 0.5
"""Samples that cover less time than this are ignored."""

INPUT_BOUND = 0.3
"""Share of waiting for data from which steps are input-bound. Faster input then gains up to 1.4x, about what the next
larger machine must gain to be worth its price."""

NEGLIGIBLE_WAIT = 0.1
"""Share of waiting for data below which it does not matter: without it, steps gain 1.1x."""

GPU_IDLE = 0.5
GPU_MEMORY_FULL = 0.92
GPU_MEMORY_EMPTY = 0.4
GPU_THROTTLED = 0.1
"""Share of the samples in which clocks were reduced."""

TRAINING_BYTES_PER_PARAMETER = 16
"""Weight, gradient and the two averages of Adam, four bytes each: memory that does not depend on the batch size."""

DEVICE_BUSY = 0.8
"""Utilization from which the device limits the steps."""

CPU_IDLE = 0.7
"""CPU utilization below which the processors wait for something else."""

ONE_CORE = 0.7
"""Cores in use from which a single core may be preparing all the data while the others idle."""

CPU_SATURATED = 0.9
CPU_CONTENDED = 0.85
"""Other programs do no harm while cores are free. From this utilization on they are not."""

OTHER_PROGRAMS = 0.15
"""Share of the usable cores that other programs may take. Without them, a training gains up to 1.2x."""

STEAL = 0.05
CPU_THROTTLED = 0.05
"""Lower than the other thresholds, because nothing on the machine can change what its host or a quota takes."""

QUOTA_USED = 0.9
SWAP_BYTES_PER_SECOND = 2**20
MIN_FREE_MEMORY = 0.05
CONTAINER_MEMORY_FULL = 0.95
MEMORY_PRESSURE = 0.05
IO_PRESSURE = 0.15
"""Share of the time in which a program waited for a disk. If it was the training, it gains up to 1.2x without."""

PAUSE_SHARE = 0.1
PAUSE_SECONDS = 0.3
"""Pauses between epochs are reported from this share of an epoch and this length on."""

MIN_EPOCHS = 4
GROWTH = 0.2
AGREEMENT = 0.7
"""Epochs grow when the last is this much longer than the second, and so many more pairs rise than fall."""


@dataclass(frozen=True)
class Diagnosis(Finding):
    """A finding about speed, with the numbers it is based on: name to value, units in the names.

    ``bound`` is the largest possible gain in a few words, where known. Rankings show it beside the machine.
    """

    evidence: Mapping[str, float] = field(default_factory=dict, hash=False, compare=False)
    bound: str = ""


Causes = Iterator[Diagnosis]


def diagnose(profile: Profile, *, cpu_threshold: float | None = None) -> tuple[Diagnosis, ...]:
    """What limits the speed of the training, with evidence and remedy; warnings first.

    What was not sampled, or not long enough, gives no diagnosis. ``cpu_threshold`` is the CPU utilization above which
    processors count as saturated. By default it is 0.9, and applies only where the processors prepare data for a GPU
    or for steps that wait: processors that do the computing should be busy.

    >>> import vmselect as vs
    >>> profile = vs.Profile.from_times(instance_type="g4dn.xlarge", first_epoch_seconds=40,
    ...     later_epoch_seconds=[30, 33, 36, 40])
    >>> [found.code for found in diagnose(profile)]
    ['slowing-down']
    """
    if not isinstance(profile, Profile):
        raise ArgumentError(f"diagnose needs a Profile, not {show(profile)}.")
    threshold = maybe(check_share, "cpu_threshold", cpu_threshold)
    found = chain(
        find_gpu_throttling(profile),
        find_swapping(profile),
        find_full_memory(profile),
        find_noisy_neighbors(profile),
        find_growth(profile),
        find_cpu_limit(profile),
        find_input_bound(profile),
        find_cpu_saturation(profile, threshold),
        find_underfed_gpu(profile),
        find_gpu_memory(profile),
        find_busy_disk(profile),
        find_pauses(profile),
        find_compute_bound(profile),
    )
    return tuple(sorted(found, key=lambda cause: cause.severity != "warning"))


def find_causes(profile: Profile) -> tuple[Diagnosis, ...]:
    """The diagnoses that belong among a record's findings: all but ``compute-bound``, the desired state."""
    return tuple(cause for cause in diagnose(profile) if cause.code != "compute-bound")


# -- input and compute -------------------------------------------------------------------------------------------------


def find_input_bound(profile: Profile) -> Causes:
    """Steps that wait for data. If everything else took no time, the wait would remain: this bounds the gain."""
    share = input_share(profile)
    if share is None or share < INPUT_BOUND:
        return
    gain, input_gain = 1 / share, 1 / max(1e-3, 1 - share)
    cpu = cpu_use(profile)
    # Processors that compute may also prepare the data: then faster ones shorten the wait as well.
    bound = ""
    if profile.environment.framework_gpus or _processors_idle(profile):
        bound = f"a faster {_device(profile)} gains at most {_format_gain(gain)} here"
    gains = f"{bound}, faster input up to" if bound else "faster input gains up to"
    yield Diagnosis(
        "input-bound",
        f"The steps wait for their data {share:.0%} of the time: {gains} {_format_gain(input_gain)}.",
        _input_remedy(profile),
        "info",
        {"input_wait_share": share, "input_gain_at_most": input_gain}
        | ({"device_gain_at_most": gain} if bound else {})
        | ({} if cpu is None else cpu.evidence),
        bound,
    )


def find_compute_bound(profile: Profile) -> Causes:
    """Steps that do not wait for data, on a busy device: the desired state."""
    share, busy = input_share(profile), _device_share(profile)
    if share is None or share >= NEGLIGIBLE_WAIT or busy is None or busy < DEVICE_BUSY:
        return
    device, gain = _device(profile), 1 / (1 - share)
    yield Diagnosis(
        "compute-bound",
        f"The steps wait for their data {share:.0%} of the time and the {device} is {busy:.0%} busy: faster input "
        f"gains at most {_format_gain(gain)} here.",
        f"Nothing is wrong: only a faster {device}, or more of them, makes this training faster.",
        "info",
        {"input_wait_share": share, "device_busy_share": busy, "input_gain_at_most": gain},
    )


def _input_remedy(profile: Profile) -> str:
    cpu, used, cores = cpu_use(profile), steady_mean(profile, "process_cores"), count_cores(profile)
    if cpu is None or used is None or cores is None:
        return "Prefetch and read in parallel, or move the data closer to the machine."
    if cpu.share >= CPU_IDLE:
        return f"{cpu.text} preparing data: prepare it once and store it, do less per example, or {cpu.more}."
    if _processors_idle(profile):
        return f"{cpu.text}, so reading is slow: prefetch, use more workers, or move the data closer to the machine."
    alone = ", as if one of them prepared all the data" if used < 2 * ONE_CORE else ""
    return (
        f"The training uses {used:.1f} of {cores:g} cores{alone}: prepare data on more of them (parallel calls, more "
        "workers), prefetch, or store prepared data."
    )


def _processors_idle(profile: Profile) -> bool:
    """Whether the processors have time left, and not because a single core does all the work."""
    cpu, used = cpu_use(profile), steady_mean(profile, "process_cores")
    return cpu is not None and used is not None and cpu.share < CPU_IDLE and used < ONE_CORE


def _device(profile: Profile) -> str:
    return "GPU" if profile.environment.framework_gpus else "processor"


def _device_share(profile: Profile) -> float | None:
    if profile.environment.framework_gpus:
        return _gpu_share(profile)
    cores, used = count_cores(profile), steady_mean(profile, "process_cores")
    return None if not cores or used is None else min(1.0, used / cores)


def _format_gain(factor: float) -> str:
    return f"{factor:.1f}x" if factor < 9.95 else f"{factor:.0f}x"


# -- GPUs --------------------------------------------------------------------------------------------------------------


def find_underfed_gpu(profile: Profile) -> Causes:
    """GPUs that idle although steps do not wait for data."""
    busy, share = _gpu_share(profile), input_share(profile)
    if busy is None or busy >= GPU_IDLE or share is None or share >= NEGLIGIBLE_WAIT:
        return
    count = len(_used_gpus(profile))
    who = "The GPU is" if count == 1 else f"The {count} GPUs are"
    batch = "" if profile.batch_size is None else f" with {profile.batch_size / count:g} examples a step each"
    yield Diagnosis(
        "underfed-gpu",
        f"{who} {busy:.0%} busy{batch}, although steps wait for data only {share:.0%} of the time.",
        "Use a larger batch, several steps per execution or compiled steps, or rent a smaller GPU.",
        "info",
        {"gpu_busy_share": busy, "gpus": float(count), "input_wait_share": share},
    )


def find_gpu_memory(profile: Profile) -> Causes:
    """GPU memory without room for a larger batch, or with room for a far larger one."""
    whole = min((gpu.memory_bytes for gpu in profile.environment.gpus if gpu.memory_bytes), default=None)
    peak = profile.environment.peak_gpu_memory_bytes
    if not profile.environment.framework_gpus or not whole or not peak:
        return
    share = peak / whole
    used = f"The training uses {format_bytes(peak)} of the GPU's {format_bytes(whole)} at its peak ({share:.0%})"
    evidence = {"peak_gpu_memory_bytes": float(peak), "gpu_memory_bytes": float(whole)}
    if share >= GPU_MEMORY_FULL:
        remedy = "A larger batch does not fit: use mixed precision, a smaller batch, or a GPU with more memory."
        yield Diagnosis("gpu-memory-full", f"{used}.", remedy, "info", evidence)
    elif share <= GPU_MEMORY_EMPTY:
        batch = _largest_batch(profile, peak, whole)
        fits = f": a batch of about {batch:,} fits" if batch else ""
        evidence |= {"batch_size_that_fits": float(batch)} if batch else {}
        remedy = "Try a larger batch, or rent a GPU with less memory."
        yield Diagnosis("gpu-memory-empty", f"{used}{fits}.", remedy, "info", evidence)


def find_gpu_throttling(profile: Profile) -> Causes:
    """GPUs whose clocks were reduced because of heat, power, or an unspecified one of the two."""
    cooling, power = "Improve the cooling, or use another machine", "Raise the power limit if you may"
    for cause, why, remedy in (
        ("heat", "because of heat", f"{cooling}: times vary with the temperature."),
        ("power", "because of power", f"{power}: otherwise these times are what the machine delivers."),
        ("hardware", "by its hardware, because of heat or power,", f"{cooling} with a better power supply."),
    ):
        shares = {gpu: steady_mean(profile, f"gpu{gpu}_throttled_by_{cause}_share") for gpu in _used_gpus(profile)}
        slowed = {gpu: share for gpu, share in shares.items() if share is not None and share >= GPU_THROTTLED}
        if not slowed:
            continue
        worst = max(slowed, key=lambda gpu: slowed[gpu])
        celsius = steady_mean(profile, f"gpu{worst}_temperature_celsius")
        at = f" at {celsius:.0f} degrees" if cause != "power" and celsius is not None else ""
        several = f"; {len(slowed)} GPUs in all" if len(slowed) > 1 else ""
        yield Diagnosis(
            "throttled",
            f"GPU {worst} was slowed down {why} in {slowed[worst]:.0%} of the samples{at}{several}.",
            remedy,
            "warning",
            {f"gpu{gpu}_throttled_by_{cause}_share": share for gpu, share in slowed.items()},
        )


def _used_gpus(profile: Profile) -> list[int]:
    """The GPUs in use: the busiest of the machine, as many as the framework uses."""
    count = profile.environment.framework_gpus
    if not count or profile.usage is None:
        return []
    busy = {}
    for quantity in profile.usage.quantities():
        match = re.match(r"gpu(\d+)_busy_share", quantity)
        share = steady_mean(profile, quantity) if match else None
        if match and share is not None:
            busy[int(match[1])] = share
    return sorted(sorted(busy, key=lambda gpu: -busy[gpu])[:count])


def _gpu_share(profile: Profile) -> float | None:
    """The mean utilization of the GPUs in use."""
    shares = [steady_mean(profile, f"gpu{gpu}_busy_share") or 0.0 for gpu in _used_gpus(profile)]
    return sum(shares) / len(shares) if shares else None


def _largest_batch(profile: Profile, peak: int, whole: int) -> int | None:
    """The batch size that fits, if all other memory grows in proportion to it; rounded down to two digits."""
    setup = profile.setup
    if not setup.batch_size or setup.parameters is None:
        return None
    fixed = setup.parameters * TRAINING_BYTES_PER_PARAMETER
    if peak <= fixed:
        return None
    batch = setup.batch_size * (GPU_MEMORY_FULL * whole - fixed) / (peak - fixed)
    digits = max(0, len(str(int(batch))) - 2)
    return int(batch) - int(batch) % int(10.0**digits)


# -- processors --------------------------------------------------------------------------------------------------------


def find_cpu_saturation(profile: Profile, threshold: float | None = None) -> Causes:
    """Processors above the threshold. By default only where they do not do the computing."""
    cpu = cpu_use(profile)
    if cpu is None or cpu.share <= (CPU_SATURATED if threshold is None else threshold):
        return
    waits = (input_share(profile) or 0.0) >= INPUT_BOUND
    if threshold is None and not profile.environment.framework_gpus and not waits:
        return
    remedy = f"{cpu.more.capitalize()}, prepare data once, or end other programs."
    yield Diagnosis("cpu-saturated", f"{cpu.text} during steady steps.", remedy, "info", cpu.evidence)


def find_cpu_limit(profile: Profile) -> Causes:
    """A training that uses all the cores that it may use, where the machine has more."""
    cores, used = count_cores(profile), steady_mean(profile, "process_cores")
    throttled = steady_mean(profile, "container_throttled_share")
    limit = profile.usage.limits.container_cores if profile.usage else None
    all_cores = profile.environment.cpu_cores
    if throttled is not None and limit is not None and throttled >= CPU_THROTTLED:
        yield Diagnosis(
            "cpu-limited",
            f"The container may use {limit:g} cores and was throttled in {throttled:.0%} of the scheduler's periods.",
            "Give the container more cores, or measure the machine without that limit.",
            "warning",
            {"container_cores": limit, "container_throttled_share": throttled},
        )
    elif cores and used is not None and all_cores and cores < all_cores and used >= QUOTA_USED * cores:
        yield Diagnosis(
            "cpu-limited",
            f"The process may use {cores:g} of the machine's {all_cores} cores, and uses {used / cores:.0%} of that.",
            f"Allow all cores (taskset, batch system, container), or price the machine as one of {cores:g} cores.",
            "info",
            {"usable_cores": float(cores), "cpu_cores": float(all_cores), "process_cores": used},
        )


def find_noisy_neighbors(profile: Profile) -> Causes:
    """Other work on the same cores: other programs, or other virtual machines on the same host."""
    steal = steady_mean(profile, "steal_share")
    if steal is not None and steal >= STEAL:
        yield Diagnosis(
            "noisy-neighbour",
            f"The host gave {steal:.0%} of the processors' time to other machines (steal time).",
            "Probe again at another time or on another machine of this type, or use a dedicated host.",
            "warning",
            {"steal_share": steal},
        )
    cores, others = usable_cores(profile), steady_mean(profile, "other_cores")
    busy = steady_mean(profile, "usable_cpu_share")
    # Other workers of the same training are not neighbors.
    if not cores or others is None or busy is None or profile.environment.workers > 1:
        return
    if busy >= CPU_CONTENDED and others >= OTHER_PROGRAMS * cores:
        pressure = steady_mean(profile, "cpu_pressure_share")
        yield Diagnosis(
            "noisy-neighbour",
            f"Other programs took {others / cores:.0%} of the {cores} core{'s' * (cores != 1)} that the training may "
            f"use, while these were {busy:.0%} busy.",
            "End the other programs, then probe again.",
            "warning",
            {"other_cores": others, "usable_cores": float(cores), "usable_cpu_share": busy}
            | ({} if pressure is None else {"cpu_pressure_share": pressure}),
        )


# -- memory and disks --------------------------------------------------------------------------------------------------

_LESS_MEMORY = "Use less memory (smaller batch, less prefetching, fewer programs), or a machine with more."


def find_swapping(profile: Profile) -> Causes:
    """Memory that is swapped while steps run."""
    rate = steady_mean(profile, "swap_bytes_per_second")
    if rate is not None and rate >= SWAP_BYTES_PER_SECOND:
        message = f"The machine swapped {format_bytes(int(rate))} a second during steady steps."
        yield Diagnosis("swapping", message, _LESS_MEMORY, "warning", {"swap_bytes_per_second": rate})


def find_full_memory(profile: Profile) -> Causes:
    """Memory of the machine or of the container that is nearly used up."""
    free = steady_mean(profile, "memory_available_share")
    used = steady_mean(profile, "container_memory_share")
    pressure = steady_mean(profile, "memory_pressure_share") or 0.0
    evidence = {"memory_pressure_share": pressure}
    if free is not None and free < MIN_FREE_MEMORY:
        message = f"Only {free:.0%} of the machine's memory was free during steady steps."
        evidence["memory_available_share"] = free
    elif used is not None and used > CONTAINER_MEMORY_FULL and pressure >= MEMORY_PRESSURE:
        # A container's use includes cached files, which can be dropped. Pressure shows that memory is short.
        waited = f"programs waited for memory {pressure:.0%} of the time"
        message = f"The container used {used:.0%} of its memory, and {waited}."
        evidence["container_memory_share"] = used
    else:
        return
    yield Diagnosis("memory-full", message, _LESS_MEMORY, "warning", evidence)


def find_busy_disk(profile: Profile) -> Causes:
    """A disk for which programs waited much of the time."""
    pressure = steady_mean(profile, "io_pressure_share")
    if pressure is None or pressure < IO_PRESSURE:
        return
    own, rate = (
        sum(steady_mean(profile, f"{whose}_{way}_bytes_per_second") or 0.0 for way in ("read", "write"))
        for whose in ("process", "disk")
    )
    if rate > 0 and own >= rate / 2:
        part, remedy = "most", "Read and write less during steps (cache data, save less often), or use a faster disk."
    else:
        part, remedy = "little", "End other programs that use the disk, then probe again."
    yield Diagnosis(
        "disk-busy",
        f"Programs waited for the disk {pressure:.0%} of the time during steady steps, at {format_bytes(int(rate))} a "
        f"second, {part} of it by this training.",
        remedy,
        "info",
        {"io_pressure_share": pressure, "disk_bytes_per_second": rate, "process_bytes_per_second": own},
    )


# -- from epoch to epoch -----------------------------------------------------------------------------------------------


def find_pauses(profile: Profile) -> Causes:
    """Time without training between the steps of one epoch and those of the next."""
    boundaries = profile.timeline.boundaries
    between = [boundary.seconds for boundary in boundaries if not boundary.final]
    epoch = _epoch_seconds(profile)
    if not between or epoch is None:
        return
    pause = statistics.median(between)
    if len(between) == 1:
        # What happens once, such as the first saving of a model, is not a pause of every epoch.
        pause = min(boundary.seconds for boundary in boundaries)
    share = pause / (epoch + pause) if epoch + pause > 0 else 0.0
    if share < PAUSE_SHARE or pause < PAUSE_SECONDS:
        return
    yield Diagnosis(
        "slow-boundaries",
        f"{format_seconds(pause)} without training pass between two epochs, {share:.0%} of an epoch's time.",
        "Check what callbacks do at the end of an epoch, and disable tf.data's autotuning (options.autotune.enabled = "
        "False).",
        "info",
        {"boundary_seconds": pause, "epoch_seconds": epoch, "boundary_share": share},
    )


def find_growth(profile: Profile) -> Causes:
    """Epochs that take longer and longer."""
    seconds = [epoch.seconds for epoch in profile.timeline.epochs if epoch.complete][1:]
    if len(seconds) < MIN_EPOCHS - 1:
        return
    pairs = list(combinations(seconds, 2))
    agreement = sum((later > earlier) - (later < earlier) for earlier, later in pairs) / len(pairs)
    growth = seconds[-1] / seconds[0] - 1 if seconds[0] > 0 else 0.0
    if growth < GROWTH or agreement < AGREEMENT:
        return
    yield Diagnosis(
        "slowing-down",
        f"Epochs take longer and longer: {format_seconds(seconds[0])} for the second, {format_seconds(seconds[-1])} "
        f"for the last of {len(seconds) + 1}, {growth:.0%} more.",
        "Look for data, logs or memory that grow during the training: an estimate from early epochs is too low.",
        "warning",
        {"second_epoch_seconds": seconds[0], "last_epoch_seconds": seconds[-1], "growth_share": growth},
    )


def _epoch_seconds(profile: Profile) -> float | None:
    """The time of an epoch, steps and validation together."""
    timeline = profile.timeline
    whole = [epoch.seconds for epoch in timeline.epochs if epoch.complete]
    steady, steps = timeline.steps.steady_seconds, profile.steps_per_epoch
    if steady and steps is not None:
        training = statistics.median(steady) * steps
    elif whole:
        training = statistics.median(whole)
    else:
        return None
    validations = [validation.seconds for validation in timeline.validations if not validation.truncated]
    return training + (statistics.median(validations) if validations else 0.0)


# -- quantities that several checks use --------------------------------------------------------------------------------


def input_share(profile: Profile) -> float | None:
    """The share of the time that steps waited for data, or None if unknown."""
    wait = profile.timeline.input_wait
    return None if wait is None or not wait.wall_seconds else wait.share


def steady_mean(profile: Profile, quantity: str) -> float | None:
    """The mean of a quantity over the steady steps, or None if it was sampled too briefly."""
    summary = None if profile.usage is None else profile.usage.summary(quantity)
    return None if summary is None or summary.seconds < MIN_SAMPLED_SECONDS else summary.mean


def usable_cores(profile: Profile) -> int | None:
    """The cores that the process may run on."""
    limits = None if profile.usage is None else profile.usage.limits
    return (limits.cores if limits else None) or profile.environment.usable_cores or profile.environment.cpu_cores


def container_cores(profile: Profile) -> float | None:
    """The CPU quota of the container in cores, or None if it does not restrict the usable cores."""
    limit, cores = None if profile.usage is None else profile.usage.limits.container_cores, usable_cores(profile)
    return limit if limit is not None and (cores is None or limit < cores) else None


def count_cores(profile: Profile) -> float | None:
    """The cores that the process may keep busy at once: its quota or its usable cores."""
    return container_cores(profile) or usable_cores(profile)


class CpuUse(NamedTuple):
    """CPU utilization in steady steps: a share, as text, its evidence, and how to get more cores."""

    share: float
    text: str
    evidence: dict[str, float]
    more: str


def cpu_use(profile: Profile) -> CpuUse | None:
    """CPU utilization of the cores that the process may use, or None if it was not sampled.

    A container's quota counts where it is lower: it can be used up while most cores idle.
    """
    limit, used = container_cores(profile), steady_mean(profile, "process_cores")
    if limit is not None and used is not None:
        share = min(1.0, used / limit)
        text = f"The container's {limit:g} core{' is' if limit == 1 else 's are'} {share:.0%} busy"
        return CpuUse(share, text, {"process_cores": used, "container_cores": limit}, "give the container more cores")
    seen = steady_mean(profile, "usable_cpu_share")
    if limit is not None or seen is None:
        return None
    text = f"The processors are {seen:.0%} busy"
    return CpuUse(seen, text, {"usable_cpu_share": seen}, "take a machine with more cores")
