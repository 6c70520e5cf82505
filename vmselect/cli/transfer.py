"""``vmselect transfer``: measure uploads to a store and downloads from it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from vmselect.cli.output import Format, FormatOption, emit, flag, print_err
from vmselect.errors import ArgumentError

COLUMNS = (
    "instance_type", "url", "files", "megabytes", "streams", "upload_seconds_per_mb", "download_seconds_per_mb",
    "first_upload_seconds", "first_download_seconds", "cost_usd",
)  # fmt: skip


def transfer(
    url: Annotated[str, typer.Argument(help="Folder of a store, such as s3://bucket/folder or sftp://host/folder.")],
    folder: Annotated[Path | None, typer.Argument(help="Folder to write the record to.")] = None,
    megabytes: Annotated[float, typer.Option(help="Size of all files together.")] = 64,
    files: Annotated[int, typer.Option(help="Number of files.")] = 8,
    streams: Annotated[int, typer.Option(help="Number of files to transfer at the same time.")] = 4,
    usd_per_gb: Annotated[float | None, typer.Option(help="Price of a GB that leaves the store.")] = None,
    budget_usd: Annotated[float, typer.Option(help="Transfer nothing if it could cost more.")] = 1.0,
    option: Annotated[
        list[str] | None,
        typer.Option(help="Option of the store as name=value, or a.b=value; may be repeated."),
    ] = None,
    instance_type: Annotated[str | None, typer.Option(help="Instance type, if it cannot be detected.")] = None,
    yes: Annotated[bool, flag("--yes", "-y", help="Start without asking.")] = False,
    clean: Annotated[bool, flag("--clean", help="Only remove files that killed probes left in the folder.")] = False,
    everything: Annotated[bool, flag("--everything", help="With --clean, include files of running probes.")] = False,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Measure the transfer rate to a store and back with random files, which are verified and then removed.

    Size and cost are shown before the transfer starts. Give keys in the store's own variables or files: other users of
    this machine can see a command's options.

    Examples:

      vmselect transfer s3://my-bucket/tmp records/ --megabytes 256 --files 4

      vmselect transfer sftp://me@host/scratch records/ --usd-per-gb 0.09 --yes

      vmselect transfer s3://my-bucket/tmp --clean
    """
    from vmselect.probe.transfer import plan_transfer, probe_transfer

    options = read_options(option or [])
    if everything and not clean:
        raise ArgumentError("--everything needs --clean.")
    if clean:
        _clean(url, options, everything=everything)
        return
    amounts: dict[str, Any] = {
        "megabytes": megabytes, "files": files, "streams": streams, "usd_per_gb": usd_per_gb, "options": options,
    }  # fmt: skip
    plan = plan_transfer(url, **amounts)
    print_err([f"To transfer: {plan}."])
    if not yes:
        if not sys.stdin.isatty():
            raise ArgumentError("There is no terminal to ask for confirmation. Add --yes.")
        typer.confirm("Start?", abort=True, err=True)
    record = probe_transfer(url, folder, **amounts, budget_usd=budget_usd, instance_type=instance_type, verbose=0)
    row = {name: getattr(record, name, getattr(record.setup, name, None)) for name in COLUMNS}
    emit([row | {"megabytes": plan.total_bytes / 1e6}], COLUMNS, format=format)
    print_err(record.findings)


def read_options(pairs: list[str]) -> dict[str, Any]:
    """Options of a store in the form that fsspec takes.

    >>> read_options(["anon=true", "client_kwargs.endpoint_url=http://localhost:9000"])
    {'anon': True, 'client_kwargs': {'endpoint_url': 'http://localhost:9000'}}
    >>> read_options(["port=22", "password=0123"])
    {'port': 22, 'password': '0123'}
    """
    from vmselect.probe.storage import is_secret_name

    flags = {"true": True, "false": False}
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        path = name.split(".")
        if not equals or not all(path):
            raise ArgumentError("--option takes name=value, such as --option anon=true.")
        inside = options
        for part in path[:-1]:
            inside = inside.setdefault(part, {})
            if not isinstance(inside, dict):
                raise ArgumentError(f"--option {name}: {part} already has a value. Give one of the two.")
        plain = not is_secret_name(path[-1])  # a password of digits is not a number
        inside[path[-1]] = flags.get(value.lower(), int(value) if value.isdecimal() else value) if plain else value
    return options


def _clean(url: str, options: dict[str, Any], *, everything: bool) -> None:
    from vmselect.probe.transfer import clean_transfers

    found = clean_transfers(url, options=options, everything=everything)
    for leftover in found:
        print_err([f"{leftover.name}: removed" if leftover.removed else f"{leftover.name}: kept, {leftover.reason}"])
    if not found:
        print_err(["No files of probes are left there."])
    if any(not leftover.removed for leftover in found):
        raise typer.Exit(1)
