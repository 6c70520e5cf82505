"""GPUs that have too little to do, no memory left or far too much of it, or are slowed down.

Only cards that the framework uses are judged. None was at hand when this was written: the thresholds are choices, not
measurements.
"""

from __future__ import annotations

import re

from vmselect.diagnosis.evidence import (
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
from vmselect.units import format_bytes

UNDERFED = 0.5
FULL = 0.92
EMPTY = 0.4
THROTTLED = 0.1
"""Share of the samples in which clocks were held down."""

TRAINING_BYTES_PER_PARAMETER = 16
"""Weight, gradient and the two averages of Adam, four bytes each: what takes memory whatever the batch."""

_CARD = re.compile(r"gpu(\d+)_busy_share")


def used_cards(profile: Profile) -> list[int]:
    """The cards at work: as many as the framework uses, the busiest of the machine."""
    count = profile.environment.framework_gpus
    if not count or profile.usage is None:
        return []
    found = {
        int(match[1]): steady_mean(profile, match[0]) for match in map(_CARD.match, profile.usage.quantities()) if match
    }
    known = {card: busy for card, busy in found.items() if busy is not None}
    return sorted(sorted(known, key=lambda card: -known[card])[:count])


def busy_share(profile: Profile) -> float | None:
    """How busy the cards at work are, on average."""
    shares = [steady_mean(profile, f"gpu{card}_busy_share") or 0.0 for card in used_cards(profile)]
    return sum(shares) / len(shares) if shares else None


def find_underfed(profile: Profile) -> Causes:
    """Cards that idle although data are known to be there."""
    busy, share = busy_share(profile), input_share(profile)
    if busy is None or busy >= UNDERFED or share is None or share >= HARDLY:
        return
    cards = len(used_cards(profile))
    who = "The GPU is" if cards == 1 else f"The {cards} GPUs are"
    batch = "" if profile.batch_size is None else f" with {profile.batch_size / cards:g} examples a step each"
    yield Diagnosis(
        "underfed-gpu",
        f"{who} {busy:.0%} busy{batch}, though steps wait for data only {share:.0%}.",
        "Give each more to do at once: a larger batch, several steps per execution, compiled steps; or rent a smaller "
        "GPU.",
        "info",
        {"gpu_busy_share": busy, "gpus": float(cards), "input_wait_share": share},
    )


def find_memory(profile: Profile) -> Causes:
    """Memory of the cards: no room for a larger batch, or room for a far larger one."""
    memory = _memory(profile)
    if memory is None:
        return
    peak, whole = memory
    share = peak / whole
    evidence = {"peak_gpu_memory_bytes": float(peak), "gpu_memory_bytes": float(whole)}
    if share >= FULL:
        yield Diagnosis(
            "gpu-memory-full",
            f"The training holds {format_bytes(peak)} of the GPU's {format_bytes(whole)} at its peak ({share:.0%}).",
            "A larger batch will not fit; use mixed precision, a smaller batch, or a GPU with more memory.",
            "info",
            evidence,
        )
    elif share <= EMPTY:
        batch = _largest_batch(profile, peak, whole)
        fits = f": a batch of about {batch:,} fits" if batch else ""
        yield Diagnosis(
            "gpu-memory-empty",
            f"The training holds {format_bytes(peak)} of the GPU's {format_bytes(whole)} at its peak "
            f"({share:.0%}){fits}.",
            "Try a larger batch, or rent a GPU with less memory.",
            "info",
            evidence | ({"batch_size_that_fits": float(batch)} if batch else {}),
        )


def find_throttling(profile: Profile) -> Causes:
    """Cards whose clocks are held down because of heat or power, or of one of them that is not told."""
    for cause, why, remedy in (
        (
            "heat",
            "because of heat",
            "See to the cooling, or take another machine; times will vary with the temperature.",
        ),
        (
            "power",
            "because of power",
            "The card has reached its power limit: raise it if you may, or take these times as they are.",
        ),
        (
            "hardware",
            "by its hardware, because of heat or power,",
            "See to the cooling and the power supply, or take another machine.",
        ),
    ):
        shares = {card: steady_mean(profile, f"gpu{card}_throttled_by_{cause}_share") for card in used_cards(profile)}
        held = {card: share for card, share in shares.items() if share is not None and share >= THROTTLED}
        if held:
            worst = max(held, key=lambda card: held[card])
            heat = steady_mean(profile, f"gpu{worst}_temperature_celsius")
            at = f" at {heat:.0f} degrees" if cause != "power" and heat is not None else ""
            yield Diagnosis(
                "throttled",
                f"GPU {worst} was slowed down {why} in {held[worst]:.0%} of the samples{at}"
                + (f"; {len(held)} GPUs in all." if len(held) > 1 else "."),
                remedy,
                "warning",
                {f"gpu{card}_throttled_by_{cause}_share": share for card, share in held.items()},
            )


def _memory(profile: Profile) -> tuple[int, int] | None:
    """The most that was held on one card, and what a card has; what a framework reserves in advance does not count."""
    whole = min((gpu.memory_bytes for gpu in profile.environment.gpus if gpu.memory_bytes), default=None)
    peak = profile.environment.peak_gpu_memory_bytes
    if not profile.environment.framework_gpus or not whole or not peak:
        return None
    return peak, whole


def _largest_batch(profile: Profile, peak: int, whole: int) -> int | None:
    """About how large a batch fits, if all that grows with it grows in step; to two digits, because it is a guess."""
    setup = profile.setup
    if not setup.batch_size or setup.parameters is None:
        return None
    fixed = setup.parameters * TRAINING_BYTES_PER_PARAMETER
    if peak <= fixed:
        return None
    batch = setup.batch_size * (FULL * whole - fixed) / (peak - fixed)
    digits = max(0, len(str(int(batch))) - 2)
    return int(batch) - int(batch) % int(10.0**digits)


# Whether steps wait for their data, and what a faster machine can gain then.


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
        return busy_share(profile)
    cores, used = count_cores(profile), steady_mean(profile, "process_cores")
    return None if not cores or used is None else min(1.0, used / cores)


def _times(factor: float) -> str:
    return f"{factor:.1f}x" if factor < 9.95 else f"{factor:.0f}x"
