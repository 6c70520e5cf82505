"""Probe one small model on this machine as two sizes of machine, price them, rank them, write the report page.

    python examples/quickstart.py

It trains for seconds and needs no account, no cloud and no network. The two "machines" are this computer: once limited
to one core, once with all cores. They represent two VM types with made-up prices. For real VMs, run the probe on each
of them, copy the profiles into one folder, and rank them with the prices that ship with vmselect.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

BATCH_SIZES = (32, 128)
EPOCHS = [5, 20, 50]
EXAMPLES, VALIDATION_EXAMPLES = 6_400, 1_280
EXAMPLE_USD_PER_HOUR = {"standin-one-core": 0.05, "standin-all-cores": 0.09}


def train(machine: str, batch_size: int, folder: Path) -> None:
    """A typical training script; the callback is the only line that vmselect needs."""
    if machine == "standin-one-core" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    import keras
    import numpy as np

    import vmselect as vs

    random = np.random.default_rng(0)
    x = random.random((EXAMPLES, 24, 24, 1), dtype="float32")
    y = random.integers(0, 10, EXAMPLES)
    x_val, y_val = x[:VALIDATION_EXAMPLES], y[:VALIDATION_EXAMPLES]

    model = keras.Sequential(
        [
            keras.layers.Input((24, 24, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10),
        ],
        name="small_cnn",
    )
    model.compile(optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(
        x,
        y,
        batch_size=batch_size,
        epochs=max(EPOCHS),
        validation_data=(x_val, y_val),
        verbose=0,
        callbacks=[vs.IterationProbe(folder, instance_type=machine, verbose=0)],
    )


def probe_all(folder: Path) -> None:
    """Run the training above once per machine size and batch size, each in its own process."""
    runs = [(machine, batch_size) for machine in EXAMPLE_USD_PER_HOUR for batch_size in BATCH_SIZES]
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ}
    for number, (machine, batch_size) in enumerate(runs, start=1):
        started = time.monotonic()
        print(f"[{number}/{len(runs)}] probing {machine} at batch size {batch_size} ...", end=" ", flush=True)
        command = [sys.executable, __file__, "--train", machine, str(batch_size), str(folder)]
        done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"failed:\n{done.stderr}")
        print(f"{time.monotonic() - started:.0f} s")


def decide(folder: Path, page: Path) -> None:
    """Rank the profiles and write the report page."""
    import vmselect as vs

    offers = [
        {"provider": "example", "instance_type": name, "region": "here", "market": "on_demand", "usd_per_hour": price}
        for name, price in EXAMPLE_USD_PER_HOUR.items()
    ]
    catalog = vs.Catalog.embedded().with_offers(offers)
    ranking = vs.rank(vs.load_profiles(folder), epochs=EPOCHS, catalog=catalog, objective="cost", batch_size="all")
    print(f"\n{ranking}\n")
    print("The machines are stand-ins (this computer on one core, and on all), and their prices are examples.")
    print(f"Report page: {ranking.report(page).resolve().as_uri()}")


def main() -> None:
    """Probe, rank, and print the address of the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("quickstart-output"), help="folder for profiles and page")
    parser.add_argument("--train", nargs=3, metavar=("MACHINE", "BATCH_SIZE", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        machine, batch_size, folder = arguments.train
        train(machine, int(batch_size), Path(folder))
        return
    folder = arguments.output / time.strftime("profiles-%Y%m%d-%H%M%S")
    probe_all(folder)
    decide(folder, arguments.output / "report.html")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nStopped. The profiles made so far are in the output folder.")
