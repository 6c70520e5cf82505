"""How long a history takes to load: ``python tests/benchmarks/history.py [RECORDS [JSON_RECORDS]]``.

Prints the seconds and the peak memory of loading the columns that a ranking uses from a compacted history of RECORDS
records (100,000), and of loading JSON_RECORDS profiles (20,000) from their JSON files, each in a process of its own on
one core, with a warm file cache: the best and the slowest of three rounds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import vmselect as vs

ROUNDS = 3
READINGS = 40
LIMITS = {"columns": (2.0, 1000.0), "json": (4.0, float("inf"))}
"""Most seconds and MB of each measurement."""

MEASURE = '''
import json, os, resource, sys, time
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import pandas, vmselect as vs

def peak_mb():
    """Peak memory of this process. ru_maxrss also contains that of the parent process, which compacted the records."""
    try:
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

from vmselect.records.history import COLUMNS
used = [name for name in COLUMNS if name not in ("version", "created", "writer", "factors", "parameters")]
vs.load_profiles, vs.history
start = time.perf_counter()
if sys.argv[1] == "columns":
    import duckdb
    start = time.perf_counter()
    found = vs.history(sys.argv[2]).to_frame(used, kind="training")
else:
    found = vs.load_profiles(sys.argv[2])
seconds = time.perf_counter() - start
print(json.dumps([len(found), seconds, peak_mb()]))
'''


def write(folder: Path, count: int) -> None:
    """Write ``count`` profiles of 50 machines, six months and 40 readings each."""
    folder.mkdir()
    base = vs.Profile.from_times(
        instance_type="machine", batch_size=64, steps_per_epoch=500, init_seconds=3.0, first_iteration_seconds=2.0,
        iteration_seconds=[0.1] * READINGS, validation_seconds=[1.0, 0.4], model="net",
    )  # fmt: skip
    data = json.loads(base.to_json())
    for number in range(count):
        created = datetime(2026, 5, 1, tzinfo=UTC) + timedelta(minutes=number * 180 * 1440 // max(count, 1))
        data["id"], data["created"] = f"{number:032x}", created.isoformat()
        data["placement"]["instance_type"]["value"] = f"machine-{number % 50}"
        data["timeline"]["steps"]["seconds"][1:] = [0.1 + number % 7 / 100 + k % 5 / 1e3 for k in range(READINGS)]
        (folder / f"{number:06d}.json").write_text(json.dumps(data, indent=1))


def measure(what: str, folder: Path, count: int) -> bool:
    """Load ``folder`` several times, print the times, and return whether the best is within the limits."""
    results = []
    for _ in range(ROUNDS):
        done = subprocess.run([sys.executable, "-c", MEASURE, what, str(folder)], capture_output=True, check=True)
        found, seconds, memory = json.loads(done.stdout)
        assert found == count, (found, count)
        results.append((seconds, memory))
    (seconds, memory), (slowest, _) = min(results), max(results)
    most_seconds, most_memory = LIMITS[what]
    print(
        f"{what}: {count:,} records in {seconds:.2f} s (slowest {slowest:.2f}, limit {most_seconds:g}), {memory:.0f} MB"
    )
    return seconds <= most_seconds and memory <= most_memory


def main(records: int = 100_000, json_records: int = 20_000) -> int:
    """Write, compact and load; 1 if a limit is exceeded."""
    with tempfile.TemporaryDirectory() as name:
        many, few = Path(name, "many"), Path(name, "few")
        write(few, json_records)
        fine = measure("json", few, json_records)
        write(many, records)
        start = time.perf_counter()
        done = vs.history(many).compact()
        size = sum(file.stat().st_size for file in (many / "history").rglob("*.parquet")) / 1e6
        print(f"compact: {done.records:,} records in {time.perf_counter() - start:.1f} s, {size:.1f} MB")
        os.sync()
        fine &= measure("columns", many, records)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
