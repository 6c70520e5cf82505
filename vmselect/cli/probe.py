"""``vmselect probe``: run the user's own script, unchanged, with a probe in every ``fit`` it calls."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import math
import runpy
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from vmselect._checks import check_count, maybe, several
from vmselect.cli.output import say
from vmselect.errors import ArgumentError

MODEL_MODULE = "keras.src.models.model"
"""Where Keras defines the class whose ``fit`` every model calls."""

TUNER_MODULE = "keras_tuner.src.engine.base_tuner"
"""Where keras-tuner decides on the folder of its project."""

CONTEXT = {"allow_interspersed_args": False, "ignore_unknown_options": True}
"""Everything after the script's name belongs to the script."""


class Interrupted(BaseException):
    """Ctrl-C in the script, by a name of our own: typer would make an exit code of a KeyboardInterrupt."""


def probe(
    script: Annotated[str, typer.Argument(help="Your training script; with -m a module.", show_default=False)],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="Handed to the script as they are.")
    ] = None,
    module: Annotated[bool, typer.Option("-m", help="SCRIPT is the name of a module, as for python -m.")] = False,
    path: Annotated[Path, typer.Option(help="Folder or .json file for the profile.")] = Path("profiles"),
    steps: Annotated[int, typer.Option(help="Steady steps to measure in each of two epochs.")] = 20,
    validations: Annotated[int, typer.Option(help="Validations to measure: 0, 1 or 2.")] = 2,
    validation_steps: Annotated[int | None, typer.Option(help="Cut later validations to so many batches.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop after so many seconds at the latest.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Measure the whole training instead of stopping it.")] = False,
    fits: Annotated[int | None, typer.Option(help="End the script after so many trainings.")] = None,
    fit: Annotated[
        list[int] | None,
        typer.Option(help="Measure only this training, counted from 1; hurry past others."),
    ] = None,
    name: Annotated[list[str] | None, typer.Option(help="Name of the training measured; again for the next.")] = None,
    touch_files: Annotated[
        bool, typer.Option("--touch-files", help="Let checkpoints and logs be written where the script says.")
    ] = False,
    batch_size: Annotated[int | None, typer.Option(help="If the probe cannot learn it from the data.")] = None,
    instance_type: Annotated[str | None, typer.Option(help="If the machine cannot tell.")] = None,
    region: Annotated[str | None, typer.Option(help="If the machine cannot tell.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing of our own.")] = False,
) -> None:
    """Run SCRIPT with an IterationProbe added to every Keras fit it calls.

    The script is not changed and does not need to know vmselect. Our options stand before its name; everything after
    it is the script's own. Each fit stops after a few seconds of measuring, unless --watch is given, and what Keras'
    saving callbacks or a keras-tuner project write meanwhile goes to a scratch folder. The exit code is the script's;
    where that is 0 and no fit was measured, it is 1.

    Examples:

      vmselect probe train.py --batch-size 64

      vmselect probe --path profiles/ --instance-type g4dn.xlarge train.py --data /mnt/images

      vmselect probe --fits 2 --name frozen --name fine-tuned -m package.train

      vmselect probe --watch --path truth.json train.py
    """
    import vmselect
    from vmselect.probe.options import Options, check_target
    from vmselect.probe.torch_script import LOADER_MODULE, OPTIMIZER_MODULE, EnoughSteps, TorchScript

    if script.endswith(".ipynb"):
        raise ArgumentError(
            f"{script} is a notebook, and only scripts can be probed from outside. Put vmselect.IterationProbe() into "
            "the callbacks of its fit, or convert it first: jupyter nbconvert --to script."
        )
    if not module and not Path(script).is_file():
        raise ArgumentError(f"{script} is not a file; give the path of a Python script.")
    check_target(path)
    wanted = several(check_count, "--fit", fit) if fit else ()
    last = maybe(check_count, "--fits", fits) or max(wanted, default=math.inf)
    names = list(name or ())

    def new_probe(number: int) -> Any:
        if wanted and number not in wanted:
            return vmselect.IterationProbe(
                steps=1, validations=0, stop=not watch, protect_files=not touch_files, verbose=0
            )
        return vmselect.IterationProbe(
            path, steps=steps, validations=validations, validation_steps=validation_steps, seconds=seconds,
            stop=not watch, batch_size=batch_size, instance_type=instance_type, region=region, verbose=int(not quiet),
            protect_files=not touch_files, name=names.pop(0) if names else None,
        )  # fmt: skip

    new_probe(max(wanted, default=1))  # wrong options should fail now, not after the script has loaded its data
    names = list(name or ())
    trainings = Trainings(new_probe, last=last)
    trainings.watch()
    script_watch = TorchScript(
        Options.of(
            path, batch_size=batch_size, instance_type=instance_type, region=region, metrics=None, factors=None,
            name=names[0] if names else None, sample=1.0, alarm=None, verbose=int(not quiet),
        ),
        steps=steps, validations=validations, seconds=seconds, stop=not watch, model=Path(script).stem,
    )  # fmt: skip
    after_import(LOADER_MODULE, script_watch.watch_loader)
    after_import(OPTIMIZER_MODULE, script_watch.watch_optimizer)
    with redirected_tuners() if not (watch or touch_files) else nullcontext():
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
    numbered = enumerate(trainings.probes, 1)
    measured = [one for number, one in numbered if one.measured and (not wanted or number in wanted)]
    if len(measured) > 1 and path.suffix == ".json":
        many = f"{len(measured)} fits wrote to {path}, which now holds the last"
        say([f"vmselect: {many}. Give a folder to keep them all."])
    if not measured and not script_watch.measured:
        say(
            [
                "vmselect: no Keras fit was measured, and no training of plain torch. For a training loop of your own, "
                "see vmselect.probe_loop."
            ]
        )
        raise typer.Exit(1)


