"""Counters of the machine, of child processes, of containers and of GPUs, on made-up systems and on this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import vmselect as vs
from tests.support.nvml import CARD, COMPILER, Driver
from tests.support.profiles import make_profile
from vmselect.probe import counters
from vmselect.probe.counters import ContainerReader, MachineReader
from vmselect.probe.sampling import Tally
from vmselect.records.usage import Limits, Usage

# -- the machine -------------------------------------------------------------------------------------------------------

GIB = 2**20
"""In kB, as /proc/meminfo counts."""


class Machine:
    """A made-up /proc of two cores; ``pass_second`` lets a second go by in which things happen."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "net").mkdir(parents=True)
        (root / "net" / "dev").write_text("Inter-| Receive\n face |bytes\n    lo: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")
        (root / "diskstats").write_text("")
        (root / str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")
        (root / "pressure").mkdir()
        self.cores = {core: {"busy": 0, "idle": 0, "steal": 0} for core in (0, 1)}
        self.pressure = {"cpu": 0, "io": 0, "memory": 0}
        self.swapped_pages = 0
        self.available = 8 * GIB
        self.write()

    def pass_second(
        self,
        *,
        busy: tuple[float, float] = (0.5, 0.5),
        steal: float = 0.0,
        swapped_mb: float = 0,
        available: int = 8 * GIB,
        **pressure: float,
    ) -> None:
        for core, share in zip(self.cores.values(), busy, strict=True):
            core["busy"] += round(100 * share)
            core["steal"] += round(100 * steal)
            core["idle"] += 100 - round(100 * share) - round(100 * steal)
        self.available = available
        self.swapped_pages += round(swapped_mb * 2**20 / 4096)
        for kind, share in pressure.items():
            self.pressure[kind] += round(1e6 * share)
        self.write()

    def write(self) -> None:
        total = {name: sum(core[name] for core in self.cores.values()) for name in ("busy", "idle", "steal")}
        rows = {"": total, **self.cores}
        lines = [f"cpu{name} {v['busy']} 0 0 {v['idle']} 0 0 0 {v['steal']} 0 0" for name, v in rows.items()]
        (self.root / "stat").write_text("\n".join([*lines, "btime 1", "processes 1", "ctxt 1", "intr 1", "softirq 1"]))
        (self.root / "meminfo").write_text(
            f"MemTotal: {16 * GIB} kB\nMemFree: {GIB} kB\nMemAvailable: {self.available} kB\n"
            "Buffers: 0 kB\nCached: 0 kB\nActive: 0 kB\nInactive: 0 kB\nShmem: 0 kB\nSlab: 0 kB\nSReclaimable: 0 kB\n"
            f"SwapTotal: {4 * GIB} kB\nSwapFree: {3 * GIB} kB\n"
        )
        (self.root / "vmstat").write_text(f"pswpin 0\npswpout {self.swapped_pages}\n")
        for kind, microseconds in self.pressure.items():
            text = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={microseconds}\n"
            (self.root / "pressure" / kind).write_text(text)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    if not Path("/proc/self").is_dir():
        pytest.skip("psutil reads /proc on Linux only")
    made = Machine(tmp_path / "proc")
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(made.root))
    monkeypatch.setattr(counters, "PRESSURE", made.root / "pressure")
    monkeypatch.setattr(counters, "usable_cores", lambda: frozenset({0, 1}))
    return made


def sample(machine: Machine, cores: int = 2, **second: Any) -> Usage:
    """The usage over five such seconds of steady steps."""
    reader, tally = MachineReader(), Tally()
    for number in range(5):
        machine.pass_second(**second)
        tally.add("steady_steps", number + 1.0, 1.0, reader.read(1.0))
    return tally.build(1.0, Limits(cores=cores))


def codes(usage: Usage, cores: int = 2) -> set[str]:
    machine = {"cpu_cores": 2, "usable_cores": cores}
    return {one.code for one in vs.diagnose(make_profile(usage=usage, environment=machine))}


