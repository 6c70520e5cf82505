"""``vmselect probe``: run a training script, unchanged, with a probe in every ``fit`` that it calls."""

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
"""The package that a script imports, and what to install for it."""

STEADY_SECONDS = 2.0
"""How long steady steps are measured in each epoch. A machine's speed changes from second to second, so that twenty
short steps would measure one moment only."""

PROBE_OPTIONS = ("--instance-type", "--fits", "--watch", "--touch-files", "--steady-seconds", "--alarm", "--alarm-cpu")
"""Options that scripts rarely have: after the script's name they were probably meant for vmselect."""


def probe(
    script: Annotated[str, typer.Argument(help="Your training script; with -m a module.", show_default=False)],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Arguments of the script.")] = None,
    module: Annotated[bool, flag("-m", help="SCRIPT is the name of a module, as for python -m.")] = False,
    path: Annotated[
        Path | None,
        typer.Option(help="Folder or .json file for the profile.", show_default="VMSELECT_FOLDER, else profiles"),
    ] = None,
    steps: Annotated[int, typer.Option(help="Steady steps to measure at least, in each of two epochs.")] = 20,
    steady_seconds: Annotated[
        float, typer.Option(help="Time to measure steady steps at least, in each of two epochs.")
    ] = STEADY_SECONDS,
    validations: Annotated[int, typer.Option(help="Validations to measure: 0, 1 or 2.")] = 2,
    validation_steps: Annotated[int | None, typer.Option(help="Batches of each validation after the first.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Maximum time of a probe.")] = None,
    watch: Annotated[bool, flag("--watch", help="Measure the whole training instead of stopping it.")] = False,
    fits: Annotated[int | None, typer.Option(help="End the script after this number of trainings.")] = None,
    fit: Annotated[
        list[int] | None,
        typer.Option(help="Measure only this training, counted from 1; may be repeated."),
    ] = None,
    name: Annotated[list[str] | None, typer.Option(help="Name of the training measured; repeat for the next.")] = None,
    touch_files: Annotated[
        bool, flag("--touch-files", help="Let the script write checkpoints and logs to its own paths.")
    ] = False,
    sample: Annotated[float, typer.Option(help="Seconds between samples of utilization; 0 for none.")] = 1.0,
    alarm: Annotated[
        str | None, typer.Option(help="Command to run when the processors stay busy; VMSELECT_ALARM holds the text.")
    ] = None,
    alarm_cpu: Annotated[float, typer.Option(help="Share of the cores in use above which --alarm runs.")] = 0.9,
    alarm_seconds: Annotated[float, typer.Option(help="Time that the share must last before --alarm runs.")] = 10.0,
    batch_size: Annotated[int | None, typer.Option(help="Batch size, if it cannot be detected.")] = None,
    instance_type: Annotated[str | None, typer.Option(help="Instance type, if it cannot be detected.")] = None,
    region: Annotated[str | None, typer.Option(help="Region, if it cannot be detected.")] = None,
    quiet: Annotated[bool, flag("--quiet", help="Print only what the script prints.")] = False,
) -> None:
    """Run SCRIPT with a probe in every training it starts: Keras, plain torch, Lightning, Hugging Face Trainer.

    The script needs no change. Options of vmselect stand before its name; everything after the name is passed to it.
    Each training stops after a few seconds of measuring, unless --watch is given. Until then, files that the training
    saves, such as checkpoints, go to a scratch folder. A plain torch script ends after its first training, unless
    --fits or --fit asks for more. The exit code is the script's, or 1 where that is 0 and no training was measured.

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
            f"{script} is a notebook, not a script. Give its fit a vmselect.IterationProbe as callback, or convert it "
            "with: jupyter nbconvert --to script"
        )
    if script.startswith("-"):
        raise ArgumentError(f"{script} is no option of vmselect probe. See vmselect probe --help.")
    if not module and not has_file(Path(script)):
        raise ArgumentError(f"{script} is not a file that can be read. Give the path of a Python script.")
    misplaced = [one for one in arguments or () if one.partition("=")[0] in PROBE_OPTIONS]
    if misplaced and not quiet:
        names = ", ".join(misplaced)
        print_err([f"vmselect: {names} is passed to {script}. Write options of vmselect before the script's name."])
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
            fact = f"{script} needs {missing}, which is not installed in {sys.prefix}"
            print_err([f'vmselect: {fact}. Run: pip install "{EXTRAS[missing]}"'])
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
                print_err([f"vmselect: the whole training of {profile.title} took {took}."])
    if run.measured > 1 and target.suffix == ".json":
        print_err([f"vmselect: {target} holds the last of {run.measured} trainings. Give a folder to keep all."])
    if not run.measured:
        print_err(
            [
                "vmselect: no training was measured, by Keras, Lightning, Hugging Face's Trainer or plain torch. "
                "For another training loop, see vmselect.probe_loop."
            ]
        )
        raise typer.Exit(1)
