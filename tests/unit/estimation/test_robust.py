"""The robust method on profiles with known times."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from typing import Any

import pytest

import vmselect as vs
from tests.support.priced import prices
from tests.support.profiles import make_epoch_profile, make_truncated_profile
from vmselect.errors import EstimateError
from vmselect.estimation import RuntimeEstimate, fit_runtime
from vmselect.estimation.overheads import (
    split_wait,
)
from vmselect.records import Boundary, Epoch, Profile, Validation
from vmselect.units import format_seconds, format_usd

STEP = 0.1


def make(
    epochs: Sequence[Sequence[float]],
    *,
    init: float = 2.0,
    boundary: float = 0.0,
    validations: Sequence[float | Validation] = (),
    truncated: bool = True,
    backend: str = "tensorflow",
    **changes: Any,
) -> Profile:
    """A profile of truncated epochs: an opening step each, then the given steady readings."""
    timeline = {
        "validations": tuple(
            one if isinstance(one, Validation) else Validation(epoch=n, seconds=one)
            for n, one in enumerate(validations)
        ),
        "boundaries": tuple(
            Boundary(epoch=n, seconds=boundary, truncated=truncated) for n in range(len(epochs) - 1) if boundary
        ),
    }
    shape = {name: changes.pop(name) for name in ("first", "partials", "steps_per_epoch") if name in changes}
    return make_truncated_profile(
        epochs, complete=not truncated, init_seconds=init, environment={"backend": backend}, timeline=timeline,
        setup={"batch_size": 32, "partial_batch": 0, **changes}, **shape,
    )  # fmt: skip


def with_timeline(profile: Profile, **fields: Any) -> Profile:
    return profile.model_copy(update={"timeline": profile.timeline.model_copy(update=fields)})


def codes(estimate: RuntimeEstimate) -> set[str]:
    return {finding.code for finding in estimate.findings}


QUIET = [[STEP] * 20, [STEP] * 20]


def test_every_term_counts_as_often_as_it_occurs() -> None:
    profile = make(QUIET, boundary=0.3, validations=[1.0, 0.4])
    estimate = vs.estimate(profile, epochs=10)
    assert estimate.terms == pytest.approx(
        {
            "initialization": 2.0,
            "first_iteration": 3.0,
            "steady_iterations": 999 * STEP,
            "first_validation": 1.0,
            "later_validations": 9 * 0.4,
            "epoch_boundaries": 9 * 0.3,
        }
    )
    assert estimate.seconds == pytest.approx(sum(estimate.terms.values()))


@pytest.mark.parametrize("place", [(0, 3), (0, 12), (1, 0), (1, 19)])
def test_a_lone_stall_changes_the_total_by_less_than_a_percent(place: tuple[int, int]) -> None:
    epochs = [list(readings) for readings in QUIET]
    epochs[place[0]][place[1]] += 10 * STEP
    calm, stalled = (vs.estimate(make(some), epochs=30) for some in (QUIET, epochs))
    assert stalled.seconds == pytest.approx(calm.seconds, rel=0.01)
    assert stalled.high > calm.high, "a stall that may recur belongs in the high end"
    assert "lone-stall" in codes(stalled)


def test_random_slow_steps_leave_no_bias_and_the_interval_holds() -> None:
    """3x in 5 % of all steps: a median would be 10 % low. 400 seeds, so that 3 % of bias could not hide."""
    errors, held = [], 0
    for seed in range(400):
        rng = random.Random(seed)

        def draw(count: int, rng: random.Random = rng) -> list[float]:
            return [STEP * (3 if rng.random() < 0.05 else 1) * rng.uniform(0.99, 1.01) for _ in range(count)]

        truth = 5.0 + sum(draw(8 * 50 - 1))
        estimate = vs.estimate(make([draw(20), draw(20)], steps_per_epoch=50), epochs=8)
        errors.append(estimate.seconds / truth - 1)
        held += estimate.low <= truth <= estimate.high
    assert abs(statistics.fmean(errors)) < 0.015
    assert held / 400 >= 0.88


def test_a_ramp_of_warm_up_steps_is_paid_once() -> None:
    ramp = [STEP * factor for factor in (8.0, 5.0, 3.0, 2.0)]
    profile = make([[*ramp, *[STEP] * 16], [STEP] * 20])
    seconds = vs.estimate(profile, epochs=10).seconds
    assert seconds == pytest.approx(2.0 + 3.0 + sum(ramp) + (999 - 4) * STEP)


def test_partial_batch_with_a_recompile_is_paid_once_and_then_is_short() -> None:
    profile = make(
        [[STEP] * 18, [STEP] * 18], steps_per_epoch=20, partials=[2.5, 0.05], partial_batch=16, truncated=False
    )
    terms = vs.estimate(profile, epochs=10).terms
    assert terms["partial_batch"] == pytest.approx((2.5 - 0.05) + 10 * 0.05)
    assert terms["steady_iterations"] == pytest.approx(STEP * (19 * 10 - 1))


def test_steps_per_execution_is_counted_in_steps() -> None:
    plain = make(QUIET)
    steps = plain.timeline.steps
    packed = steps.model_copy(
        update={"covers": (5,) * len(steps), "seconds": tuple(5 * s for s in steps.seconds), "steps": 5 * len(steps)}
    )
    setup = plain.setup.model_copy(update={"steps_per_execution": 5})
    profile = with_timeline(plain, steps=packed).model_copy(update={"setup": setup})
    # The first reading covers five steps now, and lasts five times as long.
    assert vs.estimate(profile, epochs=10).seconds == pytest.approx(2.0 + 15.0 + 995 * STEP)


def test_validations_of_one_epoch_add_up_and_a_test_at_the_end_comes_once() -> None:
    """As in a loop that looks at its training data and at its test data after each epoch."""
    passes = [Validation(epoch=n, seconds=s) for n, s in ((0, 8.0), (0, 2.5), (1, 7.0), (1, 2.0))]
    terms = vs.estimate(make(QUIET, validations=passes), epochs=10).terms
    assert (terms["first_validation"], terms["later_validations"]) == pytest.approx((10.5, 9 * 9.0))
    terms = vs.estimate(make(QUIET, validations=[*passes, Validation(epoch=1, seconds=5.0)]), epochs=10).terms
    assert (terms["first_validation"], terms["later_validations"]) == pytest.approx((15.5, 9 * 9.0))
    one_epoch = vs.estimate(make(QUIET, validations=passes[:2]), epochs=10)
    assert one_epoch.terms["later_validations"] == pytest.approx(9 * 10.5)
    assert "one-validation" in codes(one_epoch)
    equation = vs.estimate(make(QUIET, validations=passes), epochs=10, method="malta-iteration").terms
    assert (equation["first_validation"], equation["later_validations"]) == pytest.approx((10.5, 9 * 9.0))
    with pytest.raises(EstimateError, match="validation"):
        vs.estimate(make(QUIET, validations=passes), epochs=10, validation_examples=64)


def test_validation_every_second_epoch() -> None:
    profile = make(QUIET, validations=[1.0, 0.4], validation_freq=2)
    model = fit_runtime(profile)
    assert [round(model.seconds(n) - 2 - 3 - (100 * n - 1) * STEP, 6) for n in (1, 2, 3, 4, 7)] == [0, 1, 1, 1.4, 1.8]


@pytest.mark.parametrize(("readings", "assumed"), [(1, True), (2, False), (3, False)])
def test_two_batches_of_a_validation_that_was_cut_are_better_than_a_guess(readings: int, assumed: bool) -> None:
    cut = Validation(epoch=0, seconds=0.2 * readings, truncated=True, batch_seconds=(0.2,) * readings)
    found = vs.estimate(make(QUIET, validations=[cut], validation_steps=50), epochs=3)
    assert ("validation-assumed" in codes(found)) == assumed


def test_the_first_validation_counts_as_it_was() -> None:
    """On JAX its last, smaller batch compiles too: no stall, and no part of later ones."""
    first = Validation(epoch=0, seconds=3.2, batches=11, batch_seconds=(2.0, *[0.02] * 9, 1.02))
    later = Validation(epoch=1, seconds=0.22, batches=11, batch_seconds=(0.02,) * 11)
    terms = vs.estimate(make(QUIET, validations=[first, later]), epochs=11).terms
    assert terms["first_validation"] == pytest.approx(3.2)
    assert terms["later_validations"] == pytest.approx(10 * 0.22)


def boundaries_of(profile: Profile, *parts: tuple[float | None, float], epochs: int = 10) -> float:
    """The term, from boundaries of so many seconds before the validation and after it; the last is the final one."""
    boundaries = [
        Boundary(
            epoch=n,
            seconds=(before or 0.0) + after,
            before_validation_seconds=before,
            truncated=True,
            final=n == len(parts) - 1,
        )
        for n, (before, after) in enumerate(parts)
    ]
    seen = with_timeline(profile, boundaries=tuple(boundaries))
    return vs.estimate(seen, epochs=epochs).terms["epoch_boundaries"]


@pytest.mark.parametrize(
    ("epochs", "validation_freq", "parts", "expected"),
    [
        # As on JAX, which compiles there: the first is wrapped up more slowly, and the last opens no other.
        (2, 1, ((0.12, 0.3), (0.01, 0.002)), 0.12 + 9 * 0.01 + 9 * 0.3 + 0.002),
        # Those that were not watched in parts count whole.
        (2, 1, ((None, 0.3), (None, 0.002)), 9 * 0.3 + 0.002),
        (2, 1, ((0.1, 0.2), (None, 0.002)), 9 * 0.3 + 0.002),
        (3, 1, ((None, 1.0), (None, 0.3), (None, 0.002)), 1.0 + 8 * 0.3 + 0.002),
        # A callback of 0.2 s lies before the end of an epoch without validation, and after a validation.
        (4, 2, ((0.21, 0.0), (0.01, 0.2), (0.21, 0.0), (0.01, 0.2)), 0.21 + 8 * 0.21 + 0.21),
    ],
)
def test_parts_of_boundaries(epochs: int, validation_freq: int, parts: Any, expected: float) -> None:
    profile = make([[STEP] * 20] * epochs, validation_freq=validation_freq)
    assert boundaries_of(profile, *parts) == pytest.approx(expected)


def test_one_epoch_opens_no_other() -> None:
    assert boundaries_of(make(QUIET), (0.12, 0.3), (0.01, 0.002), epochs=1) == pytest.approx(0.12 + 0.002)


def waiting(*, truncated: bool = True, busy: float = 1.0, boundary: float = 0.01, **setup: Any) -> Profile:
    """Epochs of 12 s, of which a probe saw 2 s, with an input that tunes itself."""
    profile = make(
        QUIET, boundary=boundary, truncated=truncated, **{"steps_per_epoch": 120, "self_tuning_input": True, **setup}
    )
    environment = profile.environment.model_copy(update={"usable_cores": 1})
    seen = with_timeline(profile, cpu_seconds=50.0 * busy, wall_seconds=50.0)
    return seen.model_copy(update={"environment": environment})


WAIT = 20.47 - 12.0
"""How long an epoch of 12 s waits, if it does."""


def test_waits_for_the_autotuner_depend_on_the_cpu_load() -> None:
    without = vs.estimate(waiting(self_tuning_input=False), epochs=100)
    share = {}
    for busy in (0.1, 0.5, 1.0):
        estimate = vs.estimate(waiting(busy=busy), epochs=100)
        share[busy] = (estimate.seconds - without.seconds) / 100 / WAIT  # after the last epoch too
        assert estimate.terms["epoch_boundaries"] - without.terms["epoch_boundaries"] == pytest.approx(
            estimate.seconds - without.seconds
        )
        assert estimate.low <= without.seconds + 100 * WAIT <= estimate.high or busy < 1.0
        finding = next(f for f in estimate.findings if f.code == "waits-between-epochs")
        assert "autotune.enabled = False" in finding.remedy
        idle = fit_runtime(waiting(busy=busy)).waits.mean_seconds
        assert format_seconds(100 * idle) in finding.message
        assert finding.severity == "warning"
    assert 0.1 < share[0.1] < 0.3 < share[0.5] < share[1.0] < 1.0
    assert share[0.5] == pytest.approx(0.57, abs=0.05)  # of epochs that are not all of one length
    assert "waits-between-epochs" not in codes(without)


def test_a_ranking_has_the_cost_of_waits_at_each_epoch_count() -> None:
    profile = waiting()
    ranking = vs.rank([profile], epochs=[10, 1000], catalog=prices(("a", 7.2)))
    idle = fit_runtime(profile).waits.mean_seconds
    for row in ranking.rows:
        finding = next(f for f in row.findings if f.code == "waits-between-epochs")
        seconds = idle * row.epochs
        assert format_seconds(seconds) in finding.message
        assert format_usd(seconds / 500) in finding.message


def test_waits_are_rare_where_a_core_is_always_free() -> None:
    """As on the machines of most GPUs, whose processors have little to do."""
    one = waiting(busy=0.9)
    two = one.model_copy(update={"environment": one.environment.model_copy(update={"usable_cores": 2})})
    without = vs.estimate(waiting(self_tuning_input=False), epochs=100)
    estimate = vs.estimate(two, epochs=100)
    assert 0 < estimate.seconds - without.seconds < 0.03 * 100 * WAIT
    assert estimate.high - without.high > 0.04 * 100 * WAIT
    (finding,) = (f for f in estimate.findings if f.code == "waits-between-epochs")
    assert finding.severity == "info"


def test_the_interval_includes_a_training_without_waits_if_no_boundary_decides() -> None:
    expected, without = (vs.estimate(waiting(self_tuning_input=tunes), epochs=100) for tunes in (True, False))
    assert expected.seconds > 1.3 * without.seconds
    assert expected.low < without.seconds


def test_a_wait_that_was_seen_is_replaced_by_that_of_a_whole_epoch() -> None:
    """The probe's own epoch of 2.22 s waits until 2.55 s; that of the training, of 12 s, until 20.47 s."""
    seen = vs.estimate(waiting(boundary=0.33), epochs=100)
    unseen = vs.estimate(waiting(boundary=0.01), epochs=100)
    assert seen.seconds > unseen.seconds
    assert seen.terms["epoch_boundaries"] < 100 * (WAIT + 0.1)
    idle = fit_runtime(waiting(boundary=0.33)).waits.mean_seconds
    assert seen.terms["epoch_boundaries"] == pytest.approx(100 * idle, abs=0.1)


