"""Boundaries, waits for the autotuner, smaller last batches, pauses, and checkpoints that a probe did not record."""

from __future__ import annotations

import math
from typing import Any

import pytest

import vmselect as vs
from tests.support.profiles import make_profile, probed
from vmselect.estimation import RuntimeEstimate
from vmselect.estimation.overheads import (
    Pauses,
    Saves,
    Waiting,
    _assume,
    _later_from_first,
    _scale,
    _whole_seconds,
    count_pipelines,
    expect_share,
    expect_waiting,
    find_unseen_saves,
    next_wake_up,
    split_wait,
    time_boundaries,
    time_partial_batch,
    time_pauses,
    weigh_evidence,
)
from vmselect.estimation.readings import (
    Level,
    Opening,
    Readings,
    locate,
    predict_once,
)
from vmselect.estimation.runtime import Waits
from vmselect.estimation.workload import Workload
from vmselect.records import Boundary, Pause, Step, Steps, Validation
from vmselect.records.usage import Summary, Usage

STEP = Level(0.1, 0.01, 0.02, 0.0)


def numbers(level: Level) -> list[float]:
    return [level.value, level.half_width_below, level.half_width_above, level.noise, level.stall]


def boundaries(step: float = 0.125, setup: Any = None, **seen: Any) -> Any:
    level = Level(step, 0.0, 0.0, 0.0)
    return time_boundaries(
        probed(**(setup or {})), Readings(**seen), step=level, epoch_seconds=[(10.0, 1.0)], confidence=0.9
    )


@pytest.mark.parametrize(("seconds", "shortened", "value", "once"), [(16.0, False, 16.0, 0.0), (20.0, True, 16.0, 4.0)])
def test_a_boundary_seen_once_counts_for_128_steps_at_most(
    seconds: float, shortened: bool, value: float, once: float
) -> None:
    found = boundaries(openings=[Opening(seconds, cut_short=True)])
    assert (found.shortened, found.opening.value, found.once) == (shortened, value, once)
    plain = locate([16.0], prior_spread=0.25, unseen=False).half_width_above
    assert found.opening.half_width_above == pytest.approx(math.hypot(plain, 0.3 * once))
    longer = boundaries(openings=[Opening(seconds, cut_short=True)], truncated_boundaries=True).opening.half_width_above
    assert longer == pytest.approx(math.hypot(plain, 0.3 * 16.0, 0.3 * once))


def test_only_one_end_or_wrap_up_was_seen() -> None:
    found = boundaries(first_endings=[4.0, 3.0], first_wrap_ups=[3.0, 2.0])
    assert numbers(found.ending)[:3] == [2.0, 2.0, 2.0]
    assert (found.wrap_up.value, found.wrap_up.half_width_above) == (0.0, 3.0)
    assert (found.first_ending.value, found.first_wrap_up.value) == (3.5, 2.5)
    best = boundaries(setup={"saving": "best"}, first_endings=[4.0], later_endings=[1.0] * 9).ending
    assert (best.value, best.half_width_below) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("first", "finals", "once"),
    [(5.0, [], 3.0), (0.0, [], 0.0), (0.5, [1.0], 0.0), (1.5, [1.0, 2.0, 9.0], 1.5), (5.0, [1.0], 4.0)],
)
def test_what_boundaries_cost_once(first: float, finals: list[float], once: float) -> None:
    openings = [Opening(2.0, cut_short=True)] * 2
    found = boundaries(openings=openings, first_openings=[Opening(first, cut_short=True)], finals=finals)
    assert (found.opening.value, found.once) == (2.0, pytest.approx(once))


def test_the_first_step_of_an_epoch_counts_beyond_an_ordinary_one() -> None:
    assert boundaries(openings=[Opening(1.0, 0.5, 2, cut_short=True)]).opening.value == 1.25
    assert boundaries(openings=[Opening(0.0, 0.1, 2, cut_short=True)]).opening.value == 0.0


