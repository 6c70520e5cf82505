"""What makes two records the same machine, the same training, repetitions, or comparable."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

import vmselect as vs
from tests.support.priced import prices
from tests.support.profiles import make_epoch_profile, make_profile
from vmselect.records import Environment, Fact, Placement, Profile, Validation, identity
from vmselect.records.identity import (
    NOT_FACTORS,
    Identity,
    check_comparable,
    check_repetitions,
    identify,
    training_key,
    work_key,
)
from vmselect.records.training import Fit

BASE = make_profile(examples=6400)


def changed(part: str | None = None, **values: Any) -> Profile:
    """Another profile of the same setup, except for ``values``."""
    if part is not None:
        values = {part: getattr(BASE, part).model_copy(update=values)}
    return BASE.model_copy(update={"id": f"{abs(hash(str(values))):032x}"[:32], **values})


def test_settings_and_identity_are_inverse() -> None:
    several = changed(factors={"nodes": 2, "image_size": 224}, environment=Environment(workers=8))
    for profile in (BASE, several):
        known = identify(profile)
        assert Identity.of_settings(known.instance_type, known.provider, known.settings) == known
    assert identify(several).settings == {"batch_size": 64, "nodes": 2, "workers": 8, "image_size": 224}


@pytest.mark.parametrize("name", sorted(NOT_FACTORS - {"nodes"}))
def test_names_of_machine_and_batch_size_are_no_factors(name: str) -> None:
    named = changed(factors={name: 7})
    assert identify(named) == identify(BASE)
    assert work_key(named, 64) == work_key(BASE, 64)
    assert identify(changed(factors={"nodes": 3})).nodes == 3


def test_the_same_computation_may_run_on_any_machine_but_not_in_another_precision() -> None:
    elsewhere = changed(placement=Placement(instance_type=Fact(value="other", source="given")))
    assert work_key(elsewhere, 64) == work_key(BASE, 64)
    assert work_key(BASE, 32) != work_key(BASE, 64)
    assert work_key(changed("environment", precision="mixed_float16"), 64) != work_key(BASE, 64)
    assert identify(elsewhere) != identify(BASE)
    assert identify(changed("setup", batch_size=32)).machine == identify(BASE).machine


def test_fits_of_a_program_are_other_trainings() -> None:
    fits = [changed(fit=Fit(process="p", number=number)) for number in (1, 2)]
    assert len({training_key(profile) for profile in (BASE, *fits)}) == 3


def test_factors_that_repeat_other_fields_make_no_other_machine_estimate() -> None:
    assert len(identity.group_repetitions([BASE, changed(factors={"batch_size": 64, "machine": "a"})])) == 1


def test_copies_of_a_profile_count_once() -> None:
    other = changed(factors={})
    assert identity.distinct([BASE, other, BASE]) == [BASE, other]
    (group,) = identity.group_repetitions([BASE, BASE, other]).values()
    assert len(group) == 2


def test_an_unknown_provider_joins_the_only_known_one() -> None:
    named = [
        changed(
            placement=Placement(instance_type=Fact(value="a", source="given"), provider=Fact(value=p, source="dmi"))
        )
        for p in ("aws", "gcp")
    ]
    assert len(identity.group_repetitions([BASE, named[0]])) == 1
    assert len(identity.group_repetitions([BASE, *named])) == 3


def test_the_order_in_which_files_are_read_changes_nothing() -> None:
    early = changed(created=datetime(2020, 1, 1, tzinfo=UTC))
    assert identity.group_repetitions([BASE, early]) == identity.group_repetitions([early, BASE])


DIFFERENT_TASKS = [
    ("model", changed("setup", model="other"), ()),
    ("number of parameters", changed("setup", parameters=5), ()),
    ("structure", changed("setup", structure="frozen"), ()),
    ("training examples", changed("setup", examples=6399, validation_examples=9), ("examples",)),
    ("validation examples", changed("setup", validation_examples=7), ("validation_examples",)),
    (
        "validations",
        changed(
            setup=BASE.setup.model_copy(update={"validation_freq": 5}),
            timeline=BASE.timeline.model_copy(update={"validations": (Validation(epoch=0, seconds=1.0),)}),
        ),
        (),
    ),
]
KNOWN = BASE.model_copy(
    update={
        "setup": BASE.setup.model_copy(update={"parameters": 4, "structure": "whole", "validation_examples": 9}),
        "timeline": BASE.timeline.model_copy(update={"validations": (Validation(epoch=0, seconds=1.0),)}),
    }
)


@pytest.mark.parametrize(("what", "other", "given"), DIFFERENT_TASKS, ids=[row[0] for row in DIFFERENT_TASKS])
def test_different_tasks_are_neither_merged_nor_compared(what: str, other: Profile, given: tuple[str, ...]) -> None:
    with pytest.raises(vs.errors.EstimateError, match=what):
        check_repetitions([KNOWN, other])
    with pytest.raises(vs.errors.RankingError, match=what):
        check_comparable([KNOWN, other])
    if given:  # the caller brings them to one size
        check_repetitions([KNOWN, other], arguments=given)
        assert check_comparable([KNOWN, other], arguments=given) == ()


@pytest.mark.parametrize(
    ("what", "first", "second"),
    [("backend", "jax", "torch"), ("precision", "float32", "mixed_float16"), ("jit", True, False)],
)
def test_other_software_is_no_repetition_and_a_warning_between_machines(what: str, first: Any, second: Any) -> None:
    pair = [changed(environment=Environment(**{what: value})) for value in (first, second)]
    with pytest.raises(vs.errors.EstimateError, match=what):
        check_repetitions(pair)
    (finding,) = check_comparable(pair)
    assert finding.code == "software-differs"
    assert what in finding.message


@pytest.mark.parametrize("name", ["steps_per_execution", "steps_per_epoch"])
def test_other_steps_are_no_repetitions(name: str) -> None:
    with pytest.raises(vs.errors.EstimateError, match=name.replace("_", " ")):
        check_repetitions([BASE, changed("setup", **{name: 101})])


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("self_tuning_input", True, False),
        ("continuous_input", False, True),
        ("saving", "best", "batches"),
        ("save_freq", 50, 5000),
    ],
)
def test_other_inputs_and_checkpoints_are_no_repetitions(name: str, first: Any, second: Any) -> None:
    one, other = changed("setup", **{name: first}), changed("setup", **{name: second})
    for pair in ([one, other], [other, one]):
        with pytest.raises(vs.errors.EstimateError, match=rf"setup\.{name}"):
            check_repetitions(pair)
    assert check_comparable([one, other]) == ()
    check_repetitions([one, BASE])


def test_trainings_that_wait_for_every_step_and_others_are_no_repetitions() -> None:
    def dispatched(how: str, **fields: Any) -> Profile:
        return changed(environment=Environment(dispatch=how, **fields))  # type: ignore[arg-type]

    threaded = dispatched("threaded", step_timing="blocks")
    with pytest.raises(vs.errors.EstimateError, match=r"\(direct, threaded\)"):
        check_repetitions([threaded, dispatched("direct", step_timing="steps")])
    assert check_comparable([threaded, dispatched("direct", step_timing="steps")]) == ()
    check_repetitions([threaded, dispatched("direct")])  # an older probe made Keras wait
    check_repetitions([threaded, BASE])


def test_profiles_before_and_after_a_change_of_the_input_are_not_merged() -> None:
    before, after = changed("setup", self_tuning_input=True), changed("setup", self_tuning_input=False)
    with pytest.raises(vs.errors.RankingError, match=r"\(False, True\)"):
        vs.rank([before, after], epochs=5, catalog=prices(("a", 1.0)))


def test_one_step_more_is_the_smaller_last_batch_and_two_are_other_data() -> None:
    without = BASE.setup.model_copy(update={"examples": None})
    assert check_comparable([changed(setup=without), changed("setup", examples=None, steps_per_epoch=101)]) == ()
    with pytest.raises(vs.errors.RankingError, match="100, 102"):
        check_comparable([changed(setup=without), changed("setup", examples=None, steps_per_epoch=102)])


def test_validations_with_other_numbers_of_steps_are_other_data() -> None:
    ten, fifty = changed("setup", validation_steps=10), changed("setup", validation_steps=50)
    with pytest.raises(vs.errors.EstimateError, match=r"\(10, 50\)"):
        check_repetitions([ten, fifty])
    elsewhere = fifty.model_copy(update={"placement": Placement(instance_type=Fact(value="b", source="given"))})
    with pytest.raises(vs.errors.RankingError, match=r"\(10, 50\)"):
        check_comparable([ten, elsewhere])
    assert check_comparable([ten, elsewhere], arguments=["validation_examples"]) == ()
    larger = changed("setup", validation_steps=5, batch_size=128)
    assert check_comparable([ten, larger]) == ()


@pytest.mark.parametrize("known", ["validation_examples", "validation_steps"])
def test_validation_freq_is_compared_without_recorded_validations(known: str) -> None:
    pair = [changed("setup", **{known: 10, "validation_freq": every}) for every in (1, 5)]
    with pytest.raises(vs.errors.RankingError, match=r"\(1, 5\)"):
        check_comparable(pair)


def test_unknown_values_agree_with_everything() -> None:
    unknown = make_profile(steps_per_epoch=None, model=None, validation_seconds=1.0)
    check_repetitions([KNOWN, unknown])
    assert check_comparable([KNOWN, unknown]) == ()


def test_a_profile_without_validation_among_others_is_a_warning() -> None:
    with_it, without = make_profile("b", validation_seconds=[10.0, 9.0]), make_profile("a")
    (finding,) = check_comparable([with_it, without])
    assert (finding.code, finding.severity) == ("validation-differs", "warning")
    assert "a, batch 64" in finding.message
    assert check_comparable([with_it, without], arguments=["validation_examples"]) == ()
    assert check_comparable([without, make_profile("c")]) == ()
    ranking = vs.rank([with_it, without], epochs=5, catalog=prices(("a", 1.0), ("b", 1.0)))
    assert finding in ranking.findings


def test_repetitions_of_which_only_some_validated_have_a_warning() -> None:
    with_it, without = make_profile(validation_seconds=[10.0, 9.0]), make_profile()
    both = vs.estimate([with_it, without], epochs=5)
    assert "validation-differs" in {finding.code for finding in both.findings}
    for one in (vs.estimate(with_it, epochs=5), vs.estimate([with_it, without], epochs=5, validation_examples=0)):
        assert "validation-differs" not in {finding.code for finding in one.findings}


def test_given_epochs_and_failed_trainings_need_no_validation() -> None:
    with_it = make_profile("b", validation_seconds=[10.0, 9.0])
    epochs = make_epoch_profile("a", 30.0, 20.0)
    failed = make_profile("c", outcome="out_of_memory")
    assert check_comparable([with_it, epochs, failed]) == ()


@pytest.mark.parametrize(
    ("what", "other"),
    [
        ("batch size", changed("setup", batch_size=32)),
        ("instance type", changed(placement=Placement(instance_type=Fact(value="b", source="given")))),
        ("workers", changed(environment=Environment(workers=8))),
        ("factors", changed(factors={"image_size": 224})),
    ],
)
def test_another_machine_estimate_is_no_repetition(what: str, other: Profile) -> None:
    assert len(identity.group_repetitions([BASE, other])) == 2
    with pytest.raises(vs.errors.EstimateError, match=what):
        check_repetitions([BASE, other])


def test_loops_on_a_gpu_that_were_timed_in_other_ways_are_not_merged() -> None:
    def timed(how: str | None, gpus: int = 1) -> Profile:
        return changed(environment=Environment(step_timing=how, framework_gpus=gpus), probe="loop")  # type: ignore[arg-type]

    with pytest.raises(vs.errors.EstimateError, match=r"\(blocks, steps\)"):
        check_repetitions([timed("blocks"), timed(None)])  # an older probe waited for every step
    check_repetitions([timed("blocks", gpus=0), timed(None, gpus=0)])
    check_repetitions([timed("steps"), timed(None)])
    assert check_comparable([timed("blocks"), timed(None)]) == ()


def test_the_first_epoch_with_a_validation_is_compared_unless_given() -> None:
    pair = [changed("setup", validates=True, validation_from=start) for start in (None, 9)]
    with pytest.raises(vs.errors.RankingError, match=r"\(1, 9\)"):
        check_comparable(pair)
    assert check_comparable(pair, arguments=["validation_from"]) == ()
