"""Methodology 1: epochs that depend on the batch size, from a convergence study, and what is demanded of the result.

Epochs depend on the batch size and not on the machine: they come from the study. Seconds per epoch depend on both:
they come from the profiles, and between probed batch sizes from the line through them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vmselect._checks import check_number
from vmselect.catalog import Catalog
from vmselect.convergence import ConvergenceStudy
from vmselect.errors import RankingError
from vmselect.grouping import list_values
from vmselect.ranking.estimates import MachineEstimate, Measured
from vmselect.ranking.rows import Excluded, only_finite
from vmselect.records import Profile

TOO_BAD, UNKNOWN_METRIC, UNKNOWN_EPOCHS = "below_minimum_metric", "metric_unknown", "epochs_unknown"
FALLING = (
    "loss", "error", "mae", "mse", "mape", "msle", "rmse", "crossentropy", "hinge", "divergence", "poisson", "logcosh",
    "log_cosh", "perplexity", "false_",
)  # fmt: skip
"""Words in the names of metrics that should fall; of others than the monitored one nothing else tells."""


@dataclass(frozen=True, kw_only=True)
class Studied:
    """A ranking's study: what it demands, and every pair of machine and batch size that was weighed."""

    study: ConvergenceStudy
    demands: Mapping[str, float]
    confidence: float
    catalog: Catalog | None = None
    measured: Sequence[MachineEstimate] = field(default=(), repr=False)
    """As probed: what the probes cost."""
    pairs: Sequence[MachineEstimate] = field(default=(), repr=False)
    """What one would train to its end without a study: also those whose metric is then too bad."""

    @classmethod
    def read(cls, study: ConvergenceStudy, minimum: Any, profiles: Sequence[Profile], confidence: float) -> Studied:
        """Check a study against the profiles and against what is demanded of its metrics."""
        demands = {} if minimum is None else dict(minimum) if isinstance(minimum, Mapping) else {study.monitor: minimum}
        for name, value in demands.items():
            demands[name] = check_number(f"minimum_metric of {name}", value)
            study.metric(1, name)  # refuses a name that no run has
        facts: tuple[tuple[str, set[Any], set[Any]], ...] = (
            ("model", {p.model for p in profiles}, {r.model for r in study.runs}),
            ("parameters", {p.setup.parameters for p in profiles}, {r.parameters for r in study.runs}),
        )
        for what, mine, other in facts:
            mine, other = mine - {None}, other - {None}
            if mine and other and mine != other:
                raise RankingError(
                    f"The study is of another model than the profiles: {what} {list_values(other)} against "
                    f"{list_values(mine)}. Load the study and the profiles of one model."
                )
        return cls(study=study, demands=demands, confidence=confidence)

    def make_pairs(
        self, measured: Measured, wanted: Sequence[int] | None, catalog: Catalog
    ) -> tuple[list[MachineEstimate], list[Excluded], Studied]:
        """Every machine at every size with the epochs of that size, what is left out, and this with what it weighed."""
        sizes = wanted or tuple(sorted({*self.study.batch_sizes, *measured.batch_sizes}))
        refused = {size: reason for size in sizes if (reason := self._why_not(size))}
        pairs, missing = measured.at_sizes(sizes, name_others=False)
        pairs = [self._with_epochs(pair) for pair in pairs]
        machine_estimates = [pair for pair in pairs if pair.batch_size not in refused]
        excluded = list(measured.excluded)
        for pair in pairs:
            if pair.batch_size in refused:
                excluded.append(Excluded(pair.title, *refused[pair.batch_size]))
        named = {one.candidate for one in excluded}
        excluded += [one for one in missing if one.candidate not in named]
        if not machine_estimates and not any(one.reason_code in (TOO_BAD, UNKNOWN_METRIC) for one in excluded):
            raise RankingError(self._do_not_meet(measured, wanted, excluded))
        weighed = [p for p in pairs if refused.get(p.batch_size or 0, (TOO_BAD,))[0] == TOO_BAD]
        return (
            machine_estimates,
            excluded,
            replace(self, catalog=catalog, measured=measured.machine_estimates, pairs=weighed),
        )

    def metric(self, batch_size: int | None) -> float | None:
        """Final value of the monitored metric at a batch size, where the study knows it."""
        if batch_size is None or not any(self.study.monitor in run.metrics for run in self.study.runs):
            return None
        return self.study.metric(batch_size)

    def to_dict(self, sizes: Iterable[int], cost: Mapping[str, float]) -> dict[str, Any]:
        """Rule, demands, a row per batch size and what choosing cost, as plain values."""
        return {
            **self.study.rule.model_dump(),
            "model": self.study.model,
            "demands": dict(self.demands),
            "measured": [only_finite(row) for row in self.study.rows(confidence=self.confidence)],
            "sizes": [only_finite(self._describe(size)) for size in sizes],
            "cost": only_finite(cost),
        }

    def _describe(self, batch_size: int) -> dict[str, Any]:
        value, low, high = estimate = self.study.epochs(batch_size, confidence=self.confidence)
        known = {"epochs": value, "epochs_low": low, "epochs_high": high, "source": estimate.source}
        return {
            "batch_size": batch_size,
            **known,
            "mean_half_width": estimate.mean_half_width,
            "metric": self.metric(batch_size),
        }

    def _with_epochs(self, pair: MachineEstimate) -> MachineEstimate:
        epochs = self.study.epochs(pair.batch_size or 0, confidence=self.confidence)
        return replace(pair, epochs=epochs, findings=tuple(dict.fromkeys([*pair.findings, *epochs.findings])))

    def _why_not(self, size: int) -> tuple[str, str] | None:
        """Code and reason why a batch size is out of the question."""
        smallest, largest = self.study.batch_sizes[0], self.study.batch_sizes[-1]
        reason = None
        if self.study.epochs(size, confidence=self.confidence).source == "unknown":
            known = f"the study knows the epochs of batch sizes {smallest} to {largest}; train at {size} to know more"
            reason = (UNKNOWN_EPOCHS, known)
        for name, wanted in self.demands.items():
            value, smaller = self.study.metric(size, name), self._smaller_is_better(name)
            if value is None:
                reason = (UNKNOWN_METRIC, f"its final {name} is not known; train at {size} to know it")
            elif not (value <= wanted if smaller else value >= wanted):
                beyond = "above" if smaller else "below"
                reason = (TOO_BAD, f"its final {name} is {value:.4g}, {beyond} the {wanted:.4g} demanded")
        return reason

    def _smaller_is_better(self, name: str) -> bool:
        if name.removeprefix("val_") == self.study.monitor.removeprefix("val_"):
            return self.study.rule.mode == "min"
        return any(word in name for word in FALLING)

    def _do_not_meet(self, measured: Measured, wanted: Sequence[int] | None, excluded: Sequence[Excluded]) -> str:
        probed = list_values(measured.batch_sizes) or "none"
        known = f"profiles ({probed}) and study ({list_values(self.study.batch_sizes)})"
        first = f" For one, {excluded[0]}." if excluded else ""
        if not measured.machine_estimates:
            return f"No profile tells how long a training takes.{first} Probe at batch sizes that fit the machines."
        if wanted:
            return f"Nothing is known of batch size {list_values(wanted)} from those of {known}.{first}"
        return f"The batch sizes of {known} do not meet.{first} Probe the machines at the batch sizes of the study."
