"""What limits the speed of a training: first the numbers (a :class:`Cause`), then their sentences (a diagnosis).

Each ``_find_*`` function computes numbers from a profile, and the ``_describe_*`` function below
it makes a sentence from them. Code decides by ``cause.kind`` and ``cause.evidence``; diagnoses are
only for people. To add a cause, add its kind, both functions, and a line in ``FINDERS`` and
``DESCRIPTIONS``.

The thresholds for GPUs were chosen by judgment, not derived from measurements. Only GPUs that the framework uses are
checked.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, combinations
from typing import Literal, NamedTuple

from vmselect._checks import check_share, maybe, show, suggest_arguments
from vmselect.diagnosis.gpu_types import names_gpu
from vmselect.errors import ArgumentError
from vmselect.findings import Finding
from vmselect.records import Profile
from vmselect.units import format_bytes, format_seconds, list_all

MIN_SAMPLED_SECONDS = 0.5
"""Minimum time in seconds that the samples of a usage quantity must cover; otherwise the quantity is ignored."""

INPUT_BOUND = 0.3
"""Minimum share of the step time spent waiting for data for steps to count as input-bound. Faster input then speeds up
the steps by up to 1.4x, about the speed-up that justifies the price of the next larger machine."""

NEGLIGIBLE_WAIT = 0.1
"""Share of the step time spent waiting for data below which removing the wait speeds up the steps by at most 1.1x."""

GPU_IDLE = 0.5
GPU_MEMORY_FULL = 0.92
GPU_MEMORY_EMPTY = 0.4
GPU_THROTTLED = 0.1
"""Minimum share of samples with reduced GPU clocks for throttling to be reported."""

DEVICE_BUSY = 0.8
"""Utilization of the GPU or CPU above which it limits the speed of the steps."""

CPU_IDLE = 0.7
"""CPU utilization below which the CPU does not limit the input pipeline."""

ONE_CORE = 0.7
"""Number of busy CPU cores above which a single core may be preparing all the data while the other cores are idle."""

CPU_SATURATED = 0.9
CPU_CONTENDED = 0.85
"""CPU utilization above which no cores are free, so that other programs slow down the training."""

OTHER_PROGRAMS = 0.15
"""Share of the usable cores above which other programs are reported. Ending them speeds up a training by up to 1.2x."""

STEAL = 0.05
CPU_THROTTLED = 0.05
"""Shares of CPU time lost to the host or to a quota above which they are reported. They are low, because no change on
the machine can regain this time."""

QUOTA_USED = 0.9
SWAP_BYTES_PER_SECOND = 2**20
MIN_FREE_MEMORY = 0.05
CONTAINER_MEMORY_FULL = 0.95
MEMORY_PRESSURE = 0.05
IO_PRESSURE = 0.15
"""Share of the time in which a program waited for a disk above which it is reported. Without this wait, a training is
up to 1.2x as fast."""

PAUSE_SHARE = 0.1
PAUSE_SECONDS = 0.3
"""A pause between epochs is reported if it is at least ``PAUSE_SHARE`` of the epoch time and ``PAUSE_SECONDS``."""

FIRST_STEP_RATIO, FIRST_STEP_SECONDS = 10.0, 10.0
"""The first step is reported if it takes so many times a usual step, and so many seconds more. Chosen by judgement: the
first steps in the dissertation took 3 to 23 s, and those of 20 s decided its ranking of short trainings."""
MOSTLY_BUILT = 0.5
"""Share of the first step that is traced and compiled above which only that is worth a remedy. Chosen by judgement."""
BUILD_REMEDIES = {
    "tracing": "Trace less if it matters: a loop in Python is traced turn by turn, one in the framework (scan) once.",
    "compiling": "If you train often, cache compiled code (JAX_COMPILATION_CACHE_DIR, TORCHINDUCTOR_CACHE_DIR).",
}
FIRST_STEP_GPU = 0.3
"""Utilization of a GPU above which it worked in the first step instead of waiting for the CPU. Chosen by judgement."""

MIN_EPOCHS = 4
GROWTH = 0.2
AGREEMENT = 0.7
"""Epoch times increase if the last epoch is longer than the second by the share ``GROWTH``, and Kendall's tau of the
epoch times is at least ``AGREEMENT``."""
MAX_COMPARED = 200
"""Number of epochs of a long training that are compared with each other."""


Kind = Literal[
    "throttled-by-heat", "throttled-by-power", "throttled-by-hardware", "swapping", "memory-full",
    "container-memory-full", "steal", "other-programs", "slowing-down", "cpu-quota", "cpu-affinity", "input-bound",
    "cpu-saturated", "underfed-gpu", "gpu-memory-full", "gpu-memory-empty", "disk-busy", "slow-boundaries",
    "slow-first-step", "compute-bound", "unused-gpu", "gpu-not-visible",
]  # fmt: skip
"""The kinds of causes."""

Evidence = Mapping[str, float]
"""Names of quantities, including their units, and their values."""


@dataclass(frozen=True)
class Cause:
    """Something that limits the speed of a training, with the quantities that show it."""

    kind: Kind
    evidence: Evidence


@dataclass(frozen=True)
class Diagnosis(Finding):
    """A finding about what limits the speed of a training.

    ``evidence`` maps the names of the quantities that support the finding, including their units, to their values.
    ``bound`` is a phrase with the largest possible speed-up, empty if unknown. Rankings show it beside the machine.
    """

    evidence: Evidence = field(default_factory=dict, hash=False, compare=False)
    bound: str = ""


Causes = Iterator[Cause]


@suggest_arguments()
def diagnose(profile: Profile, *, cpu_threshold: float | None = None) -> tuple[Diagnosis, ...]:
    """Diagnoses of what limits the speed of the training, with evidence and remedy; warnings first.

    Quantities that were not sampled, or not long enough, give no diagnosis. ``cpu_threshold`` is the CPU utilization
    above which the CPU counts as saturated. If it is None, the threshold is 0.9, and saturation is diagnosed only if
    the training runs on a GPU or its steps wait for data: a CPU that computes the steps itself should be busy.

    >>> import vmselect as vs
    >>> profile = vs.Profile.from_times(instance_type="g4dn.xlarge", first_epoch_seconds=40,
    ...     later_epoch_seconds=[30, 33, 36, 40])
    >>> [diagnosis.code for diagnosis in diagnose(profile)]
    ['slowing-down']
    """
    if not isinstance(profile, Profile):
        raise ArgumentError(
            f"profile must be a vmselect.Profile, not {show(profile)}. Load profiles with vmselect.load_profiles."
        )
    causes = find_causes(profile, cpu_threshold=maybe(check_share, "cpu_threshold", cpu_threshold))
    return describe_causes(profile, causes)


def find_causes(profile: Profile, *, cpu_threshold: float | None = None) -> tuple[Cause, ...]:
    """All causes that the profile shows, including ``compute-bound``, the desired state."""
    saturation = partial(_find_cpu_saturation, threshold=cpu_threshold)
    finders = (saturation if find is _find_cpu_saturation else find for find in FINDERS)
    return tuple(cause for find in finders for cause in find(profile))


def describe_causes(profile: Profile, causes: Iterable[Cause]) -> tuple[Diagnosis, ...]:
    """The diagnoses of ``causes``, which were found in ``profile``; warnings first."""
    diagnoses = (DESCRIPTIONS[cause.kind](profile, cause) for cause in causes)
    return tuple(sorted(diagnoses, key=lambda diagnosis: diagnosis.severity != "warning"))


def find_unused_gpu(profile: Profile, *, gpus_of_type: float | None = None) -> Cause | None:
    """The cause that a training used no GPU although its machine has one; None if it used one or there is none.

    The driver shows GPUs, or the machine type has them: ``gpus_of_type`` is their number in the price catalog. Without
    it the name of the type has to tell, as in records that are examined without prices.
    """
    seen = profile.environment
    if seen.framework_gpus != 0:
        return None
    if seen.gpus:
        return Cause("unused-gpu", {"gpus": float(len(seen.gpus)), "framework_gpus": 0.0})
    if gpus_of_type if gpus_of_type is not None else names_gpu(profile.instance_type or ""):
        return Cause("gpu-not-visible", {"gpus": 0.0, "framework_gpus": 0.0})
    return None


def find_host_limit(profile: Profile) -> Cause | None:
    """The cause that limits the steps if it is the input or the CPU instead of the GPU; None if it is not."""
    # Only these two checks, because predictions ask for every record of a history.
    return next(chain(_find_input_bound(profile), _find_cpu_saturation(profile)), None)


def _find_unused_gpu(profile: Profile) -> Causes:
    cause = find_unused_gpu(profile)
    if cause is not None:
        yield cause


def _describe_unused_gpu(profile: Profile, cause: Cause) -> Diagnosis:
    seen = profile.environment.gpus
    fact = f"The machine has {len(seen)} x {seen[0].name}" if seen else f"{profile.instance_type} has a GPU"
    where = "uses no GPU" if seen else f"saw none: this was no {profile.instance_type}, or its driver is missing"
    remedy = "Install the GPU driver and the framework's GPU build, then probe again."
    return Diagnosis(
        "unused-gpu",
        f"{fact}, but the framework {where}. The step times are those of a CPU, and rankings do not use them.",
        remedy if seen else f"Run the probe on the rented machine. There: {remedy[0].lower()}{remedy[1:]}",
        "warning",
        cause.evidence,
    )


def _find_input_bound(profile: Profile) -> Causes:
    share = _input_share(profile)
    if share is None or share < INPUT_BOUND:
        return
    evidence = {"input_wait_share": share, "input_gain_at_most": 1 / max(1e-3, 1 - share)}
    # A CPU that computes the steps may also prepare the data: then a faster CPU shortens the wait as well.
    if profile.environment.framework_gpus or _processors_idle(profile):
        evidence["device_gain_at_most"] = 1 / share
    cpu = _cpu_use(profile)
    yield Cause("input-bound", evidence if cpu is None else evidence | cpu.evidence)


def _describe_input_bound(profile: Profile, cause: Cause) -> Diagnosis:
    share, input_gain = cause.evidence["input_wait_share"], cause.evidence["input_gain_at_most"]
    gain = cause.evidence.get("device_gain_at_most")
    bound = "" if gain is None else f"a faster {_device(profile)} gains at most {_format_gain(gain)} here"
    gains = f"{bound}, faster input up to" if bound else "faster input gains up to"
    return Diagnosis(
        "input-bound",
        f"The steps wait for data {share:.0%} of the time: {gains} {_format_gain(input_gain)}.",
        _input_remedy(profile),
        "info",
        cause.evidence,
        bound,
    )


def _input_remedy(profile: Profile) -> str:
    cpu, used, cores = _cpu_use(profile), _steady_mean(profile, "process_cores"), _count_cores(profile)
    if cpu is None or used is None or cores is None:
        return "Prefetch batches, read files in parallel, or store the data closer (local disk, same region)."
    if cpu.share >= CPU_IDLE:
        return f"{cpu.text} preparing data: store preprocessed data, simplify the preprocessing, or {cpu.more}."
    if _processors_idle(profile):
        return f"{cpu.text}, so reading is slow: prefetch, use more workers, or store the data closer (local disk)."
    alone = ", as if a single core prepared all the data" if used < 2 * ONE_CORE else ""
    return (
        f"The training uses {used:.1f} of {cores:g} CPU cores{alone}: preprocess data on more cores (parallel map "
        "calls, more workers), prefetch batches, or store preprocessed data."
    )


def _processors_idle(profile: Profile) -> bool:
    """Whether the CPU is mostly idle, and not because a single core prepares all the data."""
    cpu, used = _cpu_use(profile), _steady_mean(profile, "process_cores")
    return cpu is not None and used is not None and cpu.share < CPU_IDLE and used < ONE_CORE


def _device(profile: Profile) -> str:
    return "GPU" if profile.environment.framework_gpus else "CPU"


def _format_gain(factor: float) -> str:
    return f"{factor:.1f}x" if factor < 9.95 else f"{factor:.0f}x"


def _find_compute_bound(profile: Profile) -> Causes:
    share, busy = _input_share(profile), _gpu_share(profile)
    cores, used = _count_cores(profile), _steady_mean(profile, "process_cores")
    # Without a GPU, the CPU is the device that computes the steps.
    if not profile.environment.framework_gpus and cores and used is not None:
        busy = min(1.0, used / cores)
    if share is None or share >= NEGLIGIBLE_WAIT or busy is None or busy < DEVICE_BUSY:
        return
    evidence = {"input_wait_share": share, "device_busy_share": busy, "input_gain_at_most": 1 / (1 - share)}
    yield Cause("compute-bound", evidence)


def _describe_compute_bound(profile: Profile, cause: Cause) -> Diagnosis:
    share, busy, gain = cause.evidence.values()
    device = _device(profile)
    return Diagnosis(
        "compute-bound",
        f"The steps wait for data {share:.0%} of the time and the {device} is {busy:.0%} busy: faster input "
        f"gains at most {_format_gain(gain)} here.",
        f"Nothing needs to be changed. To train faster, use a faster {device}, or several machines or GPUs.",
        "info",
        cause.evidence,
    )


def _find_underfed_gpu(profile: Profile) -> Causes:
    busy, share = _gpu_share(profile), _input_share(profile)
    # A GPU that waits for data is idle too, so the wait must be known to be small.
    if busy is None or busy >= GPU_IDLE or share is None or share >= NEGLIGIBLE_WAIT:
        return
    evidence = {"gpu_busy_share": busy, "gpus": float(len(_used_gpus(profile))), "input_wait_share": share}
    yield Cause("underfed-gpu", evidence)


def _describe_underfed_gpu(profile: Profile, cause: Cause) -> Diagnosis:
    busy, gpus, share = cause.evidence.values()
    subject = "The GPU is" if gpus == 1 else f"The {gpus:g} GPUs are"
    batch = "" if profile.batch_size is None else f" with {profile.batch_size / gpus:g} examples per GPU and step"
    return Diagnosis(
        "underfed-gpu",
        f"{subject} {busy:.0%} busy{batch}, although steps wait for data only {share:.0%} of the time.",
        "Use a larger batch size, several steps per execution or compiled steps, or rent a smaller GPU.",
        "info",
        cause.evidence,
    )


def _find_gpu_memory(profile: Profile) -> Causes:
    whole = profile.environment.smallest_gpu_bytes
    peak = profile.environment.peak_gpu_memory_bytes
    if not profile.environment.framework_gpus or not whole or not peak:
        return
    evidence = {"peak_gpu_memory_bytes": float(peak), "gpu_memory_bytes": float(whole)}
    if peak / whole >= GPU_MEMORY_FULL:
        yield Cause("gpu-memory-full", evidence)
    elif peak / whole <= GPU_MEMORY_EMPTY:
        # How memory grows with the batch size is known only if its constant part was measured.
        yield Cause("gpu-memory-empty", evidence)


def _describe_gpu_memory(profile: Profile, cause: Cause) -> Diagnosis:
    peak, whole = (cause.evidence[name] for name in ("peak_gpu_memory_bytes", "gpu_memory_bytes"))
    of_all = f"{format_bytes(int(peak))} of the GPU's {format_bytes(int(whole))} at its peak ({peak / whole:.0%})"
    remedy = "Try a larger batch size (vmselect estimate --memory shows what fits), or rent a GPU with less memory."
    if cause.kind == "gpu-memory-full":
        remedy = "To make room for a larger batch, use mixed precision or a GPU with more memory."
    return Diagnosis(cause.kind, f"The training uses {of_all}.", remedy, "info", cause.evidence)


def _find_gpu_throttling(profile: Profile) -> Causes:
    kinds: Mapping[str, Kind] = {
        "heat": "throttled-by-heat", "power": "throttled-by-power", "hardware": "throttled-by-hardware",
    }  # fmt: skip
    for reason, kind in kinds.items():
        names = [f"gpu{gpu}_throttled_by_{reason}_share" for gpu in _used_gpus(profile)]
        shares = {name: _steady_mean(profile, name) for name in names}
        slowed = {name: share for name, share in shares.items() if share is not None and share >= GPU_THROTTLED}
        if slowed:
            yield Cause(kind, slowed)


def _describe_gpu_throttling(profile: Profile, cause: Cause) -> Diagnosis:
    cooling, power = "Improve the cooling, or use another machine", "Raise the GPU's power limit if permitted"
    why, remedy = {
        "throttled-by-heat": ("because of heat", f"{cooling}: step times vary with the temperature."),
        "throttled-by-power": (
            "by its power limit", f"{power}: otherwise the measured step times are typical of this machine.",
        ),
        "throttled-by-hardware": (
            "by its hardware, because of heat or power,", f"{cooling} with a better power supply.",
        ),
    }[cause.kind]  # fmt: skip
    worst = max(cause.evidence, key=lambda name: cause.evidence[name])
    gpu = worst.removeprefix("gpu").partition("_")[0]
    celsius = _steady_mean(profile, f"gpu{gpu}_temperature_celsius")
    hot = cause.kind != "throttled-by-power" and celsius is not None
    at = f" at a mean of {celsius:.0f} degrees Celsius" if hot else ""
    count = len(cause.evidence)
    several = f"; {count} GPUs were slowed down in all" if count > 1 else ""
    return Diagnosis(
        "throttled",
        f"GPU {gpu} was slowed down {why} in {cause.evidence[worst]:.0%} of the samples{at}{several}.",
        remedy,
        "warning",
        cause.evidence,
    )


def _used_gpus(profile: Profile) -> list[int]:
    """Indices of the GPUs in use: the busiest GPUs of the machine, as many as the framework uses."""
    count = profile.environment.framework_gpus
    if not count or profile.usage is None:
        return []
    # Samples do not tell which GPUs the framework chose, and other programs may use the rest.
    names = filter(None, (re.fullmatch(r"gpu(\d+)_busy_share", name) for name in profile.usage.quantities()))
    busy = {int(name[1]): share for name in names if (share := _steady_mean(profile, name[0])) is not None}
    return sorted(sorted(busy, key=lambda gpu: -busy[gpu])[:count])


def _gpu_share(profile: Profile) -> float | None:
    shares = [_steady_mean(profile, f"gpu{gpu}_busy_share") or 0.0 for gpu in _used_gpus(profile)]
    return sum(shares) / len(shares) if shares else None


def _find_cpu_saturation(profile: Profile, threshold: float | None = None) -> Causes:
    cpu = _cpu_use(profile)
    if cpu is None or cpu.share <= (CPU_SATURATED if threshold is None else threshold):
        return
    waits = (_input_share(profile) or 0.0) >= INPUT_BOUND
    # A CPU that computes the steps itself should be busy, unless the user asks with an own threshold.
    if threshold is None and not profile.environment.framework_gpus and not waits:
        return
    yield Cause("cpu-saturated", cpu.evidence)


def _describe_cpu_saturation(profile: Profile, cause: Cause) -> Diagnosis:
    cpu = _cpu_use(profile)
    assert cpu is not None
    remedy = f"{cpu.more.capitalize()}, store preprocessed data, or end other programs."
    return Diagnosis("cpu-saturated", f"{cpu.text} during steady steps.", remedy, "info", cause.evidence)


def _find_cpu_limit(profile: Profile) -> Causes:
    cores, used = _count_cores(profile), _steady_mean(profile, "process_cores")
    throttled = _steady_mean(profile, "container_throttled_share")
    limit = profile.usage.limits.container_cores if profile.usage else None
    all_cores = profile.environment.cpu_cores
    # Throttled periods prove that the quota was too small; a full use of few cores may be intended.
    if throttled is not None and limit is not None and throttled >= CPU_THROTTLED:
        yield Cause("cpu-quota", {"container_cores": limit, "container_throttled_share": throttled})
    elif cores and used is not None and all_cores and cores < all_cores and used >= QUOTA_USED * cores:
        evidence = {"usable_cores": float(cores), "cpu_cores": float(all_cores), "process_cores": used}
        yield Cause("cpu-affinity", evidence)


def _describe_cpu_quota(profile: Profile, cause: Cause) -> Diagnosis:
    limit, throttled = cause.evidence.values()
    return Diagnosis(
        "cpu-limited",
        f"The container may use {limit:g} CPU cores and was throttled in {throttled:.0%} of the scheduler periods.",
        "Give the container more CPU cores, or measure without the container's CPU limit.",
        "warning",
        cause.evidence,
    )


def _describe_cpu_affinity(profile: Profile, cause: Cause) -> Diagnosis:
    cores, all_cores, used = cause.evidence.values()
    return Diagnosis(
        "cpu-limited",
        f"The training was limited to {cores:g} of {all_cores:g} CPU cores and kept them {used / cores:.0%} busy.",
        "Allow all cores (taskset, batch system, container). Otherwise, the time is that of a machine with "
        f"{cores:g} cores, so use the price of such a machine.",
        "info",
        cause.evidence,
    )


def _find_neighbors(profile: Profile) -> Causes:
    steal = _steady_mean(profile, "steal_share")
    if steal is not None and steal >= STEAL:
        yield Cause("steal", {"steal_share": steal})
    cores, others = _usable_cores(profile), _steady_mean(profile, "other_cores")
    busy = _steady_mean(profile, "usable_cpu_share")
    if cores and others is not None and busy is not None and _is_crowded(profile, others, busy * cores):
        evidence = {"other_cores": others, "usable_cores": float(cores), "usable_cpu_share": busy}
        pressure = _steady_mean(profile, "cpu_pressure_share")
        yield Cause("other-programs", evidence | ({} if pressure is None else {"cpu_pressure_share": pressure}))


def _describe_steal(profile: Profile, cause: Cause) -> Diagnosis:
    return Diagnosis(
        "noisy-neighbour",
        f"The host gave {cause.evidence['steal_share']:.0%} of the CPU time to other virtual machines (steal time).",
        "Probe again at another time or on another machine of this type, or use a dedicated host.",
        "warning",
        cause.evidence,
    )


def _describe_other_programs(profile: Profile, cause: Cause) -> Diagnosis:
    others, cores, busy = (cause.evidence[name] for name in ("other_cores", "usable_cores", "usable_cpu_share"))
    return Diagnosis(
        "noisy-neighbour",
        f"Other programs took {others / cores:.0%} of the {cores:g} CPU core{'s' * (cores != 1)} that the "
        f"training may use, at a total utilization of {busy:.0%}.",
        "End the other programs, then probe again.",
        "warning",
        cause.evidence,
    )


_LESS_MEMORY = "Use less memory (smaller batch, less prefetching, fewer programs), or a machine with more memory."


def _find_swapping(profile: Profile) -> Causes:
    rate = _steady_mean(profile, "swap_bytes_per_second")
    if rate is not None and rate >= SWAP_BYTES_PER_SECOND:
        yield Cause("swapping", {"swap_bytes_per_second": rate})


def _describe_swapping(profile: Profile, cause: Cause) -> Diagnosis:
    rate = format_bytes(int(cause.evidence["swap_bytes_per_second"]))
    message = f"The machine swapped {rate} per second to or from disk during steady steps."
    return Diagnosis("swapping", message, _LESS_MEMORY, "warning", cause.evidence)


def _find_full_memory(profile: Profile) -> Causes:
    free = _steady_mean(profile, "memory_available_share")
    used = _steady_mean(profile, "container_memory_share")
    pressure = _steady_mean(profile, "memory_pressure_share") or 0.0
    if free is not None and free < MIN_FREE_MEMORY:
        yield Cause("memory-full", {"memory_pressure_share": pressure, "memory_available_share": free})
    # The memory of a container includes cached files, which can be dropped. Pressure shows that memory is short.
    elif used is not None and used > CONTAINER_MEMORY_FULL and pressure >= MEMORY_PRESSURE:
        yield Cause("container-memory-full", {"memory_pressure_share": pressure, "container_memory_share": used})


def _describe_full_memory(profile: Profile, cause: Cause) -> Diagnosis:
    pressure, share = cause.evidence.values()
    message = f"Only {share:.0%} of the machine's memory was free during steady steps."
    if cause.kind == "container-memory-full":
        waited = f"programs waited for memory {pressure:.0%} of the time"
        message = f"The container used {share:.0%} of its memory, and {waited}."
    return Diagnosis("memory-full", message, _LESS_MEMORY, "warning", cause.evidence)


def _find_busy_disk(profile: Profile) -> Causes:
    pressure = _steady_mean(profile, "io_pressure_share")
    if pressure is None or pressure < IO_PRESSURE:
        return
    own, rate = (
        sum(_steady_mean(profile, f"{owner}_{way}_bytes_per_second") or 0.0 for way in ("read", "write"))
        for owner in ("process", "disk")
    )
    evidence = {"io_pressure_share": pressure, "disk_bytes_per_second": rate, "process_bytes_per_second": own}
    yield Cause("disk-busy", evidence)


def _describe_busy_disk(profile: Profile, cause: Cause) -> Diagnosis:
    pressure, rate, own = cause.evidence.values()
    # Pressure counts the whole machine, so the bytes decide who causes it.
    part, remedy = "little", "End other programs that use the disk, then probe again."
    if rate > 0 and own >= rate / 2:
        part = "most"
        remedy = "Read and write less in steps (cache data, save checkpoints rarely), or use a faster disk."
    return Diagnosis(
        "disk-busy",
        f"Programs waited for the disk {pressure:.0%} of the time during steady steps. The disk moved "
        f"{format_bytes(int(rate))} per second, {part} of it for this training.",
        remedy,
        "info",
        cause.evidence,
    )


def _find_pauses(profile: Profile) -> Causes:
    timeline, boundaries = profile.timeline, profile.timeline.boundaries
    between = [boundary.seconds for boundary in boundaries if not boundary.final]
    whole = [epoch.seconds for epoch in timeline.epochs if epoch.complete]
    steady, steps = timeline.steps.steady_seconds, profile.steps_per_epoch
    if not between or not (whole or (steady and steps is not None)):
        return
    # Steps tell the length of an epoch better than epochs that a probe ended early.
    epoch = statistics.median(steady) * steps if steady and steps is not None else statistics.median(whole)
    if validations := [validation.seconds for validation in timeline.whole_validations]:
        epoch += statistics.median(validations)
    pause = statistics.median(between)
    if len(between) == 1:
        # Work that happens once, such as the first saving of a model, is not a pause of every epoch.
        pause = min(boundary.seconds for boundary in boundaries)
    share = pause / (epoch + pause) if epoch + pause > 0 else 0.0
    if share >= PAUSE_SHARE and pause >= PAUSE_SECONDS:
        evidence = {"boundary_seconds": pause, "epoch_seconds": epoch, "boundary_share": share}
        yield Cause("slow-boundaries", evidence)


def _describe_pauses(profile: Profile, cause: Cause) -> Diagnosis:
    pause, _, share = cause.evidence.values()
    return Diagnosis(
        "slow-boundaries",
        f"The training pauses for {format_seconds(pause)} between two epochs, {share:.0%} of the time of an epoch.",
        "Reduce the work of callbacks at the end of an epoch. With tf.data, disable autotuning "
        "(options.autotune.enabled = False).",
        "info",
        cause.evidence,
    )


def _find_growth(profile: Profile) -> Causes:
    # The first epoch compiles, so it is no part of a trend.
    seconds = [epoch.seconds for epoch in profile.timeline.epochs if epoch.complete][1:]
    if len(seconds) < MIN_EPOCHS - 1:
        return
    growth = seconds[-1] / seconds[0] - 1 if seconds[0] > 0 else 0.0
    if growth < GROWTH:
        return
    count = min(len(seconds), MAX_COMPARED)
    chosen = [seconds[(len(seconds) - 1) * number // (count - 1)] for number in range(count)]
    pairs = list(combinations(chosen, 2))
    agreement = sum((later > earlier) - (later < earlier) for earlier, later in pairs) / len(pairs)
    if agreement >= AGREEMENT:
        evidence = {"second_epoch_seconds": seconds[0], "last_epoch_seconds": seconds[-1], "growth_share": growth}
        yield Cause("slowing-down", evidence)


def _describe_growth(profile: Profile, cause: Cause) -> Diagnosis:
    second, last, growth = cause.evidence.values()
    count = profile.timeline.complete_epochs
    return Diagnosis(
        "slowing-down",
        f"Epoch times keep increasing: the second epoch took {format_seconds(second)}, the last of {count} epochs "
        f"{format_seconds(last)}, {growth:.0%} more.",
        "Find the data, logs or memory that grow during the training. An estimate from early epochs is too low.",
        "warning",
        cause.evidence,
    )


def _input_share(profile: Profile) -> float | None:
    wait = profile.timeline.input_wait
    return None if wait is None or not wait.wall_seconds else wait.share


def _find_slow_first_step(profile: Profile) -> Causes:
    first = [step.each for step in profile.timeline.steps.labelled("first")]
    steady = profile.timeline.steps.steady_seconds
    if not first or not steady:
        return
    usual = statistics.median(steady)
    if first[0] < FIRST_STEP_RATIO * usual or first[0] - usual < FIRST_STEP_SECONDS:
        return
    evidence = {"first_step_seconds": first[0], "step_seconds": usual}
    if profile.timeline.fit_to_first_batch_seconds is not None:
        evidence["before_first_step_seconds"] = profile.timeline.fit_to_first_batch_seconds
    if (timed := profile.timeline.first_step) is not None:
        for name in ("tracing_seconds", "compiling_seconds", "autotuning_seconds"):
            if (seconds := getattr(timed, name)) is not None:
                evidence[name] = seconds
    sampled = profile.usage.phases.get("first_step", {}) if profile.usage else {}
    for name in ("process_cores", "io_pressure_share"):
        if name in sampled:
            evidence[name] = sampled[name].mean
    others = sampled["other_cores"].mean if "other_cores" in sampled else 0.0
    if _is_crowded(profile, others, others + evidence.get("process_cores", 0.0)):
        evidence["other_cores"] = others
    busy = [s.mean for name, s in sampled.items() if re.fullmatch(r"gpu\d+_busy_share", name)]
    if busy and profile.environment.framework_gpus:
        evidence["gpu_busy_share"] = max(busy)
    memory = [s.maximum for name, s in sampled.items() if re.fullmatch(r"gpu\d+_memory_used_bytes", name)]
    if memory:
        evidence["gpu_memory_bytes"] = max(memory)
    yield Cause("slow-first-step", evidence)


def _describe_slow_first_step(profile: Profile, cause: Cause) -> Diagnosis:
    evidence = cause.evidence
    first_seconds, timed = evidence["first_step_seconds"], profile.timeline.first_step
    why, remedy = _explain_by_samples(evidence)
    if timed is not None and timed.seconds:
        parts = {"tracing": timed.tracing_seconds, "compiling": timed.compiling_seconds}
        shown = [f"{format_seconds(seconds)} of {name}" for name, seconds in parts.items() if seconds]
        if timed.autotuning_seconds:
            shown[-1] += f" ({format_seconds(timed.autotuning_seconds)} of it autotuning)"
        more = "compilation, " if timed.compiling_seconds is None else ""
        shown.append(f"{format_seconds(max(0.0, first_seconds - timed.seconds))} of {more}allocation and execution")
        why = f"{list_all(shown)}, by {timed.method}; over all, {why}"
        largest, part = max((seconds or 0.0, name) for name, seconds in parts.items())
        remedy = BUILD_REMEDIES[part] if largest >= MOSTLY_BUILT * first_seconds else remedy
    before = evidence.get("before_first_step_seconds")
    fetched = f", after {format_seconds(before)} of preparing input and model" if before is not None else ""
    usual, first = format_seconds(evidence["step_seconds"]), format_seconds(first_seconds)
    message = f"The first step took {first} instead of {usual}{fetched}: {why}."
    return Diagnosis("slow-first-step", message, remedy, "info", evidence)


def _explain_by_samples(evidence: Mapping[str, float]) -> tuple[str, str]:
    """What was busy in the first step, and what to do about it."""
    cores, gpu, disk = (evidence.get(name) for name in ("process_cores", "gpu_busy_share", "io_pressure_share"))
    if disk is not None and disk >= IO_PRESSURE:
        why = f"it waited for a disk {disk:.0%} of the time, as when data and libraries are read for the first time"
        return why, "Store data and environment on a faster disk, or read them once before the training."
    if gpu is not None and gpu >= FIRST_STEP_GPU:
        why = f"the GPU was {gpu:.0%} busy, as when it tries algorithms (autotuning) or fills its memory"
        remedy = "Limit autotuning (torch.backends.cudnn.benchmark, XLA_FLAGS=--xla_gpu_autotune_level) if it matters."
        return why, remedy
    if cores is not None and cores >= ONE_CORE:
        why = f"the training used {cores:.1f} CPU cores, as when a graph is traced and compiled"
        return why, BUILD_REMEDIES["compiling"]
    if cores is not None and (others := evidence.get("other_cores")) is not None:
        why = f"the training used only {cores:.1f} CPU cores and other programs {others:.1f}: it waited for a core"
        return why, "End the other programs, then probe again."
    if cores is not None:
        why = f"the training used only {cores:.1f} CPU cores: it waited, as for the first data or for other workers"
        return why, "Look at where the first batch comes from."
    return "what it did was not sampled", "Probe with sampling (the default) to see what the first step does."


def _steady_mean(profile: Profile, quantity: str) -> float | None:
    """Mean of a usage quantity over the steady steps; None if it was not sampled, or too briefly."""
    summary = None if profile.usage is None else profile.usage.summary(quantity)
    return None if summary is None or summary.seconds < MIN_SAMPLED_SECONDS else summary.mean


def _usable_cores(profile: Profile) -> int | None:
    """Number of CPU cores that the process may run on, or None if unknown."""
    limit = profile.usage.limits.cores if profile.usage else None
    return limit or profile.environment.usable_cores or profile.environment.cpu_cores


def _is_crowded(profile: Profile, others: float, busy: float) -> bool:
    """Whether other programs slow down the training: they use ``others`` of the ``busy`` CPU cores, and none is free.

    Other workers of the same training are no other programs.
    """
    cores = _usable_cores(profile)
    if not cores or profile.environment.workers > 1:
        return False
    return busy >= CPU_CONTENDED * cores and others >= OTHER_PROGRAMS * cores


def _container_cores(profile: Profile) -> float | None:
    """CPU quota of the container in cores, or None if it does not restrict the usable cores."""
    limit, cores = None if profile.usage is None else profile.usage.limits.container_cores, _usable_cores(profile)
    return limit if limit is not None and (cores is None or limit < cores) else None


def _count_cores(profile: Profile) -> float | None:
    """Number of CPU cores that the process can keep busy at once: the container's quota or the usable cores."""
    return _container_cores(profile) or _usable_cores(profile)


