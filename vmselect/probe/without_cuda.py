"""Lets a script that demands CUDA run up to its first training on a computer that has none.

A description is counted from shapes, before a step computes, so that it is the same wherever the tensors are. What the
script places on a CUDA device stays on the CPU, and mixed precision that it asks for is noted. What only orders work
and memory, such as streams, does nothing. Nothing else is claimed: ``torch.cuda.is_available()`` is still False, and
questions about properties of a GPU, or times that it would take, still fail.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType
from typing import Any

from vmselect.describing.precisions import MIXED_PRECISIONS
from vmselect.probe.environment import Trainer

CUDA = "cuda"
GPU_ACCELERATORS = ("gpu", CUDA)
EFFECTS = (
    "set_device", "synchronize", "init", "empty_cache", "ipc_collect", "reset_peak_memory_stats",
    "reset_max_memory_allocated", "reset_max_memory_cached", "reset_accumulated_memory_stats",
    "set_per_process_memory_fraction", "set_stream",
)  # fmt: skip
"""Functions of ``torch.cuda`` without a result."""
CONTEXTS = ("device", "device_of", "stream", "StreamContext")
MARKS = ("range_push", "range_pop", "mark")
"""Functions of ``torch.cuda.nvtx``, which mark a place for a profiler."""


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
        cuda = torch.cuda
        self._replace(cuda, "current_device", functools.partial(_answer, 0))
        for owner, names in ((cuda, EFFECTS), (cuda.nvtx, MARKS)):
            for name in filter(functools.partial(hasattr, owner), names):
                self._replace(owner, name, functools.partial(_answer, None))
        for name in filter(functools.partial(hasattr, cuda), CONTEXTS):
            self._replace(cuda, name, nullcontext)
        self._replace(cuda, "get_rng_state", lambda *_, **__: torch.get_rng_state())
        self._replace(cuda, "set_rng_state", lambda state, *_, **__: torch.set_rng_state(state))
        for name in ("current_stream", "default_stream"):
            self._replace(cuda, name, self._make_stream)
        self._replace(cuda, "Stream", _stand_in(cuda.Stream, self._make_stream))
        self._replace(cuda, "Event", _stand_in(cuda.Event, lambda *_, **__: _Event()))
        self._replace(torch.Tensor, "record_stream", lambda *_: None)
        generator = torch.Generator
        self._replace(
            torch, "Generator", _stand_in(generator, lambda device="cpu": generator(self._on_cpu(_number(device))))
        )
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
            accelerator = options.get("accelerator")
            if accelerator in GPU_ACCELERATORS or type(accelerator).__name__ == "CUDAAccelerator":
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

    def _make_stream(self, *_: object, **__: object) -> _Stream:
        self.redirected = True
        return _Stream()

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


def _answer(result: object, *_: object, **__: object) -> object:
    return result


class _Event:
    """An event of a GPU without one: all work before it is done."""

    def record(self, stream: object = None) -> None:
        pass

    wait = record

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, end_event: object) -> float:
        raise RuntimeError("An event of CUDA measures no time without a GPU.")


class _Stream(nullcontext[None]):
    """A stream of a GPU without one: no work waits in it."""

    def wait_stream(self, stream: object) -> None:
        pass

    def wait_event(self, event: object) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def record_event(self, event: _Event | None = None) -> _Event:
        return event or _Event()


def _stand_in(kind: type, make: Callable[..., object]) -> type:
    """A class in the place of ``kind`` whose objects are those that ``make`` returns."""

    class Kind(type(kind)):  # type: ignore[misc]
        def __instancecheck__(self, instance: object) -> bool:
            return isinstance(instance, kind)

    class StandIn(kind, metaclass=Kind):  # type: ignore[misc]
        def __new__(cls, *arguments: object, **options: object) -> Any:
            return make(*arguments, **options)

    return StandIn


def _make_mode(torch: Any, on_cpu: Callable[[Any], Any]) -> Any:
    """A mode of torch in which arguments of functions go through ``on_cpu``."""
    take_numbers = {torch.Tensor.to, torch._C._nn._parse_to}

    class Mode(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = dict(kwargs or {})
            if func is torch.Tensor.cuda:
                on_cpu(CUDA)
                return args[0]
            if func is torch.Tensor.pin_memory:
                return args[0]
            named.pop("pin_memory", None)
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
