"""Errors and coverage of the intervals on published measurements, per source and with each source left out.

    python tests/benchmarks/intervals.py FILE...                # a table per kind of measurement
    python tests/benchmarks/intervals.py FILE... --leave-out    # constants chosen on all other sources
    python tests/benchmarks/intervals.py FILE... --tasks        # a line per task or model of a source
    python tests/benchmarks/intervals.py FILE... --growth       # errors by the growth of the step time with the size

A FILE is a CSV file (or .csv.gz) with the columns of one of these layouts:

- units of work: run, unit, start_s, duration_s. A run is named version/submitter/system/task/number.
- cumulative times: source, task, entry, epoch, hours
- times at several batch sizes: source, model, batch_size, metric, value; or source, model, batch_size, time

The first three or five units of a run are seen, and the whole run is predicted, and the next run of the same system.
Of times at several batch sizes, every pair and triple of sizes is seen, and the sizes between are predicted. The
measurements are not part of vmselect.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

import vmselect as vs
from vmselect.estimation import batch_sizes, robust
from vmselect.estimation.runtime import RuntimeEstimate

SEEN = (3, 5)
OTHER_UNITS = {("minigo", "epoch"), ("dlrm", "epoch"), ("dlrm", "block"), ("bert", "epoch")}
"""Units of MLPerf's logs that are not equal amounts of work."""
SPREADS = (0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02)
WIDTHS = (0.05, 0.06, 0.07, 0.08, 0.09, 0.1, 0.12)
MAX_SETS = 40
GROWTH = (-np.inf, 0.2, 0.4, 0.6, 0.8, 0.95, 1.05, np.inf)
WANTED = 0.9
SETUP = ("model", "dataset", "precision", "config", "gpu", "gpu_count", "nodes", "host", "instance_type", "power_limit")


class Run(NamedTuple):
    """Times of the units of work of one run. Runs with the same ``group`` repeat each other."""

    source: str
    task: str
    group: str
    seconds: list[float]


class Sizes(NamedTuple):
    """Step times of one setup by batch size."""

    source: str
    model: str
    times: dict[int, float]


class Score(NamedTuple):
    """One prediction: its relative error, that of "first + median", whether the interval held, its half-width."""

    source: str
    task: str
    seen: str
    error: float
    simple: float
    inside: bool
    width: float


def read(path: Path) -> Iterator[Run | Sizes]:
    """All runs or setups of a file, by its columns."""
    data = pd.read_csv(path)
    columns = set(data.columns)
    if {"run", "unit", "duration_s"} <= columns:
        yield from _read_units(data)
    elif {"entry", "task", "hours"} <= columns:
        for (task, entry), part in data.groupby(["task", "entry"]):
            hours = part.sort_values("epoch")["hours"].to_numpy(dtype=float)
            seconds = np.diff(hours, prepend=0.0) * 3600
            yield Run(str(part["source"].iloc[0]), str(task), str(entry), seconds.tolist())
    elif {"batch_size", "source"} <= columns and columns & {"value", "time"}:
        yield from _read_sizes(data)
    else:
        sys.exit(f"{path}: unknown columns. See --help for the layouts.")


def _read_units(data: pd.DataFrame) -> Iterator[Run]:
    for (name, unit), part in data[data["unit"] != "eval"].groupby(["run", "unit"]):
        version, *_, task, _ = str(name).split("/")
        if (task, unit) in OTHER_UNITS:
            continue
        seconds = part.sort_values("start_s")["duration_s"].to_list()
        yield Run(f"MLPerf {version}", f"{task} {unit}", f"{str(name).rsplit('/', 1)[0]} {unit}", seconds)


