"""Counts the operations of a torch module: forward and backward of a copy without values, on the meta device.

If the code reads values, which a tensor on the meta device has not, the trace is repeated without an attention mask,
and then on the CPU with two and with three examples, from which the counts of a batch are extrapolated.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from vmselect.describing.dispatch import record_kernels
from vmselect.describing.huggingface import steady
from vmselect.describing.inputs import kept_random_states
from vmselect.describing.tally import SECONDS, WORD, OutOfTimeError, Recurrence, Tally, count_inputs
from vmselect.errors import DescriptionError
from vmselect.records.work import Caveat, Method, Operation, Work

Module: TypeAlias = Any
Tensor: TypeAlias = Any

MAX_BYTES = 4 * 1024**3
"""Largest size of weights of which a copy with values is made, if the meta device does not suffice."""
EXAMPLES = (2, 3)
"""Numbers of examples from which the counts of a batch are extrapolated. A batch of one is special to some models: a
normalization over the batch refuses it."""
WHOLE_NUMBERS = ("ids", "mask", "labels", "positions")
"""Ends of names of arguments of Hugging Face models that contain whole numbers."""


def describe_module(
    module: Module, *, batch_size: int, inputs: Any = None, optimizer: str | None = None, seconds: float = SECONDS
) -> Work:
    """Count the operations of one training step of a torch ``module``.

    ``inputs`` are the arguments of its ``forward``, as tensors, or as shapes without the batch size: a dict for named
    arguments, a list or tuple for several. The module is not changed.
    """
    warm_up()
    began = time.perf_counter()
    compiled = is_compiled(module)
    module = unwrap(module)
    if isinstance(module, sys.modules["torch"].jit.ScriptModule):
        raise DescriptionError(
            f"{type(module).__name__} was compiled by TorchScript, which hides its operations. Pass the module before "
            "torch.jit.script or torch.jit.trace."
        )
    arguments = read_inputs(module, inputs)
    with kept_random_states(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tally, method = _trace(module, arguments, batch_size, began + seconds)
    parameters = list({id(weight): weight for weight in module.parameters()}.values())
    trained = [weight.numel() for weight in parameters if weight.requires_grad]
    constants = sum(weight.numel() for weight in parameters) - sum(trained)
    tally.caveats |= _read_caveats(module, compiled)
    return tally.work(
        batch_size=batch_size,
        trained=trained,
        constants=constants + sum(buffer.numel() for buffer in module.buffers()),
        optimizer=optimizer,
        method=method,
        seconds=time.perf_counter() - began,
    )


def unwrap(module: Module) -> Module:
    """The module inside of wrappers for compilation, for several GPUs or of Fabric."""
    for name in ("_orig_mod", "module", "_forward_module"):
        inner = dict(module.named_children()).get(name)
        if inner is not None and type(module).__name__ in (
            "OptimizedModule", "DistributedDataParallel", "DataParallel", "FullyShardedDataParallel",
            "_FabricModule",
        ):  # fmt: skip
            return unwrap(inner)
    return module


def _read_caveats(module: Module, compiled: bool) -> set[Caveat]:
    caveats: set[Caveat] = {"compiled"} if compiled else set()
    # What the program computes between parts is not known.
    if isinstance(module, _parts_class()) or any(_runs_extension(part) for part in module.modules()):
        caveats.add("unknown_layers")
    return caveats


def is_compiled(module: Module) -> bool:
    """Whether a module, or a part of it, runs in a step that ``torch.compile`` has compiled."""
    return any(
        type(part).__name__ == "OptimizedModule" or getattr(part, "_compiled_call_impl", None) is not None
        for part in module.modules()
    )


def _runs_extension(module: Module) -> bool:
    """Whether a module is known to start kernels that the dispatcher of torch does not see."""
    return type(module).__module__.partition(".")[0] in ("flash_attn", "apex", "triton", "xformers", "mamba_ssm")


def join_parts(parts: Sequence[Module]) -> Module:
    """A module of ``parts`` that a program calls one after the other. Its inputs are a list of theirs."""
    return _parts_class()(parts)


@functools.cache
def _parts_class() -> type:
    base: Any = sys.modules["torch"].nn.Module

    class Parts(base):  # type: ignore[misc]
        def __init__(self, parts: Sequence[Module]) -> None:
            super().__init__()
            self.parts = sys.modules["torch"].nn.ModuleList(parts)

        def forward(self, *inputs: Any) -> list[Any]:
            return [
                part(**arguments) if isinstance(arguments, Mapping) else part(*arguments)
                for part, arguments in zip(self.parts, inputs, strict=True)
            ]

    return Parts


# -- arguments ---------------------------------------------------------------------------------------------------------


def read_inputs(module: Module, inputs: Any) -> Any:
    """The arguments of ``forward``: ``inputs``, or the images that a Hugging Face model declares."""
    if inputs is not None:
        if isinstance(inputs, Mapping):
            return dict(inputs)
        several = isinstance(inputs, (list, tuple)) and not all(isinstance(part, int) for part in inputs)
        return _positional(module, list(inputs)) if several else [inputs]
    config = getattr(module, "config", None)
    image, channels = getattr(config, "image_size", None), getattr(config, "num_channels", None)
    if image and channels:
        extent = (image, image) if isinstance(image, int) else tuple(image)
        return {"pixel_values": (channels, *extent)}
    raise DescriptionError(
        f"The inputs of {type(module).__name__} are unknown. Pass inputs=, a batch or its shape without the batch "
        'size, such as inputs=(3, 224, 224) or inputs={"input_ids": (512,)}.'
    )


def _positional(module: Module, inputs: list[Any]) -> list[Any]:
    """``inputs`` without what ``forward`` does not take: a batch of a data loader also contains labels."""
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return inputs
    if any(part.kind is part.VAR_POSITIONAL for part in parameters):
        return inputs
    taken = [part for part in parameters if part.kind in (part.POSITIONAL_ONLY, part.POSITIONAL_OR_KEYWORD)]
    return inputs[: max(1, len(taken))]


def _make(
    value: Any, name: str, batch_size: int, device: str, module: Module, examples: int | None, whole: bool
) -> Any:
    """Tensors on ``device`` for a batch of so many ``examples`` or a shape, with ``batch_size`` examples.

    Shapes of one dimension are those of ``whole`` numbers, if that is true.
    """
    torch = sys.modules["torch"]
    if isinstance(value, Mapping):
        return {key: _make(part, key, batch_size, device, module, examples, whole) for key, part in value.items()}
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        tensor = value if isinstance(value, torch.Tensor) else torch.as_tensor(value)
        shape = tuple(tensor.shape)
        extents = (batch_size, *shape[1:]) if shape and shape[0] == examples else shape
        filled = _fill(torch, extents, tensor.dtype, device, name)
        return filled.requires_grad_(tensor.requires_grad)  # the gradient of an earlier part of the model
    if isinstance(value, (list, tuple)) and value and all(isinstance(part, int) for part in value):
        counts = (
            name.endswith(WHOLE_NUMBERS) or (not name and _starts_with_embedding(module)) or (whole and len(value) == 1)
        )
        return _fill(torch, (batch_size, *value), torch.int64 if counts else torch.float32, device, name)
    if isinstance(value, (list, tuple)):
        return type(value)(_make(part, name, batch_size, device, module, examples, whole) for part in value)
    return value


def _fill(torch: Any, extents: Sequence[int], dtype: Any, device: str, name: str) -> Tensor:
    if device == "meta":
        return torch.empty(tuple(extents), dtype=dtype, device="meta")
    # A token 0 often stands for the place behind the end of a text.
    filled = dtype == torch.int64 or name.endswith("mask")
    return (torch.ones if filled else torch.zeros)(tuple(extents), dtype=dtype)


def _starts_with_embedding(module: Module) -> bool:
    leaf = next((part for part in module.modules() if not part._modules and part._parameters), None)
    return leaf is not None and type(leaf).__name__ in ("Embedding", "EmbeddingBag")


# -- trace -------------------------------------------------------------------------------------------------------------


class Attempt(NamedTuple):
    """Arguments to trace a module with, whether shapes of one dimension are those of whole numbers, and whether hooks
    that are functions run."""

    inputs: Any
    whole: bool = False
    hooks: bool = False


def _attempts(inputs: Any) -> list[Attempt]:
    attempts = [Attempt(inputs)]
    if isinstance(inputs, Mapping) and "attention_mask" in inputs:
        # A mask of ones changes no operation, but some models read it.
        attempts.append(Attempt({name: value for name, value in inputs.items() if name != "attention_mask"}))
    if _has_shapes(inputs):  # which do not tell the kind of number
        attempts.append(Attempt(inputs, whole=True))
    return attempts


def _has_shapes(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_shapes, value.values()))
    if not isinstance(value, (list, tuple)):
        return False
    return bool(value) and (all(isinstance(part, int) for part in value) or any(map(_has_shapes, value)))


def _trace(module: Module, inputs: Any, batch_size: int, deadline: float) -> tuple[Tally, Method]:
    attempts = _attempts(inputs)
    try:
        return _try(module, attempts, batch_size, deadline)
    except OutOfTimeError:
        raise
    except DescriptionError:
        # Functions mostly observe, and what they note is not copied. Some compute what the module needs.
        if not list(_function_hooks(module)):
            raise
        return _try(module, [attempt._replace(hooks=True) for attempt in attempts], batch_size, deadline)


def _function_hooks(module: Module) -> Iterator[tuple[dict[int, Any], int]]:
    """Hooks of a module and its parts that are plain functions: a dictionary of hooks, and the key in it."""
    for part in module.modules():
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            hooks = vars(part).get(name) or {}
            yield from ((hooks, key) for key, hook in list(hooks.items()) if inspect.isfunction(hook))


def _try(module: Module, attempts: Sequence[Attempt], batch_size: int, deadline: float) -> tuple[Tally, Method]:
    problems: list[Exception] = []
    for attempt in attempts:
        try:
            return _run(module, attempt, batch_size, "meta", deadline), "meta"
        except OutOfTimeError:
            raise
        except Exception as failed:  # noqa: BLE001 - code of the user that reads values
            problems.append(failed)
    seen = f" On the meta device: {_line(problems[0])}"
    for attempt in attempts:
        try:
            return _extrapolate(module, attempt, batch_size, deadline), "execution"
        except DescriptionError as refused:
            raise DescriptionError(f"{refused}{seen}") from None
        except Exception as failed:  # noqa: BLE001 - code of the user
            problems.append(failed)
    raise DescriptionError(
        f"A training step of {type(module).__name__} could not be traced ({_line(problems[len(attempts)])}). "
        "Pass inputs= as its forward method takes them: one batch of tensors, if shapes do not suffice."
    )


def _run(module: Module, attempt: Attempt, batch_size: int, device: str, deadline: float) -> Tally:
    """Forward and backward pass of a copy of ``module`` on ``device``."""
    torch = sys.modules["torch"]
    tally = Tally()
    with _training_mode(torch):
        copied = _copy(module, device)
        for hooks, key in () if attempt.hooks else list(_function_hooks(copied)):
            del hooks[key]
        copied.train()
        steady(copied)
        _seed(torch)
        _replace_recurrences(torch, copied, tally)
        inputs = attempt.inputs
        arguments = _make(inputs, "", batch_size, device, module, count_inputs(inputs), attempt.whole)
        if isinstance(arguments, Mapping):
            arguments = _add_decoder(copied, dict(arguments))
        own = {_storage(weight) for weight in (*copied.parameters(), *copied.buffers())}
        with _watch_saved(torch, tally, own), record_kernels(tally, deadline=deadline):
            outputs = copied(**arguments) if isinstance(arguments, Mapping) else copied(*arguments)
            loss = _loss(torch, outputs, hasattr(module, "config"))
            if loss is not None and loss.requires_grad:
                loss.backward()
    return tally


def _seed(torch: Any) -> None:
    """Make random choices of the code the same in each run. The states are restored afterwards."""
    import random

    # Not torch.manual_seed, which also seeds all GPUs: their generators are those of the user's training.
    torch.default_generator.manual_seed(0)
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)


@contextmanager
def _training_mode(torch: Any) -> Iterator[None]:
    """Gradients, and attention as single operations, which the constants of the prediction were fitted to.

    Its scores are not kept for the backward pass, because the kernels of GPUs compute them again.
    """
    functions, autocast = torch.nn.functional, torch.amp.autocast_mode.autocast
    original, initialize = functions.scaled_dot_product_attention, autocast.__init__

    @functools.wraps(initialize)
    def without_casts(context: Any, device_type: str, *rest: Any, **named: Any) -> None:
        """Counts are those of float32, and a device without values has no mixed precision."""
        initialize(context, "cpu" if device_type == "meta" else device_type, *rest, **named)
        context._enabled &= device_type != "meta"

    functions.scaled_dot_product_attention = _fused_attention(torch, original)
    autocast.__init__ = without_casts
    try:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), torch.enable_grad():
            yield
    finally:
        functions.scaled_dot_product_attention = original
        autocast.__init__ = initialize


def _fused_attention(torch: Any, original: Any) -> Callable[..., Tensor]:
    """``scaled_dot_product_attention`` whose operations are counted one by one, and which keeps its inputs only."""

    class Fused(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, options: Mapping[str, Any], *tensors: Tensor) -> Tensor:
            context.save_for_backward(*tensors)
            unseen = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
            with torch.enable_grad(), unseen:
                context.inner = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors]
                context.output = original(*context.inner, **options)
            return context.output.detach()

        @staticmethod
        def backward(context: Any, gradient: Tensor) -> Any:
            wanted = [tensor for tensor in context.inner if tensor.requires_grad]
            gradients = iter(torch.autograd.grad(context.output, wanted, gradient))
            return (None, *(next(gradients) if tensor.requires_grad else None for tensor in context.inner))

    def attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, *rest: Any, **named: Any) -> Tensor:
        named |= dict(zip(("dropout_p", "is_causal"), rest, strict=False))
        if attn_mask is not None and attn_mask.requires_grad:
            return original(query, key, value, attn_mask, **named)
        return Fused.apply({"attn_mask": attn_mask, **named}, query, key, value)

    return attention


def _copy(module: Module, device: str) -> Module:
    """A copy of ``module`` on ``device``. On the meta device its tensors have no values, so that it takes no memory."""
    torch = sys.modules["torch"]
    tensors = [tensor for part in module.modules() for tensor in _own_tensors(torch, part)]
    if device != "meta":
        whole = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        if whole > MAX_BYTES:
            raise DescriptionError(
                "The code of the model reads values, and the model is too large for a copy with values."
            )
    memo: dict[int, Any] = {}
    for tensor in tensors:
        if id(tensor) not in memo:
            memo[id(tensor)] = _move(torch, tensor, device)
    return copy.deepcopy(module, memo)


def _own_tensors(torch: Any, part: Module) -> Iterator[Tensor]:
    for values in (part._parameters.values(), part._buffers.values(), vars(part).values()):
        yield from (value for value in values if isinstance(value, torch.Tensor))


def _move(torch: Any, tensor: Tensor, device: str) -> Tensor:
    data = tensor.detach()
    if device == "meta":
        data = torch.empty_strided(data.size(), data.stride(), dtype=data.dtype, device="meta")
    elif data.device.type == "meta":
        data = torch.zeros(data.shape, dtype=data.dtype)
    else:
        data = data.to("cpu", copy=True)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(data, requires_grad=tensor.requires_grad)
    return data


def _add_decoder(module: Module, arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments with inputs of the decoder, by default as many as those of the encoder."""
    decodes = getattr(getattr(module, "config", None), "is_encoder_decoder", False)
    if decodes and "input_ids" in arguments and not {"labels", "decoder_input_ids"} & {*arguments}:
        arguments["decoder_input_ids"] = arguments["input_ids"].clone()
    return arguments


