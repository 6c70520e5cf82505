"""The commands ``vmselect serve transfer`` (measure a store) and ``inference`` (rank machines for a load)."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

import typer

from vmselect._models import Output
from vmselect.cli.options import CatalogOption, DateOption, OwnPricesOption, declare, open_catalog
from vmselect.cli.output import Format, FormatOption, emit, flag, print_err
from vmselect.errors import ArgumentError
from vmselect.ranking.options import BY_NAME


class InferenceRow(Output):
    """A machine that serves a model under a load."""

    rank: int
    instance_type: str
    provider: str
    region: str
    market: str
    batch_size: int
    clients: int
    load: float | None
    instances: int
    items_per_second: float
    latency_seconds: float
    hourly_usd: float
    hourly_low: float
    hourly_high: float
    usd_per_million_items: float
    tied_with_best: bool


class TransferRow(Output):
    """Measured transfers to and from a store."""

    instance_type: str | None
    url: str
    files: int
    megabytes: float
    streams: int
    upload_seconds_per_mb: float | None
    download_seconds_per_mb: float | None
    first_upload_seconds: float | None
    first_download_seconds: float | None
    cost_usd: float | None


app = typer.Typer(help="Measure transfers of data, and rank machines that serve a model.", no_args_is_help=True)


@app.command()
def inference(
    paths: Annotated[list[str], typer.Argument(help="Files, folders or URLs with inference records.")],
    load: Annotated[
        list[float] | None, typer.Option(help="Items per second to answer; may be repeated, the last one decides.")
    ] = None,
    latency_limit_seconds: Annotated[float | None, typer.Option(help="Maximum of the percentile of latency.")] = None,
    percentile: Annotated[float, typer.Option(help="Percentile of latency to rank and limit.")] = 99,
    instances: Annotated[
        tuple[int, int], typer.Option(help="Minimum and maximum number of machines to rent at a time.")
    ] = (1, 10),
    objective: Annotated[Literal["cost", "latency", "throughput"], typer.Option(help="What to rank by.")] = "cost",
    region: Annotated[list[str] | None, declare("region")] = None,
    market: Annotated[str, declare("market")] = BY_NAME["market"].default,
    catalog: CatalogOption = None,
    own_prices: OwnPricesOption = None,
    date: DateOption = None,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Rank machines that serve a model under a load, from the records of InferenceProbe and probe_inference.

    Exit code 1 if no machine can serve the load.

    Examples:

      vmselect serve inference records/ --load 3000 --latency-limit-seconds 0.1

      vmselect serve inference records/ --objective throughput --format csv
    """
    from vmselect.records import InferenceRecord, load_records
    from vmselect.serving.rank import rank_inference

    records = [record for record in load_records(*paths) if isinstance(record, InferenceRecord)]
    ranking = rank_inference(
        records, load=load or None, latency_limit_seconds=latency_limit_seconds, percentile=percentile,
        instances=instances, objective=objective, region=region or None,
        market=market, catalog=open_catalog(catalog, date=date, own_prices=own_prices),
    )  # fmt: skip
    emit([vars(row) for row in ranking.rows], InferenceRow, format=format, spare=("provider", "region", "market"))
    print_err([*map(str, ranking.excluded), *ranking.findings, ranking])
    if not ranking.rows:
        raise typer.Exit(1)


@app.command()
def transfer(
    url: Annotated[str, typer.Argument(help="URL of a folder, such as s3://bucket/folder or sftp://host/folder.")],
    folder: Annotated[str | None, typer.Argument(help="Folder or URL to write the record to.")] = None,
    megabytes: Annotated[float, typer.Option(help="Total size of the files in MB.")] = 64,
    files: Annotated[int, typer.Option(help="Number of files to transfer.")] = 8,
    streams: Annotated[int, typer.Option(help="Number of files to transfer at the same time.")] = 4,
    usd_per_gb: Annotated[
        float | None, typer.Option(help="Price of downloading a GB in USD. Default: the list price of the cloud.")
    ] = None,
    budget_usd: Annotated[float, typer.Option(help="Largest cost in USD; nothing is transferred above it.")] = 1.0,
    option: Annotated[
        list[str] | None,
        typer.Option(help="Option for fsspec as name=value, or a.b=value if it is nested; may be repeated."),
    ] = None,
    instance_type: Annotated[
        str | None, typer.Option(help="Instance type of this machine, if it cannot be detected.")
    ] = None,
    yes: Annotated[bool, flag("--yes", "-y", help="Do not ask for confirmation.")] = False,
    clean: Annotated[
        bool, flag("--clean", help="Transfer nothing, but remove files that killed probes left in the folder.")
    ] = False,
    everything: Annotated[
        bool,
        flag("--everything", help="With --clean, also remove files of probes that still run or cannot be identified."),
    ] = False,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Measure the upload and download rate of cloud storage with random files, which are verified and then removed.

    Size and cost are shown before the transfer starts. Do not give passwords or keys as options, because other users of
    this machine can see options. Use the environment variables or files that fsspec reads.

    Examples:

      vmselect serve transfer s3://my-bucket/tmp records/ --megabytes 256 --files 4

      vmselect serve transfer sftp://me@host/scratch records/ --usd-per-gb 0.09 --yes

      vmselect serve transfer s3://my-bucket/tmp --clean
    """
    from vmselect.probe.transfer import plan_transfer, probe_transfer

    options = read_options(option or [])
    if everything and not clean:
        raise ArgumentError("--everything is only valid with --clean. Add --clean, or remove --everything.")
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
            raise ArgumentError("Without a terminal, vmselect cannot ask for confirmation. Add --yes.")
        typer.confirm("Start?", abort=True, err=True)
    record = probe_transfer(url, folder, **amounts, budget_usd=budget_usd, instance_type=instance_type, verbose=0)
    row = {name: getattr(record, name, getattr(record.setup, name, None)) for name in TransferRow.model_fields}
    emit([row | {"megabytes": plan.total_bytes / 1e6}], TransferRow, format=format)
    print_err(record.findings)


def read_options(pairs: list[str]) -> dict[str, Any]:
    """Parse values of ``--option`` to a dictionary of options for fsspec.

    >>> read_options(["anon=true", "client_kwargs.endpoint_url=http://localhost:9000"])
    {'anon': True, 'client_kwargs': {'endpoint_url': 'http://localhost:9000'}}
    >>> read_options(["port=22", "password=0123"])
    {'port': 22, 'password': '0123'}
    """
    from vmselect._io import is_secret_name

    flags = {"true": True, "false": False}
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        path = name.split(".")
        if not equals or not all(path):
            raise ArgumentError("An --option is not of the form name=value. Write it as in --option anon=true.")
        inside = options
        for part in path[:-1]:
            inside = inside.setdefault(part, {})
            if not isinstance(inside, dict):
                raise ArgumentError(f"--option {name}: {part} already has a value. Remove one of the two options.")
        plain = not is_secret_name(path[-1])  # a password of digits is not a number
        inside[path[-1]] = flags.get(value.lower(), int(value) if value.isdecimal() else value) if plain else value
    return options


def _clean(url: str, options: dict[str, Any], *, everything: bool) -> None:
    from vmselect.probe.transfer import clean_transfers

    leftovers = clean_transfers(url, options=options, everything=everything)
    for leftover in leftovers:
        print_err([f"{leftover.name}: removed" if leftover.removed else f"{leftover.name}: kept, {leftover.reason}"])
    if not leftovers:
        print_err(["The folder contains no files of probes."])
    if any(not leftover.removed for leftover in leftovers):
        raise typer.Exit(1)
