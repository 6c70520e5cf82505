"""Lets a script that demands CUDA run up to its first training on a computer that has none.

A description is counted from shapes, before a step computes, so that it is the same wherever the tensors are. What the
script places on a CUDA device stays on the CPU, and mixed precision that it asks for is noted. Nothing else is claimed:
``torch.cuda.is_available()`` is still False, and questions about properties of a GPU still fail.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vmselect.describing.precisions import MIXED_PRECISIONS
from vmselect.probe.environment import Trainer

CUDA = "cuda"
GPU_ACCELERATORS = ("gpu", CUDA)


class WithoutCuda:
    """Redirects requests for CUDA to the CPU, if this computer has no CUDA device."""

    def __init__(self) -> None:
        self.redirected = False
        """Whether the script has placed anything on a CUDA device."""
        self._undo: list[Callable[[], object]] = []
        self._precisions: weakref.WeakKeyDictionary[Trainer, str] = weakref.WeakKeyDictionary()

    def watch_torch(self, torch: ModuleType) -> None:
        """Redirect devices of tensors and modules from now on, in this thread."""
        if torch.cuda.is_available():
            return
        mode = _make_mode(torch, self._on_cpu)
        mode.__enter__()
        self._undo.append(lambda: mode.__exit__(None, None, None))
        for name, result in (("set_device", None), ("synchronize", None), ("current_device", 0)):
            self._replace(torch.cuda, name, functools.partial(_answer, result))
        set_default = torch.set_default_device
        self._replace(torch, "set_default_device", lambda device: set_default(self._on_cpu(_number(device))))
        autocast = torch.amp.autocast_mode.autocast
        initialize = autocast.__init__

        @functools.wraps(initialize)
        def on_cpu(context: Any, device_type: str, dtype: Any = None, *rest: Any, **named: Any) -> None:
            if device_type == CUDA:
                device_type, dtype = "cpu", dtype or torch.get_autocast_dtype(CUDA)
            initialize(context, device_type, dtype, *rest, **named)

        self._replace(autocast, "__init__", on_cpu)

    def watch_lightning(self, module: ModuleType) -> None:
        """Let a ``Trainer`` or ``Fabric`` of Lightning that demands GPUs use the CPU; ``module`` defines it."""
        import torch

        if torch.cuda.is_available():
            return
        kind = vars(module).get("Trainer") or module.Fabric
        initialize = kind.__init__

        @functools.wraps(initialize)
        def on_cpu(trainer: Trainer, **options: Any) -> None:
            if options.get("accelerator") in GPU_ACCELERATORS:
                self.redirected = True
                options |= {"accelerator": "cpu", "devices": 1, "num_nodes": 1, "strategy": "auto"}
            initialize(trainer, **options)
            precision = MIXED_PRECISIONS.get(str(options.get("precision")))
            if precision is not None:
                self._precisions[trainer] = precision

        self._replace(kind, "__init__", on_cpu)

    def precision_of(self, trainer: Trainer) -> str | None:
        """Mixed precision that a ``trainer`` of Lightning was asked for, which may be another one on the CPU."""
        return self._precisions.get(trainer)

    def close(self) -> None:
        """Restore everything."""
        while self._undo:
            self._undo.pop()()

    def _replace(self, owner: Any, name: str, value: object) -> None:
        original = getattr(owner, name)
        setattr(owner, name, value)
        self._undo.append(lambda: setattr(owner, name, original))

    def _on_cpu(self, value: Any) -> Any:
        """``value``, or the CPU if it names a CUDA device."""
        kind = value.partition(":")[0] if isinstance(value, str) else getattr(value, "type", None)
        if kind != CUDA or callable(kind):
            return value
        self.redirected = True
        return "cpu"


def _answer(result: object, *_: object) -> object:
    return result


def _make_mode(torch: Any, on_cpu: Callable[[Any], Any]) -> Any:
    """A mode of torch in which arguments of functions go through ``on_cpu``."""
    take_numbers = {torch.Tensor.to, torch._C._nn._parse_to}

    class Mode(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = kwargs or {}
            if func is torch.Tensor.cuda:
                on_cpu(CUDA)
                return args[0]
            if func is torch.Tensor.pin_memory:
                return args[0]
            if func is torch.device:  # what the script names keeps its name
                return func(*map(_number, args[:1]), *args[1:], **named)
            if func in take_numbers:
                args = tuple(map(_number, args))
            if named.get("device") is not None:
                named = named | {"device": on_cpu(_number(named["device"]))}
            return func(*map(on_cpu, args), **named)

    return Mode()


def _number(device: Any) -> Any:
    """``device``, or the name of the CUDA device with this number."""
    return f"{CUDA}:{device}" if type(device) is int else device
