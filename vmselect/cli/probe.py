"""The command ``vmselect probe``, which runs a training script unchanged and measures every training in it."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmselect._checks import check_count, check_name, maybe, several
from vmselect._io import check_place, default_folder, has_file
from vmselect._models import Output
from vmselect.cli.options import note_unknown_type
from vmselect.cli.output import flag, is_quiet, print_err, print_out
from vmselect.errors import ArgumentError
from vmselect.records.training import Outcome
from vmselect.units import format_seconds

if TYPE_CHECKING:
    from vmselect._io import Place
    from vmselect.probe.saves import Save
    from vmselect.probe.script import ScriptRun
    from vmselect.records import Profile

CONTEXT = {"allow_interspersed_args": False, "ignore_unknown_options": True}
"""Settings of the command: everything after the script's name is passed to the script."""

EXTRAS = {
    "keras": "vmselect[tensorflow]",
    "tensorflow": "vmselect[tensorflow]",
    "jax": "vmselect[jax]",
    "torch": "vmselect[torch]",
    "lightning": "lightning",
    "transformers": "transformers[torch]",
}
"""Maps each package that a script may import to the argument of ``pip install`` that installs it."""

STEADY_SECONDS = 2.0
"""Least total seconds of the steady steps that are measured in each epoch. The speed of a machine changes from second
to second, so twenty short steps would measure one moment only."""

SCRIPT_OPTIONS = ("--batch-size", "--help", "-h", "-m", "-q")
"""Options of ``vmselect probe`` that are nearly always meant for the script if they follow its name."""


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
    seconds: Annotated[float | None, typer.Option(help="Seconds after which to end each training.")] = None,
    watch: Annotated[bool, flag("--watch", help="Measure each training until it ends instead of stopping it.")] = False,
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
    alarm: Annotated[
        str | None, typer.Option(help="Command to run when CPU utilization stays high (message in $VMSELECT_ALARM).")
    ] = None,
    alarm_cpu: Annotated[float, typer.Option(help="CPU utilization (0 to 1) above which --alarm runs.")] = 0.9,
    alarm_when: Annotated[
        str | None, typer.Option(help="Condition for --alarm instead of CPU utilization, as in 'gpu*_busy_share<0.2'.")
    ] = None,
    alarm_seconds: Annotated[
        float, typer.Option(help="Seconds for which the condition must hold before --alarm runs.")
    ] = 10.0,
    batch_size: Annotated[int | None, typer.Option(help="Batch size, if it cannot be detected.")] = None,
    instance_type: Annotated[
        str | None, typer.Option(help="Instance type of this machine, if it cannot be detected.")
    ] = None,
    region: Annotated[str | None, typer.Option(help="Region of this machine, if it cannot be detected.")] = None,
    as_json: Annotated[bool, flag("--json", help="Print what was measured as JSON, in the last line.")] = False,
) -> None:
    """Run a training SCRIPT unchanged, measure every training it starts, and write a profile of each.

    The script may use Keras, plain torch, Lightning or the Hugging Face Trainer. Give options of vmselect before the
    name of the script: everything after the name is passed to the script. Each training is ended after a few seconds
    of measuring. A probe never gets past the first save: when the script calls a function that saves a model or a
    checkpoint, such as torch.save, the program ends before anything is written, unless --allow-saves or --watch is
    given. Checkpoint callbacks inside a training write to a temporary folder. A plain torch script ends after its first
    training, unless --watch, --fits or --fit asks for more. The exit code is that of the script, 1 if no training was
    measured, or 2 if the script saves before enough steps were measured.

    Examples:

      vmselect probe train.py --batch-size 64

      vmselect probe --path profiles/ --instance-type g4dn.xlarge train.py --data /mnt/images

      vmselect probe --fits 2 --name frozen --name fine-tuned -m package.train

      vmselect probe --watch --path truth.json train.py

      vmselect probe --watch --alarm "notify-send vmselect" --alarm-cpu 0.95 train.py
    """
    from vmselect.probe.recording import check_target
    from vmselect.probe.sampling import Alarm
    from vmselect.probe.script import Choice, ScriptFailed, probe_script

    if script.endswith(".ipynb"):
        raise ArgumentError(
            f"{script} is a notebook, not a script. Pass vmselect.IterationProbe as a callback to fit, or convert the "
            "notebook with: jupyter nbconvert --to script"
        )
    if script.startswith("-"):
        raise ArgumentError(f"vmselect probe has no option {script}. Run vmselect probe --help to list its options.")
    if not module and not has_file(Path(script)):
        raise ArgumentError(f"{script} is not a readable file. Give the path of a Python script.")
    _note_misplaced(context, script, arguments or ())
    target = default_folder() if path is None else check_place("--path", path)
    check_target(target, "training")
    choice = Choice(
        watch=watch,
        fits=maybe(check_count, "--fits", fits),
        numbers=several(check_count, "--fit", fit) if fit else (),
        names=[check_name("--name", text) for text in name or ()],
        validation_steps=validation_steps,
    )
    when = _read_condition(alarm_when) if alarm_when is not None else {}
    if when and alarm is None:
        raise ArgumentError("--alarm-when has no command to run. Add --alarm with a command.")
    notice = Alarm(alarm, cpu=alarm_cpu, seconds=alarm_seconds, **when) if alarm is not None else None
    try:
        run = probe_script(
            script, arguments or (), target, choice, module=module,
            at_save=None if allow_saves or watch else functools.partial(_end_at_save, target, as_json),
            steps=steps, steady_seconds=steady_seconds, validations=validations, seconds=seconds,
            sample=sample or None, alarm=notice, batch_size=batch_size, instance_type=instance_type, region=region,
            verbose=int(not is_quiet()),
        )  # fmt: skip
    except ScriptFailed as failed:
        missing = failed.error.name if isinstance(failed.error, ModuleNotFoundError) else None
        if missing in EXTRAS:
            fact = f"{script} imports {missing}, which is not installed in {sys.prefix}"
            print_err([f'vmselect: {fact}. Run: pip install "{EXTRAS[missing]}"'], always=True)
        raise
    if watch:
        for profile in run.profiles:
            if profile.timeline.fit_seconds is not None:
                took = format_seconds(profile.timeline.fit_seconds)
                print_err([f"vmselect: the whole training of {profile.title} took {took}."])
    _show_profiles(run, target, as_json=as_json)
    if not run.measured:
        print_err(
            [
                "vmselect: the script contains no training with Keras, Lightning, the Hugging Face Trainer or plain "
                "torch that could be measured. Measure other training loops with vmselect.probe_loop."
            ],
            always=True,
        )
        raise typer.Exit(1)


