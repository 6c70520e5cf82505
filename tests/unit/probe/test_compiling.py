"""Times of tracing and compiling: only those within the first step, and none of the probe's own."""

from __future__ import annotations

import sys
import time
from types import ModuleType, SimpleNamespace

import pytest

from vmselect.probe import compiling
from vmselect.probe.compiling import CompileTimes

SECOND = 10**9


class Monitoring:
    """The part of jax.monitoring that is used."""

    def __init__(self):
        self.listeners = []

    def register_event_duration_secs_listener(self, listener):
        self.listeners.append(listener)

    def unregister_event_duration_listener(self, listener):
        self.listeners.remove(listener)

    def tell(self, event, seconds):
        for listener in self.listeners:
            listener(f"/jax/core/compile/{event}", seconds, fun_name="step")


@pytest.fixture
def clock(monkeypatch):
    """The time in seconds, which a test sets."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: int(now.seconds * SECOND))
    return now


@pytest.fixture
def monitoring(monkeypatch):
    module, told = ModuleType("jax"), Monitoring()
    module.monitoring = told
    monkeypatch.setitem(sys.modules, "jax", module)
    monkeypatch.delitem(sys.modules, compiling.TENSORFLOW_TRACER[0], raising=False)
    return told


def test_nested_traces_count_once_and_a_compilation_within_is_no_tracing(clock, monitoring):
    times = CompileTimes()
    for at, event, seconds in (
        (4.0, "jaxpr_trace_duration", 1.0),  # within the next one
        (6.0, "jaxpr_trace_duration", 4.0),
        (5.0, "backend_compile_duration", 0.5),
        (9.0, "backend_compile_duration", 2.0),
        (9.0, "unknown_duration", 3.0),
    ):
        clock.seconds = at
        monitoring.tell(event, seconds)
    parts = times.parts("jax", (1 * SECOND, 10 * SECOND))
    assert (parts.tracing_seconds, parts.compiling_seconds, parts.method) == (3.5, 2.5, "jax.monitoring")
    # Of what lasts beyond the first step, only the part within it counts.
    assert times.parts("jax", (3 * SECOND, 8 * SECOND)).compiling_seconds == 1.5


def test_work_of_the_probe_is_no_part(clock, monitoring):
    times = CompileTimes(lambda: clock.seconds < 5)
    for clock.seconds in (3.0, 7.0):
        monitoring.tell("backend_compile_duration", 1.0)
    assert times.parts("jax", (1 * SECOND, 10 * SECOND)).compiling_seconds == 1.0


def test_nothing_is_heard_after_the_end(clock, monitoring):
    times = CompileTimes()
    times.stop()
    times.stop()
    assert monitoring.listeners == []


def test_a_step_that_began_before_has_no_parts(clock, monitoring):
    clock.seconds = 2.0
    times = CompileTimes()
    assert times.parts("jax", (1 * SECOND, 10 * SECOND)) is None
    assert times.parts("jax", None) is None
    assert times.parts("mxnet", (3 * SECOND, 10 * SECOND)) is None


def test_torch_counts_its_own_seconds(clock, monkeypatch):
    spent = {"entire_frame_compile": 1.0, "backend_compile": 0.5}
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    counters = ModuleType(compiling.TORCH_COUNTERS)
    counters.calculate_time_spent = lambda: dict(spent)
    monkeypatch.setitem(sys.modules, compiling.TORCH_COUNTERS, counters)
    times = CompileTimes()
    spent.update({"entire_frame_compile": 6.0, "backend_compile": 3.5, "entire_backward_compile": 1.0})
    spent["CachingAutotuner.benchmark_all_configs"] = 0.75
    times.stop()
    spent["backend_compile"] = 99.0  # after the first step
    parts = times.parts("torch", (0, 10 * SECOND))
    assert (parts.tracing_seconds, parts.compiling_seconds, parts.autotuning_seconds) == (2.0, 4.0, 0.75)


def test_a_compiled_torch_script_has_parts(tmp_path):
    pytest.importorskip("torch")
    import subprocess

    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "model = torch.nn.Linear(4, 2)\n"
        "step = torch.compile(model, backend='aot_eager')\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "data = torch.randn(8, 4)\n"
        "for _ in range(40):\n"
        "    optimizer.zero_grad(); step(data).sum().backward(); optimizer.step()\n"
    )
    command = [sys.executable, "-m", "vmselect", "probe", "--path", "record.json", str(script)]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    import vmselect as vs

    profile = vs.Profile.load(tmp_path / "record.json")
    parts = profile.timeline.first_step
    assert parts.method == "torch.compile"
    assert 0.1 * profile.first_iteration_seconds < parts.seconds <= profile.first_iteration_seconds
    assert parts.tracing_seconds > 0
