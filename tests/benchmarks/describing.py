"""What a description counts, how long it takes, and how far an independent count agrees: one line per model.

Every model is described in a process of its own::

    python tests/benchmarks/describing.py                          # all models, an hour on two cores
    python tests/benchmarks/describing.py applications huggingface # some families
    python tests/benchmarks/describing.py torch:ResNet-50          # one model

Products are counted a second time without vmselect: in the gradients that JAX computes of a Keras model (jaxpr), and by
torch's own counter (``FlopCounterMode``) on tensors without values. Where that fails, the column is empty.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parent))

import describing_models

HEAD = (
    "| model | method | million weights (trained) | GFLOP forward + backward | other count | operations | rows "
    "| GB saved | seconds | peak MiB | outcome |"
)
BACKENDS = ("jax", "tensorflow", "torch")


def read_peak() -> float:
    """Highest main memory of this process so far, in MiB."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def list_names(family: str) -> list[str]:
    if family == "applications":
        return [f"applications:{name}" for name in describing_models.APPLICATIONS]
    names = [f"{family}:{name}" for name in describing_models.FAMILIES[family]()]
    return [f"{name}:{backend}" for name in names for backend in BACKENDS] if family == "keras" else names


def make(family: str, name: str) -> describing_models.Case:
    if family == "applications":
        import keras

        return describing_models.Case(lambda: getattr(keras.applications, name)(weights=None))
    return describing_models.FAMILIES[family]()[name]


def describe(family: str, name: str) -> str:
    """A row of the table."""
    import vmselect as vs

    case = make(family, name)
    model = case.build()
    before, began = read_peak(), time.perf_counter()
    try:
        work = vs.describe(model, batch_size=case.batch_size, inputs=case.inputs).work
    except vs.errors.DescriptionError as refused:
        spent = f"{time.perf_counter() - began:.1f} | {read_peak() - before:.0f}"
        return f"| {name} | | | | | | | | {spent} | refused: {refused} |"
    assert work is not None
    seconds, grown = time.perf_counter() - began, read_peak() - before
    flops = work.product_flops / 1e9
    try:
        other = f"{count_again(family, model, case) / 1e9 / flops:.3f}"
    except Exception as problem:  # noqa: BLE001 - not every model can be counted in another way
        other = "" if not os.environ.get("SHOW_PROBLEMS") else repr(problem)[:300]
    caveats = ", ".join([*work.caveats, *work.unknown_layers])
    return (
        f"| {name} | {work.method} | {work.parameters / 1e6:,.2f} | {flops:,.2f} | {other} "
        f"| {sum(work.operations.count):,} | {len(work.operations.rows)} | {(work.saved_bytes or 0) / 1e9:,.3f} "
        f"| {seconds:.2f} | {grown:.0f} | described{f' ({caveats})' if caveats else ''} |"
    )


# -- independent counts ------------------------------------------------------------------------------------------------


def count_again(family: str, model: Any, case: describing_models.Case) -> float:
    """Floating-point operations of all products, counted without vmselect."""
    if family in ("applications", "keras"):
        return count_gradients(model, case)
    return count_by_torch(model, case)


def count_gradients(model: Any, case: describing_models.Case) -> float:
    """Products of the gradients of a Keras model, which JAX computes with shapes instead of arrays."""
    import jax
    import keras

    if keras.backend.backend() != "jax":
        raise NotImplementedError
    inputs = [
        jax.ShapeDtypeStruct((case.batch_size, *(case.inputs or tensor.shape[1:])), tensor.dtype)
        for tensor in model.inputs
    ]

    def abstract(variables: Any) -> Any:
        return [jax.ShapeDtypeStruct(tuple(variable.shape), variable.dtype) for variable in variables]

    def loss(trained: Any, others: Any, values: Any) -> Any:
        outputs, _ = model.stateless_call(trained, others, values, training=True)
        return sum(jax.numpy.sum(output.astype("float32")) for output in jax.tree.leaves(outputs))

    values = inputs if len(inputs) > 1 else inputs[0]
    variables = abstract(model.trainable_variables), abstract(model.non_trainable_variables)
    traced = jax.make_jaxpr(jax.grad(loss))(*variables, values)
    return count_jaxpr(traced.jaxpr)


def count_jaxpr(jaxpr: Any) -> float:
    total = 0.0
    for equation in jaxpr.eqns:
        settings, name = equation.params, equation.primitive.name
        shapes = [getattr(value.aval, "shape", ()) for value in (*equation.invars, *equation.outvars)]
        if name == "dot_general":
            contracted = settings["dimension_numbers"][0][0]
            total += 2.0 * math.prod(shapes[-1]) * math.prod(shapes[0][axis] for axis in contracted)
        elif name == "conv_general_dilated":
            kernel, outputs = shapes[1], settings["dimension_numbers"].rhs_spec[0]
            # Zeros between the positions of the input, for strides, are no work.
            dense = math.prod(settings["lhs_dilation"])
            total += 2.0 * math.prod(shapes[-1]) * math.prod(kernel) / kernel[outputs] / dense
        repeated = settings.get("length", 1) if name == "scan" else 1
        for value in settings.values():
            for part in value if isinstance(value, (list, tuple)) else (value,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    total += repeated * count_jaxpr(inner)
    return total


def count_by_torch(model: Any, case: describing_models.Case) -> float:
    """Products of a step of a torch module, by torch's own counter."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from vmselect.describing import huggingface
    from vmselect.describing.torch import unwrap

    model = huggingface.build_model(model) if huggingface.is_config(model) else unwrap(model).to("meta")
    inputs = case.inputs
    if inputs is None:
        config = model.config
        extent = config.image_size if isinstance(config.image_size, (list, tuple)) else [config.image_size] * 2
        inputs = {"pixel_values": (config.num_channels, *extent)}

    def tensor(shape: Any, whole: bool) -> Any:
        dtype = torch.int64 if whole else next(model.parameters()).dtype
        return torch.zeros((case.batch_size, *shape), dtype=dtype, device="meta")

    embeds = any(type(part).__name__ == "Embedding" for part in model.modules())
    model.train()
    with FlopCounterMode(display=False) as counter:
        if isinstance(inputs, Mapping):
            named = {
                key: tensor(shape, embeds and len(shape) == 1) if isinstance(shape, tuple) else shape
                for key, shape in inputs.items()
                if key != "attention_mask"
            }
            if getattr(getattr(model, "config", None), "is_encoder_decoder", False) and "input_ids" in named:
                named.setdefault("decoder_input_ids", named["input_ids"])
            outputs = model(**named)
        else:
            outputs = model(tensor(inputs, embeds))
        scores = getattr(outputs, "logits", None)
        scores = getattr(outputs, "logits_per_text", outputs) if scores is None else scores
        scores.float().square().mean().backward()
    return float(counter.get_total_flops())


def main() -> None:
    warnings.simplefilter("ignore")
    asked = sys.argv[1:] or ["applications", *describing_models.FAMILIES]
    names = [name for part in asked for name in ([part] if ":" in part else list_names(part))]
    if len(names) == 1 and asked == names:
        family, name, *_ = names[0].split(":")
        print(describe(family, name))
        return
    print(HEAD)
    print("|" + "---|" * (HEAD.count("|") - 1))
    for name in names:
        environment = {**os.environ, "KERAS_BACKEND": name.split(":")[2] if name.count(":") > 1 else "jax"}
        command = [sys.executable, __file__, ":".join(name.split(":"))]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
        print(lines[-1] if lines else f"| {name} | failed |", flush=True)


if __name__ == "__main__":
    main()
