"""Repetitions, comparable, or a mistake: one table decides, and every fact of it is tried."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

import vmselect as vs
from vmselect import grouping
from vmselect.records import Environment, Fact, Placement, Profile, Validation

BASE = Profile.from_times(
    instance_type="a", batch_size=64, steps_per_epoch=100, iteration_seconds=[0.1] * 4, model="net", examples=6400
)


def changed(part: str | None = None, **values: Any) -> Profile:
    """Another measurement of the same thing, but for ``values``."""
    if part is not None:
        values = {part: getattr(BASE, part).model_copy(update=values)}
    return BASE.model_copy(update={"id": f"{abs(hash(str(values))):032x}"[:32], **values})


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
        grouping.check_repetitions([KNOWN, other])
    with pytest.raises(vs.errors.RankingError, match=what):
        grouping.check_comparable([KNOWN, other])
    if given:  # the caller brings them to one size
        grouping.check_repetitions([KNOWN, other], given=given)
        assert grouping.check_comparable([KNOWN, other], given=given) == ()


@pytest.mark.parametrize(
    ("what", "first", "second"),
    [("backend", "jax", "torch"), ("precision", "float32", "mixed_float16"), ("jit", True, False)],
)
def test_other_software_is_no_repetition_and_a_doubt_between_machines(what: str, first: Any, second: Any) -> None:
    pair = [changed(environment=Environment(**{what: value})) for value in (first, second)]
    with pytest.raises(vs.errors.EstimateError, match=what):
        grouping.check_repetitions(pair)
    (finding,) = grouping.check_comparable(pair)
    assert finding.code == "software-differs"
    assert what in finding.message


@pytest.mark.parametrize("name", ["steps_per_execution", "steps_per_epoch"])
def test_other_ways_to_run_are_no_repetitions(name: str) -> None:
    with pytest.raises(vs.errors.EstimateError, match=name.replace("_", " ")):
        grouping.check_repetitions([BASE, changed("setup", **{name: 101})])


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("self_tuning_input", True, False),
        ("continuous_input", False, True),
        ("saving", "best", "batches"),
        ("save_freq", 50, 5000),
    ],
)
def test_other_inputs_and_savings_are_no_repetitions_and_say_which_files_to_leave_out(
    name: str, first: Any, second: Any
) -> None:
    one, other = changed("setup", **{name: first}), changed("setup", **{name: second})
    for pair in ([one, other], [other, one]):
        with pytest.raises(vs.errors.EstimateError, match=rf"Leave out the files .*setup\.{name} tells"):
            grouping.check_repetitions(pair)
    assert grouping.check_comparable([one, other]) == ()
    grouping.check_repetitions([one, BASE])


def test_an_input_that_no_longer_tunes_itself_is_not_merged_with_what_was_probed_before() -> None:
    before = changed("setup", self_tuning_input=True)
    after = changed("setup", self_tuning_input=False).model_copy(update={"created": datetime(2999, 1, 1, tzinfo=UTC)})
    prices = [{"provider": "aws", "instance_type": "a", "region": "r", "usd_per_hour": 1.0}]
    with pytest.raises(vs.errors.RankingError, match=r"differ in the tuning of the input by itself \(False, True\)"):
        vs.rank([before, after], epochs=5, catalog=vs.Catalog.embedded().with_offers(prices))


def test_one_step_more_is_the_smaller_last_batch_and_many_are_other_data() -> None:
    without = BASE.setup.model_copy(update={"examples": None})
    assert (
        grouping.check_comparable([changed(setup=without), changed("setup", examples=None, steps_per_epoch=101)]) == ()
    )
    with pytest.raises(vs.errors.RankingError, match="100, 102"):
        grouping.check_comparable([changed(setup=without), changed("setup", examples=None, steps_per_epoch=102)])


def test_validations_cut_to_other_numbers_of_steps_are_other_work() -> None:
    """As ``fit(validation_steps=...)`` cuts them, or where a data set does not know its size."""
    ten, fifty = changed("setup", validation_steps=10), changed("setup", validation_steps=50)
    with pytest.raises(vs.errors.EstimateError, match=r"validation steps \(10, 50\)"):
        grouping.check_repetitions([ten, fifty])
    elsewhere = fifty.model_copy(update={"placement": Placement(instance_type=Fact(value="b", source="given"))})
    with pytest.raises(vs.errors.RankingError, match=r"validation steps \(10, 50\), so they did not validate on"):
        grouping.check_comparable([ten, elsewhere])
    assert grouping.check_comparable([ten, elsewhere], given=["validation_examples"]) == ()
    larger = changed("setup", validation_steps=5, batch_size=128)
    assert grouping.check_comparable([ten, larger]) == ()


@pytest.mark.parametrize("known", ["validation_examples", "validation_steps"])
def test_how_often_is_compared_also_where_no_validation_was_reached(known: str) -> None:
    pair = [changed("setup", **{known: 10, "validation_freq": every}) for every in (1, 5)]
    with pytest.raises(vs.errors.RankingError, match=r"epochs between validations \(1, 5\)"):
        grouping.check_comparable(pair)


def test_what_is_unknown_agrees_with_everything() -> None:
    unknown = Profile.from_times(instance_type="a", batch_size=64, iteration_seconds=0.1, validation_seconds=1.0)
    grouping.check_repetitions([KNOWN, unknown])
    assert grouping.check_comparable([KNOWN, unknown]) == ()


def times(machine: str, **given: Any) -> Profile:
    return Profile.from_times(
        instance_type=machine, batch_size=64, **({"steps_per_epoch": 100, "iteration_seconds": [0.1] * 4} | given)
    )


def test_a_time_without_validation_beside_one_with_it_is_a_doubt() -> None:
    with_it, without = times("b", validation_seconds=[10.0, 9.0]), times("a")
    (finding,) = grouping.check_comparable([with_it, without])
    assert (finding.code, finding.severity) == ("validation-differs", "warning")
    assert "(a, batch 64)" in finding.message
    assert grouping.check_comparable([with_it, without], given=["validation_examples"]) == ()
    assert grouping.check_comparable([without, times("c")]) == ()
    prices = [{"provider": "p", "instance_type": name, "region": "r", "usd_per_hour": 1.0} for name in "ab"]
    ranking = vs.rank([with_it, without], epochs=5, catalog=vs.Catalog.embedded().with_offers(prices))
    assert finding in ranking.findings


def test_repetitions_of_which_only_some_validated_are_not_merged_in_silence() -> None:
    with_it, without = times("a", validation_seconds=[10.0, 9.0]), times("a")
    both = vs.estimate([with_it, without], epochs=5)
    assert "validation-differs" in {finding.code for finding in both.findings}
    for one in (vs.estimate(with_it, epochs=5), vs.estimate([with_it, without], epochs=5, validation_examples=0)):
        assert "validation-differs" not in {finding.code for finding in one.findings}


def test_whole_epochs_that_were_given_and_machines_without_memory_miss_no_validation() -> None:
    with_it = times("b", validation_seconds=[10.0, 9.0])
    epochs = times("a", iteration_seconds=None, first_epoch_seconds=30.0, later_epoch_seconds=[20.0])
    failed = times("c").model_copy(update={"outcome": "out_of_memory"})
    assert grouping.check_comparable([with_it, epochs, failed]) == ()


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
    assert len(grouping.group_repetitions([BASE, other])) == 2
    with pytest.raises(vs.errors.EstimateError, match=what):
        grouping.check_repetitions([BASE, other])


def test_factors_that_the_record_tells_itself_make_no_other_machine_estimate() -> None:
    assert len(grouping.group_repetitions([BASE, changed(factors={"batch_size": 64, "machine": "a"})])) == 1


def test_a_measurement_counts_once_however_often_it_is_given() -> None:
    other = changed(factors={})
    assert grouping.distinct([BASE, other, BASE]) == [BASE, other]
    (group,) = grouping.group_repetitions([BASE, BASE, other]).values()
    assert len(group) == 2


def test_an_unnamed_provider_joins_the_only_one_that_is_named() -> None:
    named = [
        changed(
            placement=Placement(instance_type=Fact(value="a", source="given"), provider=Fact(value=p, source="dmi"))
        )
        for p in ("aws", "gcp")
    ]
    assert len(grouping.group_repetitions([BASE, named[0]])) == 1
    assert len(grouping.group_repetitions([BASE, *named])) == 3


def test_the_order_in_which_files_are_read_changes_nothing() -> None:
    early = changed(created=datetime(2020, 1, 1, tzinfo=UTC))
    assert grouping.group_repetitions([BASE, early]) == grouping.group_repetitions([early, BASE])
