"""Measures the trainings in an unmodified TensorFlow script that computes gradients with ``tf.GradientTape``.

Outside of ``tf.function``, each call of ``tape.gradient`` counts as an update. A ``tf.function`` runs the Python code
of its body only when it is traced: a function whose body computes gradients is remembered, and each of its calls counts
as an update. Passes over a ``tf.data.Dataset`` are the epochs, as those over a ``DataLoader`` are in torch, whose rules
(:mod:`vmselect.probe.torch_script`) apply.
"""

from __future__ import annotations

import functools
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from vmselect.describing.inputs import find_batch_size
from vmselect.probe.calls import FirstCalls
from vmselect.probe.environment import Batch, Loader, Model, Tensor, attempt
from vmselect.probe.gradients import ManualUpdates
from vmselect.probe.recording import Recording
from vmselect.probe.torch_script import Iterate, TorchScript, _Pass

TAPE_MODULE = "tensorflow.python.eager.backprop"
FUNCTION_MODULE = "tensorflow.python.eager.polymorphic_function.polymorphic_function"
DATASET_MODULE = "tensorflow.python.data.ops.dataset_ops"
ITERATOR_MODULE = "tensorflow.python.data.ops.iterator_ops"

CURRENT = "_vmselect_pass"
"""Name of the attribute of an iterator with the pass that measures it."""


@dataclass(eq=False, repr=False, kw_only=True)
class TapeScript(TorchScript):
    """Measures trainings with ``tf.GradientTape`` of this process, after its ``watch_`` methods were called."""

    _remedy = "Run a script that trains with tf.GradientTape first."
    _backend = "tensorflow"

    def _reset(self) -> None:
        super()._reset()
        self._updates_of: dict[tuple[int, ...], ManualUpdates] = {}
        """The stand-in for an optimizer of each set of weights, by their ids. A GAN has two."""
        self._trained_by: weakref.WeakKeyDictionary[Any, ManualUpdates] = weakref.WeakKeyDictionary()
        """The weights that each ``tf.function`` with gradients trains."""
        self._traced: list[ManualUpdates] = []
        """Weights of the gradients that were traced since the outermost ``tf.function`` was called."""
        self._function_depth = threading.local()

    def watch_tape(self, module: ModuleType) -> None:
        """Detect every computation of gradients from now on. ``module`` is TensorFlow's ``backprop``."""
        tape = module.GradientTape
        gradient = tape.gradient

        @functools.wraps(gradient)
        def watched(this: object, target: object, sources: object, *arguments: object, **options: object) -> object:
            self._see_first_step()
            result = gradient(this, target, sources, *arguments, **options)
            if not self._disabled:
                self.note_gradients("tf.GradientTape.gradient")
            if not self._disabled and not self._ignores_gradients:
                self._on_tape(_list_variables(sources))
            return result

        tape.gradient = watched
        self._undo.append(lambda: setattr(tape, "gradient", gradient))

    def watch_functions(self, module: ModuleType) -> None:
        """Detect every call of a ``tf.function`` from now on. ``module`` is ``polymorphic_function``."""
        function = module.Function
        call = function.__call__

        @functools.wraps(call)
        def watched(this: object, *arguments: object, **options: object) -> object:
            if (
                self._disabled
                or self._ignores_gradients
                or getattr(self._function_depth, "inside", False)
                or _is_tracing()
            ):
                return call(this, *arguments, **options)
            before = self._first_step_began
            self._see_first_step()
            self._function_depth.inside = True
            self._traced.clear()
            try:
                result = call(this, *arguments, **options)
            finally:
                self._function_depth.inside = False
            if self._traced:
                self._trained_by[this] = self._traced[0]
            trained = self._trained_by.get(this)
            if trained is not None:
                self._on_update(trained)
            elif before is None and not self.updates:
                self._first_step_began = None  # a function that does not train, such as preprocessing
            return result

        function.__call__ = watched
        self._undo.append(lambda: setattr(function, "__call__", call))

    def watch_dataset(self, module: ModuleType) -> None:
        """Detect every pass over a ``tf.data.Dataset`` from now on. ``module`` is ``dataset_ops``."""
        dataset = module.DatasetV2
        iterate = dataset.__iter__

        @functools.wraps(iterate)
        def watched(this: Loader) -> Iterator[Batch]:
            caller = sys._getframe(1).f_globals.get("__name__", "")
            others = self._disabled or _is_tracing() or caller.startswith(("keras.", "tensorflow.", "vmselect."))
            return iterate(this) if others else self._attach_pass(this, iterate)

        dataset.__iter__ = watched
        self._undo.append(lambda: setattr(dataset, "__iter__", iterate))

    def watch_iterator(self, module: ModuleType) -> None:
        """Detect every request for a batch from now on. ``module`` is ``iterator_ops``.

        The iterator stays TensorFlow's own, because a script may pass it to a ``tf.function``.
        """
        iterator = module.OwnedIterator
        following = iterator.__next__

        @functools.wraps(following)
        def watched(this: Any) -> Batch:
            current: _Pass | None = vars(this).get(CURRENT)
            if current is None or _is_tracing():
                return following(this)
            return next(current)

        iterator.__next__ = watched
        self._undo.append(lambda: setattr(iterator, "__next__", following))
        self._following = following

    def _attach_pass(self, dataset: Loader, iterate: Iterate) -> Iterator[Batch]:
        created: list[Iterator[Batch]] = []

        def iterate_weakly(data: Loader) -> Iterator[Batch]:
            created.append(iterate(data))
            return _WeakIterator(created[0], self._following)

        begun = self._begin_pass(dataset, iterate_weakly)
        if isinstance(begun, _Pass):
            setattr(created[0], CURRENT, begun)
        return created[0]

    def _on_tape(self, variables: Sequence[Tensor]) -> None:
        key = tuple(map(id, variables))
        updates = self._updates_of.setdefault(key, ManualUpdates(variables))
        if getattr(self._function_depth, "inside", False) or _is_tracing():
            self._traced.append(updates)
        else:
            self._on_update(updates)

    def _read_state(self) -> tuple[list[Tensor], list[Any]]:
        return [], []  # only torch states the sizes of weights in this form

    def _reads_batches(self) -> bool:
        running = self._running()
        return running is not None and running.batches > 0  # a compiled function may read the batches itself

    def _may_train(self) -> bool:
        return True

    def _describe(self, recording: Recording, weights: Sequence[Tensor], loader: Loader) -> None:
        facts = recording.facts
        facts.describe_torch([(tuple(weight.shape), True) for weight in weights], None, workers=recording.workers)
        facts.steps = attempt(lambda: len(loader)) or None
        facts.counted_batch_size = find_batch_size(loader)
        recording.calls = _LiveModel([tuple(weight.shape) for weight in weights], self._updates_of)


