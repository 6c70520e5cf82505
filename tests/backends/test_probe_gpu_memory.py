"""The peak GPU memory in the profile of a real ``fit``, with stand-ins for the counters of the framework."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import keras
import pytest
from fits import BACKEND, make_data, make_model

import vmselect as vs
from vmselect.probe import environment
from vmselect.probe.sampling import Observation
from vmselect.records.usage import Summary, Usage


@pytest.fixture
def counter(monkeypatch):
    """Stands in for the framework's counter of one GPU: ``peak`` in bytes, and how often it was ``read``."""
    made = SimpleNamespace(peak=0, read=0)

    def read(*_):
        made.read += 1
        return made.peak

    monkeypatch.setattr(environment, "count_framework_gpus", lambda *_: 1)
    framework = sys.modules[BACKEND]
    if BACKEND == "torch":
        monkeypatch.setattr(framework.cuda, "max_memory_allocated", read)
        monkeypatch.setattr(framework.cuda, "max_memory_reserved", lambda: 2 * made.peak)
    elif BACKEND == "tensorflow":
        monkeypatch.setattr(framework.config.experimental, "get_memory_info", lambda name: {"peak": read(name)})
    else:
        device = SimpleNamespace(memory_stats=lambda: {"peak_bytes_in_use": read(), "bytes_limit": 10**9})
        monkeypatch.setattr(framework, "local_devices", lambda: [device])
    return made


def train(counter, *peaks):
    """Profiles of trainings of one process, whose steps raise the peak to these values."""

    class Allocate(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            counter.peak = max(counter.peak, self.bytes)

    model, found = make_model(optimizer="adam"), []
    for peak in peaks:
        allocate, probe = Allocate(), vs.IterationProbe(path=False, steps=5, validations=0, verbose=0, sample=None)
        allocate.bytes = peak
        model.fit(*make_data(12), epochs=1, verbose=0, callbacks=[probe, allocate])
        found.append(probe.profile)
    return found, model


def test_the_counter_is_read_at_the_start_and_at_the_end(counter):
    (profile,), model = train(counter, 700_000)
    seen = profile.environment
    assert seen.peak_gpu_memory_bytes == 700_000
    assert seen.gpu_memory.source == BACKEND
    assert seen.gpu_memory.reserved_bytes == (1_400_000 if BACKEND == "torch" else None)
    assert seen.gpu_memory.limit_bytes == (10**9 if BACKEND == "jax" else None)
    weights = 4 * model.count_params()
    assert (seen.gpu_memory.weights_bytes, seen.gpu_memory.gradients_bytes) == (weights, weights)
    assert 2 * weights < seen.gpu_memory.optimizer_bytes < 2 * weights + 100  # two moments, and a few scalars
    assert counter.read == 2


def test_a_peak_of_an_earlier_training_is_not_that_of_this_one(counter):
    profiles, _ = train(counter, 700_000, 500_000, 900_000)
    peaks = [profile.environment.peak_gpu_memory_bytes for profile in profiles]
    assert peaks == [700_000, None, 900_000]


def test_the_driver_is_asked_if_the_framework_has_no_counter(monkeypatch):
    def used(maximum):
        return {"gpu1_memory_used_bytes": Summary(count=2, seconds=1, mean=1, maximum=maximum, p50=1, p95=1)}

    sampled = Usage(interval_seconds=1, phases={"first_step": used(4096.0), "steady_steps": used(2048.0)})
    monkeypatch.setattr(environment, "count_framework_gpus", lambda *_: 1)
    monkeypatch.setattr(environment, "read_gpu_memory", lambda *_: None)
    monkeypatch.setattr(Observation, "usage", sampled)
    probe = vs.IterationProbe(path=False, steps=5, validations=0, verbose=0)
    make_model().fit(*make_data(12), epochs=1, verbose=0, callbacks=[probe])
    seen = probe.profile.environment
    assert (seen.peak_gpu_memory_bytes, seen.gpu_memory.source) == (4096, "nvml")
    assert vs.Profile.model_validate_json(probe.profile.to_json()) == probe.profile


def test_without_a_gpu_nothing_is_recorded():
    probe = vs.IterationProbe(path=False, steps=5, validations=0, verbose=0, sample=None)
    make_model().fit(*make_data(12), epochs=1, verbose=0, callbacks=[probe])
    assert probe.profile.environment.peak_gpu_memory_bytes is None
    assert probe.profile.environment.gpu_memory is None
