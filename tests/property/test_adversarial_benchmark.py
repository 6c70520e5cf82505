"""The adversarial benchmark itself, with a few attempts of each quick class."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from vmselect.errors import ProfileError

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import adversarial


@pytest.mark.parametrize("name", ["damaged records", "damaged plans", "names in paths"])
def test_attempts_hold(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["adversarial.py", "--attempts", "20", "--only", name])
    assert adversarial.main() == 0
    cells = capsys.readouterr().out.splitlines()[2].strip("| ").split(" | ")
    assert (cells[0], cells[-1]) == (name, "0")


def test_what_counts_as_a_failure() -> None:
    def refuse(message: str) -> None:
        raise ProfileError(message)

    assert adversarial.judge(lambda: None)[0] == "accepted"
    assert adversarial.judge(lambda: refuse("no"))[0] == "refused"
    assert adversarial.judge(lambda: 1 / 0)[0] == "failures"
