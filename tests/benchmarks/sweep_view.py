"""What watching costs: the processor time of a sweep whose trial only sleeps, with its live view on a terminal.

python tests/benchmarks/sweep_view.py --seconds 20 --trials 500
"""

from __future__ import annotations

import argparse
import os
import pty
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

import vmselect as vs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--trials", type=int, default=500)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text("import time\ntime.sleep(3600)\n")
        vs.Catalog.default()  # importing pandas and reading prices is not planning
        factors = {"machine": ["m"], "number": list(range(given.trials))}
        began = time.perf_counter()
        plan = vs.Plan("python3 train.py", factors=factors, minutes=60, machines={"m": {"usd_per_hour": 1.0}})
        plan.to_frame()
        print(f"{len(plan.trials)} trials planned and priced in {time.perf_counter() - began:.3f} s")
        plan.save(folder / "plan.yaml")
        share, drawn = watch(folder, given.seconds)
        print(f"live view of {len(plan.trials)} trials, one of them asleep: {100 * share:.2f} % of a core over "
              f"{given.seconds:g} s; {drawn} bytes drawn")  # fmt: skip
    return 0 if share < 0.02 and drawn else 1


def watch(folder: Path, seconds: float) -> tuple[float, int]:
    """The share of a core that a sweep takes while its trial sleeps, and how much its view drew meanwhile."""
    master, terminal = pty.openpty()
    drawn = [0]
    command = [
        sys.executable,
        "-c",
        "from vmselect.cli import main; main()",
        "sweep",
        "run",
        "plan.yaml",
        "out",
        "--yes",
    ]
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=terminal, env={**os.environ, "TERM": "xterm", "COLUMNS": "120"})  # fmt: skip
    os.close(terminal)

    def read() -> None:
        while True:
            try:
                drawn[0] += len(os.read(master, 65536))
            except OSError:
                return

    threading.Thread(target=read, daemon=True).start()
    try:
        journal = folder / "out" / "journal.jsonl"
        while not (journal.exists() and '"started"' in journal.read_text()):
            assert process.poll() is None, "the sweep ended"
            time.sleep(0.2)
        time.sleep(2.0)
        seen = psutil.Process(process.pid)
        before, drawn[0], began = seen.cpu_times(), 0, time.perf_counter()
        time.sleep(seconds)
        after, elapsed = seen.cpu_times(), time.perf_counter() - began
        return (after.user + after.system - before.user - before.system) / elapsed, drawn[0]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


if __name__ == "__main__":
    raise SystemExit(main())
