"""Predictions for several GPUs and nodes from probes on fewer: arguments, refusals, findings and speed-ups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from vmselect._checks import check_choice, check_count, several
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.prediction.hardware import Machine, MachineTypes, Refusal, count_gpus
from vmselect.prediction.machines import Prediction
from vmselect.prediction.scaling import MAX_GPUS, MAX_NODES, GpuRecords, Scaling, more_nodes
from vmselect.ranking.estimates import MachineEstimate
from vmselect.records import Profile
from vmselect.units import format_chance

if TYPE_CHECKING:
    from vmselect.ranking.result import Ranking

ConstantBatch = Literal["per_gpu", "global"]
TOO_MANY_GPUS, TOO_MANY_NODES, NO_TWO_NODES = "too_many_gpus", "too_many_nodes", "no_two_node_probe"
COLUMNS = (
    "rank", "gpu_model", "gpus", "nodes", "instance_type", "provider", "region", "market", "batch_size", "basis",
    "seconds", "seconds_low", "seconds_high", "cost_usd", "cost_low", "cost_high", "speed_up", "efficiency",
)  # fmt: skip
SHOWN = 3
"""Maximum number of GPU models that the text about numbers of GPUs describes."""


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
        what = f"{machine.instance_type} has {machine.gpu_count:g} GPUs, and more than {MAX_GPUS} cannot be predicted"
        return Refusal(TOO_MANY_GPUS, f"{what}; probe {machine.instance_type} itself")

    def scale(
        self, prediction: Prediction, profile: Profile, size: float, seconds: float
    ) -> tuple[Prediction, Interval[float]]:
        """``prediction`` with the uncertainty of scaling added, and step time on all GPUs relative to one GPU.

        ``seconds`` is the step time on one GPU at the batch size ``size``.
        """
        work = self.records.find(profile, prediction.machine.gpu_model, size, seconds)
        gpus = int(prediction.machine.gpu_count)
        ratio = self._scaling.predict(work, gpus, confidence=self.confidence)
        sd = math.log(ratio.high / ratio.low) / 2 / NormalDist().inv_cdf(0.5 + self.confidence / 2)
        return replace(prediction, gpus=gpus, scaling_sd=sd), ratio

    def findings(
        self, one: MachineEstimate, machine: Machine, ratio: Interval[float], base: MachineEstimate
    ) -> list[Finding]:
        """Findings with the assumed efficiency and, if the batch size grows, the assumed number of epochs."""
        low, high = (format_chance(min(1.0, 1 / side)) for side in (ratio.high, ratio.low))
        found = [
            Finding(
                "gpus-predicted",
                f"{one.title} is predicted to train on {machine.gpu_count:g} GPUs with an efficiency of "
                f"{format_chance(min(1.0, 1 / ratio.value))} ({low} to {high}).",
                f"Probe {one.instance_type}, or a machine with two such GPUs, to narrow this interval.",
                "info",
            )
        ]
        return [*found, *(epochs_findings(one, base) if self.grows else ())]


def epochs_findings(one: MachineEstimate, base: MachineEstimate) -> list[Finding]:
    """Warning that the number of epochs of another batch size is used; empty if a convergence study gives it."""
    if one.epochs is not None:
        return []
    message = (
        f"{one.title}: the number of epochs is that of batch size {base.batch_size}, although larger batches often "
        "need more."
    )
    remedy = "Pass a convergence study as epochs=, or constant_batch='global' (--constant-batch global)."
    return [Finding("epochs-held-constant", message, remedy)]


def scale_nodes(two: MachineEstimate, nodes: int, confidence: float) -> tuple[MachineEstimate, Interval[float]]:
    """The machine estimate ``two`` (of two nodes) as one of ``nodes`` nodes; and the ratio of the total step times."""
    size = two.batch_size * nodes // 2 if two.batch_size else None
    factors = {**two.factors, "nodes": nodes, **({"batch_size": size} if size else {})}
    one = replace(two, factors=factors, basis="predicted")
    return one, more_nodes(1.0, confidence=confidence).map(lambda part: part * 2 / nodes)


def refuse_nodes(name: str, nodes: int) -> Refusal:
    """Refusal to predict ``nodes`` nodes of the instance type ``name``, with the reason."""
    if nodes > MAX_NODES:
        what = f"more than {MAX_NODES} nodes cannot be predicted"
        return Refusal(TOO_MANY_NODES, f"{what}; probe {nodes} x {name} itself")
    return Refusal(NO_TWO_NODES, f"{name} was not probed on two nodes; probe 2 x {name} at the same batch size per GPU")


def scaling_table(ranking: Ranking) -> pd.DataFrame:
    """The cheapest and the fastest row of each GPU model and total number of GPUs, at the ranking's deciding epochs.

    ``speed_up`` and ``efficiency`` are relative to the fastest row with one GPU of the same model.
    """
    column, candidates = ranking.deciding_column, ranking.candidates
    order = ranking.assessment.order[column]
    order = order[candidates.gpus[order] > 0]
    models = candidates.offers["gpu_model"].astype("category").cat
    model, gpus = models.codes.to_numpy()[candidates.offer[order]].astype(np.int64), candidates.gpus[order]
    group = model * (int(gpus.max(initial=0)) + 1) + gpus
    chosen: set[int] = set()
    for name in ("cost", "time"):
        value = ranking.assessment.measures[name].value[order, column]
        sorted_by = np.lexsort((np.arange(len(order)), value, group))  # equal values: the better rank first
        chosen.update(order[sorted_by[np.unique(group[sorted_by], return_index=True)[1]]].tolist())
    rows = [(ranking.row(which, column), candidates.of(which), int(candidates.gpus[which])) for which in chosen]
    alone: dict[str | None, float] = {}
    for row, _, total in rows:
        if total == 1:
            alone[row.gpu_model] = min(row.seconds, alone.get(row.gpu_model, math.inf))
    found = []
    for row, one, total in sorted(rows, key=lambda each: (str(each[0].gpu_model), each[2], each[0].rank)):
        speed_up = alone.get(row.gpu_model, math.nan) / row.seconds
        own = {"gpus": total, "nodes": one.nodes, "speed_up": speed_up, "efficiency": speed_up / total}
        found.append({name: own[name] if name in own else getattr(row, name) for name in COLUMNS})
    return pd.DataFrame(found, columns=list(COLUMNS))


def plain_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table as plain values for JSON; an unknown number is None."""
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def describe_scaling(table: pd.DataFrame) -> str:
    """Text with the fastest and the cheapest number of GPUs of each GPU model.

    Of more than :data:`SHOWN` models, those with the best rank are described. ``scaling.js`` of the report page writes
    the same text.
    """
    by_gpu: dict[str, list[dict[Any, Any]]] = {}
    for row in table.sort_values("rank", kind="stable").to_dict("records"):
        by_gpu.setdefault(row["gpu_model"], []).append(row)
    compared = {gpu: rows for gpu, rows in by_gpu.items() if len({row["gpus"] for row in rows}) > 1}
    texts = [_describe_gpu(gpu, rows) for gpu, rows in list(compared.items())[:SHOWN]]
    if more := len(compared) - len(texts):
        texts.append(f"{more} more GPU model{'s were' if more > 1 else ' was'} ranked with several numbers of GPUs.")
    return " ".join(texts)


