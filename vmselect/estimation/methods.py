"""Every method by name. A new one is a file with a function of this shape, and a line here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeAlias

from vmselect._checks import check_choice, check_count, check_seconds, check_share, is_number, list_items, show
from vmselect.errors import ArgumentError, EstimateError
from vmselect.estimation.batch_sizes import fit_along, group_by_batch_size
from vmselect.estimation.malta import fit_epochs, fit_iterations
from vmselect.estimation.robust import fit_robust
from vmselect.estimation.runtime import TERMS, RuntimeEstimate, RuntimeModel
from vmselect.estimation.workload import Workload
from vmselect.grouping import check_repetitions, read_records
from vmselect.records import Profile


class Method(Protocol):
    """From repetitions of one setup to the runtime of ``workload``, in which all that is known is filled in."""

    def __call__(self, profiles: Sequence[Profile], workload: Workload, *, confidence: float) -> RuntimeModel:
        """The model; an :class:`~vmselect.errors.EstimateError` where the profiles cannot tell."""
        ...


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
"""The methods of :func:`vmselect.estimate`. Without a suffix, the dissertation's iteration methods use the second
iteration."""


# Recipes that change during the run: progressive resizing, growing batches.


ONCE = ("boot", "initialization")
"""Terms that the whole training spends once, however many phases it has."""


def estimate_phases(
    base: RuntimeModel,
    phases: Sequence[tuple[int, Profile | float]],
    *,
    fit_phase: Callable[[Profile], RuntimeModel],
    epochs: int | None,
) -> RuntimeEstimate:
    """The sum over phases, each (epochs, profile of that phase) or (epochs, factor on the epochs of ``base``).

    A phase with a profile of its own compiles anew, so it pays its own first iteration and first validation; a factor
    scales what an ordinary epoch takes. Half-widths add up in full: phases share the machine and its drift.
    """
    title = base.title
    pairs = _read_pairs(phases, title)
    lengths = [check_count(f"{title}: the epochs of a phase", length) for length, _ in pairs]
    if epochs is not None and check_count(f"{title}: epochs", epochs) != sum(lengths):
        raise ArgumentError(f"{title}: phases hold {sum(lengths)} epochs, not epochs={epochs}. Leave epochs out.")
    total = {name: base.terms[name][0] for name in ONCE if name in base.terms}
    low = high = 0.0
    findings = list(base.findings)
    for number, (length, what) in enumerate(zip(lengths, (what for _, what in pairs), strict=True)):
        if isinstance(what, Profile):
            own = fit_phase(what)
            part = own.at(length)
            terms = dict(part.terms)
            down, up = part.seconds - part.low, part.high - part.seconds
            findings += [finding for finding in own.findings if finding not in findings]
        else:
            factor = _check_factor(what, title)
            terms, down, up = _scaled(base, length, factor, opening=number == 0)
        for name, seconds in terms.items():
            if name in ONCE:
                continue
            total[name] = total.get(name, 0.0) + seconds
        low, high = low + down, high + up
    seconds = math.fsum(total.values())
    return RuntimeEstimate(
        seconds=seconds,
        low=max(0.0, seconds - low),
        high=seconds + high,
        terms={name: total[name] for name in TERMS if total.get(name)},
        method=base.method,
        confidence=base.confidence,
        epochs=sum(lengths),
        title=title,
        findings=tuple(findings),
    )


def _read_pairs(phases: Any, title: str) -> list[tuple[Any, Any]]:
    wanted = "Give (epochs, profile) or (epochs, factor) pairs."
    if isinstance(phases, (str, bytes)) or not isinstance(phases, Iterable):
        raise ArgumentError(f"{title}: phases is {show(phases)}. {wanted}")
    pairs = list_items(phases)
    if not pairs:
        raise ArgumentError(f"{title}: phases is empty. {wanted}")
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ArgumentError(f"{title}: {show(pair)} is no phase. {wanted}")
    return [(length, what) for length, what in pairs]


def _check_factor(factor: Any, title: str) -> float:
    if not is_number(factor) or factor <= 0:
        raise ArgumentError(f"{title}: {show(factor)} describes no phase. Give a profile, or a factor above zero.")
    return float(factor)


def _scaled(model: RuntimeModel, epochs: int, factor: float, *, opening: bool) -> tuple[dict[str, float], float, float]:
    """Terms of ``epochs`` ordinary epochs, each taking ``factor`` times as long, and their half-widths."""
    alone = model.at(epochs)
    scaled = dict(alone.terms)
    for name, (fixed, per_epoch) in model.terms.items():
        scaled[name] = fixed * opening + per_epoch * epochs * factor
    validations = epochs // model.validation_freq
    if opening and validations:
        compiling = model.first_validation_seconds - model.validation_seconds
        scaled["first_validation"] = max(0.0, compiling) + model.validation_seconds * factor
        validations -= 1
    else:
        scaled.pop("first_validation", None)
    scaled["later_validations"] = model.validation_seconds * factor * validations
    return scaled, (alone.seconds - alone.low) * max(1.0, factor), (alone.high - alone.seconds) * max(1.0, factor)


# From profiles to a runtime: one function for a number of epochs, one for all numbers of epochs at once.


Profiles: TypeAlias = Profile | Iterable[Profile]
Phase: TypeAlias = tuple[int, Profile | float]


def fit_runtime(
    profiles: Profiles,
    *,
    workload: Workload | None = None,
    method: str = "robust",
    batch_size: int | None = None,
    examples: int | None = None,
    validation_examples: int | None = None,
    steps_per_epoch: float | None = None,
    confidence: float = 0.9,
    boot_seconds: float = 0.0,
) -> RuntimeModel:
    """The runtime of a training for every number of epochs: the only way from profiles to a model.

    ``profiles`` are one profile, repetitions of one setup, or with ``batch_size`` profiles of one machine at several
    batch sizes, of which the one asked for need not be among. The arguments are those of :func:`estimate`.

    >>> import vmselect as vs
    >>> profile = vs.Profile.from_times(steps_per_epoch=100, first_iteration_seconds=2.0,
    ...     iteration_seconds=[0.1, 0.1, 0.1], init_seconds=1.0)
    >>> round(fit_runtime(profile).seconds(10), 6)
    102.9
    """
    measured = read_records(profiles, Profile)
    title = measured[0].title
    method = check_choice(f"{title}: method", method, tuple(METHODS))
    boot_seconds = check_seconds(f"{title}: boot_seconds", boot_seconds)
    confidence = check_share(f"{title}: confidence", confidence, least=0.5, most=0.999)
    fields = {
        "batch_size": batch_size,
        "examples": examples,
        "validation_examples": validation_examples,
        "steps_per_epoch": steps_per_epoch,
    }
    try:
        wanted = Workload.saying(workload, fields)
    except ArgumentError as wrong:
        raise ArgumentError(f"{title}: {wrong}") from None

    def fit(some: Sequence[Profile], said: Workload) -> RuntimeModel:
        _check_usable(some)
        doubts = check_repetitions(some, given=said.given)
        models = [
            METHODS[method](repeated, Workload.of(repeated[0], **said.given), confidence=confidence)
            for repeated in ([some, *([one] for one in some)] if len(some) > 1 else [some])
        ]
        model, *alone = (replace(model, method=method).with_boot(boot_seconds) for model in models)
        model = replace(model, findings=(*model.findings, *doubts))
        return replace(model, repetitions=tuple(alone)) if model.has_interval else model

    size = wanted.batch_size
    if size is None or all(one.batch_size in (None, size) for one in measured):
        return fit(measured, wanted)
    groups = group_by_batch_size(measured, size, given=wanted.given)
    if size in groups:
        return fit(groups[size], wanted)
    return fit_along(groups, wanted, size, fit=fit)


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
    boot_seconds: float = 0.0,
) -> RuntimeEstimate:
    """Seconds that a training of ``epochs`` epochs takes, with an interval and where the time goes.

    ``profile`` is one profile, or a list of repetitions of the same setup, which are merged. With ``batch_size`` the
    list may also hold profiles of the same machine at other batch sizes, from which the time at this one is told.
    ``examples``, ``validation_examples`` and ``steps_per_epoch``, or a ``workload``, say where the training differs
    from what was probed. ``phases`` describes a recipe that changes during the run: a list of (epochs, profile of that
    phase), or (epochs, factor on the time of ``profile``'s epochs). ``boot_seconds`` adds the start of the machine.

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
    model = fit_runtime(
        measured,
        workload=workload,
        method=method,
        batch_size=batch_size,
        examples=examples,
        validation_examples=validation_examples,
        steps_per_epoch=steps_per_epoch,
        confidence=confidence,
        boot_seconds=boot_seconds,
    )
    if phases is None:
        return model.at(epochs)  # type: ignore[arg-type]

    def fit_phase(one: Profile) -> RuntimeModel:
        machines = {found.instance_type for found in (*measured, one)} - {None}
        if len(machines) > 1:
            raise EstimateError(
                f"The phases were measured on different machines ({', '.join(sorted(map(str, machines)))}), so they "
                "are no single training. Estimate each machine by itself, with profiles of its own for every phase."
            )
        # A phase has its own batch size and thus its own number of steps; the data and their validation stay the same.
        said = Workload.saying(workload, {"examples": examples, "validation_examples": validation_examples})
        if said.validation_steps is not None and one.batch_size != measured[0].batch_size:
            raise EstimateError(
                f"{one.title}: the phases have different batch sizes, so one number of validation batches is not the "
                "same validation. Pass validation_examples= instead of validation_steps."
            )
        data = replace(said, steps_per_epoch=None, batch_size=None, partial_batch=None)
        return fit_runtime(one, workload=data, method=method, confidence=confidence)

    return estimate_phases(model, phases, fit_phase=fit_phase, epochs=epochs)


def _check_usable(profiles: Sequence[Profile]) -> None:
    for one in profiles:
        if one.outcome == "out_of_memory":
            raise EstimateError(
                f"{one.title}: the training ran out of memory there, so there is no time to predict. Leave the profile "
                "out, or probe with a smaller batch size."
            )
        if one.environment.dispatch == "threaded" and one.probe != "epoch":  # whole epochs are waited for
            raise EstimateError(
                f"{one.title}: Keras ran the probe's hooks on other threads, so its step times are not usable. Probe "
                "again with the probe in a list: callbacks=[probe]."
            )
