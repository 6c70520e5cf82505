"""Notes how a training calls its torch model, so that the model can be described after the measurement."""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from vmselect.describing.precisions import MIXED_PRECISIONS
from vmselect.probe.environment import Model, Tensor

LEAST_SHARE = 0.9
"""Least share of the trained weights that a model must contain to stand for the training."""
PLAIN = (int, float, bool, str, type(None))


ON_GPUS: list[Callable[[], str | None]] = []
"""Functions that state the mixed precision which a call that happens now would have if there were a GPU."""


class FirstCalls:
    """The first call of a torch model, and of each part of it: shapes only, no tensor is kept.

    A hook notes the call and removes itself. A compiled model gets no hook, because it would be compiled again.
    """

    def __init__(self) -> None:
        self._calls: list[tuple[weakref.ref[Any], Any]] = []
        self.on_call: Callable[[], None] = lambda: None
        """Function that is called after a call was noted, before the module computes."""
        self._handles: list[Any] = []
        self.precision: str | None = None
        """Precision of the first call, if it is lower than float32; None if it is not, or unknown."""

    def watch(self, model: Model) -> None:
        """Note the first call of ``model``; a trainer may call a part of its model only.

        A model that cannot be watched is trained and measured without a description.
        """
        with suppress(Exception):
            for module in (model, *model.children()):
                if getattr(module, "_compiled_call_impl", None) is None and type(module).__name__ != "OptimizedModule":
                    hook = _Hook(self.note)
                    hook.handle = module.register_forward_pre_hook(hook, with_kwargs=True)
                    self._handles.append(hook.handle)

    def note(self, called: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Note a call of the module ``called``, unless its arguments cannot be kept."""
        arguments = _read_arguments(called, args, kwargs)
        if arguments is not None and all(reference() is not called for reference, _ in self._calls):
            self.precision = self.precision or _read_precision(called)
            self._calls.append((weakref.ref(called), arguments))
            self.on_call()

    def close(self) -> None:
        """Remove the hooks that are left."""
        while self._handles:
            self._handles.pop().remove()

    def choose(self, parameters: int | None) -> tuple[Model, Any] | None:
        """The called model and its arguments; None if it has too few of ``parameters`` weights.

        A program may call parts of its model one after the other: then these are joined, in the order of the calls.
        """
        called = [(module, arguments) for reference, arguments in self._calls if (module := reference()) is not None]
        inner = {id(part) for module, _ in called for part in module.modules() if part is not module}
        called = [(module, arguments) for module, arguments in called if id(module) not in inner]
        weights = {id(weight): weight.numel() for module, _ in called for weight in module.parameters()}
        if not weights or sum(weights.values()) < LEAST_SHARE * (parameters or 1):
            return None
        if len(called) == 1:
            return called[0]
        from vmselect.describing.torch import join_parts

        modules, arguments = zip(*called, strict=True)
        return join_parts(modules), list(arguments)


class _Hook:
    """Hook of a module that calls ``note`` at its first call and removes itself.

    Programs copy and save their models, with their hooks. The hook of a copy does nothing.
    """

    def __init__(self, note: Callable[[Model, tuple[Any, ...], Mapping[str, Any]], None]) -> None:
        self._note = note
        self.handle: Any = None

    def __call__(self, called: Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.handle.remove()
        self._note(called, args, kwargs)

    def __reduce__(self) -> tuple[Callable[[], object], tuple[()]]:
        return _Nothing, ()


class _Nothing:
    """Hook that does nothing."""

    def __call__(self, *_: object) -> None:
        pass


def _read_arguments(module: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Arguments of a call without values: a list, or a dict if some are named. None if they cannot be kept."""
    try:
        if not kwargs:
            return [_without_values(value) for value in args]
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
        named = {**bound.arguments, **bound.arguments.pop("kwargs", {})}
        return {name: _without_values(value) for name, value in named.items() if name != "kwargs"}
    except Exception:  # noqa: BLE001 - code of the user; a record without a description is complete
        return None


def _read_precision(module: Model) -> str | None:
    """Precision of a call that happens now: that of autocast, or that of the weights; None for float32."""
    torch: Any = sys.modules["torch"]
    with suppress(Exception):  # older versions of torch ask in another way
        for device in ("cuda", "cpu"):
            if torch.is_autocast_enabled(device):
                return "mixed_" + str(torch.get_autocast_dtype(device)).removeprefix("torch.")
        wrapped = _read_wrapper(module)
        if wrapped is not None:
            return wrapped
        weight = next(module.parameters(), None)
        if weight is not None and weight.dtype in (torch.float16, torch.bfloat16):
            return str(weight.dtype).removeprefix("torch.")
    return next(filter(None, (read() for read in ON_GPUS)), None)


def _read_wrapper(module: Model) -> str | None:
    """Mixed precision that accelerate or Fabric turn on inside of the call of a module that they have prepared."""
    if type(module).__name__ == "_FabricModule":
        return MIXED_PRECISIONS.get(module._strategy.precision.precision)
    accelerate = sys.modules.get("accelerate.state")
    state = {} if accelerate is None else accelerate.AcceleratorState._shared_state
    return MIXED_PRECISIONS.get(state.get("_mixed_precision", ""))


def _without_values(value: Any) -> Any:
    torch: Any = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        return _empty(torch, value)
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Mapping):
        return {name: _without_values(part) for name, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_without_values(part) for part in value)
    raise TypeError(f"an argument is of the type {type(value).__name__}")


def _empty(torch: Any, tensor: Tensor) -> Any:
    if not tensor.ndim:  # a number that the model may read, such as the tokens by which a loss is divided
        return 1.0 if tensor.is_floating_point() else 1
    wanted = tensor.requires_grad
    return torch.empty(tuple(tensor.shape), dtype=tensor.dtype, device="meta", requires_grad=wanted)