def _read_sizes(data: pd.DataFrame) -> Iterator[Sizes]:
    value = "time" if "time" in data.columns else "value"
    metric = data["metric"] if "metric" in data.columns else pd.Series("time", index=data.index)
    if (metric == "iteration_ms").any():
        data = data[metric == "iteration_ms"]
    data = data[data[value] > 0].copy()
    if (metric == "aggregate_steps_per_s").any():
        data = data[~(data["gpu"].str.contains("V100") & (data["gpu_count"] == 4))]  # contradict the others
        data[value] = data["gpu_count"] / data[value]
        data["config"] = data["note"]
    elif (metric == "epoch_s").all() or ("time_unit" in data.columns and (data["time_unit"] == "s/epoch").any()):
        data[value] *= data["batch_size"]
    if "optimizer" in data.columns:
        data["config"] = data["optimizer"]
    known = [name for name in SETUP if name in data.columns]
    for _, part in data.groupby(["source", *known], dropna=False):
        times = {int(size): float(t) for size, t in part.groupby("batch_size")[value].median().items()}
        if len(times) > 2:
            yield Sizes(str(part["source"].iloc[0]), str(part["model"].iloc[0]), times)


def pair_runs(runs: Sequence[Run]) -> Iterator[tuple[str, Run, list[float]]]:
    """What is seen, the run to predict, and the units that are seen: its own first ones, and those of another run."""
    before: dict[str, Run] = {}
    for run in runs:
        earlier, before[run.group] = before.get(run.group), run
        for seen in SEEN:
            for probed, how in ((run, "of the run"), (earlier, "of another run")):
                if probed and min(len(probed.seconds), len(run.seconds)) > seen and min(*probed.seconds[:seen]) > 0:
                    yield f"{seen} units {how}", run, probed.seconds[:seen]


def estimate_units(units: Sequence[float], count: int) -> RuntimeEstimate:
    """Estimate of a run of ``count`` units, the first of which took ``units`` seconds."""
    profile = vs.Profile.from_times(first_epoch_seconds=units[0], later_epoch_seconds=list(units[1:]))
    return vs.estimate(profile, epochs=count)


def predict_runs(runs: Sequence[Run]) -> Iterator[Score]:
    """Scores of whole runs, predicted from their own first units and from those of the previous run."""
    for seen, run, units in pair_runs(runs):
        count, true = len(run.seconds), sum(run.seconds)
        found = estimate_units(units, count)
        simple = units[0] + float(np.median(units[1:])) * (count - 1)
        inside, width = found.low <= true <= found.high, (found.high - found.low) / 2 / found.seconds
        errors = abs(found.seconds / true - 1), abs(simple / true - 1)
        yield Score(run.source, run.task, seen, *errors, inside, width)


Probed = tuple[int, ...]


def interpolate_sizes(setups: Sequence[Sizes]) -> Iterator[tuple[Sizes, Probed, int, batch_sizes.StepTime]]:
    """Setup, probed sizes, and a size between them with its estimate.

    Of each setup, at most ``MAX_SETS`` pairs and triples of sizes are probed, chosen at random.
    """
    random = np.random.default_rng(0)
    for setup, count in itertools.product(setups, (2, 3)):
        sets = list(itertools.combinations(sorted(setup.times), count))
        if len(sets) > MAX_SETS:
            sets = [sets[index] for index in random.choice(len(sets), MAX_SETS, replace=False)]
        for chosen in sets:
            known = {size: setup.times[size] for size in chosen}
            for size in sorted(set(setup.times) - set(chosen)):
                if chosen[0] < size < chosen[-1]:
                    yield setup, chosen, size, batch_sizes.interpolate_time(known, size)


def predict_sizes(setups: Sequence[Sizes]) -> Iterator[Score]:
    """Scores of the sizes between two and three probed ones."""
    for setup, chosen, size, at in interpolate_sizes(setups):
        true = setup.times[size]
        inside = at.value * (1 - at.below) <= true <= at.value * (1 + at.above)
        error, width = abs(at.value / true - 1), (at.below + at.above) / 2
        yield Score(setup.source, setup.model, f"{len(chosen)} sizes", error, error, inside, width)


