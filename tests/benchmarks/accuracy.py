"""How far off are the predictions? Every method on the same timelines, against the true time of the training.

    python tests/benchmarks/accuracy.py --quick        # under three minutes
    python tests/benchmarks/accuracy.py                # under forty; resumes where it was interrupted

Three parts. *Metronome*: a real fit whose steps sleep known patterns. *In-run*: real trainings of several kinds,
watched to their end; predictions use the first part only. *Cross-run*: a short probe in one process, full trainings in
others.
Runs are kept under ``--cache``; delete it to measure anew. Exit code 1 when a promise of the documentation is broken.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from accuracy_case import DISTURBED
from accuracy_patterns import OUTLIERS, PATTERNS, PROBE_STEPS
from accuracy_promises import broken_promises
from accuracy_scores import HEADER, Score, as_markdown, first_epochs, predict, score, table
from accuracy_trainings import TRAININGS

from vmselect.estimation import estimate
from vmselect.records import Profile

BACKENDS = ("tensorflow", "jax", "torch")
PARTS = ("metronome", "outliers", "in-run", "cross-run")
CROSS_RUN = ("dense", "lstm", "gru-text-tfdata")
FULL_RUNS = 3
ATTEMPTS = 6
THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "NPROC")
SEEDS = 30


@dataclass(frozen=True)
class Run:
    """One process to start: what it measures and where it is kept."""

    part: str
    backend: str
    case: str
    number: int = 0
    probe: bool = False

    @property
    def name(self) -> str:
        return f"{self.part}-{self.backend}-{self.case}-{'probe' if self.probe else self.number}.json"

    def command(self, out: Path) -> list[str]:
        kind = "train" if self.part in ("in-run", "cross-run") else "metronome"
        seed = self.number
        command = [str(Path(__file__).parent / "accuracy_case.py"), kind, self.backend, self.case]
        return [sys.executable, *command, "--out", str(out), "--seed", str(seed), *(["--probe"] if self.probe else [])]


def plan(parts: list[str], backends: list[str], *, quick: bool) -> Iterator[Run]:
    """Every run of the benchmark, in the order in which they are started."""
    for backend in backends:
        if "metronome" in parts:
            for case in ("hiccup",) if quick else PATTERNS:
                yield Run("metronome", backend, case)
        if "outliers" in parts:
            yield Run("outliers", backend, "outliers", number=2 if quick else SEEDS)
        if "in-run" in parts:
            for case in ("dense",) if quick else TRAININGS:
                yield Run("in-run", backend, case)
        if "cross-run" in parts and not quick:
            for case in CROSS_RUN:
                yield Run("cross-run", backend, case, probe=True)
                yield from (Run("cross-run", backend, case, number=number) for number in range(FULL_RUNS))


def measure(run: Run, cache: Path, *, timeout: float, end: float = math.inf) -> str | None:
    """Start one run unless it is kept; what went wrong, or None.

    Each attempt takes at most ``timeout`` seconds, and none goes on after ``end`` of the monotonic clock.
    """
    out = cache / run.name
    if is_kept(run, cache):
        return None
    # As many threads as cores that may be used: more of them only wait for each other.
    threads = dict.fromkeys(THREADS, str(len(os.sched_getaffinity(0))))
    environment = {**os.environ, **threads, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    for attempt in range(1, ATTEMPTS + 1):
        left = max(0.0, min(timeout, end - time.monotonic()))
        command = [*run.command(out), *(["--accept-disturbed"] if attempt == ATTEMPTS else [])]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=left)
        except subprocess.TimeoutExpired:
            return f"took longer than {left:.0f} s"
        if done.returncode != DISTURBED:
            break
        print("disturbed, again;", end=" ", flush=True)
    print(done.stdout.strip(), end=" ")
    if done.returncode or not out.exists():
        return (done.stderr.strip().splitlines() or ["no output"])[-1]
    return None


def load(run: Run, cache: Path) -> list[Profile]:
    """The profiles that a run left."""
    rows = json.loads((cache / run.name).read_text(encoding="utf-8"))
    return [Profile.model_validate_json(json.dumps(row)) for row in rows]


def is_kept(run: Run, cache: Path) -> bool:
    """Whether a run of that very training is in the cache."""
    try:
        profiles = load(run, cache)
    except (OSError, ValueError):  # not there, or of another version
        return False
    trained = TRAININGS.get(run.case) or PATTERNS.get(run.case, OUTLIERS)
    return all(profile.setup.epochs == trained.epochs for profile in profiles)


def score_all(runs: list[Run], cache: Path) -> list[Score]:
    """Scores of every run that is there."""
    scores: list[Score] = []
    present = [run for run in runs if is_kept(run, cache)]
    for run in present:
        if run.part != "cross-run":
            for profile in load(run, cache):
                scores += score(run.part, run.backend, run.case, profile, steps=PROBE_STEPS)
    for run in present:
        if run.part == "cross-run" and run.probe:
            (seen,) = load(run, cache)
            for other in present:
                if (other.part, other.backend, other.case) == (run.part, run.backend, run.case) and not other.probe:
                    (watched,) = load(other, cache)
                    scores += predict(
                        run.part, run.backend, run.case, seen, watched.total_seconds or 0.0, watched.setup.epochs or 1,
                        two_epochs=first_epochs(watched) if other.number == FULL_RUNS - 1 else None,
                    )  # fmt: skip
    return scores


def spread_of_truth(runs: list[Run], cache: Path) -> dict[tuple[str, str], float]:
    """Per backend and case, how far repeated identical trainings lie from their mean, in shares of it."""
    totals: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        if run.part == "cross-run" and not run.probe and is_kept(run, cache):
            totals.setdefault((run.backend, run.case), []).append(load(run, cache)[0].total_seconds or 0.0)
    return {key: (max(some) - min(some)) / (sum(some) / len(some)) for key, some in totals.items() if len(some) > 1}


def time_estimates(count: int = 1_000) -> float:
    """Seconds that it takes to estimate from ``count`` profiles of forty steps."""
    profile = Profile.from_times(
        steps_per_epoch=100, first_iteration_seconds=2.0, iteration_seconds=[0.1] * 40, validation_seconds=[1.0, 0.5]
    )
    begin = time.perf_counter()
    for _ in range(count):
        estimate(profile, epochs=50)
    return time.perf_counter() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few cases, no cross-run")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    parser.add_argument("--cache", type=Path, default=Path(".accuracy-cache"))
    parser.add_argument("--out", type=Path, help="write the table there, as Markdown")
    parser.add_argument("--score-only", action="store_true", help="start nothing, score what is kept")
    parser.add_argument("--cases", action="store_true", help="print the errors of every single case too")
    parser.add_argument("--timeout", type=float, default=300, help="seconds that one run may take")
    options = parser.parse_args()
    cache = options.cache / "quick" if options.quick else options.cache
    cache.mkdir(parents=True, exist_ok=True)
    runs = list(plan(options.parts, options.backends, quick=options.quick))
    for number, run in enumerate(runs, 1):
        if options.score_only:
            break
        print(f"[{number}/{len(runs)}] {run.name.removesuffix('.json')}", end=" ", flush=True)
        problem = measure(run, cache, timeout=options.timeout)
        print(problem or "ok", flush=True)
    failed = [run.name for run in runs if not is_kept(run, cache)]
    scores = score_all(runs, cache)
    rows = table(scores)
    widths = [max(len(row[column]) for row in [HEADER, *rows]) for column in range(len(HEADER))]
    for row in [HEADER, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
    if options.cases:
        for key in sorted({(one.part, one.backend, one.case, one.method) for one in scores if one.part != "outliers"}):
            errors = [one.error for one in scores if (one.part, one.backend, one.case, one.method) == key]
            print("  ".join(key), ", ".join(f"{error:+.1%}" for error in errors))
    spreads = spread_of_truth(runs, cache)
    for (backend, case), spread in spreads.items():
        print(f"repeated full runs of {case} on {backend} lie {100 * spread:.1f} % apart")
    print(f"1,000 profiles estimated in {time_estimates():.2f} s")
    if options.out:
        options.out.write_text(as_markdown(rows), encoding="utf-8")
    if failed:
        print(f"MISSING: {len(failed)} of {len(runs)} runs, so nothing is shown for them: {', '.join(failed)}")
    broken = broken_promises(scores, spreads, quick=options.quick)
    for promise in broken:
        print(f"BROKEN: {promise}")
    return 1 if failed or broken else 0


if __name__ == "__main__":
    sys.exit(main())