@pytest.mark.parametrize(
    ("machine", "seen", "each", "once"),
    [
        ({"backend": "tensorflow"}, {}, [0.0625, 0.0375, 0.0375], [0.0, 0.0, 0.0]),
        ({"backend": "jax"}, {}, [0.0625, 0.0375, 0.0375], [2.6, 1.3, 1.3]),
        ({"backend": "torch", "jit": True}, {}, [0.0625, 0.0375, 0.0375], [2.6, 1.3, 1.3]),
        ({"backend": "jax"}, {"first_partials": [1.0625]}, [0.0625, 0.0375, 0.0375], None),
    ],
)
def test_a_smaller_last_batch_that_was_not_seen_again(machine: Any, seen: Any, each: Any, once: Any) -> None:
    found = time_partial_batch(
        probed(environment=machine), Readings(first_units=4, **seen), Workload(batch_size=32, partial_batch=8),
        step=STEP, first=Level(3.0, 0.0, 0.0, 0.0), confidence=0.9,
    )  # fmt: skip
    assert numbers(found.each)[:3] == pytest.approx(each)
    assert numbers(found.once)[:3] == pytest.approx(once or numbers(predict_once([1.0]))[:3])


def test_a_smaller_last_batch_of_an_unknown_share_takes_a_whole_step() -> None:
    found = time_partial_batch(
        probed(), Readings(), Workload(partial_batch=8), step=STEP, first=STEP, confidence=0.9
    )  # fmt: skip
    assert numbers(found.each)[:3] == [0.1, 0.0, 0.0]


@pytest.mark.parametrize(
    ("first", "saving", "now_and_then"),
    [(10.0, None, 0.0), (10.5, None, 5.25), (10.5, "best", 0.0)],
)
def test_a_first_end_ten_times_as_long_as_any_later_may_be_a_save(
    first: float, saving: str | None, now_and_then: float
) -> None:
    seen = Readings(first_endings=[first], later_endings=[1.0, 0.5])
    found = find_unseen_saves(probed(saving=saving), seen, step=STEP, steps_per_epoch=50.0)
    assert found == Saves(longest=first, now_and_then=now_and_then, first_ending=first, later_ending=1.0)
    alone = find_unseen_saves(probed(), Readings(first_endings=[first]), step=STEP, steps_per_epoch=50.0)
    assert alone == Saves(longest=first, first_ending=first)


@pytest.mark.parametrize(("steps", "per_epoch"), [(39, 2.5), (40, 0.0), (41, 0.0)])
def test_saves_that_were_seen_twice_are_in_the_steps(steps: int, per_epoch: float) -> None:
    timeline = {"steps": Steps.of([Step(0, steps - 1, 1.0, steps, "steady")])}
    profile = probed(timeline=timeline, saving="batches", save_freq=20)
    stood_out = Level(0.1, 0.0, 0.0, 0.0, stall=0.7)
    found = find_unseen_saves(profile, Readings(), step=stood_out, steps_per_epoch=50.0)
    assert found == Saves(by_batches=per_epoch > 0, per_epoch=per_epoch, longest=0.7)
    assert find_unseen_saves(profile, Readings(unit="epoch"), step=stood_out, steps_per_epoch=50.0) == Saves()
    assert Saves(per_epoch=2.5, longest=4.0, now_and_then=1.0).seconds == 11.0


@pytest.mark.parametrize(
    ("ending", "saving", "longest"), [(0.1, "batches", 0.0), (0.11, "batches", 0.11), (0.1, "epochs", 0.1)]
)
def test_what_takes_no_longer_than_a_step_is_no_save_by_batches(ending: float, saving: str, longest: float) -> None:
    seen = Readings(first_endings=[ending], later_endings=[ending])
    found = find_unseen_saves(probed(saving=saving, save_freq=20), seen, step=STEP, steps_per_epoch=50.0)
    expected = Saves(True, 2.5, longest, first_ending=ending, later_ending=ending)
    assert found == expected


