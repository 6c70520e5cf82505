"""Does a probe change how fast Keras trains? Probed and unprobed fits of five models, in turn.

    python tests/benchmarks/dispatch.py [--backends NAME ...] [--cores N ...] [--workloads NAME ...] [--seconds S]

For each backend and number of cores, one process trains each model again and again: without a probe, with a probe that
measures the whole fit, in alternating order. Both have the same callback, which reads the clock at the beginning and
end of every epoch and has no batch hook, so that Keras calls callbacks as in a training without any. The steady time of
a step is the time of the last epoch divided by its steps. The table has the median and the quartiles of the ratios of
neighbouring fits, per model and per backend. A second ratio is that of the processor time of all threads, which other
programs and other guests of the host disturb less.

All of it takes about ten minutes: ``--seconds`` (default 14) per model, and the imports. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BACKENDS = ("tensorflow", "jax", "torch")
CLOCKS = ("time", "processor time")
STEPS = 40
LIMIT_SECONDS = 110
"""Time after which a process with all models of one backend is ended."""


def main() -> None:
    """Measure, print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    parser.add_argument("--cores", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--workloads", nargs="+", choices=[*WORKLOADS], default=[*WORKLOADS])
    parser.add_argument("--seconds", type=float, default=14.0, help="seconds of training per model (14)")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return run_child(options)
    every: dict[str, dict[str, list[float]]] = {}
    print(f"{'backend':<11}{'cores':<6}{'model':<13}{'step':>10}{'pairs':>7}  {'time (quartiles)':<26}processor time")
    for cores in options.cores:
        for backend in options.backends:
            for name, cell in start_child(backend, cores, options).items():
                for clock in CLOCKS:
                    every.setdefault(backend, {}).setdefault(clock, []).extend(cell[clock])
                print_row(backend, cores, name, f"{1e3 * cell['step']:.2f} ms", cell)
    for backend, cell in every.items():
        print_row(backend, "all", "", "", cell)
    return None


def print_row(backend: str, cores: object, name: str, step: str, cell: dict[str, Any]) -> None:
    """Print the ratios of one model, or of all models of a backend."""
    ratios = "".join(f"{describe(cell[clock]):<26}" for clock in CLOCKS)
    print(f"{backend:<11}{cores:<6}{name:<13}{step:>10}{len(cell[CLOCKS[0]]):>7}  {ratios}".rstrip(), flush=True)


def describe(ratios: list[float]) -> str:
    """Median and quartiles."""
    if len(ratios) < 2:
        return ", ".join(f"{ratio:.3f}" for ratio in ratios) or "not measured"
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def start_child(backend: str, cores: int, options: argparse.Namespace) -> dict[str, Any]:
    """Results of one process, whose last line is JSON; those of the models that it finished in time."""
    command = [sys.executable, __file__, "--child", "--cores", str(cores), "--seconds", str(options.seconds)]
    variables = os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        done = subprocess.run(
            [*command, "--workloads", *options.workloads],
            capture_output=True, text=True, check=True, env=variables, timeout=LIMIT_SECONDS,
        )  # fmt: skip
        said = done.stdout
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return {name: cell for line in lines for name, cell in line.items()}


def run_child(options: argparse.Namespace) -> None:
    """Train every model in turn without and with a probe; print a line of JSON for each."""
    usable = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, usable[: options.cores[0]])
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    for name in options.workloads:
        train = WORKLOADS[name]()
        train(False)  # compiles
        until, steps = time.perf_counter() + options.seconds, []
        ratios: dict[str, list[float]] = {clock: [] for clock in CLOCKS}
        while time.perf_counter() < until or not steps:
            probed_first = len(steps) % 2 == 1
            taken = {probed: train(probed) for probed in (probed_first, not probed_first)}
            for i, clock in enumerate(CLOCKS):
                ratios[clock].append(taken[True][i] / taken[False][i])
            steps.append(taken[False][0])
        print(json.dumps({name: {**ratios, "step": statistics.median(steps)}}), flush=True)


def make(
    build: Callable[[Any], list[Any]], shape: tuple[int, ...], batch: int
) -> Callable[[bool], tuple[float, float]]:
    """A function that trains for two epochs, with a probe or without: the seconds of a steady step by both clocks."""
    import keras
    import numpy as np

    import vmselect as vs

    class Epochs(keras.callbacks.Callback):
        """Reads the clock at the beginning and end of every epoch."""

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.began = time.perf_counter(), time.process_time()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.taken = time.perf_counter() - self.began[0], time.process_time() - self.began[1]

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input(shape), *build(keras.layers)])
    model.compile(optimizer="adam", loss="mse")
    random = np.random.default_rng(1)
    x, y = random.random((STEPS * batch, *shape), "float32"), random.random((STEPS * batch, 1), "float32")

    def train(probed: bool) -> tuple[float, float]:
        epochs = Epochs()
        probe = [vs.IterationProbe(stop=False, sample=None, verbose=0)] if probed else []
        model.fit(x, y, batch_size=batch, epochs=2, verbose=0, callbacks=[epochs, *probe])
        return epochs.taken[0] / STEPS, epochs.taken[1] / STEPS

    return train


WORKLOADS: dict[str, Callable[[], Callable[[bool], tuple[float, float]]]] = {
    "small MLP": lambda: make(lambda k: [k.Dense(64, "relu"), k.Dense(1)], (32,), 32),
    "wide MLP": lambda: make(lambda k: [k.Dense(1024, "relu"), k.Dense(1024, "relu"), k.Dense(1)], (256,), 128),
    "convolution": lambda: make(
        lambda k: [k.Conv2D(16, 3, activation="relu"), k.Conv2D(16, 3), k.GlobalAveragePooling2D(), k.Dense(1)],
        (24, 24, 3),
        32,
    ),
    "recurrent": lambda: make(lambda k: [k.GRU(32), k.Dense(1)], (24, 16), 32),
    "normalized": lambda: make(
        lambda k: [
            k.Dense(256),
            k.BatchNormalization(),
            k.Dropout(0.2),
            k.Dense(256),
            k.BatchNormalization(),
            k.Dense(1),
        ],
        (64,),
        256,
    ),
}

if __name__ == "__main__":
    main()
