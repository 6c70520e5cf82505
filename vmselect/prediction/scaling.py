"""Step time as a function of the number of GPUs, at a constant batch size per GPU.

A step on ``n`` GPUs takes ``t_1 (1 + excess traffic(n))``, where ``excess`` is the relative excess on two GPUs. A ring
all-reduce sends ``traffic(n) = 2 (n - 1) / n`` times the gradients over each link. torch's ``DataParallel`` sends them
through one GPU, ``n - 1`` times. The excess comes from a probe on several GPUs, such as two, or from a prior. The log
of the true time deviates from this form by a slope per doubling of the number of GPUs. The prior of the slope is
updated by other records of the same GPU, and of the same model on this GPU. A *work* is the computation of a step: a
model with its batch size per GPU and settings.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import stdtrit

from vmselect._checks import check_choice, check_count, several, suggest_fields
from vmselect.intervals import Interval
from vmselect.prediction.hardware import Machine, MachineTypes, Refusal, count_gpus
from vmselect.prediction.machines import Prediction, host_bound
from vmselect.prediction.posterior import Floats
from vmselect.records import Profile
from vmselect.records.base import Parallelism
from vmselect.records.identity import count_nodes, model_key, work_key
from vmselect.records.step_times import step_seconds

ConstantBatch = Literal["per_gpu", "global"]
TOO_MANY_GPUS, TOO_MANY_NODES, NO_TWO_NODES = "too_many_gpus", "too_many_nodes", "no_two_node_probe"
MAX_GPUS = 8
"""Largest number of GPUs of one machine in the measurements from which the constants were chosen."""
MAX_NODES = 4
"""Largest number of nodes in the measurements from which the constants were chosen."""
MAX_ROWS = 200
"""Maximum number of works of a history that are used: the last ones."""
SHARED_SCALING = 0.6
"""Share of the variance of the log time on several GPUs that is common to all numbers of GPUs of one model: the mean
correlation of the errors on four and eight GPUs in four public data sets (0.34 to 0.91)."""


@suggest_fields
@dataclass(frozen=True, kw_only=True)
class Scale:
    """Several GPUs or machines to rank, predicted from probes of one and two.

    Args:
        gpus: one number of GPUs per machine or several; machines with as many GPUs of a probed model are added.
        nodes: one number of machines that train together or several; needs a probe on two machines.
        constant_batch: ``"per_gpu"`` lets the batch size grow with the number of GPUs. With ``"global"`` it stays the
            same, and smaller batch sizes per GPU must have been probed.

    >>> Scale(gpus=[1, 2, 4]).nodes
    (1,)
    """

    gpus: int | Sequence[int] = (1,)
    nodes: int | Sequence[int] = (1,)
    constant_batch: ConstantBatch = "per_gpu"

    def __post_init__(self) -> None:
        check_choice("constant_batch", self.constant_batch, choices=("per_gpu", "global"))
        for name in ("gpus", "nodes"):
            counts = several(check_count, name, getattr(self, name))
            object.__setattr__(self, name, tuple(sorted(set(counts))))

    @property
    def gpu_counts(self) -> tuple[int, ...]:
        """The numbers of GPUs per machine, ascending."""
        return self.gpus if isinstance(self.gpus, tuple) else ()

    @property
    def node_counts(self) -> tuple[int, ...]:
        """The numbers of machines that train together, ascending."""
        return self.nodes if isinstance(self.nodes, tuple) else ()


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Prior (mean and standard deviations) of the slope per doubling, and of the log of the excess on two GPUs."""

    slope: float = 0.01
    slope_gpu: float = 0.06
    slope_model: float = 0.055
    slope_work: float = 0.065
    slope_below: float = 0.5
    slope_above: float = 1.5
    """Factors of the half-width of the slope: trainings scale worse than a ring more often, and by more, than better.
    Chosen with the deviations above by the interval score, with a coverage of at least 86 % on each source."""
    one_process: float = 1.5
    """Factor of the deviations of the slope where one process starts the work of all GPUs: assumed, not measured."""
    excess: float = 0.055
    excess_gpu: float = 1.05
    excess_model: float = 0.67
    excess_work: float = 0.57
    data_parallel_excess: float = 0.35
    data_parallel_spread: float = 0.8
    """Median excess of torch's ``DataParallel`` on two GPUs, and the standard deviation of its logarithm: four GPUs are
    usually reported to be 1.5 to 2.5 times as fast as one. Assumed, not measured."""
    least_excess: float = 0.02
    """Smallest excess that can be distinguished from noise."""
    node_spread: float = 0.2
    """Standard deviation of the log of (step time on three or four nodes / step time on two nodes)."""
    freedom: float = 4.0
    """Degrees of freedom of the prior. Each work of the history adds ``history_weight``."""
    history_weight: float = 0.3


