"""A simulated device that executes steps asynchronously: the total time of a training against its estimate.

The device is a worker thread with a virtual clock. The host submits a step, which takes host time, and continues; the
device executes steps one after the other. A training takes as long as the slower of the two, exactly. The trainings
are those of Keras, of a loop with ``probe_loop``, of a torch script, of Lightning and of Hugging Face.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
from types import SimpleNamespace

import pytest

import vmselect as vs
from vmselect.probe import environment, keras, loop, recording, torch_script, trainers
from vmselect.probe.timer import StepBlocks, StepTimer
from vmselect.probe.torch_script import EnoughTrainings, TorchScript
from vmselect.records.base import Environment

MS = 1_000_000
EPOCHS, STEPS = 7, 90
COMPILATION, AFTER_EPOCH = 1_500 * MS, 3 * MS


class Device:
    """Executes submitted steps on a worker thread; ``now`` is the virtual time of the host in nanoseconds."""

    def __init__(self, *, host, execution, room=1_000):
        self.now = 0
        self.waits = 0
        self._host, self._execution = host, execution
        self._ready = 0
        self._room = room
        self._finished = []
        self._steps = queue.Queue()
        threading.Thread(target=self._execute, daemon=True).start()

    def _execute(self):
        while (submitted := self._steps.get()) is not None:
            self._ready = max(self._ready, submitted) + self._execution
            self._finished.append(self._ready)
            self._steps.task_done()

    def submit(self):
        self.now += self._host if self._finished else COMPILATION
        self._steps.put(self.now)
        self._steps.join()
        if len(self._finished) > self._room:  # a full queue blocks the host
            self.now = max(self.now, self._finished[-1 - self._room])

    def wait(self, *_):
        self.waits += 1
        self.now = max(self.now, self._ready)

    def end_epoch(self):
        """Read the loss, which waits for the device, and prepare the next epoch."""
        self.wait()
        self.now += AFTER_EPOCH

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


class Model(SimpleNamespace):
    """A model of Keras, or of torch."""

    name, stop_training, train_function, test_function, steps_per_execution = "net", False, None, None, 1
    device = SimpleNamespace(type="cuda")

    def named_parameters(self):
        return []


class Nothing:
    """Takes the place of a callback in a training without a probe."""

    def __getattr__(self, name):
        return lambda *arguments, **options: None


def fit_keras(device, probe):
    """Train as Keras' ``fit`` does, which waits for the device at the end of an epoch."""
    model = Model()
    callbacks = CallbackList(model, [probe] if probe else [], epochs=EPOCHS, steps=STEPS)
    callbacks.on_train_begin()
    for epoch in range(EPOCHS):
        callbacks.on_epoch_begin(epoch)
        for batch in range(STEPS):
            callbacks.on_train_batch_begin(batch)
            device.submit()
            callbacks.on_train_batch_end(batch)
            if model.stop_training:
                break
        device.wait()
        callbacks.on_epoch_end(epoch)
        device.now += AFTER_EPOCH
        if model.stop_training:
            break
    callbacks.on_train_end()


def run_loop(device, probe):
    with probe or contextlib.nullcontext():
        for _ in probe.epochs(EPOCHS) if probe else range(EPOCHS):
            for _ in probe.steps(range(STEPS)) if probe else range(STEPS):
                device.submit()
            device.end_epoch()


class Loader:
    """A data loader of torch."""

    batch_size, drop_last, dataset = 8, True, range(8 * STEPS)

    def __iter__(self):
        return iter(range(STEPS))

    def __len__(self):
        return STEPS


class Optimizer:
    """An optimizer of torch."""

    param_groups = ()


def run_script(device, probe):
    class DataLoader(Loader):
        """The class that the probe watches."""

    optimizer = Optimizer()
    update = probe._on_update if probe else lambda optimizer: None
    if probe:
        probe.watch_loader(SimpleNamespace(DataLoader=DataLoader))
    loader = DataLoader()
    with contextlib.suppress(EnoughTrainings):
        for _ in range(EPOCHS):
            for _ in loader:
                device.submit()
                update(optimizer)
            device.end_epoch()
    if probe:
        probe.close()


def run_lightning(device, probe):
    probe, model, limits = probe or Nothing(), Model(), {"min_epochs": None, "max_batches": STEPS}
    trainer = SimpleNamespace(
        callbacks=[], loggers=[], fit_loop=SimpleNamespace(**limits, epoch_loop=SimpleNamespace(min_steps=None)),
        accumulate_grad_batches=1, max_epochs=EPOCHS, max_steps=-1, val_check_batch=None, check_val_every_n_epoch=1,
        enable_validation=False, train_dataloader=Loader(), global_step=0, is_last_batch=False, should_stop=False,
        current_epoch=0, progress_bar_callback=None,
    )  # fmt: skip
    probe.setup(trainer, model, "fit")
    probe.on_train_start(trainer, model)
    for _ in range(EPOCHS):
        probe.on_train_epoch_start(trainer, model)
        for batch in range(STEPS):
            device.submit()
            trainer.global_step, trainer.is_last_batch = trainer.global_step + 1, batch == STEPS - 1
            probe.on_train_batch_end(trainer, model, None, None, batch)
            if trainer.should_stop:
                break
        device.wait()
        probe.on_train_epoch_end(trainer, model)
        device.now += AFTER_EPOCH
        if trainer.should_stop:
            break
    probe.teardown(trainer, model, "fit")


