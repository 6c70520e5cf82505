"""The sampling thread: phases, bounded memory, endings, forks; and what it reads."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from itertools import pairwise
from types import SimpleNamespace

import psutil
import pytest

from vmselect.errors import ArgumentError
from vmselect.probe import counters
from vmselect.probe import sampling as sampler_module
from vmselect.probe import sampling as tally_module
from vmselect.probe.counters import ContainerReader, MachineReader
from vmselect.probe.sampling import KEPT_PER_PHASE, Alarm, Sampler, Tally
from vmselect.records.usage import MAX_SAMPLES, Limits, Usage


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


def samplers():
    return [thread for thread in threading.enumerate() if thread.name == "vmselect-sampler"]


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


def test_hours_take_bounded_memory_and_exact_sums():
    tally = Tally()
    for second in range(20_000):
        tally.add("steady_steps", float(second), 1.0, {"cpu_share": float(second % 2)})
    tally.add("first_step", 20_000.0, 1.0, {"cpu_share": 0.5})
    usage = tally.build(1.0, Limits())
    summary = usage.summary("cpu_share")
    assert (summary.count, summary.mean, summary.seconds) == (20_000, 0.5, 20_000)
    assert len(usage.seconds) <= KEPT_PER_PHASE + 1
    assert usage.phase.count("first_step") == 1
    assert Usage.model_validate_json(usage.model_dump_json()) == usage
    assert 5 * KEPT_PER_PHASE <= MAX_SAMPLES


def test_a_quantity_that_comes_and_goes():
    tally = Tally()
    tally.add("steady_steps", 1.0, 1.0, {"a": 1.0, "b": float("nan")})
    tally.add("steady_steps", 2.0, 1.0, {"b": 2.0})
    tally.add("steady_steps", 3.0, 1.0, {})
    usage = tally.build(1.0, Limits())
    assert usage.series == {"a": (1.0, None), "b": (None, 2.0)}
    assert list(usage.quantities()) == ["a", "b"]


def test_single_cores_make_no_series():
    tally = Tally()
    tally.add("steady_steps", 1.0, 1.0, {"core0_share": 1.0, "cpu_share": 1.0})
    usage = tally.build(1.0, Limits())
    assert list(usage.series) == ["cpu_share"]
    assert usage.mean("core0_share") == 1.0


def test_columns_that_differ_in_length_are_refused():
    with pytest.raises(ValueError, match="differ in length"):
        Usage(interval_seconds=1.0, seconds=(1.0,), phase=())


@pytest.fixture
def half_added(monkeypatch):
    """A tally to which a thread is adding its first sample, and what lets that go on."""
    tally, began, go_on = Tally(), threading.Event(), threading.Event()
    add = tally_module._Sum.add

    def add_slowly(*given):
        began.set()
        go_on.wait(60)
        add(*given)

    monkeypatch.setattr(tally_module._Sum, "add", add_slowly)
    adding = threading.Thread(target=tally.add, args=("steady_steps", 1.0, 1.0, {"cpu_share": 0.5, "steal_share": 0.0}))
    adding.start()
    assert began.wait(60)
    yield tally, go_on
    go_on.set()
    adding.join()


def test_a_record_that_is_built_while_a_sample_is_added_waits_for_it(half_added):
    tally, go_on = half_added
    threading.Timer(0.2, go_on.set).start()
    assert tally.build(1.0, Limits()).series == {"cpu_share": (0.5,), "steal_share": (0.0,)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_child_does_not_wait_for_a_thread_that_it_does_not_have(half_added):
    tally, _ = half_added
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        with tally._alone():
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_signal_while_a_record_is_built_may_build_another(monkeypatch):
    tally = Tally()
    tally.add("steady_steps", 1.0, 1.0, {"cpu_share": 0.5})
    build, built = tally._build, []

    def interrupted(*given):
        monkeypatch.setattr(tally, "_build", build)
        built.append(tally.build(*given))
        return build(*given)

    monkeypatch.setattr(tally, "_build", interrupted)
    assert [tally.build(1.0, Limits())] == built


# -- the thread --------------------------------------------------------------------------------------------------------


def test_a_sample_belongs_to_the_phase_that_took_most_of_it():
    now = [0.0]
    sampler = Sampler(1.0, readers=[Counter()], clock=lambda: now[0])
    sampler._readers = sampler._given
    for at, phase in ((0.2, "first_step"), (0.3, "steady_steps"), (0.9, "validation")):
        now[0] = at
        sampler.enter(phase)
    now[0] = 1.0
    sampler._tick()
    now[0] = 2.0
    sampler._tick()
    assert sampler.usage().phase == ("steady_steps", "validation")


def test_changes_of_phase_are_sampled_but_not_too_often():
    now = [0.0]
    reader = Counter()
    sampler = Sampler(10.0, readers=[reader], clock=lambda: now[0])
    sampler._readers = sampler._given
    for _ in range(1_000):  # epochs of a millisecond
        now[0] += 0.0005
        sampler.enter("validation")
        now[0] += 0.0005
        sampler.enter("steady_steps")
        sampler._tick()
    assert 5 <= reader.readings <= 10


def test_short_epochs_are_sampled_no_oftener_than_others_for_long():
    now = [0.0]
    reader = Counter()
    sampler = Sampler(1.0, readers=[reader], clock=lambda: now[0])
    sampler._readers = sampler._given
    for _ in range(1_000):  # epochs of 45 ms, for 45 seconds
        now[0] += 0.040
        sampler.enter("boundary")
        sampler._tick()
        now[0] += 0.005
        sampler.enter("steady_steps")
        sampler._tick()
    assert 45 <= reader.readings <= 45 + sampler_module.MOST_EARLY


def test_a_short_phase_has_three_samples_of_its_own():
    now = [0.0]
    sampler = Sampler(10.0, readers=[Counter()], clock=lambda: now[0])
    sampler._readers = sampler._given
    sampler.enter("steady_steps")
    for _ in range(20):
        for phase, seconds in (("validation", 7.3), ("steady_steps", 0.2)):
            now[0] += seconds
            sampler.enter(phase)
            sampler._tick()
    usage = sampler.usage()
    assert usage.summary("seen_share", "validation").count == 3
    assert usage.summary("seen_share", "validation").seconds == pytest.approx(3 * 0.2)


def test_it_ends_with_a_last_sample_and_closes_what_it_reads():
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


def test_nothing_seen_is_no_usage():
    sampler = Sampler(60.0, readers=[Counter()])
    sampler.start()
    assert sampler.stop() is None


def test_a_forgotten_sampler_ends():
    sampler = Sampler(0.05, readers=[Counter()])
    sampler.start()
    assert samplers()
    del sampler
    gc.collect()
    deadline = time.monotonic() + 10
    while samplers() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not samplers()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_it_survives_a_fork():
    reader = Counter()
    sampler = Sampler(0.05, readers=[reader])
    sampler.start()
    with warnings.catch_warnings():
        # Frameworks that other tests loaded have threads of their own, and say so.
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        quiet = not samplers() and not sampler_module._RUNNING
        sampler.stop()
        os._exit(0 if quiet and not reader.closed else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    before = reader.readings
    deadline = time.monotonic() + 10
    while reader.readings == before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert reader.readings > before
    assert len(samplers()) == 1
    sampler.stop()


def test_a_fork_of_a_sampled_process_is_no_fork_of_a_threaded_one():
    program = """