CONSTANTS = Constants()
"""Constants fitted by tests/benchmarks/scaling.py to four data sets, see docs/validation/prediction.md."""


class Work(NamedTuple):
    """Seconds per step of one computation on one GPU model, by number of GPUs, at a constant batch size per GPU."""

    gpu: Hashable
    model: Hashable
    seconds: Mapping[int, float]
    parallelism: Parallelism | None = None
    """How the GPUs train together. If it is not known, they are assumed to sum gradients in a ring, but without a probe
    on several GPUs, the upper bound is that of ``DataParallel``."""


def traffic(gpus: int, parallelism: Parallelism | None = None) -> float:
    """Data that the busiest link carries in a step on ``gpus`` GPUs, relative to two GPUs."""
    return gpus - 1.0 if parallelism == "data_parallel" else 2 * (gpus - 1) / gpus


def scaled_ratio(excess: float, gpus: int, parallelism: Parallelism | None = None) -> float:
    """Step time on ``gpus`` GPUs divided by that on one GPU, if ``excess`` is the relative excess on two GPUs."""
    return 1 + excess * traffic(gpus, parallelism)


class Scaling:
    """Predicts step times on several GPUs from ``history``: other trainings that were measured on several GPUs."""

    def __init__(self, history: Iterable[Work] = (), *, constants: Constants = CONSTANTS) -> None:
        self.history, self.constants = list(history)[-MAX_ROWS:], constants

    def predict(self, work: Work, gpus: int, *, confidence: float = 0.9) -> Interval[float]:
        """Step time of ``work`` on ``gpus`` GPUs relative to one GPU, from its times on one and possibly more GPUs.

        >>> work = Work("T4", "net", {1: 0.100, 2: 0.110})
        >>> ratio = Scaling().predict(work, 4)
        >>> 1.1 < ratio.value < 1.3 and ratio.low < ratio.value < ratio.high
        True
        """
        if gpus in work.seconds:
            ratio = work.seconds[gpus] / work.seconds[1]
            return Interval.exact(ratio)
        others = [row for row in self.history if _is_central(row) == _is_central(work)]
        probed = [count for count in work.seconds if count > 1]
        slope, slope_sd, freedom, unlearned = self._slope(work, others, gpus)
        tail = float(stdtrit(freedom, (1 + confidence) / 2))
        if probed:
            # The probe on the number of GPUs nearest to the asked one says most about it.
            base = min(probed, key=lambda count: (abs(math.log2(gpus / count)), count))
            excess = low = high = implied_excess(work, base)
        else:
            base = 2
            level, spread = self._log_excess(work, others)
            wide = float(stdtrit(self.constants.freedom, (1 + confidence) / 2))
            excess, low, high = (math.exp(level + side * wide * spread) for side in (0, -1, 1))
        doublings = math.log2(gpus / base)
        middle, *sides = (math.log(scaled_ratio(share, gpus, work.parallelism)) for share in (excess, low, high))
        if not probed and work.parallelism is None:
            sides[1] = math.log(scaled_ratio(high, gpus, "data_parallel"))
        half = tail * slope_sd * (abs(doublings) if probed else max(1.0, abs(doublings)))
        half *= 1.0 if work.parallelism in (None, "all_reduce") else self.constants.one_process
        mean = middle + slope * doublings
        c = self.constants
        # Once other works have shown how far a GPU is from the form, the rest may be on either side.
        below = c.slope_above + (c.slope_below - c.slope_above) * unlearned
        down, up = math.hypot(middle - sides[0], half * below), math.hypot(sides[1] - middle, half * c.slope_above)
        return Interval(math.exp(mean), math.exp(mean - down), math.exp(mean + up))

    def _slope(self, work: Work, others: Sequence[Work], gpus: int) -> tuple[float, float, float, float]:
        """Mean, standard deviation and degrees of freedom of the slope of ``work`` per doubling of the GPU count.

        The last number is the share of what works have in common that ``others`` have not shown.
        """
        c = self.constants
        rows = [(row, slope) for row in (*others, work) if (slope := observed_slope(row, gpus)) is not None]
        whole = c.slope_gpu**2 + c.slope_model**2 + c.slope_work**2
        if not rows:
            return c.slope, math.sqrt(whole), c.freedom, 1.0
        covariance = effects_covariance([row for row, _ in rows], c.slope_gpu, c.slope_model, c.slope_work)
        cross = effects_covariance([*(row for row, _ in rows), work], c.slope_gpu, c.slope_model, 0.0)[-1, :-1]
        if rows[-1][0] is work:
            cross[-1] += c.slope_work**2 / 2  # half of what is special about a work persists with more GPUs
        residual = np.array([slope - c.slope for _, slope in rows])
        weights = np.linalg.solve(covariance, cross)
        variance = max(whole - float(weights @ cross), c.slope_work**2)
        misfit = float(residual @ np.linalg.solve(covariance, residual))
        freedom = c.freedom + c.history_weight * len(rows)
        scale = (c.freedom + c.history_weight * misfit) / freedom
        unlearned = (variance - c.slope_work**2) / (whole - c.slope_work**2)
        return c.slope + float(weights @ residual), math.sqrt(scale * variance), freedom, unlearned

    def _log_excess(self, work: Work, others: Sequence[Work]) -> tuple[float, float]:
        """Mean and standard deviation of the log of the relative excess of ``work`` on two GPUs.

        Used if ``work`` was measured on one GPU only.
        """
        c = self.constants
        rows = [row for row in others if row.gpu == work.gpu and len(row.seconds) > 1 and 1 in row.seconds]
        whole = c.excess_gpu**2 + c.excess_model**2 + c.excess_work**2
        level = math.log(c.excess)
        if _is_central(work):
            whole, level = c.data_parallel_spread**2, math.log(c.data_parallel_excess)
        if not rows:
            return level, math.sqrt(whole)
        # The smallest number of GPUs shows the excess on two GPUs most directly.
        logs = [
            math.log(max(implied_excess(row, min(n for n in row.seconds if n > 1)), c.least_excess)) for row in rows
        ]
        noise = c.excess_work
        covariance = effects_covariance(rows, c.excess_gpu, c.excess_model, noise)
        cross = effects_covariance([*rows, work], c.excess_gpu, c.excess_model, 0.0)[-1, :-1]
        weights = np.linalg.solve(covariance, cross)
        mean = level + float(weights @ (np.array(logs) - level))
        return mean, math.sqrt(max(whole - float(weights @ cross), noise**2))


