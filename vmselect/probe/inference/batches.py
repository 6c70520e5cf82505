"""What each call is given: inputs cut or taken one by one, each with its number of items and bytes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, NamedTuple

from vmselect.errors import ArgumentError


class Batch(NamedTuple):
    """The input of one call."""

    value: Any
    items: int
    size_bytes: int | None


def cut_batches(inputs: Any, *, batch_size: int | None, calls: int | None = None) -> Iterator[Batch]:
    """The inputs of all calls, in order.

    An array (anything with a shape) is cut along its first axis into batches of ``batch_size``, 1 unless given. Of
    anything else, each element is the input of one call. With ``calls``, inputs that can be read again are repeated
    until there have been so many; a generator ends when it ends.

    >>> [batch.items for batch in cut_batches(["a", "b"], batch_size=32)]
    [32, 32]
    >>> import numpy as np
    >>> [batch.items for batch in cut_batches(np.zeros((70, 2)), batch_size=32)]
    [32, 32, 6]
    """
    if isinstance(inputs, (str, bytes, Mapping)) or not (isinstance(inputs, Iterable) or hasattr(inputs, "shape")):
        raise ArgumentError(
            f"inputs is a {type(inputs).__name__}, of which no call's input can be taken. "
            "Give an array of items, or a list with the input of each call."
        )
    if isinstance(inputs, Sized) and len(inputs) == 0:
        raise ArgumentError("inputs is empty, so there is nothing to call the function with. Give at least one input.")
    shape = getattr(inputs, "shape", None)
    if shape is not None and len(shape) == 0:
        raise ArgumentError("inputs is a single value without an axis of items. Give an array of items.")
    if shape is not None:
        passes: Iterable[Any] = _slices(inputs, int(shape[0]), batch_size or 1, forever=calls is not None)
    elif calls is not None and isinstance(inputs, Sequence):
        passes = itertools.cycle(inputs)
    else:
        passes = inputs
    found = (Batch(value, count_items(value, batch_size), count_bytes(value)) for value in passes)
    return itertools.islice(found, calls)


def count_items(value: Any, batch_size: int | None) -> int:
    """Items in the input of one call: as in its shape, where that is no more than ``batch_size``; else as given."""
    shape = getattr(value, "shape", None)
    seen = int(shape[0]) if shape else None
    if batch_size is None:
        return seen or 1
    return seen if seen is not None and 0 < seen < batch_size else batch_size


def count_bytes(value: Any) -> int | None:
    """Bytes of the input of one call, or None if unknown."""
    size = len(value) if isinstance(value, (bytes, bytearray)) else getattr(value, "nbytes", None)
    return int(size) if isinstance(size, int) and size >= 0 else None


def _slices(array: Any, length: int, size: int, *, forever: bool) -> Iterator[Any]:
    while True:
        for start in range(0, length, size):
            yield array[start : start + size]
        if not forever:
            return
