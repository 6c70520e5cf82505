"""Trainings of unmodified scripts with ``tf.GradientTape``, in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from vmselect.probe import tape_script
from vmselect.probe.tape_script import TapeScript
from vmselect.probe.torch_script import EnoughTrainings

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: gradient tapes were left out")

X = tf.ones((96, 8))


def probe(folder: Path, script: Callable[[], object], **options: Any) -> list[vs.Profile]:
    watch = TapeScript(folder, instance_type="box", region="here", verbose=0, **{"steps": 5, **options})
    for module, begin in (
        (tape_script.TAPE_MODULE, watch.watch_tape),
        (tape_script.FUNCTION_MODULE, watch.watch_functions),
        (tape_script.ITERATOR_MODULE, watch.watch_iterator),
        (tape_script.DATASET_MODULE, watch.watch_dataset),
    ):
        begin(sys.modules[module])
    try:
        script()
    except EnoughTrainings:
        pass
    finally:
        watch.close()
    return vs.load_profiles(folder) if watch.measured else []


def make_step(*, compiled: bool) -> Callable[[Any], Any]:
    weight = tf.Variable(tf.ones((8, 1)))

    def step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(batch @ weight)
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        return loss

    return tf.function(step) if compiled else step


@pytest.mark.parametrize("compiled", [False, True])
def test_steps_are_recognized_by_their_gradients(tmp_path: Path, compiled: bool) -> None:
    step = make_step(compiled=compiled)
    (profile,) = probe(tmp_path, lambda: [step(X[:4]) for _ in range(100)])
    assert (profile.outcome, profile.timeline.steps.steps, profile.setup.parameters) == ("stopped", 6, 8)
    assert profile.environment.backend == "tensorflow"


@pytest.mark.parametrize("compiled", [False, True])
def test_passes_over_a_dataset_are_epochs_and_validations(tmp_path: Path, compiled: bool) -> None:
    step = make_step(compiled=compiled)
    training = tf.data.Dataset.from_tensor_slices(X).shuffle(8).batch(4).prefetch(2)
    held_out = tf.data.Dataset.from_tensor_slices(X).batch(8)

    def script() -> None:
        for batch in training.take(1):
            assert batch.shape == (4, 8)  # looks at the data
        for _ in range(50):
            for batch in training:
                step(batch)
            for batch in held_out:
                tf.reduce_sum(batch)

    (profile,) = probe(tmp_path, script)
    assert (profile.steps_per_epoch, profile.batch_size) == (24, 4)
    assert [epoch.steps for epoch in profile.timeline.epochs] == [6, 6]
    assert [validation.batches for validation in profile.timeline.validations] == [12, 12]


def test_two_models_that_are_trained_in_turn_make_one_step(tmp_path: Path) -> None:
    steps = [make_step(compiled=True) for _ in range(2)]

    def script() -> None:
        for _ in range(100):
            for step in steps:
                step(X[:4])

    (profile,) = probe(tmp_path, script)
    assert profile.timeline.steps.steps == 6


def test_an_iterator_may_be_passed_to_a_compiled_function(tmp_path: Path) -> None:
    weight = tf.Variable(tf.ones((8, 1)))

    @tf.function
    def step(iterator: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(next(iterator) @ weight)
        weight.assign_sub(tape.gradient(loss, weight))
        return loss

    def script() -> None:
        iterator = iter(tf.data.Dataset.from_tensor_slices(X).repeat().batch(4))
        for _ in range(100):
            step(iterator)

    (profile,) = probe(tmp_path, script)
    assert profile.timeline.steps.steps == 6


def test_nothing_stays_in_tensorflow(tmp_path: Path) -> None:
    def methods() -> list[Any]:
        functions = sys.modules[tape_script.FUNCTION_MODULE].Function
        iterators = sys.modules[tape_script.ITERATOR_MODULE].OwnedIterator
        datasets = sys.modules[tape_script.DATASET_MODULE].DatasetV2
        return [tf.GradientTape.gradient, functions.__call__, iterators.__next__, datasets.__iter__]

    before = methods()
    probe(tmp_path, lambda: make_step(compiled=True)(X))
    assert methods() == before
