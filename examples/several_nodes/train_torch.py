"""A plain PyTorch training, spread over the workers of a trial by DistributedDataParallel; alone it needs no group.

vmselect sweep run plan.yaml sweep/
"""

from __future__ import annotations

import argparse
import os

import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import vmselect as vs

EXAMPLES, HELD_OUT, FEATURES, CLASSES = 4608, 576, 64, 10


def join_workers() -> tuple[int, int]:
    """Become one of the workers that the environment names; returns this one's number and how many there are."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count > 1:
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    return int(os.environ.get("RANK", "0")), count


def make_loader(examples: int, batch: int, worker: int, workers: int) -> DataLoader:
    """One worker's part of the data, in its batches."""
    chance = torch.Generator().manual_seed(examples)  # all workers make the same data, and take different parts
    x = torch.randn((examples, FEATURES), generator=chance)
    data = TensorDataset(x, torch.randint(0, CLASSES, (examples,), generator=chance))
    return DataLoader(data, batch_size=batch, sampler=DistributedSampler(data, workers, worker))


def main() -> None:
    """Train; a batch is that of all workers together."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="steps of an epoch that the probe watches")
    given = parser.parse_args()
    worker, workers = join_workers()
    torch.manual_seed(0)
    network: nn.Module = nn.Sequential(nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, CLASSES))
    if workers > 1:
        network = nn.parallel.DistributedDataParallel(network)
    optimizer, loss = torch.optim.Adam(network.parameters()), nn.CrossEntropyLoss()
    training = make_loader(EXAMPLES, given.batch // workers, worker, workers)
    held_out = make_loader(HELD_OUT, given.batch // workers, worker, workers)
    with vs.probe_loop(steps=given.steps, batch_size=given.batch, examples=EXAMPLES, model="dense") as probe:
        for epoch in probe.epochs(given.epochs):
            training.sampler.set_epoch(epoch)
            for x, y in probe.steps(training):
                optimizer.zero_grad()
                loss(network(x), y).backward()
                optimizer.step()
            with probe.validation(), torch.no_grad():
                for x, y in held_out:
                    loss(network(x), y)
    if workers > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
