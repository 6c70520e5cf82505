"""Assessment of candidates: measures, feasibility, scores, order, probability of being best, Pareto front.

Also excluded candidates, and explanations for those that exceed, or may exceed, a deadline, a budget or a CO2 limit:
:func:`list_excluded` has the reasons of all excluded candidates, :func:`find_shortfall` states what is missing if no
candidate is feasible, :func:`judge_spot_deadline` with which probability a spot machine meets a deadline, and
:func:`explain_excess` how to narrow an interval that exceeds a limit. ``limits.js`` of the report page computes the
same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from vmselect.energy.grids import DEFAULT
from vmselect.energy.power import UnknownPower
from vmselect.estimation.runtime import half_width
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.ranking.candidates import Candidates, exclude_unsold
from vmselect.ranking.measures import LIMITED, MEASURES, OPTIONAL, Interruptions, Measure, score
from vmselect.ranking.options import Settings
from vmselect.ranking.probability import ErrorModel, estimate_chances, group_offers, limit_chance
from vmselect.ranking.rows import Bools, Excluded, Floats, Ints, Lazy
from vmselect.units import format_chance, format_epoch_count, format_seconds, format_usd, printable

if TYPE_CHECKING:
    from vmselect.ranking.result import Ranking

Codes = npt.NDArray[np.int8]
FEASIBLE, OTHER_MARKET, UNKNOWN, FIRST_LIMIT = range(4)
"""Codes in ``Assessment.limits``: feasible, not sold in the chosen markets, without a needed measure, or over a limit.

