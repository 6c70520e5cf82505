"""What commands print is text, whatever the names in a profile hold."""

from __future__ import annotations

import pytest

from vmselect.cli.output import Format, emit, say

HOSTILE = "[bold]m[/bold] \x1b[31mred\x1b[0m \x07"


def test_names_are_neither_markup_nor_terminal_commands(capsys: pytest.CaptureFixture[str]) -> None:
    emit([{"name": HOSTILE}], ["name"], format=Format.table)
    say([HOSTILE])
    printed = capsys.readouterr()
    for stream in (printed.out, printed.err):
        assert "[bold]m[/bold]" in stream
        assert "\x1b" not in stream
        assert "\x07" not in stream


@pytest.mark.parametrize(("format", "expected"), [(Format.csv, "a,b\n1.5,\n"), (Format.json, '"b": null')])
def test_what_is_unknown_is_empty(
    format: Format,  # noqa: A002
    expected: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    emit([{"a": 1.5, "b": float("nan")}], ["a", "b"], format=format)
    assert expected in capsys.readouterr().out


def test_a_narrow_terminal_gets_the_columns_that_tell_rows_apart(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"name": "one", "region": "here", "time": "9 s"}, {"name": "two", "region": "here", "time": "8 s"}]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    heads = []
    for width in (80, 12):
        monkeypatch.setenv("COLUMNS", str(width))
        emit(rows, ["name", "region", "time"], format=Format.table, spare=["name", "region"])
        heads.append(capsys.readouterr().out.splitlines()[0])
    assert [[name in head for name in ("name", "region", "time")] for head in heads] == [
        [True] * 3,
        [True, False, True],
    ]