import os, warnings
warnings.simplefilter("error")
from vmselect.probe.sampling import Sampler
sampler = Sampler(0.05)
sampler.start()
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
sampler.stop()
"""
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def test_a_program_that_ends_in_the_middle_ends():
    program = "from vmselect.probe.sampling import Sampler; s = Sampler(0.05); s.start(); s.enter('steady_steps')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""


# -- what is read ------------------------------------------------------------------------------------------------------


def test_a_busy_process_is_seen_busy():
    reader = MachineReader()
    began = time.monotonic()
    busy = time.process_time()
    while time.process_time() - busy < 0.5:
        pass
    taken = time.monotonic() - began
    values = reader.read(taken)
    assert values["process_cores"] == pytest.approx(0.5 / taken, rel=0.3)
    assert 0 < values["cpu_share"] <= 1
    assert 0 < values["memory_available_share"] <= 1
    assert values["process_memory_bytes"] > 2**20
    assert values["busiest_core_share"] == max(v for n, v in values.items() if n.startswith("core"))


def test_the_work_of_children_is_the_process_s_own():
    spin = "import time; end = time.monotonic() + 20\nwhile time.monotonic() < end: pass"
    child = subprocess.Popen([sys.executable, "-c", spin])
    try:
        time.sleep(0.3)
        reader = MachineReader()
        time.sleep(0.5)
        with_child = reader.read(0.5)["process_cores"]
    finally:
        child.kill()
        child.wait()
    time.sleep(0.1)
    reader.read(0.1)
    time.sleep(0.5)
    assert with_child > reader.read(0.5)["process_cores"] + 0.1


class Worker:
    """A made-up process: what it has worked, what those whose leave it took have, and who is below it."""

    def __init__(self, worked=0.0, *, began=0.0):
        self.worked, self.taken_over, self.began = worked, 0.0, time.time() + began
        self.below, self.ended = [], False

    def cpu_times(self):
        if self.ended:
            raise psutil.NoSuchProcess(1)
        return SimpleNamespace(user=self.worked, system=0.0, children_user=self.taken_over, children_system=0.0)

    def create_time(self):
        return self.began

    def children(self, recursive):
        return [one for child in self.below for one in (child, *child.children(recursive))]

    def start(self, child):
        self.below.append(child)
        return child

    def lose(self, child):
        self.below.remove(child)
        child.ended = True

    def take_leave_of(self, child):
        self.lose(child)
        self.taken_over += child.worked + child.taken_over


@pytest.fixture
def family(monkeypatch):
    """A reader of a made-up process, what that one has worked between two readings, and a clock that is fed."""
    me = Worker(5.0, began=-100.0)
    monkeypatch.setattr(counters, "has_children", lambda: bool(me.below))
    reader = MachineReader()
    monkeypatch.setattr(reader, "_process", me)
    now, told = [0.0], [reader._count_work()]
    reader._clock = lambda: now[0]

    def worked():
        now[0] += 1.0
        told.append(reader._count_work())
        return told[-1] - told[-2]

    return SimpleNamespace(me=me, reader=reader, worked=worked)


def test_a_child_counts_from_its_beginning_to_its_end_once(family):
    me = family.me
    loader = me.start(Worker(7.0))
    assert family.worked() == 7
    family.reader._list_again = 2.5  # the next look is late
    helper = me.start(Worker(2.0))
    loader.worked += 1
    assert family.worked() == 1
    me.worked += 0.5
    assert family.worked() == 2.5, "what it did before it was seen"
    helper.worked += 1
    me.take_leave_of(helper)
    assert family.worked() == 1, "what it did after it was last seen"
    loader.start(Worker(3.0))
    assert family.worked() == 3
    loader.take_leave_of(loader.below[0])
    assert family.worked() == 0
    me.start(Worker(4.0))
    me.take_leave_of(me.below[-1])
    assert family.worked() == 4, "never seen at all"
    me.take_leave_of(loader)
    assert family.worked() == 0


def test_what_a_child_did_before_sampling_began_does_not_count(family):
    old = family.me.start(Worker(50.0, began=-10.0))
    assert family.worked() == 0
    old.worked += 1
    assert family.worked() == 1
    family.me.take_leave_of(old)
    assert family.worked() == 0


def test_a_child_whose_time_nobody_takes_over_takes_none_away(family):
    child = family.me.start(Worker(9.0))
    assert family.worked() == 9
    family.me.lose(child)
    family.me.worked += 1
    assert family.worked() == 1
    family.me.worked += 1
    assert family.worked() == 1


def test_a_child_that_ends_between_two_questions_counts_once(family):
    child = family.me.start(Worker(9.0))
    assert family.worked() == 9
    child.ended = True  # after its parent was asked, before it was
    assert family.worked() == 0
    family.me.take_leave_of(child)
    family.me.worked += 1
    assert family.worked() == 1


def test_short_lived_children_beside_one_that_stays_are_no_other_programs():
    script = "print('here', flush=True); input()"
    stays = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        stays.stdout.readline()  # what starting it took is no part of this
        reader = MachineReader()
        reader._list_again = float("inf")
        before, began = os.times(), time.monotonic()
        for _ in range(5):
            subprocess.run([sys.executable, "-c", "sum(range(5_000_000))"], check=True)
        taken, after = time.monotonic() - began, os.times()
        counted = reader.read(taken)["process_cores"] * taken
    finally:
        stays.communicate(b"\n")
    worked = sum(after[:4]) - sum(before[:4])
    assert worked > 0.2
    assert counted == pytest.approx(worked, rel=0.1, abs=0.1)


def test_where_nobody_tells_of_children_looks_are_limited_all_the_same(monkeypatch):
    monkeypatch.setattr(counters, "has_children", lambda: None)
    reader = MachineReader()
    looked = []
    monkeypatch.setattr(reader, "_process", SimpleNamespace(children=lambda recursive: looked.append(1) or []))
    reader._list_again = float("inf")
    reader._list_children()
    assert not looked
    reader._list_again = 0.0
    reader._list_children()
    assert looked == [1]


def test_a_change_during_a_sample_has_one_of_its_own_soon():
    now = [0.0]

    class Changing(Counter):
        def read(self, seconds):
            if self.readings == 0:
                sampler.enter("steady_steps")  # while this sample is being taken
            return super().read(seconds)

    reader = Changing()
    sampler = Sampler(10.0, readers=[reader], clock=lambda: now[0])
    sampler._readers = [reader]
    now[0] = 0.5
    sampler.enter("validation")
    now[0] = 0.6
    assert sampler._tick() == pytest.approx(sampler_module.SHORTEST_SECONDS)
    now[0] = 0.75
    assert sampler._tick() == pytest.approx(10.0)
    assert reader.readings == 2


def test_others_are_right_in_the_mean_where_a_child_is_seen_late(monkeypatch):
    """Two cores, on both of which a child works that is seen at the second reading."""
    reader = MachineReader()
    monkeypatch.setattr(reader, "_usable", frozenset({0, 1}))
    idle = {"idle0": 0.0, "idle1": 0.0}
    counts = [{"busy0": n, "busy1": n, "own": own} | idle for n, own in ((0.0, 0.0), (1.0, 0.0), (2.0, 4.0))]
    others = []
    for before, now in pairwise(counts):
        values = {}
        reader._read_processors(before, now, 1.0, values)
        others.append(values["other_cores"])
    assert sum(others) == 0


def test_all_processes_are_looked_at_only_where_there_are_children(family, monkeypatch):
    looked = []
    monkeypatch.setattr(family.me, "children", lambda recursive: looked.append(recursive) or list(family.me.below))
    for _ in range(10):
        family.worked()
    assert not looked
    family.me.start(Worker())
    family.worked()
    assert looked == [True], "a child that is new is looked for at once"


def test_looks_at_all_processes_take_a_thousandth_of_the_time(family, monkeypatch):
    now = [0.0]
    family.reader._clock = lambda: now[0]
    child = family.me.start(Worker())

    def children(recursive):
        now[0] += 0.02
        return [child]

    monkeypatch.setattr(family.me, "children", children)
    for _ in range(100):
        family.reader._count_work()
        now[0] += 1.0
    assert 100 < now[0] <= 100 + 6 * 0.02


def test_asking_for_children_takes_none_from_who_waits_for_them():
    script = """