def with_endings(*seconds: float, **setup: Any) -> RuntimeEstimate:
    """An estimate of 20 epochs of 30 steps from 21 steps and these ends of epochs."""
    ends = tuple(
        Boundary(epoch=number, seconds=one, before_validation_seconds=0.0, epoch_end_seconds=one)
        for number, one in enumerate(seconds)
    )
    profile = make_profile(steps_per_epoch=30, outcome="stopped", setup=setup, timeline={"boundaries": ends})
    return vs.estimate(profile, epochs=20)


def find_saves(found: RuntimeEstimate) -> list[str]:
    return [finding.code for finding in found.findings if finding.code.startswith("saves-")]


def test_the_high_end_allows_for_saves_by_batches() -> None:
    plain, found = (with_endings(2.4, 1.0, saving="epochs", save_freq=freq) for freq in (None, 15))
    assert (found.seconds, found.low) == (plain.seconds, plain.low)
    wider = (found.high - found.seconds) ** 2 - (plain.high - plain.seconds) ** 2
    assert wider == pytest.approx((20 * 2 * 2.4) ** 2)  # two saves an epoch, as long as the first one
    assert find_saves(found) == ["saves-by-batches"]


def test_the_high_end_allows_for_saves_every_few_epochs() -> None:
    plain, found = with_endings(2.4, 0.2, saving="epochs"), with_endings(2.4, 0.2)
    assert (found.seconds, found.low) == (plain.seconds, plain.low)
    wider = (found.high - found.seconds) ** 2 - (plain.high - plain.seconds) ** 2
    assert wider == pytest.approx((20 * 2.4 / 2) ** 2)  # after every second epoch
    assert find_saves(plain) == []
    assert with_endings(2.4, 0.2, saving="best").high == pytest.approx(plain.high)  # Keras' first save is slow once
    assert find_saves(found) == ["saves-now-and-then"]


def pause(seconds: float, *, epoch: int = 0, batch: int = 1, whole_heap: bool | None = None) -> Pause:
    return Pause(cause="garbage collection", epoch=epoch, batch=batch, seconds=seconds, whole_heap=whole_heap)


@pytest.mark.parametrize(
    ("runs", "each", "once"),
    [
        ([[pause(2.0)]], [0.0, 0.0, 0.03], 2.0),
        ([[pause(2.0), pause(1.0)]], [0.15, 0.15 / math.sqrt(2), 0.15 / math.sqrt(2)], 0.0),  # twice is not more
        ([[pause(2.5), pause(1.0)]], [0.05, 0.05, math.hypot(0.05, 0.0375)], 2.5),
        ([[pause(4.0, batch=0, whole_heap=False), pause(1.0, whole_heap=False)]], [0.05, 0.05, 0.05], 4.0),
        ([[pause(4.0, whole_heap=True), pause(1.0, whole_heap=False)], []], [0.05, 0.05, math.hypot(0.05, 0.06)], 2.0),
        ([[pause(1.0, epoch=1, batch=0, whole_heap=False)]], [0.05, 0.05, 0.05], 0.0),
    ],
)
def test_pauses_by_how_they_recur(runs: Any, each: list[float], once: float) -> None:
    found = time_pauses(Readings(pauses=runs, steps_seen=20))
    assert [found.each.value, found.each.half_width_below, found.each.half_width_above] == pytest.approx(each)
    assert found.once == pytest.approx(once)
    assert time_pauses(Readings(pauses=runs)) == Pauses()


# Validation


def check(*batches: float, more: float = 0.0, truncated: bool = False, of: int | None = None, epoch: int = 0) -> Any:
    """A validation of so many seconds a batch, and ``more`` around them."""
    count = len(batches) if of is None else of
    seconds = math.fsum(batches) + more
    return Validation(epoch=epoch, seconds=seconds, batches=count, batch_seconds=batches, truncated=truncated)


