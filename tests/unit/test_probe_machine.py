"""Machine and framework facts: read where they are, absent where they are not, never an error."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from vmselect.probe import environment
from vmselect.probe import environment as start


class NVMLError(Exception):
    pass


def fake_driver(**answers):
    def refuse(*_):
        raise NVMLError("not supported")

    names = [
        "nvmlInit",
        "nvmlShutdown",
        "nvmlSystemGetDriverVersion",
        "nvmlDeviceGetCount",
        "nvmlDeviceGetHandleByIndex",
        "nvmlDeviceGetName",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetPowerManagementLimit",
    ]
    return SimpleNamespace(NVMLError=NVMLError, **{name: answers.get(name, refuse) for name in names})


def test_gpus_as_the_driver_describes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = fake_driver(
        nvmlInit=lambda: None,
        nvmlSystemGetDriverVersion=lambda: b"550.54",
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: "Tesla T4" if handle else b"Tesla V100",
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=16 << 30),
        nvmlDeviceGetPowerManagementLimit=lambda handle: 70_000,
    )
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    first, second = environment.read_gpus()
    assert (first.name, second.name) == ("Tesla V100", "Tesla T4")
    assert (first.memory_bytes, first.driver, first.power_limit_watts) == (16 << 30, "550.54", 70.0)


def test_a_driver_that_refuses_questions_still_gives_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = fake_driver(
        nvmlInit=lambda: None, nvmlDeviceGetCount=lambda: 1, nvmlDeviceGetHandleByIndex=lambda index: 7
    )
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    (gpu,) = environment.read_gpus()
    assert (gpu.name, gpu.memory_bytes, gpu.driver) == ("unknown GPU", None, None)


def test_no_driver_means_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_driver())
    assert environment.read_gpus() == ()
    monkeypatch.setitem(sys.modules, "pynvml", None)  # not installed
    assert environment.read_gpus() == ()


def test_the_processor(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Xeon 9000\nmodel name\t: other\n")
    assert environment.read_cpu_model(info) == "Xeon 9000"
    environment.read_cpu_model(tmp_path / "absent")
    machine = environment.read_machine()
    assert machine["usable_cores"] <= machine["cpu_cores"] == os.cpu_count()
    assert machine["memory_bytes"] > 0
    assert environment.read_peak_memory() > 1_000_000


def test_a_process_held_to_one_core() -> None:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system cannot hold a process to a core")
    code = ("import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
            "from vmselect.probe.environment import usable_cores; print(len(usable_cores()))")  # fmt: skip
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"


def test_worker_number_and_replicas() -> None:
    def model(task_type, task_id, **jobs):
        cluster = SimpleNamespace(jobs=list(jobs), num_tasks=lambda job: jobs[job])
        resolver = SimpleNamespace(cluster_spec=lambda: cluster, task_type=task_type, task_id=task_id)
        return SimpleNamespace(distribute_strategy=SimpleNamespace(cluster_resolver=resolver, num_replicas_in_sync=4))

    assert environment.read_worker(model("worker", 0, worker=3)) == (0, 3)
    assert environment.read_worker(model("worker", 2, worker=3)) == (2, 3)
    assert environment.read_worker(model("chief", 0, chief=1, worker=2)) == (0, 3)
    assert environment.read_worker(model("worker", 0, chief=1, worker=2)) == (1, 3)
    assert environment.read_worker(model("worker", 0, chief=1, worker=2, ps=5)) == (1, 3)
    assert environment.read_worker(SimpleNamespace()) == (0, 1)
    assert environment.count_replicas(model("worker", 0, worker=3)) == 4
    assert environment.count_replicas(None) == 1


@pytest.mark.parametrize(
    ("told", "workers", "here"),
    [("8", 8, 8), ("8", 16, 8), ("1", 1, 1), (None, 8, None), ("", 8, None), ("8", 1, None), ("0", 8, None),
     ("many", 8, None)],
)  # fmt: skip
def test_how_many_workers_share_the_machine(
    told: str | None, workers: int, here: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if told is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", told)
    assert environment.count_workers_here(workers) == here


def test_a_model_that_counts_no_examples() -> None:
    for model in (None, SimpleNamespace(), SimpleNamespace(_loss_tracker=SimpleNamespace(count=None))):
        assert environment.count_examples(model, steps=None) is None
    for value, steps, expected in (
        (8.0, 1, 8),
        (0.0, 1, None),
        (7.5, 1, None),
        (float("nan"), None, None),
        (3.0, 3, None),
    ):
        tracker = SimpleNamespace(count=SimpleNamespace(value=value))
        assert environment.count_examples(SimpleNamespace(_loss_tracker=tracker), steps=steps) == expected


@pytest.fixture
def fresh_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_marked_ns", None)
    monkeypatch.setattr(start, "_fits", 0)
    monkeypatch.setattr(start, "in_notebook", lambda: False)


@pytest.mark.usefixtures("fresh_start")
def test_initialization_is_counted_once() -> None:
    seconds, source = start.take_initialization()
    assert source == "process start"
    assert seconds > 0
    assert start.take_initialization() is None
    start.mark_start()
    seconds, source = start.take_initialization()
    assert (source, 0 <= seconds < 10) == ("mark_start", True)
    assert start.take_initialization() is None


@pytest.mark.usefixtures("fresh_start")
def test_a_notebook_has_no_start_but_a_marked_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "in_notebook", lambda: True)
    assert start.take_initialization() is None
    start.mark_start()
    assert start.take_initialization()[1] == "mark_start"


def test_what_a_notebook_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "ps1", raising=False)
    monkeypatch.setitem(sys.modules, "IPython", None)
    assert not start.in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert not start.in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: object()))
    assert start.in_notebook()


def test_the_age_of_a_process_is_exact() -> None:
    before = time.monotonic()
    code = (
        "import time, vmselect.probe.environment as s; print(s.process_age_seconds()); "
        "time.sleep(0.5); print(s.process_age_seconds())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    first, second = map(float, out)
    assert 0 < first < second <= time.monotonic() - before + 0.02
    assert second - first >= 0.49


def test_a_system_that_tells_the_age_otherwise(tmp_path: Path) -> None:
    broken = tmp_path / "stat"
    for text in ("", "1 (a) b", "1 (evil ) name) S " + "x " * 30):
        broken.write_text(text)
        assert start.process_age_seconds(broken) > 0
    assert start.process_age_seconds(tmp_path / "absent") > 0
