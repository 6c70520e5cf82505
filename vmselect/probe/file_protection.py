"""Where files go that a probe must not let be written: scratch folders, in which they can be found again.

What a script saves with its framework's own functions while it is probed is the state after a few steps. It goes to a
scratch folder, so that the time it takes is measured and nothing of the user's is replaced; if the script loads it
again, it gets what it has saved.
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
"""How the name of every scratch folder begins."""


class Function(NamedTuple):
    """A function that takes a path: in which module, of which class, its name and that of the argument."""

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
    Function("transformers.utils.hub", None, "cached_files", "path_or_repo_id"),  # configurations come by this
)  # fmt: skip


def make_scratch_folder(near: Path) -> Path:
    """A new folder on the disk on which ``near`` is or would be, because how fast that is, is part of the time."""
    parent = next((folder for folder in near.absolute().parents if folder.is_dir()), None)
    usual = Path(tempfile.gettempdir())
    elsewhere = parent is not None and parent.stat().st_dev != usual.stat().st_dev and os.access(parent, os.W_OK)
    return Path(tempfile.mkdtemp(prefix=MARK, dir=parent if elsewhere else usual))


class ScratchFolders:
    """Scratch folders that last as long as the probed script does."""

    def __init__(self) -> None:
        self._moved: dict[str, str] = {}
        self._folders: dict[str, Path] = {}
        self._given: list[Path] = []
        self.redirected: dict[str, None] = {}
        """What was redirected by the script's own calls, for people."""

    def watch(self, after_import: Callable[[str, Callable[[Any], None]], None]) -> None:
        """Have what frameworks save go elsewhere from now on, and what they load come from there."""
        for functions, change in ((SAVING, self.move), (LOADING, self.find)):
            for one in functions:
                after_import(one.module, functools.partial(_wrap, one, change))

    def find(self, path: str) -> str:
        """Where a file is that was asked for: in a scratch folder if it was written there."""
        asked = _absolute(path)
        for target, elsewhere in reversed(self._moved.items()):
            if asked == target or asked.startswith(target + os.sep):
                there = elsewhere + asked[len(target) :]
            elif Path(asked).parent == Path(target).parent:
                # Names that hold the number of an epoch are made by who writes them.
                there = str(Path(elsewhere).parent / Path(asked).name)
            else:
                continue
            if Path(there).exists():
                return there
        return path

    def adopt(self, target: str, elsewhere: str, folder: Path) -> None:
        """A probe has redirected ``target`` and needs ``folder`` no more; the script may still."""
        self._moved[_absolute(target)] = elsewhere
        self._given.append(folder)

    def close(self) -> None:
        """Remove all scratch folders."""
        for folder in (*self._folders.values(), *self._given):
            shutil.rmtree(folder, ignore_errors=True)
        self._moved, self._folders, self._given = {}, {}, []

    def move(self, path: str) -> str:
        """Where to write what is meant for ``path``."""
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
"""That of the script which this process probes, if it does."""


@contextmanager
def saved_in_scratch(after_import: Callable[[str, Callable[[Any], None]], None]) -> Iterator[ScratchFolders]:
    """Nothing that this process saves replaces a file, until the block ends."""
    global current
    current = folders = ScratchFolders()
    folders.watch(after_import)
    try:
        yield folders
    finally:
        current = None
        folders.close()


@contextmanager
def note_writes(counts: Callable[[], bool], *, inside: Iterable[Path], but: Path) -> Iterator[dict[str, None]]:
    """Files in the folders ``inside`` that Python code opens for writing during the block while ``counts()`` is true.

    The files stay where they are. Scratch folders and files in ``but`` are not noted.
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
            if MARK not in path and not path.startswith(ours) and path.startswith(folders):
                written[os.path.relpath(path)] = None

    sys.addaudithook(note)  # Python removes no audit hook; this one does nothing after the block
    try:
        yield written
    finally:
        noting = False


class Scratch:
    """Sends what ``writers`` write elsewhere until :meth:`put_back`; each comes with its attribute that says where.

    ``bind`` gives what else a writer must have in order to write to another place.
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
        """What was redirected, for people."""
        try:
            for writer, attribute in writers:
                given = vars(writer).get(attribute)
                target = _read_path(given)
                if given is None:
                    self._unset.append((writer, attribute))  # made from other paths later
                elif target and MARK not in target:
                    self._redirect(writer, target)
        except BaseException:  # such as a full disk
            self.close()
            raise

    def put_back(self) -> None:
        """Give the writers their own paths again, if they are away: for good, or until :meth:`send_away`."""
        if not self._away:  # they may be another's by now
            return
        self._away = False
        for writer, before, _ in self._paths:
            vars(writer).update(before)

    def send_away(self) -> None:
        """Let the writers write elsewhere."""
        self._away = True
        for writer, _, moved in self._paths:
            vars(writer).update(moved)

    def close(self) -> None:
        """Put every path back, and remove what was written."""
        self.put_back()
        for writer, attribute in self._unset:
            if MARK in str(vars(writer).get(attribute)):
                vars(writer)[attribute] = None
        for target, moved, folder in self._folders:
            if current is not None:  # the script may load what it has saved
                current.adopt(target, moved, folder)
            else:
                shutil.rmtree(folder, ignore_errors=True)
        self._paths, self._unset, self._folders = [], [], []

    def _redirect(self, writer: Any, target: str) -> None:
        folder = make_scratch_folder(Path(target))
        there = str(folder / (Path(_absolute(target)).name or "files"))
        self._folders.append((target, there, folder))
        start = target.rstrip("/" + os.sep)
        # Some keep further paths that were made from the first.
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
    # Of a method of the class, the underlying function is replaced, and stays what it was.
    found = vars(owner).get(function.name) if owner is not None else None
    bare = found.__func__ if isinstance(found, classmethod) else found
    if not callable(bare) or function.argument not in inspect.signature(bare).parameters:
        return  # another release of the framework
    parameters = inspect.signature(bare)

    @functools.wraps(bare)
    def elsewhere(*arguments: Any, **options: Any) -> Any:
        if current is None:
            return bare(*arguments, **options)
        bound = parameters.bind(*arguments, **options)
        path = bound.arguments.get(function.argument)
        given = _read_path(path)
        changed = change(given) if given is not None else None
        if changed is not None and changed != given:  # what stays where it is, is passed on as it came
            bound.arguments[function.argument] = _alike(changed, path)
        return bare(*bound.args, **bound.kwargs)

    setattr(owner, function.name, classmethod(elsewhere) if isinstance(found, classmethod) else elsewhere)


