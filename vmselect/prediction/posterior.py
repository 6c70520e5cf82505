"""Joint posterior of the log step times of machines, given probes, history and published figures of GPUs.

The model is linear in log time with Gaussian effects, so the posterior is a closed form (best linear unbiased
prediction). A *work* is the computation of a training step: a model with its batch size, image size and settings.
docs/explanation/prediction.md explains the terms and the constants.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import fmean
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from vmselect.catalog.gpus import GpuFigures, Precision

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Constants of the prior. Deviations are standard deviations of log time, so 0.1 is about 10 %.

    "Model" means the trained neural network. The defaults maximize the likelihood of seven public data sets
    (docs/validation/prediction.md), rounded; deviations were rounded up, and those that all models share were widened.
    """

    slopes: tuple[float, float, float] = (-0.27, -0.22, -0.57)
    """Change of log time per log float32 rate, log rate of matrix products and log memory bandwidth."""
    shared_slopes: float = 0.12
    """Deviation of ``slopes`` that all models share."""
    model_slopes: tuple[float, float, float] = (0.04, 0.07, 0.12)
    """Deviation of ``slopes`` between models."""
    work_share: float = 0.6
    """Deviation of ``slopes`` between batch sizes or image sizes of a model, relative to ``model_slopes``."""
    gpu: float = 0.16
    """Deviation of a GPU from the speed that its figures predict, shared by all models."""
    architecture: float = 0.25
    """Deviation of a GPU architecture from the speed that its figures predict, shared by all models."""
    precision_share: float = 0.7
    """Share of the variance of ``gpu`` and ``architecture`` that is common to all precisions."""
    model_family: float = 0.14
    """Deviation of one model on one family of architectures (no tensor cores; tensor cores without or with TF32)."""
    model_gpu: float = 0.11
    """Deviation of one model on one GPU."""
    work_gpu: float = 0.06
    """Deviation of one model at one batch size on one GPU."""
    host: float = 0.05
    """Deviation of a machine from other machines with the same GPU."""
    short_seconds: float = 0.03
    """Step time in seconds below which steps depend on the host too: the shorter they are, the more."""
    short_host: float = 0.7
    """Deviation of a machine for infinitely short steps; it decreases linearly to 0 at ``short_seconds``."""
    unknown_work: float = 5.0
    """Deviation of the log time of a model at a batch size that was never probed."""
    freedom: float = 2.5
    """Degrees of freedom of Student's t: the fewer, the more the scale of the deviations differs between models."""
    model_freedom: float = 1.0
    """Degrees of freedom that each model of the history adds: it is one example of how badly a model can fit."""


CONSTANTS = Constants()
MAX_WORKS = 3
"""Maximum number of works (batch sizes) per model that are used from the history. More would add only similar times."""
_NEW = "a machine that was not probed"
PASSES = 2
"""Number of iterations that reduce the weight of models in the history that fit badly."""


class Target(NamedTuple):
    """Hardware whose step time is measured or predicted: figures of its GPU, precision, and machine type."""

    figures: GpuFigures
    precision: Precision
    machine: str | None = None


