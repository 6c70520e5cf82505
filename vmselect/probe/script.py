"""Runs an unmodified training script with a probe in each of its trainings.

Keras, Lightning and transformers are patched when the script imports them, so that every training with these libraries
gets a probe. A :class:`~vmselect.probe.torch_script.TorchScript` measures trainings in plain torch, a
:class:`~vmselect.probe.tape_script.TapeScript` those with ``tf.GradientTape``.
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
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from vmselect._io import Place
from vmselect.probe import calls, checkpoints, loop
from vmselect.probe.environment import Callback, Model, Trainer, mark_start
from vmselect.probe.gradients import AUTOGRAD_MODULE, JAX_MODULE, Evidence, GaveUp
from vmselect.probe.keras import IterationProbe, KerasProbe
from vmselect.probe.loop import LoopProbe
from vmselect.probe.options import Options
from vmselect.probe.precision_switch import PrecisionSwitches
from vmselect.probe.recording import EnoughTrainings
from vmselect.probe.saves import Save, after_import, end_other_processes, stop_at_saves
from vmselect.probe.tape_script import DATASET_MODULE, FUNCTION_MODULE, ITERATOR_MODULE, TAPE_MODULE, TapeScript
from vmselect.probe.torch_script import (
    GRADIENT_MODULE,
    LOADER_MODULE,
    NETWORK_MODULE,
    OPTIMIZER_MODULE,
    TorchScript,
)
from vmselect.probe.trainers import HuggingFaceProbe, LightningProbe
from vmselect.probe.without_cuda import WithoutCuda

if TYPE_CHECKING:
    from vmselect.records.training import Profile


class Interrupted(BaseException):
    """The script was interrupted by Ctrl-C. This is no KeyboardInterrupt, because typer would handle that."""

    note: str | None = " The record of a training that had begun is incomplete."
    """What is added to the message of the command; None if another command prints the message."""


class ScriptFailed(SystemExit):
    """The script ended with the exception ``error``, whose traceback has been printed."""

    def __init__(self, error: Exception) -> None:
        super().__init__(1)
        self.error = error
        self.began = False
        """Whether a training had begun."""


LIGHTNING_MODULES = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")
FABRIC_MODULES = ("lightning.fabric.fabric", "lightning_fabric.fabric")
AnyProbe: TypeAlias = Any
"""A probe for Keras, Lightning or transformers."""


@dataclass(frozen=True)
class ScriptRun:
    """What a probe has measured in a script."""

    fits: int
    """Number of trainings with Keras, Lightning or transformers that the script has started."""
    measured: int
    """Number of requested trainings that were measured."""
    profiles: Sequence[Profile]
    ended_after: int | None = None
    """Number of trainings after which the probe ended the script by default, so that it may contain further ones."""
    began: bool = False
    """Whether a training began, also one of which too little was seen."""
    gradients: Sequence[str] = ()
    """Functions that computed gradients without a recognized training, each with its place in the script."""
    description_problem: str | None = None
    """Why a training could not be described."""
    gave_up_after: float | None = None
    """Seconds after which the script was ended, because no training was recognized."""
    gave_up_in: str | None = None
    """Where the script was then, if it had imported no framework."""
    precision_on_gpus: str | None = None
    """Mixed precision that the script switches on only where it sees a GPU, and with which it was described."""
    precision_is_unclear: bool = False
    """Whether the script has switched mixed precision off, and it is not known whether it does so with a GPU."""
    without_cuda: bool = False
    """Whether the script placed something on a CUDA device, which this computer lacks, so that it stayed on the CPU."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which trainings of a script are measured, and how."""

    watch: bool = False
    """Whether trainings are measured until they end, instead of being ended early."""
    fits: int | None = None
    """Number of trainings after which the script ends."""
    numbers: Collection[int] = ()
    """Numbers of the trainings to measure, counted from 1; if there are none, all are measured."""
    names: Sequence[str] = ()
    """Names of the measured trainings, in their order."""
    validation_steps: int | None = None
    """Number of batches after which to end the second validation, with Keras."""
    on_start: Callable[..., object] | None = None
    """Function that is called with the recording of each training when it begins."""
    describing_seconds: float | None = None
    """Longest time of the description of each training, before whose first step the script ends if the description does
    not need one; None to measure."""

    def includes(self, number: int) -> bool:
        """Return whether the training with this ``number`` is measured."""
        return not self.numbers or number in self.numbers

    @property
    def last(self) -> float:
        """Number of the training after which the script ends."""
        return self.fits or max(self.numbers, default=math.inf)


