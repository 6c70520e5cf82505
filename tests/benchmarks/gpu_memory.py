"""How well the memory of a training step is estimated at batch sizes that were not probed.

XLA plans the buffers of a compiled training step, and says how many bytes it needs. The plan of a CPU lacks the
workspaces of a GPU's libraries, but has the same weights, gradients, optimizer variables and activations. The models
are compiled at several batch sizes, not run. Each is then estimated from one or two of them. The width of the intervals
from one size is also chosen on all models but one, as the smallest that contains 90 % of their plans, and reported on
the one that was left out::

    python tests/benchmarks/gpu_memory.py
    python tests/benchmarks/gpu_memory.py --models mlp --sizes 8,16,32
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vmselect.intervals import Interval
from vmselect.prediction import hardware
from vmselect.prediction.hardware import MemoryModel, bound_fixed

SIZES = (8, 16, 32, 64, 128)
MARGINS = tuple(step / 20 for step in range(17))
"""Margins of the exponent of the growth that are tried."""


def build_mlp(keras: Any) -> Any:
    hidden = [keras.layers.Dense(1024, activation="relu") for _ in range(4)]
    return keras.Sequential([keras.Input((784,)), *hidden, keras.layers.Dense(10)])


def build_cnn(keras: Any) -> Any:
    inputs = x = keras.Input((64, 64, 3))
    for filters in (32, 64, 128):
        x = keras.layers.Conv2D(filters, 3, strides=2, padding="same")(x)
        for _ in range(2):
            y = keras.layers.BatchNormalization()(x)
            y = keras.layers.Conv2D(filters, 3, padding="same", activation="relu")(y)
            x = keras.layers.Add()([x, y])
    return keras.Model(inputs, keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(x)))


def build_transformer(keras: Any) -> Any:
    inputs = keras.Input((64,), dtype="int32")
    x = keras.layers.Embedding(8000, 128)(inputs)
    for _ in range(3):
        y = keras.layers.LayerNormalization()(x)
        x = keras.layers.Add()([x, keras.layers.MultiHeadAttention(4, 32)(y, y)])
        y = keras.layers.Dense(512, activation="gelu")(keras.layers.LayerNormalization()(x))
        x = keras.layers.Add()([x, keras.layers.Dense(128)(y)])
    return keras.Model(inputs, keras.layers.Dense(10)(keras.layers.GlobalAveragePooling1D()(x)))


def build_lstm(keras: Any) -> Any:
    inputs = keras.Input((64, 32))
    x = keras.layers.LSTM(128, return_sequences=True)(inputs)
    return keras.Model(inputs, keras.layers.Dense(10)(keras.layers.LSTM(128)(x)))


MODELS: Mapping[str, Callable[[Any], Any]] = {
    "mlp": build_mlp, "cnn": build_cnn, "transformer": build_transformer, "lstm": build_lstm,
}  # fmt: skip


Fixed = tuple[float, float]
"""Bytes of weights, gradients and optimizer variables of a model, and those without gradients."""


def measure(name: str, sizes: Sequence[int]) -> tuple[Fixed, dict[int, float]]:
    """The fixed part of a model trained with Adam, and planned bytes of a step by batch size."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import jax
    import keras

    model = MODELS[name](keras)
    loss, optimizer = keras.losses.SparseCategoricalCrossentropy(from_logits=True), keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)

    def step(trained: Any, other: Any, slots: Any, x: Any, y: Any) -> Any:
        def objective(weights: Any) -> Any:
            outputs, _ = model.stateless_call(weights, other, x, training=True)
            return loss(y, outputs)

        value, gradients = jax.value_and_grad(objective)(trained)
        return value, *optimizer.stateless_apply(slots, gradients, trained)

    def shapes(variables: Any) -> Any:
        return [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in variables]

    state = [shapes(v) for v in (model.trainable_variables, model.non_trainable_variables, optimizer.variables)]
    trained, other, slots = (sum(4.0 * one.size for one in part) for part in state)
    planned = {}
    for size in sizes:
        x = jax.ShapeDtypeStruct((size, *model.input_shape[1:]), model.inputs[0].dtype)
        y = jax.ShapeDtypeStruct((size,), "int32")
        plan = jax.jit(step, donate_argnums=(0, 2)).lower(*state, x, y).compile().memory_analysis()
        used = plan.temp_size_in_bytes + plan.argument_size_in_bytes + plan.output_size_in_bytes
        planned[size] = float(used - plan.alias_size_in_bytes)
    return (2 * trained + other + slots, trained + other + slots), planned


