"""A simulated device that executes steps asynchronously: the total time of a training against its estimate.

The device is a worker thread with a virtual clock. The host submits a step, which takes host time, and continues; the
device executes steps one after the other. A training takes as long as the slower of the two, exactly.
"""

from __future__ import annotations

import queue
import threading
from types import SimpleNamespace

import pytest

import vmselect as vs
from vmselect.probe import environment, keras_callbacks, recording
from vmselect.probe.step_blocks import StepBlocks
from vmselect.probe.timer import StepTimer

MS = 1_000_000
EPOCHS, STEPS = 7, 90


class Device:
    """Executes submitted steps on a worker thread; ``now`` is the virtual time of the host in nanoseconds."""

    def __init__(self, *, room=1_000):
        self.now = 0
        self.waits = 0
        self._ready = 0
        self._room = room
        self._finished = []
        self._steps = queue.Queue()
        threading.Thread(target=self._execute, daemon=True).start()

    def _execute(self):
        while (step := self._steps.get()) is not None:
            submitted, taken = step
            self._ready = max(self._ready, submitted) + taken
            self._finished.append(self._ready)
            self._steps.task_done()

    def submit(self, host, execution):
        self.now += host
        self._steps.put((self.now, execution))
        self._steps.join()
        if len(self._finished) > self._room:  # a full queue blocks the host
            self.now = max(self.now, self._finished[-1 - self._room])

    def wait(self, *_):
        self.waits += 1
        self.now = max(self.now, self._ready)

    def close(self):
        self._steps.put(None)


class CallbackList:
    """Calls the end of a batch from a thread, as Keras does if no callback needs the batch's loss."""

    _async_train, _async_test = True, False

    def __init__(self, model, callbacks, **params):
        self.callbacks = callbacks
        for callback in callbacks:
            callback.set_params(params)
            callback.set_model(model)

    def _call(self, name, *arguments):
        for callback in self.callbacks:
            getattr(callback, name)(*arguments)

    def on_train_begin(self):
        self._call("on_train_begin", {})

    def on_train_end(self):
        self._call("on_train_end", {})

    def on_epoch_begin(self, epoch):
        self._call("on_epoch_begin", epoch)

    def on_epoch_end(self, epoch, logs=None):
        self._call("on_epoch_end", epoch, logs)

    def on_train_batch_begin(self, batch):
        self._call("on_train_batch_begin", batch)

    def on_train_batch_end(self, batch, logs=None):
        thread = threading.Thread(target=self._call, args=("on_train_batch_end", batch, {"loss": 1.0}))
        thread.start()
        thread.join()


def fit(model, device, callbacks, *, host, execution, compilation=1_500 * MS):
    """Train as Keras' ``fit`` does, which waits for the device at the end of an epoch."""
    callbacks = CallbackList(model, callbacks, epochs=EPOCHS, steps=STEPS)
    callbacks.on_train_begin()
    for epoch in range(EPOCHS):
        callbacks.on_epoch_begin(epoch)
        for batch in range(STEPS):
            callbacks.on_train_batch_begin(batch)
            device.submit(host if epoch or batch else compilation, execution)
            callbacks.on_train_batch_end(batch)
            if model.stop_training:
                break
        device.wait()
        callbacks.on_epoch_end(epoch)
        device.now += 3 * MS
        if model.stop_training:
            break
    callbacks.on_train_end()


@pytest.fixture
def simulate(monkeypatch):
    monkeypatch.setattr(environment, "backend_name", lambda: "jax")
    monkeypatch.setattr(environment, "count_framework_gpus", lambda backend: 1)
    devices = []

    def run(probe=None, **times):
        device = Device(room=times.pop("room", 1_000))
        devices.append(device)
        clock = lambda: device.now  # noqa: E731
        monkeypatch.setattr(recording, "StepTimer", lambda: StepTimer(clock=clock, cpu_clock=clock))
        monkeypatch.setattr(keras_callbacks, "synchronize_devices", device.wait)
        fit(Model(), device, [probe] if probe else [], **times)
        return device

    class Model(SimpleNamespace):
        name, stop_training, train_function, test_function, steps_per_execution = "net", False, None, None, 1

    yield run
    for device in devices:
        device.close()


@pytest.mark.parametrize("room", [1_000, 3])
@pytest.mark.parametrize(
    ("host", "execution"),
    [(20 * MS, 2 * MS), (2 * MS, 20 * MS), (10 * MS, 10 * MS), (9 * MS, 10 * MS), (MS // 5, MS // 5)],
    ids=["host-bound", "device-bound", "balanced", "nearly balanced", "short"],
)
def test_the_total_is_that_of_the_slower_of_host_and_device(simulate, host, execution, room):
    probe = vs.IterationProbe(sample=None, verbose=0, instance_type="here")
    simulate(probe, host=host, execution=execution, room=room)
    truth = simulate(host=host, execution=execution, room=room).now / 1e9
    profile = probe.profile
    assert (profile.environment.dispatch, profile.environment.step_timing) == ("threaded", "blocks")
    estimate = vs.estimate(profile, epochs=EPOCHS)
    seconds = estimate.seconds - estimate.terms.get("initialization", 0.0)
    assert seconds + (profile.timeline.fit_to_first_batch_seconds or 0.0) == pytest.approx(truth, rel=0.02)
    steady = {round(seconds * 1e9) for seconds in profile.timeline.steps.steady_seconds}
    assert steady == {max(host, execution)}


def test_a_watched_training_waits_for_the_device_only_at_the_ends_of_epochs(simulate):
    times = {"host": 9 * MS, "execution": 10 * MS}
    probe = vs.IterationProbe(stop=False, sample=None, verbose=0, instance_type="here")
    watched, alone = simulate(probe, **times), simulate(**times)
    assert probe.profile.timeline.fit_seconds == pytest.approx(alone.now / 1e9, rel=0.001)
    assert watched.now == pytest.approx(alone.now, rel=0.01)
    # Twenty steps in blocks of five, the first step, and once per epoch besides the wait of Keras.
    assert watched.waits <= alone.waits + 1 + 4 + EPOCHS + 1


def test_a_wait_that_is_not_due_to_the_probe_counts():
    times = iter([4, 10, 10, 30, 30]).__next__
    timer = StepTimer(clock=times, cpu_clock=lambda: 0)
    drained = []
    blocks = StepBlocks(timer, lambda: None, drained=drained.append)
    blocks.pass_by(0, 1)
    assert timer.last == (0, 0, 4, 1)
    assert blocks.end_step(1, 1, last=True)
    assert timer.last == (0, 1, 26, 1)
    assert drained == [20]
