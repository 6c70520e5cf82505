"""Loads on servers whose times are known, and the records of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import vmselect as vs
from vmselect.probe.inference import (
    CALLS_ALWAYS,
    CALLS_SAMPLED,
    CallTally,
    Load,
    build_calls,
    cut_batches,
    run_together,
)
from vmselect.records import InferenceRecord


class Clock:
    """Time that passes only in sleep."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)


def serve(beats: Sequence[float], **settings: Any) -> InferenceRecord:
    """A server whose calls take the given seconds, one after the other."""
    clock = Clock()
    left: Iterator[float] = iter([0.5, *beats])  # the first call is the slow one
    probe = vs.serving.probe_inference(
        batch_size=8, instance_type="metronome", verbose=0, clock=clock, sleep=clock.sleep, **settings
    )
    with probe as p:
        return p.run(lambda _: clock.sleep(next(left)), range(len(beats) + 1))


@pytest.mark.parametrize("rate", [None, 2.0, 5.0, 9.0])
def test_calls_of_equal_length(rate: float | None) -> None:
    record = serve([0.1] * 200, rate=rate)
    assert record.first_seconds == 0.5
    assert record.calls.total == 200
    assert {round(record.percentile(p) or 0, 9) for p in (1, 50, 99, 100)} == {0.1}
    assert record.calls.items == 1600
    expected = 10.0 if rate is None else 200 / (199 / rate + 0.1)
    assert record.calls_per_second == pytest.approx(expected)
    assert record.items_per_second == pytest.approx(8 * expected)
    assert record.seconds_per_item == pytest.approx(0.1 / 8)
    assert not record.is_saturated


def test_an_open_loop_avoids_coordinated_omission() -> None:
    beats = [0.01] * 50 + [2.0] + [0.01] * 949
    closed, opened = serve(beats), serve(beats, rate=20.0)
    # In the closed loop, one call in a thousand was slow...
    assert closed.percentile(99) == pytest.approx(0.01)
    assert closed.calls.longest_seconds == pytest.approx(2.0)
    # ...but at 20 calls a second, 39 more were due while it lasted, and waited for it and for one another.
    slow = [latency for latency in opened.calls.latency if latency > 0.02]
    assert len(slow) > 39
    assert opened.percentile(99) == pytest.approx(1.6, abs=0.06)
    assert opened.calls.service_seconds == pytest.approx(closed.calls.service_seconds)
    assert "closed-loop" in {finding.code for finding in closed.findings}


def test_a_server_that_cannot_keep_up_is_saturated() -> None:
    record = serve([0.1] * 300, rate=20.0)
    assert record.is_saturated
    assert record.calls_per_second == pytest.approx(10.0)
    assert (record.percentile(99) or 0) > 10
    assert "saturated" in {finding.code for finding in record.findings}
    assert not serve([0.1] * 300, rate=10.0).is_saturated


def test_the_first_call_and_the_warm_up_are_separate() -> None:
    record = serve([0.9, 0.4] + [0.1] * 100)
    assert record.first_seconds == 0.5
    assert record.calls.label[:3] == ("warmup", "warmup", "steady")
    assert (record.calls.total, record.calls.longest_seconds) == (100, pytest.approx(0.1))
    assert record.calls.seconds == pytest.approx(10.0)
    asked = serve([0.9, 0.4] + [0.1] * 100, warmup=2)
    assert asked.preparing == (0.9, 0.4)
    assert asked.calls.label.count("warmup") == 0


def test_memory_is_bounded_and_sums_stay_exact() -> None:
    beats = [0.001 + 0.001 * (number % 100) for number in range(20_000)]
    record = serve(beats)
    assert len(record.calls.number) <= CALLS_ALWAYS + CALLS_SAMPLED
    assert record.calls.total == 20_000
    assert record.calls.service_seconds == pytest.approx(sum(beats))
    for percent in (50, 95, 99, 99.9):
        exact = sorted(beats)[int(percent / 100 * len(beats)) - 1]
        assert record.percentile(percent) == pytest.approx(exact, rel=0.0051)
    assert len(record.to_json()) < 200_000


def test_several_clients_call_at_the_same_time() -> None:
    together = threading.Barrier(4, timeout=60)  # broken, and so a failure, unless four call at once

    def call(number: int) -> None:
        if number:  # the first call is made alone
            together.wait()
            time.sleep(0.02)

    with vs.serving.probe_inference(clients=4, verbose=0) as p:
        record = p.run(call, range(41))
    assert len(record.calls.number) == 40
    assert record.setup.clients == 4
    # Four at a time get through in less time than their calls took together.
    assert record.calls.seconds < record.calls.service_seconds


