"""How long TensorFlow idles between epochs, with tf.data's self-tuning on and off, against the rule that predicts it.

    python tests/benchmarks/waiting.py            # about six minutes

A tiny model trains in epochs of known length, whose steps sleep or keep the processor busy. Printed per length: what
lay between epochs, and the longest wait that the rule allows for. Hold it to one core (``taskset -c 0``) to see most.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

STEP = 0.01


class Longer:
    """A callback that makes every step last ``STEP`` seconds and more, asleep or busy."""

    def __init__(self, *, busy: bool) -> None:
        self.busy = busy

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("on_", "set_")):
            return lambda *_, **__: None
        raise AttributeError(name)

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        end = time.perf_counter() + STEP
        while self.busy and time.perf_counter() < end:
            pass
        time.sleep(max(0.0, end - time.perf_counter()))


def watch(seconds: float, *, tuning: bool, busy: bool, epochs: int) -> tuple[float, list[float]]:
    """The length of an epoch, and what lay between epochs, of a training whose epochs last about ``seconds``."""
    import keras
    import numpy as np
    import tensorflow as tf

    import vmselect as vs

    steps = round(seconds / (STEP + 0.0025))
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    data = tf.data.Dataset.from_tensor_slices((np.zeros((16 * steps, 4), "float32"), np.zeros(16 * steps, "float32")))
    options = tf.data.Options()
    options.autotune.enabled = tuning
    data = data.shuffle(1_024).batch(16).prefetch(tf.data.AUTOTUNE).with_options(options)
    probe = vs.IterationProbe(stop=False, instance_type="local", verbose=0)
    model.fit(data, epochs=epochs, shuffle=False, verbose=0, callbacks=[Longer(busy=busy), probe])
    timeline = probe.profile.timeline
    lengths = sorted(epoch.seconds for epoch in timeline.epochs[1:])
    return lengths[len(lengths) // 2], [b.seconds for b in timeline.boundaries if not b.final]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--lengths", nargs="+", type=float, default=[0.2, 1.0, 3.0, 6.0, 13.0], help="of epochs, seconds"
    )
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()

    from vmselect.estimation.overheads import longest_wait

    print("epoch (s)  self-tuning  processor  between epochs (s)             rule: up to (s)")
    for tuning, busy in ((True, True), (False, True), (True, False)):
        for seconds in options.lengths:
            length, between = watch(seconds, tuning=tuning, busy=busy, epochs=options.epochs)
            seen = ", ".join(f"{one:.2f}" for one in between)
            allowed = f"{longest_wait(length):.2f}" if tuning else "-"
            row = f"{length:9.2f}  {'on' if tuning else 'off':11}  {'busy' if busy else 'idle':9}  {seen:29}  {allowed}"
            print(row, flush=True)


if __name__ == "__main__":
    main()
