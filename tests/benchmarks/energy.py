"""How well the power of a GPU follows from the fraction of TDP on another GPU.

Input: a CSV file with a row per training and GPU, as published by Zeus: columns ``model``, ``dataset``, ``batch_size``,
``gpu``, ``power_limit``, ``optimizer`` and ``note``, which contains ``avg_power=<watts>``. Only rows at the largest
power limit of each GPU are used.

The tasks (pairs of model and dataset) are split into two halves. The constants of ``vmselect/prediction/energy.py`` are
chosen on one half; the errors and the coverage of the 90 % intervals are reported on the other half.

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

import numpy as np
import pandas as pd

from vmselect.prediction import energy
from vmselect.prediction.figures import tdp_watts

NAMES = {"QuadroRTX6000": "RTX-6000", "V100-32GB": "V100-PCIe"}
"""Names of GPUs in the file that differ from those of ``gpu-specs.csv``. Its V100 has the power limit of the PCIe
card."""
CONFIDENCE = 0.9


def read_fractions(path: Path) -> pd.DataFrame:
    """Fraction of TDP of every training and GPU at the GPU's largest power limit."""
    rows = pd.read_csv(path)
    rows["watts"] = rows["note"].astype(str).str.extract(r"avg_power=([\d.]+)")[0].astype(float)
    rows = rows[rows["watts"] > 0]
    rows = rows[rows["power_limit"] == rows.groupby("gpu")["power_limit"].transform("max")]
    tdp = rows["gpu"].map({gpu: tdp_watts(NAMES.get(gpu, gpu)) for gpu in rows["gpu"].unique()}).astype(float)
    rows = rows.assign(fraction=rows["watts"] / tdp, task=rows["model"] + "/" + rows["dataset"])
    keys = ["task", "batch_size", "optimizer", "gpu"]
    return rows.dropna(subset="fraction").groupby(keys, dropna=False)["fraction"].mean().reset_index()


def split(fractions: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of every second task in alphabetical order, to choose with, and those of the other tasks, to report."""
    chosen = fractions["task"].isin(sorted(fractions["task"].unique())[1::2])
    return fractions[chosen], fractions[~chosen]


def log_ratios(fractions: pd.DataFrame) -> dict[str, np.ndarray]:
    """Log of the ratio of the fractions of one training on two GPUs, for each task and ordered pair of GPUs."""
    found: dict[str, list[float]] = {}
    for (task, *_), group in fractions.groupby(["task", "batch_size", "optimizer"], dropna=False):
        pairs = itertools.permutations(np.log(group["fraction"]), 2)
        found.setdefault(str(task), []).extend(one - other for one, other in pairs)
    return {task: np.array(ratios) for task, ratios in found.items() if ratios}


def choose(fractions: pd.DataFrame) -> dict[str, float]:
    """Standard deviations of the log of the fraction between GPUs, with equal weights of tasks, and between sizes."""
    squares = []
    for _, group in fractions.groupby(["task", "optimizer", "gpu"], dropna=False):
        sizes = dict(zip(group["batch_size"], np.log(group["fraction"]), strict=True))
        squares += [(value - sizes[2 * size]) ** 2 for size, value in sizes.items() if 2 * size in sizes]
    between = [float(np.mean(ratios**2)) for ratios in log_ratios(fractions).values()]
    return {
        "between_gpus": round(math.sqrt(fmean(between)), 3) if between else math.nan,
        "between_doubled_batch_sizes": round(math.sqrt(fmean(squares)), 3) if squares else math.nan,
    }


def report(fractions: pd.DataFrame, deviation: float) -> dict[str, float]:
    """Errors of the fraction of TDP on these rows, relative to the measured power, and of TDP itself."""
    ratios = np.concatenate(list(log_ratios(fractions).values()))
    error, tdp = np.abs(np.expm1(ratios)), np.abs(1 / fractions["fraction"] - 1)
    quantile = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    numbers = {
        "median_error": np.median(error), "p90_error": np.quantile(error, 0.9),
        "coverage": np.mean(np.abs(ratios) <= quantile * deviation),
        "median_error_of_tdp": np.median(tdp), "p90_error_of_tdp": np.quantile(tdp, 0.9),
    }  # fmt: skip
    return {"pairs": len(ratios)} | {name: round(float(number), 3) for name, number in numbers.items()}


def main(arguments: list[str] | None = None) -> int:
    """Print the constants of one half and the errors on the other half as JSON; also with the halves swapped."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("csv", type=Path, help="measurements of Zeus")
    halves = split(read_fractions(parser.parse_args(arguments).csv))
    found = {}
    for name, (first, second) in (("shipped", halves), ("swapped", halves[::-1])):
        chosen = choose(first)
        deviation = energy.FRACTION_DEVIATION if name == "shipped" else chosen["between_gpus"]
        found[name] = {
            "chosen_on": sorted(first["task"].unique()), "constants": chosen, "deviation": deviation,
            "reported_on": sorted(second["task"].unique()), "errors": report(second, deviation),
        }  # fmt: skip
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