def probe_script(
    script: str,
    arguments: Sequence[str],
    target: Place,
    choice: Choice,
    *,
    module: bool,
    at_save: Callable[[Save, ScriptRun], int] | None,
    **options: Any,
) -> ScriptRun:
    """Run ``script``, measure its trainings and write profiles to ``target``. See ``vmselect probe --help``.

    ``at_save`` is called when the script is about to save a model, with the call and what was measured until then. It
    returns the exit code, with which the program then ends. If it is None, saves take place. ``options`` are further
    arguments of the probes, such as ``steps``.
    """
    with ExitStack() as cleanup:
        probes = _Probes(target, choice, cleanup, Path(script).stem, {**options, "protect_files": at_save is not None})
        probes.install()
        if at_save is not None:
            stop_at_saves(lambda save: at_save(save, probes.end_program()))
            cleanup.callback(end_other_processes)
        try:
            _run_script(script, arguments, module=module, on_error=probes.close)
        except EnoughTrainings:
            probes.has_enough = True
        except GaveUp:
            pass
        except ScriptFailed as failed:
            failed.began = probes.count().began
            raise
        except SystemExit as ended:
            if ended.code not in (None, 0):
                raise
        # A training in a thread is measured, too.
        for thread in threading.enumerate():  # the interpreter would also wait for these threads
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        probes.close()
    return probes.count()