def test_a_boundary_of_a_whole_epoch_of_unknown_length_counts_as_it_was_seen() -> None:
    profile = waiting(truncated=False, boundary=8.0)
    estimate = vs.estimate(with_timeline(profile, epochs=()), epochs=10)
    assert estimate.terms["epoch_boundaries"] == pytest.approx(9 * 8.0)


def test_an_epoch_that_may_just_miss_a_wake_up_has_a_wider_interval() -> None:
    sure, unsure = (vs.estimate(waiting(steps_per_epoch=steps), epochs=100) for steps in (120, 203))
    assert (unsure.high - unsure.low) / unsure.seconds > (sure.high - sure.low) / sure.seconds


def test_epochs_without_validation_wait_by_their_own_length() -> None:
    def idle(**options: Any) -> float:
        profile = make([[STEP] * 20] * 2, boundary=0.01, self_tuning_input=True, steps_per_epoch=50, **options)
        return fit_runtime(profile).waits.mean_seconds

    never, always = idle(), idle(validations=[3.0, 3.0])
    assert idle(validations=[3.0, 3.0], validation_freq=2) == pytest.approx((never + always) / 2)


def test_endless_data_wait_once_when_the_training_ends() -> None:
    """One pipeline for ten epochs of 12 s: the next wake-up after 120 s is at 141.91 s, if epochs last just as long."""
    without = vs.estimate(waiting(self_tuning_input=False), epochs=10)
    endless = waiting(continuous_input=True)
    profile = endless.model_copy(update={"setup": endless.setup.model_copy(update={"epochs": 10})})
    estimate = vs.estimate(profile, epochs=10)
    assert fit_runtime(profile).waits.mean_seconds == 0
    assert 0 < estimate.seconds - without.seconds < 60
    assert estimate.high >= without.seconds + 21
    assert vs.estimate(profile, epochs=11).seconds - estimate.seconds == pytest.approx(12.0, abs=0.1)
    assert "waits-between-epochs" not in codes(estimate)
    (finding,) = (f for f in estimate.findings if f.code == "waits-at-the-end")
    assert "autotune.enabled = False" in finding.remedy
    of_unknown_length = vs.estimate(endless, epochs=10)
    share = 0.9  # of a processor that is busy all the time
    assert of_unknown_length.seconds - without.seconds == pytest.approx(share * 30, abs=3.0)  # a wake-up each minute


