"""``vmselect select``: VM type and batch size together, from profiles and a convergence study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmselect.cli.options import made_by
from vmselect.cli.output import Format, FormatOption, say
from vmselect.cli.rank import print_ranking
from vmselect.errors import ArgumentError

if TYPE_CHECKING:
    from vmselect.ranking import Ranking, Row


def make_selection(
    request: dict[str, Any],
    study: Annotated[
        list[Path],
        typer.Option("--study", "-s", help="Study files, or folders of them; may be repeated.", show_default=False),
    ],
    minimum_metric: Annotated[
        str | None, typer.Option(help="Demanded of the final metric: 0.97, or val_accuracy=0.97,val_loss=0.2.")
    ] = None,
) -> Ranking:
    """The selection that the options describe."""
    from vmselect.convergence import ConvergenceStudy
    from vmselect.ranking import select as select_pairs

    return select_pairs(
        request.pop("profiles"), ConvergenceStudy.load(study), minimum_metric=read_minimum(minimum_metric), **request
    )


@made_by(make_selection)
def select(
    selection: Ranking,
    top: Annotated[int, typer.Option(help="Rows to show in the table.", min=1)] = 20,
    report: Annotated[Path | None, typer.Option(help="Also write the report page here.")] = None,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Choose VM type and batch size together: epochs from a convergence study, seconds from the profiles.

    JSON holds everything, CSV every row. Remarks and doubts go to standard error. Exit code 1 when nothing is feasible.

    Examples:

      vmselect select profiles/ --study study/

      vmselect select profiles/ --study study/ --minimum-metric 0.97 --objective time

      vmselect select profiles/ -s study/ --batch-size 64,128,256 --report report.html
    """
    if report is not None:
        say([f"Report: {selection.report(report).resolve().as_uri()}"])

    def metric(row: Row) -> dict[str, Any]:
        return {selection.study.monitor: selection.metric(row.batch_size)} if selection.study else {}

    print_ranking(selection, top=top, format=format, more=metric)


def read_minimum(text: str | None) -> float | dict[str, float] | None:
    """One number for the monitored metric, or numbers by name."""
    if text is None:
        return None
    try:
        if "=" not in text:
            return float(text)
        return {name.strip(): float(value) for name, value in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise ArgumentError(
            f"--minimum-metric {text!r} cannot be read; write it as 0.97, or as val_accuracy=0.97,val_loss=0.2."
        ) from None