@pytest.mark.parametrize(
    ("second", "means", "expected"),
    [
        ({}, {"cpu_share": 0.5}, set()),
        ({"swapped_mb": 8}, {"swap_bytes_per_second": 8 * 2**20, "swap_used_bytes": 2**30}, {"swapping"}),
        (
            {"available": GIB // 2, "memory": 0.2},
            {"memory_available_share": 1 / 32, "memory_pressure_share": 0.2},
            {"memory-full"},
        ),
        ({"busy": (0.6, 0.6), "steal": 0.2}, {"steal_share": 0.2}, {"noisy-neighbour"}),
        ({"io": 0.4}, {"io_pressure_share": 0.4}, {"disk-busy"}),
    ],
)
def test_counters_become_quantities_and_diagnoses(
    machine: Machine, second: dict[str, Any], means: dict[str, float], expected: set[str]
) -> None:
    usage = sample(machine, **second)
    assert {name: usage.mean(name) for name in means} == pytest.approx(means, rel=0.01)
    assert codes(usage) == expected


@pytest.mark.parametrize(
    ("usable", "busy", "share", "others", "expected"),
    [
        ({0, 1}, (1.0, 0.0), 0.5, 1.0, set()),  # another program on one core, the other free
        ({0, 1}, (1.0, 1.0), 1.0, 2.0, {"noisy-neighbour"}),
        ({1}, (1.0, 0.0), 0.0, 0.0, set()),  # the busy core may not be used
        ({1}, (0.0, 1.0), 1.0, 1.0, {"noisy-neighbour"}),
    ],
)
def test_other_programs_count_on_the_usable_cores(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    usable: set[int],
    busy: tuple[float, float],
    share: float,
    others: float,
    expected: set[str],
) -> None:
    monkeypatch.setattr(counters, "usable_cores", lambda: frozenset(usable))
    usage = sample(machine, len(usable), busy=busy)
    assert usage.mean("usable_cpu_share") == pytest.approx(share)
    # This process has worked a little in the same made-up seconds.
    assert usage.mean("other_cores") == pytest.approx(others, abs=0.15)
    assert codes(usage, len(usable)) == expected


def test_a_machine_without_pressure_or_swap_counters(machine: Machine) -> None:
    for kind in list(machine.pressure):
        (machine.root / "pressure" / kind).unlink()
    machine.pressure = {}
    (machine.root / "vmstat").unlink()
    reader = MachineReader()
    machine.pass_second()
    values = reader.read(1.0)
    assert values["cpu_share"] == 0.5
    assert not {name for name in values if "pressure" in name or "swap" in name}


def test_a_busy_process_on_this_machine() -> None:
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


# -- child processes ---------------------------------------------------------------------------------------------------


class Worker:
    """A made-up process: its CPU time, that of children it waited for, and its children."""

    def __init__(self, worked: float = 0.0, *, began: float = 0.0) -> None:
        self.worked, self.taken_over, self.began = worked, 0.0, time.time() + began
        self.below: list[Worker] = []
        self.ended = False

    def cpu_times(self) -> SimpleNamespace:
        if self.ended:
            raise psutil.NoSuchProcess(1)
        return SimpleNamespace(user=self.worked, system=0.0, children_user=self.taken_over, children_system=0.0)

    def create_time(self) -> float:
        return self.began

    def children(self, recursive: bool) -> list[Worker]:
        return [one for child in self.below for one in (child, *child.children(recursive))]

    def start(self, child: Worker) -> Worker:
        self.below.append(child)
        return child

    def lose(self, child: Worker) -> None:
        self.below.remove(child)
        child.ended = True

    def wait_for(self, child: Worker) -> None:
        self.lose(child)
        self.taken_over += child.worked + child.taken_over


class Family:
    """A reader of a made-up process ``me``, by a clock that is set."""

    def __init__(self) -> None:
        self.me = Worker(5.0, began=-100.0)
        self.now = 0.0
        self.reader = MachineReader()
        self.reader._process = self.me  # type: ignore[assignment]
        self.reader._clock = lambda: self.now
        self.counted = self.reader._count_work()

    def worked(self) -> float:
        """The work between the last reading and one a second later."""
        self.now += 1.0
        before, self.counted = self.counted, self.reader._count_work()
        return self.counted - before


@pytest.fixture
def family(monkeypatch: pytest.MonkeyPatch) -> Family:
    made = Family()
    monkeypatch.setattr(counters, "has_children", lambda: bool(made.me.below))
    return made


def test_a_child_counts_from_its_beginning_to_its_end_once(family: Family) -> None:
    me = family.me
    loader = me.start(Worker(7.0))
    assert family.worked() == 7
    family.reader._list_again = 2.5  # the next listing is late
    helper = me.start(Worker(2.0))
    loader.worked += 1
    assert family.worked() == 1
    me.worked += 0.5
    assert family.worked() == 2.5, "its work before it was listed"
    helper.worked += 1
    me.wait_for(helper)
    assert family.worked() == 1, "its work after it was last read"
    loader.start(Worker(3.0))
    assert family.worked() == 3
    loader.wait_for(loader.below[0])
    assert family.worked() == 0
    me.start(Worker(4.0))
    me.wait_for(me.below[-1])
    assert family.worked() == 4, "never listed"
    me.wait_for(loader)
    assert family.worked() == 0


def test_work_of_a_child_before_sampling_does_not_count(family: Family) -> None:
    old = family.me.start(Worker(50.0, began=-10.0))
    assert family.worked() == 0
    old.worked += 1
    assert family.worked() == 1
    family.me.wait_for(old)
    assert family.worked() == 0


def test_a_child_that_nothing_waits_for_takes_no_work_away(family: Family) -> None:
    child = family.me.start(Worker(9.0))
    assert family.worked() == 9
    family.me.lose(child)
    for _ in range(2):
        family.me.worked += 1
        assert family.worked() == 1


def test_a_child_that_ends_between_two_queries_counts_once(family: Family) -> None:
    child = family.me.start(Worker(9.0))
    assert family.worked() == 9
    child.ended = True  # after its parent was read, before it was
    assert family.worked() == 0
    family.me.wait_for(child)
    family.me.worked += 1
    assert family.worked() == 1


def test_processes_are_listed_only_where_there_are_children(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[bool] = []
    monkeypatch.setattr(family.me, "children", lambda recursive: listed.append(recursive) or list(family.me.below))
    for _ in range(10):
        family.worked()
    assert not listed
    family.me.start(Worker())
    family.worked()
    assert listed == [True], "a new child is listed at once"


def test_listing_processes_takes_a_thousandth_of_the_time(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    child = family.me.start(Worker())

    def children(recursive: bool) -> list[Worker]:
        family.now += 0.02
        return [child]

    monkeypatch.setattr(family.me, "children", children)
    for _ in range(100):
        family.worked()
    assert 100 < family.now <= 100 + 6 * 0.02


def test_listing_is_limited_where_children_cannot_be_detected(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "has_children", lambda: None)
    listed: list[int] = []
    monkeypatch.setattr(family.me, "children", lambda recursive: listed.append(1) or [])
    family.reader._list_again = float("inf")
    family.worked()
    assert not listed
    family.reader._list_again = 0.0
    family.worked()
    assert listed == [1]


def test_other_programs_are_right_in_the_mean_where_a_child_is_found_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores, on both of which a child works that is found at the second reading."""
    reader = MachineReader()
    monkeypatch.setattr(reader, "_usable", frozenset({0, 1}))
    cores = [[(seconds, 0.0, 0.0)] * 2 for seconds in (0.0, 1.0, 2.0)]
    others = [
        reader._read_cores(before, now, found)["other_cores"]
        for before, now, found in zip(cores, cores[1:], (0.0, 4.0), strict=False)
    ]
    assert others == [2, -2]


def test_work_of_running_children_counts() -> None:
    """How fast the child works depends on the load of the machine, so its own CPU time is the measure."""
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        worked = psutil.Process(child.pid).cpu_times
        reader, before = MachineReader(), worked().user
        while worked().user < before + 0.5:
            time.sleep(0.05)
        assert reader.read(1.0)["process_cores"] > 0.45
        while worked().user < before + 1.0:
            time.sleep(0.05)
        assert reader.read(1.0)["process_cores"] > 0.45
    finally:
        child.kill()
        child.wait()
    reader.read(1.0)
    own = time.process_time()
    time.sleep(0.5)  # the system counts the time of cores in steps
    assert reader.read(1.0)["process_cores"] <= time.process_time() - own + 0.1


def test_detecting_children_does_not_wait_for_them() -> None:
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


def write_groups(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = root / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


VERSION_1 = {
    "cpu/mine/cpu.cfs_quota_us": "50000",
    "cpu/mine/cpu.cfs_period_us": "100000",
    "cpu/mine/cpu.stat": "nr_periods 0 nr_throttled 0",
    "memory/memory.limit_in_bytes": "9223372036854771712",
    "memory/memory.usage_in_bytes": "1",
    "memory/mine/memory.limit_in_bytes": "1000",
    "memory/mine/memory.usage_in_bytes": "900",
}
VERSION_2 = {
    "cgroup.controllers": "cpu memory",
    "jobs/cpu.max": "150000 100000",
    "jobs/memory.max": "max",
    "jobs/memory.current": "10",
    "jobs/cpu.stat": "nr_periods 90000\nnr_throttled 80000\nthrottled_usec 900000000\n",
    "jobs/mine/cpu.max": "max 100000",
    "jobs/mine/memory.max": "4000",
    "jobs/mine/memory.current": "3000",
    "jobs/mine/cpu.stat": "usage_usec 5\nnr_periods 100\nnr_throttled 10\nthrottled_usec 1000000\n",
}


@pytest.mark.parametrize(
    ("membership", "files", "limits", "stat", "used", "throttled"),
    [
        (
            "5:cpu,cpuacct:/mine\n4:memory:/mine\n0::/\n", VERSION_1, (0.5, 1000),
            {"cpu/mine/cpu.stat": "nr_periods 10\nnr_throttled 5\nthrottled_time 500000000"}, 0.9, 0.5,
        ),
        (  # sixteen run queues were throttled for half a second each: eight seconds of one
            "0::/jobs/mine\n", VERSION_2, (1.5, 4000),
            {"jobs/mine/cpu.stat": "nr_periods 120\nnr_throttled 26\nthrottled_usec 9000000\n"}, 0.75, 0.8,
        ),
    ],
    ids=["version 1", "version 2"],
)  # fmt: skip
def test_limits_of_a_container_and_their_use_since_the_previous_reading(
    membership: str,
    files: dict[str, str],
    limits: tuple[float, int],
    stat: dict[str, str],
    used: float,
    throttled: float,
    tmp_path: Path,
) -> None:
    (tmp_path / "self").write_text(membership)
    write_groups(tmp_path, files)
    reader = ContainerReader(mount=tmp_path / "cgroup", membership=tmp_path / "self")
    assert (reader.cores, reader.memory_bytes) == limits
    write_groups(tmp_path, stat)
    assert reader.read(1.0) == {"container_memory_share": used, "container_throttled_share": throttled}
    for name in stat:
        (tmp_path / "cgroup" / name).unlink()
    assert reader.read(1.0) == {"container_memory_share": used, "container_throttled_share": 0.0}


@pytest.mark.parametrize("membership", ["", "nonsense", "0::/not/there\n"])
def test_no_container_is_no_limit(membership: str, tmp_path: Path) -> None:
    (tmp_path / "self").write_text(membership)
    reader = ContainerReader(mount=tmp_path / "cgroup", membership=tmp_path / "self")
    assert (reader.cores, reader.memory_bytes, reader.read(1.0)) == (None, None, {})


# -- GPUs, through the real binding against a driver library built here ------------------------------------------------

PROGRAM = """
import json, sys
from pathlib import Path
from vmselect.probe.counters import GpuReader
from vmselect.probe.environment import read_gpus
reader = GpuReader()
reads = [reader.read(1.0)]
for answers in sys.argv[2:]:
    Path(answers).replace(sys.argv[1])
    reads.append(reader.read(1.0))
reads.append(reader.read(1.0))
reader.close()
print(json.dumps([*reads, reader.read(1.0), [gpu.model_dump() for gpu in read_gpus()]]))
"""


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    if COMPILER is None:
        pytest.skip("there is no C compiler to build the driver stub with")
    return Driver(tmp_path)


def read_driver(driver: Driver, *later: Path) -> list[Any]:
    """What one program reads: from the current answers, from each later ones, again, closed; and the GPUs."""
    command = [sys.executable, "-c", PROGRAM, str(driver.answers), *map(str, later)]
    done = subprocess.run(command, env=driver.environment, capture_output=True, text=True, check=True)
    found: list[Any] = json.loads(done.stdout)
    return found


def store(driver: Driver, name: str, *cards: dict[str, int]) -> Path:
    """Answers for later, in a file of their own."""
    driver.answer(*cards)
    return driver.answers.rename(driver.answers.with_name(name))


def test_two_gpus(driver: Driver) -> None:
    driver.answer(CARD, CARD | {"utilization": 20, "temperature": 70})
    first, *_, after_close, gpus = read_driver(driver)
    assert (first["gpu0_busy_share"], first["gpu1_busy_share"]) == (0.8, 0.2)
    assert (first["gpu0_memory_used_bytes"], first["gpu0_power_watts"]) == (4 * 2**30, 60)
    assert 0 < first["gpu0_memory_used_share"] < 1
    assert (first["gpu0_temperature_celsius"], first["gpu1_temperature_celsius"]) == (55, 70)
    assert (first["gpu0_clock_megahertz"], first["gpu0_memory_clock_megahertz"]) == (1500, 5000)
    assert after_close == {}
    assert [gpu["name"] for gpu in gpus] == ["Stub GPU", "Stub GPU"]


def test_a_counter_that_the_gpu_does_not_support(driver: Driver) -> None:
    driver.answer({name: value for name, value in CARD.items() if name not in ("milliwatts", "reasons")})
    first, *_ = read_driver(driver)
    assert not {"gpu0_power_watts", "gpu0_throttled_by_heat_share"} & set(first)
    assert first["gpu0_busy_share"] == 0.8


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler to build the driver stub with")
def test_a_function_that_the_driver_lacks(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "-DWITHOUT_TEMPERATURE")
    driver.answer(CARD)
    first, again, *_ = read_driver(driver)
    assert "gpu0_temperature_celsius" not in first
    assert again["gpu0_busy_share"] == 0.8


def test_a_gpu_that_is_lost(driver: Driver) -> None:
    lost = store(driver, "lost.txt", CARD, {"lost": 1})
    driver.answer(CARD, CARD)
    first, second, third, *_ = read_driver(driver, lost)
    assert "gpu1_busy_share" in first
    assert not [name for name in second | third if name.startswith("gpu1")]
    assert third["gpu0_busy_share"] == 0.8


def test_reasons_for_throttling(driver: Driver) -> None:
    expected = {
        0x00: (0, 0, 0), 0x01: (0, 0, 0), 0x04: (0, 1, 0), 0x20: (1, 0, 0), 0x40: (1, 0, 0), 0x80: (0, 1, 0),
        0x44: (1, 1, 0), 0x08: (0, 0, 1), 0x48: (1, 0, 0), 0x28: (1, 0, 0), 0x88: (0, 1, 0), 0x0C: (0, 1, 1),
    }  # fmt: skip
    later = [store(driver, f"{reasons}.txt", CARD | {"reasons": reasons}) for reasons in expected]
    driver.answer(CARD)
    _, *reads, _again, _closed, _gpus = read_driver(driver, *later)
    causes = ("heat", "power", "hardware")
    found = [tuple(read[f"gpu0_throttled_by_{cause}_share"] for cause in causes) for read in reads]
    assert dict(zip(expected, found, strict=True)) == expected


def test_no_driver(driver: Driver, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"no library")
    assert read_driver(driver) == [{}, {}, {}, []]
