"""The commands ``vmselect prices show``, ``check``, ``refresh`` and ``snapshot``."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer
from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from vmselect._models import Output, derive_model, make_model
from vmselect.cli.options import CatalogOption, DateOption, OwnPricesOption, open_catalog
from vmselect.cli.output import (
    Format,
    FormatOption,
    JsonOption,
    emit,
    flag,
    frame_rows,
    is_quiet,
    print_err,
    print_written,
)
from vmselect.ranking.options import BY_NAME
from vmselect.units import format_count

if TYPE_CHECKING:
    import pandas as pd

    from vmselect.catalog import Catalog
    from vmselect.catalog.refresh import Progress
    from vmselect.findings import Finding

app = typer.Typer(help="Show, check and refresh the prices of VM types.", no_args_is_help=True)

SPARE = ("provider", "service", "region", "market", "date", "retired", "source", "note")
ProviderOption = Annotated[list[str] | None, typer.Option("--provider", help="Providers, as in aws,gcp.")]
RegionOption = Annotated[list[str] | None, typer.Option("--region", help="Regions, as in us-east-1,eastus.")]


@functools.cache
def price_model() -> type[Output]:
    """Model of a price: the fields of an offer."""
    from vmselect.catalog import Offer

    kinds = {name: field.annotation for name, field in Offer.model_fields.items()}
    unknown = dict.fromkeys(("service", "date", "gpu_model", "source", "note"), str | None)
    return make_model("Price", (Offer.__doc__ or "").partition("\n")[0], **kinds | unknown)


@functools.cache
def refresh_model() -> type[Output]:
    """Model of the state of a region whose prices are fetched."""
    from vmselect.catalog.refresh import Progress

    return derive_model(Progress)


class PriceChange(Output):
    """A price that differs between two catalogs."""

    change: Literal["new", "gone", "higher", "lower"]
    provider: str
    service: str | None
    instance_type: str
    region: str
    market: str
    old_usd_per_hour: float | None
    new_usd_per_hour: float | None
    percent: float | None
    old_date: str | None
    new_date: str | None


@app.command()
def show(
    instance_type: Annotated[list[str] | None, typer.Argument(help="VM types to show; all if none is given.")] = None,
    provider: ProviderOption = None,
    region: RegionOption = None,
    market: Annotated[
        str, typer.Option(help="Markets, as in on_demand,spot,reserved_1y,reserved_3y, or all.")
    ] = BY_NAME["market"].default,
    gpu: Annotated[list[str] | None, typer.Option(help="Show only VM types with these GPUs, as in T4,L4.")] = None,
    date: DateOption = None,
    catalog: CatalogOption = None,
    own_prices: OwnPricesOption = None,
    retired: Annotated[bool, flag("--retired", help="Also show VM types that can no longer be rented.")] = False,
    top: Annotated[
        int | None, typer.Option(help="Number of prices to show, cheapest first.", min=1, show_default="all")
    ] = None,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Show the prices of VM types, cheapest first: your refreshed prices, or else prices that ship with vmselect."""
    matching = find_prices(
        open_catalog(catalog, date=date, own_prices=own_prices), instance_type or [], provider=provider, region=region,
        market=market, gpu=gpu, retired=retired or bool(date),
    )  # fmt: skip
    rows = matching.rows.head(top) if top else matching.rows
    title = f"{format_count(len(matching.rows), 'price')} in USD per hour, {matching.origin}"
    emit(frame_rows(rows), price_model(), format=format, title=title, spare=SPARE)
    print_err(matching.findings)
    if len(rows) < len(matching.rows):
        left = len(matching.rows) - len(rows)
        verb = "matches" if left == 1 else "match"
        print_err([f"{format_count(left, 'more price')} {verb}. Raise --top to show {'it' if left == 1 else 'them'}."])
    if not len(rows):
        print_err(["No price matches these options. Choose another --market or --region, or add --retired."])
        raise typer.Exit(1)


def split(names: list[str] | None) -> list[str] | None:
    """Return the names in a repeated option, each of which may be a list with commas; None without any."""
    # A comma before a blank is part of a name: regions of marketplaces are called "Texas, US".
    return [name for listed in names or () for name in re.split(r",(?! )", listed)] or None


class Prices(NamedTuple):
    """Prices that match a search, cheapest first, with their origin and findings about them."""

    rows: pd.DataFrame
    origin: str
    findings: list[Finding]


