"""Joint posterior of the log step times of machines, given probes, history and published figures of GPUs.

The model is linear in log time with Gaussian effects, so the posterior is a closed form (best linear unbiased
prediction). A *work* is the computation of a training step: a model with its batch size, image size and settings.
The expected time of a *described* work, one whose operations are known, is its roofline, so that it needs no probe. Of
other works, the figures of GPUs give only ratios of times. Both kinds are in one joint covariance.
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
from vmselect.prediction.roofline import ROOFLINE, RooflineConstants, StepCost

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Described:
    """Standard deviations of the log time of described works from their roofline.

    The values were fitted to eight public data sets (docs/validation/prediction.md), then multiplied by 1.5 (``level``,
    ``shared_slopes``) or 1.25 (the others), because few sources and GPUs underestimate deviations, and rounded.
    """

    level: float = 0.13
    """Deviation that all works of a user share: software and hosts."""
    model_level: float = 0.20
    """Deviation that all works of a model share."""
    work_level: float = 0.18
    """Deviation of one work on all GPUs."""
    gpu: float = 0.12
    architecture: float = 0.15
    shared_slopes: float = 0.06
    """Deviation of the exponents of figures that all models share."""
    model_slopes: float = 0.08
    """Deviation of the exponents of figures between models."""
    model_gpu: float = 0.10
    work_gpu: float = 0.06
    launch: float = 0.63
    """Deviation of the launch overhead that all works of a user share: eager or compiled, separate or fused kernels."""
    gpu_launch: float = 0.53
    """Deviation of the launch overhead on machines with one GPU model, which differ in their hosts."""
    model_launch: float = 0.53
    """Deviation of the launch overhead of one model on machines with one GPU model: a host that is slow for the code
    and the input of one model may be fast for those of another. Not fitted: as large as ``gpu_launch``."""
    freedom: float = 5.0
    """Degrees of freedom of Student's t: with 3 the interval score is worse on average."""


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
    short_host: float = 1.0
    """Deviation of a machine for infinitely short steps; it decreases linearly to 0 at ``short_seconds``."""
    unknown_work: float = 5.0
    """Deviation of the log time of a model at a batch size that was never probed."""
    freedom: float = 4.0
    """Degrees of freedom of Student's t: the fewer, the more the scale of the deviations differs between models. Chosen
    with ``model_freedom`` by the interval score of nine tables, with a coverage of at least 84 % on each of the seven
    studies that they come from (``tests/benchmarks/calibration.py``)."""
    model_freedom: float = 2.0
    """Weight of each model of the history in the scale of the deviations: it shows how badly a model can fit."""
    misleading: float = 0.5
    """Probability that the history of other models misleads, before any evidence from history and probes."""
    roofline: RooflineConstants = ROOFLINE
    described: Described = Described()
    """Deviations of described works, instead of the deviations above."""


CONSTANTS = Constants()
MAX_WORKS = 3
"""Maximum number of works (batch sizes) per model that are used from the history. More would add only similar times."""
_NEW = "a machine that was not probed"
MAX_GAIN = 4.0
"""Most evidence (difference of log likelihoods) for the history of other models that the history itself can give, so
that probes of this training can outweigh it."""
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
    cost: StepCost | None = None
    """Operations of the work, if it was described. All points of a work have the same."""