@pytest.mark.parametrize(
    ("validation", "batches", "covers", "seconds"),
    [
        (check(1.0, 0.1, 0.1, 0.1, 5.1, more=0.5), None, 1, 0.5 + 1.0 + 4 * 0.1),  # without its stall
        (check(1.0, 0.1, 0.1, 5.1, more=0.5), None, 1, 6.8),  # too few
        (check(1.0, 0.1, 0.1, 0.1, 5.1, of=9), None, 2, 1.0 + 7 * 0.05),
        (check(1.0, 0.1, 0.1, 0.1, 5.1, of=10), None, 2, 1.0 + 8 * 0.05),
        (check(1.0, 0.1, 0.1, 0.1, 5.1, of=11), None, 2, 6.4),  # one reading was not kept
        (check(1.0, 0.2, more=0.5, truncated=True), 10, 1, 0.5 + 1.0 + 9 * 0.2),
        (check(0.5, more=0.25, truncated=True), 10, 1, 0.25 + 0.5 + 9 * 0.5),
        (check(1.0, 0.2, truncated=True), None, 1, 1.2),
        (check(1.0, truncated=True), 3, 4, 1.0),  # one reading covers more than there are
        (check(more=0.75, truncated=True), 10, 1, 0.75),
        (check(1.0, 0.2, more=-0.2, truncated=True), 4, 1, 1.0 + 3 * 0.2),
    ],
)
def test_a_validation_had_it_run_to_its_end(validation: Any, batches: Any, covers: int, seconds: float) -> None:
    assert _whole_seconds(validation, batches, covers) == pytest.approx(seconds)


def test_later_validations_from_the_first() -> None:
    profile = probed(steps_per_execution=2)
    later, finding = _later_from_first(profile, [[check(3.0, 0.5, 0.5)]], 10, 0.9)
    each = locate([0.5, 0.5])
    assert numbers(later) == pytest.approx([2.5, each.half_width_below * 5, each.half_width_above * 5, 0.0, 0.0])
    assert (finding.code, finding.severity) == ("one-validation", "info")
    later, finding = _later_from_first(profile, [[check(more=3.0)], [check(more=4.0), check(more=1.0)]], 10, 0.9)
    assert numbers(later) == pytest.approx([4.0, 2.8, 0.8, 0.0, 0.0])


@pytest.mark.parametrize(
    ("given", "compiling", "first", "later", "code"),
    [
        ({"validation_steps": 20}, 3.0, [3.7, 0.42, 0.7], [0.7, 0.42, 0.7], "validation-assumed"),
        ({"validation_examples": 80, "batch_size": 32}, 0.0, [0.0875, 0.0525, 0.0875], None, "validation-assumed"),
        ({}, 3.0, [3.0, 0.0, 3.0], [0.0, 0.0, 0.0], "validation-unknown"),
        ({}, 0.0, [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], None),
        ({"validation_examples": 80}, 0.0, [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], None),
    ],
)
def test_an_unmeasured_validation_is_assumed(given: Any, compiling: float, first: Any, later: Any, code: Any) -> None:
    seen = Readings(first_validations=[[check(compiling, truncated=True)]] if compiling else [])
    found = _assume(probed(), seen, Workload(**given), STEP)
    assert numbers(found.first)[:3] == pytest.approx(first)
    assert numbers(found.later)[:3] == pytest.approx(first if later is None else later)
    assert [finding.code for finding in found.findings] == ([code] if code else [])


@pytest.mark.parametrize(
    ("setup", "given", "scale"),
    [
        ({"validation_examples": 80}, {"validation_examples": 200}, 2.5),
        ({"validation_examples": 80}, {"validation_examples": 80}, 1.0),
        ({"validation_examples": 80}, {}, 1.0),
        ({"validation_steps": 4}, {"validation_steps": 10}, 2.5),
        ({"validation_steps": 4}, {"validation_steps": 4}, 1.0),
        ({"validation_examples": 80, "batch_size": 32}, {"validation_steps": 6}, 2.0),  # three batches
        ({"validation_steps": 4}, {"validation_examples": 65, "batch_size": 32}, 0.75),
    ],
)
def test_validations_scale_with_their_size(setup: Any, given: Any, scale: float) -> None:
    assert _scale(probed(**setup), Readings(), Workload(**given)) == scale


