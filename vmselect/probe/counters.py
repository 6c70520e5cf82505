"""Counters of the machine and of this process: processors, memory, swap, disks, network, pressure."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vmselect.probe.environment import open_nvml, query_nvml, usable_cores

PRESSURE = Path("/proc/pressure")

LISTING_SHARE = 0.001
"""Share of the time that may go into listing child processes, the only query that takes milliseconds."""

EARLIER_SECONDS = 1.0
"""A process that began this much before is older: systems report their start in whole seconds."""

MOST_CORES_ONE_BY_ONE = 512


class MachineReader:
    """Reads the machine; rates are per second since the reading before.

    What a system does not report is omitted. The work of child processes (data loaders) counts as the process's own.
    """

    def __init__(self) -> None:
        import psutil

        self._psutil = psutil
        self._process = psutil.Process()
        self._usable = usable_cores()
        self._clock = time.perf_counter
        self._began = time.time()
        self._children: set[Any] = set()
        self._list_again = 0.0
        self._times: dict[Any, tuple[float, float]] = {}
        """Of this process and its children at the last reading: their own time, and that of children they took leave
        of."""
        self._worked = self._missing = 0.0
        # Where a container hides its counters, psutil would warn in the middle of a training.
        root = getattr(psutil, "PROCFS_PATH", None)
        self._counts_swap = root is None or Path(root, "vmstat").is_file()
        self._pressures: tuple[str, ...] = ("cpu", "io", "memory")
        self._before = self._count()

    def read(self, seconds: float) -> dict[str, float]:
        """Every quantity now; ``seconds`` have passed since the reading before."""
        before, now = self._before, self._count()
        self._before = now
        values = self._read_levels(now)
        for name in now:
            if name.endswith("_total") and name in before:
                values[name.removesuffix("_total")] = max(0.0, now[name] - before[name]) / seconds
        self._read_processors(before, now, seconds, values)
        return values

    # -- counters -----------------------------------------------------------------------------------

    def _count(self) -> dict[str, float]:
        counts: dict[str, float] = {}
        for index, core in enumerate(self._psutil.cpu_times(percpu=True)):
            idle = core.idle + getattr(core, "iowait", 0.0)
            steal = getattr(core, "steal", 0.0)
            # Guests' time is part of user time.
            busy = core.user + core.system + sum(getattr(core, n, 0.0) for n in ("nice", "irq", "softirq"))
            counts |= {f"busy{index}": busy, f"idle{index}": idle, f"steal{index}": steal}
        counts["own"] = self._count_work()
        swap = self._ask("swap_memory") if self._counts_swap else None
        if swap is not None:
            counts["swap_bytes_per_second_total"] = swap.sin + swap.sout
            counts["swap_used_bytes"] = swap.used
        disk = self._ask("disk_io_counters")
        if disk is not None:
            counts["disk_read_bytes_per_second_total"] = disk.read_bytes
            counts["disk_write_bytes_per_second_total"] = disk.write_bytes
            counts["disk_operations_per_second_total"] = disk.read_count + disk.write_count
        network = self._ask("net_io_counters")
        if network is not None:
            counts["network_received_bytes_per_second_total"] = network.bytes_recv
            counts["network_sent_bytes_per_second_total"] = network.bytes_sent
        try:
            own_io = self._process.io_counters()  # type: ignore[attr-defined, unused-ignore]  # not on macOS
            counts["process_read_bytes_per_second_total"] = own_io.read_bytes
            counts["process_write_bytes_per_second_total"] = own_io.write_bytes
        except (AttributeError, OSError, self._psutil.Error):  # some containers forbid it
            pass
        return counts | self._count_pressure()

    def _count_work(self) -> float:
        """Seconds of processors that this process and its children have worked; it only ever grows.

        The time of a child goes over to its parent when that takes leave of it, the rest of its time and all of a child
        that was never seen with it.
        """
        self._list_children()
        before, self._times = self._times, {}
        worked = handed_over = 0.0
        for process in (self._process, *self._children):
            try:
                times = process.cpu_times()
                older = process not in before and process.create_time() < self._began - EARLIER_SECONDS
            except self._psutil.Error:  # it has ended
                self._children.discard(process)
                continue
            own, children = now = (times.user + times.system, times.children_user + times.children_system)
            own_before, children_before = now if older else before.get(process, (0.0, 0.0))
            worked += max(0.0, own - own_before)
            handed_over += children - children_before
            self._times[process] = now
        handed_over -= sum(sum(last) for process, last in before.items() if process not in self._times)
        # Less than was known of those who ended: one of them did between two questions, and the next reading has its
        # time; or nothing waited for it, and its time is in no reading.
        self._worked += worked + max(0.0, handed_over + self._missing)
        self._missing = min(0.0, handed_over)
        return self._worked

    def _list_children(self) -> None:
        now = self._clock()
        there_are = has_children()
        if there_are is False or ((self._children or there_are is None) and now < self._list_again):
            return
        try:
            self._children = set(self._process.children(recursive=True))
        except self._psutil.Error:
            return
        self._list_again = now + (self._clock() - now) / LISTING_SHARE

    def _count_pressure(self) -> dict[str, float]:
        counts = {}
        for kind in self._pressures:
            microseconds = read_pressure(PRESSURE / kind)
            if microseconds is None:
                self._pressures = tuple(other for other in self._pressures if other != kind)
            else:
                counts[f"{kind}_pressure_share_total"] = microseconds / 1e6
        return counts

    # -- what they mean ----------------------------------------------------------------------------------------------

    def _read_levels(self, now: Mapping[str, float]) -> dict[str, float]:
        values: dict[str, float] = {name: now[name] for name in ("swap_used_bytes",) if name in now}
        memory = self._psutil.virtual_memory()
        values["memory_used_bytes"] = memory.total - memory.available
        values["memory_available_share"] = memory.available / memory.total if memory.total else 0.0
        values["process_memory_bytes"] = self._process.memory_info().rss
        return values

    def _read_processors(
        self, before: Mapping[str, float], now: Mapping[str, float], seconds: float, values: dict[str, float]
    ) -> None:
        def passed(name: str) -> float:
            return max(0.0, now.get(name, 0.0) - before.get(name, now.get(name, 0.0)))

        cores = [int(name.removeprefix("busy")) for name in now if name.startswith("busy")]
        shares = {}
        for core in cores:
            whole = passed(f"busy{core}") + passed(f"idle{core}") + passed(f"steal{core}")
            if whole > 0:
                shares[core] = (passed(f"busy{core}") / whole, passed(f"steal{core}") / whole)
        if not shares:
            return
        usable = [core for core in shares if core in self._usable] or list(shares)
        values["cpu_share"] = sum(busy for busy, _ in shares.values()) / len(shares)
        values["busiest_core_share"] = max(busy for busy, _ in shares.values())
        values["usable_cpu_share"] = sum(shares[core][0] for core in usable) / len(usable)
        values["steal_share"] = sum(shares[core][1] for core in usable) / len(usable)
        values["process_cores"] = passed("own") / seconds
        # Below zero where a child is seen late: its time was taken for others' before, and the mean is right.
        values["other_cores"] = values["usable_cpu_share"] * len(usable) - values["process_cores"]
        for core in list(shares)[:MOST_CORES_ONE_BY_ONE]:
            values[f"core{core}_share"] = shares[core][0]

    def _ask(self, function: str) -> Any:
        """What psutil answers, or None where the system has no such thing."""
        try:
            return getattr(self._psutil, function)()
        except (AttributeError, OSError, RuntimeError, self._psutil.Error):
            return None


def has_children() -> bool | None:
    """Whether this process has children that it has not waited for; None where the system does not provide that.

    The query leaves the state of the children as it is, so that a later wait still succeeds.
    """
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    except (AttributeError, OSError):
        return None
    return True


def read_pressure(file: Path) -> float | None:
    """Microseconds in which something waited for this resource, since the start of the machine; None if untold.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "cpu"
    >>> _ = file.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=1500\\n")
    >>> read_pressure(file)
    1500.0
    """
    try:
        line = file.read_text(encoding="ascii").partition("\n")[0]
        return float(line.rpartition("total=")[2])
    except (OSError, ValueError):
        return None


# What a container allows this process, and how often it was held back: control groups of version 1 and 2.


MOUNT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")

NO_LIMIT_BYTES = 2**60
"""Version 1 writes "no limit" as a number near the largest there is."""


class ContainerReader:
    """Limits of memory and processors that hold for this process, and their use.

    A limit of any group above holds as well, so the smallest counts.
    """

    def __init__(self, *, mount: Path = MOUNT, membership: Path = MEMBERSHIP) -> None:
        self._mount = mount
        self._groups = read_membership(membership)
        self.cores = min(self._quotas(), default=None)
        self.memory_bytes, self._memory_file = self._memory_limit()
        self._stat_files = [f for folder in self._folders("cpu") if (f := folder / "cpu.stat").is_file()]
        self._throttled = self._count_throttled()

    def read(self, seconds: float) -> dict[str, float]:
        """The share of the allowed memory that is used, and of the scheduler's periods that ended held back."""
        values = {}
        if self.memory_bytes and self._memory_file is not None:
            used = _number(self._memory_file)
            if used is not None:
                values["container_memory_share"] = used / self.memory_bytes
        if self.cores is not None:
            before, self._throttled = self._throttled, self._count_throttled()
            values["container_throttled_share"] = max(
                (_share(before[file], now) for file, now in self._throttled.items() if file in before), default=0.0
            )
        return values

    def _folders(self, controller: str) -> Iterator[Path]:
        """The folders that apply to this process, its own group first; the mount where its path is not visible."""
        path = self._groups.get(controller)
        root = self._mount / controller
        if path is None:
            path = self._groups.get("", "/")
            root = self._mount if (self._mount / "cgroup.controllers").is_file() else self._mount / "unified"
        own = root / path.lstrip("/")
        if not own.is_dir():
            own = root
        while own != root and own.is_relative_to(root):
            yield own
            own = own.parent
        yield root

    def _quotas(self) -> Iterator[float]:
        for folder in self._folders("cpu"):
            words = _words(folder / "cpu.max") or _words(folder / "cpu.cfs_quota_us") + _words(
                folder / "cpu.cfs_period_us"
            )
            if len(words) == 2 and words[0] not in ("max", "-1"):
                try:
                    quota, period = float(words[0]), float(words[1])
                except ValueError:
                    continue
                if quota > 0 and period > 0:
                    yield quota / period

    def _memory_limit(self) -> tuple[int | None, Path | None]:
        found: list[tuple[float, Path]] = []
        for folder in self._folders("memory"):
            for limit, used in (
                ("memory.max", "memory.current"),
                ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            ):
                number = _number(folder / limit)
                if number is not None and 0 < number < NO_LIMIT_BYTES and (folder / used).is_file():
                    found.append((number, folder / used))
        smallest = min(found, default=None, key=lambda pair: pair[0])
        return (None, None) if smallest is None else (int(smallest[0]), smallest[1])

    def _count_throttled(self) -> dict[Path, tuple[float, float]]:
        """Of each group of this process, its periods, and those in which it had used up its time and was held back.

        The time that it was held back is of no use: it is the sum over all cores.
        """
        counts = {}
        for file in self._stat_files:
            words = _words(file)
            named = dict(zip(words[::2], words[1::2], strict=False))
            try:
                counts[file] = (float(named["nr_periods"]), float(named["nr_throttled"]))
            except (KeyError, ValueError):  # the topmost group has none
                continue
        return counts


