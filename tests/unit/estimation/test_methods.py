"""Estimates: arguments, errors, phases, and the methods of the dissertation."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pytest

import vmselect as vs
from tests.support.profiles import make_epoch_profile, make_profile, probed
from vmselect.errors import ArgumentError, EstimateError, VmselectError
from vmselect.estimation import METHODS
from vmselect.records import Boundary, Epoch, Pause, Profile, Steps, Validation


def steps(**changed: Any) -> vs.Profile:
    times = {"init_seconds": None, "first_iteration_seconds": 2.0, "validation_seconds": [1.0, 0.5], "model": None}
    return make_profile(**{"instance_type": "p3.2xlarge", "steps": 10, **times, **changed})


def epochs_only(**changed: Any) -> vs.Profile:
    return make_epoch_profile("p3.2xlarge", 9.0, 5.0, 5.0, **{"batch_size": None, **changed})


@pytest.mark.parametrize(
    ("profiles", "options", "remedy"),
    [
        (steps(), {"epochs": 0}, "whole number of at least 1"),
        (steps(), {"epochs": 2.5}, "whole number"),
        (steps(), {"epochs": float("inf")}, "whole number"),
        (steps(), {"epochs": "5"}, "whole number"),
        (steps(), {"examples": 0.5}, "whole number"),
        (steps(), {"confidence": 90}, "0.5 to 0.999"),
        (steps(), {"boot_seconds": -1}, "at least 0"),
        (steps(), {"steps_per_epoch": 1e19}, "from 1 to"),
        (steps(timeline={"steps": Steps()}), {}, "Probe more steps"),
        (steps(), {"method": "malta-epoch"}, "EpochProbe"),
        (epochs_only(), {"method": "malta-iteration"}, "IterationProbe"),
        (epochs_only(), {"method": "malta-iteration-no-validation"}, "IterationProbe"),
        (steps(), {"batch_size": 128}, "Probe at batch size 128"),
        ([steps(), steps(batch_size=32)], {}, "separately"),
        ([steps(), steps(instance_type="p2.xlarge")], {}, "separately"),
        (steps(steps_per_epoch=None), {}, "steps_per_epoch="),
        (steps(steps_per_epoch=None), {"method": "malta-iteration"}, "steps_per_epoch="),
        (steps(batch_size=None), {"examples": 1000}, "batch_size="),
        (epochs_only(batch_size=8), {"examples": 99}, "IterationProbe"),
        (steps(), {"validation_examples": 500}, "validation_examples"),
        (steps(), {"workload": vs.Workload(validation_steps=50)}, "validation_steps"),
        (epochs_only(), {"validation_examples": 500, "batch_size": 64}, "IterationProbe"),
        (epochs_only(), {"workload": vs.Workload(validation_steps=50)}, "IterationProbe"),
        (epochs_only(validation_examples=500), {"validation_examples": 0}, "IterationProbe"),
        (steps(outcome="out_of_memory"), {}, "batch size"),
        (steps(), {"phases": []}, "pairs"),
        (steps(), {"phases": [(3, 0.0)]}, "pairs"),
        (steps(), {"phases": [(3, 1.0), (5, 2.0)]}, "epochs"),
        (steps(), {"epochs": None, "phases": [(2, steps(instance_type="p2.xlarge"))]}, "p2.xlarge"),
    ],
)
def test_errors_name_the_profile_and_a_remedy(profiles: Any, options: dict[str, Any], remedy: str) -> None:
    with pytest.raises(VmselectError) as error:
        vs.estimate(profiles, **{"epochs": 5, **options})
    assert "p3.2xlarge" in str(error.value)
    assert remedy in str(error.value)


WRONG: tuple[Any, ...] = (
    None, "", "7", b"7", -1, 0, 0.5, True, float("nan"), 10**400, -(10**400), [], {}, object(), (1, 2),
)  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=lambda value: str(value)[:12])
def test_arguments_raise_own_errors_only(wrong: Any) -> None:
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


def test_a_workload_equals_its_fields() -> None:
    profile = steps(examples=6_400, validation_examples=640)
    fields = {"examples": 3_200.0, "validation_examples": np.int64(1_280), "batch_size": 64.0}
    assert vs.estimate(profile, epochs=5, workload=vs.Workload(**fields)) == vs.estimate(profile, epochs=5, **fields)  # type: ignore[arg-type]
    rarely = vs.estimate(profile, epochs=6, workload=vs.Workload(validation_freq=3))
    assert rarely.terms["later_validations"] == pytest.approx(0.5)
    with pytest.raises(ArgumentError, match="examples=99"):
        vs.estimate(profile, epochs=5, examples=99, workload=vs.Workload(examples=98))


def test_unknown_methods_are_listed() -> None:
    with pytest.raises(ArgumentError, match="malta-iteration:mean-2-10"):
        vs.estimate(steps(), epochs=5, method="best")


def test_missing_profiles_and_epochs() -> None:
    with pytest.raises(ArgumentError, match="profiles"):
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


def test_another_data_set_scales_its_terms() -> None:
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
        return steps(validation_examples=640, timeline={"validations": found}, setup=setup)

    def later(profile: vs.Profile, **workload: Any) -> float:
        return vs.estimate(profile, epochs=11, workload=vs.Workload(**workload)).terms["later_validations"]

    assert later(validating(10, 10), validation_steps=1_000) == pytest.approx(10 * 100.0)
    assert later(validating(10, 10), validation_steps=20, validation_examples=640) == pytest.approx(10 * 2.0)
    assert later(validating(10, 10), validation_examples=640) == pytest.approx(10 * 1.0)
    probed, more = validating(10, 10), vs.Workload(validation_steps=1_000)
    assert vs.estimate(probed, phases=[(11, probed)], workload=more).terms["later_validations"] == pytest.approx(1_000)
    # fit(validation_steps=500) over data of ten batches: as it was measured, whatever the argument
    assert later(validating(10, 10, validation_steps=500)) == pytest.approx(10 * 1.0)
    assert later(validating(10, 10, validation_steps=500), validation_steps=500) == pytest.approx(10 * 1.0)
    assert later(validating(), validation_steps=30) == pytest.approx(10 * 0.35 * 0.1 * 30)  # assumed


def test_whole_epochs_know_their_own_validation() -> None:
    profile = epochs_only(validation_examples=500)
    assert vs.estimate(profile, epochs=5, validation_examples=500) == vs.estimate(profile, epochs=5)
    without = vs.estimate(epochs_only(validation_examples=0), epochs=5, validation_examples=0)
    assert without.seconds == pytest.approx(29.0)


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


def test_repetitions_that_disagree_have_a_finding() -> None:
    merged = vs.estimate([steps(), steps(iteration_seconds=[0.3] * 10)], epochs=10)
    assert "repetitions-disagree" in {finding.code for finding in merged.findings}
    assert merged.terms["steady_iterations"] == pytest.approx(0.2 * 999)


def test_an_estimate_prints_as_a_sentence_and_as_json() -> None:
    estimate = vs.estimate(steps(), epochs=10)
    assert str(estimate).startswith("p3.2xlarge, batch 64: 10 epochs in 1 min")
    assert estimate.to_dict()["terms"]["first_iteration"] == 2.0


def epochs_of(seconds: list[float], *, steps: int | None = None, timeline: Any = None, **setup: Any) -> Profile:
    """A profile of whole epochs that a probe recorded."""
    epochs = tuple(Epoch(epoch=number, seconds=one, steps=steps) for number, one in enumerate(seconds))
    return probed(timeline={"epochs": epochs, **(timeline or {})}, **setup).model_copy(update={"outcome": "watched"})


def test_whole_epochs_scale_with_the_examples() -> None:
    profile = epochs_of([10.0, 10.0, 10.0], examples=1_000)
    assert vs.estimate(profile, epochs=5).seconds == pytest.approx(50.0)
    assert vs.estimate(profile, epochs=5, examples=1_500, batch_size=10).seconds == pytest.approx(75.0)
    by_steps = epochs_of([10.0, 10.0, 10.0], steps=100, batch_size=10)
    assert vs.estimate(by_steps, epochs=5, steps_per_epoch=50).seconds == pytest.approx(25.0)
    with pytest.raises(EstimateError):
        vs.estimate(epochs_of([10.0, 10.0, 10.0]), epochs=5, examples=1_500, batch_size=10)


STEADY = steps(init_seconds=4.0, steps=20)


def test_a_phase_scales_its_epochs_and_nothing_that_comes_once() -> None:
    two = vs.estimate(STEADY, phases=[(2, 1.0), (3, 0.5)])
    assert two.terms == pytest.approx(
        {
            "initialization": 4.0,
            "first_iteration": 2.0,
            "steady_iterations": 199 * 0.1 + 300 * 0.05,
            "first_validation": 1.0,
            "later_validations": 0.5 + 3 * 0.25,
        }
    )
    assert (two.seconds, two.epochs) == (pytest.approx(sum(two.terms.values())), 5)
    slow = vs.estimate(STEADY, phases=[(1, 3.0)])
    assert slow.terms["first_validation"] == pytest.approx(0.5 + 3 * 0.5)  # it compiles no more slowly
    assert slow.terms["first_iteration"] == pytest.approx(1.9 + 3 * 0.1)
    assert slow.terms["steady_iterations"] == pytest.approx(99 * 0.3)


def test_half_widths_of_phases_add_in_full_and_never_shrink() -> None:
    def widths(*phases: tuple[int, float]) -> tuple[float, float]:
        found = vs.estimate(STEADY, phases=list(phases))
        return found.seconds - found.low, found.high - found.seconds

    alone = vs.estimate(STEADY, epochs=5)
    once = (alone.seconds - alone.low, alone.high - alone.seconds)
    assert widths((5, 1.0)) == pytest.approx(once)
    assert widths((5, 0.1)) == pytest.approx(once)
    assert widths((5, 2.0)) == pytest.approx([2 * width for width in once])
    assert widths((5, 1.0), (5, 2.0)) == pytest.approx([3 * width for width in once])


def test_a_phase_with_its_own_profile_compiles_again() -> None:
    other = STEADY.model_copy(update={"id": "0" * 32})
    both = vs.estimate(STEADY, phases=[(2, 1.0), (3, other)], boot_seconds=60)
    first, second = vs.estimate(STEADY, epochs=2), vs.estimate(STEADY, epochs=3)
    assert both.seconds == pytest.approx(60 + first.seconds + second.seconds - 4.0)  # the program starts once
    assert both.terms["first_iteration"] == pytest.approx(4.0)
    assert both.high - both.seconds == pytest.approx(first.high - first.seconds + second.high - second.seconds)


def test_an_epoch_of_the_dissertation_includes_validation_and_boundary() -> None:
    checks = tuple(Validation(epoch=n, seconds=s) for n, s in enumerate((2.0, 1.0, 1.0)))
    timeline = {
        "boundaries": tuple(Boundary(epoch=n, seconds=s, final=n == 2) for n, s in enumerate((0.5, 0.25, 9.0))),
        "validations": checks,
        "init_seconds": 3.0,
        "init_source": "given",
        "fit_to_first_batch_seconds": 1.0,
    }
    found = vs.estimate(epochs_of([10.0, 6.0, 8.0], timeline=timeline), epochs=4, method="malta-epoch")
    later = ((6.0 + 1.0 + 0.5) + (8.0 + 1.0 + 0.25)) / 2
    assert found.seconds == pytest.approx(3.0 + 1.0 + 12.0 + 3 * later)
    timeline["validations"] = (*checks, Validation(epoch=2, seconds=30.0))  # a final test occurs once
    tested = epochs_of([10.0, 6.0, 8.0], timeline=timeline)
    assert vs.estimate(tested, epochs=4, method="malta-epoch").seconds == pytest.approx(found.seconds + 30.0)
    given = make_epoch_profile("a", 12.0, 7.0, validation_seconds=[2.0, 1.0])
    assert vs.estimate(given, epochs=4, method="malta-epoch").seconds == pytest.approx(12.0 + 3 * 7.0)


@pytest.mark.parametrize("method", ["robust", "malta-epoch"])
def test_pauses_that_were_taken_out_of_whole_epochs_are_part_of_them(method: str) -> None:
    lengths = ((0, 3.0), (1, 0.5), (1, 1.5), (2, 2.0))
    pauses = tuple(Pause(cause="garbage collection", epoch=e, batch=0, seconds=s) for e, s in lengths)
    found = vs.estimate(epochs_of([10.0, 6.0, 6.0], timeline={"pauses": pauses}), epochs=9, method=method)
    whole = vs.estimate(epochs_of([13.0, 8.0, 8.0]), epochs=9, method=method)
    assert found.seconds == pytest.approx(whole.seconds)


def test_a_training_that_may_stop_early_has_an_upper_bound() -> None:
    plain = steps()
    early = plain.model_copy(update={"setup": plain.setup.model_copy(update={"early_stopping": 6, "epochs": 150})})
    whole, least = vs.estimate(early, epochs=150), vs.estimate(early, epochs=6)
    assert (whole.seconds, whole.high) == (vs.estimate(plain, epochs=150).seconds, vs.estimate(plain, epochs=150).high)
    assert whole.low == least.low
    assert "early-stopping" in {finding.code for finding in whole.findings}
    # Somebody who asks for fewer epochs knows how many the training takes.
    assert vs.estimate(early, epochs=20) == vs.estimate(plain, epochs=20)
