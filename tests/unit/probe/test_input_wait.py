"""How long steps wait for input: the clock around a fetch, Keras' iterator, TensorFlow's trace; and without them."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import vmselect as vs
from vmselect.probe import input_wait
from vmselect.probe.input_wait import (
    FetchClock,
    StepTrace,
    TensorFlowTrace,
    find_epoch_iterator,
    time_fetches,
    watch_iterator,
)


class Clock:
    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now

    def tick(self, seconds):
        self.now += int(seconds * 1e9)


def fetch_all(clock, fetches, *, fetch, compute, count):
    def batches():
        for number in range(count):
            clock.tick(fetch)
            yield number

    for _ in fetches.watch(batches()):
        clock.tick(compute)


def test_the_share_of_waiting():
    clock = Clock()
    fetches = FetchClock(clock=clock)
    fetch_all(clock, fetches, fetch=0.3, compute=0.1, count=10)
    wait = fetches.result("test")
    assert wait.share == pytest.approx(0.75)
    assert (wait.steps, wait.method) == (9, "test")


@pytest.mark.parametrize(("execution", "waited"), [(0.0, 0.3), (0.1, 0.2), (0.3, 0.0), (7.0, 0.0)])
def test_a_fetch_during_the_execution_of_earlier_steps_is_no_wait(execution, waited):
    clock = Clock()
    fetches = FetchClock(clock=clock)
    fetch_all(clock, fetches, fetch=0.3, compute=0.0, count=1_001)
    fetches.subtract(int(execution * 1e9))
    fetches.subtract(int(execution * 1e9))
    wait = fetches.result("test")
    assert wait.seconds / wait.steps == pytest.approx(waited, abs=0.001)


def test_time_between_epochs_does_not_count():
    clock = Clock()
    fetches = FetchClock(clock=clock)
    for _ in range(3):
        fetch_all(clock, fetches, fetch=0.1, compute=0.1, count=10)
        clock.tick(100)
    assert fetches.result("test").share == pytest.approx(0.5)


def test_an_iterator_that_outlives_its_epoch():
    clock = Clock()
    fetches = FetchClock(clock=clock)
    batches = fetches.watch(iter(range(20)))
    for _ in range(2):
        for _ in range(5):
            next(batches)
            clock.tick(0.1)
        fetches.pause()
        clock.tick(100)  # a validation
    assert fetches.taken < 2e9


def test_after_too_few_steps_the_wait_is_unknown():
    fetches = FetchClock()
    list(fetches.watch(range(3)))
    assert fetches.result("test") is None


class Owner:
    def _get_iterator(self):
        return range(10)


def test_an_iterator_is_restored():
    owner = Owner()
    clock = FetchClock()
    undo = watch_iterator(clock, owner)
    assert list(iter(owner._get_iterator())) == list(range(10))
    assert clock.result("test").steps == 9
    undo()
    assert "_get_iterator" not in vars(owner)
    undo()


@pytest.mark.parametrize("owner", [None, object(), SimpleNamespace(_get_iterator=3), SimpleNamespace()])
def test_without_an_iterator_nothing_is_watched(owner):
    assert watch_iterator(FetchClock(), owner) is None


class Loop:
    """A trainer's loop, which fetches in a function, or calls functions before and after it fetches."""

    def __init__(self, clock):
        self._wait = clock.tick

    def fetch(self, seconds):
        self._wait(seconds)
        return seconds

    def before(self):
        self._wait(0)

    after = before


@pytest.mark.parametrize(("first", "last"), [("fetch", "fetch"), ("before", "after")])
def test_fetches_of_a_trainer_are_timed_from_one_function_to_another(first, last):
    clock = Clock()
    loop, fetches = Loop(clock), FetchClock(clock=clock)
    undo = time_fetches(fetches, loop, first, last)
    for _ in range(10):
        loop.before()
        assert loop.fetch(0.3) == 0.3
        loop.after()
        clock.tick(0.1)
    assert fetches.result("test").share == pytest.approx(0.75)
    assert fetches.steps == 8
    undo()
    assert set(vars(loop)) == {"_wait"}


def test_a_trainer_without_these_functions_is_left_alone():
    loop = Loop(Clock())
    assert time_fetches(FetchClock(), loop, "before", "nothing") is None
    assert time_fetches(FetchClock(), None, "before", "after") is None
    loop.fetch = len  # replaced by another program
    assert time_fetches(FetchClock(), loop, "fetch", "fetch") is None
    assert set(vars(loop)) == {"_wait", "fetch"}