@pytest.mark.parametrize(
    ("waited", "cut_short", "weights"),
    [
        (None, False, (0.0, 0.0, 0.0, 0.0)),
        (None, True, (0.0, 0.0, 0.0, 0.0)),
        (0, True, (0.0, 0.0, 0.0, 0.0)),
        (0, False, (0.0, 1.0, 0.0, 0.0)),
        (1, True, (2.0, 0.0, 0.0, 1.0)),
        (1, False, (1.0, 0.0, 0.0, 1.0)),
        (3, False, (1.0, 0.0, 2.0, 0.0)),
        (4, False, (1.0, 0.0, 2.0, 0.0)),  # one may just have missed a wake-up
    ],
)
def test_weights_of_a_boundary(waited: int | None, cut_short: bool, weights: tuple[float, ...]) -> None:
    assert weigh_evidence(waited, cut_short=cut_short, pipelines=3) == weights


def test_a_single_pipeline_gives_no_evidence_about_further_ones() -> None:
    assert weigh_evidence(1, cut_short=False) == (1.0, 0.0, 0.0, 0.0)


def test_pipelines_that_were_seen_to_wait_one_after_the_other_are_expected_to() -> None:
    mirrored = probed(
        environment={"replicas": 2, "usable_cores": 2}, timeline={"cpu_seconds": 2.0, "wall_seconds": 1.0}
    )

    def expect(*waited: int) -> Waiting:
        evidence = [weigh_evidence(number, cut_short=False, pipelines=3) for number in waited]
        return expect_waiting(mirrored, evidence, [(1.0, 1.0)], confidence=0.9)

    unknown, once, often = expect(), expect(1, 1), expect(3, 3)
    assert once.each.value < unknown.each.value < often.each.value
    # All three pipelines wait after an epoch of a second: until 5.11 s.
    assert unknown.each.value + unknown.each.half_width_above > 0.9 * 3.0
    assert often.each.value == pytest.approx(0.95 * 4.0, rel=0.3)


@pytest.mark.parametrize(("replicas", "pipelines"), [(1, 1), (2, 3), (3, 3), (8, 3)])
def test_pipelines_of_so_many_devices(replicas: int, pipelines: int) -> None:
    assert count_pipelines(probed(environment={"replicas": replicas})) == pipelines


@pytest.mark.parametrize(
    ("cpu", "wall", "cores", "sampled", "crowded"),
    [
        (5.0, 10.0, 1, None, 0.5),
        (10.0, 10.0, 2, None, 0.0),
        (15.0, 10.0, 2, None, 0.5),
        (20.0, 10.0, 2, None, 1.0),
        (90.0, 10.0, 2, None, 1.0),
        (4.0, 10.0, 4, None, 0.0),
        (None, 10.0, 4, None, 1.0),
        (4.0, 10.0, None, None, 1.0),
        (4.0, 10.0, None, 0.25, 0.25),
        (4.0, 10.0, 4, 0.35, 0.0),
        (4.0, 10.0, 4, 0.8125, 0.25),
        (4.0, 10.0, 4, 1.7, 1.0),
        (4.0, 10.0, 4, 0.0, 0.0),
    ],
)
def test_how_often_a_processor_without_a_free_core_waits(
    cpu: Any, wall: float, cores: Any, sampled: Any, crowded: float
) -> None:
    usage = None
    if sampled is not None:
        one = Summary(count=3, seconds=1.0, mean=sampled, maximum=2.0, p50=0.0, p95=0.0)
        usage = Usage(interval_seconds=1.0, phases={"steady_steps": {"usable_cpu_share": one}})
    timeline = {"cpu_seconds": cpu, "wall_seconds": wall}
    profile = probed(timeline=timeline, environment={"usable_cores": cores}, usage=usage)
    assert expect_share(profile) == pytest.approx(max(0.02, 0.9 * crowded**0.65))


