"""``vmselect report``: the same ranking as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vmselect.cli import options
from vmselect.cli.output import print_err, print_out


def report(
    profiles: options.ProfilesArgument,
    epochs: options.EpochsOption = None,
    decide_at: options.DecideAtOption = None,
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
    output: Annotated[Path, typer.Option("--output", help="Where to write the page.")] = Path("report.html"),
) -> None:
    """Write the ranking as one self-contained page that opens from disk and re-ranks in the browser.

    Takes the options of rank. The page's address goes to standard output. Exit code 1 when nothing is feasible; the
    page then states why.

    Examples:

      vmselect report profiles/ --epochs 5,10,20 --output report.html

      vmselect report profiles/ --epochs 50 --market all --batch-size all
    """
    ranking = options.make_ranking(locals())
    page = ranking.report(output)
    print_err([ranking.verdict])
    print_out(page.resolve().as_uri())
    if not ranking:
        raise typer.Exit(1)