class Computation(NamedTuple):
    """A work whose step times are predicted, with its model and, if it was described, its operations."""

    model: Hashable
    work: Hashable
    cost: StepCost | None = None


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
    because a faster GPU shortens such steps less; those of described works by the share of the launch overhead.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        computations: Sequence[Computation],
        log_seconds: Mapping[Hashable, Sequence[float]],
        constants: Constants,
    ) -> None:
        self.features = np.array([t.figures.features(t.precision) for t in targets], dtype=float).reshape(-1, 3)
        works = [computation.work for computation in computations]
        self.keys: dict[str, Sequence[Hashable]] = {
            "gpu": [t.figures.model for t in targets],
            "architecture": [t.figures.architecture for t in targets],
            "family": [t.figures.family for t in targets],
            "precision": [t.precision for t in targets],
            "machine": [t.machine for t in targets],
            "model": [computation.model for computation in computations],
            "work": works,
        }
        self._masks: dict[str, Floats] = {}
        costs = [computation.cost for computation in computations]
        self.described = np.array([cost is not None for cost in costs], dtype=bool)
        typical = [fmean(log_seconds[work]) if work in log_seconds else math.inf for work in works]
        shortest = [min(log_seconds[work]) if work in log_seconds else math.inf for work in works]
        self.features *= 1.0 - self._plain(_shortness(np.array(typical), constants))[:, None]
        self.shortness = self._plain(_shortness(np.array(shortest), constants))
        self.mean = self.features @ np.array(constants.slopes)
        """Expected log time; of works that are not described, without the unknown amount of work."""
        self.launch_share = np.zeros(len(targets))
        self.work_level = np.zeros(len(targets))
        """Deviation of each described work on all GPUs; 0 for other works."""
        for at, (target, cost) in enumerate(zip(targets, costs, strict=True)):
            if cost is not None:
                prior = cost.prior(target.figures, target.precision, constants.roofline)
                self.mean[at], self.launch_share[at] = prior
                self.work_level[at] = max(constants.described.work_level, cost.caveat_level)
        self.features *= 1.0 - self.launch_share[:, None]

    def _plain(self, values: Floats) -> Floats:
        """``values`` with 0 in the rows of described works."""
        return np.asarray(np.where(self.described, 0.0, values))

    def same(self, name: str) -> Floats:
        """Matrix with 1 where two rows have the same key ``name``, else 0."""
        if name not in self._masks:
            self._masks[name] = _same(self.keys[name])
        return self._masks[name]

    def pairs(self, described: float, plain: float = 1.0) -> Floats:
        """Matrix of products of two factors: ``described`` for rows of described works, ``plain`` for the others."""
        each = np.where(self.described, described, plain)
        return np.asarray(np.outer(each, each), dtype=float)

    def loadings(self, gpus: Mapping[Hashable, int]) -> Floats:
        """Factors of the effects that all described works share, with the columns of :func:`_effect_variances`."""
        each = np.zeros((len(self.described), len(gpus)))
        for at, gpu in enumerate(self.keys["gpu"]):
            each[at, gpus[gpu]] = 1.0
        share = self.launch_share[:, None]
        columns = [np.ones_like(share), self.features, share, share * each]
        return np.asarray(np.hstack(columns) * self.described[:, None])

    @classmethod
    def of(
        cls,
        points: Sequence[Point],
        targets: Sequence[Target],
        constants: Constants,
        computation: Computation | None = None,
    ) -> _Rows:
        """Make the arrays: a row for each of ``points``, then a row for each of ``targets`` with ``computation``."""
        times: dict[Hashable, list[float]] = {}
        for point in points:
            times.setdefault(point.work, []).append(point.log_seconds)
        asked = [computation or Computation(None, None)] * len(targets)
        made = [*(_computation(p) for p in points), *asked]
        return cls([*(p.target for p in points), *targets], made, times, constants)


def _computation(point: Point) -> Computation:
    return Computation(point.model, point.work, point.cost)


def _same(keys: Sequence[Hashable]) -> Floats:
    """Matrix with 1 where two keys are equal, else 0."""
    codes: dict[Hashable, int] = {}
    each = np.array([codes.setdefault(key, len(codes)) for key in keys], dtype=int)
    return np.asarray(each[:, None] == each[None, :], dtype=float)


def _shortness(log_seconds: Floats, c: Constants) -> Floats:
    """0 for steps of at least ``c.short_seconds``, 1 for infinitely short steps, and linear in between."""
    return np.asarray(np.maximum(0.0, 1.0 - np.exp(np.minimum(log_seconds, 0.0)) / c.short_seconds))


def _shared_covariance(rows: _Rows, c: Constants) -> Floats:
    """Prior covariance of the deviations that all models share, without the effects of :func:`_effect_variances`."""
    d = c.described
    hardware = c.gpu**2 * rows.same("gpu") * rows.pairs(d.gpu / c.gpu)
    hardware = hardware + c.architecture**2 * rows.same("architecture") * rows.pairs(d.architecture / c.architecture)
    precision = c.precision_share + (1 - c.precision_share) * rows.same("precision")
    slopes = c.shared_slopes**2 * rows.features @ rows.features.T * rows.pairs(0.0)
    return np.asarray(hardware * precision + slopes)


