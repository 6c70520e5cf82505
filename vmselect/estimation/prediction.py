"""From profiles to a runtime: one function for a number of epochs, one for all numbers of epochs at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from vmselect._checks import check_choice, check_seconds, check_share
from vmselect.errors import ArgumentError, EstimateError
from vmselect.estimation.along import fit_along, group_by_batch_size
from vmselect.estimation.methods import METHODS
from vmselect.estimation.phases import estimate_phases
from vmselect.estimation.runtime import RuntimeEstimate, RuntimeModel
from vmselect.estimation.workload import Workload
from vmselect.grouping import check_repetitions, read_records
from vmselect.records import Profile

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
