"""Recalibration by simulated teams: coverage, width and bias after 10 to 60 outcomes.

Each team has its own bias and noise, and a method whose intervals are too narrow or too wide by a factor. Forecasts and
outcomes are records, which the recalibration reads as it reads those of users. Run it with
``python -m tests.benchmarks.track_record``. The published numbers are of ``--seed 1``; trials used ``--seed 0``.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections.abc import Callable
from typing import NamedTuple

from tests.support.forecasts import make_pair
from vmselect.intervals import Interval
from vmselect.records import Forecast, OutcomeRecord
from vmselect.scoring.recalibration import Recalibration
from vmselect.scoring.score import normal_quantile

CONFIDENCE = 0.9
COUNTS = (5, 10, 20, 30, 60)
STARTS = (0.2, 0.4, 0.7, 0.85, 1.0, 1.2, 1.5, 2.5, 5.0)
"""Widths of the method's own intervals, relative to right ones."""
TESTED = 50
"""Trainings of each team on which a recalibration is tested."""
MACHINES = ("g4dn.xlarge", "g5.xlarge")


class Team(NamedTuple):
    """Bias (a logarithm) and noise (standard deviation of the logarithm) of the real times of a team."""

    bias: float
    noise: float


class Found(NamedTuple):
    """Result of one kind of team after a number of outcomes: means over all teams."""

    outcomes: int
    before: float
    coverage: float
    width: float
    bias: float


def draw_pair(
    team: Team, width: float, draw: Callable[[], float], basis: str = "measured"
) -> tuple[Forecast, OutcomeRecord]:
    """A forecast and its outcome. The half-width is ``width`` times the right one for the noise of the team."""
    half = width * normal_quantile(CONFIDENCE) * team.noise
    return make_pair(team.bias + team.noise * draw(), width=half, instance_type=MACHINES[0], basis=basis)


def simulate(
    teams: list[Team], width: float, counts: tuple[int, ...], *, seed: int, tails: bool = False
) -> list[Found]:
    """Coverage and relative width before and after recalibration, and the remaining share of the bias."""
    results: dict[int, list[tuple[float, float, float, float]]] = {count: [] for count in counts}
    for number, team in enumerate(teams):
        generator = random.Random(f"{seed} {number} {width}")

        def draw(generator: random.Random = generator) -> float:
            if not tails:
                return generator.gauss(0.0, 1.0)
            # Student's t with 4 degrees of freedom.
            return generator.gauss(0.0, 1.0) / math.sqrt(generator.gammavariate(2.0, 0.5))

        pairs = [draw_pair(team, width, draw) for _ in range(max(counts))]
        tests = [draw_pair(team, width, draw) for _ in range(TESTED)]
        for count in counts:
            records = [record for pair in pairs[:count] for record in pair]
            learned = Recalibration.of(records, method="robust", confidence=CONFIDENCE)
            adjustment = learned.adjust("measured", MACHINES[0])
            before = after = 0
            for forecast, outcome in tests:
                own, real = forecast.seconds.interval, outcome.run_seconds[0]
                before += bool(own.contains(real))
                after += bool(adjustment.apply(own).contains(real))
            changed = adjustment.apply(Interval(1.0, 0.9, 1.1))
            relative = (changed.high - changed.low) / 0.2 / adjustment.ratio
            left = abs(team.bias - math.log(adjustment.ratio)) / abs(team.bias) if team.bias else 0.0
            results[count].append((before / TESTED, after / TESTED, relative, left))
    found = []
    for count, rows in results.items():
        before, after, _, _ = (statistics.fmean(column) for column in zip(*rows, strict=True))
        width_now, left = (statistics.median(column) for column in list(zip(*rows, strict=True))[2:])
        found.append(Found(count, before, after, width_now, left))
    return found


def make_teams(count: int, *, seed: int, bias: float | None = None, spread: float = 0.15) -> list[Team]:
    """Teams with noise of 2 to 15 %, and the given bias, or random ones with the standard deviation ``spread``."""
    generator = random.Random(seed)
    return [
        Team(bias if bias is not None else generator.gauss(0.0, spread), math.exp(generator.uniform(-3.9, -1.9)))
        for _ in range(count)
    ]


def main(arguments: list[str] | None = None) -> int:
    """Print the tables and whether the criteria are met; exit code 1 if one is not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teams", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    failed: list[str] = []
    print(f"{given.teams} teams, seed {given.seed}, intervals at {CONFIDENCE:.0%}\n")
    print("| own bias | noise | own width / right width | outcomes | coverage before | after | width after / before |")
    print("|---|---|---|---|---|---|---|")
    kinds = [("random", False, None), ("none", False, 0.0), ("random", True, None)]
    for name, tails, bias in kinds:
        teams = make_teams(given.teams, seed=given.seed, bias=bias)
        for start in STARTS:
            for one in simulate(teams, start, COUNTS, seed=given.seed, tails=tails):
                noise = "t4" if tails else "normal"
                print(
                    f"| {name} | {noise} | {start:g} | {one.outcomes} | {one.before:.1%} | {one.coverage:.1%} "
                    f"| {one.width:.2f} |",
                    flush=True,
                )
                if one.outcomes >= 30 and not 0.86 <= one.coverage <= 0.94:
                    failed.append(f"{name}, {noise}, {start:g}, {one.outcomes}: coverage {one.coverage:.1%}")
                if bias == 0 and start == 1 and not tails and one.width > 1 + 1e-9:
                    failed.append(f"{one.outcomes} outcomes: intervals that were right grew to {one.width:.3f}")
    print("\n| bias | outcomes | median share of the bias that remains |")
    print("|---|---|---|")
    for bias in (math.log(1.15), -math.log(1.15)):
        teams = make_teams(given.teams, seed=given.seed, bias=bias)
        for one in simulate(teams, 1.0, COUNTS, seed=given.seed):
            print(f"| {math.exp(bias) - 1:+.0%} | {one.outcomes} | {one.bias:.0%} |", flush=True)
            if one.outcomes >= 20 and one.bias > 0.5:
                failed.append(f"{one.outcomes} outcomes: {one.bias:.0%} of the bias remains")
    print("\n" + ("All criteria are met." if not failed else "Not met:\n" + "\n".join(failed)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