def _effect_variances(gpus: int, c: Constants) -> Floats:
    """Prior variances of the effects that all described works share.

    These are the level, the exponents of three figures, the launch overhead, and the launch overhead of each of
    ``gpus`` GPU models.
    """
    d = c.described
    sds = [d.level, d.shared_slopes, d.shared_slopes, d.shared_slopes, d.launch, *[d.gpu_launch] * gpus]
    return np.asarray(np.square(np.array(sds, dtype=float)))


def _own_covariance(rows: _Rows, c: Constants) -> tuple[Floats, Floats]:
    """Two prior covariance matrices of the log times.

    The first is that of the deviations of single models and works; the second that of the unknown level of each work
    that is not described, which all its rows share.
    """
    d, plain = c.described, rows.pairs(0.0)
    features = np.where(rows.described[:, None], rows.features * d.model_slopes / c.model_slopes, rows.features)
    slopes = (features * np.square(c.model_slopes)) @ features.T
    gpu = rows.same("gpu") * rows.same("precision")
    hosts = c.host**2 + c.short_host**2 * np.outer(rows.shortness, rows.shortness)
    of_model = slopes + c.model_gpu**2 * gpu * rows.pairs(d.model_gpu / c.model_gpu)
    of_model = of_model + c.model_family**2 * rows.same("family") * rows.same("precision") * plain
    of_work = c.work_share**2 * slopes * plain + c.work_gpu**2 * gpu * rows.pairs(d.work_gpu / c.work_gpu)
    of_work = of_work + hosts * gpu * rows.same("machine")
    if rows.described.any():
        of_model = of_model + d.model_level**2 * rows.pairs(1.0, 0.0)
        of_model = of_model + d.model_launch**2 * gpu * np.outer(rows.launch_share, rows.launch_share)
        of_work = of_work + np.outer(rows.work_level, rows.work_level)
    own = rows.same("model") * of_model + rows.same("work") * of_work
    return own, c.unknown_work**2 * rows.same("work") * plain


def _center(rows: _Rows, residual: Floats) -> tuple[Floats, dict[Hashable, float]]:
    """Residuals minus the mean over all measurements of the same computation (work); and these means by work.

    Residuals of described works stay as they are, because their level is not unknown.
    """
    works, same = rows.keys["work"][: len(residual)], rows.same("work")[: len(residual), : len(residual)]
    means = same @ residual / np.maximum(1.0, same.sum(axis=1))
    means = np.where(rows.described[: len(residual)], 0.0, means)
    return residual - means, dict(zip(works, means.tolist(), strict=True))


def _count_known(points: Sequence[Point]) -> int:
    """Number of points minus one for each work that is not described, because its level is unknown."""
    return len(points) - len({point.work for point in points if point.cost is None})


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
        single = len(works[key]) == 1 and works[key][0].cost is None  # says nothing about ratios
        if not single and kept.get(key[0], 0) < MAX_WORKS:
            kept[key[0]] = kept.get(key[0], 0) + 1
            chosen += sorted(works[key], key=_order)
    return chosen


def _order(point: Point) -> tuple[str, float, float]:
    return str(point.target), point.log_seconds, point.sd


@dataclass(frozen=True)
class _SharedEffects:
    """Posterior of the deviations that all models share; and how well the history fits the prior.

    The first effects are those of hardware, the others those of described works (:func:`_effect_variances`), if any.
    """

    hardware: Mapping[tuple[Hashable, ...], int]
    """Index of the effect of each hardware."""
    gpus: Mapping[Hashable, int]
    mean: Floats
    covariance: Floats
    misfit: float
    """Sum over models of the squared misfit per degree of freedom (about 1) times ``Constants.model_freedom``."""
    weight: float
    gain: float
    """Evidence that the history of some models helps to predict others (difference of log likelihoods)."""

    def of_rows(self, rows: _Rows, hardware: Sequence[tuple[Hashable, ...]]) -> tuple[Floats, Floats]:
        """Mean and covariance of the sum of the shared effects of each row."""
        at, many = np.array([self.hardware[key] for key in hardware], dtype=int), len(self.hardware)
        mean, covariance = self.mean[at], self.covariance[np.ix_(at, at)]
        if rows.described.any():
            loadings = rows.loadings(self.gpus)
            cross = self.covariance[at, many:] @ loadings.T
            mean = mean + loadings @ self.mean[many:]
            covariance = covariance + cross + cross.T + loadings @ self.covariance[many:, many:] @ loadings.T
        return mean, covariance


