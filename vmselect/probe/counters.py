"""Classes that read the usage of the machine and this process, of its container, its power, and of NVIDIA GPUs.

A reader omits quantities that the operating system, the container or the driver does not report.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from vmselect.probe.environment import GpuHandle, Nvml, open_nvml, query_nvml, usable_cores

PRESSURE = Path("/proc/pressure")

LISTING_SHARE = 0.001
"""Largest share of the time that is spent on listing child processes, the only query that takes milliseconds."""

START_TOLERANCE_SECONDS = 1.0
"""A child process counts as older than the measurement only if it started this much earlier, as start times may be
rounded to whole seconds."""

MAX_SINGLE_CORES = 512

CoreTimes = tuple[float, float, float]
"""Seconds for which a CPU core was busy, was idle, and was used by other virtual machines of its host (steal time)."""


Query: TypeAlias = Callable[[Nvml, GpuHandle], Any]
"""Function that reads a value of a GPU."""


class MachineReader:
    """Reads usage quantities of the machine and of this process. Rates are means since the previous reading.

    The CPU time of child processes (data loader workers) is added to that of this process.
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
        """Maps each process to its CPU seconds at the last reading: its own, and those of children it waited for."""
        self._worked = self._missing = 0.0
        # If a container hides the counters of swapping, psutil would print a warning during the training.
        root = getattr(psutil, "PROCFS_PATH", None)
        self._counts_swap = root is None or Path(root, "vmstat").is_file()
        self._pressures: tuple[str, ...] = ("cpu", "io", "memory")
        self._before = self._count_cores(), self._count_work(), self._count_totals()[1]

    def read(self, seconds: float) -> dict[str, float]:
        """Return the current values of all quantities by name. ``seconds`` is the time since the previous reading."""
        cores, worked, totals = self._before
        cores_now, worked_now, (values, totals_now) = self._count_cores(), self._count_work(), self._count_totals()
        self._before = cores_now, worked_now, totals_now
        memory = self._psutil.virtual_memory()
        values["memory_used_bytes"] = memory.total - memory.available
        values["memory_available_share"] = memory.available / memory.total if memory.total else 0.0
        values["process_memory_bytes"] = self._process.memory_info().rss
        for name, total in totals_now.items():
            if name in totals:
                values[name] = max(0.0, total - totals[name]) / seconds
        return values | self._read_cores(cores, cores_now, max(0.0, worked_now - worked) / seconds)

    def _count_cores(self) -> list[CoreTimes]:
        return [
            (
                # The time of guests is part of user time.
                core.user + core.system + sum(getattr(core, name, 0.0) for name in ("nice", "irq", "softirq")),
                core.idle + getattr(core, "iowait", 0.0),
                getattr(core, "steal", 0.0),
            )
            for core in self._psutil.cpu_times(percpu=True)
        ]

    def _count_totals(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return two dicts by quantity: current values, and totals since the machine's start, which give rates."""
        levels, totals = {}, {}
        swap = self._query("swap_memory") if self._counts_swap else None
        if swap is not None:
            levels["swap_used_bytes"] = swap.used
            totals["swap_bytes_per_second"] = swap.sin + swap.sout
        disk = self._query("disk_io_counters")
        if disk is not None:
            totals["disk_read_bytes_per_second"] = disk.read_bytes
            totals["disk_write_bytes_per_second"] = disk.write_bytes
            totals["disk_read_operations_per_second"] = disk.read_count
            totals["disk_write_operations_per_second"] = disk.write_count
        network = self._query("net_io_counters")
        if network is not None:
            totals["network_received_bytes_per_second"] = network.bytes_recv
            totals["network_sent_bytes_per_second"] = network.bytes_sent
        own = self._query("io_counters", self._process)  # not on macOS, and some containers forbid it
        if own is not None:
            totals["process_read_bytes_per_second"] = own.read_bytes
            totals["process_write_bytes_per_second"] = own.write_bytes
        for kind in self._pressures:
            microseconds = read_pressure(PRESSURE / kind)
            if microseconds is None:
                self._pressures = tuple(other for other in self._pressures if other != kind)
            else:
                totals[f"{kind}_pressure_share"] = microseconds / 1e6
        return levels, totals

    def _count_work(self) -> float:
        """Return the CPU seconds of this process and its children since the first reading; they never decrease.

        When a process has waited for an ended child, the operating system adds the child's CPU time to the parent's.
        This includes time after the last reading of the child, and the time of children that were never read.
        """
        self._list_children()
        before, self._times = self._times, {}
        worked = handed_over = 0.0
        for process in (self._process, *self._children):
            try:
                times = process.cpu_times()
                older = process not in before and process.create_time() < self._began - START_TOLERANCE_SECONDS
            except self._psutil.Error:  # it has ended
                self._children.discard(process)
                continue
            own, children = now = (times.user + times.system, times.children_user + times.children_system)
            own_before, children_before = now if older else before.get(process, (0.0, 0.0))
            worked += max(0.0, own - own_before)
            handed_over += children - children_before
            self._times[process] = now
        handed_over -= sum(sum(last) for process, last in before.items() if process not in self._times)
        # Less than the known time of ended children: one ended between two queries, and the next reading has its time;
        # or no process waited for it, and its time is in no reading.
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

    def _read_cores(self, before: list[CoreTimes], now: list[CoreTimes], process_cores: float) -> dict[str, float]:
        shares = {}
        for core, (earlier, later) in enumerate(zip(before, now, strict=False)):
            busy, idle, steal = (max(0.0, late - early) for early, late in zip(earlier, later, strict=True))
            if busy + idle + steal > 0:
                shares[core] = (busy / (busy + idle + steal), steal / (busy + idle + steal))
        if not shares:
            return {}
        usable = [core for core in shares if core in self._usable] or list(shares)
        usable_share = sum(shares[core][0] for core in usable) / len(usable)
        return {
            "cpu_share": sum(busy for busy, _ in shares.values()) / len(shares),
            "busiest_core_share": max(busy for busy, _ in shares.values()),
            "usable_cpu_share": usable_share,
            "steal_share": sum(shares[core][1] for core in usable) / len(usable),
            "process_cores": process_cores,
            # Negative when a child process is found late: its work was counted as that of others. The mean is right.
            "other_cores": usable_share * len(usable) - process_cores,
            **{f"core{core}_share": shares[core][0] for core in list(shares)[:MAX_SINGLE_CORES]},
        }

    def _query(self, function: str, owner: Any = None) -> Any:
        """Call a function of psutil or of ``owner``; return None if the operating system does not support it."""
        try:
            return getattr(owner or self._psutil, function)()
        except (AttributeError, OSError, RuntimeError, self._psutil.Error):
            return None


def has_children() -> bool | None:
    """Return whether this process has child processes that it has not waited for; None if unknown.

    The query does not change the state of the children, so a later wait for them still succeeds.
    """
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    except (AttributeError, OSError):
        return None
    return True


def read_pressure(file: Path) -> float | None:
    """Return the microseconds since boot during which at least one program waited for a resource; None if unknown.

    ``file`` is the pressure stall information (PSI) of the resource, such as ``/proc/pressure/io``.
    """
    try:
        line = file.read_text(encoding="ascii").partition("\n")[0]
        return float(line.rpartition("total=")[2])
    except (OSError, ValueError):
        return None


NO_LIMIT_BYTES = 2**60
"""Memory limits of this size or more mean "no limit": control groups of version 1 report a number near 2**63 then."""


class ContainerReader:
    """Reads the CPU and memory limits of this process's control groups (version 1 or 2), and how much of them is used.

    The limits of all parent groups apply as well, so the smallest limit is used.
    """

    def __init__(self, *, mount: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> None:
        self._mount = mount
        self._groups: dict[str, str] = {}
        """Maps each controller to the path of this process's control group. Version 2 has one controller, named ''."""
        for line in _read(membership).splitlines():
            controllers, _, path = line.partition(":")[2].partition(":")
            for controller in controllers.split(","):
                self._groups.setdefault(controller, path)
        self.cores = min(self._quotas(), default=None)
        self.memory_bytes, self._memory_file = self._memory_limit()
        self._stat_files = [f for folder in self._folders("cpu") if (f := folder / "cpu.stat").is_file()]
        self._throttled = self._count_throttled()

    def read(self, seconds: float) -> dict[str, float]:
        """Return the used share of the memory limit and the share of scheduler periods with CPU throttling, by name."""
        values = {}
        used = _read_number(self._memory_file) if self._memory_file is not None else None
        if self.memory_bytes and used is not None:
            values["container_memory_share"] = used / self.memory_bytes
        if self.cores is not None:
            before, self._throttled = self._throttled, self._count_throttled()
            shares = [0.0]
            for file in self._throttled.keys() & before.keys():
                periods, throttled = (
                    late - early for early, late in zip(before[file], self._throttled[file], strict=True)
                )
                if periods > 0:
                    shares.append(min(1.0, throttled / periods))
            values["container_throttled_share"] = max(shares)
        return values

    def _folders(self, controller: str) -> Iterator[Path]:
        """Yield the folders of this process's control group and its parents; only the root if they are not visible."""
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
            text = _read(folder / "cpu.max")
            words = (text or f"{_read(folder / 'cpu.cfs_quota_us')} {_read(folder / 'cpu.cfs_period_us')}").split()
            try:
                quota, period = map(float, words)
            except ValueError:  # no file, or "max"
                continue
            if quota > 0 and period > 0:
                yield quota / period

    def _memory_limit(self) -> tuple[int | None, Path | None]:
        limits: list[tuple[float, Path]] = []
        for folder in self._folders("memory"):
            for limit, used in (("max", "current"), ("limit_in_bytes", "usage_in_bytes")):
                number, file = _read_number(folder / f"memory.{limit}"), folder / f"memory.{used}"
                if number is not None and 0 < number < NO_LIMIT_BYTES and file.is_file():
                    limits.append((number, file))
        smallest = min(limits, default=None, key=lambda pair: pair[0])
        return (None, None) if smallest is None else (int(smallest[0]), smallest[1])

    def _count_throttled(self) -> dict[Path, tuple[float, float]]:
        """Map the statistics file of each control group to the numbers of scheduler periods and of throttled periods.

        The throttled time is not used, because it is summed over all CPU cores.
        """
        counts = {}
        for file in self._stat_files:
            words = _read(file).split()
            named = dict(zip(words[::2], words[1::2], strict=False))
            try:
                counts[file] = (float(named["nr_periods"]), float(named["nr_throttled"]))
            except (KeyError, ValueError):  # the topmost group has none
                continue
        return counts


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _read_number(file: Path) -> float | None:
    try:
        return float(_read(file).split()[0])
    except (IndexError, ValueError):  # no file, or "max"
        return None


HEAT = 0x20 | 0x40
"""Bits in NVML's reasons for reduced GPU clocks that mean overheating: slowdown by software, slowdown by hardware."""
POWER = 0x04 | 0x80
"""Bits in NVML's reasons for reduced GPU clocks that mean a limit of power: the power cap, the power brake."""
HARDWARE, HARDWARE_CAUSES = 0x08, HEAT | 0x80
"""The bit in NVML's reasons that means a slowdown by the hardware, and the bits that state the cause of this."""

LOST_GPU = ("NVMLError_GpuIsLost", "NVMLError_Uninitialized", "NVMLError_InvalidArgument", "NVMLError_NotFound")


class GpuReader:
    """Reads the utilization, memory, power and clocks of every NVIDIA GPU of the machine through its driver (NVML).

    ``power_watts`` is the mean power since the previous reading if the GPU has an energy counter, otherwise the power
    at the time of the reading. ``sources`` maps each GPU to ``counter`` or ``samples``. Quantities that a GPU does
    not support are not read again. GPUs that the driver reports as lost are skipped.
    """

    def __init__(self) -> None:
        self._nvml: Nvml = open_nvml()
        self._unsupported: set[tuple[int, str]] = set()
        self._millijoules: dict[int, int] = {}
        """Energy counter of each GPU at the previous reading."""
        self.sources: dict[str, str] = {}
        self._gpus: dict[int, GpuHandle] = {}
        for index in range((self._nvml and query_nvml(self._nvml, "nvmlDeviceGetCount")) or 0):
            gpu = query_nvml(self._nvml, "nvmlDeviceGetHandleByIndex", index)
            if gpu is not None:
                self._gpus[index] = gpu
                self._mean_watts(index, 0.0)

    def read(self, seconds: float) -> dict[str, float]:
        """Return the current values of all quantities of all GPUs, by name."""
        values: dict[str, float] = {}
        for index in list(self._gpus):
            for name, query in _GPU_QUERIES.items():
                value = self._query(index, name, query)
                if value is not None:
                    values[f"gpu{index}_{name}"] = float(value)
            watts = self._mean_watts(index, seconds)
            if watts is not None:
                values[f"gpu{index}_power_watts"] = watts
            reasons = self._query(index, "reasons", _reasons)
            if reasons is not None:
                by_hardware = reasons & HARDWARE and not reasons & HARDWARE_CAUSES
                for cause, holds in (("heat", reasons & HEAT), ("power", reasons & POWER), ("hardware", by_hardware)):
                    values[f"gpu{index}_throttled_by_{cause}_share"] = float(bool(holds))
        return values

    def _mean_watts(self, index: int, seconds: float) -> float | None:
        """Power of a GPU by its energy counter, or by a power sample if the counter is missing or was reset."""
        before, now = self._millijoules.get(index), self._query(index, "energy", _millijoules)
        if now is not None:
            self._millijoules[index] = now
        if now is not None and before is not None and now > before and seconds > 0:
            self.sources[f"gpu{index}"] = "counter"
            return float(now - before) / 1000 / seconds
        if seconds <= 0:
            return None
        milliwatts = self._query(index, "power", lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu))
        if milliwatts is None:
            return None
        self.sources.setdefault(f"gpu{index}", "samples")
        return float(milliwatts) / 1000

    def close(self) -> None:
        """Close the connection to the driver. Later readings are empty."""
        if self._nvml is not None:
            query_nvml(self._nvml, "nvmlShutdown")
        self._nvml, self._gpus = None, {}

    def _query(self, index: int, name: str, query: Query) -> Any:
        if index not in self._gpus or (index, name) in self._unsupported:
            return None
        try:
            return query(self._nvml, self._gpus[index])
        except (self._nvml.NVMLError, AttributeError, OSError) as error:
            if type(error).__name__ in LOST_GPU:
                del self._gpus[index]
            else:  # not supported, no such function, no permission
                self._unsupported.add((index, name))
            return None


def _query_either(nvml: Nvml, gpu: GpuHandle, name: str, other: str, *arguments: object) -> Any:
    """Call the NVML function ``name``, or ``other``, which is its name in other versions of the driver."""
    try:
        return getattr(nvml, name)(gpu, *arguments)
    except (AttributeError, nvml.NVMLError) as error:
        if type(error).__name__ in LOST_GPU:
            raise
    return getattr(nvml, other)(gpu, *arguments)


def _reasons(nvml: Nvml, gpu: GpuHandle) -> Any:
    current = "nvmlDeviceGetCurrentClocks"
    return _query_either(nvml, gpu, f"{current}EventReasons", f"{current}ThrottleReasons")


def _millijoules(nvml: Nvml, gpu: GpuHandle) -> int:
    return int(nvml.nvmlDeviceGetTotalEnergyConsumption(gpu))


def _temperature(nvml: Nvml, gpu: GpuHandle) -> Any:
    function = "nvmlDeviceGetTemperature"
    return _query_either(nvml, gpu, function, f"{function}V", nvml.NVML_TEMPERATURE_GPU)


def _memory_share(nvml: Nvml, gpu: GpuHandle) -> float | None:
    memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
    return memory.used / memory.total if memory.total else None


_GPU_QUERIES: dict[str, Query] = {
    "busy_share": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    "memory_used_bytes": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
    "memory_used_share": _memory_share,
    "temperature_celsius": _temperature,
    "clock_megahertz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "memory_clock_megahertz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
}


RAPL = Path("/sys/class/powercap")


class RaplReader:
    """Reads the power of the CPU packages and of their memory from the kernel's energy counters (RAPL).

    Values are means since the previous reading. There are none in most virtual machines, which lack these counters, and
    without permission to read them. If only some of the packages can be read, there is no value either: their sum would
    be too low. ``sources`` maps ``cpu`` and ``memory`` to ``rapl``, if they are read.
    """

    def __init__(self, root: Path = RAPL) -> None:
        self._zones: dict[str, list[Path]] = {"cpu": [], "memory": []}
        for zone in sorted(root.glob("intel-rapl:*")):
            name = _read(zone / "name").strip()
            kind = "cpu" if name.startswith("package") else "memory" if name == "dram" else None
            if kind is not None:
                self._zones[kind].append(zone)
        self._microjoules = {zone: _read_number(zone / "energy_uj") for zones in self._zones.values() for zone in zones}
        for kind, zones in self._zones.items():
            if any(self._microjoules[zone] is None for zone in zones):
                self._zones[kind] = []
        self.sources = {kind: "rapl" for kind, zones in self._zones.items() if zones}

    def read(self, seconds: float) -> dict[str, float]:
        """Mean power in watts of the CPU packages and of the memory since the previous reading, by name."""
        values = {}
        for kind, zones in self._zones.items():
            used = [self._count(zone) for zone in zones]
            if used and None not in used and seconds > 0:
                values[f"{kind}_power_watts"] = sum(joules or 0.0 for joules in used) / seconds
        return values

    def _count(self, zone: Path) -> float | None:
        """Joules since the previous reading of this zone; None if unknown."""
        before, now = self._microjoules[zone], _read_number(zone / "energy_uj")
        self._microjoules[zone] = now
        if before is None or now is None:
            return None
        if now < before:  # the counter starts again at 0 after its largest value
            largest = _read_number(zone / "max_energy_range_uj")
            if largest is None or largest < before:
                return None
            now += largest
        return (now - before) / 1e6
