"""What a probe must survive inside a real ``fit``: the ordinary cases."""

from __future__ import annotations

import contextlib
import gc
import io
import threading
import time

import keras
import numpy as np
import pytest
from fits import BACKEND, BATCH, Log, check_conserved, make_data, make_model
from warm import MODEL, fit

import vmselect as vs


class Direct(keras.callbacks.Callback):
    """Has batch-level methods, so that Keras waits for every step on every backend."""

    def on_train_batch_end(self, batch, logs=None):
        pass

    def on_test_batch_end(self, batch, logs=None):
        pass


def fit_directly(probe, **options):
    return fit(probe, callbacks=[Direct(), probe], **options)


def test_two_short_epochs_with_their_validations(folder):
    profile = fit_directly(vs.IterationProbe(steps=7, verbose=0, instance_type="here"))
    steps, setup = profile.timeline.steps, profile.setup
    assert profile.outcome == "stopped"
    assert steps.steps == steps.readings == len(steps) == 16
    assert steps.epoch == (0,) * 8 + (1,) * 8
    assert steps.batch == tuple(range(8)) * 2
    assert steps.label[0] == "first"
    assert steps.label[8] == "opening"
    assert {*steps.label} <= {"first", "opening", "steady", "warmup"}
    assert [(v.epoch, v.batches, v.truncated) for v in profile.timeline.validations] == [(0, 3, False), (1, 3, False)]
    assert [len(v.batch_seconds) for v in profile.timeline.validations] == [3, 3]
    assert [(b.epoch, b.truncated, b.final) for b in profile.timeline.boundaries] == [(0, True, False), (1, True, True)]
    assert [epoch.complete for epoch in profile.timeline.epochs] == [False, False]
    assert (setup.batch_size, setup.batch_size_source, setup.steps_per_epoch) == (BATCH, "data", 60)
    assert (setup.examples, setup.partial_batch, setup.validation_examples) == (480, 0, 24)
    assert (setup.epochs, setup.initial_epoch, setup.steps_per_execution) == (9, 0, 1)
    assert (setup.model, setup.parameters) == (MODEL.name, MODEL.count_params())
    assert profile.environment.backend == BACKEND
    assert (profile.environment.dispatch, profile.environment.step_timing) == ("direct", "steps")
    assert profile.environment.versions["keras"] == keras.__version__
    assert profile.environment.precision == "float32"
    assert profile.total_seconds is None
    check_conserved(profile)


def test_keras_calls_callbacks_as_without_the_probe(folder):
    seen = {}

    class Watch(keras.callbacks.Callback):
        """Writes down from which threads Keras calls its batch-level method."""

        async_safe = True

        def on_train_batch_end(self, batch, logs=None):
            seen.setdefault(threading.get_ident(), []).append(batch)

    probe = vs.IterationProbe(steps=12, verbose=0)
    profile = fit(probe, callbacks=[Watch(), probe], steps=40, partial=3, validation=7)
    threaded = BACKEND != "tensorflow"
    assert (threading.get_ident() not in seen) == threaded
    assert profile.environment.dispatch == ("threaded" if threaded else "direct")
    assert profile.environment.step_timing == ("blocks" if BACKEND == "jax" else "steps")
    assert not {"threaded-dispatch", "direct-dispatch"} & {finding.code for finding in profile.findings}
    covers = (1, 5, 5, 2) if BACKEND == "jax" else (1,) * 13
    assert profile.timeline.steps.covers == covers * 2
    assert [(v.batches, len(v.batch_seconds), v.truncated) for v in profile.timeline.validations] == [(7, 7, False)] * 2
    check_conserved(profile)
    assert vs.estimate(profile, epochs=3).seconds > 0


def test_a_watched_fit_with_threads_is_synchronized_only_between_epochs_later(folder):
    profile = fit(vs.IterationProbe(stop=False, verbose=0), steps=40, partial=2, epochs=3)
    assert profile.logs.epoch == (0, 1, 2)
    assert {"loss", "val_loss"} <= set(profile.logs.values)
    labels = profile.timeline.steps.label
    assert [labels.count(label) for label in ("first", "opening", "partial")] == [1, 2, 3]
    assert profile.timeline.steps.steps == 120
    if BACKEND == "jax":
        assert profile.timeline.steps.covers == (1, 5, 5, 5, 5, 18, 1) + (1, 38, 1) * 2
    check_conserved(profile)


