"""Where a convergence probe writes, and what happens if it cannot write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import vmselect as vs
from vmselect.errors import ProfileError

keras = pytest.importorskip("keras", reason="Keras is not installed: trainings were left out")


def train(probe: vs.ConvergenceProbe, epochs: int = 4) -> int:
    """Number of epochs that a training with ``probe`` has run."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    history = model.fit(np.ones((32, 4)), np.ones(32), batch_size=8, epochs=epochs, verbose=0, callbacks=[probe])
    return len(history.epoch)


def test_a_file_at_a_place_that_nobody_named_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    probe = vs.ConvergenceProbe(monitor="loss")
    train(probe)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("vmselect")]
    assert str(probe.saved_to) in line
    assert Path(str(probe.saved_to)).is_file()
    train(vs.ConvergenceProbe(tmp_path / "study", monitor="loss"))
    train(vs.ConvergenceProbe(False, monitor="loss"))
    assert "vmselect" not in capsys.readouterr().out


@pytest.mark.parametrize("problem", [ProfileError("The disk is full. Free some space."), OSError(28, "No space left")])
def test_a_failing_save_does_not_end_the_training(
    problem: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise problem

    monkeypatch.setattr("vmselect.convergence.ConvergenceStudy.save", fail)
    monkeypatch.setattr("vmselect.probe.convergence.SAVE_EVERY_SECONDS", 0.0)
    probe = vs.ConvergenceProbe(tmp_path, monitor="loss")
    assert train(probe) == 4
    assert probe.epochs_to_stabilise == 4
    assert 1 <= capsys.readouterr().err.count("vmselect: ") <= 2  # once during the training, and once at its end
