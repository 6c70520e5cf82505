"""Calibration of every kind of interval on published measurements: one table for all quantities.

    python tests/benchmarks/calibration.py FOLDER_OR_FILE...             # with the shipped constants
    python tests/benchmarks/calibration.py FOLDER --refit                # constants chosen on all other sources
    python tests/benchmarks/calibration.py FOLDER --only batch scaling   # some quantities
    python tests/benchmarks/calibration.py FOLDER --choices              # also regret of choices, a minute more
    python tests/benchmarks/calibration.py FOLDER --write PAGE           # a row per quantity into a documentation page

Folders are searched for CSV files (also .csv.gz), which the quantities recognize by their columns, and for records of
vmselect (JSON); other files are skipped. Layouts are those of ``intervals.py`` (units of runs, times at several batch
sizes), ``prediction.py`` and ``scaling.py`` (times on several GPUs); step times with a column ``repeat`` that counts
runs; measured peaks of GPU memory (model, batch_size, peak_bytes, fixed_bytes, least_fixed_bytes). Names of sources are
those of the files, and columns such as config, precision, nodes and host may be missing. The measurements are not part
of vmselect.

Per quantity and source, the table has the mean error; how many of the 90 % intervals hold the truth; the median
half-width; the *oracle*, the constant half-width that would have held exactly 90 % there; and the interval score
(Winkler: width, plus 20 times the distance of a missed truth) divided by that of the oracle. Below 1, the intervals are
better than any of constant width. All are computed from logarithms of times, so that half and double are equally far.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent))

import decisions
import gpu_memory
import intervals
import prediction
import scaling

import vmselect as vs
from vmselect.errors import VmselectError
from vmselect.prediction import posterior
from vmselect.prediction.scaling import Scaling

CONFIDENCE = 0.9
LEAST = 1e-3
"""Smallest bound relative to the estimate: a lower bound of 0 has no logarithm."""
MIN_CASES = 10
MAX_REPEATED = 400
"""Setups of a source whose repetitions are compared, chosen at random."""
SAME_MEDIAN = 20
PRICE_LISTS = 2
"""Lists of prices at which GPUs are chosen."""
MARKS = ("<!-- calibration -->", "<!-- /calibration -->")


class Case(NamedTuple):
    """A prediction with its interval, and what was measured. ``group`` is the task, GPU or backend."""

    quantity: str
    source: str
    group: str
    truth: float
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """Calibration of a quantity on one source; numbers other than ``cases`` and ``score`` are percentages."""

    quantity: str
    source: str
    cases: int
    error: float
    coverage: float
    half_width: float
    oracle: float
    score: float


def assess(cases: Sequence[Case]) -> Row:
    """The row of the cases of one quantity and source.

    >>> cases = [Case("q", "s", "", 1.0 + error, 1.0, 0.9, 1.1) for error in (-0.05, 0.0, 0.05)]
    >>> assess(cases).coverage
    100.0
    """
    table = np.array([case[3:] for case in cases], dtype=float)
    truth, value, low, high = table.T
    low, high = np.maximum(low, LEAST * value), np.minimum(high, value / LEAST)
    residual, below, above = np.log(truth / value), np.log(value / low), np.log(high / value)
    oracle = float(np.quantile(np.abs(residual), CONFIDENCE))
    penalty = 2 / (1 - CONFIDENCE)
    missed = np.maximum(0.0, residual - above) + np.maximum(0.0, -residual - below)
    best = np.mean(2 * oracle + penalty * np.maximum(0.0, np.abs(residual) - oracle))
    return Row(
        cases[0].quantity,
        cases[0].source,
        len(cases),
        100 * float(np.mean(np.abs(value / truth - 1))),
        100 * float(np.mean(missed == 0)),
        100 * math.expm1(float(np.median(below + above)) / 2),
        100 * math.expm1(oracle),
        float(np.mean(below + above + penalty * missed) / best) if best else math.nan,
    )


# -- measurements ------------------------------------------------------------------------------------------------------


class Data(NamedTuple):
    """All that was found in the folders."""

    runs: list[intervals.Run]
    repeated: dict[str, list[tuple[str, list[float]]]]
    sizes: dict[str, list[intervals.Sizes]]
    machines: dict[str, prediction.Source]
    works: dict[str, list[tuple[Any, float]]]
    memory: dict[str, dict[str, tuple[tuple[float, float], dict[int, float]]]]
    profiles: list[vs.Profile]


def read_data(paths: Sequence[Path]) -> Data:
    """The measurements in ``paths``. Of a source in several files, each quantity uses the file with most of it."""
    data = Data([], {}, {}, {}, {}, {}, [])
    for file in sorted(itertools.chain.from_iterable(map(_list_files, paths))):
        header = _read_header(file)
        name = file.name.split(".")[0].removesuffix("_dev").replace("-", "_")
        if {"run", "unit", "duration_s"} <= header or {"entry", "task", "hours"} <= header:
            data.runs.extend(run for run in intervals.read(file) if isinstance(run, intervals.Run))
        if {"model", "batch_size", "peak_bytes"} <= header:
            data.memory[name] = _read_memory(file)
        if {"repeat", "metric", "value"} <= header:
            _keep_most(data.repeated, name, list(_read_repeated(file)))
        if {"source", "model", "batch_size", "gpu"} <= header and header & {"time", "value"}:
            setups = [sizes for sizes in intervals.read(file) if isinstance(sizes, intervals.Sizes)]
            _keep_most(data.sizes, name.removesuffix("_multi").removesuffix("_epoch_time"), setups)
        if {"gpu", "gpu_count", "model", "batch_size"} <= header and header & {"time", "value"}:
            several = [(work, size) for work, size in scaling.read_works(file) if len(work.seconds) > 2]
            _keep_most(data.works, name, several)
        if {"model", "gpu", "time"} <= header:
            _keep_most(data.machines, name, prediction.read_source(file)[0])
    for file in sorted(itertools.chain.from_iterable(path.rglob("*.json") for path in paths if path.is_dir())):
        try:
            data.profiles.extend(vs.load_profiles(file))
        except VmselectError as problem:
            print(problem, file=sys.stderr)
    return data


def _read_header(file: Path) -> set[str]:
    """Names of the columns of a file; none if it is not a table."""
    try:
        return set(pd.read_csv(file, nrows=0).columns)
    except (pd.errors.EmptyDataError, pd.errors.ParserError, UnicodeDecodeError):
        print(f"{file} is not a table", file=sys.stderr)
        return set()


def _list_files(path: Path) -> list[Path]:
    return [*path.rglob("*.csv"), *path.rglob("*.csv.gz")] if path.is_dir() else [path]


def _keep_most(kept: dict[str, Any], name: str, items: Any) -> None:
    if items and len(items) > len(kept.get(name, ())):
        kept[name] = items


def _read_repeated(path: Path) -> Iterator[tuple[str, list[float]]]:
    """Machine and step times of each setup that was run several times."""
    rows = pd.read_csv(path)
    rows = rows[(rows["metric"] == "iteration_ms") & (rows["value"] > 0)]
    known = [name for name in (*intervals.SETUP, "batch_size") if name in rows.columns]
    for _, part in rows.groupby(known, dropna=False):
        if len(part) > 1 and part["repeat"].nunique() == len(part):
            place = part["instance_type"] if part["instance_type"].notna().all() else part["gpu"]
            yield str(place.iloc[0]), [value / 1e3 for value in part["value"]]


def _read_memory(path: Path) -> dict[str, tuple[tuple[float, float], dict[int, float]]]:
    """By model, the least and the usual fixed bytes, and the measured peak of each batch size."""
    return {
        str(model): (
            (float(part["fixed_bytes"].iloc[0]), float(part["least_fixed_bytes"].iloc[0])),
            {int(size): float(peak) for size, peak in zip(part["batch_size"], part["peak_bytes"], strict=True)},
        )
        for model, part in pd.read_csv(path).groupby("model")
    }


# -- quantities --------------------------------------------------------------------------------------------------------


def predict_runs(data: Data, constants: Mapping[str, Any]) -> Iterator[Case]:
    """Rest of a run from its first units, and whole runs from those of another run of the same system."""
    for how, run, units in intervals.pair_runs(data.runs):
        found = intervals.estimate_units(units, len(run.seconds))
        truth = sum(run.seconds)
        yield Case(f"run, {how}", run.source, run.task, truth, found.seconds, found.low, found.high)


def predict_repeated(data: Data, constants: Mapping[str, Any]) -> Iterator[Case]:
    """Step time of another run, from one given number, and from that number repeated."""
    random = np.random.default_rng(0)
    for source, setups in data.repeated.items():
        chosen = random.permutation(len(setups))[:MAX_REPEATED]
        for place, times in (setups[index] for index in chosen):
            for count, name in ((1, "one time given"), (SAME_MEDIAN, f"one time given {SAME_MEDIAN} times")):
                profile = vs.Profile.from_times(iteration_seconds=[times[0]] * count, steps_per_epoch=1000)
                found = vs.estimate(profile, epochs=1)
                for other in times[1:]:
                    bounds = [bound / 1000 for bound in (found.seconds, found.low, found.high)]
                    yield Case(f"other run, {name}", source, place, other, *bounds)


def predict_sizes(data: Data, constants: Mapping[str, Any]) -> Iterator[Case]:
    """Step times at batch sizes between two and three probed ones."""
    for source, setups in data.sizes.items():
        for setup, chosen, size, at in intervals.interpolate_sizes(setups):
            bounds = (at.value, at.value * (1 - at.below), at.value * (1 + at.above))
            yield Case(f"batch size, {len(chosen)} probed", source, setup.model, setup.times[size], *bounds)


def predict_machines(data: Data, constants: Mapping[str, Any]) -> Iterator[Case]:
    """Step times on GPUs that were not probed, from one and two probes, without and with history."""
    for source, works in data.machines.items():
        chosen = constants.get(source, posterior.CONSTANTS)
        for probes, models in itertools.product((1, 2), (0, 5)):
            name = f"other machine, {probes} probe{'s' * (probes > 1)}, history of {models} models"
            for _, _, gpu, *logs in prediction.predictions(works, probes=probes, models=models, constants=chosen):
                yield Case(name, source, gpu, *map(math.exp, logs))


def predict_scaling(data: Data, constants: Mapping[str, Any]) -> Iterator[Case]:
    """Step times on four and eight GPUs, from those on one and two, and from that on one."""
    for source, works in data.works.items():
        model = Scaling(constants=constants.get(source, scaling.CONSTANTS))
        for (work, _), gpus, known in itertools.product(works, (4, 8), ((1, 2), (1,))):
            if {1, 2, gpus} <= work.seconds.keys():
                asked = work._replace(seconds={count: work.seconds[count] for count in known})
                ratio = model.predict(asked, gpus)
                truth = work.seconds[gpus] / work.seconds[1]
                yield Case(f"{gpus} GPUs from {' + '.join(map(str, known))}", source, str(work.gpu), truth, *ratio)


def predict_memory(data: Data, constants: Mapping[str, Any]) -> Iterator[Case]:
    """Peak memory at other batch sizes than the probed one."""
    for source, models in data.memory.items():
        for name, (fixed, peaks) in models.items():
            for probed in peaks:
                for size, interval in gpu_memory.estimate_others(fixed, peaks, [probed]):
                    yield Case("GPU memory from one peak", source, name, peaks[size], *interval)


def predict_processes(data: Data, constants: Mapping[str, Any]) -> Iterator[Case]:
    """Step time in another process on the same machine, from each of two or more records of one setup."""
    from vmselect.records.identity import group_repetitions
    from vmselect.records.step_times import step_seconds

    for same in group_repetitions(data.profiles).values():
        for probe, other in itertools.permutations(same, 2):
            truth, steps = step_seconds(other), probe.steps_per_epoch
            if truth is None or not steps or step_seconds(probe) is None:
                continue
            found = vs.estimate(probe, epochs=1)
            rest = found.seconds - (step_seconds(probe) or 0.0) * steps
            bounds = [max(0.0, bound - rest) / steps for bound in (found.seconds, found.low, found.high)]
            yield Case("other process", probe.environment.backend or "given", probe.title, truth, *bounds)


Predict = Callable[[Data, Mapping[str, Any]], Iterator[Case]]
QUANTITIES: dict[str, Predict] = {
    "run": predict_runs,
    "repeat": predict_repeated,
    "batch": predict_sizes,
    "machine": predict_machines,
    "scaling": predict_scaling,
    "memory": predict_memory,
    "process": predict_processes,
}


def refit(data: Data, quantity: str) -> dict[str, Any]:
    """Constants of a quantity by source, each fitted to the sources whose names begin with another word."""
    sources, fit = {
        "machine": (data.machines, lambda others: prediction.fit_constants(others)),
        "scaling": (data.works, lambda others: scaling.fit_constants(others)),
    }.get(quantity, ({}, None))
    chosen = {}
    for name in sources:
        others = [part for other, part in sources.items() if other.split("_")[0] != name.split("_")[0]]
        if fit and others:
            print(f"fitting {quantity} without {name}", file=sys.stderr)
            chosen[name] = fit(others)
    return chosen


def summarize(cases: Sequence[Case]) -> dict[str, list[Row]]:
    """By quantity, a row per source."""
    groups: dict[str, dict[str, list[Case]]] = {}
    for case in cases:
        groups.setdefault(case.quantity, {}).setdefault(case.source, []).append(case)
    rows = {
        quantity: [assess(found) for found in by_source.values() if len(found) >= MIN_CASES]
        for quantity, by_source in groups.items()
    }
    return {quantity: own for quantity, own in rows.items() if own}


def average(rows: Sequence[Row]) -> Row:
    """Means over the sources of a quantity, each of which counts once."""
    numbers = ("error", "coverage", "half_width", "oracle", "score")
    means = {name: float(np.mean([getattr(row, name) for row in rows])) for name in numbers}
    return replace(rows[0], source="**mean**", cases=sum(row.cases for row in rows), **means)


def format_table(rows: Mapping[str, Sequence[Row]]) -> str:
    """A row per quantity and source, and the means over sources, as a table in Markdown."""
    lines = [
        "| quantity | source | cases | error | coverage | half-width | oracle | score |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for own in rows.values():
        for row in [*own, *([average(own)] if len(own) > 1 else [])]:
            numbers = (row.error, row.coverage, row.half_width, row.oracle)
            cells = [row.quantity, row.source, f"{row.cases:,}", *(f"{number:.1f} %" for number in numbers)]
            lines.append("| " + " | ".join([*cells, f"{row.score:.2f}"]) + " |")
    return "\n".join(lines)


def format_means(rows: Mapping[str, Sequence[Row]]) -> str:
    """A row per quantity: means over its sources, and its lowest coverage, as a table in Markdown."""
    lines = [
        "| quantity | sources | cases | error | coverage | lowest | half-width | oracle | score |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for quantity, own in rows.items():
        row, lowest = average(own), min(own, key=lambda one: one.coverage)
        where = f"{lowest.coverage:.0f} %" + (f" ({lowest.source})" if len(own) > 1 else "")
        cells = [quantity, str(len(own)), f"{row.cases:,}", f"{row.error:.1f} %", f"{row.coverage:.0f} %", where]
        lines.append(
            "| " + " | ".join([*cells, f"{row.half_width:.1f} %", f"{row.oracle:.1f} %", f"{row.score:.2f}"]) + " |"
        )
    return "\n".join(lines)


class Choice(NamedTuple):
    """Expected and true regret of a choice, as shares of the objective, and whether it is within 5 % of the best."""

    expected: float
    true: float
    close: bool


def choose_machines(source: prediction.Source, models: int) -> Iterator[tuple[int, Choice]]:
    """Choices of a GPU after one and two probes, each with the number of probes, at prices that favour no GPU."""
    prices = [decisions.equal_prices(source, Random(number)) for number in range(PRICE_LISTS)]
    for work, history, logs in decisions.priced_works(source, prices, models):
        prior = decisions.expect(work, history, posterior.CONSTANTS)
        probed = [min(sorted(work), key=lambda gpu: prior[gpu] + logs[gpu])]
        for count in (1, 2):
            state = decisions.State(work, logs, probed, history)
            drawn = state.draws()
            expected = float(np.mean(drawn[:, state.choice] - drawn.min(axis=1)))
            regret = state.regret()
            yield count, Choice(-math.expm1(-expected), -math.expm1(-regret), regret <= decisions.CLOSE)
            rate = dict(zip(state.gpus, state.gains() / np.exp([logs[gpu] for gpu in state.gpus]), strict=True))
            probed.append(max(state.rest, key=rate.__getitem__))


def format_choices(sources: Mapping[str, prediction.Source]) -> str:
    """Expected and true regret of choices by number of probes and size of the history, as a table in Markdown."""
    lines = [
        "| choice of a GPU | sources | choices | expected regret | true regret | within 5 % | fewest within 5 % |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for models in (0, 5):
        found: dict[int, dict[str, list[Choice]]] = {1: {}, 2: {}}
        for name, source in sources.items():
            for count, choice in choose_machines(source, models):
                found[count].setdefault(name, []).append(choice)
        for count, by_source in found.items():
            if not by_source:
                continue
            means = {name: np.mean(choices, axis=0) for name, choices in by_source.items()}
            expected, true, close = (100 * float(part) for part in np.mean(list(means.values()), axis=0))
            fewest = min(means, key=lambda name: float(means[name][2]))
            cells = [
                f"{count} probe{'s' * (count > 1)}, history of {models} models", str(len(means)),
                f"{sum(map(len, by_source.values())):,}", f"{expected:.1f} %", f"{true:.1f} %", f"{close:.0f} %",
                f"{100 * float(means[fewest][2]):.0f} % ({fewest})",
            ]  # fmt: skip
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write_page(page: Path, table: str) -> None:
    """Replace what stands between the two marks of a page."""
    before, rest = page.read_text(encoding="utf-8").split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    page.write_text(f"{before}{MARKS[0]}\n{table}\n{MARKS[1]}{after}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, help="folders, or CSV files")
    parser.add_argument("--only", nargs="+", choices=tuple(QUANTITIES), default=tuple(QUANTITIES))
    parser.add_argument("--refit", action="store_true", help="fit the constants without the source that is scored")
    parser.add_argument("--plans", action="store_true", help="plan the memory of the models of gpu_memory.py with XLA")
    parser.add_argument("--groups", action="store_true", help="a row per task, GPU or backend of a source")
    parser.add_argument("--choices", action="store_true", help="also the expected and true regret of choices of a GPU")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="replace the table of this page")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    data = read_data(options.paths)
    if options.plans:
        data.memory["XLA plans"] = {name: gpu_memory.measure(name, gpu_memory.SIZES) for name in gpu_memory.MODELS}
    cases: list[Case] = []
    for quantity in options.only:
        print(f"{quantity} ...", file=sys.stderr)
        cases.extend(QUANTITIES[quantity](data, refit(data, quantity) if options.refit else {}))
    if options.groups:
        cases = [case._replace(source=f"{case.source}, {case.group}") for case in cases]
    rows = summarize(cases)
    print(format_table(rows))
    choices = f"\n{format_choices(data.machines)}\n" if options.choices else ""
    print(choices, end="")
    if options.write is not None:
        write_page(options.write, "\n".join([format_means(rows), choices]).rstrip())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
