"""Epochs to stabilisation from a part of the curve: a distribution, and an honest word when it cannot be told yet.

The curve is taken as ``level - gain * epoch ** -power`` plus noise, with every power of a grid weighted by how well it
explains what was seen (Bayesian linear regression, so level, gain and noise come as distributions; recent epochs count
more than early ones). Many continuations are drawn and the stopping rule is applied to each: what the rule waits for
depends on the noise at least as much as on the curve. A change of the learning rate that still lies ahead cannot be
foreseen from the curve.

Draws are not taken at their word: smooth curves with noise go on improving a little for longer than trainings do. The
plain guess, "the patience from here", is hard to beat, so the value stays with it unless nearly all draws go on for
longer, and the interval is one that held on other curves (:func:`summarise`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from vmselect._checks import check_number
from vmselect.records.convergence import ConvergenceRun
from vmselect.records.rule import Patience

POWERS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
DRAWS = 400
MEMORY = 0.5
"""Half-life of a reading's weight, as a share of the epochs seen."""

FEWEST_VALUES = 4
LARGEST_VALUE = 1e100
"""What is larger cannot be squared, and is no metric of a training that goes anywhere."""

WIDEST_RATIO = 4.0
"""An interval whose ends differ by more than this factor tells nothing worth acting on."""

WAITED = 0.5
"""The value is the patience from now on, less this share of what was waited already: the wait may go on to its end or
begin anew, and this is the middle..."""

VALUE_DRAWS = 0.1
"""...unless all but this share of draws go on for longer: then it is the draw that this share precede, but no more than
as much again as was seen. Who is not past the middle of a run cannot be led too far by that, whatever the draws say."""

