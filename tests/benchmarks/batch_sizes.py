"""How well times at batch sizes that were not probed are told, on other people's measurements.

    python tests/benchmarks/batch_sizes.py FOLDER             # the tables that the documentation quotes
    python tests/benchmarks/batch_sizes.py FOLDER --choose    # how the widths of the intervals were chosen

FOLDER holds profet_dev.csv, gavel.csv and zeus_epoch_time.csv, which are not part of vmselect. A hash of its name puts
each setup of PROFET and gavel into one of two halves. Widths are chosen on the first half of both; the second
halves and all of Zeus are for the report.
"""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

import vmselect as vs
from vmselect.estimation import batch_sizes

Setups = list[dict[int, float]]
Probes = Callable[[Sequence[int]], Iterable[tuple[int, ...]]]
PER_OCTAVE = tuple(step / 100 for step in range(2, 41))
HINGES = (0.0, 0.25, 0.5, 0.75, 1.0)
WANTED = 0.9


def two(sizes: Sequence[int]) -> Iterable[tuple[int, ...]]:
    """Every pair of sizes as probes."""
    return itertools.combinations(sizes, 2)


def three(sizes: Sequence[int]) -> Iterable[tuple[int, ...]]:
    """Every triple of sizes as probes."""
    return itertools.combinations(sizes, 3)


def ends(sizes: Sequence[int]) -> Iterable[tuple[int, ...]]:
    """The ends of the range."""
    return [(sizes[0], sizes[-1])]


def ends_and_middle(sizes: Sequence[int]) -> Iterable[tuple[int, ...]]:
    """The ends of the range and one size between."""
    return [(sizes[0], sizes[len(sizes) // 2], sizes[-1])]


def read_setups(folder: Path) -> dict[str, tuple[Setups, Setups]]:
    """By source, the setups of either half: batch size to the time of a step.

    PROFET: nine Keras CNNs on four AWS GPU machines, 16 to 256 images a step, medians of nine repeats. gavel: seven
    jobs on 1 to 8 GPUs, without the V100 rows of four GPUs, which contradict the others. Zeus: epoch times of five
    trainings on four GPUs at many power limits.
    """
    profet = pd.read_csv(folder / "profet_dev.csv")
    profet = profet[profet["metric"] == "iteration_ms"]
    gavel = pd.read_csv(folder / "gavel.csv")
    gavel = gavel[(gavel["value"] > 0) & ~(gavel["gpu"].str.contains("V100") & (gavel["gpu_count"] == 4))]
    gavel["value"] = gavel["gpu_count"] / gavel["value"]  # steps per second, summed over workers
    zeus = pd.read_csv(folder / "zeus_epoch_time.csv")
    zeus["value"] *= zeus["batch_size"]  # in proportion to the time of a step
    return {
        "PROFET": by_size(profet, ["model", "dataset", "instance_type"]),
        "gavel": by_size(gavel, ["model", "dataset", "gpu", "gpu_count", "note"]),
        "Zeus": by_size(zeus, ["model", "dataset", "gpu", "power_limit", "optimizer"]),
    }


def by_size(data: pd.DataFrame, setup: list[str]) -> tuple[Setups, Setups]:
    """For each setup with three sizes or more, the median time by batch size; in two halves, by a hash of its name."""
    halves: tuple[Setups, Setups] = ([], [])
    for name, part in data.groupby(setup, dropna=False):
        times = {int(size): float(value) for size, value in part.groupby("batch_size")["value"].median().items()}
        if len(times) > 2:
            word = "|".join(map(str, name if isinstance(name, tuple) else (name,)))
            halves[hashlib.sha256(word.encode()).digest()[-1] % 2].append(times)
    return halves


def predict_all(setups: Setups, probes: Probes, *, beyond: bool) -> Iterator[tuple[float, bool, float]]:
    """Relative error, whether the interval held the truth, and its mean half-width, for every size left out."""
    for times in setups:
        for chosen in probes(sorted(times)):
            known = {size: times[size] for size in chosen}
            low, high = min(chosen), max(chosen)
            for size in sorted(set(times) - set(chosen)):
                if (high < size <= 2 * high or low / 2 <= size < low) if beyond else (low < size < high):
                    at = batch_sizes.interpolate_time(known, size)
                    within = at.value * (1 - at.below) <= times[size] <= at.value * (1 + at.above)
                    yield abs(at.value / times[size] - 1), within, (at.below + at.above) / 2


def choose(folder: Path) -> None:
    """The narrowest widths with which both sources are covered as promised, over two probes and three, in half one."""
    sources = {name: halves[0] for name, halves in read_setups(folder).items() if name != "Zeus"}
    for beyond, wide, hinges in ((False, "INTERPOLATION_WIDTH", HINGES), (True, "EXTRAPOLATION_WIDTH", (0.0,))):
        best: tuple[float, float, float] | None = None
        for hinge in hinges:
            for per_octave in PER_OCTAVE:
                setattr(batch_sizes, wide, per_octave)
                batch_sizes.HINGE_SHARE = hinge
                covered, width = [], []
                for setups in sources.values():
                    results = [np.array(list(predict_all(setups, some, beyond=beyond))) for some in (two, three)]
                    covered.append(np.mean([result[:, 1].mean() for result in results]))
                    width.append(np.mean([result[:, 2].mean() for result in results]))
                if min(covered) >= WANTED:
                    found = float(np.mean(width)), per_octave, hinge
                    print(f"{wide} {per_octave:.2f}, hinge {hinge:.2f}: mean half-width {found[0]:.1%}", end="")
                    print(", coverage", ", ".join(f"{name} {c:.1%}" for name, c in zip(sources, covered, strict=True)))
                    best = min(best, found) if best else found
                    break  # more per octave is only wider
        print(f"chosen: {wide} = {best[1]}, hinge {best[2]}\n" if best else "none of them\n")


def report(folder: Path) -> None:
    """Mean error and coverage where the widths were chosen, and where they were not."""
    columns = {}
    for name, (chosen_on, other) in read_setups(folder).items():
        if name == "Zeus":
            columns["Zeus"] = chosen_on + other
        else:
            columns[f"{name}, half chosen on"], columns[f"{name}, other half"] = chosen_on, other
    print("| probes | held back | " + " | ".join(f"{name} ({len(some)})" for name, some in columns.items()) + " |")
    print("|---|---|" + "---:|" * len(columns))
    for name, probes, beyond in (
        ("two, every pair", two, False),
        ("two, the ends of the range", ends, False),
        ("three, every triple", three, False),
        ("three, ends and middle", ends_and_middle, False),
        ("two, every pair", two, True),
        ("three, every triple", three, True),
    ):
        cells = []
        for setups in columns.values():
            results = np.array(list(predict_all(setups, probes, beyond=beyond)))
            error, covered, width = results.mean(axis=0)
            cells.append(f"{error:.1%}, {covered:.0%}, {width:.0%}")
        where = "up to twice, down to half" if beyond else "sizes between"
        print(f"| {name} | {where} | " + " | ".join(cells) + " |")
    print("Mean error; how many 90 % intervals held the truth; their mean half-width. In brackets: setups.")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--choose"]):
        sys.exit("usage: batch_sizes.py FOLDER [--choose]")
    print(f"vmselect {vs.__version__}\n")
    (choose if sys.argv[2:] else report)(Path(sys.argv[1]))
