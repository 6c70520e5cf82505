"""Samples kept in bounded memory: exact sums by phase, and rows that are thinned out as a training goes on."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vmselect.records.usage import Limits, Phase, Summary, Usage

KEPT_PER_PHASE = 240
"""Rows of one phase that are kept: four minutes of steady steps second by second, an hour at every sixteenth."""

ONE_BY_ONE = "core"
"""Quantities of single cores are summed up but make no series: a large machine has hundreds."""


class _Sum:
    """Count, time, weighted sum and maximum of one quantity."""

    __slots__ = ("count", "maximum", "seconds", "weighted")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = self.weighted = 0.0
        self.maximum = -math.inf

    def add(self, seconds: float, value: float) -> None:
        self.count += 1
        self.seconds += seconds
        self.weighted += seconds * value
        self.maximum = max(self.maximum, value)


class PhaseTally:
    """The samples of one phase. When too many rows are kept, every second one goes, and of later ones too."""

    def __init__(self) -> None:
        self.sums: dict[str, _Sum] = {}
        self.rows: list[tuple[float, Mapping[str, float]]] = []
        self._stride = 1
        self._seen = 0

    def add(self, at: float, seconds: float, values: Mapping[str, float]) -> None:
        """A sample that ended ``at`` and covers ``seconds``."""
        for name, value in values.items():
            self.sums.setdefault(name, _Sum()).add(seconds, value)
        if self._seen % self._stride == 0:
            self.rows.append((at, values))
            if len(self.rows) > KEPT_PER_PHASE:
                self.rows = self.rows[::2]
                self._stride *= 2
        self._seen += 1

    def summaries(self) -> dict[str, Summary]:
        """Every quantity, summed up."""
        from vmselect.records.usage import Summary

        found = {}
        for name, sums in self.sums.items():
            kept = sorted(values[name] for _, values in self.rows if name in values) or [sums.maximum]
            found[name] = Summary(
                count=sums.count,
                seconds=_short(sums.seconds),
                mean=_short(sums.weighted / sums.seconds),
                maximum=_short(sums.maximum),
                p50=_short(_percentile(kept, 0.5)),
                p95=_short(_percentile(kept, 0.95)),
            )
        return found


class Tally:
    """All samples of a training, by phase. One thread may add while others build."""

    def __init__(self) -> None:
        self._phases: dict[Phase, PhaseTally] = {}
        self._lock, self._process = threading.RLock(), os.getpid()

    def add(self, phase: Phase, at: float, seconds: float, values: Mapping[str, float]) -> None:
        """A sample of ``phase`` that ended ``at`` and covers ``seconds``; what is no finite number is left out."""
        sound = {name: float(value) for name, value in values.items() if math.isfinite(value)}
        if seconds > 0 and sound:
            with self._alone():
                self._phases.setdefault(phase, PhaseTally()).add(at, seconds, sound)

    def build(self, interval: float, limits: Limits) -> Usage:
        """What a record keeps of it."""
        with self._alone():
            return self._build(interval, limits)

    def _build(self, interval: float, limits: Limits) -> Usage:
        from vmselect.records.usage import PHASES, Usage

        rows = sorted(
            ((at, phase, values) for phase, tally in self._phases.items() for at, values in tally.rows),
            key=lambda row: row[0],
        )
        names = dict.fromkeys(name for *_, values in rows for name in values if not name.startswith(ONE_BY_ONE))
        return Usage(
            interval_seconds=interval,
            limits=limits,
            phases={phase: self._phases[phase].summaries() for phase in PHASES if phase in self._phases},
            seconds=tuple(round(at, 3) for at, *_ in rows),
            phase=tuple(phase for _, phase, _ in rows),
            series={
                name: tuple(_short(values[name]) if name in values else None for *_, values in rows) for name in names
            },
        )

    def _alone(self) -> threading.RLock:
        """The lock. A signal may interrupt its holder to build a record, hence one that can be taken twice."""
        if self._process != os.getpid():  # a forked child: the thread that held the lock does not exist here
            self._lock, self._process = threading.RLock(), os.getpid()
        return self._lock


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def _short(value: float) -> float:
    """Rounded to four digits, the precision of a sample."""
    return float(f"{value:.4g}")
