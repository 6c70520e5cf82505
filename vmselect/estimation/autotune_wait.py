"""Autotune waits: how long and how often TensorFlow waits for the autotuner of a tf.data pipeline after an epoch.

A thread tunes the pipeline. It wakes up 10 ms after the first batch, then after 20 ms, 40 ms, and so on up to once a
minute. At the end of an epoch TensorFlow stops the pipeline and wakes the thread, so that the thread ends. If the
thread misses this signal, which is frequent on a busy CPU, TensorFlow waits for the next wake-up. A pipeline runs from
the first batch of an epoch until after the validation of the epoch. The length of the wait therefore follows from the
length of the epoch; whether TensorFlow waits is random. See docs/explanation/measuring-honestly.md.

Endless data (``steps_per_epoch`` over a generator) are one pipeline for all epochs, which stops once. A strategy with
several devices has several pipelines, which stop one after the other, so that several waits can follow each other.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from typing import NamedTuple

from vmselect.estimation.level import NOTHING, Level, quantile
from vmselect.records import Profile

FIRST_PERIOD, MAX_PERIOD = 0.01, 60.0
"""Shortest and longest time in seconds between two wake-ups of the tf.data autotuner. The time doubles after each
wake-up (TensorFlow 2.21)."""

MAX_SHARE, EXPONENT, MIN_SHARE = 0.9, 0.65, 0.02
"""Share of epochs with a wait if no CPU core is ever free (maximum) and if a core is always free (minimum). In between,
the share is a power of the share of time without a free core. Fitted by maximum likelihood on trainings whose steps
sleep and on four models that keep the CPU busy, on one and two cores, idle and loaded (``tests/benchmarks/waiting.py``
without ``--check``)."""

PRIOR_WEIGHT = 2.0
"""Weight of the expected share of epochs with a wait, as a number of observed epochs."""

CUT_WEIGHT = 2.0
"""Weight of a wait after an epoch that a probe ended early. Such waits are rare, so their absence has no weight."""

MIN_SECONDS = 0.06
"""Seconds below which a wait cannot be distinguished from other work between epochs, which took up to half as long."""

LENGTH_SPREAD = 0.1
"""Relative error of the predicted length of an epoch, which determines the next wake-up. Measured on 27 trainings
(``tests/benchmarks/accuracy.py --parts cross-run``)."""

MAX_PIPELINES, NEXT_SHARE = 3, 0.5
"""Largest number of pipelines of a distributed dataset that were observed to wait one after the other, with two and
four devices; and the prior probability that after the wait of one pipeline the next pipeline waits too. Chosen on
trainings with two devices."""

UNKNOWN_SECONDS = 3600.0
"""Assumed lifetime in seconds of a pipeline if the number of epochs is unknown: it then wakes up once a minute."""

LENGTHS = tuple(statistics.NormalDist(1.0, LENGTH_SPREAD).inv_cdf((k + 0.5) / 40) for k in range(40))


@dataclass(frozen=True)
class Waiting:
    """Autotune waits after epochs: ``share`` of epochs with a wait, and mean seconds of waiting per epoch (``each``).

    ``each`` averages over all epochs, with and without a wait; ``each.noise`` is the spread between epochs.
    ``longest`` is the longest possible wait in seconds.
    """

    each: Level = NOTHING
    share: float = 0.0
    longest: float = 0.0


NO_WAITING = Waiting()


def next_wake_up(seconds: float) -> float:
    """When the autotuner of a pipeline that has run for ``seconds`` next wakes up, in seconds since its start."""
    doublings = math.ceil(math.log2(MAX_PERIOD / FIRST_PERIOD))
    doubled = FIRST_PERIOD * (2.0**doublings - 1)
    if seconds <= doubled:
        return FIRST_PERIOD * (2.0 ** max(1, math.ceil(math.log2(seconds / FIRST_PERIOD + 1))) - 1)
    return doubled + MAX_PERIOD * math.ceil((seconds - doubled) / MAX_PERIOD)


def count_pipelines(profile: Profile) -> int:
    """Number of tf.data pipelines that stop one after the other at the end of an epoch."""
    replicas = profile.environment.replicas
    return 1 if replicas == 1 else min(MAX_PIPELINES, 1 + replicas)


def list_waits(pipeline_seconds: float, pipelines: int) -> list[float]:
    """Seconds of waiting if 0, 1, 2, ... ``pipelines`` pipelines wait after having run for ``pipeline_seconds``."""
    waits, wake_up = [0.0], pipeline_seconds
    for _ in range(pipelines):
        wake_up = next_wake_up(wake_up * (1 + 1e-9))
        waits.append(wake_up - pipeline_seconds)
    return waits


def split_wait(lost_seconds: float, pipeline_seconds: float | None, pipelines: int = 1) -> tuple[float, int | None]:
    """Seconds of autotune wait among the ``lost_seconds`` after an epoch, and the number of pipelines that waited.

    The second value is None if it cannot be determined.
    """
    if pipeline_seconds is None:
        return 0.0, None
    # The start of a pipeline is not known exactly, so the pipeline may just have missed the next wake-up.
    missed = next_wake_up(pipeline_seconds) < pipeline_seconds * (1 + 2 * LENGTH_SPREAD)
    waits = list_waits(pipeline_seconds, pipelines + missed)
    waited = max(number for number, wait in enumerate(waits) if lost_seconds >= wait / 2)
    wait = waits[waited]
    # A wait is shorter than expected if the pipeline has run for longer. What is shorter still may be other work.
    least = min(0.9 * wait, wait - 2 * LENGTH_SPREAD * pipeline_seconds)
    if waits[max(1, waited)] <= MIN_SECONDS or (waited and lost_seconds < least):
        return 0.0, None
    return min(wait, lost_seconds), waited


class Evidence(NamedTuple):
    """Weights of a recorded epoch boundary as evidence for and against waits.

    ``waited`` and ``did_not`` are about whether any pipeline waits; ``again`` and ``not_again`` are about whether,
    after the wait of one pipeline, the next pipeline waits too at the same boundary.
    """

    waited: float = 0.0
    did_not: float = 0.0
    again: float = 0.0
    not_again: float = 0.0


def weigh_evidence(waited: int | None, *, cut_short: bool, pipelines: int = 1) -> Evidence:
    """Weights of a recorded epoch boundary at which ``waited`` of ``pipelines`` pipelines have waited.

    ``waited`` is None if it is unknown. ``cut_short`` is True if the probe ended the epoch early.
    """
    # Epochs that a probe cuts short seldom wait, whatever whole epochs do.
    if waited is None or (cut_short and not waited):
        return Evidence()
    if not waited:
        return Evidence(did_not=1.0)
    return Evidence(CUT_WEIGHT if cut_short else 1.0, 0.0, min(waited, pipelines) - 1.0, float(waited < pipelines))


def expect_waiting(
    profile: Profile,
    evidence: Sequence[Evidence],
    lengths: Sequence[tuple[float, float]],
    *,
    confidence: float,
) -> Waiting:
    """Estimate the autotune waits after each epoch.

    ``lengths`` contains pairs: lifetime of a pipeline in seconds, and share of epochs with that lifetime.
    ``evidence`` contains the weights of the recorded boundaries. If several pipelines may wait one after the other, the
    upper bound assumes that each pipeline waits as often as the first.
    """
    hits, misses, again, not_again = (math.fsum(side) for side in zip(Evidence(), *evidence, strict=True))
    # Beta prior: the share expected from the CPU load counts as PRIOR_WEIGHT observed boundaries.
    weight = PRIOR_WEIGHT + hits + misses
    share = (PRIOR_WEIGHT * expect_share(profile) + hits) / weight
    pipelines = count_pipelines(profile)
    next_share = (PRIOR_WEIGHT * NEXT_SHARE + again) / (PRIOR_WEIGHT + again + not_again)
    mean = variance = among = longest = more = 0.0
    for seconds, often in lengths:
        listed = [list_waits(factor * seconds, pipelines) for factor in LENGTHS]
        waits, squares, most = zip(*(_conditional_wait(sums, next_share) for sums in listed), strict=True)
        mean += often * statistics.fmean(waits)
        more += often * statistics.fmean(_conditional_wait(sums, max(share, next_share))[0] for sums in listed)
        variance += often * statistics.pvariance(waits)
        among += often * statistics.fmean(squares)
        longest = max(longest, *most)
    spread = math.hypot(mean * math.sqrt(share * (1 - share) / (weight + 1)), share * math.sqrt(variance))
    width = quantile(confidence, 30.0) * spread
    value = share * mean
    noise = math.hypot(mean * math.sqrt(share * (1 - share)), math.sqrt(share * among))
    # No epoch waits longer than for the last wake-up, however uncertain the share is.
    above = min(max(width, share * (more - mean)), longest - value)
    return Waiting(Level(value, min(width, value), above, noise), share, longest)


def _conditional_wait(waits: Sequence[float], next_share: float) -> tuple[float, float, float]:
    """Mean, variance and maximum of the wait after an epoch, given that at least one pipeline waits."""
    last = len(waits) - 2
    chances = [next_share**number * (1 - next_share if number < last else 1.0) for number in range(last + 1)]
    mean = math.fsum(map(mul, chances, waits[1:]))
    among = math.fsum(chance * (wait - mean) ** 2 for chance, wait in zip(chances, waits[1:], strict=True))
    return mean, among, waits[-1]


def expect_share(profile: Profile) -> float:
    """Expected share of epochs with a wait, from the share of time without a free CPU core.

    If the use of the CPU is unknown, no core is assumed to be free at any time.
    """
    usage, timeline = profile.usage, profile.timeline
    cores = profile.environment.usable_cores or (usage.limits.cores if usage else None) or 1
    sampled = usage.phases.get("steady_steps", {}).get("usable_cpu_share") if usage else None
    if sampled is not None and sampled.count:
        busy = sampled.mean * cores
    elif timeline.cpu_seconds and timeline.wall_seconds and profile.environment.usable_cores:
        busy = timeline.cpu_seconds / timeline.wall_seconds
    else:
        busy = float(cores)
    # TensorFlow misses the signal if no core is free to run the thread at once.
    without_free_core = min(1.0, max(0.0, busy - (cores - 1)))
    return max(MIN_SHARE, MAX_SHARE * math.pow(without_free_core, EXPONENT))
