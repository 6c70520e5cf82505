"""False alarms, power and coverage of comparisons, by simulation.

    python tests/benchmarks/comparison.py [--draws 2000] [--part runs|power|steps|intervals|shifts]

Equal groups must look different in no more than 5 % of draws: groups of runs, and single runs whose steps resemble
their neighbours, where a test that takes steps for independent goes wrong. Then: how often real differences are found,
how often intervals hold the truth, how often a level shift is found, and is found where there is none.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import stats

from vmselect.comparison.significance import (
    MIN_BLOCKS,
    block_length,
    block_means,
    compare_groups,
    compare_pairs,
    find_shifts,
    ratio_of_means,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from comparisons import autoregressive

ALPHA = 0.05
Draw = Callable[[np.random.Generator, int], np.ndarray]
SHAPES: dict[str, Draw] = {
    "normal": lambda rng, n: 1 + 0.03 * rng.standard_normal(n),
    "skewed": lambda rng, n: np.exp(0.3 * rng.standard_normal(n)),
    "few values": lambda rng, n: np.round(1 + 0.03 * rng.standard_normal(n), 2),
}


def groups_of_runs(
    rng: np.random.Generator, draw: Draw, *, groups: int, runs: int, draws: int, factor: float = 1.0
) -> tuple[float, float, float]:
    """How often a difference is called: by us, by scipy's approximation alone, and for any pair."""
    ours = approximate = pairs = 0
    for _ in range(draws):
        values = {str(g): list(draw(rng, runs) * (factor if g == 0 else 1.0)) for g in range(groups)}
        test = compare_groups(values, unit="runs", alpha=ALPHA)
        approximate += stats.kruskal(*values.values()).pvalue < ALPHA
        ours += test.significant
        found = compare_pairs(values, unit="runs", alpha=ALPHA)
        pairs += any(pair.p_adjusted is not None and pair.p_adjusted < ALPHA for pair in found)
    return ours / draws, approximate / draws, pairs / draws


def single_runs(
    rng: np.random.Generator, *, steps: int, coefficient: float, draws: int, factor: float = 1.0
) -> tuple[float, float, float]:
    """How often two runs are called different: by blocks, by steps taken for independent; how often blocks said no."""
    ours = naive = silent = 0
    for _ in range(draws):
        one = factor * autoregressive(rng, count=steps, coefficient=coefficient)
        other = autoregressive(rng, count=steps, coefficient=coefficient)
        naive += stats.kruskal(one, other).pvalue < ALPHA
        length = block_length([list(one), list(other)])
        values = {"one": block_means(list(one), length=length), "other": block_means(list(other), length=length)}
        if min(map(len, values.values())) < MIN_BLOCKS:
            silent += 1
            continue
        ours += compare_groups(values, unit="blocks", alpha=ALPHA).significant
    return ours / draws, naive / draws, silent / draws


def coverage(rng: np.random.Generator, draw: Draw, *, runs: int, draws: int, factor: float = 1.1) -> float:
    """How often the interval of a ratio holds the true one."""
    hits = 0
    for _ in range(draws):
        ratio = ratio_of_means(list(factor * draw(rng, runs)), list(draw(rng, runs)), resamples=1_999)
        hits += ratio.low is not None and ratio.high is not None and ratio.low <= factor <= ratio.high
    return hits / draws


def shifts(rng: np.random.Generator, *, readings: int, coefficient: float, draws: int) -> tuple[float, float]:
    """How often a shift is found where there is none, and where there is one of twice the spread after 60 %."""
    alarms = found = 0
    for _ in range(draws):
        series = autoregressive(rng, count=readings, coefficient=coefficient)
        alarms += bool(find_shifts(series))
        series[int(0.6 * readings) :] += 0.2
        found += bool(find_shifts(series))
    return alarms / draws, found / draws


def main() -> None:
    """Print every table, or those of one part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2_000)
    parser.add_argument("--part", choices=list(PARTS))
    given = parser.parse_args()
    for name in [given.part] if given.part else PARTS:
        PARTS[name](np.random.default_rng(20261116), given.draws)


def print_runs(rng: np.random.Generator, draws: int) -> None:
    """False alarms of groups of runs. Few values are mostly ties, whose arrangements take half an hour to count."""
    print(f"Equal groups of runs, {draws} draws: share called different at 5 %")
    for shape, draw in SHAPES.items():
        for groups, runs in ((2, 4), (2, 5), (2, 10), (3, 3), (3, 5), (4, 8)):
            ours, approximate, pairs = groups_of_runs(rng, draw, groups=groups, runs=runs, draws=draws)
            print(
                f"  {shape}, {groups} groups of {runs}: {ours:.3f} (chi-square alone {approximate:.3f}, "
                f"any pair {pairs:.3f})"
            )


def print_power(rng: np.random.Generator, draws: int) -> None:
    """How often groups of runs that differ are told apart."""
    print(f"Groups of runs that differ by 5 % with a spread of 3 %, {draws} draws: share found")
    for groups, runs in ((2, 4), (2, 5), (2, 10), (3, 5), (3, 10)):
        ours, _, _ = groups_of_runs(rng, SHAPES["normal"], groups=groups, runs=runs, draws=draws, factor=1.05)
        print(f"  {groups} groups of {runs}: {ours:.3f}")


def print_steps(rng: np.random.Generator, draws: int) -> None:
    """False alarms and power of single runs."""
    print(
        f"Two equal single runs, {draws} draws: share called different by blocks, by steps, and without a test; "
        "then by blocks among those that were tested"
    )
    for steps in (100, 400, 1_000):
        for coefficient in (0.0, 0.5, 0.8, 0.95):
            ours, naive, silent = single_runs(rng, steps=steps, coefficient=coefficient, draws=draws)
            tested = f"{ours / (1 - silent):.3f} of {round(draws * (1 - silent))}" if silent < 1 else "none tested"
            print(f"  {steps} steps, correlation {coefficient}: {ours:.3f}, {naive:.3f}, {silent:.3f}; {tested}")
    print(f"Two single runs that differ by 5 % with a spread of 10 %, {draws} draws: share found by blocks")
    for steps, coefficient in ((400, 0.0), (400, 0.5), (1_000, 0.5), (1_000, 0.8)):
        ours, _, silent = single_runs(rng, steps=steps, coefficient=coefficient, draws=draws, factor=1.05)
        print(f"  {steps} steps, correlation {coefficient}: {ours:.3f} ({silent:.3f} without a test)")


def print_intervals(rng: np.random.Generator, draws: int) -> None:
    """Coverage."""
    print(f"Intervals of a ratio at 95 %, {draws} draws: share that holds the truth")
    for shape in ("normal", "skewed"):
        shares = [
            f"{runs} runs {coverage(rng, SHAPES[shape], runs=runs, draws=draws):.3f}" for runs in (3, 4, 5, 8, 20)
        ]
        print(f"  {shape}: {', '.join(shares)}")


def print_shifts(rng: np.random.Generator, draws: int) -> None:
    """Level shifts."""
    print(f"Level shifts, {draws} draws: share found where there is none, and where there is one of twice the spread")
    for readings in (40, 116, 400):
        for coefficient in (0.0, 0.5, 0.8):
            alarms, found = shifts(rng, readings=readings, coefficient=coefficient, draws=draws)
            print(f"  {readings} readings, correlation {coefficient}: {alarms:.3f}, {found:.3f}")


PARTS = {
    "runs": print_runs,
    "power": print_power,
    "steps": print_steps,
    "intervals": print_intervals,
    "shifts": print_shifts,
}

if __name__ == "__main__":
    main()