def _loss(torch: Any, outputs: Any, is_language_model: bool) -> Tensor | None:
    """A loss of ``outputs``: their own, a cross entropy of classes, or a mean of squares."""
    own = getattr(outputs, "loss", None)
    if own is None and isinstance(outputs, Mapping):
        own = outputs.get("loss")
    if own is not None:
        return own
    scores = getattr(outputs, "logits", None)
    tensors = [tensor for tensor in _tensors(torch, outputs if scores is None else scores) if tensor.requires_grad]
    losses = []
    for tensor in tensors:
        if tensor.dim() == 2 or (scores is not None and is_language_model and tensor.dim() > 2):
            classes = tensor.reshape(-1, tensor.shape[-1])
            labels = torch.zeros(classes.shape[0], dtype=torch.int64, device=tensor.device)
            losses.append(torch.nn.functional.cross_entropy(classes.float(), labels))
        else:
            losses.append(tensor.float().square().mean())
    return sum(losses[1:], losses[0]) if losses else None


def _tensors(torch: Any, value: Any) -> Iterator[Tensor]:
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _tensors(torch, part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(torch, part)


def _line(problem: Exception | None) -> str:
    lines = str(problem).splitlines()
    return f"{type(problem).__name__}: {lines[0][:200]}" if lines else type(problem).__name__


# -- what the backward pass needs --------------------------------------------------------------------------------------


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _watch_saved(torch: Any, tally: Tally, own: set[int]) -> Any:
    """Context that adds tensors to ``tally`` which the forward pass keeps; weights, whose storages are ``own``, not."""
    alive = []

    def keep(tensor: Tensor) -> Tensor:
        storage = _storage(tensor)
        if storage not in own:
            alive.append(tensor)  # otherwise another tensor could get its place
            elements = tensor.untyped_storage().nbytes() / tensor.element_size()
            tally.save(storage, elements if tensor.is_floating_point() else elements * tensor.element_size() / WORD)
        return tensor

    return torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)


