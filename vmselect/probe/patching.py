"""Patches for Keras, Lightning, transformers and keras-tuner: every training that they run gets a probe."""

from __future__ import annotations

import functools
import importlib.abc
import inspect
import math
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

MODEL_MODULE = "keras.src.models.model"
"""Where Keras defines the class whose ``fit`` every model calls."""

LIGHTNING_MODULES = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")
"""Where either package of Lightning defines its ``Trainer``."""

TRAINER_MODULE = "transformers.trainer"
"""Where Hugging Face defines its ``Trainer``."""

TUNER_MODULE = "keras_tuner.src.engine.base_tuner"
"""Where keras-tuner decides on the folder of its project."""


class EnoughFits(BaseException):
    """All requested trainings have been measured: the script is ended."""


class Trainings:
    """Every training of this process that a library runs, each with a probe.

    ``new_probe`` creates the probe of a training from its number and the class of the probe. ``beside`` is entered
    while Lightning or transformers trains.
    """

    def __init__(
        self,
        new_probe: Callable[..., Any],
        *,
        last: float = math.inf,
        beside: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self._new_probe = new_probe
        self._last = last
        self._beside = beside
        self.probes: list[Any] = []

    @property
    def any_measured(self) -> bool:
        """Whether a training has ended and left a profile."""
        return any(probe.measured for probe in self.probes)

    def watch(self) -> None:
        """Patch each library, now or when it is imported.

        Nothing is imported here: the script may still choose Keras' backend.
        """
        after_import(MODEL_MODULE, self._wrap_keras)
        after_import(TRAINER_MODULE, self._wrap_hugging_face)
        for name in LIGHTNING_MODULES:
            after_import(name, self._wrap_lightning)

    def _wrap_keras(self, module: Any) -> None:
        fit = module.Model.fit

        @functools.wraps(fit)
        def fit_with_probe(model: Any, *args: Any, **options: Any) -> Any:
            bound = inspect.signature(fit).bind(model, *args, **options)
            bound.arguments["callbacks"] = self._with_probe(bound.arguments.get("callbacks"))
            return self._end(fit(*bound.args, **bound.kwargs))

        module.Model.fit = fit_with_probe

    def _wrap_lightning(self, module: Any) -> None:
        from vmselect.probe.trainers import LightningProbe

        fit = module.Trainer.fit

        @functools.wraps(fit)
        def fit_with_probe(trainer: Any, *args: Any, **options: Any) -> Any:
            probe, is_new = self._choose_probe(trainer.callbacks, LightningProbe)
            if is_new:
                trainer.callbacks.insert(0, probe)
            probe.protect(trainer)  # before its loggers create a folder
            try:
                with self._beside():
                    result = fit(trainer, *args, **options)
            finally:
                if is_new:
                    trainer.callbacks.remove(probe)
            return self._end(result)

        module.Trainer.fit = fit_with_probe

    def _wrap_hugging_face(self, module: Any) -> None:
        from vmselect.probe.trainers import HuggingFaceProbe

        make, train, find_checkpoint = module.Trainer.__init__, module.Trainer.train, module.get_last_checkpoint
        requested: dict[str, str] = {}

        @functools.wraps(make)
        def make_in_scratch(trainer: Any, *args: Any, **options: Any) -> None:
            from vmselect.probe.file_protection import current

            bound = inspect.signature(make).bind(trainer, *args, **options)
            if current is not None:  # the trainer creates its folder when it is constructed
                if bound.arguments.get("args") is None:
                    bound.arguments["args"] = module.TrainingArguments(output_dir="tmp_trainer")
                given = bound.arguments["args"]
                folder, given.output_dir = given.output_dir, current.move(given.output_dir)
                requested.setdefault(given.output_dir, folder)
            make(*bound.args, **bound.kwargs)

        @functools.wraps(find_checkpoint)
        def find_in_requested_folder(folder: str) -> Any:
            found, asked = find_checkpoint(folder), requested.get(folder)
            # What the script saved during the probe takes precedence over older checkpoints.
            if found is None and asked is not None and Path(asked).is_dir():
                found = find_checkpoint(asked)
            return found

        @functools.wraps(train)
        def train_with_probe(trainer: Any, *args: Any, **options: Any) -> Any:
            probe, is_new = self._choose_probe(trainer.callback_handler.callbacks, HuggingFaceProbe)
            if is_new:
                trainer.add_callback(probe)
            probe.begin(trainer.args)
            try:
                with self._beside():
                    result = train(trainer, *args, **options)
            except BaseException as error:
                probe.finish(error)  # the trainer calls no callback when it fails
                raise
            finally:
                if is_new:
                    trainer.remove_callback(probe)
            return self._end(result)

        module.Trainer.__init__, module.Trainer.train = make_in_scratch, train_with_probe
        module.get_last_checkpoint = find_in_requested_folder

    def _choose_probe(self, callbacks: Iterable[Any], kind: type) -> tuple[Any, bool]:
        """The script's own probe among its callbacks, else a new one; whether it is new."""
        own = next((one for one in callbacks if isinstance(one, kind)), None)
        probe = own if own is not None else self._new_probe(len(self.probes) + 1, kind)
        self.probes.append(probe)
        return probe, own is None

    def _end(self, result: Any) -> Any:
        if len(self.probes) >= self._last:
            raise EnoughFits
        return result

    def _with_probe(self, given: Any) -> Any:
        """The callbacks of a fit with a probe among them; one that the script has brought itself is enough."""
        from vmselect.probe.keras_callbacks import KerasProbe

        # The probe comes first, so that it can redirect what other callbacks write during their setup.
        several = list(given) if isinstance(given, (list, tuple)) else [] if given is None else [given]
        own = next((one for one in several if isinstance(one, KerasProbe)), None)
        probe = own if own is not None else self._new_probe(len(self.probes) + 1)
        self.probes.append(probe)
        if own is not None:
            return several
        if hasattr(given, "callbacks") and callable(getattr(given, "append", None)):  # the caller's own CallbackList
            given.append(probe)
            return given
        return [probe, *several]


def redirect_tuners() -> None:
    """Have keras-tuner keep its project in a scratch folder: trials that were cut short are not results."""

    def wrap(module: Any) -> None:
        make = module.BaseTuner.__init__

        @functools.wraps(make)
        def make_in_scratch(*args: Any, **options: Any) -> None:
            from vmselect.probe.file_protection import current

            bound = inspect.signature(make).bind(*args, **options)
            given = bound.arguments
            project = Path(given.get("directory") or ".") / (given.get("project_name") or "untitled_project")
            if current is not None:
                given["directory"] = str(Path(current.move(str(project))).parent)
            make(*bound.args, **bound.kwargs)

        module.BaseTuner.__init__ = make_in_scratch

    after_import(TUNER_MODULE, wrap)


def after_import(name: str, then: Callable[[Any], None]) -> None:
    """Call ``then`` with the module ``name``, now or when it is imported."""
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
        found = (finder.find_spec(fullname, path, target) for finder in sys.meta_path)  # others may wait for it too
        spec = next((spec for spec in found if spec is not None), None)
        if spec and spec.loader:
            load = spec.loader.exec_module

            def load_then_call(module: Any) -> None:
                load(module)
                self._then(module)

            spec.loader.exec_module = load_then_call  # type: ignore[method-assign]
        return spec
