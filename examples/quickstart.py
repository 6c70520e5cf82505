"""From this computer to a decision: rank the GPU machines of all clouds for a small Keras model, then probe it here.

    python examples/quickstart.py

It takes less than a minute on an idle laptop and needs no GPU, no account and no network. The GPU machines are ranked
by the description of the model, which a busy computer does not disturb. The probe shows what the training would take
here. Replace the model by your own, or leave your script as it is: vmselect recommend train.py
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported, which reports instruction sets
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

BATCH_SIZE, EPOCHS = 128, 90
EXAMPLES = 1_281_167
"""Images of the whole training, as many as in ImageNet. This example generates a few batches of them."""


def build_model() -> Any:
    """A small residual network for images of 64 x 64 pixels."""
    import keras
    from keras import layers

    inputs = keras.Input((64, 64, 3))
    flow = layers.Conv2D(32, 3, padding="same", use_bias=False)(inputs)
    for width in (32, 64, 128, 256):
        for number in range(2):
            strides = 2 if number == 0 and width > 32 else 1
            inner = layers.BatchNormalization()(flow)
            inner = layers.Conv2D(width, 3, strides, padding="same", use_bias=False)(layers.ReLU()(inner))
            inner = layers.Conv2D(width, 3, padding="same", use_bias=False)(layers.ReLU()(inner))
            if flow.shape[-1] != width:
                flow = layers.Conv2D(width, 1, strides, use_bias=False)(flow)
            flow = layers.Add()([flow, inner])
    outputs = layers.Dense(1000)(layers.GlobalAveragePooling2D()(flow))
    model = keras.Model(inputs, outputs, name="small_resnet")
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def main() -> None:
    """Describe, rank, print the address of the page, and probe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("quickstart-output"), help="folder for record and page")
    arguments = parser.parse_args()
    print("Importing Keras and vmselect ...", flush=True)
    import numpy as np

    import vmselect as vs

    model = build_model()
    random = np.random.default_rng(0)
    x = random.random((8 * BATCH_SIZE, 64, 64, 3), dtype="float32")
    y = random.integers(0, 1000, len(x))

    print("1. All GPU machines of the catalog, by the description of the model:\n", flush=True)
    ranking = vs.recommend(model, epochs=EPOCHS, batch_size=BATCH_SIZE, examples=EXAMPLES, records=[])
    print(f"{ranking.headline}\n{ranking.details}\n")
    best = {row.gpu_model: row for row in reversed(ranking.deciding_rows)}  # the best machine with each GPU
    rows = sorted(best.values(), key=lambda row: row.rank)
    for row, following in list(itertools.pairwise(rows))[:5]:
        between = following.rank - row.rank - 1
        more = f" +{between}" if between else ""
        print(f"   {row.rank}. {row.instance_type}{more} ({row.gpu_model}, {row.provider} {row.region}): "
              f"{row.time_text}, {row.cost_text}")  # fmt: skip
    print("   +1, +2 ...: the next machines have a GPU that is listed already.")
    print(f"\nNext: {ranking.next_probe or 'no probe is worth its price'}")
    print(f"Report page: {ranking.report(arguments.output / 'report.html').resolve().as_uri()}")

    print("\n2. A probe of the training on this computer, one line in fit:", flush=True)
    folder = arguments.output / time.strftime("records-%Y%m%d-%H%M%S")
    probe = vs.IterationProbe(folder, steps=4, validations=0, seconds=25, instance_type="this-computer")
    model.fit(x, y, batch_size=BATCH_SIZE, epochs=EPOCHS, verbose=0, callbacks=[probe])
    try:
        here = vs.estimate(probe.profile, epochs=EPOCHS, examples=EXAMPLES)
    except vs.errors.EstimateError:
        print("   This computer is too busy for a time now. The ranking above does not depend on it.")
    else:
        print(f"   The whole training would take {here.seconds / 3600:,.0f} hours here ({here.low / 3600:,.0f} to "
              f"{here.high / 3600:,.0f}): this computer is not a candidate.")  # fmt: skip


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nStopped. What was measured is in the output folder.")