# -- recurrent layers --------------------------------------------------------------------------------------------------

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _replace_recurrences(torch: Any, module: Module, tally: Tally) -> None:
    """Count recurrent layers by their sizes: on the meta device they would be thousands of small operations."""

    class Stand(torch.autograd.Function):  # type: ignore[misc]
        """Outputs of the right shapes, which depend on inputs and weights."""

        @staticmethod
        def forward(context: Any, shapes: Any, tensor: Tensor, *weights: Tensor) -> Any:
            context.save_for_backward(tensor)
            context.like = (tensor, *weights)
            return tuple(tensor.new_empty(shape) for shape in shapes)

        @staticmethod
        def backward(context: Any, *gradients: Tensor) -> Any:
            return (None, *(torch.empty_like(tensor) for tensor in context.like))

    for part in module.modules():
        if type(part) in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
            part.forward = _stand_in(torch, part, Stand, tally)


def _stand_in(torch: Any, layer: Module, stand: Any, tally: Tally) -> Callable[..., Any]:
    gates = GATES[type(layer).__name__]
    directions = 2 if layer.bidirectional else 1
    width = layer.proj_size or layer.hidden_size

    def forward(tensor: Tensor, state: Any = None) -> Any:
        packed = None
        if isinstance(tensor, torch.nn.utils.rnn.PackedSequence):  # its lengths depend on the data
            tally.caveats.add("data_dependent")
            packed, tensor = tensor, tensor.data
            steps, batch = len(packed.batch_sizes), -(-tensor.shape[0] // len(packed.batch_sizes))
            examples = int(packed.batch_sizes[0])
        elif tensor.dim() == 2:  # one sequence
            (steps, _), batch = tensor.shape, 1
        else:
            steps, batch = tensor.shape[:2] if not layer.batch_first else (tensor.shape[1], tensor.shape[0])
        features = tensor.shape[-1]
        trained = any(weight.requires_grad for weight in layer.parameters())
        for number in range(layer.num_layers):
            wanted = tensor.requires_grad if number == 0 else trained or tensor.requires_grad
            for direction in range(directions):
                recurrence = Recurrence(steps, batch, features, layer.hidden_size, gates, layer.proj_size)
                recurrence.count(tally, wanted=wanted, trained=trained)
                tally.save((id(layer), number, direction), (gates + 2) * steps * batch * layer.hidden_size)
            features = width * directions
        outer = () if packed is None and tensor.dim() == 2 else (batch if packed is None else examples,)
        states = (layer.num_layers * directions, *outer)
        shapes = ((*tensor.shape[:-1], features), (*states, width), (*states, layer.hidden_size))
        output, final, cell = stand.apply(shapes, tensor, *layer.parameters())
        if packed is not None:
            output = packed._replace(data=output)
        return output, (final, cell) if gates == GATES["LSTM"] else final

    return forward


# -- execution ---------------------------------------------------------------------------------------------------------


def _extrapolate(module: Module, attempt: Attempt, batch_size: int, deadline: float) -> Tally:
    """Counts of a batch, from runs of a copy with values and with :data:`EXAMPLES` examples."""
    small, large = (_run(module, attempt, examples, "cpu", deadline) for examples in EXAMPLES)
    if [row.kind for row in small.rows] != [row.kind for row in large.rows]:
        raise DescriptionError(
            "The operations of the model depend on its data, so that they cannot be counted. Probe it on the machine "
            "that you would choose, or describe it without the part whose work depends on the data."
        )
    more = (batch_size - EXAMPLES[0]) / (EXAMPLES[1] - EXAMPLES[0])
    tally = Tally(rows=[_stretch(*rows, more) for rows in zip(small.rows, large.rows, strict=True)])
    first, second = sum(small.saved.values()), sum(large.saved.values())
    tally.save("all", max(0.0, first + (second - first) * more) / WORD)
    tally.caveats |= {"extrapolated", *large.caveats}
    return tally


def _stretch(small: Operation, large: Operation, more: float) -> Operation:
    def grow(first: float, second: float) -> float:
        return max(0.0, first + (second - first) * more)

    m, n, k, b = (round(grow(getattr(small, name), getattr(large, name))) for name in ("m", "n", "k", "b"))
    flops, moved = grow(small.flops, large.flops), grow(small.bytes, large.bytes)
    return small._replace(flops=flops, bytes=moved, m=m, n=n, k=k, b=max(1, b))


def warm_up() -> None:
    """Import what torch needs for the meta device, which takes seconds once."""
    torch = sys.modules["torch"]
    with record_kernels(Tally(), deadline=float("inf")):
        weight = torch.empty((2, 2), device="meta", requires_grad=True)
        torch.nn.functional.cross_entropy(weight @ weight, torch.empty(2, dtype=torch.int64, device="meta")).backward()


def is_warm() -> bool:
    """Whether a description imports nothing that the program has not imported."""
    return {"torch._dynamo", "torch._meta_registrations"} <= {*sys.modules}