@pytest.mark.skipif(BACKEND != "jax", reason="only JAX executes steps asynchronously on a CPU")
def test_jax_is_waited_for_at_the_end_of_a_block(folder, monkeypatch):
    import jax

    waits, wait = [], jax.block_until_ready
    monkeypatch.setattr(jax, "block_until_ready", lambda arrays: waits.append(jax.tree.leaves(arrays)) or wait(arrays))
    profile = fit(vs.IterationProbe(steps=10, verbose=0))
    assert profile.environment.step_timing == "blocks"
    assert len(waits) >= len(profile.timeline.steps)
    assert all(arrays and all(isinstance(one, jax.Array) for one in arrays) for arrays in waits)


def test_a_watched_fit_is_scored_against_a_kept_forecast(folder):
    given = {"instance_type": "here", "verbose": 0}
    probed = fit(vs.IterationProbe(steps=4, **given), steps=20, epochs=3)
    for epochs in (2, 3):
        vs.estimate(probed, epochs=epochs).keep(folder / "team")
    watched = fit(vs.IterationProbe(folder / "team", stop=False, **given), steps=20, epochs=3)
    score = vs.score(vs.load_records(folder / "team"))
    (case,) = score.cases
    assert (case.outcome.id, case.real_seconds, case.forecast.epochs) == (watched.id, watched.total_seconds, 3)
    assert (case.forecast.basis, case.forecast.used) == ("measured", (probed.id,))
    assert (score.unscored, len(score.waiting)) == ((), 1)


@pytest.mark.parametrize(("options", "earliest"), [({"patience": 3}, 4), ({"patience": 5, "start_from_epoch": 10}, 16)])
def test_callbacks_that_may_stop_early_are_known(folder, options, earliest):
    probe = vs.IterationProbe(steps=2, verbose=0)
    stop = keras.callbacks.EarlyStopping(monitor="loss", **options)
    assert fit(probe, callbacks=[stop, probe]).setup.early_stopping == earliest
    assert fit(vs.IterationProbe(steps=2, verbose=0)).setup.early_stopping is None


def test_partial_batch_is_known_from_arrays(folder):
    setup = fit(vs.IterationProbe(verbose=0), steps=60, partial=5).setup
    assert (setup.partial_batch, setup.examples, setup.steps_per_epoch) == (5, 59 * BATCH + 5, 60)


def test_number_of_validations(folder):
    for validations, epochs, seen in ((0, 1, [(1, True)]), (1, 1, [(3, False)]), (2, 2, [(3, False)] * 2)):
        profile = fit(vs.IterationProbe(steps=4, validations=validations, verbose=0))
        assert [(v.batches, v.truncated) for v in profile.timeline.validations] == seen
        assert len(profile.timeline.epochs) == epochs
        check_conserved(profile)


def test_later_validations_are_cut_short(folder):
    profile = fit(vs.IterationProbe(steps=4, validation_steps=2, verbose=0), validation=6)
    assert [(v.batches, v.truncated) for v in profile.timeline.validations] == [(6, False), (2, True)]
    assert profile.setup.validation_examples == 48
    profile = fit(vs.IterationProbe(steps=4, validation_steps=3, verbose=0), validation=3)
    assert [(v.batches, v.truncated) for v in profile.timeline.validations] == [(3, False), (3, False)]


def test_no_validation_data(folder):
    profile = fit(vs.IterationProbe(steps=4, verbose=0), validation=0)
    assert profile.timeline.validations == ()
    assert profile.timeline.steps.steps == 10
    assert "no-validation" in {finding.code for finding in profile.findings}
    check_conserved(profile)


def test_a_time_limit_ends_the_probe(folder):
    log = Log()
    profile = fit(vs.IterationProbe(steps=50, seconds=1e-6, verbose=0), callbacks=None, validation=5)
    assert profile.timeline.steps.steps == 1
    assert [(v.batches, v.truncated) for v in profile.timeline.validations] == [(1, True)]
    assert profile.outcome == "stopped"
    probe = vs.IterationProbe(steps=50, seconds=3600, verbose=0)
    assert fit(probe, callbacks=[probe, log]).timeline.steps.steps == 102


