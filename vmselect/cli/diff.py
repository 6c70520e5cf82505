"""The command ``vmselect diff``: what a change of the code does to the time and cost of a training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vmselect import _defaults
from vmselect.cli.options import CatalogOption, DateOption, OwnPricesOption, limit_option, open_catalog, price_option
from vmselect.cli.output import Format, FormatOption, emit, print_err, print_out, working
from vmselect.errors import ArgumentError


def diff(
    old: Annotated[str, typer.Argument(help="Profiles before the change: a file, folder or URL.", show_default=False)],
    new: Annotated[str, typer.Argument(help="Profiles after the change: a file, folder or URL.", show_default=False)],
    epochs: Annotated[
        int | None,
        typer.Option("--epochs", "-e", help="Number of epochs of the training.", show_default="as probed"),
    ] = None,
    limit_percent: Annotated[
        float | None, limit_option(help="Exit with code 1 if the total time grows by more than this percentage.")
    ] = None,
    limit_usd: Annotated[
        float | None, limit_option(help="Exit with code 1 if the cost of a training grows by more than this (USD).")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Also append a Markdown table to this file, such as $GITHUB_STEP_SUMMARY.")
    ] = None,
    region: Annotated[str | None, price_option(help="Region whose prices are used.", show_default="as probed")] = None,
    market: Annotated[
        str, price_option(help="Market: on_demand, spot, reserved_1y or reserved_3y.")
    ] = _defaults.MARKET,
    catalog: CatalogOption = None,
    own_prices: OwnPricesOption = None,
    date: DateOption = None,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Compare the time and cost of the same trainings before and after a change.

    Trainings are matched by model, machine type, batch size and factors. A limit is exceeded if the estimate is above
    it and the whole interval is above zero, so that noise alone does not fail a pull request. Exit code 1 when a limit
    is exceeded, 2 when nothing can be compared.

    Examples:

      vmselect diff profiles-main/ profiles/

      vmselect diff profiles-main/ profiles/ --epochs 50 --limit-percent 5 --format json
    """
    from vmselect.comparison.changes import COLUMNS, find_changes
    from vmselect.records import load_profiles

    if markdown is not None and markdown.is_dir():
        raise ArgumentError(f"--markdown {str(markdown)!r} is a folder. Give the path of a file.")
    with working("Comparing profiles"):
        changes = find_changes(
            load_profiles(old),
            load_profiles(new),
            epochs=epochs,
            limit_percent=limit_percent,
            limit_usd=limit_usd,
            catalog=open_catalog(catalog, date=date, own_prices=own_prices),
            region=region,
            market=market,
        )
    if format is Format.json:
        print_out(changes.to_json(indent=1), raw=True)
    elif format is Format.csv:
        emit([change.to_dict() for change in changes], COLUMNS, format=format)
    else:
        for change in changes:
            print_out(f"{change}{' (above the limit)' if change.exceeds else ''}")
    if markdown is not None:
        with markdown.open("a", encoding="utf-8") as file:
            file.write(changes.to_markdown())
    print_err(f"{one.severity.capitalize()}: {one}" for one in changes.findings)
    if changes.exceeds:
        raise typer.Exit(1)
