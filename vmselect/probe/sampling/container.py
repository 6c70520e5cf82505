"""What a container allows this process, and how often it was held back: control groups of version 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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
