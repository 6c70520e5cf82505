"""The commands ``vmselect history list``, ``compact`` and ``label``, which work on all records of a team."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from vmselect._models import Output
from vmselect.cli.options import note_unknown_type
from vmselect.cli.output import (
    Format,
    FormatOption,
    JsonOption,
    emit,
    flag,
    frame_rows,
    is_quiet,
    print_err,
    print_written,
)
from vmselect.units import format_count

app = typer.Typer(help="List, compact and label the records in a folder or at a URL.", no_args_is_help=True)

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

    records = history(_choose(folder))
    frame = records.to_frame(
        LIST_COLUMNS, kind=kind, gpu=gpu, instance_type=instance_type, model=model, since=since, until=until
    )
    frame["created"] = frame["created"].dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    frame = frame.astype(object).where(frame.notna(), other=None)
    spare = ("gpu", "model", "precision", "total_seconds", "outcome")
    emit(frame_rows(frame), HistoryRow, format=format, spare=spare)
    print_err(records.unreadable)
    if not len(frame):
        names = {str(name) for name in records.to_frame(["instance_type"])["instance_type"].dropna()}
        near = find_nearest(instance_type, names - {instance_type}) if instance_type else []
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

      vmselect history compact s3://team/records --json
    """
    from vmselect.records.history import history

    columns = (TextColumn("reading records"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=is_quiet()) as bar:
        task = bar.add_task("", total=None)
        compaction = history(_choose(folder)).compact(
            listener=lambda read, total: bar.update(task, completed=read, total=total)
        )
    counts = {name: getattr(compaction, name) for name in ("records", "added", "parts")}
    emit([counts | {"unreadable": len(compaction.unreadable)}], Compaction, format=format)
    print_err(compaction.unreadable)
    if compaction.unreadable:
        raise typer.Exit(1)


@app.command()
def label(
    records: Annotated[
        list[str],
        typer.Argument(
            metavar="RECORDS...", help="Files or folders of records, or URLs of folders.", show_default=False
        ),
    ],
    instance_type: Annotated[
        str, typer.Option(help="Instance type on which the records were made, such as g4dn.xlarge.", show_default=False)
    ],
    region: Annotated[str | None, typer.Option(help="Region of the machine, such as us-east-1.")] = None,
    provider: Annotated[str | None, typer.Option(help="Provider of the machine, such as aws.")] = None,
    replace: Annotated[bool, flag("--replace", help="Also change records that already name an instance type.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Name the machine of records that were made without an instance type, so that they can be priced and ranked.

    Each file is changed in place. Its first content is kept next to it, in a file with the additional ending .original,
    which no command reads. In the record, the new values have the source "given". The paths of the changed files are
    printed. Records of different hardware are refused. Exit code 1 if no file was changed, 2 if a file cannot be read.

    Examples:

      vmselect history label profiles/unknown-64-20260901T101500.json --instance-type g4dn.xlarge

      vmselect history label profiles/ --instance-type Standard_NC6s_v3 --provider azure --region eastus
    """
    from vmselect.records.history import ORIGINAL, label_records

    labelled = label_records(records, instance_type=instance_type, region=region, provider=provider, replace=replace)
    print_written(labelled.changed, as_json=as_json)
    if labelled.changed:
        files = format_count(len(labelled.changed), "file")
        print_err([f"Wrote the instance type {instance_type} to {files}. The originals end in {ORIGINAL}."])
        print_err(filter(None, [note_unknown_type(instance_type)]))
    if labelled.named:
        files = format_count(len(labelled.named), "file already names", "files already name")
        print_err([f"{files} an instance type. To change this too, add --replace."])
    print_err(labelled.unreadable, always=True)
    if labelled.unreadable or not labelled.changed:
        raise typer.Exit(2 if labelled.unreadable else 1)


def _choose(folder: str | None) -> str:
    from os import fspath

    from vmselect._io import default_folder

    return folder if folder is not None else fspath(default_folder())
