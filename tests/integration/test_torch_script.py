"""The watch on plain torch, in this process: trainings that follow one another, validations, the wait for data."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from vmselect.probe import environment
from vmselect.probe.torch_script import LOADER_MODULE, OPTIMIZER_MODULE, EnoughTrainings, TorchScript

torch = pytest.importorskip("torch", reason="torch is not installed: plain torch was left out")

X = torch.ones(96, 8)


def loader(size: int = 4, data: Any = X) -> Any:
    return torch.utils.data.DataLoader(data, batch_size=size)


def train(
    model: Any, *, epochs: int, size: int = 4, data: Any = X, body: Callable[[int], object] = id
) -> Iterator[int]:
    """Train, and yield after each epoch; as in many a script, every epoch has a loader of its own."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(epochs):
        for number, batch in enumerate(loader(size, data)):
            model(batch).mean().backward()
            optimizer.step()
            body(number)
        yield epoch


def validate(size: int = 8, *, most: int | None = None) -> None:
    with torch.no_grad():
        for number, _ in enumerate(loader(size)):
            if number == most:
                break


def frozen_then_tuned(epochs: int) -> None:
    """Two trainings of the same weights with equal lists of parameters, of which the first freezes some."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 1))
    for trainable, size in ((False, 4), (True, 6)):
        model[0].requires_grad_(trainable)
        for _ in train(model, epochs=epochs, size=size):
            validate()


def probe(folder: Path, script: Callable[[], object], **options: Any) -> list[vs.Profile]:
    """The profiles that ``script`` leaves in ``folder``, in the order of its trainings."""
    watch = TorchScript(folder, instance_type="box", region="here", verbose=0, **{"steps": 5, **options})
    watch.watch_loader(sys.modules[LOADER_MODULE])
    watch.watch_optimizer(sys.modules[OPTIMIZER_MODULE])
    try:
        script()
    except EnoughTrainings:
        pass
    finally:
        watch.close()
    found = sorted(vs.load_profiles(folder), key=lambda one: one.fit.number) if watch.measured else []
    assert len(found) == watch.profiles_kept
    return found


def check_conserved(profile: vs.Profile) -> None:
    timeline = profile.timeline
    parts = [*timeline.validations, *timeline.boundaries, *timeline.pauses]
    whole = timeline.fit_to_first_batch_seconds + timeline.steps.total_seconds + sum(part.seconds for part in parts)
    assert whole == pytest.approx(timeline.wall_seconds, rel=0.01, abs=0.002)


def test_sizes_of_weights_and_optimizer_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the counter of a GPU, which rises whenever it is read."""
    peaks = iter(range(1, 1000))
    monkeypatch.setattr(environment, "count_framework_gpus", lambda *_: 1)
    monkeypatch.setattr(environment, "read_gpu_memory", lambda *_: (next(peaks), {"source": "torch"}))
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.Adam(model.parameters())

    def with_loader() -> None:
        for batch in loader():
            model(batch).mean().backward()
            optimizer.step()

    def without_loader() -> None:
        for _ in range(50):
            model(X).mean().backward()
            optimizer.step()

    for number, script in enumerate((with_loader, without_loader)):
        (profile,) = probe(tmp_path / str(number), script)
        seen = profile.environment.gpu_memory
        assert (seen.weights_bytes, seen.gradients_bytes) == (36, 36)
        assert 72 <= seen.optimizer_bytes <= 80  # two moments, and the number of steps of both weights


@pytest.mark.parametrize("epochs", [1, 4])
def test_other_weights_are_another_training(tmp_path: Path, epochs: int) -> None:
    names = ["frozen", "tuned", "third"]
    frozen, tuned = probe(tmp_path, lambda: frozen_then_tuned(epochs), names=names)
    assert [(one.fit.name, one.batch_size, one.steps_per_epoch) for one in (frozen, tuned)] == [
        ("frozen", 4, 24), ("tuned", 6, 16)]  # fmt: skip
    assert names == ["third"]
    assert tuned.fit.number == frozen.fit.number + 1
    assert [len(one.timeline.epochs) for one in (frozen, tuned)] == [min(epochs, 2)] * 2
    assert frozen.setup.parameters == tuned.setup.parameters == 41
    assert len({None, frozen.setup.structure, tuned.setup.structure}) == 3
    check_conserved(tuned)


