"""What one call of a Keras layer or of a function of ``keras.ops`` computes, by the name of its class.

Each rule counts the forward pass and the backward pass of a call. The sizes come from the attributes of the layer and
from the shapes of its tensors, so that the counts are the same on every backend.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from vmselect.describing.tally import (
    SOFTMAX_FLOPS,
    Attention,
    Convolution,
    Recurrence,
    Shape,
    Tally,
    count_elementwise,
    count_normalization,
    size,
)

Layer: TypeAlias = Any
"""A layer of Keras, or an operation of ``keras.ops``."""


@dataclass(frozen=True)
class Edge:
    """A tensor between two operations: its shape, an identifier, and whether it needs a gradient."""

    shape: Shape
    key: Hashable
    wanted: bool = False

    @property
    def size(self) -> int:
        """Number of elements."""
        return size(self.shape)


@dataclass(frozen=True)
class Call:
    """One call of a layer or operation. ``operands`` are all tensors and weights among its arguments, in order."""

    layer: Layer
    inputs: tuple[Edge, ...]
    outputs: tuple[Edge, ...]
    operands: tuple[Shape, ...]
    trained: bool
    """Whether the call uses weights that are trained."""
    named: Mapping[str, Sequence[Edge]] = field(default_factory=dict)
    """Inputs by the names of the arguments of a layer with several inputs, of which some may be masks."""

    @property
    def wanted(self) -> bool:
        """Whether an input needs a gradient."""
        return any(edge.wanted for edge in self.inputs)

    @property
    def backward(self) -> bool:
        """Whether the call has a backward pass."""
        return self.wanted or self.trained

    @property
    def elements(self) -> int:
        """Number of elements of all outputs."""
        return sum(edge.size for edge in self.outputs)

    def save(self, tally: Tally, edges: Iterable[Edge]) -> None:
        """Note that the forward pass keeps ``edges``, if there is a backward pass."""
        for edge in edges:
            if self.backward:
                tally.save(edge.key, edge.size)

    def keep(self, tally: Tally, name: str, elements: float) -> None:
        """Note that the forward pass keeps a tensor inside of the call, if there is a backward pass."""
        if self.backward:
            tally.save((self.outputs[0].key, name), elements)


Rule = Callable[[Call, Tally], None]


def _channels(layer: Layer, shape: Shape) -> tuple[int, int]:
    """Number of positions (times batch size) and of channels of an image or sequence."""
    channels = shape[1] if getattr(layer, "data_format", None) == "channels_first" else shape[-1]
    return size(shape) // channels if channels else 0, channels


def _activate(call: Call, tally: Tally) -> None:
    """Count the activation that a layer applies to its output."""
    name = getattr(getattr(call.layer, "activation", None), "__name__", "linear")
    if name == "linear":
        return
    flops = SOFTMAX_FLOPS if "softmax" in name else 1
    count_elementwise(tally, call.elements, backward=call.backward, flops=flops)
    call.save(tally, call.outputs)
    if name not in ("relu", "relu6", "sigmoid", "tanh", "softmax"):
        call.keep(tally, "activation", call.elements)  # the gradient needs the input of the activation, too


# -- layers with weights -----------------------------------------------------------------------------------------------


def _dense(call: Call, tally: Tally) -> None:
    tensor, units = call.inputs[0], call.layer.units
    features = tensor.shape[-1]
    bias = bool(call.layer.use_bias)
    tally.matrix(tensor.size // features, units, features, wanted=tensor.wanted, trained=call.trained, bias=bias)
    if call.trained:
        call.save(tally, [tensor])
    _activate(call, tally)


def _einsum_dense(call: Call, tally: Tally) -> None:
    layer = call.layer
    m, n, k, b = einsum_sizes(layer.equation, call.inputs[0].shape, tuple(layer.kernel.shape))
    bias = layer.bias is not None
    tally.matrix(m, n, k, b=b, wanted=call.wanted, trained=call.trained, bias=bias)
    if call.trained:
        call.save(tally, call.inputs[:1])
    _activate(call, tally)


def _convolution(call: Call, tally: Tally) -> None:
    layer = call.layer
    transposed = "Transpose" in _rule_name(layer)
    (pixels_in, channels_in), (pixels_out, channels_out) = (
        _channels(layer, call.inputs[0].shape),
        _channels(layer, call.outputs[0].shape),
    )
    groups = int(getattr(layer, "groups", 1) or 1)
    shape = Convolution(pixels_in, pixels_out, channels_in, channels_out, size(layer.kernel_size), groups)
    bias = bool(layer.use_bias)
    shape.count(tally, wanted=call.wanted, trained=call.trained, bias=bias, transposed=transposed)
    if call.trained:
        call.save(tally, call.inputs[:1])
    _activate(call, tally)


def _depthwise(call: Call, tally: Tally) -> None:
    layer = call.layer
    pixels_in, channels_in = _channels(layer, call.inputs[0].shape)
    pixels_out, channels_out = _channels(layer, call.outputs[0].shape)
    shape = Convolution(pixels_in, pixels_out, channels_in, channels_out, size(layer.kernel_size), channels_in)
    shape.count(tally, wanted=call.wanted, trained=call.trained, bias=bool(layer.use_bias))
    if call.trained:
        call.save(tally, call.inputs[:1])
    _activate(call, tally)


def _separable(call: Call, tally: Tally) -> None:
    layer = call.layer
    pixels_in, channels_in = _channels(layer, call.inputs[0].shape)
    pixels_out, channels_out = _channels(layer, call.outputs[0].shape)
    between = channels_in * layer.depth_multiplier
    depthwise = Convolution(pixels_in, pixels_out, channels_in, between, size(layer.kernel_size), channels_in)
    depthwise.count(tally, wanted=call.wanted, trained=call.trained, bias=False)
    pointwise = Convolution(pixels_out, pixels_out, between, channels_out, 1)
    pointwise.count(tally, wanted=call.backward, trained=call.trained, bias=bool(layer.use_bias))
    if call.trained:
        call.save(tally, call.inputs[:1])
        call.keep(tally, "depthwise", pixels_out * between)
    _activate(call, tally)


def _normalization(call: Call, tally: Tally) -> None:
    over_batch = _rule_name(call.layer) == "BatchNormalization"
    if over_batch and not call.layer.trainable:  # then it uses its stored statistics
        count_elementwise(tally, call.elements, backward=call.wanted)
        return
    count_normalization(tally, call.elements, backward=call.backward, over_batch=over_batch)
    call.save(tally, call.inputs[:1])


def _embedding(call: Call, tally: Tally) -> None:
    _count_lookup(call, tally, table=call.layer.input_dim * call.layer.output_dim)


def _count_lookup(call: Call, tally: Tally, *, table: int) -> None:
    tally.move("embed", 2 * call.elements)
    if call.trained:
        # The gradient of an embedding is a table.
        tally.move("embed", table + call.elements, flops=table)
        call.save(tally, call.inputs[:1])


def _take(call: Call, tally: Tally) -> None:
    if call.trained:  # a custom layer looks something up in its weights
        _count_lookup(call, tally, table=size(call.operands[0]))
    else:
        _copy(call, tally)


def _recurrent(call: Call, tally: Tally) -> None:
    _count_cells(call, tally, [call.layer.cell])


def _any_recurrent(call: Call, tally: Tally) -> None:
    cell = call.layer.cell
    _count_cells(call, tally, list(getattr(cell, "cells", [cell])))


def _count_cells(call: Call, tally: Tally, cells: Sequence[Layer], *, direction: str = "forward") -> None:
    batch, steps, features = call.inputs[0].shape
    wanted = call.wanted
    for number, cell in enumerate(cells):
        gates = GATES[_rule_name(cell)]
        Recurrence(steps, batch, features, cell.units, gates).count(tally, wanted=wanted, trained=call.trained)
        # Gates, state and output of every step.
        call.keep(tally, f"{direction} cell {number}", (gates + 2) * steps * batch * cell.units)
        features, wanted = cell.units, call.backward
    if call.trained:
        call.save(tally, call.inputs[:1])


def _bidirectional(call: Call, tally: Tally) -> None:
    for direction in ("forward", "backward"):
        _count_cells(call, tally, [getattr(call.layer, f"{direction}_layer").cell], direction=direction)
    tally.move("copy", 2 * call.elements)
    if call.backward:
        tally.move("copy", 2 * call.elements)


def _convolutional_recurrent(call: Call, tally: Tally) -> None:
    layer = call.layer
    shape = call.inputs[0].shape
    batch, steps = shape[:2]
    _, channels = _channels(layer, (batch * steps, *shape[2:]))
    pixels_in = call.inputs[0].size // channels
    # A step keeps the resolution that its strides leave.
    pixels = pixels_in // (batch * steps)
    for stride in layer.strides:
        pixels = -(-pixels // stride)
    gates, area = 4 * layer.filters, size(layer.kernel_size)
    inputs = Convolution(pixels_in, batch * steps * pixels, channels, gates, area)
    inputs.count(tally, wanted=call.wanted, trained=call.trained, bias=bool(layer.use_bias))
    step = Convolution(batch * pixels, batch * pixels, layer.filters, gates, area)
    for _ in range(steps):
        step.count(tally, wanted=call.backward, trained=call.trained, bias=False)
        count_elementwise(tally, batch * pixels * gates, backward=call.backward)
    call.keep(tally, "steps", 6 * batch * steps * pixels * layer.filters)


def _multi_head_attention(call: Call, tally: Tally) -> None:
    layer = call.layer
    query, value, key = _queries_values_keys(call, "query", "value", "key")
    if _rule_name(layer) == "GroupedQueryAttention":
        heads, groups = layer.num_query_heads, layer.num_key_value_heads
        width = value_width = layer.head_dim
    else:
        heads = groups = layer._num_heads
        width, value_width = layer._key_dim, layer._value_dim
    batch, queries = query.shape[0], size(query.shape[1:-1])
    keys = size(key.shape[1:-1])
    projections = ((query, queries, heads * width), (key, keys, groups * width), (value, keys, groups * value_width))
    for tensor, positions, wide in projections:
        features = tensor.shape[-1]
        bias = bool(getattr(layer, "_use_bias", getattr(layer, "use_bias", True)))
        tally.matrix(batch * positions, wide, features, wanted=tensor.wanted, trained=call.trained, bias=bias)
        # The heads are moved before the positions for the products of the attention.
        for _ in range(2 if call.backward else 1):
            tally.move("copy", 2 * batch * positions * wide)
    attention = Attention(batch, heads, queries, keys, width, value_width)
    dropout = float(getattr(layer, "_dropout", getattr(layer, "dropout", 0)) or 0) > 0
    attention.count(tally, backward=call.backward, dropout=dropout)
    output = call.outputs[0]
    mixed = batch * queries * heads * value_width
    tally.matrix(
        batch * queries, output.shape[-1], heads * value_width, wanted=call.backward, trained=call.trained, bias=bias
    )
    if call.trained:
        call.save(tally, (query, value, key))
    projected = batch * (queries * heads * width + keys * groups * (width + value_width))
    call.keep(tally, "attention", projected + mixed + (2 if dropout else 1) * attention.scores)


def _queries_values_keys(call: Call, *names: str) -> tuple[Edge, Edge, Edge]:
    """The queries, values and keys among the arguments ``names``, which are no masks; keys are values by default."""
    edges = [edge for name in names for edge in call.named.get(name, ())] or [*call.inputs]
    query = edges[0]
    value = edges[1] if len(edges) > 1 else query
    return query, value, edges[2] if len(edges) > 2 else value


def _attention(call: Call, tally: Tally) -> None:
    query, value, key = _queries_values_keys(call, "inputs")
    attention = Attention(query.shape[0], 1, query.shape[1], key.shape[1], query.shape[-1], value.shape[-1])
    if _rule_name(call.layer) == "AdditiveAttention":
        count_elementwise(tally, attention.scores * query.shape[-1], backward=call.backward, inputs=2)
    attention.count(tally, backward=call.backward, dropout=float(getattr(call.layer, "dropout", 0) or 0) > 0)
    call.save(tally, call.inputs)
    call.keep(tally, "attention", attention.scores)


GATES = {"LSTMCell": 4, "GRUCell": 3, "SimpleRNNCell": 1}
"""Number of matrices per unit of a recurrent cell."""


# -- layers and operations without weights -----------------------------------------------------------------------------


def _elementwise(call: Call, tally: Tally) -> None:
    moved = sum(edge.size for edge in call.inputs) + call.elements
    tally.move("elem", moved, flops=call.elements)
    if call.wanted:
        tally.move("elem", moved + sum(edge.size for edge in call.inputs), flops=call.elements)
        call.save(tally, call.inputs)


def _activation(call: Call, tally: Tally) -> None:
    """An activation whose gradient follows from its output, such as ReLU, sigmoid and tanh."""
    count_elementwise(tally, call.elements, backward=call.wanted)
    call.save(tally, call.outputs)


def _activation_layer(call: Call, tally: Tally) -> None:
    _activate(call, tally)


def _softmax(call: Call, tally: Tally) -> None:
    count_elementwise(tally, call.elements, backward=call.wanted, flops=SOFTMAX_FLOPS)
    call.save(tally, call.outputs)


def _sum(call: Call, tally: Tally) -> None:
    """An addition: its gradient is that of its output, without any operation."""
    tally.move("elem", sum(edge.size for edge in call.inputs) + call.elements, flops=call.elements)


def _reduction(call: Call, tally: Tally) -> None:
    moved = sum(edge.size for edge in call.inputs) + call.elements
    for _ in range(2 if call.wanted else 1):
        tally.move("elem", moved, flops=moved)


def _dropout(call: Call, tally: Tally) -> None:
    count_elementwise(tally, call.elements, backward=call.wanted)
    call.keep(tally, "mask", call.elements / 4)  # one byte per element


def _pooling(call: Call, tally: Tally) -> None:
    inputs = sum(edge.size for edge in call.inputs)
    tally.move("pool", inputs + call.elements, flops=call.elements)
    if call.wanted:
        tally.move("pool", 2 * inputs + call.elements, flops=inputs)
        if "Max" in _rule_name(call.layer):
            call.save(tally, (*call.inputs, *call.outputs))


def _copy(call: Call, tally: Tally) -> None:
    moved = sum(edge.size for edge in call.inputs) + call.elements
    if not any(len(edge.shape) == 0 for edge in call.outputs):
        for _ in range(2 if call.wanted else 1):
            tally.move("copy", moved)


def _view(call: Call, tally: Tally) -> None:
    """An operation that only changes how its input is read."""


def _matmul(call: Call, tally: Tally) -> None:
    first, second = call.operands[:2]
    if len(first) < 2 or len(second) < 2:  # a product with a vector
        k = first[-1]
        tally.matrix(size(first) // k, size(second) // k, k, wanted=call.wanted, trained=call.backward)
    elif len(second) == 2:
        tally.matrix(size(first) // first[-1], second[1], first[-1], wanted=call.wanted, trained=call.backward)
    else:
        b = size(call.outputs[0].shape[:-2])
        both = call.backward
        tally.matrix(first[-2], second[-1], first[-1], b=b, wanted=both, trained=both, kind="bmm")
    call.save(tally, call.inputs)


def _einsum(call: Call, tally: Tally) -> None:
    equation = getattr(call.layer, "subscripts", "")
    if len(call.operands) != 2:
        _elementwise(call, tally)
        return
    m, n, k, b = einsum_sizes(equation, *call.operands)
    kind = "bmm" if b > 1 else "mm"
    tally.matrix(m, n, k, b=b, wanted=call.backward, trained=call.backward, kind=kind)  # type: ignore[arg-type]
    call.save(tally, call.inputs)


def _dot(call: Call, tally: Tally) -> None:
    """A contraction of two tensors over one or several axes: the number of additions follows from the sizes."""
    first, second = call.operands[:2]
    batch = first[0] if _rule_name(call.layer) == "Dot" and len(first) > 1 else 1
    output = call.elements
    # The sizes of both inputs together hold the contraction twice and the output once.
    k = max(1, round((size(first) * size(second) / max(1, output) / batch) ** 0.5))
    m = max(1, size(first) // (batch * k))
    tally.matrix(
        m, max(1, output // (batch * m)), k, b=batch, wanted=call.wanted, trained=call.backward,
        kind="bmm" if batch > 1 else "mm",
    )  # fmt: skip
    call.save(tally, call.inputs)


def _convolution_operation(call: Call, tally: Tally) -> None:
    tensor, kernel = call.operands[:2]
    pixels_in, channels_in = _channels(call.layer, tensor)
    pixels_out, channels_out = _channels(call.layer, call.outputs[0].shape)
    groups = channels_in if _rule_name(call.layer) == "DepthwiseConv" else max(1, channels_in // kernel[-2])
    shape = Convolution(pixels_in, pixels_out, channels_in, channels_out, size(kernel[:-2]), groups)
    shape.count(tally, wanted=call.wanted, trained=call.backward, bias=False)
    call.save(tally, call.inputs)


def _scaled_dot_product(call: Call, tally: Tally) -> None:
    query, key, value = call.operands[:3]
    batch, queries, heads, width = query
    attention = Attention(batch, heads, queries, key[1], width, value[-1])
    attention.count(tally, backward=call.backward, dropout=False)
    call.save(tally, call.inputs)
    call.keep(tally, "attention", attention.scores)


def einsum_sizes(equation: str, first: Shape, second: Shape) -> tuple[int, int, int, int]:
    """Sizes (m, n, k, b) of the product that an ``equation`` such as ``abc,cd->abd`` stands for.

    >>> einsum_sizes("abc,cde->abde", (8, 16, 32), (32, 4, 5))
    (128, 20, 32, 1)
    >>> einsum_sizes("...x,xy->...y", (8, 16, 32), (32, 4))
    (128, 4, 32, 1)
    """
    inputs, _, output = equation.replace(" ", "").partition("->")
    left, right = inputs.split(",")
    free = [letter for letter in string.ascii_letters if letter not in equation]
    sizes_by_label: dict[str, int] = {}

    def expand(labels: str, shape: Shape) -> str:
        hidden = "".join(free[: len(shape) - len(labels.replace("...", ""))]) if "..." in labels else ""
        labels = labels.replace("...", hidden)
        sizes_by_label.update(zip(labels, shape, strict=True))
        return labels

    left, right = expand(left, first), expand(right, second)
    hidden = "".join(letter for letter in left if letter in free)
    output = output.replace("...", hidden)
    sizes = {"m": 1, "n": 1, "k": 1, "b": 1}
    for label, count in sizes_by_label.items():
        if label in left and label in right:
            sizes["b" if label in output else "k"] *= count
        else:
            sizes["m" if label in left else "n"] *= count
    return sizes["m"], sizes["n"], sizes["k"], sizes["b"]


# -- tables ------------------------------------------------------------------------------------------------------------

_NAMES: Mapping[Rule, str] = {
    _dense: "Dense",
    _einsum_dense: "EinsumDense",
    _convolution: "Conv1D Conv2D Conv3D Conv1DTranspose Conv2DTranspose Conv3DTranspose",
    _depthwise: "DepthwiseConv1D DepthwiseConv2D",
    _separable: "SeparableConv1D SeparableConv2D",
    _normalization: "BatchNormalization LayerNormalization GroupNormalization RMSNormalization UnitNormalization "
    "RMSNorm LayerNorm",
    _embedding: "Embedding",
    _take: "Take",
    _recurrent: "LSTM GRU SimpleRNN",
    _any_recurrent: "RNN",
    _bidirectional: "Bidirectional",
    _convolutional_recurrent: "ConvLSTM1D ConvLSTM2D ConvLSTM3D",
    _multi_head_attention: "MultiHeadAttention GroupedQueryAttention",
    _attention: "Attention AdditiveAttention",
    _activation: "ReLU Relu Relu6 Sigmoid Tanh LeakyReLU LeakyRelu HardSigmoid HardTanh Exp Sqrt Rsqrt",
    _activation_layer: "Activation",
    _softmax: "Softmax LogSoftmax",
    _sum: "Add Subtract Average",
    _dropout: "Dropout SpatialDropout1D SpatialDropout2D SpatialDropout3D GaussianDropout AlphaDropout GaussianNoise",
    _pooling: "MaxPooling1D MaxPooling2D MaxPooling3D AveragePooling1D AveragePooling2D AveragePooling3D "
    "GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D AdaptiveAveragePooling1D AdaptiveAveragePooling2D "
    "AdaptiveAveragePooling3D AdaptiveMaxPooling1D AdaptiveMaxPooling2D AdaptiveMaxPooling3D MaxPool AveragePool "
    "AdaptiveMaxPool AdaptiveAveragePool",
    _reduction: "GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D Mean Sum Max Min Amax Amin Std "
    "Var Prod Norm Moments Logsumexp All Any",
    _copy: "ZeroPadding1D ZeroPadding2D ZeroPadding3D Cropping1D Cropping2D Cropping3D UpSampling1D UpSampling2D "
    "UpSampling3D Concatenate Permute RepeatVector Transpose Moveaxis Swapaxes Pad Repeat Tile Stack Hstack Vstack "
    "Cast SaturateCast Roll Flip TakeAlongAxis OneHot CategoryEncoding Append Rearrange ExtractPatches Resize",
    _view: "InputLayer Flatten Reshape Identity Masking ActivityRegularization Squeeze ExpandDims Ravel View "
    "StopGradient ConvertToTensor GetItem Slice Split Unstack BroadcastTo Shape Copy",
    _matmul: "Matmul",
    _einsum: "Einsum",
    _dot: "Dot Tensordot Inner Vdot Outer",
    _scaled_dot_product: "DotProductAttention",
    _convolution_operation: "Conv DepthwiseConv",
    _elementwise: "PReLU ELU Multiply Maximum Minimum Rescaling Normalization Resizing CenterCrop RandomFlip "
    "RandomCrop RandomTranslation RandomRotation RandomZoom RandomContrast RandomBrightness RandomHeight RandomWidth "
    "Discretization Hashing",
}

RULES: Mapping[str, Rule] = {name: rule for rule, names in _NAMES.items() for name in names.split()}
"""Rule for each class of Keras, by its name. Other classes of ``keras.ops`` are element-wise operations."""

CHANGES_LOOK_ONLY = frozenset(_NAMES[_view].split()) - {"GetItem", "Slice", "Split", "Unstack", "BroadcastTo", "Copy"}
"""Operations whose output is the memory of their input."""

UNCOUNTED = frozenset(
    {
        "ConvTranspose", "SeparableConv", "Map", "Scan", "AssociativeScan", "WhileLoop", "ForiLoop", "Cond", "Switch",
        "VectorizedMap",
    }
)  # fmt: skip
"""Operations of ``keras.ops`` without a rule that are not element-wise: most of them call functions of the user."""


def find_rule(layer: Layer) -> Rule | None:
    """Rule for the class of ``layer``; None if there is none, or if the user's class replaces what Keras computes."""
    rule = RULES.get(_rule_name(layer))
    if rule is _any_recurrent:
        cell = layer.cell
        has_rule = all(_rule_name(part) in GATES for part in getattr(cell, "cells", [cell]))
        return rule if has_rule else None
    if rule is _bidirectional:
        parts = (layer.forward_layer, layer.backward_layer)
        return rule if all(_rule_name(getattr(part, "cell", None)) in GATES for part in parts) else None
    return rule


def _rule_name(layer: Layer) -> str:
    """Name of the class of Keras that defines how ``layer`` is called."""
    for kind in type(layer).__mro__:
        if kind.__module__.partition(".")[0] == "keras":
            return kind.__name__
        if "call" in vars(kind) or "__call__" in vars(kind):
            break
    return type(layer).__name__ if type(layer).__module__.partition(".")[0] == "keras" else ""