def run_hugging_face(device, probe):
    probe, control = probe or Nothing(), SimpleNamespace(should_evaluate=False)
    arguments = SimpleNamespace(
        gradient_accumulation_steps=1, save_strategy="no", eval_strategy="no", max_steps=-1, num_train_epochs=EPOCHS,
        disable_tqdm=True,
    )  # fmt: skip
    state = SimpleNamespace(
        num_train_epochs=EPOCHS,
        max_steps=EPOCHS * STEPS,
        save_steps=500,
        eval_steps=None,
        epoch=None,
        global_step=0,
    )
    known = {"model": Model(), "train_dataloader": Loader()}
    control.should_training_stop = False
    probe.on_train_begin(arguments, state, control, **known)
    for _ in range(EPOCHS):
        control.should_epoch_stop = False
        probe.on_epoch_begin(arguments, state, control)
        for _ in range(STEPS):
            probe.on_step_begin(arguments, state, control)
            device.submit()
            probe.on_step_end(arguments, state, control)
            if control.should_epoch_stop:
                break
        device.end_epoch()
        probe.on_epoch_end(arguments, state, control)
        if control.should_training_stop:
            break
    probe.on_train_end(arguments, state, control)


OPTIONS = {"sample": None, "verbose": 0, "instance_type": "here"}
TRAININGS = {
    "keras": (fit_keras, vs.IterationProbe),
    "loop": (run_loop, vs.probe_loop),
    "torch script": (run_script, TorchScript),
    "lightning": (run_lightning, vs.LightningProbe),
    "hugging face": (run_hugging_face, vs.HuggingFaceProbe),
}


@pytest.fixture
def simulate(monkeypatch):
    """Train on a simulated device, with a probe if options of it are given; return the device and the probe."""
    framework = Environment(backend="torch", framework_gpus=1)
    monkeypatch.setattr(recording, "read_environment", lambda model=None, backend=None: framework)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(is_grad_enabled=lambda: True))
    monkeypatch.setattr(environment, "count_feeders", lambda workers, backend: (1, 1))
    monkeypatch.setattr(environment, "read_gpu_memory", lambda backend: None)
    monkeypatch.setattr(loop, "name_loop_backend", lambda: "torch")
    devices = []

    def run(training, options=None, **times):
        device = Device(**times)
        devices.append(device)
        clock = lambda: device.now  # noqa: E731
        monkeypatch.setattr(recording, "StepTimer", lambda: StepTimer(clock=clock, cpu_clock=clock))
        monkeypatch.setattr(torch_script, "time", SimpleNamespace(perf_counter_ns=clock))
        for module in (environment, keras, loop, torch_script, trainers):
            monkeypatch.setattr(module, "synchronize_devices", device.wait)
        train, kind = TRAININGS[training]
        probe = None if options is None else kind(**OPTIONS, **options)
        if training == "torch script" and probe:
            probe.last = 1
        train(device, probe)
        return device, probe

    yield run
    for device in devices:
        device.close()


@pytest.mark.parametrize("room", [1_000, 3])
@pytest.mark.parametrize(
    ("host", "execution"),
    [(20 * MS, 2 * MS), (2 * MS, 20 * MS), (10 * MS, 10 * MS), (9 * MS, 10 * MS), (MS // 5, MS // 5)],
    ids=["host-bound", "device-bound", "balanced", "nearly balanced", "short"],
)
@pytest.mark.parametrize("training", TRAININGS)
def test_the_total_is_that_of_the_slower_of_host_and_device(simulate, training, host, execution, room):
    _, probe = simulate(training, {}, host=host, execution=execution, room=room)
    truth = simulate(training, host=host, execution=execution, room=room)[0].now / 1e9
    profile = probe.profile
    assert profile.environment.step_timing == "blocks"
    estimate = vs.estimate(profile, epochs=EPOCHS)
    seconds = estimate.seconds - estimate.terms.get("initialization", 0.0)
    assert seconds + (profile.timeline.fit_to_first_batch_seconds or 0.0) == pytest.approx(truth, rel=0.02)
    steady = {round(seconds * 1e9) for seconds in profile.timeline.steps.steady_seconds}
    assert steady == {max(host, execution)}


@pytest.mark.parametrize("training", TRAININGS)
def test_a_watched_training_waits_for_the_device_only_at_the_ends_of_epochs(simulate, training):
    times = {"host": 9 * MS, "execution": 10 * MS}
    (watched, probe), (alone, _) = simulate(training, {"stop": False}, **times), simulate(training, **times)
    assert probe.profile.timeline.fit_seconds == pytest.approx(alone.now / 1e9, rel=0.001)
    assert watched.now == pytest.approx(alone.now, rel=0.01)
    assert probe.profile.timeline.steps.steps == EPOCHS * STEPS
    # Twenty steps in blocks of five, the first step (twice in a script, which is recognized then), and once per epoch
    # besides the wait of the training.
    assert watched.waits <= alone.waits + 2 + 4 + EPOCHS + 1


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


def test_what_is_due_ends_no_blocks_of_a_validation():
    """Until the next step, each batch would wait for the device otherwise."""
    clock = iter(range(1000)).__next__
    timer, waits = StepTimer(clock=clock, cpu_clock=lambda: 0), []
    blocks = StepBlocks(timer, lambda: waits.append(timer.clock()), watched_after=0)
    timer.begin_epoch(0)
    timer.open()
    timer.begin_validation()
    timer.due = 0
    assert not any(blocks.end_step(batch, 1, last=False) for batch in range(3))
    assert not waits
    timer.end_validation()
    assert blocks.end_step(3, 1, last=False)