def find_prices(
    prices: Catalog,
    instance_types: list[str],
    *,
    provider: list[str] | None,
    region: list[str] | None,
    market: str,
    gpu: list[str] | None,
    retired: bool,
) -> Prices:
    """Return the offers of ``prices`` that match. A finding lists the instance types without a price."""
    from vmselect.catalog import describe_age, describe_unpriced
    from vmselect.catalog.offer import OWN_PRICE
    from vmselect.findings import Finding

    priced = {str(name) for name in prices.offers(market=None)["instance_type"].unique()}
    descriptions = {name: describe_unpriced(name) for name in instance_types if name not in priced}
    unpriced = {name: machine for name, machine in descriptions.items() if machine}
    if len(unpriced) < len(instance_types):  # offers() raises when none is priced
        instance_types = [name for name in instance_types if name not in unpriced]
    rows = prices.offers(
        split(provider), region=split(region), market=split([market]), gpu=split(gpu),
        instance_type=instance_types or None, retired=None if retired or instance_types else False,
    )  # fmt: skip
    rows = rows.sort_values("usd_per_hour", kind="stable")
    age = describe_age(rows["date"].astype(str).unique())
    remedy = f"Run `vmselect prices refresh`, or add a price with {OWN_PRICE}."
    without_price = [
        Finding("unpriced", f"No price of {name} ({machine}) is known.", remedy) for name, machine in unpriced.items()
    ]
    return Prices(rows, str(prices.origin), [*prices.findings, *([age] if age else []), *without_price])


@app.command()
def check(
    prices: Annotated[Path | None, typer.Argument(help="Price file.", show_default="your refreshed prices")] = None,
    before: Annotated[
        Path | None, typer.Option(help="Price file to compare with.", show_default="the shipped prices")
    ] = None,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Check prices: list invalid rows, and prices that are new, gone, higher or lower than before.

    Exit code 1 if a price differs, or if a message concerns the checked prices, such as an invalid row or old prices.
    Messages about the prices to compare with do not change the exit code.
    """
    from vmselect.catalog import Catalog, compare_prices

    earlier = Catalog.load(before, skip_bad_rows=True) if before else Catalog.embedded()
    current = Catalog.load(prices, skip_bad_rows=True) if prices else Catalog.refreshed(alone=True)
    changes = compare_prices(earlier, current)
    counts = ", ".join(f"{number} {change}" for change, number in changes["change"].value_counts().items())
    title = f"{counts or 'no change'}: {current.origin} against {earlier.origin}"
    emit(frame_rows(changes), PriceChange, format=format, title=title)
    print_err([*earlier.findings, *current.findings])
    if len(changes) or current.findings:
        raise typer.Exit(1)


@app.command()
def refresh(
    provider: ProviderOption = None,
    region: RegionOption = None,
    source: Annotated[
        str,
        typer.Option(help="Source: api (price API of each provider), or skypilot (its public catalog, no account)."),
    ] = "api",
    max_age_hours: Annotated[float, typer.Option(help="Do not fetch prices again within this many hours.")] = 6.0,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Fetch current prices to your cache folder. If the prices of a region cannot be fetched, its old prices stay.

    Examples:

      vmselect prices refresh --provider azure

      vmselect prices refresh --source skypilot --provider aws --region eu-west-1,us-east-2

      vmselect prices refresh --source skypilot --provider lambda --region all
    """
    from vmselect.catalog.refresh import cache_folder, refresh_prices

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True, disable=is_quiet()) as bars:
        tasks: dict[tuple[str, str], TaskID] = {}

        def follow(part: Progress) -> None:
            key = (part.provider, part.region)
            task = tasks[key] if key in tasks else tasks.setdefault(key, bars.add_task("", total=None))
            words = (*key, part.state, part.detail)
            bars.update(task, description=" ".join(word for word in words if word))
            if part.state not in ("waiting", "fetching"):
                bars.stop_task(task)

        outcome = refresh_prices(
            split(provider), regions=split(region), max_age_hours=max_age_hours, source=source, progress=follow
        )
    rows = [vars(part) for part in sorted(outcome.parts, key=lambda part: (part.provider, part.region))]
    emit(rows, refresh_model(), format=format, title=f"Prices in {cache_folder()}")
    print_err(outcome.findings)
    if any(part.state == "failed" for part in outcome.parts):
        raise typer.Exit(1)


@app.command()
def snapshot(
    folder: Annotated[Path, typer.Argument(help="Folder pricing/ in the source code of vmselect.")] = Path("pricing"),
    as_json: JsonOption = False,
) -> None:
    """For developers of vmselect: write your refreshed prices as a new snapshot that ships with vmselect."""
    from vmselect.catalog.refresh import write_snapshot

    print_written([write_snapshot(folder)], as_json=as_json)
    print_err(["Now run: pytest tests/unit/catalog/test_files_shipped.py"])
