"""Prints rows as a table, JSON or CSV to standard output, and messages to standard error."""

from __future__ import annotations

import contextlib
import csv
import enum
import functools
import inspect
import io
import json
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vmselect._models import Output, plain
from vmselect.errors import ArgumentError
from vmselect.units import printable

if TYPE_CHECKING:
    import pandas as pd

_FORMULA_STARTS = ("=", "+", "-", "@", "\N{REPLACEMENT CHARACTER}")

WRAPPED_WIDTH = 20
"""Characters of a wrapped column in a narrow terminal: the names of most regions fit."""
GAP = 2
"""Number of spaces between two columns of a table."""
LEAST_WIDTH = 8
"""Least width of a column whose cells are wrapped, unless its longest cell is shorter."""

PROGRESS_SECONDS = 2.0
"""Seconds after which a command shows a spinner."""


Row: TypeAlias = dict[str, Any]
"""A row to print: values by column name."""


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

JsonOption = Annotated[bool, flag("--json", help="Print JSON; vmselect schema describes it.")]


def emit(
    rows: Sequence[Mapping[str, object]],
    model: type[Output],
    *,
    format: Format,  # noqa: A002
    columns: Sequence[str] = (),
    title: str = "",
    spare: Collection[str] = (),
) -> None:
    """Print ``rows`` to standard output. Numbers are rounded in a table, but not in JSON and CSV.

    The columns are the fields of ``model``, or only ``columns``. If a table is too wide for the terminal, the
    columns in ``spare`` are omitted if all rows are equal in them.
    """
    columns = columns or tuple(model.model_fields)
    # JSON is made by the model only, so that it cannot differ from the schema.
    if format is Format.json:
        print_json(make_rows(rows, model, columns))
    elif format is Format.csv:
        print_csv(rows, columns)
    else:
        print_table(rows, columns, title=title, spare=spare)


def make_rows(rows: Iterable[Mapping[str, object]], model: type[Output], columns: Sequence[str] = ()) -> list[Row]:
    """``rows`` as plain values of the fields of ``model``, or only of ``columns``; NaN becomes None."""
    names = columns or tuple(model.model_fields)
    return [model(**{name: plain(row.get(name)) for name in names}).payload() for row in rows]


def print_json(value: Output | Sequence[Mapping[str, object]]) -> None:
    """Print a result, or plain rows, as JSON."""
    plain = value.payload() if isinstance(value, Output) else value
    print_out(json.dumps(plain, indent=1, allow_nan=False), raw=True)


def print_csv(rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> None:
    """Print ``columns`` of ``rows`` as CSV."""
    _replace_unprintable()
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([_safe(column) for column in columns])
    for row in rows:
        writer.writerow([_safe(_cell(row.get(column))) for column in columns])


class Written(Output):
    """Files or folders that a command has written."""

    files: list[str]


def print_written(paths: Iterable[object], *, as_json: bool) -> None:
    """Print the paths of written files, a line each or as JSON."""
    files = [str(path) for path in paths]
    if as_json:
        print_json(Written(files=files))
    else:
        for file in files:
            print_out(file)


def print_out(line: object, *, raw: bool = False) -> None:
    """Print ``line`` to standard output. With ``raw=True``, as for JSON, its line breaks are kept."""
    _replace_unprintable()
    sys.stdout.write((str(line) if raw else printable(str(line))) + "\n")
    sys.stdout.flush()  # before messages to standard error that follow


def frame_rows(frame: pd.DataFrame) -> list[Row]:
    """Return the rows of ``frame`` as dictionaries, for :func:`emit`."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


COMMANDS = ("Next:", "Or:", "Then:", "Check:")
"""Begins of lines that contain a command."""
WARNING = "Warning: "
"""Begin of a line with a warning."""


class _Verbosity:
    """Whether the option --quiet was given, and the lines that the command has printed to standard error."""

    quiet = False
    printed: ClassVar[set[str]] = set()


def set_quiet(quiet: bool) -> None:
    """With ``quiet=True``, suppress messages on standard error other than errors; with False, show them again."""
    _Verbosity.quiet = quiet
    _Verbosity.printed.clear()


def is_quiet() -> bool:
    """Return whether messages are suppressed."""
    return _Verbosity.quiet


def add_common_options(app: typer.Typer) -> None:
    """Add --quiet to all commands of ``app`` and of its groups, and --json to those that have --format."""
    for command in app.registered_commands:
        if command.callback is not None:
            command.callback = _with_common_options(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            add_common_options(group.typer_instance)


def _with_common_options(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` with the common options that are not among its own parameters.

    Typer reads the options from the signature of the returned function.
    """
    own = inspect.signature(command, eval_str=True).parameters
    added = []
    if "quiet" not in own:
        added.append(inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=QuietOption))
    if "format" in own:
        added.append(inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption))

    @functools.wraps(command)
    def run(**values: Any) -> None:
        if "quiet" not in own:
            set_quiet(values.pop("quiet") or is_quiet())
        if "format" in own and values.pop("as_json"):
            if values["format"] is Format.csv:
                raise ArgumentError("--json and --format csv exclude each other. Remove one of them.")
            values["format"] = Format.json
        command(**values)

    run.__signature__ = inspect.Signature([*own.values(), *added])  # type: ignore[attr-defined]
    return run


