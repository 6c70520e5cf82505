"""The options that make a ranking, shared by every command that ranks."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from vmselect import _defaults
from vmselect._files import has_file
from vmselect.cli.output import flag
from vmselect.errors import ArgumentError

if TYPE_CHECKING:
    from vmselect.catalog import Catalog
    from vmselect.findings import Finding
    from vmselect.ranking import Ranking

ProfilesArgument = Annotated[list[Path], typer.Argument(help="Profile files, or folders of them.", show_default=False)]
LIMITS, PRICES, MODEL, SPOT = "Limits", "Prices", "Estimate", "Spot interruptions"
CatalogOption = Annotated[
    Path | None, typer.Option(help="A price file (CSV or JSON) in place of all others.", rich_help_panel=PRICES)
]
OwnPricesOption = Annotated[
    Path | None, typer.Option(help="A file of prices that count over the others.", rich_help_panel=PRICES)
]
DateOption = Annotated[
    str | None, typer.Option(help="Embedded prices in force on this day, as 2021-02-28.", rich_help_panel=PRICES)
]
HoursLimit = Annotated[float | None, typer.Option(help="Longest acceptable run.", rich_help_panel=LIMITS)]
DollarsLimit = Annotated[float | None, typer.Option(help="Dearest acceptable run.", rich_help_panel=LIMITS)]


def ranks(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command``, which takes a ranking first, the arguments and options that make one."""
    return made_by(make_ranking)(command)