class _Block(NamedTuple):
    """Points of one model of the history: residuals, covariances, and how the shared effects add to them."""

    residual: Floats
    own: Floats
    unknown: Floats
    at: npt.NDArray[np.intp]
    loadings: Floats
    degrees: int
    """Number of points minus unknown levels."""


def _learn(
    history: Sequence[Point], hardware: Mapping[tuple[Hashable, ...], Target], described: bool, c: Constants
) -> _SharedEffects:
    """Estimate the deviations that all models share, from the history of other models.

    ``hardware`` contains the targets of all rows by :func:`_hardware`. ``described`` states whether any is of a
    described work.
    """
    from scipy.linalg import block_diag, cho_factor, cho_solve  # slow to import: only predictions need it

    place = {key: at for at, key in enumerate(hardware)}
    gpus: dict[Hashable, int] = {}
    for target in hardware.values():
        gpus.setdefault(target.figures.model, len(gpus))
    nodes = _Rows(list(hardware.values()), [Computation(None, None)] * len(hardware), {}, c)
    nodes.described = np.array([key[-1] for key in hardware], dtype=bool)
    prior = _shared_covariance(nodes, c)
    if described:
        prior = block_diag(prior, np.diag(_effect_variances(len(gpus), c)))
    many = len(hardware)
    groups: dict[Hashable, list[Point]] = {}
    for point in history:
        groups.setdefault(point.model, []).append(point)
    blocks = []
    for points in groups.values():
        rows = _Rows.of(points, [], c)
        residual, _ = _center(rows, _log_seconds(points) - rows.mean)
        own, unknown = _own_covariance(rows, c)
        own += _noise(points)
        at = np.array([place[_hardware(point.target, point.cost)] for point in points])
        loadings = rows.loadings(gpus) if described else np.zeros((len(points), 0))
        blocks.append(_Block(residual, own, unknown, at, loadings, _count_known(points)))

    parts = [_Information(block, 1.0, len(prior), many) for block in blocks]
    mean, covariance = _solve(prior, parts)
    misfit = 0.0
    for turn in range(PASSES if blocks else 0):
        factors = []
        for block in blocks:
            left = block.residual - mean[block.at] - block.loadings @ mean[many:]
            squares = float(left @ cho_solve(cho_factor(block.own + block.unknown), left))
            factors.append(max(1.0, (c.freedom + squares) / (c.freedom + block.degrees)))
            misfit += c.model_freedom * squares / block.degrees if turn == 0 else 0.0
        parts = [_Information(block, factor, len(prior), many) for block, factor in zip(blocks, factors, strict=True)]
        mean, covariance = _solve(prior, parts)
    gain = _cross_validate(prior, blocks, parts, many, c)
    return _SharedEffects(place, gpus, mean, covariance, misfit, c.model_freedom * len(blocks), gain)


class _Information:
    """Information of one block about the shared effects: a precision matrix, and it times the estimate."""

    def __init__(self, block: _Block, factor: float, size: int, many: int) -> None:
        from scipy.linalg import cho_factor, cho_solve  # slow to import: only predictions need it

        at, root = block.at, cho_factor(factor * block.own + block.unknown)
        inverse, towards = cho_solve(root, np.eye(len(at))), cho_solve(root, block.residual)
        self.matrix, self.weighted = np.zeros((size, size)), np.zeros(size)
        np.add.at(self.matrix[:many, :many], (at[:, None], at[None, :]), inverse)
        np.add.at(self.weighted, at, towards)
        if size > many:
            cross = inverse @ block.loadings
            np.add.at(self.matrix[:many, many:], at, cross)
            np.add.at(self.matrix[many:, :many].T, at, cross)
            self.matrix[many:, many:] += block.loadings.T @ cross
            self.weighted[many:] += block.loadings.T @ towards


