"""Probability that each candidate is the best one, from joint draws of the times of all machine estimates.

A time has a log-normal distribution on each side of its estimate, with the bounds of its interval as quantiles. Offers
of the same machine estimate share their timing error, so a cheaper offer always beats a more expensive one of the same
age. Old prices of a provider in a market share an error. Predicted machines with the same GPU share the error of that
GPU. Machine estimates at the same batch size share the error of the number of epochs from a convergence study. The
random numbers are the same in every ranking, and ``probability.js`` of the report page computes the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import gammaincinv, ndtr, ndtri, stdtrit

from vmselect.energy.grids import DEFAULT
from vmselect.intervals import Interval
from vmselect.prediction.scaling import SHARED_SCALING
from vmselect.ranking.measures import MEASURES, score
from vmselect.ranking.options import Settings
from vmselect.ranking.rows import Bools, Floats, Ints

if TYPE_CHECKING:
    from vmselect.prediction.posterior import Posterior
    from vmselect.ranking.candidates import Candidates
    from vmselect.ranking.estimates import MachineEstimate

DRAWS = 2000
BLOCK = 32
"""Number of candidates whose measures are drawn at once, so that the draws fit into the cache of a processor."""
KEPT_STREAMS = 1024
"""Number of streams of random numbers that are kept in memory (16 kB each), as every epoch count uses the same ones."""
LARGEST_NORMAL = 6.77
"""Upper bound of the absolute numbers from :func:`standard_normals`: the square root of ``2 log(2**33)``."""
SHARED_STREAM, SHARED_STREAMS = 1 << 19, 1 << 10
"""Index of the first random stream for errors that machines share, and number of such streams per posterior."""
EPOCHS_STREAM = 1 << 20
"""Index of the first random stream for the numbers of epochs of a study; streams of machine estimates start at 0."""
POWER_STREAM = 1 << 18
"""Index of the first random stream for the power of machines."""
PRICE_STREAM = 3 << 17
"""Index of the first random stream for the prices of a provider in a market."""
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
    winners: Ints
    """Index of the best candidate in each draw."""


class OfferGroups(NamedTuple):
    """Two group numbers of each candidate.

    Offers of a machine estimate with the same time, billed time, cost of moving data and error of the price have the
    same number in ``timed``. Those that also have the same CO2 per kilowatt-hour, if CO2 has a weight in the objective,
    have the same number in ``priced``: the cheapest of them is the best one in every draw.
    """

    timed: Ints
    priced: Ints


def standard_normals(streams: Ints) -> Floats:
    """Standard normal random numbers: a row for each index in ``streams``. Equal indices give equal numbers."""
    return np.array([_stream(index) for index in streams.tolist()]).reshape(-1, DRAWS)


@lru_cache(maxsize=KEPT_STREAMS)
def _stream(index: int) -> Floats:
    """The random numbers of the stream ``index``."""
    first = np.array([index], dtype=np.uint32) * np.uint32(2 * DRAWS) + np.arange(DRAWS, dtype=np.uint32)
    radius, angle = _uniforms(first), _uniforms(first + np.uint32(DRAWS))
    return np.asarray(np.sqrt(-2.0 * np.log(radius)) * np.cos(2.0 * np.pi * angle))


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
    below, above = (np.clip(side, 0.0, np.log(MAX_RATIO)) for side in time.log_widths())
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
    groups: OfferGroups,
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
        return Chances(chance, likely, {}, np.zeros(0, dtype=np.intp))
    leaders, of_leader = _first_of_each(groups.priced[order])
    first = order[leaders]  # the best offer of each group, best first
    rivals = np.arange(len(first))
    if settings.objective.get("co2"):
        factor = candidates.kg_per_kwh(settings.emissions or DEFAULT)
        rivals = np.flatnonzero(_not_dominated(groups.timed[first], candidates.usd_per_hour[first], factor[first]))
    draws = _Draws(candidates, settings, times, epochs, errors, best)
    possible, values = draws.find_winners(first[rivals])
    scores = draws.score(values)
    winner = np.argmin(scores, axis=0)
    equal = scores == scores[winner, np.arange(DRAWS)]
    wins = np.zeros(len(first))
    wins[rivals[possible]] = (equal / equal.sum(axis=0)).sum(axis=1)
    # Offers that equal the best offer of their machine estimate in every measure share its probability.
    same = candidates.usd_per_hour[order] == candidates.usd_per_hour[first][of_leader]
    shared = np.bincount(of_leader[same], minlength=len(first))
    chance[order[same]] = (wins / shared)[of_leader[same]] / DRAWS
    likeliest = order[chance[order] > 0]
    likeliest = likeliest[np.argsort(-chance[likeliest], kind="stable")]
    before = np.cumsum(chance[likeliest]) - chance[likeliest]
    likely[likeliest[before < settings.confidence - 1e-9]] = True
    regret = {
        name: _regret(drawn[0], drawn[winner, np.arange(DRAWS)], estimated[name]) for name, drawn in values.items()
    }
    return Chances(chance, likely, regret, first[rivals[possible[winner]]])


def _regret(chosen: Floats, best: Floats, value: float) -> float:
    """Expected excess of ``chosen`` over ``best``, from the geometric mean of their ratio and the estimate ``value``.

    The mean of the differences is not used: a few extreme draws of a predicted time could dominate it.
    """
    if value <= 0 or np.any(best <= 0):
        return 0.0
    return value * float(-np.expm1(-np.mean(np.log(chosen / best))))


def group_offers(candidates: Candidates, settings: Settings) -> OfferGroups:
    """Group numbers of the candidates."""
    timed = candidates.machine_estimate.astype(np.intp)
    if settings.interruptions:
        timed = 2 * timed + candidates.is_spot
        if settings.interruptions.by_type:
            timed = _split(timed, np.unique(candidates.interruptions_per_hour, return_inverse=True)[1])
    if settings.billing == "provider":
        terms = np.stack([candidates.increment_seconds, candidates.minimum_seconds], axis=1)
        timed = _split(timed, np.unique(terms, axis=0, return_inverse=True)[1])
    if settings.objective.get("cost") and candidates.moving_usd.any():
        # What is paid once does not grow with the time, so that another offer may win where the time is another one.
        timed = _split(timed, np.unique(candidates.moving_usd, return_inverse=True)[1])
    if settings.objective.get("cost") and candidates.price_deviation.any():
        moves = np.stack([candidates.price_group, candidates.price_deviation], axis=1)
        moves[candidates.price_deviation == 0] = 0
        timed = _split(timed, np.unique(moves, axis=0, return_inverse=True)[1])
    if not settings.objective.get("co2"):
        return OfferGroups(timed, timed)
    # A clean, expensive offer may be better or worse than a cheap one, depending on the power.
    factors = candidates.kg_per_kwh(settings.emissions or DEFAULT)
    return OfferGroups(timed, _split(timed, np.unique(factors, return_inverse=True)[1]))


def _split(group: Ints, number: Ints) -> Ints:
    """Group numbers that differ where ``group`` or ``number`` differs."""
    number = number.reshape(-1)
    return np.asarray(group * (number.max(initial=0) + 1) + number)


def _not_dominated(group: Ints, price: Floats, factor: Floats) -> Bools:
    """Whether each offer may win against the other offers with the same number in ``group``.

    An offer never wins if another one has at most the same price and at most the same CO2 per kilowatt-hour
    (``factor``). Such offers are left out of the random draws to save time: there may be one in each region. The first
    offer is the recommended one and is always included.
    """
    order = np.lexsort((factor, price, group))
    _, level = np.unique(factor[order], return_inverse=True)
    starts = np.diff(group[order], prepend=group[order[:1]]) != 0
    # The levels of a group are below those of all groups before it, so that its first offer is always a new minimum.
    level = level.reshape(-1) - np.cumsum(starts) * len(order)
    kept = np.zeros(len(order), dtype=bool)
    kept[order] = np.append(True, level[1:] < np.minimum.accumulate(level)[:-1])
    kept[0] = True
    return kept


def _first_of_each(group: Ints) -> tuple[Ints, Ints]:
    """Indices of the first member of each group, ascending; and for each member the position of its group in them."""
    count = len(group)
    first = np.full(group.max() + 1, count)
    first[group[::-1]] = np.arange(count)[::-1]  # of several values for one place, the last one stays
    leaders = np.sort(first[first < count])
    place = np.zeros(len(first), dtype=np.intp)
    place[group[leaders]] = np.arange(len(leaders))
    return leaders, place[group]


@dataclass(frozen=True)
class _Draws:
    """Random draws of the measures of candidates at one epoch count; :func:`estimate_chances` describes the fields."""

    candidates: Candidates
    settings: Settings
    times: Interval[Floats]
    epochs: Interval[Floats]
    errors: ErrorModel
    best: Mapping[str, float]

    def find_winners(self, rivals: Ints) -> tuple[Ints, dict[str, Floats]]:
        """Positions of those of ``rivals`` that may be best in a draw, and their measures with a column per draw.

        The first of ``rivals`` is included in any case. The others are drawn in blocks, best first. A candidate is left
        out if it is worse than the best one so far in every draw, and is not even drawn if its lowest possible score
        shows this.
        """
        least = self.lowest_scores(rivals)
        lowest = np.full(DRAWS, np.inf)
        kept: list[Ints] = []
        winning: list[dict[str, Floats]] = []
        waiting = np.arange(len(rivals))
        while len(waiting):
            block, waiting = waiting[:BLOCK], waiting[BLOCK:]
            values = self.draw(self.candidates.take(rivals[block]))
            scores = self.score(values)
            lowest = np.minimum(lowest, scores.min(axis=0))
            wins = (scores <= lowest).any(axis=1) | (block == 0)
            kept.append(block[wins])
            winning.append({name: drawn[wins] for name, drawn in values.items()})
            waiting = waiting[least[waiting] <= lowest.max() * (1 + 1e-9)]
        return np.concatenate(kept), {name: np.concatenate([part[name] for part in winning]) for name in winning[0]}

    def score(self, values: Mapping[str, Floats]) -> Floats:
        """Scores of drawn ``values``."""
        return score(self.settings.objective, values, {name: np.asarray(self.best[name]) for name in values})

    def lowest_scores(self, rivals: Ints) -> Floats:
        """Lower bound of the score of each candidate in all draws."""
        which, confidence = self.candidates.machine_estimate[rivals], self.settings.confidence
        below, _ = log_deviations(self.times.take(which), confidence)
        few, _ = log_deviations(self.epochs.take(which), confidence)
        quickest = self.times.value[which] * np.exp(self.errors.lowest(which) * below - LARGEST_NORMAL * few)
        return self.score(self._measure(self.candidates.take(rivals), quickest[:, None], -LARGEST_NORMAL))[:, 0]

    def draw(self, rows: Candidates) -> dict[str, Floats]:
        """Values of the measures of the objective, with a row per candidate and a column per draw."""
        which, confidence = rows.machine_estimate, self.settings.confidence
        deviation = self.errors.draw(which)
        below, above = (side[:, None] for side in log_deviations(self.times.take(which), confidence))
        seconds = self.times.value[which, None] * np.exp(deviation * np.where(deviation < 0, below, above))
        few, many = (side[:, None] for side in log_deviations(self.epochs.take(which), confidence))
        if np.any(many > 0):
            common = standard_normals(EPOCHS_STREAM + rows.batch_size_number)
            seconds = seconds * np.exp(common * np.where(common < 0, few, many))
        return self._measure(rows, seconds, None)

    def _measure(self, rows: Candidates, seconds: Floats, deviation: float | None) -> dict[str, Floats]:
        """Values of each measure of the objective, computed from the drawn times ``seconds``.

        ``deviation`` is the number of standard deviations by which power and price of every machine differ from their
        estimates. If it is None, random numbers are drawn.
        """
        # The time of spot candidates is multiplied by the expected slow-down.
        for interruptions, spot in rows.list_interrupted(self.settings.interruptions):
            seconds = np.where(spot[:, None], seconds * interruptions.factor, seconds)
        values = {}
        for name in (name for name, weight in self.settings.objective.items() if weight):
            measure = MEASURES[name]
            values[name] = measure.of(rows, self.settings, Interval.exact(seconds)).value
            if measure.uses_power:
                which, power = rows.machine_estimate, rows.power
                drawn: Any = deviation
                if drawn is None:
                    drawn = standard_normals(POWER_STREAM + power.group[which])
                values[name] = values[name] * np.exp(drawn * power.deviation[which, None])
            if name == "cost" and rows.price_deviation.any():
                drawn = standard_normals(PRICE_STREAM + rows.price_group) if deviation is None else deviation
                moved, once = np.exp(drawn * rows.price_deviation[:, None]), rows.moving_usd[:, None]
                values[name] = (values[name] - once) * moved + once
        return values


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
        of_gpu = (vectors * np.sqrt(np.maximum(0.0, values)))[[group.place for group in groups]]
        # How well a kind of GPU works together is one more error, common to all numbers of these GPUs.
        models = {
            name: at for at, name in enumerate(dict.fromkeys(group.gpu_model for group in groups if group.scaling))
        }
        of_number = np.zeros((len(groups), len(models)))
        for at, group in enumerate(groups):
            if group.scaling:
                of_number[at, models[group.gpu_model]] = group.scaling
        loadings = np.hstack([of_gpu, of_number])
        return cls(first, np.round(loadings, 9), np.round(ratio / np.sqrt(square), 6))

    @cached_property
    def drawn(self) -> Floats:
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
        for i, machine in enumerate(machine_estimates):
            prediction = machine.prediction
            if prediction is None:
                continue
            posterior, groups = posteriors.setdefault(id(prediction.posterior), (prediction.posterior, {}))
            source[i] = numbers.setdefault(id(posterior), len(numbers))
            scaling = prediction.scaling_sd**2 / posterior.scale
            common = round(math.sqrt(SHARED_SCALING * scaling), 9)
            kind = _Group(int(posterior.group[prediction.column]), prediction.machine.gpu_model, common)
            group[i] = groups.setdefault(kind, len(groups))
            alone[i] = float(posterior.own_variance[prediction.column]) + (1 - SHARED_SCALING) * scaling
        errors = tuple(
            SharedErrors.of(posterior, list(groups), number, confidence)
            for number, (posterior, groups) in enumerate(posteriors.values())
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
            rows = np.flatnonzero(self.source[which] == number)
            at = which[rows]
            common = error.drawn[self.group[at]] * self.shared[at, None]
            drawn[rows] = error.radius * (common + drawn[rows] * self.own[at, None])
        return drawn

    def lowest(self, which: Ints) -> Floats:
        """Lower bounds of the random errors that :meth:`draw` returns."""
        low = np.full(len(which), -LARGEST_NORMAL)
        for number, error in enumerate(self.errors):
            rows = np.flatnonzero(self.source[which] == number)
            at = which[rows]
            common = np.min(error.drawn * error.radius, axis=1)
            reach = LARGEST_NORMAL * error.radius.max() * self.own[at]
            low[rows] = common[self.group[at]] * self.shared[at] - reach
        return low

    def correlation(self) -> Floats:
        """Correlation matrix of the errors of all machine estimates."""
        correlations = np.eye(len(self.source))
        for number, error in enumerate(self.errors):
            rows = np.flatnonzero(self.source == number)
            loadings = error.loadings[self.group[rows]] * self.shared[rows, None]
            correlations[np.ix_(rows, rows)] = loadings @ loadings.T + np.diag(self.own[rows] ** 2)
        return correlations

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
