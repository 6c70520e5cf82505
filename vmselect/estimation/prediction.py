"""From profiles to a runtime: one function for a number of epochs, one for all numbers of epochs at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from vmselect.errors import ArgumentError, EstimateError
from vmselect.estimation.malta import fit_malta
from vmselect.estimation.phases import estimate_phases
from vmselect.estimation.robust import fit_robust
from vmselect.estimation.runtime import RuntimeEstimate, RuntimeModel
from vmselect.estimation.workload import Workload, agree, check_confidence, check_epochs, is_number
from vmselect.records import Profile

Profiles: TypeAlias = Profile | Sequence[Profile]
Phase: TypeAlias = tuple[int, Profile | float]

METHODS = (
    "robust",
    "malta-epoch",
    "malta-iteration",
    "malta-iteration:second",
    "malta-iteration:mean-2-10",
    "malta-iteration-no-validation",
    "malta-iteration-no-validation:second",
    "malta-iteration-no-validation:mean-2-10",
)
"""The methods of :func:`estimate`. Without a suffix, the dissertation's iteration methods use the second iteration."""


def fit_runtime(
    profile: Profiles,
    *,
    method: str = "robust",
    batch_size: int | None = None,
    examples: int | None = None,
    validation_examples: int | None = None,
    steps_per_epoch: float | None = None,
    confidence: float = 0.9,
    boot_seconds: float = 0.0,
) -> RuntimeModel:
    """The runtime of a training for every number of epochs, from one profile or from repetitions of one setup.

    The arguments are those of :func:`estimate`.

    >>> import vmselect as vs
    >>> profile = vs.Profile.from_times(steps_per_epoch=100, first_iteration_seconds=2.0,
    ...     iteration_seconds=[0.1, 0.1, 0.1], init_seconds=1.0)
    >>> round(fit_runtime(profile).seconds(10), 6)
    102.9
    """
    profiles = _as_repetitions(profile)
    title = profiles[0].title
    if method not in METHODS:
        raise ArgumentError(f"method={method!r} is not known. Choose one of: {', '.join(METHODS)}.")
    if not is_number(boot_seconds) or not 0 <= boot_seconds < float("inf"):
        raise ArgumentError(f"{title}: boot_seconds={boot_seconds!r} is not a time. Give seconds, 0 or more.")
    boot_seconds = float(boot_seconds)
    confidence = check_confidence(confidence, title=title)

    def fit(some: Sequence[Profile]) -> RuntimeModel:
        workload = Workload.of(
            some[0],
            batch_size=batch_size,
            examples=examples,
            validation_examples=validation_examples,
            steps_per_epoch=steps_per_epoch,
        )
        if method == "robust":
            return fit_robust(some, workload, confidence=confidence)
        return fit_malta(some, workload, method=method, confidence=confidence)

    model = fit(profiles)
    if len(profiles) > 1 and method == "robust":
        model = replace(model, repetitions=tuple(fit([one]).with_boot(boot_seconds) for one in profiles))
    return model.with_boot(boot_seconds)


def estimate(
    profile: Profiles,
    *,
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

    ``profile`` is one profile, or a list of repetitions of the same setup, which are merged. ``examples``,
    ``validation_examples`` and ``steps_per_epoch`` say where the training differs from what was probed. ``phases``
    describes a recipe that changes during the run: a list of (epochs, profile of that phase), or (epochs, factor on
    the time of ``profile``'s epochs). ``boot_seconds`` adds the start of the machine.

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

    model = fit_runtime(
        profile,
        method=method,
        batch_size=batch_size,
        examples=examples,
        validation_examples=validation_examples,
        steps_per_epoch=steps_per_epoch,
        confidence=confidence,
        boot_seconds=boot_seconds,
    )
    if phases is None:
        return model.at(check_epochs(epochs, title=model.title))

    def fit_phase(one: Profile) -> RuntimeModel:
        # A phase has its own batch size and thus its own number of steps; the data stay the same.
        return fit_runtime(
            one, method=method, examples=examples, validation_examples=validation_examples, confidence=confidence
        )

    return estimate_phases(model, phases, fit_phase=fit_phase, epochs=epochs)


def _as_repetitions(profile: Profiles) -> list[Profile]:
    profiles = [profile] if isinstance(profile, Profile) else list(profile)
    if not profiles or not all(isinstance(one, Profile) for one in profiles):
        raise ArgumentError("There is no profile to estimate from. Pass a Profile, or a list of them.")
    for one in profiles:
        if one.outcome == "out_of_memory":
            raise EstimateError(
                f"{one.title}: the training ran out of memory there, so there is no time to predict. Leave the profile "
                "out, or probe with a smaller batch size."
            )
        if one.environment.dispatch == "threaded":
            raise EstimateError(
                f"{one.title}: Keras ran the probe's hooks on other threads, so its step times are not usable. Probe "
                "again with the probe in a list: callbacks=[probe]."
            )
    agree(profiles)
    return profiles
