"""Remaining time of running trainings, scored on public logs: ``python -m tests.benchmarks.watching FOLDER``.

FOLDER has ``mlperf_epochs_dev.csv.gz`` (run, unit, start_s, duration_s) and ``dawnbench_epochs_dev.csv`` (task, entry,
epoch, hours); other files with these columns are read too. At 5, 10, 25, 50 and 75 % of the epochs of each run with at
least 20 epochs, the total time is forecast. Printed are the mean error of the total, the coverage and half-width of
90 % intervals, and the errors of two other estimators: the running mean of tqdm, and the formula of Composer's
RuntimeEstimator, the mean rate after the first unit (here an epoch, because the logs have no steps). The constants were
chosen on MLPerf.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from vmselect.watching.rest import forecast_rest

SHARES = (0.05, 0.1, 0.25, 0.5, 0.75)
LEAST_EPOCHS = 20
OTHER_WORK = ("minigo", "dlrm", "bert")
"""Benchmarks of MLPerf whose "epochs" are not equal amounts of work."""
Runs = Mapping[str, list[list[float]]]


def read_rows(path: Path) -> Iterable[dict[str, str]]:
    """The rows of a CSV file, which may be compressed."""
    opener: Callable[..., object] = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt") as file:  # type: ignore[attr-defined]
        yield from csv.DictReader(file)


def read_runs(folder: Path) -> dict[str, dict[str, list[list[float]]]]:
    """Epoch times of all runs in ``folder``, by source and benchmark."""
    sources: dict[str, dict[str, list[list[float]]]] = {}
    for path in sorted(folder.glob("*mlperf_epochs*")):
        starts: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for row in read_rows(path):
            if row["unit"] == "epoch" and not any(name in row["run"] for name in OTHER_WORK):
                starts[row["run"]].append((float(row["start_s"]), float(row["duration_s"])))
        groups = sources.setdefault("MLPerf", defaultdict(list))
        for run, rows in starts.items():
            rows.sort()
            marks = [start for start, _ in rows] + [sum(rows[-1])]
            groups[run.split("/")[3]].append([b - a for a, b in pairwise(marks)])
    for path in sorted(folder.glob("*dawnbench_epochs*")):
        ends: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for row in read_rows(path):
            ends[row["task"], row["entry"]].append((float(row["epoch"]), 3600 * float(row["hours"])))
        groups = sources.setdefault("DAWNBench", defaultdict(list))
        for (task, _), rows in ends.items():
            marks = [0.0] + [seconds for _, seconds in sorted(rows)]
            groups[task].append([b - a for a, b in pairwise(marks)])
    return {
        source: {
            name: [run for run in runs if len(run) >= LEAST_EPOCHS and min(run) > 0] for name, runs in groups.items()
        }
        for source, groups in sources.items()
    }


def score(runs: Iterable[Sequence[float]], share: float) -> dict[str, float]:
    """Means over ``runs`` of errors, coverage and half-width, in percent."""
    errors: dict[str, list[float]] = defaultdict(list)
    for epochs in runs:
        seen = max(1, round(share * len(epochs)))
        before, left, total = sum(epochs[:seen]), len(epochs) - seen, sum(epochs)
        interval = forecast_rest(epochs[:seen], left).interval(0.9)
        errors["error"].append(abs(before + interval.value - total) / total)
        errors["coverage"].append(float(interval.contains(total - before)))
        errors["half-width"].append((interval.high - interval.low) / 2 / total)
        errors["tqdm"].append(abs(before + left * fmean(epochs[:seen]) - total) / total)
        errors["Composer"].append(abs(before + left * fmean(epochs[1:seen] or epochs[:1]) - total) / total)
    return {name: 100 * fmean(values) for name, values in errors.items()}


def print_tables(sources: Mapping[str, Runs]) -> None:
    """Print a table per source, with the mean over its benchmarks."""
    print("| source (benchmarks; runs) | epochs seen | error of the total | coverage | half-width | tqdm | Composer |")
    print("|---|---|---|---|---|---|---|")
    for source, groups in sources.items():
        kept = {name: runs for name, runs in groups.items() if len(runs) >= 5}
        count = sum(map(len, kept.values()))
        for share in SHARES:
            parts = [score(runs, share) for runs in kept.values()]
            mean = {name: fmean(part[name] for part in parts) for name in parts[0]}
            row = f"| {source} ({len(kept)}; {count}) | {share:.0%} | {mean['error']:.2f} % | {mean['coverage']:.0f} % "
            print(f"{row}| {mean['half-width']:.2f} % | {mean['tqdm']:.2f} % | {mean['Composer']:.2f} % |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    print_tables(read_runs(parser.parse_args().folder))
