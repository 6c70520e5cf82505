"""Share of suggested moves that save money: ``python tests/benchmarks/moves.py FOLDER_OR_CSV...``.

The layout of the CSV files is that of ``prediction.py``: step times of the same work on several GPUs. Every work runs
on the cheapest machine of the catalog with one of these GPUs, with some hours left; its moves to the cheapest machines
with the other GPUs, in any region, are ranked from the record of the running training alone. A suggested
move is right if the rest costs less at the measured step time of the other machine, with everything that moving costs.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pandas as pd
from prediction import Work, read_source

import vmselect as vs
from vmselect.errors import VmselectError
from vmselect.watching.moves import BOOT_SECONDS, Moves, rank_moves

LEFT_HOURS = 1.0, 10.0
"""Remaining hours on the present machine."""
STEPS, FIRST_SECONDS, INIT_SECONDS, SPREAD = 1000, 5.0, 20.0, 0.01
EPOCHS = 10
WORKS = 1
"""Works of each model per number of hours: a ranking takes half a second."""


def read_catalog() -> vs.Catalog:
    """The prices that ship with vmselect, also of machines that are retired."""
    return vs.Catalog.embedded().where(retired=True)


def cheapest_machines(catalog: vs.Catalog) -> dict[str, pd.Series]:
    """The cheapest on-demand offer of a machine with one GPU, by GPU."""
    offers = catalog.offers(market="on_demand", retired=None)
    single = offers[(offers["gpu_count"] == 1) & ~offers["stale"]].sort_values("usd_per_hour")
    return {str(gpu): group.iloc[0] for gpu, group in single.groupby("gpu_model", observed=True)}


def watch_on(work: Work, gpu: str, machine: pd.Series, scale: float, random: Random) -> vs.Profile:
    """The record of a training of ``work`` on ``gpu``, whose step times are multiplied by ``scale``."""
    point = work[gpu]
    step = math.exp(point.log_seconds) * scale
    precision = {"fp16": "mixed_float16", "fp32": "float32"}.get(point.work[1])
    return vs.Profile.from_times(
        instance_type=str(machine["instance_type"]),
        batch_size=max(1, int(float(point.work[3])) or 64), steps_per_epoch=STEPS, init_seconds=INIT_SECONDS,
        first_iteration_seconds=step + FIRST_SECONDS, epochs=EPOCHS, model=point.model, precision=precision,
        iteration_seconds=[step * random.lognormvariate(0, SPREAD) for _ in range(20)], gpus=1,
    )  # fmt: skip


def find_moves(
    work: Work, gpu: str, machines: dict[str, pd.Series], hours: float, random: Random, catalog: vs.Catalog
) -> Moves:
    """Moves of ``work`` from ``gpu`` with some ``hours`` left."""
    own = machines[gpu]
    # A step is as long as the hours that remain require; only the ratios of times between machines matter.
    scale = hours * 3600 / (EPOCHS * STEPS) / math.exp(work[gpu].log_seconds)
    others = [str(machines[name]["instance_type"]) for name in work if name in machines and name != gpu]
    return rank_moves(
        watch_on(work, gpu, own, scale, random), usd_per_hour=float(own["usd_per_hour"]), machines=others,
        catalog=catalog,
    )  # fmt: skip


def score(paths: Sequence[Path]) -> None:
    """Print a line per source and per remaining time."""
    catalog = read_catalog()
    machines, random = cheapest_machines(catalog), Random(1)
    print("| source | hours left | trainings | worth moving | suggested | of these, saved money |")
    print("|---|---|---|---|---|---|")
    totals: dict[str, int] = defaultdict(int)
    for path in paths:
        source, _ = read_source(path)
        for hours in LEFT_HOURS:
            counts: dict[str, int] = defaultdict(int)
            for works in source.values():
                for key in random.sample(sorted(works), min(WORKS, len(works))):
                    work = {gpu: point for gpu, point in works[key].items() if gpu in machines}
                    for gpu in work if len(work) > 1 else ():
                        judge(work, gpu, machines, hours, random, catalog, counts)
            print(describe(path.stem, f"{hours:g}", counts), flush=True)
            for name, count in counts.items():
                totals[name] += count
    print(describe("all", "", totals))


def describe(name: str, hours: str, counts: dict[str, int]) -> str:
    """A line of the table."""
    share = f"{100 * counts['right'] / counts['suggested']:.0f} %" if counts["suggested"] else "-"
    return f"| {name} | {hours} | {counts['trainings']} | {counts['worth']} | {counts['suggested']} | {share} |"


def judge(
    work: Work,
    gpu: str,
    machines: dict[str, pd.Series],
    hours: float,
    random: Random,
    catalog: vs.Catalog,
    counts: dict[str, int],
) -> None:
    """Count whether a move of ``work`` from ``gpu`` is worth it and suggested, and whether the suggestion is right."""
    try:
        moves = find_moves(work, gpu, machines, hours, random, catalog)
    except VmselectError:
        counts["refused"] += 1
        return
    stay = float(machines[gpu]["usd_per_hour"]) * hours

    def cost_of(other: str) -> float:
        ratio = math.exp(work[other].log_seconds - work[gpu].log_seconds)
        seconds = BOOT_SECONDS + INIT_SECONDS + FIRST_SECONDS + hours * 3600 * ratio
        return float(machines[other]["usd_per_hour"]) * seconds / 3600

    real = {str(machines[other]["instance_type"]): cost_of(other) for other in work if other != gpu}
    counts["trainings"] += 1
    counts["worth"] += min(real.values()) < stay
    if moves.suggested is not None:
        counts["suggested"] += 1
        counts["right"] += real[moves.suggested.instance_type] < stay


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", type=Path, nargs="+")
    given = parser.parse_args().paths
    score([path for place in given for path in (sorted(place.glob("*.csv")) if place.is_dir() else [place])])