HIGH_TIMES = 10.0
"""The high end is the way to the middle draw, this many times over the root of the number of values seen: the more of
them, the better a draw is known, and the less a change of the learning rate can still add. The low end needs no
constant: it is where the rule can stop at the earliest.

All were chosen by grids, on curves of 100 small trainings and on one half of DAWNBench's and Pollux' curves; the other
half is for the report (``tests/benchmarks/forecasts.py``, docs/explanation/when-methodology-1-pays.md)."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class EpochsForecast:
    """Epochs until the metric stabilises, as foreseen from a part of the run: unpacks as ``value, low, high``.

    ``can_tell`` is False, with the ``reason``, when the curve does not say yet. ``draws`` is the whole distribution.
    """

    value: float
    low: float
    high: float
    can_tell: bool
    reason: str
    draws: Floats = field(repr=False, compare=False)

    def __iter__(self) -> Iterator[float]:
        return iter((self.value, self.low, self.high))


def forecast_epochs(run: ConvergenceRun, *, confidence: float = 0.9, seed: int = 0) -> EpochsForecast:
    """When ``run`` will stabilise, from what was seen of it so far."""
    confidence = check_number("confidence", confidence, above=0, most=0.9999)
    rule = run.rule
    if run.stabilised_after is not None:
        return _certain(run.stabilised_after)
    points = [(epoch, value) for epoch, value in run.curve.points if epoch > rule.start_from_epoch]
    usable = [(epoch, value) for epoch, value in points if math.isfinite(value)]
    if len(usable) < FEWEST_VALUES:
        return _untold(run, f"only {len(usable)} values of {rule.monitor} were seen, and {FEWEST_VALUES} are needed")
    state = Patience()
    for epoch, value in points:
        state = state.after(rule, epoch, value)
    if state.best is None or not math.isfinite(state.best):
        return _untold(run, f"the best value of {rule.monitor} so far is {state.best}")
    if max(abs(value) for _, value in usable) > LARGEST_VALUE:
        return _untold(run, f"values of {rule.monitor} beyond {LARGEST_VALUE:g} were seen")
    sign = 1.0 if rule.mode == "max" else -1.0
    epochs, values = np.array([e for e, _ in usable], dtype=float), sign * np.array([v for _, v in usable])
    stride = float(np.median(np.diff(epochs)))
    ahead = epochs[-1] + stride * np.arange(1, max(200, 8 * len(usable)) + 1)
    fits = fit_curves(epochs, values)
    paths = draw_continuations(fits, ahead, np.random.default_rng(seed))
    stops = _apply_rule(paths, sign * state.best, state.waited, rule.patience, rule.min_delta)
    draws = np.where(stops < len(ahead), ahead[np.minimum(stops, len(ahead) - 1)], np.inf)
    low, value, high = summarise(
        draws, Standing(float(epochs[-1]), stride, state.waited, rule.patience), confidence=confidence
    )
    if is_straight(epochs, values, fits):
        reason = f"{rule.monitor} improves as steadily as at first: the curve has not bent yet"
        return EpochsForecast(value, low, math.inf, False, reason, draws)
    if not math.isfinite(high):
        reason = f"{rule.monitor} may go on improving beyond epoch {ahead[-1]:.0f}"
        return EpochsForecast(value, low, high, False, reason, draws)
    if high > WIDEST_RATIO * low:
        reason = f"the interval {low:.0f} to {high:.0f} is too wide to act on"
        return EpochsForecast(value, low, high, False, reason, draws)
    return EpochsForecast(value, low, high, True, f"{len(usable)} values of {rule.monitor} were seen", draws)


@dataclass(frozen=True)
class Standing:
    """Where a run stands: epochs seen, epochs from one value to the next, values waited, and the patience in values."""

    seen: float
    stride: float
    waited: int
    patience: int


def summarise(draws: Floats, standing: Standing, *, confidence: float) -> tuple[float, float, float]:
    """Low end, value and high end from the epochs at which the ``draws`` stop."""
    seen, stride, patience = standing.seen, standing.stride, max(1, standing.patience)
    early, middle = (float(q) - seen for q in np.quantile(draws, [VALUE_DRAWS, 0.5], method="lower"))
    soonest = stride * max(1, patience - standing.waited)
    # Runs end with a value, so parts of one do not count.
    plain = stride * max(1, math.ceil(patience - WAITED * standing.waited))
    value = max(min(early, seen), plain)
    low, high = soonest, max(middle * max(1.0, HIGH_TIMES / math.sqrt(seen / stride)), value)
    # Those ends hold at nine in ten; others lie along the same lines, on a scale of ratios.
    reach = NormalDist().inv_cdf(0.5 + confidence / 2) / NormalDist().inv_cdf(0.95)
    low = max(value * (low / value) ** reach, soonest)
    high = value * (high / value) ** reach
    return seen + low, seen + value, seen + high


@dataclass(frozen=True)
class Fit:
    """What one shape of curve makes of the values: level and gain, with their spread and that of the noise."""

    power: float
    mean: Floats
    root: Floats
    shape: float
    rate: float
    evidence: float


def fit_curves(epochs: Floats, values: Floats) -> list[Fit]:
    """A fit of ``level - gain * epoch ** -power`` for every power."""
    return [_fit(power, -(epochs**-power), epochs, values, level=float(values.max())) for power in POWERS]


def is_straight(epochs: Floats, values: Floats, fits: Sequence[Fit]) -> bool:
    """Whether a straight line explains the values better than all the bent curves together."""
    line = _fit(-1.0, epochs / epochs[-1], epochs, values, level=float(values[0]))
    return bool(line.evidence > np.logaddexp.reduce([fit.evidence for fit in fits]) - math.log(len(fits)))


def _fit(power: float, basis: Floats, epochs: Floats, values: Floats, *, level: float) -> Fit:
    """Bayesian linear regression on a constant and ``basis``."""
    scale = max(float(np.ptp(values)), 1e-12 + 1e-6 * float(np.abs(values).max()))
    weights = 0.5 ** ((epochs[-1] - epochs) / (MEMORY * epochs[-1]))
    # Weak beliefs before any value was seen: where the level lies, a gain of the size of the range, noise of a
    # twentieth of it.
    precision, middle = np.diag([1e-4, 1e-2]), np.array([level, scale])
    shape, rate = 0.5, 0.5 * (0.05 * scale) ** 2
    columns = np.column_stack([np.ones_like(epochs), basis])
    posterior = precision + columns.T @ (weights[:, None] * columns)
    mean = np.linalg.solve(posterior, precision @ middle + columns.T @ (weights * values))
    misfit = weights @ (values - columns @ mean) ** 2 + (mean - middle) @ precision @ (mean - middle)
    shape, rate = shape + weights.sum() / 2, rate + misfit / 2
    evidence = -0.5 * np.linalg.slogdet(posterior)[1] - shape * math.log(rate)
    return Fit(power, mean, np.linalg.cholesky(np.linalg.inv(posterior)), shape, rate, float(evidence))


def draw_continuations(fits: Sequence[Fit], ahead: Floats, random: np.random.Generator) -> Floats:
    """Continuations of a rising curve at the epochs ``ahead``, one per row; better fits get more of them."""
    evidence = np.array([fit.evidence for fit in fits])
    chances = np.exp(evidence - evidence.max())
    counts = random.multinomial(DRAWS, chances / chances.sum())
    parts = []
    for count, fit in zip(counts, fits, strict=True):
        noise = np.sqrt(fit.rate / random.gamma(fit.shape, size=count))[:, None]
        level, gain = (fit.mean + noise * (random.standard_normal((count, 2)) @ fit.root.T)).T
        curve = level[:, None] - np.maximum(gain, 0.0)[:, None] * ahead**-fit.power
        parts.append(curve + noise * random.standard_normal(curve.shape))
    return np.concatenate(parts)


def _apply_rule(paths: Floats, best: float, waited: int, patience: int, min_delta: float) -> NDArray[np.intp]:
    """Index of the epoch at which the rule stops each path; the number of epochs where it never does."""
    count, length = paths.shape
    top, waits = np.full(count, best), np.full(count, waited)
    stops = np.full(count, length)
    for index in range(length):
        better = paths[:, index] - min_delta > top
        top = np.where(better, paths[:, index], top)
        waits = np.where(better, 0, waits + 1)
        stops = np.where(~better & (waits >= patience) & (stops == length), index, stops)
    return stops.astype(np.intp)


def _certain(epochs: float) -> EpochsForecast:
    return EpochsForecast(epochs, epochs, epochs, True, "the run has stabilised", np.array([epochs]))


def _untold(run: ConvergenceRun, reason: str) -> EpochsForecast:
    seen = float(run.epochs_run)
    return EpochsForecast(math.inf, seen, math.inf, False, reason, np.array([]))
