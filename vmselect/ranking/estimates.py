"""Machine estimates: what can be ranked, each with its runtime, whatever it rests on.

Profiles become machine estimates: repetitions are merged, and profiles that cannot be estimated are excluded with a
reason. A batch size that was not probed is interpolated from those around it.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from vmselect.convergence import EpochsEstimate
from vmselect.errors import EstimateError, RankingError
from vmselect.estimation import RuntimeModel
from vmselect.findings import Finding
from vmselect.grouping import Identity, check_repetitions, group_repetitions
from vmselect.ranking.rows import Excluded
from vmselect.records import Profile

Basis = Literal["measured", "interpolated", "extrapolated", "predicted"]
"""What a runtime rests on: a probe of just this, probes at batch sizes around it, probes on one side of it, or a
prediction for a machine that was never probed."""

Fit = Callable[[Sequence[Profile], int | None], RuntimeModel]
"""From profiles of one machine to its runtime, at a batch size where one is given."""


@dataclass(frozen=True, kw_only=True)
class MachineEstimate:
    """An instance type under given factors: a runtime, how many epochs it takes where that is known, and its basis."""

    instance_type: str
    provider: str | None = None
    factors: Mapping[str, Any] = field(default_factory=dict)
    """What distinguishes it from others of its type: batch size, nodes, workers that share one, varied factors."""
    runtime: RuntimeModel
    basis: Basis = "measured"
    records: tuple[Profile, ...] = field(default=(), repr=False)
    """What it rests on."""
    epochs: EpochsEstimate | None = None
    """Epoch count and its bounds, where they come from a study."""
    findings: tuple[Finding, ...] = ()
    moving_usd: float = 0.0
    """Dollars for data that leave a store to reach it, paid once."""

    @property
    def batch_size(self) -> int | None:
        """The batch size, where it is known."""
        return self.factors.get("batch_size")

    @property
    def varied(self) -> str | None:
        """What distinguishes it beside its type and batch size, as text; None where nothing does."""
        several = [f"{self.nodes} machines"] if self.nodes > 1 else []
        others = [f"{name} {value}" for name, value in self.factors.items() if name not in ("batch_size", "nodes")]
        return ", ".join([*several, *others]) or None

    @property
    def nodes(self) -> int:
        """How many machines it is rented on at once."""
        return int(self.factors.get("nodes", 1))

    @cached_property
    def regions(self) -> tuple[str, ...]:
        """Where it was measured."""
        return tuple(sorted({record.region for record in self.records if record.region}))

    @property
    def repetitions(self) -> int:
        """How many measurements of just this were merged."""
        return len(self.records) if self.basis == "measured" else 0

    @cached_property
    def probe_seconds(self) -> float | None:
        """How long machines were in use to measure it; None where that is not known."""
        spent = [_probe_seconds(record) for record in self.records] if self.basis == "measured" else []
        return None if None in spent else sum(seconds or 0.0 for seconds in spent)

    @property
    def gpus_used(self) -> int | None:
        """GPUs of one machine that the training ran on, or None where it is not known."""
        if not self.records or self.records[0].outcome == "given":
            return None
        seen = self.records[0].environment
        if seen.framework_gpus is None:
            return None
        return min(seen.framework_gpus * (seen.workers_per_machine or 1), seen.replicas * seen.workers)

    @cached_property
    def iterations(self) -> dict[str, float]:
        """Seconds of ``first_iteration``, ``second_iteration`` and ``mean_2_10``, where they were recorded."""
        found: dict[str, list[float]] = defaultdict(list)
        for record in self.records if self.basis == "measured" else ():
            steps = record.timeline.steps.rows[:10]
            times = [step.each for step in steps]
            if steps and steps[0].label == "first":
                found["first_iteration"].append(times[0])
            if len(times) > 1:
                found["second_iteration"].append(times[1])
                found["mean_2_10"].append(statistics.fmean(times[1:]))
        return {name: statistics.fmean(values) for name, values in found.items()}

    @property
    def machine_key(self) -> tuple[Any, ...]:
        """All of its identity but the batch size."""
        factors = sorted((name, value) for name, value in self.factors.items() if name != "batch_size")
        return self.instance_type, self.provider or "", tuple(map(str, factors))

    @property
    def title(self) -> str:
        """A short name for messages."""
        return self._named("")

    def title_in(self, *place: str | None) -> str:
        """The same with where it is rented."""
        return self._named(f" ({', '.join(filter(None, place))})")

    def _named(self, place: str) -> str:
        several = f"{self.nodes} x " if self.nodes > 1 else ""
        return f"{several}{self.instance_type}{place}{format_factors(self.factors)}"


def format_factors(factors: Mapping[str, Any]) -> str:
    """Factors as they stand in a title.

    >>> format_factors({"batch_size": 64, "image_size": 224})
    ', batch 64, image_size 224'
    """
    batch = f", batch {factors['batch_size']}" if factors.get("batch_size") else ""
    return batch + "".join(f", {k} {v}" for k, v in factors.items() if k not in ("batch_size", "nodes"))


class Measured:
    """The machine estimates of the profiles of one task, as probed and at other batch sizes on demand."""

    def __init__(self, profiles: Iterable[Profile], fit: Fit, *, given: Iterable[str] = ()) -> None:
        self.machine_estimates: list[MachineEstimate] = []
        self.excluded: list[Excluded] = []
        self._fit, self._records = fit, defaultdict[tuple[Any, ...], list[Profile]](list)
        known = []
        for profile in profiles:
            if profile.instance_type is None:
                reason = "the profile does not say on which instance type it was made; probe with instance_type="
                self.excluded.append(Excluded(profile.title, "unknown_instance_type", reason))
            else:
                known.append(profile)
        for identity, group in group_repetitions(known).items():
            self._measure(identity, group, tuple(given))
        self.machine_estimates.sort(
            key=lambda one: (one.instance_type, one.provider or "", one.batch_size or 0, one.machine_key)
        )

    def _measure(self, identity: Identity, group: list[Profile], given: Sequence[str]) -> None:
        factors = {"batch_size": identity.batch_size} if identity.batch_size else {}
        factors |= {"nodes": identity.nodes} if identity.nodes > 1 else {}
        factors |= {"workers": identity.workers} if identity.workers > identity.nodes else {}
        factors |= dict(identity.factors)
        failed = next((p for p in group if p.outcome == "out_of_memory"), None)
        one = MachineEstimate(
            instance_type=identity.instance_type or "", provider=identity.provider, factors=factors,
            runtime=None, records=tuple(group),  # type: ignore[arg-type]
        )  # fmt: skip
        self._records[one.machine_key] += group
        if failed:
            detail = f" ({failed.detail})" if failed.detail else ""
            self.excluded.append(Excluded(one.title, "out_of_memory", f"the training ran out of memory{detail}"))
            return
        check_repetitions(group, given=given, error=RankingError)
        try:
            runtime = self._fit(group, None)
        except EstimateError as impossible:
            self.excluded.append(Excluded.unestimated(one.title, impossible, group[0].title))
            return
        findings = dict.fromkeys([*(f for p in group for f in p.findings), *runtime.findings])
        self.machine_estimates.append(replace(one, runtime=runtime, findings=tuple(findings)))

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Every batch size that was probed."""
        return tuple(sorted({one.batch_size for one in self.machine_estimates if one.batch_size}))

    def at_sizes(self, sizes: Iterable[int], *, name_others: bool) -> tuple[list[MachineEstimate], list[Excluded]]:
        """Every machine at every size, as probed or interpolated; and what cannot be estimated.

        With ``name_others``, what was probed at another size and is of no use is named too.
        """
        sizes = tuple(sizes)
        machines: dict[tuple[Any, ...], dict[int | None, MachineEstimate]] = {}
        for one in self.machine_estimates:
            machines.setdefault(one.machine_key, {})[one.batch_size] = one
        found: list[MachineEstimate] = []
        excluded: list[Excluded] = []
        for key, known in machines.items():
            estimates = [known[size] if size in known else self._interpolate(key, known, size) for size in sizes]
            found += [one for one in estimates if isinstance(one, MachineEstimate)]
            missing = [one for one in estimates if isinstance(one, Excluded)]
            useless = [one for size, one in known.items() if size not in sizes]
            if name_others and not any(
                isinstance(one, MachineEstimate) and one.basis != "measured" for one in estimates
            ):
                wanted = ", ".join(map(str, sizes))
                for one in useless:
                    reason = f"measured at batch size {one.batch_size or 'unknown'}, not {wanted}"
                    excluded.append(Excluded(one.title, "other_batch_size", reason))
                missing = missing if len(known) > 1 else []
            excluded += missing
        return found, excluded

    def _interpolate(
        self, key: tuple[Any, ...], known: Mapping[int | None, MachineEstimate], size: int
    ) -> MachineEstimate | Excluded:
        first = next(iter(known.values()))
        other = replace(first, factors=first.factors | {"batch_size": size})  # type: ignore[operator]
        try:
            runtime = self._fit(self._records[key], size)
        except EstimateError as impossible:
            return Excluded.unestimated(other.title, impossible)
        beyond = any(finding.code == "batch-size-extrapolated" for finding in runtime.findings)
        records = tuple(record for one in known.values() for record in one.records)
        basis: Basis = "extrapolated" if beyond else "interpolated"
        return replace(other, runtime=runtime, basis=basis, records=records, findings=runtime.findings)


def _probe_seconds(profile: Profile) -> float | None:
    """How long the machine was in use for the measurement."""
    timeline = profile.timeline
    if timeline.fit_seconds is not None:
        return (timeline.init_seconds or 0.0) + timeline.fit_seconds
    trained = timeline.steps.total_seconds or sum(epoch.seconds for epoch in timeline.epochs)
    around = sum(v.seconds for v in timeline.validations) + sum(b.seconds for b in timeline.boundaries)
    before = (timeline.init_seconds or 0.0) + (timeline.fit_to_first_batch_seconds or 0.0)
    return before + trained + around if trained else None
