"""Whether steps wait for their data, and what a faster machine can gain then."""

from __future__ import annotations

from vmselect.diagnosis.base import (
    HARDLY,
    Causes,
    Diagnosis,
    busy_processors,
    count_cores,
    device,
    input_share,
    steady_mean,
    waits_for_input,
)
from vmselect.records import Profile

BUSY = 0.8
"""Share of a device's time from which it is what limits the steps."""

IDLE = 0.7
"""Share of the cores' time under which they wait for something else than themselves."""

ONE_CORE = 0.7
"""Work, in cores, from which it may be one core that prepares all the data: the others idle, and the wait is work."""


def find_input_bound(profile: Profile) -> Causes:
    """Steps that wait for data. The bound: were everything else free, the wait would be left."""
    share = input_share(profile)
    if share is None or not waits_for_input(profile):
        return
    gain, other = 1 / share, 1 / max(1e-3, 1 - share)
    busy = busy_processors(profile)
    # What does the computing may be what prepares the data: then a faster one shortens the wait as well.
    bound = ""
    if profile.environment.framework_gpus or _idle(profile):
        bound = f"a faster {device(profile)} gains at most {_times(gain)} here"
    gains = f"{bound}, faster input up to" if bound else "faster input gains up to"
    yield Diagnosis(
        "input-bound",
        f"The steps wait for their data {share:.0%} of the time: {gains} {_times(other)}.",
        _input_remedy(profile),
        "info",
        {"input_wait_share": share, "input_gain_at_most": other}
        | ({"device_gain_at_most": gain} if bound else {})
        | ({} if busy is None else busy.evidence),
        bound,
    )


def find_compute_bound(profile: Profile) -> Causes:
    """Steps that do not wait for data, on a device that is busy: the state that one pays for."""
    share = input_share(profile)
    if share is None or share >= HARDLY:
        return
    busy = _device_share(profile)
    if busy is None or busy < BUSY:
        return
    faster = device(profile)
    yield Diagnosis(
        "compute-bound",
        f"The steps wait for their data {share:.0%} of the time and the {faster} is {busy:.0%} busy: faster input "
        f"gains at most {_times(1 / (1 - share))} here.",
        f"Nothing is wrong: a faster {faster}, or more of them, is what makes this training faster.",
        "info",
        {"input_wait_share": share, "device_busy_share": busy, "input_gain_at_most": 1 / (1 - share)},
    )


def _idle(profile: Profile) -> bool:
    """Whether the processors are known to have time left, and not because one of them has all the work."""
    busy, used = busy_processors(profile), steady_mean(profile, "process_cores")
    return busy is not None and used is not None and busy.share < IDLE and used < ONE_CORE


def _input_remedy(profile: Profile) -> str:
    busy, used, cores = busy_processors(profile), steady_mean(profile, "process_cores"), count_cores(profile)
    if busy is None or used is None or cores is None:
        return "Read ahead and in parallel, or keep the data nearer to the machine."
    if busy.share >= IDLE:
        return (
            f"{busy.said} with preparing data: prepare it once and keep it, do less for each example, or {busy.more}."
        )
    if _idle(profile):
        return (
            f"{busy.said}, so the data come too slowly, not the work on them: read ahead and in parallel (prefetch, "
            "more workers), or keep the data nearer to the machine."
        )
    alone = ", as if one of them prepared all the data" if used < 2 * ONE_CORE else ""
    return (
        f"The training uses {used:.1f} of {cores:g} cores{alone}: prepare data on more of them (parallel calls, more "
        "workers) and ahead (prefetch), or once and for all."
    )


def _device_share(profile: Profile) -> float | None:
    if profile.environment.framework_gpus:
        from vmselect.diagnosis.gpus import busy_share

        return busy_share(profile)
    cores, used = count_cores(profile), steady_mean(profile, "process_cores")
    return None if not cores or used is None else min(1.0, used / cores)


def _times(factor: float) -> str:
    return f"{factor:.1f}x" if factor < 9.95 else f"{factor:.0f}x"
