"""Runs an unmodified training script with a probe in each of its trainings.

Keras, Lightning and transformers are patched when the script imports them, so that every training with these libraries
gets a probe. A :class:`~vmselect.probe.torch_script.TorchScript` measures trainings in plain torch.
"""

from __future__ import annotations

import functools
import inspect
import math
import runpy
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmselect._io import Place
from vmselect.probe import checkpoints, loop
from vmselect.probe.environment import mark_start
from vmselect.probe.keras import IterationProbe, KerasProbe
from vmselect.probe.loop import LoopProbe
from vmselect.probe.options import Options, choose_path
from vmselect.probe.saves import Save, after_import, end_other_processes, stop_at_saves
from vmselect.probe.torch_script import GRADIENT_MODULE, LOADER_MODULE, OPTIMIZER_MODULE, EnoughTrainings, TorchScript
from vmselect.probe.trainers import HuggingFaceProbe, LightningProbe

if TYPE_CHECKING:
    from vmselect.records.training import Profile


class Interrupted(BaseException):
    """The script was interrupted by Ctrl-C. This is no KeyboardInterrupt, because typer would handle that."""


class ScriptFailed(SystemExit):
    """The script ended with the exception ``error``, whose traceback has been printed."""

    def __init__(self, error: Exception) -> None:
        super().__init__(1)
        self.error = error


@dataclass(frozen=True)
class ScriptRun:
    """What a probe has measured in a script."""

    fits: int
    """Number of trainings with Keras, Lightning or transformers that the script has started."""
    measured: int
    """Number of requested trainings that were measured."""
    profiles: Sequence[Profile]


def probe_script(
    script: str,
    arguments: Sequence[str],
    target: Place,
    *,
    module: bool,
    steady_seconds: float,
    validation_steps: int | None,
    watch: bool,
    fits: int | None,
    wanted: Collection[int],
    names: Sequence[str],
    at_save: Callable[[Save, ScriptRun], int] | None,
    **options: Any,
) -> ScriptRun:
    """Run ``script``, measure its trainings and write profiles to ``target``. See ``vmselect probe --help``.

    ``at_save`` is called when the script is about to save a model, with the call and what was measured until then. It
    returns the exit code, with which the program then ends. If it is None, saves take place.

    ``wanted`` contains the numbers of the trainings to measure, counted from 1; if it is empty, all are measured. Their
    records get the ``names``, in order. ``options`` are further arguments of the probes, such as ``steps``.
    """
    last = fits or max(wanted, default=math.inf)
    names_left = list(names)
    cleanup = ExitStack()
    options |= {"stop": not watch, "steady_seconds": None if watch else steady_seconds}
    options["protect_files"] = at_save is not None

    def new_probe(number: int, kind: Any) -> Any:
        if wanted and number not in wanted:
            # Without a path the probe would write to the folder in VMSELECT_FOLDER.
            unwanted = checkpoints.make_scratch_folder(target if isinstance(target, Path) else Path.cwd())
            cleanup.callback(checkpoints.remove_scratch_folder, unwanted)
            return kind(unwanted, steps=1, validations=0, stop=not watch, verbose=0, sample=None)
        keras_only = {"validation_steps": validation_steps} if kind is IterationProbe else {}
        made = kind(target, name=names_left.pop(0) if names_left else None, **options, **keras_only)
        made._advises = False
        return made

    new_probe(max(wanted, default=1), IterationProbe)  # rejects invalid options before the script loads its data
    cleanup.close()
    names_left = list(names)
    torch_script = TorchScript(
        target,
        model=Path(script).stem,
        names=names_left,
        wanted=wanted,
        last=last if fits or wanted or watch else 1,
        **options,
    )
    loops: list[LoopProbe] = []

    @contextmanager
    def around_loop(probe: LoopProbe, own: Options) -> Iterator[None]:
        loops.append(probe)
        own.path = own.path or choose_path(None) or target
        with torch_script.disabled():
            yield

    trainings = Trainings(new_probe, last=last, beside=torch_script.disabled)
    trainings.patch()
    after_import(LOADER_MODULE, torch_script.watch_loader)
    after_import(OPTIMIZER_MODULE, torch_script.watch_optimizer)
    after_import(GRADIENT_MODULE, torch_script.watch_gradients)

    def count() -> ScriptRun:
        chosen = [probe for number, probe in enumerate(trainings.probes, 1) if not wanted or number in wanted]
        profiles = [probe.profile for probe in [*chosen, *loops] if probe.measured]
        measured = len(profiles) + torch_script.profiles_kept
        if torch_script.measured:
            profiles.append(torch_script.profile)
        return ScriptRun(len(trainings.probes), measured, profiles)

    def end_at(save: Save) -> int:
        for probe in (*trainings.probes, *loops, torch_script):
            probe.end_program()
        checkpoints.remove_scratch_folders()
        return at_save(save, count()) if at_save is not None else 0

    with cleanup:
        if at_save is not None:
            stop_at_saves(end_at)
            cleanup.callback(end_other_processes)
        loop.AROUND.append(around_loop)
        cleanup.callback(loop.AROUND.remove, around_loop)
        try:
            _run_script(script, arguments, module=module, on_error=torch_script.close)
        except EnoughTrainings:
            pass
        except SystemExit as ended:
            if ended.code not in (None, 0):
                raise
        for thread in threading.enumerate():  # the interpreter would also wait for these threads
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        torch_script.close()
    return count()


