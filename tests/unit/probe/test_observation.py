"""Observation of calls, transfers and trainings, and the detection of a call that ended without notice."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import vmselect as vs
from vmselect.errors import ArgumentError
from vmselect.probe import sampling
from vmselect.probe.sampling import Alarm, Observation, watch_call
from vmselect.probe.transfer import Storage
from vmselect.records.usage import Limits, Summary, Usage

SUMMARY = Summary(count=1, seconds=1.0, mean=0.5, maximum=0.5, p50=0.5, p95=0.5)


def wait_for_samples(phase: str | None = None) -> None:
    """Wait until the running sampler has taken a sample of ``phase`` (None: of the current one)."""
    (sampler,) = sampling._RUNNING
    wanted, deadline = phase or sampler._phase, time.monotonic() + 60
    while wanted not in sampler.usage().phases and time.monotonic() < deadline:
        time.sleep(0.02)


def samplers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "vmselect-sampler"]


def test_calls_are_sampled_by_phase(tmp_path: Path) -> None:
    with vs.serving.probe_inference(tmp_path, instance_type="here", sample=0.1, verbose=0) as probe:
        record = probe.run(lambda _: wait_for_samples(), [None] * 10)
    assert not samplers()
    assert {"first_call", "calls"} <= set(record.usage.phases)
    mean = record.usage.mean("cpu_share")
    assert mean == record.usage.phases["calls"]["cpu_share"].mean
    (read,) = vs.load_records(tmp_path)
    assert read == record
    compared = vs.compare([read], by="instance_type", metric="usage.cpu_share")
    assert compared.points["value"].tolist() == [mean]


def test_a_function_that_raises_ends_the_sampling() -> None:
    def answer(_: Any) -> None:
        wait_for_samples()
        raise KeyError("on purpose")

    with vs.serving.probe_inference(instance_type="here", sample=0.1, verbose=0) as probe, pytest.raises(KeyError):
        probe.run(answer, [1] * 10)
    assert not samplers()


def test_without_sampling_no_thread_is_started() -> None:
    seen: list[str] = []
    with vs.serving.probe_inference(instance_type="here", sample=None, verbose=0) as probe:
        record = probe.run(lambda _: seen.extend(samplers()), [1] * 10)
    assert (record.usage, seen) == (None, [])
    moved = vs.serving.probe_transfer(
        "memory://none", megabytes=1, files=2, instance_type="here", sample=None, verbose=0
    )
    assert moved.usage is None


def test_transfers_are_sampled_by_direction(tmp_path: Path) -> None:
    class Slow(Storage):
        def upload(self, *given: Any, **options: Any) -> Any:
            wait_for_samples("upload")
            return super().upload(*given, **options)

        def download(self, *given: Any, **options: Any) -> Any:
            wait_for_samples("download")
            return super().download(*given, **options)

    record = vs.serving.probe_transfer(
        "memory://sampled", tmp_path, megabytes=1, files=1, streams=1, sample=0.1, instance_type="here", verbose=0,
        open_storage=Slow,
    )  # fmt: skip
    assert {"upload", "download"} <= set(record.usage.phases)
    assert not samplers()
    assert vs.load_records(tmp_path)[0] == record


PROBES: list[Callable[..., Any]] = [
    vs.IterationProbe,
    vs.probe_loop,
    vs.serving.probe_inference,
    vs.serving.InferenceProbe,
    vs.ConvergenceProbe,
    lambda sample: vs.serving.probe_transfer("memory://x", sample=sample),
]


@pytest.mark.parametrize("wrong", [0, 0.01, -1, "fast", True, float("nan")])
@pytest.mark.parametrize("make", PROBES)
def test_a_wrong_interval_is_refused(make: Callable[..., Any], wrong: Any) -> None:
    with pytest.raises(ArgumentError, match="sample"):
        make(sample=wrong)


@pytest.mark.parametrize("wrong", [{"alarm": 3}, {"sample": None, "alarm": Alarm(print)}])
def test_an_alarm_needs_samples(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="alarm"):
        vs.EpochProbe(**wrong)


@pytest.mark.parametrize(
    ("phase", "mean"), [("steady_steps", 0.5), ("calls", 0.5), ("upload", 0.5), ("validation", None)]
)
def test_the_mean_is_that_of_the_phase_that_does_the_work(phase: Any, mean: float | None) -> None:
    usage = Usage(interval_seconds=1.0, limits=Limits(), phases={phase: {"cpu_share": SUMMARY}})
    assert usage.mean("cpu_share") == mean


def test_a_run_of_a_study_keeps_sums_only() -> None:
    usage = Usage(
        interval_seconds=1.0, phases={"calls": {"a": SUMMARY}}, seconds=(1.0,), phase=("calls",), series={"a": (0.5,)}
    )
    assert usage.summed_up() == Usage(interval_seconds=1.0, phases={"calls": {"a": SUMMARY}})


# -- a call that ends without notice -----------------------------------------------------------------------------------


def test_sampling_ends_with_the_call_although_its_traceback_is_kept() -> None:
    class Broken(Exception):
        pass

    def fit(observed: Observation) -> None:
        observed.start(watch_call(sys._getframe()))
        observed.enter("steady_steps")
        wait_for_samples("steady_steps")
        raise Broken

    observed = Observation(0.1)
    kept = None
    try:
        fit(observed)
    except Broken as error:
        kept = error  # as a notebook does
    deadline = time.monotonic() + 60
    while samplers() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not samplers()
    assert kept is not None
    assert observed.usage is not None
    assert observed.usage.phases["steady_steps"]
    observed.end()


def test_without_such_a_call_nothing_is_watched() -> None:
    assert watch_call(sys._getframe(), "no such function") is None


def test_a_call_that_ended_is_distinguished_from_one_of_the_same_name_around_it() -> None:
    def inner() -> Callable[[], bool]:
        def fit() -> Callable[[], bool]:
            watched = watch_call(sys._getframe())
            assert watched is not None
            assert watched()
            return watched

        return fit()

    def fit() -> list[bool]:
        around = watch_call(sys._getframe())
        assert around is not None
        watched = inner()
        return [around(), watched()]

    assert fit() == [True, False]


def test_another_thread_sees_a_busy_call_running_every_time() -> None:
    """Walking the frames of a thread that goes on meanwhile lost the call now and then, or crashed."""
    answers: list[bool] = []
    ended = threading.Event()

    def deep(depth: int) -> int:
        return sum(part for part in (deep(depth - 1), 1)) if depth else 0

    def look(is_running: Callable[[], bool]) -> None:
        while not ended.is_set():
            answers.append(is_running())

    def fit() -> None:
        watched = watch_call(sys._getframe())
        assert watched is not None
        looking = threading.Thread(target=look, args=(watched,))
        looking.start()
        for _ in range(1000):
            deep(12)
        ended.set()
        looking.join()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        fit()
    finally:
        sys.setswitchinterval(before)
    assert answers
    assert all(answers)


def test_a_dataset_without_a_batch_size_does_not_break_a_prediction() -> None:
    from vmselect.probe.inference import read_caller

    class Adapter:
        @property
        def batch_size(self) -> int:
            raise NotImplementedError

        partial_batch_size = batch_size

    def predict(x: object, callbacks: object, epoch_iterator: object) -> Any:
        return read_caller(sys._getframe(), "predict")

    found = predict(object(), [], SimpleNamespace(data_adapter=Adapter()))
    assert (found.batch_size, found.partial_batch) == (None, None)
