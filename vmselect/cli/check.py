"""The command ``vmselect check``, which lists the findings of each profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from vmselect.cli.options import ProfilesArgument
from vmselect.cli.output import Format, FormatOption, emit, print_err
from vmselect.errors import VmselectError

if TYPE_CHECKING:
    from vmselect.findings import Finding
    from vmselect.records import Profile

TRAINING_CODES = ("waits-between-epochs", "waits-at-the-end", "changing-speed")
COLUMNS = ("file", "instance_type", "batch_size", "model", "outcome", "severity", "code", "message", "remedy")


def check(
    profiles: ProfilesArgument,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """List the findings of each profile (problems of the measurement or of the training), with their remedies.

    The output has a row per finding; a profile without findings has one row with the severity "fine". Exit code 1 when
    a profile has a warning, 2 when a file cannot be read.

    Examples:

      vmselect check profiles/

      vmselect check profiles/g4dn.xlarge-64-20260901T101500.json --format json
    """
    from vmselect.records import Profile
    from vmselect.records.store import walk_records

    rows: list[dict[str, Any]] = []
    unreadable: list[str] = []
    for file, profile in walk_records(profiles, kind="training"):
        if not isinstance(profile, Profile):
            unreadable.append(str(profile))
            continue
        facts = {name: getattr(profile, name) for name in ("instance_type", "batch_size", "model", "outcome")}
        about = {"file": str(file), **facts}
        found = [about | vars(finding) for finding in (*profile.findings, *_training_findings(profile))]
        rows += found or [about | {"severity": "fine"}]
    emit(rows, COLUMNS, format=format)
    print_err(unreadable)
    if unreadable:
        raise typer.Exit(2)
    if any(row["severity"] == "warning" for row in rows):
        raise typer.Exit(1)


def _training_findings(profile: Profile) -> list[Finding]:
    """Findings about the training itself, from its estimate. Empty if the training cannot be estimated."""
    from vmselect.estimation import fit_runtime

    try:
        return [finding for finding in fit_runtime(profile).findings if finding.code in TRAINING_CODES]
    except VmselectError:
        return []
