"""The command ``vmselect probe``, which runs a training script unchanged and measures every training in it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmselect._checks import check_count, check_name, maybe, several
from vmselect._io import check_place, default_folder
from vmselect._models import Output
from vmselect.cli.check import find_unused_gpu
from vmselect.cli.failures import explain_failure
from vmselect.cli.options import check_script, note_misplaced, note_unknown_type
from vmselect.cli.output import flag, is_quiet, print_err, print_out
from vmselect.records.training import Outcome
from vmselect.units import format_seconds

if TYPE_CHECKING:
    from vmselect._io import Place
    from vmselect.probe.saves import Save
    from vmselect.probe.script import Choice, ScriptRun
    from vmselect.records import Profile

CONTEXT = {"allow_interspersed_args": False, "ignore_unknown_options": True}
"""Settings of the command: everything after the script's name is passed to the script."""

STEADY_SECONDS = 2.0
"""Least total seconds of the steady steps that are measured in each epoch. The speed of a machine changes from second
to second, so twenty short steps would measure one moment only."""


MAX_PROBLEM = 200
"""Number of characters of an error of the script that are repeated below its traceback."""


class ProbedTraining(Output):
    """A training that was measured; ``step_seconds`` is null if no step was."""

    title: str
    instance_type: str | None
    batch_size: int | None
    model: str | None
    outcome: Outcome
    step_seconds: float | None


class ProbeOutput(Output):
    """The trainings that a probe has measured, and the file or folder with their profiles."""

    path: str
    trainings: list[ProbedTraining]


def probe(
    context: typer.Context,
    script: Annotated[str, typer.Argument(help="Training script, or with -m a module.", show_default=False)],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Arguments for the script.")] = None,
    module: Annotated[bool, flag("-m", help="Run SCRIPT as a module, as python -m does.")] = False,
    path: Annotated[
        str | None,
        typer.Option(
            help="Folder, URL of a folder, or .json file for the profile.",
            show_default="$VMSELECT_FOLDER, else profiles",
        ),
    ] = None,
    steps: Annotated[
        int, typer.Option(help="Least number of steps to measure in each epoch, after its first step.")
    ] = 20,
    steady_seconds: Annotated[
        float,
        typer.Option(
            help="Least total duration of the measured steps of each epoch, in seconds: if steps are short, more than "
            "--steps are measured. The callback IterationProbe measures --steps only, unless steady_seconds= is passed."
        ),
    ] = STEADY_SECONDS,
    validations: Annotated[int, typer.Option(help="Number of validations to measure: 0, 1 or 2.")] = 2,
    validation_steps: Annotated[
        int | None, typer.Option(help="Number of batches after which to end the second validation (Keras only).")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Seconds after which to end each training, and a script that has imported no framework until then."
        ),
    ] = None,
    fits: Annotated[int | None, typer.Option(help="End the script after this number of trainings.")] = None,
    fit: Annotated[
        list[int] | None,
        typer.Option(help="Measure only the training with this number, counted from 1; may be repeated."),
    ] = None,
    name: Annotated[list[str] | None, typer.Option(help="Name of the first, second, ... measured training.")] = None,
    allow_saves: Annotated[
        bool,
        flag("--allow-saves", help="Let the script save models and checkpoints, which replaces existing files."),
    ] = False,
    sample: Annotated[float, typer.Option(help="Seconds between samples of machine usage; 0 for no samples.")] = 1.0,
    batch_size: Annotated[int | None, typer.Option(help="Batch size, if it cannot be detected.")] = None,
    instance_type: Annotated[
        str | None, typer.Option(help="Instance type of this machine, if it cannot be detected.")
    ] = None,
    region: Annotated[str | None, typer.Option(help="Region of this machine, if it cannot be detected.")] = None,
    as_json: Annotated[bool, flag("--json", help="Print what was measured as JSON, in the last line.")] = False,
) -> None:
    """Run a training SCRIPT unchanged, measure every training it starts, and write a profile of each.

    The script may use Keras, plain torch, tf.GradientTape, Lightning or the Hugging Face Trainer. Give options of
    vmselect before the name of the script: everything after the name is passed to the script. Each training is ended
    after a few seconds of measuring; slow steps and validations take longer, which --seconds limits. A probe never gets
    past the first save: when the script calls a function that saves a model or a checkpoint, such as torch.save, the
    program ends before anything is written, unless --allow-saves is given. Checkpoint callbacks inside a training write
    to a temporary folder. A hand-written loop ends the script after its first training, unless --fits or --fit asks for
    more. The exit code is that of the script, 1 if no training was measured, or 2 if the script saves before enough
    steps were measured. vmselect watch measures whole trainings.

    Examples:

      vmselect probe train.py --batch-size 64

      vmselect probe --path profiles/ --instance-type g4dn.xlarge train.py --data /mnt/images

      vmselect probe --fits 2 --name frozen --name fine-tuned -m package.train
    """
    from vmselect.probe.script import Choice

    target = default_folder() if path is None else check_place("--path", path)
    choice = Choice(
        fits=maybe(check_count, "--fits", fits),
        numbers=several(check_count, "--fit", fit) if fit else (),
        names=[check_name("--name", text) for text in name or ()],
        validation_steps=validation_steps,
    )
    run_script(
        context, script, arguments or (), target, choice, module=module, as_json=as_json,
        at_save=None if allow_saves else functools.partial(_end_at_save, target, as_json),
        steps=steps, steady_seconds=steady_seconds, validations=validations, seconds=seconds,
        sample=sample or None, batch_size=batch_size, instance_type=instance_type, region=region,
        verbose=int(not is_quiet()),
    )  # fmt: skip


