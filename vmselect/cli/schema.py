"""The command ``vmselect schema``, which prints JSON Schemas of records and of the JSON output of commands."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from pydantic import TypeAdapter

from vmselect._models import Output
from vmselect.cli.output import Format, FormatOption, Written, emit, print_out
from vmselect.errors import ArgumentError
from vmselect.records.files import KINDS
from vmselect.records.files import REQUIRED as REQUIRED_IN_FILES

FOLDER = Path(__file__).parents[1] / "schemas"
"""Folder with a file NAME-VERSION.json for each version of each schema."""


class SchemaRow(Output):
    """A JSON Schema that ships with vmselect."""

    name: str
    version: int
    title: str


def schema(
    name: Annotated[
        str | None, typer.Argument(help="Name of the schema, such as ranking.", show_default="list all names")
    ] = None,
    version: Annotated[int | None, typer.Option(help="Version of the schema.", show_default="the newest")] = None,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Print the JSON Schema of a kind of record, or of the output of a command with --json.

    Without NAME, the names, versions and titles of all schemas are listed. A schema that changes gets a new version.
    The version of the schema of a record is the number of its file format.

    Examples:

      vmselect schema

      vmselect schema ranking

      vmselect schema record-training > profile.schema.json
    """
    files = list_schemas()
    if name is None:
        rows = []
        for schema_name, versions in files.items():
            title = json.loads(versions[max(versions)].read_text(encoding="utf-8"))["title"]
            rows.append({"name": schema_name, "version": max(versions), "title": title})
        emit(rows, SchemaRow, format=format)
        return
    if name not in files:
        raise ArgumentError(f"There is no schema {name}. List the names with: vmselect schema")
    number = max(files[name]) if version is None else version
    if number not in files[name]:
        others = ", ".join(map(str, sorted(files[name])))
        raise ArgumentError(f"The schema {name} has no version {number}. Choose one of: {others}.")
    print_out(files[name][number].read_text(encoding="utf-8").rstrip(), raw=True)


# -- models ------------------------------------------------------------------------------------------------------------


class Printed(NamedTuple):
    """One kind of JSON output: its version, its type, and the commands that print it."""

    version: int
    kind: Any
    commands: tuple[str, ...]


def _rows_of(model: Any) -> Any:
    """Type of a list of ``model``, which for mypy is a variable if it was made from a dataclass."""
    return list[model]


