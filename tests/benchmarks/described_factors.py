"""How well two factors follow from the description of a training: the fraction of TDP, and the speed-up by float16.

Input: a folder with ``works.csv`` and ``work_operations.csv.gz`` (step times of described works) and
``zeus_epoch_time.csv`` (as for ``energy.py``).

The constants of the fraction are fitted without the task that is scored, and those of the speed-up to the other of two
sources (Lambda with PyTorch and with TensorFlow), where both precisions of a model were measured on the same GPU.

    python tests/benchmarks/described_factors.py FOLDER
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize

sys.path.insert(0, str(Path(__file__).parent))
from energy import NAMES, read_fractions

from vmselect.catalog.gpus import figures_of, read_precision
from vmselect.energy.power import DESCRIBED_DEVIATION, FULL_FRACTION, WAITING_EXPONENT, WAITING_FRACTION
from vmselect.prediction.roofline import StepCost
from vmselect.ranking.variants import PRECISION_DEVIATION, PRECISION_SHARE
from vmselect.records.work import Operation, Operations, Work

QUANTILE = NormalDist().inv_cdf(0.95)
CENTERS, WEIGHTS = np.array([0.15, 0.8, math.log(2)]), np.array([0.1, 0.1, 0.5])
"""Weak priors of the fraction: while waiting, while busy, and log of the exponent; and their deviations."""


def read_launch_shares(folder: Path) -> pd.DataFrame:
    """Expected log seconds and share of the launch overhead of each measured work and GPU."""
    rows = pd.read_csv(folder / "works.csv")
    operations = dict(iter(pd.read_csv(folder / "work_operations.csv.gz").groupby("key")))
    costs = {row.key: _read_cost(row, operations[row.key]) for row in rows.drop_duplicates("key").itertuples()}
    roofs = [
        costs[row.key].roofline(figures_of(row.gpu), read_precision(row.precision))  # type: ignore[arg-type]
        for row in rows.itertuples()
    ]
    return rows.assign(expected=[roof.log_seconds for roof in roofs], share=[roof.launch_share for roof in roofs])


def _read_cost(row: Any, operations: pd.DataFrame) -> StepCost:
    """Operations of a work; those of its optimizer follow from its name."""
    columns = operations.loc[operations["class"] != "opt", ["class", *Operation._fields[1:]]]
    listed = Operations.of(
        Operation(kind, f, t, *map(int, sizes)) for kind, f, t, *sizes in columns.to_numpy().tolist()
    )
    return StepCost.of(
        Work(
            batch_size=max(1, int(row.batch_size)), operations=listed, parameters=int(row.params),
            parameter_tensors=int(row.param_tensors), optimizer=row.optimizer, method="given",
        )
    )  # fmt: skip


def predict(constants: Any, share: Any) -> Any:
    """Fraction of TDP at a share of the launch overhead."""
    waiting, full, exponent = constants[0], constants[1], np.exp(constants[2])
    return np.clip(waiting + (full - waiting) * (1 - share**exponent), 0.05, 1.0)


def fit_fraction(rows: pd.DataFrame) -> Any:
    """Constants of the fraction; all tasks have the same weight."""
    weight = 1 / rows.groupby("task")["task"].transform("count")

    def loss(constants: Any) -> float:
        errors = np.log(rows["fraction"] / predict(constants, rows["share"]))
        return float((weight * errors**2).sum() + 0.01 * (((constants - CENTERS) / WEIGHTS) ** 2).sum())

    return minimize(loss, CENTERS, method="Nelder-Mead").x


def score_fractions(folder: Path, works: pd.DataFrame) -> dict[str, Any]:
    """Errors and coverage of the fraction of TDP of each task, by constants that were fitted without it."""
    fractions = read_fractions(folder / "zeus_epoch_time.csv")
    fractions["gpu"] = fractions["gpu"].map(lambda gpu: NAMES.get(gpu, gpu))
    zeus = works[works["source"] == "zeus"].drop(columns="optimizer")
    zeus = zeus.rename(columns={"model": "task", "config": "optimizer"})
    rows = zeus.merge(fractions, on=["task", "batch_size", "optimizer", "gpu"])
    shipped = np.array([WAITING_FRACTION, FULL_FRACTION, math.log(WAITING_EXPONENT)])
    scores = {}
    for task, mine in rows.groupby("task"):
        errors = np.log(mine["fraction"] / predict(fit_fraction(rows[rows["task"] != task]), mine["share"]))
        scores[str(task)] = _score(errors, DESCRIBED_DEVIATION) | {"rows": len(mine)}
    whole = np.log(rows["fraction"] / predict(shipped, rows["share"]))
    return {"fitted": fit_fraction(rows).round(3).tolist(), "shipped": _score(whole, DESCRIBED_DEVIATION), **scores}


def score_precision(works: pd.DataFrame) -> dict[str, Any]:
    """Errors and coverage of the speed-up by float16 in each source, by the share that fits the other one."""
    rows = works[works["source"].isin(["lambda_pt", "lambda_tf"]) & (works["exact"] == 1)]
    per_item = np.log(rows["batch_size"])
    rows = rows.assign(real=np.log(rows["seconds"]) - per_item, expected=rows["expected"] - per_item)
    single, half = (rows[rows["precision"] == name] for name in ("fp32", "fp16"))
    pairs = single.merge(half, on=["source", "model", "gpu"], suffixes=("", "_half"))
    pairs = pairs.assign(gain=pairs["real"] - pairs["real_half"], roof=pairs["expected"] - pairs["expected_half"])
    scores: dict[str, Any] = {"median_speed_up": round(float(np.exp(pairs["gain"].median())), 2)}
    for source, mine in pairs.groupby("source"):
        other = pairs[pairs["source"] != source]
        share = float((other["gain"] * other["roof"]).sum() / (other["roof"] ** 2).sum())
        errors = mine["gain"] - share * mine["roof"]
        scores[str(source)] = _score(errors, PRECISION_DEVIATION) | {"share": round(share, 2), "rows": len(mine)}
    scores["shipped"] = _score(pairs["gain"] - PRECISION_SHARE * pairs["roof"], PRECISION_DEVIATION)
    return scores


def _score(errors: Any, deviation: float) -> dict[str, float]:
    inside = float((np.abs(errors) <= QUANTILE * deviation).mean())
    return {"deviation": round(float(np.sqrt((errors**2).mean())), 3), "coverage": round(inside, 3)}


def main(arguments: list[str] | None = None) -> int:
    """Print the scores as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder of the measurements")
    folder = parser.parse_args(arguments).folder
    works = read_launch_shares(folder)
    found = {"fraction_of_tdp": score_fractions(folder, works), "speed_up_by_float16": score_precision(works)}
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
