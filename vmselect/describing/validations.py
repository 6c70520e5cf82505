"""Size of a validation: what data and their loaders state, without reading them."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sized
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

Loader: TypeAlias = Any


class ValidationSize(NamedTuple):
    """Size of a validation; None if unknown. ``examples`` is exact, as it is compared with a count of a probe."""

    examples: int | None = None
    steps: int | None = None
    """Number of batches."""
    batch_size: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether the data state their size in any way."""
        return self.examples is not None or self.steps is not None

    def limited(self, steps: int | None) -> ValidationSize:
        """The size of a validation that ends after ``steps`` batches at the latest; None for no limit."""
        if steps is None or (self.steps is not None and self.steps <= steps):
            return self
        whole = self.examples is not None and self.batch_size is not None
        return self._replace(steps=steps, examples=steps * self.batch_size if whole and self.batch_size else None)


UNKNOWN_SIZE = ValidationSize()


def measure_validation(data: Any, *, batch_size: int | None = None) -> ValidationSize:
    """Size of the validation ``data``: arrays, a data set or a loader. Nothing is read from a generator.

    ``batch_size`` is that of data which are not divided into batches yet. A length may be code of the user: whatever
    it raises, the size is unknown.
    """
    size = UNKNOWN_SIZE
    with suppress(Exception):
        size = _measure(data, batch_size)
    return size


def add_sizes(sizes: Iterable[ValidationSize]) -> ValidationSize:
    """The size of validations one after the other on several data sets; a size that one leaves open is unknown."""
    parts = list(sizes)
    if len(parts) == 1:
        return parts[0]
    examples, steps = [part.examples for part in parts], [part.steps for part in parts]
    alike = {part.batch_size for part in parts}
    return ValidationSize(
        sum(filter(None, examples)) if parts and None not in examples else None,
        sum(filter(None, steps)) if parts and None not in steps else None,
        alike.pop() if len(alike) == 1 else None,
    )


def _measure(data: Any, batch_size: int | None) -> ValidationSize:
    from vmselect.describing.tally import count_inputs  # on use: a probe that is made must not wait for records

    torch, tensorflow, keras = (sys.modules.get(name) for name in ("torch", "tensorflow", "keras"))
    if torch is not None and isinstance(data, torch.utils.data.DataLoader):
        return _measure_loader(data)
    if tensorflow is not None and isinstance(data, tensorflow.data.Dataset):
        return _measure_tensorflow(data)
    if keras is not None and isinstance(data, keras.utils.PyDataset):
        own, batches = getattr(data, "batch_size", None), data.num_batches
        return ValidationSize(None, _positive(batches), _positive(own))
    examples = count_inputs(data)
    if examples is None and isinstance(data, Sized) and not isinstance(data, list | tuple | Mapping):
        examples = len(data)
    if examples is None:
        return UNKNOWN_SIZE
    return ValidationSize(examples, math.ceil(examples / batch_size) if batch_size else None, batch_size)


def _measure_loader(loader: Loader) -> ValidationSize:
    size = _positive(loader.batch_size or getattr(loader.batch_sampler, "batch_size", None))
    with suppress(TypeError):  # an iterable data set without a length
        batches = len(loader)
        return ValidationSize(_count_whole(len(loader.sampler), size, batches), batches, size)
    return ValidationSize(None, None, size)


def _measure_tensorflow(data: Any) -> ValidationSize:
    from vmselect.describing.inputs import find_batches

    cardinality = int(data.cardinality())  # negative if the data set is infinite, or its length unknown
    batches = cardinality if cardinality >= 0 else None
    size, before = find_batches(data)
    if batches is None or not size:
        return ValidationSize(None, batches, size)
    return ValidationSize(_count_whole(before, size, batches), batches, size)


def _count_whole(examples: int | None, size: int | None, batches: int) -> int | None:
    """How many of the ``examples`` are in the ``batches`` of ``size``; None if other stages changed their number."""
    if examples is None or examples < 0 or not size:
        return None
    if math.ceil(examples / size) == batches:
        return examples
    return batches * size if examples // size == batches else None


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
