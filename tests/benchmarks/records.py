"""How long it takes to read profiles and to rank them: ``python tests/benchmarks/records.py``.

Prints the median of several rounds, and the slowest, for many small profiles and for fewer large ones.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import vmselect as vs

ROUNDS = 5


def write(folder: Path, *, count: int, readings: int) -> float:
    """Profiles of ``count`` made-up machines; returns the mean size of a file in kB."""
    for number in range(count):
        times = [0.1 + number % 7 / 100 + k % 5 / 1e3 for k in range(readings)]
        vs.Profile.from_times(
            instance_type=f"machine-{number}", batch_size=64, steps_per_epoch=500, init_seconds=3.0,
            first_iteration_seconds=2.0, iteration_seconds=times,
            validation_seconds=[1.0, 0.4], model="net",
        ).save(folder)  # fmt: skip
    sizes = [path.stat().st_size for path in folder.glob("*.json")]
    return statistics.mean(sizes) / 1e3


def main() -> int:
    """Measure every shape."""
    offers = [
        {"provider": "example", "instance_type": f"machine-{n}", "region": "here", "market": "on_demand",
         "usd_per_hour": 1 + n % 11 / 10}
        for n in range(1000)
    ]  # fmt: skip
    catalog = vs.Catalog.embedded().with_offers(offers)
    for count, readings in ((1000, 40), (200, 1400), (200, 2500)):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            size = write(folder, count=count, readings=readings)
            loads, ranks = [], []
            for _ in range(ROUNDS):
                start = time.perf_counter()
                profiles = vs.load_profiles(folder)
                loads.append(time.perf_counter() - start)
                start = time.perf_counter()
                best = vs.rank(profiles, epochs=[10, 50], catalog=catalog).best
                ranks.append(time.perf_counter() - start)
            print(
                f"{count} profiles of {size:.0f} kB ({readings} readings): load {statistics.median(loads):.2f} s "
                f"(slowest {max(loads):.2f}), rank {statistics.median(ranks):.2f} s (slowest {max(ranks):.2f}), both "
                f"{statistics.median(map(sum, zip(loads, ranks, strict=True))):.2f} s; best {best.instance_type}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
