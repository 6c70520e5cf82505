"""What a probe must survive inside a real ``fit``: other callbacks, copies, errors, misuse."""

from __future__ import annotations

import concurrent.futures
import copy
import functools
import gc
import json
import pickle
import resource
import signal
from pathlib import Path

import keras
import pytest
from fits import BACKEND, BATCH, Log, check_conserved, make_data, make_model
from warm import MODEL, fit

import vmselect as vs


class Boom(Exception):
    """Raised on purpose."""


def expect(kind, action):
    """Run ``action``, which must raise ``kind``, and return the error without its frames."""
    try:
        action()
    except kind as error:
        return error.with_traceback(None)
    raise AssertionError(f"{kind.__name__} was not raised")


def test_early_stopping_is_respected(folder):
    for first in (True, False):
        # The probe passes through six epochs to see two validations, but the training is to end after two.
        stopper = keras.callbacks.EarlyStopping(monitor="loss", patience=0, min_delta=1e9)
        probe, log = vs.IterationProbe(steps=4, verbose=0), Log()
        fit(probe, validation_freq=3, callbacks=[stopper, probe, log] if first else [probe, stopper, log])
        assert log.count("epoch") == 2, log.events
        assert probe.profile.timeline.steps.steps == 10


def test_a_stop_in_mid_epoch_is_respected(folder):
    def stop():
        MODEL.stop_training = True

    for at in (("batch", 2), ("batch", 4)):  # before the probe's own stop, and at the same step
        for first in (True, False):
            probe, log = vs.IterationProbe(steps=4, verbose=0), Log(at, stop)
            fit(probe, callbacks=[log, probe] if first else [probe, log])
            assert (log.count("batch"), log.count("epoch")) == (at[1] + 1, 1), log.events
            assert [epoch.complete for epoch in probe.profile.timeline.epochs] == [False]


def test_checkpoints_and_backups(folder):
    probe = vs.IterationProbe(steps=4, protect_files=False, verbose=0)
    checkpoint = keras.callbacks.ModelCheckpoint(str(folder / "model.keras"))
    backup = keras.callbacks.BackupAndRestore(str(folder / "backup"))
    profile = fit(probe, callbacks=[backup, probe, checkpoint])
    assert profile.timeline.steps.steps == 10
    assert (folder / "model.keras").exists()
    check_conserved(profile)
    backup = keras.callbacks.BackupAndRestore(str(folder / "backup2"))
    error = expect(Boom, lambda: fit(probe, callbacks=[backup, probe, Log(("batch", 1), raiser(Boom("now")))]))
    assert str(error) == "now"


def raiser(error):
    def raise_it():
        raise error

    return raise_it


def test_copies_are_fresh_probes(folder):
    probe = vs.IterationProbe(folder / "a.json", steps=4, metrics={"answer": 42}, verbose=0)
    for duplicate in (copy.deepcopy(probe), pickle.loads(pickle.dumps(probe)), copy.copy(probe)):  # noqa: S301
        assert (duplicate.steps, duplicate.path) == (4, folder / "a.json")
        assert fit(duplicate).metrics == {"answer": 42}
    copies = []
    log = Log(("batch", 2), lambda: copies.extend([copy.deepcopy(probe), pickle.loads(pickle.dumps(probe))]))  # noqa: S301
    profile = fit(probe, callbacks=[probe, log])
    assert profile.timeline.steps.steps == 10
    for duplicate in copies:
        error = expect(vs.errors.ProbeError, lambda duplicate=duplicate: duplicate.profile)
        assert "callbacks=[probe]" in str(error)
        assert fit(duplicate).timeline.steps.steps == 10
    assert copy.deepcopy(probe).profile == profile
    assert copy.deepcopy(vs.EpochProbe()).epochs == 2


def test_one_probe_for_several_fits(folder):
    probe = vs.IterationProbe(folder, steps=4, instance_type="box", verbose=0)
    profiles = [fit(probe), fit(probe, steps=30), fit(probe, steps=3, epochs=1)]
    assert [profile.setup.steps_per_epoch for profile in profiles] == [60, 30, 3]
    assert [profile.outcome for profile in profiles] == ["stopped", "stopped", "watched"]
    assert profiles[1].timeline.init_seconds is None  # only the first fit of a process began with it
    assert len(list(folder.glob("box-8-*.json"))) == 3
    assert sorted(p.setup.steps_per_epoch for p in vs.load_profiles(folder)) == [3, 30, 60]
    vs.mark_start()
    marked = fit(probe).timeline
    assert (marked.init_source, 0 < marked.init_seconds < 60) == ("mark_start", True)
    assert fit(probe).timeline.init_seconds is None


