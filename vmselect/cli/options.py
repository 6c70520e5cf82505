"""Options that several commands share.

An option that is not given has the value None, so that the default value of the Python function applies.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmselect._io import check_place, has_file
from vmselect.cli.output import flag, print_err, working
from vmselect.errors import ArgumentError, CatalogError, MissingNamesError
from vmselect.ranking.options import BY_NAME, ESTIMATE, LIMITS, OPTIONS, PRICES, Option
from vmselect.units import format_count

if TYPE_CHECKING:
    from vmselect.catalog import Catalog
    from vmselect.ranking import Ranking
    from vmselect.records import Profile

limit_option = functools.partial(typer.Option, rich_help_panel=LIMITS)
price_option = functools.partial(typer.Option, rich_help_panel=PRICES)

ProfilesArgument = Annotated[
    list[str],
    typer.Argument(metavar="PROFILES...", help="Files or folders of profiles, or URLs of folders.", show_default=False),
]
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
KeepOption = Annotated[
    str | None, typer.Option(help="Write the predictions as forecasts to this folder, for vmselect score.")
]
RecalibrateOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FOLDER",
        rich_help_panel=ESTIMATE,
        help="Correct times and intervals by the forecasts and outcomes in this folder or URL; may be repeated.",
    ),
]
COUNTRY_CODE = r" [A-Z]{2}(?:,|$)"
"""What follows a comma within a name: regions of marketplaces have names such as "Texas, US" and "Oregon, US, NA"."""
SCRIPT_OPTIONS = ("--batch-size", "--epochs", "--examples", "--help", "--model", "-b", "-e", "-h", "-m", "-o", "-q")
"""Options of commands that run a script which are nearly always meant for the script if they follow its name."""
OUTPUT_OPTIONS = ("--html", "--top", "--format", "--json")
"""Options for what a command prints and writes, which few scripts have."""
MAX_SOURCES = 200
"""Largest number of Python files that are searched for an option of a script."""


def declare(name: str) -> Any:
    """The command-line declaration of the option ``name`` of a ranking, for commands that take it too."""
    return typer.Option(**_describe(BY_NAME[name]))


def _describe(option: Option) -> dict[str, Any]:
    """Help text, heading, shown default and placeholder of an option."""
    default = option.default_text or ("" if option.default in (None, False) else f"{option.default}")
    texts: dict[str, Any] = {"help": option.text, "show_default": default or False}
    texts |= {"rich_help_panel": option.panel} if option.panel else {}
    return texts | ({"metavar": ""} if option.type is bool else {})


MethodOption = Annotated[str | None, declare("method")]
ConfidenceOption = Annotated[float | None, declare("confidence")]
ExamplesOption = Annotated[int | None, declare("examples")]
ValidationExamplesOption = Annotated[int | None, declare("validation_examples")]
ValidationFreqOption = Annotated[int | None, declare("validation_freq")]
ValidationFromOption = Annotated[int | None, declare("validation_from")]
StepsPerEpochOption = Annotated[float | None, declare("steps_per_epoch")]
BootOption = Annotated[float | None, declare("boot_seconds")]


@dataclass(kw_only=True)
class PriceOptions:
    """The options of the command ``compare`` that choose prices."""

    region: Annotated[str | None, price_option(help="Region of the prices.", show_default="as probed")] = None
    market: Annotated[str, price_option(help="Market of the prices: on_demand, spot, reserved_1y or reserved_3y.")] = (
        BY_NAME["market"].default
    )
    catalog: CatalogOption = None
    own_prices: OwnPricesOption = None
    date: DateOption = None

    def open(self) -> Catalog:
        """Return the catalog that the options choose."""
        return open_catalog(self.catalog, date=self.date, own_prices=self.own_prices)


@dataclass(kw_only=True)
class RankingOptions:
    """Options of commands that rank besides those of :data:`~vmselect.ranking.options.OPTIONS`, and their values."""

    model: Annotated[str | None, typer.Option(help="Use only the profiles of this model.")] = None
    fit: Annotated[str | None, typer.Option(help="Number or name of the fit to rank, if a script has several.")] = None
    ignore_missing: Annotated[
        bool,
        flag("--ignore-missing", help="Warn of named machines, batch sizes, regions, ... without a rank, do not fail."),
    ] = False
    keep: KeepOption = None
    recalibrate: RecalibrateOption = None
    catalog: CatalogOption = None
    own_prices: OwnPricesOption = None
    date: DateOption = None
    values: Mapping[str, Any] = field(default_factory=dict)
    """Values of the options of a ranking by name, as the arguments of :func:`vmselect.rank` take them."""

    @property
    def chooses(self) -> bool:
        """Whether ``--model`` or ``--fit`` chooses a part of the profiles."""
        return self.model is not None or self.fit is not None

    def choose(self, profiles: Sequence[Profile]) -> list[Profile]:
        """Those of the ``profiles`` that ``--model`` and ``--fit`` choose."""
        from vmselect.estimation.programs import choose_profiles

        fit = int(self.fit) if self.fit is not None and self.fit.isdecimal() else self.fit
        return choose_profiles(profiles, model=self.model, fit=fit)

    def rank(self, profiles: list[str], **arguments: Any) -> Ranking:
        """Rank the machines of the profiles; ``arguments`` are further arguments of :func:`vmselect.rank`."""
        from vmselect.ranking import rank
        from vmselect.records import load_profiles
        from vmselect.sweeps import read_state
        from vmselect.sweeps.run import skipped_findings

        with working("Ranking machines"):
            records = self.choose(load_profiles(profiles))
            ranking = self.rank_by(functools.partial(rank, records), self.arguments() | arguments)
        sweeps = [path for path in profiles if has_file(Path(path, "journal.jsonl"))]
        spared = [finding for path in sweeps for finding in skipped_findings(read_state(path))]
        self.keep_forecasts(ranking)
        return ranking.with_findings(spared) if spared else ranking

    def keep_forecasts(self, ranking: Ranking) -> None:
        """Keep the forecasts of ``ranking`` if ``--keep`` names a folder."""
        if self.keep is not None:
            kept = ranking.keep(self.keep)
            print_err([f"Kept {format_count(len(kept), 'forecast')} in {check_place('keep', self.keep)}."])

    def rank_by(self, rank: Callable[..., Ranking], arguments: dict[str, Any]) -> Ranking:
        """Return ``rank(**arguments)``, recalibrated if ``--recalibrate`` says so.

        With ``--ignore-missing``, names that cannot be ranked are dropped and become findings.
        """
        from vmselect.findings import Finding
        from vmselect.records import load_records

        dropped: list[Finding] = []
        while True:
            try:
                ranking = rank(**arguments)
                ranking = ranking.recalibrated(load_records(self.recalibrate)) if self.recalibrate else ranking
                return ranking.with_findings(dropped) if dropped else ranking
            except MissingNamesError as missing:
                value = arguments.get(missing.argument)
                names = list(value) if isinstance(value, list | tuple) else [value]
                left = [name for name in names if name not in missing.names]
                # Without any name left, a filter would match everything, and the ranking would answer another question.
                if not self.ignore_missing or left == names or not (left or missing.argument == "machines"):
                    raise
                arguments = arguments | {missing.argument: left or None}
                lost = f"{missing.argument}={','.join(map(str, missing.names))} was ignored."
                dropped.append(Finding("missing-name", lost, str(missing)))
                print_err([f"Warning: {dropped[-1]}"], always=True)

    def check_names(self, arguments: Mapping[str, Any]) -> None:
        """Raise an error for names in ``arguments`` that the catalog does not have, before something takes long."""
        filters = {"provider": "provider", "region": "region", "gpu": "gpu", "machines": "instance_type"}
        for argument, name in filters.items():
            names = arguments.get(argument)
            if names is not None and names != "all" and not self.ignore_missing:
                arguments["catalog"].offers(market=None, **{name: names})

    def arguments(self) -> dict[str, Any]:
        """Return the options as arguments of :func:`vmselect.rank`, those of an object as this object."""
        from vmselect.estimation import Workload
        from vmselect.records import load_records

        owned: dict[str, dict[str, Any]] = {}
        for option in OPTIONS:
            if self.values.get(option.name) not in (None, False):
                owned.setdefault(option.owner, {})[option.argument] = self.values[option.name]
        arguments = owned.get("rank", {})
        if "history" in arguments:
            arguments["history"] = load_records(arguments["history"])
        if "workload" in owned:
            arguments["workload"] = Workload(**owned["workload"])
        if "scale" in owned:
            arguments["scale"] = owned["scale"]
        if "interruptions" in owned:
            rate = {"per_hour": arguments["interruptions"]} if "interruptions" in arguments else {}
            arguments["interruptions"] = {**rate, **owned["interruptions"]}
        if "emissions" in owned or "emissions" in arguments:
            arguments["emissions"] = owned.get("emissions", {})
        prices = open_catalog(self.catalog, date=self.date, own_prices=self.own_prices)
        arguments["catalog"] = prices.where(**owned["catalog"]) if "catalog" in owned else prices
        return arguments


def as_parameter(option: Option) -> inspect.Parameter:
    """The command-line option of an option of a ranking. A list is written with commas."""
    kind: Any = option.type
    if option.several:
        kind = list[str]
    name = f"--{option.name.replace('_', '-')}"
    option_of_typer = typer.Option(*filter(None, (name, option.short)), **_describe(option))
    # An option that is not given is None, so that the default of the Python function applies.
    kind, default = (bool, False) if option.type is bool else (kind | None, None)
    annotation = Annotated[kind, option_of_typer]
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def parse(option: Option, value: Any) -> Any:
    """Convert the value of a command-line option to the value that :func:`vmselect.rank` takes."""
    if value is None or (not option.several and option.name != "objective"):
        return value
    if option.name == "objective":
        return read_weights(value, option="--objective", single=str)
    if option.type is Path:  # a path may contain a comma
        return value
    texts = [text for part in value for text in split_names(part)]
    if option.word and texts == [option.word]:
        return option.word
    return read_numbers(",".join(texts), option=f"--{option.name.replace('_', '-')}") if option.type is int else texts


def split_names(listed: str) -> list[str]:
    """The names in ``listed``, which are separated by commas; blanks around them are no part of them.

    >>> split_names("us-east-1, eastus,Texas, US"), split_names("Oregon, US, NA,de")
    (['us-east-1', 'eastus', 'Texas, US'], ['Oregon, US, NA', 'de'])
    """
    return [name.strip() for name in re.split(rf",(?!{COUNTRY_CODE})", listed)]


Command = Callable[..., None]


def with_options(kind: type, argument: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the fields of the dataclass ``kind`` as options to a command.

    The command receives them as its ``argument``, an instance of ``kind``. Typer creates an option for each parameter
    of a function, so the signature of the returned function contains the fields of ``kind`` instead of ``argument``.
    """

    def decorate(command: Command) -> Command:
        shared = inspect.signature(kind, eval_str=True).parameters
        own = [
            parameter
            for parameter in inspect.signature(command, eval_str=True).parameters.values()
            if parameter.name != argument
        ]

        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            options = kind(**{name: arguments.pop(name) for name in shared})
            command(**arguments, **{argument: options})

        run.__signature__ = inspect.Signature([*own, *shared.values()])  # type: ignore[attr-defined]
        return run

    return decorate


