"""Run a script as ``python script`` would, and write down how long each of its trainings took.

    python tests/benchmarks/corpus_clock.py OUT.json SCRIPT

The clock knows nothing of vmselect. It stands around ``keras.Model.fit``, Lightning's ``Trainer.fit`` and Hugging
Face's ``Trainer.train``, outermost calls only, and runs from when the library first tells its callbacks of the training
to the return of the call: what comes before, such as the import of a logger's library, is initialization, as imports
are. In a script of plain torch there is no such call: there the time runs from the first pass over a DataLoader, or
without one from the first update of an optimizer, to the end of the script. A script that calls ``probe_loop`` itself
gets one that measures nothing, and the time of its block counts.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import json
import runpy
import sys
import time
from pathlib import Path
from typing import Any

CALLS = {
    "keras.src.models.model": ("Model", "fit"),
    "lightning.pytorch.trainer.trainer": ("Trainer", "fit"),
    "transformers.trainer": ("Trainer", "train"),
}
TOLD = {
    "keras.src.callbacks.callback_list": ("CallbackList", "on_train_begin", None),
    "lightning.pytorch.trainer.call": (None, "_call_callback_hooks", "setup"),
    "transformers.trainer_callback": ("CallbackHandler", "on_train_begin", None),
}
"""Where callbacks are told that a training begins: by a method, or by a function that is given the hook's name."""

LOADER = "torch.utils.data.dataloader"
OPTIMIZER = "torch.optim.optimizer"
LOOP = "vmselect.probe.loop"

taken: list[float] = []
inside: list[str] = []
told: list[float] = []
first_pass: list[float] = []
first_update: list[float] = []


class Clock(importlib.abc.MetaPathFinder):
    """Puts the clock around a module's method as soon as the module has been imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        wraps = {
            LOADER: time_passes,
            OPTIMIZER: time_updates,
            LOOP: time_loops,
            **dict.fromkeys(CALLS, time_calls),
            **dict.fromkeys(TOLD, note_beginning),
        }
        if name not in wraps:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_wrap(module: Any) -> None:
                load(module)
                wraps[name](module)

            spec.loader.exec_module = load_and_wrap
        return spec


def time_calls(module: Any) -> None:
    """Time the outermost calls of a method."""
    owner, method = CALLS[module.__name__]
    call = getattr(getattr(module, owner), method)

    @functools.wraps(call)
    def timed(*arguments: Any, **options: Any) -> Any:
        if inside:
            return call(*arguments, **options)
        inside.append(method)
        told.clear()
        try:
            return call(*arguments, **options)
        finally:
            taken.append(time.perf_counter() - told[0])
            inside.clear()

    setattr(getattr(module, owner), method, timed)


def note_beginning(module: Any) -> None:
    """Note when callbacks are told of a training."""
    owner, method, hook = TOLD[module.__name__]
    place = module if owner is None else getattr(module, owner)
    call = getattr(place, method)

    @functools.wraps(call)
    def noting(*arguments: Any, **options: Any) -> Any:
        if inside and hook in (None, *arguments[1:2]):
            told.append(time.perf_counter())
        return call(*arguments, **options)

    setattr(place, method, noting)


def time_passes(module: Any) -> None:
    """Note when the first pass over data begins."""
    iterate = module.DataLoader.__iter__

    def noting(loader: Any) -> Any:
        if not first_pass:
            first_pass.append(time.perf_counter())
        return iterate(loader)

    module.DataLoader.__iter__ = noting


def time_updates(module: Any) -> None:
    """Note when an optimizer first updates weights."""

    def note(*_: Any) -> None:
        if not first_update:
            first_update.append(time.perf_counter())

    module.register_optimizer_step_post_hook(note)


def time_loops(module: Any) -> None:
    """Replace the probe for loops."""
    module.probe_loop = Through


class Through:
    """A probe for loops that neither measures nor ends anything."""

    finished = False

    def __init__(self, *_: Any, **__: Any) -> None:
        self.epochs, self.steps, self.validation = range, iter, contextlib.nullcontext

    def __enter__(self) -> Through:
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        taken.append(time.perf_counter() - self._began)


def main() -> None:
    """Run the script."""
    out, script = Path(sys.argv[1]).resolve(), sys.argv[2]
    sys.argv = sys.argv[2:]
    sys.path[0] = str(Path(script).resolve().parent)
    sys.meta_path.insert(0, Clock())
    runpy.run_path(script, run_name="__main__")
    if not taken and (first_pass or first_update):
        taken.append(time.perf_counter() - (first_pass or first_update)[0])
    out.write_text(json.dumps(taken), encoding="utf-8")


if __name__ == "__main__":
    main()
