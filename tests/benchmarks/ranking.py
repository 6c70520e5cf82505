"""How ranking time grows from a thousand to a million candidates: python tests/benchmarks/ranking.py

A candidate is an (instance type, region, market, batch size, epoch count). Estimating the profiles, which is done once
per instance type and batch size, is timed apart.
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
from vmselect.ranking.measures import Settings
from vmselect.ranking.result import Ranking

# Instance types, regions, batch sizes, epoch counts; the four markets make the rest.
SIZES = ((5, 5, 2, 5), (10, 10, 5, 5), (25, 20, 10, 5), (50, 25, 20, 10))


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


def make_ranking(types: int, regions: int, batch_sizes: int, counts: int) -> tuple[Ranking, list[float]]:
    """A ranking, and the seconds that its steps took."""
    profiles, catalog = make_profiles(types, batch_sizes), make_catalog(types, regions)
    settings = Settings.read(
        epochs=range(5, 5 + counts), objective={"cost": 0.5, "time": 0.5}, markets="all",
        interruptions={"per_hour": 0.05, "checkpoint_minutes": 30},
    )  # fmt: skip
    marks = [time.perf_counter()]
    measured = Measured(profiles, lambda some, _: fit_runtime(some))
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
