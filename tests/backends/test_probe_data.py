"""What a probe must survive on one backend only: its own kinds of data, and training on several devices."""

from __future__ import annotations

import pytest
from fits import BACKEND, BATCH, check_conserved, make_data, make_model

import vmselect as vs

if BACKEND == "tensorflow":
    import tensorflow as tf


def need(backend):
    if backend != BACKEND:
        pytest.skip(f"only on {backend}")


def probe_dataset(data, *, model=None, steps=6, **options):
    probe = vs.IterationProbe(steps=steps, verbose=0)
    model = model or make_model()
    model.fit(data, epochs=4, verbose=0, callbacks=[probe], validation_data=make_data(2), **options)
    check_conserved(probe.profile)
    return probe.profile


def test_tf_data_of_known_size(folder):
    need("tensorflow")
    for drop, partial, examples in ((True, 0, 29 * BATCH), (False, 5, None)):
        data = tf.data.Dataset.from_tensor_slices(make_data(30, partial=5)).batch(BATCH, drop_remainder=drop)
        setup = probe_dataset(data).setup
        assert (setup.batch_size, setup.steps_per_epoch) == (BATCH, 29 if drop else 30)
        assert setup.examples in (examples, None)
        whole = probe_dataset(data, steps=50)  # whole epochs are seen: then all is known
        assert whole.setup.examples == (29 * BATCH if drop else 29 * BATCH + 5)
        assert whole.setup.partial_batch == partial
        assert whole.timeline.steps.label.count("partial") == (0 if drop else 2)


def test_tf_data_that_does_not_tune_itself(folder):
    need("tensorflow")
    data = tf.data.Dataset.from_tensor_slices(make_data(30)).batch(BATCH)
    assert probe_dataset(data).setup.self_tuning_input is True
    options = tf.data.Options()
    options.autotune.enabled = False
    assert probe_dataset(data.with_options(options)).setup.self_tuning_input is False


def test_tf_data_of_unknown_size(folder):
    need("tensorflow")
    data = tf.data.Dataset.from_tensor_slices(make_data(30)).batch(BATCH).filter(lambda x, y: True)
    profile = probe_dataset(data)
    assert (profile.setup.steps_per_epoch, profile.setup.batch_size) == (None, BATCH)
    assert profile.timeline.steps.steps == 14
    assert probe_dataset(data, steps=40).setup.steps_per_epoch == 30


def test_tf_data_that_repeats(folder):
    need("tensorflow")
    data = tf.data.Dataset.from_tensor_slices(make_data(30)).batch(BATCH).repeat()
    for steps_per_epoch in (None, 25):
        profile = probe_dataset(data, steps_per_epoch=steps_per_epoch)
        assert profile.setup.steps_per_epoch == steps_per_epoch
        assert profile.timeline.steps.steps == 14
        assert len(profile.timeline.validations) == 2


def test_compiled_with_xla(folder):
    need("tensorflow")
    profile = probe_dataset(tf.data.Dataset.from_tensor_slices(make_data(30)).batch(BATCH),
                            model=make_model(jit_compile=True))  # fmt: skip
    assert profile.environment.jit is True
    assert profile.timeline.steps.steps == 14


def test_mirrored_on_two_devices(folder):
    need("tensorflow")
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = make_model()
    probe = vs.IterationProbe(folder / "p.json", steps=6, verbose=0)
    model.fit(*make_data(30), batch_size=BATCH, epochs=4, verbose=0, callbacks=[probe], validation_data=make_data(2))
    profile = vs.Profile.load(folder / "p.json")
    assert (profile.environment.replicas, profile.environment.workers) == (2, 1)
    assert (profile.setup.batch_size, profile.setup.steps_per_epoch) == (BATCH, 30)
    assert profile.timeline.steps.steps == 14
    assert len(profile.timeline.validations) == 2
    # The batch size of a dataset is counted, and must be that of all replicas together.
    data = tf.data.Dataset.from_tensor_slices(make_data(30)).batch(BATCH)
    assert probe_dataset(data, model=model).setup.batch_size == BATCH


def test_steps_that_run_eagerly(folder):
    model = make_model(run_eagerly=True)
    probe = vs.IterationProbe(steps=4, verbose=0)
    model.fit(*make_data(20), batch_size=BATCH, epochs=4, verbose=0, callbacks=[probe], validation_data=make_data(2))
    assert probe.profile.timeline.steps.steps == 10


def test_torch_data_loader(folder):
    need("torch")
    import torch

    x, y = make_data(30, partial=5)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), batch_size=BATCH, shuffle=True
    )
    profile = probe_dataset(loader)
    assert (profile.setup.batch_size, profile.setup.steps_per_epoch) == (BATCH, 30)
    assert profile.timeline.steps.steps == 14
    assert len(profile.timeline.validations) == 2
    assert probe_dataset(loader, steps=50).setup.partial_batch == 5


def test_a_hand_written_loop_waits_for_the_device(folder):
    if BACKEND == "tensorflow":
        pytest.skip("TensorFlow computes at once on a CPU")
    if BACKEND == "jax":
        import jax
        import jax.numpy as jnp

        work = jax.jit(lambda a: jax.lax.fori_loop(0, 40, lambda _, b: jnp.tanh(b @ b), a))
        start = jnp.ones((400, 400)) / 400
    else:
        import torch

        def work(a):
            for _ in range(40):
                a = torch.tanh(a @ a)
            return a

        start = torch.ones((400, 400)) / 400
    value = start
    with vs.probe_loop(folder / "p.json", steps=4, batch_size=3, model="mine", verbose=0) as p:
        for _ in p.epochs(9):
            for _ in p.steps(range(50)):
                value = work(value)
            with p.validation():
                work(value)
    timeline = p.profile.timeline
    steady = sorted(
        s for s, label in zip(timeline.steps.seconds, timeline.steps.label, strict=True) if label == "steady"
    )
    # A step that was only handed over would take far less than the validation, which is the same work.
    assert steady[len(steady) // 2] > timeline.validations[1].seconds / 5
    assert p.profile.environment.backend == BACKEND
    assert vs.Profile.load(folder / "p.json") == p.profile
    check_conserved(p.profile)
