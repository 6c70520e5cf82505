"""Many prices: seconds to load them, milliseconds to filter them, megabytes to hold them.

Run it with ``python tests/benchmarks/catalog.py``; the goals are printed beside what was measured.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

GOALS = {"load": 2.5, "filter": 0.050, "memory": 300.0}


def write_prices(path: Path, rows: int) -> None:
    """A catalog of ``rows`` prices: types x regions x markets of three clouds, with GPU facts and dates."""
    import numpy as np
    import pandas as pd

    from vmselect.catalog import MARKETS

    number = np.arange(rows)
    regions = 250
    machine, region, market = number // (4 * regions), (number // 4) % regions, number % 4
    cloud = machine % 3
    models = np.array(["T4", "V100", "A100", "H100", "", "L4", "A10G", "K80"])
    frame = pd.DataFrame(
        {
            "provider": np.array(["aws", "azure", "gcp"])[cloud],
            "service": np.array(["ec2", "vm", "gce"])[cloud],
            "instance_type": "family" + pd.Series(machine).astype(str) + ".xlarge",
            "region": "region-" + pd.Series(region).astype(str),
            "market": np.array(MARKETS)[market],
            "usd_per_hour": np.round(np.random.default_rng(7).uniform(0.05, 40, rows), 5),
            "date": np.array(["2026-08-20", "2026-08-21", "2026-08-22"])[number % 3],
            "vcpus": 2 ** (machine % 7),
            "memory_gib": 4.0 * 2 ** (machine % 7),
            "gpu_model": models[machine % 8],
            "gpu_count": (machine % 8 != 4) * 2 ** (machine % 4),
            "gpu_memory_gib": 16.0,
            "retired": "no",
            "source": "list price",
            "note": "",
        }
    )
    frame.to_csv(path, index=False)


def measure(path: Path, repeats: int) -> None:
    """Load ``path`` in this process and print what it took, as one line of numbers."""
    import pandas  # noqa: F401  (its own import is not the catalog's time)

    from vmselect import Catalog

    Catalog.embedded()
    process = psutil.Process()
    before = process.memory_info().rss
    peak = before
    started, started_cpu = time.perf_counter(), time.process_time()
    catalog = Catalog.load(path)
    load_seconds, load_cpu_seconds = time.perf_counter() - started, time.process_time() - started_cpu
    held = process.memory_info().rss - before
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text()
        peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
    asks: list[Callable[[], object]] = [
        lambda: catalog.offers(provider="aws", region="region-7", gpu="T4"),
        lambda: catalog.offers(gpu="A100", market="spot"),
        lambda: catalog.offers("gcp", market=["on_demand", "spot"], region=["region-1", "region-2"]),
        lambda: catalog.offers(instance_type="family5.xlarge", market=None),
        lambda: catalog.price("family3.xlarge", region="region-9"),
    ]
    times = []
    for ask in asks:
        best = float("inf")
        for _ in range(repeats):
            started = time.perf_counter()
            ask()
            best = min(best, time.perf_counter() - started)
        times.append(best)
    numbers = (load_seconds, load_cpu_seconds, max(times), held / 1e6, (peak - before) / 1e6, len(catalog))
    sys.stdout.write(" ".join(map(str, numbers)) + "\n")


def main() -> None:
    """Measure in fresh processes and print the median of each number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.file:
        measure(options.file, repeats=5)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prices.csv"
        write_prices(path, options.rows)
        size = path.stat().st_size / 1e6
        results = []
        for _ in range(options.runs):
            done = subprocess.run(
                [sys.executable, __file__, "--file", str(path)], capture_output=True, text=True, check=True
            )
            results.append([float(word) for word in done.stdout.split()])
    load, cpu, slowest, held, peak, rows = (sorted(column)[len(column) // 2] for column in zip(*results, strict=True))
    print(f"{rows:,.0f} prices, a CSV of {size:.0f} MB, median of {options.runs} runs")
    print(f"load                {load:7.2f} s    goal {GOALS['load']} s")
    print(f"  of it computing   {cpu:7.2f} s    the rest was waiting for a core")
    print(f"slowest filter      {slowest * 1e3:7.1f} ms   goal {GOALS['filter'] * 1e3:.0f} ms")
    print(f"memory held         {held:7.0f} MB   goal {GOALS['memory']:.0f} MB")
    print(f"memory while loading{peak:7.0f} MB   goal {GOALS['memory']:.0f} MB")


if __name__ == "__main__":
    main()
