"""A small training loop in numpy, probed: what a sweep runs on every machine. It needs nothing but its probe.

vmselect sweep run plan.yaml sweep/ --catalog prices.csv --budget-usd 1
"""

from __future__ import annotations

import argparse

import numpy as np

import vmselect as vs

EXAMPLES, FEATURES, HIDDEN = 4096, 256, 512


def main() -> None:
    """Train a network of one hidden layer, batch by batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=64)
    batch = parser.parse_args().batch
    chance = np.random.default_rng(0)
    x = chance.standard_normal((EXAMPLES, FEATURES), dtype=np.float32)
    y = (x[:, :1] > 0).astype(np.float32)
    first = chance.standard_normal((FEATURES, HIDDEN), dtype=np.float32) / 16
    second = chance.standard_normal((HIDDEN, 1), dtype=np.float32) / 22
    with vs.probe_loop(batch_size=batch, examples=EXAMPLES, model="one-layer") as probe:
        for _ in range(3):
            for at in probe.steps(range(0, EXAMPLES, batch)):
                inputs, wanted = x[at : at + batch], y[at : at + batch]
                hidden = np.maximum(inputs @ first, 0)
                error = (hidden @ second - wanted) / len(inputs)
                back = (error @ second.T) * (hidden > 0)
                second -= 0.01 * hidden.T @ error
                first -= 0.01 * inputs.T @ back


if __name__ == "__main__":
    main()
