"""The sampling thread: phases, bounded memory, endings, forks; and the alarm."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from types import SimpleNamespace

import pytest

from vmselect.errors import ArgumentError
from vmselect.probe import sampling
from vmselect.probe.sampling import MAX_EARLY_SAMPLES, MAX_ROWS_PER_PHASE, MIN_SAMPLE_SECONDS, Alarm, Sampler, Tally
from vmselect.records.usage import MAX_SAMPLES, Limits, Usage

NO_LIMITS = Limits()
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


class Counter:
    """A reader that counts its readings."""

    def __init__(self):
        self.readings = 0
        self.closed = False

    def read(self, seconds):
        self.readings += 1
        return {"seen_share": seconds}

    def close(self):
        self.closed = True


class Stepped(Sampler):
    """A sampler without its thread, by a clock that is set."""

    def __init__(self, interval, reader, **options):
        super().__init__(interval, clock=lambda: self.now, **options)
        self.now = 0.0
        self._readers = [reader]

    def pass_time(self, seconds, phase=None):
        self.now += seconds
        if phase is not None:
            self.enter(phase)
        return self._tick()


def samplers():
    return [thread for thread in threading.enumerate() if thread.name == "vmselect-sampler"]


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def fork():
    with warnings.catch_warnings():
        # Frameworks that other tests loaded have threads of their own.
        warnings.simplefilter("ignore")
        return os.fork()


# -- the tally ---------------------------------------------------------------------------------------------------------


def test_means_are_weighted_by_time():
    tally = Tally()
    tally.add("steady_steps", 1.0, 1.0, {"cpu_share": 1.0})
    tally.add("steady_steps", 4.0, 3.0, {"cpu_share": 0.0})
    usage = tally.build(1.0, Limits())
    assert usage.mean("cpu_share") == 0.25
    assert usage.summary("cpu_share").maximum == 1.0
    assert usage.seconds == (1.0, 4.0)
    assert usage.mean("cpu_share", "validation") is None


def test_a_day_takes_bounded_memory_and_keeps_exact_sums():
    tally = Tally()
    seconds = 24 * 3600
    for second in range(seconds):
        phase = "validation" if second % 10 == 0 else "steady_steps"
        tally.add(phase, float(second), 1.0, {"cpu_share": float(second % 2), "power_watts": 70.0})
    usage = tally.build(1.0, Limits())
    summary = usage.summary("cpu_share")
    assert (summary.count, summary.seconds) == (seconds * 0.9, seconds * 0.9)
    assert summary.mean == pytest.approx(5 / 9, rel=1e-3)
    assert len(usage.seconds) <= 2 * MAX_ROWS_PER_PHASE
    assert usage.seconds[-1] > 0.95 * seconds  # thinned out evenly, not cut off
    assert Usage.model_validate_json(usage.model_dump_json()) == usage
    assert 5 * MAX_ROWS_PER_PHASE <= MAX_SAMPLES


def test_series_have_gaps_and_no_single_cores():
    tally = Tally()
    tally.add("steady_steps", 1.0, 1.0, {"a": 1.0, "b": float("nan"), "core0_share": 1.0})
    tally.add("steady_steps", 2.0, 1.0, {"b": 2.0})
    tally.add("steady_steps", 3.0, 1.0, {})
    usage = tally.build(1.0, Limits())
    assert usage.series == {"a": (1.0, None), "b": (None, 2.0)}
    assert list(usage.quantities()) == ["a", "core0_share", "b"]


def test_columns_that_differ_in_length_are_refused():
    with pytest.raises(ValueError, match="length"):
        Usage(interval_seconds=1.0, seconds=(1.0,), phase=())


@pytest.fixture
def half_added(monkeypatch):
    """A tally to which a thread is adding its first sample, and the event that lets it go on."""
    tally, began, go_on = Tally(), threading.Event(), threading.Event()
    add = sampling.PhaseTally.add

    def add_slowly(*given):
        began.set()
        go_on.wait(60)
        add(*given)

    monkeypatch.setattr(sampling.PhaseTally, "add", add_slowly)
    adding = threading.Thread(target=tally.add, args=("steady_steps", 1.0, 1.0, {"cpu_share": 0.5, "steal_share": 0.0}))
    adding.start()
    assert began.wait(60)
    yield tally, go_on
    go_on.set()
    adding.join()


def test_building_waits_for_a_sample_that_is_being_added(half_added):
    tally, go_on = half_added
    threading.Timer(0.2, go_on.set).start()
    assert tally.build(1.0, Limits()).series == {"cpu_share": (0.5,), "steal_share": (0.0,)}


@forks
def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent(half_added):
    tally, _ = half_added
    child = fork()
    if child == 0:
        signal.alarm(20)
        with tally._locked():
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_signal_handler_may_build_a_record_while_one_is_built():
    tally = Tally()
    tally.add("steady_steps", 1.0, 1.0, {"cpu_share": 0.5})
    with tally._locked():
        assert tally.build(1.0, Limits()).mean("cpu_share") == 0.5


# -- the thread --------------------------------------------------------------------------------------------------------


def test_a_sample_belongs_to_the_phase_that_took_most_of_it():
    sampler = Stepped(1.0, Counter())
    for at, phase in ((0.2, "first_step"), (0.3, "steady_steps"), (0.9, "validation")):
        sampler.now = at
        sampler.enter(phase)
    sampler.pass_time(0.1)
    sampler.pass_time(1.0)
    assert sampler.usage().phase == ("steady_steps", "validation")


@pytest.mark.parametrize(
    ("interval", "train", "pause", "low", "high"),
    [
        (10.0, 0.0005, 0.0005, 5, 10),  # epochs of a millisecond, for one second
        (1.0, 0.040, 0.005, 45, 45 + MAX_EARLY_SAMPLES),  # of 45 ms, for 45 seconds
    ],
)
def test_changes_of_phase_are_sampled_but_not_too_often(interval, train, pause, low, high):
    reader = Counter()
    sampler = Stepped(interval, reader)
    for _ in range(1_000):
        sampler.pass_time(train, "boundary")
        sampler.pass_time(pause, "steady_steps")
    assert low <= reader.readings <= high


def test_a_short_phase_has_three_samples_of_its_own():
    sampler = Stepped(10.0, Counter())
    sampler.enter("steady_steps")
    for _ in range(20):
        sampler.pass_time(7.3, "validation")
        sampler.pass_time(0.2, "steady_steps")
    summary = sampler.usage().summary("seen_share", "validation")
    assert (summary.count, summary.seconds) == (3, pytest.approx(3 * 0.2))


def test_a_change_during_a_sample_gets_its_own_sample_soon():
    class Changing(Counter):
        def read(self, seconds):
            if self.readings == 0:
                sampler.enter("steady_steps")  # while this sample is being taken
            return super().read(seconds)

    sampler = Stepped(10.0, reader := Changing())
    sampler.now = 0.5
    sampler.enter("validation")
    assert sampler.pass_time(0.1) == pytest.approx(MIN_SAMPLE_SECONDS)
    assert sampler.pass_time(0.15) == pytest.approx(10.0)
    assert reader.readings == 2


def test_stopping_takes_a_last_sample_and_closes_the_readers():
    reader = Counter()
    sampler = Sampler(60.0, readers=[reader])
    sampler.start()
    sampler.enter("steady_steps")
    time.sleep(0.15)
    usage = sampler.stop()
    assert usage.phase == ("steady_steps",)
    assert reader.closed
    assert not samplers()
    assert sampler.stop() == usage


def test_no_sample_is_no_usage():
    sampler = Sampler(60.0, readers=[Counter()])
    sampler.start()
    assert sampler.stop() is None


def test_an_abandoned_sampler_ends():
    sampler = Sampler(0.05, readers=[Counter()])
    sampler.start()
    assert samplers()
    del sampler
    gc.collect()
    wait_until(lambda: not samplers())


def test_sampling_goes_on_while_the_measurement_is_alive():
    alive = [True]
    sampler = Sampler(0.1, readers=[], alive=lambda: alive[0])
    sampler.start()
    time.sleep(0.3)
    assert samplers()
    alive.clear()
    alive.append(False)
    wait_until(lambda: not samplers())


@forks
def test_sampling_survives_a_fork():
    reader = Counter()
    sampler = Sampler(0.05, readers=[reader])
    sampler.start()
    child = fork()
    if child == 0:
        quiet = not samplers() and not sampling._RUNNING
        sampler.stop()
        os._exit(0 if quiet and not reader.closed else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    before = reader.readings
    wait_until(lambda: reader.readings > before)
    assert len(samplers()) == 1
    sampler.stop()


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param("child = os.fork() or os._exit(0); os.waitpid(child, 0); s.stop()", marks=forks),
        "s.enter('steady_steps')",  # the program ends without stopping
    ],
)
def test_a_sampled_program_forks_and_ends_without_warnings(ending):
    program = "import os; from vmselect.probe.sampling import Sampler; s = Sampler(0.05); s.start(); " + ending
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True, text=True, timeout=60, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.stderr == ""


# -- the alarm ---------------------------------------------------------------------------------------------------------


def feed(alarm, shares, limits=NO_LIMITS, name="usable_cpu_share"):
    for second, share in enumerate(shares):
        alarm.check(float(second), {} if share is None else {name: share}, limits)
    for thread in threading.enumerate():
        if thread.name == "vmselect-alarm":
            thread.join(30)


def test_the_alarm_notifies_once_until_utilization_falls():
    heard = []
    feed(Alarm(heard.append, seconds=5), [0.95] * 20 + [0.5] + [0.99] * 10)
    assert [finding.code for finding in heard] == ["cpu-saturated"] * 2
    assert "90%" in str(heard[0])


def test_the_alarm_uses_the_quota_of_a_container():
    heard = []
    limits = Limits(cores=64, container_cores=4.0)
    feed(Alarm(heard.append, seconds=5), [3.9] * 10, limits, "process_cores")
    assert "98%" in str(heard[0])
    feed(Alarm(heard.append, seconds=5), [3.5] * 10, limits, "process_cores")
    feed(Alarm(heard.append, seconds=5), [0.95] * 10, limits)  # the work of the process is unknown
    assert len(heard) == 1
    feed(Alarm(heard.append, seconds=5), [0.95] * 10, Limits(cores=2, container_cores=4.0))
    assert len(heard) == 2


def test_the_sampler_passes_the_limits_to_the_alarm():
    heard = []
    alarm = Alarm(heard.append, seconds=0)
    sampler = Stepped(1.0, SimpleNamespace(read=lambda seconds: {"process_cores": 0.5}), alarm=alarm)
    sampler._limits = Limits(cores=2, container_cores=0.5)
    sampler.pass_time(1.0)
    feed(alarm, [])
    assert len(heard) == 1


def test_an_alarm_starts_again_with_every_training():
    heard = []
    alarm = Alarm(heard.append, seconds=5)
    for _ in range(2):
        sampler = Sampler(60, readers=[], alarm=alarm)
        sampler.start()
        feed(alarm, [0.95] * 10)
        sampler.stop()
    assert len(heard) == 2


def test_short_peaks_and_unknown_utilization_raise_no_alarm():
    heard = []
    feed(Alarm(heard.append, seconds=5), [0.95, 0.95, 0.2] * 10 + [None] * 10)
    assert not heard


def test_an_alarm_that_fails_is_reported(capsys):
    feed(Alarm(lambda finding: 1 / 0, seconds=0), [1.0])
    feed(Alarm("/no/such/program", seconds=0), [1.0])
    err = capsys.readouterr().err
    assert "division by zero" in err
    assert "/no/such/program" in err


def test_an_alarm_can_be_a_command(tmp_path):
    target = tmp_path / "heard"
    script = f"import os; open({str(target)!r}, 'w').write(os.environ['VMSELECT_ALARM'])"
    feed(Alarm([sys.executable, "-c", script], seconds=0), [1.0])
    wait_until(lambda: target.exists() and "busy" in target.read_text())


@pytest.mark.parametrize(
    ("options", "samples", "expected"),
    [
        ({"quantity": "disk_read_bytes_per_second", "above": 5.0}, {"disk_read_bytes_per_second": 6.0}, 1),
        ({"quantity": "disk_read_bytes_per_second", "above": 7.0}, {"disk_read_bytes_per_second": 6.0}, 0),
        ({"quantity": "gpu*_busy_share", "below": 0.2}, {"gpu0_busy_share": 0.9, "gpu1_busy_share": 0.1}, 1),
        ({"quantity": "gpu*_busy_share", "above": 0.95}, {"gpu0_busy_share": 0.9, "gpu1_busy_share": 0.1}, 0),
        ({"quantity": "missing", "below": 1.0}, {"usable_cpu_share": 1.0}, 0),
    ],
)
def test_an_alarm_watches_any_quantity(options, samples, expected):
    heard = []
    alarm = Alarm(heard.append, seconds=2, **options)
    for second in range(5):
        alarm.check(float(second), samples, NO_LIMITS)
    feed(alarm, [])
    assert [finding.code for finding in heard] == ["quantity-alarm"] * expected


@pytest.mark.parametrize(
    "bad",
    [{"above": 1.0}, {"quantity": "x"}, {"quantity": "x", "above": 1.0, "below": 2.0}, {"quantity": "x", "above": "y"}],
)
def test_a_quantity_has_one_threshold(bad):
    with pytest.raises(ArgumentError):
        Alarm(print, **bad)


@pytest.mark.parametrize(
    "bad",
    [*({"notify": notify} for notify in (None, 3, "", [], [1], "unclosed 'quote")),
     {"cpu": 1.5}, {"cpu": "high"}, {"seconds": -1}, {"seconds": float("nan")}],
)  # fmt: skip
def test_bad_arguments_are_refused(bad):
    with pytest.raises(ArgumentError, match=next(iter(bad))):
        Alarm(**{"notify": print, **bad})
