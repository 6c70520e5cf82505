"""Sampling in real fits: slow data told from fast, several fits in a process, an end with every ending, a stub GPU."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from tests.support.nvml import CARD, COMPILER, Driver

PROGRAM = """
import json, os, sys, threading, time
import keras, numpy
import vmselect as vs

x, y = numpy.random.rand(1280, 16), numpy.random.rand(1280, 1)

class Slow(keras.utils.PyDataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        time.sleep(0.15)
        return x[:32], y[:32]

class Broken(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 8:
            raise RuntimeError("on purpose")

def fit(data, *others, **options):
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(64), keras.layers.Dense(1)])
    model.compile(loss="mse")
    probe = vs.IterationProbe(verbose=0, sample=0.1, instance_type="here", **options)
    try:
        model.fit(*data, epochs=2, verbose=0, callbacks=[probe, *others])
    except RuntimeError:
        pass
    return probe.profile

def running():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("vmselect")]

def describe(profile):
    wait, usage = profile.timeline.input_wait, profile.usage
    return {
        "share": None if wait is None else wait.share,
        "phases": {} if usage is None else {phase: sorted(named) for phase, named in usage.phases.items()},
        "codes": [found.code for found in vs.diagnose(profile)],
        "outcome": profile.outcome,
        "running": running(),
        "epochs": [epoch.steps for epoch in profile.timeline.epochs],
    }

fast = describe(fit((x, y, 32)))
slow = describe(fit((Slow(),)))
watched = describe(fit((x, y, 32), stop=False))
broken = describe(fit((Slow(),), Broken()))
print(json.dumps({"fast": fast, "slow": slow, "watched": watched, "broken": broken}), flush=True)
os._exit(0)  # TensorFlow may wait for ever, at the end of a program, for a pipeline thread that is inside Python
"""


def run(backend, environment=None):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env={**(environment or os.environ), "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_real_fits(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    seen = run(backend)
    assert seen["slow"]["share"] > 0.3
    assert "input-bound" in seen["slow"]["codes"]
    assert "steady_steps" in seen["slow"]["phases"]
    assert seen["fast"]["share"] is None or seen["fast"]["share"] < seen["slow"]["share"]
    assert "input-bound" not in seen["watched"]["codes"] or seen["watched"]["share"] < seen["slow"]["share"]
    assert seen["fast"]["epochs"] == [21, 21]  # traced steps are none of the timed ones
    assert seen["watched"]["epochs"] == [40, 40]
    assert seen["broken"]["outcome"] == "interrupted"
    assert not any(fit["running"] for fit in seen.values())


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler to build the driver stub with")
def test_a_fit_beside_gpus_that_the_framework_does_not_use(tmp_path):
    pytest.importorskip("jax", reason="jax is not installed")
    driver = Driver(tmp_path)
    driver.answer(CARD, CARD)
    slow = run("jax", driver.environment)["slow"]
    assert {"gpu0_busy_share", "gpu1_busy_share"} <= set(slow["phases"]["steady_steps"])
    assert not {"underfed-gpu", "throttled", "gpu-memory-full"} & set(slow["codes"])