import subprocess, sys, time
from vmselect.probe.counters import has_children
print(has_children())
child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
print(has_children())
time.sleep(1)
print(has_children(), child.wait(), has_children())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "True", "True", "7", "False"]


# -- containers --------------------------------------------------------------------------------------------------------


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_limits_of_version_2(tmp_path):
    mount, membership = tmp_path / "cgroup", tmp_path / "self"
    membership.write_text("0::/jobs/mine\n")
    write(mount, cgroup__controllers="cpu memory")
    write(mount / "jobs", cpu__max="150000 100000", memory__max="max", memory__current="10")
    write(
        mount / "jobs" / "mine",
        cpu__max="max 100000",
        memory__max="4000",
        memory__current="3000",
        cpu__stat="usage_usec 5\nnr_periods 100\nnr_throttled 10\nthrottled_usec 1000000\n",
    )
    reader = ContainerReader(mount=mount, membership=membership)
    assert (reader.cores, reader.memory_bytes) == (1.5, 4000)
    more = "usage_usec 5\nnr_periods 120\nnr_throttled 15\nthrottled_usec 9500000\n"
    write(mount / "jobs" / "mine", cpu__stat=more)
    assert reader.read(2.0) == {"container_memory_share": 0.75, "container_throttled_share": 0.25}


