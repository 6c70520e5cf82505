"""What commands print is text, whatever the names in a profile hold."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import vmselect as vs
from vmselect import cli
from vmselect._models import Output
from vmselect.cli import app
from vmselect.cli.output import Format, emit, print_csv, print_err, print_table
from vmselect.errors import RefreshError

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from profiles import make_profile


class Pair(Output):
    """A row with an unknown value."""

    a: float | None
    b: float | None


HOSTILE = "[bold]m[/bold] \x1b[31mred\x1b[0m \x07"


def is_plain(text: str) -> bool:
    return text.replace("\n", "").isprintable()


def test_names_are_neither_markup_nor_terminal_commands(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([{"name": HOSTILE}], ["name"])
    print_err([HOSTILE])
    for stream in capsys.readouterr():
        assert "[bold]m[/bold]" in stream
        assert is_plain(stream)
    print_csv([{"name": HOSTILE + "\nsecond,line"}], ["name"])
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) == 2
    assert is_plain(printed)


@pytest.mark.parametrize(("printed_as", "expected"), [(Format.csv, "a,b\n1.5,\n"), (Format.json, '"b": null')])
def test_unknown_values_are_empty(printed_as: Format, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    emit([{"a": 1.5, "b": float("nan")}], Pair, format=printed_as)
    assert expected in capsys.readouterr().out


def test_a_narrow_terminal_omits_columns_in_which_rows_are_equal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"name": "one", "region": "here", "time": "9 s"}, {"name": "two", "region": "here", "time": "8 s"}]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    heads = []
    for width in (80, 12):
        monkeypatch.setenv("COLUMNS", str(width))
        print_table(rows, ["name", "region", "time"], spare=["name", "region"])
        heads.append(capsys.readouterr().out.splitlines()[0])
    assert [[name in head for name in rows[0]] for head in heads] == [[True, True, True], [True, False, True]]


def test_a_narrow_terminal_omits_optional_columns_one_after_the_other_and_wraps_long_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"machine": "a-machine-with-a-name-of-40-characters--", "cores": 8, "memory": 32, "usd": 12.5}
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    heads = []
    for width in (80, 40, 33, 20):
        monkeypatch.setenv("COLUMNS", str(width))
        title = "A title of a price table"
        print_table([row], list(row), title=title, optional=["cores", "memory"], wrapped=["machine"])
        lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
        assert lines[0] == title  # whole, whatever the width
        assert max(map(len, lines[1:])) <= width
        assert "".join(line[: line.index("  ")] for line in lines[2:]) == row["machine"]
        heads.append(lines[1].split())
    assert heads == [list(row), ["machine", "memory", "usd"], ["machine", "usd"], ["machine", "usd"]]


def test_a_very_narrow_terminal_cuts_no_number(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"name": "a-long-name-of-a-machine", "first": 1234.5, "second": 9876.5}
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for width in (60, 30, 20, 16):
        monkeypatch.setenv("COLUMNS", str(width))
        print_table([row], list(row), wrapped=["name"])
        text = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
        digits = sorted(re.sub(r"\D", "", text))
        assert digits == sorted("1234598765"), text


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\x1b=1"])
def test_a_spreadsheet_takes_text_for_text(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_csv([{"name": name, "number": -1.5}], ["name", "number"])
    cell, number = next(csv.reader([capsys.readouterr().out.splitlines()[1]]))
    assert cell.startswith("'")
    assert cell.isprintable()
    assert number == "-1.5"


def test_results_and_errors_print_no_terminal_commands() -> None:
    hostile, plain = make_profile(HOSTILE, model=HOSTILE), make_profile("g4dn.xlarge", model=HOSTILE)
    ranking = vs.rank([hostile, plain], epochs=3)
    compared = vs.compare([hostile, plain], by="instance_type")
    study = vs.ConvergenceStudy.from_epochs({64: [10, 12]}, model=HOSTILE)
    shown = (ranking, compared, vs.estimate(hostile, epochs=3), hostile, study, *ranking.excluded, *ranking.findings)
    for one in shown:
        assert is_plain(str(one))
        assert is_plain(repr(one))
    assert "[bold]m[/bold]" in str(ranking)
    with pytest.raises(vs.errors.ProfileError) as refused:
        vs.load_profiles("no-such-\x1b[31m-file.json")
    assert str(refused.value).isprintable()


def leaf_commands() -> Iterator[tuple[str, Any]]:
    waiting: list[tuple[str, Any]] = [("", get_command(app))]
    while waiting:
        name, command = waiting.pop()
        inside = getattr(command, "commands", {})
        waiting += [(f"{name} {part}".strip(), one) for part, one in inside.items()]
        if not inside:
            yield name, command


@pytest.mark.parametrize(("name", "command"), [pytest.param(*one, id=one[0]) for one in leaf_commands()])
def test_every_command_takes_quiet_after_its_name(name: str, command: Any) -> None:
    quiet = [option for option in command.params if "-q" in option.opts]
    assert [option.opts for option in quiet] == [["--quiet", "-q"]]
    names = [one for option in command.params for one in (*option.opts, *option.secondary_opts)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("command", [["-q", "rank"], ["rank", "-q"], ["rank", "--quiet"]])
def test_quiet_before_and_after_the_command(command: list[str], tmp_path: Path) -> None:
    for name in ("g4dn.xlarge", "made.up"):  # the second has no price, so that a message is printed
        make_profile(name).save(tmp_path)
    before, *after = command
    words = [before, *after, str(tmp_path), "-e", "5"]
    loud = CliRunner().invoke(app, [word for word in words if word not in ("-q", "--quiet")])
    quiet = CliRunner().invoke(app, words)
    assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (0, loud.stdout, "")
    assert loud.stderr


def test_an_error_of_several_parts_has_a_line_for_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise RefreshError("Prices of a were not fetched.\nPrices of b were not fetched.")

    monkeypatch.setattr(cli, "app", fail)
    monkeypatch.setattr(cli, "_name_options", lambda message, _: message)
    with pytest.raises(SystemExit):
        cli.main()
    assert len(capsys.readouterr().err.splitlines()) == 2