def spread_over(profile: Profile, replicas: int) -> Profile:
    environment = profile.environment.model_copy(update={"replicas": replicas})
    return profile.model_copy(update={"environment": environment})


def test_pipelines_of_several_devices_wait_one_after_the_other() -> None:
    """An epoch of 12 s: the first pipeline waits until 20.47 s, the second until 40.95 s, the third until 81.91 s."""
    idle = {replicas: fit_runtime(spread_over(waiting(), replicas)).waits.mean_seconds for replicas in (1, 2, 4)}
    each = (20.47 - 12, 40.95 - 12, 81.91 - 12)
    assert idle[2] / idle[1] == pytest.approx((each[0] / 2 + each[1] / 4 + each[2] / 4) / each[0], rel=0.05)
    assert idle[4] == idle[2]  # more than three were not seen to wait


def test_what_pipelines_of_several_devices_waited_is_taken_out_of_what_was_seen() -> None:
    """After the probe's own 2.22 s the wake-ups are at 2.55, 5.11 and 10.23 s: a boundary of 2.89 s waits for two."""
    assert split_wait(3.11, 2.0, pipelines=3) == (pytest.approx(3.11), 2)
    assert split_wait(0.0, 2.0, pipelines=3) == (0.0, False)
    assert split_wait(2.0, 2.0, pipelines=3) == (0.0, None)  # between two wake-ups: unknown
    seen = vs.estimate(spread_over(waiting(boundary=2.89), 2), epochs=100)
    idle = fit_runtime(spread_over(waiting(boundary=2.89), 2)).waits.mean_seconds
    assert seen.terms["epoch_boundaries"] == pytest.approx(100 * idle, abs=0.5)
    assert "long-boundary" not in codes(seen)


