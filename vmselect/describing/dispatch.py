"""Operations of torch, recorded while tensors without values (on the meta device) pass through a model.

A dispatch mode sees every kernel that eager torch starts, forward and backward, below automatic differentiation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from vmselect.describing.tally import NORMALIZATION_FLOPS, SOFTMAX_FLOPS, WORD, Convolution, Tally, check_time, size
from vmselect.records.work import OperationKind

Tensor: TypeAlias = Any
Arguments: TypeAlias = Sequence[Any]


def _names(*lines: str) -> frozenset[str]:
    return frozenset(name for line in lines for name in line.split())


VIEWS = _names(
    "view _unsafe_view reshape t transpose permute expand unsqueeze squeeze slice select split split_with_sizes unbind",
    "detach alias as_strided view_as lift_fresh _reshape_alias chunk narrow diagonal empty empty_like new_empty",
    "empty_strided new_empty_strided is_same_size resize_ set_ sym_size sym_numel sym_stride unfold real imag",
    "_local_scalar_dense item is_nonzero",
)
"""Operators that start no kernel."""

DATA_TAGS = frozenset({"data_dependent_output", "dynamic_output_shape"})
"""Marks of torch's operators that read values, or whose results have a shape that depends on values."""

NAMED_KINDS: Mapping[OperationKind, frozenset[str]] = {
    "norm": _names(
        "native_batch_norm _native_batch_norm_legit cudnn_batch_norm _batch_norm_with_update native_layer_norm",
        "native_group_norm _fused_rms_norm batch_norm_backward native_batch_norm_backward cudnn_batch_norm_backward",
        "native_layer_norm_backward native_group_norm_backward _fused_rms_norm_backward",
    ),
    "embed": _names("embedding embedding_dense_backward _embedding_bag _embedding_bag_dense_backward"),
    "copy": _names(
        "copy_ clone cat stack constant_pad_nd _to_copy gather index index_select repeat roll flip fill_ zero_ zeros",
        "ones full zeros_like ones_like full_like new_zeros new_ones new_full scalar_tensor arange select_backward",
        "slice_backward index_put_ _index_put_impl_ scatter_ scatter pixel_shuffle contiguous tril triu",
    ),
}
"""Operators by the kind of their kernel; those with ``_pool`` in their names are pools, all others element-wise."""


def record_kernels(tally: Tally, *, deadline: float) -> Any:
    """Context in which every kernel of torch is added to ``tally``, until the clock reads ``deadline``."""
    mode = _mode(
        lambda name, arguments, outputs: count_kernel(tally, name, arguments, outputs),
        lambda: tally.caveats.add("data_dependent"),
    )
    mode.deadline = deadline
    return mode


@contextmanager
def record_products() -> Iterator[list[tuple[OperationKind, int, int, int, int]]]:
    """Context that collects the kind and the sizes (m, n, k, b) of every product of the forward pass."""
    products: list[tuple[OperationKind, int, int, int, int]] = []

    def note(name: str, arguments: Arguments, outputs: Sequence[Tensor]) -> None:
        tally = Tally()
        if name in PRODUCT_OPERATORS:
            PRODUCT_OPERATORS[name](tally, arguments, outputs)
        products.extend((row.kind, row.m, row.n, row.k, row.b) for row in tally.rows)

    with _mode(note):
        yield products


