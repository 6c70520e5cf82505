"""Methodology 1: choose VM type and batch size together.

Epochs depend on the batch size and not on the machine: they come from a convergence study. Seconds per epoch depend
on both: they come from the profiles, and between probed batch sizes from the line through them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vmselect.catalog import Catalog
from vmselect.convergence import ConvergenceStudy
from vmselect.errors import ArgumentError, RankingError
from vmselect.findings import Finding
from vmselect.ranking.assessment import time_and_cost
from vmselect.ranking.candidates import Candidates, Machine
from vmselect.ranking.constraints import FEASIBLE
from vmselect.ranking.decision import read_catalog, read_profiles
from vmselect.ranking.evaluation import Bools, Floats
from vmselect.ranking.join import join_offers
from vmselect.ranking.machines import check_comparable, measure_machines
from vmselect.ranking.methodology import MethodologyCost, methodology_cost
from vmselect.ranking.objectives import Objective, best_values, score
from vmselect.ranking.pairs import (
    TOO_BAD,
    UNKNOWN_METRIC,
    candidate_sizes,
    check_same_model,
    known_epochs,
    list_values,
    make_pairs,
    read_demands,
)
from vmselect.ranking.result import Ranking
from vmselect.ranking.rows import Excluded
from vmselect.ranking.settings import Settings, read_batch_sizes
from vmselect.ranking.spot import Interruptions
from vmselect.records import Profile

if TYPE_CHECKING:
    import pandas as pd

COSTS = ("study_seconds", "study_usd", "probe_seconds", "probe_usd", "exhaustive_seconds", "exhaustive_usd", "fraction")


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
        measured: Sequence[Machine],
        pairs: Sequence[Machine],
        left_out: Sequence[Excluded] = (),
        findings: Sequence[Finding] = (),
    ) -> None:
        super().__init__(candidates, settings, left_out=left_out, findings=findings)
        self.study = study
        self.assessment = replace(self.assessment, tied=self._ties())
        self.demands = dict(demands)
        self.catalog = catalog
        self._measured, self._pairs = tuple(measured), tuple(pairs)

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
            catalog=self.catalog, measured=self._measured, pairs=self._pairs, left_out=self.unusable,
            findings=self._findings,
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

    def payload(self, *, rows: bool = True, which: Sequence[int] | None = None) -> dict[str, Any]:
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
        return super().payload(rows=rows, which=which) | {"study": described}

    def selection_cost(self) -> MethodologyCost:
        """What the study and all probes cost, against training every pair as often as the study did.

        Pairs that end below the minimum metric count too: without a study, one learns that by training them.
        """
        return methodology_cost(self, measured=self._measured, pairs=self._pairs)

    def __str__(self) -> str:
        return f"{super().__str__()}\n\n{self.study}"

    def _ties(self) -> Bools:
        """Who may be as good as the winner.

        Epochs are the same on every machine, so at the winner's batch size only times can make a tie. Between batch
        sizes it is the mean epochs that count, not how far a single run may fall from them.
        """
        result, candidates = self.assessment, self.candidates
        if not len(result.order[0]):
            return result.tied
        winner, feasible = int(result.order[0][0]), result.limits == FEASIBLE
        best_cost, best_time = best_values(result.cost.value, feasible), best_values(result.time.value, feasible)
        time, cost = time_and_cost(candidates, self.settings, candidates.coefficients.at(result.epochs))

        def scored(money: Floats, seconds: Floats) -> Floats:
            objective = self.settings.objective
            return score(objective, cost=money, time=seconds, best_cost=best_cost, best_time=best_time)[:, 0]

        value, low, high = (
            scored(cost.value, time.value),
            scored(cost.low, time.low),
            scored(cost.high, time.high),
        )
        sizes = np.array([candidates.machines[m].batch_size for m in candidates.machine])
        doubts = {size: self.study.epochs(int(size), confidence=self.settings.confidence).doubt for size in set(sizes)}
        doubt = np.array([doubts[size] for size in sizes])
        doubt = np.where(sizes == sizes[winner], 0.0, np.hypot(doubt, doubt[winner]))
        apart = np.hypot(np.hypot(1 - low / value, high[winner] / value[winner] - 1), doubt)
        tied = feasible[:, 0] & (np.log(value / value[winner]) <= apart)
        return np.asarray(tied[:, None], dtype=bool)

    def _describe(self, batch_size: int) -> dict[str, Any]:
        value, low, high = estimate = self.study.epochs(batch_size, confidence=self.settings.confidence)
        known = {"epochs": value, "epochs_low": low, "epochs_high": high, "source": estimate.source}
        known["doubt"] = estimate.doubt
        return {"batch_size": batch_size, **known, "metric": self.metric(batch_size)}


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
    epochs, refused = known_epochs(sizes, study, demands, settings.confidence)
    pairs, missing = make_pairs(measured, sizes, chosen, settings, workload, epochs=epochs, refused=refused)
    machines = [pair for pair in pairs if pair.batch_size not in refused]
    too_bad = [pair for pair in pairs if refused.get(pair.batch_size or 0, ("",))[0] == TOO_BAD]
    left_out += [excluded for excluded in missing if excluded.candidate not in {known.candidate for known in left_out}]
    if not machines and not any(excluded.reason_code in (TOO_BAD, UNKNOWN_METRIC) for excluded in left_out):
        raise RankingError(_do_not_meet(measured, study, settings.batch_sizes, left_out))
    catalog = read_catalog(catalog)
    candidates, unpriced = join_offers(machines, catalog, settings)
    findings = (*findings, *catalog.findings, *study.findings)
    return Selection(
        candidates, settings, study=study, demands=demands, catalog=catalog, measured=measured,
        pairs=[*machines, *too_bad], left_out=[*left_out, *unpriced], findings=tuple(dict.fromkeys(findings)),
    )  # fmt: skip


def _do_not_meet(
    machines: Sequence[Machine], study: ConvergenceStudy, wanted: Sequence[int] | None, left_out: Sequence[Excluded]
) -> str:
    probed = sorted({m.batch_size for m in machines if m.batch_size})
    known = f"profiles ({list_values(probed) or 'none'}) and study ({list_values(study.batch_sizes)})"
    first = f" For one, {left_out[0]}." if left_out else ""
    if not machines:
        return f"No profile tells how long a training takes.{first} Probe at batch sizes that fit the machines."
    if wanted:
        return f"Nothing is known of batch size {list_values(wanted)} from those of {known}.{first}"
    return f"The batch sizes of {known} do not meet.{first} Probe the machines at the batch sizes of the study."


def _finite(row: Mapping[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
