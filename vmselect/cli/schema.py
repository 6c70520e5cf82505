"""The command ``vmselect schema``, which prints JSON Schemas of records and of the JSON output of commands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from vmselect.cli.output import Format, FormatOption, emit, print_out
from vmselect.errors import ArgumentError

FOLDER = Path(__file__).parents[1] / "schemas"
"""Folder with a file NAME-VERSION.json for each version of each schema."""


def schema(
    name: Annotated[
        str | None, typer.Argument(help="Name of the schema, such as ranking.", show_default="list all names")
    ] = None,
    version: Annotated[int | None, typer.Option(help="Version of the schema.", show_default="the newest")] = None,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Print the JSON Schema of a kind of record, or of the output of a command with --format json.

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
        for one, versions in files.items():
            title = json.loads(versions[max(versions)].read_text(encoding="utf-8"))["title"]
            rows.append({"name": one, "version": max(versions), "title": title})
        emit(rows, ("name", "version", "title"), format=format)
        return
    if name not in files:
        raise ArgumentError(f"There is no schema {name}. List the names with: vmselect schema")
    number = max(files[name]) if version is None else version
    if number not in files[name]:
        known = ", ".join(map(str, sorted(files[name])))
        raise ArgumentError(f"The schema {name} has no version {number}. Choose one of: {known}.")
    print_out(files[name][number].read_text(encoding="utf-8").rstrip(), raw=True)


def list_schemas() -> dict[str, dict[int, Path]]:
    """Map the name of each schema to its files, by version."""
    found: dict[str, dict[int, Path]] = {}
    for path in sorted(FOLDER.glob("*.json")):
        if named := re.fullmatch(r"([a-z-]+)-(\d+)", path.stem):
            found.setdefault(named[1], {})[int(named[2])] = path
    return found