def run_script(
    context: typer.Context,
    script: str,
    arguments: Sequence[str],
    target: Place,
    choice: Choice,
    *,
    as_json: bool,
    **options: Any,
) -> ScriptRun:
    """Run ``script`` with a probe in each of its trainings, and print what was measured."""
    from vmselect.cli.probe_progress import Progress, describe_plan
    from vmselect.probe.options import check_target
    from vmselect.probe.script import ScriptFailed, probe_script

    command = context.info_name
    check_script(command, script, module=options["module"])
    note_misplaced(context, script, arguments)
    check_target(target, "training")
    progress = None if choice.watch else Progress()
    if progress is not None:
        print_err([f"vmselect: {describe_plan(script, **options)}"])
        choice = replace(choice, on_start=progress.follow)
    try:
        run = probe_script(script, arguments, target, choice, **options)
    except ScriptFailed as failed:
        remedy = explain_failure(script, failed.error)
        if remedy is None and not failed.began:
            remedy = _explain_early_failure(script, failed.error)
        if remedy:
            print_err([f"vmselect: {remedy}"], always=True)
        raise
    finally:
        if progress is not None:
            progress.close()
    if choice.watch:
        for profile in run.profiles:
            if profile.timeline.fit_seconds is not None:
                took = format_seconds(profile.timeline.fit_seconds)
                print_err([f"vmselect: the whole training of {profile.title} took {took}."])
    _show_profiles(run, target, as_json=as_json)
    if not run.measured:
        print_err([f"vmselect: {_explain_nothing(run)}"], always=True)
        raise typer.Exit(1)
    if run.ended_after:
        print_err([
            "vmselect: the script was ended after its first training. If it trains more than once, measure all with "
            "--fits N (its number of trainings) or vmselect watch."
        ])  # fmt: skip
    return run


def _explain_early_failure(script: str, error: Exception) -> str:
    """A line about the ``error`` that ended ``script`` before its first training."""
    from vmselect.probe.environment import count_framework_gpus, read_gpus
    from vmselect.probe.recording import describe_problem

    problem = describe_problem(error).partition("\n")[0][:MAX_PROBLEM].rstrip(".")
    line = f"{script} failed before its first training, so nothing was measured: {problem}."
    if count_framework_gpus() or read_gpus():
        return line
    return f"{line} This machine has no GPU: if the script needs one, run this command on the rented machine."


def _explain_nothing(run: ScriptRun) -> str:
    """Text about a script in which no training was measured: what was seen, and how to measure it."""
    remedy = (
        "Measure another kind of loop with vmselect.probe_loop: `with vs.probe_loop() as p:`, `for epoch in "
        "p.epochs(50):`, `for batch in p.steps(batches):`."
    )
    if run.gave_up_in is not None and run.gave_up_after is not None:
        return (
            f"the script imported no framework that could be measured (TensorFlow, JAX or torch) within "
            f"{format_seconds(run.gave_up_after)}, so it was ended in {run.gave_up_in}. If it imports one "
            f"later, pass a larger --seconds. {remedy}"
        )
    if not run.gradients:
        return (
            "the script contains no training with Keras, Lightning, the Hugging Face Trainer, plain torch or "
            f"tf.GradientTape that could be measured. {remedy}"
        )
    seen = f"the script computed gradients ({'; '.join(run.gradients)}), but no training loop was recognized"
    gave_up = f" within {format_seconds(run.gave_up_after)}, so it was ended" if run.gave_up_after else ""
    return f"{seen}{gave_up}. {remedy}"


def _end_at_save(target: Place, as_json: bool, save: Save, run: ScriptRun) -> int:
    """Print why the program ends before ``save``. Return the exit code."""
    if run.measured:
        fact = f"ended the program before {save}, so trainings after it were not measured"
        print_err([f"vmselect: {fact}. To run the save, pass --allow-saves."])
        _show_profiles(run, target, as_json=as_json)
        return 0
    fact = f"{save} saves a model before enough steps were measured, so the probe ended the program"
    print_err([f"vmselect: {fact}. Remove this save, or pass --allow-saves."], always=True)
    return 2


def _show_profiles(run: ScriptRun, target: Place, *, as_json: bool) -> None:
    """Print remarks about the profiles of ``run`` to standard error and, if asked, the profiles as JSON."""
    from vmselect.records.step_times import step_seconds

    _note_unknown_types(run.profiles)
    unused = (finding for profile in run.profiles for finding in find_unused_gpu(profile))
    print_err([f"vmselect: {finding}" for finding in dict.fromkeys(unused)], always=True)
    if as_json:
        trainings = [
            ProbedTraining(
                title=profile.title,
                instance_type=profile.instance_type,
                batch_size=profile.batch_size,
                model=profile.model,
                outcome=profile.outcome,
                step_seconds=step_seconds(profile),
            )
            for profile in run.profiles
        ]
        # One line, because the script may have printed to standard output, too.
        print_out(ProbeOutput(path=str(target), trainings=trainings).to_json(), raw=True)
    if run.measured > 1 and target.name.endswith(".json"):
        print_err([f"vmselect: {target} contains only the last of {run.measured} trainings. Use --path with a folder."])


def _note_unknown_types(profiles: Iterable[Profile]) -> None:
    """Print a line for each instance type that the user has named, if the name is only similar to a known one.

    This is done after the measurement, because loading the catalog before it would import packages that the script may
    use itself.
    """
    named = (profile.placement.instance_type for profile in profiles)
    by_user = {fact.value for fact in named if fact is not None and fact.source in ("argument", "environment")}
    for name in sorted(by_user):
        if note := note_unknown_type(name):
            correct = "vmselect history label FILE --instance-type NAME --replace"
            print_err([f"vmselect: {note} To correct a profile: {correct}"])