def test_an_exception_of_another_callback(folder):
    for number, error in enumerate((Boom("boom"), KeyboardInterrupt(), SystemExit(3))):
        for first in (True, False):
            path = folder / f"{number}{first}.json"
            probe, log = vs.IterationProbe(path, stop=False, verbose=0), Log(("batch", 30), raiser(error))
            raised = expect(BaseException, lambda p=probe, g=log, f=first: fit(p, callbacks=[p, g] if f else [g, p]))
            assert raised is error
            assert path.exists()  # nobody has asked the probe for anything
            profile = vs.Profile.load(path)
            assert profile.outcome == "interrupted"
            assert profile.timeline.steps.steps == (31 if first else 30)
            assert probe.profile == profile
    assert fit(vs.IterationProbe(steps=4, verbose=0)).timeline.steps.steps == 10


def test_a_mistake_before_the_first_step_leaves_nothing(folder):
    probe = vs.IterationProbe(folder / "p.json", verbose=0)
    wrong = make_data(5)[0][:, :3]
    expect(Exception, lambda: make_model().fit(wrong, wrong, callbacks=[probe], verbose=0))
    assert not list(folder.iterdir())
    expect(vs.errors.ProbeError, lambda: probe.profile)
    assert fit(probe).timeline.steps.steps == 42


def test_a_fit_without_epochs_leaves_nothing(folder):
    probe = vs.IterationProbe(folder / "p.json", verbose=0)
    expect(vs.errors.ProbeError, lambda: fit(probe, initial_epoch=9, epochs=9))
    assert not list(folder.iterdir())


def test_a_loop_of_ones_own_that_calls_the_hooks(folder):
    probe = vs.IterationProbe(folder / "p.json", steps=2, stop=False, verbose=0)
    hooks = keras.callbacks.CallbackList([probe], model=MODEL, epochs=2, steps=5)
    hooks.on_train_begin()
    for epoch in range(2):
        hooks.on_epoch_begin(epoch)
        for batch in range(5):
            hooks.on_train_batch_begin(batch)
            hooks.on_train_batch_end(batch, {"loss": 1.0})
        hooks.on_epoch_end(epoch)
        assert (probe.profile.outcome, probe.profile.timeline.steps.steps) == ("interrupted", 5 * epoch + 5)
    hooks.on_train_end()
    assert probe.profile.timeline.steps.steps == 10
    assert vs.Profile.load(folder / "p.json") == probe.profile


def test_the_profile_is_there_while_the_exception_is_handled(folder):
    probe, log = vs.IterationProbe(folder / "p.json", verbose=0), Log(("epoch", 0), raiser(Boom("in an epoch hook")))
    try:
        fit(probe, callbacks=[probe, log])
    except Boom as error:
        kept = error
        assert probe.profile.outcome == "interrupted"
        assert probe.profile.detail == "Boom: in an epoch hook"
        assert vs.Profile.load(folder / "p.json").detail == "Boom: in an epoch hook"
    assert [epoch.steps for epoch in probe.profile.timeline.epochs] == [21]
    assert kept.__traceback__ is not None
    del kept


def test_while_it_trains_the_profile_is_what_was_seen(folder):
    probe, seen = vs.IterationProbe(folder, verbose=0), []
    log = Log(("batch", 3), lambda: seen.append((probe.profile, vs.load_profiles(folder))))
    fit(probe, callbacks=[probe, log])
    assert [(so_far.outcome, so_far.timeline.steps.steps) for so_far, _ in seen] == [
        ("interrupted", n) for n in (4, 25)
    ]
    assert [loaded for _, loaded in seen] == [[so_far] for so_far, _ in seen]
    assert probe.profile.timeline.steps.steps == 42
    assert vs.load_profiles(folder) == [probe.profile]
    assert len(list(folder.iterdir())) == 1


def test_an_interrupt_key(folder):
    probe = vs.IterationProbe(folder / "p.json", stop=False, verbose=0)
    log = Log(("batch", 9), lambda: signal.raise_signal(signal.SIGINT))
    expect(KeyboardInterrupt, lambda: fit(probe, callbacks=[probe, log]))
    assert vs.Profile.load(folder / "p.json").outcome == "interrupted"