def test_an_exception_of_the_data_passes_through():
    def broken():
        yield 1
        raise RuntimeError("bad data")

    with pytest.raises(RuntimeError, match="bad data"):
        list(FetchClock().watch(broken()))


def test_without_fit_there_is_no_iterator():
    assert find_epoch_iterator(sys._getframe()) is None


def fake_tensorflow(start=None, stop=None):
    experimental = SimpleNamespace(start=start, stop=stop, ProfilerOptions=lambda **options: options)
    return SimpleNamespace(profiler=SimpleNamespace(experimental=experimental))


def refuse(folder, options):
    raise OSError("another profiler is running")


@pytest.mark.parametrize(
    "tensorflow",
    [None, SimpleNamespace(), SimpleNamespace(profiler=SimpleNamespace()), fake_tensorflow(refuse)],
    ids=["no TensorFlow", "no profiler", "other profiler", "profiler in use"],
)
def test_without_a_profiler_the_wait_is_unknown(monkeypatch, tensorflow):
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    trace = TensorFlowTrace()
    assert not trace.begin()
    assert trace.end(5) is None
    assert trace.result is None


@pytest.mark.slow  # as it needs a package that plain pytest does not
def test_a_trace_that_cannot_be_read_leaves_the_wait_unknown(monkeypatch):
    struct = pytest.importorskip("google.protobuf.struct_pb2")
    folders = []

    def stop():
        folders[-1].joinpath("host.xplane.pb").write_bytes(b"cut off")

    start = lambda folder, options: folders.append(Path(folder))  # noqa: E731
    monkeypatch.setitem(sys.modules, "tensorflow", fake_tensorflow(start, stop))
    monkeypatch.setattr(input_wait, "_load_protobuf", lambda: SimpleNamespace(XSpace=struct.Struct))
    trace = TensorFlowTrace()
    assert trace.begin()
    assert trace.end(5) is None
    assert not folders[-1].exists()


class FakeTrace:
    def __init__(self, works=True):
        self.works = works
        self.steps = None

    def begin(self):
        return self.works

    def end(self, steps):
        self.steps = steps


def test_a_trace_of_five_steps():
    inner = FakeTrace()
    trace = StepTrace(inner)
    assert trace.begin(20, 100)
    assert [trace.see(batch) for batch in range(21, 26)] == [False] * 4 + [True]
    trace.end()
    trace.end()
    assert inner.steps == 5
    assert not trace.begin(40, 100)  # once


@pytest.mark.parametrize(("batch", "last", "room"), [(20, 21, 0), (20, 23, 2), (20, 26, 5), (20, float("inf"), 5)])
def test_steps_are_left_after_a_trace(batch, last, room):
    assert StepTrace(FakeTrace()).room(batch, last) == room
    assert StepTrace().room(batch, last) == 0


def test_a_trace_that_does_not_begin_is_not_tried_again():
    trace = StepTrace(FakeTrace(works=False))
    assert not trace.begin(20, 100)
    assert not trace.room(20, 100)


@pytest.mark.parametrize(("wanted", "last", "at"), [(20, 59, 20), (20, 19, 13), (20, 8, float("inf"))])
def test_where_a_trace_in_passing_begins(wanted, last, at):
    assert StepTrace(FakeTrace()).plan_in_passing(wanted, last) == at


def slow_batches(clock):
    for number in range(12):
        clock.tick(0.3)
        yield number


@pytest.mark.usefixtures("no_framework")
@pytest.mark.parametrize("validates", [False, True])
def test_the_wait_of_a_loop(validates):
    clock = Clock()
    with vs.probe_loop(batch_size=1, instance_type="x", verbose=0, stop=False) as probe:
        probe._recording.observation._fetches._clock = clock
        for number in probe.steps(slow_batches(clock)):
            clock.tick(0.1)
            if validates and number == 5:
                with probe.validation():
                    clock.tick(100)
    wait = probe.profile.timeline.input_wait
    assert (wait.share, wait.method) == (pytest.approx(0.75), "loop")


def test_without_samples_the_wait_is_unknown():
    with vs.probe_loop(batch_size=1, instance_type="x", verbose=0, sample=None) as probe:
        for _ in probe.steps(range(30)):
            pass
    assert probe.profile.usage is None
    assert probe.profile.timeline.input_wait is None
