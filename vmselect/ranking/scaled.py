"""Predictions for several GPUs and nodes from probes on fewer: arguments, refusals, findings and speed-ups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from vmselect._checks import check_choice, check_count, several
from vmselect.errors import ArgumentError
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.prediction.machines import Machine, MachineTypes, Prediction, Refusal
from vmselect.prediction.scaling import MAX_GPUS, MAX_NODES, GpuRecords, Scaling, count_gpus, more_nodes
from vmselect.ranking.estimates import MachineEstimate
from vmselect.records import Profile
from vmselect.units import format_chance

if TYPE_CHECKING:
    from vmselect.ranking.result import Ranking

ConstantBatch = Literal["per_gpu", "global"]
TOO_MANY_GPUS, TOO_MANY_NODES, NO_TWO_NODES = "too_many_gpus", "too_many_nodes", "no_two_node_probe"
COLUMNS = (
    "gpu_model", "gpus", "nodes", "instance_type", "provider", "region", "market", "batch_size", "basis", "seconds",
    "seconds_low", "seconds_high", "cost_usd", "speed_up", "efficiency",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Numbers of GPUs per machine and of nodes to predict, and which batch size stays constant."""

    gpus: tuple[int, ...] = (1,)
    nodes: tuple[int, ...] = (1,)
    constant_batch: ConstantBatch = "per_gpu"

    @classmethod
    def read(cls, gpus: Any, nodes: Any, constant_batch: Any) -> Scale | None:
        """Check these arguments of :func:`vmselect.rank`; returns None if both ``gpus`` and ``nodes`` are None."""
        check_choice("constant_batch", constant_batch, choices=("per_gpu", "global"))
        if gpus is None and nodes is None:
            if constant_batch != "per_gpu":
                raise ArgumentError("constant_batch applies to several GPUs or nodes only. Pass gpus= or nodes= too.")
            return None
        counts = {
            name: tuple(sorted(set(several(check_count, name, given)))) if given is not None else (1,)
            for name, given in (("gpus", gpus), ("nodes", nodes))
        }
        return cls(gpus=counts["gpus"], nodes=counts["nodes"], constant_batch=constant_batch)


def size_per_gpu(profile: Profile, types: MachineTypes) -> float:
    """Examples per step and GPU of a profile; 0 if its batch size is not known."""
    used = count_gpus(profile, types)
    nodes = max(1, int(profile.factors.get("nodes", 1)))
    return (profile.batch_size or 0) / ((used[1] if used else 1) * nodes)