def write_options(text: str) -> str:
    """Return ``text`` with options only, where it also names the arguments of Python.

    >>> write_options("Pass epochs= (--epochs), such as 50, or several such as [5, 10].")
    'Pass --epochs, such as 50, or several such as 5,10.'
    """
    text = re.sub(r"\b[a-z0-9_]+= \((--[a-z0-9-]+)\)", r"\1", text)
    return re.sub(r"(?<=such as )\[(\d+(?:, \d+)+)\]", lambda match: match[1].replace(", ", ","), text)


def print_headline(headline: str, details: str) -> None:
    """Print the first line of an answer, in bold in a terminal, and its details, wrapped between words there."""
    _replace_unprintable()
    Console(highlight=False, soft_wrap=True).print(Text(printable(write_options(headline)), style="bold"))
    if details:
        Console(highlight=False, soft_wrap=not sys.stdout.isatty()).print(Text(printable(details)))


def print_err(lines: Iterable[object], *, always: bool = False, wrap: bool = False) -> None:
    """Print each of ``lines`` to standard error, unless --quiet was given. Errors are printed with ``always=True``.

    A warning that the command has printed before, such as above a table, is not printed again. With ``wrap=True``, a
    terminal shows lines wrapped between words, except those with a command, which is copied.
    """
    if _Verbosity.quiet and not always:
        return
    wraps = wrap and sys.stderr.isatty()
    console = Console(stderr=True, highlight=False, soft_wrap=not wraps)
    for line in map(str, lines):
        if wraps and line.startswith(COMMANDS):
            _print_command(line, console)
            continue
        text = line.removeprefix(WARNING)
        if text not in _Verbosity.printed:
            console.print(printable(write_options(line)), markup=False)
        if text != line:
            _Verbosity.printed.add(text)


def _print_command(line: str, console: Console) -> None:
    """Print a ``line`` with a command as it is; in a narrow terminal, its comment on a line of its own."""
    command, separator, comment = line.partition("  # ")
    if not separator or cell_len(line) <= console.width:
        command, comment = line, ""
    console.print(printable(write_options(command)), markup=False, soft_wrap=True)
    if comment:
        indent = len(line) - len(line.partition(":")[2].lstrip())
        console.print(Padding(Text(printable(write_options(f"# {comment}"))), (0, 0, 0, indent)))


@contextlib.contextmanager
def working(activity: str) -> Iterator[None]:
    """Context manager: show ``activity`` with a spinner if the code inside it takes more than two seconds."""
    if _Verbosity.quiet or not sys.stderr.isatty():
        yield
        return
    status = Console(stderr=True).status(Text(printable(activity)))
    timer = threading.Timer(PROGRESS_SECONDS, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # so that the spinner does not start after it was stopped
        status.stop()


def print_table(
    rows: Sequence[Mapping[str, object]],
    columns: Sequence[str],
    *,
    title: str = "",
    spare: Collection[str] = (),
    optional: Sequence[str] = (),
    best: int | None = None,
    wrapped: Collection[str] | None = None,
) -> None:
    """Print ``columns`` of ``rows`` as a table; see :func:`emit` for ``spare``. The row ``best`` is bold.

    In a narrow terminal, the columns ``wrapped`` are wrapped, by default all. There, columns in ``optional`` are
    omitted, the first one first, until those that are wrapped have at least :data:`WRAPPED_WIDTH` characters. In a very
    narrow one, all columns are wrapped, since a number must not be cut.
    """
    _replace_unprintable()
    # A pipe has no width: do not wrap cells there.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 400)
    cells = {column: [column, *(_shown(row.get(column)) for row in rows)] for column in columns}
    widths = {column: max(map(cell_len, texts)) + GAP for column, texts in cells.items()}
    if sum(widths.values()) - GAP > console.width:
        columns = [column for column in columns if column not in spare or len(set(cells[column][1:])) > 1]
    for column in wrapped or ():
        widths[column] = min(widths.get(column, 0), WRAPPED_WIDTH + GAP)
    for column in optional:
        if sum(widths[shown] for shown in columns) - GAP > console.width:
            columns = [shown for shown in columns if shown != column]
    if title:  # not of the table, which would wrap it at its own width
        console.print(Text(printable(title), style="italic"), soft_wrap=True)
    leasts = {column: min(LEAST_WIDTH, widths[column] - GAP) for column in columns if column in (wrapped or ())}
    if sum(leasts.get(column, widths[column] - GAP) + GAP for column in columns) - GAP > console.width:
        wrapped, leasts = None, {}
    table = Table(box=None, pad_edge=False)
    for column in columns:
        numeric = any(isinstance(v := row.get(column), int | float) and not isinstance(v, bool) for row in rows)
        table.add_column(
            Text(printable(column)), justify="right" if numeric else "left", overflow="fold",
            no_wrap=wrapped is not None and column not in wrapped, min_width=leasts.get(column),
        )  # fmt: skip
    for position in range(len(rows)):
        texts = (Text(cells[column][position + 1]) for column in columns)
        table.add_row(*texts, style="bold" if position == best else None)
    console.print(table)


def can_print(text: str) -> bool:
    """Whether standard output has all characters of ``text``."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _replace_unprintable() -> None:
    """Make standard output print a question mark for each character that its encoding lacks, instead of failing."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _cell(value: object) -> object:
    value = plain(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else value


def _safe(cell: object) -> object:
    """Convert ``cell`` for CSV: text that a spreadsheet would run as a formula gets a leading apostrophe."""
    if not isinstance(cell, str):
        return cell
    text = printable(cell)
    return f"'{text}" if text.lstrip().startswith(_FORMULA_STARTS) else text


def _shown(value: object) -> str:
    cell = _cell(value)
    return f"{cell:.6g}" if isinstance(cell, float) else printable(str(cell))
