"""How well the end of a training is forecast after some epochs, on other people's learning curves.

    python tests/benchmarks/forecasts.py FOLDER             # the table that the documentation quotes
    python tests/benchmarks/forecasts.py FOLDER --choose    # how the constants were chosen

FOLDER holds pollux_convergence.csv, dawnbench_epochs_dev.csv and zeus_epochs_to_target_dev.csv, which are not part of
vmselect. Early stopping with patience 5 and 10 defines where a curve ends. A curve that ends before early stopping does
shows only that the training is longer: it counts as missed if the interval ends before the curve does. Zeus' file has
the epochs at which a run reached each of several targets, so its curves are steps. The curves of curves.py are small
trainings that are made here (some minutes): those of one seed are chosen on, with Pollux' curves, and those of another
are reported. Every curve has the same weight.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent))

from curves import make_curves
from methodology1 import read_pollux

import vmselect as vs
from vmselect.records.convergence import (
    HIGH_WAITS,
    MAX_IMPROVING,
    MAX_RATIO,
    VALUE_WAITS,
    ConvergenceRun,
    Curve,
    EpochsForecast,
    StoppingRule,
)

SEEN = (8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80)
EARLY = 10
PATIENCES = (5, 10)
SOURCES = ("Pollux", "DAWNBench", "Zeus", "small trainings")
OWN = 100
ZEUS_RUN = ["dataset", "network", "batch_size", "optimizer", "learning_rate", "run"]


@dataclass(frozen=True)
class Case:
    """The first ``seen`` epochs of a curve, their forecast, and when the training ended (at least, if it did not)."""

    source: str
    curve: int
    seen: int
    patience: int
    end: int
    ended: bool
    low: float
    improving: float
    forecast: EpochsForecast


def read_curves(folder: Path, *, seed: int = 1) -> Iterator[tuple[str, list[float]]]:
    """Source and values of every curve; larger is better. ``seed`` is that of the small trainings."""
    for curves in read_pollux(folder).values():
        for values in curves.values():
            yield "Pollux", list(values)
    for _, part in pd.read_csv(folder / "dawnbench_epochs_dev.csv").groupby(["task", "entry"]):
        yield "DAWNBench", list(part.sort_values("epoch")["quality"])
    for values in make_curves(OWN, seed=seed):
        yield "small trainings", values
    targets = pd.read_csv(folder / "zeus_epochs_to_target_dev.csv")
    targets = targets[np.isfinite(targets["target_epoch"]) & (targets["target_epoch"] > 0)]
    for _, part in targets.groupby(ZEUS_RUN):
        reached = part.groupby("target_metric")["target_epoch"].min()
        rising = len(reached) < 3 or np.corrcoef(reached.index, reached)[0, 1] > 0
        level = reached.index.to_numpy(dtype=float) * (1.0 if rising else -1.0)
        epochs = range(1, int(reached.max()) + 1)
        yield "Zeus", [float(max(level[reached.to_numpy() <= epoch], default=-1e9)) for epoch in epochs]


def list_cases(curves: Iterator[tuple[str, list[float]]]) -> Iterator[Case]:
    """Every beginning of every curve before its end."""
    for number, (source, values) in enumerate(curves):
        for patience in PATIENCES:
            rule = StoppingRule(monitor="metric", mode="max", patience=patience)
            end = rule.stop_after(enumerate(values, 1))
            for seen in SEEN:
                if seen < len(values) and (end is None or seen < end):
                    run = part_of(values, seen, rule)
                    low = run.forecast(confidence=0.5).low
                    best = np.maximum.accumulate(values[:seen])
                    improving = float(np.mean(np.diff(best)[-patience:] > 0))
                    last = end or len(values) + 1
                    yield Case(source, number, seen, patience, last, end is not None, low, improving, run.forecast())


def part_of(values: Sequence[float], count: int, rule: StoppingRule) -> ConvergenceRun:
    """The first ``count`` epochs of a run that is still going."""
    return ConvergenceRun(
        created=datetime.now(UTC), batch_size=1, rule=rule, epochs_run=count, ended=False,
        curve=Curve.of(dict(enumerate(values[:count], 1))),
    )  # fmt: skip


def average(cases: Sequence[Case], values: Sequence[float]) -> float:
    """Mean of ``values`` in which every curve and patience has the same weight."""
    keys = [(case.curve, case.patience) for case in cases]
    weights = [1 / keys.count(key) for key in keys]
    return float(np.average(values, weights=weights)) if cases else float("nan")


def high_end(case: Case, waits: float = HIGH_WAITS) -> float:
    """The upper bound with another number of waits."""
    return case.seen + case.patience + waits * (case.low - case.seen)


def list_usable(cases: Sequence[Case], waits: float) -> list[Case]:
    """The cases for which a forecast with this upper bound would be made."""
    return [case for case in cases if case.improving <= MAX_IMPROVING and high_end(case, waits) <= MAX_RATIO * case.low]


def choose(cases: list[Case]) -> None:
    """Coverage by the upper bound and by the recent improvements, and error by the number of waits forecast."""
    for source in ("Pollux", "small trainings"):
        here = [case for case in cases if case.source == source]
        for waits in (5.0, 5.5, 6.0, 6.5, 7.0, 7.5, 8.0, 8.5, 9.0):
            tried = list_usable(here, waits)
            held = average(tried, [case.end <= high_end(case, waits) for case in tried])
            early = [case for case in tried if case.seen <= EARLY]
            soon = average(early, [case.end <= high_end(case, waits) for case in early])
            print(
                f"{source}, HIGH_WAITS {waits}: held {held:.1%}, {soon:.0%} of {len(early)} early, usable "
                f"{len(tried) / len(here):.0%}"
            )
        near = [case for case in here if high_end(case) <= MAX_RATIO * case.low]
        for least in (0.0, 0.2, 0.4, 0.6, 0.8):
            part = [case for case in near if least < case.improving <= least + 0.2]
            held = average(part, [case.end <= high_end(case) for case in part])
            print(f"{source}, improved in {least:.0%} to {least + 0.2:.0%}: held {held:.0%} of {len(part)}")
        ended = [case for case in here if case.ended and case.forecast.is_usable]
        for waits in (1, 1.5, 2, 2.5, 3, 3.5):
            errors = [abs((case.seen + waits * (case.low - case.seen)) / case.end - 1) for case in ended]
            print(f"{source}, VALUE_WAITS {waits}: mean error {average(ended, errors):.1%}")


def report(cases: list[Case]) -> None:
    """Share of refused forecasts, coverage, width relative to the earliest end, and error by source."""
    print(
        f"| curves | beginnings | no forecast | in interval | of those after {EARLY} epochs at most | mean width | "
        "mean error |"
    )
    print("|---|" + "---:|" * 6)
    for source in SOURCES:
        here = [case for case in cases if case.source == source]
        made = [case for case in here if case.forecast.is_usable]
        # The lower bound is certain; of a training that did not end, only the upper bound can be missed.
        inside = [case.end <= case.forecast.high for case in made]
        early = [(case, held) for case, held in zip(made, inside, strict=True) if case.seen <= EARLY]
        soon = average([case for case, _ in early], [held for _, held in early])
        ended = [case for case in made if case.ended]
        width = average(made, [case.forecast.high / case.forecast.low - 1 for case in made])
        error = average(ended, [abs(case.forecast.value / case.end - 1) for case in ended])
        print(
            f"| {source} | {len(here)} | {1 - len(made) / len(here):.0%} | {average(made, inside):.0%} | {soon:.0%} of "
            f"{len(early)} | {width:.0%} | {error:.0%} |"
        )
    for source in SOURCES:
        half = list_usable([case for case in cases if case.source == source], HIGH_WAITS / 2)
        held = average(half, [case.end <= high_end(case, HIGH_WAITS / 2) for case in half])
        print(f"{source}: half as many waits held in {held:.0%}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--choose"]):
        sys.exit("usage: forecasts.py FOLDER [--choose]")
    print(f"vmselect {vs.__version__}, HIGH_WAITS {HIGH_WAITS}, VALUE_WAITS {VALUE_WAITS}\n")
    everything = list(list_cases(read_curves(Path(sys.argv[1]), seed=7 if sys.argv[2:] else 1)))
    (choose if sys.argv[2:] else report)(everything)
