"""Whether steps wait for their data, and what a faster machine can gain then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmselect.diagnosis.base import (
    HARDLY,
    Causes,
    Diagnosis,
    count_cores,
    device,
    input_share,
    steady_mean,
    waits_for_input,
)

if TYPE_CHECKING:
    from vmselect.records import Profile

BUSY = 0.8
"""Share of a device's time from which it is what limits the steps."""

IDLE = 0.7
"""Share of the cores' time under which they wait for something else than themselves."""


def find_input_bound(profile: Profile) -> Causes:
    """Steps that wait for data. The bound: were everything else free, the wait would be left."""
    share = input_share(profile)
    if share is None or not waits_for_input(profile):
        return
    gain, other = 1 / share, 1 / max(1e-3, 1 - share)
    busy = steady_mean(profile, "usable_cpu_share")
    bound = f"a faster {device(profile)} gains at most {_times(gain)} here"
    yield Diagnosis(
        "input-bound",
        f"The steps wait for their data {share:.0%} of the time: {bound}, faster input up to {_times(other)}.",
        _input_remedy(busy),
        "note",
        {"input_wait_share": share, "device_gain_at_most": gain, "input_gain_at_most": other}
        | ({} if busy is None else {"usable_cpu_share": busy}),
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
        "note",
        {"input_wait_share": share, "device_busy_share": busy, "input_gain_at_most": 1 / (1 - share)},
    )


def _input_remedy(busy: float | None) -> str:
    if busy is None:
        return "Read ahead and in parallel, or keep the data nearer to the machine."
    if busy < IDLE:
        return (
            f"The processors are {busy:.0%} busy, so the data come too slowly, not the work on them: read ahead and in "
            "parallel (prefetch, more workers), or keep the data nearer to the machine."
        )
    return (
        f"The processors are {busy:.0%} busy with preparing data: prepare it once and keep it, do less for each "
        "example, or take a machine with more cores."
    )


def _device_share(profile: Profile) -> float | None:
    if profile.environment.framework_gpus:
        from vmselect.diagnosis.gpus import busy_share

        return busy_share(profile)
    cores, used = count_cores(profile), steady_mean(profile, "process_cores")
    return None if not cores or used is None else min(1.0, used / cores)


def _times(factor: float) -> str:
    return f"{factor:.1f}x" if factor < 9.95 else f"{factor:.0f}x"
