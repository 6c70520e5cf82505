"""Ends a probed program at its first save of a model, before anything is written.

A model that was trained for a few steps must not replace a good one. Therefore a probe never gets past the first save:
each function in ``SAVES`` ends the program when it is called. It does not raise an exception, because ``except:`` and
``finally:`` in the script would run code that assumes a saved file, such as ``os.replace``.

The functions are replaced when their module is imported, so that the probe itself imports no framework. A program that
the script starts is covered too: while the script runs, ``PYTHONPATH`` begins with a folder that contains a copy of
this file as ``sitecustomize.py``, which every Python process imports at its start. So this file imports nothing but the
standard library. A save in such a process, or in a forked one, is reported to the probed process through a named pipe,
and does not return.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.util
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType, ModuleType

SAVES: dict[str, dict[str, str]] = {
    "torch.serialization": {"save": "torch.save"},
    "torch.jit._serialization": {"save": "torch.jit.save"},
    "torch.jit._script": {"RecursiveScriptModule.save": "ScriptModule.save"},
    "torch.export": {"save": "torch.export.save"},
    "torch.onnx": {"export": "torch.onnx.export"},
    "torch.distributed.checkpoint.state_dict_saver": {
        "save": "torch.distributed.checkpoint.save",
        "async_save": "torch.distributed.checkpoint.async_save",
        "save_state_dict": "torch.distributed.checkpoint.save_state_dict",
    },
    "safetensors": {"serialize_file": "safetensors.serialize_file"},
    "safetensors.torch": {"save_file": "safetensors.torch.save_file", "save_model": "safetensors.torch.save_model"},
    "safetensors.numpy": {"save_file": "safetensors.numpy.save_file"},
    "safetensors.flax": {"save_file": "safetensors.flax.save_file"},
    "safetensors.tensorflow": {"save_file": "safetensors.tensorflow.save_file"},
    "keras.src.models.model": {
        "Model.save": "Model.save",
        "Model.save_weights": "Model.save_weights",
        "Model.export": "Model.export",
    },
    "keras.src.saving.saving_api": {
        "save_model": "keras.saving.save_model",
        "save_weights": "keras.saving.save_weights",
    },
    "keras.src.saving.saving_lib": {
        "save_model": "keras.saving.save_model",
        "save_weights_only": "keras.saving.save_weights",
    },
    "keras.src.export.saved_model": {"ExportArchive.write_out": "ExportArchive.write_out"},
    "tensorflow.python.checkpoint.checkpoint": {
        "Checkpoint.save": "tf.train.Checkpoint.save",
        "Checkpoint.write": "tf.train.Checkpoint.write",
        "CheckpointV1.save": "tf.compat.v1.train.Checkpoint.save",
        "CheckpointV1.write": "tf.compat.v1.train.Checkpoint.write",
    },
    "tensorflow.python.checkpoint.checkpoint_management": {"CheckpointManager.save": "tf.train.CheckpointManager.save"},
    "tensorflow.python.training.saver": {"Saver.save": "tf.compat.v1.train.Saver.save"},
    "tensorflow.python.saved_model.save": {"save": "tf.saved_model.save"},
    "accelerate.accelerator": {
        "Accelerator.save": "Accelerator.save",
        "Accelerator.save_model": "Accelerator.save_model",
        "Accelerator.save_state": "Accelerator.save_state",
    },
    "transformers.modeling_utils": {"PreTrainedModel.save_pretrained": "save_pretrained"},
    "transformers.trainer": {"Trainer.save_model": "Trainer.save_model"},
    "peft.peft_model": {"PeftModel.save_pretrained": "save_pretrained"},
    "lightning.pytorch.trainer.trainer": {"Trainer.save_checkpoint": "Trainer.save_checkpoint"},
    "pytorch_lightning.trainer.trainer": {"Trainer.save_checkpoint": "Trainer.save_checkpoint"},
    "lightning.fabric.fabric": {"Fabric.save": "Fabric.save"},
    "orbax.checkpoint.checkpoint_manager": {"CheckpointManager.save": "orbax CheckpointManager.save"},
    "orbax.checkpoint._src.checkpointers.checkpointer": {"Checkpointer.save": "orbax Checkpointer.save"},
    "orbax.checkpoint._src.checkpointers.async_checkpointer": {"AsyncCheckpointer.save": "orbax Checkpointer.save"},
    "flax.training.checkpoints": {"save_checkpoint": "flax.training.checkpoints.save_checkpoint"},
    # joblib itself uses this function of its submodule for temporary files, so only the public name is replaced.
    "joblib": {"dump": "joblib.dump"},
    # A search would otherwise keep the results of trials that the probe ended, and never repeat these trials.
    "keras_tuner.src.engine.base_tuner": {"BaseTuner.on_trial_end": "the end of a trial of keras-tuner"},
}
"""Maps each module to its functions that save models, and these to the names that messages use."""

for _version in ("orbax.checkpoint.v1", "orbax.checkpoint.experimental.v1"):
    _names = [f"save{content}{how}" for content in ("", "_pytree", "_checkpointables") for how in ("", "_async")]
    SAVES[f"{_version}._src.saving.saving"] = {name: f"{_version}.{name}" for name in _names}
    SAVES[f"{_version}._src.training.checkpointer"] = {
        f"Checkpointer.{name}": f"orbax Checkpointer.{name}" for name in _names
    }

ENDINGS = (".pt", ".pth", ".pth.tar", ".ckpt", ".safetensors", ".keras")
"""Endings of model files. A script that overwrites such a file may open it itself before it calls ``torch.save``."""

SCRATCH = ".vmselect-scratch-"
"""Part of the paths to which a probe redirects checkpoint callbacks. A save to such a path takes place."""

VARIABLE = "VMSELECT_SAVES"
"""Environment variable for the programs that a probed script starts: process ID of the probe, and its named pipe."""

WAIT_SECONDS = 60.0
"""Longest time that a process which reported a save waits for the probe to end, before it ends itself."""


class Save(NamedTuple):
    """A call that would have saved a model."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} ({self.file}, line {self.line})"


