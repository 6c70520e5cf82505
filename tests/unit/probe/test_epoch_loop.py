"""The number of epochs that a loop states."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from vmselect.probe.epoch_loop import find_epochs

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
