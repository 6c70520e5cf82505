"""Score predictions of several GPUs on tables of step times.

    python tests/benchmarks/scaling.py sia_multi.csv lambda_pt.csv lambda_tf.csv gavel.csv --refit

Each file has the columns model, precision, batch_size (per GPU), gpu, gpu_count and nodes, and either ``time`` (any
unit per step and GPU, with ``host``) or ``metric`` and ``value`` (``throughput`` with ``global_batch``, or
``aggregate_steps_per_s``). For each work measured on one, two and n GPUs, the time on n GPUs is predicted from
those on one and two, and from that on one alone. The history is empty, or has works of up to five other models on the
same GPU (``others``), or also one other batch size of the same model (``model``). Three and four nodes are predicted
from two. With --refit, the constants are those that fit the other sources.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
from scipy.optimize import minimize

from vmselect.prediction.scaling import (
    CONSTANTS,
    Constants,
    Scaling,
    Work,
    effects_covariance,
    implied_excess,
    more_nodes,
    observed_slope,
)

LEFT_OUT = {"lambda_pt": ("ncf",)}
"""Models of a source whose times contradict a constant batch size per GPU (probably that of all GPUs together)."""
WIDER_SLOPE, WIDER_EXCESS = 1.8, 1.25
"""Factors by which the fitted standard deviations are multiplied: sources differ more than the systems of one source.
Chosen by the interval score over all sources, with a coverage of at least 86 % on each (``calibration.py``)."""
PARALLELISM = "all_reduce"
"""How the GPUs of all sources train together: torch DDP, or TensorFlow's variable update ``replicated`` with NCCL."""
NOTES = {"gavel": "physical;consolidated", "lambda_tf": "replicated"}
"""Notes of the rows that are used: on one machine, and with an all-reduce."""


HISTORIES = ("none", "others", "model")


@dataclass(frozen=True)
class Score:
    """Errors in %, coverage of 90 % intervals in %, and their median half-width as a factor."""

    source: str
    gpus: int
    known: str
    history: str
    works: int
    mean: float
    median: float
    p90: float
    coverage: float
    factor: float


