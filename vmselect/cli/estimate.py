"""The command ``vmselect estimate``, which estimates how long a training takes on each probed machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from vmselect._io import Place, check_place
from vmselect._models import Number, Numbers, Output
from vmselect.cli.options import (
    BootOption,
    ConfidenceOption,
    ExamplesOption,
    KeepOption,
    MethodOption,
    ProfilesArgument,
    StepsPerEpochOption,
    ValidationExamplesOption,
    ValidationFreqOption,
    ValidationFromOption,
    read_numbers,
)
from vmselect.cli.output import (
    Format,
    FormatOption,
    emit,
    flag,
    frame_rows,
    print_csv,
    print_err,
    print_json,
    print_table,
)
from vmselect.errors import ArgumentError, VmselectError
from vmselect.ranking.options import BY_NAME
from vmselect.units import format_count, format_seconds, list_all

if TYPE_CHECKING:
    from vmselect.estimation import RuntimeEstimate
    from vmselect.findings import Finding
    from vmselect.records import Profile


class EstimateRow(Output):
    """The time of a training on a machine, in seconds, and its parts (``terms``).

    ``fit``, ``fits`` and ``name`` exist if a script trains several times.
    """

    instance_type: str | None
    fit: int | str | None = None
    fits: int | None = None
    name: str | None = None
    batch_size: int | None
    model: str | None
    epochs: Number | None
    seconds: float
    low: float
    high: float
    training: float | None
    initialization: float | None
    method: str
    confidence: float
    repetitions: int | None
    terms: Numbers


class MemoryRow(Output):
    """Peak GPU memory at a batch size, or the largest batch size that fits a GPU type."""

    answer: Literal["peak", "largest"]
    model: str | None
    gpu_model: str | None
    gpu_memory_gib: float | None
    usable_gib: float | None
    batch_size: int | None
    peak_gib: float | None
    low_gib: float | None
    high_gib: float | None
    basis: str | None


Rows = Iterable[tuple[EstimateRow, "tuple[Finding, ...]"]]


def estimate(
    profiles: ProfilesArgument,
    epochs: Annotated[
        str | None,
        typer.Option(
            "--epochs",
            "-e",
            help="Number of epochs to train; several, as in 5,10,20, give an estimate for each.",
            show_default="as in the script",
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option("--batch-size", "-b", help="Batch size to train with; its time is interpolated if not probed."),
    ] = None,
    phase: Annotated[
        list[str] | None,
        typer.Option(
            help="Phase of a training: its epochs, then its profile or a factor of the epoch time (10:a.json or 5:1.5)."
        ),
    ] = None,
    memory: Annotated[
        bool,
        flag(
            "--memory",
            help="Estimate GPU memory by batch size, and the largest batch size per GPU, instead of the time.",
        ),
    ] = False,
    gpu: Annotated[str | None, typer.Option(help="With --memory: show only these GPU types, as in T4,L4.")] = None,
    terms: Annotated[bool, flag("--terms", help="Also show the parts that add up to the time.")] = False,
    keep: KeepOption = None,
    format: FormatOption = Format.table,  # noqa: A002
    method: MethodOption = BY_NAME["method"].default,
    confidence: ConfidenceOption = BY_NAME["confidence"].default,
    examples: ExamplesOption = None,
    validation_examples: ValidationExamplesOption = None,
    validation_freq: ValidationFreqOption = None,
    validation_from: ValidationFromOption = None,
    steps_per_epoch: StepsPerEpochOption = None,
    boot_seconds: BootOption = 0.0,
    recalibrate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER",
            help="Correct times and intervals by the forecasts and outcomes in this folder or URL; may be repeated.",
        ),
    ] = None,
) -> None:
    """Estimate from profiles how long a training takes on each machine.

    The time is the sum of initialization (imports, reading data, building the model) and training; its interval is in
    brackets. JSON and CSV output is in seconds.

    Profiles of the same machine, batch size and fit are merged as repetitions. A script with several fits (trainings)
    gets a row per fit and a row for their sum; equal consecutive fits share a row. Use --phase for a training that
    changes, for example from small to large images: give each part as EPOCHS:FACTOR, where FACTOR multiplies the
    measured time per epoch, or as EPOCHS:PROFILE with the file of another profile. Warnings are printed to standard
    error. Exit code 2 if a file cannot be read or a training cannot be estimated; the other trainings are still shown.

    With --memory, the command shows how much GPU memory the training needs. Batch sizes are then those of one GPU.

    Examples:

      vmselect estimate profiles/ --epochs 50

      vmselect estimate profiles/ --memory --batch-size 256 --gpu T4,A10G

      vmselect estimate profiles/ --epochs 5,10,20 --terms --format csv

      vmselect estimate profiles/ --epochs 50 --keep forecasts/

      vmselect estimate small.json --phase 10:1 --phase 5:large.json
    """
    from vmselect.estimation.programs import EXCLUDED_FIT
    from vmselect.estimation.runtime import TERMS

    if memory:
        _show_memory(profiles, batch_size, gpu, format)
        return
    if gpu is not None:
        raise ArgumentError("--gpu selects GPU types for --memory. Add --memory, or remove --gpu.")
    estimates = estimate_trainings(
        profiles, epochs=epochs, phase=phase, keep=keep, recalibrate=recalibrate, method=method,
        confidence=confidence, batch_size=batch_size, examples=examples, validation_examples=validation_examples,
        steps_per_epoch=steps_per_epoch, boot_seconds=boot_seconds, validation_freq=validation_freq,
        validation_from=validation_from,
    )  # fmt: skip
    parts = [name for name in TERMS if terms and any(name in row.terms for row in estimates.rows)]
    if format is Format.json:
        print_json([row.payload() for row in estimates.rows])
    elif format is Format.csv:
        rows = [row.payload() | row.terms for row in estimates.rows]
        names = dict.fromkeys(name for row in rows for name in EstimateRow.model_fields if name in row)
        print_csv(rows, [name for name in (*names, *parts) if name not in ("confidence", "terms")])
    else:
        rows = [_format_row(row, parts) for row in estimates.rows]
        print_table(rows, list(dict.fromkeys(name for row in rows for name in row)), spare=("model", "method"))
    print_err(estimates.findings)
    if estimates.kept:
        print_err([f"Kept {format_count(len(estimates.kept), 'forecast')} in {check_place('keep', keep)}."])
    print_err(estimates.failed)
    if estimates.failed or any(finding.code == EXCLUDED_FIT for finding in estimates.findings):
        raise typer.Exit(2)


def _format_row(row: EstimateRow, parts: Sequence[str]) -> dict[str, object]:
    """The cells of ``row`` for a table, with the terms named ``parts``."""
    cells: dict[str, object] = {"instance_type": row.instance_type}
    cells |= {name: getattr(row, name) for name in ("fit", "fits", "name") if name in row.model_fields_set}
    cells |= {"batch": row.batch_size, "model": row.model, "epochs": row.epochs}
    cells["time"] = f"{format_seconds(row.seconds)} ({format_seconds(row.low)} to {format_seconds(row.high)})"
    times = {"training": row.training, "initialization": row.initialization}
    times |= {name: row.terms.get(name) for name in parts if name not in times}
    cells |= {
        name.replace("_", " "): None if seconds is None else format_seconds(seconds) for name, seconds in times.items()
    }
    return cells | {"method": row.method, "probes": row.repetitions}


@dataclass
class Estimates:
    """Rows of estimates, their findings, the errors of what could not be estimated, and the forecasts kept."""

    rows: list[EstimateRow] = field(default_factory=list)
    findings: dict[Finding, None] = field(default_factory=dict)
    failed: list[VmselectError] = field(default_factory=list)
    kept: list[Place] = field(default_factory=list)


def estimate_trainings(
    paths: list[str],
    *,
    epochs: str | None = None,
    phase: list[str] | None = None,
    keep: str | None = None,
    recalibrate: list[str] | None = None,
    validation_freq: int | None = None,
    validation_from: int | None = None,
    **options: Any,
) -> Estimates:
    """Estimate the trainings of the profiles in ``paths``, with ``options`` for :func:`vmselect.estimate`.

    Raises the first error if no training can be estimated.
    """
    from vmselect.estimation import Workload
    from vmselect.records import Profile, load_records
    from vmselect.records.files import walk_records

    options["workload"] = Workload(validation_freq=validation_freq, validation_from=validation_from)
    counts = read_numbers(epochs, option="--epochs") if epochs is not None else None
    if phase and counts:
        raise ArgumentError("--phase already contains the number of epochs. Remove --epochs.")
    outcomes = load_records(recalibrate) if recalibrate else []
    result = Estimates()
    files = [content for _, content in walk_records(paths, kind="training")]
    readable = [content for content in files if isinstance(content, Profile)]
    for same, is_program in _group(readable, across_sizes=options["batch_size"] is not None):
        try:
            if is_program and not phase:
                if keep is not None:
                    raise ArgumentError(
                        f"{same[0].title}: a script with several fits cannot be kept as a forecast. Omit --keep, or "
                        "give only the files of one fit."
                    )
                rows = list(_each_fit(same, counts, options))
            else:
                estimates = _one_training(same, counts, phase, options)
                if outcomes:
                    estimates = [estimate.recalibrated(outcomes) for estimate in estimates]
                if keep is not None:
                    result.kept += [path for estimate in estimates for path in estimate.keep(keep)]
                rows = [(_describe(same, estimate, options), estimate.findings) for estimate in estimates]
        except VmselectError as error:
            # One training that cannot be estimated must not hide the others.
            result.failed.append(error)
            continue
        for row, row_findings in rows:
            result.rows.append(row)
            result.findings |= dict.fromkeys(row_findings)
        result.findings |= dict.fromkeys(_warnings(same))
    result.failed += [content for content in files if isinstance(content, VmselectError)]
    if result.failed and not result.rows:
        raise result.failed[0]
    return result


def _show_memory(paths: list[str], batch_size: int | None, gpu: str | None, format: Format) -> None:  # noqa: A002
    """Print the estimates of GPU memory: peak memory by batch size, and the largest batch size per GPU type."""
    from vmselect.prediction import estimate_memory
    from vmselect.prediction.hardware import COLUMNS as ALL_COLUMNS
    from vmselect.prediction.hardware import PEAK_COLUMNS
    from vmselect.records import Profile
    from vmselect.records.files import walk_records

    files = [content for _, content in walk_records(paths, kind="training")]
    failed = [content for content in files if isinstance(content, VmselectError)]
    readable = [content for content in files if isinstance(content, Profile)]
    if failed and not readable:
        raise failed[0]
    frame = estimate_memory(readable, batch_size=batch_size, gpu=gpu.split(",") if gpu is not None else None)
    rows = frame_rows(frame.astype(object).where(frame.notna(), other=None))
    if format is Format.table:
        for answer, title, columns in (
            ("peak", "Peak memory of one GPU by batch size", PEAK_COLUMNS),
            ("largest", "Largest batch size that fits one GPU", ALL_COLUMNS[1:]),
        ):
            print_table([row for row in rows if row["answer"] == answer], columns, title=title)
    else:
        emit(rows, MemoryRow, format=format)
    print_err(failed)
    if failed:
        raise typer.Exit(2)


def _one_training(
    same: list[Profile], counts: list[int] | None, phases: list[str] | None, options: dict[str, Any]
) -> list[RuntimeEstimate]:
    from vmselect.estimation import estimate
    from vmselect.estimation.programs import epochs_of

    if phases:
        return [estimate(same, phases=[_read_phase(text) for text in phases], **options)]
    return [estimate(same, epochs=count, **options) for count in counts or [epochs_of(same[0])]]


def _describe(same: list[Profile], estimate: RuntimeEstimate, options: dict[str, Any]) -> EstimateRow:
    """The row of an estimate of the profiles ``same``."""
    return EstimateRow(
        instance_type=same[0].instance_type,
        batch_size=options["batch_size"] or same[0].batch_size,
        model=same[0].model,
        repetitions=len(same),
        **_times(estimate),
    )


def _each_fit(same: list[Profile], counts: list[int] | None, options: dict[str, Any]) -> Rows:
    """Rows of all fits of a script, and of their sum, with findings."""
    from vmselect.estimation import estimate_fits

    machine = same[0].instance_type
    for count in counts or [None]:  # type: ignore[list-item]
        program = estimate_fits(same, epochs=count, **options)
        for fit in program.fits:
            row = EstimateRow(
                instance_type=machine,
                fit=fit.number,
                fits=fit.times,
                name=fit.name,
                batch_size=fit.batch_size,
                model=fit.model,
                repetitions=fit.repetitions,
                **_times(fit.estimate),
            )
            yield row, ()
        sizes = {fit.batch_size for fit in program.fits}
        total = EstimateRow(
            instance_type=machine,
            fit=f"all but {list_all(program.excluded)}" if program.excluded else "all",
            fits=sum(fit.times for fit in program.fits),
            name=None,
            batch_size=sizes.pop() if len(sizes) == 1 else None,
            model=None,
            epochs=None,
            seconds=program.seconds,
            low=program.low,
            high=program.high,
            training=None,
            initialization=None,
            method=options["method"],
            confidence=options["confidence"],
            repetitions=None,
            terms={},
        )
        yield total, program.findings


def _times(estimate: RuntimeEstimate) -> dict[str, Any]:
    """Fields of a row that come from its estimate."""
    before = estimate.terms.get("initialization", 0.0)
    return {
        "epochs": estimate.epochs,
        "seconds": estimate.seconds,
        "low": estimate.low,
        "high": estimate.high,
        "training": estimate.seconds - before,
        "initialization": before,
        "method": estimate.method,
        "confidence": estimate.confidence,
        "terms": dict(estimate.terms),
    }


def _warnings(same: list[Profile]) -> Iterable[Finding]:
    """Return the first warning of each finding code, with the title of its profile in the message."""
    first: dict[str, Finding] = {}
    for profile in same:
        for finding in profile.findings:
            if finding.severity == "warning":
                first.setdefault(finding.code, replace(finding, message=f"{profile.title}: {finding.message}"))
    return first.values()


def _read_phase(text: str) -> tuple[int, Profile | float]:
    """Parse a value of ``--phase``; return its number of epochs, and its factor or its profile."""
    from vmselect.records import Profile

    length, _, speed = text.partition(":")
    try:
        epochs = int(length)
    except ValueError:
        epochs = 0
    if epochs < 1 or not speed:
        raise ArgumentError(f"--phase {text} is invalid. Write EPOCHS:FACTOR or EPOCHS:PROFILE, as in 10:1.5.")
    try:
        return epochs, float(speed)
    except ValueError:
        return epochs, Profile.load(speed)


def _group(profiles: Iterable[Profile], *, across_sizes: bool) -> Iterable[tuple[list[Profile], bool]]:
    """Return groups of profiles to estimate together, each with True if its profiles are the fits of one script.

    The profiles of any other group are repetitions, or all batch sizes of a machine if ``across_sizes`` is True.
    """
    from vmselect.estimation.programs import split_programs
    from vmselect.records.identity import group_repetitions

    programs, others = split_programs(profiles, across_sizes=across_sizes)
    groups: dict[object, list[Profile]] = {}
    for identity, same in group_repetitions(others).items():
        groups.setdefault(identity.machine if across_sizes else identity, []).extend(same)
    marked = [*((same, True) for same in programs), *((same, False) for same in groups.values())]
    return sorted(marked, key=lambda group: (group[0][0].instance_type or "", group[0][0].batch_size or 0))
