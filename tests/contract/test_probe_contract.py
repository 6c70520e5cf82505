"""What every probe owes: Keras takes it, copies are fresh, importing it is cheap."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys

import pytest

import vmselect as vs

CALLBACKS = [vs.IterationProbe, vs.EpochProbe, vs.ConvergenceProbe]
HOOKS = [f"on_{what}_{when}" for what in ("train", "epoch", "test", "predict", "batch", "train_batch", "test_batch",
                                          "predict_batch") for when in ("begin", "end")]  # fmt: skip


@pytest.mark.parametrize("kind", CALLBACKS)
def test_every_hook_takes_the_arguments_of_keras(kind) -> None:
    probe = kind()
    for hook in (*HOOKS, "set_params", "set_model"):
        assert callable(getattr(probe, hook)), hook
    for hook in HOOKS:
        position = ["epoch"] if "epoch" in hook else ["batch"] if "batch" in hook else []
        signature = inspect.signature(getattr(probe, hook))
        signature.bind(*[0 for _ in position], logs=None)
        signature.bind(**dict.fromkeys(position, 0), logs=None)


@pytest.mark.parametrize("kind", [vs.EpochProbe])
def test_it_leaves_batches_alone(kind) -> None:
    assert all(getattr(getattr(kind(), hook), "_is_default", False) for hook in HOOKS if "batch" in hook)


def test_an_iteration_probe_makes_keras_wait() -> None:
    probe = vs.IterationProbe()
    assert not getattr(probe.on_train_batch_end, "_is_default", False)
    assert not getattr(probe.on_test_batch_end, "_is_default", False)
    assert getattr(probe.on_predict_batch_end, "_is_default", False)


@pytest.mark.parametrize("kind", [*CALLBACKS, vs.LightningProbe, vs.HuggingFaceProbe])
def test_copies(kind) -> None:
    probe = kind("folder", batch_size=8)
    for duplicate in (copy.copy(probe), copy.deepcopy(probe), pickle.loads(pickle.dumps(probe))):  # noqa: S301
        assert type(duplicate) is kind
        assert (str(duplicate.path), duplicate.batch_size) == ("folder", 8)


@pytest.mark.parametrize(
    "make",
    ["IterationProbe()", "EpochProbe()", "LightningProbe()", "HuggingFaceProbe()", "probe_loop()", "mark_start()"],
)
def test_making_one_loads_nothing_heavy(make: str) -> None:
    heavy = (
        "numpy",
        "pandas",
        "scipy",
        "keras",
        "tensorflow",
        "jax",
        "torch",
        "boto3",
        "requests",
        "pydantic",
        "psutil",
    )
    code = f"import sys, vmselect as vs; vs.{make}; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