def test_out_of_memory(folder):
    class ResourceExhaustedError(Exception):
        pass

    errors = [
        (MemoryError("host"), "out_of_memory"),
        (ResourceExhaustedError("OOM when allocating tensor\nwith shape"), "out_of_memory"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 17179869184 bytes."), "out_of_memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "out_of_memory"),
        (RuntimeError("shapes do not match"), "interrupted"),
    ]
    model = make_model()
    fit(vs.IterationProbe(steps=2, verbose=0), model=model)
    for number, (error, outcome) in enumerate(errors):
        for where in ("train_function", "test_function"):
            real, path = getattr(model, where), folder / f"{number}{where}.json"
            broken = breaking(real, error, after=2)
            setattr(model, where, broken)
            probe = vs.IterationProbe(path, verbose=0)
            raised = expect(Exception, lambda p=probe, m=model: fit(p, model=m))
            assert raised is error
            profile = vs.Profile.load(path)  # written at once, while the exception is on its way
            assert (profile.outcome, profile.detail) == (outcome, f"{type(error).__name__}: {error}".splitlines()[0])
            # Steps that were submitted but not synchronized are not part of the record.
            steps = (1 if BACKEND == "jax" else 2) if where == "train_function" else 21
            assert profile.timeline.steps.steps == steps
            assert getattr(model, where) is broken  # the model has its own function back
            setattr(model, where, real)
            assert ("out-of-memory" in {f.code for f in profile.findings}) == (outcome == "out_of_memory")


def breaking(function, error, *, after):
    calls = []

    def break_down(*arguments):
        calls.append(1)
        if len(calls) > after:
            raise error
        return function(*arguments)

    return break_down


def test_the_real_memory_error_of_the_framework(folder):
    if BACKEND == "jax":
        pytest.skip("XLA on a CPU finds a way around every huge tensor that was tried")

    class Huge(keras.layers.Layer):
        def call(self, x):
            many = keras.ops.stop_gradient(keras.ops.tile(x, (1 << 31, 1)))
            return x + keras.ops.max(keras.ops.sin(many))

    model = keras.Sequential([keras.Input((4,)), Huge(), keras.layers.Dense(1)])
    model.compile(loss="mse", jit_compile=False)
    probe = vs.IterationProbe(folder / "p.json", verbose=0)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 30), limits[1]))  # so that the system refuses in time
    try:
        expect(Exception, lambda: fit(probe, model=model, validation=0))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    profile = vs.Profile.load(folder / "p.json")
    assert profile.outcome == "out_of_memory", (profile.outcome, profile.detail)
    assert profile.timeline.steps.steps == 0
    assert profile.setup.batch_size == BATCH


def test_a_bare_callback_is_measured_too(folder):
    x, y = make_data(60)
    probe = vs.IterationProbe(verbose=0)
    MODEL.fit(x, y, batch_size=BATCH, epochs=3, verbose=0, callbacks=probe)
    assert probe.profile.timeline.steps.steps == 42
    assert probe.profile.environment.dispatch == ("direct" if BACKEND == "tensorflow" else "threaded")


def test_an_epoch_probe_may_be_bare(folder):
    x, y = make_data(10)
    probe = vs.EpochProbe(verbose=0)
    MODEL.fit(x, y, batch_size=BATCH, epochs=5, verbose=0, callbacks=probe, validation_data=make_data(2))
    assert len(probe.profile.timeline.epochs) == 2
    assert probe.profile.environment.dispatch == ("direct" if BACKEND == "tensorflow" else "threaded")
    assert "threaded-dispatch" not in {finding.code for finding in probe.profile.findings}
    check_conserved(probe.profile)


def test_an_unknown_callback_list_that_uses_threads_is_refused(folder):
    if BACKEND == "tensorflow":
        pytest.skip("Keras never calls hooks from threads on TensorFlow")
    x, y = make_data(10)
    probe = vs.IterationProbe(verbose=0)
    callbacks = keras.callbacks.CallbackList([probe], add_history=True, model=MODEL, epochs=2, steps=10)
    begin, callbacks.on_train_begin = callbacks.on_train_begin, None

    def hide_threads(logs=None):
        callbacks._async_train = False
        begin(logs)
        callbacks._async_train = True
        callbacks._executor = callbacks._executor or concurrent.futures.ThreadPoolExecutor()

    callbacks.on_train_begin = hide_threads
    expect(vs.errors.ProbeError, lambda: MODEL.fit(x, y, batch_size=BATCH, epochs=2, verbose=0, callbacks=callbacks))


def test_an_unwritable_path_is_found_before_training(folder):
    (folder / "file.txt").write_text("not a folder")
    log = Log()
    probe = vs.IterationProbe(folder / "file.txt" / "p.json", verbose=0)
    error = expect(vs.errors.ProfileError, lambda: fit(probe, callbacks=[probe, log]))
    assert "file.txt" in str(error)
    assert log.events == []