class _State:
    """What this process does at a save. There is one program per process, so this is no object of its own."""

    end: Callable[[Save], int] | None = None
    """Function that ends the recordings and returns the exit code; None in a process that the script has started."""
    probe = 0
    """ID of the probed process."""
    folder = ""
    """Folder with the named pipe, which exists as long as the probed process."""
    reports: int | None = None
    """File descriptor of the named pipe, from which the probed process reads."""
    ending: int | None = None
    """Thread that ends the program."""
    lock = threading.Lock()
    here = threading.local()


def stop_at_saves(end: Callable[[Save], int]) -> None:
    """End this program at its first save, from now on: ``end`` is called with the save and returns the exit code.

    ``end`` may be called in any thread.
    """
    folder = tempfile.mkdtemp(prefix="vmselect-saves-")
    shutil.copyfile(__file__, os.path.join(folder, "sitecustomize.py"))
    os.environ[VARIABLE] = f"{os.getpid()}:{folder}"
    others = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = folder + (os.pathsep + others if others else "")
    _State.end, _State.probe, _State.folder = end, os.getpid(), folder
    if hasattr(os, "mkfifo"):
        pipe = os.path.join(folder, "saves")
        os.mkfifo(pipe)
        # Opened for writing too, so that reading waits for the next report instead of returning the end of the file.
        _State.reports = os.open(pipe, os.O_RDWR)
        threading.Thread(target=_listen, args=(_State.reports,), name="vmselect-saves", daemon=True).start()
    _replace_functions()


def _replace_functions() -> None:
    for module, functions in SAVES.items():
        after_import(module, functools.partial(_guard, functions))
    sys.addaudithook(_on_event)


def end_other_processes() -> None:
    """End the processes that the script started and that still run: they could save now. Called after the script."""
    if _State.probe == os.getpid():
        descendants = _find_descendants()
        shutil.rmtree(_State.folder, ignore_errors=True)
        _terminate(descendants)


def _find_descendants() -> list[int]:
    """Return the IDs of all processes that this one has started; a process comes before those that it has started."""
    with contextlib.suppress(Exception):
        import psutil

        return [process.pid for process in psutil.Process().children(recursive=True)]
    return []


def _terminate(processes: Iterable[int]) -> None:
    for process in processes:
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGTERM)


def _listen(reports: int) -> None:
    """Wait for the report of a save by another process, and end this program."""
    _stop(Save(*json.loads(os.read(reports, 4096))))


def _guard(functions: dict[str, str], module: ModuleType) -> None:
    """Replace the ``functions`` of ``module``. A version of the library may not have all of them."""
    for path, shown in functions.items():
        owner, _, name = path.rpartition(".")
        holder = getattr(module, owner, None) if owner else module
        if holder is not None and name in vars(holder):
            setattr(holder, name, _replace(vars(holder)[name], shown))


def _replace(function: Any, shown: str) -> Any:
    library = (function.__module__ or "").partition(".")[0]

    @functools.wraps(function)
    def save(*arguments: object, **options: object) -> Any:
        caller = sys._getframe().f_back  # None in an exit function
        inside = getattr(_State.here, "allowed", False)
        # torch saves to memory in order to pickle a tensor. A caller in torch is not a save by the script, because the
        # functions of torch that save files are replaced, too.
        own = shown == "torch.save" and _package_of(caller) == "torch"
        if not (inside or own or _is_redirected(arguments, options)):
            _remove_empty_file(arguments)
            _stop(Save(shown, *_locate(caller, library)))
        _State.here.allowed = True
        try:
            return function(*arguments, **options)
        finally:
            _State.here.allowed = inside

    return save


def _is_redirected(arguments: tuple[object, ...], options: dict[str, object]) -> bool:
    """Return whether a save writes to a scratch folder of the probe, according to its arguments or its ``self``."""
    values = [*arguments, *options.values(), *(getattr(value, "directory", None) for value in arguments[:1])]
    return any(SCRATCH in os.fspath(value) for value in values if isinstance(value, (str, os.PathLike)))


