"""Methodology 1: choose VM type and batch size together.

Epochs depend on the batch size and not on the machine: they come from a convergence study. Seconds per epoch depend
on both: they come from the profiles, and between probed batch sizes from the line through them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vmselect.catalog import Catalog
from vmselect.convergence import ConvergenceStudy, EpochsEstimate
from vmselect.errors import ArgumentError, EstimateError, RankingError
from vmselect.estimation.batch_sizes import REACH, fit_runtime_at
from vmselect.profile import Finding, Profile
from vmselect.ranking.candidates import Candidates, Machine
from vmselect.ranking.comparison import SelectionCost, cheapest_usd_per_hour
from vmselect.ranking.join import join_offers
from vmselect.ranking.machines import check_comparable, measure_machines
from vmselect.ranking.objectives import Objective
from vmselect.ranking.rank import price_findings, read_profiles
from vmselect.ranking.result import Ranking
from vmselect.ranking.rows import Excluded
from vmselect.ranking.settings import Settings, read_batch_sizes
from vmselect.ranking.spot import Interruptions
from vmselect.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    import pandas as pd

TOO_BAD, UNKNOWN_METRIC, UNKNOWN_EPOCHS = "below_minimum_metric", "metric_unknown", "epochs_unknown"
COSTS = ("study_seconds", "study_usd", "probe_seconds", "probe_usd", "exhaustive_seconds", "exhaustive_usd", "fraction")


@dataclass(frozen=True, kw_only=True)
class MethodologyCost(SelectionCost):
    """What methodology 1 cost: the study's trainings, and the probes; against running every pair to its end."""

    study_seconds: float
    study_usd: float

    @property
    def total_usd(self) -> float:
        """Study and probes together."""
        return self.study_usd + self.probe_usd

    @property
    def fraction(self) -> float:
        """Total cost as a share of the exhaustive cost."""
        return self.total_usd / self.exhaustive_usd if self.exhaustive_usd else float("nan")