def _share(before: tuple[float, float], now: tuple[float, float]) -> float:
    periods, throttled = now[0] - before[0], now[1] - before[1]
    return min(1.0, max(0.0, throttled / periods)) if periods > 0 else 0.0


def read_membership(file: Path) -> dict[str, str]:
    """Controller to group of this process; the one of version 2 goes by the empty name."""
    groups: dict[str, str] = {}
    for line in _lines(file):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            groups.setdefault(controller, path)
    return groups


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _words(file: Path) -> list[str]:
    return " ".join(_lines(file)).split()


def _number(file: Path) -> float | None:
    words = _words(file)
    try:
        return float(words[0]) if words else None
    except ValueError:  # "max"
        return None


# Counters of NVIDIA GPUs, read from their driver (NVML) at every sample.
#
# A counter that a card does not support is not read again. A card that is lost is skipped, and the others go on.


HEAT = 0x20 | 0x40
"""Bits of the reasons why clocks are held down: slowed in software, in hardware, because of heat."""
POWER = 0x04 | 0x80
"""The same because of power: the power cap, the power brake."""
HARDWARE, ITS_CAUSES = 0x08, HEAT | 0x80
"""The hardware's slowdown: because of heat or power, which have bits of their own, or of neither."""

GONE = ("NVMLError_GpuIsLost", "NVMLError_Uninitialized", "NVMLError_InvalidArgument", "NVMLError_NotFound")