def _describe_gpu(gpu: str, rows: Sequence[Mapping[Any, Any]]) -> str:
    fastest, cheapest = (min(rows, key=lambda row: (row[name], row["gpus"])) for name in ("seconds", "cost_usd"))
    same = fastest["gpus"] == cheapest["gpus"]
    speed = ""
    if fastest["gpus"] > 1 and not math.isnan(fastest["speed_up"]):
        efficiency = format_chance(min(1.0, fastest["efficiency"]))
        speed = f" ({fastest['speed_up']:.2g} times as fast as on 1 GPU, efficiency {efficiency})"
    most = max(row["gpus"] for row in rows)
    limit = ", the largest number ranked" if fastest["gpus"] == most else "; more GPUs make it slower"
    least = "" if same else f" It costs least on {_count(cheapest['gpus'])}."
    both = " and costs least" if same else ""
    return f"{gpu}: the training is fastest{both} on {_count(fastest['gpus'])}{speed}{limit}.{least}"


def _count(gpus: int) -> str:
    return f"{gpus} GPU" if gpus == 1 else f"{gpus} GPUs"


def probed_gpus(estimates: Sequence[MachineEstimate], types: MachineTypes) -> tuple[set[str], set[str]]:
    """Models of the GPUs of the probed machines in the catalog, and their providers."""
    known = [types.find(one.instance_type, one.provider) for one in estimates]
    machines = [machine for machine in known if machine is not None and machine.gpu_model]
    return {machine.gpu_model for machine in machines}, {machine.provider for machine in machines}
