"""How well the end of a training is foreseen from its first part, on other people's learning curves and on our own.

    python tests/benchmarks/forecasts.py FOLDER             # the tables that the documentation quotes
    python tests/benchmarks/forecasts.py FOLDER --choose    # how the constants of the forecast were chosen

FOLDER holds dawnbench_epochs_dev.csv and pollux_convergence.csv, which are not part of vmselect. A hash of its name
puts each of their curves into one of two halves. Constants are chosen on the first half and on the curves that
curves.py makes from one seed (some minutes). For the report are the second half, DAWNBench's SQuAD entries and the
curves of another seed. Early stopping with patience 5 and 10 says where a curve ends.
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
from vmselect.convergence.forecast import EpochsForecast, Floats, Standing, forecast_epochs, summarise
from vmselect.records.rule import Patience

SHARES = (0.25, 0.5, 0.75)
PATIENCES = (5, 10)
OWN = 100
FIRST, SECOND, SQUAD = "half chosen on", "other half", "nothing chosen on"
MADE, MADE_ANEW = "chosen on", "another seed"
RESAMPLES = 2000


@dataclass(frozen=True)
class Case:
    """A part of a curve, what is foreseen from it, and the end that came."""

    group: str
    source: str
    curve: int
    share: float
    standing: Standing
    end: int
    found: EpochsForecast

    @property
    def plain(self) -> float:
        """The plainest guess: the epochs seen plus the patience."""
        return self.standing.seen + self.standing.patience

    def error(self, value: float) -> float:
        """How far off ``value`` is, as a share of the end."""
        return abs(value / self.end - 1)


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
    """Every part of every curve that early stopping ends, where enough of it was seen to say anything."""
    for curve, (group, source, values) in enumerate(curves):
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
                    standing = Standing(run.epochs_run, 1.0, state.waited, patience)
                    yield Case(group, source, curve, share, standing, end, found)


def part_of(values: Sequence[float], count: int, rule: StoppingRule) -> ConvergenceRun:
    """The first ``count`` epochs of a run that is still going."""
    return ConvergenceRun(
        created=datetime.now(UTC), batch_size=1, rule=rule, epochs_run=max(count, 1), ended=False,
        curve=Curve.of(dict(enumerate(values[:count], 1))),
    )  # fmt: skip


def choose(cases: list[Case]) -> None:
    """First the value, then the interval around it, each by its grid."""
    groups = [
        [case for case in cases if (case.group, case.share) == key] for key in itertools.product((FIRST, MADE), SHARES)
    ]
    plain = [np.mean([case.error(case.plain) for case in group]) for group in groups]
    best: list[tuple[tuple[float, ...], tuple[float, ...]]] = []
    for values in itertools.product((0.05, 0.075, 0.1, 0.125, 0.15, 0.2), (0.0, 0.5, 1.0)):
        forecast.VALUE_DRAWS, forecast.WAITED = values
        more = [resample(group, [refresh(case)[1] for case in group]) for group in groups]
        ratios = 1 + np.array([some.mean() for some in more]) / np.array(plain)
        best.append(((max(float(np.mean(some > 0)) for some in more), float(ratios.max()), ratios.mean()), values))
    print("value: share of resampled curves on which its error is above that of seen + patience, and the ratio of the")
    print("two errors, both in the worst of the two sets and three shares; the mean ratio")
    for score, values in sorted(best)[:5]:
        print(f"  VALUE_DRAWS, WAITED {values}: {score[0]:.0%}, {score[1]:.3f}, {score[2]:.3f}")
    forecast.VALUE_DRAWS, forecast.WAITED = sorted(best)[0][1]
    best = []
    for times in np.arange(7.0, 14.5, 0.5):
        forecast.HIGH_TIMES = float(times)
        covered, width = [], []
        for group in groups:
            ends = [(refresh(case), case.end) for case in group]
            covered.append(np.mean([low <= end <= high for (low, _, high), end in ends]))
            width.append(np.mean([(high - low) / end for (low, _, high), end in ends if math.isfinite(high)]))
        best.append(((round(max(abs(share - 0.9) for share in covered), 3), float(np.mean(width))), (float(times),)))
    print("interval: how far coverage is from 90 % in the worst set and share, and its mean width in shares of the end")
    for score, values in sorted(best)[:5]:
        print(f"  HIGH_TIMES {values[0]}: {score[0]:.3f}, {score[1]:.2f}")


def resample(cases: Sequence[Case], values: Sequence[float]) -> Floats:
    """Mean error of ``values`` less that of the plain guess, over many sets of curves drawn with replacement."""
    sums: dict[int, Floats] = {}
    for case, value in zip(cases, values, strict=True):
        more = case.error(value) - case.error(case.plain)
        sums[case.curve] = sums.get(case.curve, np.zeros(2)) + np.array([more, 1.0])
    random = np.random.default_rng(0)
    drawn = random.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=RESAMPLES)
    totals = drawn @ np.array([*sums.values()])
    return np.asarray(totals[:, 0] / totals[:, 1])


def refresh(case: Case) -> tuple[float, float, float]:
    """Low end, value and high end with the constants as they stand."""
    low, value, high = summarise(case.found.draws, case.standing, confidence=0.9)
    return low, value, math.inf if math.isinf(case.found.high) else high  # a curve that has not bent yet has no end


def report(cases: list[Case]) -> None:
    """Errors and coverage by group, source and share seen."""
    numbers = "mean error | median | seen + patience | difference | in interval | below | above | cannot tell"
    print(f"| curves | seen | parts | {numbers} |")
    print("|---|---|" + "---:|" * 9)
    for group in (MADE, FIRST, SECOND, MADE_ANEW, SQUAD):
        sources = sorted({case.source for case in cases if case.group == group})
        for wanted in [sources, *([one] for one in sources)] if len(sources) > 1 else [sources]:
            for share in SHARES:
                some = [c for c in cases if (c.group, c.share) == (group, share) and c.source in wanted]
                if not some:
                    continue
                errors = [c.error(c.found.value) for c in some]
                plain = np.mean([c.error(c.plain) for c in some])
                least, most = np.quantile(resample(some, [c.found.value for c in some]), [0.05, 0.95])
                below = np.mean([c.end < c.found.low for c in some])
                above = np.mean([c.end > c.found.high for c in some])
                silent = np.mean([not c.found.can_tell for c in some])
                more = f"{100 * (np.mean(errors) - plain):+.1f} ({100 * least:+.1f} to {100 * most:+.1f})"
                print(
                    f"| {' and '.join(wanted)}, {group} | {share:.0%} | {len(some)} | {np.mean(errors):.1%} | "
                    f"{np.median(errors):.1%} | {plain:.1%} | {more} | {1 - below - above:.0%} | {below:.0%} | "
                    f"{above:.0%} | {silent:.0%} |"
                )


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--choose"]):
        sys.exit("usage: forecasts.py FOLDER [--choose]")
    print(f"vmselect {vs.__version__}\n")
    seeds = {MADE: 0} if sys.argv[2:] else {MADE: 0, MADE_ANEW: 1}
    own = ((group, "small trainings", values) for group, s in seeds.items() for values in make_curves(OWN, seed=s))
    everything = list(list_cases(itertools.chain(own, read_curves(Path(sys.argv[1])))))
    (choose if sys.argv[2:] else report)(everything)
