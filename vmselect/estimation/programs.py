"""Estimates of programs with several trainings (fits): each fit, and the sum of all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from html import escape
from typing import Any

from vmselect._checks import check_count, check_name, maybe, show
from vmselect.diagnosis.checks import Disturbance
from vmselect.errors import ArgumentError, EstimateError
from vmselect.estimation.methods import Profiles, fit_runtime
from vmselect.estimation.runtime import TERMS, Quadratic, RuntimeEstimate, RuntimeModel, Waits
from vmselect.findings import Finding, findings_html, last_of_each_code, table_html
from vmselect.records import Profile
from vmselect.records.identity import distinct, identify, read_records
from vmselect.units import format_seconds, list_all, printable

EXCLUDED_FIT = "fit-excluded"
"""Code of the finding about a fit whose time could not be estimated, so that the sum does not include it."""


def choose_profiles(
    profiles: Sequence[Profile], *, model: str | None = None, fit: int | str | None = None
) -> list[Profile]:
    """Profiles of the model ``model`` and of the training ``fit`` (number or name) of a program; None selects all."""
    model = maybe(check_name, "model", model)
    if not profiles:
        raise ArgumentError("There is no profile to choose from. Pass at least one profile.")
    of_model = [profile for profile in profiles if model is None or profile.model == model]
    if not of_model:
        models = ", ".join(sorted({profile.model or "unnamed" for profile in profiles}))
        raise ArgumentError(f"No profile is of the model {show(model)}. Choose one of: {models}.")
    if fit is None:
        return of_model
    training = check_name("fit", fit) if isinstance(fit, str) else check_count("fit", fit)
    chosen = [
        profile
        for profile in of_model
        if profile.fit is not None and training in (profile.fit.number, profile.fit.name)
    ]
    if not chosen:
        fits = {(profile.fit.number, profile.fit.name) for profile in of_model if profile.fit is not None}
        names = ", ".join(f"{number} ({name})" if name else str(number) for number, name in sorted(fits, key=str))
        raise ArgumentError(
            f"No profile is of the training {show(training)}, passed as fit. "
            f"Trainings to choose from, by number (and name): {names or 'none, so omit fit'}."
        )
    return chosen


@dataclass(frozen=True)
class FitEstimate:
    """Estimate of one training of a program, or of the sum of ``times`` equal trainings in a row.

    ``number`` is the position of the (first) training in the program, counted from 1.
    """

    number: int
    times: int
    name: str | None
    model: str | None
    batch_size: int | None
    repetitions: int
    estimate: RuntimeEstimate


@dataclass(frozen=True)
class FitsEstimate:
    """Estimates of all trainings of a program on one machine, and their sum with its interval.

    ``excluded`` contains the numbers of the fits that could not be estimated and are not part of the sum.

    >>> from vmselect import Profile
    >>> frozen = Profile.from_times(instance_type="a", steps_per_epoch=10, iteration_seconds=[0.1] * 5)
    >>> tuned = Profile.from_times(instance_type="a", steps_per_epoch=10, iteration_seconds=[0.3] * 5)
    >>> both = estimate_fits([frozen, tuned], epochs=10)
    >>> round(both.seconds, 6), [round(fit.estimate.seconds, 6) for fit in both.fits]
    (40.0, [10.0, 30.0])
    """

    title: str
    fits: tuple[FitEstimate, ...]
    seconds: float
    low: float
    high: float
    confidence: float
    findings: tuple[Finding, ...] = ()
    excluded: tuple[int, ...] = ()

    def __str__(self) -> str:
        count = sum(fit.times for fit in self.fits)
        times = f"{format_seconds(self.seconds)} ({format_seconds(self.low)} to {format_seconds(self.high)})"
        without = f", without fit {list_all(self.excluded)}" if self.excluded else ""
        return printable(f"{self.title}: {count} fit{'s' * (count != 1)} in {times}{without}")

    def _repr_html_(self) -> str:
        rows = []
        for fit in self.fits:
            times = map(format_seconds, (fit.estimate.seconds, fit.estimate.low, fit.estimate.high))
            rows.append((fit.number, fit.name or fit.model or "", fit.times, fit.estimate.epochs, *times))
        table = table_html(rows, ("", "fit", "times", "epochs", "time", "low", "high"))
        return f"<p><bdi>{escape(str(self))}</bdi></p>{table}{findings_html(self.findings)}"

    def to_dict(self) -> dict[str, Any]:
        """The estimate as plain values that can be written as JSON."""
        plain = {name: getattr(self, name) for name in ("title", "seconds", "low", "high", "confidence")}
        parts = [{**vars(fit), "estimate": fit.estimate.to_dict()} for fit in self.fits]
        findings = [vars(finding) for finding in self.findings]
        return plain | {"fits": parts, "findings": findings, "excluded": list(self.excluded)}


def estimate_fits(profiles: Profiles, *, epochs: int | None = None, **options: Any) -> FitsEstimate:
    """Estimate all trainings of one program on the machine where the program was probed.

    Without ``epochs``, each fit has the number of epochs that the program sets. Several runs of the program are
    repetitions, matched by the number of the fit. Equal fits in a row are combined. The half-widths of all fits are
    added, because errors on one machine are correlated. A fit that cannot be estimated is excluded with a finding.
    ``options`` are further arguments of :func:`~vmselect.estimate`.
    """
    maybe(check_count, "epochs", epochs)
    measured = read_records(profiles, Profile)
    machines = {identify(profile).machine for profile in measured}
    if len(machines) > 1:
        raise EstimateError(
            f"The profiles are from {len(machines)} different machines or setups, not from one program. Estimate each "
            "machine separately."
        )
    batch_size = options.get("batch_size") or getattr(options.get("workload"), "batch_size", None)
    fits: list[FitEstimate] = []
    excluded: dict[int, EstimateError] = {}
    before: object = None
    for position, same in enumerate(order_fits(measured), 1):
        number = same[0].fit.number if same[0].fit else position
        count = epochs or epochs_of(same[0])
        try:
            predicted = fit_runtime(same, **options).at(count)
        except EstimateError as wrong:
            excluded[number] = wrong
            continue
        fit = FitEstimate(
            number=number,
            times=1,
            name=same[0].fit.name if same[0].fit else None,
            model=same[0].model,
            batch_size=batch_size or same[0].batch_size,
            repetitions=len(same),
            estimate=predicted,
        )
        kind = _kind(same[0], count)
        if fits and kind is not None and kind == before:
            fits[-1] = _join(fits[-1], fit)
        else:
            fits.append(fit)
        before = kind
    if not fits:
        raise next(iter(excluded.values()))
    # Bounds are added, not their squares: the fits share a machine, so their errors go together.
    parts = [fit.estimate for fit in fits]
    without = (
        Finding(
            EXCLUDED_FIT,
            f"The time of the program does not include fit {number}, which could not be estimated. {wrong}",
            f"Probe fit {number} again.",
        )
        for number, wrong in excluded.items()
    )
    return FitsEstimate(
        title=measured[0].instance_type or "unknown machine",
        fits=tuple(fits),
        seconds=math.fsum(part.seconds for part in parts),
        low=math.fsum(part.low for part in parts),
        high=math.fsum(part.high for part in parts),
        confidence=parts[0].confidence,
        findings=(*dict.fromkeys(finding for part in parts for finding in part.findings), *without),
        excluded=tuple(excluded),
    )


def order_fits(profiles: Iterable[Profile]) -> list[list[Profile]]:
    """The fits of a program in the order of execution, each as a list of its profiles in all runs of the program."""
    numbered: dict[object, list[Profile]] = {}
    ordered = sorted(profiles, key=_order)
    for position, profile in enumerate(ordered):
        numbered.setdefault(profile.fit.number if profile.fit else ("given", position), []).append(profile)
    return list(numbered.values())


def split_programs(
    profiles: Iterable[Profile], *, across_sizes: bool = False
) -> tuple[list[list[Profile]], list[Profile]]:
    """Split ``profiles`` into programs with several fits (each with the profiles of all its runs) and other profiles.

    Two runs on one machine belong to the same program if the fits that both contain agree in model, structure and batch
    size. With ``across_sizes`` the batch size may differ, and a run with several batch sizes counts as one training at
    several sizes instead of a program. Fits in a notebook are not a program, because cells are run repeatedly.
    """
    every = sorted(distinct(profiles), key=lambda profile: profile.created)
    runs: dict[object, list[Profile]] = {}
    for profile in every:
        if profile.fit is not None and not profile.environment.notebook:
            runs.setdefault((identify(profile).machine, profile.fit.process), []).append(profile)
    programs: list[list[Profile]] = []
    for run in sorted(runs.values(), key=len, reverse=True):  # a shorter run joins a longer one
        same = [program for program in programs if _agree(program, run, across_sizes=across_sizes)]
        sizes = {profile.batch_size for profile in run} - {None}
        if same:
            same[0].extend(run)
        elif len(_by_number(run)) > 1 and not (across_sizes and len(sizes) > 1):
            programs.append(run)
    taken = {profile.id for program in programs for profile in program}
    return programs, [profile for profile in every if profile.id not in taken]


def _order(profile: Profile) -> tuple[int, datetime]:
    return profile.fit.number if profile.fit else 0, profile.created


def _agree(program: Sequence[Profile], run: Sequence[Profile], *, across_sizes: bool) -> bool:
    """Whether ``run`` may be another run of ``program``: their fits agree, where an unknown value agrees with any."""
    old, new = _by_number(program), _by_number(run)
    pairs = [(old[number], new[number]) for number in old.keys() & new.keys()]
    fields = ("model", "structure") if across_sizes else ("model", "structure", "batch_size")
    differ = any(len({getattr(p.setup, f) for p in pair} - {None}) > 1 for pair in pairs for f in fields)
    return bool(pairs) and identify(program[0]).machine == identify(run[0]).machine and not differ


def _by_number(run: Sequence[Profile]) -> dict[int, Profile]:
    """Map the number of each call of ``fit`` in the program to its profile (the first, if there are several)."""
    return {profile.fit.number: profile for profile in reversed(run) if profile.fit is not None}


def epochs_of(profile: Profile) -> int:
    """Number of epochs of the one fit that ``profile`` measured, without those before its ``initial_epoch``."""
    setup = profile.setup
    if setup.epochs is None:
        raise ArgumentError(f"{profile.title}: the number of epochs is unknown. Pass epochs= (--epochs).")
    return max(1, setup.epochs - setup.initial_epoch)


def _kind(profile: Profile, epochs: int) -> object:
    """Key by which equal fits of a program are recognized; None if it is unknown whether the fit equals another."""
    setup = profile.setup
    if profile.fit is None or setup.structure is None:
        return None
    return setup.model, setup.structure, setup.batch_size, setup.steps_per_epoch, epochs, profile.fit.name


def _join(fit: FitEstimate, other: FitEstimate) -> FitEstimate:
    first, second = fit.estimate, other.estimate
    terms = {name: first.terms.get(name, 0.0) + second.terms.get(name, 0.0) for name in TERMS}
    together = replace(
        first,
        seconds=first.seconds + second.seconds,
        low=first.low + second.low,
        high=first.high + second.high,
        terms={name: seconds for name, seconds in terms.items() if seconds},
        # Equal fits have the same findings, with slightly different numbers.
        findings=last_of_each_code([*second.findings, *first.findings]),
    )
    return replace(fit, times=fit.times + 1, repetitions=min(fit.repetitions, other.repetitions), estimate=together)


def combine_models(models: Sequence[RuntimeModel], epochs: Sequence[int], *, at: int) -> RuntimeModel:
    """The runtime model of a program whose fits have these ``models`` and numbers of ``epochs``.

    The model gives the time of the whole program at ``at`` epochs. At n epochs, each fit has n / at times as many.
    Half-widths are added, not their squares, because the errors of fits on one machine go together.
    """
    first, fits = models[0], list(zip(models, epochs, strict=True))
    shares = [count / at for count in epochs]
    passes = [model.validations(count) for model, count in fits]
    later = math.fsum(m.validation_seconds * max(0.0, n - 1) for m, n in zip(models, passes, strict=True))
    bounds = [(model.seconds(count), *model.interval(count)) for model, count in fits]
    each_epoch = math.fsum(model.epoch_seconds * count for model, count in fits)
    stopped = [min(count, model.early_stopping[0]) if model.early_stopping else count for model, count in fits]
    until = math.fsum(model.epoch_seconds * count for model, count in zip(models, stopped, strict=True))
    share_left = until / each_epoch if each_epoch else 1.0
    return RuntimeModel(
        title=first.title,
        method=first.method,
        confidence=first.confidence,
        terms=_add_terms(fits, at),
        first_validation_seconds=math.fsum(
            model.first_validation_seconds for model, n in zip(models, passes, strict=True) if n >= 1
        ),
        validation_seconds=later / (at - 1) if at > 1 else 0.0,
        low=_add_widths([m.low for m in models], shares, at, math.fsum(value - low for value, low, _ in bounds)),
        high=_add_widths([m.high for m in models], shares, at, math.fsum(high - value for value, _, high in bounds)),
        certain=(
            math.fsum(model.certain[0] for model in models),
            math.fsum(model.certain[1] * share for model, share in zip(models, shares, strict=True)),
        ),
        findings=last_of_each_code([finding for model in models for finding in model.findings]),
        basis=next((model.basis for model in models if model.basis != "measured"), "measured"),
        disturbance=_worst([model.disturbance for model in models]),
        waits=_mean_waits(models, shares),
        narrowed_by=tuple(dict.fromkeys(remedy for model in models for remedy in model.narrowed_by)),
        early_stopping=(max(1, round(at * share_left)), at) if share_left < 1 else None,
    )


def _add_terms(fits: Sequence[tuple[RuntimeModel, int]], at: int) -> dict[str, tuple[float, float]]:
    """Terms of a whole program (seconds once, seconds per epoch), of which none is negative from 1 to ``at`` epochs."""
    terms: dict[str, tuple[float, float]] = {}
    for name in TERMS:
        parts = [(*model.terms[name], count) for model, count in fits if name in model.terms]
        once = math.fsum(fixed for fixed, _, _ in parts)
        each = math.fsum(per_epoch * count for _, per_epoch, count in parts) / at
        # Each fit subtracts its first step once. A short program would subtract more than one of its epochs has.
        if once < 0 and any(count != at for _, _, count in parts):
            once, each = 0.0, each + once / at
        if parts:
            terms[name] = once, each
    return terms


def _add_widths(sides: Sequence[Quadratic], shares: Sequence[float], at: int, width: float) -> Quadratic:
    """The squared half-width of a whole program, which is ``width`` at ``at`` epochs."""
    once = math.fsum(math.sqrt(max(0.0, a)) for a, _, _ in sides) ** 2
    pairs = zip(sides, shares, strict=True)
    each = math.fsum(math.sqrt(max(0.0, c)) * share for (_, _, c), share in pairs) ** 2
    return once, (width**2 - once - each * at**2) / at, each


def _worst(disturbances: Sequence[Disturbance]) -> Disturbance:
    return max(disturbances, key=lambda disturbance: (disturbance.lost, disturbance.faster, disturbance.slower))


def _mean_waits(models: Sequence[RuntimeModel], shares: Sequence[float]) -> Waits:
    parts, total = list(zip((model.waits for model in models), shares, strict=True)), math.fsum(shares)
    return Waits(
        mean_seconds=math.fsum(waits.mean_seconds * share for waits, share in parts),
        longest_seconds=max(waits.longest_seconds for waits, _ in parts),
        often=math.fsum(waits.often * share for waits, share in parts) / total,
        epoch_seconds=math.fsum(waits.epoch_seconds * share for waits, share in parts),
    )
