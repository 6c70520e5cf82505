"""Step time as a function of the number of GPUs, at a constant batch size per GPU.

A ring all-reduce sends ``2 (n - 1) / n`` times the gradients over each link, so a step on ``n`` GPUs takes
``t_1 + excess 2 (n - 1) / n t_1``. The excess comes from a probe on several GPUs, such as two, or from a prior. The log
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

from vmselect._checks import check_choice, check_count, several
from vmselect.intervals import Interval
from vmselect.prediction.hardware import Machine, MachineTypes, Refusal, count_gpus
from vmselect.prediction.machines import Prediction, host_bound
from vmselect.prediction.posterior import Floats
from vmselect.records import Profile
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
    slope_gpu: float = 0.10
    slope_model: float = 0.09
    slope_work: float = 0.11
    excess: float = 0.055
    excess_gpu: float = 1.05
    excess_model: float = 0.67
    excess_work: float = 0.57
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


def ring_ratio(excess: float, gpus: int) -> float:
    """Step time on ``gpus`` GPUs divided by that on one GPU, if ``excess`` is the relative excess on two GPUs."""
    return 1 + excess * 2 * (gpus - 1) / gpus


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
        others = self.history
        probed = [count for count in work.seconds if count > 1]
        slope, slope_sd, freedom = self._slope(work, others, gpus)
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
        middle, *sides = (math.log(ring_ratio(share, gpus)) for share in (excess, low, high))
        half = tail * slope_sd * (abs(doublings) if probed else max(1.0, abs(doublings)))
        mean = middle + slope * doublings
        down, up = math.hypot(middle - sides[0], half), math.hypot(sides[1] - middle, half)
        return Interval(math.exp(mean), math.exp(mean - down), math.exp(mean + up))

    def _slope(self, work: Work, others: Sequence[Work], gpus: int) -> tuple[float, float, float]:
        """Mean, standard deviation and degrees of freedom of the slope of ``work`` per doubling of the GPU count."""
        c = self.constants
        rows = [(row, slope) for row in (*others, work) if (slope := observed_slope(row, gpus)) is not None]
        whole = c.slope_gpu**2 + c.slope_model**2 + c.slope_work**2
        if not rows:
            return c.slope, math.sqrt(whole), c.freedom
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
        return c.slope + float(weights @ residual), math.sqrt(scale * variance), freedom

    def _log_excess(self, work: Work, others: Sequence[Work]) -> tuple[float, float]:
        """Mean and standard deviation of the log of the relative excess of ``work`` on two GPUs.

        Used if ``work`` was measured on one GPU only.
        """
        c = self.constants
        rows = [row for row in others if row.gpu == work.gpu and len(row.seconds) > 1 and 1 in row.seconds]
        whole = c.excess_gpu**2 + c.excess_model**2 + c.excess_work**2
        if not rows:
            return math.log(c.excess), math.sqrt(whole)
        # The smallest number of GPUs shows the excess on two GPUs most directly.
        logs = [
            math.log(max(implied_excess(row, min(n for n in row.seconds if n > 1)), c.least_excess)) for row in rows
        ]
        noise = c.excess_work
        covariance = effects_covariance(rows, c.excess_gpu, c.excess_model, noise)
        cross = effects_covariance([*rows, work], c.excess_gpu, c.excess_model, 0.0)[-1, :-1]
        weights = np.linalg.solve(covariance, cross)
        mean = math.log(c.excess) + float(weights @ (np.array(logs) - math.log(c.excess)))
        return mean, math.sqrt(max(whole - float(weights @ cross), noise**2))


def more_nodes(seconds: float, *, confidence: float = 0.9, constants: Constants = CONSTANTS) -> Interval[float]:
    """Step time on three or four nodes: equal to that on two nodes (``seconds``), which the network limits already."""
    half = math.exp(float(stdtrit(constants.freedom, (1 + confidence) / 2)) * constants.node_spread)
    return Interval.within_factor(seconds, half)


def implied_excess(work: Work, gpus: int) -> float:
    """Relative excess on two GPUs that the measured step time on ``gpus`` GPUs implies; at least 0."""
    return max(0.0, work.seconds[gpus] / work.seconds[1] - 1) * gpus / (2 * (gpus - 1))


def observed_slope(work: Work, gpus: int = MAX_GPUS) -> float | None:
    """Deviation of the log step time from the ring all-reduce form, per doubling of the number of GPUs.

    It is measured from the smallest number of GPUs above one to the number nearest to ``gpus``. None if the work was
    not measured on one GPU and on two other numbers of GPUs.
    """
    several = sorted(count for count in work.seconds if count > 1)
    if 1 not in work.seconds or len(several) < 2:
        return None
    first, last = several[0], min(several[1:], key=lambda count: abs(math.log2(count / gpus)))
    form = ring_ratio(implied_excess(work, first), last)
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


@dataclass(frozen=True)
class GpuRecords:
    """Step times of profiles on single machines, by (GPU model, model, settings, batch size per GPU) and GPU count."""

    seconds: Mapping[tuple[Hashable, Hashable, Hashable, float], Mapping[int, float]]

    @classmethod
    def read(cls, profiles: Iterable[Profile], types: MachineTypes) -> GpuRecords:
        """Collect the step times of ``profiles``.

        Profiles of several nodes, of unknown GPUs, or of steps that are limited by CPU or input are left out.
        """
        times_of: dict[tuple[Hashable, Hashable, Hashable, float], dict[int, list[float]]] = {}
        for profile in profiles:
            used, seconds = count_gpus(profile, types), step_seconds(profile)
            if used and seconds and profile.batch_size and count_nodes(profile) == 1 and not host_bound([profile]):
                key = (used[0], model_key(profile), work_key(profile, None), profile.batch_size / used[1])
                times_of.setdefault(key, {}).setdefault(used[1], []).append(seconds)
        medians = {key: {n: statistics.median(times) for n, times in by.items()} for key, by in times_of.items()}
        return cls(medians)

    @property
    def works(self) -> list[Work]:
        """The step times of each computation by number of GPUs, as history for :class:`Scaling`."""
        return [Work(gpu, model, seconds) for (gpu, model, _, _), seconds in self.seconds.items()]

    def find(self, profile: Profile, gpu: str, size: float, seconds: float) -> Work:
        """Step times of the training of ``profile`` at ``size`` examples per GPU, by number of GPUs of model ``gpu``.

        ``seconds`` is the time on one GPU. Times on several GPUs at another batch size are used too, because the time
        to sum gradients does not depend on the batch size.
        """
        model, rest = model_key(profile), work_key(profile, None)
        same = {key[3]: by for key, by in self.seconds.items() if key[:3] == (gpu, model, rest) and 1 in by}
        nearest = min(same, key=lambda other: (len(same[other]) < 2, abs(math.log(other / size))), default=None)
        measured = same[nearest] if nearest is not None else {}
        more = {count: seconds + max(0.0, time - measured[1]) for count, time in measured.items() if count > 1}
        return Work(gpu, model, {1: seconds, **more})


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
