"""Redirection of the files of a training that is cut short to scratch folders.

A probed training saves its state after a few steps, which must not replace a file of the user. With a scratch folder,
the time of saving is still measured, and a script can load the file that it has saved.
"""

from __future__ import annotations

import functools
import inspect
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from vmselect.records.training import Saving

MARK = ".vmselect-scratch-"
"""Prefix of the names of all scratch folders."""


class Function(NamedTuple):
    """A function that takes a path: its module, its class, its name, and the name of the path argument."""

    module: str
    owner: str | None
    name: str
    argument: str


SAVING = (
    Function("keras.src.saving.saving_api", None, "save_model", "filepath"),
    Function("keras.src.saving.saving_api", None, "save_weights", "filepath"),
    Function("keras.src.models.model", "Model", "export", "filepath"),
    Function("torch.serialization", None, "save", "f"),
    Function("lightning.pytorch.trainer.trainer", "Trainer", "save_checkpoint", "filepath"),
    Function("pytorch_lightning.trainer.trainer", "Trainer", "save_checkpoint", "filepath"),
    Function("transformers.modeling_utils", "PreTrainedModel", "save_pretrained", "save_directory"),
    Function("transformers.tokenization_utils_base", "PreTrainedTokenizerBase", "save_pretrained", "save_directory"),
    Function("transformers.trainer", "Trainer", "save_model", "output_dir"),
)
LOADING = (
    Function("keras.src.saving.saving_api", None, "load_model", "filepath"),
    Function("keras.src.saving.saving_api", None, "load_weights", "filepath"),
    Function("torch.serialization", None, "load", "f"),
    Function("transformers.modeling_utils", "PreTrainedModel", "from_pretrained", "pretrained_model_name_or_path"),
    Function(
        "transformers.tokenization_utils_base", "PreTrainedTokenizerBase", "from_pretrained",
        "pretrained_model_name_or_path",
    ),
    Function("transformers.utils.hub", None, "cached_files", "path_or_repo_id"),  # loads configurations
)  # fmt: skip


def make_scratch_folder(near: Path) -> Path:
    """Create a scratch folder on the same disk as ``near``, so that saving takes as long as there."""
    parent = next((folder for folder in near.absolute().parents if folder.is_dir()), None)
    usual = Path(tempfile.gettempdir())
    other_disk = parent is not None and parent.stat().st_dev != usual.stat().st_dev and os.access(parent, os.W_OK)
    return Path(tempfile.mkdtemp(prefix=MARK, dir=parent if other_disk else usual))


class ScratchFolders:
    """Scratch folders of a probed script, which exist while the script runs."""

    def __init__(self) -> None:
        self._moved: dict[str, str] = {}
        self._folders: dict[str, Path] = {}
        self._given: list[Path] = []
        self.redirected: dict[str, None] = {}
        """Original paths of redirected files, for messages."""

    def find(self, path: str) -> str:
        """Current path of the file ``path``: in a scratch folder if the file was redirected, else ``path``."""
        asked = _absolute(path)
        for target, elsewhere in reversed(self._moved.items()):
            if asked == target or asked.startswith(target + os.sep):
                there = elsewhere + asked[len(target) :]
            elif Path(asked).parent == Path(target).parent:
                # The writer inserts the epoch number into the file name.
                there = str(Path(elsewhere).parent / Path(asked).name)
            else:
                continue
            if Path(there).exists():
                return there
        return path

    def adopt(self, target: str, elsewhere: str, folder: Path) -> None:
        """Keep the scratch ``folder`` to which a probe redirected ``target``: the script may still load from it."""
        self._moved[_absolute(target)] = elsewhere
        self._given.append(folder)

    def close(self) -> None:
        """Remove all scratch folders."""
        for folder in (*self._folders.values(), *self._given):
            shutil.rmtree(folder, ignore_errors=True)
        self._moved, self._folders, self._given = {}, {}, []

    def move(self, path: str) -> str:
        """Path in a scratch folder to which the file ``path`` is redirected."""
        target = _absolute(path)
        if MARK in target:
            return path
        if target not in self._moved:
            parent = str(Path(target).parent)
            if parent not in self._folders:
                self._folders[parent] = make_scratch_folder(Path(target))
            self._moved[target] = str(self._folders[parent] / Path(target).name)
            self.redirected[path] = None
        return self._moved[target]


current: ScratchFolders | None = None
"""Scratch folders of the script that this process probes, or None."""