def _remove_empty_file(arguments: Iterable[Any]) -> None:
    """Remove the file that the script opened for this save, if it is new: a later run would try to load it."""
    for value in arguments:
        name = getattr(value, "name", None)
        if isinstance(name, str) and hasattr(value, "fileno"):
            with contextlib.suppress(OSError, ValueError):
                if not os.fstat(value.fileno()).st_size and os.path.isfile(name):
                    os.unlink(name)


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook: end the program before it truncates an existing model file, to which it will save."""
    if event != "open" or not isinstance(arguments[0], (str, os.PathLike)):
        return
    path, _, flags = arguments
    path = os.fspath(path)
    if (
        isinstance(path, str)
        and path.endswith(ENDINGS)
        and isinstance(flags, int)
        and flags & os.O_TRUNC
        and SCRATCH not in path
        and not getattr(_State.here, "allowed", False)
        and os.path.isfile(path)
    ):
        _stop(Save(f"open({path!r})", *_locate(sys._getframe().f_back, "")))


def _package_of(frame: FrameType | None) -> str:
    return "" if frame is None else str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _locate(frame: FrameType | None, library: str) -> tuple[str, int]:
    """Return file and line of the innermost call outside of ``library``."""
    while frame is not None and _package_of(frame) in (library, "contextlib", "pathlib"):
        frame = frame.f_back
    return ("exit function", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


# -- the end of the program --------------------------------------------------------------------------------------------


def _stop(save: Save) -> NoReturn:
    """End the probed program because of ``save``. In a process that the script started, report the save and wait."""
    if os.getpid() != _State.probe:
        _report(save)
    if _State.ending == threading.get_ident():  # a metric of the user saves while the recordings are ended
        os._exit(2)
    with _State.lock:  # a second thread waits here until the process has ended
        _State.ending = threading.get_ident()
        code = 2
        try:
            code = _State.end(save) if _State.end is not None else 2
        except BaseException:  # noqa: BLE001 - an error of the probe must not let the save happen
            sys.excepthook(*sys.exc_info())
        finally:
            _exit(code)


def _exit(code: int) -> NoReturn:
    """End this process and its descendants, without running any code of the script."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    descendants = _find_descendants()
    shutil.rmtree(_State.folder, ignore_errors=True)
    # Another thread may wait for one of these processes, and must not run between its end and the end of this process.
    sys.setswitchinterval(WAIT_SECONDS)
    _terminate(descendants)  # a shell in "save.py; mv new.pt best.pt" ends before its child, and does not go on
    os._exit(code)


def _report(save: Save) -> NoReturn:
    """Report ``save`` to the probed process, which then ends this process. If it has ended already, end here."""
    pipe = os.path.join(_State.folder, "saves")
    with contextlib.suppress(OSError, AttributeError):
        if _State.reports is not None:  # inherited by a forked process
            os.close(_State.reports)
        handle = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        # A write of up to 4096 bytes is not mixed with that of another process.
        os.write(handle, json.dumps([save.function[:500], save.file[-1000:], save.line]).encode()[:4096])
        waiting = select.poll()
        waiting.register(handle, 0)  # returns when the probed process, the only reader, has ended
        waiting.poll(WAIT_SECONDS * 1000)
    os._exit(2)


def _begin_in_child() -> None:
    """Do in a process that the script started what :func:`stop_at_saves` does in the probed process.

    This module was imported as ``sitecustomize``. If there is another module of this name, it is imported too.
    """
    probe, _, folder = os.environ.get(VARIABLE, "").partition(":")
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    own = sys.modules.pop(__name__)
    try:
        importlib.import_module(__name__)
    except ImportError:
        sys.modules[__name__] = own
    if probe.isdigit() and os.path.isdir(folder):
        _State.probe, _State.folder = int(probe), folder
        _replace_functions()


# -- import hooks ------------------------------------------------------------------------------------------------------


def after_import(name: str, then: Callable[[ModuleType], None]) -> None:
    """Call ``then`` with the module ``name``: now if it has been imported, otherwise when it is imported."""
    if name in sys.modules:
        then(sys.modules[name])
        return
    hook = next((finder for finder in sys.meta_path if isinstance(finder, _ImportHook)), None)
    if hook is None:
        hook = _ImportHook()
        sys.meta_path.insert(0, hook)
    hook.actions.setdefault(name, []).append(then)


class _ImportHook(importlib.abc.MetaPathFinder):
    """Calls the ``actions`` of a module with the module, immediately after its first import."""

    def __init__(self) -> None:
        self.actions: dict[str, list[Callable[[ModuleType], None]]] = {}

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> Any:
        actions = self.actions.pop(fullname, None)
        if actions is None:
            return None
        spec = importlib.util.find_spec(fullname)  # by the other finders, as this one has forgotten the module
        if spec is None or spec.loader is None:
            self.actions[fullname] = actions
            return spec
        load = spec.loader.exec_module

        def load_then_call(module: ModuleType) -> None:
            try:
                load(module)
            except BaseException:
                self.actions[fullname] = actions  # the script may try again
                raise
            for then in actions:
                then(module)

        spec.loader.exec_module = load_then_call  # type: ignore[method-assign]
        return spec


if __name__ == "sitecustomize":
    _begin_in_child()