def test_expected_errors_are_counted_and_others_end_the_load() -> None:
    def flaky(number: int) -> None:
        if number and number % 10 == 0:
            raise ConnectionResetError("gone")

    with vs.serving.probe_inference(verbose=0) as p:
        record = p.run(flaky, range(101))
    assert (record.failed, dict(record.errors)) == (10, {"ConnectionResetError": 10})
    assert len(record.calls.number) == 90
    assert "failed-calls" in {finding.code for finding in record.findings}

    def broken(number: int) -> None:
        if number == 30:
            raise KeyError("a mistake in the program")

    for clients in (1, 3):
        with vs.serving.probe_inference(verbose=0, clients=clients) as p, pytest.raises(KeyError):
            p.run(broken, range(100))
        assert p.record.outcome == "interrupted"
        assert "KeyError" in (p.record.detail or "")
        assert 20 <= len(p.record.calls.number) <= 99


def test_ctrl_c_leaves_what_was_measured(tmp_path: Any) -> None:
    def call(number: int) -> None:
        if number == 30:
            raise KeyboardInterrupt

    with vs.serving.probe_inference(tmp_path, verbose=0) as p, pytest.raises(KeyboardInterrupt):
        p.run(call, range(100))
    (record,) = vs.load_records(tmp_path)
    assert record == p.record
    assert len(p.record.calls.number) == 29