def test_limits_of_version_1(tmp_path):
    mount, membership = tmp_path / "cgroup", tmp_path / "self"
    membership.write_text("5:cpu,cpuacct:/mine\n4:memory:/mine\n0::/\n")
    write(
        mount / "cpu" / "mine",
        cpu__cfs_quota_us="50000",
        cpu__cfs_period_us="100000",
        cpu__stat="nr_periods 0 nr_throttled 0",
    )
    write(mount / "memory", memory__limit_in_bytes="9223372036854771712", memory__usage_in_bytes="1")
    write(mount / "memory" / "mine", memory__limit_in_bytes="1000", memory__usage_in_bytes="900")
    reader = ContainerReader(mount=mount, membership=membership)
    assert (reader.cores, reader.memory_bytes) == (0.5, 1000)
    write(mount / "cpu" / "mine", cpu__stat="nr_periods 10\nnr_throttled 5\nthrottled_time 500000000")
    assert reader.read(1.0) == {"container_memory_share": 0.9, "container_throttled_share": 0.5}


def test_the_group_that_holds_back_the_most_counts_however_long_another_was_held_back_before(tmp_path):
    mount, membership = tmp_path / "cgroup", tmp_path / "self"
    membership.write_text("0::/jobs/mine\n")
    write(mount, cgroup__controllers="cpu")
    write(mount / "jobs", cpu__stat="nr_periods 90000\nnr_throttled 80000\nthrottled_usec 900000000\n")
    write(mount / "jobs" / "mine", cpu__max="400000 100000", cpu__stat="nr_periods 10\nnr_throttled 0\n")
    reader = ContainerReader(mount=mount, membership=membership)
    # Sixteen run queues were held back for half a second each: eight seconds of one.
    write(mount / "jobs" / "mine", cpu__stat="nr_periods 20\nnr_throttled 8\nthrottled_usec 8000000\n")
    assert reader.read(1.0) == {"container_throttled_share": 0.8}
    assert reader.read(1.0) == {"container_throttled_share": 0.0}
    (mount / "jobs" / "mine" / "cpu.stat").unlink()
    assert reader.read(1.0) == {"container_throttled_share": 0.0}


