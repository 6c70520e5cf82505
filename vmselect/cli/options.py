"""Options that several commands share.

An option that is not given has the value None, so that the default value of the Python function applies.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmselect import _defaults
from vmselect._io import check_place, has_file
from vmselect.cli.output import print_err, working
from vmselect.errors import ArgumentError, CatalogError
from vmselect.units import count_of

if TYPE_CHECKING:
    from vmselect.catalog import Catalog
    from vmselect.ranking import Ranking

limit_option = functools.partial(typer.Option, rich_help_panel="Limits")
price_option = functools.partial(typer.Option, rich_help_panel="Prices")
estimate_option = functools.partial(typer.Option, rich_help_panel="Estimate")
machine_option = functools.partial(typer.Option, rich_help_panel="Machines that were never probed")
spot_option = functools.partial(typer.Option, rich_help_panel="Spot interruptions")
emissions_option = functools.partial(typer.Option, rich_help_panel="Energy and CO2")

ProfilesArgument = Annotated[
    list[str],
    typer.Argument(metavar="PROFILES...", help="Files or folders of profiles, or URLs of folders.", show_default=False),
]
EpochsOption = Annotated[
    str | None,
    typer.Option(
        "--epochs",
        "-e",
        help="Epochs to train, as in 50 or 5,10,50; the last number determines the ranking.",
        show_default="as probed",
    ),
]
DecideAtOption = Annotated[int | None, typer.Option(help="Number of epochs by which to rank, one of --epochs.")]
TopOption = Annotated[int, typer.Option(help="Number of candidates to show in the table.", min=1)]
CatalogOption = Annotated[Path | None, price_option(help="Use only the prices of this file (CSV or JSON).")]
OwnPricesOption = Annotated[
    Path | None,
    price_option(
        help="File of own prices (CSV or JSON), which take precedence. Required columns: provider, instance_type, "
        "region, market, usd_per_hour."
    ),
]
DateOption = Annotated[str | None, price_option(help="Use the shipped prices of this day, such as 2021-02-28.")]
MethodOption = Annotated[
    str | None, estimate_option(help="Estimation method, such as robust or malta-epoch.", show_default=_defaults.METHOD)
]
ConfidenceOption = Annotated[
    float | None,
    estimate_option(help="Confidence level of the intervals.", show_default=f"{_defaults.CONFIDENCE:g}"),
]
ExamplesOption = Annotated[int | None, estimate_option(help="Training examples per epoch. Default: as probed.")]
ValidationExamplesOption = Annotated[
    int | None, estimate_option(help="Examples per validation; 0 for none. Default: as probed.")
]
ValidationFreqOption = Annotated[
    int | None, estimate_option(help="Number of epochs from one validation to the next. Default: as probed.")
]
ValidationFromOption = Annotated[
    int | None, estimate_option(help="First epoch that a validation follows. Default: as probed.")
]
StepsPerEpochOption = Annotated[float | None, estimate_option(help="Training steps per epoch. Default: as probed.")]
BootOption = Annotated[float | None, estimate_option(help="Seconds that a machine takes to boot.", show_default="0")]
KeepOption = Annotated[
    str | None, typer.Option(help="Write the predictions as forecasts to this folder, for vmselect score.")
]
RecalibrateOption = Annotated[
    bool,
    estimate_option(
        "--recalibrate/--no-recalibrate", help="Correct times and intervals by the outcomes in --history.", metavar=""
    ),
]


@dataclass(kw_only=True)
class PriceOptions:
    """The options of the command ``compare`` that choose prices."""

    region: Annotated[str | None, price_option(help="Region of the prices.", show_default="as probed")] = None
    market: Annotated[str, price_option(help="Market of the prices: on_demand, spot, reserved_1y or reserved_3y.")] = (
        _defaults.MARKET
    )
    catalog: CatalogOption = None
    own_prices: OwnPricesOption = None
    date: DateOption = None

    def open(self) -> Catalog:
        """Return the catalog that the options choose."""
        return open_catalog(self.catalog, date=self.date, own_prices=self.own_prices)


@dataclass(kw_only=True)
class RankingOptions:
    """The options that the commands ``rank``, ``next``, ``report`` and ``select`` share."""

    objective: Annotated[
        str | None,
        typer.Option(
            "--objective",
            "-o",
            help="What to minimize: cost, time, energy, co2, or weights such as cost=0.7,time=0.3.",
            show_default="cost",
        ),
    ] = None
    batch_size: Annotated[
        str | None, typer.Option("--batch-size", "-b", help="Batch sizes to rank, as in 64,256, or all.")
    ] = None
    model: Annotated[str | None, typer.Option(help="Use only the profiles of this model.")] = None
    fit: Annotated[str | None, typer.Option(help="Number or name of the fit to rank, if a script has several.")] = None
    keep: KeepOption = None
    deadline_hours: Annotated[
        float | None, limit_option(help="Exclude machines on which the training takes longer than this (hours).")
    ] = None
    budget_usd: Annotated[
        float | None, limit_option(help="Exclude machines on which the training costs more than this (USD).")
    ] = None
    deadline_chance: Annotated[
        float | None,
        limit_option(help="Least probability of meeting --deadline-hours, such as 0.9; exclude other machines."),
    ] = None
    budget_chance: Annotated[
        float | None,
        limit_option(help="Least probability of meeting --budget-usd, such as 0.9; exclude other machines."),
    ] = None
    co2_limit_kg: Annotated[
        float | None, limit_option(help="Exclude machines on which the training emits more CO2 than this (kg).")
    ] = None
    co2_chance: Annotated[
        float | None,
        limit_option(help="Least probability of meeting --co2-limit-kg, such as 0.9; exclude other machines."),
    ] = None
    region: Annotated[list[str] | None, price_option(help="Region of the prices, or all; may be repeated.")] = None
    market: Annotated[
        str | None,
        price_option(help="Market: on_demand, spot, reserved_1y, reserved_3y, or all.", show_default=_defaults.MARKET),
    ] = None
    services: Annotated[
        str | None, price_option(help="Also rank the machines at the prices of this service: sagemaker, ec2, or all.")
    ] = None
    catalog: CatalogOption = None
    own_prices: OwnPricesOption = None
    date: DateOption = None
    billing: Annotated[
        str | None,
        price_option(help="Billed time: exact, or provider (rounded up as each provider does).", show_default="exact"),
    ] = None
    include_retired: Annotated[
        bool, price_option("--include-retired", help="Also rank VM types that can no longer be rented.", metavar="")
    ] = False
    include_unused_gpus: Annotated[
        bool,
        price_option(
            "--include-unused-gpus",
            help="Also rank probed GPU machines whose GPU the training left unused.",
            metavar="",
        ),
    ] = False
    machines: Annotated[
        str | None,
        machine_option(help="Also rank machines that were never probed: all, or names, as in g5.xlarge,g6.xlarge."),
    ] = None
    history: Annotated[
        list[str] | None,
        machine_option(help="Folder or URL of records of other trainings, for better predictions; may be repeated."),
    ] = None
    gpus: Annotated[
        str | None,
        machine_option(help="Also rank machines with these numbers of GPUs of a probed type, as in 1,2,4,8."),
    ] = None
    nodes: Annotated[
        str | None,
        machine_option(
            help="Also rank training on these numbers of machines together, as in 3,4. Needs a probe on two machines."
        ),
    ] = None
    constant_batch: Annotated[
        str | None,
        machine_option(
            help="Batch size that stays the same with more GPUs: per_gpu, or global.", show_default="per_gpu"
        ),
    ] = None
    recalibrate: RecalibrateOption = True
    provider: Annotated[
        str | None, machine_option(help="With --machines: only machines of these providers, as in aws,gcp.")
    ] = None
    gpu: Annotated[str | None, machine_option(help="With --machines: only machines with these GPUs, as in T4,L4.")] = (
        None
    )
    gpu_memory_gib: Annotated[
        float | None, machine_option(help="With --machines: only machines whose GPU has at least this memory (GiB).")
    ] = None
    max_usd_per_hour: Annotated[
        float | None, machine_option(help="With --machines: only machines up to this price per hour (USD).")
    ] = None
    method: MethodOption = None
    confidence: ConfidenceOption = None
    examples: ExamplesOption = None
    validation_examples: ValidationExamplesOption = None
    validation_freq: ValidationFreqOption = None
    validation_from: ValidationFromOption = None
    steps_per_epoch: StepsPerEpochOption = None
    boot_seconds: BootOption = None
    interruptions_per_hour: Annotated[float | None, spot_option(help="Expected interruptions of a VM per hour.")] = None
    checkpoint_minutes: Annotated[
        float | None,
        spot_option(help="Minutes between two checkpoints.", show_default=f"{_defaults.CHECKPOINT_MINUTES:g}"),
    ] = None
    restart_minutes: Annotated[
        float | None,
        spot_option(help="Minutes from an interruption to the restart.", show_default=f"{_defaults.RESTART_MINUTES:g}"),
    ] = None

    energy: Annotated[
        bool, emissions_option("--energy", help="Show the energy and CO2 of each candidate.", metavar="")
    ] = False
    country: Annotated[
        str | None, emissions_option(help="Country of machines outside the known clouds, such as DE, for CO2.")
    ] = None
    grid_g_per_kwh: Annotated[
        float | None, emissions_option(help="Carbon intensity of the electricity (g of CO2 per kWh).")
    ] = None
    grid_hourly: Annotated[
        Path | None, emissions_option(help="CSV file with the carbon intensity of every hour (column g_per_kwh).")
    ] = None
    start_hour: Annotated[
        float | None,
        emissions_option(
            help="Row of --grid-hourly (0 is the first hour) at which the training starts. Default: mean of all."
        ),
    ] = None
    pue: Annotated[
        float | None, emissions_option(help="Energy of the data centre per energy of its machines, such as 1.2.")
    ] = None
    emissions_basis: Annotated[
        str | None,
        emissions_option(
            help="Compute CO2 from the local grid (location), or subtract the carbon-free energy that the provider "
            "buys (market)."
        ),
    ] = None

    def rank(self, profiles: list[str], **given: Any) -> Ranking:
        """Rank the machines of the profiles or, if ``study`` is given, pairs of machine and batch size."""
        from vmselect.ranking import rank, select
        from vmselect.records import load_profiles
        from vmselect.sweeps import read_state
        from vmselect.sweeps.run import skipped_findings

        make = select if "study" in given else rank
        with working("Ranking machines"):
            ranking = make(load_profiles(profiles), **self._arguments(), **given)
        sweeps = [path for path in profiles if has_file(Path(path, "journal.jsonl"))]
        spared = [finding for path in sweeps for finding in skipped_findings(read_state(path))]
        if self.keep is not None:
            kept = ranking.keep(self.keep)
            print_err([f"Kept {count_of(len(kept), 'forecast')} in {check_place('keep', self.keep)}."])
        return ranking.with_findings(spared) if spared else ranking

    def _arguments(self) -> dict[str, Any]:
        """Return the given options as arguments of :func:`vmselect.rank`."""
        from vmselect.estimation import Workload
        from vmselect.records import load_records

        given = {one.name: value for one in fields(self) if (value := getattr(self, one.name)) is not None}
        given.pop("keep", None)
        date, own_prices = given.pop("date", None), given.pop("own_prices", None)
        given["catalog"] = open_catalog(given.get("catalog"), date=date, own_prices=own_prices)
        if "objective" in given:
            given["objective"] = read_weights(given["objective"], option="--objective", single=str)
        if given.get("batch_size") not in (None, "all"):
            given["batch_size"] = read_numbers(given["batch_size"], option="--batch-size")
        if given.get("fit", "").isdecimal():
            given["fit"] = int(given["fit"])
        if given.get("market") not in (None, "all"):
            given["market"] = given["market"].split(",")
        if given.get("services") not in (None, "all"):
            given["services"] = given["services"].split(",")
        if given.get("region") == ["all"]:
            given["region"] = "all"
        for name in ("provider", "gpu"):
            if name in given:
                given[name] = given[name].split(",")
        for name in ("gpus", "nodes"):
            if name in given:
                given[name] = read_numbers(given[name], option=f"--{name}")
        if given.get("machines") not in (None, "all", "catalog"):
            given["machines"] = given["machines"].split(",")
        if "history" in given:
            given["history"] = load_records(given["history"])
        schedule = {name: given.pop(name, None) for name in ("validation_freq", "validation_from")}
        if any(schedule.values()):
            given["workload"] = Workload(**schedule)
        names = {
            "country": "country", "grid_g_per_kwh": "grid_g_per_kwh", "grid_hourly": "hourly",
            "start_hour": "start_hour", "pue": "pue", "emissions_basis": "basis",
        }  # fmt: skip
        emissions = {field: given.pop(name) for name, field in names.items() if name in given}
        if given.pop("energy") or emissions:
            given["emissions"] = emissions
        per_hour = given.pop("interruptions_per_hour", None)
        minutes = {name: given.pop(name) for name in ("checkpoint_minutes", "restart_minutes") if name in given}
        if per_hour is not None:
            given["interruptions"] = {"per_hour": per_hour, **minutes}
        return given


Command = Callable[..., None]


def with_options(kind: type, argument: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the fields of the dataclass ``kind`` as options to a command.

    The command receives them as its ``argument``, an instance of ``kind``. Typer creates an option for each parameter
    of a function, so the signature of the returned function contains the fields of ``kind`` instead of ``argument``.
    """

    def decorate(command: Command) -> Command:
        shared = inspect.signature(kind, eval_str=True).parameters
        own = [one for one in inspect.signature(command, eval_str=True).parameters.values() if one.name != argument]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            options = kind(**{name: given.pop(name) for name in shared})
            command(**given, **{argument: options})

        run.__signature__ = inspect.Signature([*own, *shared.values()])  # type: ignore[attr-defined]
        return run

    return decorate


