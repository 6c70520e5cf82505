"""The trainings of a script that is run unchanged: each gets a probe, whatever library it is made with."""

from __future__ import annotations

import functools
import importlib.abc
import math
import sys
from collections.abc import Callable
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
    """All trainings that were wanted have been measured: the script need not go on."""


class Trainings:
    """Every training of this process that a library runs, each with a probe.

    ``new_probe`` makes one for a training, given its number and the kind of probe; ``beside`` is entered while a
    training runs that uses torch.
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
        """Have every training carry a probe, whenever its library comes to be imported.

        Nothing is imported here: the script may still want to choose Keras' backend.
        """
        after_import(MODEL_MODULE, self._wrap_keras)
        after_import(TRAINER_MODULE, self._wrap_hugging_face)
        for name in LIGHTNING_MODULES:
            after_import(name, self._wrap_lightning)

    def _wrap_keras(self, module: Any) -> None:
        fit = module.Model.fit

        @functools.wraps(fit)
        def fit_with_probe(model: Any, *args: Any, **options: Any) -> Any:
            import inspect

            bound = inspect.signature(fit).bind(model, *args, **options)
            bound.arguments["callbacks"] = self._with_probe(bound.arguments.get("callbacks"))
            return self._end(fit(*bound.args, **bound.kwargs))

        module.Model.fit = fit_with_probe

    def _wrap_lightning(self, module: Any) -> None:
        from vmselect.probe.trainers.lightning import LightningProbe

        fit = module.Trainer.fit

        @functools.wraps(fit)
        def fit_with_probe(trainer: Any, *args: Any, **options: Any) -> Any:
            own = [one for one in trainer.callbacks if isinstance(one, LightningProbe)]
            probe = own[0] if own else self._new_probe(len(self.probes) + 1, LightningProbe)
            self.probes.append(probe)
            if not own:
                trainer.callbacks.insert(0, probe)
            probe.protect(trainer)  # before its loggers begin a folder
            try:
                with self._beside():
                    result = fit(trainer, *args, **options)
            finally:
                if not own:
                    trainer.callbacks.remove(probe)
            return self._end(result)

        module.Trainer.fit = fit_with_probe

    def _wrap_hugging_face(self, module: Any) -> None:
        from vmselect.probe.trainers.hugging_face import HuggingFaceProbe

        make, train, find_checkpoint = module.Trainer.__init__, module.Trainer.train, module.get_last_checkpoint
        asked_for: dict[str, str] = {}

        def own_probe(trainer: Any) -> Any:
            return next((one for one in trainer.callback_handler.callbacks if isinstance(one, HuggingFaceProbe)), None)

        @functools.wraps(make)
        def make_elsewhere(trainer: Any, *args: Any, **options: Any) -> None:
            import inspect

            from vmselect.probe.scratch import current

            bound = inspect.signature(make).bind(trainer, *args, **options)
            if current is not None:  # the folder is made when the trainer is
                if bound.arguments.get("args") is None:
                    bound.arguments["args"] = module.TrainingArguments(output_dir="tmp_trainer")
                given = bound.arguments["args"]
                folder, given.output_dir = given.output_dir, current.move(given.output_dir)
                asked_for.setdefault(given.output_dir, folder)
            make(*bound.args, **bound.kwargs)

        @functools.wraps(find_checkpoint)
        def find_where_asked(folder: str) -> Any:
            found, asked = find_checkpoint(folder), asked_for.get(folder)
            # What the script has saved while it was probed comes before what was there.
            if found is None and asked is not None and Path(asked).is_dir():
                found = find_checkpoint(asked)
            return found

        @functools.wraps(train)
        def train_with_probe(trainer: Any, *args: Any, **options: Any) -> Any:
            own = own_probe(trainer)
            probe = own or self._new_probe(len(self.probes) + 1, HuggingFaceProbe)
            self.probes.append(probe)
            if own is None:
                trainer.add_callback(probe)
            probe.begin(trainer.args)
            try:
                with self._beside():
                    result = train(trainer, *args, **options)
            except BaseException as error:
                probe.finish(error)  # the trainer tells no callback
                raise
            finally:
                if own is None:
                    trainer.remove_callback(probe)
            return self._end(result)

        module.Trainer.__init__, module.Trainer.train = make_elsewhere, train_with_probe
        module.get_last_checkpoint = find_where_asked

    def _end(self, result: Any) -> Any:
        if len(self.probes) >= self._last:
            raise EnoughFits
        return result

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


def redirect_tuners() -> None:
    """Let keras-tuner keep its project in a scratch folder: trials that were cut short are no results."""

    def wrap(module: Any) -> None:
        make = module.BaseTuner.__init__

        @functools.wraps(make)
        def make_elsewhere(*args: Any, **options: Any) -> None:
            import inspect

            from vmselect.probe.scratch import current

            bound = inspect.signature(make).bind(*args, **options)
            given = bound.arguments
            project = Path(given.get("directory") or ".") / (given.get("project_name") or "untitled_project")
            if current is not None:
                given["directory"] = str(Path(current.move(str(project))).parent)
            make(*bound.args, **bound.kwargs)

        module.BaseTuner.__init__ = make_elsewhere

    after_import(TUNER_MODULE, wrap)


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
        found = (finder.find_spec(fullname, path, target) for finder in sys.meta_path)  # others may wait for it too
        spec = next((spec for spec in found if spec is not None), None)
        if spec and spec.loader:
            load = spec.loader.exec_module

            def load_then_call(module: Any) -> None:
                load(module)
                self._then(module)

            spec.loader.exec_module = load_then_call  # type: ignore[method-assign]
        return spec