def _end_at_save(target: Place, as_json: bool, save: Save, run: ScriptRun) -> int:
    """Print why the program ends before ``save``. Return the exit code."""
    if run.measured:
        print_err([f"vmselect: ended the program before {save}. To run the save, pass --allow-saves."])
        _show_profiles(run, target, as_json=as_json)
        return 0
    fact = f"{save} saves a model before enough steps were measured, so the probe ended the program"
    print_err([f"vmselect: {fact}. Remove this save, or pass --allow-saves."], always=True)
    return 2


def _show_profiles(run: ScriptRun, target: Place, *, as_json: bool) -> None:
    """Print remarks about the profiles of ``run`` to standard error and, if asked, the profiles as JSON."""
    from vmselect.records.step_times import step_seconds

    _note_unknown_types(run.profiles)
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


def _note_misplaced(context: typer.Context, script: str, arguments: Iterable[str]) -> None:
    """Print a line if ``arguments`` of the script contain options that ``vmselect probe`` has, too."""
    own = {name for option in context.command.params for name in option.opts} - {*SCRIPT_OPTIONS}
    words = dict.fromkeys(argument.partition("=")[0] for argument in arguments)
    if misplaced := [word for word in words if word in own and word.startswith("-")]:
        fact = f"{', '.join(misplaced)} was passed to {script}, not to vmselect probe"
        print_err([f"vmselect: {fact}. Write options of vmselect probe before the script's name."])


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


def _read_condition(text: str) -> dict[str, Any]:
    """Return the arguments ``quantity`` and ``above`` or ``below`` of an alarm for a text such as ``cpu_share>0.9``."""
    condition = re.fullmatch(r"\s*([\w*]+)\s*([<>])\s*(\S+)\s*", text)
    try:
        quantity, sign, number = condition.groups() if condition else ("", "", "")
        return {"quantity": quantity, "above" if sign == ">" else "below": float(number)}
    except ValueError:
        message = f"--alarm-when {text!r} is invalid. Write quantity>number or quantity<number, as in cpu_share>0.9."
        raise ArgumentError(message) from None