class Selection(Ranking):
    """Pairs of VM type and batch size in order of the objective, best first; made by :func:`vmselect.select`.

    Everything that a ranking has; ``study`` and ``demands`` are what the epochs and the minimum metrics came from.
    """

    def __init__(
        self,
        candidates: Candidates,
        settings: Settings,
        *,
        study: ConvergenceStudy,
        demands: Mapping[str, float],
        catalog: Catalog,
        left_out: Sequence[Excluded] = (),
        findings: Sequence[Finding] = (),
    ) -> None:
        super().__init__(candidates, settings, left_out=left_out, findings=findings)
        self.study = study
        self.demands = dict(demands)
        self.catalog = catalog

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The batch sizes of the pairs that are feasible, ascending."""
        return tuple(sorted({row.batch_size for row in self.rows if row.batch_size is not None}))

    def rerank(self, **changes: Any) -> Selection:
        """The same pairs under another objective, market, limits, billing or interruptions."""
        if changes.get("epochs"):
            raise ArgumentError("epochs come from the study here; use vmselect.rank to give them yourself.")
        return Selection(
            self.candidates, self.settings.changed(**changes), study=self.study, demands=self.demands,
            catalog=self.catalog, left_out=self._left_out, findings=self._findings,
        )  # fmt: skip

    def metric(self, batch_size: int | None) -> float | None:
        """Final value of the monitored metric at a batch size, where the study knows it."""
        if batch_size is None or not any(self.study.monitor in run.metrics for run in self.study.runs):
            return None
        return self.study.metric(batch_size)

    def to_frame(self) -> pd.DataFrame:
        """The rows as a DataFrame, with the monitored metric beside the batch size as column ``metric``."""
        frame = super().to_frame()
        metrics = [self.metric(row.batch_size) for row in self.rows]
        frame.insert(list(frame.columns).index("batch_size") + 1, "metric", metrics)
        return frame

    def payload(self, *, rows: bool = True) -> dict[str, Any]:
        """The ranking's payload, with ``study``: rule, demands and a row per batch size."""
        sizes = sorted({m.batch_size for m in self.candidates.machines if m.batch_size})
        cost = self.selection_cost()
        described = {
            **self.study.rule.model_dump(),
            "model": self.study.model,
            "demands": self.demands,
            "measured": [_finite(row) for row in self.study.rows(confidence=self.settings.confidence)],
            "sizes": [_finite(self._describe(size)) for size in sizes],
            "cost": _finite({name: getattr(cost, name) for name in COSTS}),
        }
        return super().payload(rows=rows) | {"study": described}

    def selection_cost(self) -> MethodologyCost:
        """What the study and the probes cost, against training every pair as often as the study did."""
        machines, prices = self.candidates.machines, cheapest_usd_per_hour(self) / SECONDS_PER_HOUR
        seconds = self.candidates.coefficients.seconds(self.assessment.epochs)[:, self.deciding_column]
        runs = np.array([max(1, len(self.study.runs_at(m.batch_size or 0))) for m in machines], dtype=float)
        sold = np.isfinite(prices)
        cheapest = float(prices[sold].min()) if sold.any() else math.nan
        study = [(run.fit_seconds, self._price_per_second(run.instance_type, cheapest)) for run in self.study.runs]
        known = [(spent, price) for spent, price in study if spent is not None]
        probes = super().selection_cost()
        return MethodologyCost(
            probe_seconds=probes.probe_seconds,
            probe_usd=probes.probe_usd,
            exhaustive_seconds=float((seconds * runs)[sold].sum()),
            exhaustive_usd=float((seconds * runs * prices)[sold].sum()),
            without_times=probes.without_times,
            study_seconds=math.fsum(spent for spent, _ in known),
            study_usd=math.fsum(spent * price for spent, price in known),
        )

    def __str__(self) -> str:
        return f"{super().__str__()}\n\n{self.study}"

    def _describe(self, batch_size: int) -> dict[str, Any]:
        value, low, high = estimate = self.study.epochs(batch_size, confidence=self.settings.confidence)
        known = {"epochs": value, "epochs_low": low, "epochs_high": high, "source": estimate.source}
        return {"batch_size": batch_size, **known, "metric": self.metric(batch_size)}

    def _price_per_second(self, instance_type: str | None, otherwise: float) -> float:
        """What the machine of a study's run costs; the cheapest candidate's price where that is not known."""
        offers = self.catalog.offers(instance_type=instance_type) if instance_type else ()
        if not len(offers):
            return otherwise
        return float(offers["usd_per_hour"].min()) / SECONDS_PER_HOUR  # type: ignore[call-overload]