The code of an exceeded limit is ``FIRST_LIMIT`` plus the index of its measure in ``LIMITED``.
"""


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """Matrices with a row per candidate and a column per epoch count. Infeasible candidates have the ``rank`` 0."""

    epochs: Floats
    work: Interval[Floats]
    """Time in seconds without spot interruptions and early stops, with a row per machine estimate."""
    measures: Mapping[str, Interval[Floats]]
    """The measures that the settings ask for, by name."""
    limits: Codes
    limit_chances: Mapping[str, Floats]
    """Probability that a candidate stays within the deadline (``time``) or the budget (``cost``), by measure."""
    score: Floats
    rank: Ints
    chance: Floats
    """Probability of being the best candidate."""
    tied: Bools
    """Whether each candidate is recommended, or is in the smallest set of candidates that contains the best one with
    the probability ``settings.confidence``."""
    regret: tuple[Mapping[str, float], ...]
    """For each epoch count: expected amount by which the recommended candidate exceeds the best one in each measure
    that has a weight in the objective."""
    pareto: Bools
    order: tuple[Ints, ...]
    """Indices of the feasible candidates, best first, for each epoch count."""
    winners: tuple[Ints, ...]
    """For each epoch count: index of the best candidate in each random draw."""


def assess(candidates: Candidates, settings: Settings) -> Assessment:
    """Measure, score and order all candidates under ``settings``."""
    epochs = _count_epochs(candidates, settings)
    work = candidates.work(epochs)
    # A study has counted the epochs until the stop. Otherwise all machines stop at the same, unknown epoch: this widens
    # the intervals of times and costs, and does not change which machine is best.
    shown = candidates.work(epochs, early_stopping=True) if settings.epochs else work
    measures = measure(candidates, settings, shown, settings.measured)
    # Later assignments win: the first of LIMITED, then unknown measures, then other markets.
    limits = np.zeros(measures["time"].value.shape, dtype=np.int8)
    limit_chances = {}
    for position in reversed(range(len(LIMITED))):
        limited = LIMITED[position]
        most = limited.limit_of(settings)
        if most is not None:
            kept = limit_chances[limited.name] = limit_chance(measures[limited.name], most, settings.confidence)
            if limited.name == "time":
                for interruptions, spot in candidates.list_interrupted(settings.interruptions):
                    within = _spot_chances(interruptions, work, most, settings.confidence)
                    kept[spot] = within[candidates.machine_estimate[spot]]
            broken = measures[limited.name].value > most if settings.chance is None else kept < settings.chance
            limits[broken] = FIRST_LIMIT + position
    for name in OPTIONAL:
        if settings.needs(name):
            limits[np.isnan(measures[name].value)] = UNKNOWN
    if settings.market is not None:
        limits[~candidates.is_sold_in(settings.market)] = OTHER_MARKET
    feasible = limits == FEASIBLE
    values = {name: spread.value for name, spread in measures.items()}
    best = {name: np.min(np.where(feasible, v, np.inf), axis=0, initial=np.inf) for name, v in values.items()}
    value = score(settings.objective, values, best)
    compared = [name for name in measures if not MEASURES[name].optional or settings.needs(name)]
    rank = np.zeros(value.shape, dtype=np.intp)
    tied, pareto = np.zeros(value.shape, dtype=bool), np.zeros(value.shape, dtype=bool)
    chance = np.zeros(value.shape)
    mean_epochs = _mean_epochs(candidates, epochs)
    errors = ErrorModel.of(candidates.machine_estimates, settings.confidence)
    groups = group_offers(candidates, settings)
    expected = Interval.exact(epochs.value)
    times = work if settings.epochs else candidates.work(expected)
    order, regret, winners = [], [], []
    for column in range(value.shape[1]):
        rows = np.flatnonzero(feasible[:, column])
        here = {name: v[rows, column] for name, v in values.items()}
        lowest = {name: float(least[column]) for name, least in best.items()}
        ordered = rows[_sort(value[rows, column], {name: here[name] for name in compared}, lowest)]
        pareto[rows, column] = pareto_front(here["time"], here["cost"])
        rank[ordered, column] = np.arange(1, len(ordered) + 1)
        first = {name: float(v[ordered[0], column]) if len(ordered) else 0.0 for name, v in values.items()}
        chances = estimate_chances(
            candidates, settings, times.column(column), mean_epochs, errors, groups, ordered, lowest, first
        )
        chance[:, column], tied[:, column] = chances.chance, chances.likely
        # The recommendation is always in the set, even if another candidate is more probable.
        tied[ordered[:1], column] = True
        order.append(ordered)
        regret.append(chances.regret)
        winners.append(chances.winners)
    return Assessment(
        epochs=np.broadcast_to(epochs.value, (len(candidates.machine_estimates), epochs.value.shape[1])), work=work,
        measures=measures, limits=limits, limit_chances=limit_chances, score=value, rank=rank, chance=chance, tied=tied,
        regret=tuple(regret), pareto=pareto, order=tuple(order),
        winners=tuple(winners),
    )  # fmt: skip


def _sort(scores: Floats, values: Mapping[str, Floats], best: Mapping[str, float]) -> Ints:
    """Positions of candidates in order of their ``scores``.

    Equal scores are ordered by the sum of the ratios of all ``values`` to the ``best`` ones, then by each of the
    ``values``, so that rounding puts no candidate before a better one, and last by position.
    """
    order = np.argsort(scores)
    ascending = scores[order]
    equal = ascending[1:] == ascending[:-1]
    tied = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
    if len(tied):
        equal_rows = order[tied]
        keys = {name: each[equal_rows] for name, each in values.items()}
        whole = score(
            dict.fromkeys(keys, 1 / len(keys)), keys, {name: np.asarray(least) for name, least in best.items()}
        )
        # The candidates with one score stay within their places, as they are ordered by the score first.
        order[tied] = equal_rows[np.lexsort([equal_rows, *reversed(keys.values()), whole, ascending[tied]])]
    return order


def _spot_chances(interruptions: Interruptions, work: Interval[Floats], most: float, confidence: float) -> Floats:
    """Probability that each machine estimate ends within ``most`` seconds despite interruptions."""
    chances = np.empty_like(work.value)
    for at in np.ndindex(work.value.shape):
        alone = Interval(*(float(part[at]) for part in work))
        chances[at] = interruptions.chance_within(alone, most, confidence=confidence)
    return chances


def _mean_epochs(candidates: Candidates, epochs: Interval[Floats]) -> Interval[Floats]:
    """Mean number of epochs of each machine estimate. Its interval has a width only if a convergence study gives it."""
    count = np.broadcast_to(epochs.value[:, 0], (len(candidates.machine_estimates),))
    half = np.array(
        [machine.epochs.mean_half_width if machine.epochs else 0.0 for machine in candidates.machine_estimates]
    )
    return Interval(count, count * np.exp(-half), count * np.exp(half))


def _count_epochs(candidates: Candidates, settings: Settings) -> Interval[Floats]:
    """Matrix of epoch counts: one row with a column per requested count.

    With a convergence study, it has one column with a row per machine estimate.
    """
    if settings.epochs:
        counts = np.array([settings.epochs], dtype=float)
        return Interval.exact(counts)
    studied = [tuple(machine.epochs or (0, 0, 0)) for machine in candidates.machine_estimates]
    return Interval(*np.array(studied, dtype=float).reshape(-1, 3, 1).transpose(1, 0, 2))


def measure(
    candidates: Candidates, settings: Settings, work: Interval[Floats], names: Iterable[str] = tuple(MEASURES)
) -> dict[str, Interval[Floats]]:
    """The measures ``names`` of the candidates; ``work`` is the time of each machine estimate without interruptions."""
    time = work.take(candidates.machine_estimate)
    for interruptions, rows in candidates.list_interrupted(settings.interruptions):
        stretched = interruptions.stretch(work, confidence=settings.confidence)
        time = stretched.take(candidates.machine_estimate).where(rows[:, None], time)
    return {name: MEASURES[name].of(candidates, settings, time) for name in names}


def pareto_front(seconds: Floats, cost: Floats) -> Bools:
    """Whether each point is on the Pareto front of time and cost. Identical points get the same result."""
    front = np.zeros(seconds.shape, dtype=bool)
    if not len(front):
        return front
    order = np.argsort(seconds)
    time, money = seconds[order], cost[order]
    is_new = np.append(True, time[1:] != time[:-1])  # whether a point is the first one with its time
    cheapest = np.minimum.reduceat(money, np.flatnonzero(is_new))  # the lowest cost at each time
    better = np.append(True, cheapest[1:] < np.minimum.accumulate(cheapest)[:-1])
    at = np.cumsum(is_new) - 1
    front[order] = better[at] & (money == cheapest[at])
    return front


ENOUGH_REPETITIONS = 3
"""Number of repetitions above which further repetitions narrow an interval only a little."""


def list_excluded(ranking: Ranking, columns: Sequence[int]) -> Sequence[Excluded]:
    """Excluded candidates with reasons at the epoch counts ``columns``; those out at every epoch count come first."""
    codes = ranking.assessment.limits[:, columns]
    position, which = np.nonzero(((codes != FEASIBLE) & (codes != OTHER_MARKET)).T)
    always = excluded_always(ranking)

    # There may be a million exclusions, and most readers look at a few: each is explained when it is read.
    def make(number: int) -> Excluded:
        if number < len(always):
            return always[number]
        number -= len(always)
        return _explain_exclusion(ranking, int(which[number]), columns[int(position[number])])

    return Lazy(len(always) + len(which), make)


def excluded_always(ranking: Ranking) -> tuple[Excluded, ...]:
    """Candidates excluded at every epoch count: under any settings, or without an offer in the chosen markets."""
    candidates = ranking.candidates
    machines, sold_in = candidates.machine_estimate, candidates.column("market")
    unsold = (
        exclude_unsold(candidates.machine_estimates[number], ranking.settings.market, sold_in[machines == number])
        for number in np.setdiff1d(machines, machines[ranking.in_market])
    )
    return (*ranking.always_excluded, *unsold)


def _explain_exclusion(ranking: Ranking, candidate: int, column: int) -> Excluded:
    """Why a candidate is excluded at an epoch count: an unknown measure, or the first limit that it exceeds."""
    assessment, epochs, title = ranking.assessment, ranking.epochs_of(candidate, column), ranking.candidates.title
    code = int(assessment.limits[candidate, column])
    if code == UNKNOWN:
        reason = explain_unknown(ranking.candidates, ranking.settings, candidate)
        return Excluded(title(candidate), _unknown_code(ranking, candidate), reason, epochs)
    broken = LIMITED[code - FIRST_LIMIT]
    assert broken.limit is not None
    value = float(assessment.measures[broken.name].value[candidate, column])
    chance = float(assessment.limit_chances[broken.name][candidate, column])
    reason = broken.explain_excess(ranking.settings, value, chance, epochs)
    return Excluded(title(candidate), broken.limit.reason_code, reason, epochs)


def explain_unknown(candidates: Candidates, settings: Settings, candidate: int) -> str:
    """Why energy or CO2 of a candidate is unknown; ``model.js`` of the page writes the same text."""
    power = candidates.power.powers[int(candidates.machine_estimate[candidate])]
    if isinstance(power, UnknownPower):
        return f"its energy is unknown: {power.reason}"
    return "; ".join(unknown_co2(settings, candidates.identity(candidate)))


def unknown_co2(settings: Settings, offer: Mapping[str, Any]) -> tuple[str, str]:
    """Problem and remedy of an offer in a place without an emission factor."""
    market = (settings.emissions or DEFAULT).basis == "market"
    quantity = "share of carbon-free energy" if market else "grid intensity"
    remedy = "pass emissions= with grid_g_per_kwh or country (--grid-g-per-kwh, --country)"
    return f"its CO2 is unknown: no {quantity} of {offer['provider']} {offer['region']} is known", remedy


def _unknown_code(ranking: Ranking, candidate: int) -> str:
    """Reason code of a candidate without a needed measure: with known power, only the place of the machine lacks."""
    watts = ranking.candidates.power.watts[ranking.candidates.machine_estimate[candidate]]
    return "energy_unknown" if np.isnan(watts) else "co2_unknown"


def count_reasons(ranking: Ranking) -> Counter[str]:
    """Number of candidates excluded at the epoch count that decides the ranking, by reason code."""
    codes = ranking.assessment.limits[:, ranking.deciding_column]
    broken = {
        limited.limit.reason_code: int((codes == FIRST_LIMIT + number).sum())
        for number, limited in enumerate(LIMITED)
        if limited.limit
    }
    unknown = Counter(_unknown_code(ranking, int(candidate)) for candidate in np.flatnonzero(codes == UNKNOWN))
    always = Counter(excluded.reason_code for excluded in excluded_always(ranking))
    return always + unknown + Counter(broken)


@dataclass(frozen=True, kw_only=True)
class Shortfall:
    """The candidate that is nearest to the limits if none is feasible, and what it would need to be feasible."""

    candidate: str
    reason: str
    epochs: float
    epochs_that_fit: int | None
    """Largest number of epochs within all limits; None if the number of epochs comes from a convergence study."""
    speed_up: float | None
    """Time of the candidate divided by the deadline; None if it meets the deadline."""
    saving: float | None
    """Fraction of the cost of the candidate that exceeds the budget; None if it meets the budget."""
    co2_saving: float | None = None
    """Fraction of the CO2 of the candidate that exceeds the CO2 limit; None if it meets that limit."""

    def __str__(self) -> str:
        needs = []
        if self.speed_up:
            times = f"{self.speed_up:.3g}" if self.speed_up < 999.5 else f"{self.speed_up:,.0f}"
            needs.append(f"{times} times the speed")
        needs += [f"{100 * self.saving:.3g}% less cost"] if self.saving else []
        needs += [f"{100 * self.co2_saving:.3g}% less CO2"] if self.co2_saving else []
        texts = (
            [f"{format_epoch_count(self.epochs)} need{'s' if self.epochs == 1 else ''} {' and '.join(needs)}"]
            if needs
            else []
        )
        if self.epochs_that_fit is not None:
            fitting = format_epoch_count(self.epochs_that_fit) if self.epochs_that_fit else "Not even one epoch"
            texts.insert(0, f"{fitting} would fit")
        lacking = f" {'; '.join(texts)}." if texts else ""
        return printable(f"Nearest is {self.candidate}: {self.reason}.{lacking}")


def find_shortfall(ranking: Ranking) -> Shortfall | None:
    """The candidate that exceeds its limits least, and by how much.

    None if a candidate is feasible, or if no candidate was excluded because of a limit.
    """
    column, result, settings = ranking.deciding_column, ranking.assessment, ranking.settings
    broken = np.flatnonzero(result.limits[:, column] >= FIRST_LIMIT)
    if ranking or not len(broken):
        return None
    limits = {limited.name: most for limited in LIMITED if (most := limited.limit_of(settings)) is not None}
    excess = {name: result.measures[name].value[broken, column] / most for name, most in limits.items()}
    # The nearest candidate is the one whose worst excess is smallest: it needs the least change to be feasible.
    place = int(np.argmin(np.max(list(excess.values()), axis=0)))
    nearest = int(broken[place])
    over = {name: float(ratios[place]) for name, ratios in excess.items() if ratios[place] > 1}
    first = LIMITED[int(result.limits[nearest, column]) - FIRST_LIMIT]
    epochs = ranking.epochs_of(nearest, column)
    return Shortfall(
        candidate=ranking.candidates.title(nearest),
        reason=first.explain_excess(
            settings,
            float(result.measures[first.name].value[nearest, column]),
            float(result.limit_chances[first.name][nearest, column]),
            epochs,
        ),
        epochs=epochs,
        epochs_that_fit=_count_fitting(ranking, nearest) if settings.epochs else None,
        speed_up=over.get("time"),
        saving=1 - 1 / over["cost"] if "cost" in over else None,
        co2_saving=1 - 1 / over["co2"] if "co2" in over else None,
    )


def _count_fitting(ranking: Ranking, candidate: int) -> int:
    """Largest number of epochs at which ``candidate`` is feasible. Time, cost and CO2 grow with the epochs."""
    alone = ranking.candidates.take(np.array([candidate]))
    fits, too_many = 0, int(ranking.epochs_of(candidate, ranking.deciding_column))
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if assess(alone, replace(ranking.settings, epochs=(middle,))).limits[0, 0] == FEASIBLE:
            fits = middle
        else:
            too_many = middle
    return fits


def judge_spot_deadline(ranking: Ranking, candidate: int, column: int) -> Finding:
    """Finding with the probability that a spot machine meets the deadline, and a safe alternative."""
    settings = ranking.settings
    severity: Literal["warning", "info"] = "warning"
    message = "The probability that this spot machine meets the deadline is unknown without an interruption rate."
    candidates, interruptions = ranking.candidates, settings.interruptions
    # Without a published rate of its type and region, its time contains no interruption.
    if interruptions and (not interruptions.by_type or candidates.interruptions_per_hour[candidate] > 0):
        chance = float(ranking.assessment.limit_chances["time"][candidate, column])
        severity = "info" if chance >= 0.5 + settings.confidence / 2 else "warning"
        message = f"The probability that this spot machine meets the deadline is {format_chance(chance)}."
    safe = find_safe_alternative(ranking, column)
    if safe is None:
        remedy = (
            "No machine outside the spot market is sure to meet the deadline: save checkpoints more often, or allow "
            "more time."
        )
    else:
        measures = ranking.measures_of(safe, column)
        ends = f"ends within {format_seconds(measures['time'].high)} for at most {format_usd(measures['cost'].high)}"
        remedy = f"A safe alternative is {ranking.candidates.title(safe)}: it {ends}."
    return Finding("spot-deadline", message, remedy, severity)


def find_safe_alternative(ranking: Ranking, column: int) -> int | None:
    """Index of the best candidate outside the spot market whose intervals are within all limits; None if none is.

    It is sold on demand or in a chosen market: who asks for spot machines has no use for a commitment of years.
    """
    result, settings = ranking.assessment, ranking.settings
    # Safe means without interruptions and with the upper bound of every limited measure within its limit.
    safe = ~ranking.candidates.is_spot
    if settings.market is not None:
        safe &= ranking.candidates.is_sold_in(("on_demand", *settings.market))
    for name in OPTIONAL:
        if settings.needs(name):
            safe &= ~np.isnan(result.measures[name].value[:, column])
    for limited in LIMITED:
        most = limited.limit_of(settings)
        if most is not None:
            safe &= result.measures[limited.name].high[:, column] <= most
    candidates = np.flatnonzero(safe)
    if not len(candidates):
        return None
    values = {name: spread.value[candidates, column] for name, spread in result.measures.items()}
    best = {name: np.min(value) for name, value in values.items()}
    return int(candidates[np.argmin(score(settings.objective, values, best))])


def explain_excess(ranking: Ranking, limited: Measure, candidate: int, column: int) -> Finding:
    """Warning that the upper bound of a feasible candidate exceeds a limit, and how to narrow its interval."""
    assert limited.limit is not None
    high = float(ranking.assessment.measures[limited.name].high[candidate, column])
    remedy = f"{_narrow(ranking, candidate, column)} Or choose a {limited.limit.better} machine."
    message = f"The training may {limited.limit.verb} up to {limited.format(high)}, over the {limited.limit.noun}."
    return Finding(limited.limit.warning_code, message, remedy)


def _narrow(ranking: Ranking, candidate: int, column: int) -> str:
    """Text: how to narrow the interval of a candidate.

    The advice depends on what causes most of the width: interruptions, the number of epochs or the measurement.
    """
    machine, position = ranking.candidates.of(candidate), ranking.candidates.machine_estimate[candidate]
    form, work = machine.runtime.form, ranking.assessment.work
    epochs = Interval(*machine.epochs) if machine.epochs else Interval.exact(ranking.epochs_of(candidate, column))
    time = ranking.measures_of(candidate, column)["time"]
    causes = {
        "measurement": float(half_width(form.high, epochs.high)),
        "epochs": float(form.seconds(epochs.high) - form.seconds(epochs.value)),
        "interruptions": float(time.high - work.high[position, column] - (time.value - work.value[position, column])),
    }
    # Only the widest cause is named, because narrowing another would hardly change the interval.
    widest = max(causes, key=causes.__getitem__)
    if widest == "interruptions":
        return "Interruptions cause most of the uncertainty: save checkpoints more often, or rent on demand."
    if widest == "epochs":
        return (
            "The number of epochs causes most of the uncertainty: add runs at batch size "
            f"{machine.batch_size} to the convergence study."
        )
    if machine.narrowed_by:
        return machine.narrowed_by[0]
    if machine.repetitions < ENOUGH_REPETITIONS:
        return "Probe this machine again: repetitions narrow the interval."
    return "Further probes narrow the interval only a little, because the measured repetitions differ that much."
