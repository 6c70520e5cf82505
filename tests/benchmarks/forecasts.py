"""How well the end of a training is forecast from its first part, on other people's learning curves and on our own.

    python tests/benchmarks/forecasts.py FOLDER             # the table that the documentation quotes
    python tests/benchmarks/forecasts.py FOLDER --choose    # how the constant of the interval was chosen

FOLDER holds dawnbench_epochs_dev.csv and pollux_convergence.csv, which are not part of vmselect. A hash of its name
puts each of their curves into one of two halves. The constant is chosen on the first half and on the curves that
curves.py makes from one seed (some minutes). The second half, DAWNBench's SQuAD entries and the curves of another seed
are only reported. Early stopping with patience 5 and 10 defines where a curve ends.
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
from vmselect.records.convergence import HIGH_PATIENCES, ConvergenceRun, Curve, EpochsForecast, StoppingRule

SHARES = (0.25, 0.5, 0.75)
PATIENCES = (5, 10)
OWN = 100
FIRST, SECOND, SQUAD = "half chosen on", "other half", "nothing chosen on"
MADE, MADE_ANEW = "chosen on", "another seed"


@dataclass(frozen=True)
class Case:
    """The first part of a curve, its forecast, and the epoch at which the training ended."""

    group: str
    source: str
    share: float
    patience: int
    end: int
    found: EpochsForecast


def read_curves(folder: Path) -> Iterator[tuple[str, str, list[float]]]:
    """Group, source and values of every curve, larger is better."""
    data = pd.read_csv(folder / "dawnbench_epochs_dev.csv")
    for (task, name), part in data.groupby(["task", "entry"]):
        group, source = (half_of(str(name)), "DAWNBench CIFAR-10") if task == "CIFAR10" else (SQUAD, "DAWNBench SQuAD")
        yield group, source, list(part.sort_values("epoch")["quality"])
    for model, curves in read_pollux(folder).items():
        for size, values in curves.items():
            yield half_of(f"{model}-{size}"), "Pollux", values


def half_of(name: str) -> str:
    """Which half a curve belongs to."""
    return (FIRST, SECOND)[int(hashlib.sha256(name.encode()).hexdigest(), 16) % 2]


def list_cases(curves: Iterator[tuple[str, str, list[float]]]) -> Iterator[Case]:
    """Every part of every curve that early stopping ends, where it is long enough for a forecast."""
    for group, source, values in curves:
        for patience in PATIENCES:
            rule = StoppingRule(monitor="metric", mode="max", patience=patience)
            end = rule.stop_after(enumerate(values, 1))
            for share in SHARES if end else ():
                found = part_of(values, math.floor(share * (end or 0)), rule).forecast()
                if math.isfinite(found.value) and end:
                    yield Case(group, source, share, patience, end, found)


def part_of(values: Sequence[float], count: int, rule: StoppingRule) -> ConvergenceRun:
    """The first ``count`` epochs of a run that is still going."""
    return ConvergenceRun(
        created=datetime.now(UTC), batch_size=1, rule=rule, epochs_run=max(count, 1), ended=False,
        curve=Curve.of(dict(enumerate(values[:count], 1))),
    )  # fmt: skip


def choose(cases: list[Case]) -> None:
    """How far coverage is from 90 % in the worst set and share, by the number of patiences."""
    for times in np.arange(3.0, 6.25, 0.25):
        held = []
        for key in itertools.product((FIRST, MADE), SHARES):
            some = [case for case in cases if (case.group, case.share) == key]
            held.append(np.mean([c.end <= c.found.value + (times - 1) * c.patience for c in some]))
        worst = max(abs(share - 0.9) for share in held)
        print(f"HIGH_PATIENCES {times}: {worst:.3f} ({', '.join(f'{share:.0%}' for share in held)})")


def report(cases: list[Case]) -> None:
    """Errors and coverage by group, source and share seen."""
    print("| curves | seen | parts | mean error | median | in interval | below | above | cannot tell |")
    print("|---|---|" + "---:|" * 7)
    for group in (MADE, FIRST, SECOND, MADE_ANEW, SQUAD):
        sources = sorted({case.source for case in cases if case.group == group})
        for share in SHARES:
            some = [case for case in cases if (case.group, case.share) == (group, share)]
            if not some:
                continue
            errors = [abs(case.found.value / case.end - 1) for case in some]
            below = np.mean([case.end < case.found.low for case in some])
            above = np.mean([case.end > case.found.high for case in some])
            unsure = np.mean([not case.found.is_usable for case in some])
            print(
                f"| {' and '.join(sources)}, {group} | {share:.0%} | {len(some)} | {np.mean(errors):.1%} | "
                f"{np.median(errors):.1%} | {1 - below - above:.0%} | {below:.0%} | {above:.0%} | {unsure:.0%} |"
            )


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--choose"]):
        sys.exit("usage: forecasts.py FOLDER [--choose]")
    print(f"vmselect {vs.__version__}, HIGH_PATIENCES {HIGH_PATIENCES}\n")
    seeds = {MADE: 0} if sys.argv[2:] else {MADE: 0, MADE_ANEW: 1}
    own = ((group, "small trainings", values) for group, s in seeds.items() for values in make_curves(OWN, seed=s))
    everything = list(list_cases(itertools.chain(own, read_curves(Path(sys.argv[1])))))
    (choose if sys.argv[2:] else report)(everything)
