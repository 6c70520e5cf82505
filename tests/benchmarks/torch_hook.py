"""What watching a plain torch script costs: microseconds of processor time per step, everything included.

    python tests/benchmarks/torch_hook.py [--steps 50000] [--rounds 7]

A loop asks a loader that has nothing to do for its batches and tells an optimizer that has nothing to do to step, once
as it is and once watched, with the wait for data timed; the difference of the best rounds is the price. It has to stay
under 2 microseconds.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch.optim import optimizer as optimizers
from torch.utils.data import dataloader as loaders

from vmselect.probe.torch_script import TorchScript

LIMIT_US = 2.0


class Idle(torch.optim.Optimizer):
    """Steps and does nothing."""

    def __init__(self) -> None:
        super().__init__([torch.zeros(1, requires_grad=True)], {})

    def step(self, closure: object = None) -> None:
        """Nothing."""


class Batches(loaders.DataLoader):
    """A loader of batches that are there already."""

    def __init__(self, count: int) -> None:
        super().__init__(range(count), batch_size=1)
        self.ready = [None] * count


def time_loop(batches: Batches, optimizer: Idle, steps: int) -> float:
    """Microseconds of processor time per step, after the first few: what a probe looks up once comes before them."""
    asked = iter(batches)
    for _ in range(10):
        next(asked)
        optimizer.step()
    began = time.process_time()
    for _ in asked:
        optimizer.step()
    return (time.process_time() - began) / (steps - 10) * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    batches, optimizer = Batches(given.steps), Idle()
    loaders.DataLoader.__iter__ = lambda loader: iter(loader.ready)
    alone, watched = [], []
    for _ in range(given.rounds):
        alone.append(time_loop(batches, optimizer, given.steps))
        watch = TorchScript(instance_type="none", region="none", sample=3600.0, verbose=0, stop=False)
        watch.watch_loader(loaders)
        watch.watch_optimizer(optimizers)
        watched.append(time_loop(batches, optimizer, given.steps))
        watch.close()
        assert watch.profile.timeline.steps.steps == given.steps
    price = min(watched) - min(alone)
    print(f"a step alone {min(alone):.2f} us, watched {min(watched):.2f} us: {price:.2f} us a step")
    print("under" if price < LIMIT_US else "NOT UNDER", f"{LIMIT_US:g} us")


if __name__ == "__main__":
    main()
