"""How many seeded fault runs keep every promise: no process left, no record lost, none twice, never over budget.

python tests/benchmarks/sweeps.py --runs 120 --workers 6 local
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from sweep_faults import Tally, run_case


def one(runner: str, seed: int, base: str) -> Tally:
    folder = Path(base) / f"{runner}-{seed}"
    if runner == "local":
        return run_case(seed, folder)
    from loopback_clusters import run_remote_case

    return run_remote_case(runner, seed, folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runners", nargs="+", choices=["local", "ssh", "slurm"])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no more runs after so long")
    given = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as base:
        for runner in given.runners:
            began, total = time.monotonic(), Tally()
            seeds = range(given.first_seed, given.first_seed + given.runs)
            with ProcessPoolExecutor(given.workers) as pool:
                runs = [pool.submit(one, runner, seed, base) for seed in seeds]
                for run in as_completed(runs):
                    if time.monotonic() - began > given.seconds:
                        for waiting in runs:
                            waiting.cancel()
                    if run.cancelled():
                        continue
                    tally = run.result()
                    total.runs += tally.runs
                    total.faults += tally.faults
                    total.kills += tally.kills
                    total.connections += tally.connections
                    total.copies += tally.copies
                    total.starts += tally.starts
                    total.resumes += tally.resumes
                    total.accepted += tally.accepted
                    total.records += tally.records
                    total.violations += tally.violations
                    for violation in tally.violations:
                        print(violation, flush=True)
            print(f"{runner}: {total.runs} runs, {total.starts} starts, {total.records} records, "
                  f"{total.resumes} resumed as the machine was busy, {total.accepted} accepted as ended, "
                  f"{len(total.violations)} broken promises, {time.monotonic() - began:.0f} s")  # fmt: skip
            print("  killed:", ", ".join(f"{name} {count}" for name, count in sorted(total.kills.items())))
            for name, counts in (("connections in mid-run", total.connections), ("copies", total.copies)):
                if counts:
                    print(f"  {name}:", ", ".join(f"{what} {count}" for what, count in sorted(counts.items())))
            print("  trials:", ", ".join(f"{name} {count}" for name, count in sorted(total.faults.items())), flush=True)
            bad += len(total.violations)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
