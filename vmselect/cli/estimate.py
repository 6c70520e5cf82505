"""``vmselect estimate``: how long a training takes on each machine that was probed, with an interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmselect.cli.options import ProfilesArgument, read_numbers
from vmselect.cli.output import Format, FormatOption, emit, say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vmselect.findings import Finding
    from vmselect.records import Profile

COLUMNS = ("instance_type", "batch_size", "model", "epochs", "seconds", "low", "high", "method", "repetitions")


def estimate(
    profiles: ProfilesArgument,
    epochs: Annotated[str, typer.Option("--epochs", "-e", help="Numbers of epochs, such as 50 or 5,10,20.")],
    method: Annotated[str, typer.Option(help="How runtimes are predicted.")] = "robust",
    confidence: Annotated[float, typer.Option(help="Of the interval from low to high.")] = 0.9,
    batch_size: Annotated[
        int | None,
        typer.Option("--batch-size", "-b", help="Where the profile knows none, or one between those probed."),
    ] = None,
    examples: Annotated[int | None, typer.Option(help="Training examples, if not as probed.")] = None,
    validation_examples: Annotated[int | None, typer.Option(help="Validation examples, if not as probed.")] = None,
    steps_per_epoch: Annotated[float | None, typer.Option(help="Training steps of an epoch, if not as probed.")] = None,
    boot_seconds: Annotated[float, typer.Option(help="Time a machine takes to start.")] = 0.0,
    terms: Annotated[bool, typer.Option("--terms", help="Also show where the time goes.")] = False,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Predict how long a training takes, in seconds, from profiles.

    Profiles of the same machine and batch size are taken as repetitions and merged. With --batch-size, those of
    a machine at other sizes tell the time at that one. Doubts are printed to standard error; exit code 2 when a
    profile cannot be estimated.

    Examples:

      vmselect estimate profiles/ --epochs 50

      vmselect estimate profiles/ --epochs 5,10,20 --terms --format csv
    """
    from vmselect.estimation import fit_runtime
    from vmselect.estimation.runtime import TERMS
    from vmselect.records import load_profiles

    rows: list[dict[str, Any]] = []
    findings: dict[Finding, None] = {}
    for same in _group(load_profiles(profiles), across_sizes=batch_size is not None):
        model = fit_runtime(
            same, method=method, confidence=confidence, batch_size=batch_size, examples=examples,
            validation_examples=validation_examples, steps_per_epoch=steps_per_epoch, boot_seconds=boot_seconds,
        )  # fmt: skip
        about = {
            "instance_type": same[0].instance_type,
            "batch_size": batch_size or same[0].batch_size,
            "model": same[0].model,
        }
        for count in read_numbers(epochs, option="--epochs"):
            predicted = model.at(count)
            rows.append(about | predicted.to_dict() | dict(predicted.terms) | {"repetitions": len(same)})
            findings |= dict.fromkeys(predicted.findings)
    shown = [name for name in TERMS if terms and any(name in row for row in rows)]
    emit(rows, (*COLUMNS, *shown), format=format)
    say(findings)


def _group(profiles: list[Profile], *, across_sizes: bool) -> Iterable[list[Profile]]:
    """Repetitions; with a batch size to be told from others, all of a machine."""
    from vmselect.grouping import group_repetitions

    groups: dict[object, list[Profile]] = {}
    for identity, same in group_repetitions(profiles).items():
        key = identity._replace(batch_size=None) if across_sizes else identity
        groups.setdefault(key, []).extend(same)
    return sorted(groups.values(), key=lambda same: (same[0].instance_type or "", same[0].batch_size or 0))
