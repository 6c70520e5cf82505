"""Pairs of VM type and batch size: who can train with how many examples at a time, in how many epochs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vmselect.convergence import ConvergenceStudy, EpochsEstimate
from vmselect.errors import ArgumentError, EstimateError, RankingError
from vmselect.estimation import fit_runtime
from vmselect.estimation.along import REACH
from vmselect.ranking.candidates import Machine
from vmselect.ranking.rows import Excluded
from vmselect.ranking.settings import Settings
from vmselect.records import Profile

TOO_BAD, UNKNOWN_METRIC, UNKNOWN_EPOCHS = "below_minimum_metric", "metric_unknown", "epochs_unknown"
FALLING = (
    "loss", "error", "mae", "mse", "mape", "msle", "rmse", "crossentropy", "hinge", "divergence", "poisson", "logcosh",
    "log_cosh", "perplexity", "false_",
)  # fmt: skip
"""Words in the names of metrics that should fall; of others than the monitored one nothing else tells."""

Refused = dict[int, tuple[str, str]]
"""Batch size to reason code and reason."""


def make_pairs(
    measured: Sequence[Machine],
    sizes: Iterable[int],
    profiles: Sequence[Profile],
    settings: Settings,
    workload: Mapping[str, Any],
    *,
    epochs: Mapping[int, EpochsEstimate],
    refused: Refused,
) -> tuple[list[Machine], list[Excluded]]:
    """Every measured machine at every size, with the epochs of that size; and the pairs that are out of the question.

    A pair of a size that is refused is in both.
    """
    pairs: list[Machine] = []
    left_out: list[Excluded] = []
    for group in _by_machine(measured):
        for size in sizes:
            title = f"{group[0].instance_type}, batch {size}"
            if size in refused:
                left_out.append(Excluded(title, *refused[size]))
            try:
                machine = _at_size(group, size, profiles, settings, workload)
            except EstimateError as impossible:
                if size not in refused:
                    left_out.append(Excluded.unestimated(title, impossible))
                continue
            value, low, high = epochs[size]
            doubts = dict.fromkeys([*machine.findings, *epochs[size].findings])
            pairs.append(replace(machine, epochs=(value, low, high), findings=tuple(doubts)))
    return pairs, left_out


def read_demands(minimum: float | Mapping[str, float] | None, study: ConvergenceStudy) -> dict[str, float]:
    """Metric name to the value that it must reach; a name that the study does not have is an error."""
    if minimum is None:
        return {}
    demands = dict(minimum) if isinstance(minimum, Mapping) else {study.monitor: minimum}
    for name, value in demands.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ArgumentError(f"minimum_metric of {name} is {value!r}. Give a number.")
        study.metric(1, name)  # refuses a name that no run has
    return {name: float(value) for name, value in demands.items()}


def check_same_model(profiles: Sequence[Profile], study: ConvergenceStudy) -> None:
    """Refuse a study of another model than that of the profiles."""
    facts: tuple[tuple[str, set[Any], set[Any]], ...] = (
        ("model", {p.model for p in profiles}, {r.model for r in study.runs}),
        ("parameters", {p.setup.parameters for p in profiles}, {r.parameters for r in study.runs}),
    )
    for what, mine, other in facts:
        mine, other = mine - {None}, other - {None}
        if mine and other and mine != other:
            raise RankingError(
                f"The study is of another model than the profiles: {what} {list_values(other)} against "
                f"{list_values(mine)}. "
                "Load the study and the profiles of one model."
            )


def candidate_sizes(machines: Sequence[Machine], study: ConvergenceStudy) -> tuple[int, ...]:
    """Every batch size that the study or a profile was made at."""
    return tuple(sorted({*study.batch_sizes, *(m.batch_size for m in machines if m.batch_size)}))


def known_epochs(
    sizes: Iterable[int], study: ConvergenceStudy, demands: Mapping[str, float], confidence: float
) -> tuple[dict[int, EpochsEstimate], Refused]:
    """Epochs by batch size, and the sizes that are out of the question, with code and reason."""
    epochs, refused = {}, {}
    for size in sizes:
        epochs[size] = study.epochs(size, confidence=confidence)
        smallest, largest = study.batch_sizes[0], study.batch_sizes[-1]
        if not smallest / REACH <= size <= largest * REACH:
            reason = f"the study knows the epochs of batch sizes {smallest} to {largest}; train at {size} to know more"
            refused[size] = (UNKNOWN_EPOCHS, reason)
        for name, wanted in demands.items():
            value, smaller = study.metric(size, name), _smaller_is_better(study, name)
            if value is None:
                refused[size] = (UNKNOWN_METRIC, f"its final {name} is not known; train at {size} to know it")
            elif not (value <= wanted if smaller else value >= wanted):
                beyond = "above" if smaller else "below"
                refused[size] = (TOO_BAD, f"its final {name} is {value:.4g}, {beyond} the {wanted:.4g} demanded")
    return epochs, refused


def _smaller_is_better(study: ConvergenceStudy, name: str) -> bool:
    if name.removeprefix("val_") == study.monitor.removeprefix("val_"):
        return study.rule.mode == "min"
    return any(word in name for word in FALLING)


def _by_machine(machines: Sequence[Machine]) -> list[list[Machine]]:
    groups: dict[tuple[str, str | None], list[Machine]] = {}
    for machine in machines:
        groups.setdefault((machine.instance_type, machine.provider), []).append(machine)
    return list(groups.values())


def _at_size(
    group: Sequence[Machine], size: int, profiles: Sequence[Profile], settings: Settings, workload: Mapping[str, Any]
) -> Machine:
    """The machine at a batch size: as measured, or along the line through the sizes where it was measured."""
    for machine in group:
        if machine.batch_size == size:
            return machine
    first = group[0]
    mine = [p for p in profiles if p.instance_type == first.instance_type and p.provider in (first.provider, None)]
    runtime = fit_runtime(mine, batch_size=size, method=settings.method, confidence=settings.confidence, **workload)
    return replace(
        first, batch_size=size, runtime=runtime, profiles=(), probe_seconds=0.0, iterations={},
        findings=runtime.findings,
    )  # fmt: skip


def list_values(values: Iterable[Any]) -> str:
    """Values in order, for a message."""
    return ", ".join(str(value) for value in sorted(values))
