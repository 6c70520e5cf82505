"""How well the power of a GPU follows from the fraction of TDP on another GPU.

Input: a CSV file with a row per training and GPU, as published by Zeus: columns ``model``, ``dataset``, ``batch_size``,
``gpu``, ``power_limit``, ``optimizer`` and ``note``, which contains ``avg_power=<watts>``. Only rows at the largest
power limit of each GPU are used.

The width of the intervals is chosen on some tasks (pairs of model and dataset), and errors and coverage of the 90 %
intervals are reported on the others: each task in turn, and two halves of the tasks in both directions. With
``--constant``, the width does not depend on the fraction of TDP, for comparison.

    python tests/benchmarks/energy.py zeus_epoch_time.csv
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any

import numpy as np
import pandas as pd

from vmselect.catalog.gpus import tdp_watts
from vmselect.energy.power import BUSIEST_FRACTION, FRACTION_SPREAD

NAMES = {"QuadroRTX6000": "RTX-6000", "V100-32GB": "V100-PCIe"}
"""Names of GPUs in the file that differ from those of ``gpu-specs.csv``. Its V100 has the power limit of the PCIe
card."""
CONFIDENCE = 0.9
KEYS = ["task", "batch_size", "optimizer"]


def read_fractions(path: Path) -> pd.DataFrame:
    """Fraction of TDP of every training and GPU at the GPU's largest power limit."""
    rows = pd.read_csv(path)
    rows["watts"] = rows["note"].astype(str).str.extract(r"avg_power=([\d.]+)")[0].astype(float)
    rows = rows[rows["watts"] > 0]
    rows = rows[rows["power_limit"] == rows.groupby("gpu")["power_limit"].transform("max")]
    tdp = rows["gpu"].map({gpu: tdp_watts(NAMES.get(gpu, gpu)) for gpu in rows["gpu"].unique()}).astype(float)
    rows = rows.assign(fraction=rows["watts"] / tdp, task=rows["model"] + "/" + rows["dataset"])
    return rows.dropna(subset="fraction").groupby([*KEYS, "gpu"], dropna=False)["fraction"].mean().reset_index()


def pair_gpus(fractions: pd.DataFrame, *, constant: bool = False) -> pd.DataFrame:
    """A row per training and ordered pair of GPUs.

    ``log_ratio`` is the log of the fraction on the second GPU relative to the first, and ``width`` the part of its
    standard deviation that depends on the fraction on the first GPU.
    """
    found = []
    for (task, *_), group in fractions.groupby(KEYS, dropna=False):
        for first, second in itertools.permutations(group["fraction"], 2):
            known = min(first, BUSIEST_FRACTION)
            found.append((task, math.log(second / min(first, 1.0)), 1.0 if constant else math.sqrt(1 - known)))
    return pd.DataFrame(found, columns=["task", "log_ratio", "width"])


def choose_spread(pairs: pd.DataFrame) -> float:
    """Standard deviation of ``log_ratio`` relative to ``width``; all tasks have the same weight."""
    squares = (pairs["log_ratio"] / pairs["width"]) ** 2
    return float(math.sqrt(squares.groupby(pairs["task"]).mean().mean())) if len(pairs) else math.nan


def between_batch_sizes(fractions: pd.DataFrame) -> float:
    """Standard deviation of the log of the fraction between batch sizes that differ by a factor of two."""
    squares = []
    for _, group in fractions.groupby(["task", "optimizer", "gpu"], dropna=False):
        sizes = dict(zip(group["batch_size"], np.log(group["fraction"]), strict=True))
        squares += [(value - sizes[2 * size]) ** 2 for size, value in sizes.items() if 2 * size in sizes]
    return math.sqrt(fmean(squares)) if squares else math.nan


def count_inside(pairs: pd.DataFrame, spread: float) -> int:
    """Number of pairs whose ``log_ratio`` is inside the interval."""
    quantile = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    return int((pairs["log_ratio"].abs() <= quantile * spread * pairs["width"]).sum())


def report(pairs: pd.DataFrame, chosen_on: pd.DataFrame) -> dict[str, Any]:
    """Errors relative to the measured power, and the coverage with the spread of ``chosen_on``."""
    spread = choose_spread(chosen_on)
    error = np.abs(np.expm1(-pairs["log_ratio"]))
    numbers = {
        "spread": spread, "coverage": count_inside(pairs, spread) / len(pairs),
        "median_error": np.median(error), "p90_error": np.quantile(error, 0.9),
    }  # fmt: skip
    tasks = {"tasks": sorted(pairs["task"].unique()), "pairs": len(pairs)}
    return tasks | {name: round(float(number), 3) for name, number in numbers.items()}


def main(arguments: list[str] | None = None) -> int:
    """Print the spread, the errors and the coverage as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("csv", type=Path, help="measurements of Zeus")
    parser.add_argument("--constant", action="store_true", help="use intervals that do not depend on the fraction")
    options = parser.parse_args(arguments)
    fractions = read_fractions(options.csv)
    pairs = pair_gpus(fractions, constant=options.constant)
    tasks = sorted(pairs["task"].unique())
    first, sizes = pairs["task"].isin(tasks[::2]), fractions["task"].isin(tasks[::2])
    each = [report(pairs[pairs["task"] == task], pairs[pairs["task"] != task]) for task in tasks]
    tdp = np.abs(1 / fractions["fraction"] - 1)
    found = {
        "shipped_spread": FRACTION_SPREAD,
        "spread_of_all_tasks": round(choose_spread(pairs), 3),
        "between_doubled_batch_sizes": [round(between_batch_sizes(fractions[half]), 3) for half in (sizes, ~sizes)],
        "median_error_of_tdp": round(float(np.median(tdp)), 3),
        "coverage_of_left_out_tasks": round(sum(one["coverage"] * one["pairs"] for one in each) / len(pairs), 3),
        "left_out_tasks": each,
        "left_out_halves": [report(pairs[first], pairs[~first]), report(pairs[~first], pairs[first])],
    }
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