def test_every_run_leaves_a_record(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with vs.serving.probe_inference(tmp_path, batch_size=2, instance_type="here") as p:
        p.run(sum, np.ones((10, 3)))
        p.run(sum, np.ones((20, 3)), calls=30)
    assert {record.id for record in p.records} == {record.id for record in vs.load_records(tmp_path)}
    assert [len(record.calls.number) for record in p.records] == [4, 29]
    assert p.record.setup.bytes_per_item == 24.0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "items/s" in lines[0]


def test_a_time_limit_ends_the_load() -> None:
    clock = Clock()
    for rate in (None, 10.0):
        with vs.serving.probe_inference(verbose=0, seconds=2.0, rate=rate, clock=clock, sleep=clock.sleep) as p:
            record = p.run(lambda _: clock.sleep(0.1), range(1000))
        assert record.calls.total == 20


@pytest.mark.parametrize(
    "call",
    [
        lambda: vs.serving.probe_inference(batch_size=0),
        lambda: vs.serving.probe_inference(rate=0),
        lambda: vs.serving.probe_inference(rate=float("nan")),
        lambda: vs.serving.probe_inference(clients=True),
        lambda: vs.serving.probe_inference(errors="oops"),
        lambda: vs.serving.probe_inference(errors=KeyboardInterrupt),
        lambda: vs.serving.probe_inference(synchronize=3),
        lambda: vs.serving.InferenceProbe(calls=0),
        lambda: vs.serving.InferenceProbe(path=3),
        lambda: InferenceRecord.from_times(instance_type="a", call_seconds=[]),
        lambda: InferenceRecord.from_times(instance_type="a", call_seconds=[-1.0]),
        lambda: list(cut_batches("text", batch_size=None)),
        lambda: list(cut_batches([], batch_size=None)),
        lambda: list(cut_batches({"a": 1}, batch_size=None)),
        lambda: list(cut_batches(np.float64(3), batch_size=None)),
        lambda: list(cut_batches(7, batch_size=None)),
    ],
)
def test_bad_arguments_are_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(vs.errors.ArgumentError):
        call()


def test_a_run_needs_its_block_and_something_to_call() -> None:
    probe = vs.serving.probe_inference(verbose=0)
    with pytest.raises(vs.errors.ProbeError):
        probe.run(len, [1])
    with pytest.raises(vs.errors.ProbeError):
        _ = probe.record
    with probe as p, pytest.raises(vs.errors.ArgumentError):
        p.run("predict", [1])  # type: ignore[arg-type]
    with probe as p, pytest.raises(vs.errors.ArgumentError):
        p.run(len, iter([]))


def test_a_single_call_is_a_record_of_its_first() -> None:
    with vs.serving.probe_inference(verbose=0) as p:
        record = p.run(len, ["x"])
    assert record.first_seconds is not None
    assert (record.calls.total, record.percentile(99), record.items_per_second) == (0, None, None)


def test_a_load_without_calls() -> None:
    tally = CallTally()
    Load(len, iter([]), tally).run()
    assert build_calls(tally).total == 0


# -- threads -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interrupted", [False, True])
def test_the_first_error_stops_all_threads(interrupted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, ended = threading.Event(), []
    join = threading.Thread.join

    def interrupt(thread: threading.Thread, timeout: float | None = None) -> None:
        if not stop.is_set():
            raise KeyboardInterrupt
        join(thread, timeout)

    def fail() -> None:
        raise OSError("gone")

    def wait() -> None:
        assert stop.wait(30)
        ended.append("waited")

    if interrupted:
        monkeypatch.setattr(threading.Thread, "join", interrupt)
    with pytest.raises(KeyboardInterrupt if interrupted else OSError):
        run_together([wait, wait] if interrupted else [wait, fail, wait], stop=stop, name="test", patience=30)
    assert ended == ["waited", "waited"]


# -- records -----------------------------------------------------------------------------------------------------------


def test_properties_of_an_inference_record() -> None:
    seconds = [0.01 * number for number in range(1, 101)]  # 1 to 100 hundredths, 50.5 in all
    record = InferenceRecord.from_times(
        instance_type="x", call_seconds=seconds, batch_size=4, clients=2, bytes_per_item=500_000
    )
    assert (record.p50_seconds, record.p95_seconds, record.p99_seconds) == pytest.approx((0.5, 0.95, 0.99))
    assert record.call_seconds == pytest.approx(0.505)
    assert record.seconds_per_item == pytest.approx(0.505 / 4)
    assert record.seconds_per_mb == pytest.approx(0.505 / 4 * 2)  # half a megabyte each
    assert record.calls.seconds == pytest.approx(50.5 / 2)  # two at a time
    assert record.calls_per_second == pytest.approx(100 / 25.25)
    assert record.items_per_second == pytest.approx(400 / 25.25)
    assert record.mb_per_second == pytest.approx(200 / 25.25)
    unsized = InferenceRecord.from_times(instance_type="x", call_seconds=[1.0])
    assert (unsized.seconds_per_mb, unsized.mb_per_second) == (None, None)


@pytest.mark.parametrize(("rate", "longest", "lasted"), [(10.0, 0.2, 20.0), (1000.0, 3.0, 3.0)])
def test_a_given_load_lasts_as_long_as_its_calls_or_as_the_longest(rate: float, longest: float, lasted: float) -> None:
    record = InferenceRecord.from_times(instance_type="x", call_seconds=[0.1] * 199 + [longest], rate=rate)
    assert record.calls.seconds == pytest.approx(lasted)


@pytest.mark.parametrize(("answered", "saturated"), [(948, False), (947, True)])
def test_a_load_is_saturated_where_a_twentieth_of_its_calls_is_missing(answered: int, saturated: bool) -> None:
    from vmselect.records.inference import Calls, InferenceRecord, InferenceSetup

    # 1,000 calls were due in 10 s; two may be on their way when the load ends.
    calls = Calls(total=answered, items=answered, seconds=10.0, buckets=(0,), counts=(answered,))
    record = InferenceRecord(setup=InferenceSetup(source="callable", rate=100.0), calls=calls)
    assert record.is_saturated is saturated


@pytest.mark.parametrize(("count", "few"), [(99, True), (100, False)])
def test_a_hundred_calls_have_a_99th_percentile(count: int, few: bool) -> None:
    record = InferenceRecord.from_times(instance_type="x", call_seconds=[0.1] * count)
    assert ("few-calls" in {finding.code for finding in record.findings}) is few


@pytest.mark.parametrize(("longest", "warned"), [(10.0, False), (10.1, True)])
def test_a_closed_loop_is_a_finding_where_one_call_took_ten_times_the_median(longest: float, warned: bool) -> None:
    typed = InferenceRecord.from_times(instance_type="x", call_seconds=[1.0] * 50 + [1.5] * 49 + [longest])
    measured = typed.model_copy(update={"setup": typed.setup.model_copy(update={"source": "callable"})})
    assert ("closed-loop" in {finding.code for finding in measured.findings}) is warned
    assert "closed-loop" not in {finding.code for finding in typed.findings}


def test_failures_are_a_share_of_all_calls() -> None:
    record = InferenceRecord.from_times(instance_type="x", call_seconds=[1.0] * 150)
    failing = record.model_copy(update={"errors": {"TimeoutError": 30, "OSError": 20}})
    assert failing.failed == 50
    (finding,) = failing.findings
    assert finding.code == "failed-calls"
    assert "25.00%" in finding.message