def test_what_callbacks_do_at_the_end_of_the_first_epoch_is_apart_from_later_ones() -> None:
    """A first save of 3 s, later ones of 0.02 s; the rest of every boundary takes 1 s."""
    boundaries = tuple(
        Boundary(epoch=n, seconds=1.0 + save, before_validation_seconds=0.0, epoch_end_seconds=save, truncated=True)
        for n, save in enumerate((3.0, 0.02))
    )
    estimate = vs.estimate(with_timeline(make([[STEP] * 20] * 3), boundaries=boundaries), epochs=50)
    assert estimate.terms["epoch_boundaries"] == pytest.approx(3.0 + 49 * 0.02 + 49 * 1.0)


def test_many_readings_of_a_changing_speed_have_no_narrower_interval() -> None:
    """Autocorrelation lasts for seconds: a thousand short steps of two speeds know no more than forty long ones."""

    def width(readings: int) -> float:
        estimate = vs.estimate(make([[STEP] * readings, [1.2 * STEP] * readings], steps_per_epoch=5000), epochs=10)
        return (estimate.high - estimate.low) / estimate.seconds

    assert width(500) > 0.85 * width(20)


def test_a_machine_whose_speed_changed_within_seconds_may_run_the_training_at_another() -> None:
    def widths(*speeds: float) -> tuple[float, float]:
        epochs = [[speed * STEP] * 40 for speed in speeds]
        estimate = vs.estimate(make([epochs[0] + epochs[1], epochs[2] + epochs[3]], steps_per_epoch=5000), epochs=10)
        return 1 - estimate.low / estimate.seconds, estimate.high / estimate.seconds - 1

    calm, drifting = widths(1.0, 1.0, 1.0, 1.0), widths(0.9, 1.1, 1.1, 0.9)
    # It may be that of its fastest tenth or of its slowest, which each epoch as a whole does not show.
    assert all(wide > max(0.15, 1.2 * narrow) for wide, narrow in zip(drifting, calm, strict=True))