class GpuReader:
    """Reads every card of the machine; nothing where there is no driver. :meth:`close` lets go of the driver."""

    def __init__(self) -> None:
        self._nvml: Any = open_nvml()
        self._unsupported: set[tuple[int, str]] = set()
        self._cards: dict[int, Any] = {}
        for index in range((self._nvml and query_nvml(self._nvml, "nvmlDeviceGetCount")) or 0):
            card = query_nvml(self._nvml, "nvmlDeviceGetHandleByIndex", index)
            if card is not None:
                self._cards[index] = card

    def read(self, seconds: float) -> dict[str, float]:
        """Every quantity of every card now."""
        values: dict[str, float] = {}
        for index in list(self._cards):
            values |= {f"gpu{index}_{name}": value for name, value in self._read_card(index).items()}
        return values

    def close(self) -> None:
        """Let go of the driver; later readings are empty."""
        if self._nvml is not None:
            query_nvml(self._nvml, "nvmlShutdown")
        self._nvml, self._cards = None, {}

    def _read_card(self, index: int) -> dict[str, float]:
        values: dict[str, float] = {}
        for question, name, shape in _QUESTIONS:
            answer = self._ask(index, question, name)
            if answer is not None:
                values[name] = shape(answer)
        reasons = self._ask(index, _reasons, "reasons")
        if reasons is not None:
            values["throttled_by_heat_share"] = float(bool(reasons & HEAT))
            values["throttled_by_power_share"] = float(bool(reasons & POWER))
            values["throttled_by_hardware_share"] = float(bool(reasons & HARDWARE and not reasons & ITS_CAUSES))
        return values

    def _ask(self, index: int, question: Callable[[Any, Any], Any], name: str) -> Any:
        if index not in self._cards or (index, name) in self._unsupported:
            return None
        try:
            return question(self._nvml, self._cards[index])
        except (self._nvml.NVMLError, AttributeError, OSError) as refusal:
            if type(refusal).__name__ in GONE:
                del self._cards[index]
            else:  # not supported, no such function, no permission
                self._unsupported.add((index, name))
            return None


