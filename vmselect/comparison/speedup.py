# Models that are made from dataclasses are variables for mypy, not types.
# mypy: disable-error-code="valid-type,call-arg"
"""Speed-up, efficiency and cost of training with several workers compared with one worker.

Speed-ups are ratios of predicted times of whole trainings, so they include start-up, validation and epoch boundaries.
The interval of a ratio is derived from the intervals of its two times by the MOVER method (Zou and Donner 2008) on the
logarithms: the squared distances from the estimates to the bounds are added.

The models of the JSON (:class:`ScalingOutput`) are at the end of this module.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property

import pandas as pd

from vmselect._checks import check_count, check_name, check_share, maybe, suggest_arguments
from vmselect._models import FindingOutput, Output, derive_model
from vmselect.errors import ComparisonError, EstimateError
from vmselect.estimation import RuntimeEstimate, estimate
from vmselect.findings import Finding, warnings_first
from vmselect.records import Profile
from vmselect.records.identity import Identity, check_comparable, group_repetitions, read_records
from vmselect.records.training import largest_share
from vmselect.units import printable, printable_lines

SAME_BATCH, SAME_SHARE = "same batch", "same batch per worker"


@dataclass(frozen=True)
class Speedup:
    """Comparison of a setup with several workers with the same setup with one worker.

    ``base`` states whether the single worker has the ``same batch`` in total or the ``same batch per worker``.
    ``nodes`` is the number of workers, or of machines if several workers share a machine and no worker was measured
    alone; ``unit`` states which. ``efficiency`` is the speed-up divided by ``nodes``. ``cost_ratio`` is the cost
    relative to one worker or machine; a machine that workers share is paid once.
    """

    setup: str
    nodes: int
    unit: str
    batch_size: int | None
    worker_batch_size: int | None
    runs: int
    base: str
    seconds: float
    seconds_low: float
    seconds_high: float
    speedup: float
    speedup_low: float
    speedup_high: float
    efficiency: float
    efficiency_low: float
    efficiency_high: float
    cost_ratio: float
    cost_ratio_low: float
    cost_ratio_high: float
    metric: str | None = None
    """Name of the metric whose means follow, such as the accuracy; a larger total batch may lower it."""
    metric_value: float | None = None
    metric_alone: float | None = None

    def __str__(self) -> str:
        ratio = f"{self.speedup:.2f} times as fast as one ({self.speedup_low:.2f} to {self.speedup_high:.2f})"
        used = f"efficiency {self.efficiency:.0%} ({self.efficiency_low:.0%} to {self.efficiency_high:.0%})"
        batch = f" with the {self.base}" if self.base == SAME_SHARE else ""
        cost = f"{self.cost_ratio:.2f} times the cost"
        quality = ""
        if self.metric_value is not None:
            alone = "unknown" if self.metric_alone is None else f"{self.metric_alone:.4g}"
            quality = f", {self.metric} {self.metric_value:.4g} instead of {alone}"
        return printable(f"{self.setup}: {self.nodes} {self.unit}s are {ratio}{batch}, {used}, {cost}{quality}")


@dataclass(frozen=True, eq=False)
class Scaling:
    """Speed-ups of several workers; made by :func:`vmselect.stats.scaling`. ``rows`` are sorted by setup and nodes."""

    rows: tuple[Speedup, ...]
    epochs: int
    confidence: float
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> str:
        """The speed-ups as text, one sentence per row."""
        return "\n".join(f"{row}." for row in self.rows)

    @cached_property
    def table(self) -> pd.DataFrame:
        """The speed-ups as a table: a row per setup and number of nodes."""
        return pd.DataFrame([asdict(row) for row in self.rows], columns=[field.name for field in fields(Speedup)])

    def to_output(self) -> ScalingOutput:
        """The speed-ups as the model that is printed as JSON."""
        return ScalingOutput.of(self)

    def to_json(self, *, indent: int | None = None) -> str:
        """All speed-ups as JSON text."""
        return self.to_output().to_json(indent=indent)

    def __str__(self) -> str:
        return printable_lines(self.verdict)


@suggest_arguments()
def scaling(
    records: Profile | Iterable[Profile], *, epochs: int, confidence: float = 0.9, model: str | None = None,
    metric: str | None = None,
) -> Scaling:  # fmt: skip
    """Speed-up, efficiency and cost of training ``epochs`` epochs with several workers instead of one.

    ``records`` are profiles of trainings with one worker and with several. Setups (instance type, batch size and other
    factors) are compared separately. ``model`` selects the records of one model. ``metric``, such as ``val_accuracy``,
    is shown beside the speed-up: its last logged value, or the one in ``record.metrics``.

    >>> import vmselect as vs
    >>> def probed(nodes, seconds):
    ...     made = vs.Profile.from_times(instance_type="m", batch_size=96, steps_per_epoch=100, init_seconds=1.0,
    ...                                  first_iteration_seconds=1.0, iteration_seconds=[seconds] * 9)
    ...     return made.model_copy(update={"factors": {"nodes": nodes}})
    >>> rows = vs.stats.scaling([probed(1, 0.40), probed(2, 0.25)], epochs=50).rows
    >>> [(row.nodes, round(row.speedup, 2), round(row.efficiency, 2), round(row.cost_ratio, 2)) for row in rows]
    [(2, 1.6, 0.8, 1.25)]
    """
    epochs = check_count("epochs", epochs)
    confidence = check_share("confidence", confidence, least=0.5, most=0.999)
    model = maybe(check_name, "model", model)
    profiles = [profile for profile in read_records(records, Profile) if model is None or profile.model == model]
    if not profiles:
        raise ComparisonError(f"No record has the model {model}. Leave model= out to use all records.")
    findings = list(check_comparable(profiles, error=ComparisonError))
    metric = maybe(check_name, "metric", metric)
    times: dict[Identity, tuple[RuntimeEstimate, int]] = {}
    qualities: dict[Identity, float] = {}
    for identity, group in group_repetitions(profiles).items():
        if metric is not None and (values := [v for v in (_final(p, metric) for p in group) if v is not None]):
            qualities[identity] = math.fsum(values) / len(values)
        try:
            times[identity] = estimate(group, epochs=epochs, confidence=confidence), len(group)
        except EstimateError as cannot:
            findings.append(Finding("not-estimated", f"A setup is excluded: {cannot}", "Probe this setup again."))
    if metric is not None and not qualities:
        raise ComparisonError(f"No record contains the metric {metric!r}. Train to the end, or leave metric= out.")
    rows = compare_workers(times, metric=metric, qualities=qualities)
    if not rows:
        counts = ", ".join(str(count) for count in sorted({identity.workers for identity in times})) or "none"
        raise ComparisonError(
            f"No setup was measured both with one worker and with several (numbers of workers: {counts}). Probe "
            "the same setup with one worker too."
        )
    return Scaling(tuple(rows), epochs, confidence, warnings_first([*findings, *_find_warnings(rows, times)]))


def _final(profile: Profile, metric: str) -> float | None:
    """The metric of a record, or its last logged value; None if it has neither."""
    logged = [value for value in (profile.logs.values.get(metric, ()) if profile.logs else ()) if value is not None]
    return profile.metrics.get(metric, logged[-1] if logged else None)


def compare_workers(
    times: Mapping[Identity, tuple[RuntimeEstimate, int]],
    *,
    metric: str | None = None,
    qualities: Mapping[Identity, float] | None = None,
) -> list[Speedup]:
    """Compare each setup with several workers with one worker, or several machines with one machine."""
    rows = []
    for identity, (estimated, runs) in times.items():
        size, nodes = identity.batch_size, identity.nodes
        units = {
            "worker": (identity.workers, identity._replace(workers=1, nodes=1)),
            "machine": (nodes, identity._replace(workers=identity.workers // nodes, nodes=1)),
        }
        # Both questions are asked in practice: is the same training faster, and is more work done in the same time?
        for base in (SAME_BATCH, SAME_SHARE) if size else (SAME_BATCH,):
            for unit, (count, alone) in units.items():
                share = largest_share(size, count)
                alone = alone if base == SAME_BATCH else alone._replace(batch_size=share)
                single = times.get(alone)
                if count == 1 or single is None:
                    continue
                value, low, high = single[0].interval.over(estimated.interval)
                rows.append(
                    Speedup(
                        setup=_name(identity), nodes=count, unit=unit, batch_size=size,
                        worker_batch_size=largest_share(size, identity.workers), runs=runs, base=base,
                        seconds=estimated.seconds, seconds_low=estimated.low, seconds_high=estimated.high,
                        speedup=value, speedup_low=low, speedup_high=high,
                        efficiency=value / count, efficiency_low=low / count, efficiency_high=high / count,
                        cost_ratio=nodes / value, cost_ratio_low=nodes / high,
                        cost_ratio_high=nodes / low if low else math.inf,
                        metric=metric, metric_value=(qualities or {}).get(identity),
                        metric_alone=(qualities or {}).get(alone),
                    )
                )  # fmt: skip
                break  # a single worker is the better base; a single machine is used where no worker was measured
    return sorted(rows, key=lambda row: (row.setup, row.base, row.nodes, row.batch_size or 0))


def _name(identity: Identity) -> str:
    batch = [f"batch {identity.batch_size}"] if identity.batch_size else []
    factors = [f"{name} {value}" for name, value in identity.factors]
    return ", ".join([identity.instance_type or "unknown machine", *batch, *factors])


def _find_warnings(rows: Sequence[Speedup], times: Mapping[Identity, tuple[RuntimeEstimate, int]]) -> Iterable[Finding]:
    for row in rows:
        several = f"{row.setup}: {row.nodes} {row.unit}s"
        if row.efficiency_low > 1:
            yield Finding(
                "more-than-linear",
                f"{several} are {row.speedup:.2f} times as fast as one, which is more than linear.",
                f"Check whether the single {row.unit} lacked memory, was shared, or processed more data.",
            )
        if row.base == SAME_SHARE:
            yield Finding(
                "batch-grows",
                f"{several} with the same batch per worker train with fewer steps and a larger total batch, which may "
                "need more epochs.",
                "Pass a convergence study as epochs= of vmselect.rank.",
                severity="info",
            )
    done = {(row.setup, row.nodes) for row in rows}
    alone = {
        _name(identity)
        for identity in times
        if identity.workers > 1
        and done.isdisjoint((_name(identity), count) for count in (identity.workers, identity.nodes))
    }
    if alone:
        yield Finding(
            "no-single-worker",
            f"No training with a single worker was measured, so the speed-up is unknown: {'; '.join(sorted(alone))}.",
            "Probe the same setup with one worker.",
        )


# -- JSON output -------------------------------------------------------------------------------------------------------


SpeedupRow = derive_model(
    Speedup, **{field.name: float | None for field in fields(Speedup) if str(field.type).startswith("float")}
)


class ScalingOutput(Output):
    """Speed-ups of several workers over one."""

    epochs: int
    confidence: float
    rows: list[SpeedupRow]
    findings: list[FindingOutput]
