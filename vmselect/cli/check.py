"""The command ``vmselect check``, which prints the findings of each profile as a block of text."""

from __future__ import annotations

import functools
import shutil
import textwrap
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

import typer

from vmselect._models import make_model
from vmselect.cli.options import ProfilesArgument
from vmselect.cli.output import Format, FormatOption, emit, print_err, print_out
from vmselect.errors import CatalogError, VmselectError
from vmselect.records.training import METHOD_TIMES, Outcome
from vmselect.units import format_seconds, printable

if TYPE_CHECKING:
    from vmselect.catalog import Catalog
    from vmselect.findings import Finding
    from vmselect.records import Profile

TRAINING_CODES = ("too-disturbed", "waits-between-epochs", "waits-at-the-end", "changing-speed")
"""Codes of the findings of an estimate that are shown next to those of the profile itself."""

CheckRow = make_model(
    "CheckRow",
    "A finding of a profile, or a profile without findings.",
    file=str,
    instance_type=str | None,
    batch_size=int | None,
    model=str | None,
    outcome=Outcome,
    severity=Literal["warning", "info", "fine"],
    code=str | None,
    message=str | None,
    remedy=str | None,
    **dict.fromkeys(METHOD_TIMES, float | None),
)
MAX_WIDTH = 100
"""Largest width of the printed text in characters."""


def check(
    profiles: ProfilesArgument,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """List the findings of each profile (problems of the measurement or of the training), with their remedies.

    An unused GPU is listed first. JSON and CSV output has a row per finding; a profile without findings has one row
    with the severity "fine". Exit code 1 if a profile has a warning, 2 if a file cannot be read.

    Examples:

      vmselect check profiles/

      vmselect check profiles/g4dn.xlarge-64-20260901T101500.json --json
    """
    rows, unreadable = check_profiles(profiles)
    if format is Format.table:
        print_out("\n".join(_describe(rows)), raw=True)
    else:
        emit(rows, CheckRow, format=format)
    print_err(unreadable)
    if unreadable:
        raise typer.Exit(2)
    if any(row["severity"] == "warning" for row in rows):
        raise typer.Exit(1)


def check_profiles(paths: list[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """A row per finding of the profiles, or a row with the severity "fine"; and why other files cannot be read."""
    from vmselect.records import Profile
    from vmselect.records.files import walk_records

    rows: list[dict[str, Any]] = []
    unreadable: list[str] = []
    for file, profile in walk_records(paths, kind="training"):
        if not isinstance(profile, Profile):
            unreadable.append(str(profile))
            continue
        facts = {name: getattr(profile, name) for name in ("instance_type", "batch_size", "model", "outcome")}
        about = {"file": str(file), **facts, **profile.method_seconds}
        findings = (
            *find_unused_gpu(profile),
            *profile.findings,
            *_training_findings(profile),
            *_smaller_host(profile),
        )
        rows += [about | vars(finding) for finding in dict.fromkeys(findings)] or [about | {"severity": "fine"}]
    return rows, unreadable


def _describe(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a text block per profile: machine and model, file, times, and findings with their remedies."""
    width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
    for number, (file, group) in enumerate(groupby(rows, key=lambda row: row["file"])):
        findings = list(group)
        first = findings[0]
        batch = f"batch {first['batch_size']}" if first["batch_size"] else None
        title = ", ".join(filter(None, (first["instance_type"] or "unknown machine", batch, first["model"])))
        yield from [""] if number else []
        yield from _wrap(f"{title} ({first['outcome'].replace('_', ' ')})", width, indent=0)
        yield from _wrap(file, width, indent=2)
        times = [(label, first[name]) for name, label in METHOD_TIMES.items() if first[name] is not None]
        yield from _wrap(", ".join(f"{label} {format_seconds(seconds)}" for label, seconds in times), width, indent=2)
        for row in findings:
            if "code" in row:
                yield from _wrap(f"{row['severity']} {row['code']}: {row['message']}", width, indent=2)
                yield from _wrap(row["remedy"], width, indent=6)
            else:
                yield "  fine"


def _wrap(text: str, width: int, *, indent: int) -> list[str]:
    """Split ``text`` at spaces into lines of at most ``width`` characters, each indented by ``indent`` blanks."""
    margin = " " * indent
    return textwrap.wrap(
        printable(text), width, initial_indent=margin, subsequent_indent=margin, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def find_unused_gpu(profile: Profile) -> tuple[Finding, ...]:
    """Return a warning if the framework used no GPU, although the machine has one by the catalog or by its name."""
    from vmselect.diagnosis.causes import describe_causes
    from vmselect.prediction.hardware import MachineTypes, find_gpu_at_rest

    if profile.environment.framework_gpus != 0:  # without loading any prices
        return ()
    try:
        cause = find_gpu_at_rest(profile, MachineTypes(_catalog()))
    except CatalogError:  # a damaged price file
        return ()
    return () if cause is None else describe_causes(profile, [cause])


def _smaller_host(profile: Profile) -> list[Finding]:
    """Return a finding if the host is oversized and a cheaper machine with the same GPUs suffices."""
    from vmselect.ranking.hosts import HostNeed, find_smaller_host, list_hosts

    need = HostNeed.of([profile])
    if need is None or not profile.instance_type:
        return []
    try:
        rented = _catalog().offer(profile.instance_type, region=profile.region, provider=profile.provider)
    except CatalogError:  # a machine without a price
        return []
    sold = _catalog().offers(rented.provider, region=rented.region)
    hosts = list_hosts(need, sold, _catalog(), gpu_model=rented.gpu_model, gpu_count=rented.gpu_count or 0)
    finding = find_smaller_host(need, dict(rented), hosts)
    return [finding] if finding else []


@functools.cache
def _catalog() -> Catalog:
    from vmselect.catalog import Catalog

    return Catalog.default()


def _training_findings(profile: Profile) -> list[Finding]:
    """Return the findings about the training itself, from its estimate; none if it cannot be estimated."""
    from vmselect.estimation import fit_runtime

    try:
        model = fit_runtime(profile)
    except VmselectError:
        return []
    findings = (*model.findings, *model.find_waits())
    return [finding for finding in findings if finding.code in TRAINING_CODES]