def test_a_lone_slow_epoch_counts_once() -> None:
    def predict(*later: float) -> float:
        return vs.estimate(make_epoch_profile("a", 12.0, *later), epochs=100).seconds

    assert predict(10.0, 10.0, 11.0) == pytest.approx(12.0 + 99 * 10.0 + 1.0)
    assert predict(10.0, 10.0, 10.4) == pytest.approx(12.0 + 99 * 30.4 / 3)  # noise
    assert predict(10.0, 10.0, 10.6) == pytest.approx(12.0 + 99 * 10.0 + 0.6)  # from a twentieth on it is none
    assert predict(10.0, 11.0) == pytest.approx(12.0 + 99 * 10.5)  # which of two is the slow one?
    assert predict(10.0, 10.0, 10.0, 11.0, 11.0) == pytest.approx(12.0 + 99 * 10.4)  # it recurs


def test_a_long_watched_run_uses_its_exact_sums() -> None:
    """Of a long run only a sample of the readings is kept; what whole epochs took is known exactly."""
    profile = make([[STEP] * 20, [STEP] * 20], truncated=False)
    epochs = tuple(
        Epoch(epoch=n, seconds=STEP + 99 * 0.2, steps=100, opening_seconds=STEP, closing_seconds=0.2) for n in range(50)
    )
    steps = profile.timeline.steps.model_copy(update={"readings": 5_000, "steps": 5_000, "total_seconds": 995.0})
    estimate = vs.estimate(with_timeline(profile, steps=steps, epochs=epochs), epochs=10)
    assert estimate.terms["steady_iterations"] == pytest.approx(999 * 0.2)