@dataclass(frozen=True)
class Scaler:
    """Turns the prediction for one GPU of a machine into a prediction for ``gpus`` GPUs."""

    gpus: int
    records: GpuRecords
    confidence: float
    grows: bool = True
    """Whether the batch size grows with the number of GPUs."""

    def refuse(self, machine: Machine) -> Refusal | None:
        """Refusal if ``machine`` has more GPUs than can be predicted; else None."""
        if machine.gpu_count <= MAX_GPUS:
            return None
        what = f"{machine.instance_type} has {machine.gpu_count:g} GPUs, and more than {MAX_GPUS} cannot be predicted"
        return Refusal(TOO_MANY_GPUS, f"{what}; probe {machine.instance_type} itself")

    def scale(
        self, prediction: Prediction, profile: Profile, size: float, seconds: float
    ) -> tuple[Prediction, Interval[float]]:
        """``prediction`` with the uncertainty of scaling added, and step time on ``gpus`` GPUs relative to one GPU.

        ``seconds`` is the step time on one GPU at the batch size ``size``.
        """
        work = self.records.find(profile, prediction.machine.gpu_model, size, seconds)
        ratio = Scaling(self.records.works).predict(work, self.gpus, confidence=self.confidence)
        sd = math.log(ratio.high / ratio.low) / 2 / NormalDist().inv_cdf(0.5 + self.confidence / 2)
        return replace(prediction, gpus=self.gpus, own_variance=sd**2), ratio

    def findings(self, one: MachineEstimate, ratio: Interval[float], base: MachineEstimate) -> list[Finding]:
        """Findings with the assumed efficiency and, if the batch size grows, the assumed number of epochs."""
        low, high = (format_chance(min(1.0, 1 / side)) for side in (ratio.high, ratio.low))
        found = [
            Finding(
                "gpus-predicted",
                f"{one.title} is predicted to train on {self.gpus} GPUs with an efficiency of "
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
    value, low, high = more_nodes(1.0, confidence=confidence)
    return one, Interval(value * 2 / nodes, low * 2 / nodes, high * 2 / nodes)


def refuse_nodes(name: str, nodes: int) -> Refusal:
    """Refusal to predict ``nodes`` nodes of the instance type ``name``, with the reason."""
    if nodes > MAX_NODES:
        what = f"more than {MAX_NODES} nodes cannot be predicted"
        return Refusal(TOO_MANY_NODES, f"{what}; probe {nodes} x {name} itself")
    return Refusal(NO_TWO_NODES, f"{name} was not probed on two nodes; probe 2 x {name} at the same batch size per GPU")


def scaling_table(ranking: Ranking) -> pd.DataFrame:
    """The cheapest and the fastest row of each GPU model and total number of GPUs at the deciding epoch count.

    ``speed_up`` and ``efficiency`` are relative to the fastest row with one GPU of the same model.
    """
    column = ranking.deciding_column
    rows: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for candidate in ranking.assessment.order[column]:
        one, row = ranking.candidates.of(int(candidate)), ranking.row(int(candidate), column)
        used = one.gpus_used if one.gpus_used is not None else row.gpu_count
        if not row.gpu_model or not used or used != int(used) or used != row.gpu_count:
            continue
        if any(finding.code == "one-gpu-predicted" for finding in one.findings):
            continue
        total = int(used) * one.nodes
        known = {name: getattr(row, name) for name in COLUMNS if hasattr(row, name)}
        rows.setdefault((row.gpu_model, total), []).append({**known, "gpus": total, "nodes": one.nodes})
    found = []
    for (gpu, total), mine in sorted(rows.items()):
        alone = min((row["seconds"] for row in rows.get((gpu, 1), ())), default=math.nan)
        chosen = {
            id(row): row for row in (min(mine, key=lambda r: r["cost_usd"]), min(mine, key=lambda r: r["seconds"]))
        }
        for values in chosen.values():
            speed_up = alone / values["seconds"]
            found.append({**values, "speed_up": speed_up, "efficiency": speed_up / total})
    return pd.DataFrame(found, columns=list(COLUMNS))


def describe_scaling(table: pd.DataFrame) -> str:
    """A sentence per GPU model: the numbers of GPUs with the shortest time and with the lowest cost."""
    by_gpu: dict[str, list[dict[Any, Any]]] = {}
    for row in table.to_dict("records"):
        by_gpu.setdefault(row["gpu_model"], []).append(row)
    said = []
    for gpu, rows in by_gpu.items():
        counts = {row["gpus"] for row in rows}
        if len(counts) < 2:
            continue
        fastest, cheapest = (min(rows, key=lambda row: row[name]) for name in ("seconds", "cost_usd"))
        speed = ""
        if fastest["gpus"] > 1 and not math.isnan(fastest["speed_up"]):
            efficiency = format_chance(min(1.0, fastest["efficiency"]))
            speed = f" ({fastest['speed_up']:.2g} times as fast as one, efficiency {efficiency})"
        limit = "" if fastest["gpus"] == max(counts) else "; more make it slower"
        said.append(
            f"{gpu}: the training is fastest on {_count(fastest['gpus'])}{speed}{limit}, and costs least on "
            f"{_count(cheapest['gpus'])}."
        )
    return " ".join(said)


def _count(gpus: int) -> str:
    return f"{gpus} GPU" if gpus == 1 else f"{gpus} GPUs"


def probed_gpus(estimates: Sequence[MachineEstimate], types: MachineTypes) -> tuple[set[str], set[str]]:
    """Models of the GPUs of the probed machines in the catalog, and their providers."""
    known = [types.find(one.instance_type, one.provider) for one in estimates]
    machines = [machine for machine in known if machine is not None and machine.gpu_model]
    return {machine.gpu_model for machine in machines}, {machine.provider for machine in machines}