class EnoughFits(BaseException):
    """All trainings that were wanted have been measured: the script need not go on."""


class Trainings:
    """Every ``keras.Model.fit`` of this process, each with a probe."""

    def __init__(self, new_probe: Callable[[int], Any], *, last: float = math.inf) -> None:
        self._new_probe = new_probe
        self._last = last
        self.probes: list[Any] = []

    def watch(self) -> None:
        """Have every fit carry a probe, whenever Keras comes to be imported.

        Keras is not imported here: the script may still want to choose its backend.
        """
        after_import(MODEL_MODULE, self._wrap)

    def _wrap(self, module: Any) -> None:
        fit = module.Model.fit

        @functools.wraps(fit)
        def fit_with_probe(model: Any, *args: Any, **options: Any) -> Any:
            import inspect

            bound = inspect.signature(fit).bind(model, *args, **options)
            bound.arguments["callbacks"] = self._with_probe(bound.arguments.get("callbacks"))
            result = fit(*bound.args, **bound.kwargs)
            if len(self.probes) >= self._last:
                raise EnoughFits
            return result

        module.Model.fit = fit_with_probe

    def _with_probe(self, given: Any) -> Any:
        """The callbacks of a fit with a probe among them; one that the script has brought itself is enough."""
        from vmselect.probe.keras.base import KerasProbe

        several_given = isinstance(given, (list, tuple))
        own = [one for one in (given if several_given else [given]) if isinstance(one, KerasProbe)]
        probe = own[0] if own else self._new_probe(len(self.probes) + 1)
        self.probes.append(probe)
        if own:
            return given if several_given else [given]
        # A CallbackList of the caller's own takes the probe itself. The probe stands first: whatever others write when
        # they are set up can then be redirected.
        if hasattr(given, "callbacks") and callable(getattr(given, "append", None)):
            given.append(probe)
            return given
        return [probe, *(given if several_given else [given] if given is not None else [])]


@contextmanager
def redirected_tuners() -> Iterator[None]:
    """Let keras-tuner keep its project in a scratch folder: trials that were cut short are no results."""
    from vmselect.probe.keras.scratch import make_scratch_folder

    folders: list[Path] = []

    def wrap(module: Any) -> None:
        make = module.BaseTuner.__init__

        @functools.wraps(make)
        def make_elsewhere(self: Any, *args: Any, **options: Any) -> None:
            folders.append(make_scratch_folder(Path(options.get("directory") or ".") / "project"))
            make(self, *args, **{**options, "directory": str(folders[-1])})

        module.BaseTuner.__init__ = make_elsewhere

    after_import(TUNER_MODULE, wrap)
    try:
        yield
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


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
        raise (Interrupted if isinstance(wrong, KeyboardInterrupt) else SystemExit(1)) from None


def after_import(name: str, then: Callable[[Any], None]) -> None:
    """Call ``then`` with the module ``name``, now or when it comes to be imported."""
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, _AfterImport(name, then))


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls ``then`` with a module right after it has been imported for the first time."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self._name, self._then = name, then

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec and spec.loader:
            load = spec.loader.exec_module

            def load_then_call(module: Any) -> None:
                load(module)
                self._then(module)

            spec.loader.exec_module = load_then_call  # type: ignore[method-assign]
        return spec