@contextmanager
def saved_in_scratch(after_import: Callable[[str, Callable[[Any], None]], None]) -> Iterator[ScratchFolders]:
    """Redirect files that frameworks save in this block to scratch folders, and load them from there."""
    global current
    current = folders = ScratchFolders()
    for functions, change in ((SAVING, folders.move), (LOADING, folders.find)):
        for one in functions:
            after_import(one.module, functools.partial(_wrap, one, change))
    try:
        yield folders
    finally:
        current = None
        folders.close()


@contextmanager
def note_writes(counts: Callable[[], bool], *, inside: Iterable[Path], but: Path) -> Iterator[dict[str, None]]:
    """Yield a growing list of the files in ``inside`` that Python code opens for writing while ``counts()`` is true.

    These files are not redirected. Files in scratch folders and in the folder ``but`` are not listed.
    """
    written: dict[str, None] = {}
    folders, ours = tuple(_absolute(str(folder)) + os.sep for folder in inside), _absolute(str(but))
    noting = True

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not noting:
            return
        file, _, flags = arguments
        if isinstance(file, (str, bytes)) and flags & (os.O_WRONLY | os.O_RDWR) and counts():
            path = _absolute(os.fsdecode(file))
            own = Path(path).name.startswith((".vmselect-", f".{but.name}.draft-"))
            if not own and MARK not in path and not path.startswith(ours) and path.startswith(folders):
                written[os.path.relpath(path)] = None

    sys.addaudithook(note)  # audit hooks cannot be removed; after the block this hook does nothing
    try:
        yield written
    finally:
        noting = False


class Scratch:
    """Redirects the files of ``writers`` to scratch folders until :meth:`put_back`.

    Each writer is given with the name of its attribute that contains the path. ``bind`` returns further attributes
    that a writer needs for a new path.
    """

    def __init__(
        self, writers: Iterable[tuple[Any, str]], bind: Callable[[Any, str], dict[str, Any]] = lambda writer, place: {}
    ) -> None:
        self._bind = bind
        self._folders: list[tuple[str, str, Path]] = []
        self._paths: list[tuple[Any, dict[str, Any], dict[str, Any]]] = []
        self._unset: list[tuple[Any, str]] = []
        self._away = True
        self.redirected: list[str] = []
        """Descriptions of the redirected writers and their paths, for messages."""
        try:
            for writer, attribute in writers:
                given = vars(writer).get(attribute)
                target = _read_path(given)
                if given is None:
                    self._unset.append((writer, attribute))  # derived from other paths later
                elif target and MARK not in target:
                    self._redirect(writer, target)
        except BaseException:  # such as a full disk
            self.close()
            raise

    def put_back(self) -> None:
        """Restore the original paths of the writers, until :meth:`send_away` is called."""
        if not self._away:  # another object may have redirected the writers in the meantime
            return
        self._away = False
        for writer, before, _ in self._paths:
            vars(writer).update(before)

    def send_away(self) -> None:
        """Redirect the files of the writers again."""
        self._away = True
        for writer, _, moved in self._paths:
            vars(writer).update(moved)

    def close(self) -> None:
        """Restore all original paths and remove the scratch folders."""
        self.put_back()
        for writer, attribute in self._unset:
            if MARK in str(vars(writer).get(attribute)):
                vars(writer)[attribute] = None
        for target, moved, folder in self._folders:
            if current is not None:  # the script may load the files that it has saved
                current.adopt(target, moved, folder)
            else:
                shutil.rmtree(folder, ignore_errors=True)
        self._paths, self._unset, self._folders = [], [], []

    def _redirect(self, writer: Any, target: str) -> None:
        folder = make_scratch_folder(Path(target))
        there = str(folder / (Path(_absolute(target)).name or "files"))
        self._folders.append((target, there, folder))
        start = target.rstrip("/" + os.sep)
        # Some writers have further attributes with paths inside this path.
        moved: dict[str, Any] = {
            name: _alike(there + path[len(start) :], value)
            for name, value in vars(writer).items()
            if (path := _read_path(value)) and f"{path}/".startswith((start + "/", start + os.sep))
        }
        moved |= self._bind(writer, there)
        self._paths.append((writer, {name: vars(writer)[name] for name in moved}, moved))
        vars(writer).update(moved)
        self.redirected.append(f"{type(writer).__name__} ({target})")


