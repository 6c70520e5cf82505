"""Profiles grouped into machines: repetitions merged, mistakes refused, the unusable set aside with a reason."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from vmselect.errors import EstimateError, RankingError
from vmselect.estimation import fit_runtime
from vmselect.findings import Finding
from vmselect.ranking.candidates import Machine
from vmselect.ranking.rows import Excluded
from vmselect.ranking.settings import Settings
from vmselect.records import Profile

# What must be the same for profiles to be repetitions of one another: name, and how to read it.
REPETITION_FACTS: tuple[tuple[str, Callable[[Profile], Any]], ...] = (
    ("steps per epoch", lambda p: p.setup.steps_per_epoch),
    ("steps per execution", lambda p: p.setup.steps_per_execution),
    ("examples", lambda p: p.setup.examples),
    ("validation examples", lambda p: p.setup.validation_examples),
    ("backend", lambda p: p.environment.backend),
    ("precision", lambda p: p.environment.precision),
    ("jit", lambda p: p.environment.jit),
    ("replicas", lambda p: p.environment.replicas if p.outcome != "given" else None),
)
# What should be the same for machines to be compared.
COMPARISON_FACTS = REPETITION_FACTS[4:7]


def measure_machines(
    profiles: Sequence[Profile], settings: Settings, **workload: Any
) -> tuple[tuple[Machine, ...], list[Excluded]]:
    """A machine for each instance type and batch size, in a fixed order, and the profiles that make none."""
    left_out: list[Excluded] = []
    groups: dict[tuple[str, int | None, str | None], list[Profile]] = defaultdict(list)
    for profile in profiles:
        reason = _why_unusable(profile, settings)
        if reason:
            left_out.append(Excluded(profile.title, *reason))
        else:
            groups[profile.instance_type or "", profile.batch_size, profile.provider].append(profile)
    machines = []
    for (_, _, provider), group in _with_known_providers(groups):
        group = sorted(group, key=lambda p: (p.created, p.timeline.steps.total_seconds, p.timeline.wall_seconds or 0))
        failed = next((p for p in group if p.outcome == "out_of_memory"), None)
        if failed:
            detail = f" ({failed.detail})" if failed.detail else ""
            left_out.append(Excluded(failed.title, "out_of_memory", f"the training ran out of memory{detail}"))
            continue
        _check_repetitions(group)
        try:
            machines.append(_measure(group, provider, settings, workload))
        except EstimateError as impossible:
            left_out.append(Excluded.unestimated(group[0].title, impossible))
    machines.sort(key=lambda m: (m.instance_type, m.provider or "", m.batch_size or 0))
    return tuple(machines), left_out


def check_comparable(profiles: Sequence[Profile], *, examples_given: bool) -> tuple[Finding, ...]:
    """Refuse profiles of different trainings; return doubts where machines differ in software."""
    if not profiles:
        raise RankingError("There are no profiles to rank. Load some with vmselect.load_profiles(folder).")
    facts: list[tuple[str, Callable[[Profile], Any]]] = [
        ("models", lambda p: p.model),
        ("numbers of parameters", lambda p: p.setup.parameters),
    ]
    if not examples_given:
        facts.append(("numbers of training examples", lambda p: p.setup.examples))
    for what, read in facts:
        values = _distinct(profiles, read)
        if len(values) > 1:
            raise RankingError(
                f"The profiles are of different {what} ({_listed(values)}), so their times cannot be compared. "
                + (
                    "Pass model= to choose one, or rank them apart."
                    if what == "models"
                    else "Rank them apart, or pass examples= if only the amount of data differs."
                )
            )
    if not examples_given:
        _check_steps(profiles)
    differing = [(what, values) for what, read in COMPARISON_FACTS if len(values := _distinct(profiles, read)) > 1]
    return tuple(
        Finding(
            "software-differs",
            f"The machines were measured with different {what} ({_listed(values)}).",
            f"Probe them with the same {what} if the machines themselves are to be compared.",
        )
        for what, values in differing
    )


def _check_steps(profiles: Sequence[Profile]) -> None:
    """Refuse equal batch sizes with different numbers of steps: they mean different data."""
    for size in {profile.batch_size for profile in profiles}:
        steps = _distinct([profile for profile in profiles if profile.batch_size == size], lambda p: p.steps_per_epoch)
        # One step more or less is the smaller last batch, kept or dropped.
        if steps and max(steps) - min(steps) > 1:
            raise RankingError(
                f"At batch size {size or 'unknown'} the profiles have different numbers of steps per epoch "
                f"({_listed(steps)}), so they did not train on the same data. Rank them apart, or pass examples= to "
                "bring them to one size."
            )


def check_batch_sizes(profiles: Sequence[Profile]) -> None:
    """Refuse to compare batch sizes unless the caller asked for it."""
    sizes = {profile.batch_size for profile in profiles}
    if len(sizes) > 1:
        named = ", ".join("unknown" if size is None else str(size) for size in sorted(sizes, key=lambda s: s or 0))
        raise RankingError(
            f"The profiles have different batch sizes ({named}), which need different numbers of epochs. "
            'Pass batch_size= to choose one, batch_size="all" to compare them at equal epochs, or use vmselect.select.'
        )


def _why_unusable(profile: Profile, settings: Settings) -> tuple[str, str] | None:
    if profile.instance_type is None:
        return (
            "unknown_instance_type",
            "the profile does not say on which instance type it was made; probe with instance_type=",
        )
    if settings.batch_sizes is not None and profile.batch_size not in settings.batch_sizes:
        wanted = ", ".join(map(str, settings.batch_sizes))
        return "other_batch_size", f"measured at batch size {profile.batch_size or 'unknown'}, not {wanted}"
    return None


def _with_known_providers(
    groups: dict[tuple[str, int | None, str | None], list[Profile]],
) -> Iterable[tuple[tuple[str, int | None, str | None], list[Profile]]]:
    """Profiles that do not name their provider join those that do, where there is only one such provider."""
    for (name, batch, provider), group in list(groups.items()):
        if provider is None:
            named = [key for key in groups if key[:2] == (name, batch) and key[2] is not None]
            if len(named) == 1:
                groups[named[0]] += group
                del groups[name, batch, provider]
    return groups.items()


def _check_repetitions(group: Sequence[Profile]) -> None:
    for what, read in REPETITION_FACTS:
        values = _distinct(group, read)
        if len(values) > 1:
            raise RankingError(
                f"{group[0].title}: its {len(group)} profiles are no repetitions of one setup; they differ in {what} "
                f"({_listed(values)}). Rank the setups apart."
            )


def _measure(group: list[Profile], provider: str | None, settings: Settings, workload: dict[str, Any]) -> Machine:
    runtime = fit_runtime(group, method=settings.method, confidence=settings.confidence, **workload)
    regions = tuple(sorted({profile.region for profile in group if profile.region}))
    first = group[0]
    spent = [_probe_seconds(profile) for profile in group]
    return Machine(
        instance_type=first.instance_type or "",
        batch_size=first.batch_size,
        provider=provider,
        regions=regions,
        runtime=runtime,
        profiles=tuple(group),
        probe_seconds=sum(s for s in spent if s is not None) if None not in spent else None,
        gpus_used=_gpus_used(first),
        iterations=_single_iterations(group),
        findings=tuple(dict.fromkeys([*(f for p in group for f in p.findings), *runtime.findings])),
    )


def _probe_seconds(profile: Profile) -> float | None:
    """How long the machine was in use for the measurement."""
    timeline = profile.timeline
    if timeline.fit_seconds is not None:
        return (timeline.init_seconds or 0.0) + timeline.fit_seconds
    parts = [timeline.init_seconds or 0.0, timeline.fit_to_first_batch_seconds or 0.0]
    trained = timeline.steps.total_seconds or sum(epoch.seconds for epoch in timeline.epochs)
    parts += [
        trained,
        sum(v.seconds for v in timeline.validations),
        sum(b.seconds for b in timeline.boundaries),
    ]
    return sum(parts) if trained else None


def _gpus_used(profile: Profile) -> int | None:
    """GPUs that the training ran on, or None where it is not known."""
    environment = profile.environment
    if profile.outcome == "given" or environment.framework_gpus is None:
        return None
    return min(environment.framework_gpus, environment.replicas * environment.workers)


def _single_iterations(group: Sequence[Profile]) -> dict[str, float]:
    """First iteration, second, and mean of 2..10, averaged over the repetitions that recorded them."""
    found: dict[str, list[float]] = defaultdict(list)
    for profile in group:
        steps = profile.timeline.steps.rows[:10]
        times = [step.each for step in steps]
        if steps and steps[0].label == "first":
            found["first_iteration"].append(times[0])
        if len(times) > 1:
            found["second_iteration"].append(times[1])
            found["mean_2_10"].append(statistics.fmean(times[1:]))
    return {name: statistics.fmean(values) for name, values in found.items()}


def _distinct(profiles: Sequence[Profile], read: Callable[[Profile], Any]) -> list[Any]:
    return sorted({value for profile in profiles if (value := read(profile)) is not None}, key=str)


def _listed(values: Sequence[Any]) -> str:
    shown = ", ".join(str(value)[:60] for value in values[:4])
    return f"{shown} and {len(values) - 4} more" if len(values) > 4 else shown
