"""What does one slow step mean that is the only one of its kind? Rules compared: ``tests/benchmarks/outliers.py``.

A probe of 20 or 40 steps sees exactly one reading that is two to five ordinary steps too long, for no known cause. In
made-up trainings of 2,000 steps (2 % noise) such steps come at random, at a rate drawn between 1 in 1,000 and 1 in 10
(evenly in its logarithm), or there is just this one. Each rule says how long a step is on average.

    python tests/benchmarks/outliers.py --cache .accuracy-cache     # and real trainings that accuracy.py kept

There, every forty steps in a row that show one such reading are a probe, and all other steps of the run the truth.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from vmselect.estimation.readings import collect, locate
from vmselect.records import Profile, step_times
from vmselect.records.step_times import STALL_STEPS, UNCERTAIN_STEPS

SHARES = {"once": 0.0, "a quarter recurs": 0.25, "half recurs": 0.5, "three quarters recur": 0.75, "all recurs": 1.0}
STEPS, NOISE, TRAININGS = 2_000, 0.02, 600
RATES = 0.001, 0.1
Probe = tuple[list[float], float]


def make_probes(rng: random.Random, readings: int, *, recurs: bool) -> Iterator[Probe]:
    """What a probe saw of a training, one slow step among it, and the mean step of the whole."""
    made = 0
    while made < TRAININGS:
        steps = [rng.gauss(1.0, NOISE) for _ in range(STEPS)]
        excess = rng.uniform(UNCERTAIN_STEPS, STALL_STEPS) + 0.1
        if recurs:
            rate = RATES[0] * (RATES[1] / RATES[0]) ** rng.random()
            slow = [place for place in range(STEPS) if rng.random() < rate]
        else:
            slow = [rng.randrange(readings)]
        for place in slow:
            steps[place] += min(excess, STALL_STEPS - 0.1)
        if sum(place < readings for place in slow) == 1:
            made += 1
            yield steps[:readings], statistics.fmean(steps)


def read_probes(cache: Path, readings: int) -> Iterator[Probe]:
    """Every window of a watched training that shows one such reading, and the mean of all its other steps."""
    for path in sorted([*cache.glob("in-run-*.json"), *cache.glob("cross-run-*-[0-9].json")]):
        for row in json.loads(path.read_text(encoding="utf-8")):
            steps = [
                seconds / covers for seconds, covers in collect([Profile.model_validate_json(json.dumps(row))]).steady
            ]
            for start in range(0, len(steps) - 3 * readings, readings):
                seen, rest = steps[start : start + readings], steps[:start] + steps[start + readings :]
                typical = statistics.median(seen)
                long = [value / typical - 1 for value in seen if value > (1 + UNCERTAIN_STEPS) * typical]
                if len(long) == 1 and long[0] <= STALL_STEPS:
                    yield seen, statistics.fmean(rest)


def score(name: str, probes: list[Probe]) -> None:
    """A line of mean errors, and of how many intervals held the truth, for every rule."""
    cells = []
    for share in SHARES.values():
        step_times.UNCERTAIN_SHARE = share
        found = [(locate(seen), truth) for seen, truth in probes]
        error = statistics.fmean(abs(level.value / truth - 1) for level, truth in found)
        bias = statistics.fmean(level.value / truth - 1 for level, truth in found)
        held = statistics.fmean(
            -level.half_width_below <= truth - level.value <= level.half_width_above for level, truth in found
        )
        cells.append(f"{error:.1%} ({bias:+.1%}), {held:.0%}")
    print(f"| {name} | {len(probes)} | " + " | ".join(cells) + " |")


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path)
    options = parser.parse_args()
    print("| one slow reading among | probes | " + " | ".join(SHARES) + " |")
    print("|---|---:|" + "---:|" * len(SHARES))
    for readings in (20, 40):
        for recurs in (True, False):
            name = f"{readings}, {'at random' if recurs else 'just this one'}"
            score(name, list(make_probes(random.Random(readings), readings, recurs=recurs)))
    if options.cache:
        score("40, real trainings", list(read_probes(options.cache, 40)))
    print("Mean error of the mean step (bias), and how many 90 % intervals of it hold the truth.")


if __name__ == "__main__":
    main()