class Point(NamedTuple):
    """One measured step time. Points with the same ``work`` are of the same computation on different hardware."""

    model: Hashable
    work: Hashable
    target: Target
    log_seconds: float
    sd: float = 0.0
    """Standard deviation of ``log_seconds`` from the measurement alone."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Posterior:
    """Joint posterior of the log step times of targets: a multivariate Student t distribution.

    Targets with the same GPU share the error of that GPU. ``group`` is the index of the hardware of each target in
    ``shared_mean`` and ``shared_covariance`` (of log seconds), and ``own_variance`` is the independent variance of each
    target, so that thousands of machine types take little memory. ``scale`` multiplies all variances, and ``freedom``
    is the number of degrees of freedom.
    """

    shared_mean: Floats
    shared_covariance: Floats
    group: npt.NDArray[np.intp]
    own_variance: Floats
    scale: float
    freedom: float

    @cached_property
    def mean(self) -> Floats:
        """Mean log seconds of each target."""
        return np.asarray(self.shared_mean[self.group])

    @property
    def covariance(self) -> Floats:
        """Covariance of the log seconds of all targets, not yet multiplied by ``scale``."""
        return np.asarray(self.shared_covariance[np.ix_(self.group, self.group)] + np.diag(self.own_variance))

    @cached_property
    def sd(self) -> Floats:
        """Scale parameter of each log time: the half-width of an interval is ``sd`` times a quantile of Student's t."""
        variance = np.diag(self.shared_covariance)[self.group] + self.own_variance
        return np.asarray(np.sqrt(self.scale * np.maximum(0.0, variance)))

    def interval(self, confidence: float, target: int | slice = slice(None)) -> tuple[Floats, Floats]:
        """Lower and upper bounds of the log step time of each target, or of the target with the index ``target``."""
        half = stdtrit(self.freedom, (1 + confidence) / 2) * self.sd[target]
        return self.mean[target] - half, self.mean[target] + half

    def draws(self, count: int, *, seed: int = 0) -> Floats:
        """Joint draws of log time minus its mean, with a row per draw and a column per target.

        Draws outside the central 99 % are set to the bounds of this range. The array is read-only.
        """
        return _draw(self, count, seed)

    def _draw(self, count: int, seed: int) -> Floats:
        random = np.random.default_rng(seed)
        radius = np.sqrt(self.scale * self.freedom / random.chisquare(self.freedom, size=(count, 1)))
        values, vectors = np.linalg.eigh(self.shared_covariance)  # unlike Cholesky, accepts a variance of 0
        normal = random.standard_normal((count, len(values)))
        shared = (normal * np.sqrt(np.maximum(0.0, values))) @ vectors.T
        own = random.standard_normal((count, len(self.group))) * np.sqrt(self.own_variance)
        most = stdtrit(self.freedom, 0.995) * self.sd  # with few degrees of freedom, times would have no finite mean
        drawn: Floats = np.clip((shared[:, self.group] + own) * radius, -most, most)
        drawn.flags.writeable = False
        return drawn


@lru_cache(maxsize=2)  # all machines of a ranking use the same draws
def _draw(posterior: Posterior, count: int, seed: int) -> Floats:
    return posterior._draw(count, seed)


