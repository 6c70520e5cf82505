"""Options that several commands share, and the ranking that they describe.

Options that are absent are not passed on, so that the defaults of the library apply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmselect import _defaults
from vmselect._files import has_file
from vmselect.cli.output import flag
from vmselect.errors import ArgumentError

if TYPE_CHECKING:
    from vmselect.catalog import Catalog
    from vmselect.ranking import Ranking

LIMITS, PRICES, MODEL, SPOT = "Limits", "Prices", "Estimate", "Spot interruptions"

ProfilesArgument = Annotated[list[Path], typer.Argument(help="Profile files, or folders of them.", show_default=False)]
EpochsOption = Annotated[
    str | None,
    typer.Option(
        "--epochs", "-e", help="Numbers of epochs, such as 50 or 5,10,20. The last one decides.", show_default="5,10,20"
    ),
]
DecideAtOption = Annotated[int | None, typer.Option(help="The number of epochs that decides instead.")]
ObjectiveOption = Annotated[
    str | None,
    typer.Option("--objective", "-o", help="cost, time, or weights such as cost=0.7,time=0.3.", show_default="cost"),
]
BatchSizeOption = Annotated[
    str | None, typer.Option("--batch-size", "-b", help="One or several, such as 64,256, or all.")
]
ModelOption = Annotated[str | None, typer.Option(help="Use only the profiles of this model.")]
FitOption = Annotated[
    str | None, typer.Option(help="Use only this training of a program with several: its number, or its name.")
]
DeadlineOption = Annotated[float | None, typer.Option(help="Longest acceptable run.", rich_help_panel=LIMITS)]
BudgetOption = Annotated[float | None, typer.Option(help="Most expensive acceptable run.", rich_help_panel=LIMITS)]
RegionOption = Annotated[
    list[str] | None,
    typer.Option(help="Price in this region, or all; may be repeated.", rich_help_panel=PRICES),
]
MarketOption = Annotated[
    str | None,
    typer.Option(
        help="on_demand, spot, reserved_1y, reserved_3y, or all.", show_default=_defaults.MARKET, rich_help_panel=PRICES
    ),
]
CatalogOption = Annotated[
    Path | None, typer.Option(help="A price file (CSV or JSON) in place of all others.", rich_help_panel=PRICES)
]
OwnPricesOption = Annotated[
    Path | None, typer.Option(help="A file of prices that replace or add to the others.", rich_help_panel=PRICES)
]
DateOption = Annotated[
    str | None, typer.Option(help="Embedded prices in force on this day, as 2021-02-28.", rich_help_panel=PRICES)
]
BillingOption = Annotated[
    str | None,
    typer.Option(
        help="exact (time x price), or provider (with its increment).", show_default="exact", rich_help_panel=PRICES
    ),
]
RetiredOption = Annotated[
    bool, flag("--include-retired", help="Rank what can no longer be rented.", rich_help_panel=PRICES)
]
MethodOption = Annotated[
    str | None, typer.Option(help="How runtimes are predicted.", show_default=_defaults.METHOD, rich_help_panel=MODEL)
]
ConfidenceOption = Annotated[
    float | None,
    typer.Option(help="Of the intervals.", show_default=f"{_defaults.CONFIDENCE:g}", rich_help_panel=MODEL),
]
ExamplesOption = Annotated[int | None, typer.Option(help="Training examples, if not as probed.", rich_help_panel=MODEL)]
ValidationExamplesOption = Annotated[
    int | None, typer.Option(help="Validation examples, if not as probed.", rich_help_panel=MODEL)
]
StepsPerEpochOption = Annotated[
    float | None, typer.Option(help="Training steps of an epoch, if not as probed.", rich_help_panel=MODEL)
]
BootOption = Annotated[
    float | None,
    typer.Option(help="Time a machine takes to start.", show_default="0", rich_help_panel=MODEL),
]
InterruptionsOption = Annotated[float | None, typer.Option(help="How often.", rich_help_panel=SPOT)]
CheckpointOption = Annotated[
    float | None,
    typer.Option(help="Between checkpoints.", show_default=f"{_defaults.CHECKPOINT_MINUTES:g}", rich_help_panel=SPOT),
]
RestartOption = Annotated[
    float | None,
    typer.Option(help="Until training continues.", show_default=f"{_defaults.RESTART_MINUTES:g}", rich_help_panel=SPOT),
]


def make_ranking(options: Mapping[str, Any]) -> Ranking:
    """The ranking that the options of ``rank``, ``report`` or ``select`` describe; other options are ignored.

    With a ``study`` VM type and batch size are selected together.
    """
    from vmselect.convergence import ConvergenceStudy
    from vmselect.ranking import rank, select
    from vmselect.records import load_profiles
    from vmselect.sweeps import read_state
    from vmselect.sweeps.run import spared_findings

    given = {name: value for name, value in options.items() if value is not None}
    common: dict[str, Any] = {
        name: given[name]
        for name in (
            "decide_at", "model", "deadline_hours", "budget_usd", "region", "billing", "include_retired", "method",
            "confidence", "examples", "validation_examples", "steps_per_epoch", "boot_seconds",
        )
        if name in given
    }  # fmt: skip
    common["catalog"] = open_catalog(given.get("catalog"), date=given.get("date"), own_prices=given.get("own_prices"))
    if "objective" in given:
        common["objective"] = read_weights(given["objective"], option="--objective", single=str)
    if "batch_size" in given:
        size = given["batch_size"]
        common["batch_size"] = size if size == "all" else read_numbers(size, option="--batch-size")
    if "fit" in given:
        common["fit"] = int(given["fit"]) if given["fit"].isdecimal() else given["fit"]
    if "market" in given:
        common["market"] = given["market"] if given["market"] == "all" else given["market"].split(",")
    if common.get("region") == ["all"]:
        common["region"] = "all"
    if "interruptions_per_hour" in given:
        names = ("checkpoint_minutes", "restart_minutes")
        common["interruptions"] = {"per_hour": given["interruptions_per_hour"]} | {
            name: given[name] for name in names if name in given
        }
    profiles = load_profiles(given["profiles"])
    if "study" in given:
        if "minimum_metric" in given:
            common["minimum_metric"] = read_weights(given["minimum_metric"], option="--minimum-metric", single=float)
        ranking = select(profiles, ConvergenceStudy.load(given["study"]), **common)
    else:
        if "epochs" in given:
            common["epochs"] = read_numbers(given["epochs"], option="--epochs")
        ranking = rank(profiles, **common)
    sweeps = [path for path in given["profiles"] if has_file(path / "journal.jsonl")]
    spared = [finding for path in sweeps for finding in spared_findings(read_state(path))]
    return ranking.with_findings(spared) if spared else ranking


def open_catalog(path: Path | None, *, date: str | None, own_prices: Path | None = None) -> Catalog:
    """The catalog that the options name: a file, the embedded prices of a day, or the default; own prices over it."""
    from vmselect.catalog import Catalog

    if path is not None and date is not None:
        raise ArgumentError("--catalog and --date name two different catalogs; give one of them.")
    listed = Catalog.embedded(date) if date else None
    prices = Catalog.load(path) if path is not None else listed or Catalog.default()
    return prices.with_offers(Catalog.load(own_prices)) if own_prices is not None else prices


def read_numbers(text: str, *, option: str) -> list[int]:
    """Whole numbers separated by commas."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(f"{option} {text!r} cannot be read; give whole numbers, such as 50 or 5,10,20.") from None


def read_weights(text: str, *, option: str, single: Callable[[str], Any]) -> Any:
    """Numbers by name, or a ``single`` value.

    >>> read_weights("cost", option="-o", single=str), read_weights("a=0.7,b=1", option="-o", single=str)
    ('cost', {'a': 0.7, 'b': 1.0})
    """
    try:
        if "=" in text:
            return {name.strip(): float(number) for name, number in (part.split("=") for part in text.split(","))}
        return single(text)
    except ValueError:
        raise ArgumentError(f"{option} {text!r} cannot be read; write numbers by name as a=0.7,b=0.3.") from None