def more_nodes(seconds: float, *, confidence: float = 0.9, constants: Constants = CONSTANTS) -> Interval[float]:
    """Step time on three or four nodes: equal to that on two nodes (``seconds``), which the network limits already."""
    half = math.exp(float(stdtrit(constants.freedom, (1 + confidence) / 2)) * constants.node_spread)
    return Interval.within_factor(seconds, half)


def implied_excess(work: Work, gpus: int) -> float:
    """Relative excess on two GPUs that the measured step time on ``gpus`` GPUs implies; at least 0."""
    return max(0.0, work.seconds[gpus] / work.seconds[1] - 1) / traffic(gpus, work.parallelism)


def _is_central(work: Work) -> bool:
    """Whether one GPU of ``work`` distributes the weights and collects the gradients."""
    return work.parallelism == "data_parallel"


def observed_slope(work: Work, gpus: int = MAX_GPUS) -> float | None:
    """Deviation of the log step time from the form of the work's parallelism, per doubling of the number of GPUs.

    It is measured from the smallest number of GPUs above one to the number nearest to ``gpus``. None if the work was
    not measured on one GPU and on two other numbers of GPUs.
    """
    several = sorted(count for count in work.seconds if count > 1)
    if 1 not in work.seconds or len(several) < 2:
        return None
    first, last = several[0], min(several[1:], key=lambda count: abs(math.log2(count / gpus)))
    form = scaled_ratio(implied_excess(work, first), last, work.parallelism)
    return math.log(work.seconds[last] / work.seconds[1] / form) / math.log2(last / first)


