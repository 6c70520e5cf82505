"""Prints rows as a table, JSON or CSV to standard output, and messages to standard error."""

from __future__ import annotations

import contextlib
import csv
import enum
import functools
import inspect
import io
import json
import math
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vmselect.units import printable

if TYPE_CHECKING:
    import pandas as pd

_FORMULA_STARTS = ("=", "+", "-", "@", "\N{REPLACEMENT CHARACTER}")

PROGRESS_SECONDS = 2.0
"""Seconds after which a command shows a spinner."""


class Format(enum.StrEnum):
    """Formats in which rows are printed."""

    table = "table"
    json = "json"
    csv = "csv"


FormatOption = Annotated[Format, typer.Option("--format", help="Format of the output.")]

flag = functools.partial(typer.Option, metavar="")
"""Declares a command-line option without a value. With the empty metavar, the help text shows no type."""


QuietOption = Annotated[
    bool, flag("--quiet", "-q", help="Print results and errors only, without messages and progress.")
]


def emit(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    format: Format,  # noqa: A002
    title: str = "",
    spare: Collection[str] = (),
) -> None:
    """Print ``columns`` of ``rows`` to standard output. Numbers are rounded in a table, but not in JSON and CSV.

    If a table is too wide for the terminal, the columns in ``spare`` are omitted if all rows are equal in them.
    """
    _replace_unprintable()
    if format is Format.json:
        sys.stdout.write(json.dumps(plain_rows(rows, columns), indent=2) + "\n")
    elif format is Format.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow([_safe(column) for column in columns])
        for row in rows:
            writer.writerow([_safe(_cell(row.get(c))) for c in columns])
    else:
        _print_table(rows, columns, title, spare)


def plain_rows(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the ``columns`` of ``rows`` with values that JSON can contain."""
    return [{column: _plain(row.get(column)) for column in columns} for row in rows]


def print_out(line: object, *, raw: bool = False) -> None:
    """Print ``line`` to standard output. With ``raw=True``, as for JSON, its line breaks are kept."""
    _replace_unprintable()
    sys.stdout.write((str(line) if raw else printable(str(line))) + "\n")
    sys.stdout.flush()  # before messages to standard error that follow


def frame_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of ``frame`` as dictionaries, for :func:`emit`."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


class _Verbosity:
    """Whether the option --quiet was given."""

    quiet = False


def set_quiet(quiet: bool) -> None:
    """With ``quiet=True``, suppress messages on standard error other than errors; with False, show them again."""
    _Verbosity.quiet = quiet


def is_quiet() -> bool:
    """Return whether messages are suppressed."""
    return _Verbosity.quiet


def accept_quiet(app: typer.Typer) -> None:
    """Add the option --quiet to all commands of ``app`` and of its groups, so that it may also follow their names."""
    for command in app.registered_commands:
        if command.callback is not None:
            command.callback = _with_quiet(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            accept_quiet(group.typer_instance)


def _with_quiet(command: Callable[..., None]) -> Callable[..., None]:
    """Return ``command`` with the option --quiet, or unchanged if it has a parameter ``quiet`` of its own.

    Typer reads the options from the signature of the returned function.
    """
    own = inspect.signature(command, eval_str=True).parameters
    if "quiet" in own:
        return command
    option = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=QuietOption)

    @functools.wraps(command)
    def run(*, quiet: bool, **given: Any) -> None:
        set_quiet(quiet or is_quiet())
        command(**given)

    run.__signature__ = inspect.Signature([*own.values(), option])  # type: ignore[attr-defined]
    return run


def print_err(lines: Iterable[object], *, always: bool = False) -> None:
    """Print each of ``lines`` to standard error, unless --quiet was given. Errors are printed with ``always=True``."""
    if _Verbosity.quiet and not always:
        return
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for line in lines:
        console.print(printable(str(line)), markup=False)


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Context manager that shows the text ``what`` with a spinner if the code inside it takes more than two seconds."""
    if _Verbosity.quiet or not sys.stderr.isatty():
        yield
        return
    status = Console(stderr=True).status(Text(printable(what)))
    timer = threading.Timer(PROGRESS_SECONDS, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # so that the spinner does not start after it was stopped
        status.stop()


def _print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], title: str, spare: Collection[str]) -> None:
    # A pipe has no width: do not wrap cells there.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 400)
    widths = [max(map(cell_len, (column, *(_shown(row.get(column)) for row in rows)))) + 2 for column in columns]
    if sum(widths) - 2 > console.width:
        columns = [c for c in columns if c not in spare or len({_shown(row.get(c)) for row in rows}) > 1]
    table = Table(title=Text(printable(title)) if title else None, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        numeric = any(isinstance(v := row.get(column), int | float) and not isinstance(v, bool) for row in rows)
        table.add_column(Text(printable(column)), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_shown(row.get(c))) for c in columns))
    console.print(table)


def _replace_unprintable() -> None:
    """Make standard output print a question mark for each character that its encoding lacks, instead of failing."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _plain(value: Any) -> Any:
    """Convert ``value`` for JSON: a numpy scalar to a Python number, NaN and infinity to None."""
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(value: Any) -> Any:
    value = _plain(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else value


def _safe(cell: Any) -> Any:
    """Convert ``cell`` for CSV: text that a spreadsheet would run as a formula gets a leading apostrophe."""
    if not isinstance(cell, str):
        return cell
    text = printable(cell)
    return f"'{text}" if text.lstrip().startswith(_FORMULA_STARTS) else text


def _shown(value: Any) -> str:
    cell = _cell(value)
    return f"{cell:.6g}" if isinstance(cell, float) else printable(str(cell))
