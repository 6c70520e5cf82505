"""How well the end of a training is foreseen from its first part, on other people's learning curves and on our own.

    python tests/benchmarks/forecasts.py FOLDER             # the tables that the documentation quotes
    python tests/benchmarks/forecasts.py FOLDER --choose    # how the constants of the forecast were chosen

FOLDER holds dawnbench_epochs_dev.csv and pollux_convergence.csv, which are not part of vmselect. A hash of its name
puts each of their curves into one of two halves. Constants are chosen on the first half and on the curves that
curves.py makes (some minutes); the second half is for the report. Early stopping with patience 5 and 10 says where a
curve ends.
"""

from __future__ import annotations

import hashlib
import itertools
import math
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
from vmselect.convergence import ConvergenceRun, Curve, StoppingRule, forecast
from vmselect.convergence.forecast import EpochsForecast, Standing, forecast_epochs, summarise
from vmselect.records.rule import Patience

SHARES = (0.25, 0.5, 0.75)
PATIENCES = (5, 10)
OWN = 100
FIRST, SECOND, MADE = "half chosen on", "other half", "made here, chosen on"


@dataclass(frozen=True)
class Case:
    """A part of a curve, what is foreseen from it, and the end that came."""

    group: str
    source: str
    share: float
    standing: Standing
    end: int
    found: EpochsForecast

    @property
    def plain(self) -> float:
        """The plainest guess: the epochs seen plus the patience."""
        return self.standing.seen + self.standing.patience


def read_curves(folder: Path) -> Iterator[tuple[str, str, list[float]]]:
    """Group, source and values of every curve, larger is better."""
    data = pd.read_csv(folder / "dawnbench_epochs_dev.csv")
    data = data[data["task"] == "CIFAR10"]
    for name, part in data.groupby("entry"):
        yield half_of(str(name)), "DAWNBench CIFAR-10", list(part.sort_values("epoch")["quality"])
    for model, curves in read_pollux(folder).items():
        for size, values in curves.items():
            yield half_of(f"{model}-{size}"), "Pollux", values


def half_of(name: str) -> str:
    """Which half a curve belongs to."""
    return (FIRST, SECOND)[int(hashlib.sha256(name.encode()).hexdigest(), 16) % 2]


def list_cases(curves: Iterator[tuple[str, str, list[float]]]) -> Iterator[Case]:
    """Every part of every curve that early stopping ends, where enough of it was seen to say anything."""
    for group, source, values in curves:
        for patience in PATIENCES:
            rule = StoppingRule(monitor="metric", mode="max", patience=patience)
            end = rule.stop_after(enumerate(values, 1))
            for share in SHARES if end else ():
                run = part_of(values, math.floor(share * (end or 0)), rule)
                found = forecast_epochs(run)
                if found.draws.size and end:
                    state = Patience()
                    for epoch, value in run.curve.points:
                        state = state.after(rule, epoch, value)
                    yield Case(group, source, share, Standing(run.epochs_run, 1.0, state.waited, patience), end, found)


def part_of(values: Sequence[float], count: int, rule: StoppingRule) -> ConvergenceRun:
    """The first ``count`` epochs of a run that is still going."""
    return ConvergenceRun(
        created=datetime.now(UTC), batch_size=1, rule=rule, epochs_run=max(count, 1), ended=False,
        curve=Curve.of(dict(enumerate(values[:count], 1))),
    )  # fmt: skip


def choose(cases: list[Case]) -> None:
    """Each set of constants by its grid: first for the value, then for the interval around it."""
    groups = [
        [case for case in cases if (case.group, case.share) == key] for key in itertools.product((FIRST, MADE), SHARES)
    ]
    plain = [np.mean([abs(case.plain / case.end - 1) for case in group]) for group in groups]
    best: list[tuple[tuple[float, ...], tuple[float, ...]]] = []
    for share in (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5):
        forecast.VALUE_DRAWS = share
        errors = [np.mean([abs(refresh(case)[1] / case.end - 1) for case in group]) for group in groups]
        ratios = np.array(errors) / np.array(plain)
        best.append(((float(ratios.max()), float(ratios.mean())), (share,)))
    print("value: worst and mean ratio of its error to that of seen + patience, over both sets and all shares")
    for score, chosen in sorted(best)[:5]:
        print(f"  VALUE_DRAWS {chosen[0]}: {score[0]:.3f}, {score[1]:.3f}")
    forecast.VALUE_DRAWS = sorted(best)[0][1][0]
    best = []
    grid = (0.0, 0.25, 0.5, 0.75), (0.6, 0.8, 0.9, 0.95), (1.0, 1.5, 2.0, 2.5, 3.0, 4.0), (0.0, 0.25, 0.5, 0.75, 1.0)
    for values in itertools.product(*grid):
        forecast.LOW_SHARE, forecast.HIGH_DRAWS, forecast.HIGH_TIMES, forecast.HIGH_FADES = values
        covered, width = [], []
        for group in groups:
            ends = [(refresh(case), case.end) for case in group]
            covered.append(np.mean([low <= end <= high for (low, _, high), end in ends]))
            width.append(np.mean([(min(high, 1e4) - low) / end for (low, _, high), end in ends]))
        best.append(((round(max(abs(share - 0.9) for share in covered), 3), float(np.mean(width))), values))
    print("interval: how far coverage is from 90 % in the worst set and share, and its mean width in shares of the end")
    for score, values in sorted(best)[:5]:
        print(f"  LOW_SHARE, HIGH_DRAWS, HIGH_TIMES, HIGH_FADES {values}: {score[0]:.3f}, {score[1]:.2f}")


def refresh(case: Case) -> tuple[float, float, float]:
    """Low end, value and high end with the constants as they stand."""
    return summarise(case.found.draws, case.standing, confidence=0.9)


def report(cases: list[Case]) -> None:
    """Errors and coverage by group, source and share seen."""
    numbers = "mean error | median | seen + patience | in interval | below | above | cannot tell"
    print(f"| curves | seen | parts | {numbers} |")
    print("|---|---|" + "---:|" * 8)
    for group in (MADE, FIRST, SECOND):
        sources = sorted({case.source for case in cases if case.group == group})
        for wanted in [sources, *([one] for one in sources)] if len(sources) > 1 else [sources]:
            for share in SHARES:
                some = [c for c in cases if (c.group, c.share) == (group, share) and c.source in wanted]
                errors = [abs(c.found.value / c.end - 1) for c in some]
                plain = np.mean([abs(c.plain / c.end - 1) for c in some])
                below = np.mean([c.end < c.found.low for c in some])
                above = np.mean([c.end > c.found.high for c in some])
                silent = np.mean([not c.found.can_tell for c in some])
                print(
                    f"| {' and '.join(wanted)}, {group} | {share:.0%} | {len(some)} | {np.mean(errors):.1%} | "
                    f"{np.median(errors):.1%} | {plain:.1%} | {1 - below - above:.0%} | {below:.0%} | {above:.0%} | "
                    f"{silent:.0%} |"
                )


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--choose"]):
        sys.exit("usage: forecasts.py FOLDER [--choose]")
    print(f"vmselect {vs.__version__}\n")
    own = ((MADE, "small trainings", values) for values in make_curves(OWN))
    everything = list(list_cases(itertools.chain(own, read_curves(Path(sys.argv[1])))))
    (choose if sys.argv[2:] else report)(everything)