def test_what_waits_take_in_all_and_cost() -> None:
    waits = Waits(mean_seconds=36.0, longest_seconds=60.0, often=0.6, epoch_seconds=300.0)
    whole = waits.describe("a", 100, 2.5)
    assert (whole.code, whole.severity) == ("waits-between-epochs", "warning")
    assert all(text in whole.message for text in ("100 epochs", "1 h", "$2.50"))
    assert "$" not in waits.describe("a", 100, None).message
    assert "epochs the waits" not in waits.describe("a", None, None).message
    assert waits.are_long
    assert waits.scaled(2.0) == Waits(72.0, 120.0, 0.6, 600.0)


@pytest.mark.parametrize(
    ("lost", "pipeline", "wait", "waited"),
    [
        (0.0, 1.0, 0.0, 0),
        (0.13, 1.0, 0.0, 0),
        (0.14, 1.0, 0.14, 1),  # the pipeline may have run for longer than a second
        (0.26, 1.0, 0.26, 1),
        (0.50, 1.0, 0.27, 1),  # the rest is other work
        (0.57, 1.39, 0.0, 0),
        (0.60, 1.39, 0.0, None),  # more than half of the wait, but too short for a pipeline of about 1.39 s
        (0.87, 1.39, 0.0, None),
        (0.89, 1.39, 0.89, 1),
        (1.01, 1.39, 1.01, 1),  # not a boundary and a wait
    ],
)
def test_what_of_a_boundary_was_a_wait(lost: float, pipeline: float, wait: float, waited: int | None) -> None:
    # Wake-ups are at 1.27 s and 2.55 s.
    assert split_wait(lost, pipeline) == (pytest.approx(wait), waited)


def test_where_the_wait_is_unknown_or_too_short_to_tell() -> None:
    assert split_wait(5.0, None) == (0.0, None)
    assert split_wait(0.05, 1.22) == (0.0, None)  # 0.05 s to the next wake-up
    assert split_wait(0.08, 1.19)[1] == 1


def test_a_pipeline_may_just_have_missed_a_wake_up() -> None:
    assert split_wait(2.7, 2.3) == (2.7, 2)  # until 5.11 s instead of 2.55 s
    assert split_wait(1.3, 2.3)[1] == 1  # until 2.55 s, and a second of other work
    assert split_wait(2.0, 2.3) == (0.0, None)  # too long for the one, too short for the other
    assert split_wait(2.7, 1.6) == (pytest.approx(0.95), 1)  # too far from 2.55 s to have missed it


@pytest.mark.parametrize("seconds", [2.3, 2.5, 2.7])
def test_close_to_a_wake_up_the_interval_of_the_wait_contains_both_sides(seconds: float) -> None:
    """Every epoch is a little shorter than predicted, or a little longer: it waits for one wake-up or for the next."""
    busy = make_profile(environment={"usable_cores": 1})
    waiting = expect_waiting(busy, [weigh_evidence(1, cut_short=False)] * 5, [(seconds, 1.0)], confidence=0.9)
    low, high = waiting.each.value - waiting.each.half_width_below, waiting.each.value + waiting.each.half_width_above
    sides = [next_wake_up(length) - length for length in (2.5, 2.6)]
    assert low <= sides[0] < 0.1
    assert high >= 0.95 * sides[1] > 2.3
    assert high <= waiting.longest


def test_away_from_a_wake_up_nothing_is_added_for_another_side() -> None:
    busy = make_profile(environment={"usable_cores": 1})
    waiting = expect_waiting(busy, [weigh_evidence(1, cut_short=False)] * 5, [(1.8, 1.0)], confidence=0.9)
    assert waiting.each.value + waiting.each.half_width_above < next_wake_up(1.8) - 0.8 * 1.8