def with_ranking_options(command: Command) -> Command:
    """Return ``command`` with all options of a ranking, which it receives as ``options``."""
    own = [
        parameter
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.name != "options"
    ]
    shared = dict(inspect.signature(RankingOptions, eval_str=True).parameters)
    del shared["values"]

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        values = {option.name: parse(option, arguments.pop(option.name)) for option in OPTIONS}
        options = RankingOptions(**{name: arguments.pop(name) for name in shared}, values=values)
        command(**arguments, options=options)

    parameters = [*own, *map(as_parameter, OPTIONS), *shared.values()]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


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
        types = {str(name) for name in Catalog.default().offers(market=None)["instance_type"].unique()}
    except CatalogError:  # a damaged price file
        return None
    near = [] if instance_type in types else find_nearest(instance_type, types)
    if not near or describe_unpriced(instance_type) or last_sold(instance_type):
        return None
    return f"No instance type in the price catalog is named {instance_type}. Similar names: {', '.join(near)}."


def check_script(command: str | None, script: str, *, module: bool) -> None:
    """Raise an error if ``script`` is no file, but a misspelt option of ``command``, a notebook or nothing."""
    if script.startswith("-"):
        raise ArgumentError(
            f"vmselect {command} has no option {script}. Run vmselect {command} --help to list its options."
        )
    if script.endswith(".ipynb"):
        raise ArgumentError(
            f"{script} is a notebook, not a script. Pass vmselect.IterationProbe as a callback to fit, or convert the "
            "notebook with: jupyter nbconvert --to script"
        )
    if not module and not has_file(Path(script)):
        raise ArgumentError(f"{script} is not a readable file. Give the path of a Python script.")


