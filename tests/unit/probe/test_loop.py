"""The probe for loops written by hand, without any framework."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import vmselect as vs
from vmselect.probe import recording
from vmselect.probe.timer import StepTimer
from vmselect.records.files import RecordFile

pytestmark = pytest.mark.usefixtures("no_framework")


def train(p, *, batches, epochs=9, validate=True, body=lambda batch: None):
    seen = 0
    for _ in p.epochs(epochs):
        for batch in p.steps(batches):
            body(batch)
            seen += 1
        if validate:
            with p.validation():
                pass
    return seen


def test_two_short_epochs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with vs.probe_loop(tmp_path, steps=5, batch_size=64, instance_type="box", model="net") as p:
        assert train(p, batches=range(100)) == 12
    profile = p.profile
    assert (profile.outcome, profile.probe, profile.model, profile.batch_size) == ("stopped", "loop", "net", 64)
    assert (profile.setup.steps_per_epoch, profile.setup.epochs) == (100, 9)
    assert profile.timeline.steps.label[0] == "first"
    assert profile.timeline.steps.label[6] == "opening"
    assert [v.epoch for v in profile.timeline.validations] == [0, 1]
    assert [b.final for b in profile.timeline.boundaries] == [False, True]
    assert vs.load_profiles(tmp_path) == [profile]
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_watching_a_whole_loop(capsys: pytest.CaptureFixture[str]) -> None:
    with vs.probe_loop(False, stop=False, batch_size=8, examples=76) as p:
        assert train(p, batches=range(10), epochs=3) == 30
    profile = p.profile
    assert profile.outcome == "watched"
    assert profile.total_seconds is not None
    assert profile.setup.partial_batch == 4
    assert profile.timeline.steps.label.count("partial") == 3
    timeline = profile.timeline
    parts = (timeline.fit_to_first_batch_seconds + timeline.steps.total_seconds
             + sum(v.seconds for v in timeline.validations) + sum(b.seconds for b in timeline.boundaries))  # fmt: skip
    assert parts == pytest.approx(timeline.wall_seconds)
    assert capsys.readouterr().out == ""


def test_a_loop_without_epochs_of_its_own() -> None:
    with vs.probe_loop(steps=3, verbose=0) as p:
        for _ in range(50):
            for _ in p.steps(itertools.count()):
                pass
            if p.finished:
                break
    assert p.profile.timeline.steps.steps == 8
    assert p.profile.setup.steps_per_epoch is None
    assert p.profile.outcome == "stopped"


def test_a_loop_that_ignores_finished_gets_no_more_steps() -> None:
    with vs.probe_loop(steps=3, verbose=0) as p:
        steps = [sum(1 for _ in p.steps(range(20))) for _ in range(5)]
    assert steps == [4, 4, 0, 0, 0]
    assert len(p.profile.timeline.epochs) == 2


def test_short_epochs_are_whole() -> None:
    with vs.probe_loop(verbose=0) as p:
        assert train(p, batches=[1, 2, 3]) == 6
    assert [epoch.complete for epoch in p.profile.timeline.epochs] == [True, True]
    with vs.probe_loop(verbose=0) as p:
        train(p, batches=iter([1, 2, 3]), epochs=1)
    assert (p.profile.setup.steps_per_epoch, p.profile.outcome) == (3, "watched")


@pytest.mark.parametrize(("options", "steps"), [({"validations": 1, "steps": 4}, (5,)), ({"seconds": 1e-9}, (0, 1))])
def test_one_validation_and_a_time_limit_end_the_loop_sooner(options, steps: tuple[int, ...]) -> None:
    with vs.probe_loop(verbose=0, **options) as p:
        assert train(p, batches=range(100)) in steps


def test_leaving_the_loop_early() -> None:
    with vs.probe_loop(verbose=0) as p:
        for batch in p.steps(range(100)):
            if batch == 5:
                break
    assert [(e.steps, e.complete) for e in p.profile.timeline.epochs] == [(5, False)]


@pytest.mark.parametrize(("error", "outcome"), [(KeyError("k"), "interrupted"), (MemoryError(), "out_of_memory")])
def test_an_exception_goes_on_and_the_times_are_saved(tmp_path: Path, error: Exception, outcome: str) -> None:
    def body(batch):
        if batch == 7:
            raise error

    with pytest.raises(type(error)), vs.probe_loop(tmp_path / "p.json", verbose=0) as p:
        train(p, batches=range(50), body=body)
    profile = vs.Profile.load(tmp_path / "p.json")
    assert (profile.outcome, profile.timeline.steps.steps) == (outcome, 7)
    assert p.profile == profile


def test_the_device_is_waited_for_after_the_first_step_each_block_and_each_validation() -> None:
    waits = []
    with vs.probe_loop(steps=7, verbose=0, synchronize=lambda: waits.append(1)) as p:
        train(p, batches=range(19))
    assert p.profile.timeline.steps.covers == (1, 5, 2) * 2
    assert len(waits) == 8
    assert p.profile.environment.step_timing == "blocks"
    with vs.probe_loop(steps=7, verbose=0) as p:
        train(p, batches=range(19))
    assert p.profile.environment.step_timing == "steps"


def test_outside_its_block_it_raises(tmp_path: Path) -> None:
    p = vs.probe_loop()
    with pytest.raises(vs.errors.ProbeError):
        next(p.steps([1]))
    (tmp_path / "file").write_text("")
    with pytest.raises(vs.errors.ProfileError, match="file"), vs.probe_loop(tmp_path / "file" / "p.json"):
        pytest.fail("the path cannot be written, so nothing must run")


def test_a_record_that_cannot_be_completed_ends_no_watched_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fill_the_disk(*_: object) -> None:
        raise vs.errors.ProfileError("No space left on device.")

    def score() -> float:
        raise KeyError("f1")

    monkeypatch.setattr(RecordFile, "_put", fill_the_disk)
    with vs.probe_loop(tmp_path, stop=False, batch_size=8, metrics={"f1": score}) as probe:
        train(probe, batches=range(10), epochs=3)
    assert (probe.profile.outcome, probe.profile.timeline.steps.steps) == ("watched", 30)
    first, second = capsys.readouterr().err.splitlines()
    assert "f1" in first
    assert "No space left" in second
    # A training that the probe has ended trained nothing to lose: the user has to know that there is no record.
    probe = vs.probe_loop(tmp_path, steps=3, batch_size=8)
    with pytest.raises(vs.errors.ProfileError), probe:
        train(probe, batches=range(10), epochs=3)
    assert probe.profile.outcome == "stopped"


def test_metrics_are_evaluated_at_the_end(tmp_path: Path) -> None:
    values = iter([0.5])
    with vs.probe_loop(metrics={"loss": lambda: next(values), "n": 3}, verbose=0) as p:
        train(p, batches=range(3), epochs=1)
    assert p.profile.metrics == {"loss": 0.5, "n": 3.0}


@pytest.mark.parametrize(("every", "found_it"), [(4, True), (None, False)])
def test_validations_within_an_epoch_that_was_cut_short_give_a_finding(every, found_it) -> None:
    with vs.probe_loop(steps=10, batch_size=8, instance_type="box", verbose=0) as p:
        for _ in p.epochs(9):
            for number, _ in enumerate(p.steps(range(100)), 1):
                if every and number % every == 0:
                    with p.validation():
                        pass
            if not every:
                for _ in range(2):
                    with p.validation():
                        pass
    found = vs.estimate(p.profile, epochs=9).findings
    assert ("validations-within-epochs" in {finding.code for finding in found}) == found_it


def test_within_a_long_epoch_a_draft_is_written_every_thirty_seconds(tmp_path, monkeypatch) -> None:
    now = 0

    def timer(**options):
        return StepTimer(clock=lambda: now, cpu_clock=lambda: now, **options)

    monkeypatch.setattr(recording, "StepTimer", timer)
    monkeypatch.setattr(recording, "PauseWatch", lambda timer: SimpleNamespace(stop=lambda: None))
    seen = []
    with vs.probe_loop(tmp_path, stop=False, instance_type="box", region="here", sample=None, verbose=0) as p:
        for _ in p.steps(range(100)):
            drafts = list(tmp_path.glob("*.json"))
            steps = json.loads(drafts[0].read_text())["timeline"]["steps"]["steps"] if drafts else 0
            if steps not in seen:
                seen.append(steps)
            now += 7 * 10**9
    assert seen == [0, *range(1, 100, 5)]  # after the first step, then when 30 seconds have passed
    assert set(p.profile.timeline.steps.seconds) == {7.0}
