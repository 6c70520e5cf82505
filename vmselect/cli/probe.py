"""``vmselect probe``: run the user's own script, unchanged, with a probe in every ``fit`` it calls."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from vmselect._checks import check_count, check_name, maybe, several
from vmselect._files import has_file
from vmselect.cli.output import flag, print_err
from vmselect.errors import ArgumentError
from vmselect.units import format_seconds, list_some

CONTEXT = {"allow_interspersed_args": False, "ignore_unknown_options": True}
"""Everything after the script's name belongs to the script."""


EXTRAS = {
    "keras": "vmselect[tensorflow]",
    "tensorflow": "vmselect[tensorflow]",
    "jax": "vmselect[jax]",
    "torch": "vmselect[torch]",
    "lightning": "lightning",
    "transformers": "transformers[torch]",
}
"""What a script trains with, and what brings it."""


STEADY_SECONDS = 2.0
"""How long steady steps are measured in each epoch, in a process that has taken seconds to start: a computer's speed
changes from one second to the next, and twenty short steps would see one moment of it."""


OURS = ("--instance-type", "--fits", "--watch", "--touch-files", "--steady-seconds", "--alarm", "--alarm-cpu")
"""Options that a script hardly has: behind its name they are probably meant for us."""


def probe(
    script: Annotated[str, typer.Argument(help="Your training script; with -m a module.", show_default=False)],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="Handed to the script as they are.")
    ] = None,
    module: Annotated[bool, flag("-m", help="SCRIPT is the name of a module, as for python -m.")] = False,
    path: Annotated[
        Path | None,
        typer.Option(
            help="Folder or .json file for the profile.", show_default="what VMSELECT_FOLDER names, else profiles"
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Steady steps to measure in each of two epochs, at least.")] = 20,
    steady_seconds: Annotated[
        float, typer.Option(help="Go on in each of them until steady steps have taken so long; 0 for --steps alone.")
    ] = STEADY_SECONDS,
    validations: Annotated[int, typer.Option(help="Validations to measure: 0, 1 or 2.")] = 2,
    validation_steps: Annotated[int | None, typer.Option(help="Cut later validations to so many batches.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop after so many seconds at the latest.")] = None,
    watch: Annotated[bool, flag("--watch", help="Measure the whole training instead of stopping it.")] = False,
    fits: Annotated[int | None, typer.Option(help="End the script after so many trainings.")] = None,
    fit: Annotated[
        list[int] | None,
        typer.Option(help="Measure only this training, counted from 1; hurry past others."),
    ] = None,
    name: Annotated[list[str] | None, typer.Option(help="Name of the training measured; again for the next.")] = None,
    touch_files: Annotated[
        bool, flag("--touch-files", help="Let checkpoints and logs be written where the script puts them.")
    ] = False,
    sample: Annotated[float, typer.Option(help="Seconds between two samples of utilization; 0 for none.")] = 1.0,
    alarm: Annotated[
        str | None, typer.Option(help="A command to run when the processors stay busy; VMSELECT_ALARM holds the text.")
    ] = None,
    alarm_cpu: Annotated[float, typer.Option(help="Share of the cores above which they are busy, for --alarm.")] = 0.9,
    alarm_seconds: Annotated[float, typer.Option(help="For how long they must be, for --alarm.")] = 10.0,
    batch_size: Annotated[int | None, typer.Option(help="If the probe cannot learn it from the data.")] = None,
    instance_type: Annotated[str | None, typer.Option(help="If it cannot be detected.")] = None,
    region: Annotated[str | None, typer.Option(help="If it cannot be detected.")] = None,
    quiet: Annotated[bool, flag("--quiet", help="Print nothing of our own.")] = False,
) -> None:
    """Run SCRIPT with a probe in every training it starts: Keras, plain torch, Lightning, Hugging Face Trainer.

    The script is not changed and does not need to know vmselect. Our options stand before its name; everything after
    it is the script's own. Each fit stops after a few seconds of measuring, unless --watch is given, and what saving
    callbacks, a keras-tuner project, Model.save or torch.save write meanwhile goes to a scratch folder. A plain torch
    script is ended after its first training; --fits or --fit asks for more. The exit code is the script's; where that
    is 0 and no fit was measured, it is 1.

    Examples:

      vmselect probe train.py --batch-size 64

      vmselect probe --path profiles/ --instance-type g4dn.xlarge train.py --data /mnt/images

      vmselect probe --fits 2 --name frozen --name fine-tuned -m package.train

      vmselect probe --watch --path truth.json train.py

      vmselect probe --watch --alarm "notify-send vmselect" --alarm-cpu 0.95 train.py
    """
    from vmselect.probe.options import check_target, choose_path
    from vmselect.probe.sampling import Alarm
    from vmselect.probe.script import ScriptFailed, probe_script

    if script.endswith(".ipynb"):
        raise ArgumentError(
            f"{script} is a notebook, and only scripts can be probed from outside. Put "
            'vmselect.IterationProbe("profiles/") into the callbacks of its fit, or convert it first: '
            "jupyter nbconvert --to script."
        )
    if script.startswith("-"):
        raise ArgumentError(f"{script} is no option of vmselect probe. See vmselect probe --help.")
    if not module and not has_file(Path(script)):
        raise ArgumentError(f"{script} is not a file, or may not be looked at; give the path of a Python script.")
    misplaced = [one for one in arguments or () if one.partition("=")[0] in OURS]
    if misplaced and not quiet:
        fact = f"{', '.join(misplaced)} stands after {script} and goes to it"
        print_err([f"vmselect: {fact}; options of vmselect stand before the script's name."])
    target = choose_path(path) or Path("profiles")
    check_target(target, "training")
    wanted = several(check_count, "--fit", fit) if fit else ()
    notice = Alarm(alarm, cpu=alarm_cpu, seconds=alarm_seconds) if alarm is not None else None
    try:
        run = probe_script(
            script, arguments or (), target, module=module, steps=steps, steady_seconds=steady_seconds,
            validations=validations, validation_steps=validation_steps, seconds=seconds, watch=watch,
            fits=maybe(check_count, "--fits", fits), wanted=wanted,
            names=[check_name("--name", one) for one in name or ()], protect_files=not touch_files,
            sample=sample or None, alarm=notice, batch_size=batch_size, instance_type=instance_type, region=region,
            verbose=int(not quiet),
        )  # fmt: skip
    except ScriptFailed as failed:
        missing = failed.error.name if isinstance(failed.error, ModuleNotFoundError) else None
        if missing in EXTRAS:
            fact = f"{script} needs {missing}, which is not installed beside vmselect ({sys.prefix})"
            remedy = f'Use the vmselect of the script\'s environment, or: pip install "{EXTRAS[missing]}"'
            print_err([f"vmselect: {fact}. {remedy}"])
        raise
    if run.saved and not quiet:
        print_err([f"vmselect: saved to a scratch folder and removed: {', '.join(run.saved)}"])
    if run.written and not quiet:
        sooner = f" To end the script sooner: --fits {run.fits}." if run.fits else ""
        print_err([f"vmselect: the script wrote {list_some(run.written, 8)} after its training was cut short.{sooner}"])
    if watch and not quiet:
        for profile in run.profiles:
            if profile.timeline.fit_seconds is not None:
                took = format_seconds(profile.timeline.fit_seconds)
                print_err([f"vmselect: {profile.title} was watched to its end; the training took {took}."])
    if run.measured > 1 and target.suffix == ".json":
        overwritten = f"{run.measured} trainings wrote to {target}, which now holds the last"
        print_err([f"vmselect: {overwritten}. Give a folder to keep them all."])
    if not run.measured:
        print_err(
            [
                "vmselect: no training was measured: no fit of Keras or Lightning, none of Hugging Face's Trainer or "
                "of plain torch. For a training loop of your own, see vmselect.probe_loop."
            ]
        )
        raise typer.Exit(1)
