"""The numbers of epochs and steps that loops state."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from vmselect.probe.epoch_loop import find_epochs, find_length, find_loops

LOOPS = {
    "for epoch in range(7):\n    step()": 7,
    "n_epochs = 9\nfor epoch in range(1, n_epochs + 1):\n    step()": 9,
    "for epoch in range(args.epochs):\n    for batch in range(3):\n        step()": 200,
    "for epoch in range(config['epochs']):\n    step()": 12,
    "for epoch in tqdm(range(4), desc='training'):\n    step()": 4,
    "def train(epoch):\n    for i in range(3):\n        step()\nfor epoch in range(5):\n    train(epoch)": 5,
    "for i in range(7):\n    step()": None,
    "for epoch in iter([1, 2]):\n    step()": None,
    "for epoch in range(10**30):\n    step()\n    break": None,
    "many = 10**30\nfor epoch in range(many):\n    step()\n    break": None,
    "for epoch in range(0):\n    pass\nstep()": None,
    "epoch = 0\nwhile epoch < 3:\n    epoch += 1\n    step()": None,
}


@pytest.mark.parametrize(("source", "count"), LOOPS.items())
def test_loops(source: str, count: int | None, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(source)
    seen: list[int | None] = []

    def step() -> None:
        seen.append(find_epochs(sys._getframe(1)))

    values: dict[str, Any] = {
        "step": step, "args": Namespace(epochs=200), "config": {"epochs": 12}, "tqdm": lambda items, desc: items,
    }  # fmt: skip
    exec(compile(source, str(file), "exec"), values)
    assert set(seen) == {count}


PASSES = {
    "for e in range(10):\n    for x in loader:\n        step()": 10,
    "for e in range(args.epochs):\n    for i, x in enumerate(loader):\n        step()": 200,
    "for e in tqdm(range(4), desc='training'):\n    if e >= 0:\n        for x in loader:\n            step()": 4,
    "def train():\n    for e in range(6):\n        for x in self.loader:\n            step()\ntrain()": 6,
    "for seed in range(3):\n    for e in range(10):\n        for x in loader:\n            step()": 10,
    "for e in range(10):\n    for x in loader:\n        for part in range(2):\n            step()": 10,
    "for seed in range(3):\n    create()\n    for x in loader:\n        step()": None,
    "for rate in [0.1, 0.2]:\n    for x in loader:\n        step()": None,
    "for e in range(10):\n    for x in others:\n        step()": None,
    "while len(seen) < 3:\n    for x in loader:\n        step()": None,
    "for x in loader:\n    step()": None,
}


@pytest.mark.parametrize(("source", "count"), PASSES.items())
def test_loops_around_the_loop_over_a_loader(source: str, count: int | None, tmp_path: Path) -> None:
    """A loop over a range counts the epochs whatever its variable is called, while a step or the next batch is due."""
    file = tmp_path / "train.py"
    file.write_text(source)
    seen: list[int | None] = []
    outer: set[Any] = set()

    class Loader:
        def __iter__(self) -> Iterator[int]:
            for number in range(2):
                yield number
                note(sys._getframe(1))

    loader = Loader()

    def note(frame: FrameType) -> None:
        seen.append(find_epochs(frame, loader, outer))

    values: dict[str, Any] = {
        "step": lambda: note(sys._getframe(1)), "args": Namespace(epochs=200), "loader": loader, "others": Loader(),
        "self": Namespace(loader=loader), "tqdm": lambda items, desc: items, "seen": seen, "__name__": "train",
        "create": lambda: outer.update(loop.place for loop in find_loops(sys._getframe(1))),
    }  # fmt: skip
    exec(compile(source, str(file), "exec"), values)
    assert set(seen) == {count}


def test_nothing_of_the_script_is_called(tmp_path: Path) -> None:
    source = "for epoch in range(settings.epochs):\n    step()"
    file = tmp_path / "train.py"
    file.write_text(source)
    asked = []

    class Settings:
        @property
        def epochs(self) -> int:
            asked.append(1)
            return 3

    seen = []
    exec(compile(source, str(file), "exec"),
         {"settings": Settings(), "step": lambda: seen.append(find_epochs(sys._getframe(1)))})  # fmt: skip
    assert seen == [None] * 3
    assert len(asked) == 1


def run(file: Path, values: dict[str, Any]) -> None:
    """Run a script as ``runpy`` does, around which no loop counts."""
    caller: dict[str, Any] = {"__name__": "runpy", "code": compile(file.read_text(), str(file), "exec")}
    exec("def run(values):\n    exec(code, values)", caller)
    caller["run"]({"__name__": "train", **values})


LENGTHS = {
    "for i in range(7):\n    step()": (1, 7),
    "n, size = 100, 8\nfor epoch in range(3):\n    for i in range(0, n - n % size, size):\n        step()": (3, 12),
    "for epoch in range(3):\n    for _ in range(n // 8):\n        step()": (3, 12),
    "for epoch in range(3):\n    for i in range(0, len(data), 4):\n        step()": (3, 2),
    "for epoch in range(3):\n    for i in data:\n        step()": (3, 5),
    # Batches whose gradients are accumulated: a step is a batch.
    "for i in range(6):\n    for _ in range(4):\n        step()": (1, 24),
    "def train():\n    for _ in range(4):\n        step()\nfor i in range(6):\n    train()": (1, 24),
    "for seed in range(5):\n    create()\n    for i in range(6):\n        step()": (1, 6),
    "i = 0\nwhile i < 3:\n    i += 1\n    step()": (1, None),
    "for i in range(3):\n    for row in items():\n        step()": (1, None),
    "while True:\n    for _ in range(3):\n        step()\n    break": (1, None),
    "step()": (None, None),
    "for epoch in range(4):\n    step()": (4, None),
}


@pytest.mark.parametrize(("source", "length"), LENGTHS.items())
def test_length_of_a_loop_without_a_loader(source: str, length: tuple[int | None, ...], tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(source)
    seen: set[tuple[int | None, ...]] = set()
    outer = set()

    def create() -> None:
        outer.update(loop.place for loop in find_loops(sys._getframe(1)))

    values: dict[str, Any] = {
        "create": create, "step": lambda: seen.add(find_length(sys._getframe(1), outer)), "n": 100, "data": [0] * 5,
        "items": lambda: [1],
    }  # fmt: skip
    run(file, values)
    assert seen == {length}


def test_loops_inside_a_model_are_no_loops_of_the_training(tmp_path: Path) -> None:
    source = "def forward():\n    for layer in range(9):\n        step()\n"
    inside, outside = tmp_path / "model.py", tmp_path / "train.py"
    inside.write_text(source)
    outside.write_text("for i in range(6):\n    call()")
    seen: set[tuple[int | None, ...]] = set()
    model: dict[str, Any] = {"__name__": "model", "step": lambda: seen.add(find_length(sys._getframe(1)))}
    exec(compile(source, str(inside), "exec"), model)
    torch: dict[str, Any] = {"__name__": "torch.nn.modules.module", "forward": model["forward"]}
    exec("def call():\n    return forward()", torch)
    run(outside, {"call": torch["call"]})
    assert seen == {(1, 6)}


def test_a_decorator_of_torch_hides_no_loop(tmp_path: Path) -> None:
    """As with ``torch.enable_grad()`` around the function of a step that accumulates gradients."""
    file = tmp_path / "train.py"
    file.write_text("""
@decorate
def train():
    for _ in range(4):
        step()
for i in range(6):
    train()
""")
    torch: dict[str, Any] = {"__name__": "torch.utils._contextlib"}
    exec("def decorate(function):\n    return lambda: function()", torch)
    seen: set[tuple[int | None, ...]] = set()
    run(file, {"decorate": torch["decorate"], "step": lambda: seen.add(find_length(sys._getframe(1)))})
    assert seen == {(1, 24)}
