"""Score predictions for machines that were never probed on tables of step times on several GPUs.

    python tests/benchmarks/prediction.py FOLDER_OR_CSV...            # with the shipped constants, about two minutes
    python tests/benchmarks/prediction.py FOLDER --refit              # leave one source out, about ten minutes
    python tests/benchmarks/prediction.py FOLDER --zero               # from descriptions, about fifteen minutes

Each CSV has the columns source, model, precision, config, batch_size, gpu, gpu_count, nodes, time and time_unit. All
but model, gpu and time may be missing. Rows with several GPUs are ignored. For every work and every GPU on which it was
measured, that GPU is the probe and all others are predicted. The history consists of other models of the same source.

With ``--second chosen``, only the first of two probes is any GPU; the second is the one whose probe is expected to
reduce the variance of the other predictions most, as a user who probes twice would choose without regard to prices.

With ``--refit``, the constants of the model are fitted to all given sources except the scored one and those whose names
begin with the same word. The fit maximizes the likelihood of the ratios of times, with weak priors that were chosen
before looking at any source.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from vmselect.catalog.gpus import figures_of, read_precision
from vmselect.prediction.posterior import (
    CONSTANTS,
    Computation,
    Constants,
    Point,
    Target,
    _center,
    _own_covariance,
    _Rows,
    _shared_covariance,
    predict_log_times,
)

USUAL = {"precision": "fp32", "config": "", "batch_size": float("nan"), "gpu_count": 1, "nodes": 1, "time_unit": ""}
"""Values of columns that a table may lack."""
MAX_WORKS = 6
"""Works of each model that are predicted, so that a source with many batch sizes takes no hours."""
Work = dict[str, Point]
Source = dict[str, dict[tuple[str, ...], Work]]


@dataclass(frozen=True)
class Score:
    """Errors in % (relative to the measured time) and share of measured times inside 90 % intervals."""

    source: str
    probes: int
    history: int
    pairs: int
    mean: float
    median: float
    p90: float
    coverage: float
    factor: float


def read_source(path: Path) -> tuple[Source, list[str]]:
    """Points by model and work, with the median over hosts; and the GPUs without published figures."""
    rows = pd.read_csv(path)
    rows = rows.assign(**{name: value for name, value in USUAL.items() if name not in rows.columns})
    rows = rows[(rows["gpu_count"] == 1) & (rows["nodes"] == 1)]
    found: Source = {}
    missing: set[str] = set()
    keys = ["model", "precision", "config", "batch_size", "gpu"]
    per_item = rows["time_unit"].eq("s/item/gpu")
    rows = rows.assign(
        config=[text if isinstance(text, str) else "" for text in rows["config"].astype(object)],
        precision=rows["precision"].fillna(USUAL["precision"]),
        batch_size=rows["batch_size"].where(~per_item).fillna(0.0),
    )
    # Times per epoch or item are no step times: they are only comparable, so they must not count as short steps.
    unit = rows["time_unit"].map({"ms/step": 1e-3, "s/step": 1.0}).fillna(1e9)
    rows = rows.assign(time=rows["time"] * unit)
    for (model, precision, config, size, gpu), seconds in rows.groupby(keys)["time"].median().items():
        figures = figures_of(str(gpu))
        if figures is None:
            missing.add(str(gpu))
            continue
        work = (str(model), str(precision), config, str(size))
        point = Point(str(model), work, Target(figures, read_precision(str(precision))), math.log(seconds))
        found.setdefault(str(model), {}).setdefault(work, {})[str(gpu)] = point
    usable = {model: {k: w for k, w in works.items() if len(w) > 1} for model, works in found.items()}
    return {model: works for model, works in usable.items() if works}, sorted(missing)


def keep_complete(source: Source) -> Source:
    """The works that were measured on every GPU of the source."""
    gpus = {gpu for works in source.values() for work in works.values() for gpu in work}
    kept = {model: {k: w for k, w in works.items() if len(w) == len(gpus)} for model, works in source.items()}
    return {model: works for model, works in kept.items() if works}


def predictions(
    source: Source,
    *,
    probes: int,
    models: int,
    constants: Constants = CONSTANTS,
    most: int = MAX_WORKS,
    seed: int = 0,
    by_variance: bool = False,
) -> Iterator[tuple[str, tuple[str, ...], str, float, float, float, float]]:
    """Model, work, GPU, measured log time, predicted log time, lower and upper bound of every prediction."""
    for model, works in source.items():
        random = Random(f"{seed} {model}")
        chosen = sorted(works) if len(works) <= most else random.sample(sorted(works), most)
        others = sorted(set(source) - {model})
        for work in chosen:
            points = works[work]
            history = [
                point
                for other in random.sample(others, min(models, len(others)))
                for their in random.sample(sorted(source[other]), min(3, len(source[other])))
                for point in source[other][their].values()
            ]
            sets = list(combinations(sorted(points), probes))
            if by_variance and probes == 2:
                sets = [(first, choose_second(points, first, history, constants)) for first in sorted(points)]
            for probed in sets:
                rest = [gpu for gpu in sorted(points) if gpu not in probed]
                if not rest:
                    continue
                first = points[rest[0]]
                result = predict_log_times(
                    [points[gpu] for gpu in probed], [points[gpu].target for gpu in rest], history=history,
                    computation=Computation(first.model, first.work, first.cost), constants=constants,
                )  # fmt: skip
                low, high = result.interval(0.9)
                for at, gpu in enumerate(rest):
                    yield model, work, gpu, points[gpu].log_seconds, result.mean[at], low[at], high[at]


def choose_second(work: Work, first: str, history: Sequence[Point], constants: Constants) -> str:
    """The GPU whose probe, after that of ``first``, is expected to reduce the variance of the others most."""
    rest = [gpu for gpu in sorted(work) if gpu != first]
    known = predict_log_times(
        [work[first]], [work[gpu].target for gpu in rest], history=history, constants=constants
    ).covariance
    gains = (known**2).sum(axis=0) / np.diag(known)
    return rest[int(np.argmax(gains))]


def score(
    name: str,
    source: Source,
    *,
    probes: int,
    models: int,
    constants: Constants = CONSTANTS,
    works: int = MAX_WORKS,
    by_variance: bool = False,
) -> Score | None:
    """Scores of one source; None if it has too few GPUs."""
    given = {"probes": probes, "models": models, "constants": constants, "most": works, "by_variance": by_variance}
    rows = list(predictions(source, **given))
    if not rows:
        return None
    true, mean, low, high = np.array([row[3:] for row in rows]).T
    error = 100 * np.abs(np.exp(mean - true) - 1)
    inside = 100 * np.mean((low <= true) & (true <= high))
    width = float(np.exp(np.median(high - low) / 2))
    return Score(
        name, probes, models, len(rows), float(error.mean()), float(np.median(error)),
        float(np.quantile(error, 0.9)), float(inside), width,
    )  # fmt: skip


START = Constants(
    slopes=(-0.25, -0.25, -0.40), shared_slopes=0.1, model_slopes=(0.1, 0.1, 0.15), work_share=0.75, gpu=0.15,
    architecture=0.2, model_family=0.1, model_gpu=0.1, work_gpu=0.1,
)  # fmt: skip
"""Centers of the priors of a fit."""
WIDER = {"shared_slopes": 2.0, "gpu": 1.5, "architecture": 1.25}
"""Factors of fitted deviations that all models of a source share: few sources and GPUs underestimate them."""
DEVIATIONS = ("shared_slopes", "work_share", "gpu", "architecture", "model_family", "model_gpu", "work_gpu")


def _as_vector(c: Constants) -> np.ndarray:
    return np.array([*c.slopes, *np.log([*c.model_slopes, *(getattr(c, name) for name in DEVIATIONS)])])


def _as_constants(vector: np.ndarray) -> Constants:
    sizes = [float(size) for size in np.exp(vector[3:])]
    rest = dict(zip(DEVIATIONS, sizes[3:], strict=True))
    first, second, third = (float(slope) for slope in vector[:3])
    return replace(CONSTANTS, slopes=(first, second, third), model_slopes=(sizes[0], sizes[1], sizes[2]), **rest)


def fit_constants(sources: Sequence[Source], *, iterations: int = 20) -> Constants:
    """Constants with the highest posterior density, given up to three works without short steps of each model.

    Deviations that all models share are multiplied by :data:`WIDER`.
    """
    data = []
    for source in sources:
        points = [
            point
            for model, works in sorted(source.items())
            for work in Random(model).sample(sorted(works), min(3, len(works)))
            if min(p.log_seconds for p in works[work].values()) > math.log(CONSTANTS.short_seconds)
            for point in works[work].values()
        ]
        if points:
            data.append((_Rows.of(points, [], CONSTANTS), np.array([point.log_seconds for point in points])))
    center = _as_vector(START)
    spread = np.array([0.2] * 3 + [0.7] * (len(center) - 3))

    def cost(vector: np.ndarray) -> float:
        c, total = _as_constants(vector), 0.5 * float(np.sum(((vector - center) / spread) ** 2))
        for rows, times in data:
            works = rows.keys["work"]
            residual, _ = _center(rows, times - rows.features @ np.array(c.slopes))
            own, unknown = _own_covariance(rows, c)
            factor = cho_factor(own + unknown + _shared_covariance(rows, c) + 1e-6 * np.eye(len(times)))
            squares = float(residual @ cho_solve(factor, residual))
            many = len(times) - len(set(works))
            total += float(np.log(np.diag(factor[0])).sum())
            total += (c.freedom + many) / 2 * math.log1p(squares / c.freedom)
        return total

    best = minimize(cost, center, method="L-BFGS-B", options={"maxiter": iterations})
    fitted = _as_constants(best.x)
    return replace(fitted, **{name: factor * getattr(fitted, name) for name, factor in WIDER.items()})


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the scores of all given files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, help="CSV files, or folders of them")
    parser.add_argument("--probes", type=int, nargs="+", default=[1, 2], help="number of probed GPUs")
    parser.add_argument("--history", type=int, nargs="+", default=[0, 5], help="number of models in the history")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--refit", action="store_true", help="fit the constants without the source that is scored")
    parser.add_argument("--iterations", type=int, default=20, help="most iterations of a fit")
    parser.add_argument("--works", type=int, default=MAX_WORKS, help="most works of each model that are predicted")
    parser.add_argument("--only", nargs="+", default=None, help="names of the sources that are scored")
    parser.add_argument("--complete", action="store_true", help="use only works that were measured on every GPU")
    parser.add_argument("--second", choices=("any", "chosen"), default="any", help="how the second probe is chosen")
    parser.add_argument(
        "--zero", action="store_true", help="score predictions from descriptions, with constants of other sources"
    )
    given = parser.parse_args(arguments)
    if given.zero:
        sys.path.insert(0, str(Path(__file__).parent))
        from zero_probes import print_tables

        for folder in given.paths:
            print_tables(folder, given.only)
        return 0
    files = [file for path in given.paths for file in (sorted(path.glob("*.csv")) if path.is_dir() else [path])]
    read = {file.stem: read_source(file) for file in files}
    scores = []
    for name, (source, missing) in read.items():
        if given.only is not None and name not in given.only:
            continue
        constants = CONSTANTS
        if given.refit:
            others = [other for key, (other, _) in read.items() if key.split("_")[0] != name.split("_")[0]]
            if not others:
                parser.error(f"--refit needs other sources than {name}")
            constants = fit_constants(others, iterations=given.iterations)
        if missing and given.format == "table":
            print(f"{name}: no published figures of {', '.join(missing)}")
        for probes in given.probes:
            for models in given.history:
                one = score(
                    name, keep_complete(source) if given.complete else source, probes=probes, models=models,
                    constants=constants, works=given.works,
                    by_variance=given.second == "chosen",
                )  # fmt: skip
                if one is None:
                    continue
                scores.append(one)
                if given.format == "table":
                    print(
                        f"{one.source:13} probes {probes}  history {models}  n {one.pairs:5}  error {one.mean:5.1f} / "
                        f"{one.median:5.1f} / {one.p90:6.1f} %  coverage {one.coverage:5.1f} %  x{one.factor:.2f}",
                        flush=True,
                    )
    if given.format == "json":
        print(json.dumps([asdict(one) for one in scores], indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
