"""``vmselect select``: VM type and batch size together, from profiles and a convergence study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmselect.cli import options
from vmselect.cli.output import Format, FormatOption, print_err
from vmselect.cli.rank import print_ranking

if TYPE_CHECKING:
    from vmselect.ranking import Row


def select(
    profiles: options.ProfilesArgument,
    study: Annotated[
        list[Path],
        typer.Option("--study", "-s", help="Study files, or folders of them; may be repeated.", show_default=False),
    ],
    minimum_metric: Annotated[
        str | None, typer.Option(help="Required final metric: 0.97, or val_accuracy=0.97,val_loss=0.2.")
    ] = None,
    objective: options.ObjectiveOption = None,
    batch_size: options.BatchSizeOption = None,
    model: options.ModelOption = None,
    fit: options.FitOption = None,
    deadline_hours: options.DeadlineOption = None,
    budget_usd: options.BudgetOption = None,
    region: options.RegionOption = None,
    market: options.MarketOption = None,
    catalog: options.CatalogOption = None,
    own_prices: options.OwnPricesOption = None,
    date: options.DateOption = None,
    billing: options.BillingOption = None,
    include_retired: options.RetiredOption = False,
    method: options.MethodOption = None,
    confidence: options.ConfidenceOption = None,
    examples: options.ExamplesOption = None,
    validation_examples: options.ValidationExamplesOption = None,
    steps_per_epoch: options.StepsPerEpochOption = None,
    boot_seconds: options.BootOption = None,
    interruptions_per_hour: options.InterruptionsOption = None,
    checkpoint_minutes: options.CheckpointOption = None,
    restart_minutes: options.RestartOption = None,
    top: Annotated[int, typer.Option(help="Rows to show in the table.", min=1)] = 20,
    report: Annotated[Path | None, typer.Option(help="Also write the report page here.")] = None,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Choose VM type and batch size together: epochs from a convergence study, seconds from the profiles.

    JSON holds everything, CSV every row. Findings go to standard error. Exit code 1 when nothing is feasible.

    Examples:

      vmselect select profiles/ --study study/

      vmselect select profiles/ --study study/ --minimum-metric 0.97 --objective time

      vmselect select profiles/ -s study/ --batch-size 64,128,256 --report report.html
    """
    selection = options.make_ranking(locals())
    if report is not None:
        print_err([f"Report: {selection.report(report).resolve().as_uri()}"])

    def metric(row: Row) -> dict[str, Any]:
        return {selection.study.monitor: selection.metric(row.batch_size)} if selection.study else {}

    print_ranking(selection, top=top, format=format, more=metric)