def _solve(prior: Floats, parts: Sequence[_Information]) -> tuple[Floats, Floats]:
    """Mean and covariance of the shared effects, given the information of all ``parts``."""
    information, weighted = np.zeros_like(prior), np.zeros(len(prior))
    for part in parts:
        information += part.matrix
        weighted += part.weighted
    covariance = np.linalg.solve(np.eye(len(prior)) + prior @ information, prior)
    covariance = (covariance + covariance.T) / 2
    return covariance @ weighted, covariance


def _cross_validate(
    prior: Floats, blocks: Sequence[_Block], parts: Sequence[_Information], many: int, c: Constants
) -> float:
    """Log likelihood of each model of the history given all others, minus that without any history; their sum.

    It is the evidence that the history of other models helps to predict a model that it does not contain.
    """
    if len(blocks) < 2:
        return 0.0
    gains = []
    for number, block in enumerate(blocks):
        mean, covariance = _solve(prior, [*parts[:number], *parts[number + 1 :]])
        design = np.zeros((len(block.at), len(prior)))
        design[np.arange(len(block.at)), block.at] = 1.0
        design[:, many:] = block.loadings
        base = block.own + block.unknown
        informed = _log_likelihood(block.residual - design @ mean, base + design @ covariance @ design.T, block, c)
        gains.append(informed - _log_likelihood(block.residual, base + design @ prior @ design.T, block, c))
    return min(math.fsum(gains), MAX_GAIN)


def _log_likelihood(residual: Floats, covariance: Floats, block: _Block, c: Constants) -> float:
    """Log density of Student's t at ``residual``, without a constant."""
    from scipy.linalg import cho_factor, cho_solve  # slow to import: only predictions need it

    factor = cho_factor(covariance)
    squares = float(residual @ cho_solve(factor, residual))
    determinant = float(np.log(np.diag(factor[0])).sum())
    return -determinant - 0.5 * (c.freedom + block.degrees) * math.log1p(squares / c.freedom)


def _hardware(target: Target, cost: StepCost | None) -> tuple[Hashable, ...]:
    """Key of the effect of hardware: the deviation of a GPU from its figures, or, for described works, from roofs."""
    return target.figures.model, target.precision, cost is not None


def _log_seconds(points: Sequence[Point]) -> Floats:
    return np.array([point.log_seconds for point in points], dtype=float)


def _noise(points: Sequence[Point]) -> Floats:
    return np.diag([point.sd**2 + 1e-8 for point in points])


def _freedom(asked: Computation, c: Constants) -> float:
    return c.freedom if asked.cost is None else c.described.freedom


class _Belief(NamedTuple):
    """Times of targets given one view of the effects that all models share, and how likely it makes the probes."""

    mean: Floats
    covariance: Floats
    hosts: Floats
    scale: float
    log_likelihood: float


def _condition(
    seen: Sequence[Point], targets: Sequence[Target], asked: Computation, shared: _SharedEffects, c: Constants
) -> _Belief:
    """Condition the prior of ``targets`` on the points ``seen`` of the same model."""
    from scipy.linalg import cho_factor, cho_solve  # slow to import: only predictions need it

    rows = _Rows.of(seen, targets, c, asked)
    of_rows = [*(_hardware(p.target, p.cost) for p in seen), *(_hardware(target, asked.cost) for target in targets)]
    effects, covariance = shared.of_rows(rows, of_rows)
    prior = rows.mean + effects
    measured, rest = slice(0, len(seen)), slice(len(seen), None)
    residual, offsets = _center(rows, _log_seconds(seen) - prior[measured])
    of_work = rows.shortness[rest].copy()
    mean, misfit, determinant = prior[rest], 0.0, 0.0
    for _ in range(2):  # whether the steps of a target are short is known after a first prediction
        own, unknown = _own_covariance(rows, c)
        hosts = c.host**2 + (c.short_host * rows.shortness[rest]) ** 2
        joint = covariance + own + unknown
        left = joint[rest, rest]
        if seen:
            factor = cho_factor(joint[measured, measured] + _noise(seen))
            cross = joint[rest, measured]
            mean = prior[rest] + offsets.get(asked.work, 0.0) + cross @ cho_solve(factor, residual)
            left = left - cross @ cho_solve(factor, cross.T)
            misfit = float(residual @ cho_solve(factor, residual))
            determinant = 2 * float(np.log(np.diag(factor[0])).sum())
        if asked.cost is None:
            rows.shortness[rest] = np.maximum(of_work, _shortness(mean, c))
    freedom, count = _freedom(asked, c), _count_known(seen)
    before = (freedom + shared.misfit) / (freedom + shared.weight)
    return _Belief(
        mean=mean, covariance=(left + left.T) / 2, hosts=hosts,
        scale=(freedom + (shared.misfit + misfit)) / (freedom + shared.weight + count),
        log_likelihood=-0.5 * (determinant + count * math.log(before))
        - 0.5 * (freedom + count) * math.log1p(misfit / (freedom * before)),
    )  # fmt: skip


