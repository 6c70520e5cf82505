"""``vmselect report``: the same ranking as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmselect.cli.options import ranks
from vmselect.cli.output import say, tell

if TYPE_CHECKING:
    from vmselect.ranking import Ranking


@ranks
def report(
    ranking: Ranking,
    output: Annotated[Path, typer.Option("--output", help="Where to write the page.")] = Path("report.html"),
) -> None:
    """Write the ranking as one self-contained page that opens from disk and re-ranks in the browser.

    Takes the options of rank. The page's address goes to standard output. Exit code 1 when nothing is feasible; the
    page then says why.

    Examples:

      vmselect report profiles/ --epochs 5,10,20 --output report.html

      vmselect report profiles/ --epochs 50 --market all --batch-size all
    """
    page = ranking.report(output)
    say([ranking.verdict])
    tell(page.resolve().as_uri())
    if not ranking:
        raise typer.Exit(1)