class _Probes:
    """The probes of all trainings in a script, whatever library trains."""

    def __init__(self, target: Place, choice: Choice, cleanup: ExitStack, model: str, options: dict[str, Any]) -> None:
        self._target, self._choice, self._cleanup, self._options = target, choice, cleanup, options
        options["stop"] = not choice.watch
        if choice.watch:
            options.pop("steady_seconds", None)
        self._names: list[str] = []
        self._make(max(choice.numbers, default=1), IterationProbe)  # rejects invalid options before the script runs
        self._names += choice.names
        # A probe cannot end a plain torch loop, so by default the script ends after its first training.
        several = choice.fits or choice.numbers or choice.watch
        self._limited = not several
        self._evidence = Evidence(math.inf if choice.watch else options.get("seconds"), self._is_recognized)
        plain = {
            "model": model,
            "names": self._names,
            "chosen": choice.numbers,
            "last": choice.last if several else 1,
            "note_gradients": self._evidence.note,
            **options,
        }
        self._torch, self._tape = TorchScript(target, **plain), TapeScript(target, **plain)
        self._scripts: Sequence[TorchScript] = (self._torch, self._tape)
        for loops in self._scripts:
            self._describe_only(loops)
        if choice.on_start is not None:  # nothing can end a hand-written loop
            for loops in self._scripts:
                loops.on_start = functools.partial(choice.on_start, can_stop=False)
        self._without_cuda = None if choice.describing_seconds is None else WithoutCuda()
        self._switches = None if choice.describing_seconds is None else PrecisionSwitches()
        self._trainings = Trainings(
            self._make, last=choice.last, beside=self._without_loops, without_cuda=self._without_cuda,
            switches=self._switches,
        )  # fmt: skip
        self._loops: list[LoopProbe] = []
        self.has_enough = False

    def install(self) -> None:
        """Measure all trainings of this process from now on, until the ``cleanup`` is closed."""
        self._trainings.patch()
        if self._without_cuda is not None:
            after_import("torch", self._without_cuda.watch_torch)
            self._cleanup.callback(self._without_cuda.close)
        if self._switches is not None:
            after_import("torch", self._switches.watch_torch)
            after_import("transformers.training_args", self._switches.watch_arguments)
            calls.ON_GPUS.append(self._switches.read_context)
            self._cleanup.callback(calls.ON_GPUS.remove, self._switches.read_context)
            self._cleanup.callback(self._switches.close)
        after_import(LOADER_MODULE, self._torch.watch_loader)
        after_import(OPTIMIZER_MODULE, self._torch.watch_optimizer)
        after_import(GRADIENT_MODULE, self._torch.watch_gradients)
        after_import(AUTOGRAD_MODULE, self._torch.watch_autograd)
        after_import(NETWORK_MODULE, self._torch.watch_networks)
        after_import(TAPE_MODULE, self._tape.watch_tape)
        after_import(FUNCTION_MODULE, self._tape.watch_functions)
        after_import(ITERATOR_MODULE, self._tape.watch_iterator)
        after_import(DATASET_MODULE, self._tape.watch_dataset)
        after_import(JAX_MODULE, self._evidence.watch_jax)
        self._evidence.start()
        loop.AROUND.append(self._around_loop)
        self._cleanup.callback(loop.AROUND.remove, self._around_loop)

    def _make(self, number: int, kind: Callable[..., AnyProbe]) -> AnyProbe:
        """Return a new probe of the class ``kind`` for the training with this ``number``."""
        choice, target = self._choice, self._target
        if not choice.includes(number):
            return kind(False, steps=1, validations=0, stop=not choice.watch, verbose=0, sample=None)
        keras_only = {"validation_steps": choice.validation_steps} if kind is IterationProbe else {}
        name = self._names.pop(0) if self._names else None
        made = kind(target, name=name, **self._options, **keras_only)
        made._advises = False
        self._describe_only(made)
        if choice.on_start is not None:
            made.on_start = choice.on_start
        return made

    def _describe_only(self, probe: AnyProbe) -> None:
        """Make ``probe`` describe its training before the first step, if the choice is to describe."""
        if self._choice.describing_seconds is not None:
            probe.describing_seconds, probe.describes_only = self._choice.describing_seconds, True

    @contextmanager
    def _without_loops(self) -> Iterator[None]:
        """Context manager in which hand-written loops are ignored, because another probe measures the training."""
        for script in self._scripts:
            script.ignore_gradients()
        with self._torch.disabled(), self._tape.disabled():
            yield

    @contextmanager
    def _around_loop(self, probe: LoopProbe, own: Options) -> Iterator[None]:
        self._loops.append(probe)
        own.path = own.path or self._target  # the command was asked to write, whatever the script says
        with self._without_loops():
            yield

    def _is_recognized(self) -> bool:
        """Whether any training was recognized until now, also one that is not measured."""
        return bool(self._trainings.probes or self._loops or any(script.updates for script in self._scripts))

    def close(self, error: BaseException | None = None) -> None:
        """Remove the hooks of hand-written loops, and save their profiles. ``error`` may have ended the script."""
        self._evidence.close()
        for script in self._scripts:
            script.close(error)

    def count(self) -> ScriptRun:
        """Return what has been measured until now."""
        fits = self._trainings.probes
        chosen = [probe for number, probe in enumerate(fits, 1) if self._choice.includes(number)]
        profiles = [probe.profile for probe in [*chosen, *self._loops] if probe.measured]
        measured = len(profiles) + sum(script.profiles_kept for script in self._scripts)
        profiles += [script.profile for script in self._scripts if script.measured]
        problems = (probe.description_problem for probe in (*chosen, *self._scripts))
        return ScriptRun(
            len(fits), measured, profiles, ended_after=1 if self.has_enough and self._limited else None,
            description_problem=next(filter(None, problems), None), began=self._is_recognized(),
            gradients=() if self._is_recognized() else tuple(self._evidence.seen),
            gave_up_after=self._evidence.limit if self._evidence.gave_up else None,
            gave_up_in=self._evidence.place,
            precision_on_gpus=self._switches.applied if self._switches else None,
            precision_is_unclear=self._switches.is_unclear if self._switches else False,
            without_cuda=self._without_cuda is not None and self._without_cuda.redirected,
        )  # fmt: skip

    def end_program(self) -> ScriptRun:
        """End all recordings, because the program ends here, and return what has been measured."""
        for probe in (*self._trainings.probes, *self._loops, *self._scripts):
            probe.end_program()
        checkpoints.remove_scratch_folders()
        return self.count()


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
        # The traceback begins with the script, as without the probe: frames of vmselect and runpy are left out.
        inside = error.__traceback__
        while inside and inside.tb_frame.f_code.co_filename != sys.argv[0]:
            inside = inside.tb_next
        sys.excepthook(type(error), error.with_traceback(inside), inside)
        raise (Interrupted if isinstance(error, KeyboardInterrupt) else ScriptFailed(error)) from None


