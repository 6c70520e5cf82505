"""Step time on a GPU that nobody probed, from the operations of the step and the published figures of the GPU.

Each operation takes the longer of two times: that of its arithmetic and that of its memory traffic (roofline). To
their sum over all operations, the time is added that the host takes to launch them. docs/explanation/prediction.md
explains the formula with an example.

>>> from vmselect.catalog.gpus import figures_of
>>> from vmselect.records.work import Operation, Operations, Work
>>> products = Operations.of([Operation("mm", 2 * 4096**3, 12 * 4096**2, 4096, 4096, 4096, 1, 30)])
>>> work = Work(batch_size=64, operations=products, parameters=0, parameter_tensors=0, optimizer="none", method="given")
>>> result = roofline(figures_of("T4"), "single", work)
>>> round(result.seconds, 2), round(result.launch_share, 3)
(0.54, 0.009)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from vmselect.catalog.gpus import WITHOUT_FAST_HALF, WITHOUT_TF32, GpuFigures, Precision, figures_of
from vmselect.records.work import PRODUCTS, Caveat, Operation, Work

Floats = npt.NDArray[np.float64]
Pipe = Literal["float32", "float16", "tf32"]
"""Units of a GPU that compute matrix products: those of float32, or tensor cores with float16 or TF32 operands."""
PIPES: tuple[Pipe, ...] = get_args(Pipe)

OPTIMIZER_BYTES = {
    "none": 0, "sgd": 12, "momentum": 20, "rmsprop": 20, "adagrad": 20, "lion": 20, "adam": 28, "adamw": 28,
    "nadam": 28, "adamax": 28, "adadelta": 28, "lamb": 40,
}  # fmt: skip
"""Bytes per trained weight that the step of an optimizer reads and writes: weight, gradient and state in float32.
``none`` is a forward pass without training."""
USUAL_OPTIMIZER = "adam"
"""Optimizer that is assumed if the description names none, or one that is not in the table."""

CAVEAT_LEVELS: dict[Caveat, float] = {
    "unknown_layers": 0.5, "custom_step": 0.5, "data_dependent": 0.5, "extrapolated": 0.35, "compiled": 0.35,
}  # fmt: skip
"""Deviation of the log time of a step from its roofline, by caveat. Chosen by judgement: the public
measurements contain no such steps."""

ARCHITECTURES = (
    ("Kepler", 0.05), ("Maxwell", -0.02), ("Pascal", 0.08), ("Volta", -0.09), ("Turing", 0.07), ("Ampere", -0.04),
    ("Hopper", 0.02),
)  # fmt: skip
"""Deviations of the log time on architectures that the public sources have in common: expected values, given all of
them, if half of the variance of architectures is the same in all sources. Those of other architectures are 0.01 or
unknown. Every source that contains V100 GPUs found them faster than their figures."""


@dataclass(frozen=True, kw_only=True)
class RooflineConstants:
    """Constants of the roofline and of its correction.

    The defaults minimize the errors on 1,715 published step times from eight sources (PROFET, Lambda with PyTorch and
    with TensorFlow, NeuSight training and inference, Zeus, Sia, Gavel), 2018 to 2023.
    ``python tests/benchmarks/prediction.py FOLDER --zero`` fits them again without the source that it scores.
    """

    float32: float = 0.96
    """Share of the float32 peak rate that large products reach on units of float32."""
    float16: float = 0.46
    """Share of the dense float16 peak rate that large products reach on tensor cores."""
    tf32: float = 0.72
    """Share of the TF32 peak rate that large products reach on tensor cores."""
    bandwidth: float = 0.62
    """Share of the memory bandwidth that operations reach."""
    half_size: float = 30.0
    """Size of a product at which it reaches half of the rate of large products."""
    winograd: float = 1.75
    """Speed-up of 3 x 3 convolutions with stride 1 on units of float32, by algorithms with fewer multiplications."""
    kepler: float = 0.38
    """Speed of GPUs of the architecture Kepler, relative to what the figures give."""
    launch_seconds: float = 31e-6
    """Seconds of the host per operation, and four times per tensor of weights (optimizer)."""
    step_seconds: float = 4.0e-3
    """Seconds of the host per step."""
    ratio: float = 0.5
    """Weight of the log ratio of two rooflines. The mean of two forecasts, this one and that of the figures alone, is
    better than either: rooflines exaggerate differences between GPUs. Equal weights are not fitted to any source."""
    figures: tuple[float, float, float] = (-0.135, -0.11, -0.285)
    """Change of log time per log float32 rate, log rate of matrix products and log memory bandwidth: half of the
    slopes of works that are not described."""
    level: float = 0.05
    """Mean deviation of the log time."""
    architectures: tuple[tuple[str, float], ...] = ARCHITECTURES
    """Deviation of the log time on GPUs of an architecture, as far as independent sources agree on it."""

    def correct(self, here: Any, there: Any, shift: Any, architecture: Any) -> Any:
        """Expected log time, given rooflines of a GPU and of the reference, and the differences of their features.

        The ratio of the rooflines is combined with the ratio that the figures alone give. ``architecture`` is the
        deviation of the architecture (:meth:`deviation`).
        """
        return there + self.ratio * (here - there) + shift @ np.array(self.figures) + self.level + architecture

    def deviation(self, architecture: str) -> float:
        """Deviation of the log time on GPUs of ``architecture``; 0 if it is not known."""
        return dict(self.architectures).get(architecture, 0.0)


ROOFLINE = RooflineConstants()
KERNELS_PER_TENSOR = 4
"""Kernels that an optimizer launches for each tensor of weights."""
ELEMENTWISE_SHARE = 0.5
"""Share of the float32 peak rate that operations other than products reach."""


class Roofline(NamedTuple):
    """Time of a step: natural logarithm of its seconds, and the share of the host's launch overhead in it (0 to 1)."""

    log_seconds: float
    launch_share: float

    @property
    def seconds(self) -> float:
        """Seconds per step."""
        return math.exp(self.log_seconds)