@pytest.mark.parametrize("content", [None, "", "nonsense", "0::/not/there\n"])
def test_no_container_is_no_limit(tmp_path, content):
    membership = tmp_path / "self"
    if content is not None:
        membership.write_text(content)
    reader = ContainerReader(mount=tmp_path / "none", membership=membership)
    assert (reader.cores, reader.memory_bytes, reader.read(1.0)) == (None, None, {})


# -- the alarm ---------------------------------------------------------------------------------------------------------


def feed(alarm, shares, limits=None, name="usable_cpu_share"):
    for second, share in enumerate(shares):
        alarm.see(float(second), {} if share is None else {name: share}, limits)
    for thread in threading.enumerate():
        if thread.name == "vmselect-alarm":
            thread.join(30)


def test_the_alarm_tells_once_until_it_was_quiet():
    heard = []
    feed(Alarm(heard.append, seconds=5), [0.95] * 20 + [0.5] + [0.99] * 10)
    assert [finding.code for finding in heard] == ["cpu-saturated"] * 2
    assert "90%" in str(heard[0])


def test_the_alarm_of_a_container_is_about_what_it_allows():
    heard = []
    limits = Limits(cores=64, container_cores=4.0)
    feed(Alarm(heard.append, seconds=5), [3.9] * 10, limits, "process_cores")
    assert "The container's 4 cores have been more than 90% busy for 5 s, now 98%" in str(heard[0])
    feed(Alarm(heard.append, seconds=5), [3.5] * 10, limits, "process_cores")
    feed(Alarm(heard.append, seconds=5), [0.95] * 10, limits)  # the work of the process is unknown
    assert len(heard) == 1
    feed(Alarm(heard.append, seconds=5), [0.95] * 10, Limits(cores=2, container_cores=4.0))
    assert len(heard) == 2