def effects_covariance(works: Sequence[Work], gpu: float, model: float, own: float) -> Floats:
    """Covariance of the effects of works: those with the same GPU, and the same model on it, share an effect.

    ``gpu``, ``model`` and ``own`` are the standard deviations of the shared and of the independent effects.
    """
    gpus = {key: k for k, key in enumerate(dict.fromkeys(work.gpu for work in works))}
    models = {key: k for k, key in enumerate(dict.fromkeys((work.gpu, work.model) for work in works))}
    g = np.array([gpus[work.gpu] for work in works])
    m = np.array([models[work.gpu, work.model] for work in works])
    same = gpu**2 * (g[:, None] == g) + model**2 * (m[:, None] == m)
    return np.asarray(same + own**2 * np.eye(len(works)), dtype=float)


Key = tuple[Hashable, Hashable, Hashable, float]
"""GPU model, model, settings, and batch size per GPU."""


@dataclass(frozen=True)
class GpuRecords:
    """Step times of profiles on single machines, by :data:`Key` and number of GPUs, and how the GPUs train together."""

    seconds: Mapping[Key, Mapping[int, float]]
    parallelisms: Mapping[Key, Parallelism | None]

    @classmethod
    def read(cls, profiles: Iterable[Profile], types: MachineTypes) -> GpuRecords:
        """Collect the step times of ``profiles``.

        Profiles of several nodes, of unknown GPUs, or of steps that are limited by CPU or input are left out. Of a
        training that ran on several GPUs in two ways, the way of the last profile counts.
        """
        times_of: dict[Key, dict[tuple[int, Parallelism | None], list[float]]] = {}
        ways: dict[Key, Parallelism | None] = {}
        for profile in profiles:
            used, seconds = count_gpus(profile, types), step_seconds(profile)
            if used and seconds and profile.batch_size and count_nodes(profile) == 1 and not host_bound([profile]):
                key = (used[0], model_key(profile), work_key(profile, None), profile.batch_size / used[1])
                way = profile.environment.parallelism
                times_of.setdefault(key, {}).setdefault((used[1], way), []).append(seconds)
                if used[1] > 1 or key not in ways:
                    ways[key] = way
        medians: dict[Key, dict[int, float]] = {}
        for work, by_way in times_of.items():
            by_count: dict[int, list[float]] = {}
            for (count, way), times in by_way.items():
                if count == 1 or way == ways[work]:
                    by_count.setdefault(count, []).extend(times)
            medians[work] = {count: statistics.median(times) for count, times in by_count.items()}
        return cls(medians, ways)

    @property
    def works(self) -> list[Work]:
        """The step times of each computation by number of GPUs, as history for :class:`Scaling`."""
        return [Work(key[0], key[1], seconds, self.parallelisms[key]) for key, seconds in self.seconds.items()]

    def find(self, profile: Profile, gpu: str, size: float, seconds: float) -> Work:
        """Step times of the training of ``profile`` at ``size`` examples per GPU, by number of GPUs of model ``gpu``.

        ``seconds`` is the time on one GPU. Times on several GPUs at another batch size are used too, because the time
        to sum gradients does not depend on the batch size.
        """
        model, rest = model_key(profile), work_key(profile, None)
        same = {key[3]: key for key, by in self.seconds.items() if key[:3] == (gpu, model, rest) and 1 in by}
        nearest = min(
            same, key=lambda other: (len(self.seconds[same[other]]) < 2, abs(math.log(other / size))), default=None
        )
        if nearest is None:
            return Work(gpu, model, {1: seconds}, expect_parallelism(profile))
        measured = self.seconds[same[nearest]]
        more = {count: seconds + max(0.0, time - measured[1]) for count, time in measured.items() if count > 1}
        return Work(gpu, model, {1: seconds, **more}, self.parallelisms[same[nearest]] or expect_parallelism(profile))


