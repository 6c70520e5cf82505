"""Score predictions for machines that were never probed on tables of step times on several GPUs.

    python tests/benchmarks/prediction.py FOLDER_OR_CSV... [--format json]

Each CSV has the columns source, model, precision, config, batch_size, gpu, gpu_count, nodes, time and time_unit. Rows
with several GPUs are ignored. For every work and every GPU on which it was measured, that GPU is the probe and all
others are predicted. The history consists of other models of the same source, so no source informs another one.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd

from vmselect.prediction.figures import figures_of, read_precision
from vmselect.prediction.posterior import CONSTANTS, Constants, Point, Target, predict_log_times

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
    rows = rows[(rows["gpu_count"] == 1) & (rows["nodes"] == 1)]
    found: Source = {}
    missing: set[str] = set()
    keys = ["model", "precision", "config", "batch_size", "gpu"]
    per_item = rows["time_unit"].eq("s/item/gpu")
    rows = rows.assign(
        config=[text if isinstance(text, str) else "" for text in rows["config"].astype(object)],
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


def predictions(
    source: Source, *, probes: int, models: int, constants: Constants = CONSTANTS, seed: int = 0
) -> Iterator[tuple[str, tuple[str, ...], str, float, float, float, float]]:
    """Model, work, GPU, measured log time, predicted log time, lower and upper bound of every prediction."""
    for model, works in source.items():
        random = Random(f"{seed} {model}")
        chosen = list(works) if len(works) <= MAX_WORKS else random.sample(sorted(works), MAX_WORKS)
        others = sorted(set(source) - {model})
        for work in chosen:
            points = works[work]
            history = [
                point
                for other in random.sample(others, min(models, len(others)))
                for their in random.sample(sorted(source[other]), min(3, len(source[other])))
                for point in source[other][their].values()
            ]
            for probed in combinations(sorted(points), probes):
                rest = [gpu for gpu in sorted(points) if gpu not in probed]
                if not rest:
                    continue
                result = predict_log_times(
                    [points[gpu] for gpu in probed], [points[gpu].target for gpu in rest],
                    history=history, constants=constants,
                )  # fmt: skip
                low, high = result.interval(0.9)
                for at, gpu in enumerate(rest):
                    yield model, work, gpu, points[gpu].log_seconds, result.mean[at], low[at], high[at]


def score(name: str, source: Source, *, probes: int, models: int, constants: Constants = CONSTANTS) -> Score | None:
    """Scores of one source; None if it has too few GPUs."""
    rows = list(predictions(source, probes=probes, models=models, constants=constants))
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the scores of all given files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, help="CSV files, or folders of them")
    parser.add_argument("--probes", type=int, nargs="+", default=[1, 2], help="number of probed GPUs")
    parser.add_argument("--history", type=int, nargs="+", default=[0, 5], help="number of models in the history")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    given = parser.parse_args(arguments)
    files = [file for path in given.paths for file in (sorted(path.glob("*.csv")) if path.is_dir() else [path])]
    scores = []
    for file in files:
        source, missing = read_source(file)
        if missing and given.format == "table":
            print(f"{file.stem}: no published figures of {', '.join(missing)}")
        for probes in given.probes:
            for models in given.history:
                one = score(file.stem, source, probes=probes, models=models)
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