class _LiveModel(FirstCalls):
    """The Keras model in memory that has the trained weights: a loop with a tape does not name it."""

    def __init__(self, shapes: Sequence[tuple[int, ...]], updates: Sized) -> None:
        super().__init__()
        self._shapes, self._updates = list(shapes), updates

    def choose(self, parameters: int | None) -> tuple[Model, Any] | None:
        """The largest model with these weights; None if there is none, or if the loop trains several models."""
        kind = getattr(sys.modules.get("keras"), "Model", None)
        if kind is None or len(self._updates) != 1:
            return None
        models = [thing for thing in gc.get_objects() if issubclass(type(thing), kind) and self._has_weights(thing)]
        return (max(models, key=lambda model: len(list(model._flatten_layers()))), None) if models else None

    def _has_weights(self, model: Model) -> bool:
        return attempt(lambda: [tuple(weight.shape) for weight in model.trainable_weights]) == self._shapes


class _WeakIterator:
    """Requests batches of a TensorFlow iterator without keeping it in memory, as it keeps its pass."""

    def __init__(self, iterator: Iterator[Batch], following: Callable[[Any], Batch]) -> None:
        self._iterator, self._following = weakref.ref(iterator), following

    def __iter__(self) -> _WeakIterator:
        return self

    def __next__(self) -> Batch:
        iterator = self._iterator()
        if iterator is None:
            raise StopIteration
        return self._following(iterator)


def _is_tracing() -> bool:
    """Whether TensorFlow builds a graph now, so that Python code runs once for many steps."""
    tensorflow = sys.modules.get("tensorflow")
    return attempt(lambda: not tensorflow.executing_eagerly()) is True  # type: ignore[union-attr]


def _list_variables(sources: Any) -> list[Tensor]:
    """The tensors in ``sources``, which may be nested lists, tuples and dicts."""
    if isinstance(sources, dict):
        sources = list(sources.values())
    if isinstance(sources, (list, tuple)):
        return [variable for source in sources for variable in _list_variables(source)]
    # A Keras variable contains that of TensorFlow, which is another object each time it is wrapped.
    return [getattr(sources, "value", None) if hasattr(sources, "_value") else sources]
