"""What measuring costs: the stopwatch alone, and a fit of a small CNN with and without a probe.

    python tests/benchmarks/overhead.py [--pairs 12] [--steps 40] [--kind probe ...] [--backend jax ...] [--json FILE]
    python tests/benchmarks/overhead.py --watch
    python tests/benchmarks/overhead.py --describe

The second command takes about half a minute and measures only the hooks, which a watch calls at every step: those of a
callback that does nothing, of a probe and of a watch take turns. The time of the updates of the watch is taken off.
The third one compares the step times in the records of probes that describe the training and of probes that do not.

Four kinds of the same fit take turns: without any callback, with a callback whose batch hook does nothing, with a probe
that watches it whole, and with one that samples the machine and learns the wait for input as well.
The second one shows what Keras itself does differently as soon as anyone looks at batches:
on JAX and torch it then stops calling hooks from worker threads. On TensorFlow the input does not tune itself: a fit
would else sleep at its end, for as long as chance has it, and no ratio of two such fits would say anything.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

KINDS = ("without", "idle hook", "probe", "sampling probe")
BATCH = 64


def time_timer(steps: int = 200_000) -> float:
    """Microseconds per step of the stopwatch, the loop around it taken off; the best of a few."""
    from vmselect.probe.timer import StepTimer

    best = float("inf")
    for _ in range(7):
        timer = StepTimer()
        timer.start()
        timer.begin_epoch(0)
        began = time.perf_counter()
        for batch in range(steps):
            if timer.opening:
                timer.open()
            timer.end_step(batch)
        middle = time.perf_counter()
        for _batch in range(steps):
            pass
        best = min(best, ((middle - began) - (time.perf_counter() - middle)) / steps)
    return best * 1e6


def make_callback(kind: str) -> Any:
    """A callback of this kind, which keeps no record."""
    import keras

    import vmselect as vs

    class Idle(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            pass

        def on_train_batch_end(self, batch, logs=None):
            pass

    options: dict[str, Any] = {"path": False, "verbose": 0, "instance_type": "none", "region": "none", "batch_size": 1}
    if kind == "idle hook":
        return Idle()
    if kind == "probe":
        return vs.IterationProbe(stop=False, **options)
    return vs.Watch(usd_per_hour=1, budget_usd=1e9, on_limit="stop", **options)


def time_hooks(kind: str = "probe", steps: int = 100_000) -> float:
    """Microseconds per step of the two hooks of a callback, as Keras calls them, without the updates of a watch.

    This is processor time of the thread: other programs make it longer, but do not count themselves.
    """
    from vmselect.watching.account import Account

    class Model:
        stop_training = False

    updates = 0.0
    update = Account.update

    def timed(*arguments: Any, **options: Any) -> float:
        nonlocal updates
        began = time.thread_time()
        following = update(*arguments, **options)
        updates += time.thread_time() - began
        return following

    Account.update = timed
    try:
        callback = make_callback(kind)
        callback.set_params({"epochs": 1, "steps": steps})
        callback.set_model(Model())
        callback.on_train_begin()
        callback.on_epoch_begin(0)
        logs = {"loss": 1.0}
        before, began = updates, time.thread_time()
        for batch in range(steps):
            callback.on_train_batch_begin(batch, logs=logs)
            callback.on_train_batch_end(batch, logs=logs)
        taken = time.thread_time() - began - (updates - before)
        callback.on_epoch_end(0)
        callback.on_train_end()
    finally:
        Account.update = update
    return taken / steps * 1e6


HOOKS = ("idle hook", "probe", "watch")


def report_hooks(rounds: int = 15) -> None:
    """Print what the hooks of a watch take, in rounds in which all kinds take turns."""
    taken: dict[str, list[float]] = {kind: [] for kind in HOOKS}
    for turn in range(rounds):
        for place in range(len(HOOKS)):
            kind = HOOKS[(turn + place) % len(HOOKS)]
            taken[kind].append(time_hooks(kind))
    for kind, readings in taken.items():
        low, middle, high = statistics.quantiles(readings, n=4)
        print(f"hooks of a callback, {kind}: {middle:.2f} ({low:.2f} to {high:.2f}) microseconds a step")
    for other in HOOKS[:-1]:
        more = [mine - its for mine, its in zip(taken["watch"], taken[other], strict=True)]
        low, middle, high = statistics.quantiles(more, n=4)
        print(f"watch minus {other}: {middle:+.2f} ({low:+.2f} to {high:+.2f}) microseconds a step")


def time_sample(readings: int = 200) -> float:
    """Milliseconds of processor time that one sample takes, children looked for as often as in a training."""
    from vmselect.probe.counters import ContainerReader, GpuReader, MachineReader

    readers = (MachineReader(), ContainerReader(), GpuReader())
    began = time.process_time()
    for _ in range(readings):
        for reader in readers:
            reader.read(1.0)
    return (time.process_time() - began) / readings * 1e3


def make_training(steps: int) -> tuple[Any, dict[str, Any]]:
    """The small CNN and its data, for ``fit`` with one epoch, on the backend of this process."""
    import keras
    import numpy as np

    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    rng = np.random.default_rng(1)
    x, y = rng.random((steps * BATCH, 28, 28, 1), "float32"), rng.integers(0, 10, steps * BATCH)
    data: dict[str, Any] = {"x": x, "y": y, "batch_size": BATCH}
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        options = tf.data.Options()
        options.autotune.enabled = False
        data = {"x": tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH).with_options(options)}
    return model, {**data, "epochs": 1, "verbose": 0}


def time_descriptions(pairs: int, steps: int) -> dict[str, list[float]]:
    """Seconds per step in the records of fits with and without a description, in turns, and seconds of descriptions."""
    import vmselect as vs
    from vmselect.probe.recording import Recording
    from vmselect.records.step_times import step_seconds

    model, data = make_training(steps)
    describe = Recording._count_work
    readings: dict[str, list[float]] = {"with": [], "without": [], "description": []}
    for pair in range(-1, pairs):
        for kind in ("with", "without") if pair % 2 else ("without", "with"):
            Recording._count_work = describe if kind == "with" else lambda recording, *, continues: None
            probe = vs.IterationProbe(False, stop=False, verbose=0, instance_type="none", region="none")
            model.fit(**data, callbacks=[probe])
            assert (probe.profile.work is not None) == (kind == "with")
            if pair >= 0:  # after compilation and imports
                readings[kind].append(step_seconds(probe.profile) or 0.0)
                readings["description"] += [probe.profile.work.seconds or 0.0] if probe.profile.work else []
    return readings


def summarise_descriptions(backend: str, readings: dict[str, list[float]]) -> str:
    """One line: step times with a description, relative to those without it."""
    ratios = [mine / other for mine, other in zip(readings["with"], readings["without"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    step, taken = (1e3 * statistics.median(readings[name]) for name in ("without", "description"))
    return (
        f"{backend}: steps of {step:.2f} ms; with a description {middle:.3f} ({low:.3f} to {high:.3f}) times as long "
        f"in {len(ratios)} pairs; a description takes {taken:.1f} ms"
    )


def time_fits(pairs: int, steps: int, kinds: Sequence[str]) -> dict[str, list[float]]:
    """Seconds of one epoch of the small CNN, per kind and round, on the backend of this process."""
    import keras

    import vmselect as vs

    class Idle(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            pass

    model, data = make_training(steps)

    def fit(kind: str) -> float:
        callbacks = {
            "without": [],
            "idle hook": [Idle()],
            "probe": [vs.IterationProbe(stop=False, verbose=0, sample=None)],
            "sampling probe": [vs.IterationProbe(stop=False, verbose=0)],
        }[kind]
        began = time.perf_counter()
        model.fit(**data, callbacks=callbacks)
        return time.perf_counter() - began

    for kind in kinds:
        fit(kind)  # compilation and first imports
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    for pair in range(pairs):
        # The order turns, so that no kind always runs first.
        turn = pair % len(kinds)
        for kind in (*kinds[turn:], *kinds[:turn]):
            seconds[kind].append(fit(kind))
    return seconds


def summarise(backend: str, seconds: dict[str, list[float]], steps: int) -> list[str]:
    """Rows of the table: each kind's median step, its ratios to the fits beside it, and how much longer it took."""
    rows = []
    for kind in seconds:
        step = statistics.median(seconds[kind]) / steps * 1e3
        cells = [backend, kind, f"{step:.2f} ms"]
        for other in KINDS[:-1]:
            if other not in seconds or kind == other:
                cells.append("")
                continue
            ratios = sorted(mine / its for mine, its in zip(seconds[kind], seconds[other], strict=True))
            low, middle, high = statistics.quantiles(ratios, n=4)
            more = statistics.median(mine - its for mine, its in zip(seconds[kind], seconds[other], strict=True))
            cells.append(f"{middle:.3f} ({low:.3f} to {high:.3f}), {more * 1e3:+.1f} ms")
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def measure(backend: str, options: argparse.Namespace, *arguments: str) -> Any:
    """What this script measures in a process of its own with ``backend``, or the last line of its problem."""
    command = [sys.executable, __file__, "--inner", "--pairs", str(options.pairs), "--steps", str(options.steps)]
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr.strip().splitlines()[-1][:100]
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--kind", nargs="*", default=list(KINDS), choices=KINDS)
    parser.add_argument("--backend", nargs="*", default=["tensorflow", "jax", "torch"])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was measured, unrounded")
    parser.add_argument("--watch", action="store_true", help="measure only the hooks that a watch calls at every step")
    parser.add_argument("--describe", action="store_true", help="measure what descriptions do to step times")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inner and options.describe:
        print(json.dumps(time_descriptions(options.pairs, options.steps)))
        return
    if options.inner:
        print(json.dumps(time_fits(options.pairs, options.steps, options.kind)))
        return
    if options.watch:
        report_hooks()
        return
    if options.describe:
        for backend in options.backend:
            readings = measure(backend, options, "--describe")
            print(readings if isinstance(readings, str) else summarise_descriptions(backend, readings), flush=True)
        return
    timer, hooks, sample = time_timer(), min(time_hooks() for _ in range(7)), time_sample()
    print(f"stopwatch alone: {timer:.2f} microseconds a step")
    print(f"both hooks of the probe: {hooks:.2f} microseconds a step\n")
    print(f"one sample of the machine: {sample:.2f} milliseconds of processor time\n")
    print(f"{options.pairs} rounds of {options.steps} steps; ratios are medians (and quartiles) over rounds\n")
    print("| backend | fit | median step | against without | against idle hook | against probe |")
    print("|---|---|---|---|---|---|")
    fits: dict[str, dict[str, list[float]]] = {}
    for backend in options.backend:
        readings = measure(backend, options, "--kind", *options.kind)
        if isinstance(readings, str):
            print(f"| {backend} | left out: {readings} | | | | |")
            continue
        fits[backend] = readings
        print("\n".join(summarise(backend, fits[backend], options.steps)), flush=True)
    if options.json:
        measured = {
            "stopwatch_microseconds": timer,
            "hooks_microseconds": hooks,
            "sample_milliseconds": sample,
            "steps": options.steps,
            "fit_seconds": fits,
        }
        options.json.write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