def select(
    profiles: Profile | Iterable[Profile],
    study: ConvergenceStudy,
    *,
    catalog: Catalog | None = None,
    objective: Objective = "cost",
    minimum_metric: float | Mapping[str, float] | None = None,
    batch_size: int | Iterable[int] | Literal["all"] | None = None,
    region: str | Iterable[str] | None = None,
    market: str | Iterable[str] | None = "on_demand",
    deadline_hours: float | None = None,
    budget_usd: float | None = None,
    method: str = "robust",
    interruptions: Interruptions | Mapping[str, float] | None = None,
    confidence: float = 0.9,
    billing: Literal["exact", "provider"] = "exact",
    include_retired: bool = False,
    model: str | None = None,
    examples: int | None = None,
    validation_examples: int | None = None,
    boot_seconds: float = 0.0,
) -> Selection:
    """Rank every pair of VM type and batch size, each with the epochs that the study says it needs.

    >>> import vmselect as vs
    >>> profiles = [
    ...     vs.Profile.from_times(instance_type=name, batch_size=size, steps_per_epoch=40_960 // size,
    ...                           iteration_seconds=[seconds * size] * 10)
    ...     for name, seconds in (("g4dn.xlarge", 0.0008), ("g5.xlarge", 0.0003)) for size in (256, 1024)
    ... ]
    >>> study = vs.ConvergenceStudy.from_epochs({256: [13, 14], 1024: [22, 20]}, metrics={256: 0.97, 1024: 0.95})
    >>> selection = vs.select(profiles, study)
    >>> selection.best.instance_type, selection.best.batch_size
    ('g5.xlarge', 256)
    >>> vs.select(profiles, study, minimum_metric=0.96).batch_sizes
    (256,)

    Without ``batch_size`` every size is a candidate that the study or a profile was made at. A machine's time at a
    size where it was not probed is interpolated, and so are epochs; what lies too far is left out with the reason.
    ``minimum_metric`` demands a final value of the monitored metric (or of the metrics that it names): at least that
    much, or at most that much where smaller is better. The other arguments are those of :func:`vmselect.rank`.
    """
    if not isinstance(study, ConvergenceStudy):
        raise ArgumentError(f"study is a {type(study).__name__}. Load one with vmselect.ConvergenceStudy.load(folder).")
    demands = read_demands(minimum_metric, study)
    settings = Settings.read(
        epochs=(), objective=objective, markets=market, regions=region, batch_sizes=read_batch_sizes(batch_size),
        deadline_hours=deadline_hours, budget_usd=budget_usd, method=method, confidence=confidence, billing=billing,
        interruptions=interruptions, include_retired=include_retired,
    )  # fmt: skip
    chosen = read_profiles(profiles, model=model)
    findings = check_comparable(chosen, examples_given=examples is not None)
    check_same_model(chosen, study)
    workload = {"examples": examples, "validation_examples": validation_examples, "boot_seconds": boot_seconds}
    measured, left_out = measure_machines(chosen, replace(settings, batch_sizes=None), **workload)
    sizes = settings.batch_sizes or candidate_sizes(measured, study)
    epochs, unknown = _known_epochs(sizes, study, demands, settings.confidence)
    machines: list[Machine] = []
    for group in _by_machine(measured):
        for size in sizes:
            title = f"{group[0].instance_type}, batch {size}"
            if size in unknown:
                left_out.append(Excluded(title, *unknown[size]))
                continue
            try:
                machine = _at_size(group, size, chosen, settings, workload)
            except EstimateError as refused:
                if title not in {excluded.candidate for excluded in left_out}:
                    left_out.append(Excluded(title, "no_estimate", str(refused)))
                continue
            doubts = dict.fromkeys([*machine.findings, *epochs[size].findings])
            value, low, high = epochs[size]
            machines.append(replace(machine, epochs=(value, low, high), findings=tuple(doubts)))
    if not machines and not any(excluded.reason_code in (TOO_BAD, UNKNOWN_METRIC) for excluded in left_out):
        raise RankingError(_do_not_meet(measured, study, left_out))
    catalog = catalog if catalog is not None else Catalog.default()
    candidates, unpriced = join_offers(machines, catalog, settings)
    findings = (*findings, *price_findings(catalog, candidates), *study.findings)
    return Selection(
        candidates, settings, study=study, demands=demands, catalog=catalog,
        left_out=[*left_out, *unpriced], findings=tuple(dict.fromkeys(findings)),
    )  # fmt: skip


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
                f"The study is of another model than the profiles: {what} {_listed(other)} against {_listed(mine)}. "
                "Load the study and the profiles of one model."
            )


def candidate_sizes(machines: Sequence[Machine], study: ConvergenceStudy) -> tuple[int, ...]:
    """Every batch size that the study or a profile was made at."""
    return tuple(sorted({*study.batch_sizes, *(m.batch_size for m in machines if m.batch_size)}))


def _known_epochs(
    sizes: Iterable[int], study: ConvergenceStudy, demands: Mapping[str, float], confidence: float
) -> tuple[dict[int, EpochsEstimate], dict[int, tuple[str, str]]]:
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
    return "loss" in name or "error" in name


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
    runtime = fit_runtime_at(mine, size, method=settings.method, confidence=settings.confidence, **workload)
    return replace(
        first, batch_size=size, runtime=runtime, profiles=(), probe_seconds=0.0, iterations={},
        findings=runtime.findings,
    )  # fmt: skip


def _do_not_meet(machines: Sequence[Machine], study: ConvergenceStudy, left_out: Sequence[Excluded]) -> str:
    probed = sorted({m.batch_size for m in machines if m.batch_size})
    first = f" For one, {left_out[0]}." if left_out else ""
    return (
        f"The batch sizes of profiles ({_listed(probed) or 'none'}) and study ({_listed(study.batch_sizes)}) do not "
        f"meet.{first} Probe the machines at the batch sizes of the study."
    )


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(str(value) for value in sorted(values))


def _finite(row: Mapping[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