def _combine(informed: _Belief, plain: _Belief, gain: float, c: Constants) -> _Belief:
    """Mean of the beliefs with and without the history of other models, each with its probability, given the probes.

    So the history of other models counts less, the worse it predicted the probes of this training.
    """
    odds = math.log(c.misleading / (1 - c.misleading)) - gain + plain.log_likelihood - informed.log_likelihood
    weight = 1 / (1 + math.exp(-min(max(odds, -700.0), 700.0)))
    scale = (1 - weight) * informed.scale + weight * plain.scale
    gap = plain.mean - informed.mean
    parts = [(1 - weight, informed), (weight, plain)]
    covariance = sum((share * part.scale / scale * part.covariance for share, part in parts), np.zeros(()))
    return _Belief(
        mean=informed.mean + weight * gap,
        covariance=covariance + weight * (1 - weight) / scale * np.outer(gap, gap),
        hosts=np.asarray(sum(share * part.scale / scale * part.hosts for share, part in parts)),
        scale=scale, log_likelihood=informed.log_likelihood,
    )  # fmt: skip


def predict_log_times(
    probes: Sequence[Point],
    targets: Sequence[Target],
    *,
    history: Iterable[Point] = (),
    computation: Computation | None = None,
    constants: Constants = CONSTANTS,
) -> Posterior:
    """Posterior of the log step times of ``targets`` for one computation.

    The computation is that of the ``probes``, which all have the same ``work``. Without probes, pass a described
    ``computation``. Points of the history with the same model inform about this model; all other points inform about
    GPUs, and if they are described, also about the level of step times.
    """
    c = constants
    asked = computation or _computation(probes[0])
    if not probes and asked.cost is None:
        raise ValueError("without probes, the computation needs a description (cost)")
    model, work, cost = asked
    points = list(history)
    others = _choose(point for point in points if point.model != model)
    seen = [*_choose(p for p in points if p.model == model and p.work != work), *sorted(probes, key=_order)]
    probed = {p.target for p in probes if p.target.machine is not None}
    # Machines with the same GPU that were not probed differ by their hosts only, so one row represents all of them.
    keys = [target if target in probed else target._replace(machine=_NEW) for target in targets]
    kinds = sorted(set(keys), key=str)
    used = [(p.target._replace(machine=None), p.cost) for p in [*others, *seen]]
    used += [(target._replace(machine=None), cost) for target in kinds]
    hardware = {
        _hardware(*pair): pair[0] for pair in sorted(used, key=lambda pair: str((pair[0], pair[1] is not None)))
    }
    described = any(cost is not None for _, cost in used)
    learned = _learn(others, hardware, described, c)
    belief = _condition(seen, kinds, asked, learned, c)
    if others:
        without = _learn((), hardware, described, c)
        belief = _combine(belief, _condition(seen, kinds, asked, without, c), learned.gain, c)
    own_variance = np.where([target.machine == _NEW for target in kinds], belief.hosts, 0.0)

    position = {key: number for number, key in enumerate(kinds)}
    group = np.array([position[key] for key in keys], dtype=np.intp)
    return Posterior(
        shared_mean=np.asarray(belief.mean),
        shared_covariance=np.asarray(belief.covariance - np.diag(own_variance)),
        group=group,
        own_variance=np.asarray(own_variance[group], dtype=float),
        scale=belief.scale,
        freedom=_freedom(asked, c) + _count_known(seen),
    )
