"""The commands ``vmselect history list``, ``compact`` and ``share``, which work on all records of a team."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from vmselect._models import Output
from vmselect.cli.output import Format, FormatOption, emit, frame_rows, is_quiet, print_err

app = typer.Typer(help="List, compact and share the records in a folder or at a URL.", no_args_is_help=True)

FolderArgument = Annotated[
    str | None,
    typer.Argument(
        help="Folder of records, or its URL, such as s3://team/records.",
        show_default="$VMSELECT_FOLDER, else profiles",
        metavar="FOLDER",
    ),
]


class HistoryRow(Output):
    """A record in a folder of records."""

    created: str | None
    kind: str
    instance_type: str | None
    gpu: str | None
    model: str | None
    batch_size: int | None
    precision: str | None
    outcome: str | None
    step_seconds: float | None
    total_seconds: float | None
    file: str


class Compaction(Output):
    """Result of ``vmselect history compact``: numbers of records and of Parquet files."""

    records: int
    added: int
    parts: int
    unreadable: int


LIST_COLUMNS = tuple(HistoryRow.model_fields)


@app.command("list")
def list_records(
    folder: FolderArgument = None,
    kind: Annotated[str | None, typer.Option(help="List only records of this kind, such as training.")] = None,
    gpu: Annotated[str | None, typer.Option(help="List only records of GPUs with this name, such as T4.")] = None,
    instance_type: Annotated[str | None, typer.Option(help="List only records of this instance type.")] = None,
    model: Annotated[str | None, typer.Option(help="List only records of this model.")] = None,
    since: Annotated[str | None, typer.Option(help="First day, month or year to list (UTC), as in 2026-10.")] = None,
    until: Annotated[str | None, typer.Option(help="Last day, month or year to list (UTC), as in 2026-10-15.")] = None,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """List the records in a folder, oldest first. After vmselect history compact, this is faster.

    Exit code 1 if no record matches.

    Examples:

      vmselect history list records/ --gpu T4 --since 2026-10

      vmselect history list s3://team/records --kind training --format csv
    """
    from vmselect.catalog import find_nearest
    from vmselect.records.history import history

    found = history(_choose(folder))
    frame = found.to_frame(
        LIST_COLUMNS, kind=kind, gpu=gpu, instance_type=instance_type, model=model, since=since, until=until
    )
    frame["created"] = frame["created"].dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    frame = frame.astype(object).where(frame.notna(), other=None)
    spare = ("gpu", "model", "precision", "total_seconds", "outcome")
    emit(frame_rows(frame), HistoryRow, format=format, spare=spare)
    print_err(found.unreadable)
    if not len(frame):
        known = {str(name) for name in found.to_frame(["instance_type"])["instance_type"].dropna()}
        near = find_nearest(instance_type, known - {instance_type}) if instance_type else []
        similar = f" Similar instance types in this folder: {', '.join(near)}." if near else ""
        print_err([f"No record matches these options.{similar} Remove an option, or choose another folder."])
        raise typer.Exit(1)


@app.command()
def compact(
    folder: FolderArgument = None,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Copy all records to Parquet files in the subfolder "history", from which they are read faster.

    The JSON files are kept; if a record is in both, its JSON file counts. The command may be interrupted, repeated, and
    run by several people at the same time. Exit code 1 if a JSON file is not a record.

    Examples:

      vmselect history compact records/

      vmselect history compact s3://team/records --format json
    """
    from vmselect.records.history import history

    columns = (TextColumn("reading records"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=is_quiet()) as bar:
        task = bar.add_task("", total=None)
        done = history(_choose(folder)).compact(
            listener=lambda read, total: bar.update(task, completed=read, total=total)
        )
    row = {"records": done.records, "added": done.added, "parts": done.parts, "unreadable": len(done.unreadable)}
    emit([row], Compaction, format=format)
    print_err(done.unreadable)
    if done.unreadable:
        raise typer.Exit(1)


def _choose(folder: str | None) -> str:
    from os import fspath

    from vmselect.probe.options import choose_path

    return fspath(choose_path(folder) or "profiles")
