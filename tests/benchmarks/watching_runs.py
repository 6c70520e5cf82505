"""Real trainings under a watch: ``python -m tests.benchmarks.watching_runs [RUNS]``, about two seconds per run.

Each run is a loop over matrix products on one core. Printed are the share of runs whose final cost lies in the interval
that was given after a quarter of the steps, and, in further runs whose steps have three times the work from the middle
on, the number of steps after which the watch has seen the change.
"""

from __future__ import annotations

import argparse
from statistics import median

import numpy as np

import vmselect as vs
from vmselect.watching.account import Status

EPOCHS, STEPS, PRODUCTS = 10, 40, 15
MATRIX = np.random.default_rng(1).random((160, 160))


def train(*, change: bool) -> tuple[list[Status], Status]:
    """Train once; returns the status after every step, and the last one."""
    watch, seen = vs.Watch(path=False, usd_per_hour=3600, every_seconds=0.05, instance_type="box", verbose=0), []
    with watch.loop(batch_size=8, sample=None) as loop:
        for epoch in loop.epochs(EPOCHS):
            for _ in loop.steps(range(STEPS)):
                for _ in range(PRODUCTS * (3 if change and epoch >= EPOCHS // 2 else 1)):
                    _ = MATRIX @ MATRIX
                seen.append(watch._account.status)  # type: ignore[union-attr]
    return seen, watch.status


def print_shares(runs: int) -> None:
    """Print the share of final costs inside the interval, and the steps until a change is seen."""
    inside, widths, delays = [], [], []
    for _ in range(runs):
        seen, last = train(change=False)
        interval = next(status.final_usd for status in seen[EPOCHS * STEPS // 4 :] if status.final_usd)
        inside.append(interval.contains(last.usd or 0.0))
        widths.append((interval.high - interval.low) / 2 / interval.value)
    print(f"final cost inside the interval at 25 %: {sum(inside)} of {runs} runs, half-width {median(widths):.0%}")
    middle = EPOCHS // 2 * STEPS
    for _ in range(max(1, runs // 3)):
        seen, _last = train(change=True)
        changed = [k for k, status in enumerate(seen[middle:]) if status is not None and status.change > 1.5]
        if seen[middle - 1].change == 1.0:  # otherwise, another program has disturbed the run before
            delays.append(changed[0] if changed else len(seen))
    print(f"steps until a change of the speed is seen: {sorted(delays)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=int, nargs="?", default=30)
    print_shares(parser.parse_args().runs)