def expect_parallelism(profile: Profile) -> Parallelism | None:
    """How the training of ``profile`` would use several GPUs: as recorded, or the only way that its framework has."""
    usual: dict[str | None, Parallelism] = {"jax": "all_reduce", "tensorflow": "mirrored"}
    return profile.environment.parallelism or usual.get(profile.environment.backend)


def size_per_gpu(profile: Profile, types: MachineTypes) -> float:
    """Examples per step and GPU of a profile; 0 if its batch size is not known."""
    used = count_gpus(profile, types)
    nodes = max(1, int(profile.factors.get("nodes", 1)))
    return (profile.batch_size or 0) / ((used[1] if used else 1) * nodes)


@dataclass(frozen=True)
class Scaler:
    """Turns the prediction for one GPU of a machine into one for all its GPUs.

    Only machines whose number of GPUs is in ``gpus`` are predicted.
    """

    gpus: tuple[int, ...]
    records: GpuRecords
    confidence: float
    grows: bool = True
    """Whether the batch size grows with the number of GPUs."""

    @cached_property
    def _scaling(self) -> Scaling:
        return Scaling(self.records.works)

    def refuse(self, machine: Machine) -> Refusal | None:
        """Refusal if ``machine`` has more GPUs than can be predicted; else None."""
        if machine.gpu_count <= MAX_GPUS:
            return None
        problem = (
            f"{machine.instance_type} has {machine.gpu_count:g} GPUs, and more than {MAX_GPUS} cannot be predicted"
        )
        return Refusal(TOO_MANY_GPUS, f"{problem}; probe {machine.instance_type} itself")

    def scale(
        self, prediction: Prediction, profile: Profile, size: float, seconds: float
    ) -> tuple[Prediction, Interval[float]]:
        """``prediction`` with the uncertainty of scaling added, and step time on all GPUs relative to one GPU.

        ``seconds`` is the step time on one GPU at the batch size ``size``.
        """
        work = self.records.find(profile, prediction.machine.gpu_model, size, seconds)
        gpus = int(prediction.machine.gpu_count)
        ratio = self._scaling.predict(work, gpus, confidence=self.confidence)
        # The interval is that of Student's t; for draws, it is the one of a normal distribution of the same width.
        sd = math.log(ratio.high / ratio.low) / 2 / NormalDist().inv_cdf(0.5 + self.confidence / 2)
        return replace(prediction, gpus=gpus, scaling_sd=sd), ratio


def refuse_nodes(name: str, nodes: int) -> Refusal:
    """Refusal to predict ``nodes`` nodes of the instance type ``name``, with the reason."""
    if nodes > MAX_NODES:
        problem = f"more than {MAX_NODES} nodes cannot be predicted"
        return Refusal(TOO_MANY_NODES, f"{problem}; probe {nodes} x {name} itself")
    return Refusal(NO_TWO_NODES, f"{name} was not probed on two nodes; probe 2 x {name} at the same batch size per GPU")
