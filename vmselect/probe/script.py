"""Run a user's training script, unchanged, with a probe in every training that it starts."""

from __future__ import annotations

import math
import runpy
import shutil
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmselect.probe.environment import mark_start
from vmselect.probe.file_protection import make_scratch_folder, note_writes, saved_in_scratch
from vmselect.probe.keras_callbacks import IterationProbe
from vmselect.probe.options import Options
from vmselect.probe.patching import EnoughFits, Trainings, after_import, redirect_tuners
from vmselect.probe.sampling import Alarm
from vmselect.probe.torch_script import LOADER_MODULE, OPTIMIZER_MODULE, EnoughSteps, TorchScript

if TYPE_CHECKING:
    from vmselect.records.training import Profile


class Interrupted(BaseException):
    """Ctrl-C in the script. A class of its own, because typer turns a KeyboardInterrupt into an exit code."""


class ScriptFailed(SystemExit):
    """The script raised ``error``, whose traceback has been printed."""

    def __init__(self, error: Exception) -> None:
        super().__init__(1)
        self.error = error


@dataclass(frozen=True)
class ScriptRun:
    """What a script did while it was probed."""

    fits: int
    """Trainings that a library ran."""
    measured: int
    """Requested trainings that left a profile."""
    profiles: Sequence[Profile]
    saved: Sequence[str]
    """What frameworks saved to scratch folders, which have been removed."""
    written: Sequence[str]
    """What the script itself wrote after a training had been cut short."""


def probe_script(
    script: str,
    arguments: Sequence[str],
    target: Path,
    *,
    module: bool,
    steps: int,
    steady_seconds: float,
    validations: int,
    validation_steps: int | None,
    seconds: float | None,
    watch: bool,
    fits: int | None,
    wanted: Collection[int],
    names: Sequence[str],
    protect_files: bool,
    sample: float | None,
    alarm: Alarm | None,
    batch_size: int | None,
    instance_type: str | None,
    region: str | None,
    verbose: int,
) -> ScriptRun:
    """Run ``script`` and measure its trainings; profiles go to ``target``. See ``vmselect probe --help``.

    ``wanted`` are the numbers of the trainings to measure, all if empty. Each takes its name from ``names``, in order.
    """
    last = fits or max(wanted, default=math.inf)
    protect = protect_files and not watch
    names_left = list(names)
    cleanup = ExitStack()
    common: dict[str, Any] = {
        "batch_size": batch_size, "instance_type": instance_type, "region": region, "sample": sample, "alarm": alarm,
        "verbose": verbose,
    }  # fmt: skip
    limits: dict[str, Any] = {"steps": steps, "validations": validations, "seconds": seconds, "stop": not watch}

    def new_probe(number: int, kind: Any = IterationProbe) -> Any:
        if wanted and number not in wanted:
            # Without a path it would write to the folder in VMSELECT_FOLDER.
            unwanted = make_scratch_folder(target)
            cleanup.callback(shutil.rmtree, unwanted, ignore_errors=True)
            return kind(
                unwanted, steps=1, validations=0, stop=not watch, protect_files=protect_files, verbose=0, sample=None
            )
        keras_only = {"validation_steps": validation_steps} if kind is IterationProbe else {}
        name = names_left.pop(0) if names_left else None
        steady = None if watch else steady_seconds
        return kind(
            target, steady_seconds=steady, protect_files=protect_files, name=name, **limits, **common, **keras_only
        )

    new_probe(max(wanted, default=1))  # reports wrong options now, before the script loads its data
    names_left = list(names)
    torch_script = TorchScript(
        Options.of(path=target, metrics=None, factors=None, name=None, **common),
        steady_seconds=steady_seconds,
        model=Path(script).stem,
        names=names_left,
        wanted=wanted,
        last=last if fits or wanted or watch else 1,
        **limits,
    )
    trainings = Trainings(new_probe, last=last, beside=torch_script.look_away)
    trainings.watch()
    after_import(LOADER_MODULE, torch_script.watch_loader)
    after_import(OPTIMIZER_MODULE, torch_script.watch_optimizer)
    saved: dict[str, None] = {}
    written: dict[str, None] = {}
    with cleanup:
        if protect:
            saved = cleanup.enter_context(saved_in_scratch(after_import)).redirected
            redirect_tuners()
            written = cleanup.enter_context(
                note_writes(
                    lambda: trainings.any_measured or torch_script.updates > 0,
                    inside=(Path.cwd(), Path(script).parent),
                    but=target,
                )
            )
        try:
            _run_script(script, arguments, module=module, on_error=torch_script.close)
        except (EnoughFits, EnoughSteps):
            pass
        except SystemExit as ended:
            if ended.code not in (None, 0):
                raise
        for thread in threading.enumerate():  # the interpreter would wait for them too
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        torch_script.close()
    chosen = [one for number, one in enumerate(trainings.probes, 1) if not wanted or number in wanted]
    profiles = [one.profile for one in chosen if one.measured]
    measured = len(profiles) + torch_script.measured
    if torch_script.profile is not None:
        profiles.append(torch_script.profile)
    return ScriptRun(len(trainings.probes), measured, profiles, [*saved], [*written])


def _run_script(
    script: str, arguments: Sequence[str], *, module: bool, on_error: Callable[[BaseException], None]
) -> None:
    """Run a script as ``python script arguments`` would, or a module as ``python -m`` would, in this process."""
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path.cwd() if module else Path(script).resolve().parent)
    mark_start()
    try:
        if module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - any error ends the script as it would have alone
        on_error(error)
        inside = error.__traceback__
        while inside and inside.tb_frame.f_code.co_filename != sys.argv[0]:
            inside = inside.tb_next
        sys.excepthook(type(error), error.with_traceback(inside), inside)
        raise (Interrupted if isinstance(error, KeyboardInterrupt) else ScriptFailed(error)) from None