def _read_path(value: Any) -> str | None:
    """A path as text, whichever way it was given; None for what is none."""
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    return path if isinstance(path, str) else None


def _alike(path: str, given: Any) -> str | Path:
    """``path`` in the way in which another was given."""
    return Path(path) if isinstance(given, Path) else path


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)  # noqa: PTH100 - must not follow links


# Keras' own saving callbacks, and where each of them writes.


WRITERS = {
    "ModelCheckpoint": "filepath",
    "BackupAndRestore": "backup_dir",
    "CSVLogger": "filename",
    "TensorBoard": "log_dir",
    "OrbaxCheckpoint": "directory",
    "SaveBestEpoch": "filepath",
}
"""Callbacks that write, the last of them keras-tuner's, and the attribute with the path; subclasses write there too."""

_SAVES = tuple(WRITERS[name] for name in ("ModelCheckpoint", "BackupAndRestore", "OrbaxCheckpoint"))


def find_writers(callbacks: Iterable[Any]) -> list[tuple[Any, str]]:
    """Those of the callbacks that write, each with the attribute of the path."""
    return [(callback, attribute) for callback in callbacks if (attribute := _where_written(callback))]


def describe_saving(callbacks: Iterable[Any]) -> tuple[Saving | None, int | None]:
    """When Keras' callbacks save the model, and after how many batches where that is so.

    What a subclass does after an epoch is unknown, so it does not count as saving after each.
    """
    saving = [one for one in callbacks if _where_written(one) in _SAVES]
    by_batches = [one.save_freq for one in saving if _saves_by_batches(one)]
    after_epochs = [one for one in saving if getattr(one, "save_freq", None) == "epoch"]
    freq = min(by_batches, default=None)
    if any(getattr(one, "save_best_only", False) for one in after_epochs):
        return "best", freq
    if any(_is_known(type(one)) for one in after_epochs):
        return "epochs", freq
    return "batches" if by_batches else None, freq


def take_back(callbacks: Iterable[Any]) -> list[Any]:
    """Remove what a TensorBoard before the probe has just begun to write; returns those that must begin again.

    It opens a file of its own in ``set_model``. The name holds the process, and no other is newer.
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
        with suppress(OSError):  # a folder that holds more is the user's
            if own:
                own[-1].unlink()
            Path(folder).rmdir()
            Path(folder).parent.rmdir()
        begun.append(callback)
    return begun


def bind_elsewhere(callback: Any, folder: str) -> dict[str, Any]:
    """What a callback that is bound to its folder from the start must have instead in order to write to ``folder``."""
    base = _find_base(callback)
    if base is None or base.__name__ != "OrbaxCheckpoint":
        return {}
    return {"checkpointer": base(folder, max_to_keep=callback.max_to_keep).checkpointer}


def _where_written(callback: Any) -> str | None:
    base = _find_base(callback)
    return None if base is None else WRITERS[base.__name__]


def _find_base(callback: Any) -> Any:
    """The class of a framework that makes a callback one of those that write; None for others."""
    return next((base for base in type(callback).__mro__ if _is_known(base)), None)


def _is_known(kind: type) -> bool:
    return kind.__name__ in WRITERS and f"{kind.__module__}.".startswith(("keras.", "keras_tuner.", "tf_keras."))


def _saves_by_batches(callback: Any) -> bool:
    freq = getattr(callback, "save_freq", None)
    return isinstance(freq, int) and freq > 0  # False is for saving before the machine is taken away only