with_ranking_options = with_options(RankingOptions, "options")
with_price_options = with_options(PriceOptions, "prices")


def open_catalog(path: Path | None, *, date: str | None, own_prices: Path | None = None) -> Catalog:
    """Return the catalog of the file ``path`` or of the day ``date``, or the default one, with ``own_prices`` added."""
    from vmselect.catalog import Catalog

    if path is not None and date is not None:
        raise ArgumentError("--catalog and --date select two different catalogs. Give only one of the two options.")
    listed = Catalog.embedded(date) if date else None
    prices = Catalog.load(path) if path is not None else listed or Catalog.default()
    return prices.with_offers(Catalog.load(own_prices)) if own_prices is not None else prices


def note_unknown_type(instance_type: str) -> str | None:
    """Return a sentence with similar names if no machine type has the name ``instance_type``, but others are similar.

    Return None for a machine type that is known, and for a name like that of no machine type, such as that of an own
    machine.
    """
    from vmselect.catalog import Catalog, describe_unpriced, find_nearest, last_sold

    try:
        known = {str(name) for name in Catalog.default().offers(market=None)["instance_type"].unique()}
    except CatalogError:  # a damaged price file
        return None
    near = [] if instance_type in known else find_nearest(instance_type, known)
    if not near or describe_unpriced(instance_type) or last_sold(instance_type):
        return None
    return f"No instance type in the price catalog is named {instance_type}. Similar names: {', '.join(near)}."


def read_numbers(text: str, *, option: str) -> list[int]:
    """Return the whole numbers in ``text``, which are separated by commas. ``option`` is its name in messages."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(f"{option} {text!r} is invalid. Give whole numbers, as in 50 or 5,10,20.") from None


def read_weights(text: str, *, option: str, single: Callable[[str], Any]) -> Any:
    """Parse a text such as ``a=0.7,b=0.3`` to ``{'a': 0.7, 'b': 0.3}``; return ``single(text)`` for others."""
    try:
        if "=" in text:
            return {name.strip(): float(number) for name, number in (part.split("=") for part in text.split(","))}
        return single(text)
    except ValueError:
        raise ArgumentError(f"{option} {text!r} is invalid. Write name=number, as in a=0.7,b=0.3.") from None