def note_misplaced(context: typer.Context, script: str, arguments: Sequence[str]) -> None:
    """Print a line if ``arguments`` of the script contain options that the command has, too.

    Raise an error that states the right command if one of them is for the output of the command, and the script does
    not read it.
    """
    own = {name: option for option in context.command.params for name in option.opts if name not in SCRIPT_OPTIONS}
    words = dict.fromkeys(argument.partition("=")[0] for argument in arguments)
    misplaced = [word for word in words if word in own and word.startswith("-")]
    if not misplaced:
        return
    command = f"vmselect {context.info_name}"
    lost = [word for word in misplaced if word in OUTPUT_OPTIONS]
    if lost and not _may_read(script, lost, module=bool(context.params.get("module"))):
        flags = {name for name, option in own.items() if getattr(option, "is_flag", False)}
        raise ArgumentError(
            f"{', '.join(lost)} after {script} is passed to the script, which does not read it. Options of vmselect go "
            f"before the script: {_put_before(script, arguments, lost, flags, context.info_name)}"
        )
    fact = f"{', '.join(misplaced)} was passed to {script}, not to {command}"
    print_err([f"vmselect: {fact}. Write options of {command} before the script's name."])


def _may_read(script: str, options: Iterable[str], *, module: bool) -> bool:
    """Whether a script may read one of ``options``: a Python file of its folder names it, or not all can be searched.

    An option may be written with an underscore, or be the name of a field.
    """
    folder = Path() if module else Path(script).parent
    if module and not folder.joinpath(*script.split(".")[:1]).is_dir() and not has_file(folder / f"{script}.py"):
        return True  # an installed package
    files = [path for path in itertools.islice(_source_files(folder), MAX_SOURCES + 1) if path != Path(script)]
    files += [] if module else [Path(script)]
    if len(files) > MAX_SOURCES:
        return True
    names = "|".join(re.escape(option.lstrip("-")) for option in options)
    pattern = re.compile(rf"(?<![a-zA-Z0-9])(?:{names})(?![a-zA-Z0-9])")
    try:
        return any(pattern.search(path.read_text(encoding="utf-8", errors="replace")) for path in files)
    except OSError:
        return True


def _source_files(folder: Path) -> Iterator[Path]:
    """Python files in ``folder`` and in its packages."""
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if has_file(Path(place, name, "__init__.py"))]
        yield from (Path(place, name) for name in names if name.endswith(".py"))


def _put_before(
    script: str, arguments: Sequence[str], moved: Collection[str], flags: Collection[str], name: str | None
) -> str:
    """The command that was typed, with the options ``moved`` and their values before the ``script``."""
    typed, tail = sys.argv[1:], [script, *arguments]
    head = typed[: -len(tail)] if typed[-len(tail) :] == tail else [name or ""]
    first: list[str] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        option, separator, _ = word.partition("=")
        (first if option in moved else rest).append(word)
        if option in moved and not separator and option not in flags:
            first += [following for following in [next(words, None)] if following is not None]
    return shlex.join(["vmselect", *head, *first, script, *rest])


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
