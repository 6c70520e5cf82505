"""Counts of operations, and the formulas for the operations that layers consist of.

The conventions are those of the data to which the constants of the prediction were fitted: an operation is a kernel of
an eager framework, bytes are those of float32, and every kernel reads its inputs and writes its outputs once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vmselect.errors import DescriptionError
from vmselect.records.work import Caveat, Method, Operation, OperationKind, Operations, Work

Shape = tuple[int, ...]

WORD = 4
"""Bytes of a number in float32."""
SECONDS = 60.0
"""Longest time of a description."""
NORMALIZATION_FLOPS = 5
SOFTMAX_FLOPS = 5
"""Floating-point operations per element, of normalizations and of softmax."""


@dataclass
class Tally:
    """Operations of a training step and tensors that its forward pass keeps, counted so far."""

    rows: list[Operation] = field(default_factory=list)
    saved: dict[Hashable, float] = field(default_factory=dict)
    """Bytes of each tensor that is kept for the backward pass, by an identifier of the tensor."""
    unknown_layers: list[str] = field(default_factory=list)
    caveats: set[Caveat] = field(default_factory=set)
    methods: set[Method] = field(default_factory=set)
    """How layers were counted that the main method could not count."""

    def product(
        self,
        kind: OperationKind,
        m: int,
        n: int,
        k: int,
        *,
        b: int = 1,
        flops: float = 0,
        size: float = 0,
        count: int = 1,
    ) -> None:
        """Add ``count`` products of (m x k) by (k x n), ``b`` times each. ``size`` is the number of elements moved."""
        moved = size or b * (m * k + k * n + m * n)
        self.rows.append(Operation(kind, flops or 2.0 * m * n * k * b, float(WORD * moved), m, n, k, b, count))

    def move(self, kind: OperationKind, elements: float, *, flops: float = 0, count: int = 1) -> None:
        """Add ``count`` operations that read and write ``elements`` elements in total and are no products."""
        self.rows.append(Operation(kind, float(flops), float(WORD * elements), 0, 0, 0, 1, count))

    def save(self, tensor: Hashable, elements: float) -> None:
        """Note that the forward pass keeps a tensor of ``elements`` elements for the backward pass."""
        self.saved[tensor] = float(WORD * elements)

    def matrix(
        self, m: int, n: int, k: int, *, b: int = 1, wanted: bool, trained: bool, bias: bool = False,
        kind: OperationKind = "mm",
    ) -> None:  # fmt: skip
        """Add a product of (m x k) by (k x n) and its gradients: of the first factor if it is ``wanted``, of the second
        if it is ``trained``, and of a ``bias``, which the product adds."""
        extra = n if bias else 0
        self.product(kind, m, n, k, b=b, size=b * (m * k + k * n + m * n) + extra)
        if wanted:
            self.product(kind, m, k, n, b=b)
        if trained:
            self.product(kind, n, k, m, b=b)
            if bias:
                self.move("elem", m * n + n, flops=n)

    def work(
        self,
        *,
        batch_size: int,
        trained: Sequence[int],
        constants: int,
        optimizer: str | None,
        method: Method,
        seconds: float,
    ) -> Work:
        """The counts as a part of a record. ``trained`` contains the size of each trained tensor."""
        return Work(
            batch_size=batch_size,
            operations=Operations.of(self.rows),
            parameters=sum(trained),
            parameter_tensors=sum(elements > 0 for elements in trained),  # an optimizer skips empty ones
            constants=constants,
            optimizer=optimizer,
            saved_bytes=sum(self.saved.values()),
            method=method,
            unknown_layers=tuple(dict.fromkeys(name[:1_000] for name in self.unknown_layers))[:1_000],
            caveats=tuple(sorted(self.caveats)),
            seconds=seconds,
        )


class OutOfTimeError(DescriptionError):
    """The description took longer than it may."""


def check_time(deadline: float) -> None:
    """Raise an error if the clock reads more than ``deadline``."""
    if time.perf_counter() > deadline:
        raise OutOfTimeError(
            "The description takes too long. Call vmselect.describe outside of the training, where it may take "
            f"{SECONDS:.0f} s, or describe a part of the model."
        )


def size(shape: Iterable[int]) -> int:
    """Number of elements of a tensor."""
    return math.prod(shape)


@dataclass(frozen=True)
class Convolution:
    """A convolution of ``pixels_in`` to ``pixels_out`` positions (both times the batch size) with ``groups`` groups.

    ``area`` is the number of positions of the kernel. A transposed convolution is the input gradient of a convolution
    and exchanges the roles of its forward and backward pass.
    """

    pixels_in: int
    pixels_out: int
    channels_in: int
    channels_out: int
    area: int
    groups: int = 1

    def count(self, tally: Tally, *, wanted: bool, trained: bool, bias: bool, transposed: bool = False) -> None:
        """Add the convolution and its gradients to ``tally``."""
        groups, depthwise = self.groups, self.groups > 1 and self.groups == self.channels_in
        kind: OperationKind = "dwconv" if depthwise else "conv"
        narrow_in, narrow_out = self.channels_in // groups, self.channels_out // groups
        area = self.area
        # A transposed convolution computes one product per position of its input.
        positions = self.pixels_in if transposed else self.pixels_out
        flops = 2.0 * positions * narrow_in * narrow_out * area * groups
        moved = self.pixels_in * self.channels_in + self.pixels_out * self.channels_out
        moved += narrow_in * self.channels_out * area
        forward = (self.pixels_out, narrow_out, narrow_in * area)
        tally.product(kind, *forward, b=groups, flops=flops, size=moved)
        if wanted:
            tally.product(kind, self.pixels_in, narrow_in, narrow_out * area, b=groups, flops=flops, size=moved)
        if trained:
            rows, columns = (narrow_in, narrow_out) if transposed else (narrow_out, narrow_in)
            weight: OperationKind = "dwconvw" if depthwise else "convw"
            tally.product(weight, rows, columns * area, positions, b=groups, flops=flops, size=moved)
            if bias:
                elements = self.pixels_out * self.channels_out
                tally.move("elem", elements, flops=elements)


@dataclass(frozen=True)
class Recurrence:
    """A recurrent layer with ``gates`` matrices per unit (LSTM 4, GRU 3, simple 1) over ``steps`` steps.

    ``projected`` is the number of outputs to which each step projects its units; 0 if the units are the outputs.
    """

    steps: int
    batch: int
    features: int
    units: int
    gates: int
    projected: int = 0

    def count(self, tally: Tally, *, wanted: bool, trained: bool) -> None:
        """Add the layer: the input product over all steps is one product, and each step is one row per direction."""
        wide, moments, state = self.gates * self.units, self.steps * self.batch, self.projected or self.units
        tally.matrix(moments, wide, self.features, wanted=wanted, trained=trained, bias=True)
        # A step also reads and writes the state and the gates.
        moved = self.batch * state + state * wide + self.batch * wide + 2 * wide * self.batch
        flops = 2.0 * self.batch * wide * state
        tally.product("rnn", self.batch, wide, state, flops=flops, size=moved, count=self.steps)
        if wanted or trained:
            tally.product("rnn", self.batch, state, wide, flops=flops, size=moved, count=self.steps)
        if trained:
            tally.product("mm", wide, state, moments)
        if self.projected:
            tally.product("rnn", self.batch, self.projected, self.units, count=self.steps)
            if wanted or trained:
                tally.product("rnn", self.batch, self.units, self.projected, count=self.steps)
            if trained:
                tally.product("mm", self.projected, self.units, moments)


@dataclass(frozen=True)
class Attention:
    """Attention of ``queries`` to ``keys`` positions in ``heads`` heads of ``width`` and ``value_width``."""

    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    value_width: int

    @property
    def scores(self) -> int:
        """Number of attention scores."""
        return self.batch * self.heads * self.queries * self.keys

    def count(self, tally: Tally, *, backward: bool, dropout: bool) -> None:
        """Add the two products, the scaling, the softmax and a ``dropout`` of the scores."""
        b = self.batch * self.heads
        tally.matrix(self.queries, self.keys, self.width, b=b, wanted=backward, trained=backward, kind="bmm")
        tally.matrix(self.queries, self.value_width, self.keys, b=b, wanted=backward, trained=backward, kind="bmm")
        count_elementwise(tally, self.queries * b * self.width, backward=backward)
        tally.move("elem", 2 * self.scores, flops=SOFTMAX_FLOPS * self.scores)
        if backward:
            tally.move("elem", 3 * self.scores, flops=SOFTMAX_FLOPS * self.scores)
        if dropout:
            count_elementwise(tally, self.scores, backward=backward)


def count_elementwise(tally: Tally, elements: float, *, backward: bool, inputs: int = 1, flops: float = 1) -> None:
    """Add an element-wise operation with ``inputs`` inputs and one output of ``elements`` elements each."""
    tally.move("elem", (inputs + 1) * elements, flops=flops * elements)
    if backward:
        tally.move("elem", (2 * inputs + 1) * elements, flops=flops * elements)


def count_normalization(tally: Tally, elements: float, *, backward: bool, over_batch: bool) -> None:
    """Add a normalization. One over the batch reads its input twice: for the statistics and for the result."""
    flops = NORMALIZATION_FLOPS * elements
    tally.move("norm", (3 if over_batch else 2) * elements, flops=flops)
    if backward:
        tally.move("norm", (5 if over_batch else 3) * elements, flops=flops)


def count_inputs(value: Any) -> int | None:
    """Number of examples of a batch, the extent of its first tensor; None if ``value`` contains no tensor."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return int(value.shape[0]) if len(value.shape) else None
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return next((number for part in parts if (number := count_inputs(part))), None)
