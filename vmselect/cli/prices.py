"""The commands ``vmselect prices show``, ``check``, ``refresh`` and ``snapshot``."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from vmselect._models import Output, derive_model, make_model
from vmselect.cli.options import CatalogOption, DateOption, OwnPricesOption, open_catalog, split_names
from vmselect.cli.output import (
    Format,
    FormatOption,
    JsonOption,
    emit,
    flag,
    frame_rows,
    is_quiet,
    print_err,
    print_table,
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

COLUMNS = (
    "machine", "GPU", "GB", "vCPUs", "GiB", "where", "regions", "market", "USD/h", "USD/GPU-h", "date", "remark",
)  # fmt: skip
"""Columns of the table of prices. CSV and JSON have all fields of a price."""
SPARE = ("regions", "market", "remark")
"""Columns that a narrow terminal does not need if all rows are equal in them."""
OPTIONAL = ("GB", "GiB", "vCPUs", "regions")
"""Columns that are omitted in a narrow terminal."""
FLAG_COLUMNS = {
    "machine": "instance_type", "where": "", "market": "market", "USD/h": "usd_per_hour", "date": "date",
    "source": "source", "flag": "flag", "left out": "implausible", "reason": "reason",
}  # fmt: skip
CHANGE_COLUMNS = {
    "change": "change", "machine": "instance_type", "where": "", "market": "market", "earlier USD/h":
    "old_usd_per_hour", "USD/h": "new_usd_per_hour", "%": "percent", "earlier date": "old_date", "date": "new_date",
}  # fmt: skip
GPU_COLUMNS = ("GPU", "GB", "on demand", "where", "spot", "spot where", "providers")
ONE_PRICE = (
    "* One price in every region of the provider, which says nothing about where the machine is available. "
    "--region all lists the regions."
)
ProviderOption = Annotated[list[str] | None, typer.Option("--provider", help="Providers, as in aws,gcp.")]
RegionOption = Annotated[
    list[str] | None,
    typer.Option("--region", help="Regions, countries or groups, as in us-east-1,de,eu, or all regions."),
]
PlaceOption = Annotated[
    list[str] | None,
    typer.Option("--region", help="Regions, countries or groups, as in us-east-1,de,eu,europe; all lists each region."),
]


@functools.cache
def price_model() -> type[Output]:
    """Model of a price: the fields of an offer."""
    from vmselect.catalog import Offer

    kinds = {name: field.annotation for name, field in Offer.model_fields.items()}
    unknown = dict.fromkeys(("service", "date", "gpu_model", "source", "note"), str | None)
    derived = {"stale": bool, "usd_per_gpu_hour": float | None, "regions_compared": int}
    return make_model("Price", (Offer.__doc__ or "").partition("\n")[0], **kinds | unknown | derived)


class GpuPrices(Output):
    """A GPU model with its cheapest prices per GPU-hour, on demand and spot, and who offers it."""

    gpu_model: str
    gpu_memory_gib: float | None
    providers: int
    usd_per_gpu_hour: float | None
    provider: str | None
    region: str | None
    instance_type: str | None
    spot_usd_per_gpu_hour: float | None
    spot_provider: str | None
    spot_region: str | None
    spot_instance_type: str | None


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


class FlaggedPrice(Output):
    """A price that is implausible, or says less than it seems to."""

    provider: str
    service: str | None
    instance_type: str
    region: str
    market: str
    usd_per_hour: float
    date: str | None
    source: str | None
    flag: str
    implausible: bool
    reason: str


@app.command()
def show(
    instance_type: Annotated[list[str] | None, typer.Argument(help="VM types whose prices to show.")] = None,
    provider: ProviderOption = None,
    region: PlaceOption = None,
    market: Annotated[
        str, typer.Option(help="Markets, as in on_demand,spot,reserved_1y,reserved_3y, or all.")
    ] = BY_NAME["market"].default,
    gpu: Annotated[list[str] | None, typer.Option(help="Show the VM types with these GPUs, as in T4,L4.")] = None,
    each: Annotated[bool, flag("--all", help="Show every price, also of VM types without a GPU.")] = False,
    date: DateOption = None,
    catalog: CatalogOption = None,
    own_prices: OwnPricesOption = None,
    retired: Annotated[bool, flag("--retired", help="Also show VM types that can no longer be rented.")] = False,
    top: Annotated[
        int | None, typer.Option(help="Number of prices to show, cheapest first.", min=1, show_default="all")
    ] = None,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Show prices: each GPU with its cheapest offers; with --gpu, the VM types with a GPU by USD per GPU-hour.

    A VM type is shown in its cheapest region; --region all shows each region. These are your refreshed prices, and
    prices that ship with vmselect for all other offers. Stale prices come last.

    Examples:

      vmselect prices show

      vmselect prices show --gpu H100 --region eu

      vmselect prices show --gpu A100-80GB --provider lambda,runpod --market all

      vmselect prices show g5.xlarge --market all
    """
    prices = open_catalog(catalog, date=date, own_prices=own_prices)
    if not (instance_type or gpu or each):
        _show_gpus(prices, split(provider), split(region), split([market]), top=top, format=format)
        return
    matching = find_prices(
        prices, instance_type or [], provider=provider, region=region, market=market, gpu=gpu,
        retired=retired or bool(date), cheapest=bool(gpu) and split(region) != ["all"],
    )  # fmt: skip
    rows = matching.rows.head(top) if top else matching.rows
    title = f"{format_count(len(matching.rows), 'price')} in USD per hour, {matching.origin}"
    remarks: list[object] = []
    if format is Format.table:
        lines = _list_offers(rows, prices)
        # A column of markets leaves no place for the price of the machine beside that of its GPUs.
        optional = (*OPTIONAL, "USD/h") if gpu and rows["market"].nunique() > 1 else OPTIONAL
        print_table(lines, COLUMNS, title=title, spare=SPARE, optional=optional, wrapped=("machine", "where"))
        remarks = [ONE_PRICE] if any(line["where"].endswith("*") for line in lines) else []
    else:
        emit(frame_rows(rows), price_model(), format=format)
    variants = _describe_variants(prices, split(gpu) or [], provider=provider, region=region, market=market)
    print_err([*remarks, *variants, *matching.findings])
    if len(rows) < len(matching.rows):
        left = len(matching.rows) - len(rows)
        verb = "matches" if left == 1 else "match"
        print_err([f"{format_count(left, 'more price')} {verb}. Raise --top to show {'it' if left == 1 else 'them'}."])
    if not len(rows):
        print_err(["No price matches these options. Choose another --market or --region, or add --retired."])
        raise typer.Exit(1)


