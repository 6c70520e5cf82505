"""Recalibration: coverage, width and error after 5 to 60 outcomes, by simulated teams and on published times.

    python -m tests.benchmarks.track_record                       # simulated teams, some minutes
    python -m tests.benchmarks.track_record --published FOLDER    # step times of other people, about a minute

Each simulated team has its own bias and noise, and a method whose intervals are too narrow or too wide by a factor.
Forecasts and outcomes are records, which the recalibration reads as it reads those of users. The documented numbers are
of ``--seed 1``; trials used ``--seed 0``.

With ``--published``, each CSV of FOLDER (see prediction.py; not part of vmselect) is a team that predicts GPUs it has
not probed, for some of its models. It learns from the outcomes of half of the models and is tested on the others.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.prediction import predictions, read_source
from tests.support.forecasts import make_forecast, make_pair
from vmselect.intervals import Interval
from vmselect.records import Forecast, OutcomeRecord
from vmselect.records.forecast import Bounds
from vmselect.scoring.recalibration import Recalibration
from vmselect.scoring.score import normal_quantile

CONFIDENCE = 0.9
COUNTS = (5, 10, 20, 30, 60)
STARTS = (0.2, 0.4, 0.7, 0.85, 1.0, 1.2, 1.5, 2.5, 5.0)
"""Widths of the method's own intervals, relative to right ones."""
TESTED = 50
"""Trainings of each team on which a recalibration is tested."""
MACHINES = ("g4dn.xlarge", "g5.xlarge")
SPLITS = 10
"""Random splits of the models of a published source into those to learn from and those to test on."""
Pair = tuple[Forecast, OutcomeRecord]


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


def draw_pair(team: Team, width: float, draw: Callable[[], float], basis: str = "measured") -> Pair:
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


def predict_published(path: Path) -> dict[str, list[Pair]]:
    """Forecasts for GPUs that were not probed, with their outcomes, by model; from one probe and three other models."""
    source, _ = read_source(path)
    pairs: dict[str, list[Pair]] = {}
    for model, _, gpu, real, mean, low, high in predictions(source, probes=1, models=3, most=3):
        bounds = (100 * math.exp(side - mean) for side in (mean, low, high))
        seconds = Bounds(**dict(zip(("value", "low", "high"), bounds, strict=True)))
        forecast = make_forecast(gpu, basis="predicted").model_copy(update={"seconds": seconds})
        pairs.setdefault(model, []).append((forecast, forecast.outcome(seconds=100 * math.exp(real - mean))))
    return pairs


def try_on_others(learned: Recalibration, tests: Sequence[Pair]) -> tuple[float, ...]:
    """Coverage, mean absolute error and median relative width, each before and after the recalibration."""
    columns: list[tuple[float, ...]] = []
    for forecast, outcome in tests:
        own, real = forecast.seconds.interval, outcome.run_seconds[0]
        new = learned.adjust("predicted", forecast.instance_type).apply(own)
        both = (own, new)
        inside = (float(side.contains(real)) for side in both)
        errors = (abs(side.value / real - 1) for side in both)
        columns.append((*inside, *errors, *((side.high - side.low) / side.value for side in both)))
    *means, before, after = zip(*columns, strict=True)
    return (*map(statistics.fmean, means), statistics.median(before), statistics.median(after))


def print_published(folder: Path) -> None:
    """Print the means over all sources of what a recalibration by a number of outcomes changes."""
    rows: dict[int, list[list[float]]] = {count: [] for count in COUNTS}
    for path in sorted(folder.glob("*.csv")):
        pairs = predict_published(path)
        splits: dict[int, list[tuple[float, ...]]] = {count: [] for count in COUNTS}
        for split in range(SPLITS if len(pairs) > 3 else 0):
            generator = random.Random(f"{path.stem} {split}")
            models = sorted(pairs)
            generator.shuffle(models)
            half = len(models) // 2
            history, tests = (
                [pair for model in part for pair in pairs[model]] for part in (models[:half], models[half:])
            )
            generator.shuffle(history)
            for count in COUNTS:
                if len(history) >= count:
                    records = [record for pair in history[:count] for record in pair]
                    learned = Recalibration.of(records, method="robust", confidence=CONFIDENCE)
                    splits[count].append(try_on_others(learned, tests))
        for count, results in splits.items():
            rows[count] += [[statistics.fmean(column) for column in zip(*results, strict=True)]] if results else []
    print("| outcomes | sources | coverage before, after | mean error before, after | median width before, after |")
    print("|---|---|---|---|---|")
    for count, sources in rows.items():
        if sources:
            inside, inside_now, error, error_now, width, width_now = (
                statistics.fmean(column) for column in zip(*sources, strict=True)
            )
            print(
                f"| {count} | {len(sources)} | {inside:.1%}, {inside_now:.1%} | {error:.1%}, {error_now:.1%} "
                f"| {width:.2f}, {width_now:.2f} |"
            )


def main(arguments: list[str] | None = None) -> int:
    """Print the tables and whether the criteria are met; exit code 1 if one is not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teams", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--published", type=Path)
    options = parser.parse_args(arguments)
    if options.published is not None:
        print_published(options.published)
        return 0
    failed: list[str] = []
    print(f"{options.teams} teams, seed {options.seed}, intervals at {CONFIDENCE:.0%}\n")
    print("| own bias | noise | own width / right width | outcomes | coverage before | after | width after / before |")
    print("|---|---|---|---|---|---|---|")
    kinds = [("random", False, None), ("none", False, 0.0), ("random", True, None)]
    for name, tails, bias in kinds:
        teams = make_teams(options.teams, seed=options.seed, bias=bias)
        for start in STARTS:
            for one in simulate(teams, start, COUNTS, seed=options.seed, tails=tails):
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
        teams = make_teams(options.teams, seed=options.seed, bias=bias)
        for one in simulate(teams, 1.0, COUNTS, seed=options.seed):
            print(f"| {math.exp(bias) - 1:+.0%} | {one.outcomes} | {one.bias:.0%} |", flush=True)
            if one.outcomes >= 20 and one.bias > 0.5:
                failed.append(f"{one.outcomes} outcomes: {one.bias:.0%} of the bias remains")
    print("\n" + ("All criteria are met." if not failed else "Not met:\n" + "\n".join(failed)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