def _mode(
    note: Callable[[str, Arguments, Sequence[Tensor]], None], on_data: Callable[[], object] = lambda: None
) -> Any:
    """A dispatch mode that calls ``note`` with the name, the arguments and the outputs of every operator.

    It calls ``on_data`` if an operator reads values, or if values decide on the shape of a result.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        deadline = math.inf

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            check_time(self.deadline)
            name = func.overloadpacket.__name__
            if name == "_local_scalar_dense" and _asks(args[0]):
                return True
            if name == "_grouped_mm" or (DATA_TAGS & {tag.name for tag in func.tags} and _reads_data(name, args)):
                on_data()
            if name == "_grouped_mm" and args[0].device.type == "meta":
                offsets = args[2] if len(args) > 2 else (kwargs or {})["offs"]
                outputs = _group(args[0], args[1], len(offsets))
            else:
                outputs = func(*args, **(kwargs or {}))
            if name not in VIEWS and not getattr(func, "is_view", False):
                note(name, (*args, *(kwargs or {}).values()), _tensors(outputs))
            return outputs

    return Mode()


def _reads_data(name: str, arguments: Arguments) -> bool:
    """Whether values decide on what a marked operator returns. An index does so only if it is a mask."""
    return name != "index" or any(
        str(tensor.dtype) in ("torch.bool", "torch.uint8") for tensor in _tensors(arguments[1])
    )


def _asks(tensor: Tensor) -> bool:
    """Whether the code asks a question about values that do not exist: is this mask full, is no sequence packed.

    The usual answer is yes.
    """
    return tensor.device.type == "meta" and str(tensor.dtype) == "torch.bool"


def _tensors(values: Any) -> list[Tensor]:
    if isinstance(values, (list, tuple)):
        return [tensor for value in values for tensor in _tensors(value)]
    return [values] if hasattr(values, "numel") and hasattr(values, "dtype") else []


def _elements(tensors: Sequence[Tensor]) -> float:
    """Number of elements, in units of float32. Whole numbers have their own size; all others that of float32."""
    return float(
        sum(
            tensor.numel() * (1.0 if tensor.is_floating_point() else tensor.element_size() / WORD) for tensor in tensors
        )
    )


def count_kernel(tally: Tally, name: str, arguments: Arguments, outputs: Sequence[Tensor]) -> None:
    """Add the operator ``name`` of torch to ``tally``."""
    if name in PRODUCT_OPERATORS:
        PRODUCT_OPERATORS[name](tally, arguments, outputs)
        return
    inputs = _tensors(arguments)
    kind = _kind(name)
    moved = _elements(inputs) + _elements(outputs)
    results = float(sum(tensor.numel() for tensor in outputs))
    if kind == "norm":
        # Statistics and weights are small. A norm over the batch reads its input once more than its operator shows.
        main = max(tensor.numel() for tensor in inputs)
        over_batch = "batch_norm" in name
        reads = (5 if over_batch else 3) if "backward" in name else (3 if over_batch else 2)
        tally.move("norm", reads * main, flops=NORMALIZATION_FLOPS * main)
    elif kind == "embed" and "backward" not in name:
        tally.move("embed", 2 * results)
    elif kind == "embed":
        tally.move("embed", moved, flops=results)
    elif kind == "copy":
        tally.move("copy", moved)
    else:
        tally.move(kind, moved, flops=results * (SOFTMAX_FLOPS if "softmax" in name else 1))


def _kind(name: str) -> OperationKind:
    for kind, names in NAMED_KINDS.items():
        if name in names:
            return kind
    return "pool" if "_pool" in name else "elem"


# -- products ----------------------------------------------------------------------------------------------------------


def _count_mm(tally: Tally, arguments: Arguments, outputs: Sequence[Tensor]) -> None:
    (m, k), n = arguments[0].shape, arguments[1].shape[1]
    tally.product("mm", m, n, k)


def _count_addmm(tally: Tally, arguments: Arguments, outputs: Sequence[Tensor]) -> None:
    bias, first, second = arguments[:3]
    (m, k), n = first.shape, second.shape[1]
    tally.product("mm", m, n, k, size=m * k + k * n + m * n + bias.numel())


def _count_bmm(tally: Tally, arguments: Arguments, outputs: Sequence[Tensor]) -> None:
    first, second = arguments[:2]
    b, m, k = first.shape
    tally.product("bmm", m, second.shape[2], k, b=b)


def _count_baddbmm(tally: Tally, arguments: Arguments, outputs: Sequence[Tensor]) -> None:
    _count_bmm(tally, arguments[1:3], outputs)


def _group(first: Tensor, second: Tensor, groups: int) -> Tensor:
    """Output of a grouped product without values: torch computes its shape for bfloat16 only."""
    if first.dim() == 2 and second.dim() == 2:
        return first.new_empty((groups, first.shape[0], second.shape[1]))
    return first.new_empty((*first.shape[:-1], second.shape[-1]) if first.dim() <= second.dim() else
                           (first.shape[-2], second.shape[-1]))  # fmt: skip


def _count_grouped_mm(tally: Tally, arguments: Arguments, outputs: Sequence[Tensor]) -> None:
    """Products of a mixture of experts. Which expert gets how many rows depends on the data: here, all get the same."""
    first, second = arguments[:2]
    groups = next(tensor.shape[0] for tensor in (first, second, outputs[0]) if tensor.dim() == 3)
    m, k, n = first.shape[-2], first.shape[-1], second.shape[-1]
    if first.dim() == 2 and second.dim() == 2:
        k = -(-k // groups)
    elif first.dim() == 2:
        m = -(-m // groups)
    elif second.dim() == 2:
        n = -(-n // groups)
    tally.product("mm", m, n, k, b=groups)


def _convolution(tensor: Tensor, weight: Tensor, output: Tensor, groups: int, transposed: bool) -> Convolution:
    channels_in, channels_out = tensor.shape[1], output.shape[1]
    pixels_in, pixels_out = tensor.numel() // channels_in, output.numel() // channels_out
    return Convolution(pixels_in, pixels_out, channels_in, channels_out, size(weight.shape[2:]), groups)


def _count_convolution(tally: Tally, arguments: Arguments, outputs: Sequence[Tensor]) -> None:
    tensor, weight, transposed, groups = arguments[0], arguments[1], arguments[6], arguments[8]
    shape = _convolution(tensor, weight, outputs[0], groups, transposed)
    shape.count(tally, wanted=False, trained=False, bias=False, transposed=transposed)


def _count_convolution_backward(tally: Tally, arguments: Arguments, outputs: Sequence[Tensor]) -> None:
    gradient, tensor, weight, transposed, groups = (*arguments[:3], arguments[7], arguments[9])
    wanted, trained, bias = arguments[10]
    part = Tally()
    shape = _convolution(tensor, weight, gradient, groups, transposed)
    shape.count(part, wanted=wanted, trained=trained, bias=bias, transposed=transposed)
    tally.rows += part.rows[1:]  # without the forward pass


PRODUCT_OPERATORS: Mapping[str, Callable[[Tally, Arguments, Sequence[Tensor]], None]] = {
    "mm": _count_mm,
    "addmm": _count_addmm,
    "bmm": _count_bmm,
    "baddbmm": _count_baddbmm,
    "_grouped_mm": _count_grouped_mm,
    "convolution": _count_convolution,
    "convolution_backward": _count_convolution_backward,
}