def _show_gpus(
    prices: Catalog,
    provider: list[str] | None,
    region: list[str] | None,
    market: list[str] | None,
    *,
    top: int | None,
    format: Format,  # noqa: A002
) -> None:
    """Print a line per GPU model."""
    from vmselect.catalog import describe_age

    # On demand is the default of the option; the summary has a column for spot, too.
    markets = ["on_demand", "spot"] if market == [BY_NAME["market"].default] else market
    rows = prices.gpus(provider, region=region, market=markets)
    if top:
        least = rows[["usd_per_gpu_hour", "spot_usd_per_gpu_hour"]].min(axis=1)
        rows = rows.loc[least.sort_values(kind="stable").index[:top]]
    remarks: list[object] = []
    if format is Format.table:
        anywhere = set() if region else _sold_at_one_price(prices)
        lines: list[dict[str, Any]] = [
            dict(
                zip(
                    GPU_COLUMNS,
                    (
                        row.gpu_model, row.gpu_memory_gib, _round(row.usd_per_gpu_hour),
                        _place(row.provider, row.region, (row.provider, row.instance_type, "on_demand") in anywhere),
                        _round(row.spot_usd_per_gpu_hour),
                        _place(row.spot_provider, row.spot_region, (row.spot_provider, row.spot_instance_type, "spot")
                               in anywhere),
                        row.providers,
                    ),
                    strict=True,
                )
            )
            for row in _tuples(rows)
        ]  # fmt: skip
        title = f"Cheapest USD per GPU-hour, {prices.origin}"
        places = ("where", "spot where")
        print_table(lines, GPU_COLUMNS, title=title, optional=("providers",), wrapped=places)
        remarks = [ONE_PRICE] if any(line[place].endswith("*") for line in lines for place in places) else []
    else:
        emit(frame_rows(rows), GpuPrices, format=format)
    offers = prices.offers(provider, region=region, market=markets, retired=False)
    dates = offers.loc[~offers["stale"] & (offers["gpu_count"] > 0), "date"].astype(str).unique()
    age = prices.outdated or describe_age(dates, today=prices.as_of)
    hint = "Show the VM types with a GPU by price with --gpu, as in --gpu H100 --region eu."
    print_err([*remarks, *prices.findings, *([age] if age else []), *([hint] if format is Format.table else [])])
    if not len(rows):
        print_err(["No GPU matches these options. Choose another --market, --provider or --region."])
        raise typer.Exit(1)


