"""``vmselect probe``: run the user's own script, unchanged, with a probe in every ``fit`` it calls."""

from __future__ import annotations

import math
import runpy
import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from vmselect._checks import check_count, check_name, maybe, several
from vmselect._files import has_file
from vmselect.cli.output import flag, say
from vmselect.cli.trainings import EnoughFits, Trainings, after_import, redirect_tuners
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


class Interrupted(BaseException):
    """Ctrl-C in the script, by a name of our own: typer would make an exit code of a KeyboardInterrupt."""


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
        bool, flag("--touch-files", help="Let checkpoints and logs be written where the script says.")
    ] = False,
    sample: Annotated[
        float, typer.Option(help="Seconds between two looks at what the machine does; 0 for none.")
    ] = 1.0,
    alarm: Annotated[
        str | None, typer.Option(help="A command to run when the processors stay busy; VMSELECT_ALARM holds the text.")
    ] = None,
    alarm_cpu: Annotated[float, typer.Option(help="Share of the cores above which they are busy, for --alarm.")] = 0.9,
    alarm_seconds: Annotated[float, typer.Option(help="For how long they must be, for --alarm.")] = 10.0,
    batch_size: Annotated[int | None, typer.Option(help="If the probe cannot learn it from the data.")] = None,
    instance_type: Annotated[str | None, typer.Option(help="If the machine cannot tell.")] = None,
    region: Annotated[str | None, typer.Option(help="If the machine cannot tell.")] = None,
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
    import vmselect
    from vmselect.probe.options import Options, check_target, choose_path
    from vmselect.probe.scratch import make_scratch_folder, noted_writes, saved_in_scratch
    from vmselect.probe.torch_script import LOADER_MODULE, OPTIMIZER_MODULE, EnoughSteps, TorchScript

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
        told = f"{', '.join(misplaced)} stands after {script} and goes to it"
        say([f"vmselect: {told}; options of vmselect stand before the script's name."])
    target = choose_path(path) or Path("profiles")
    check_target(target, "training")
    wanted = several(check_count, "--fit", fit) if fit else ()
    last = maybe(check_count, "--fits", fits) or max(wanted, default=math.inf)
    given = [check_name("--name", one) for one in name or ()]
    names = given.copy()
    notice = vmselect.Alarm(alarm, cpu=alarm_cpu, seconds=alarm_seconds) if alarm is not None else None
    after = ExitStack()
    looks: dict[str, Any] = {"sample": sample or None, "alarm": notice}

    def new_probe(number: int, kind: Any = vmselect.IterationProbe) -> Any:
        if wanted and number not in wanted:
            # Not without a path: it would be written where VMSELECT_FOLDER says.
            unwanted = make_scratch_folder(target)
            after.callback(shutil.rmtree, unwanted, ignore_errors=True)
            return kind(
                unwanted, steps=1, validations=0, stop=not watch, protect_files=not touch_files, verbose=0, sample=None
            )
        keras_only = {"validation_steps": validation_steps} if kind is vmselect.IterationProbe else {}
        return kind(
            target, steps=steps, validations=validations, seconds=seconds, stop=not watch, batch_size=batch_size,
            steady_seconds=None if watch else steady_seconds,
            instance_type=instance_type, region=region, verbose=int(not quiet), protect_files=not touch_files,
            name=names.pop(0) if names else None, **looks, **keras_only,
        )  # fmt: skip

    new_probe(max(wanted, default=1))  # wrong options should fail now, not after the script has loaded its data
    names = given.copy()
    script_watch = TorchScript(
        Options.of(
            target, batch_size=batch_size, instance_type=instance_type, region=region, metrics=None, factors=None,
            name=None, verbose=int(not quiet), **looks,
        ),
        steps=steps, validations=validations, seconds=seconds, steady_seconds=steady_seconds, stop=not watch,
        model=Path(script).stem, names=names, wanted=wanted, last=last if fits or fit or watch else 1,
    )  # fmt: skip
    trainings = Trainings(new_probe, last=last, beside=script_watch.look_away)
    trainings.watch()
    after_import(LOADER_MODULE, script_watch.watch_loader)
    after_import(OPTIMIZER_MODULE, script_watch.watch_optimizer)
    with after:
        saved: dict[str, None] = {}
        written: dict[str, None] = {}
        if not (watch or touch_files):
            saved = after.enter_context(saved_in_scratch(after_import)).redirected
            redirect_tuners()
            places = (Path.cwd(), Path(script).parent)
            written = after.enter_context(
                noted_writes(lambda: trainings.any_measured or script_watch.updates > 0, inside=places, but=target)
            )
        try:
            run_script(script, arguments or (), module=module, before=vmselect.mark_start, failed=script_watch.close)
        except (EnoughFits, EnoughSteps):
            pass
        except SystemExit as ended:
            if ended.code not in (None, 0):
                raise
        for thread in threading.enumerate():  # the interpreter would wait for them too
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        script_watch.close()
        if saved and not quiet:
            say([f"vmselect: saved elsewhere and removed: {', '.join(saved)}"])
        if written and not quiet:
            files = list_some([*written], 8)
            sooner = f" To end the script sooner: --fits {len(trainings.probes)}." if trainings.probes else ""
            say([f"vmselect: of a training that was cut short the script itself wrote {files}.{sooner}"])
    numbered = enumerate(trainings.probes, 1)
    measured = sum(one.measured for number, one in numbered if not wanted or number in wanted) + script_watch.measured
    if watch and not quiet:
        chosen = [one for number, one in enumerate(trainings.probes, 1) if not wanted or number in wanted]
        for profile in [*(one.profile for one in chosen if one.measured), script_watch.profile]:
            if profile is not None and profile.timeline.fit_seconds is not None:
                took = format_seconds(profile.timeline.fit_seconds)
                say([f"vmselect: {profile.title} was watched to its end; the training took {took}."])
    if measured > 1 and target.suffix == ".json":
        many = f"{measured} fits wrote to {target}, which now holds the last"
        say([f"vmselect: {many}. Give a folder to keep them all."])
    if not measured:
        say(
            [
                "vmselect: no training was measured: no fit of Keras or Lightning, none of Hugging Face's Trainer or "
                "of plain torch. For a training loop of your own, see vmselect.probe_loop."
            ]
        )
        raise typer.Exit(1)


def run_script(
    script: str,
    arguments: Sequence[str],
    *,
    module: bool = False,
    before: Callable[[], None] = lambda: None,
    failed: Callable[[BaseException], None] = lambda error: None,
) -> None:
    """Run a script as ``python script arguments`` would, or a module as ``python -m`` would, in this process."""
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path.cwd() if module else Path(script).resolve().parent)
    before()
    try:
        if module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")
    except (Exception, KeyboardInterrupt) as wrong:  # noqa: BLE001  # any error ends the script as it would have alone
        failed(wrong)
        inside = wrong.__traceback__
        while inside and inside.tb_frame.f_code.co_filename != sys.argv[0]:
            inside = inside.tb_next
        sys.excepthook(type(wrong), wrong.with_traceback(inside), inside)
        if isinstance(wrong, ModuleNotFoundError) and wrong.name in EXTRAS:
            fact = f"{script} needs {wrong.name}, which is not installed beside vmselect ({sys.prefix})"
            remedy = f'Use the vmselect of the script\'s environment, or: pip install "{EXTRAS[wrong.name]}"'
            say([f"vmselect: {fact}. {remedy}"])
        raise (Interrupted if isinstance(wrong, KeyboardInterrupt) else SystemExit(1)) from None
