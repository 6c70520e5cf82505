"""Rank six GPU machines from published times, without measuring anything.

    python examples/published_times.py

Source: Eva Maia Malta, "Selecting Efficient Virtual Machines for Training Deep Learning Models on the Cloud", MSc
dissertation, UNICAMP, 2021, Table 4.2: ResNet-50 on CIFAR-10 at batch size 512, 8,000 steps, with mean and standard
deviation of three runs. The prices are those of February 2021. With a probe, seconds on each machine are enough.
"""

from __future__ import annotations

import sys
from pathlib import Path

import vmselect as vs

BATCH_SIZE, STEPS, EXAMPLES = 512, 8_000, 50_000
STEPS_PER_EPOCH = -(-EXAMPLES // BATCH_SIZE)
EPOCHS = round(STEPS / STEPS_PER_EPOCH)
GPUS = {"p2.xlarge": 1, "p2.8xlarge": 8, "p2.16xlarge": 16, "p3.2xlarge": 1, "p3.8xlarge": 4, "p3.16xlarge": 8}
SECONDS = {  # mean and standard deviation of three runs
    "p2.xlarge": (3602.0, 21.3),
    "p2.8xlarge": (1143.3, 40.7),
    "p2.16xlarge": (1471.3, 62.7),
    "p3.2xlarge": (1257.0, 7.8),
    "p3.8xlarge": (705.0, 13.9),
    "p3.16xlarge": (917.7, 33.9),
}


def rank_published() -> vs.Ranking:
    """The cheapest machine within half an hour. The runs of a machine are its mean and the mean ± its deviation."""
    profiles = [
        vs.Profile.from_times(
            instance_type=name, batch_size=BATCH_SIZE, steps_per_epoch=STEPS_PER_EPOCH, epochs=EPOCHS, model="resnet50",
            total_seconds=[mean - deviation, mean, mean + deviation], gpus=GPUS[name],
        )
        for name, (mean, deviation) in SECONDS.items()
    ]  # fmt: skip
    return vs.rank(profiles, epochs=EPOCHS, catalog=vs.Catalog.embedded(date="2021-02-28"), deadline_hours=0.5)


if __name__ == "__main__":
    ranking = rank_published()
    print(ranking)
    print(ranking.report(Path(sys.argv[1] if len(sys.argv) > 1 else "report.html")).resolve().as_uri())