def made_by(make: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command, which takes first what ``make`` makes of a request, the options of all three."""
    making = list(inspect.signature(make).parameters.values())[1:]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            kept = {parameter.name: given.pop(parameter.name) for parameter in own}
            wanted = {parameter.name: given.pop(parameter.name) for parameter in making}
            made = make(read_request(**given), **wanted)
            if spared := _spared(given["profiles"]):
                made = made.with_findings(spared)
            command(made, **kept)

        own = list(inspect.signature(command).parameters.values())[1:]
        # What is made is loaded when a command runs; that the names exist is enough here.
        names = {"Ranking": object}
        hints: dict[str, Any] = {}
        for function in (read_request, make, command):
            hints |= get_type_hints(function, localns=names, include_extras=True)
        profiles, *common = inspect.signature(read_request).parameters.values()
        parameters = [profiles, *making, *common, *own]
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [p.replace(annotation=hints[p.name], kind=p.KEYWORD_ONLY) for p in parameters]
        )
        run.__annotations__ = {p.name: hints[p.name] for p in parameters}
        del run.__wrapped__  # its signature would win over this one
        return run

    return decorate


def make_ranking(
    request: dict[str, Any],
    epochs: Annotated[
        str, typer.Option("--epochs", "-e", help="Numbers of epochs, such as 50 or 5,10,20. The last one decides.")
    ] = "5,10,20",
    decide_at: Annotated[int | None, typer.Option(help="The number of epochs that decides instead.")] = None,
) -> Ranking:
    """The ranking that the options describe."""
    from vmselect.ranking import rank

    return rank(request.pop("profiles"), epochs=read_numbers(epochs, option="--epochs"), decide_at=decide_at, **request)


def read_request(
    profiles: ProfilesArgument,
    objective: Annotated[
        str, typer.Option("--objective", "-o", help="cost, time, or weights such as cost=0.7,time=0.3.")
    ] = "cost",
    batch_size: Annotated[
        str | None, typer.Option("--batch-size", "-b", help="One or several, such as 64,256, or all.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Take only the profiles of this model.")] = None,
    fit: Annotated[
        str | None, typer.Option(help="Take only this training of a program with several: its number, or its name.")
    ] = None,
    deadline_hours: HoursLimit = None,
    budget_usd: DollarsLimit = None,
    region: Annotated[
        list[str] | None, typer.Option(help="Price in this region, or all; may be repeated.", rich_help_panel=PRICES)
    ] = None,
    market: Annotated[
        str, typer.Option(help="on_demand, spot, reserved_1y, reserved_3y, or all.", rich_help_panel=PRICES)
    ] = _defaults.MARKET,
    catalog: CatalogOption = None,
    own_prices: OwnPricesOption = None,
    date: DateOption = None,
    billing: Annotated[
        str, typer.Option(help="exact (time x price), or provider (with its increment).", rich_help_panel=PRICES)
    ] = "exact",
    include_retired: Annotated[
        bool, flag("--include-retired", help="Rank what can no longer be rented.", rich_help_panel=PRICES)
    ] = False,
    method: Annotated[str, typer.Option(help="How runtimes are predicted.", rich_help_panel=MODEL)] = _defaults.METHOD,
    confidence: Annotated[float, typer.Option(help="Of the intervals.", rich_help_panel=MODEL)] = _defaults.CONFIDENCE,
    examples: Annotated[
        int | None, typer.Option(help="Training examples, if not as probed.", rich_help_panel=MODEL)
    ] = None,
    validation_examples: Annotated[
        int | None, typer.Option(help="Validation examples, if not as probed.", rich_help_panel=MODEL)
    ] = None,
    steps_per_epoch: Annotated[
        float | None, typer.Option(help="Training steps of an epoch, if not as probed.", rich_help_panel=MODEL)
    ] = None,
    boot_seconds: Annotated[float, typer.Option(help="Time a machine takes to start.", rich_help_panel=MODEL)] = 0.0,
    interruptions_per_hour: Annotated[float | None, typer.Option(help="How often.", rich_help_panel=SPOT)] = None,
    checkpoint_minutes: Annotated[
        float, typer.Option(help="Between checkpoints.", rich_help_panel=SPOT)
    ] = _defaults.CHECKPOINT_MINUTES,
    restart_minutes: Annotated[
        float, typer.Option(help="To be training again.", rich_help_panel=SPOT)
    ] = _defaults.RESTART_MINUTES,
) -> dict[str, Any]:
    """What every command that ranks is asked for, as arguments of :func:`vmselect.rank` and its like."""
    from vmselect.ranking import Interruptions
    from vmselect.records import load_profiles

    interruptions = None
    if interruptions_per_hour is not None:
        interruptions = Interruptions(
            per_hour=interruptions_per_hour, checkpoint_minutes=checkpoint_minutes, restart_minutes=restart_minutes
        )
    return {
        "profiles": load_profiles(profiles),
        "objective": read_objective(objective),
        "batch_size": _read_batch_size(batch_size),
        "model": model,
        "fit": int(fit) if fit is not None and fit.isdecimal() else fit,
        "deadline_hours": deadline_hours,
        "budget_usd": budget_usd,
        "region": "all" if region == ["all"] else region or None,
        "market": market if market == "all" else market.split(","),
        "catalog": open_catalog(catalog, date=date, own_prices=own_prices),
        "billing": billing,
        "include_retired": include_retired,
        "method": method,
        "confidence": confidence,
        "examples": examples,
        "validation_examples": validation_examples,
        "steps_per_epoch": steps_per_epoch,
        "boot_seconds": boot_seconds,
        "interruptions": interruptions,
    }


def _spared(paths: list[Path]) -> list[Finding]:
    """What the sweeps among ``paths`` did not probe because it could not win."""
    found: list[Finding] = []
    for path in paths:
        if has_file(path / "journal.jsonl"):
            from vmselect.sweeps import read_state
            from vmselect.sweeps.result import spared_findings

            found += spared_findings(read_state(path))
    return found


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


def read_objective(text: str) -> Any:
    """``cost``, ``time``, or weights written as ``cost=0.7,time=0.3``."""
    if "=" not in text:
        return text
    try:
        return {name.strip(): float(weight) for name, weight in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise ArgumentError(f"--objective {text!r} cannot be read; write it as cost=0.7,time=0.3.") from None


def _read_batch_size(text: str | None) -> Any:
    return text if text in (None, "all") else read_numbers(text, option="--batch-size")
