"""GPUs that have too little to do, no memory left or far too much of it, or are slowed down.

Only cards that the framework uses are judged. None was at hand when this was written: the thresholds are choices, not
measurements.
"""

from __future__ import annotations

import re

from vmselect.diagnosis.base import HARDLY, Causes, Diagnosis, input_share, steady_mean
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