def print_growth(setups: Sequence[Sizes]) -> None:
    """Quantiles of the error between two sizes, by the exponent with which the step time grows from one to the other.

    The exponent is 0 for a constant step time, and 1 for one in proportion to the batch size. It is all that two probed
    sizes show of a training.
    """
    rows = []
    for setup in setups:
        for low, high in itertools.combinations(sorted(setup.times), 2):
            known = {size: setup.times[size] for size in (low, high)}
            exponent = float(np.log(known[high] / known[low]) / np.log(high / low))
            for size in setup.times:
                if low < size < high:
                    error = setup.times[size] / batch_sizes.interpolate_time(known, size).value - 1
                    rows.append((setup.source, exponent, 100 * error))
    table = pd.DataFrame(rows, columns=["source", "exponent", "error"])
    table["growth"] = pd.cut(table["exponent"], GROWTH).astype(str)
    print("\n| growth | source | cases | 5 % | median | 95 % |\n|---|---|---:|---:|---:|---:|")
    for (growth, source), part in table.groupby(["growth", "source"])["error"]:
        low, middle, high = part.quantile([0.05, 0.5, 0.95])
        print(f"| {growth} | {source} | {len(part)} | {low:+.0f} | {middle:+.0f} | {high:+.0f} |")


def summarize(scores: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Mean error, that of "first + median", median error, coverage and median half-width in percent."""
    grouped = scores.groupby(by)
    columns = {
        "cases": grouped.size(),
        "error": 100 * grouped["error"].mean(),
        "first + median": 100 * grouped["simple"].mean(),
        "median error": 100 * grouped["error"].median(),
        "coverage": 100 * grouped["inside"].mean(),
        "half-width": 100 * grouped["width"].median(),
    }
    return pd.DataFrame(columns).round(2)


def leave_out(runs: Sequence[Run], setups: Sequence[Sizes]) -> None:
    """For each source, its coverage with the constant with which the others are covered nearest to 90 %."""
    for items, predict, module, constant, values in (
        (runs, predict_runs, robust, "EPOCH_SPREAD", SPREADS),
        (setups, predict_sizes, batch_sizes, "INTERPOLATION_WIDTH", WIDTHS),
    ):
        if len({item.source for item in items}) < 2:
            continue
        usual = getattr(module, constant)
        tables = {}
        for number, value in enumerate(values, 1):
            print(f"{constant} {value} ({number} of {len(values)})", file=sys.stderr)
            setattr(module, constant, value)
            tables[value] = pd.DataFrame(predict(items))  # type: ignore[operator]
        setattr(module, constant, usual)
        print(f"\n| source left out | {constant} chosen on the others | coverage | half-width |\n|---|---:|---:|---:|")
        for source in sorted({item.source for item in items}):
            value = min(tables, key=lambda one: abs(_coverage(tables[one], without=source) - WANTED))
            mine = tables[value][tables[value]["source"] == source]
            print(f"| {source} | {value} | {100 * mine['inside'].mean():.0f} | {100 * mine['width'].median():.1f} |")


def _coverage(scores: pd.DataFrame, *, without: str) -> float:
    """Mean over the sources of their coverage, so that large sources do not decide."""
    others = scores[scores["source"] != without]
    return float(others.groupby("source")["inside"].mean().mean())


def print_table(table: pd.DataFrame) -> None:
    names = [*table.index.names, *table.columns]
    print("\n| " + " | ".join(map(str, names)) + " |\n|" + "---|" * table.index.nlevels + "---:|" * len(table.columns))
    for key, row in table.iterrows():
        cells = [*(key if isinstance(key, tuple) else (key,)), f"{row['cases']:.0f}", *(f"{x:.2f}" for x in row[1:])]
        print("| " + " | ".join(map(str, cells)) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--leave-out", action="store_true", help="choose constants on all other sources")
    parser.add_argument("--tasks", action="store_true", help="a line per task or model of a source")
    parser.add_argument("--growth", action="store_true", help="errors by the growth of the step time between two sizes")
    options = parser.parse_args()
    items = [item for path in options.files for item in read(path)]
    runs, setups = ([item for item in items if isinstance(item, kind)] for kind in (Run, Sizes))
    print(f"vmselect {vs.__version__}: {len(runs)} runs, {len(setups)} setups with several batch sizes")
    if options.leave_out:
        leave_out(runs, setups)
        return
    if options.growth:
        print_growth(setups)
        return
    for scores in (pd.DataFrame(predict_runs(runs)), pd.DataFrame(predict_sizes(setups))):
        if len(scores):
            print_table(summarize(scores, ["seen", "source", "task"] if options.tasks else ["seen", "source"]))
            print_table(summarize(scores.assign(source="all"), ["seen", "source"]))


if __name__ == "__main__":
    main()