def test_metrics_of_the_user(folder):
    calls = []
    metrics = {"fixed": 3, "later": lambda: calls.append(1) or 0.5}
    probe = vs.IterationProbe(folder / "p.json", steps=3, metrics=metrics, verbose=0)
    assert not calls
    assert fit(probe).metrics == {"fixed": 3.0, "later": 0.5}
    assert len(calls) == 1
    for bad, kind in ((raiser(Boom("metric")), Boom), (lambda: "text", vs.errors.ArgumentError)):
        path = folder / f"{kind.__name__}.json"
        expect(kind, lambda p=path, b=bad: fit(vs.IterationProbe(p, steps=3, metrics={"bad": b}, verbose=0)))
        assert vs.Profile.load(path).timeline.steps.steps == 8  # the times are not lost with it


def test_evaluate_and_predict_are_not_trainings(folder):
    probe = vs.IterationProbe(verbose=0)
    x, y = make_data(2)
    MODEL.evaluate(x, y, verbose=0, callbacks=[probe])
    MODEL.predict(x, verbose=0, callbacks=[probe])
    expect(vs.errors.ProbeError, lambda: probe.profile)
    evaluate = Log(("epoch", 0), lambda: MODEL.evaluate(x, y, verbose=0))
    assert len(fit(probe, callbacks=[probe, evaluate]).timeline.validations) == 2


def test_data_that_runs_out(folder):
    probe = vs.IterationProbe(stop=False, verbose=0)
    x, y = make_data(5)
    batches = ((x[i : i + BATCH], y[i : i + BATCH]) for i in range(0, len(x), BATCH))
    MODEL.fit(batches, steps_per_epoch=50, epochs=1, verbose=0, callbacks=[probe])
    assert [(epoch.steps, epoch.complete) for epoch in probe.profile.timeline.epochs] == [(5, False)]


def test_the_signal_handler_is_put_back(folder):
    gc.collect()  # a training that failed in a test before is over when nothing refers to it any more
    before = signal.getsignal(signal.SIGTERM)
    assert before == signal.SIG_DFL
    inside = []
    log = Log(("batch", 1), lambda: inside.append(signal.getsignal(signal.SIGTERM)))
    # A thread that samples can be the last to let go of a failed training, and only the main one may set signals.
    probe = vs.IterationProbe(verbose=0, sample=None)
    fit(probe, callbacks=[probe, log])
    assert inside != [before]
    assert signal.getsignal(signal.SIGTERM) == before
    expect(Boom, lambda: fit(probe, callbacks=[probe, Log(("batch", 1), raiser(Boom()))]))
    assert signal.getsignal(signal.SIGTERM) == before

    def own(*_):
        raise Boom("mine")

    signal.signal(signal.SIGTERM, own)
    try:
        log = Log(("batch", 5), lambda: signal.raise_signal(signal.SIGTERM))
        expect(Boom, lambda: fit(probe, callbacks=[probe, log]))
        assert signal.getsignal(signal.SIGTERM) == own
        assert probe.profile.timeline.steps.steps == 6
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_training_in_a_thread(folder):
    import threading

    probe, trouble = vs.IterationProbe(folder / "p.json", verbose=0), []

    def train():
        try:
            fit(probe)
        except Exception as error:  # noqa: BLE001 - shown below
            trouble.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert not trouble, trouble
    assert vs.Profile.load(folder / "p.json").timeline.steps.steps == 42


def test_nothing_keeps_the_model_alive(folder):
    import weakref

    model = make_model()
    probe = vs.IterationProbe(folder / "p.json", verbose=0)
    fit(probe, model=model)
    assert "guarded" not in getattr(model.train_function, "__qualname__", "")
    callback = Log(("batch", 1), raiser(Boom()))
    expect(Boom, functools.partial(fit, probe, model=model, callbacks=[probe, callback]))
    callback.set_model(None)
    probe.set_model(None)
    gone = weakref.ref(model)
    del model, callback
    keras.backend.clear_session()
    gc.collect()
    if BACKEND != "tensorflow":  # TensorFlow's traced functions live on in caches of their own
        assert gone() is None


def test_the_file_is_the_profile(folder):
    path = folder / "new" / "folder" / "p.json"
    profile = fit(vs.IterationProbe(path, region="us-east-1", instance_type="g4dn.xlarge", verbose=0))
    assert vs.Profile.load(path) == profile
    assert json.loads(path.read_text())["placement"]["region"] == {"value": "us-east-1", "source": "argument"}
    assert path.stat().st_size < 30_000
