"""Sampling in the probes that watch no training: calls and transfers; and in one that watches whole trainings."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from vmselect.errors import ArgumentError
from vmselect.probe.monitoring import Observation, watch_call
from vmselect.probe.sampling import Sampler
from vmselect.records.usage import PHASES, Limits, Summary, Usage

SUMMARY = Summary(count=1, seconds=1.0, mean=0.5, maximum=0.5, p50=0.5, p95=0.5)


def samplers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "vmselect-sampler"]


def test_calls_are_sampled_by_phase(tmp_path: Path) -> None:
    first = [True]

    def answer(_: Any) -> None:
        time.sleep(0.4 if first.pop() else 0.05) if first else time.sleep(0.05)

    with vs.probe_inference(tmp_path, instance_type="here", sample=0.1, verbose=0) as probe:
        record = probe.run(answer, [1] * 10)
    assert not samplers()
    assert {"first_call", "calls"} <= set(record.usage.phases)
    assert record.usage.mean("cpu_share") == record.usage.phases["calls"]["cpu_share"].mean
    (read,) = vs.load_records(tmp_path)
    assert read == record
    assert vs.compare([read], by="instance_type", metric="usage.cpu_share").points["value"].tolist() == [
        record.usage.mean("cpu_share")
    ]


def test_a_function_that_raises_ends_the_sampling() -> None:
    def answer(_: Any) -> None:
        time.sleep(0.3)
        raise KeyError("on purpose")

    with vs.probe_inference(instance_type="here", sample=0.1, verbose=0) as probe, pytest.raises(KeyError):
        probe.run(answer, [1] * 10)
    assert not samplers()


def test_without_sampling_nothing_is_started() -> None:
    seen = []
    with vs.probe_inference(instance_type="here", sample=None, verbose=0) as probe:
        record = probe.run(lambda _: seen.extend(samplers()), [1] * 10)
    assert record.usage is None
    assert seen == []
    moved = vs.probe_transfer("memory://none", megabytes=1, files=2, instance_type="here", sample=None, verbose=0)
    assert moved.usage is None


def test_transfers_are_sampled_by_direction(tmp_path: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    from vmselect.probe.storage import Storage

    class Slow(Storage):
        def upload(self, *given: Any, **options: Any) -> Any:
            time.sleep(0.4)
            return super().upload(*given, **options)

        def download(self, *given: Any, **options: Any) -> Any:
            time.sleep(0.4)
            return super().download(*given, **options)

    record = vs.probe_transfer(
        "memory://sampled", tmp_path, megabytes=1, files=1, streams=1, sample=0.1, instance_type="here", verbose=0,
        open_storage=Slow,
    )  # fmt: skip
    assert {"upload", "download"} <= set(record.usage.phases)
    assert not samplers()
    assert vs.load_records(tmp_path)[0] == record


@pytest.mark.parametrize("wrong", [0.01, -1, "fast", float("nan")])
def test_a_wrong_interval_is_refused_before_anything_runs(wrong: Any) -> None:
    for make in (vs.probe_inference, vs.InferenceProbe, vs.ConvergenceProbe):
        with pytest.raises(ArgumentError, match="sample"):
            make(sample=wrong)
    with pytest.raises(ArgumentError, match="sample"):
        vs.probe_transfer("memory://x", sample=wrong)


def test_what_counts_is_the_phase_of_the_work() -> None:
    for phase in ("steady_steps", "calls", "upload"):
        usage = Usage(interval_seconds=1.0, limits=Limits(), phases={phase: {"cpu_share": SUMMARY}})
        assert usage.mean("cpu_share") == 0.5
    assert Usage(interval_seconds=1.0, phases={"validation": {"cpu_share": SUMMARY}}).mean("cpu_share") is None
    assert set(PHASES) >= {"first_call", "calls", "upload", "download"}


def test_a_run_of_a_study_keeps_sums_only() -> None:
    usage = Usage(
        interval_seconds=1.0, phases={"calls": {"a": SUMMARY}}, seconds=(1.0,), phase=("calls",), series={"a": (0.5,)}
    )
    assert usage.summed_up() == Usage(interval_seconds=1.0, phases={"calls": {"a": SUMMARY}})


# -- an end that nobody tells ------------------------------------------------------------------------------------------


class Broken(Exception):
    pass


def fit(observed: Observation) -> None:
    observed.start(watch_call(sys._getframe()))
    observed.enter("steady_steps")
    time.sleep(0.3)
    raise Broken


def test_sampling_ends_when_the_call_has_although_its_traceback_is_kept() -> None:
    observed = Observation(0.1)
    kept = None
    try:
        fit(observed)
    except Broken as error:
        kept = error  # as a notebook does
    deadline = time.monotonic() + 10
    while samplers() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not samplers()
    assert kept is not None
    assert observed.usage is not None
    assert observed.usage.phases["steady_steps"]
    observed.end()


def test_no_such_call_is_no_end() -> None:
    assert watch_call(sys._getframe(), "no such function") is None


def test_a_call_that_is_over_is_not_taken_for_one_of_the_same_name_around_it() -> None:
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


def test_what_is_alive_is_sampled_on() -> None:
    sampler = Sampler(0.1, readers=[], alive=lambda: True)
    sampler.start()
    time.sleep(0.3)
    assert samplers()
    sampler.stop()
    assert not samplers()


def test_data_that_do_not_know_their_batch_do_not_break_a_prediction() -> None:
    from types import SimpleNamespace

    from vmselect.probe.inference import _read_locals

    class Adapter:
        @property
        def batch_size(self) -> int:
            raise NotImplementedError

        partial_batch_size = batch_size

    found = _read_locals({"epoch_iterator": SimpleNamespace(data_adapter=Adapter()), "x": object()})
    assert (found.batch_size, found.partial_batch) == (None, None)


def test_a_call_that_is_busy_is_seen_by_another_thread_at_every_look() -> None:
    """Walked frame by frame, the stack of a thread that goes on meanwhile was lost now and then, or crashed it."""
    answers: list[bool] = []
    ended = threading.Event()

    def deep(depth: int) -> int:
        return sum(part for part in (deep(depth - 1), 1)) if depth else 0

    def look(goes_on: Callable[[], bool]) -> None:
        while not ended.is_set():
            answers.append(goes_on())

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