def _wrap(function: Function, change: Callable[[str], str], module: Any) -> None:
    owner = module if function.owner is None else getattr(module, function.owner, None)
    # The function inside a classmethod is replaced.
    found = vars(owner).get(function.name) if owner is not None else None
    bare = found.__func__ if isinstance(found, classmethod) else found
    if not callable(bare) or function.argument not in inspect.signature(bare).parameters:
        return  # a version of the framework without this argument
    parameters = inspect.signature(bare)

    @functools.wraps(bare)
    def redirected(*arguments: Any, **options: Any) -> Any:
        if current is None:
            return bare(*arguments, **options)
        bound = parameters.bind(*arguments, **options)
        path = bound.arguments.get(function.argument)
        given = _read_path(path)
        changed = change(given) if given is not None else None
        if changed is not None and changed != given:
            bound.arguments[function.argument] = _alike(changed, path)
        return bare(*bound.args, **bound.kwargs)

    setattr(owner, function.name, classmethod(redirected) if isinstance(found, classmethod) else redirected)


def _read_path(value: Any) -> str | None:
    """``value`` as text if it is a path, else None."""
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    return path if isinstance(path, str) else None


def _alike(path: str, given: Any) -> str | Path:
    """``path``, converted to a Path if ``given`` is a Path."""
    return Path(path) if isinstance(given, Path) else path


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)  # noqa: PTH100 - must not follow links


WRITERS = {
    "ModelCheckpoint": "filepath",
    "BackupAndRestore": "backup_dir",
    "CSVLogger": "filename",
    "TensorBoard": "log_dir",
    "OrbaxCheckpoint": "directory",
    "SaveBestEpoch": "filepath",
}
"""Maps callback classes of Keras and keras-tuner that write files, including subclasses, to their path attribute."""

_SAVES = tuple(WRITERS[name] for name in ("ModelCheckpoint", "BackupAndRestore", "OrbaxCheckpoint"))


def find_writers(callbacks: Iterable[Any]) -> list[tuple[Any, str]]:
    """The ``callbacks`` that write files, each with the name of its path attribute."""
    return [(callback, attribute) for callback in callbacks if (attribute := _where_written(callback))]


def describe_saving(callbacks: Iterable[Any]) -> tuple[Saving | None, int | None]:
    """When Keras' callbacks save the model, and every how many batches if they save within epochs.

    A subclass of these callbacks does not count as saving after each epoch, because its behavior is unknown.
    """
    saving = [one for one in callbacks if _where_written(one) in _SAVES]
    frequencies = [getattr(one, "save_freq", None) for one in saving]
    # With save_freq=False, Keras saves only before a preemption.
    by_batches = [freq for freq in frequencies if isinstance(freq, int) and freq > 0]
    after_epochs = [one for one, freq in zip(saving, frequencies, strict=True) if freq == "epoch"]
    freq = min(by_batches, default=None)
    if any(getattr(one, "save_best_only", False) for one in after_epochs):
        return "best", freq
    if any(_is_known(type(one)) for one in after_epochs):
        return "epochs", freq
    return "batches" if by_batches else None, freq


def take_back(callbacks: Iterable[Any]) -> list[Any]:
    """Remove the event file that a TensorBoard callback before the probe has just opened in ``set_model``.

    Returns the callbacks that must open a file again. The event file is the newest whose name contains the ID of this
    process.
    """
    begun = []
    for callback in callbacks:
        writers, folder = vars(callback).get("_writers"), vars(callback).get("_train_dir")
        if not writers or not folder or _where_written(callback) != WRITERS["TensorBoard"]:
            continue
        for writer in writers.values():
            writer.close()
        own = sorted(
            Path(folder).glob(f"events.out.tfevents.*.{os.getpid()}.*"), key=lambda file: file.stat().st_mtime_ns
        )
        with suppress(OSError):  # a folder with other files remains
            if own:
                own[-1].unlink()
            Path(folder).rmdir()
            Path(folder).parent.rmdir()
        begun.append(callback)
    return begun


def bind_elsewhere(callback: Any, folder: str) -> dict[str, Any]:
    """Attributes that make ``callback`` write to ``folder``, if changing its path attribute is not enough."""
    base = _find_base(callback)
    if base is None or base.__name__ != "OrbaxCheckpoint":
        return {}
    return {"checkpointer": base(folder, max_to_keep=callback.max_to_keep).checkpointer}


def _where_written(callback: Any) -> str | None:
    base = _find_base(callback)
    return None if base is None else WRITERS[base.__name__]


def _find_base(callback: Any) -> Any:
    """Base class of ``callback`` in ``WRITERS``, which writes files; None if there is none."""
    return next((base for base in type(callback).__mro__ if _is_known(base)), None)


def _is_known(kind: type) -> bool:
    return kind.__name__ in WRITERS and f"{kind.__module__}.".startswith(("keras.", "keras_tuner.", "tf_keras."))