def _either(nvml: Any, card: Any, names: tuple[str, str], *arguments: Any) -> Any:
    """The answer to a question that has two names, of which a driver may know only one."""
    try:
        return getattr(nvml, names[0])(card, *arguments)
    except (AttributeError, nvml.NVMLError) as refusal:
        if type(refusal).__name__ in GONE:
            raise
    return getattr(nvml, names[1])(card, *arguments)


def _reasons(nvml: Any, card: Any) -> Any:
    names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    return _either(nvml, card, names)


def _temperature(nvml: Any, card: Any) -> Any:
    names = ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV")
    return _either(nvml, card, names, nvml.NVML_TEMPERATURE_GPU)


_QUESTIONS: tuple[tuple[Callable[[Any, Any], Any], str, Callable[[Any], float]], ...] = (
    (lambda nvml, card: nvml.nvmlDeviceGetUtilizationRates(card).gpu, "busy_share", lambda percent: percent / 100),
    (lambda nvml, card: nvml.nvmlDeviceGetMemoryInfo(card).used, "memory_used_bytes", float),
    (lambda nvml, card: nvml.nvmlDeviceGetPowerUsage(card), "power_watts", lambda milliwatts: milliwatts / 1000),
    (_temperature, "temperature_celsius", float),
    (lambda nvml, card: nvml.nvmlDeviceGetClockInfo(card, nvml.NVML_CLOCK_SM), "clock_megahertz", float),
    (lambda nvml, card: nvml.nvmlDeviceGetClockInfo(card, nvml.NVML_CLOCK_MEM), "memory_clock_megahertz", float),
)
