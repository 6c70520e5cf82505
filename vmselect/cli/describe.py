"""The command ``vmselect describe``, which runs a script to its first training and counts what a step computes."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmselect import _interrupt
from vmselect._checks import maybe
from vmselect._io import check_place, default_folder
from vmselect._models import Output
from vmselect.cli.failures import DEMANDS_GPU, demand_gpu, explain_failure
from vmselect.cli.options import check_script, note_misplaced
from vmselect.cli.output import WARNING, flag, print_err, print_out
from vmselect.records.training import check_precision
from vmselect.units import format_bytes, format_count

if TYPE_CHECKING:
    from vmselect._io import Place
    from vmselect.probe.saves import Save
    from vmselect.probe.script import ScriptRun
    from vmselect.records import Profile

PRECISION_HELP = "Number format of the training on a GPU, such as mixed_float16, if it cannot be detected."
REMEDY = "Call vmselect.describe(model, batch_size=..., inputs=...) in the script instead."


class DescribeOutput(Output):
    """What one training step computes. Bytes are those of float32; ``saved_bytes`` is kept for the backward pass."""

    path: str
    model: str | None
    batch_size: int | None
    examples: int | None
    validation_examples: int | None
    parameters: int
    optimizer: str | None
    precision: str | None
    operations: int
    product_flops: float
    moved_bytes: float
    saved_bytes: float | None
    method: str
    unknown_layers: list[str]
    caveats: list[str]


def describe(
    context: typer.Context,
    script: Annotated[str, typer.Argument(help="Training script, or with -m a module.", show_default=False)],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Arguments for the script.")] = None,
    module: Annotated[bool, flag("-m", help="Run SCRIPT as a module, as python -m does.")] = False,
    path: Annotated[
        str | None,
        typer.Option(
            help="Folder, URL of a folder, or .json file for the description.",
            show_default="$VMSELECT_FOLDER, else profiles",
        ),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Batch size, if it cannot be detected.")] = None,
    precision: Annotated[str | None, typer.Option(help=PRECISION_HELP)] = None,
    as_json: Annotated[bool, flag("--json", help="Print the description as JSON, in the last line.")] = False,
    brief: Annotated[bool, typer.Option("--brief", hidden=True)] = False,
) -> None:
    """Run a training SCRIPT to its first training, describe what a step computes, and end the script.

    No GPU is needed: the description is counted from the definition of the model, and vmselect rank predicts from it
    how long the training takes on every machine. The program ends before the first step. If a description needs a step,
    as with generators and hand-written loops of TensorFlow, it ends after two. Nothing is saved. Options of vmselect go
    before the name of the script.

    Examples:

      vmselect describe train.py --batch-size 64

      vmselect rank profiles/ --epochs 50 --machines all
    """
    from vmselect.describing.tally import SECONDS
    from vmselect.probe.script import Choice, Interrupted, ScriptFailed, probe_script

    check_script("describe", script, module=module)
    if brief:  # vmselect recommend, which runs this command, notes its own options, and passes Ctrl-C on
        _interrupt.once()
    else:
        note_misplaced(context, script, arguments or [])
    target = default_folder() if path is None else check_place("--path", path)
    stated = maybe(check_precision, "--precision", precision)
    with tempfile.TemporaryDirectory(prefix="vmselect-") as folder:
        try:
            run = probe_script(
                script, arguments or (), Path(folder), Choice(fits=1, describing_seconds=SECONDS), module=module,
                at_save=functools.partial(_end_at_save, target, stated, as_json, brief), steps=1, steady_seconds=None,
                validations=0, sample=None, batch_size=batch_size, verbose=0,
            )  # fmt: skip
        except ScriptFailed as failed:
            if remedy := explain_failure(script, failed.error, describes=True):
                print_err([f"vmselect: {remedy}"], always=True)
            raise
        except SystemExit as ended:  # the script has said why, and the interpreter prints that
            if isinstance(ended.code, str) and DEMANDS_GPU.search(ended.code):
                print_err([f"vmselect: {demand_gpu(script)}"], always=True)
            raise
        except Interrupted as interrupted:
            interrupted.note = None if brief else ""
            raise
        code = _show(run, target, stated, as_json=as_json, brief=brief)
    if code:
        raise typer.Exit(code)


def _end_at_save(target: Place, precision: str | None, as_json: bool, brief: bool, save: Save, run: ScriptRun) -> int:
    """Describe what was seen until ``save``, before which the program ends. Return the exit code."""
    if not run.profiles:
        when = "its training could be described" if run.began else "a training began"
        ended = f"{save} saves before {when}, so the program was ended there."
        print_err([f"vmselect: {ended} Remove this save, or describe the model in the script. {REMEDY}"], always=True)
        return 2
    return _show(run, target, precision, as_json=as_json, brief=brief)


def _show(run: ScriptRun, target: Place, precision: str | None = None, *, as_json: bool, brief: bool = False) -> int:
    """Write and print the description of the first training, in the ``precision`` of the user. Return the exit code.

    With ``brief``, as for ``vmselect recommend``, the next command is not printed.
    """
    from vmselect.records.training import without_times

    if run.without_cuda:
        print_err(["The script demands a GPU. This computer has none, so everything stayed on the CPU until it ended."])
    profile = next((profile for profile in run.profiles if profile.work is not None), None)
    if profile is None:
        seen = (
            "the training could not be described"
            if run.began
            else (
                "the script contains no training with Keras, Lightning, the Hugging Face Trainer, plain torch or "
                "tf.GradientTape"
            )
        )
        problem = run.description_problem if run.began else None
        why = f" ({problem.rstrip('.')})" if problem else ""
        print_err([f"vmselect: {seen}{why}. {REMEDY}"], always=True)
        return 1
    described = without_times(profile)
    if precision is not None:
        environment = described.environment.model_copy(update={"precision": precision})
        described = described.model_copy(update={"environment": environment})
    where = " where a GPU is present" if run.precision_on_gpus and precision is None else ""
    written = described.save(target)
    for line in _lines(described, where):
        print_err([line]) if as_json else print_out(line)
    if run.precision_is_unclear and precision is None and described.environment.precision in (None, "float32"):
        print_err([
            f"{WARNING}the script may compute in mixed precision where a GPU is present, but is described in float32. "
            "If so, pass --precision mixed_float16 or mixed_bfloat16, or the option of the script that turns it on."
        ])  # fmt: skip
    if as_json:
        print_out(_output(described, str(written)).to_json(), raw=True)
    else:
        print_out(f"Description in {written}" + ("" if brief else f". Next: vmselect recommend --path {target}"))
    return 0


def _output(profile: Profile, path: str) -> DescribeOutput:
    work = profile.work
    assert work is not None
    return DescribeOutput(
        path=path,
        model=profile.model,
        batch_size=profile.batch_size,
        examples=profile.setup.examples,
        validation_examples=profile.setup.validation_examples,
        parameters=work.parameters,
        optimizer=work.optimizer,
        precision=profile.environment.precision,
        operations=sum(work.operations.count),
        product_flops=work.product_flops,
        moved_bytes=work.moved_bytes,
        saved_bytes=work.saved_bytes,
        method=work.method,
        unknown_layers=list(work.unknown_layers),
        caveats=list(work.caveats),
    )


def _describe_validation(profile: Profile) -> str:
    """A sentence on the validations of the training; empty if it has none."""
    from vmselect.estimation import Workload
    from vmselect.records.identity import has_validation

    setup = profile.setup
    if not has_validation(profile):
        return ""
    size = Workload.of(profile)
    often = f"{setup.validations_per_epoch:.3g} times {size.validation_schedule}" if setup.validations_per_epoch else (
        size.validation_schedule
    )  # fmt: skip
    if setup.validation_examples is not None:
        return f"It validates on {format_count(setup.validation_examples, 'example')} {often}."
    if setup.validation_steps is not None:
        return f"It validates on {format_count(setup.validation_steps, 'batch', 'batches')} {often}."
    return (
        "It seems to validate, but on how many examples is not known: pass --validation-examples N to recommend or "
        "rank, or no validation is included."
    )


def _lines(profile: Profile, where: str) -> Sequence[str]:
    """The description in sentences; ``where`` is what the precision depends on."""
    from vmselect.catalog.gpus import read_precision
    from vmselect.prediction.machines import read_training_precision
    from vmselect.prediction.memory import describe_memory
    from vmselect.prediction.roofline import OPTIMIZER_BYTES

    work, memory = profile.work, describe_memory(profile)
    assert work is not None
    name, precision = profile.model or "The model", profile.environment.precision or "float32"
    if read_precision(precision) == "single" and read_training_precision(profile) == "strict":
        precision += " without TF32"
    lines = [
        f"{name}: {work.parameters:,} trained weights in {work.parameter_tensors} tensors, batch {work.batch_size}, "
        f"computed in {precision}{where}",
        f"A step computes {work.product_flops / 1e9:,.4g} GFLOP of products in {sum(work.operations.count):,} "
        f"operations and moves {format_bytes(work.moved_bytes)}.",
    ]
    setup = profile.setup
    if setup.steps_per_epoch and setup.examples is None and setup.epochs == 1:
        lines.append(f"The training is one epoch of {setup.steps_per_epoch:,} steps.")
    if sentence := _describe_validation(profile):
        lines.append(sentence)
    if memory is not None:
        peak = memory.peak(work.batch_size)
        lines.append(
            f"GPU memory: about {format_bytes(peak.value)} ({format_bytes(peak.low)} to {format_bytes(peak.high)})"
        )
    if work.optimizer is None or work.optimizer not in OPTIMIZER_BYTES:
        lines.append(f"The optimizer ({work.optimizer or 'not seen'}) is unknown and counted like Adam.")
    if work.unknown_layers:
        lines.append(f"Counted in part, so that predictions are less certain: {', '.join(work.unknown_layers[:10])}")
    return lines
