"""How long a self-tuning tf.data pipeline keeps TensorFlow waiting after an epoch, and how often.

A thread tunes the pipeline: it wakes up 10 ms after its first batch, then after 20 ms more, after 40 ms more, and
so on up to once a minute. At the end of an epoch TensorFlow takes the pipeline down and wakes the thread to end it. If
that fails, and on a busy processor it often does, TensorFlow waits for the next wake-up. A pipeline runs from the first
batch of an epoch until after its validation, so the length of the wait follows from the length of the epoch; whether it
waits is a matter of chance. docs/explanation/measuring-honestly.md shows both.

Two kinds of input differ. Data without an end (``steps_per_epoch`` over a generator, say) are one pipeline for all
epochs, which is taken down once, when ``fit`` returns. And a strategy that spreads batches over several devices has
several pipelines, taken down one after the other: where one has waited, the next may wait for the wake-up after that.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import mul

from vmselect.estimation.statistics import NOTHING, Level, quantile
from vmselect.findings import Finding
from vmselect.records import Profile
from vmselect.units import count_epochs, format_seconds, format_usd

FIRST_PERIOD, LONGEST_PERIOD = 0.01, 60.0
"""Seconds from one wake-up to the next, which double from the first to the longest (TensorFlow 2.21)."""

MOST_OFTEN, BEND, LEAST_OFTEN = 0.9, 0.65, 0.02
"""How often an epoch is followed by a wait: where no core is ever free, and where one always is; between them it grows
with that power of the share of the time in which none is. Chosen by likelihood on trainings whose steps sleep, as when
a GPU works, and on four models that keep the processor busy (``tests/benchmarks/waiting.py``: all but those of
``--check``), on one core, on two with nothing else to do, and on two that other programs kept busy..."""

USUAL_WEIGHT = 2.0
"""...how many waits that expectation counts for..."""

CUT_WAITED = 2.0
"""...and what a wait after an epoch that a probe cut short counts for. Such epochs seldom wait, whatever whole ones do,
so that one which did not wait says nothing. A whole epoch counts as one, either way."""

TELLING_SECONDS = 0.06
"""Waits shorter than this cannot be told from other work between epochs: the longest boundary without one took half."""

LENGTH_SPREAD = 0.1
"""Relative spread of the length of an epoch around its prediction, which decides which wake-up is next: that of 27
trainings in other processes than their probe's (``tests/benchmarks/accuracy.py --parts cross-run``)."""

MOST_PIPELINES = 3
"""So many pipelines of a distributed dataset were seen to wait one after the other, with two devices and four..."""

WAITS_ON = 0.5
"""...and how often another waits after one that has: the processor idles then. Chosen on trainings with two devices."""

UNKNOWN_SECONDS = 3600.0
"""How long a pipeline lasts that goes on through an unknown number of epochs: long enough for a wake-up each minute."""

LENGTHS = tuple(statistics.NormalDist(1.0, LENGTH_SPREAD).inv_cdf((k + 0.5) / 40) for k in range(40))


@dataclass(frozen=True)
class Waiting:
    """What every epoch waits: ``each`` on average, in a ``share`` of epochs, at most ``longest``.

    ``each.noise`` is the spread between epochs.
    """

    each: Level = NOTHING
    share: float = 0.0
    longest: float = 0.0


NO_WAITING = Waiting()

WAITS = "waits-between-epochs"
"""The code of the finding that says so."""


def next_wake_up(seconds: float) -> float:
    """When, after ``seconds`` of a pipeline's life, its thread wakes up next.

    >>> [round(next_wake_up(seconds), 2) for seconds in (0.2, 2.0, 12.6, 3600.0)]
    [0.31, 2.55, 20.47, 3621.91]
    """
    doublings = math.ceil(math.log2(LONGEST_PERIOD / FIRST_PERIOD))
    doubled = FIRST_PERIOD * (2.0**doublings - 1)
    if seconds <= doubled:
        return FIRST_PERIOD * (2.0 ** max(1, math.ceil(math.log2(seconds / FIRST_PERIOD + 1))) - 1)
    return doubled + LONGEST_PERIOD * math.ceil((seconds - doubled) / LONGEST_PERIOD)


def count_pipelines(profile: Profile) -> int:
    """How many pipelines are taken down after an epoch, one after the other."""
    replicas = profile.environment.replicas
    return 1 if replicas == 1 else min(MOST_PIPELINES, 1 + replicas)


def list_waits(pipeline_seconds: float, pipelines: int) -> list[float]:
    """What is waited if none of the pipelines waits, if one does, and so on to all of them.

    >>> [round(seconds, 2) for seconds in list_waits(1.0, 3)]
    [0.0, 0.27, 1.55, 4.11]
    """
    waits, wake_up = [0.0], pipeline_seconds
    for _ in range(pipelines):
        wake_up = next_wake_up(wake_up * (1 + 1e-9))
        waits.append(wake_up - pipeline_seconds)
    return waits


