"""One batch of a data set, to describe a model with: of a loader, a data set, or a trainer of Hugging Face.

Nothing is taken out of the data set that a training would miss: examples are read by their index, or only their shapes.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeAlias

from vmselect.errors import DescriptionError

Trainer: TypeAlias = Any
Loader: TypeAlias = Any

DEFAULT_BATCH_SIZE = 32
"""Batch size of Keras' ``fit`` if none is passed."""
COLLATED = 2
"""Examples in the batch that is made of a data set with an index."""
MAX_STAGES = 100
"""Largest number of stages of a pipeline of TensorFlow that are searched."""
REGROUPING = ("unbatch", "rebatch", "flatmap", "interleave", "window", "groupby", "ragged")
"""Words in the names of stages after which an element no longer has the examples of one batch before."""


class Batch(NamedTuple):
    """Inputs to describe a model with, and what a data set states about its size; None if unknown."""

    inputs: Any
    batch_size: int | None = None
    examples: int | None = None


def read_batch(inputs: Any) -> Batch:
    """The batch of ``inputs``, if they are a data set; all others are returned as they are."""
    read = _find_reader(inputs)
    if read is not None:
        return read(inputs)
    if isinstance(inputs, Iterator):
        raise DescriptionError("inputs is an iterator, which a look into it would change. Pass one batch of it.")
    return Batch(inputs)


def is_data_set(inputs: Any) -> bool:
    """Whether ``inputs`` are a loader or a data set of torch, TensorFlow or Keras, and not arrays."""
    return _find_reader(inputs) is not None


def _find_reader(inputs: Any) -> Callable[[Any], Batch] | None:
    torch, tensorflow, keras = (sys.modules.get(name) for name in ("torch", "tensorflow", "keras"))
    if torch is not None and isinstance(inputs, torch.utils.data.DataLoader):
        return _read_loader
    if torch is not None and isinstance(inputs, torch.utils.data.Dataset):
        return _read_torch
    if tensorflow is not None and isinstance(inputs, tensorflow.data.Dataset):
        return _read_tensorflow
    if keras is not None and isinstance(inputs, keras.utils.PyDataset):
        return _read_keras
    return None


def read_trainer(trainer: Trainer) -> Batch:
    """The first examples of the training data of a ``Trainer`` of Hugging Face."""
    with kept_random_states():
        batch = _read_loader(trainer.get_train_dataloader())
    return batch._replace(batch_size=int(trainer.args.per_device_train_batch_size))


def _read_loader(loader: Loader) -> Batch:
    data, torch = loader.dataset, sys.modules["torch"]
    # An iterable data set inherits a method for an index, which raises an error.
    has_index = hasattr(data, "__getitem__") and not isinstance(data, torch.utils.data.IterableDataset)
    if not (has_index and hasattr(data, "__len__")):
        raise DescriptionError(
            f"The data set {type(data).__name__} has no index. Pass one batch: inputs=next(iter(loader))."
        )
    examples = len(data)
    if not examples:
        raise DescriptionError(f"The data set {type(data).__name__} is empty. Pass one with at least one example.")
    with kept_random_states():
        rows = [data[number] for number in range(min(COLLATED, examples))]
        automatic = loader.batch_size is None and loader.batch_sampler is None
        batch = (torch.utils.data.default_collate if automatic else loader.collate_fn)(rows)
    return Batch(batch, loader.batch_size, examples)


def _read_torch(data: Any) -> Batch:
    return _read_loader(sys.modules["torch"].utils.data.DataLoader(data, batch_size=None))._replace(batch_size=None)


def _read_keras(data: Any) -> Batch:
    from vmselect.describing.tally import count_inputs  # loads pydantic, which a probe does not need in its training

    with kept_random_states():
        inputs = _without_targets(data[0])
    # Its length is its number of batches; the last one may be smaller.
    size, batches = count_inputs(inputs), data.num_batches
    return Batch(inputs, size, batches * size if batches and size else None)


def _read_tensorflow(data: Any) -> Batch:
    tensorflow = sys.modules["tensorflow"]
    whole = _without_targets(data.element_spec)
    specs = [spec for spec in tensorflow.nest.flatten(whole) if hasattr(spec, "shape")]
    open_sizes = not specs or any(spec.shape.rank is None or None in spec.shape.as_list()[1:] for spec in specs)
    if open_sizes:
        raise DescriptionError("The data set does not tell the shapes of its elements. Pass one batch of it.")
    # Only an unbatched data set, and one that drops the last batch, state the first extent.
    sizes = {spec.shape.as_list()[0] if spec.shape.rank else None for spec in specs}
    size = (sizes.pop() if len(sizes) == 1 else None) or find_batch_size(data)
    batches = int(data.cardinality())  # negative if the data set is infinite, or its length unknown
    return Batch(whole, size, batches * size if batches > 0 and size else None)


def find_batch_size(data: Any) -> int | None:
    """The batch size of a ``tf.data.Dataset``: that of the last ``batch`` in its pipeline; None if it has none.

    None, too, if a stage after that divides or joins batches.
    """
    return find_batches(data)[0]


def find_batches(data: Any) -> tuple[int | None, int | None]:
    """The batch size of a ``tf.data.Dataset``, as of :func:`find_batch_size`, and the number of examples before it.

    The number is None if there is no ``batch`` in the pipeline, and negative if TensorFlow does not know it.
    """
    for _ in range(MAX_STAGES):
        if any(word in type(data).__name__.lower() for word in REGROUPING):
            break
        with suppress(Exception):  # an attribute that is no part of the interface of TensorFlow
            if (size := int(data._batch_size)) > 0:
                return size, int(data._input_dataset.cardinality())
        data = getattr(data, "_input_dataset", None)
        if data is None:
            break
    return None, None


def _without_targets(element: Any) -> Any:
    """The inputs in an element of a data set, which may also contain targets and weights."""
    return element[0] if isinstance(element, tuple) and 1 <= len(element) <= 3 else element


@contextmanager
def kept_random_states() -> Iterator[None]:
    """Context after which random numbers of Python, numpy and torch continue as before it."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    states = random.getstate(), numpy.random.get_state() if numpy else None, torch.get_rng_state() if torch else None
    try:
        yield
    finally:
        random.setstate(states[0])
        if numpy:
            numpy.random.set_state(states[1])
        if torch:
            torch.set_rng_state(states[2])
