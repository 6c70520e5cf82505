"""Gradients that a script computes by itself: weights that it updates without an optimizer, and loops of JAX.

A script without an optimizer of torch or Keras still calls ``backward()``, ``torch.autograd.grad`` or
``GradientTape.gradient`` in each step, which :class:`ManualUpdates` stands for. If gradients are computed, but no
training is recognized, :class:`Evidence` ends the script after a time limit instead of letting it run to its end. A
loop in NumPy alone cannot be recognized at all: its script is ended if the user has given a limit.
"""

from __future__ import annotations

import ctypes
import functools
import math
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from vmselect.probe.environment import Tensor

AUTOGRAD_MODULE = "torch.autograd"
JAX_MODULE = "jax._src.api"

UNRECOGNIZED_SECONDS = 60.0
"""Seconds after the first gradient, by default, after which a script without a recognized training is ended."""
FRAMEWORKS = ("torch", "tensorflow", "jax")
"""Packages one of which every training imports that can be recognized."""
MAX_NODES = 100_000
"""Largest number of nodes of a graph of operations in which the trained weights are searched."""


INSTALLED = {"site-packages", "dist-packages", "vmselect", f"python{sys.version_info[0]}.{sys.version_info[1]}"}
"""Folders of installed code."""


class GaveUp(BaseException):
    """Raised in the script when gradients were computed, but no training was recognized within the time limit."""


class ManualUpdates:
    """Stands for the optimizer of a training that has none. It does not keep the ``weights`` in memory."""

    def __init__(self, weights: Iterable[Tensor]) -> None:
        self._weights = [weakref.ref(weight) for weight in weights]
        self.state: dict[Any, Any] = {}

    @property
    def param_groups(self) -> list[dict[str, list[Tensor]]]:
        """The weights that still exist, in the form of a torch optimizer."""
        return [{"params": [weight for reference in self._weights if (weight := reference()) is not None]}]


def find_weights(outputs: Any) -> list[Tensor]:
    """Return the tensors from which torch computed ``outputs`` (a tensor or several) and that have gradients."""
    tensors = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    nodes = [node for tensor in tensors if (node := getattr(tensor, "grad_fn", None)) is not None]
    seen, weights = set(nodes), []
    while nodes and len(seen) < MAX_NODES:
        node = nodes.pop()
        if (weight := getattr(node, "variable", None)) is not None:
            weights.append(weight)
        for following, _ in getattr(node, "next_functions", ()):
            if following is not None and following not in seen:
                seen.add(following)
                nodes.append(following)
    return weights


def watch_autograd(
    module: ModuleType, before: Callable[[], object], after: Callable[[Callable[[], list[Tensor]], str], object]
) -> Callable[[], None]:
    """Call ``before`` and ``after`` around each computation of gradients. ``module`` is ``torch.autograd``.

    ``after`` gets a function that returns the weights, and the name of the called function. Gradients within a
    computation of gradients, as with checkpointed layers, are not reported. Return a function that ends the watch.
    """
    running = threading.local()
    originals = {name: getattr(module, name) for name in ("backward", "grad")}

    def wrap(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(outputs: Any, *arguments: Any, **options: Any) -> Any:
            if getattr(running, "inside", False):
                return function(outputs, *arguments, **options)
            running.inside = True
            try:
                before()
                result = function(outputs, *arguments, **options)
            finally:
                running.inside = False
            after(lambda: find_weights(outputs), f"torch.autograd.{name}")
            return result

        return watched

    for name, function in originals.items():
        setattr(module, name, wrap(name, function))

    def undo() -> None:
        for name, function in originals.items():
            setattr(module, name, function)

    return undo


class Evidence:
    """Where the script computed gradients. Ends the script if ``is_recognized()`` is False after ``seconds``.

    If ``seconds`` is infinite, the script is never ended. The time limit starts with the first gradient, or with
    :meth:`start` for a script that imports no framework until then.
    """

    def __init__(self, seconds: float | None, is_recognized: Callable[[], bool]) -> None:
        self.limit = seconds or UNRECOGNIZED_SECONDS
        self._asked = seconds is not None
        self.gave_up = False
        self.seen: list[str] = []
        self.place: str | None = None
        """Where the script was when it was ended because it had imported no framework."""
        self._functions: set[str] = set()
        self._is_recognized = is_recognized
        self._timer: threading.Timer | None = None
        self._early: threading.Timer | None = None
        self._thread = threading.get_ident()

    def start(self) -> None:
        """The script begins. Without a limit of the user it may prepare its data for long before it trains."""
        if self._asked and math.isfinite(self.limit):
            self._early = _start_timer(self.limit, self._give_up_early)

    def note(self, function: str) -> None:
        """Record that the script has computed gradients with ``function``; the first call starts the time limit."""
        if function in self._functions:
            return
        self._functions.add(function)
        place = _place_in_script(sys._getframe(1))
        # A function may call another one for the same gradients.
        if not any(entry.endswith(f" in {place}") for entry in self.seen):
            self.seen.append(f"{function} in {place}")
        if self._timer is None and math.isfinite(self.limit):
            self._timer = _start_timer(self.limit, self._give_up)

    def watch_jax(self, module: ModuleType) -> None:
        """Record calls of functions that ``jax.grad`` and ``jax.value_and_grad`` have made. ``module`` is JAX's API."""
        for name in ("grad", "value_and_grad"):
            setattr(module, name, self._wrap_jax(f"jax.{name}", getattr(module, name)))

    def _wrap_jax(self, name: str, transform: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(transform)
        def transforming(*arguments: Any, **options: Any) -> Any:
            function = transform(*arguments, **options)

            @functools.wraps(function)
            def computing(*values: Any, **more: Any) -> Any:
                self.note(name)
                return function(*values, **more)

            return computing

        return transforming

    def close(self) -> None:
        """End the time limits."""
        for timer in (self._timer, self._early):
            if timer is not None:
                timer.cancel()

    def _give_up_early(self) -> None:
        if not (any(name in sys.modules for name in FRAMEWORKS) or _script_uses_vmselect()):
            self.place = _place_in_script(sys._current_frames().get(self._thread))
            self._give_up()

    def _give_up(self) -> None:
        if not self._is_recognized():
            self.gave_up = True
            # The exception is raised in the thread of the script, at its next line of Python.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(GaveUp))


def _script_uses_vmselect() -> bool:
    """Whether the script has imported vmselect, so that it may measure its own loop later."""
    values = list(vars(sys.modules["__main__"]).values())  # the script defines further names at the same time
    names = (getattr(value, "__name__" if isinstance(value, ModuleType) else "__module__", None) for value in values)
    return any(str(name).partition(".")[0] == "vmselect" for name in names)


def _start_timer(seconds: float, function: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.start()
    return timer


def _place_in_script(frame: FrameType | None) -> str:
    """Return file and line of the innermost call in ``frame`` that is not in an installed package."""
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if INSTALLED.isdisjoint(file.parts) and file.suffix == ".py":
            return f"{file.name}, line {frame.f_lineno}"
        frame = frame.f_back
    return "a package"