def _run_script(
    script: str, arguments: Sequence[str], *, module: bool, on_error: Callable[[BaseException], None]
) -> None:
    """Run a script or a module in this process, as ``python script arguments`` or ``python -m script`` would.

    ``on_error`` is called with the exception if the script fails.
    """
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path.cwd() if module else Path(script).resolve().parent)
    mark_start()
    try:
        if module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - any error ends the script, as without the probe
        on_error(error)
        inside = error.__traceback__
        while inside and inside.tb_frame.f_code.co_filename != sys.argv[0]:
            inside = inside.tb_next
        sys.excepthook(type(error), error.with_traceback(inside), inside)
        raise (Interrupted if isinstance(error, KeyboardInterrupt) else ScriptFailed(error)) from None


@dataclass
class Trainings:
    """Adds a probe to every training with Keras, Lightning or transformers in this process.

    ``new_probe`` takes the number of a training and the class of a probe, and creates the probe. The context manager
    ``beside`` is active while Lightning or transformers trains. The script ends after training number ``last``.
    """

    new_probe: Callable[..., Any]
    last: float
    beside: Callable[[], AbstractContextManager[Any]]
    probes: list[Any] = field(default_factory=list)

    def patch(self) -> None:
        """Patch each library, now or when the script imports it.

        No library is imported here, because the script may still select the backend of Keras.
        """
        after_import("keras.src.models.model", self._wrap_keras)
        after_import("transformers.trainer", self._wrap_hugging_face)
        after_import("lightning.pytorch.trainer.trainer", self._wrap_lightning)
        after_import("pytorch_lightning.trainer.trainer", self._wrap_lightning)

    def _wrap_keras(self, module: Any) -> None:
        fit = module.Model.fit

        @functools.wraps(fit)
        def fit_with_probe(model: Any, *args: Any, **options: Any) -> Any:
            bound = inspect.signature(fit).bind(model, *args, **options)
            bound.arguments["callbacks"] = self._with_probe(bound.arguments.get("callbacks"))
            return self._end(fit(*bound.args, **bound.kwargs))

        module.Model.fit = fit_with_probe

    def _with_probe(self, given: Any) -> Any:
        """Return the callbacks for a Keras training: the ``given`` callbacks and a probe."""
        several = list(given) if isinstance(given, (list, tuple)) else [] if given is None else [given]
        probe, is_new = self._choose_probe(several, KerasProbe, IterationProbe)
        if not is_new:
            return several
        if hasattr(given, "callbacks") and callable(getattr(given, "append", None)):  # a CallbackList
            given.append(probe)
            return given
        # The probe comes first, so that it can redirect files that other callbacks write during their setup.
        return [probe, *several]

    def _wrap_lightning(self, module: Any) -> None:
        fit = module.Trainer.fit

        @functools.wraps(fit)
        def fit_with_probe(trainer: Any, *args: Any, **options: Any) -> Any:
            probe, is_new = self._choose_probe(trainer.callbacks, LightningProbe)
            if is_new:
                trainer.callbacks.insert(0, probe)
            try:
                with self.beside():
                    result = fit(trainer, *args, **options)
            finally:
                if is_new:
                    trainer.callbacks.remove(probe)
            return self._end(result)

        module.Trainer.fit = fit_with_probe

    def _wrap_hugging_face(self, module: Any) -> None:
        train = module.Trainer.train

        @functools.wraps(train)
        def train_with_probe(trainer: Any, *args: Any, **options: Any) -> Any:
            probe, is_new = self._choose_probe(trainer.callback_handler.callbacks, HuggingFaceProbe)
            if is_new:
                trainer.add_callback(probe)
            probe.begin()
            try:
                with self.beside():
                    result = train(trainer, *args, **options)
            except BaseException as error:
                probe.finish(error)  # the trainer calls no callback when it fails
                raise
            finally:
                if is_new:
                    trainer.remove_callback(probe)
            return self._end(result)

        module.Trainer.train = train_with_probe

    def _choose_probe(self, callbacks: Iterable[Any], kind: type, new: type | None = None) -> tuple[Any, bool]:
        """Return the script's own probe of this ``kind`` among ``callbacks``, or a new probe, and whether it is new."""
        own = next((one for one in callbacks if isinstance(one, kind)), None)
        probe = own if own is not None else self.new_probe(len(self.probes) + 1, new or kind)
        self.probes.append(probe)
        return probe, own is None

    def _end(self, result: Any) -> Any:
        if len(self.probes) >= self.last:
            raise EnoughTrainings
        return result
