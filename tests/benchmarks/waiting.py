"""How often and how long TensorFlow idles between epochs, against the rule that predicts it.

    python tests/benchmarks/waiting.py                     # steps from idle to busy, and real models: about ten minutes
    python tests/benchmarks/waiting.py --check             # workloads that no constant was chosen on
    python tests/benchmarks/waiting.py --near              # epochs that end close to the wake-up after 2.55 s

Hold it to one core or two (``taskset -c 0``, ``taskset -c 0,1``): the busier the processor, the more often it waits.
Every case is a short probe, then the whole training. ``--out`` keeps what was seen, ``--read`` prints it again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
CORES = sorted(os.sched_getaffinity(0))
for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
    os.environ[name] = str(len(CORES))

STEP = 0.01
TELLING = 0.06
"""A wait shorter than this cannot be told from other work."""


class Longer:
    """A callback that makes every step last ``step`` seconds and more; ``busy`` of that it keeps the processor busy."""

    def __init__(self, busy: float, step: float) -> None:
        self.busy, self.step = busy, step

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("on_", "set_")):
            return lambda *_, **__: None
        raise AttributeError(name)

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        begin = time.perf_counter()
        while time.perf_counter() < begin + self.step * self.busy:
            pass
        time.sleep(max(0.0, begin + self.step - time.perf_counter()))


def train_paced(
    probe: Any, *, busy: float, seconds: float, epochs: int = 8, tuning: bool = True, step: float = STEP
) -> float:
    """Seconds of a training of a tiny model, whose epochs last about ``seconds``."""
    import keras
    import numpy as np
    import tensorflow as tf

    steps = round(seconds / (step + 0.0025))
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    data = tf.data.Dataset.from_tensor_slices((np.zeros((16 * steps, 4), "float32"), np.zeros(16 * steps, "float32")))
    options = tf.data.Options()
    options.autotune.enabled = tuning
    data = data.shuffle(1_024).batch(16).prefetch(tf.data.AUTOTUNE).with_options(options)
    begin = time.perf_counter()
    model.fit(data, epochs=epochs, shuffle=False, verbose=0, callbacks=[Longer(busy, step), probe])
    return time.perf_counter() - begin


def layers_of(kind: str) -> tuple[list[Any], tuple[int, ...], int]:
    """Layers, shape of an example and batch size of a model."""
    from keras import layers

    kinds: dict[str, Callable[[], tuple[list[Any], tuple[int, ...], int]]] = {
        "mlp": lambda: ([layers.Dense(256, activation="relu") for _ in range(2)], (128,), 64),
        "conv": lambda: (
            [layers.Conv2D(16, 3), layers.Conv2D(16, 3), layers.GlobalAveragePooling2D()],
            (24, 24, 3),
            32,
        ),
        "rnn": lambda: ([layers.GRU(32)], (20, 8), 32),
        "wide": lambda: ([layers.Dense(1024, activation="relu") for _ in range(2)], (512,), 128),
        # Used for no constant:
        "lstm": lambda: ([layers.LSTM(24), layers.Dense(32)], (30, 12), 48),
        "conv1d": lambda: ([layers.Conv1D(32, 5), layers.Conv1D(32, 5), layers.GlobalMaxPooling1D()], (64, 8), 40),
        "deep": lambda: ([layers.Dense(400, activation="gelu") for _ in range(5)], (200,), 100),
    }
    return kinds[kind]()


def train_real(probe: Any, *, kind: str, examples: int, validation: int, dataset: bool, epochs: int) -> float:
    """Seconds of a training that keeps the processor busy by itself."""
    import keras
    import numpy as np
    import tensorflow as tf

    layers, shape, batch = layers_of(kind)
    model = keras.Sequential([keras.Input(shape), *layers, keras.layers.Dense(10)])
    model.compile(optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    random = np.random.default_rng(0)

    def make(count: int) -> Any:
        return random.standard_normal((count, *shape)).astype("float32"), random.integers(0, 10, count).astype("int32")

    data, held = make(examples), make(validation) if validation else None
    begin = time.perf_counter()
    if dataset:
        pipes = [one and tf.data.Dataset.from_tensor_slices(one).batch(batch).prefetch(2) for one in (data, held)]
        begin = time.perf_counter()
        model.fit(pipes[0], epochs=epochs, validation_data=pipes[1], verbose=0, callbacks=[probe])
    else:
        model.fit(*data, batch_size=batch, epochs=epochs, validation_data=held, verbose=0, callbacks=[probe])
    return time.perf_counter() - begin


def real(kind: str, examples: int, validation: int, dataset: bool, epochs: int) -> Callable[[Any], float]:
    return lambda probe: train_real(
        probe, kind=kind, examples=examples, validation=validation, dataset=dataset, epochs=epochs
    )


def paced(
    busy: float, seconds: float, epochs: int, *, tuning: bool = True, step: float = STEP
) -> Callable[[Any], float]:
    return lambda probe: train_paced(probe, busy=busy, seconds=seconds, epochs=epochs, tuning=tuning, step=step)


CHOSEN: dict[str, tuple[int, Callable[[Any], float]]] = {
    **{f"busy {b}, {s} s": (8, paced(b, s, 8)) for b in (0.0, 0.3, 0.6, 1.0) for s in (0.8, 1.7, 3.4)},
    "mlp": (6, real("mlp", 30_000, 2_000, False, 6)),
    "conv tf.data": (6, real("conv", 3_000, 300, True, 6)),
    "rnn": (6, real("rnn", 6_000, 0, False, 6)),
    "wide": (5, real("wide", 16_000, 1_000, False, 5)),
    "off": (4, paced(1.0, 1.7, 4, tuning=False)),
}
"""Cases that the probability of a wait was chosen on: number of epochs and training."""

CHECKED: dict[str, tuple[int, Callable[[Any], float]]] = {
    "lstm": (6, real("lstm", 9_000, 900, False, 6)),
    "conv1d tf.data": (6, real("conv1d", 16_000, 800, True, 6)),
    "deep": (6, real("deep", 40_000, 0, False, 6)),
}

NEAR: dict[str, tuple[int, Callable[[Any], float]]] = {
    f"busy {b}, {s} s": (8, paced(b, s, 8, step=0.05)) for b in (0.0, 1.0) for s in (2.3, 2.45, 2.55, 2.65)
}
"""Cases whose epochs end before, at or after the wake-up after 2.55 s, from which it is 2.56 s to the next one."""


def watch(name: str, epochs: int, train: Callable[[Any], float]) -> dict[str, Any]:
    """A probe and a whole training of one case, each with what the processor did meanwhile."""
    import psutil

    import vmselect as vs

    row: dict[str, Any] = {"case": name, "epochs": epochs, "cores": len(CORES)}
    for part, stop in (("probe", True), ("whole", False)):
        probe = vs.IterationProbe(stop=stop, instance_type="local", verbose=0)
        vs.mark_start()
        psutil.cpu_percent(percpu=True)
        row[f"{part}_seconds"] = train(probe)
        shares = psutil.cpu_percent(percpu=True)
        row[f"{part}_busy"] = sum(shares[core] for core in CORES) / len(CORES) / 100
        row[part] = probe.profile.model_dump(mode="json")
    return row


def describe(row: dict[str, Any]) -> str:
    """One case: how many of the later boundaries waited, and what the estimate says."""
    import vmselect as vs
    from vmselect.estimation.overheads import next_wake_up

    probe, whole = (vs.Profile.model_validate_json(json.dumps(row[part])) for part in ("probe", "whole"))
    timeline = whole.timeline
    lengths = {epoch.epoch: epoch.seconds for epoch in timeline.epochs}
    for validation in timeline.validations:
        lengths[validation.epoch] += validation.seconds
    waited, told, seen = 0, 0, []
    for boundary in timeline.boundaries[1:]:
        wrap_up = boundary.before_validation_seconds or 0.0
        ends = lengths[boundary.epoch] + wrap_up
        wait = next_wake_up(ends) - ends
        if not boundary.final and wait > TELLING:
            told, waited = told + 1, waited + (boundary.seconds - wrap_up > wait / 2)
            seen.append(f"{boundary.seconds - wrap_up:.2f} of {wait:.2f}")
    after = row["whole_seconds"] - (timeline.fit_seconds or 0.0)
    truth = row["whole_seconds"]
    predicted, thesis = (
        vs.estimate(probe, epochs=row["epochs"], method=method) for method in ("robust", "malta-iteration")
    )
    begun = predicted.terms.get("initialization", 0.0)  # imports, above all, which only the first case of a process has
    awake = predicted.seconds - row["epochs"] * idle_of(probe)
    values = (predicted.seconds, awake, thesis.seconds)
    errors = "  ".join(f"{100 * ((value - begun) / truth - 1):+6.1f}" for value in values)
    inside = "inside" if predicted.low <= truth + begun <= predicted.high else "OUTSIDE"
    busy = f"{row['cores']}  {row['probe_busy']:.2f} {row['whole_busy']:.2f}"
    counts = f"{waited:2}/{told:<2} after {after:5.2f}"
    return f"{row['case']:18} {busy}  {counts}  {truth:6.1f} s  {errors}  {inside}  {', '.join(seen)}"


def idle_of(profile: Any) -> float:
    """Seconds of waiting after every epoch that the estimate counts."""
    from vmselect.estimation import fit_runtime

    return fit_runtime(profile).waits.mean_seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="workloads that no constant was chosen on")
    parser.add_argument("--near", action="store_true", help="epochs that end close to a wake-up")
    parser.add_argument("--cases", nargs="+", help="only those whose names contain one of these")
    parser.add_argument("--out", type=Path, help="keep what was seen there, as JSON")
    parser.add_argument("--read", type=Path, nargs="+", help="start nothing, print what was kept")
    options = parser.parse_args()
    print("case, cores, busy while probed and trained, boundaries that waited, wait after the last epoch, true time,")
    print("errors in % of: robust, robust without the wait, equation 5.3; waits seen and by the rule")
    if options.read:
        for path in options.read:
            for row in json.loads(path.read_text(encoding="utf-8")):
                print(describe(row))
        return
    cases = CHECKED if options.check else NEAR if options.near else CHOSEN
    names: Sequence[str] = [n for n in cases if not options.cases or any(part in n for part in options.cases)]
    rows = []
    for name in names:
        rows.append(watch(name, *cases[name]))
        if options.out:
            options.out.write_text(json.dumps(rows), encoding="utf-8")
        print(describe(rows[-1]), flush=True)


if __name__ == "__main__":
    main()