class Rates(NamedTuple):
    """Peak rates of a GPU in FLOP/s and bytes/s, or arrays of them for many GPUs."""

    float32: Any
    matrix: Any
    """Rate of matrix products."""
    bandwidth: Any
    pipe: Any
    """Index of the units for matrix products in :data:`PIPES`."""
    width: Any
    """Bytes relative to float32: 0.5 in half precision."""
    kepler: Any
    """Whether the architecture is Kepler."""

    @classmethod
    def of(cls, gpu: GpuFigures, precision: Precision) -> Rates:
        """Rates of ``gpu`` in ``precision``."""
        pipe, peak = matrix_peak(gpu, precision)
        return cls(
            1e12 * gpu.fp32_tflops, 1e12 * peak, 1e9 * gpu.memory_gb_per_second, PIPES.index(pipe),
            0.5 if precision == "half" else 1.0, gpu.architecture == "Kepler",
        )  # fmt: skip


def operation_seconds(cost: StepCost, rates: Rates, c: RooflineConstants) -> Floats:
    """Seconds of each operation: the longer of the times of its arithmetic and of its memory traffic."""
    share = np.array([c.float32, c.float16, c.tf32])[rates.pipe]
    size = cost.least / (cost.least + c.half_size) * cost.depth / (cost.depth + c.half_size)
    rate = np.where(cost.depthwise, rates.float32 * c.float32, rates.matrix * share) * size
    rate = np.where(cost.winograd & (rates.pipe == PIPES.index("float32")), c.winograd * rate, rate)
    rate = np.where(cost.product & (rate > 0), rate, ELEMENTWISE_SHARE * rates.float32)
    return np.asarray(np.maximum(cost.flops / rate, rates.width * cost.traffic / (c.bandwidth * rates.bandwidth)))


def step_seconds(device: Any, optimizer_bytes: Any, launches: Any, rates: Rates, c: RooflineConstants) -> Any:
    """Log seconds of steps whose operations take ``device`` seconds, and the share of the launch overhead in them."""
    device = (device + optimizer_bytes / (c.bandwidth * rates.bandwidth)) / np.where(rates.kepler, c.kepler, 1.0)
    launch = c.launch_seconds * launches + c.step_seconds
    return np.log(device + launch), launch / (device + launch)