def estimate_others(
    fixed: Fixed, planned: Mapping[int, float], probed: Sequence[int]
) -> list[tuple[int, Interval[float]]]:
    """Batch sizes that were not ``probed``, with their estimates; none if the probed peaks do not grow."""
    peaks = tuple((size, planned[size]) for size in sorted(probed))
    model = MemoryModel(peaks=peaks, fixed=bound_fixed(*fixed, peaks[0][1]) if len(peaks) == 1 else None)
    found = [(size, model.peak(size)) for size in sorted(set(planned) - set(probed))]
    return [(size, peak) for size, peak in found if not math.isnan(peak.value)]


def score(fixed: Fixed, planned: Mapping[int, float], probed: Sequence[int]) -> list[tuple[int, float, bool]]:
    """Batch size, relative error of the estimate and whether its interval contains the plan, where not ``probed``."""
    return [
        (size, peak.value / planned[size] - 1, bool(peak.contains(planned[size])))
        for size, peak in estimate_others(fixed, planned, probed)
    ]


def score_each(fixed: Fixed, planned: Mapping[int, float], margin: float) -> list[tuple[int, float, bool]]:
    """Scores from every single batch size, with ``margin`` instead of ``GROWTH_EXPONENT_MARGIN``."""
    shipped = hardware.GROWTH_EXPONENT_MARGIN
    hardware.GROWTH_EXPONENT_MARGIN = margin
    try:
        return [row for size in planned for row in score(fixed, planned, [size])]
    finally:
        hardware.GROWTH_EXPONENT_MARGIN = shipped


def choose_margin(measured: Sequence[tuple[Fixed, Mapping[int, float]]]) -> float:
    """The smallest margin whose intervals from one size contain 90 % of the plans; all models have the same weight."""
    for margin in MARGINS:
        rows = [score_each(*one, margin) for one in measured]
        if statistics.fmean(statistics.fmean(inside for *_, inside in each) for each in rows if each) >= 0.9:
            return margin
    return MARGINS[-1]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    options = parser.parse_args(arguments)
    sizes = [int(size) for size in options.sizes.split(",")]
    results: dict[str, list[tuple[int, float, bool]]] = {"one size": [], "two sizes": []}
    measured = {name: measure(name, sizes) for name in options.models.split(",")}
    for name, (fixed, planned) in measured.items():
        print(
            f"{name}: fixed {fixed[0] / 2**20:.1f} MiB; "
            + ", ".join(f"{s}: {b / 2**20:.1f}" for s, b in planned.items())
        )
        for size in sizes:
            results["one size"] += score(fixed, planned, [size])
        for pair in itertools.pairwise(sizes):
            results["two sizes"] += score(fixed, planned, pair)
    for kind, rows in results.items():
        if not rows:
            print(f"{kind}: no estimates")
            continue
        errors = [abs(error) for _, error, _ in rows]
        inside = statistics.fmean(contained for _, _, contained in rows)
        low = min(error for _, error, _ in rows)
        print(f"{kind}: {len(rows)} estimates, mean error {statistics.fmean(errors):.1%}, largest {max(errors):.1%}, "
              f"lowest {low:.1%}, interval contains {inside:.0%}")  # fmt: skip
    for name, one in measured.items():
        others = [other for key, other in measured.items() if key != name]
        if others:
            margin = choose_margin(others)
            inside = statistics.fmean(contained for *_, contained in score_each(*one, margin))
            print(f"{name} left out: margin {margin:.2f}, interval from one size contains {inside:.0%}")
    best = choose_margin(list(measured.values()))
    print(f"margin of all models {best:.2f}, shipped {hardware.GROWTH_EXPONENT_MARGIN}")


if __name__ == "__main__":
    main()
