"""How well methodology 1 predicts, on other people's measurements; prints the tables that the documentation quotes.

    python tests/benchmarks/methodology1.py FOLDER

FOLDER holds zeus_epochs_to_target_dev.csv and pollux_convergence.csv, which are not part of vmselect. Times at batch
sizes that were not probed: batch_sizes.py; epochs from a part of the curve: forecasts.py.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

import vmselect as vs
from vmselect.convergence import REACH, predict_epochs

POLLUX_TARGETS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0)
FALLING = ("deepspeech2", "yolov3")  # error rates; the other Pollux models are scored by accuracies


def main(folder: Path) -> None:
    """Print every table."""
    zeus_epochs(folder)
    pollux_bracket(folder)


# -- epochs across batch sizes -----------------------------------------------------------------------------------------


def zeus_epochs(folder: Path) -> None:
    """Zeus: epochs to reach a target at several batch sizes, each with several runs; targets that all runs reach."""
    data = pd.read_csv(folder / "zeus_epochs_to_target_dev.csv")
    cases = []
    for _, part in data.groupby(["dataset", "network", "target_metric"]):
        runs = {int(size): list(group["target_epoch"]) for size, group in part.groupby("batch_size")}
        reached = {size: values for size, values in runs.items() if not any(map(math.isnan, values))}
        if len(reached) > 2:
            cases.append(reached)
    long = [case for case in cases if max(map(statistics.fmean, case.values())) >= 3]
    print(f"EPOCHS BETWEEN MEASURED BATCH SIZES (Zeus, {len(cases)} targets; {len(long)} of three epochs or more)")
    header("measured", "targets", "held back", "mean", "median", "90 %", "runs in interval")
    for name, around in (("the neighbours", 1), ("any two", None)):
        for which, chosen in (("all", cases), ("3 epochs or more", long)):
            report(name, which, [result for case in chosen for result in between(case, around)])
    print()


def between(case: dict[int, list[float]], around: int | None) -> Iterator[tuple[float, float]]:
    """Relative error of the mean, and the share of single runs within the interval."""
    sizes = sorted(case)
    for low, high in itertools.combinations(range(len(sizes)), 2):
        if around is not None and high - low != 2 * around:
            continue
        for middle in range(low + 1, high):
            truth = case[sizes[middle]]
            found = predict_epochs({sizes[k]: case[sizes[k]] for k in (low, high)}, sizes[middle])
            inside = statistics.fmean(found.low <= value <= found.high for value in truth)
            yield abs(found.value / statistics.fmean(truth) - 1), inside


def pollux_bracket(folder: Path) -> None:
    """Pollux: epochs to reach shares of the worst batch size's best result; all larger sizes from the smaller ones."""
    rows = []
    for model, curves in read_pollux(folder).items():
        for share in POLLUX_TARGETS:
            reached = epochs_to_target(curves, share)
            for known, wanted in itertools.combinations(sorted(reached), 2):
                if wanted > REACH * known:
                    continue  # said to be unknown
                study = {size: [epochs] for size, epochs in reached.items() if size <= known}
                found, truth = predict_epochs(study, wanted), reached[wanted]
                plain = reached[known] <= truth <= reached[known] * wanted / known
                rows.append((model, wanted / known, found.low <= truth <= found.high, plain, found.value / truth - 1))
    table = pd.DataFrame(rows, columns=["model", "ratio", "held", "plain", "error"])
    print(f"THE BRACKET BEYOND MEASURED BATCH SIZES (Pollux, {len(table)} cases)")
    header("batch size", "cases", "bracket holds", "without spread", "median error")
    for name, part in (("up to twice", table),):
        line(
            name, f"{len(part)}", f"{part['held'].mean():.1%}", f"{part['plain'].mean():.1%}",
            f"{part['error'].abs().median():.1%}",
        )  # fmt: skip
    for model, part in table.groupby("model"):
        line(f"  {model}", f"{len(part)}", f"{part['held'].mean():.1%}", f"{part['plain'].mean():.1%}", "")
    print()


def read_pollux(folder: Path) -> dict[str, dict[int, list[float]]]:
    """Model to batch size to its metric per epoch, turned so that larger is better."""
    data = pd.read_csv(folder / "pollux_convergence.csv")
    curves: dict[str, dict[int, list[float]]] = {}
    for (model, size), part in data.groupby(["model", "global_batch"]):
        sign = -1.0 if model in FALLING else 1.0
        curves.setdefault(str(model), {})[int(size)] = list(sign * part.sort_values("epoch")["metric"])
    return curves


def epochs_to_target(curves: dict[int, list[float]], share: float) -> dict[int, float]:
    """Epochs until each batch size has come that share of the way from the first value to the worst best one."""
    start = statistics.median(values[0] for values in curves.values())
    target = start + share * (min(map(max, curves.values())) - start)
    return {
        size: float(1 + next(k for k, value in enumerate(values) if value >= target)) for size, values in curves.items()
    }


# -- printing ----------------------------------------------------------------------------------------------------------


def report(name: str, which: str, results: Sequence[tuple[float, float]]) -> None:
    """A line of errors and coverage."""
    errors = np.array([error for error, _ in results])
    line(
        name, which, f"{len(errors)}", f"{errors.mean():.2%}", f"{np.median(errors):.2%}",
        f"{np.quantile(errors, 0.9):.1%}", f"{np.mean([inside for _, inside in results]):.1%}",
    )  # fmt: skip


def header(*names: str) -> None:
    """Names of the columns."""
    line(*names)
    line(*("-" * len(name) for name in names))


def line(*cells: str) -> None:
    """One line of a table."""
    print(f"{cells[0]:<24}" + "".join(f"{cell:>18}" for cell in cells[1:]))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: methodology1.py FOLDER")
    print(f"vmselect {vs.__version__}\n")
    main(Path(sys.argv[1]))