def _list_offers(offers: pd.DataFrame, prices: Catalog) -> list[dict[str, Any]]:
    """Return the lines of a table of ``offers``, which are of ``prices``."""
    anywhere = _sold_at_one_price(prices) if (offers["regions_compared"] > 1).any() else set()
    lines = []
    for row in _tuples(offers):
        count = "" if row.gpu_count == 1 else f"{row.gpu_count:g} x "
        everywhere = row.regions_compared > 1 and (row.provider, row.instance_type, row.market) in anywhere
        cells = (
            row.instance_type, f"{count}{row.gpu_model}" if row.gpu_model else "", row.gpu_memory_gib, row.vcpus,
            row.memory_gib, _place(row.provider, row.region, everywhere), row.regions_compared, row.market,
            row.usd_per_hour, _round(row.usd_per_gpu_hour), row.date,
            ", ".join(name for name in ("stale", "retired") if getattr(row, name)),
        )  # fmt: skip
        lines.append(dict(zip(COLUMNS, cells, strict=True)))
    return lines


def _print_places(prices: pd.DataFrame, columns: Mapping[str, str], *, title: str, optional: Sequence[str]) -> None:
    """Print a table of ``prices`` with a line each. ``columns`` maps the headings to columns of ``prices``."""
    lines = [
        {heading: row[name] for heading, name in columns.items() if name}
        | {"where": _place(row["provider"], row["region"], False)}
        for row in frame_rows(prices)
    ]
    print_table(lines, tuple(columns), title=title, optional=optional, wrapped=("machine", "where", "reason"))


def _describe_variants(
    prices: Catalog, gpu: list[str], *, provider: list[str] | None, region: list[str] | None, market: str
) -> list[str]:
    """Return a line with the lowest prices of other variants of the chosen GPUs, which have names of their own."""
    from vmselect.catalog.gpu_names import find_gpus, variants_of
    from vmselect.catalog.gpu_prices import per_gpu_hour
    from vmselect.units import format_usd

    offers = prices.offers(split(provider), region=split(region), market=split([market]), retired=False)
    models = [str(model) for model in offers["gpu_model"].cat.categories]
    chosen = [model for name in gpu for model in find_gpus(name, models) or [name]]
    others = [other for model in chosen for other in variants_of(model) if other not in chosen]
    offers = offers[offers["gpu_model"].isin(others) & ~offers["stale"]]
    offers = offers[~prices.is_implausible(offers)]
    each = offers.assign(each=per_gpu_hour(offers)).groupby("gpu_model", observed=True)["each"].min()
    if not len(each):
        return []
    listed = ", ".join(f"{model} from {format_usd(usd)}" for model, usd in each.items())
    named = ",".join([*chosen, *map(str, each.index)])
    return [f"Other variants per GPU-hour: {listed}. List them with --gpu {named}."]


