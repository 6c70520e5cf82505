"""The first step is divided into what the framework traces and compiles, and nothing listens after it."""

from __future__ import annotations

import sys

import keras
import numpy as np
import pytest
from fits import BACKEND

import vmselect as vs
from vmselect.probe.compiling import TENSORFLOW_TRACER
from vmselect.probe.recording import Recording

METHODS = {"jax": "jax.monitoring", "tensorflow": "tf.function", "torch": "torch.compile"}


def probe_new_model() -> vs.Profile:
    """A probe of a model that was never called before."""
    layers = [keras.layers.Dense(16, activation="relu"), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((8,)), *layers])
    model.compile("sgd", "mse", jit_compile=False if BACKEND == "torch" else "auto")
    probe = vs.IterationProbe(steps=4, verbose=0, instance_type="here")
    model.fit(np.zeros((320, 8), "float32"), np.zeros((320, 2), "float32"), batch_size=16, verbose=0, callbacks=[probe])
    return probe.profile


def test_the_first_step_is_divided_by_the_framework():
    profile = probe_new_model()
    parts = profile.timeline.first_step
    assert parts is not None
    assert parts.method == METHODS[BACKEND]
    if BACKEND == "torch":  # nothing is compiled
        assert (parts.seconds, parts.autotuning_seconds) == (0.0, None)
        return
    # A new program is traced in the first step, for a good part of it.
    assert 0.1 * profile.first_iteration_seconds < parts.seconds <= profile.first_iteration_seconds + 0.001
    assert parts.tracing_seconds > 0
    assert (parts.compiling_seconds is None) == (BACKEND == "tensorflow")
    shown = str(profile)
    assert "tracing" in shown


def assert_nothing_listens() -> None:
    if BACKEND == "tensorflow":
        name, function = TENSORFLOW_TRACER
        assert not hasattr(getattr(sys.modules[name], function), "__wrapped__")
    if BACKEND == "jax":
        from jax._src import monitoring

        assert not [
            each for each in monitoring._event_duration_secs_listeners if each.__module__.startswith("vmselect")
        ]


def test_nothing_listens_after_the_first_step():
    profile = probe_new_model()
    assert profile.timeline.steps.steps > 1
    assert_nothing_listens()


def test_nothing_listens_after_a_training_is_refused(monkeypatch):
    monkeypatch.setattr(Recording, "workers", 2)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    probe = vs.IterationProbe(seconds=1, path=False, verbose=0)
    with pytest.raises(vs.errors.ProbeError, match="workers"):
        model.fit(np.zeros((32, 8), "float32"), np.zeros((32, 2), "float32"), verbose=0, callbacks=[probe])
    assert_nothing_listens()
