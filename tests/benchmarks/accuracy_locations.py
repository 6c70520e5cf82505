"""Which mean? Estimators of the steady step compared, on made-up patterns and on the trainings that accuracy.py kept.

    python tests/benchmarks/accuracy_locations.py --cache .accuracy-cache

Each sees what a probe sees, two times twenty steps, and is compared with the mean step of the whole training.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from accuracy_patterns import PROBE_STEPS
from accuracy_scores import cut

from vmselect.estimation.readings import collect, locate
from vmselect.records import Profile
from vmselect.records.step_times import detect_warmup

Readings = Sequence[float]


def trimmed(values: Readings, share: float = 0.1) -> float:
    """Mean without the lowest and the highest tenth."""
    ordered = sorted(values)
    off = int(share * len(ordered))
    return statistics.fmean(ordered[off : len(ordered) - off])


def huber(values: Readings, width: float = 1.345) -> float:
    """Mean with readings pulled in to ``width`` spreads around it."""
    centre = statistics.median(values)
    spread = 1.4826 * statistics.median(abs(value - centre) for value in values) or 1e-12
    for _ in range(50):
        pulled = [min(max(value, centre - width * spread), centre + width * spread) for value in values]
        centre = statistics.fmean(pulled)
    return centre


def median_of_means(values: Readings, groups: int = 8) -> float:
    """Median over the means of neighbouring readings."""
    size = max(1, len(values) // groups)
    return statistics.median(statistics.fmean(values[i : i + size]) for i in range(0, len(values), size))


def epoch_effects(values: Readings) -> float:
    """The mean of the two epochs' medians: each epoch has a level of its own."""
    half = len(values) // 2
    return statistics.fmean([statistics.median(values[:half]), statistics.median(values[half:])])


LOCATIONS: dict[str, Callable[[Readings], float]] = {
    "second reading": lambda values: values[0],
    "mean of 2-10": lambda values: statistics.fmean(values[:9]),
    "mean": statistics.fmean,
    "median": statistics.median,
    "trimmed mean, 10 %": trimmed,
    "Huber": huber,
    "median of 8 means": median_of_means,
    "epoch effects": epoch_effects,
    "mean without a lone stall": lambda values: locate(values).value,
    "the same, warm-up found": lambda values: locate(values[detect_warmup(values[: len(values) // 2]) :]).value,
}


def quiet(rng: random.Random, place: int) -> float:
    return rng.gauss(1.0, 0.02)


def outliers(rng: random.Random, place: int) -> float:
    return rng.gauss(1.0, 0.02) * (3 if rng.random() < 0.05 else 1)


def skewed(rng: random.Random, place: int) -> float:
    return 0.8 + rng.expovariate(5.0)


def stall(rng: random.Random, place: int) -> float:
    return rng.gauss(1.0, 0.02) + (10 if place == 13 else 0)


def ramp(rng: random.Random, place: int) -> float:
    return rng.gauss(1.0, 0.02) + max(0.0, 4.0 - place)


PATTERNS = {"quiet": quiet, "3x in 5 %": outliers, "skewed": skewed, "one stall": stall, "warm-up ramp": ramp}
SEEDS = 400
STEPS = 2_000


def on_patterns() -> dict[str, dict[str, list[float]]]:
    """Relative errors of the mean step of a training, by pattern and estimator."""
    errors: dict[str, dict[str, list[float]]] = {}
    for pattern, draw in PATTERNS.items():
        for seed in range(SEEDS):
            rng = random.Random(seed)
            steps = [draw(rng, place) for place in range(STEPS)]
            # What happens once is in the truth with its own weight, however the estimator treats it.
            truth = statistics.fmean(steps[200:])
            for name, location in LOCATIONS.items():
                errors.setdefault(pattern, {}).setdefault(name, []).append(location(steps[:40]) / truth - 1)
    return errors


def on_trainings(cache: Path) -> dict[str, list[float]]:
    """Relative errors of the mean steady step of every watched training under ``cache``."""
    errors: dict[str, list[float]] = {}
    for path in sorted(cache.glob("in-run-*.json")):
        for row in json.loads(path.read_text(encoding="utf-8")):
            profile = Profile.model_validate_json(json.dumps(row))
            seen, whole = cut(profile, steps=PROBE_STEPS).timeline.steps, collect([profile]).steady
            truth = sum(seconds for seconds, _ in whole) / sum(covers for _, covers in whole)
            rows = zip(seen.seconds, seen.covers, seen.label, strict=True)
            values = [seconds / covers for seconds, covers, label in rows if label in ("steady", "warmup")]
            for name, location in LOCATIONS.items():
                errors.setdefault(name, []).append(location(values) / truth - 1)
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path(".accuracy-cache"))
    options = parser.parse_args()
    patterns, trainings = on_patterns(), on_trainings(options.cache)
    columns = [*PATTERNS, *(["trainings, bias", "trainings, mean error"] if trainings else [])]
    print("| estimator | " + " | ".join(columns) + " |")
    print("|---|" + "---:|" * len(columns))
    for name in LOCATIONS:
        cells = [f"{100 * statistics.fmean(patterns[pattern][name]):+.1f}" for pattern in PATTERNS]
        if trainings:
            cells.append(f"{100 * statistics.fmean(trainings[name]):+.1f}")
            cells.append(f"{100 * statistics.fmean(abs(error) for error in trainings[name]):.1f}")
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
