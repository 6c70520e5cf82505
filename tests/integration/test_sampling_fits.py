"""Sampling in real fits with slow and fast data and a stub GPU, in a study, in predictions, and in a notebook."""

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

model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(64), keras.layers.Dense(1)])
model.compile(loss="mse")
watch = vs.ConvergenceProbe(monitor="loss", sample=0.1, batch_size=32)
model.fit(Slow(), epochs=2, verbose=0, callbacks=[watch], steps_per_epoch=5)
calls = vs.serving.InferenceProbe(sample=0.1, verbose=0, instance_type="here")
model.predict(Slow(), verbose=0, callbacks=[calls], steps=8)
others = {
    "study": sorted(watch.run.usage.phases), "series": len(watch.run.usage.seconds),
    "calls": sorted(calls.record.usage.phases), "running": running(),
}

# An error whose traceback is kept, as a notebook does: everything that fit held is alive.
kept = None
endless = vs.ConvergenceProbe(monitor="loss", sample=0.1, batch_size=32)
try:
    model.fit(Slow(), epochs=2, verbose=0, callbacks=[endless, Broken()])
except RuntimeError as error:
    kept = error
deadline = time.monotonic() + 10
while running() and time.monotonic() < deadline:
    time.sleep(0.05)
others["after_error"] = running()
fits = {"fast": fast, "slow": slow, "watched": watched, "broken": broken}
print(json.dumps({"fits": fits, "others": others}), flush=True)
os._exit(0)  # TensorFlow may wait for ever, at the end of a program, for a pipeline thread that is inside Python
"""


GPUS = "jax beside gpus"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """All of them at once: they import, and then they mostly sleep."""
    environments = dict.fromkeys(("tensorflow", "jax", "torch"), os.environ)
    if COMPILER is not None:
        driver = Driver(tmp_path_factory.mktemp("driver"))
        driver.answer(CARD, CARD)
        environments[GPUS] = driver.environment
    started = {
        name: subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PROGRAM],
            env={**environment, "KERAS_BACKEND": name.split()[0], "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, environment in environments.items()
        if importlib.util.find_spec(name.split()[0]) is not None
    }
    yield started
    for process in started.values():  # those that no selected test has waited for
        if process.returncode is None:
            process.kill()
            process.communicate()


def read(process):
    shown, errors = process.communicate(timeout=500)
    assert process.returncode == 0, errors[-2_000:]
    seen = json.loads(shown.splitlines()[-1])
    others = seen["others"]
    assert "steady_steps" in others["study"]
    assert others["series"] == 0
    assert "calls" in others["calls"]
    assert others["running"] == others["after_error"] == []
    return seen["fits"]


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_real_fits(backend, running):
    if backend not in running:
        pytest.skip(f"{backend} is not installed")
    seen = read(running[backend])
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
def test_a_fit_beside_gpus_that_the_framework_does_not_use(running):
    if GPUS not in running:
        pytest.skip("jax is not installed")
    slow = read(running[GPUS])["slow"]
    assert {"gpu0_busy_share", "gpu1_busy_share"} <= set(slow["phases"]["steady_steps"])
    assert not {"underfed-gpu", "throttled", "gpu-memory-full"} & set(slow["codes"])


CELLS = (
    """
import threading, time
import keras, numpy
import vmselect as vs

x, y = numpy.random.rand(3200, 16), numpy.random.rand(3200, 1)

class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.02)
        if batch == 60:
            raise RuntimeError("on purpose")

def fit(*callbacks):
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    model.fit(x, y, batch_size=32, epochs=1, verbose=0, callbacks=list(callbacks))
""",
    "first = vs.IterationProbe(stop=False, sample=0.1, verbose=0, instance_type='here')\nfit(first)",
    "second = vs.IterationProbe(stop=False, sample=0.1, verbose=0, instance_type='here')\nfit(second, Slow())",
    """
deadline = time.monotonic() + 10
while (left := [t.name for t in threading.enumerate() if t.name == "vmselect-sampler"]) and time.monotonic() < deadline:
    time.sleep(0.05)
print("left", left)
""",
    """
third = vs.IterationProbe(sample=0.1, verbose=0, instance_type='here')
fit(third)
print("second", second.profile.outcome, sorted(second.profile.usage.phases))
print("third", third.profile.outcome, third.profile.environment.notebook)
""",
)


def test_a_notebook_whose_cell_fails(tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat", reason="the notebook was not run: nbformat is not installed")
    nbclient = pytest.importorskip("nbclient", reason="the notebook was not run: nbclient is not installed")
    pytest.importorskip("ipykernel", reason="the notebook was not run: ipykernel is not installed")
    monkeypatch.setenv("KERAS_BACKEND", "jax" if importlib.util.find_spec("jax") else "tensorflow")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    cells = [nbformat.v4.new_code_cell(text) for text in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = nbclient.NotebookClient(
        notebook, timeout=300, allow_errors=True, resources={"metadata": {"path": tmp_path}}
    )
    ran = client.execute()
    outputs = [output for cell in ran.cells for output in cell.outputs]
    assert [output["ename"] for output in outputs if output["output_type"] == "error"] == ["RuntimeError"]
    printed = "".join(output["text"] for output in outputs if output.get("name") == "stdout")
    assert "left []" in printed
    assert "second interrupted" in printed
    assert "steady_steps" in printed
    assert "third stopped True" in printed
