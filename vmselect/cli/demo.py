"""The command ``vmselect demo``, which ranks the machines of example records that ship with vmselect."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmselect.cli.output import Format, FormatOption, print_err
from vmselect.cli.rank import print_ranking

if TYPE_CHECKING:
    from vmselect.ranking import Ranking

EXAMPLE_RECORDS = Path(__file__).parents[1] / "example_records"
"""Folder of the example records: published training times of six GPU machines, one profile each."""
PRICE_DATE = "2021-02-28"
DEADLINE_HOURS = 0.5


def demo(
    out: Annotated[Path, typer.Option("--out", help="HTML file for the report page.")] = Path("demo.html"),
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Rank six GPU machines by example records that ship with vmselect, and write the report page.

    The times were published: ResNet-50 on CIFAR-10 at batch size 512, means of three runs (Malta, 2021, Table 4.2).
    The prices are those of February 2021, and the deadline is half an hour. Nothing is measured, rented or downloaded.
    The URL of the page is printed to standard error.

    Examples:

      vmselect demo

      vmselect demo --out page.html --json
    """
    ranking = rank_example()
    page = ranking.report(out)
    print_ranking(ranking, top=len(ranking), format=format)
    print_err([f"Report: {page.resolve().as_uri()}"])


def rank_example() -> Ranking:
    """Rank the machines of the example records at the prices of 2021, with a finding that this is an example."""
    from vmselect.catalog import Catalog
    from vmselect.findings import Finding
    from vmselect.ranking import rank
    from vmselect.records import load_profiles

    example = Finding(
        "example",
        "This is an example: published times of ResNet-50 on CIFAR-10 (Malta, 2021, Table 4.2) at prices of February "
        "2021.",
        "To rank machines for your own training, start with: vmselect probe train.py",
        "info",
    )
    catalog = Catalog.embedded(date=PRICE_DATE)
    ranking = rank(load_profiles(EXAMPLE_RECORDS), catalog=catalog, deadline_hours=DEADLINE_HOURS)
    return ranking.with_findings([example], example=True)
