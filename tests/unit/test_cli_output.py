"""What commands print is text, whatever the names in a profile hold."""

from __future__ import annotations

import csv

import pytest

import vmselect as vs
from vmselect.cli.output import Format, emit, print_err

HOSTILE = "[bold]m[/bold] \x1b[31mred\x1b[0m \x07"


def test_names_are_neither_markup_nor_terminal_commands(capsys: pytest.CaptureFixture[str]) -> None:
    emit([{"name": HOSTILE}], ["name"], format=Format.table)
    print_err([HOSTILE])
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


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\x1b=1"])
def test_a_spreadsheet_takes_text_for_text(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    emit([{"name": name, "number": -1.5}], ["name", "number"], format=Format.csv)
    (cell, number) = next(csv.reader([capsys.readouterr().out.splitlines()[1]]))
    assert cell.startswith("'")
    assert cell.isprintable()
    assert number == "-1.5"


def test_csv_holds_no_terminal_commands(capsys: pytest.CaptureFixture[str]) -> None:
    emit([{"name": HOSTILE + "\nsecond,line"}], ["name"], format=Format.csv)
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) == 2
    assert printed.replace("\n", "").isprintable()


def test_nothing_that_is_computed_prints_terminal_commands() -> None:
    hostile, plain = (
        vs.Profile.from_times(
            instance_type=name, model="net", batch_size=8, steps_per_epoch=9, iteration_seconds=[0.1] * 4
        )
        for name in (HOSTILE, "g4dn.xlarge")
    )
    ranking = vs.rank([hostile, plain], epochs=3)
    compared = vs.compare([hostile, plain], by="instance_type")
    estimate = vs.estimate(hostile, epochs=3)
    for shown in (ranking, compared, estimate, *ranking.excluded, *ranking.findings):
        for text in (str(shown), repr(shown)):
            assert text.replace("\n", "").isprintable()
    assert "[bold]m[/bold]" in str(ranking)


def test_no_error_prints_terminal_commands() -> None:
    with pytest.raises(vs.errors.ProfileError) as refused:
        vs.load_profiles("no-such-\x1b[31m-file.json")
    assert str(refused.value).isprintable()
    assert "\n" in str(vs.errors.PlanError("line 3: a\nline 5: b"))


def test_profiles_and_studies_print_no_terminal_commands() -> None:
    profile = vs.Profile.from_times(
        instance_type="g4dn.xlarge", model=HOSTILE, first_epoch_seconds=40, later_epoch_seconds=30
    )
    study = vs.ConvergenceStudy.from_epochs({64: [10, 12]}, model=HOSTILE)
    for shown in (str(profile), str(study)):
        assert "[bold]m[/bold]" in shown
        assert shown.replace("\n", "").isprintable()
