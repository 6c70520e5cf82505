"""Options of the command probe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from tests.support.profiles import make_profile
from vmselect.cli import app
from vmselect.cli.options import note_misplaced
from vmselect.cli.probe import _explain_nothing, _note_unknown_types
from vmselect.errors import ArgumentError
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


READS = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--html')\n"


@pytest.mark.parametrize(
    ("files", "arguments", "stated"),
    [
        (
            {"t.py": ""},
            ["--html", "a b.html", "--lr", "1"],
            "vmselect recommend --epochs 5 --html 'a b.html' t.py --lr 1",
        ),
        ({"t.py": ""}, ["--lr", "1", "--html=r.html"], "vmselect recommend --epochs 5 --html=r.html t.py --lr 1"),
        ({"t.py": ""}, ["--json", "data"], "vmselect recommend --epochs 5 --json t.py data"),
        ({"t.py": "shtml = 1"}, ["--html"], "vmselect recommend --epochs 5 --html t.py"),
        ({"t.py": READS}, ["--html", "r.html"], None),
        ({"t.py": "import arguments", "arguments.py": READS}, ["--html", "r.html"], None),
        ({"t.py": "", "own/__init__.py": "class Options:\n    html: str"}, ["--html", "r.html"], None),
        ({"t.py": ""}, ["--path", "data"], None),  # scripts often have one
    ],
)
def test_an_output_option_that_the_script_does_not_read_stops_the_command(
    files: dict[str, str], arguments: list[str], stated: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["vmselect", "recommend", "--epochs", "5", "t.py", *arguments])
    command = typer.main.get_command(app).commands["recommend"]  # type: ignore[attr-defined]
    context = typer.Context(command, info_name="recommend")
    if stated is None:
        note_misplaced(context, "t.py", arguments)
        return
    with pytest.raises(ArgumentError) as error:
        note_misplaced(context, "t.py", arguments)
    assert str(error.value).endswith(f" {stated}")


def test_an_option_of_an_installed_module_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = typer.main.get_command(app).commands["recommend"]  # type: ignore[attr-defined]
    context = typer.Context(command, info_name="recommend")
    context.params["module"] = True
    note_misplaced(context, "elsewhere.train", ["--html", "r.html"])
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "__init__.py").write_text("")
    with pytest.raises(ArgumentError):
        note_misplaced(context, "elsewhere.train", ["--html", "r.html"])


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
