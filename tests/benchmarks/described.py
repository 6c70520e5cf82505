"""Read step times of described works, and fit the constants of their prior without the scored source.

``works.csv`` has the columns source, model, precision, config, batch_size, gpu, seconds, exact, optimizer, key, params
and param_tensors; ``work_operations.csv.gz`` has the operations of each key. ``exact`` is 0 where the sequence length
or image size of a work is a guess.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
from scipy.linalg import block_diag, cho_factor, cho_solve
from scipy.optimize import minimize

from vmselect.catalog.gpus import GpuFigures, Precision, figures_of, read_precision
from vmselect.prediction.posterior import (
    CONSTANTS,
    Constants,
    Described,
    Point,
    Target,
    _effect_variances,
    _own_covariance,
    _Rows,
    _shared_covariance,
)
from vmselect.prediction.roofline import Rates, Roofline, RooflineConstants, StepCost, operation_seconds, step_seconds
from vmselect.records.work import Operation, Operations, Work

Source = dict[str, dict[tuple[str, ...], dict[str, Point]]]
HOST_ONLY = {("zeus", "ncf/movielens-1m"), ("sia", "ncf")}
"""Small recommenders with steps of 3 to 10 ms, whose time depends on the host only."""
PER_ITEM = {"lambda_pt", "lambda_tf"}
"""Sources in which the batch size of a work is the largest that fits, so that only times per item are comparable."""
PER_MODEL = 3
"""Works per model that a fit uses, so that a source with many batch sizes does not outweigh the others."""

START = RooflineConstants(
    float32=0.8, float16=0.5, tf32=0.5, bandwidth=0.75, half_size=32.0, winograd=1.3, kepler=0.5, launch_seconds=20e-6,
    step_seconds=3e-3, level=0.0, architectures=(),
)  # fmt: skip
"""Centers of the priors of a fit: round numbers from general knowledge of GPUs and frameworks. The prior of Kepler is
narrow, because the two sources with such a GPU contradict each other (0.2 and 0.8)."""
SPREADS = {
    "float32": 0.2, "float16": 0.3, "tf32": 0.3, "bandwidth": 0.15, "half_size": 0.7, "winograd": 0.2, "kepler": 0.3,
    "launch_seconds": 0.7, "step_seconds": 1.0,
}  # fmt: skip
"""Standard deviations of the logarithms of constants around their centers."""
LEVEL_SPREAD = 0.15
DEVIATIONS = Described(
    level=0.15, model_level=0.15, work_level=0.15, gpu=0.1, architecture=0.1, shared_slopes=0.05, model_slopes=0.1,
    model_gpu=0.07, work_gpu=0.1, launch=0.4, gpu_launch=0.3,
    model_launch=0.0,
)  # fmt: skip
DEVIATION_SPREAD = 0.7
WIDER = {"level": 1.5, "shared_slopes": 1.5}
"""Factors of fitted deviations that all works of a user share; the others are multiplied by ``WIDER_REST``. Few
sources and GPUs underestimate deviations."""
WIDER_REST = 1.25
COMMON_SHARE = 0.5
"""Share of the variance of architectures that is the same in all sources. Not fitted; with 0.8, scores are similar.
Deviations of architectures, instead of GPU models, were chosen with all sources visible."""


@dataclass(frozen=True, eq=False)
class PerItemCost:
    """Cost of an item of a work whose batch size differs between GPUs, with the interface of a :class:`StepCost`."""

    costs: dict[str, tuple[StepCost, float]]
    """Cost of a step and its batch size, by GPU model."""
    caveat_level: float = 0.0

    def prior(self, gpu: GpuFigures, precision: Precision, constants: RooflineConstants) -> Roofline:
        """Expected time of an item on ``gpu``."""
        cost, size = self.costs[gpu.model]
        step = cost.prior(gpu, precision, constants)
        return Roofline(step.log_seconds - math.log(size), step.launch_share)


def read_works(folder: Path) -> dict[str, Source]:
    """Points of the described works of each source, by model and work."""
    rows = pd.read_csv(folder / "works.csv")
    costs = read_costs(folder, rows)
    sources: dict[str, Source] = {}
    per_item: dict[tuple[str, ...], PerItemCost] = {}
    for row in rows.itertuples():
        config = row.config if isinstance(row.config, str) else ""
        one_size = row.source not in PER_ITEM
        size = str(row.batch_size) if one_size else ""
        work = (row.model, row.precision, config, size, "exact" if row.exact else "guess")
        figures, cost, seconds = figures_of(row.gpu), costs[row.key], row.seconds
        if not one_size:
            together = per_item.setdefault((row.source, *work), PerItemCost({}))
            together.costs[figures.model] = (costs[row.key], row.batch_size)
            cost, seconds = together, row.seconds / row.batch_size
        point = Point(row.model, work, Target(figures, read_precision(row.precision)), math.log(seconds), 0.0, cost)
        sources.setdefault(row.source, {}).setdefault(row.model, {}).setdefault(work, {})[row.gpu] = point
    return sources


def read_costs(folder: Path, rows: pd.DataFrame) -> dict[str, StepCost]:
    """Costs by key."""
    operations = pd.read_csv(folder / "work_operations.csv.gz").rename(columns={"class": "kind"})
    facts = rows.drop_duplicates("key").set_index("key")
    costs = {}
    for key, table in operations[operations["kind"] != "opt"].groupby("key"):
        if key not in facts.index:
            continue
        one = facts.loc[key]
        listed = table[list(Operation._fields)].assign(b=table["b"].clip(lower=1)).itertuples(index=False)
        work = Work(
            batch_size=max(1, int(one.batch_size)), operations=Operations.of(Operation(*row) for row in listed),
            parameters=int(one.params), parameter_tensors=int(one.param_tensors), optimizer=one.optimizer,
            method="given",
        )  # fmt: skip
        costs[str(key)] = StepCost.of(work)
    return costs


def keep_definable(name: str, source: Source) -> Source:
    """The works whose dimensions are known and whose steps do not depend on the host only."""
    kept = {
        model: {key: work for key, work in works.items() if key[-1] == "exact"}
        for model, works in source.items()
        if (name, model) not in HOST_ONLY
    }
    return {model: works for model, works in kept.items() if works}


def without_costs(source: Source) -> Source:
    """The same points without their descriptions. Times per item are no step times, so none must count as short."""

    def strip(point: Point) -> Point:
        shift = math.log(1e9) if isinstance(point.cost, PerItemCost) else 0.0
        return point._replace(cost=None, log_seconds=point.log_seconds + shift)

    return {
        model: {key: {gpu: strip(point) for gpu, point in work.items()} for key, work in works.items()}
        for model, works in source.items()
    }


def are_related(name: str, other: str) -> bool:
    """Whether two sources are of the same authors: their names begin with the same word."""
    return name.split("_")[0] == other.split("_")[0]


_ROOFLINE = list(SPREADS)
_DESCRIBED = [name for name in Described.__dataclass_fields__ if name not in ("freedom", "model_launch")]


def _as_vector(roofline: RooflineConstants, described: Described) -> np.ndarray:
    sizes = [*(getattr(roofline, name) for name in _ROOFLINE), *(getattr(described, name) for name in _DESCRIBED)]
    return np.array([*np.log(sizes), roofline.level])


def _as_constants(vector: np.ndarray, figures: tuple[float, ...]) -> Constants:
    sizes = [float(size) for size in np.exp(vector[:-1])]
    first, rest = sizes[: len(_ROOFLINE)], sizes[len(_ROOFLINE) :]
    named = dict(zip(_ROOFLINE, first, strict=True))
    roofline = RooflineConstants(**named, figures=figures, level=float(vector[-1]), architectures=())
    deviations = Described(**dict(zip(_DESCRIBED, rest, strict=True)), model_launch=0.0)
    return replace(CONSTANTS, roofline=roofline, described=deviations)


class _Stack:
    """Operations of many works on many GPUs in one array, so that a fit evaluates all of them at once."""

    def __init__(self, costs: Sequence[StepCost], gpus: Sequence[GpuFigures], precisions: Sequence[Precision]) -> None:
        many = [len(cost.count) for cost in costs]
        self.starts = np.cumsum([0, *many])[:-1]
        arrays = ("product", "depthwise", "winograd", "flops", "traffic", "least", "depth", "count")
        joined = {name: np.concatenate([getattr(cost, name) for cost in costs]) for name in arrays}
        self.cost = StepCost(**joined, optimizer_bytes=0.0, launches=0.0)
        self.optimizer_bytes = np.array([cost.optimizer_bytes for cost in costs])
        self.launches = np.array([cost.launches for cost in costs])
        columns = zip(*(Rates.of(*pair) for pair in zip(gpus, precisions, strict=True)), strict=True)
        self.rates = Rates(*(np.array(column) for column in columns))
        self.each = Rates(*(np.repeat(column, many) for column in self.rates))

    def rooflines(self, c: RooflineConstants) -> tuple[np.ndarray, np.ndarray]:
        """Log seconds and launch share of each work on its GPU."""
        device = np.add.reduceat(self.cost.count * operation_seconds(self.cost, self.each, c), self.starts)
        return step_seconds(device, self.optimizer_bytes, self.launches, self.rates, c)


class _Data:
    """Measured times of up to three works of each model of a source, and their likelihood."""

    def __init__(self, source: Source) -> None:
        points = [
            point
            for model, works in sorted(source.items())
            for work in Random(model).sample(sorted(works), min(PER_MODEL, len(works)))
            for point in works[work].values()
        ]
        steps = [
            p.cost.costs[p.target.figures.model] if isinstance(p.cost, PerItemCost) else (p.cost, 1.0) for p in points
        ]
        costs, sizes = zip(*steps, strict=True)
        reference, precisions = figures_of("T4"), [p.target.precision for p in points]
        self.times = np.array([p.log_seconds for p in points]) + np.log(sizes)
        self.here = _Stack(costs, [p.target.figures for p in points], precisions)
        self.there = _Stack(costs, [reference] * len(points), precisions)
        self.features = np.array([p.target.figures.features(p.target.precision) for p in points])
        self.shift = self.features - np.array([reference.features(precision) for precision in precisions])
        self.rows = _Rows.of(points, [], CONSTANTS)
        self.gpus = {gpu: at for at, gpu in enumerate(dict.fromkeys(self.rows.keys["gpu"]))}

    def deviations(self, c: Constants) -> tuple[np.ndarray, np.ndarray]:
        """Differences between the log times and their prior means, and their prior covariance."""
        (here, share), (there, _) = self.here.rooflines(c.roofline), self.there.rooflines(c.roofline)
        residual = self.times - c.roofline.correct(here, there, self.shift, 0.0)
        rows = self.rows
        rows.launch_share, rows.features = share, self.features * (1 - share)[:, None]
        rows.work_level = np.full(len(share), c.described.work_level)
        loadings, (own, _) = rows.loadings(self.gpus), _own_covariance(rows, c)
        joint = own + _shared_covariance(rows, c) + loadings * _effect_variances(len(self.gpus), c) @ loadings.T
        return residual, joint + 1e-6 * np.eye(len(share))

    def cost(self, c: Constants) -> float:
        """Negative log likelihood of the times, without a constant."""
        residual, covariance = self.deviations(c)
        factor = cho_factor(covariance)
        squares = float(residual @ cho_solve(factor, residual))
        determinant = float(np.log(np.diag(factor[0])).sum())
        return determinant + (c.freedom + len(residual)) / 2 * math.log1p(squares / c.freedom)


def fit_described(
    sources: Sequence[Source], slopes: Sequence[float] = CONSTANTS.slopes, *, iterations: int = 30
) -> Constants:
    """Constants of described works with the highest posterior density; some deviations are multiplied by ``WIDER``.

    ``slopes`` are those of works that are not described, fitted to the same sources.
    """
    data = [_Data(source) for source in sources]
    figures = tuple((1 - START.ratio) * slope for slope in slopes)
    center = _as_vector(START, DEVIATIONS)
    spread = np.array([*SPREADS.values(), *[DEVIATION_SPREAD] * len(_DESCRIBED), LEVEL_SPREAD])

    def cost(vector: np.ndarray) -> float:
        c = _as_constants(vector, figures)
        return 0.5 * float(np.sum(((vector - center) / spread) ** 2)) + sum(one.cost(c) for one in data)

    best = minimize(cost, center, method="L-BFGS-B", options={"maxiter": iterations})
    fitted = _as_constants(best.x, figures)
    wider = {name: WIDER.get(name, WIDER_REST) * getattr(fitted.described, name) for name in _DESCRIBED}
    constants = replace(fitted, described=Described(**wider, model_launch=0.0))
    roofline = replace(constants.roofline, architectures=learn_architectures(data, constants))
    # Not fitted, because a fit would attribute errors of the roofline to the hosts of single models.
    described = replace(constants.described, model_launch=wider["gpu_launch"])
    return replace(constants, roofline=roofline, described=described)


def learn_architectures(data: Sequence[_Data], c: Constants) -> tuple[tuple[str, float], ...]:
    """Expected deviation of the log time on each architecture that all sources have in common, given their times."""
    variance = COMMON_SHARE * c.described.architecture**2
    residuals, covariances = zip(*(source.deviations(c) for source in data), strict=True)
    parts = [
        joint - variance * source.rows.same("architecture") for source, joint in zip(data, covariances, strict=True)
    ]
    names = np.array([name for source in data for name in source.rows.keys["architecture"]], dtype=object)
    joint = block_diag(*parts) + variance * (names[:, None] == names)
    weights = cho_solve(cho_factor(joint), np.concatenate(residuals))
    return tuple((name, variance * float(weights[names == name].sum())) for name in sorted(set(names)))
