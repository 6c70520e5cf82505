"""Epochs to stabilisation from a part of the curve: a distribution, and an honest word when it cannot be told yet.

The curve is taken as ``level - gain * epoch ** -power`` plus noise, with every power of a grid weighted by how well it
explains what was seen (Bayesian linear regression, so level, gain and noise come as distributions; recent epochs count
more than early ones). Many continuations are drawn and the stopping rule is applied to each: what the rule waits for
depends on the noise at least as much as on the curve. A change of the learning rate that still lies ahead cannot be
foreseen from the curve.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vmselect.convergence.rule import Patience
from vmselect.convergence.run import ConvergenceRun
from vmselect.errors import ArgumentError

POWERS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
DRAWS = 400
MEMORY = 0.5
"""Half-life of a reading's weight, as a share of the epochs seen."""

FEWEST_VALUES = 4
WIDEST_RATIO = 4.0
"""An interval whose ends differ by more than this factor tells nothing worth acting on."""

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
    if not 0 < confidence < 1:
        raise ArgumentError(f"confidence={confidence!r} is not between 0 and 1. Give for example 0.9.")
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
    sign = 1.0 if rule.mode == "max" else -1.0
    epochs, values = np.array([e for e, _ in usable], dtype=float), sign * np.array([v for _, v in usable])
    stride = float(np.median(np.diff(epochs)))
    ahead = epochs[-1] + stride * np.arange(1, max(200, 8 * len(usable)) + 1)
    paths = draw_continuations(epochs, values, ahead, np.random.default_rng(seed))
    stops = _apply_rule(paths, sign * state.best, state.waited, rule.patience, rule.min_delta)
    draws = np.where(stops < len(ahead), ahead[np.minimum(stops, len(ahead) - 1)], np.inf)
    tail = (1 - confidence) / 2
    low, value, high = (float(q) for q in np.quantile(draws, [tail, 0.5, 1 - tail], method="lower"))
    if not math.isfinite(high):
        reason = f"{rule.monitor} may go on improving beyond epoch {ahead[-1]:.0f}"
        return EpochsForecast(value, low, high, False, reason, draws)
    if high > WIDEST_RATIO * low:
        reason = f"the interval {low:.0f} to {high:.0f} is too wide to act on"
        return EpochsForecast(value, low, high, False, reason, draws)
    return EpochsForecast(value, low, high, True, f"{len(usable)} values of {rule.monitor} were seen", draws)


def draw_continuations(epochs: Floats, values: Floats, ahead: Floats, random: np.random.Generator) -> Floats:
    """Continuations of a rising curve at the epochs ``ahead``, one per row."""
    scale = max(float(np.ptp(values)), 1e-12 + 1e-6 * float(np.abs(values).max()))
    weights = 0.5 ** ((epochs[-1] - epochs) / (MEMORY * epochs[-1]))
    # Weak beliefs before any value was seen: the level near the best value, a gain of the size of the range, noise
    # of a twentieth of it.
    precision, middle = np.diag([1e-4, 1e-2]), np.array([values.max(), scale])
    shape, rate = 0.5, 0.5 * (0.05 * scale) ** 2
    posteriors, evidence = [], []
    for power in POWERS:
        basis = np.column_stack([np.ones_like(epochs), -(epochs**-power)])
        posterior = precision + basis.T @ (weights[:, None] * basis)
        mean = np.linalg.solve(posterior, precision @ middle + basis.T @ (weights * values))
        misfit = weights @ (values - basis @ mean) ** 2 + (mean - middle) @ precision @ (mean - middle)
        posterior_shape, posterior_rate = shape + weights.sum() / 2, rate + misfit / 2
        evidence.append(-0.5 * np.linalg.slogdet(posterior)[1] - posterior_shape * math.log(posterior_rate))
        root = np.linalg.cholesky(np.linalg.inv(posterior))
        posteriors.append((power, mean, root, posterior_shape, posterior_rate))
    chances = np.exp(np.array(evidence) - max(evidence))
    counts = random.multinomial(DRAWS, chances / chances.sum())
    parts = []
    for count, (power, mean, root, posterior_shape, posterior_rate) in zip(counts, posteriors, strict=True):
        noise = np.sqrt(posterior_rate / random.gamma(posterior_shape, size=count))[:, None]
        level, gain = (mean + noise * (random.standard_normal((count, 2)) @ root.T)).T
        curve = level[:, None] - np.maximum(gain, 0.0)[:, None] * ahead**-power
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
