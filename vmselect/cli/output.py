"""How commands print rows: a table for people, JSON or CSV for programs."""

from __future__ import annotations

import csv
import enum
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text


class Format(enum.StrEnum):
    """What rows are printed as."""

    table = "table"
    json = "json"
    csv = "csv"


FormatOption = Annotated[Format, typer.Option("--format", help="What to print rows as.")]


def emit(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, format: Format, title: str = "") -> None:  # noqa: A002
    """Print ``rows`` to standard output; numbers keep all digits in JSON and CSV, and are rounded in a table."""
    if format is Format.json:
        plain = [{c: _plain(row.get(c)) for c in columns} for row in rows]
        sys.stdout.write(json.dumps(plain, indent=2, ensure_ascii=False) + "\n")
    elif format is Format.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            writer.writerow([_cell(row.get(c)) for c in columns])
    else:
        _print_table(rows, columns, title)


def say(lines: Iterable[object]) -> None:
    """Print remarks to standard error, away from the rows."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for line in lines:
        console.print(_printable(str(line)), markup=False)


def _print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], title: str) -> None:
    # A pipe has no width of its own: let lines be as long as they are instead of cutting cells.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 400)
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        numeric = any(isinstance(v := row.get(column), int | float) and not isinstance(v, bool) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_shown(row.get(c))) for c in columns))
    console.print(table)


def _plain(value: Any) -> Any:
    """A value that JSON has a word for; what is unknown is null."""
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(value: Any) -> Any:
    value = _plain(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else value


def _shown(value: Any) -> str:
    cell = _cell(value)
    return f"{cell:.6g}" if isinstance(cell, float) else _printable(str(cell))


def _printable(text: str) -> str:
    """``text`` without the control characters with which a name could command a terminal."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