def split_wait(lost_seconds: float, pipeline_seconds: float | None, pipelines: int = 1) -> tuple[float, bool | None]:
    """What of the time lost after pipelines of ``pipeline_seconds`` was a wait, and whether there was one (or None).

    >>> split_wait(0.30, 1.0)[1], split_wait(0.01, 1.0), split_wait(0.01, None), split_wait(1.6, 1.0, pipelines=2)[1]
    (True, (0.0, False), (0.0, None), True)
    >>> split_wait(2.7, 2.3)  # not until 2.55 s but until 5.11 s
    (2.7, True)
    """
    if pipeline_seconds is None:
        return 0.0, None
    # The lifetime of a pipeline is known except for its first batch, so it may just have missed the next wake-up.
    missed = next_wake_up(pipeline_seconds) < pipeline_seconds * (1 + 2 * LENGTH_SPREAD)
    waits = list_waits(pipeline_seconds, pipelines + missed)
    waited = max(number for number, wait in enumerate(waits) if lost_seconds >= wait / 2)
    wait, told = waits[waited], waits[max(1, waited)]
    if told <= TELLING_SECONDS or (waited and lost_seconds < 0.9 * wait):
        return 0.0, None
    return min(wait, lost_seconds), waited > 0


def weigh_evidence(waited: bool | None, *, cut_short: bool) -> tuple[float, float]:
    """What a boundary that was seen says for waits, and against."""
    if waited is None:
        return 0.0, 0.0
    if cut_short:
        return CUT_WAITED if waited else 0.0, 0.0
    return float(waited), float(not waited)


def expect_waiting(
    profile: Profile,
    evidence: Sequence[tuple[float, float]],
    lengths: Sequence[tuple[float, float]],
    *,
    confidence: float,
) -> Waiting:
    """Waits after epochs whose pipelines last ``lengths`` (seconds, and the share of epochs that last so long).

    ``evidence`` is what every boundary that was seen says for and against.
    """
    usual = expect_share(profile)
    hits, misses = (math.fsum(side) for side in zip((0.0, 0.0), *evidence, strict=True))
    weight = USUAL_WEIGHT + hits + misses
    share = (USUAL_WEIGHT * usual + hits) / weight
    pipelines = count_pipelines(profile)
    mean = variance = among = longest = 0.0
    for seconds, often in lengths:
        waits, squares, most = zip(
            *(_wait_of_who_waits(list_waits(factor * seconds, pipelines)) for factor in LENGTHS), strict=True
        )
        mean += often * statistics.fmean(waits)
        variance += often * statistics.pvariance(waits)
        among += often * statistics.fmean(squares)
        longest = max(longest, *most)
    spread = math.hypot(mean * math.sqrt(share * (1 - share) / (weight + 1)), share * math.sqrt(variance))
    width = quantile(confidence, 30.0) * spread
    value = share * mean
    noise = math.hypot(mean * math.sqrt(share * (1 - share)), math.sqrt(share * among))
    return Waiting(Level(value, min(width, value), min(width, longest - value), noise), share, longest)


def _wait_of_who_waits(waits: Sequence[float]) -> tuple[float, float, float]:
    """Mean and variance of a wait, given that there is one, and the longest."""
    last = len(waits) - 2
    chances = [WAITS_ON**number * (1 - WAITS_ON if number < last else 1.0) for number in range(last + 1)]
    mean = math.fsum(map(mul, chances, waits[1:]))
    among = math.fsum(chance * (wait - mean) ** 2 for chance, wait in zip(chances, waits[1:], strict=True))
    return mean, among, waits[-1]


def expect_share(profile: Profile) -> float:
    """The share of epochs after which to expect a wait, by how seldom a core was free; where unknown, none was."""
    return max(LEAST_OFTEN, MOST_OFTEN * math.pow(_without_free_core(profile), BEND))


def _without_free_core(profile: Profile) -> float:
    """The share of the time in which no core was free, by the mean: what was busy beyond all cores but one."""
    usage, timeline = profile.usage, profile.timeline
    cores = profile.environment.usable_cores or (usage.limits.cores if usage else None) or 1
    sampled = usage.phases.get("steady_steps", {}).get("usable_cpu_share") if usage else None
    if sampled is not None and sampled.count:
        busy = sampled.mean * cores
    elif timeline.cpu_seconds and timeline.wall_seconds and profile.environment.usable_cores:
        busy = timeline.cpu_seconds / timeline.wall_seconds
    else:
        busy = float(cores)
    return min(1.0, max(0.0, busy - (cores - 1)))


def price_waits(
    findings: Sequence[Finding], *, idle_seconds: float, epochs: float, usd_per_hour: float | None = None
) -> tuple[Finding, ...]:
    """The same findings; the one of waits then says what they take in all, and what that costs where it is known."""
    if not idle_seconds:
        return tuple(findings)
    seconds = idle_seconds * epochs
    paid = "" if usd_per_hour is None else f", {format_usd(seconds / 3600 * usd_per_hour)} of the bill"
    total = f" Over {count_epochs(epochs)} that is {format_seconds(seconds)}{paid}."
    return tuple(replace(f, message=f.message + total) if f.code == WAITS else f for f in findings)
