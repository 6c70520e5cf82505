"""Estimates from profiles by any method. To add a method, write a :data:`Method` and add it to ``METHODS``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from vmselect._checks import check_choice, check_count, check_share, is_number, list_items, show, suggest_arguments
from vmselect.diagnosis import Disturbance, Examination
from vmselect.diagnosis.checks import average_disturbances
from vmselect.errors import ArgumentError, EstimateError
from vmselect.estimation.batch_sizes import fit_other_batch_size, group_by_batch_size
from vmselect.estimation.drift import Learned, learn_repetitions
from vmselect.estimation.malta import fit_epochs, fit_iterations
from vmselect.estimation.overheads import describe_cold_run, is_cold, predict_first_run
from vmselect.estimation.robust import fit_robust
from vmselect.estimation.runtime import TERMS, RuntimeEstimate, RuntimeModel
from vmselect.estimation.workload import Workload
from vmselect.findings import last_of_each_code
from vmselect.records import Profile
from vmselect.records.forecast import Source
from vmselect.records.identity import check_repetitions, read_records

Profiles: TypeAlias = Profile | Iterable[Profile]
Phase: TypeAlias = tuple[int, Profile | float]


Method: TypeAlias = Callable[..., RuntimeModel]
"""Function that computes the runtime model of a workload from profiles of repetitions, or raises EstimateError."""

METHODS: Mapping[str, Method] = {
    "robust": fit_robust,
    "malta-epoch": fit_epochs,
    "malta-iteration": partial(fit_iterations, validates=True, mean=False),
    "malta-iteration:second": partial(fit_iterations, validates=True, mean=False),
    "malta-iteration:mean-2-10": partial(fit_iterations, validates=True, mean=True),
    "malta-iteration-no-validation": partial(fit_iterations, validates=False, mean=False),
    "malta-iteration-no-validation:second": partial(fit_iterations, validates=False, mean=False),
    "malta-iteration-no-validation:mean-2-10": partial(fit_iterations, validates=False, mean=True),
}
"""The methods of :func:`vmselect.estimate` by name. Methods without ``:suffix`` use the time of the second step."""


def fit_runtime(
    profiles: Profiles,
    *,
    workload: Workload | None = None,
    method: str = "robust",
    confidence: float = 0.9,
    disturbances: Mapping[str, Disturbance] | None = None,
    learned: Learned | None = None,
    **fields: Any,
) -> RuntimeModel:
    """Runtime model: the time of a training as a function of the number of epochs.

    ``fields`` are fields of :class:`Workload`, which replace values of the profiles.
    ``disturbances`` maps the ids of profiles to their disturbances, if they were computed before.
    ``learned`` is what a larger set of records, with ``profiles``, shows about differences between processes.
    """
    measured = read_records(profiles, Profile)
    title = measured[0].title
    method = check_choice(f"{title}: method", method, tuple(METHODS))
    confidence = check_share(f"{title}: confidence", confidence, least=0.5, most=0.999)
    try:
        workload = Workload.merge(workload, fields)
    except ArgumentError as wrong:
        raise ArgumentError(f"{title}: {wrong}") from None
    if disturbances is None:
        disturbances = {profile.id: Examination.of(profile).disturbance for profile in measured}
    if learned is None:
        learned = learn_repetitions(measured)
    fitter = _Fitter(method, confidence, workload.boot_seconds or 0.0, disturbances, learned)
    workload = replace(workload, boot_seconds=None)  # it is no part of the work that profiles measure
    size = workload.batch_size
    if size is None or all(profile.batch_size in (None, size) for profile in measured):
        return fitter.fit(measured, workload)
    groups = group_by_batch_size(measured, size, arguments=workload.given)
    if size in groups:
        return fitter.fit(groups[size], workload)
    return fit_other_batch_size(groups, workload, size, fit=fitter.fit)


@dataclass(frozen=True)
class _Fitter:
    """Applies a method to the repetitions of one setup at one batch size."""

    method: str
    confidence: float
    boot_seconds: float
    disturbances: Mapping[str, Disturbance]
    learned: Learned

    def fit(self, profiles: Sequence[Profile], workload: Workload) -> RuntimeModel:
        """Runtime model of repetitions, with those of each repetition alone, which show how far they differ."""
        _check_usable(profiles)
        profiles = sorted(profiles, key=lambda profile: profile.created)
        differences = check_repetitions(profiles, arguments=workload.given)
        model = self._apply(profiles, workload)
        # Differences that were learned from these repetitions must not hide that they disagree.
        unlearned = replace(self, learned={})
        alone = [unlearned._apply([profile], workload) for profile in profiles] if len(profiles) > 1 else []
        totals = [repetition.seconds(1) for repetition in alone]
        # With a single later run, slower steps are no evidence of a cold first run; what occurs once is.
        if is_cold(totals) and (len(alone) > 2 or is_cold([repetition.fixed_seconds for repetition in alone])):
            of_all, predicted = model.findings, self.method == "robust"
            if predicted:
                model = predict_first_run(alone[0], self._apply(profiles[1:], workload))
            cold = describe_cold_run(model.title, totals, predicted=predicted)
            model = replace(model, findings=(cold, *last_of_each_code([*of_all, *model.findings])))
        findings = (*model.findings, *differences)
        model = replace(model, findings=findings, early_stopping=find_early_stopping(profiles))
        # Methods without an interval cannot tell whether repetitions differ by more than chance.
        return replace(model, repetitions=tuple(alone)) if any(model.low + model.high) else model

    def _apply(self, profiles: Sequence[Profile], workload: Workload) -> RuntimeModel:
        # Total times, which serve only if there are no others, have no samples of the machine's use.
        disturbances = [self.disturbances[profile.id] for profile in profiles if not profile.only_totals]
        model = METHODS[self.method](
            profiles,
            Workload.of(profiles[0], **workload.given),
            confidence=self.confidence,
            disturbance=average_disturbances(disturbances),
            learned=self.learned,
        )
        boot = {"boot": (self.boot_seconds, 0.0)} if self.boot_seconds else {}
        return replace(model, method=self.method, terms={**boot, **model.terms})


@suggest_arguments()
def estimate(
    profile: Profiles,
    *,
    workload: Workload | None = None,
    epochs: int | None = None,
    method: str = "robust",
    batch_size: int | None = None,
    examples: int | None = None,
    validation_examples: int | None = None,
    confidence: float = 0.9,
    steps_per_epoch: float | None = None,
    phases: Sequence[Phase] | None = None,
    boot_seconds: float | None = None,
) -> RuntimeEstimate:
    """Estimate the time of a training of ``epochs`` epochs in seconds, with an interval and split into terms.

    ``profile`` is one profile or a list of repetitions of one setup. If ``batch_size`` is given, the list may contain
    profiles of the machine at other batch sizes, from which the time is interpolated. ``examples``,
    ``validation_examples`` and ``steps_per_epoch``, or a ``workload``, replace values of the profile. ``phases``
    describes a training that changes during the run: a list of (epochs, profile of the phase) or (epochs, factor that
    multiplies the epoch time of ``profile``). ``boot_seconds`` is the boot time of the machine, which is added.

    >>> import vmselect as vs
    >>> profile = vs.Profile.from_times(instance_type="p3.2xlarge", batch_size=256, steps_per_epoch=159,
    ...     init_seconds=0.2, first_iteration_seconds=3.4, iteration_seconds=[0.13, 0.13],
    ...     validation_seconds=[0.17, 0.02])
    >>> vs.estimate(profile, epochs=13).terms["first_iteration"]
    3.4
    >>> round(vs.estimate(profile, epochs=13, method="malta-iteration").seconds, 2)
    272.59
    """
    if epochs is None and phases is None:
        raise ArgumentError("The number of epochs is missing. Pass epochs=, or phases=.")
    measured = read_records(profile, Profile)
    fields: dict[str, Any] = {
        "batch_size": batch_size, "examples": examples, "validation_examples": validation_examples,
        "steps_per_epoch": steps_per_epoch, "boot_seconds": boot_seconds,
    }  # fmt: skip
    model = fit_runtime(measured, workload=workload, method=method, confidence=confidence, **fields)
    arguments = replace(Workload.merge(workload, fields), boot_seconds=None).given
    source = Source(records=tuple(measured), arguments=arguments, basis=model.basis)
    if phases is None:
        return replace(model.at(epochs), source=source)  # type: ignore[arg-type]

    def fit_phase(phase: Profile) -> RuntimeModel:
        machines = {profile.instance_type for profile in (*measured, phase)} - {None}
        if len(machines) > 1:
            raise EstimateError(
                f"The phases were measured on different machines ({', '.join(sorted(map(str, machines)))}). Estimate "
                "each machine with its own profiles."
            )
        # A phase has its own batch size and number of steps; the data and their validation stay the same.
        data = Workload.merge(workload, {"examples": examples, "validation_examples": validation_examples})
        if data.validation_steps is not None and phase.batch_size != measured[0].batch_size:
            raise EstimateError(
                f"{phase.title}: validation_steps is ambiguous, because the phases have different batch sizes. Pass "
                "validation_examples= instead."
            )
        data = replace(data, steps_per_epoch=None, batch_size=None, partial_batch=None, boot_seconds=None)
        return fit_runtime(phase, workload=data, method=method, confidence=confidence)

    return replace(_estimate_phases(model, phases, fit_phase=fit_phase, epochs=epochs), source=source)


def find_early_stopping(profiles: Sequence[Profile]) -> tuple[int, int] | None:
    """Smallest number of epochs after which a callback may stop the training, and the planned number of epochs.

    None if no callback may stop the training.
    """
    setups = [profile.setup for profile in profiles]
    ends = [(setup.early_stopping, max(1, (setup.epochs or 1) - setup.initial_epoch)) for setup in setups]
    return min(((first, planned) for first, planned in ends if first is not None), default=None)


def _check_usable(profiles: Sequence[Profile]) -> None:
    for profile in profiles:
        if profile.outcome == "out_of_memory":
            raise EstimateError(
                f"{profile.title}: the training ran out of memory. Remove the profile, or probe with a smaller batch "
                "size."
            )
        if profile.outcome == "described":
            raise EstimateError(
                f"{profile.title}: the profile describes a training and has no times. Pass it to vmselect.rank or "
                "vmselect.predict, which need no times, or probe a machine."
            )
        if profile.timed_in_threads:
            raise EstimateError(
                f"{profile.title}: Keras called the probe from worker threads, so its step times are wrong. Probe "
                "again with this version of vmselect."
            )


ONCE = ("boot", "initialization")
"""Names of the terms that are counted once in a training with several phases."""


def _estimate_phases(
    base: RuntimeModel,
    phases: Sequence[Phase],
    *,
    fit_phase: Callable[[Profile], RuntimeModel],
    epochs: int | None,
) -> RuntimeEstimate:
    """Sum of the estimates of all ``phases``, which are described in :func:`estimate`.

    A factor applies to the epochs of ``base``. A phase with a profile compiles again, so it has its own first iteration
    and first validation. The half-widths of all phases are added, because the phases share the machine and its drift.
    """
    title = base.title
    checked = _check_phases(phases, title)
    every = sum(count for count, _ in checked)
    if epochs is not None and check_count(f"{title}: epochs", epochs) != every:
        raise ArgumentError(
            f"{title}: the phases have {every} epochs in total, but epochs={epochs} was given. Omit epochs=."
        )
    total = {name: base.terms[name][0] for name in ONCE if name in base.terms}
    low = high = 0.0
    least = 1.0  # smallest share of a phase that its low end is
    # What is certain once is negative if the first step was shorter than others; it is then scaled like a step.
    start = checked[0][1]
    certain = min(0.0, base.certain[0]) * (1.0 if isinstance(start, Profile) else start)
    findings = [*base.findings, *base.find_waits()]
    for number, (count, work) in enumerate(checked):
        model = fit_phase(work) if isinstance(work, Profile) else base
        part = model.at(count)
        terms, factor = dict(part.terms), 1.0
        if not isinstance(work, Profile):
            # A faster phase may still vary as much as the measured one, so its half-widths never shrink.
            terms, factor = _scale_terms(base, part, work, first=number == 0), max(1.0, work)
        certain += model.certain[1] * count * (1.0 if isinstance(work, Profile) else work)
        findings += [f for f in (*model.findings, *model.find_waits()) if f not in findings]
        for name, seconds in terms.items():
            if name not in ONCE:
                total[name] = total.get(name, 0.0) + seconds
        least = min(least, part.low / part.seconds if part.seconds else 1.0)
        low, high = low + (part.seconds - part.low) * factor, high + (part.high - part.seconds) * factor
    seconds = math.fsum(total.values())
    lowest = max(seconds - low, min(seconds, certain))
    return RuntimeEstimate(
        seconds=seconds,
        low=lowest if lowest > 0 else least * seconds,
        high=seconds + high,
        terms={name: total[name] for name in TERMS if total.get(name)},
        method=base.method,
        confidence=base.confidence,
        epochs=every,
        title=title,
        findings=tuple(findings),
    )


def _check_phases(phases: object, title: str) -> list[Phase]:
    remedy = "Pass a list of pairs: (epochs, profile) or (epochs, factor above zero)."
    checked: list[Phase] = []
    for phase in [phases] if isinstance(phases, (str, bytes)) else list_items(phases):
        if not isinstance(phase, (tuple, list)) or len(phase) != 2:
            raise ArgumentError(f"{title}: {show(phase)} is not a phase. {remedy}")
        count, work = phase
        if not isinstance(work, Profile) and (not is_number(work) or work <= 0):
            raise ArgumentError(f"{title}: {show(work)} is neither a profile nor a factor above zero. {remedy}")
        count = check_count(f"{title}: the epochs of a phase", count)
        checked.append((count, work if isinstance(work, Profile) else float(work)))
    if not checked:
        raise ArgumentError(f"{title}: phases is empty. {remedy}")
    return checked


def _scale_terms(model: RuntimeModel, part: RuntimeEstimate, factor: float, *, first: bool) -> dict[str, float]:
    """Seconds of the terms of ``part`` if each epoch takes ``factor`` times as long.

    A phase is a number of successive epochs that take equally long, such as those before layers are unfrozen. A
    training is a sequence of phases, and ``part`` is the estimate of one of them by ``model``, as if it took as long as
    measured. ``first`` is True in the first phase: only this one includes what occurs once, such as compilation.
    """
    scaled = dict(part.terms)
    for name, (fixed, per_epoch) in model.terms.items():
        # What a term subtracts once is a part of an epoch (its first step, its boundary), so it is scaled like one.
        once = max(0.0, fixed) + min(0.0, fixed) * factor
        scaled[name] = once * first + per_epoch * part.epochs * factor
    steps, _ = model.terms.get("steady_iterations", (0.0, 0.0))
    if first and "first_iteration" in scaled:
        # The subtracted step is in the first iteration, where compilation takes as long in any phase.
        step = min(scaled["first_iteration"], max(0.0, -steps))
        scaled["first_iteration"] += step * (factor - 1)
    validations = model.validations(part.epochs)
    if first and validations:
        compiling = max(0.0, model.first_validation_seconds - model.validation_seconds)
        scaled["first_validation"] = compiling + (model.first_validation_seconds - compiling) * factor
        validations -= 1
    else:
        scaled.pop("first_validation", None)
    scaled["later_validations"] = model.validation_seconds * factor * validations
    return scaled
