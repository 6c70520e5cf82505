"""``vmselect check``: the findings of each profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmselect.cli.output import Format, FormatOption, emit, print_err
from vmselect.errors import VmselectError

if TYPE_CHECKING:
    from vmselect.findings import Finding
    from vmselect.records import Profile

OF_THE_TRAINING = ("waits-between-epochs", "waits-at-the-end", "changing-speed")
COLUMNS = ("file", "instance_type", "batch_size", "model", "outcome", "severity", "code", "message", "remedy")


def check(
    paths: Annotated[list[Path], typer.Argument(metavar="PROFILE...", help="Profile files, or folders of them.")],
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """List the findings of each profile, with their remedies.

    A row per finding, or one row with no finding. Exit code 0 when no profile has a warning (infos do not count), 1
    when one does, 2 when a file cannot be read.

    Examples:

      vmselect check profiles/

      vmselect check profiles/g4dn.xlarge-64-20260901T101500.json --format json
    """
    from vmselect.records import Profile
    from vmselect.records.store import walk_records

    rows: list[dict[str, Any]] = []
    unreadable: list[str] = []
    for file, profile in walk_records(paths, kind="training"):
        if not isinstance(profile, Profile):
            unreadable.append(str(profile))
            continue
        about = {
            "file": str(file),
            "instance_type": profile.instance_type,
            "batch_size": profile.batch_size,
            "model": profile.model,
            "outcome": profile.outcome,
        }
        found = [about | vars(finding) for finding in (*profile.findings, *_of_the_training(profile))]
        rows += found or [about | {"severity": "fine"}]
    emit(rows, COLUMNS, format=format)
    print_err(unreadable)
    if unreadable:
        raise typer.Exit(2)
    if any(row["severity"] == "warning" for row in rows):
        raise typer.Exit(1)


def _of_the_training(profile: Profile) -> list[Finding]:
    """The findings of an estimate that concern the training itself."""
    from vmselect.estimation import fit_runtime

    try:
        return [finding for finding in fit_runtime(profile).findings if finding.code in OF_THE_TRAINING]
    except VmselectError:  # vmselect estimate reports it
        return []
