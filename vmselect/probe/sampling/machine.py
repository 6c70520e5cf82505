"""Counters of the machine and of this process: processors, memory, swap, disks, network, pressure."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vmselect.probe.facts.hardware import usable_cores

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