def test_the_alarm_is_told_what_the_process_may_use():
    now, heard = [0.0], []
    alarm = Alarm(lambda finding: heard.append(finding), seconds=0)
    sampler = Sampler(1.0, readers=[SimpleNamespace(read=lambda seconds: {"process_cores": 0.5})], alarm=alarm)
    sampler._clock, sampler._readers = lambda: now[0], sampler._given
    sampler._limits = Limits(cores=2, container_cores=0.5)
    now[0] = 1.0
    sampler._tick()
    feed(alarm, [])
    assert len(heard) == 1


def test_an_alarm_begins_anew_with_every_training():
    heard = []
    alarm = Alarm(heard.append, seconds=5)
    for _ in range(2):
        sampler = Sampler(60, readers=[], alarm=alarm)
        sampler.start()
        feed(alarm, [0.95] * 10)
        sampler.stop()
    assert len(heard) == 2


def test_short_peaks_and_unknown_use_raise_no_alarm():
    heard = []
    feed(Alarm(heard.append, seconds=5), [0.95, 0.95, 0.2] * 10 + [None] * 10)
    assert not heard


def test_an_alarm_that_fails_is_told_and_forgotten(capsys):
    feed(Alarm(lambda finding: 1 / 0, seconds=0), [1.0])
    feed(Alarm("/no/such/program", seconds=0), [1.0])
    assert capsys.readouterr().err.count("the alarm could not be given") == 2


def test_an_alarm_can_be_a_command(tmp_path):
    target = tmp_path / "heard"
    script = f"import os; open({str(target)!r}, 'w').write(os.environ['VMSELECT_ALARM'])"
    feed(Alarm([sys.executable, "-c", script], seconds=0), [1.0])
    deadline = time.monotonic() + 30
    while not (target.exists() and target.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "busy" in target.read_text()


@pytest.mark.parametrize("notify", [None, 3, "", [], [1], "unclosed 'quote"])
def test_what_cannot_be_notified_is_refused(notify):
    with pytest.raises(ArgumentError, match="notify"):
        Alarm(notify)


@pytest.mark.parametrize("bad", [{"cpu": 1.5}, {"cpu": "high"}, {"seconds": -1}, {"seconds": float("nan")}])
def test_bad_thresholds_are_refused(bad):
    with pytest.raises(ArgumentError):
        Alarm(print, **bad)
