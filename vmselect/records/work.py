"""Description of a training step: the operations that a model needs, counted from its definition without a GPU.

The step time on a GPU that was never probed is predicted from these counts and from the published figures of the GPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from vmselect.records.base import Count, Part, PositiveCount, Seconds, Text

MAX_OPERATIONS = 5_000
"""Maximum number of rows. Equal operations are one row, so that models of public collections have 20 to 150 rows."""

OperationKind = Literal[
    "conv", "convw", "dwconv", "dwconvw", "mm", "bmm", "rnn", "norm", "elem", "pool", "copy", "embed"
]
"""Class of an operation: convolution and its weight gradient (also depthwise), matrix product, batched matrix product
(attention), a step of a recurrent layer, normalization, element-wise operation, pooling, copy, and embedding lookup."""

PRODUCTS: frozenset[OperationKind] = frozenset({"conv", "convw", "dwconv", "dwconvw", "mm", "bmm", "rnn"})
"""Kinds that multiply an (m x k) by a (k x n) matrix, ``b`` times. In the other kinds, the sizes are 0."""

Method = Literal["layers", "jaxpr", "graph", "meta", "execution", "given"]
"""How operations were counted: by a walk over Keras layers, by abstract tracing in JAX, by a TensorFlow graph,
by torch on its meta device, by executing a copy on the CPU at small batch sizes, or they were given."""

Caveat = Literal["unknown_layers", "custom_step", "compiled", "extrapolated", "data_dependent"]
"""Why a description may be off: layers that could only be counted in part, an overridden training step, a compiled
step, counts extrapolated from small batches, operations whose shapes depend on the data."""

Amount = Annotated[float, Field(ge=0, le=1e24, allow_inf_nan=False)]


class Operation(NamedTuple):
    """``count`` equal operations of a training step. ``flops`` and ``bytes`` (as float32) are those of one of them."""

    kind: OperationKind
    flops: float
    bytes: float
    m: int
    n: int
    k: int
    b: int
    count: int  # type: ignore[assignment]  # hides the method of tuples, which nobody needs here


class Operations(Part):
    """Operations of one training step, forward and backward, as columns."""

    kind: tuple[OperationKind, ...] = Field(default=(), max_length=MAX_OPERATIONS)
    flops: tuple[Amount, ...] = Field(default=(), max_length=MAX_OPERATIONS)
    bytes: tuple[Amount, ...] = Field(default=(), max_length=MAX_OPERATIONS)
    m: tuple[Count, ...] = Field(default=(), max_length=MAX_OPERATIONS)
    n: tuple[Count, ...] = Field(default=(), max_length=MAX_OPERATIONS)
    k: tuple[Count, ...] = Field(default=(), max_length=MAX_OPERATIONS)
    b: tuple[PositiveCount, ...] = Field(default=(), max_length=MAX_OPERATIONS)
    count: tuple[PositiveCount, ...] = Field(default=(), max_length=MAX_OPERATIONS)

    @model_validator(mode="after")
    def _columns_agree(self) -> Operations:
        if len({len(getattr(self, name)) for name in Operation._fields}) != 1:
            raise ValueError(f"the columns {', '.join(Operation._fields)} differ in length")
        return self

    @classmethod
    def of(cls, rows: Iterable[Operation]) -> Operations:
        """Make an object from ``rows``, with equal operations added up.

        >>> row = Operation("mm", 2e6, 3e4, 100, 100, 100, 1, 1)
        >>> Operations.of([row, row]).rows[0].count
        2
        """
        counts: dict[tuple[Any, ...], int] = {}
        for row in rows:
            counts[row[:-1]] = counts.get(row[:-1], 0) + row.count
        columns = zip(*((*row, count) for row, count in counts.items()), strict=True)
        return cls(**dict(zip(Operation._fields, columns, strict=False)))

    @cached_property
    def rows(self) -> tuple[Operation, ...]:
        """The operations as rows."""
        return tuple(Operation(*row) for row in zip(*(getattr(self, name) for name in Operation._fields), strict=True))


class Work(Part):
    """What one training step computes and keeps in memory, as counted from the definition of the model.

    Bytes are those of float32; the precision of the training is part of its environment.
    """

    version: Literal[1] = 1
    batch_size: PositiveCount
    """Examples per step on one GPU that ``operations`` and ``saved_bytes`` hold for."""
    operations: Operations
    parameters: Count
    """Number of trained weights."""
    parameter_tensors: Count
    """Number of tensors of trained weights, without empty ones: an optimizer starts some kernels for each."""
    constants: Count = 0
    """Number of weights that are not trained, such as frozen layers and statistics of normalization."""
    optimizer: Text | None = None
    """Name of the optimizer in lower case, such as ``adam``."""
    saved_bytes: Amount | None = None
    """Bytes that the forward pass keeps for the backward pass (saved activations); None if unknown."""
    method: Method
    unknown_layers: tuple[Text, ...] = Field(default=(), max_length=1_000)
    """Names of layers that could not be counted, or only in part."""
    caveats: tuple[Caveat, ...] = Field(default=(), max_length=20)
    seconds: Seconds | None = None
    """Seconds that the extraction took."""

    @model_validator(mode="after")
    def _tensors_have_elements(self) -> Work:
        # The time of the optimizer grows with its tensors: an absurd number would predict a step of days.
        if self.parameter_tensors > self.parameters:
            raise ValueError(
                f"{self.parameter_tensors:,} tensors cannot hold {self.parameters:,} trained weights; "
                "parameter_tensors counts the tensors of trained weights that have elements, at most parameters"
            )
        return self

    @property
    def product_flops(self) -> float:
        """Floating-point operations of all products of a step."""
        return sum(row.flops * row.count for row in self.operations.rows if row.kind in PRODUCTS)

    @property
    def matrix_share(self) -> float:
        """Share of ``product_flops`` in matrix products that belong neither to convolutions nor to recurrent layers."""
        rows = self.operations.rows
        if any(row.kind == "rnn" for row in rows) or not self.product_flops:
            return 0.0
        return sum(row.flops * row.count for row in rows if row.kind in ("mm", "bmm")) / self.product_flops

    @property
    def moved_bytes(self) -> float:
        """Bytes that all operations of a step read and write."""
        return sum(row.bytes * row.count for row in self.operations.rows)