def test_a_time_limit_cuts_a_long_validation(folder):
    class Slow(keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            time.sleep(0.1)

    probe = vs.IterationProbe(steps=2, seconds=0.35, verbose=0)
    profile = fit(probe, callbacks=[probe, Slow()], validation=60)
    (validation,) = profile.timeline.validations
    assert validation.truncated
    assert validation.batches < 10


class Slower(keras.callbacks.Callback):
    """Steps that take at least a hundredth of a second."""

    def on_train_batch_begin(self, batch, logs=None):
        time.sleep(0.01)


def test_short_steps_are_measured_for_as_long_as_is_wanted(folder):
    probe = vs.IterationProbe(steps=3, steady_seconds=0.15, verbose=0)
    profile = fit(probe, callbacks=[Slower(), probe], steps=200)
    for epoch in profile.timeline.epochs:
        assert not epoch.complete
        assert 3 <= epoch.steps - 1 <= 15 + 1
        assert epoch.seconds - epoch.opening_seconds >= 0.15
    assert len(profile.timeline.epochs) == len(profile.timeline.validations) == 2
    if BACKEND == "tensorflow":
        assert profile.timeline.input_wait is not None
    check_conserved(profile)


def test_long_enough_steps_are_as_many_as_were_asked_for(folder):
    probe = vs.IterationProbe(steps=6, steady_seconds=0.05, verbose=0)
    assert fit(probe, callbacks=[Slower(), probe]).timeline.steps.steps == 14


def test_an_epoch_too_short_for_the_seconds_is_measured_to_where_its_wait_for_input_is_learnt(folder):
    profile = fit(vs.IterationProbe(steps=3, steady_seconds=60, verbose=0), steps=30)
    assert [epoch.steps for epoch in profile.timeline.epochs] in ([30, 30], [24, 30], [24, 24])
    assert (profile.timeline.input_wait is not None) >= (BACKEND == "tensorflow")


def test_an_epoch_that_is_not_one_pass_over_the_data(folder):
    setup = fit(vs.IterationProbe(steps=3, verbose=0), steps=30, partial=5, steps_per_epoch=12).setup
    assert (setup.steps_per_epoch, setup.partial_batch, setup.examples) == (12, None, None)


def test_epochs_shorter_than_the_steps_asked_for(folder):
    profile = fit_directly(vs.IterationProbe(steps=20, verbose=0), steps=5, partial=3)
    assert [epoch.complete for epoch in profile.timeline.epochs] == [True, True]
    assert profile.timeline.steps.label[0] == "first"
    assert profile.timeline.steps.label[4] == profile.timeline.steps.label[9] == "partial"
    assert profile.timeline.steps.label[5] == "opening"
    assert profile.outcome == "stopped"
    check_conserved(profile)


def test_epochs_of_a_single_step(folder):
    profile = fit(vs.IterationProbe(verbose=0), steps=1)
    assert profile.timeline.steps.label == ("first", "opening")
    check_conserved(profile)


def test_a_fit_that_ends_by_itself_was_watched(folder):
    profile = fit(vs.IterationProbe(verbose=0), steps=5, epochs=1)
    assert profile.outcome == "watched"
    assert profile.logs is None
    assert profile.total_seconds >= profile.timeline.fit_seconds > 0


def test_as_many_steps_as_the_epoch_has(folder):
    # The last step of an epoch is not cut: the epoch is whole, and its boundary is the real one.
    profile = fit(vs.IterationProbe(steps=4, verbose=0), steps=5)
    assert [epoch.complete for epoch in profile.timeline.epochs] == [True, True]


def test_watching_changes_no_weight(folder):
    weights = []
    for probe in (None, vs.IterationProbe(stop=False, verbose=0), vs.EpochProbe(stop=False, verbose=0)):
        model = make_model(optimizer="adam")
        log = Log()
        x, y = make_data(25, partial=3)
        model.fit(x, y, batch_size=BATCH, epochs=3, verbose=0, callbacks=[*([probe] if probe else []), log],
                  validation_data=make_data(2))  # fmt: skip
        weights.append(model.get_weights())
        assert log.count("batch") == 75
        if probe:
            profile = probe.profile
            assert profile.outcome == "watched"
            assert profile.total_seconds == (profile.timeline.init_seconds or 0) + profile.timeline.fit_seconds
            assert [epoch.complete for epoch in profile.timeline.epochs] == [True] * 3
            check_conserved(profile)
    for probed in weights[1:]:
        for ours, theirs in zip(probed, weights[0], strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_watched_steps_and_partial_batches(folder):
    profile = fit_directly(vs.IterationProbe(stop=False, verbose=0), steps=12, partial=2, epochs=3)
    labels = profile.timeline.steps.label
    assert [labels[i] for i in (0, 11, 12, 23, 24, 35)] == [
        "first",
        "partial",
        "opening",
        "partial",
        "opening",
        "partial",
    ]
    assert profile.timeline.steps.steps == 36


def test_generators(folder):
    def endless():
        while True:
            yield make_data(1)

    for steps_per_epoch in (30, None):
        probe = vs.IterationProbe(steps=6, verbose=0)
        MODEL.fit(endless(), steps_per_epoch=steps_per_epoch, epochs=4, verbose=0, callbacks=[probe],
                  validation_data=make_data(2))  # fmt: skip
        profile = probe.profile
        assert profile.timeline.steps.steps == 14, profile.timeline.steps
        assert profile.setup.steps_per_epoch == steps_per_epoch
        assert (profile.setup.batch_size, profile.setup.batch_size_source) == (BATCH, "data")
        assert len(profile.timeline.validations) == 2
        codes = {finding.code for finding in profile.findings}
        assert ("unknown-steps" in codes) == (steps_per_epoch is None)
        check_conserved(profile)


def test_a_whole_generator_determines_steps_and_examples(folder):
    probe = vs.IterationProbe(verbose=0)
    x, y = make_data(6, partial=3)
    batches = ((x[i : i + BATCH], y[i : i + BATCH]) for i in range(0, len(x), BATCH))
    with contextlib.suppress(ValueError):  # some backends refuse a second epoch of a spent generator
        MODEL.fit(batches, epochs=1, verbose=0, callbacks=[probe, Direct()], validation_data=make_data(2))
    setup = probe.profile.setup
    assert (setup.steps_per_epoch, setup.examples, setup.batch_size, setup.partial_batch) == (6, 43, BATCH, 3)
    assert probe.profile.timeline.steps.label[-1] == "partial"


def test_batch_size_by_argument_wins(folder):
    setup = fit(vs.IterationProbe(steps=2, batch_size=99, verbose=0)).setup
    assert (setup.batch_size, setup.batch_size_source) == (99, "argument")


def test_unknown_batch_size_is_a_finding(folder):
    class Own(keras.Model):
        """Has a training step of its own that keeps no running loss."""

        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, x):
            return self.dense(x)

        def train_step(self, *arguments):
            if BACKEND == "tensorflow":
                return {"nothing": keras.ops.zeros(())}  # TensorFlow insists on some answer
            return {} if BACKEND == "torch" else ({}, arguments[0])

    model = Own()
    model.compile(optimizer="sgd", loss="mse")
    probe = vs.IterationProbe(steps=3, verbose=0)

    def endless():
        while True:
            yield make_data(1)

    model.fit(endless(), steps_per_epoch=10, epochs=2, verbose=0, callbacks=[probe])
    assert probe.profile.batch_size is None
    assert "unknown-batch-size" in {finding.code for finding in probe.profile.findings}
    assert probe.profile.timeline.steps.steps == 8


def test_python_datasets_get_one_short_epoch(folder):
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 30

        def __getitem__(self, index):
            return make_data(1, seed=index)

    for options in ({}, {"workers": 2}):
        profile = vs.IterationProbe(steps=4, verbose=0)
        MODEL.fit(Batches(**options), epochs=5, verbose=0, callbacks=[profile], validation_data=make_data(2))
        profile = profile.profile
        assert [(epoch.steps, epoch.complete) for epoch in profile.timeline.epochs] == [(5, False)]
        assert len(profile.timeline.validations) == 1
        assert (profile.setup.batch_size, profile.setup.steps_per_epoch) == (BATCH, 30)
        assert profile.setup.self_tuning_input is False
    probe = vs.IterationProbe(steps=40, verbose=0)
    MODEL.fit(Batches(), epochs=5, verbose=0, callbacks=[probe], validation_data=make_data(2))
    assert [epoch.steps for epoch in probe.profile.timeline.epochs] == [30, 30]
    assert probe.profile.setup.examples == 240


def test_whether_the_input_tunes_itself(folder):
    assert fit(vs.IterationProbe(steps=4, verbose=0)).setup.self_tuning_input is (BACKEND == "tensorflow")


def test_whether_one_pass_over_the_data_goes_on_through_all_epochs(folder):
    def endless():
        while True:
            yield make_data(1)

    for data, options, goes_on in (
        (endless(), {"steps_per_epoch": 20}, True),
        (make_data(60), {"steps_per_epoch": 20}, False),
        (make_data(60), {}, False),
    ):
        probe = vs.IterationProbe(steps=4, verbose=0)
        arrays = data if isinstance(data, tuple) else (data,)
        MODEL.fit(*arrays, epochs=5, verbose=0, callbacks=[probe], **options)
        assert probe.profile.setup.continuous_input is goes_on


def test_several_steps_per_execution(folder):
    if BACKEND == "torch":
        pytest.skip("torch runs one step per execution")
    model = make_model(steps_per_execution=4)
    profile = fit_directly(vs.IterationProbe(steps=7, verbose=0), model=model, steps=40, validation=6)
    assert profile.setup.steps_per_execution == 4
    assert profile.timeline.steps.covers == (4, 4, 4) * 2
    assert profile.timeline.steps.batch == (3, 7, 11) * 2
    assert [(v.batches, len(v.batch_seconds)) for v in profile.timeline.validations] == [(6, 2), (6, 2)]
    assert profile.setup.batch_size == BATCH
    check_conserved(profile)
    profile = fit_directly(vs.IterationProbe(stop=False, verbose=0), model=model, steps=10, epochs=2, validation=0)
    assert profile.timeline.steps.covers == (4, 4, 2) * 2
    assert profile.timeline.steps.batch == (3, 7, 9) * 2
    assert profile.timeline.steps.steps == 20


def test_validation_every_few_epochs(folder):
    log = Log()
    probe = vs.IterationProbe(steps=5, verbose=0)
    profile = fit(probe, validation_freq=3, epochs=20, callbacks=[probe, log])
    assert [v.epoch for v in profile.timeline.validations] == [2, 5]
    assert [epoch.steps for epoch in profile.timeline.epochs] == [6, 6, 1, 1, 1, 1]
    assert profile.setup.validation_freq == 3
    check_conserved(profile)
    probe = vs.IterationProbe(steps=5, verbose=0)
    profile = fit(probe, validation_freq=[1, 4])
    setup = profile.setup
    assert [v.epoch for v in profile.timeline.validations] == [0, 3]
    assert (setup.validation_freq, setup.validation_from, setup.validation_until, setup.validates) == (3, 1, 4, True)
    probe = vs.IterationProbe(steps=5, verbose=0)
    profile = fit(probe, validation_freq=50, epochs=20)
    assert len(profile.timeline.epochs) == 2  # no validation will come: do not wait for it


def test_training_that_goes_on_from_an_epoch(folder):
    profile = fit(vs.IterationProbe(steps=3, verbose=0), initial_epoch=5, epochs=12)
    assert profile.setup.initial_epoch == 5
    assert [epoch.epoch for epoch in profile.timeline.epochs] == [5, 6]


def test_gradient_accumulation(folder):
    model = make_model(optimizer=keras.optimizers.SGD(gradient_accumulation_steps=4))
    profile = fit(vs.IterationProbe(steps=8, verbose=0), model=model)
    assert profile.timeline.steps.steps == 18
    assert profile.setup.batch_size == BATCH


def test_exactly_one_line_when_it_stops(folder):
    for verbose, stop, lines in ((1, True, 1), (0, True, 0), (1, False, 0)):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            fit(vs.IterationProbe(folder, stop=stop, verbose=verbose), epochs=3)
        assert len(out.getvalue().splitlines()) == lines, out.getvalue()
        assert ("42" in out.getvalue()) == bool(lines)


def test_whole_epochs(folder):
    probe = vs.EpochProbe(folder / "epochs.json", verbose=0)
    profile = fit(probe, steps=9, partial=4)
    assert [(e.steps, e.complete, e.opening_seconds) for e in profile.timeline.epochs] == [(9, True, None)] * 2
    assert len(profile.timeline.steps) == 0
    assert [v.batches for v in profile.timeline.validations] == [3, 3]
    assert profile.outcome == "stopped"
    assert profile.probe == "epoch"
    assert (profile.setup.batch_size, profile.setup.examples) == (BATCH, 68)
    check_conserved(profile)
    assert vs.Profile.load(folder / "epochs.json") == profile
    assert len(fit(vs.EpochProbe(epochs=3, verbose=0), steps=4, validation=0).timeline.epochs) == 3


class Collecting(keras.callbacks.Callback):
    """Has the garbage collector look through all objects within every epoch, and says how long that took."""

    def __init__(self):
        super().__init__()
        self.seconds = []

    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:
            began = time.perf_counter()
            gc.collect()
            self.seconds.append(time.perf_counter() - began)


def test_whole_epochs_hold_their_garbage_collections(folder):
    probe, collecting = vs.EpochProbe(verbose=0), Collecting()
    timeline = fit(probe, callbacks=[probe, collecting], steps=4, validation=0).timeline
    assert timeline.pauses == ()
    assert all(e.seconds > taken > 0.001 for e, taken in zip(timeline.epochs, collecting.seconds, strict=True))