def read_works(path: Path, *, nodes: bool = False) -> list[tuple[Work, float]]:
    """Works of a file that were measured on one machine, each with its batch size per GPU.

    With ``nodes``, the counts are those of nodes with the same number of GPUs each.
    """
    times: dict[tuple[str, str, str, float], dict[int, list[float]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            source, note = path.stem, row.get("note", "")
            if row["model"] in LEFT_OUT.get(source, ()) or note not in ("", NOTES.get(source, note)):
                continue
            seconds, gpus = _seconds(row), int(float(row["gpu_count"] or 1))
            machines = int(float(row.get("nodes") or 1))
            if machines > 1 and not nodes:
                continue
            if seconds is not None and row["batch_size"]:
                each = f" {gpus // machines}" if nodes else ""
                gpu = f"{row['gpu']} {row.get('host', '')}{each}"
                key = (gpu, row["model"], row.get("precision", ""), float(row["batch_size"]))
                times.setdefault(key, {}).setdefault(machines if nodes else gpus, []).append(seconds)
    return [
        (Work(gpu, model, {count: statistics.median(all_) for count, all_ in sorted(found.items())}, PARALLELISM), size)
        for (gpu, model, _, size), found in times.items()
        if 1 in found
    ]


def _seconds(row: dict[str, str]) -> float | None:
    value = float(row.get("time") or row.get("value") or "nan")
    if not value > 0:
        return None
    if "time" in row:
        return value
    if row.get("metric") == "throughput" and row.get("global_batch"):
        return float(row["global_batch"]) / value
    return float(row["gpu_count"]) / value if row.get("metric") == "aggregate_steps_per_s" else None


def fit_constants(sources: Iterable[Sequence[tuple[Work, float]]]) -> Constants:
    """Constants with the highest posterior density, given the works of some sources."""
    groups: list[list[Work]] = []
    for source in sources:
        by_gpu: dict[object, list[Work]] = {}
        for work, _ in source:
            by_gpu.setdefault(work.gpu, []).append(work)
        groups += [Random(str(gpu)).sample(works, min(30, len(works))) for gpu, works in by_gpu.items()]
    slopes = [[(w, s) for w in works if (s := observed_slope(w)) is not None] for works in groups]
    excesses = [
        [(w, math.log(max(implied_excess(w, 2), CONSTANTS.least_excess))) for w in works if 2 in w.seconds]
        for works in groups
    ]

    def fit(rows: list[list[tuple[Work, float]]], start: Sequence[float]) -> list[float]:
        def cost(vector: np.ndarray) -> float:
            mean, (gpu, model, own) = vector[0], np.exp(vector[1:])
            total = 0.5 * float(np.sum(((vector[1:] - start[1:]) / 0.7) ** 2))
            for group in rows:
                if not group:
                    continue
                covariance = effects_covariance([w for w, _ in group], gpu, model, own)
                residual = np.array([value for _, value in group]) - mean
                squares = float(residual @ np.linalg.solve(covariance, residual))
                total += 0.5 * float(np.linalg.slogdet(covariance)[1])
                total += (CONSTANTS.freedom + len(group)) / 2 * math.log1p(squares / CONSTANTS.freedom)
            return total

        best = minimize(cost, np.array(start), method="Nelder-Mead", options={"maxiter": 300})
        return [float(best.x[0]), *(float(size) for size in np.exp(best.x[1:]))]

    start = [0.03, math.log(0.08), math.log(0.08), math.log(0.06)]
    slope, slope_gpu, slope_model, slope_work = fit(slopes, start)
    start = [math.log(0.08), math.log(0.7), math.log(0.7), math.log(0.5)]
    excess, excess_gpu, excess_model, excess_work = fit(excesses, start)
    return replace(
        CONSTANTS, slope=slope, slope_gpu=WIDER_SLOPE * slope_gpu, slope_model=WIDER_SLOPE * slope_model,
        slope_work=WIDER_SLOPE * slope_work, excess=math.exp(excess), excess_gpu=WIDER_EXCESS * excess_gpu,
        excess_model=WIDER_EXCESS * excess_model, excess_work=WIDER_EXCESS * excess_work,
    )  # fmt: skip


def choose_history(
    works: Sequence[tuple[Work, float]], target: Work, size: float, history: str, random: Random
) -> list[Work]:
    """Works of other models on the same GPU, up to three of each of five; and one other batch size of the model."""
    if history == "none":
        return []
    models: dict[object, list[Work]] = {}
    for work, _ in works:
        if work.gpu == target.gpu and work.model != target.model and len(work.seconds) > 2:
            models.setdefault(work.model, []).append(work)
    chosen = random.sample(sorted(models, key=str), min(5, len(models)))
    found = [work for model in chosen for work in random.sample(models[model], min(3, len(models[model])))]
    if history == "model":
        same = [w for w, s in works if w.gpu == target.gpu and w.model == target.model and s != size]
        found += random.sample(same, min(1, len(same)))
    return found


def score(
    name: str, works: Sequence[tuple[Work, float]], gpus: int, known: Sequence[int], history: str, constants: Constants
) -> Score | None:
    """Scores of one source; None if it has no such work."""
    rows: list[tuple[float, ...]] = []
    for at, (work, size) in enumerate(works):
        if not {1, 2, gpus} <= work.seconds.keys():
            continue
        seen = choose_history(works, work, size, history, Random(f"{name} {at}"))
        asked = work._replace(seconds={count: work.seconds[count] for count in known})
        ratio = Scaling(seen, constants=constants).predict(asked, gpus)
        rows.append((work.seconds[gpus] / work.seconds[1], *ratio))
    return _score(name, gpus, "+".join(map(str, known)), history, rows) if rows else None


def _score(name: str, gpus: int, known: str, history: str, rows: Sequence[tuple[float, ...]]) -> Score:
    true, value, low, high = np.array(rows).T
    error = 100 * np.abs(value / true - 1)
    return Score(
        name, gpus, known, history, len(rows), float(error.mean()), float(np.median(error)),
        float(np.quantile(error, 0.9)), float(100 * np.mean((low <= true) & (true <= high))),
        float(np.median(np.sqrt(high / low))),
    )  # fmt: skip


def fit_best(works: Iterable[Work], gpus: int) -> tuple[float, float, float]:
    """Lowest mean error in % that another form reaches if its two constants are fitted to the scored works themselves.

    In this form, computation hides a share ``hidden`` of the communication, and the rest grows by ``contention`` per
    doubling of the GPUs more than that of a ring. Returns the error and both constants.
    """
    pairs = [
        (max(0.0, work.seconds[2] / work.seconds[1] - 1), work.seconds[gpus] / work.seconds[1])
        for work in works
        if {1, 2, gpus} <= work.seconds.keys()
    ]
    excess, true = np.array(pairs).T
    ring, doublings = 2 * (gpus - 1) / gpus, math.log2(gpus / 2)
    found = []
    for hidden in (0.0, 0.02, 0.05, 0.1, 0.2, 0.4):
        for contention in np.arange(-0.2, 0.81, 0.05):
            grown = (excess + hidden) * ring * math.exp(contention * doublings) - hidden
            error = 100 * float(np.mean(np.abs((1 + np.maximum(0.0, grown)) / true - 1)))
            found.append((error, hidden, float(contention)))
    return min(found)


def score_nodes(name: str, works: Sequence[tuple[Work, float]], nodes: int) -> Score | None:
    """Scores of the step time on ``nodes`` nodes, predicted as that on two."""
    rows = [
        (work.seconds[nodes], *more_nodes(work.seconds[2])) for work, _ in works if {1, 2, nodes} <= work.seconds.keys()
    ]
    return _score(name, nodes, "2 nodes", "none", rows) if rows else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the scores of all given files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, help="CSV files")
    parser.add_argument("--gpus", type=int, nargs="+", default=[4, 8], help="numbers of GPUs to predict")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--refit", action="store_true", help="fit the constants without the source that is scored")
    parser.add_argument("--fit", action="store_true", help="print the constants that fit all given files")
    parser.add_argument(
        "--best", action="store_true", help="print the lowest error of another form, fitted to each file"
    )
    given = parser.parse_args(arguments)
    read = {path.stem: read_works(path) for path in given.paths}
    several = {path.stem: read_works(path, nodes=True) for path in given.paths}
    if given.fit:
        print(fit_constants(read.values()))
        return 0
    if given.best:
        for name, works in read.items():
            for gpus in given.gpus:
                error, hidden, contention = fit_best((work for work, _ in works), gpus)
                print(
                    f"{name:10} {gpus} from 1+2  error {error:5.1f} %  hidden {hidden:.2f}  contention {contention:.2f}"
                )
        return 0
    if given.refit and len(read) < 2:
        parser.error("--refit needs at least two files")
    scores: list[Score] = []
    for name, works in read.items():
        constants = CONSTANTS
        if given.refit:
            constants = fit_constants(other for key, other in read.items() if key != name)
        mine = [
            score(name, works, gpus, known, history, constants)
            for known in ((1, 2), (1,))
            for gpus in given.gpus
            for history in HISTORIES
        ]
        mine += [score_nodes(name, several[name], count) for count in (3, 4)]
        scores += [one for one in mine if one is not None]
        for one in filter(None, mine if given.format == "table" else ()):
            print(
                f"{name:10} {one.gpus} from {one.known:7}  history {one.history:6}  n {one.works:3}  error "
                f"{one.mean:5.1f} / {one.median:5.1f} / {one.p90:5.1f} %  coverage {one.coverage:5.1f} %  "
                f"x{one.factor:.2f}",
                flush=True,
            )
    if given.format == "json":
        print(json.dumps([asdict(one) for one in scores], indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
