"""The commands ``score`` and ``score add``, which compare forecasts with the real times of trainings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from vmselect.cli.output import (
    Format,
    FormatOption,
    JsonOption,
    frame_rows,
    print_csv,
    print_err,
    print_json,
    print_out,
    print_table,
    print_written,
    working,
)
from vmselect.errors import ArgumentError
from vmselect.units import SECONDS_PER_HOUR


class _ScoreGroup(TyperGroup):
    """The commands of ``score``, of which ``show`` may be omitted: ``vmselect score FOLDER``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert ``show`` in front of arguments that begin with none of the commands."""
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ScoreGroup, no_args_is_help=True,
    help="Compare kept forecasts with the real trainings: vmselect score FOLDER is short for vmselect score show.",
)  # fmt: skip


@app.command("show")
def show(
    folders: Annotated[
        list[str],
        typer.Argument(metavar="FOLDER", help="Folders, files or URLs of forecasts and outcomes.", show_default=False),
    ],
    by: Annotated[
        str | None,
        typer.Option(help="Show only groups by one of: method, basis, family, gpu, backend, model, month."),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write an HTML page with charts to this file.")] = None,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Compare kept forecasts with the real trainings: error, bias, coverage, width of the intervals, and regret.

    Outcomes are trainings that a probe measured to their end, profiles with total times, and records that vmselect
    score add wrote. The table has a row per group, CSV output a row per outcome; JSON output contains everything. The
    worst cases, and outcomes that could not be scored, are printed to standard error. Exit code 1 if no forecast has
    an outcome.

    Examples:

      vmselect score records/

      vmselect score forecasts/ watched/ --by basis

      vmselect score records/ --html score.html --json
    """
    from vmselect.records import load_records
    from vmselect.scoring.score import CaseOutput, ScoreGroup, describe_score, score

    with working("Reading forecasts and outcomes"):
        result = score(load_records(folders))
    groups = result.groups if by is None else result.by(by).assign(by=by)
    if format is Format.json:
        print_json(describe_score(result))
    elif format is Format.csv:
        print_csv(frame_rows(result.to_frame()), [*CaseOutput.model_fields])
    else:
        print_out(result.verdict)
        if result:
            print_table(frame_rows(groups), ["by", *ScoreGroup.model_fields])
    if html is not None:
        print_err([f"Page: {result.report(html).resolve().as_uri()}"])
    if format is Format.table:
        print_err(str(result).splitlines()[1:])
        print_err(f"{finding.severity.capitalize()}: {finding}" for finding in result.findings)
    if not result:
        raise typer.Exit(1)


@app.command("add")
def add(
    forecast: Annotated[str, typer.Argument(help="File of the forecast.", show_default=False)],
    hours: Annotated[float, typer.Option(help="Hours that the training really took.", show_default=False)],
    usd: Annotated[float | None, typer.Option(help="Real cost of the training in USD.")] = None,
    folder: Annotated[
        str | None, typer.Option(help="Folder for the record.", show_default="the folder of the forecast")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Record the real time and cost of a training that was forecast, for vmselect score.

    The path of the record is printed to standard output. A training that a probe measured to its end (stop=False)
    needs no such record.

    Examples:

      vmselect score add forecasts/g5.xlarge-64-forecast-20261101T101500.json --hours 3.2 --usd 4.1
    """
    from vmselect._io import check_place
    from vmselect.records import Forecast
    from vmselect.records.files import load_record

    record = load_record(forecast, kind="forecast")
    assert isinstance(record, Forecast)
    if not hours > 0:
        raise ArgumentError(f"--hours must be above zero, not {hours:g}. Give the hours of the whole training.")
    target = folder or check_place("forecast", forecast).parent
    saved = record.outcome(seconds=hours * SECONDS_PER_HOUR, cost_usd=usd).save(target)
    print_written([saved], as_json=as_json)
