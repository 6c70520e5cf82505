"""Loops of unmodified scripts that update weights without an optimizer, or without a loader, in this process."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from vmselect.probe import gradients, torch_script
from vmselect.probe.gradients import Evidence, GaveUp
from vmselect.probe.torch_script import EnoughTrainings, TorchScript

torch = pytest.importorskip("torch", reason="torch is not installed: plain torch was left out")

X = torch.ones(96, 8)
PAUSE = 0.002
"""Seconds that each step lasts at least."""


@contextmanager
def watching(folder: Path, **options: Any) -> Iterator[TorchScript]:
    watch = TorchScript(folder, instance_type="box", region="here", verbose=0, **{"steps": 5, **options})
    for module, begin in (
        (torch_script.LOADER_MODULE, watch.watch_loader),
        (torch_script.OPTIMIZER_MODULE, watch.watch_optimizer),
        (torch_script.GRADIENT_MODULE, watch.watch_gradients),
        (torch_script.NETWORK_MODULE, watch.watch_networks),
        (gradients.AUTOGRAD_MODULE, watch.watch_autograd),
    ):
        begin(sys.modules[module])
    try:
        yield watch
    except EnoughTrainings:
        pass
    finally:
        watch.close()


def probe(folder: Path, script: Callable[[], object], **options: Any) -> list[vs.Profile]:
    with watching(folder, **options) as watch:
        script()
    return vs.load_profiles(folder) if watch.measured else []


def descend(count: int, *, gradient: bool = False, replace: bool = False) -> None:
    """Update weights by hand ``count`` times."""
    weight = torch.ones(8, 1, requires_grad=True)
    for _ in range(count):
        loss = (X[:4] @ weight).mean()
        if gradient:
            (slope,) = torch.autograd.grad(loss, [weight])
        else:
            loss.backward()
            slope = weight.grad
        if replace:
            weight = (weight - 0.1 * slope).detach().requires_grad_()
        else:
            with torch.no_grad():
                weight -= 0.1 * slope
        time.sleep(PAUSE)


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("replace", [False, True])
def test_weights_updated_by_hand_are_a_training(tmp_path: Path, gradient: bool, replace: bool) -> None:
    (profile,) = probe(tmp_path, lambda: descend(100, gradient=gradient, replace=replace))
    assert (profile.outcome, profile.timeline.steps.steps, profile.setup.parameters) == ("stopped", 6, 8)
    assert profile.timeline.steps.total_seconds >= 5 * PAUSE


def test_a_loader_gives_the_epochs_of_updates_by_hand(tmp_path: Path) -> None:
    def script() -> None:
        weight = torch.ones(8, 1, requires_grad=True)
        for _ in range(9):
            for batch in torch.utils.data.DataLoader(X, batch_size=4):
                (batch @ weight).mean().backward()
                with torch.no_grad():
                    weight -= weight.grad
                    weight.grad.zero_()

    (profile,) = probe(tmp_path, script)
    assert (profile.steps_per_epoch, profile.batch_size, len(profile.timeline.epochs)) == (24, 4, 2)


def test_gradients_before_an_optimizer_exists_are_no_training(tmp_path: Path) -> None:
    def script() -> None:
        model = torch.nn.Linear(8, 1)
        for _ in range(3):
            model(X).mean().backward()  # a test of the gradients
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(100):
            model(X).mean().backward()
            model(X).mean().backward()  # accumulated
            optimizer.step()

    (profile,) = probe(tmp_path, script)
    assert (profile.timeline.steps.steps, profile.setup.parameters) == (6, 9)


def test_a_few_gradients_and_those_besides_another_training_are_no_training(tmp_path: Path) -> None:
    assert probe(tmp_path / "few", lambda: descend(3)) == []
    with watching(tmp_path / "saliency") as watch:
        descend(5)
        watch.ignore_gradients()
        with watch.disabled():
            descend(5)
        descend(50)
    assert not watch.measured


@pytest.mark.parametrize("closes", [False, True])
def test_the_first_step_of_a_loop_without_a_loader_is_a_step(tmp_path: Path, closes: bool) -> None:
    """Also with LBFGS, which computes several gradients in a step."""
    calls: list[int] = []

    def script() -> None:
        model = torch.nn.Linear(8, 1)
        optimizer = (torch.optim.LBFGS if closes else torch.optim.SGD)(model.parameters(), lr=0.1)

        def closure() -> Any:
            calls.append(1)
            optimizer.zero_grad()
            loss = ((model(X) - X[:, :1] * len(calls)) ** 2).mean()
            time.sleep(PAUSE)
            loss.backward()
            return loss

        for _ in range(5):
            if not closes:
                closure()
            optimizer.step(closure) if closes else optimizer.step()

    (profile,) = probe(tmp_path, script)
    timeline = profile.timeline
    assert (profile.outcome, profile.steps_per_epoch, profile.setup.epochs) == ("watched", 5, 1)
    assert (timeline.steps.steps, [(epoch.steps, epoch.complete) for epoch in timeline.epochs]) == (5, [(5, True)])
    assert profile.first_iteration_seconds >= PAUSE
    assert timeline.steps.total_seconds >= len(calls) * PAUSE
    assert len(calls) > 5 if closes else len(calls) == 5
    init = timeline.init_seconds or 0.0
    assert vs.estimate(profile, epochs=1).seconds - init >= 0.5 * len(calls) * PAUSE


def test_a_script_without_a_recognized_training_is_ended_with_the_place_of_its_gradients() -> None:
    evidence = Evidence(0.05, lambda: False)

    def compute() -> None:
        for _ in range(1_000):
            evidence.note("some.grad")
            time.sleep(0.05)

    with pytest.raises(GaveUp):
        compute()
    assert evidence.gave_up
    (place,) = evidence.seen
    assert place.startswith("some.grad in test_manual_updates.py, line ")
    recognized = Evidence(0.01, lambda: True)
    recognized.note("some.grad")
    time.sleep(0.1)
    recognized.close()
    assert not recognized.gave_up
