"""Machines that are not this one: a made-up /proc and made-up control groups, read through to a diagnosis.

And a day of samples, by a clock that is fed.
"""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

import vmselect as vs
from vmselect.probe import counters as machine_module
from vmselect.probe.counters import ContainerReader, MachineReader
from vmselect.probe.sampling import KEPT_PER_PHASE, Reader, Sampler
from vmselect.records.usage import Limits, Usage

GIB = 2**20
"""In kB, as /proc/meminfo counts."""

pytestmark = pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="psutil reads /proc on Linux only")


class Machine:
    """A made-up /proc of two cores; ``pass_second`` lets a second go by in which things happen."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "net").mkdir()
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
        self, *, busy: float | tuple[float, float] = 0.5, steal: float = 0.0, swapped_mb: float = 0, **pressure: float
    ) -> None:
        shares = busy if isinstance(busy, tuple) else (busy, busy)
        for core, share in zip(self.cores, shares, strict=True):
            counted = self.cores[core]
            counted["busy"] += round(100 * share)
            counted["steal"] += round(100 * steal)
            counted["idle"] += 100 - round(100 * share) - round(100 * steal)
        self.swapped_pages += round(swapped_mb * 2**20 / 4096)
        for kind, share in pressure.items():
            self.pressure[kind] += round(1e6 * share)
        self.write()

    def write(self) -> None:
        lines = [f"cpu{c} {v['busy']} 0 0 {v['idle']} 0 0 0 {v['steal']} 0 0" for c, v in self.cores.items()]
        total = {name: sum(v[name] for v in self.cores.values()) for name in ("busy", "idle", "steal")}
        head = f"cpu {total['busy']} 0 0 {total['idle']} 0 0 0 {total['steal']} 0 0"
        (self.root / "stat").write_text(
            "\n".join([head, *lines, "btime 1", "processes 1", "ctxt 1", "intr 1", "softirq 1"])
        )
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
    root = tmp_path / "proc"
    root.mkdir()
    made = Machine(root)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(root))
    monkeypatch.setattr(machine_module, "PRESSURE", root / "pressure")
    monkeypatch.setattr(machine_module, "usable_cores", lambda: frozenset({0, 1}))
    return made


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def sample(readers: list[Reader], act: object, seconds: int, limits: Limits | None = None) -> Usage:
    """What a sampler makes of so many seconds of steady steps, before each of which ``act`` is called."""
    clock = Clock()
    sampler = Sampler(1.0, readers=readers, clock=clock)
    sampler._readers = readers
    sampler._limits = limits
    sampler.enter("steady_steps")
    for _ in range(seconds):
        clock.now += 1.0
        act()  # type: ignore[operator]
        sampler._tick()
    return sampler.usage()


def codes(usage: Usage, **environment: object) -> set[str]:
    profile = vs.Profile.from_times(instance_type="m", batch_size=32, steps_per_epoch=10, iteration_seconds=[0.1] * 9)
    facts = profile.environment.model_copy(update={"cpu_cores": 2, "usable_cores": 2} | environment)
    return {one.code for one in vs.diagnose(profile.model_copy(update={"usage": usage, "environment": facts}))}


# -- swap, memory, steal, cores ----------------------------------------------------------------------------------------


def test_swapping_is_seen(machine: Machine) -> None:
    reader = MachineReader()
    usage = sample([reader], lambda: machine.pass_second(swapped_mb=8), 5)
    assert usage.mean("swap_bytes_per_second") == pytest.approx(8 * 2**20, rel=0.01)
    assert usage.mean("swap_used_bytes") == pytest.approx(2**30, rel=0.01)
    assert codes(usage) == {"swapping"}
    assert codes(sample([MachineReader()], machine.pass_second, 5)) == set()


def test_memory_that_runs_out_is_seen(machine: Machine) -> None:
    machine.available = GIB // 2
    usage = sample([MachineReader()], lambda: machine.pass_second(memory=0.2), 5)
    assert usage.mean("memory_available_share") == pytest.approx(1 / 32, rel=0.01)
    assert usage.mean("memory_pressure_share") == pytest.approx(0.2)
    assert codes(usage) == {"memory-full"}


def test_a_host_that_takes_time_away_is_seen(machine: Machine) -> None:
    usage = sample([MachineReader()], lambda: machine.pass_second(busy=0.6, steal=0.2), 5)
    assert usage.mean("steal_share") == pytest.approx(0.2)
    assert codes(usage) == {"noisy-neighbour"}


def test_a_disk_that_is_waited_for_is_seen(machine: Machine) -> None:
    assert codes(sample([MachineReader()], lambda: machine.pass_second(io=0.4), 5)) == {"disk-busy"}


@pytest.mark.parametrize(
    ("usable", "busy", "share", "others", "expected"),
    [
        ({0, 1}, (1.0, 0.0), 0.5, 1.0, set()),  # somebody else on one core, the other free
        ({0, 1}, (1.0, 1.0), 1.0, 2.0, {"noisy-neighbour"}),
        ({1}, (1.0, 0.0), 0.0, 0.0, set()),  # the busy core is none of ours
        ({1}, (0.0, 1.0), 1.0, 1.0, {"noisy-neighbour"}),
    ],
)
def test_others_matter_on_the_cores_that_the_training_may_use(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    usable: set[int],
    busy: tuple[float, float],
    share: float,
    others: float,
    expected: set[str],
) -> None:
    monkeypatch.setattr(machine_module, "usable_cores", lambda: frozenset(usable))
    reader = MachineReader()
    limits = Limits(cores=len(usable))
    usage = sample([reader], lambda: machine.pass_second(busy=busy), 5, limits)
    assert usage.mean("usable_cpu_share") == pytest.approx(share)
    # This very process has done a little in the same made-up seconds.
    assert usage.mean("other_cores") == pytest.approx(others, abs=0.15)
    assert codes(usage, usable_cores=len(usable)) == expected


def test_a_machine_without_pressure_or_disks_tells_the_rest(machine: Machine) -> None:
    for kind in ("cpu", "io", "memory"):
        (machine.root / "pressure" / kind).unlink()
    (machine.root / "vmstat").unlink()
    reader = MachineReader()
    for core in machine.cores.values():
        core["busy"] += 50
        core["idle"] += 50
    lines = [f"cpu{c} {v['busy']} 0 0 {v['idle']} 0 0 0 0 0 0" for c, v in machine.cores.items()]
    (machine.root / "stat").write_text("\n".join(["cpu 100 0 0 100 0 0 0 0 0 0", *lines, "btime 1"]))
    values = reader.read(1.0)
    assert values["cpu_share"] == 0.5
    assert not {name for name in values if "pressure" in name or "swap" in name}


# -- containers --------------------------------------------------------------------------------------------------------


def test_a_container_of_version_2_that_holds_back(machine: Machine, tmp_path: Path) -> None:
    mount, membership = tmp_path / "cgroup", tmp_path / "self"
    membership.write_text("0::/mine\n")
    own = mount / "mine"
    own.mkdir(parents=True)
    (mount / "cgroup.controllers").write_text("cpu memory")
    (own / "cpu.max").write_text("50000 100000")
    (own / "memory.max").write_text(str(2**30))
    (own / "memory.current").write_text(str(2**29))
    periods = [0]

    def act() -> None:
        periods[0] += 10
        (own / "cpu.stat").write_text(
            f"usage_usec 1\nnr_periods {periods[0]}\nnr_throttled {periods[0] * 4 // 10}\nthrottled_usec 7\n"
        )
        machine.pass_second(busy=0.25)

    (own / "cpu.stat").write_text("nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n")
    container = ContainerReader(mount=mount, membership=membership)
    limits = Limits(cores=2, container_cores=container.cores, container_memory_bytes=container.memory_bytes)
    usage = sample([MachineReader(), container], act, 5, limits)
    assert usage.limits.container_cores == 0.5
    assert usage.mean("container_throttled_share") == pytest.approx(0.4)
    assert usage.mean("container_memory_share") == pytest.approx(0.5)
    assert codes(usage) == {"cpu-limited"}


def test_a_container_of_version_1_that_is_full(machine: Machine, tmp_path: Path) -> None:
    mount, membership = tmp_path / "cgroup", tmp_path / "self"
    membership.write_text("4:memory:/mine\n3:cpu,cpuacct:/mine\n")
    own = mount / "memory" / "mine"
    own.mkdir(parents=True)
    (own / "memory.limit_in_bytes").write_text("1000")
    (own / "memory.usage_in_bytes").write_text("990")
    container = ContainerReader(mount=mount, membership=membership)
    usage = sample([MachineReader(), container], lambda: machine.pass_second(memory=0.3), 5)
    assert container.cores is None
    assert codes(usage) == {"memory-full"}


# -- hours -------------------------------------------------------------------------------------------------------------


class Counting:
    """As many quantities as a machine with eight GPUs has."""

    def read(self, seconds: float) -> dict[str, float]:
        return {f"gpu{card}_{what}": 0.5 for card in range(8) for what in ("busy_share", "power_watts")}


def test_a_day_of_samples_takes_bounded_memory_and_a_small_file() -> None:
    clock = Clock()
    reader = Counting()
    sampler = Sampler(1.0, readers=[reader], clock=clock)
    sampler._readers = [reader]
    seconds = 24 * 3600
    for second in range(seconds):
        clock.now += 1.0
        if second % 600 == 0:
            sampler.enter("steady_steps")
        elif second % 600 == 540:
            sampler.enter("validation")
        elif second % 600 == 590:
            sampler.enter("boundary")
        sampler._tick()
    usage = sampler.usage()
    assert sum(phase["gpu0_busy_share"].count for phase in usage.phases.values()) == seconds
    assert usage.summary("gpu0_busy_share", "steady_steps").seconds == pytest.approx(seconds * 0.9, rel=1e-3)
    assert len(usage.seconds) <= KEPT_PER_PHASE * len(usage.phases)
    assert len(usage.seconds) == sum(len(tally.rows) for tally in sampler._tally._phases.values())
    assert len(sampler._changes) <= 1
    assert usage.seconds[-1] > 0.95 * seconds  # thinned out all along, not cut off
    assert len(usage.model_dump_json()) < 300_000