def _sold_at_one_price(prices: Catalog) -> set[tuple[str, str, str]]:
    """Provider, VM type and market of the offers that have one price in all regions of their provider."""
    from vmselect.catalog.guards import ONE_PRICE as ONE_PRICE_FLAG

    flags = prices.unrestricted.check()
    flags = flags[flags["flag"] == ONE_PRICE_FLAG.name]
    return set(zip(flags["provider"], flags["instance_type"], flags["market"], strict=True))


def _tuples(rows: pd.DataFrame) -> Iterator[Any]:
    """Yield the rows as named tuples, whose fields have no types."""
    yield from rows.itertuples()


def _round(usd: float) -> float:
    """Return a price with four digits."""
    return float(f"{usd:.4g}")


def _place(provider: object, region: object, everywhere: bool) -> str:
    """Return provider and region as one text, with a mark in place of any region; empty if there is no offer."""
    if not isinstance(provider, str):
        return ""
    return f"{provider} *" if everywhere else f"{provider} {region}"


def split(names: list[str] | None) -> list[str] | None:
    """Return the names in a repeated option, each of which may be a list with commas; None without any."""
    return [name for listed in names or () for name in split_names(listed)] or None


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
    cheapest: bool = False,
) -> Prices:
    """Return the offers of ``prices`` that match. A finding lists the instance types without a price.

    With ``cheapest``, only the cheapest region of each instance type and market is returned. Stale prices come last.
    """
    from vmselect.catalog import describe_age, describe_unpriced
    from vmselect.catalog.gpu_prices import order_by_gpu, per_gpu_hour
    from vmselect.catalog.offer import OWN_PRICE
    from vmselect.catalog.regions import find_cheapest_regions
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
    rows = rows.assign(usd_per_gpu_hour=per_gpu_hour(rows), regions_compared=1)
    if cheapest:
        kept: dict[int, int] = {}
        for stale in (False, True):
            at = (rows["stale"] == stale).to_numpy().nonzero()[0]
            first, counts = find_cheapest_regions(rows.iloc[at])
            kept |= dict(zip(at[first].tolist(), counts.tolist(), strict=True))
        rows = rows.iloc[list(kept)].assign(regions_compared=list(kept.values()))
    # Offers of a GPU compare by its price, others by that of the machine.
    rows = order_by_gpu(rows) if gpu else rows.sort_values("usd_per_hour", kind="stable")
    rows = rows.sort_values("stale", kind="stable")
    age = prices.outdated or describe_age(rows["date"].astype(str).unique(), today=prices.as_of)
    remedy = f"Run `vmselect prices refresh`, or add a price with {OWN_PRICE}."
    without_price = [
        Finding("unpriced", f"No price of {name} ({machine}) is known.", remedy) for name, machine in unpriced.items()
    ]
    implausible = _describe_implausible(prices, rows)
    return Prices(rows, str(prices.origin), [*prices.findings, *([age] if age else []), *without_price, *implausible])


def _describe_implausible(prices: Catalog, rows: pd.DataFrame) -> list[Finding]:
    """Findings about shown prices that rankings leave out because they are implausible."""
    from vmselect.catalog.guards import describe_flags
    from vmselect.catalog.offer import KEY

    implausible = rows[prices.is_implausible(rows) & ~rows["stale"].to_numpy(dtype=bool)]
    if not len(implausible):
        return []
    flags = prices.unrestricted.check()
    return describe_flags(flags.merge(implausible[list(KEY)].astype(str), on=list(KEY)))


