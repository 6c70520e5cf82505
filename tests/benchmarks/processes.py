"""Are trainings inside of the intervals of a probe in another process on the same machine? Per backend.

    python tests/benchmarks/processes.py --cache FOLDER                # at most 14 minutes, on an idle machine
    python tests/benchmarks/processes.py --cache FOLDER --read         # the table of what was measured before

Trainings and probes are those of the part *cross-run* of ``accuracy.py``, each in a process of its own: one probe per
backend and training, then twelve whole trainings per backend. Backends take turns, so that slow minutes of the machine
affect all of them. Nothing is started once ``--minutes`` are over, and what runs then is ended. A second call continues
where the first one stopped. The table is that of ``calibration.py``, with a backend per row.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from accuracy import BACKENDS, CROSS_RUN, Run, is_kept, load, measure
from calibration import Case, assess, format_table

import vmselect as vs

TRAININGS = 12
"""Whole trainings per backend."""


def plan(backends: Sequence[str], trainings: int) -> list[Run]:
    """The probes, then the whole trainings, with backends in turn.

    >>> [run.name for run in plan(["jax"], 3)][-1]
    'cross-run-jax-gru-text-tfdata-0.json'
    """
    probes = [Run("cross-run", backend, case, probe=True) for case in CROSS_RUN for backend in backends]
    whole = [
        Run("cross-run", backend, CROSS_RUN[number % len(CROSS_RUN)], number=number // len(CROSS_RUN))
        for number in range(trainings)
        for backend in backends
    ]
    return [*probes, *whole]


def list_cases(runs: Sequence[Run], cache: Path) -> list[Case]:
    """The prediction of each whole training from the probe of the same backend and training."""
    probes = {(run.backend, run.case): load(run, cache)[0] for run in runs if run.probe}
    cases = []
    for run in runs:
        probe = probes.get((run.backend, run.case))
        if run.probe or probe is None:
            continue
        (watched,) = load(run, cache)
        if watched.total_seconds:
            estimate = vs.estimate(probe, epochs=watched.setup.epochs or 1)
            bounds = (estimate.seconds, estimate.low, estimate.high)
            cases.append(Case("other process", run.backend, run.case, watched.total_seconds, *bounds))
    return cases


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True, help="folder of the measured runs")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    parser.add_argument("--trainings", type=int, default=TRAININGS, help="whole trainings per backend")
    parser.add_argument("--minutes", type=float, default=14.0, help="most minutes for all measurements")
    parser.add_argument("--read", action="store_true", help="measure nothing")
    options = parser.parse_args(arguments)
    options.cache.mkdir(parents=True, exist_ok=True)
    runs, end = plan(options.backends, options.trainings), time.monotonic() + 60 * options.minutes
    for number, run in enumerate(runs, 1):
        left = end - time.monotonic()
        if options.read or left <= 0:
            break
        print(f"{number} of {len(runs)}: {run.name}, {left / 60:.0f} min left", file=sys.stderr, flush=True)
        if problem := measure(run, options.cache, timeout=left, end=end):
            print(f"{run.name}: {problem}", file=sys.stderr)
    kept = [run for run in runs if is_kept(run, options.cache)]
    if len(kept) < len(runs):
        print(f"{len(kept)} of {len(runs)} runs are measured. Call again to measure the others.", file=sys.stderr)
    by_backend: dict[str, list[Case]] = {}
    for case in list_cases(kept, options.cache):
        by_backend.setdefault(case.source, []).append(case)
    print(format_table({"other process": [assess(cases) for cases in by_backend.values()]}))
    return 0 if len(kept) == len(runs) else 1


if __name__ == "__main__":
    raise SystemExit(main())
