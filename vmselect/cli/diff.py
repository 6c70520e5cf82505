"""The command ``vmselect diff``, which compares time and cost of trainings before and after a change of the code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vmselect.cli.options import PriceOptions, limit_option, with_price_options
from vmselect.cli.output import Format, FormatOption, emit, print_err, print_out, working
from vmselect.errors import ArgumentError


@with_price_options
def diff(
    old: Annotated[str, typer.Argument(help="Profiles before the change: a file, folder or URL.", show_default=False)],
    new: Annotated[str, typer.Argument(help="Profiles after the change: a file, folder or URL.", show_default=False)],
    epochs: Annotated[
        int | None,
        typer.Option("--epochs", "-e", help="Number of epochs to train.", show_default="as probed"),
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
    format: FormatOption = Format.table,  # noqa: A002
    *,
    prices: PriceOptions,
) -> None:
    """Compare the time and cost of the same trainings before and after a change of the code.

    Trainings are matched by model, machine type, batch size and factors. A limit is exceeded if the estimated increase
    is above the limit and its whole interval is above zero, so that noise alone does not fail a pull request. Exit code
    1 if a limit is exceeded, 2 if nothing can be compared, or if a limit cannot be checked because the measurement of a
    training was too disturbed.

    Examples:

      vmselect diff profiles-main/ profiles/

      vmselect diff profiles-main/ profiles/ --epochs 50 --limit-percent 5 --format json
    """
    from vmselect.comparison.changes import find_changes
    from vmselect.comparison.output import ChangeOutput, describe_change
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
            catalog=prices.open(),
            region=prices.region,
            market=prices.market,
        )
    if format is Format.json:
        print_out(changes.to_json(indent=1), raw=True)
    elif format is Format.csv:
        emit([vars(describe_change(change)) for change in changes], [*ChangeOutput.model_fields], format=format)
    else:
        for change in changes:
            print_out(f"{change}{' (above the limit)' if change.exceeds else ''}")
    if markdown is not None:
        with markdown.open("a", encoding="utf-8") as file:
            file.write(changes.to_markdown())
    print_err((f"{one.severity.capitalize()}: {one}" for one in changes.findings), always=changes.too_uncertain)
    if changes.exceeds:
        raise typer.Exit(1)
    limited = limit_percent is not None or limit_usd is not None
    if not changes or (limited and changes.too_uncertain):
        raise typer.Exit(2)
