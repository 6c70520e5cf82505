"""What the training would take with another precision or a compiled step: untested advice from its description.

The speed-up of a step is the ratio of its rooflines (:mod:`vmselect.prediction.roofline`) on the same GPU. Whether the
model still converges is not examined.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from vmselect.catalog.gpus import WITHOUT_FAST_HALF, GpuFigures, Precision, figures_of
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.prediction.machines import read_cost, read_training_precision
from vmselect.prediction.roofline import StepCost
from vmselect.ranking.estimates import STEP_TERMS, MachineEstimate
from vmselect.ranking.measures import cost_of
from vmselect.units import format_seconds, format_usd

if TYPE_CHECKING:
    from vmselect.ranking.result import Ranking

MIXED, TF32, COMPILED = "mixed precision", "TF32", "compiled step"
COLUMNS = (
    "rank", "instance_type", "gpu_model", "variant", "speed_up", "speed_up_low", "speed_up_high", "seconds", "cost_usd",
)  # fmt: skip
MAX_GPUS = 5
"""Number of GPU models whose variants are listed, those with the best ranks."""
PRECISION_SHARE, PRECISION_DEVIATION = 0.85, 0.35
"""Share of the log of the speed-up by the roofline that trainings reach with another precision, and standard deviation
of the log of the rest. From 138 published pairs of float32 and float16 (Lambda, 14 models on 20 GPUs), whose median
speed-up is 1.8. ``tests/benchmarks/described_factors.py`` fits the share to one of its two sources and scores it on the
other."""
LEAST_GAIN = 1.05
"""Speed-up below which a variant is not advised."""
HOW = {
    MIXED: 'Try keras.mixed_precision.set_global_policy("mixed_float16"), or torch.autocast',
    TF32: 'Try torch.set_float32_matmul_precision("high"), or for convolutions torch.backends.cudnn.allow_tf32 = True',
    COMPILED: "Try jit_compile=True in compile(), or torch.compile",
}


class Described(NamedTuple):
    """A described training on a GPU: operations of a step, GPU figures, precision, and whether it is compiled."""

    cost: StepCost
    gpu: GpuFigures
    precision: Precision
    compiled: bool

    def speed_ups(self, confidence: float) -> Iterator[tuple[str, Interval[float]]]:
        """Names of the variants that this training does not use yet, and how much faster its steps would be."""
        spread = math.exp(NormalDist().inv_cdf(0.5 + confidence / 2) * PRECISION_DEVIATION)
        # Without tensor cores, the roofline gains only from halved bytes, which no measurement confirms.
        fast = self.precision != "half" and self.gpu.architecture not in WITHOUT_FAST_HALF
        others: dict[str, Precision] = {MIXED: "half"} if fast else {}
        others |= {TF32: "single"} if self.precision == "strict" else {}
        now = self.cost.roofline(self.gpu, self.precision).log_seconds
        for name, precision in others.items():
            gain = PRECISION_SHARE * (now - self.cost.roofline(self.gpu, precision).log_seconds)
            if gain > 0:
                yield name, Interval.within_factor(math.exp(gain), spread)
        if not self.compiled:
            # At best, a compiler makes all other operations a part of the products; at worst, nothing changes.
            most = self.cost.roofline(self.gpu, self.precision).seconds
            most /= _fuse(self.cost).roofline(self.gpu, self.precision).seconds
            yield COMPILED, Interval(math.sqrt(most), 1.0, most)


def _fuse(cost: StepCost) -> StepCost:
    """``cost`` without the operations that can be a part of the products, and with one kernel for the optimizer."""
    kept = {
        name: getattr(cost, name)[cost.product]
        for name in ("product", "depthwise", "winograd", "flops", "traffic", "least", "depth", "count")
    }
    return replace(cost, **kept, launches=float(np.sum(kept["count"])) + 1, _known={})


def read_described(machine: MachineEstimate, gpu_model: str | None) -> Described | None:
    """The described training of a machine estimate; None if it is not described, or its GPU has no figures."""
    figures = figures_of(gpu_model) if gpu_model else None
    profiles = [*machine.records, *([machine.description] if machine.description else [])]
    cost = machine.prediction.cost if machine.prediction else read_cost(profiles, machine.batch_size)
    if cost is None or figures is None:
        return None
    precision = machine.prediction.precision if machine.prediction else read_training_precision(profiles[0])
    compiled = any(profile.work is not None and "compiled" in profile.work.caveats for profile in profiles)
    return Described(cost, figures, precision, compiled)


def variant_table(ranking: Ranking) -> pd.DataFrame:
    """A row per variant of the best row of each GPU model, the lowest cost first; see :attr:`Ranking.variants`."""
    rows: list[tuple[Any, ...]] = []
    column, candidates = ranking.deciding_column, ranking.candidates
    order = ranking.assessment.order[column]
    gpus = candidates.offers["gpu_model"].astype("category").cat.codes.to_numpy()[candidates.offer[order]]
    described_gpus = 0
    for place in np.sort(np.unique(gpus, return_index=True)[1]):
        candidate = int(order[place])
        gpu = candidates.identity(candidate)["gpu_model"]
        described = read_described(candidates.of(candidate), gpu)
        if described is None:
            continue
        described_gpus += 1
        row = ranking.row(candidate, column)
        steps = sum(row.terms.get(name, 0.0) for name in STEP_TERMS)
        # Interruptions lengthen a time by a factor, and moving data is paid once, however long the training takes.
        stretched = row.seconds / (row.seconds - row.terms.get("interruptions", 0.0))
        for name, speed_up in described.speed_ups(ranking.settings.confidence):
            seconds = row.seconds - stretched * (steps - steps / speed_up.value)
            cost = cost_of(candidates, candidate, ranking.settings, seconds)
            rows.append((row.rank, row.instance_type, gpu, name, *speed_up, seconds, cost))
        if described_gpus == MAX_GPUS:
            break
    return pd.DataFrame(rows, columns=list(COLUMNS)).sort_values("cost_usd", kind="stable", ignore_index=True)


def variant_findings(ranking: Ranking) -> list[Finding]:
    """Advice on the variant with the lowest cost, if it is cheaper than the recommended row by more than a little."""
    table = ranking.variants
    table = table[(table["speed_up"] >= LEAST_GAIN) & (table["cost_usd"] < ranking.best.cost_usd)]
    if table.empty:
        return []
    best = table.iloc[0]
    factor = f"{best.speed_up:.2g} times as fast ({best.speed_up_low:.2g} to {best.speed_up_high:.2g})"
    message = (
        f"Untested: with {best.variant}, steps on {best.instance_type} ({best.gpu_model}) would be about {factor}. The "
        f"training would take about {format_seconds(best.seconds)} and cost about {format_usd(best.cost_usd)} instead "
        f"of {format_usd(ranking.best.cost_usd)} on {ranking.best.instance_type}."
    )
    return [Finding("untested-variant", message, f"{HOW[best.variant]}, check the loss, and probe again.", "info")]