def test_the_script_ends_after_the_last_training_that_is_wanted(tmp_path: Path) -> None:
    (only,) = probe(tmp_path / "first", lambda: frozen_then_tuned(1), last=1)
    assert (only.batch_size, len(only.timeline.epochs)) == (4, 1)
    (only,) = probe(tmp_path / "second", lambda: frozen_then_tuned(4), chosen=(2,), last=2, names=["tuned"])
    assert (only.batch_size, only.fit.name, len(only.timeline.epochs)) == (6, "tuned", 2)
    assert probe(tmp_path / "third", lambda: frozen_then_tuned(4), chosen=(3,), last=3) == []


def test_watched_every_training_is_seen_whole(tmp_path: Path) -> None:
    found = probe(tmp_path, lambda: frozen_then_tuned(3), stop=False)
    assert [(one.outcome, one.batch_size) for one in found] == [("watched", 4), ("watched", 6)]
    for one in found:
        assert [(epoch.epoch, epoch.complete) for epoch in one.timeline.epochs] == [(0, True), (1, True), (2, True)]
        assert len(one.timeline.validations) == 3
        check_conserved(one)


def test_the_same_weights_under_a_new_optimizer_are_one_training(tmp_path: Path) -> None:
    def script() -> None:
        model = torch.nn.Linear(8, 1)
        for _ in range(3):  # with a smaller learning rate, say
            list(train(model, epochs=1))

    (only,) = probe(tmp_path, script, stop=False)
    assert len(only.timeline.epochs) == 3


def test_equal_models_are_trainings_of_their_own(tmp_path: Path) -> None:
    def script() -> None:
        for _ in range(3):  # folds
            list(train(torch.nn.Linear(8, 1), epochs=2))

    found = probe(tmp_path, script)
    assert len(found) == 3
    assert len({one.setup.structure for one in found}) == 1


@pytest.mark.parametrize("stop", [True, False])
def test_a_validation_between_steps_that_is_left_early_ends_with_the_next_step(tmp_path: Path, stop: bool) -> None:
    def body(number: int) -> None:
        time.sleep(0.003)
        if number == 8:
            validate(most=1)

    def script() -> None:
        list(train(torch.nn.Linear(8, 1), epochs=1, body=body))

    (only,) = probe(tmp_path, script, stop=stop, steps=16)
    (validation,) = only.timeline.validations
    steps = only.timeline.steps
    assert validation.seconds < 0.01
    assert min(steps.seconds) > 0.002
    assert steps.steps == (17 if stop else 24)
    check_conserved(only)


class Slow(torch.utils.data.Dataset):
    """Examples that take their time."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, number: int) -> Any:
        time.sleep(0.002)
        return X[number]


@pytest.mark.parametrize("stop", [True, False])
def test_how_long_steps_wait_for_their_data(tmp_path: Path, stop: bool) -> None:
    def waiting() -> None:
        list(train(torch.nn.Linear(8, 1), epochs=2, size=2, data=Slow()))

    def working() -> None:
        for _ in train(torch.nn.Linear(8, 1), epochs=2, body=lambda number: time.sleep(0.004)):
            validate()

    (slow_data,) = probe(tmp_path / "waiting", waiting, stop=stop)
    (slow_steps,) = probe(tmp_path / "working", working, stop=stop)
    assert slow_data.timeline.input_wait.share > 0.5
    assert slow_steps.timeline.input_wait.share < 0.3
    assert "input-bound" in {found.code for found in vs.diagnose(slow_data)}
