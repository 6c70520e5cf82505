"""A training that was resumed is one training: its time, what was lost, and its score."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vmselect as vs
from tests.support.forecasts import make_forecast
from tests.support.parts import BOUNDARY, EPOCHS, FIRST, INIT, STARTUP, STEP, VALIDATION, make_part, split
from vmselect.scoring.parts import Parts
from vmselect.watching.moves import count_epochs_left


@given(
    ends=st.lists(st.integers(1, EPOCHS - 1), unique=True, max_size=4).map(sorted),
    repeated=st.integers(0, 2),
    begun=st.floats(0, 0.9),
)
def test_parts_score_as_one_part_and_what_was_lost(ends: list[int], repeated: int, begun: float) -> None:
    whole, parts = split([]), split(ends, repeated, begun)
    forecast = make_forecast(seconds=20.0, epochs=float(EPOCHS))
    (one,) = vs.score([forecast, *whole]).cases
    score = vs.score([*reversed(parts), forecast])
    (case,) = score.cases
    assert not score.unscored
    assert not score.waiting
    joined = Parts.of(parts[-1], parts)
    assert joined.profiles == tuple(parts)
    assert joined.interruptions == len(ends)
    lost = joined.lost_seconds
    assert case.real_seconds == pytest.approx(sum(part.timeline.wall_seconds + INIT for part in parts))
    assert case.real_seconds - lost == pytest.approx(one.real_seconds)
    if ends:
        assert lost >= len(ends) * (INIT + STARTUP + FIRST - STEP) - 1e-9
        assert any(f"parts ({len(parts)}" in difference for difference in case.differences)
    else:
        assert (lost, case.differences) == (0.0, one.differences)


def test_a_part_alone_is_no_whole_training() -> None:
    parts = split([4])
    forecast = make_forecast(seconds=20.0, epochs=float(EPOCHS))
    score = vs.score([forecast, parts[1]])
    assert (len(score), len(score.unscored)) == (0, 1)
    # It is still the outcome of a forecast of its own epochs.
    assert len(vs.score([make_forecast(seconds=12.0, epochs=6.0), parts[1]])) == 1


def test_a_part_that_a_limit_ended_is_not_scored_by_itself() -> None:
    parts = split([4])
    wall = parts[0].timeline.wall_seconds
    stopped = make_part(0, 4, outcome="watched")
    stopped = stopped.model_copy(update={"timeline": stopped.timeline.model_copy(update={"fit_seconds": wall})})
    score = vs.score([make_forecast(seconds=20.0, epochs=float(EPOCHS)), stopped, parts[1]])
    assert (len(score), score.unscored) == (1, ())


def test_a_complete_training_is_no_part_of_one_from_its_checkpoint() -> None:
    complete, other = make_part(0, EPOCHS, number=0), make_part(5, 5, number=1)
    (case,) = vs.score([make_forecast(seconds=20.0, epochs=float(EPOCHS)), complete, other]).cases
    (alone,) = vs.score([make_forecast(seconds=20.0, epochs=float(EPOCHS)), complete]).cases
    assert case.real_seconds == alone.real_seconds


def test_a_probe_of_the_same_work_is_no_part() -> None:
    parts = split([4])
    probe = make_part(0, 1, number=0, outcome="stopped", created=parts[0].created + timedelta(minutes=1))
    assert Parts.of(parts[1], [*parts, probe]).profiles == tuple(parts)


def test_parts_on_two_machines_are_not_scored() -> None:
    first, second = split([4])
    moved = make_part(4, 6, number=1, instance_type="g5.xlarge")
    score = vs.score([make_forecast(seconds=20.0, epochs=float(EPOCHS)), first, moved])
    assert [outcome.reason_code for outcome in score.unscored] == ["several_machines"]
    assert len(vs.score([make_forecast(seconds=20.0, epochs=float(EPOCHS)), first, second])) == 1


def test_a_forecast_from_a_part_does_not_predict_the_whole() -> None:
    parts = split([4])
    forecast = make_forecast(seconds=20.0, epochs=float(EPOCHS), used=(parts[0].id,))
    assert len(vs.score([forecast, *parts])) == 0


@pytest.mark.parametrize("outcome", ["watched", "interrupted"])
def test_a_sample_of_thousands_of_epochs_tells_how_many_there_were(outcome: str) -> None:
    ends = 5_000 if outcome == "watched" else 6_000
    part = make_part(0, 2_002, outcome=outcome, ending=None if outcome == "watched" else "killed")
    numbers = [*range(1_000), *range(1_000, 5_000, 4), 4_998, 4_999]
    columns = {
        name: tuple(
            reading.model_copy(update={"epoch": number})
            for reading, number in zip(getattr(part.timeline, name), numbers, strict=True)
        )
        for name in ("epochs", "validations", "boundaries")
    }
    seconds = STARTUP + FIRST - STEP + 5_000 * (1.0 + VALIDATION + BOUNDARY)
    timeline = part.timeline.model_copy(update={**columns, "wall_seconds": seconds, "fit_seconds": seconds})
    part = part.model_copy(update={"timeline": timeline, "setup": part.setup.model_copy(update={"epochs": ends})})
    assert Parts((part,)).epochs_done == 5_000
    assert Parts((part,)).is_complete == (outcome == "watched")
    if outcome == "watched":
        assert part.epochs_trained == 5_000
        return
    assert count_epochs_left(part) == 1_000
    rest = make_part(4_000, 1, number=1)
    lost = Parts((part, rest)).lost_seconds
    assert lost == pytest.approx(1_000 * (1.0 + VALIDATION + BOUNDARY) + INIT + STARTUP + FIRST - STEP, rel=0.01)
