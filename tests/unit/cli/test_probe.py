"""Options of the command probe."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from tests.support.profiles import make_profile
from vmselect.cli import app
from vmselect.cli.options import note_misplaced
from vmselect.cli.probe import _explain_nothing, _note_unknown_types
from vmselect.probe.script import ScriptRun
from vmselect.records import Fact, Placement


@pytest.mark.parametrize("name", ["probe", "watch", "describe", "recommend"])
@pytest.mark.parametrize(
    ("arguments", "noted"),
    [
        (["--path", "old/"], ["--path"]),
        (["--path=old/", "--json", "5", "--path"], ["--path, --json"]),
        (["--epochs", "5", "--batch-size", "64", "--lr", "0.1", "path"], []),  # options of the script
    ],
)
def test_options_behind_the_script_are_noted(
    name: str, arguments: list[str], noted: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    note_misplaced(typer.Context(command), "train.py", arguments)
    lines = capsys.readouterr().err.splitlines()
    assert [line.removeprefix("vmselect: ").partition(" was")[0] for line in lines] == noted


@pytest.mark.parametrize(
    ("name", "source", "noted"),
    [
        ("g4dn.xlage", "argument", True),
        ("g4dn.xlage", "metadata", False),
        ("g4dn.xlarge", "argument", False),
        ("my-pc", "argument", False),
    ],
)
def test_a_mistyped_instance_type_is_noted(
    name: str, source: Any, noted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    placement = Placement(instance_type=Fact(value=name, source=source))
    _note_unknown_types([make_profile(None, placement=placement)] * 2)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == noted
    assert all("g4dn.xlarge" in line and "vmselect history label" in line for line in lines)


@pytest.mark.parametrize("limit", [None, 60.0])
def test_a_script_without_a_training_is_told_what_was_seen(limit: float | None) -> None:
    seen = _explain_nothing(ScriptRun(0, 0, [], gradients=["jax.grad in train.py, line 7"], gave_up_after=limit))
    assert "jax.grad in train.py, line 7" in seen
    assert ("1 min" in seen) == (limit is not None)
    assert "probe_loop" in seen
    assert "probe_loop" in _explain_nothing(ScriptRun(0, 0, []))
    ended = _explain_nothing(ScriptRun(0, 0, [], gave_up_after=60.0, gave_up_in="train.py, line 3"))
    assert all(part in ended for part in ("1 min", "train.py, line 3", "--seconds", "probe_loop"))