class _Rows:
    """Arrays with a row per measured step time or predicted target: GPU features, and keys of hardware, model and work.

    ``log_seconds`` maps works to measured log step times. The features of works with short steps are scaled down,
    because a faster GPU shortens such steps less.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        models: Sequence[Hashable],
        works: Sequence[Hashable],
        log_seconds: Mapping[Hashable, Sequence[float]],
        constants: Constants,
    ) -> None:
        self.features = np.array([t.figures.features(t.precision) for t in targets], dtype=float).reshape(-1, 3)
        self.keys: dict[str, Sequence[Hashable]] = {
            "gpu": [t.figures.model for t in targets],
            "architecture": [t.figures.architecture for t in targets],
            "family": [t.figures.family for t in targets],
            "precision": [t.precision for t in targets],
            "machine": [t.machine for t in targets],
            "model": models,
            "work": works,
        }
        self._masks: dict[str, Floats] = {}
        typical = [fmean(log_seconds[work]) if work in log_seconds else math.inf for work in works]
        shortest = [min(log_seconds[work]) if work in log_seconds else math.inf for work in works]
        self.features *= 1.0 - _shortness(np.array(typical), constants)[:, None]
        self.shortness = _shortness(np.array(shortest), constants)

    def same(self, name: str) -> Floats:
        """Matrix with 1 where two rows have the same key ``name``, else 0."""
        if name not in self._masks:
            self._masks[name] = _same(self.keys[name])
        return self._masks[name]

    @classmethod
    def of(cls, points: Sequence[Point], targets: Sequence[Target], constants: Constants) -> _Rows:
        """Make the arrays: a row for each of ``points``, then a row for each of ``targets``.

        The rows of ``targets`` have the model and work of the last point.
        """
        times: dict[Hashable, list[float]] = {}
        for point in points:
            times.setdefault(point.work, []).append(point.log_seconds)
        many = len(targets)
        return cls(
            [*(p.target for p in points), *targets], [*(p.model for p in points), *[points[-1].model] * many],
            [*(p.work for p in points), *[points[-1].work] * many], times, constants,
        )  # fmt: skip


def _same(keys: Sequence[Hashable]) -> Floats:
    """Matrix with 1 where two keys are equal, else 0."""
    codes: dict[Hashable, int] = {}
    each = np.array([codes.setdefault(key, len(codes)) for key in keys], dtype=int)
    return np.asarray(each[:, None] == each[None, :], dtype=float)


def _shortness(log_seconds: Floats, c: Constants) -> Floats:
    """0 for steps of at least ``c.short_seconds``, 1 for infinitely short steps, and linear in between."""
    return np.asarray(np.maximum(0.0, 1.0 - np.exp(np.minimum(log_seconds, 0.0)) / c.short_seconds))


def _shared_covariance(rows: _Rows, c: Constants) -> Floats:
    """Prior covariance of the deviations that all models share."""
    hardware = c.gpu**2 * rows.same("gpu") + c.architecture**2 * rows.same("architecture")
    precision = c.precision_share + (1 - c.precision_share) * rows.same("precision")
    slopes = c.shared_slopes**2 * rows.features @ rows.features.T
    return np.asarray(hardware * precision + slopes)


def _own_covariance(rows: _Rows, c: Constants) -> tuple[Floats, Floats]:
    """Two prior covariance matrices of the log times.

    The first is that of the deviations of single models and works; the second that of the unknown level of each work,
    which all its rows share.
    """
    slopes = (rows.features * np.square(c.model_slopes)) @ rows.features.T
    gpu = rows.same("gpu") * rows.same("precision")
    hosts = c.host**2 + c.short_host**2 * np.outer(rows.shortness, rows.shortness)
    of_model = slopes + c.model_gpu**2 * gpu + c.model_family**2 * rows.same("family") * rows.same("precision")
    of_work = c.work_share**2 * slopes + c.work_gpu**2 * gpu + hosts * gpu * rows.same("machine")
    return rows.same("model") * of_model + rows.same("work") * of_work, c.unknown_work**2 * rows.same("work")


def _center(works: Sequence[Hashable], residual: Floats) -> tuple[Floats, dict[Hashable, float]]:
    """Residuals minus the mean over all measurements of the same computation (work); and these means by work."""
    same = _same(works)
    means = same @ residual / np.maximum(1.0, same.sum(axis=1))
    return residual - means, dict(zip(works, means.tolist(), strict=True))


def _choose(history: Iterable[Point]) -> list[Point]:
    """Points of at most :data:`MAX_WORKS` works of each model, those with the most points.

    The result does not depend on the order of ``history``.
    """
    works: dict[tuple[Hashable, Hashable], list[Point]] = {}
    for point in history:
        works.setdefault((point.model, point.work), []).append(point)
    kept: dict[Hashable, int] = {}
    chosen: list[Point] = []
    for key in sorted(works, key=lambda key: (-len(works[key]), str(key))):
        if len(works[key]) > 1 and kept.get(key[0], 0) < MAX_WORKS:  # a single point says nothing about ratios
            kept[key[0]] = kept.get(key[0], 0) + 1
            chosen += sorted(works[key], key=_order)
    return chosen


def _order(point: Point) -> tuple[str, float, float]:
    return str(point.target), point.log_seconds, point.sd


@dataclass(frozen=True)
class _SharedEffects:
    """Posterior of the deviations of GPUs that all models share; and how well the history fits the prior."""

    mean: Floats
    covariance: Floats
    misfit: float
    """Sum over models of the squared misfit per degree of freedom (about 1) times ``Constants.model_freedom``."""
    weight: float


def _learn(history: Sequence[Point], hardware: Mapping[Hashable, Target], c: Constants) -> _SharedEffects:
    """Estimate the deviations of ``hardware`` that all models share, from the history of other models."""
    from scipy.linalg import cho_factor, cho_solve  # slow to import: only predictions need it

    place = {key: at for at, key in enumerate(hardware)}
    targets = list(hardware.values())
    prior = _shared_covariance(_Rows(targets, [None] * len(targets), [None] * len(targets), {}, c), c)
    groups: dict[Hashable, list[Point]] = {}
    for point in history:
        groups.setdefault(point.model, []).append(point)
    blocks = []
    for points in groups.values():
        rows = _Rows.of(points, [], c)
        residual, _ = _center(rows.keys["work"], _log_seconds(points) - rows.features @ np.array(c.slopes))
        own, unknown = _own_covariance(rows, c)
        own += _noise(points)
        at = np.array([place[_hardware(point.target)] for point in points])
        blocks.append((residual, own, unknown, at, len(points) - len(set(rows.keys["work"]))))

    def solve(factors: Sequence[float]) -> tuple[Floats, Floats]:
        information, weighted = np.zeros_like(prior), np.zeros(len(prior))
        for (residual, own, unknown, at, _), factor in zip(blocks, factors, strict=True):
            block = cho_factor(factor * own + unknown)
            np.add.at(information, (at[:, None], at[None, :]), cho_solve(block, np.eye(len(at))))
            np.add.at(weighted, at, cho_solve(block, residual))
        covariance = np.linalg.solve(np.eye(len(prior)) + prior @ information, prior)
        covariance = (covariance + covariance.T) / 2
        return covariance @ weighted, covariance

    factors = [1.0] * len(blocks)
    mean, covariance = solve(factors)
    misfit = 0.0
    for turn in range(PASSES if blocks else 0):
        for number, (residual, own, unknown, at, count) in enumerate(blocks):
            left = residual - mean[at]
            squares = float(left @ cho_solve(cho_factor(own + unknown), left))
            factors[number] = max(1.0, (c.freedom + squares) / (c.freedom + count))
            misfit += c.model_freedom * squares / count if turn == 0 else 0.0
        mean, covariance = solve(factors)
    return _SharedEffects(mean, covariance, misfit, c.model_freedom * len(blocks))


def _hardware(target: Target) -> Hashable:
    return target.figures.model, target.precision


def _log_seconds(points: Sequence[Point]) -> Floats:
    return np.array([point.log_seconds for point in points], dtype=float)


def _noise(points: Sequence[Point]) -> Floats:
    return np.diag([point.sd**2 + 1e-8 for point in points])


def predict_log_times(
    probes: Sequence[Point],
    targets: Sequence[Target],
    *,
    history: Iterable[Point] = (),
    constants: Constants = CONSTANTS,
) -> Posterior:
    """Posterior of the log step times of ``targets`` for the computation that the ``probes`` measured.

    All ``probes`` must have the same ``work``. Points of the history with the same model inform about this model; all
    other points inform about GPUs only.
    """
    from scipy.linalg import cho_factor, cho_solve  # slow to import: only predictions need it

    c = constants
    model, work = probes[0].model, probes[0].work
    points = list(history)
    others = _choose(point for point in points if point.model != model)
    seen = [*_choose(p for p in points if p.model == model and p.work != work), *sorted(probes, key=_order)]
    probed = {p.target for p in probes if p.target.machine is not None}
    # Machines with the same GPU that were not probed differ by their hosts only, so one row represents all of them.
    keys = [target if target in probed else target._replace(machine=_NEW) for target in targets]
    asked = sorted(set(keys), key=str)
    used = {t._replace(machine=None) for t in [*(p.target for p in [*others, *seen]), *asked]}
    hardware = {_hardware(target): target for target in sorted(used, key=str)}
    shared = _learn(others, hardware, c)

    rows = _Rows.of(seen, asked, c)
    place = {key: at for at, key in enumerate(hardware)}
    at = np.array([place[_hardware(t)] for t in [*(p.target for p in seen), *asked]])
    prior = rows.features @ np.array(c.slopes) + shared.mean[at]
    measured, rest = slice(0, len(seen)), slice(len(seen), None)
    residual, offsets = _center([p.work for p in seen], _log_seconds(seen) - prior[measured])
    of_work = rows.shortness[rest].copy()
    for _ in range(2):  # whether the steps of a target are short is known after a first prediction
        own, unknown = _own_covariance(rows, c)
        hosts = c.host**2 + (c.short_host * rows.shortness[rest]) ** 2
        joint = shared.covariance[np.ix_(at, at)] + own + unknown
        factor = cho_factor(joint[measured, measured] + _noise(seen))
        cross = joint[rest, measured]
        mean = prior[rest] + offsets[work] + cross @ cho_solve(factor, residual)
        rows.shortness[rest] = np.maximum(of_work, _shortness(mean, c))
    covariance = joint[rest, rest] - cross @ cho_solve(factor, cross.T)
    own_variance = np.where([target.machine == _NEW for target in asked], hosts, 0.0)

    count = len(seen) - len({p.work for p in seen})
    misfit = shared.misfit + float(residual @ cho_solve(factor, residual))
    position = {key: number for number, key in enumerate(asked)}
    group = np.array([position[key] for key in keys], dtype=np.intp)
    return Posterior(
        shared_mean=np.asarray(mean),
        shared_covariance=np.asarray((covariance + covariance.T) / 2 - np.diag(own_variance)),
        group=group,
        own_variance=np.asarray(own_variance[group], dtype=float),
        scale=(c.freedom + misfit) / (c.freedom + shared.weight + count),
        freedom=c.freedom + count,
    )
