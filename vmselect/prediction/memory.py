"""Peak GPU memory of a training step from its description: what no probe on a GPU has measured yet.

    peak = weights + gradients + optimizer state + (saved activations + largest operation) of one example x size

The largest operation stands for the gradients and workspaces that live only for a moment. "Size" is the number of
examples that one GPU gets per step.
"""

from __future__ import annotations

from dataclasses import dataclass

from vmselect.catalog.gpus import read_precision
from vmselect.intervals import Interval
from vmselect.records import Profile
from vmselect.records.work import Work

WORD = 4
"""Bytes of a number in float32, in which the bytes of a description are counted."""

STATE_NUMBERS = {
    "sgd": 0, "none": 0, "momentum": 1, "rmsprop": 1, "adagrad": 1, "adafactor": 1, "lion": 1,
    "adam": 2, "adamw": 2, "adamax": 2, "nadam": 2, "adadelta": 2, "ftrl": 2, "lamb": 2,
}  # fmt: skip
"""Numbers that an optimizer keeps for each trained weight."""
USUAL_STATE = 2
"""Numbers per trained weight, if the optimizer is unknown: those of Adam."""

MOMENTARY = ("elem", "norm", "pool", "copy")
"""Kinds of operations whose inputs and outputs grow with the size."""

FIXED_MARGIN = 0.2
"""Relative half-width of the interval of weights, gradients and optimizer state: a compiled step may free gradients
early, and an optimizer may copy weights."""
GROWING_FACTOR = 1.8
"""Factor of the interval of the part that grows with the size.

Both widths were chosen to contain 24 peaks that XLA plans for a CPU, and that torch tracks on tensors without values,
of dense, convolutional and recurrent networks and transformers (``tests/benchmarks/described_memory.py``). The
estimates have a mean error of 13 % there; the widest are those of recurrent layers and transformers in XLA."""


@dataclass(frozen=True, kw_only=True)
class DescribedMemory:
    """Peak memory in bytes of one GPU: ``fixed``, and ``growing`` bytes for each example.

    >>> DescribedMemory(fixed=1e9, growing=1e7, size=64).peak(100).value
    2000000000.0
    """

    fixed: float
    growing: float
    size: int
    """Examples per GPU of the training that was described."""

    def peak(self, size: int) -> Interval[float]:
        """Return the peak in bytes at ``size``."""
        growing = self.growing * size
        return Interval(
            self.fixed + growing,
            (1 - FIXED_MARGIN) * self.fixed + growing / GROWING_FACTOR,
            (1 + FIXED_MARGIN) * self.fixed + growing * GROWING_FACTOR,
        )


def describe_memory(profile: Profile) -> DescribedMemory | None:
    """Memory of the training of ``profile`` by its description; None if it has none, or one without activations."""
    work = profile.work
    if work is None or work.saved_bytes is None or not work.operations.rows:
        return None
    precision = profile.environment.precision
    half = read_precision(precision) == "half"
    # The largest operation of a step moves its inputs and outputs; a normalization reads its input several times.
    # What a product reads of weights does not grow: products are left out.
    moved = [row.bytes * (0.6 if row.kind == "norm" else 1.0) for row in work.operations.rows if row.kind in MOMENTARY]
    largest = max(moved, default=0.0)
    growing = (work.saved_bytes + largest) * (0.5 if half else 1.0) / work.batch_size
    return DescribedMemory(fixed=fixed_bytes(work, precision)[0], growing=growing, size=work.batch_size)


def fixed_bytes(work: Work, precision: str | None) -> tuple[float, float]:
    """Bytes of weights, optimizer state and gradients, and those without gradients."""
    pure_half = read_precision(precision) == "half" and "mixed" not in (precision or "")
    number = WORD / 2 if pure_half else WORD
    state = STATE_NUMBERS.get(work.optimizer or "", USUAL_STATE)
    kept = number * (work.parameters * (1 + state) + work.constants)
    return kept + number * work.parameters, kept