class _CpuUse(NamedTuple):
    """CPU utilization during steady steps (``share``, and as ``text``), evidence, and how to get ``more`` cores."""

    share: float
    text: str
    evidence: dict[str, float]
    more: str


def _cpu_use(profile: Profile) -> _CpuUse | None:
    """CPU utilization of the cores that the process may use; None if it was not sampled.

    If the container has a lower CPU quota, it is the utilization of the quota, which can be used up while most cores
    are idle.
    """
    limit, used = _container_cores(profile), _steady_mean(profile, "process_cores")
    if limit is not None and used is not None:
        share = min(1.0, used / limit)
        text = f"The container's {limit:g} CPU core{' is' if limit == 1 else 's are'} {share:.0%} busy"
        return _CpuUse(share, text, {"process_cores": used, "container_cores": limit}, "give the container more cores")
    seen = _steady_mean(profile, "usable_cpu_share")
    # The share of all usable cores says nothing about a smaller quota.
    if limit is not None or seen is None:
        return None
    text = f"The CPU is {seen:.0%} busy"
    return _CpuUse(seen, text, {"usable_cpu_share": seen}, "use a machine with more CPU cores")


FINDERS: tuple[Callable[[Profile], Causes], ...] = (
    _find_unused_gpu,
    _find_gpu_throttling,
    _find_swapping,
    _find_full_memory,
    _find_neighbors,
    _find_growth,
    _find_cpu_limit,
    _find_input_bound,
    _find_cpu_saturation,
    _find_underfed_gpu,
    _find_gpu_memory,
    _find_busy_disk,
    _find_pauses,
    _find_slow_first_step,
    _find_compute_bound,
)
"""Functions that find causes, in the order in which their diagnoses are shown."""

DESCRIPTIONS: Mapping[Kind, Callable[[Profile, Cause], Diagnosis]] = {
    "unused-gpu": _describe_unused_gpu,
    "gpu-not-visible": _describe_unused_gpu,
    "throttled-by-heat": _describe_gpu_throttling,
    "throttled-by-power": _describe_gpu_throttling,
    "throttled-by-hardware": _describe_gpu_throttling,
    "swapping": _describe_swapping,
    "memory-full": _describe_full_memory,
    "container-memory-full": _describe_full_memory,
    "steal": _describe_steal,
    "other-programs": _describe_other_programs,
    "slowing-down": _describe_growth,
    "cpu-quota": _describe_cpu_quota,
    "cpu-affinity": _describe_cpu_affinity,
    "input-bound": _describe_input_bound,
    "cpu-saturated": _describe_cpu_saturation,
    "underfed-gpu": _describe_underfed_gpu,
    "gpu-memory-full": _describe_gpu_memory,
    "gpu-memory-empty": _describe_gpu_memory,
    "disk-busy": _describe_busy_disk,
    "slow-boundaries": _describe_pauses,
    "slow-first-step": _describe_slow_first_step,
    "compute-bound": _describe_compute_bound,
}
"""Functions that describe causes, by kind."""
