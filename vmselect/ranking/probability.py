"""Probability that each candidate is the best one, from joint draws of the times of all machine estimates.

A time has a log-normal distribution on each side of its estimate, with the bounds of its interval as quantiles. Offers
of the same machine estimate share their timing error, so a cheaper offer always beats a more expensive one. Predicted
machines with the same GPU share the error of that GPU. Machine estimates at the same batch size share the error of the
number of epochs from a convergence study. The random numbers are the same in every ranking, and ``probability.js`` of
the report page computes the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import gammaincinv, ndtr, ndtri, stdtrit

from vmselect.emissions import DEFAULT
from vmselect.intervals import Interval
from vmselect.prediction.scaling import SHARED_SCALING
from vmselect.ranking.measures import MEASURES, Settings, score
from vmselect.ranking.rows import Bools, Floats, Ints

if TYPE_CHECKING:
    from vmselect.prediction.posterior import Posterior
    from vmselect.ranking.candidates import Candidates
    from vmselect.ranking.estimates import MachineEstimate

DRAWS = 2000
BLOCK = 32
"""Number of streams of random numbers that are computed at once, so that they fit into the cache of a processor."""
LARGEST_NORMAL = 6.77
"""Upper bound of the absolute numbers from :func:`standard_normals`: the square root of ``2 log(2**33)``."""
SHARED_STREAM, SHARED_STREAMS = 1 << 19, 1 << 10
"""Index of the first random stream for errors that machines share, and number of such streams per posterior."""
EPOCHS_STREAM = 1 << 20
"""Index of the first random stream for the numbers of epochs of a study; streams of machine estimates start at 0."""
POWER_STREAM = 1 << 18
"""Index of the first random stream for the power of machines."""
MAX_RATIO = 1000.0
"""Limit of the ratio between an estimate and a bound of its interval, because the lower bound may be 0."""


@dataclass(frozen=True)
class Chances:
    """Probability that each candidate is the best one, at one epoch count.

    ``likely`` marks the smallest set of candidates that contains the best one with the confidence of the settings.
    ``regret`` is the expected amount by which the recommended candidate exceeds the best one in each weighted measure.
    """

    chance: Floats
    likely: Bools
    regret: Mapping[str, float]


def standard_normals(streams: Ints, draws: int = DRAWS) -> Floats:
    """Standard normal random numbers: a row for each index in ``streams``. Equal indices give equal numbers."""
    count, found = np.arange(draws, dtype=np.uint32), np.empty((len(streams), draws))
    first = np.asarray(streams, dtype=np.uint32)[:, None] * np.uint32(2 * draws)
    for start in range(0, len(streams), BLOCK):
        some = first[start : start + BLOCK]
        radius, angle = (_uniforms(some + np.uint32(offset) + count) for offset in (0, draws))
        found[start : start + BLOCK] = np.sqrt(-2.0 * np.log(radius)) * np.cos(2.0 * np.pi * angle)
    return found


def _uniforms(counters: Any) -> Floats:
    """Hash 32-bit counters to numbers between 0 and 1 (exclusive)."""
    x = (counters + np.uint32(1)) * np.uint32(0x9E3779B9)
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x21F0AAAD)
    x ^= x >> np.uint32(15)
    x *= np.uint32(0x735A2D97)
    x ^= x >> np.uint32(15)
    return np.asarray((x + 0.5) / 2.0**32)


def log_deviations(time: Interval[Floats], confidence: float) -> tuple[Floats, Floats]:
    """Standard deviations of the logarithm of ``time`` below and above its value, from its interval."""
    quantile = float(ndtri(0.5 + confidence / 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        below, above = np.log(time.value / time.low), np.log(time.high / time.value)
    most = np.log(MAX_RATIO)
    below, above = (np.clip(np.nan_to_num(side, nan=0.0, posinf=most), 0.0, most) for side in (below, above))
    return below / quantile, above / quantile


def limit_chance(measure: Interval[Floats], most: float, confidence: float) -> Floats:
    """Probability that each value of ``measure`` is at most ``most``."""
    below, above = log_deviations(measure, confidence)
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.log(most / measure.value)
        deviations = distance / np.where(distance < 0, below, above)
    certain = np.where(measure.value <= most, 1.0, 0.0)
    return np.asarray(np.where(np.isnan(deviations), certain, ndtr(deviations)))


def estimate_chances(
    candidates: Candidates,
    settings: Settings,
    times: Interval[Floats],
    epochs: Interval[Floats],
    errors: ErrorModel,
    order: Ints,
    best: Mapping[str, float],
    estimated: Mapping[str, float],
) -> Chances:
    """Chances of the feasible candidates ``order`` (best first) at one epoch count.

    ``times`` has a value per machine estimate: the time without interruptions at the expected number of epochs, with
    an interval for the timing error only. ``epochs`` has a value per machine estimate; its bounds are those of the mean
    number of epochs of a study. ``best`` contains the best value of each measure, ``estimated`` the value of each
    measure for the first candidate in ``order``.
    """
    chance, likely = np.zeros(len(candidates)), np.zeros(len(candidates), dtype=bool)
    if not len(order):
        return Chances(chance, likely, {})
    group = _group_offers(candidates, settings)[order]
    leaders, of_leader = _first_of_each(group)
    first = order[leaders]  # the best offer of each machine estimate, best first
    possible = _can_win(candidates, settings, times, epochs, errors, first, best)
    if settings.objective.get("co2"):
        possible &= _not_dominated(candidates, settings, first)
    rivals = first[possible]
    values = _draw_measures(candidates.take(rivals), settings, times, epochs, errors)
    scores = score(settings.objective, values, {name: np.asarray(best[name]) for name in values})
    winner = np.argmin(scores, axis=0)
    equal = scores == scores[winner, np.arange(DRAWS)]
    wins = np.zeros(len(first))
    wins[possible] = (equal / equal.sum(axis=0)).sum(axis=1)
    # Offers that equal the best offer of their machine estimate in every measure share its probability.
    same = candidates.usd_per_hour[order] == candidates.usd_per_hour[first][of_leader]
    shared = np.bincount(of_leader[same], minlength=len(first))
    chance[order[same]] = (wins / shared)[of_leader[same]] / DRAWS
    ranked = order[np.argsort(-chance[order], kind="stable")]
    before = np.cumsum(chance[ranked]) - chance[ranked]
    likely[ranked[(before < settings.confidence - 1e-9) & (chance[ranked] > 0)]] = True
    draws = np.arange(DRAWS)
    regret = {
        name: _regret(values[name][0], values[name][winner, draws], estimated[name])
        for name, weight in settings.objective.items()
        if weight
    }
    return Chances(chance, likely, regret)


def _regret(chosen: Floats, best: Floats, value: float) -> float:
    """Expected excess of ``chosen`` over ``best``, from the geometric mean of their ratio and the estimate ``value``.

    The mean of the differences is not used: a few extreme draws of a predicted time could dominate it.
    """
    if value <= 0 or np.any(best <= 0):
        return 0.0
    return value * float(-np.expm1(-np.mean(np.log(chosen / best))))


def _group_offers(candidates: Candidates, settings: Settings) -> Ints:
    """Group number of each candidate: offers of a machine estimate with the same time and billed time are a group."""
    group = candidates.machine_estimate.astype(np.intp)
    if settings.interruptions:
        group = 2 * group + candidates.is_spot
    if settings.billing == "provider":
        terms = np.stack([candidates.increment_seconds, candidates.minimum_seconds], axis=1)
        group = group * (len(terms) + 1) + np.unique(terms, axis=0, return_inverse=True)[1].reshape(-1)
    if settings.objective.get("co2"):
        # A clean, expensive offer may be better or worse than a cheap one, depending on the power.
        factors = candidates.kg_per_kwh(settings.emissions or DEFAULT)
        group = np.unique(group, return_inverse=True)[1].reshape(-1) * (len(factors) + 1)
        group = group + np.unique(factors, return_inverse=True)[1].reshape(-1)
    return np.asarray(group)


def _not_dominated(candidates: Candidates, settings: Settings, first: Ints) -> Bools:
    """Whether each of the candidates with the indices ``first`` may win against other offers of its machine estimate.

    An offer never wins if another one has at most the same price and at most the same CO2 per kilowatt-hour. Such
    offers are left out of the random draws to save time: there may be one in each region.
    """
    base = _group_offers(candidates, replace(settings, objective={"cost": 1.0}))[first]
    price = candidates.usd_per_hour[first]
    factor = candidates.kg_per_kwh(settings.emissions or DEFAULT)[first]
    kept = np.zeros(len(first), dtype=bool)
    last, lowest = None, np.inf
    for i in np.lexsort((factor, price, base)):
        if base[i] != last:
            last, lowest = base[i], np.inf
        kept[i] = factor[i] < lowest
        lowest = min(lowest, factor[i])
    kept[0] = True  # the recommended candidate
    return kept


def _first_of_each(group: Ints) -> tuple[Ints, Ints]:
    """Indices of the first member of each group, ascending; and for each member the position of its group in them."""
    _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.arange(len(order))
    return first[order], place[inverse.reshape(-1)]


def _can_win(
    candidates: Candidates,
    settings: Settings,
    times: Interval[Floats],
    epochs: Interval[Floats],
    errors: ErrorModel,
    first: Ints,
    best: Mapping[str, float],
) -> Bools:
    """Whether each candidate in ``first`` can be better than ``first[0]`` in at least one possible draw."""
    estimate = candidates.machine_estimate[first]
    below, above = log_deviations(times, settings.confidence)
    few, many = log_deviations(epochs, settings.confidence)
    lowest, highest = errors.bounds(estimate)
    quickest = times.value[estimate] * np.exp(lowest * below[estimate] - LARGEST_NORMAL * few[estimate])
    slowest = times.value[estimate] * np.exp(highest * above[estimate] + LARGEST_NORMAL * many[estimate])
    rows = candidates.take(first)
    ends = []
    for end, power in ((quickest, -LARGEST_NORMAL), (slowest, LARGEST_NORMAL)):
        values = _measure_draws(rows, settings, end[:, None], power)
        ends.append(score(settings.objective, values, {name: np.asarray(best[name]) for name in values})[:, 0])
    return np.asarray(ends[0] <= ends[1][0])


def _draw_measures(
    rows: Candidates, settings: Settings, times: Interval[Floats], epochs: Interval[Floats], errors: ErrorModel
) -> dict[str, Floats]:
    """Values of all measures, with a row per candidate and a column per draw."""
    estimate = rows.machine_estimate
    deviation = errors.draw(estimate)
    below, above = (side[estimate, None] for side in log_deviations(times, settings.confidence))
    seconds = times.value[estimate, None] * np.exp(deviation * np.where(deviation < 0, below, above))
    few, many = log_deviations(epochs, settings.confidence)
    if np.any(many > 0):
        sizes = [one.batch_size or 0 for one in rows.machine_estimates]
        stream = np.unique(np.array(sizes), return_inverse=True)[1].reshape(-1)[estimate]
        common = standard_normals(EPOCHS_STREAM + stream)
        seconds = seconds * np.exp(common * np.where(common < 0, few[estimate, None], many[estimate, None]))
    return _measure_draws(rows, settings, seconds, None)


def _measure_draws(
    rows: Candidates, settings: Settings, seconds: Floats, power_deviation: float | None
) -> dict[str, Floats]:
    """Return the values of each measure of the objective, computed from the drawn times ``seconds``.

    ``power_deviation`` is the number of standard deviations by which the power of every machine differs from its
    estimate. If it is None, a random number is drawn for each machine.
    """
    time = _interrupt(rows, settings, seconds)
    values = {}
    for name in (name for name, weight in settings.objective.items() if weight):
        one = MEASURES[name]
        values[name] = one.of(rows, settings, Interval(time, time, time)).value
        if one.uses_power:
            which, power = rows.machine_estimate, rows.power
            drawn = standard_normals(POWER_STREAM + power.group[which]) if power_deviation is None else power_deviation
            values[name] = values[name] * np.exp(drawn * power.deviation[which, None])
    return values


def _interrupt(rows: Candidates, settings: Settings, seconds: Floats) -> Floats:
    """``seconds``, multiplied for spot candidates by the expected slow-down due to interruptions."""
    if settings.interruptions is None:
        return seconds
    return np.where(rows.is_spot[:, None], seconds * settings.interruptions.factor, seconds)


class _Group(NamedTuple):
    """Machines with the same GPU (index ``place`` in the posterior) that share the error of scaling to several GPUs.

    ``scaling`` is the standard deviation of that error, relative to the scale of the posterior.
    """

    place: int
    gpu_model: str
    scaling: float


@dataclass(frozen=True)
class SharedErrors:
    """Errors that predicted machine estimates share: a posterior of step times, as loadings on standard normals.

    ``loadings`` has a row per group of machines with the same number of the same GPU; each machine also has an
    independent error. ``radius`` turns normal draws into draws of Student's t distribution, scaled so that the bounds
    of an interval are as many standard deviations away as in a normal distribution.
    """

    first_stream: int
    loadings: Floats
    radius: Floats

    @classmethod
    def of(cls, posterior: Posterior, groups: Sequence[_Group], number: int, confidence: float) -> SharedErrors:
        """Shared errors of ``groups``. ``number`` is the index of ``posterior`` in the ranking and selects streams."""
        values, vectors = np.linalg.eigh(posterior.shared_covariance)
        first = SHARED_STREAM + SHARED_STREAMS * number
        uniforms = _uniforms(np.uint32((first + SHARED_STREAMS - 1) * 2 * DRAWS) + np.arange(DRAWS, dtype=np.uint32))
        square = 2.0 * gammaincinv(posterior.freedom / 2, uniforms) / posterior.freedom
        tail = 0.5 + confidence / 2
        ratio = float(ndtri(tail) / stdtrit(posterior.freedom, tail))
        of_gpu = (vectors * np.sqrt(np.maximum(0.0, values)))[[one.place for one in groups]]
        # How well a kind of GPU works together is one more error, common to all numbers of these GPUs.
        models = {name: at for at, name in enumerate(dict.fromkeys(one.gpu_model for one in groups if one.scaling))}
        of_number = np.zeros((len(groups), len(models)))
        for at, one in enumerate(groups):
            if one.scaling:
                of_number[at, models[one.gpu_model]] = one.scaling
        loadings = np.hstack([of_gpu, of_number])
        return cls(first, np.round(loadings, 9), np.round(ratio / np.sqrt(square), 6))

    def draw(self) -> Floats:
        """Random errors with a row per group and a column per draw."""
        streams = self.first_stream + np.arange(self.loadings.shape[1])
        return np.asarray(self.loadings @ standard_normals(streams))


@dataclass(frozen=True)
class ErrorModel:
    """Joint distribution of the timing errors of machine estimates.

    The deviation of a machine estimate, in standard deviations, is ``radius (shared g + own z)``: ``g`` is the draw of
    its ``group`` in ``errors[source]``, and ``z`` is a standard normal of its own. For measured machine estimates
    ``source`` is -1, ``shared`` 0, and ``own`` and ``radius`` are 1.
    """

    errors: tuple[SharedErrors, ...]
    source: Ints
    group: Ints
    shared: Floats
    own: Floats

    @classmethod
    def of(cls, machine_estimates: Sequence[MachineEstimate], confidence: float) -> ErrorModel:
        """The error model of the machine estimates of a ranking."""
        count = len(machine_estimates)
        source, group = np.full(count, -1, dtype=np.intp), np.zeros(count, dtype=np.intp)
        shared, own = np.zeros(count), np.ones(count)
        posteriors: dict[int, tuple[Posterior, dict[_Group, int]]] = {}
        numbers: dict[int, int] = {}
        alone = np.zeros(count)
        for i, one in enumerate(machine_estimates):
            found = one.prediction
            if found is None:
                continue
            posterior, groups = posteriors.setdefault(id(found.posterior), (found.posterior, {}))
            source[i] = numbers.setdefault(id(posterior), len(numbers))
            scaling = found.scaling_sd**2 / posterior.scale
            common = round(math.sqrt(SHARED_SCALING * scaling), 9)
            mine = _Group(int(posterior.group[found.column]), found.machine.gpu_model, common)
            group[i] = groups.setdefault(mine, len(groups))
            alone[i] = float(posterior.own_variance[found.column]) + (1 - SHARED_SCALING) * scaling
        errors = tuple(
            SharedErrors.of(one, list(groups), number, confidence)
            for number, (one, groups) in enumerate(posteriors.values())
        )
        for number, error in enumerate(errors):
            at = np.flatnonzero(source == number)
            whole = np.maximum(1e-300, alone[at] + np.sum(error.loadings**2, axis=1)[group[at]])
            shared[at], own[at] = np.round(whole**-0.5, 9), np.round((alone[at] / whole) ** 0.5, 9)
        return cls(errors, source, group, shared, own)

    def draw(self, which: Ints) -> Floats:
        """Random errors in standard deviations: a row per machine estimate with an index in ``which``."""
        drawn = standard_normals(which)
        for number, error in enumerate(self.errors):
            mine = np.flatnonzero(self.source[which] == number)
            at = which[mine]
            common = error.draw()[self.group[at]] * self.shared[at, None]
            drawn[mine] = error.radius * (common + drawn[mine] * self.own[at, None])
        return drawn

    def bounds(self, which: Ints) -> tuple[Floats, Floats]:
        """Lower and upper bounds of the random errors that :meth:`draw` returns."""
        low, high = np.full(len(which), -LARGEST_NORMAL), np.full(len(which), LARGEST_NORMAL)
        for number, error in enumerate(self.errors):
            mine = np.flatnonzero(self.source[which] == number)
            at = which[mine]
            common = error.draw() * error.radius
            reach = LARGEST_NORMAL * error.radius.max() * self.own[at]
            low[mine] = common.min(axis=1)[self.group[at]] * self.shared[at] - reach
            high[mine] = common.max(axis=1)[self.group[at]] * self.shared[at] + reach
        return low, high

    def correlation(self) -> Floats:
        """Correlation matrix of the errors of all machine estimates."""
        found = np.eye(len(self.source))
        for number, error in enumerate(self.errors):
            mine = np.flatnonzero(self.source == number)
            loadings = error.loadings[self.group[mine]] * self.shared[mine, None]
            found[np.ix_(mine, mine)] = loadings @ loadings.T + np.diag(self.own[mine] ** 2)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Values for JSON, with which the report page makes the same draws."""
        errors = [
            {"first_stream": e.first_stream, "loadings": e.loadings.tolist(), "radius": e.radius.tolist()}
            for e in self.errors
        ]
        rows = zip(self.source.tolist(), self.group.tolist(), self.shared.tolist(), self.own.tolist(), strict=True)
        names = ("source", "group", "shared", "own")
        machines = [dict(zip(names, row, strict=True)) if row[0] >= 0 else None for row in rows]
        return {"errors": errors, "machines": machines}
