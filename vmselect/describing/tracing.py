"""Products inside of a Keras layer that calls functions of its backend, found by abstract tracing.

Only the forward pass is traced, with shapes instead of arrays: nothing is computed, and no value of the layer is read
or changed. The kernels that a backend would start are not counted: its traces consist of many more operations.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from vmselect.describing.layers import einsum_sizes
from vmselect.describing.tally import Shape, size
from vmselect.records.work import Caveat, Method, OperationKind

Layer: TypeAlias = Any
SymbolicTensor: TypeAlias = Any


class Product(NamedTuple):
    """``times`` products of (m x k) by (k x n), ``b`` times each."""

    kind: OperationKind
    m: int
    n: int
    k: int
    b: int
    times: int


@dataclass
class Trace:
    """Products of a layer, the shapes of its outputs, and what the trace leaves open."""

    method: Method
    products: list[Product] = field(default_factory=list)
    outputs: list[Shape] = field(default_factory=list)
    caveats: set[Caveat] = field(default_factory=lambda: {"unknown_layers"})

    def add(
        self, m: float, n: float, k: float, b: float = 1, *, kind: OperationKind | None = None, count: int = 1
    ) -> None:
        """Add a product. Without a ``kind``, several at once are those of an attention."""
        self.products.append(Product(kind or ("bmm" if b > 1 else "mm"), int(m), int(n), int(k), int(b), count))


def trace_layer(layer: Layer, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Trace | None:
    """Trace a call of ``layer`` with symbolic tensors of Keras; None if that fails."""
    traces = {"jax": _trace_jax, "tensorflow": _trace_tensorflow, "torch": _trace_torch}
    keras = sys.modules["keras"]
    try:
        return traces[keras.backend.backend()](layer, args, kwargs)
    except Exception:  # noqa: BLE001 - code of the user that cannot be traced
        return None


def _call(layer: Layer, values: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any], spots: Any) -> Any:
    """Call ``layer`` with ``values`` in the place of the symbolic tensors ``spots`` of its arguments."""
    tree = sys.modules["keras"].tree
    values_by_spot = {id(spot): value for spot, value in zip(spots, values, strict=True)}
    args, kwargs = (
        tree.map_structure(lambda part: values_by_spot.get(id(part), part), part) for part in (args, dict(kwargs))
    )
    return layer.call(*args, **kwargs)


def _spots(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[SymbolicTensor]:
    keras = sys.modules["keras"]
    flat = keras.tree.flatten((args, dict(kwargs)))
    return list({id(part): part for part in flat if isinstance(part, keras.KerasTensor)}.values())


# -- JAX ---------------------------------------------------------------------------------------------------------------


def _trace_jax(layer: Layer, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Trace:
    jax, keras = sys.modules["jax"], sys.modules["keras"]
    spots, weights = _spots(args, kwargs), [*layer.weights]

    def forward(values: Sequence[Any], arrays: Sequence[Any]) -> Any:
        with keras.StatelessScope(state_mapping=list(zip(weights, arrays, strict=True))):
            return _call(layer, values, args, kwargs, spots)

    def abstract(tensor: Any) -> Any:
        return jax.ShapeDtypeStruct(tuple(tensor.shape), keras.backend.standardize_dtype(tensor.dtype))

    traced = jax.make_jaxpr(forward)([abstract(spot) for spot in spots], [abstract(weight) for weight in weights])
    trace = Trace("jaxpr", outputs=[tuple(shape.shape) for shape in traced.out_avals])
    _count_jaxpr(traced.jaxpr, trace, 1)
    return trace


def _count_jaxpr(jaxpr: Any, trace: Trace, times: int) -> None:
    for equation in jaxpr.eqns:
        name, settings = equation.primitive.name, equation.params
        if name == "dot_general":
            (left, _), (batch, _) = settings["dimension_numbers"]
            first, second = (tuple(value.aval.shape) for value in equation.invars)
            k, b = size(first[axis] for axis in left), size(first[axis] for axis in batch)
            trace.add(size(first) // (k * b), size(second) // (k * b), k, b, count=times)
        elif name == "conv_general_dilated":
            kernel, output = tuple(equation.invars[1].aval.shape), tuple(equation.outvars[0].aval.shape)
            spec = settings["dimension_numbers"]
            channels = output[spec.out_spec[1]]
            k = size(kernel) // max(1, kernel[spec.rhs_spec[0]])
            trace.add(size(output) // channels, channels, k, kind="conv", count=times)
        if name == "while":
            trace.caveats.add("data_dependent")
        repeated = times * int(settings.get("length", 1)) if name == "scan" else times
        for inner in _inner_jaxprs(settings):
            _count_jaxpr(inner, trace, repeated)


def _inner_jaxprs(settings: Mapping[str, Any]) -> Iterator[Any]:
    for value in settings.values():
        for part in value if isinstance(value, (list, tuple)) else (value,):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield inner


# -- TensorFlow --------------------------------------------------------------------------------------------------------


def _trace_tensorflow(layer: Layer, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Trace:
    tensorflow, keras = sys.modules["tensorflow"], sys.modules["keras"]
    spots = _spots(args, kwargs)

    def forward(*values: Any) -> Any:
        with keras.StatelessScope():
            return _call(layer, values, args, kwargs, spots)

    specs = [tensorflow.TensorSpec(tuple(spot.shape), spot.dtype) for spot in spots]
    # A new function: tracing must not fill the cache of a function of the user.
    concrete = tensorflow.function(forward, autograph=False).get_concrete_function(*specs)
    outputs = [tuple(tensor.shape.as_list()) for tensor in tensorflow.nest.flatten(concrete.structured_outputs)]
    trace = Trace("graph", outputs=outputs)
    for operation in concrete.graph.get_operations():
        _count_tensorflow(operation, trace)
    return trace


def _count_tensorflow(operation: Any, trace: Trace) -> None:
    kind = operation.type
    if kind in ("While", "StatelessWhile"):
        trace.caveats.add("data_dependent")
    if kind not in ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "Conv2D", "Conv3D"):
        return
    if len(operation.inputs) != 2:  # an einsum of one tensor, or of several
        return
    first, second = (tuple(tensor.shape.as_list()) for tensor in operation.inputs)
    output = tuple(operation.outputs[0].shape.as_list())
    if kind in ("Conv2D", "Conv3D"):
        channels = output[1] if operation.get_attr("data_format").startswith(b"NC") else output[-1]
        trace.add(size(output) // channels, channels, size(second[:-1]), kind="conv")
    elif kind == "Einsum":
        trace.add(*einsum_sizes(operation.get_attr("equation").decode(), first, second))
    else:
        k = first[-2 if operation.get_attr("transpose_a" if kind == "MatMul" else "adj_x") else -1]
        # If only the first factor is a batch, the product is that of a single matrix.
        b = size(output[:-2]) if size(second[:-2]) > 1 else 1
        trace.add(size(output) // (output[-1] * b), output[-1], k, b)


# -- torch -------------------------------------------------------------------------------------------------------------


def _trace_torch(layer: Layer, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Trace:
    from vmselect.describing.dispatch import record_products

    torch, keras = sys.modules["torch"], sys.modules["keras"]
    spots, weights = _spots(args, kwargs), [*layer.weights]

    def empty(tensor: Any) -> Any:
        dtype = getattr(torch, keras.backend.standardize_dtype(tensor.dtype))
        return torch.empty(tuple(tensor.shape), dtype=dtype, device="meta")

    with keras.device("meta"), torch.no_grad():
        mapping = [(weight, empty(weight)) for weight in weights]
        values = [empty(spot) for spot in spots]
        with keras.StatelessScope(state_mapping=mapping), record_products() as products:
            outputs = keras.tree.flatten(_call(layer, values, args, kwargs, spots))
    trace = Trace("meta", outputs=[tuple(tensor.shape) for tensor in outputs if hasattr(tensor, "shape")])
    for kind, m, n, k, b in products:
        trace.add(m, n, k, b, kind=kind)
    return trace
