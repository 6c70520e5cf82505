"""The inference probe inside real predictions and evaluations."""

from __future__ import annotations

import copy
import pickle
import time

import keras
import numpy as np
import pytest
from fits import BACKEND, BATCH, make_data, make_model

import vmselect as vs

PAUSE = 0.02


class Pacer(keras.callbacks.Callback):
    """A metronome: makes each batch last at least a known time."""

    def __init__(self, stalls=()):
        super().__init__()
        self.stalls = stalls

    def on_predict_batch_begin(self, batch, logs=None):
        time.sleep(PAUSE * (10 if batch in self.stalls else 1))

    on_test_batch_begin = on_predict_batch_begin


def test_predict_leaves_a_record(folder):
    x, _ = make_data(40, partial=3)
    model = make_model()
    plain = model.predict(x, batch_size=BATCH, verbose=0)
    probe = vs.serving.InferenceProbe(folder, instance_type="here", verbose=0)
    answers = model.predict(x, batch_size=BATCH, verbose=0, callbacks=[Pacer(stalls={20}), probe])
    np.testing.assert_allclose(plain, answers, rtol=1e-5)
    (record,) = vs.load_records(folder)
    assert record == probe.record
    assert record.kind == "inference"
    assert record.setup.source == "predict"
    assert record.batch_size == BATCH
    assert record.setup.bytes_per_item == 16.0
    assert record.environment.backend == BACKEND
    assert record.first_seconds >= PAUSE
    warm = record.calls.label.count("warmup")
    assert record.calls.total + warm == 39
    assert record.calls.items == len(x) - BATCH * (1 + warm)
    assert all(value >= PAUSE for value in record.calls.latency)
    assert record.calls.longest_seconds >= 10 * PAUSE
    assert record.percentile(50) < 10 * PAUSE
    with pytest.raises(vs.errors.ProfileError):  # which keeps to trainings
        vs.load_profiles(folder)


def test_evaluate_leaves_a_record(folder):
    x, y = make_data(20)
    probe = vs.serving.InferenceProbe(folder, instance_type="here")
    make_model().evaluate(x, y, batch_size=BATCH, verbose=0, callbacks=[Pacer(), probe])
    assert probe.record.setup.source == "evaluate"
    assert len(probe.record.calls.number) == 19
    assert probe.record.percentile(50) >= PAUSE


def test_validations_inside_fit_are_ignored(folder):
    x, y = make_data(4)
    probe = vs.serving.InferenceProbe(folder)
    make_model().fit(x, y, batch_size=BATCH, epochs=2, validation_data=(x, y), verbose=0, callbacks=[probe])
    assert not list(folder.iterdir())


def test_calls_cuts_a_prediction_short(folder):
    x, _ = make_data(100)
    probe = vs.serving.InferenceProbe(folder, calls=10, verbose=0)
    model = make_model()
    answers = model.predict(x, batch_size=BATCH, verbose=0, callbacks=[probe])
    assert len(answers) == 10 * BATCH
    assert len(probe.record.calls.number) == 9
    assert len(model.predict(x, batch_size=BATCH, verbose=0)) == len(x)


def test_several_executions_in_one_call(folder):
    if BACKEND == "torch":
        pytest.skip("torch has no steps_per_execution")
    x, _ = make_data(20)
    probe = vs.serving.InferenceProbe(folder, verbose=0)
    make_model(steps_per_execution=5).predict(x, batch_size=BATCH, verbose=0, callbacks=[probe])
    assert set(probe.record.calls.batch) == {5 * BATCH}
    assert len(probe.record.calls.number) == 3


def test_a_prediction_that_raises_keeps_its_measurements(folder):
    x, _ = make_data(20)

    class Fault(keras.callbacks.Callback):
        def on_predict_batch_begin(self, batch, logs=None):
            if batch == 10:
                raise RuntimeError("no more")

    probe = vs.serving.InferenceProbe(folder, verbose=0)
    model = make_model()
    with pytest.raises(RuntimeError):
        model.predict(x, batch_size=BATCH, verbose=0, callbacks=[probe, Fault()])
    # The end of such a prediction is noticed when its callbacks are gone, or at the next one.
    make_model().predict(x[:BATCH], batch_size=BATCH, verbose=0, callbacks=[probe])
    records = [r for r in vs.load_records(folder) if r.outcome == "interrupted"]
    assert len(records) == 1
    assert len(records[0].calls.number) == 9
    assert "interrupted" in {finding.code for finding in records[0].findings}


def test_an_inference_probe_can_be_copied(folder):
    probe = vs.serving.InferenceProbe(folder, batch_size=4, verbose=0)
    for twin in (copy.deepcopy(probe), pickle.loads(pickle.dumps(probe))):  # noqa: S301 - made here
        assert (twin.path, twin.batch_size) == (probe.path, probe.batch_size)


def test_a_bare_inference_probe_is_refused_where_threads_would_call_it(folder):
    x, _ = make_data(4)
    model = make_model()
    probe = vs.serving.InferenceProbe(folder, verbose=0)
    if BACKEND == "tensorflow":  # calls it directly, and so it can measure
        model.predict(x, batch_size=BATCH, verbose=0, callbacks=probe)
        assert probe.record.calls.number
    else:
        with pytest.raises(vs.errors.ProbeError):
            model.predict(x, batch_size=BATCH, verbose=0, callbacks=probe)
