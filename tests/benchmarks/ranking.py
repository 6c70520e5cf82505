"""How ranking time grows from a thousand to a million candidates, and with predicted machines.

    python tests/benchmarks/ranking.py

A candidate is an (instance type, region, market, batch size, epoch count). Estimating the profiles, which is done once
per instance type and batch size, is timed apart.

Then one probe and a history of a thousand records predict a thousand machine types, which are ranked.
"""

from __future__ import annotations

import time
from itertools import pairwise

import pandas as pd

import vmselect as vs
from vmselect.catalog import MARKETS
from vmselect.estimation import fit_runtime
from vmselect.ranking.candidates import join_offers
from vmselect.ranking.estimates import Measured
from vmselect.ranking.options import Settings
from vmselect.ranking.result import Ranking

# Instance types, regions, batch sizes, epoch counts; the four markets make the rest.
SIZES = ((5, 5, 2, 5), (10, 10, 5, 5), (25, 20, 10, 5), (50, 25, 20, 10))
GPUS = ("K80", "M60", "P100", "V100", "T4", "A10G", "A100", "L4", "L40S", "H100")
PREDICTED = ((100, 100), (1000, 100), (100, 1000), (1000, 1000))
"""Records of the history, and machine types."""


def make_profiles(types: int, batch_sizes: int) -> list[vs.Profile]:
    """One short probe of each instance type at each batch size."""
    return [
        vs.Profile.from_times(
            instance_type=f"type-{t}",
            batch_size=16 * (b + 1),
            steps_per_epoch=max(1, 3200 // (b + 1)),
            init_seconds=5.0 + t % 7,
            first_iteration_seconds=3.0 + t % 5,
            iteration_seconds=[(0.01 + 0.004 * (b + 1)) * (1 + t) ** -0.5 * (1 + 0.01 * k) for k in range(20)],
            validation_seconds=[2.0, 1.0],
        )
        for t in range(types)
        for b in range(batch_sizes)
    ]


def make_catalog(types: int, regions: int) -> vs.Catalog:
    """Made-up prices of every type in every region and market."""
    rows = [
        ("example", f"type-{t}", f"region-{r}", market, (0.5 + t) * (1 + 0.01 * r) * (1 - 0.2 * m))
        for t in range(types)
        for r in range(regions)
        for m, market in enumerate(MARKETS)
    ]
    columns = ["provider", "instance_type", "region", "market", "usd_per_hour"]
    return vs.Catalog.embedded().with_offers(pd.DataFrame(rows, columns=columns))


def main() -> None:
    """Print a line per size."""
    make_ranking(1, 1, 1, 1)  # loads the packages
    print(f"{'candidates':>12} {'profiles':>9} {'estimate':>10} {'join':>10} {'rank':>10} {'best row':>10}   best")
    for types, regions, batch_sizes, counts in SIZES:
        ranking, seconds = make_ranking(types, regions, batch_sizes, counts)
        shown = " ".join(f"{spent:>8.3f} s" for spent in seconds)
        print(f"{len(ranking):>12,} {types * batch_sizes:>9,} {shown}   {ranking.best.instance_type}")
    print(f"\n{'records':>12} {'machine types':>14} {'predict and rank':>18}")
    make_prediction(1, 1)
    for records, machines in PREDICTED:
        ranking, spent = make_prediction(records, machines)
        assert len(ranking) == machines
        print(f"{records:>12,} {machines:>14,} {spent:>16.3f} s")


def make_prediction(records: int, machines: int) -> tuple[Ranking, float]:
    """A ranking of machine types of which one was probed, with a history of other models; and its seconds."""
    rows = [
        ("example", f"gpu-{m}", "here", "on_demand", 0.5 + 0.01 * m, GPUS[m % len(GPUS)], 1)
        for m in range(max(machines, len(GPUS)))
    ]
    columns = ["provider", "instance_type", "region", "market", "usd_per_hour", "gpu_model", "gpu_count"]
    catalog = vs.Catalog.embedded().with_offers(pd.DataFrame(rows, columns=columns))

    def profile(model: int, gpu: int) -> vs.Profile:
        seconds = (0.05 + 0.01 * (model % 17)) * (1 + 0.2 * ((model + gpu) % 3)) / (1 + gpu)
        return vs.Profile.from_times(
            instance_type=f"gpu-{gpu}", batch_size=64, steps_per_epoch=100, iteration_seconds=[seconds] * 20,
            model=f"model-{model}",
        )  # fmt: skip

    history = [profile(number // len(GPUS), number % len(GPUS)) for number in range(records)]
    probe, names = profile(10**6, 4), [f"gpu-{m}" for m in range(machines)]
    started = time.perf_counter()
    ranking = vs.rank(probe, epochs=10, machines=names, history=history, catalog=catalog)
    _ = ranking.best, ranking.next_probe
    return ranking, time.perf_counter() - started


def make_ranking(types: int, regions: int, batch_sizes: int, counts: int) -> tuple[Ranking, list[float]]:
    """A ranking, and the seconds that its steps took."""
    profiles, catalog = make_profiles(types, batch_sizes), make_catalog(types, regions)
    settings = Settings.read(
        epochs=range(5, 5 + counts), objective={"cost": 0.5, "time": 0.5}, market="all", region="all",
        interruptions={"per_hour": 0.05, "checkpoint_minutes": 30},
    )  # fmt: skip
    marks = [time.perf_counter()]
    measured = Measured(profiles, lambda some, *_: fit_runtime(some))
    marks.append(time.perf_counter())
    candidates, _ = join_offers(measured.machine_estimates, catalog, settings)
    marks.append(time.perf_counter())
    ranking = Ranking(candidates, settings)
    marks.append(time.perf_counter())
    _ = ranking.best, len(ranking)
    marks.append(time.perf_counter())
    return ranking, [after - before for before, after in pairwise(marks)]


if __name__ == "__main__":
    main()