@dataclass(frozen=True, eq=False)
class StepCost:
    """Operations of a step as arrays, from which the time on any GPU is computed. Make it with :meth:`of`."""

    product: npt.NDArray[np.bool_]
    depthwise: npt.NDArray[np.bool_]
    winograd: npt.NDArray[np.bool_]
    """Whether an algorithm with fewer multiplications applies: 3 x 3 convolutions with stride 1."""
    flops: Floats
    traffic: Floats
    least: Floats
    """The smaller of the numbers of rows and columns of a product."""
    depth: Floats
    """Number of terms of each sum in a product."""
    count: Floats
    optimizer_bytes: float
    launches: float
    caveat_level: float = 0.0
    """Deviation of the log time because of caveats about the description; 0 if there are none."""
    embedding_share: float = 0.0
    """Share of the bytes that lookups in embedding tables move."""
    recurrent: bool = False
    """Whether the step contains recurrent layers."""
    _known: dict[tuple[GpuFigures, Precision, RooflineConstants], Roofline] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, work: Work) -> StepCost:
        """Make the arrays from the description ``work``."""
        columns = work.operations
        kinds = np.array(columns.kind, dtype=object)
        m, n, k = (np.array(column, dtype=float) for column in (columns.m, columns.n, columns.k))
        count, traffic = np.array(columns.count, dtype=float), np.array(columns.bytes, dtype=float)
        name = work.optimizer if work.optimizer in OPTIMIZER_BYTES else USUAL_OPTIMIZER
        tensors = work.parameter_tensors if name != "none" else 0
        optimizer_bytes = float(work.parameters * OPTIMIZER_BYTES[name])
        total = float(count @ traffic) + optimizer_bytes
        lookups = float((count * traffic)[kinds == "embed"].sum())
        caveats = {*work.caveats, *(("unknown_layers",) if work.unknown_layers else ())}
        return cls(
            product=np.isin(kinds, list(PRODUCTS)), depthwise=np.isin(kinds, ["dwconv", "dwconvw"]),
            winograd=np.array([_is_winograd(row) for row in columns.rows], dtype=bool),
            flops=np.array(columns.flops, dtype=float), traffic=traffic, least=np.minimum(m, n), depth=k, count=count,
            optimizer_bytes=optimizer_bytes,
            launches=float(count.sum()) + (optimizer_bytes > 0) + KERNELS_PER_TENSOR * tensors,
            caveat_level=max((CAVEAT_LEVELS[caveat] for caveat in get_args(Caveat) if caveat in caveats), default=0.0),
            embedding_share=lookups / total if total else 0.0, recurrent="rnn" in columns.kind,
        )  # fmt: skip

    def roofline(self, gpu: GpuFigures, precision: Precision, constants: RooflineConstants = ROOFLINE) -> Roofline:
        """Time of the step on ``gpu`` according to the roofline, without the correction."""
        key = (gpu, precision, constants)
        if key not in self._known:
            self._known[key] = self._compute(gpu, precision, constants)
        return self._known[key]

    def _compute(self, gpu: GpuFigures, precision: Precision, c: RooflineConstants) -> Roofline:
        rates = Rates.of(gpu, precision)
        device = float(self.count @ operation_seconds(self, rates, c))
        log_seconds, share = step_seconds(device, self.optimizer_bytes, self.launches, rates, c)
        return Roofline(float(log_seconds), float(share))

    def prior(self, gpu: GpuFigures, precision: Precision, constants: RooflineConstants = ROOFLINE) -> Roofline:
        """Expected time of the step on ``gpu``: the roofline, with its ratio to that of a T4 corrected."""
        c, reference = constants, figures_of("T4")
        assert reference is not None
        here, there = self.roofline(gpu, precision, c), self.roofline(reference, precision, c)
        shift = np.subtract(gpu.features(precision), reference.features(precision))
        log_seconds = c.correct(here.log_seconds, there.log_seconds, shift, c.deviation(gpu.architecture))
        return Roofline(float(log_seconds), here.launch_share)


def roofline(gpu: GpuFigures, precision: Precision, work: Work, constants: RooflineConstants = ROOFLINE) -> Roofline:
    """Time of a step of ``work`` on ``gpu`` and the share of the launch overhead in it, before any correction."""
    return StepCost.of(work).roofline(gpu, precision, constants)


def matrix_peak(gpu: GpuFigures, precision: Precision) -> tuple[Pipe, float]:
    """Units that compute matrix products on ``gpu``, and their peak rate in TFLOPS."""
    peak = gpu.matrix_tflops(precision)
    if precision == "half" and gpu.architecture not in WITHOUT_FAST_HALF:
        return "float16", peak
    if precision == "single" and gpu.architecture not in WITHOUT_TF32:
        return "tf32", peak
    return "float32", peak


def _is_winograd(row: Operation) -> bool:
    """Whether a row is a 3 x 3 convolution with stride 1, or its weight gradient.

    Rows contain no kernel size. But with stride 1, inputs have as many pixels as outputs, so that the bytes of the row
    are those of a kernel of 3 x 3 and of no other kernel.
    """
    if row.kind not in ("conv", "convw"):
        return False
    pixels, outputs, inner = (row.m, row.n, row.k) if row.kind == "conv" else (row.k, row.m, row.n)
    if inner % 9:
        return False
    numbers = row.b * (pixels * (inner // 9 + outputs) + inner * outputs)
    return abs(row.bytes / 4 / numbers - 1) < STRIDE_TOLERANCE if numbers else False


STRIDE_TOLERANCE = 0.1
"""Relative deviation of the bytes of a 3 x 3 convolution with stride 1, because padding may drop some pixels."""
