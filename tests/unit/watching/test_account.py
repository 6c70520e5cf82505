"""The account of a running training, with a clock of its own."""

from __future__ import annotations

import copy
import html
import pickle
import random
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from vmselect.probe import recording
from vmselect.probe.recording import SHARE
from vmselect.scoring.parts import find_parts
from vmselect.watching import account
from vmselect.watching.account import Account, Earlier, Status
from vmselect.watching.callbacks import Watch
from vmselect.watching.display import to_html

HOUR = 3600.0


class Clock:
    """Nanoseconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def pass_seconds(self, seconds: float) -> None:
        self.now += int(seconds * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    timer = partial(recording.StepTimer, clock=clock, cpu_clock=lambda: 0)
    monkeypatch.setattr(recording, "StepTimer", timer)
    monkeypatch.setattr(recording.environment, "take_initialization", lambda: None)
    return clock


def train(
    watch: Watch,
    clock: Clock,
    *,
    epochs: int = 50,
    steps: int = 20,
    step: Any = lambda epoch, index: 1.0,
    end: Any = 0.0,
) -> int:
    """Train a loop whose steps take ``step(epoch, index)`` seconds; returns the number of complete epochs."""
    complete = 0
    with watch.loop(batch_size=8, sample=None) as loop:
        for epoch in loop.epochs(epochs):
            done = 0
            for index in loop.steps(range(steps)):
                clock.pass_seconds(step(epoch, index))
                done += 1
            clock.pass_seconds(end)
            complete += done == steps
    return complete


def make_watch(**arguments: Any) -> Watch:
    settings = {"path": False, "usd_per_hour": 1.0, "every_seconds": 10.0, "verbose": 0, "instance_type": "box"}
    return Watch(**(settings | arguments))


def test_time_and_money_of_a_whole_training(clock: Clock) -> None:
    watch = make_watch(usd_per_hour=3.6)
    assert train(watch, clock, epochs=10) == 10
    status = watch.status
    assert (status.epoch, status.epochs, status.steps) == (10, 10, 200)
    assert status.seconds == pytest.approx(200.0)
    assert status.usd == pytest.approx(0.2)
    assert watch.limit is None
    assert watch.profile.outcome == "watched"


def test_the_rest_is_forecast_while_it_runs(clock: Clock) -> None:
    watch, seen = make_watch(), {}

    def step(epoch: int, index: int) -> float:
        if index == 0 and epoch in (1, 5, 25):
            seen[epoch] = watch.status
        return 1.0

    train(watch, clock, step=step)
    for epoch in (5, 25):
        status, left = seen[epoch], 1000.0 - seen[epoch].seconds
        assert status.remaining is not None
        assert status.remaining.contains(left)
        assert status.remaining.value == pytest.approx(left, rel=0.03)
        assert status.final_usd is not None
        assert status.final_usd.contains(1000 / HOUR)
    assert seen[1].remaining.contains(1000 - seen[1].seconds)  # from steps, before there are enough epochs


def test_a_load_that_starts_half_way_is_seen_within_ten_steps(clock: Clock) -> None:
    watch, seen = make_watch(every_seconds=5.0), []

    def step(epoch: int, index: int) -> float:
        if epoch == 10 and index == 10:
            seen.append(watch.status)
        return 3.0 if epoch >= 10 else 1.0

    train(watch, clock, epochs=30, step=step)
    (status,) = seen
    assert status.change > 2
    assert status.remaining.contains(3 * (20 * 20 - 10))
    assert status.remaining.contains(20 * 20)


def test_the_default_interval_of_updates_does_not_hide_a_change(clock: Clock) -> None:
    watch, seen = make_watch(every_seconds=30.0), {}

    def step(epoch: int, index: int) -> float:
        if (epoch, index) in ((9, 19), (10, 10), (19, 19), (24, 0)):
            seen[epoch] = watch.status
        return 0.9 if epoch >= 10 else 0.3

    train(watch, clock, epochs=30, step=step)
    assert seen[9].change == 1.0
    for epoch in (10, 19, 24):  # it lasts, although the newest half of all epochs has the new speed
        assert seen[epoch].remaining.contains(0.9 * 20 * (30 - epoch - 0.5)), epoch
    assert seen[10].change == pytest.approx(3, rel=0.05)
    assert seen[19].change > 1.3


def test_many_short_epochs_are_looked_at_a_few_times_a_second(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, lengths, forecast = [], [], account.forecast_rest
    look = Account._look
    monkeypatch.setattr(Account, "_look", lambda *args, **options: looks.append(1) or look(*args, **options))
    monkeypatch.setattr(
        account, "forecast_rest", lambda epochs, left: lengths.append(len(epochs)) or forecast(epochs, left)
    )
    watch = make_watch(budget_usd=20 / HOUR, on_limit="stop")
    complete = train(watch, clock, epochs=10_000, steps=1, step=lambda epoch, index: 0.01)
    assert 1_850 < complete <= 2_000
    assert watch.status.seconds <= 20
    assert len(looks) < 20 / 0.25 + 10
    assert max(lengths) <= account.MAX_EPOCHS


def test_one_slow_step_does_not_end_a_training(clock: Clock) -> None:
    watch = make_watch(budget_usd=1100 / HOUR, on_limit="stop")
    assert train(watch, clock, step=lambda epoch, index: 40.0 if (epoch, index) == (25, 19) else 1.0) == 50
    assert watch.limit is None


def test_a_training_that_ends_within_an_epoch(clock: Clock) -> None:
    watch, seen = make_watch(), []

    def step(epoch: int, index: int) -> float:
        if index == 40:
            seen.append((watch.status, 250.0 - watch.status.seconds))
        return 1.0

    with watch.loop(batch_size=8, sample=None) as loop:
        loop._recording.facts.steps_left = 250
        for epoch in loop.epochs(3):
            for index in loop.steps(range(100)):
                clock.pass_seconds(step(epoch, index))
                if loop._recording.timer.steps >= 250:
                    break
    assert len(seen) == 3
    for status, left in seen:
        assert status.remaining.value == pytest.approx(left, abs=2)


def test_an_asynchronous_device_is_looked_at_within_an_epoch(clock: Clock) -> None:
    watch, seen, waits = make_watch(every_seconds=60.0), [], []
    with watch.loop(batch_size=8, sample=None, synchronize=lambda: waits.append(1)) as loop:
        for _ in loop.epochs(1):
            for _ in loop.steps(range(10_000)):
                clock.pass_seconds(0.1)
                seen.append(watch._account.status)
    assert len({status.steps for status in seen if status is not None}) > 15  # in 1000 seconds
    assert watch.status.steps == 10_000
    assert len(waits) < 1100  # once a second


def test_a_budget_is_kept(clock: Clock) -> None:
    watch = make_watch(budget_usd=500 / HOUR, on_limit="stop")
    complete = train(watch, clock)
    assert 450 <= 20 * complete <= 500
    assert watch.limit is not None
    assert watch.status.usd <= 500 / HOUR


def test_a_deadline_is_kept(clock: Clock) -> None:
    watch = make_watch(deadline_hours=500 / HOUR, on_limit="stop", usd_per_hour=None)
    assert 22 <= train(watch, clock) <= 25


def test_a_training_within_its_limits_is_not_ended(clock: Clock) -> None:
    watch = make_watch(budget_usd=1001 / HOUR, on_limit="stop")
    assert train(watch, clock) == 50
    assert watch.limit is None


def test_an_epoch_that_is_longer_than_the_budget_ends_within(clock: Clock) -> None:
    watch = make_watch(budget_usd=500 / HOUR, on_limit="stop")
    assert train(watch, clock, epochs=2, steps=1000) == 0
    assert 0.9 * 500 <= watch.status.seconds <= 500


def test_noisy_trainings_with_slow_saves_keep_their_budgets(clock: Clock) -> None:
    noise, exceeded, early = random.Random(7), 0, 0
    for _ in range(100):
        saved: list[float] = []

        def save(saved: list[float] = saved) -> None:
            clock.pass_seconds(3.0)
            saved.append(clock.now / 1e9)

        began, budget = clock.now / 1e9, noise.uniform(400, 900)
        watch = make_watch(budget_usd=budget / HOUR, on_limit="stop", save=save, save_seconds=4.0)
        spread = noise.choice([0.01, 0.1])
        train(watch, clock, step=lambda epoch, index, s=spread: noise.lognormvariate(0.0, s), end=2.0)
        used = clock.now / 1e9 - began
        exceeded += used > budget
        early += used < 0.9 * budget
        assert len(saved) == 1
    assert exceeded <= 10
    assert early == 0


def test_a_warning_is_given_once(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    watch = make_watch(budget_usd=500 / HOUR, verbose=1)
    assert train(watch, clock) == 50
    warnings = [line for line in capsys.readouterr().err.splitlines() if "probability of only" in line]
    assert len(warnings) == 1


def test_a_function_decides(clock: Clock) -> None:
    seen: list[vs.watching.account.Status] = []
    watch = make_watch(budget_usd=500 / HOUR, on_limit=seen.append)
    assert train(watch, clock) == 50
    assert len(seen) == 1
    assert seen[0].usd <= 500 / HOUR


def test_no_problem_of_the_account_ends_the_training(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(status: object) -> None:
        raise RuntimeError("broken")

    watch = make_watch(budget_usd=100 / HOUR, on_limit=fail)
    assert train(watch, clock) == 50
    assert capsys.readouterr().err.count("broken") == 1


def test_a_save_that_fails_does_not_void_the_budget(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    def save() -> None:
        raise OSError("disk full")

    watch = make_watch(budget_usd=500 / HOUR, on_limit="stop", save=save)
    assert 22 <= train(watch, clock) <= 25
    assert "save= has failed" in capsys.readouterr().err


def test_looks_that_take_long_are_rare_before_the_first_forecast(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, look = [], Account._look

    def slow(self: Account, *arguments: Any, **options: Any) -> None:
        look(self, *arguments, **options)
        looks.append(clock.now)
        clock.pass_seconds(1.0)

    monkeypatch.setattr(Account, "_look", slow)
    monkeypatch.setattr(Account, "_estimate", lambda *_: None)
    train(make_watch(), clock, epochs=2, steps=1000)
    assert len(looks) <= 2000 * SHARE + 3  # steps take a second


def test_a_display_that_fails_does_not_void_the_budget(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    watch = make_watch(budget_usd=500 / HOUR, on_limit="stop", verbose=1)

    def fail(status: object, final: bool) -> None:
        raise RuntimeError("no terminal")

    with watch.loop(batch_size=8, sample=None) as loop:
        watch._account.show = fail
        for _ in loop.epochs(50):
            for _ in loop.steps(range(20)):
                clock.pass_seconds(1.0)
    assert 450 <= watch.profile.timeline.wall_seconds <= 500
    assert capsys.readouterr().err.count("no terminal") == 1


def test_a_copy_keeps_its_options() -> None:
    watch = make_watch(epochs=3)
    for copied in (copy.deepcopy(watch), pickle.loads(pickle.dumps(watch))):  # noqa: S301
        assert copied.lightning().instance_type == "box"
        assert copied.loop()._options.verbose == 0
        assert copied.epochs == 3


def test_the_number_of_epochs_of_a_loop_that_does_not_state_it(clock: Clock) -> None:
    watch, seen = make_watch(epochs=10), []
    with watch.loop(batch_size=8, sample=None) as loop:
        for epoch in range(10):
            for _ in loop.steps(range(20)):
                clock.pass_seconds(1.0)
            if epoch == 4:
                seen.append(watch.status)
    assert seen[0].remaining.value == pytest.approx(100, abs=15)


def test_a_budget_without_a_price_is_reported(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    watch = make_watch(budget_usd=1, usd_per_hour=None, instance_type=None)
    assert train(watch, clock, epochs=3) == 3
    assert watch.status.usd is None
    assert "usd_per_hour" in capsys.readouterr().err


def test_the_price_is_that_of_the_catalog(clock: Clock) -> None:
    offer = {"provider": "lab", "instance_type": "box", "region": "here", "market": "spot", "usd_per_hour": 7.2}
    catalog = vs.Catalog.default().with_offers([offer])
    watch = make_watch(usd_per_hour=None, catalog=catalog, market="spot", region="here")
    train(watch, clock, epochs=5)
    assert watch.status.usd == pytest.approx(0.2)
    assert watch.status.spot


@pytest.mark.parametrize(
    ("usd", "date", "source", "reported"),
    [
        (7.2, "2026-08-30", "skypilot", False),
        (7.2, "2025-01-01", "skypilot", True),
        (0.01, "2026-08-30", "skypilot", True),
        (0.01, "2026-08-30", "user", False),
    ],
)
def test_a_budget_at_an_unreliable_price_is_reported(
    clock: Clock, capsys: pytest.CaptureFixture[str], usd: float, date: str, source: str, reported: bool
) -> None:
    offer = {"provider": "lab", "instance_type": "box", "region": "here", "usd_per_hour": usd, "date": date,
             "source": source, "gpu_model": "H100", "gpu_count": 1}  # fmt: skip
    catalog = vs.Catalog.default().with_offers([offer])
    watch = make_watch(usd_per_hour=None, catalog=catalog, market="on_demand", region="here", budget_usd=100)
    train(watch, clock, epochs=2)
    assert ("usd_per_hour" in capsys.readouterr().err) is reported
    assert watch.status.usd is not None


def test_a_resumed_training_continues_its_account(clock: Clock, tmp_path: Path) -> None:
    first = vs.Profile.from_times(batch_size=8, iteration_seconds=[1.0] * 5, epochs=50, model="net")
    parts = []
    for number, (start, seconds, ending) in enumerate([(0, 100.0, "killed"), (20, 60.0, "terminated")]):
        timeline = first.timeline.model_copy(update={"wall_seconds": seconds, "init_seconds": None})
        setup = first.setup.model_copy(update={"initial_epoch": start})
        created = first.created.replace(year=2020 + number)
        changes = {"timeline": timeline, "setup": setup, "outcome": "interrupted", "ending": ending}
        parts.append(first.model_copy(update={**changes, "created": created, "id": f"{number}" * 32}))
    assert [part.id for part in find_parts(first, parts, 30)] == [parts[1].id, parts[0].id]
    assert find_parts(first, parts, 19) == [parts[0]]
    assert find_parts(first, parts, 0) == []
    other = first.setup.model_copy(update={"model": "another"})
    assert find_parts(first.model_copy(update={"setup": other}), parts, 30) == []
    earlier = vs.watching.account.Earlier.of(parts, lambda part: 3.6)
    assert (earlier.seconds, earlier.usd, earlier.interruptions) == (160.0, pytest.approx(0.16), 2)
    # What the program or its user has ended says nothing about the machine.
    failed = [part.model_copy(update={"detail": "ValueError: wrong", "ending": None}) for part in parts]
    assert vs.watching.account.Earlier.of(failed, lambda part: 3.6).interruptions == 0


def test_trainings_with_other_factors_are_no_parts() -> None:
    whole = vs.Profile.from_times(batch_size=8, iteration_seconds=[1.0] * 5, epochs=50, model="net")
    part = whole.model_copy(
        update={"factors": {"seed": 1}, "created": whole.created.replace(year=2020), "id": "1" * 32}
    )
    assert find_parts(whole, [part], 20) == []
    assert find_parts(whole.model_copy(update={"factors": {"seed": 1}}), [part], 20) == [part]


def test_a_part_that_began_at_the_same_epoch_belongs_to_the_training() -> None:
    whole = vs.Profile.from_times(batch_size=8, iteration_seconds=[1.0] * 5, epochs=50, model="net")
    parts = [
        whole.model_copy(
            update={
                "setup": whole.setup.model_copy(update={"initial_epoch": start}),
                "created": whole.created.replace(year=2020 + number),
                "id": f"{number}" * 32,
            }
        )
        for number, start in enumerate([0, 0, 20, 20])
    ]
    assert find_parts(whole, parts, 20) == [parts[3], parts[2], parts[1]]  # parts[0] was another training


def continue_training(watch: vs.Watch, clock: Clock, epoch: int, error: BaseException | None = None) -> None:
    """Train from ``epoch`` to the tenth with steps of a second. An ``error`` ends the program after that."""
    with watch.loop(batch_size=8, sample=None) as loop:
        for _ in loop.epochs(10, initial_epoch=epoch):
            for _ in loop.steps(range(20)):
                clock.pass_seconds(1.0)
        if error is not None:
            raise error


def test_what_continues_a_complete_training_has_its_own_account(clock: Clock, tmp_path: Path) -> None:
    train(make_watch(path=tmp_path), clock, epochs=10)
    second = make_watch(path=tmp_path)
    continue_training(second, clock, 6)
    assert second.status.seconds == pytest.approx(80)


def test_a_damaged_record_does_not_lose_the_account(clock: Clock, tmp_path: Path) -> None:
    first = make_watch(path=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        continue_training(first, clock, 0, error=KeyboardInterrupt())
    (tmp_path / "damaged.json").write_text("{")
    second = make_watch(path=tmp_path)
    continue_training(second, clock, 6)
    assert second.status.epoch == 10
    assert second.status.seconds == pytest.approx(200 + 80)


def test_declared_phases_are_part_of_the_rest(clock: Clock) -> None:
    watch, seen = make_watch(phases={0: 1, 10: 3}), []

    def step(epoch: int, index: int) -> float:
        if (epoch, index) in ((8, 0), (13, 0)):
            seen.append(watch.status)
        return 3.0 if epoch >= 10 else 1.0

    train(watch, clock, epochs=20, step=step)
    for status in seen:
        assert status.remaining.value == pytest.approx(800 - status.seconds, rel=0.02)
        assert status.change == 1.0


def test_a_study_tells_when_early_stopping_ends_the_training(clock: Clock) -> None:
    study = vs.ConvergenceStudy.from_epochs({8: [19, 20, 21]})
    watch, seen = make_watch(study=study), []

    def step(epoch: int, index: int) -> float:
        watch._account.status and seen.append(watch.status)
        return 1.0

    with watch.loop(batch_size=8, sample=None) as loop:
        loop._recording.facts.early_stopping = 6
        for epoch in loop.epochs(100):
            for index in loop.steps(range(20)):
                clock.pass_seconds(step(epoch, index))
            if epoch == 19:
                break
    early = next(status for status in seen if status.epoch == 5)
    assert not early.at_most
    assert early.remaining.contains(400 - early.seconds)
    assert early.remaining.high < 1200


def test_scalars_reach_the_tracker_until_it_fails(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    watch, written = make_watch(verbose=1), []

    def write(scalars: dict[str, float], step: int) -> None:
        written.append((step, scalars))
        if len(written) == 3:
            raise OSError("disk full")

    with watch.loop(batch_size=8, sample=None) as loop:
        watch._account.track = write
        for _ in loop.epochs(10):
            for _ in loop.steps(range(20)):
                clock.pass_seconds(1.0)
    assert len(written) == 3
    assert written[-1][1]["vmselect/hours"] == pytest.approx(written[-1][0] / HOUR)
    assert capsys.readouterr().err.count("disk full") == 1


def test_moves_are_suggested_once_an_hour(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    watch = make_watch(every_seconds=60.0)
    with watch.loop(batch_size=8, sample=None) as loop:
        watch._account.advise = lambda: "Move to fast"
        for _ in loop.epochs(4):
            for _ in loop.steps(range(50)):
                clock.pass_seconds(50.0)
    assert capsys.readouterr().err.count("Move to fast") == 2  # in 10,000 seconds


def test_a_status_fits_into_a_narrow_terminal(clock: Clock) -> None:
    watch, seen = make_watch(budget_usd=1.0), []

    def step(epoch: int, index: int) -> float:
        if epoch == 20 and not index:
            seen.append(watch.status)
        return 1.0

    train(watch, clock, step=step)
    (status,) = seen
    for width in (40, 60, 79, 100, 200):
        assert len(status.fit(width)) <= width
    assert "budget" in status.fit(79)
    assert "left" in status.fit(40)


@pytest.mark.parametrize(
    "wrong",
    [{"budget_usd": 0}, {"budget_usd": -1}, {"deadline_hours": 0}, {"on_limit": "end"}, {"chance": 2}, {"stop": True},
     {"every_seconds": 0}, {"market": "black"}, {"save": 3}, {"tracker": "paper"}, {"study": 3}, {"phases": {0: -1}}],
)  # fmt: skip
def test_wrong_arguments(wrong: dict[str, Any]) -> None:
    with pytest.raises(vs.errors.ArgumentError):
        Watch(**wrong)


def test_the_cell_of_a_notebook_has_the_texts_of_the_line() -> None:
    status = Status(
        epoch=12, epochs=50, steps=600, seconds=60.0, remaining=vs.intervals.Interval(190.0, 180.0, 200.0), usd=1.5,
        final_usd=None, budget_chance=0.004, deadline_chance=None, at_most=True,
    )  # fmt: skip
    cell = to_html(status)
    assert re.findall(r"<span[^>]*>(.*?)</span>", cell) == [html.escape(text) for text in str(status).split(" | ")]
    assert "&lt;1%" in cell
    assert '<progress value="12" max="50"' in cell
    assert "progress" not in to_html(replace(status, epochs=None))


def test_an_epoch_that_a_limit_ended_is_not_complete(clock: Clock) -> None:
    watch = make_watch(budget_usd=50 / HOUR, on_limit="stop")
    assert train(watch, clock, steps=1_000) == 0
    assert watch.limit is not None
    assert (watch.status.epoch, 0 < watch.status.steps < 1_000) == (0, True)


def test_an_earlier_part_without_a_price_is_reported(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Watch, "_find_earlier", lambda watch, recording: Earlier(seconds=5.0, usd=None))
    watch = make_watch(budget_usd=1)
    assert train(watch, clock, epochs=3) == 3
    assert (watch.status.seconds, watch.status.usd) == (pytest.approx(65), None)
    assert capsys.readouterr().err.count("earlier part") == 1


def test_limits_hold_even_if_earlier_parts_cannot_be_read(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Watch, "_find_earlier", lambda watch, recording: 1 / 0)
    watch = make_watch(budget_usd=100 / HOUR, on_limit="stop")
    assert 3 <= train(watch, clock) <= 5
    assert capsys.readouterr().err.count("division by zero") == 1


@pytest.mark.parametrize("part", ["_find_price", "_warn_of_price"])
def test_a_deadline_holds_whatever_is_wrong_with_the_price(
    part: str, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Watch, part, lambda *_: 1 / 0)
    watch = make_watch(budget_usd=1e6, deadline_hours=100 / HOUR, on_limit="stop")
    assert 3 <= train(watch, clock) <= 5
    assert (watch.status.usd is None) == (part == "_find_price")
    assert capsys.readouterr().err.count("division by zero") == 1


def test_a_training_goes_on_if_its_account_cannot_be_opened(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vmselect.watching.callbacks.Display", lambda **_: 1 / 0)
    watch = make_watch(budget_usd=1)
    assert train(watch, clock, epochs=3) == 3
    written = capsys.readouterr().err
    assert (written.count("division by zero"), written.count("not watched"), written.count("record")) == (1, 1, 0)
    assert watch.profile.outcome == "watched"
