"""How well methodology 1 predicts, on other people's measurements; prints the tables that the documentation quotes.

    python tests/benchmarks/methodology1.py FOLDER

FOLDER holds profet_dev.csv, gavel.csv, zeus_epoch_time.csv, zeus_epochs_to_target_dev.csv, pollux_convergence.csv and
dawnbench_epochs_dev.csv. None of these data are part of vmselect.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

import vmselect as vs
from vmselect.convergence import ConvergenceRun, Curve, StoppingRule
from vmselect.convergence.epochs import REACH, predict_epochs
from vmselect.convergence.forecast import forecast_epochs
from vmselect.estimation.along import interpolate_time

Probes = Callable[[Sequence[int]], Iterable[tuple[int, ...]]]
POLLUX_TARGETS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0)
FALLING = ("deepspeech2", "yolov3")  # error rates; the other Pollux models are scored by accuracies


def main(folder: Path) -> None:
    """Print every table."""
    step_times(folder)
    zeus_epochs(folder)
    pollux_bracket(folder)
    partial_curves(folder)


# -- step time across batch sizes --------------------------------------------------------------------------------------


def step_times(folder: Path) -> None:
    """Times at batch sizes that were left out, on machines that the widths were chosen on and on others."""
    two, three = (lambda sizes, k=k: itertools.combinations(sizes, k) for k in (2, 3))
    ends: Probes = lambda sizes: [(sizes[0], sizes[-1])]  # noqa: E731
    middle: Probes = lambda sizes: [(sizes[0], sizes[len(sizes) // 2], sizes[-1])]  # noqa: E731
    for source, setups in read_step_times(folder).items():
        print(f"TIME AT HELD-BACK BATCH SIZES ({source}, {len(setups)} setups)")
        header("probes", "sizes", "held back", "mean", "median", "90 %", "in interval")
        for name, probes, where in (
            ("two, every pair", two, "between"),
            ("two, the ends", ends, "between"),
            ("three, every triple", three, "between"),
            ("three, ends and middle", middle, "between"),
            ("two, every pair", two, "up to twice"),
            ("three, every triple", three, "up to twice"),
        ):
            report(name, where, list(held_back(setups, probes, beyond=where != "between")))
        print()


def read_step_times(folder: Path) -> dict[str, list[dict[int, float]]]:
    """By source, for each setup: batch size to the time of a step.

    PROFET: nine Keras CNNs on four AWS GPU machines, 16 to 256 images a step, medians of nine repeats. gavel: seven
    jobs on 1 to 8 GPUs, without the V100 rows of four GPUs, which contradict the others. Zeus: epoch times at many
    power limits, of which every sixth setup is taken.
    """
    profet = pd.read_csv(folder / "profet_dev.csv")
    profet = profet[profet["metric"] == "iteration_ms"]
    gavel = pd.read_csv(folder / "gavel.csv")
    gavel = gavel[(gavel["value"] > 0) & ~(gavel["gpu"].str.contains("V100") & (gavel["gpu_count"] == 4))]
    gavel["value"] = gavel["gpu_count"] / gavel["value"]  # steps per second, summed over workers
    zeus = pd.read_csv(folder / "zeus_epoch_time.csv")
    zeus["value"] *= zeus["batch_size"]  # in proportion to the time of a step
    volta = gavel["gpu"].str.contains("V100")
    jobs = ["model", "dataset", "gpu", "gpu_count", "note"]
    return {
        "PROFET, chosen on": by_size(profet, ["model", "dataset", "instance_type"]),
        "gavel K80 and P100, chosen on": by_size(gavel[~volta], jobs),
        "gavel V100, kept back": by_size(gavel[volta], jobs),
        "Zeus epochs, kept back": by_size(zeus, ["model", "dataset", "gpu", "power_limit", "optimizer"])[::6],
    }


def by_size(data: pd.DataFrame, setup: list[str]) -> list[dict[int, float]]:
    """For each setup with three sizes or more, the median time by batch size."""
    setups = [
        {int(size): float(value) for size, value in part.groupby("batch_size")["value"].median().items()}
        for _, part in data.groupby(setup, dropna=False)
    ]
    return [times for times in setups if len(times) > 2]


def held_back(setups: Sequence[dict[int, float]], probes: Probes, *, beyond: bool) -> Iterator[tuple[float, bool]]:
    """Relative error, and whether the interval held the truth, for every size that was left out."""
    for times in setups:
        for chosen in probes(sorted(times)):
            known = {size: times[size] for size in chosen}
            low, high = min(chosen), max(chosen)
            for size in sorted(set(times) - set(chosen)):
                if (high < size <= 2 * high or low / 2 <= size < low) if beyond else (low < size < high):
                    at = interpolate_time(known, size)
                    within = at.value * (1 - at.below) <= times[size] <= at.value * (1 + at.above)
                    yield abs(at.value / times[size] - 1), within


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


# -- epochs from a part of the curve -----------------------------------------------------------------------------------


def partial_curves(folder: Path) -> None:
    """Epochs to stabilisation (early stopping, patience 5 and 10) from the first part of the run until then."""
    data = pd.read_csv(folder / "dawnbench_epochs_dev.csv")
    data = data[data["task"] == "CIFAR10"]
    dawn = [list(part.sort_values("epoch")["quality"]) for _, part in data.groupby("entry")]
    pollux = [values for curves in read_pollux(folder).values() for values in curves.values()]
    for source, curves in (("DAWNBench CIFAR-10", dawn), ("Pollux", pollux)):
        for patience in (5, 10):
            rule = StoppingRule(monitor="metric", mode="max", patience=patience)
            ends = [(values, rule.stop_after(enumerate(values, 1))) for values in curves]
            stopping = [(values, end) for values, end in ends if end is not None]
            print(f"EPOCHS FROM A PART OF THE CURVE ({source}, patience {patience}, {len(stopping)} of {len(curves)})")
            header("seen", "curves", "mean error", "median error", "in interval", "cannot tell", "seen + patience")
            for share in (0.25, 0.5, 0.75):
                found = [(forecast_epochs(part_of(v, math.floor(share * end), rule)), end) for v, end in stopping]
                told = [(forecast, end) for forecast, end in found if math.isfinite(forecast.value)]
                errors = [abs(forecast.value / end - 1) for forecast, end in told]
                plain = [abs((math.floor(share * end) + patience) / end - 1) for _, end in told]
                inside = statistics.fmean(forecast.low <= end <= forecast.high for forecast, end in told)
                silent = statistics.fmean(not forecast.can_tell for forecast, _ in found)
                line(
                    f"{share:.0%}", f"{len(told)}", f"{statistics.fmean(errors):.1%}",
                    f"{statistics.median(errors):.1%}", f"{inside:.0%}", f"{silent:.0%}",
                    f"{statistics.fmean(plain):.1%}",
                )  # fmt: skip
            print()


def part_of(values: Sequence[float], count: int, rule: StoppingRule) -> ConvergenceRun:
    """The first ``count`` epochs of a run that is still going."""
    return ConvergenceRun(
        created=datetime.now(UTC), batch_size=1, rule=rule, epochs_run=max(count, 1), ended=False,
        curve=Curve.of(dict(enumerate(values[:count], 1))),
    )  # fmt: skip


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