@app.command()
def check(
    prices: Annotated[Path | None, typer.Argument(help="Price file.", show_default="your refreshed prices")] = None,
    before: Annotated[
        Path | None, typer.Option(help="Price file to compare with.", show_default="the shipped prices")
    ] = None,
    flagged: Annotated[
        bool, flag("--flagged", help="List flagged prices instead of changes, implausible ones first.")
    ] = False,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Check prices: list invalid rows, and prices that are new, gone, higher or lower than before.

    Messages name implausible prices, such as a spot price above on demand, and stale ones; --flagged lists these
    implausible prices and those that say less than they seem to, such as one price in every region, of the shipped
    prices if none were refreshed. Exit code 1 if a price differs, or if a warning concerns the checked prices, such as
    an invalid row or an implausible price. Messages about the prices to compare with do not change the exit code.
    """
    from vmselect.catalog import Catalog, compare_prices
    from vmselect.catalog.age import describe_stale
    from vmselect.catalog.guards import describe_flags
    from vmselect.catalog.refresh import read_parts

    earlier = Catalog.load(before, skip_bad_rows=True) if before else Catalog.embedded()
    if prices:
        current = Catalog.load(prices, skip_bad_rows=True)
    else:
        current = Catalog.embedded() if flagged and not read_parts()[0] else Catalog.refreshed(alone=True)
    flags, offers = current.check(), current.offers(market=None, retired=False)
    stale = describe_stale(offers, current.ages_of(offers))
    if flagged:
        flags = flags.sort_values("implausible", ascending=False, kind="stable")
        if format is Format.table:
            number = int(flags["implausible"].sum())
            others = f", {len(flags) - number:,} that say less than they seem to"
            title = f"{format_count(number, 'implausible price')}{others}: {current.origin}"
            _print_places(flags, FLAG_COLUMNS, title=title, optional=("reason", "source", "date"))
        else:
            emit(frame_rows(flags), FlaggedPrice, format=format)
        print_err([*current.findings, *(describe_flags(flags) if format is Format.table else []), *stale])
        raise typer.Exit(int(bool(current.findings) or flags["implausible"].any()))
    changes = compare_prices(earlier, current)
    counts = ", ".join(f"{number} {change}" for change, number in changes["change"].value_counts().items())
    title = f"{counts or 'no change'}: {current.origin} against {earlier.origin}"
    if format is Format.table:
        _print_places(changes, CHANGE_COLUMNS, title=title, optional=("earlier date", "date"))
    else:
        emit(frame_rows(changes), PriceChange, format=format)
    print_err([*earlier.findings, *current.findings, *describe_flags(flags), *stale])
    if len(changes) or current.findings or flags["implausible"].any():
        raise typer.Exit(1)


@app.command()
def refresh(
    provider: ProviderOption = None,
    region: RegionOption = None,
    source: Annotated[
        str,
        typer.Option(
            help="Source: api (price API of AWS, Azure, Google Cloud), skypilot or gpuhunt (public catalogs), or auto: "
            "the price API if there is one, else skypilot."
        ),
    ] = "auto",
    max_age_hours: Annotated[float, typer.Option(help="Do not fetch prices again within this many hours.")] = 6.0,
    interruptions: Annotated[
        bool, flag("--interruptions", help="Fetch the interruption classes of AWS spot machines instead of prices.")
    ] = False,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Fetch current prices to your cache folder. If the prices of a region cannot be fetched, its old prices stay.

    Implausible prices, such as a spot price above on demand, or about half the price of before, are refused and listed.

    Examples:

      vmselect prices refresh --provider azure

      vmselect prices refresh --source skypilot --provider aws --region eu-west-1,us-east-2

      vmselect prices refresh --provider lambda,runpod --region all
    """
    from vmselect.catalog.refresh import cache_folder, refresh_interruptions, refresh_prices

    if interruptions:
        emit([vars(refresh_interruptions())], refresh_model(), format=format)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = Console(stderr=True)
    with Bars(*columns, console=console, transient=True, disable=is_quiet() or not console.is_terminal) as bars:
        tasks: dict[tuple[str, str], TaskID] = {}

        def follow(part: Progress) -> None:
            key = (part.provider, part.region)
            task = tasks[key] if key in tasks else tasks.setdefault(key, bars.add_task("", total=None))
            words = (*key, part.state, part.detail)
            bars.update(task, description=" ".join(word for word in words if word))
            # A log has no spinner: it gets a line when a part begins and when it ends.
            if not console.is_terminal and part.state != "waiting":
                print_err([" ".join(word for word in (*key, part.state) if word)])
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
    from vmselect.catalog.snapshots import write_snapshot

    print_written([write_snapshot(folder)], as_json=as_json)
    print_err(["Now run: pytest tests/unit/catalog/test_shipped.py"])
