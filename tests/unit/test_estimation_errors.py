"""What cannot be estimated is refused with an error that names the profile and says what to do instead."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmselect as vs
from vmselect.errors import ArgumentError, EstimateError, VmselectError
from vmselect.estimation import METHODS, fit_runtime
from vmselect.records import Validation


def steps(**changed: Any) -> vs.Profile:
    times = {
        "instance_type": "p3.2xlarge",
        "batch_size": 64,
        "steps_per_epoch": 100,
        "first_iteration_seconds": 2.0,
        "iteration_seconds": [0.1] * 10,
        "validation_seconds": [1.0, 0.5],
    }
    return vs.Profile.from_times(**{**times, **changed})


def epochs_only(**changed: Any) -> vs.Profile:
    times = {"instance_type": "p3.2xlarge", "first_epoch_seconds": 9.0, "later_epoch_seconds": [5.0, 5.0]}
    return vs.Profile.from_times(**{**times, **changed})


def out_of_memory() -> vs.Profile:
    return steps().model_copy(update={"outcome": "out_of_memory"})


def without_steady_steps() -> vs.Profile:
    profile = steps()
    timeline = profile.timeline.model_copy(update={"steps": type(profile.timeline.steps)()})
    return profile.model_copy(update={"timeline": timeline})


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "zero epochs": (lambda: vs.estimate(steps(), epochs=0), "whole number of at least 1"),
    "negative epochs": (lambda: vs.estimate(steps(), epochs=-3), "whole number of at least 1"),
    "fractional epochs": (lambda: vs.estimate(steps(), epochs=2.5), "whole number of at least 1"),  # type: ignore[arg-type]
    "endless epochs": (lambda: vs.estimate(steps(), epochs=float("inf")), "whole number"),  # type: ignore[arg-type]
    "text epochs": (lambda: vs.estimate(steps(), epochs="5"), "whole number"),  # type: ignore[arg-type]
    "no steady step": (lambda: vs.estimate(without_steady_steps(), epochs=5), "Probe more steps"),
    "no epochs to 5.1": (lambda: vs.estimate(steps(), epochs=5, method="malta-epoch"), "EpochProbe"),
    "no steps to 5.3": (lambda: vs.estimate(epochs_only(), epochs=5, method="malta-iteration"), "IterationProbe"),
    "no steps to 5.4": (
        lambda: vs.estimate(epochs_only(), epochs=5, method="malta-iteration-no-validation"),
        "IterationProbe",
    ),
    "other batch size": (lambda: vs.estimate(steps(), epochs=5, batch_size=128), "Probe at 128"),
    "batch sizes that contradict": (lambda: vs.estimate([steps(), steps(batch_size=32)], epochs=5), "apart"),
    "machines that contradict": (
        lambda: vs.estimate([steps(), steps(instance_type="p2.xlarge")], epochs=5),
        "apart",
    ),
    "unknown steps": (lambda: vs.estimate(steps(steps_per_epoch=None), epochs=5), "steps_per_epoch="),
    "more steps than can be counted": (lambda: vs.estimate(steps(), epochs=5, steps_per_epoch=1e19), "from 1 to"),
    "steps without an end": (lambda: vs.estimate(steps(), epochs=5, steps_per_epoch=1e308), "from 1 to"),
    "examples without batch size": (
        lambda: vs.estimate(steps(batch_size=None), epochs=5, examples=1000),
        "batch_size=",
    ),
    "epochs of unknown size": (lambda: vs.estimate(epochs_only(batch_size=8), epochs=5, examples=99), "IterationProbe"),
    "validation of unknown size": (
        lambda: vs.estimate(steps(), epochs=5, validation_examples=500),
        "Leave validation_examples out",
    ),
    "validation of unknown batches": (
        lambda: vs.estimate(steps(), epochs=5, workload=vs.Workload(validation_steps=50)),
        "Leave validation_steps out",
    ),
    "other validation of whole epochs": (
        lambda: vs.estimate(epochs_only(), epochs=5, validation_examples=500, batch_size=64),
        "IterationProbe",
    ),
    "other validation batches of whole epochs": (
        lambda: vs.estimate(epochs_only(), epochs=5, workload=vs.Workload(validation_steps=50)),
        "IterationProbe",
    ),
    "no validation in whole epochs": (
        lambda: vs.estimate(epochs_only(validation_examples=500), epochs=5, validation_examples=0),
        "IterationProbe",
    ),
    "out of memory": (lambda: vs.estimate(out_of_memory(), epochs=5), "smaller batch size"),
    "confidence": (lambda: vs.estimate(steps(), epochs=5, confidence=90), "0.5 to 0.999"),
    "boot": (lambda: vs.estimate(steps(), epochs=5, boot_seconds=-1), "at least 0"),
    "fraction of an example": (lambda: vs.estimate(steps(), epochs=5, examples=0.5), "whole number"),  # type: ignore[arg-type]
    "empty phases": (lambda: vs.estimate(steps(), phases=[]), "pairs"),
    "phases that contradict": (lambda: vs.estimate(steps(), epochs=9, phases=[(3, 1.0), (5, 2.0)]), "Leave epochs out"),
    "phases of two machines": (
        lambda: vs.estimate(steps(), phases=[(3, 1.0), (2, steps(instance_type="p2.xlarge"))]),
        "different machines",
    ),
    "phase of nothing": (lambda: vs.estimate(steps(), phases=[(3, 0.0)]), "factor above zero"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_profile_and_a_remedy(case: str) -> None:
    ask, remedy = REFUSED[case]
    with pytest.raises(VmselectError) as refused:
        ask()
    message = str(refused.value)
    assert "p3.2xlarge" in message
    assert remedy in message


WRONG: tuple[Any, ...] = (
    None,
    "",
    "7",
    b"7",
    -1,
    0,
    0.5,
    True,
    float("nan"),
    10**400,
    -(10**400),
    [],
    {},
    object(),
    (1, 2),
)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda value: str(value)[:12])
def test_no_argument_raises_anything_outside_the_family(wrong: Any) -> None:
    for name in (
        "epochs", "method", "batch_size", "examples", "validation_examples", "steps_per_epoch", "confidence", "phases",
        "boot_seconds", "workload",
    ):  # fmt: skip
        with contextlib.suppress(VmselectError):
            vs.estimate(steps(), **{"epochs": 5, name: wrong})
    with pytest.raises(ArgumentError):
        vs.estimate(wrong, epochs=5)
    with pytest.raises(ArgumentError):
        vs.estimate([wrong], epochs=5)
    for name in ("steps_per_epoch", "batch_size", "examples", "validation_examples", "validation_freq"):
        with contextlib.suppress(VmselectError):
            vs.Workload(**{name: wrong})


def test_a_workload_says_what_its_fields_say() -> None:
    profile = steps(examples=6_400, validation_examples=640)
    fields = {"examples": 3_200.0, "validation_examples": np.int64(1_280), "batch_size": 64.0}
    assert vs.estimate(profile, epochs=5, workload=vs.Workload(**fields)) == vs.estimate(profile, epochs=5, **fields)  # type: ignore[arg-type]
    rarely = vs.estimate(profile, epochs=6, workload=vs.Workload(validation_freq=3))
    assert rarely.terms["later_validations"] == pytest.approx(0.5)
    with pytest.raises(ArgumentError, match="Say it once"):
        vs.estimate(profile, epochs=5, examples=99, workload=vs.Workload(examples=98))


def test_the_same_measurement_counts_once() -> None:
    profile = steps()
    assert vs.estimate([profile, profile], epochs=5) == vs.estimate(profile, epochs=5)


def test_trainings_by_different_backends_are_no_repetitions() -> None:
    profile = steps()
    other = {
        name: steps().model_copy(update={"environment": profile.environment.model_copy(update={"backend": name})})
        for name in ("jax", "tensorflow")
    }
    with pytest.raises(EstimateError, match="backend"):
        vs.estimate(list(other.values()), epochs=5)
    with pytest.raises(EstimateError, match="backend"):
        vs.estimate([other["jax"], steps(batch_size=256), other["tensorflow"]], epochs=5, batch_size=128)


def test_unknown_methods_are_listed() -> None:
    with pytest.raises(ArgumentError, match="malta-iteration:mean-2-10"):
        vs.estimate(steps(), epochs=5, method="best")


def test_nothing_to_estimate_from() -> None:
    with pytest.raises(ArgumentError, match="no profiles"):
        vs.estimate([], epochs=5)
    with pytest.raises(ArgumentError, match="epochs="):
        vs.estimate(steps())


def test_the_dissertations_methods_agree_with_its_equations() -> None:
    profile = steps(init_seconds=1.0, iteration_seconds=[0.2, *[0.1] * 8])
    mean = sum([0.2, *[0.1] * 8]) / 9
    for name, iteration in (("", 0.2), (":second", 0.2), (":mean-2-10", mean)):
        with_validation = vs.estimate(profile, epochs=7, method=f"malta-iteration{name}")
        without = vs.estimate(profile, epochs=7, method=f"malta-iteration-no-validation{name}")
        assert with_validation.seconds == pytest.approx(
            vs.equations.iteration_runtime(1.0, 2.0, iteration, 100, 1.0, 0.5, 7)
        )
        assert without.seconds == pytest.approx(
            vs.equations.iteration_runtime_without_validation(1.0, 2.0, iteration, 100, 7)
        )
        assert with_validation.findings[0].code == "no-interval"
    assert {method.partition(":")[0] for method in METHODS} == {
        "robust",
        "malta-epoch",
        "malta-iteration",
        "malta-iteration-no-validation",
    }


def test_another_data_set_scales_the_terms_that_it_touches() -> None:
    profile = steps(examples=6_400, validation_examples=640)
    base = vs.estimate(profile, epochs=10).terms
    bigger = vs.estimate(profile, epochs=10, examples=12_800, validation_examples=1_280).terms
    assert bigger["steady_iterations"] == pytest.approx(0.1 * (200 * 10 - 1))
    assert bigger["later_validations"] == pytest.approx(2 * base["later_validations"])
    assert bigger["first_validation"] == pytest.approx(base["first_validation"] + 0.5)
    assert bigger["first_iteration"] == base["first_iteration"]
    assert "later_validations" not in vs.estimate(profile, epochs=10, validation_examples=0).terms


def test_validations_scale_by_their_batches() -> None:
    def validating(*batches: int | None, **setup: Any) -> vs.Profile:
        found = tuple(Validation(epoch=n, seconds=1.0, batches=count) for n, count in enumerate(batches))
        profile = steps(validation_examples=640)
        timeline = profile.timeline.model_copy(update={"validations": found})
        return profile.model_copy(update={"timeline": timeline, "setup": profile.setup.model_copy(update=setup)})

    def later(profile: vs.Profile, **said: Any) -> float:
        return vs.estimate(profile, epochs=11, workload=vs.Workload(**said)).terms["later_validations"]

    assert later(validating(10, 10), validation_steps=1_000) == pytest.approx(10 * 100.0)
    assert later(validating(10, 10), validation_steps=20, validation_examples=640) == pytest.approx(10 * 2.0)
    assert later(validating(10, 10), validation_examples=640) == pytest.approx(10 * 1.0)
    probed, more = validating(10, 10), vs.Workload(validation_steps=1_000)
    assert vs.estimate(probed, phases=[(11, probed)], workload=more).terms["later_validations"] == pytest.approx(1_000)
    # fit(validation_steps=500) over data of ten batches: as it was measured, whatever the argument said
    assert later(validating(10, 10, validation_steps=500)) == pytest.approx(10 * 1.0)
    assert later(validating(10, 10, validation_steps=500), validation_steps=500) == pytest.approx(10 * 1.0)
    assert later(validating(), validation_steps=30) == pytest.approx(10 * 0.35 * 0.1 * 30)  # assumed


def test_whole_epochs_know_their_own_validation() -> None:
    profile = epochs_only(validation_examples=500)
    assert vs.estimate(profile, epochs=5, validation_examples=500) == vs.estimate(profile, epochs=5)
    without = vs.estimate(epochs_only(validation_examples=0), epochs=5, validation_examples=0)
    assert without.seconds == pytest.approx(29.0)


def test_steps_are_counted_in_full_unless_the_input_drops_the_remainder() -> None:
    assert vs.Workload.of(steps(), examples=6_401).steps_per_epoch == 101
    dropping = steps(examples=6_401, steps_per_epoch=100)
    dropping = dropping.model_copy(update={"setup": dropping.setup.model_copy(update={"partial_batch": 0})})
    assert vs.Workload.of(dropping, examples=9_999).steps_per_epoch == 156
    assert vs.Workload.of(steps(), steps_per_epoch=40_512 / 256).steps_per_epoch == 158.25


def test_numbers_of_numpy_are_numbers() -> None:
    ours = vs.estimate(steps(), epochs=3, examples=3_200, validation_examples=0, confidence=0.75, boot_seconds=60.0)
    theirs = vs.estimate(
        steps(),
        epochs=np.int32(3),
        examples=np.int64(3_200),
        validation_examples=np.uint16(0),
        confidence=np.float32(0.75),
        boot_seconds=np.float32(60),
    )
    assert json.dumps(theirs.to_dict()) == json.dumps(ours.to_dict())


def test_boot_is_a_term_of_its_own() -> None:
    plain, booted = (vs.estimate(steps(), epochs=5, boot_seconds=boot) for boot in (0, 90))
    assert booted.terms["boot"] == 90
    assert booted.seconds == pytest.approx(plain.seconds + 90)
    assert booted.low == pytest.approx(plain.low + 90)


def test_phases_add_up() -> None:
    small, large = steps(init_seconds=3.0), steps(iteration_seconds=[0.4] * 10, model="large")
    whole = vs.estimate(small, epochs=10)
    assert vs.estimate(small, phases=[(10, 1.0)]).seconds == pytest.approx(whole.seconds)
    mixed = vs.estimate(small, phases=[(6, small), (4, large)], boot_seconds=60)
    parts = vs.estimate(small, epochs=6).seconds + vs.estimate(large, epochs=4).seconds
    assert mixed.seconds == pytest.approx(parts + 60)
    assert mixed.epochs == 10
    doubled = vs.estimate(small, phases=[(5, 1.0), (5, 2.0)])
    epoch = fit_runtime(small).seconds(11) - fit_runtime(small).seconds(10)
    assert doubled.seconds == pytest.approx(whole.seconds + 5 * epoch)
    assert doubled.low < doubled.seconds < doubled.high


def test_a_phase_is_as_sure_as_its_epochs_or_less() -> None:
    """Ordinary epochs keep their interval, slower ones stretch it, and faster ones do not shrink it."""
    whole = vs.estimate(steps(), epochs=10)
    width = {}
    for factor in (0.5, 1.0, 3.0):
        phase = vs.estimate(steps(), phases=[(10, factor)])
        width[factor] = (phase.seconds - phase.low, phase.high - phase.seconds)
    assert width[1.0] == pytest.approx((whole.seconds - whole.low, whole.high - whole.seconds))
    assert width[0.5] == pytest.approx(width[1.0])
    assert width[3.0] == pytest.approx([3 * side for side in width[1.0]])


def test_repetitions_that_disagree_say_so() -> None:
    merged = vs.estimate([steps(), steps(iteration_seconds=[0.3] * 10)], epochs=10)
    assert "repetitions-disagree" in {finding.code for finding in merged.findings}
    assert merged.terms["steady_iterations"] == pytest.approx(0.2 * 999)


def test_an_estimate_prints_as_a_sentence_and_as_json() -> None:
    estimate = vs.estimate(steps(), epochs=10)
    assert str(estimate).startswith("p3.2xlarge, batch 64: 10 epochs in 1 min")
    assert estimate.to_dict()["terms"]["first_iteration"] == 2.0
