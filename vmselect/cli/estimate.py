"""``vmselect estimate``: how long a training takes on each machine that was probed, with an interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmselect.cli.options import ProfilesArgument, read_numbers
from vmselect.cli.output import Format, FormatOption, emit, say

if TYPE_CHECKING:
    from vmselect.findings import Finding
    from vmselect.records import Profile

COLUMNS = ("instance_type", "batch_size", "model", "epochs", "seconds", "low", "high", "method", "repetitions")


def estimate(
    profiles: ProfilesArgument,
    epochs: Annotated[str, typer.Option("--epochs", "-e", help="Numbers of epochs, such as 50 or 5,10,20.")],
    method: Annotated[str, typer.Option(help="How runtimes are predicted.")] = "robust",
    confidence: Annotated[float, typer.Option(help="Of the interval from low to high.")] = 0.9,
    batch_size: Annotated[int | None, typer.Option("--batch-size", "-b", help="Where the profile knows none.")] = None,
    examples: Annotated[int | None, typer.Option(help="Training examples, if not as probed.")] = None,
    validation_examples: Annotated[int | None, typer.Option(help="Validation examples, if not as probed.")] = None,
    steps_per_epoch: Annotated[float | None, typer.Option(help="Training steps of an epoch, if not as probed.")] = None,
    boot_seconds: Annotated[float, typer.Option(help="Time a machine takes to start.")] = 0.0,
    terms: Annotated[bool, typer.Option("--terms", help="Also show where the time goes.")] = False,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Predict how long a training takes, in seconds, from profiles.

    Profiles of the same machine, model and batch size are taken as repetitions and merged. Doubts are
    printed to standard error; exit code 2 when a profile cannot be estimated.

    Examples:

      vmselect estimate profiles/ --epochs 50

      vmselect estimate profiles/ --epochs 5,10,20 --terms --format csv
    """
    from vmselect.estimation import fit_runtime
    from vmselect.estimation.runtime import TERMS
    from vmselect.records import load_profiles

    rows: list[dict[str, Any]] = []
    findings: dict[Finding, None] = {}
    for same in _repetitions(load_profiles(profiles)):
        model = fit_runtime(
            same, method=method, confidence=confidence, batch_size=batch_size, examples=examples,
            validation_examples=validation_examples, steps_per_epoch=steps_per_epoch, boot_seconds=boot_seconds,
        )  # fmt: skip
        about = {"instance_type": same[0].instance_type, "batch_size": same[0].batch_size, "model": same[0].model}
        for count in read_numbers(epochs, option="--epochs"):
            predicted = model.at(count)
            rows.append(about | predicted.to_dict() | dict(predicted.terms) | {"repetitions": len(same)})
            findings |= dict.fromkeys(predicted.findings)
    shown = [name for name in TERMS if terms and any(name in row for row in rows)]
    emit(rows, (*COLUMNS, *shown), format=format)
    say(findings)


def _repetitions(profiles: list[Profile]) -> list[list[Profile]]:
    groups: dict[tuple[object, ...], list[Profile]] = {}
    for profile in profiles:
        groups.setdefault((profile.instance_type, profile.model, profile.batch_size), []).append(profile)
    return list(groups.values())
