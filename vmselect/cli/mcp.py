"""The command ``vmselect mcp``, which offers vmselect's analyses to coding agents (Model Context Protocol, MCP).

The tools read records and prices, and return the results of the Python functions. No tool runs a program, rents a
machine or writes a file. Paths come from agents and are not trusted: only files in the folders of the server are read.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from vmselect import __version__
from vmselect._checks import check_path
from vmselect._imports import require
from vmselect._io import confined_to
from vmselect.cli.check import CheckRow, check, check_profiles
from vmselect.cli.compare import compare, compare_groups, comparison_options, split_names
from vmselect.cli.estimate import estimate, estimate_trainings
from vmselect.cli.options import PriceOptions, RankingOptions, open_catalog
from vmselect.cli.output import frame_rows, make_rows, print_err
from vmselect.cli.prices import find_prices, price_model, show
from vmselect.cli.rank import make_ranking, rank
from vmselect.cli.sweep import PlannedTrial, show_plan
from vmselect.errors import ArgumentError, MissingPackageError, ProfileError, VmselectError
from vmselect.ranking.options import OPTIONS, Option

if TYPE_CHECKING:
    from pydantic import BaseModel

    from vmselect.findings import Finding
    from vmselect.ranking import Ranking

INSTRUCTIONS = (
    "vmselect finds the cloud VM type on which a deep-learning training is cheapest or fastest. It works from records "
    "(JSON files) that a probe wrote on each machine, from descriptions of models, and from dated prices. Start with "
    "recommend; after probes, check them, then rank, whose key 'next_probe' is the machine to probe next. Times are in "
    "seconds, costs in USD, and every estimate has an interval: report the interval too. All tools only read. "
    "Describing, probing and sweeping run programs and may rent machines: give the user the command, and let the user "
    "run it."
)

TOP = 20
"""Default number of rows in the result of a tool."""
COMPARED_OTHERWISE = (
    "factors", "scaling", "scale", "needs", "html", "before", "limit_percent", "limit_usd", "markdown",
)  # fmt: skip
"""Options of the command ``compare`` that compare something else than groups."""
RECOMMENDED = (
    "profiles", "epochs", "objective", "deadline_hours", "budget_usd", "region", "market", "provider", "gpu",
    "max_usd_per_hour", "examples", "top",
)  # fmt: skip
"""Arguments of the tool ``recommend``. A tool has at most 15: an agent reads all of them in every conversation."""
RANKED = (
    "profiles", "epochs", "batch_size", "objective", "deadline_hours", "budget_usd", "co2_limit_kg", "machines",
    "region", "market", "provider", "gpu", "own_prices", "date", "top",
)  # fmt: skip
"""Arguments of the tool ``rank``; the other options of the command have their default values."""
COMPARED = (
    "paths", "by", "metric", "baseline", "within", "unit", "better", "alpha", "confidence", "epochs", "model",
    "region", "market", "own_prices", "date",
)  # fmt: skip
"""Arguments of the tool ``compare``."""
PLANNED = (
    "command", "runner", "factors", "machines", "repetitions", "minutes", "expected_minutes", "exclude", "include",
    "environment", "stand_ins", "budget_usd", "own_prices", "date",
)  # fmt: skip
"""Arguments of the tool ``plan_sweep``."""
PATHS = ("profiles", "paths", "history", "study", "recalibrate")
"""Texts that name files or folders to read. Arguments of the type ``Path`` are always treated as such."""


def mcp(
    folder: Annotated[
        list[Path] | None,
        typer.Option(help="Folder whose files the tools may read; may be repeated.", show_default="the current folder"),
    ] = None,
) -> None:
    """Serve tools for coding agents over standard input and output, by the Model Context Protocol (MCP).

    The tools are recommend, prices, estimate, rank, check, compare and plan_sweep. They read records and prices, and
    run, rent and write nothing. Relative paths start at the first folder. An agent's program starts this command and
    ends it by closing standard input.

    Examples:

      vmselect mcp

      vmselect mcp --folder ~/trainings --folder ~/team-records
    """
    import asyncio

    server_module = _require("mcp.server.lowlevel")
    stdio = _require("mcp.server.stdio")
    folders = [Path(os.path.realpath(check_path("folder", path))) for path in folder or [Path()]]
    missing = next((path for path in folders if not path.is_dir()), None)
    if missing is not None:
        raise ArgumentError(f"{missing} is not a folder. Give --folder the path of an existing folder.")
    if sys.stdin.isatty():
        print_err(["vmselect: waiting for an agent on standard input. Press Ctrl-C to end; see vmselect mcp --help."])
    server = make_server(server_module, folders)

    async def serve() -> None:
        async with stdio.stdio_server() as (messages, answers):
            await server.run(_Repaired(messages), answers, server.create_initialization_options())

    asyncio.run(serve())


def _require(module: str) -> Any:
    """Import and return a module of the MCP SDK, version 2 or later."""
    sdk = require("mcp.server.lowlevel", extra="mcp", needed_by="vmselect mcp")
    if "on_call_tool" not in inspect.signature(sdk.Server).parameters:
        raise MissingPackageError(
            'vmselect mcp needs version 2 of the package mcp. Install it with: pip install --upgrade "vmselect[mcp]"'
        )
    return importlib.import_module(module)


# -- tools -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tool:
    """A tool for agents: its description, the function that computes its result, and its arguments.

    The arguments are parameters of commands of the command line.
    """

    description: str
    answer: Callable[..., dict[str, Any]]
    parameters: Mapping[str, inspect.Parameter]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Values of the other parameters of the commands."""

    @classmethod
    def of(
        cls,
        description: str,
        answer: Callable[..., dict[str, Any]],
        parameters: Mapping[str, Any],
        names: Sequence[str],
    ) -> Tool:
        """A tool whose arguments are the ``names`` among ``parameters``; the others have their default values."""
        fixed = {name: parameter.default for name, parameter in parameters.items() if name not in names}
        return cls(description, answer, {name: parameters[name] for name in names}, fixed)

    @functools.cached_property
    def arguments(self) -> type[BaseModel]:
        """Return a pydantic model of the arguments, made from types, limits and help texts of command-line options."""
        from pydantic import ConfigDict, Field, create_model

        fields: dict[str, Any] = {}
        for name, parameter in self.parameters.items():
            kind, limits, text = parameter.annotation, {}, None
            if get_origin(kind) is Annotated:
                kind, option = get_args(kind)[:2]
                limits = {key: most for key, most in (("ge", option.min), ("le", option.max)) if most is not None}
                text = _describe(option)
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = (kind, Field(default, description=text, **limits))
        # A number where an option is a text, such as the epochs 50 instead of "50" or "5,10,20", is accepted.
        config = ConfigDict(extra="forbid", coerce_numbers_to_str=True, allow_inf_nan=False)
        return create_model("Arguments", __config__=config, **fields)

    @functools.cached_property
    def input_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments of the tool."""
        schema: dict[str, Any] = _without_titles(self.arguments.model_json_schema())
        return schema

    def call(self, arguments: Mapping[str, Any], folders: Sequence[Path]) -> dict[str, Any]:
        """Check the ``arguments`` arguments and return the result of the tool. Raise a VmselectError if this fails."""
        from pydantic import ValidationError

        from vmselect.records.base import describe_invalid

        try:
            checked = self.arguments.model_validate(arguments)
        except ValidationError as invalid:
            problem = describe_invalid(invalid.errors(include_url=False, include_input=False)[0])
            raise ArgumentError(
                f"An argument is invalid, {problem}. Correct it as the input schema of the tool states."
            ) from None
        values = {name: getattr(checked, name) for name in self.parameters}
        for name, value in values.items():
            if isinstance(value, Path) or (name in PATHS and value is not None):
                values[name] = _restrict(name, value, folders)
        # Links in a folder that is read as a whole.
        with confined_to(folders):
            return self.answer(**self.fixed, **values)


@functools.cache
def list_tools() -> dict[str, Tool]:
    """Return all tools by name."""
    from vmselect.sweeps import Plan

    return {
        "recommend": Tool(
            "Recommend the machine to rent for a training, also before any machine was probed: ranks all machines by "
            "the newest description in a folder of records, and by the probes of the same training in it. 'commands' "
            "run the next probe, and 'reason' says why it or none is next: show them to the user. To make "
            "a description: vmselect describe train.py",
            _recommend,
            {name: _ranking_parameters(top=TOP)[name] for name in RECOMMENDED},
        ),
        "prices": Tool(
            "List prices of cloud VM types in USD per hour with their dates and GPUs, cheapest first.",
            _prices,
            _parameters(show, omit=("each",), top=TOP),
        ),
        "estimate": Tool(
            "Estimate from profiles how many seconds a training takes on each probed machine, with an interval.",
            _estimate,
            _parameters(estimate, omit=("phase", "memory", "gpu", "terms", "keep")),
        ),
        "rank": Tool.of(
            "Rank machines by the time and cost of a training, with intervals, findings and excluded candidates. "
            "'verdict' is the result in words; 'findings' of a row are positions in the list 'findings'. 'next_probe' "
            "is the machine whose probe improves the choice most per dollar, or null; machines 'all' adds those that "
            "were never probed.",
            _rank,
            _ranking_parameters(top=TOP),
            RANKED,
        ),
        "check": Tool(
            "List the findings of profiles: problems of the measurement and of the training, each with its remedy.",
            _check,
            _parameters(check),
        ),
        "compare": Tool.of(
            "Test whether groups of records differ in a metric, and estimate by how much.",
            _compare,
            _parameters(compare, omit=COMPARED_OTHERWISE),
            COMPARED,
        ),
        "plan_sweep": Tool.of(
            "Plan a sweep, which runs a probe of a training on several machines, and compute its cost. Nothing is "
            "started: show the user the cost, the plan and the command. 'factors' maps names to levels, such as "
            '{"instance_type": ["g5.xlarge", "g6.xlarge"]}; {name} in the command is replaced by the level. '
            "The runner 'skypilot' rents machines, 'local', 'ssh' and 'slurm' use own ones.",
            _plan_sweep,
            _parameters(Plan, show_plan, omit=("plan",)),
            PLANNED,
        ),
    }


def _parameters(*sources: Callable[..., Any], omit: Iterable[str] = (), **defaults: Any) -> dict[str, Any]:
    """Return the parameters of ``sources`` except those in ``omit``; ``defaults`` replaces their default values."""
    parameters = {
        name: parameter
        for source in sources
        for name, parameter in inspect.signature(source, eval_str=True).parameters.items()
        if name not in ("format", *omit)
    }
    return parameters | {name: parameters[name].replace(default=value) for name, value in defaults.items()}


def _ranking_parameters(**others: Any) -> dict[str, Any]:
    """Return the parameters of a tool that ranks: options of a ranking with the types of Python, and files."""
    # Other options of the command concern what it prints, or write files.
    shared = {field.name for field in fields(RankingOptions)} - {"keep", "values"}
    used = {"profiles", "study", "require", *others, *shared, *(option.name for option in OPTIONS)}
    omit = [name for name in inspect.signature(rank).parameters if name not in used]
    parameters = _parameters(rank, omit=omit, **others)
    for option in OPTIONS:
        text = get_args(parameters[option.name].annotation)[1]
        parameters[option.name] = parameters[option.name].replace(annotation=Annotated[_python_type(option), text])
    return parameters


def _python_type(option: Option) -> Any:
    """The type of an option as an argument of :func:`vmselect.rank`, with the name of a file for its content."""
    kind: Any = str if option.type is Path and option.several else option.type
    if option.several:
        kind = kind | list[kind]
    if option.name == "objective":
        kind = kind | dict[str, float]
    if option.word and option.type is not str:
        kind = kind | Literal["all"]
    return kind if option.type is bool else kind | None


def _describe(option: Any) -> str:
    """Return the help text of a command-line option, in which names of options are replaced by names of arguments."""
    text = option.help or ""
    default = f" Default: {option.show_default}." if isinstance(option.show_default, str) else ""
    return re.sub(r"--([a-z][a-z-]+)", lambda match: match[1].replace("-", "_"), text + default)


def _without_titles(schema: Any) -> Any:
    """Return ``schema`` without the titles that pydantic derives from the names of fields."""
    if isinstance(schema, dict):
        kept = {key: value for key, value in schema.items() if key != "title" or not isinstance(value, str)}
        return {key: _without_titles(value) for key, value in kept.items()}
    return [_without_titles(part) for part in schema] if isinstance(schema, list) else schema


def _restrict(name: str, value: Any, folders: Sequence[Path]) -> Any:
    """Return the path or paths ``value`` with all links resolved. Raise an error if one is outside ``folders``."""
    if isinstance(value, list):
        return [str(_restrict(name, part, folders)) for part in value]
    if "://" in str(value):
        raise ArgumentError(f"{name} is a URL, and this server reads local files only. Give a local path.")
    path = Path(os.path.realpath(folders[0] / check_path(name, value)))
    if not any(path.is_relative_to(folder) for folder in folders):
        raise ArgumentError(
            f"{name} is outside the folders that this server may read. Give a path in one of them, or ask the user to "
            "start the server with: vmselect mcp --folder FOLDER"
        )
    return path


# -- answers -----------------------------------------------------------------------------------------------------------


def _prices(
    *,
    instance_type: list[str] | None,
    catalog: Path | None,
    own_prices: Path | None,
    date: str | None,
    retired: bool,
    top: int | None,
    **search: Any,
) -> dict[str, Any]:
    listed = open_catalog(catalog, date=date, own_prices=own_prices)
    cheapest = bool(search["gpu"]) and search["region"] != ["all"]
    prices = find_prices(listed, instance_type or [], retired=retired or bool(date), cheapest=cheapest, **search)
    shown = prices.rows if top is None else prices.rows.head(top)
    return {
        "prices": make_rows(frame_rows(shown), price_model()),
        "omitted": len(prices.rows) - len(shown),
        "origin": prices.origin,
        "findings": _plain_findings(prices.findings),
    }


def _estimate(*, profiles: list[str], **options: Any) -> dict[str, Any]:
    estimates = estimate_trainings(profiles, **options)
    return {
        "estimates": [row.payload() for row in estimates.rows],
        "findings": _plain_findings(estimates.findings),
        "errors": [str(error) for error in estimates.failed],
    }


def _rank(*, top: int, **arguments: Any) -> dict[str, Any]:
    from vmselect.ranking.output import ranking_output

    return ranking_output(_make_ranking(**arguments), top=top).payload()


def _recommend(*, profiles: list[str], top: int, **values: Any) -> dict[str, Any]:
    from vmselect.ranking.output import answer_next_probe, ranking_output
    from vmselect.recommendation import explain_memory, newest_description, probe_commands, rank_training
    from vmselect.records import load_profiles

    records = load_profiles(profiles)
    described = newest_description(records)
    ranking = rank_training(described, records, **({"machines": "all"} | RankingOptions(values=values).arguments()))
    probe = ranking.next_probe
    return {
        "ranking": ranking_output(ranking, top=top).payload(),
        "reason": answer_next_probe(ranking).reason,
        "memory": explain_memory(ranking, described),
        "commands": probe_commands(probe) if probe else [],
    }


def _make_ranking(
    *, profiles: list[str], study: list[str] | None, require: str | None, unprobed: bool = False, **arguments: Any
) -> Ranking:
    values = {option.name: arguments.pop(option.name) for option in OPTIONS}
    options = RankingOptions(**arguments, values=values)
    return make_ranking(profiles, options, study=study, require=require, unprobed=unprobed)


def _check(*, profiles: list[str]) -> dict[str, Any]:
    rows, unreadable = check_profiles(profiles)
    if unreadable and not rows:
        raise ProfileError(unreadable[0])
    return {"findings": make_rows(rows, CheckRow), "errors": unreadable}


def _compare(
    *,
    paths: list[str],
    by: str,
    metric: str,
    baseline: str | None,
    within: str | None,
    unit: str,
    alpha: float,
    better: str | None,
    **options: Any,
) -> dict[str, Any]:
    from vmselect.records import load_records

    names = split_names(metric, option="metric")
    prices = PriceOptions(**{field.name: options.pop(field.name) for field in fields(PriceOptions)})
    common = comparison_options(names, prices, **options)
    comparisons = compare_groups(
        load_records(paths), by=by, metrics=names, baseline=baseline, within=within, unit=unit, alpha=alpha,
        better=better, **common,
    )  # fmt: skip
    return {"comparisons": [comparison.to_output().payload() for comparison in comparisons]}


def _plan_sweep(
    *,
    budget_usd: float | None,
    catalog: Path | None,
    own_prices: Path | None,
    date: str | None,
    **plan: Any,
) -> dict[str, Any]:
    from vmselect.sweeps import Plan
    from vmselect.sweeps.plan import as_yaml

    made = Plan(**plan)
    listed = open_catalog(catalog, date=date, own_prices=own_prices)
    made.check_stand_ins(listed)
    frame = made.to_frame(listed)
    estimated, worst = (float(frame[name].sum()) for name in ("estimated_usd", "worst_usd"))
    budget = math.ceil(100 * worst) / 100 if budget_usd is None else budget_usd
    command = [
        "vmselect",
        "sweep",
        "run",
        "plan.yaml",
        "sweep/",
        *(["--budget-usd", f"{budget:.15g}"] if budget else []),
    ]
    return {
        "plan_yaml": as_yaml(made.to_dict()),
        "trials": len(frame),
        "first_trials": make_rows(frame_rows(frame.head(TOP)), PlannedTrial, [str(name) for name in frame.columns]),
        "location": made.location,
        "estimated_usd": estimated,
        "worst_usd": worst,
        "within_budget": None if budget_usd is None else worst <= budget_usd,
        "command": shlex.join(command),
        "to_start": "Nothing was started. The user saves plan_yaml as plan.yaml and runs the command, which asks for "
        "confirmation before it starts or rents anything.",
    }


def _plain_findings(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    return [asdict(finding) for finding in findings]


def _encodable(text: str) -> str:
    """``text`` without lone surrogates, such as those of file names that are not UTF-8: JSON cannot transport them."""
    return text.encode(errors="replace").decode()


# -- server ------------------------------------------------------------------------------------------------------------


class _Repaired:
    """The messages of an agent. Those with lone surrogates, which the SDK drops, are repaired and thus answered."""

    def __init__(self, messages: Any) -> None:
        self._messages = messages

    def __getattr__(self, name: str) -> Any:
        return getattr(self._messages, name)

    def __aiter__(self) -> _Repaired:
        return self

    async def __anext__(self) -> Any:
        return _repair(await self._messages.__anext__())

    async def __aenter__(self) -> _Repaired:
        await self._messages.__aenter__()
        return self

    async def __aexit__(self, *problem: Any) -> Any:
        return await self._messages.__aexit__(*problem)


def _repair(message: Any) -> Any:
    """A message that could not be parsed, with lone surrogates replaced; ``message`` itself if that does not help."""
    from pydantic import ValidationError

    if not isinstance(message, ValidationError):
        return message
    try:
        text = _encodable(json.dumps(json.loads(message.errors()[0]["input"]), ensure_ascii=False))
        parsed = _require("mcp.types").jsonrpc_message_adapter.validate_json(text, by_name=False)
        return _require("mcp.shared.message").SessionMessage(parsed)
    except (ValueError, TypeError, RecursionError):
        return message


def make_server(server_module: Any, folders: Sequence[Path]) -> Any:
    """Return a server of the MCP SDK with all tools, which may only read files in ``folders``."""
    import asyncio

    types = _require("mcp.types")
    one_at_a_time = asyncio.Lock()

    async def on_list_tools(_context: Any, _page: Any) -> Any:
        hints = types.ToolAnnotations(
            read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
        )
        return types.ListToolsResult(
            tools=[
                types.Tool(name=name, description=tool.description, input_schema=tool.input_schema, annotations=hints)
                for name, tool in list_tools().items()
            ]
        )

    async def on_call_tool(_context: Any, request: Any) -> Any:
        try:
            tool = list_tools().get(request.name)
            if tool is None:
                raise ArgumentError(f"There is no tool {request.name}. Call one of: {', '.join(list_tools())}.")
            async with one_at_a_time:
                answer = await asyncio.to_thread(tool.call, request.arguments or {}, folders)
        except (VmselectError, OSError) as error:
            problem = types.TextContent(type="text", text=_encodable(str(error)))
            return types.CallToolResult(content=[problem], is_error=True)
        text = _encodable(json.dumps(answer, ensure_ascii=False, allow_nan=False))
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)], structured_content=json.loads(text)
        )

    return server_module.Server(
        "vmselect", version=__version__, instructions=INSTRUCTIONS, on_list_tools=on_list_tools,
        on_call_tool=on_call_tool,
    )  # fmt: skip