def _allow_formats(arguments: ModuleType) -> None:
    """Let the training ``arguments`` of transformers ask for bf16 and tf32 without a GPU that has them.

    They are refused where the object is made, long before a step computes; a description computes none.
    """
    for name in ("is_torch_bf16_gpu_available", "is_torch_tf32_available"):
        if hasattr(arguments, name):
            setattr(arguments, name, lambda: True)


@dataclass
class Trainings:
    """Adds a probe to every training with Keras, Lightning or transformers in this process.

    ``new_probe`` takes the number of a training and the class of a probe, and creates the probe. The context manager
    ``beside`` is active while one of these libraries trains. The script ends after training number ``last``. If it only
    describes them, which ``without_cuda`` says, trainers may ask for GPUs and number formats that this computer lacks.
    """

    new_probe: Callable[..., AnyProbe]
    last: float
    beside: Callable[[], AbstractContextManager[None]]
    without_cuda: WithoutCuda | None = None
    switches: PrecisionSwitches | None = None
    probes: list[AnyProbe] = field(default_factory=list)

    def patch(self) -> None:
        """Patch each library, now or when the script imports it.

        No library is imported here, because the script may still select the backend of Keras.
        """
        after_import("keras.src.models.model", self._wrap_keras)
        if self.without_cuda is not None:
            after_import("transformers.training_args", _allow_formats)
            for name in (*LIGHTNING_MODULES, *FABRIC_MODULES):
                after_import(name, self.without_cuda.watch_lightning)
        after_import("transformers.trainer", self._wrap_hugging_face)
        for name in LIGHTNING_MODULES:
            after_import(name, self._wrap_lightning)

    def _wrap_keras(self, module: ModuleType) -> None:
        fit = module.Model.fit

        @functools.wraps(fit)
        def fit_with_probe(model: Model, *args: object, **options: object) -> object:
            bound = inspect.signature(fit).bind(model, *args, **options)
            bound.arguments["callbacks"] = self._with_probe(bound.arguments.get("callbacks"))
            if self.without_cuda is not None:  # nothing is trained: no bar of an epoch
                bound.arguments["verbose"] = 0
            with self.beside():
                result = fit(*bound.args, **bound.kwargs)
            return self._end(result)

        module.Model.fit = fit_with_probe

    def _with_probe(self, callbacks: Callback) -> Callback:
        """Return the ``callbacks`` of a Keras training and a probe."""
        several = list(callbacks) if isinstance(callbacks, (list, tuple)) else [] if callbacks is None else [callbacks]
        probe, is_new = self._choose_probe(several, KerasProbe, IterationProbe)
        if not is_new:
            return several
        if hasattr(callbacks, "callbacks") and callable(getattr(callbacks, "append", None)):  # a CallbackList
            callbacks.append(probe)
            return callbacks
        # The probe comes first, so that it can redirect files that other callbacks write during their setup.
        return [probe, *several]

    def _wrap_lightning(self, module: ModuleType) -> None:
        fit = module.Trainer.fit

        @functools.wraps(fit)
        def fit_with_probe(trainer: Trainer, *args: object, **options: object) -> object:
            probe, is_new = self._choose_probe(trainer.callbacks, LightningProbe)
            if self.without_cuda is not None:
                probe.stated_precision = self.without_cuda.precision_of(trainer)
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

    def _wrap_hugging_face(self, module: ModuleType) -> None:
        train = module.Trainer.train

        @functools.wraps(train)
        def train_with_probe(trainer: Trainer, *args: object, **options: object) -> object:
            probe, is_new = self._choose_probe(trainer.callback_handler.callbacks, HuggingFaceProbe)
            if self.switches is not None:
                probe.stated_precision = self.switches.precision_of(trainer.args)
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

    def _choose_probe(
        self, callbacks: Iterable[Callback], kind: type, default_kind: type | None = None
    ) -> tuple[AnyProbe, bool]:
        """Return the script's own probe of this ``kind`` among ``callbacks``, or a new probe, and whether it is new.

        ``default_kind`` is the class of a new probe, if ``kind`` is only a base class.
        """
        own = next((callback for callback in callbacks if isinstance(callback, kind)), None)
        probe = own if own is not None else self.new_probe(len(self.probes) + 1, default_kind or kind)
        self.probes.append(probe)
        return probe, own is None

    def _end(self, result: object) -> object:
        if len(self.probes) >= self.last:
            raise EnoughTrainings
        return result