@functools.cache
def outputs() -> Mapping[str, Printed]:
    """Kinds of JSON that commands print with ``--json``. A running sweep prints one JSON value per line."""
    # Imported here, because most commands print no JSON, and the models of results import pandas.
    from vmselect.cli.check import CheckRow
    from vmselect.cli.describe import DescribeOutput
    from vmselect.cli.estimate import EstimateRow, MemoryRow
    from vmselect.cli.history import Compaction, HistoryRow
    from vmselect.cli.prices import FlaggedPrice, GpuPrices, PriceChange, price_model, refresh_model
    from vmselect.cli.probe import ProbeOutput
    from vmselect.cli.serve import InferenceRow, TransferRow
    from vmselect.cli.sweep import CleanedOutput, PlannedTrial, SweepEvent, SweepSummary, TrialStatus
    from vmselect.comparison.changes import ChangesOutput
    from vmselect.comparison.effects import EffectsOutput
    from vmselect.comparison.groups import ComparisonOutput
    from vmselect.comparison.requirements import ScoresOutput
    from vmselect.comparison.speedup import ScalingOutput
    from vmselect.ranking.output import NextProbeAnswer, RankingOutput
    from vmselect.scoring.score import ScoreOutput
    from vmselect.watching.moves import MoveRow

    compared = ComparisonOutput | EffectsOutput | ScalingOutput | ScoresOutput
    return {
        "check": Printed(1, _rows_of(CheckRow), ("check",)),
        "compare": Printed(1, compared | list[compared], ("compare",)),
        "compare-before": Printed(1, ChangesOutput, ("compare --before",)),
        "describe": Printed(1, DescribeOutput, ("describe",)),
        "estimate": Printed(2, list[EstimateRow], ("estimate",)),
        "estimate-memory": Printed(1, list[MemoryRow], ("estimate --memory",)),
        "history-compact": Printed(1, list[Compaction], ("history compact",)),
        "history-list": Printed(1, list[HistoryRow], ("history list",)),
        "rank-running": Printed(1, list[MoveRow], ("rank --running",)),
        "rank-next": Printed(2, NextProbeAnswer, ("rank --next",)),
        "prices": Printed(1, _rows_of(price_model()), ("prices show --gpu", "prices show --all")),
        "prices-check": Printed(1, list[PriceChange], ("prices check",)),
        "prices-check-flagged": Printed(1, list[FlaggedPrice], ("prices check --flagged",)),
        "prices-gpus": Printed(1, list[GpuPrices], ("prices show",)),
        "prices-refresh": Printed(1, _rows_of(refresh_model()), ("prices refresh",)),
        "probe": Printed(1, ProbeOutput, ("probe", "watch")),
        "ranking": Printed(2, RankingOutput, ("rank", "recommend", "demo")),
        "schema": Printed(1, list[SchemaRow], ("schema",)),
        "score": Printed(1, ScoreOutput, ("score show",)),
        "serve-inference": Printed(1, list[InferenceRow], ("serve inference",)),
        "serve-transfer": Printed(1, list[TransferRow], ("serve transfer",)),
        "sweep-clean": Printed(1, _rows_of(CleanedOutput), ("sweep clean",)),
        "sweep-line": Printed(1, SweepSummary | SweepEvent, ("sweep run", "sweep resume")),
        "sweep-plan": Printed(1, list[PlannedTrial], ("sweep plan",)),
        "sweep-status": Printed(1, list[TrialStatus], ("sweep status",)),
        "written": Printed(1, Written, ("export", "history label", "prices snapshot", "score add")),
    }


def schema_names() -> list[str]:
    """Return the names of all schemas: those of records, such as ``record-training``, and of outputs of commands."""
    return sorted([*(f"record-{kind}" for kind in KINDS), *outputs()])


def generate_schema(name: str) -> dict[str, Any]:
    """Generate the JSON Schema ``name``, with its version in ``$id``."""
    version = schema_version(name)
    if name in outputs():
        used = ", ".join(f"vmselect {command}" for command in outputs()[name].commands)
        model, title = outputs()[name].kind, f"JSON output of {used}"
    else:
        kind = KINDS[name.removeprefix("record-")]
        model, title = kind.model, f"File of a {kind.noun}"
    schema = _shorten(TypeAdapter(model).json_schema(mode="validation"))
    if name not in outputs():
        del schema["properties"]["writer"]["default"]  # it contains the version of vmselect
        schema["required"] = sorted({*schema.get("required", ()), *REQUIRED_IN_FILES, "kind"})
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:vmselect:{name}:{version}"}
    return {**about, **schema, "title": title}


def _shorten(schema: Any) -> Any:
    """Return ``schema`` with only the first paragraph of each description, because docstrings also contain examples."""
    if isinstance(schema, dict):
        shortened = {key: _shorten(value) for key, value in schema.items()}
        if isinstance(text := schema.get("description"), str):
            shortened["description"] = " ".join(text.partition("\n\n")[0].split())
        return shortened
    return [_shorten(part) for part in schema] if isinstance(schema, list) else schema


def schema_file(name: str) -> str:
    """Return the name of the file that contains the current version of the schema ``name``."""
    return f"{name}-{schema_version(name)}.json"


def schema_version(name: str) -> int:
    """Return the current version of the schema ``name``; for a record, the number of its file format."""
    return outputs()[name].version if name in outputs() else KINDS[name.removeprefix("record-")].format


def list_schemas() -> dict[str, dict[int, Path]]:
    """Map the name of each schema to its files, by version."""
    files: dict[str, dict[int, Path]] = {}
    for path in sorted(FOLDER.glob("*.json")):
        if named := re.fullmatch(r"([a-z-]+)-(\d+)", path.stem):
            files.setdefault(named[1], {})[int(named[2])] = path
    return files
