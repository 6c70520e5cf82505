"""Bad arguments get a clear error before any training; a record reports what it lacks."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest

import vmselect as vs
from vmselect.probe.recording import Recording


def test_a_record_that_cannot_be_made_hides_no_other_problem(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(*_: object, **__: object) -> None:
        raise ValueError("too large")

    def measure(problem: BaseException) -> float:
        monkeypatch.setattr("vmselect.probe.recording.build_timeline", build)
        raise problem

    run_loop(path=False, stop=False, metrics={"a": lambda: measure(RuntimeError("no score"))})
    written = capsys.readouterr().err
    assert (written.count("no score"), written.count("too large")) == (1, 1)
    monkeypatch.undo()
    with pytest.raises(KeyboardInterrupt):
        run_loop(path=False, stop=False, metrics={"a": lambda: measure(KeyboardInterrupt())})


@pytest.mark.parametrize(
    ("failure", "outcome", "reason"),
    [
        (None, "interrupted", "ended by itself"),
        (ZeroDivisionError("by zero"), "interrupted", "by zero"),
        (MemoryError("no more"), "out_of_memory", "no more"),
    ],
)
def test_a_draft_whose_end_cannot_be_recorded_says_how_the_training_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception | None, outcome: str, reason: str
) -> None:
    def build(*_: object, **__: object) -> None:
        raise ValueError("too large")

    def train() -> None:
        with vs.probe_loop(tmp_path, batch_size=4, stop=False, verbose=0) as probe:
            for _ in probe.epochs(1):
                for _ in probe.steps(range(3)):
                    pass
                monkeypatch.setattr("vmselect.probe.recording.build_timeline", build)
                if failure is not None:
                    raise failure

    if failure is None:
        train()
    else:
        with pytest.raises(type(failure)):
            train()
    (profile,) = vs.load_profiles(tmp_path)
    assert (profile.outcome, profile.ending, profile.preemption) == (outcome, None, None)
    assert reason in profile.detail
    assert "too large" in profile.detail


BAD = {
    "steps": [0, -1, 2.5, "20", None, True, math.nan],
    "validations": [-1, 3, 1.5, "2", None, True],
    "seconds": [0, -1, math.nan, math.inf, "5", True],
    "batch_size": [0, -8, 1.5, "8", True],
    "validation_steps": [0, -1, 1.5, "3"],
    "instance_type": ["", "  ", 5, "x" * 201],
    "region": ["", 5],
    "metrics": [[("a", 1)], {"a": "text"}, {"a": math.nan}, {"a": None}, {1: 2.0}, {"": 1}, 7],
    "factors": [[("a", 1)], {"a": [1]}, {"a": None}, {"": 1}, {"a": math.nan}, 7],
    "verbose": [-1, "1", None, 0.5],
    "path": [5, "", b"bytes", ["a"], True],
    "stop": ["no", None, 2],
}
SHARED = ("batch_size", "instance_type", "region", "metrics", "factors", "verbose", "path", "stop")
LOOP = ("steps", "validations", "seconds", *SHARED)


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        *((vs.IterationProbe, name, value) for name, values in BAD.items() for value in values),
        *((vs.EpochProbe, name, value) for name in SHARED for value in BAD[name]),
        *((vs.EpochProbe, "epochs", value) for value in BAD["steps"]),
        *((vs.probe_loop, name, value) for name in LOOP for value in BAD[name]),
    ],
)
def test_a_bad_argument_is_named(make, name: str, value: object) -> None:
    with pytest.raises(vs.errors.ArgumentError, match=name) as caught:
        make(**{name: value})
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("name", ["seconds", "validation_steps"])
def test_watching_whole_excludes_cutting_short(name: str) -> None:
    with pytest.raises(vs.errors.ArgumentError, match="stop=False"):
        vs.IterationProbe(stop=False, **{name: 3})


def test_only_the_path_is_positional() -> None:
    with pytest.raises(TypeError):
        vs.IterationProbe("a.json", 20)


def test_numpy_integers_are_integers() -> None:
    import numpy as np

    assert vs.IterationProbe(steps=np.int64(7), batch_size=np.int32(8)).steps == 7


def run_loop(**options) -> vs.Profile | None:
    with vs.probe_loop(batch_size=4, verbose=0, **options) as p:
        for _ in p.steps(range(3)):
            pass
    return p.profile if p.measured else None


def test_the_environment_sets_folder_and_factors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMSELECT_FOLDER", str(tmp_path / "records"))
    monkeypatch.setenv("VMSELECT_FACTORS", '{"machine": "small", "image": 224, "lr": 0.5, "aug": true}')
    made = run_loop(factors={"image": 64})
    assert made.factors == {"machine": "small", "image": 64, "lr": 0.5, "aug": True}
    assert vs.load_profiles(tmp_path / "records") == [made]
    run_loop(path=tmp_path / "own.json")
    assert len(vs.load_profiles(tmp_path / "records")) == 1, "a path that is given comes first"


def test_without_a_path_a_probe_writes_to_the_folder_that_is_read_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VMSELECT_FOLDER")
    for stop in (True, False):
        with vs.probe_loop(batch_size=4, steps=2, stop=stop) as probe:
            for _ in probe.steps(range(9)):
                pass
        assert f"profile in {Path('profiles')}" in capsys.readouterr().out
    assert probe.profile in vs.load_profiles()
    assert len(vs.load_profiles()) == len(vs.load_records()) == 2
    monkeypatch.setenv("VMSELECT_FOLDER", str(tmp_path / "records"))
    assert vs.load_profiles("profiles") != [run_loop()] == vs.load_profiles()
    with pytest.raises(vs.errors.ArgumentError):
        vs.load_profiles([])  # nothing was found by whoever passes an empty list


def test_without_any_path_in_memory_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VMSELECT_FOLDER")
    for folder in ("", str(tmp_path / "records")):
        monkeypatch.setenv("VMSELECT_FOLDER", folder)
        with vs.probe_loop(False, batch_size=4, steps=2) as probe:
            for _ in probe.steps(range(9)):
                pass
        assert probe.profile.batch_size == 4
    assert "memory" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["small", "[1]", '{"a": [1]}', '{"a": null}', '{"a": NaN}'])
def test_factors_in_the_environment_that_are_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMSELECT_FACTORS", text)
    with pytest.raises(vs.errors.ArgumentError, match="VMSELECT_FACTORS"):
        run_loop()


@pytest.mark.parametrize("probe", [vs.IterationProbe(), vs.EpochProbe(), vs.probe_loop()])
def test_nothing_measured_yet(probe) -> None:
    with pytest.raises(vs.errors.ProbeError):
        _ = probe.profile


def test_metrics_with_long_names_keep_their_own_columns() -> None:
    stem = "m" * 1000
    recording = SimpleNamespace(logs=[(0, {f"{stem}a": 1.0, f"{stem}b": 2.0, "loss": 3.0}), (1, {f"{stem}a": 4.0})])
    logs = Recording._build_logs(recording)
    assert list(logs.values.values()) == [(1.0, 4.0), (2.0, None), (3.0, None)]
    assert [len(name) <= 1000 for name in logs.values] == [True] * 3
