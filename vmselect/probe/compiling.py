"""What the first step spends on tracing and compiling, as far as the framework reports it.

JAX announces the duration of every trace and every compilation, and TensorFlow has one function that traces a graph:
each gives intervals of time, of which the part within the first step counts. torch adds up what ``torch.compile`` does.
Nothing listens any more as soon as the first step has ended, so later steps are those of an unobserved training.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from vmselect.probe.environment import attempt

if TYPE_CHECKING:
    from vmselect.records.training import FirstStep

Span = tuple[int, int]
"""Begin and end in nanoseconds of ``time.perf_counter_ns``."""

JAX_EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "tracing",
    "/jax/core/compile/backend_compile_duration": "compiling",
}
"""Events of jax.monitoring. Lowering counts as tracing: both repeat for every new shape, even with a cache."""
TENSORFLOW_TRACER = ("tensorflow.python.eager.polymorphic_function.tracing_compilation", "_create_concrete_function")
TORCH_COUNTERS = "torch._dynamo.utils"
TORCH_TUNING = ("autotun", "benchmark_all_configs", "coordinate_descent_tuning")
"""Parts of the names under which torch counts the search for the fastest kernels."""


class CompileTimes:
    """Listens to the frameworks that are imported, from now until :meth:`stop`.

    ``ignores()`` returns whether the probe itself works at the moment, whose compilations are none of the training.
    """

    def __init__(self, ignores: Callable[[], bool] = lambda: False) -> None:
        self.began = time.perf_counter_ns()
        self.ignores = ignores
        self._spans: dict[tuple[str, str], list[Span]] = {}
        self._sources: set[str] = set()
        self._undo: list[Callable[[], object]] = []
        self._torch: dict[str, float] | None = read_torch_counters()
        self._torch_end: dict[str, float] | None = None
        attempt(self._listen_to_jax)
        attempt(self._watch_tensorflow)

    def _listen_to_jax(self) -> None:
        monitoring = getattr(sys.modules.get("jax"), "monitoring", None)
        if monitoring is None or not hasattr(monitoring, "unregister_event_duration_listener"):
            return

        def listen(event: str, seconds: float, **_: object) -> None:
            if (part := JAX_EVENTS.get(event)) is not None:
                now = time.perf_counter_ns()
                self._note("jax", part, (now - int(seconds * 1e9), now))

        monitoring.register_event_duration_secs_listener(listen)
        self._sources.add("jax")
        self._undo.append(lambda: monitoring.unregister_event_duration_listener(listen))

    def _watch_tensorflow(self) -> None:
        name, function = TENSORFLOW_TRACER
        module = sys.modules.get(name)
        trace: Callable[..., Any] | None = getattr(module, function, None)
        if trace is None:
            return

        @functools.wraps(trace)
        def timed(*arguments: Any, **options: Any) -> Any:
            began = time.perf_counter_ns()
            try:
                return trace(*arguments, **options)
            finally:
                self._note("tensorflow", "tracing", (began, time.perf_counter_ns()))

        def undo() -> None:
            if getattr(module, function) is timed:  # another probe, which began later, restores its own
                setattr(module, function, trace)

        setattr(module, function, timed)
        self._sources.add("tensorflow")
        self._undo.append(undo)

    def _note(self, source: str, part: str, span: Span) -> None:
        if self._undo and not self.ignores():
            self._spans.setdefault((source, part), []).append(span)

    def stop(self) -> None:
        """Stop listening. Idempotent."""
        if self._torch_end is None:
            self._torch_end = read_torch_counters()
        undo, self._undo = self._undo, []
        for step in reversed(undo):
            attempt(step)

    def parts(self, backend: str | None, first: Span | None) -> FirstStep | None:
        """Seconds of the parts of the first step, which lasted during ``first``; None if they were not all observed."""
        from vmselect.records.training import FirstStep

        if first is None or self.began > first[0]:
            return None
        if backend == "torch" and self._torch is not None:
            return self._torch_parts(self._torch, (first[1] - first[0]) / 1e9)
        if backend not in self._sources:
            return None
        tracing, compiling = (self._spans.get((backend, part), []) for part in ("tracing", "compiling"))
        # Compilations may begin while a function is traced: they are no part of the tracing.
        together, compiled = overlap([*tracing, *compiling], first), overlap(compiling, first)
        reports = backend == "jax"
        return FirstStep(
            tracing_seconds=(together - compiled) / 1e9,
            compiling_seconds=compiled / 1e9 if reports else None,
            method="jax.monitoring" if reports else "tf.function",
        )

    def _torch_parts(self, before: dict[str, float], most: float) -> FirstStep:
        from vmselect.records.training import FirstStep

        after = self._torch_end if self._torch_end is not None else read_torch_counters() or {}
        spent = {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}
        frames, backend = spent.get("entire_frame_compile", 0.0), spent.get("backend_compile", 0.0)
        compiling = min(most, backend + spent.get("entire_backward_compile", 0.0))
        tuning = [seconds for name, seconds in spent.items() if any(word in name for word in TORCH_TUNING)]
        return FirstStep(
            tracing_seconds=min(max(0.0, frames - backend), most - compiling),
            compiling_seconds=compiling,
            autotuning_seconds=min(max(tuning, default=0.0), most) if frames + compiling > 0 else None,
            method="torch.compile",
        )


def read_torch_counters() -> dict[str, float] | None:
    """Seconds that ``torch.compile`` has spent in this process, by activity; empty if it was never used.

    None without torch, or if torch does not count.
    """
    if "torch" not in sys.modules:
        return None
    module = sys.modules.get(TORCH_COUNTERS)
    if module is None:
        return {}
    counted = attempt(lambda: dict(module.calculate_time_spent()))
    return None if counted is None else {str(name): float(seconds) for name, seconds in counted.items()}


def overlap(spans: Iterable[Span], within: Span) -> int:
    """Nanoseconds of ``within`` that at least one of the ``spans`` covers.

    >>> overlap([(0, 4), (2, 5), (8, 20)], (1, 10))
    6
    """
    covered, reached = 0, within[0]
    for began, ended in sorted(spans):
        began, ended = max(began, reached), min(ended, within[1])
        if ended > began:
            covered, reached = covered + ended - began, ended
    return covered
