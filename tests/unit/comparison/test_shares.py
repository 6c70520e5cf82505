"""A slow worker, and what equal shares of the batch cost because of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vmselect as vs
from vmselect.errors import ComparisonError
from vmselect.stats import worker_shares

FAST, SLOW = 0.10, 0.16


def probed(worker: str, seconds: float) -> vs.Profile:
    return vs.Profile.from_times(batch_size=32, iteration_seconds=[seconds] * 5, factors={"worker": worker})


def rounds(*times: dict[str, float]) -> list[vs.Profile]:
    return [probed(worker, seconds) for one in times for worker, seconds in one.items()]


def test_a_worker_that_is_always_last_is_named_with_its_cost() -> None:
    shares = worker_shares(rounds(*[{"w0": FAST, "w1": FAST, "w2": SLOW}] * 3))
    (finding,) = shares.findings
    assert finding.code == "slow-worker"
    assert finding.message.startswith("w2 was the last worker in all 3 rounds, with 62% of the speed")
    assert shares.equal_rate == pytest.approx(3 * 32 / SLOW)
    assert shares.extra_time == pytest.approx((2 / FAST + 1 / SLOW) / (3 / SLOW) - 1)
    assert "w2 is the slowest of 3 workers and last in 3 of 3 rounds" in shares.verdict


@pytest.mark.parametrize(
    "times",
    [
        [{"w0": FAST, "w1": SLOW}] * 2,  # too few rounds
        [{"w0": FAST, "w1": SLOW}, {"w0": SLOW, "w1": FAST}, {"w0": FAST, "w1": SLOW}],  # not always the same
        [{"w0": 0.100, "w1": 0.102}] * 4,  # hardly slower
    ],
)
def test_a_worker_that_is_not_consistently_slower_is_not_named(times: list[dict[str, float]]) -> None:
    assert worker_shares(rounds(*times)).findings == ()


def test_a_round_without_every_worker_does_not_count() -> None:
    shares = worker_shares([*rounds({"w0": FAST, "w1": SLOW}), probed("w1", FAST), probed("w1", FAST)])
    assert "w1 is the slowest of 2 workers and last in 1 of 1 rounds" in shares.verdict
    assert shares.table.set_index("worker")["examples_per_second"]["w1"] == pytest.approx(32 / SLOW)


def test_a_worker_without_step_times_is_named_and_not_left_out() -> None:
    unmeasured = vs.Profile.from_times(batch_size=32, total_seconds=9.0, epochs=1, factors={"worker": "w2"})
    with pytest.raises(ComparisonError, match="w2"):
        worker_shares([*rounds({"w0": FAST, "w1": SLOW}), unmeasured])


def test_workers_of_one_speed_have_no_slowest() -> None:
    shares = worker_shares(rounds(*[{"w0": FAST, "w1": FAST}] * 3))
    assert "w0" not in shares.verdict
    assert shares.findings == ()


@pytest.mark.parametrize("changed", [{"batch_size": 64}, {"model": "other"}, {"factors": {}}])
def test_records_of_other_work_or_of_no_worker_are_an_error(changed: dict[str, Any]) -> None:
    fields = {"batch_size": 32, "model": "net", "iteration_seconds": [FAST] * 5}
    here, there = (vs.Profile.from_times(**fields, factors={"worker": name}) for name in ("w0", "w1"))
    assert worker_shares([here, there]).extra_time == 0
    other = vs.Profile.from_times(**fields | {"factors": {"worker": "w2"}} | changed)
    with pytest.raises(ComparisonError):
        worker_shares([here, there, other])


def test_workers_may_hold_shares_of_the_data_of_different_sizes() -> None:
    sizes = {"w0": 100, "w1": 130}
    probes = [
        vs.Profile.from_times(
            batch_size=32, iteration_seconds=[FAST] * 5, steps_per_epoch=steps, factors={"worker": name}
        )
        for name, steps in sizes.items()
    ]
    assert len(worker_shares(probes).table) == 2


def test_one_worker_has_no_share() -> None:
    with pytest.raises(ComparisonError, match="one worker"):
        worker_shares([probed("w0", FAST)])


@given(st.lists(st.floats(0.01, 10), min_size=2, max_size=8))
def test_equal_shares_never_cost_less_and_fair_shares_are_a_whole(seconds: list[float]) -> None:
    shares = worker_shares([probed(f"w{i}", each) for i, each in enumerate(seconds)])
    assert shares.extra_time >= -1e-12
    assert shares.table["fair_share"].sum() == pytest.approx(1.0)
