"""Descriptions of Keras models: the same numbers on every backend, and nothing of the model changes."""

from __future__ import annotations

import importlib
import random
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops

import vmselect as vs
from vmselect.records.work import PRODUCTS, Work

BATCH = 8


def total(work: Work, name: str, *, products: bool = False) -> float:
    return sum(getattr(row, name) * row.count for row in work.operations.rows if not products or row.kind in PRODUCTS)


def describe(model: Any, **options: Any) -> Work:
    work = vs.describe(model, batch_size=BATCH, **options).work
    assert work is not None
    return work


class Scale(layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 32))

    def call(self, x):
        return ops.matmul(x, self.kernel)


class Native(Scale):
    """Calls a function of the backend, which takes no symbolic tensors of Keras."""

    def call(self, x):
        if keras.backend.backend() == "jax":
            import jax.numpy as jnp

            return jnp.matmul(jnp.asarray(x), self.kernel.value)
        if keras.backend.backend() == "tensorflow":
            import tensorflow

            return tensorflow.raw_ops.MatMul(a=x, b=tensorflow.convert_to_tensor(self.kernel))
        import torch

        return torch.matmul(x, self.kernel.value)


class Block(layers.Layer):
    def __init__(self, width):
        super().__init__()
        self.attention = layers.MultiHeadAttention(4, width // 4)
        self.dense = keras.Sequential([layers.Dense(4 * width, activation="relu"), layers.Dense(width)])
        self.norm, self.dropout = layers.LayerNormalization(), layers.Dropout(0.1)

    def call(self, x, training=False):
        x = self.norm(x + self.dropout(self.attention(x, x), training=training))
        return x + self.dense(x)


class Subclass(keras.Model):
    def __init__(self):
        super().__init__(name="subclass")
        self.embedding, self.block, self.head = layers.Embedding(1_000, 64), Block(64), layers.Dense(2)

    def call(self, x, training=False):
        return self.head(ops.mean(self.block(self.embedding(x), training=training), axis=1))


class Gan(keras.Model):
    def __init__(self):
        super().__init__(name="gan")
        self.generator = keras.Sequential([keras.Input((32,)), layers.Dense(784)])
        self.discriminator = keras.Sequential([keras.Input((784,)), layers.Dense(64), layers.Dense(1)])

    def train_step(self, *data):
        return {}


def test_resnet_counts_as_the_tracers_do() -> None:
    work = describe(keras.applications.ResNet50(weights=None))
    assert total(work, "flops", products=True) == pytest.approx(183.29e9, rel=1e-3)
    assert total(work, "bytes") == pytest.approx(7.9e9, rel=0.1)
    assert sum(work.operations.count) == pytest.approx(462, rel=0.1)
    assert (work.parameters, work.parameter_tensors, work.constants) == (25_583_592, 214, 53_120)
    assert (work.method, work.unknown_layers) == ("layers", ())


@pytest.mark.parametrize(("layer", "gates"), [(layers.LSTM, 4), (layers.GRU, 3), (layers.SimpleRNN, 1)])
def test_recurrent_layers_are_exact(layer: Any, gates: int) -> None:
    work = describe(keras.Sequential([keras.Input((50, 64)), layer(128)]))
    step = 2.0 * BATCH * gates * 128
    assert total(work, "flops", products=True) == 50 * step * (2 * 64 + 3 * 128)


def test_a_recurrent_model_in_two_directions_counts_both() -> None:
    one = describe(keras.Sequential([keras.Input((50, 64)), layers.GRU(128)]))
    two = describe(keras.Sequential([keras.Input((50, 64)), layers.Bidirectional(layers.GRU(128))]))
    assert total(two, "flops", products=True) == 2 * total(one, "flops", products=True)


def test_frozen_layers_have_no_weight_gradient() -> None:
    model = keras.Sequential([keras.Input((16,)), layers.Dense(32), layers.Dense(64), layers.Dense(4)])
    whole = describe(model)
    model.layers[0].trainable = model.layers[1].trainable = False
    part = describe(model)
    assert part.parameters == 64 * 4 + 4
    # Only the last layer has a gradient, and that of no input.
    forward = 2 * BATCH * (16 * 32 + 32 * 64 + 64 * 4)
    assert total(part, "flops", products=True) == forward + 2 * BATCH * 64 * 4
    assert part.saved_bytes < whole.saved_bytes


def test_a_shared_model_counts_for_each_call_but_holds_its_weights_once() -> None:
    encoder = keras.Sequential([keras.Input((28, 28, 1)), layers.Conv2D(8, 3), layers.Flatten(), layers.Dense(16)])
    first, second = keras.Input((28, 28, 1)), keras.Input((28, 28, 1))
    alone, both = describe(keras.Model(first, encoder(first))), describe(keras.Model([first, second],
        layers.Subtract()([encoder(first), encoder(second)])))  # fmt: skip
    assert total(both, "flops", products=True) == 2 * total(alone, "flops", products=True)
    assert both.parameters == alone.parameters


def test_open_sizes_need_inputs() -> None:
    image = keras.Input((None, None, 3))
    model = keras.Model(image, layers.GlobalAveragePooling2D()(layers.Conv2D(8, 3)(image)))
    with pytest.raises(vs.errors.DescriptionError, match="inputs="):
        describe(model)
    fixed = keras.Input((64, 64, 3))
    nested = keras.Model(fixed, layers.Identity()(model(fixed)))
    shapes = describe(model, inputs=(64, 64, 3))
    assert total(shapes, "flops", products=True) == total(describe(nested), "flops", products=True) > 0
    assert describe(model, inputs=np.zeros((2, 64, 64, 3), "float32")).operations == shapes.operations


def test_time_steps_of_a_distributed_layer_count_as_examples() -> None:
    inner = keras.Sequential([keras.Input((32, 32, 3)), layers.Conv2D(8, 3), layers.GlobalAveragePooling2D()])
    work = describe(keras.Sequential([keras.Input((10, 32, 32, 3)), layers.TimeDistributed(inner)]))
    assert total(work, "flops", products=True) == 2 * 2.0 * BATCH * 10 * 30 * 30 * 8 * 27


def test_a_custom_layer_is_counted_by_what_it_calls() -> None:
    work = describe(keras.Sequential([keras.Input((16,)), Scale()]))
    assert total(work, "flops", products=True) == 2 * 2 * BATCH * 16 * 32
    assert (work.method, work.unknown_layers) == ("layers", ())


def test_functions_of_the_backend_are_traced_and_named() -> None:
    work = describe(keras.Sequential([keras.Input((16,)), layers.Dense(16), Native(name="native")]))
    assert total(work, "flops", products=True) == 2 * 2 * BATCH * 16 * 16 + 3 * 2 * BATCH * 16 * 32
    assert work.method in ("jaxpr", "graph", "meta")
    assert work.unknown_layers == ("native",)
    assert "unknown_layers" in work.caveats


class Products(layers.Layer):
    """One product, by a function of the backend that takes no symbolic tensors of Keras."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def call(self, x: Any) -> Any:
        name = {"jax": "jax.numpy"}.get(keras.backend.backend(), keras.backend.backend())
        backend = importlib.import_module(name)
        if self.kind.startswith("einsum"):
            return backend.einsum(self.kind.split()[1], x, backend.ones((16, 32)) if "cd" in self.kind else x)
        if self.kind == "one matrix":
            return backend.matmul(x, backend.ones((16, 32)))
        turned = x.transpose(1, 2) if name == "torch" else backend.transpose(x, (0, 2, 1))
        return backend.matmul(x, turned) if self.kind == "batch" else backend.matmul(turned, x)


@pytest.mark.parametrize(
    ("kind", "flops"),
    [
        ("one matrix", 20 * 16 * 32),
        ("batch", 20 * 16 * 20),
        ("turned batch", 20 * 16 * 16),
        ("einsum abc,cd->abd", 20 * 16 * 32),
        ("einsum abc,adc->abd", 20 * 16 * 20),
    ],
)
def test_traced_products_of_a_batch_are_exact(kind: str, flops: int) -> None:
    work = describe(keras.Sequential([keras.Input((20, 16)), Products(kind)]))
    assert work.method in ("jaxpr", "graph", "meta", "layers")
    assert total(work, "flops", products=True) == 2 * BATCH * flops


def test_a_subclass_without_weights_is_described_by_a_copy() -> None:
    model = Subclass()
    work = describe(model, inputs=(32,))
    assert not model.built
    assert model.weights == []
    model(np.zeros((2, 32), "int32"))
    built = describe(model, inputs=(32,))
    assert built.operations == work.operations
    assert (built.parameters, work.parameters) == (model.count_params(), model.count_params())


def test_an_unbuilt_sequential_model_is_described_from_shapes_and_from_data() -> None:
    def make() -> Any:
        return keras.Sequential([layers.Dense(32), layers.Dense(4)])

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, number: int) -> Any:
            return np.zeros((5, 16), "float32"), np.zeros((5, 4), "float32")

    model = make()
    work = describe(model, inputs=(16,))
    assert total(work, "flops", products=True) == 2 * BATCH * (2 * 16 * 32 + 3 * 32 * 4)
    assert not model.built
    tensorflow = pytest.importorskip("tensorflow")
    data = tensorflow.data.Dataset.from_tensor_slices((np.zeros((40, 16), "float32"), np.zeros((40, 4)))).batch(10)
    for inputs in (data, Batches(), np.zeros((3, 16), "float32")):
        assert describe(make(), inputs=inputs).operations == work.operations


@pytest.mark.parametrize("kind", ["multi-head", "grouped"])
def test_masks_of_an_attention_are_no_keys_and_names_may_be_in_any_order(kind: str) -> None:
    one, other = keras.Input((64, 32)), keras.Input((16, 32))
    mask = keras.Input((64, 16), dtype="bool")
    attention = layers.MultiHeadAttention(4, 8) if kind == "multi-head" else layers.GroupQueryAttention(8, 4, 2)

    def count(outputs: Any, *more: Any) -> float:
        return total(describe(keras.Model([one, other, *more], outputs)), "flops", products=True)

    plain = count(attention(one, other))
    assert plain != count(attention(other, one))
    assert count(attention(one, other, attention_mask=mask), mask) == plain
    assert count(attention(key=other, query=one, value=other)) == plain


def test_a_mask_of_plain_attention_is_no_key() -> None:
    one, other, mask = keras.Input((64, 32)), keras.Input((16, 32)), keras.Input((64,), dtype="bool")
    rest = keras.Input((16,), dtype="bool")
    dense = layers.Dense(32)

    def count(outputs: Any) -> float:
        return total(describe(keras.Model([one, other, mask, rest], outputs)), "flops", products=True)

    attention = layers.Attention()
    assert count(attention([dense(one), other], mask=[mask, rest])) == count(attention([dense(one), other]))


def test_a_recurrence_in_both_directions_keeps_the_states_of_both() -> None:
    def saved(make: Any) -> float:
        model = keras.Sequential([keras.Input((64, 32)), make(layers.LSTM(16, return_sequences=True))])
        return describe(model).saved_bytes - 4 * BATCH * 64 * 32  # without the inputs

    assert saved(layers.Bidirectional) == 2 * saved(lambda layer: layer)


def test_a_recommendation_takes_the_sizes_of_its_data() -> None:
    one, other = keras.Input((16,), name="one"), keras.Input((4,), name="other")
    outputs = layers.Dense(256)(layers.Concatenate()([one, other]))
    several = keras.Model([one, other], outputs)
    named = keras.Model({"one": one, "other": other}, outputs)
    model = keras.Sequential([keras.Input((16,)), layers.Dense(256)])
    x, y = {"one": np.zeros((1_000, 16)), "other": np.zeros((1_000, 4))}, np.zeros((1_000, 256))

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 10

        def __getitem__(self, number: int) -> Any:
            return x["one"][:100], y[:100]

    tensorflow = pytest.importorskip("tensorflow")
    data = tensorflow.data.Dataset.from_tensor_slices((x["one"], y)).batch(100).prefetch(1)

    def recommend(*arguments: Any, **options: Any) -> Any:
        return vs.recommend(*arguments, epochs=2, machines=["g5.xlarge"], records=[], **options).to_frame()

    expected = recommend(model, batch_size=100, examples=1_000)
    for inputs in (data, Batches()):
        assert recommend(model, inputs, y).equals(expected)
    assert recommend(model, inputs=data).equals(expected)
    expected = recommend(several, batch_size=32, examples=1_000)
    assert recommend(several, [*x.values()], y).equals(expected)
    assert recommend(named, x, y).equals(expected)


def test_inputs_of_a_wrong_shape_are_explained() -> None:
    model = keras.Sequential([keras.Input((16,)), layers.Dense(4)])
    with pytest.raises(vs.errors.DescriptionError, match="expected axis -1 of input shape to have value 16"):
        describe(model, inputs=(17,))


def test_an_own_training_step_is_noted() -> None:
    work = describe(Gan())
    assert "custom_step" in work.caveats
    dense = 2 * BATCH * (32 * 784 * 2 + (784 * 64) * 2 + 64 * 3)
    assert total(work, "flops", products=True) == dense


def test_precision_optimizer_and_amounts() -> None:
    model = keras.Sequential([keras.Input((16,)), layers.Dense(32, dtype="mixed_float16")], name="small")
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    profile = vs.describe(model, batch_size=32, examples=1_000, epochs=3, validation_examples=100)
    assert profile.outcome == "described"
    assert profile.setup.steps_per_epoch == 32
    assert (profile.setup.partial_batch, profile.setup.validation_steps, profile.setup.validates) == (8, 4, True)
    assert (profile.model, profile.setup.parameters, profile.setup.epochs) == ("small", 16 * 32 + 32, 3)
    assert profile.work.optimizer == "momentum"
    assert vs.describe(model, batch_size=8, optimizer="Adam").work.optimizer == "adam"
    assert vs.describe(model, batch_size=8, precision="mixed_float16").environment.precision == "mixed_float16"
    assert vs.Profile.model_validate_json(profile.to_json()) == profile


def state(model: Any) -> Any:
    return [np.asarray(ops.convert_to_numpy(weight)).tobytes() for weight in model.variables]


@pytest.mark.parametrize(
    "make", [Subclass, lambda: keras.applications.MobileNetV2(weights=None, input_shape=(32, 32, 3))]
)
def test_nothing_of_the_model_and_no_random_state_changes(make: Any) -> None:
    model = make()
    shape = (32,) if isinstance(model, Subclass) else (32, 32, 3)
    if not model.built:
        model(np.zeros((2, *shape), "int32"))
    names = {layer.name for layer in model._flatten_layers()}
    calls = [(len(layer._inbound_nodes), len(layer._outbound_nodes)) for layer in model._flatten_layers()]
    before = state(model), random.getstate(), np.random.get_state()[1].tolist()
    describe(model, inputs=shape)
    assert (state(model), random.getstate(), np.random.get_state()[1].tolist()) == before
    assert calls == [(len(layer._inbound_nodes), len(layer._outbound_nodes)) for layer in model._flatten_layers()]
    assert names == {layer.name for layer in model._flatten_layers()}


class Counts(layers.Layer):
    """Counts its calls, notes them, and adds a loss."""

    def __init__(self):
        super().__init__()
        self.calls, self.notes = 0, []

    def call(self, x):
        self.calls += 1
        self.notes.append(x.shape)
        self.add_loss(ops.mean(x))
        return x


def test_attributes_of_layers_do_not_change() -> None:
    layer = Counts()
    model = keras.Sequential([keras.Input((4,)), layers.Dense(4, activity_regularizer="l2"), layer])
    model(np.ones((2, 4), "float32"))
    before = layer.calls, len(layer.notes), len(model.losses)
    describe(model)
    assert (layer.calls, len(layer.notes), len(model.losses)) == before


def test_a_compiled_subclass_without_weights_is_described() -> None:
    model = Subclass()
    model.compile("adam", "mse", metrics=["mae"])
    work = describe(model, inputs=(32,))
    assert (work.optimizer, work.unknown_layers, model.built) == ("adam", (), False)


def test_a_table_of_a_custom_layer_has_a_gradient() -> None:
    model = keras.Sequential([keras.Input((5,), dtype="int32"), Table()])
    lookups = {row.bytes: row.count for row in describe(model).operations.rows if row.kind == "embed"}
    assert lookups == {4.0 * 2 * BATCH * 5 * 4: 1, 4.0 * (100 * 4 + BATCH * 5 * 4): 1}


class Table(layers.Layer):
    def build(self, shape):
        self.table = self.add_weight(shape=(100, 4))

    def call(self, x):
        return ops.take(self.table, x, axis=0)


def test_names_of_later_layers_are_those_without_a_description() -> None:
    model = Subclass()
    model(np.zeros((2, 32), "int32"))
    first = int(layers.Dense(1).name.rpartition("_")[2])
    describe(model, inputs=(32,))
    assert int(layers.Dense(1).name.rpartition("_")[2]) == first + 1


def train(make: Any, probe: Any) -> tuple[Any, ...]:
    """Losses of a training with a probe, of two trainings after it, and the names of the layers of the last one."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(3)
    losses = []
    x, y = np.random.randint(0, 900, (32, 32)), np.random.random((32, 2))
    for new in (True, False, True):
        if new:
            model = make()
            model.compile("adam", "mse")
        losses.append(model.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[probe] if probe else []).history["loss"])
        probe = None
    return (*losses, [layer.name for layer in model.layers])


def make_sequential() -> Any:
    return keras.Sequential([layers.Dense(8, activation="relu"), layers.Dropout(0.3), layers.Dense(2)])


@pytest.mark.parametrize("make", [Subclass, make_sequential])
def test_a_probe_describes_after_its_measurement_and_no_loss_changes(make: Any) -> None:
    probe = vs.IterationProbe(False, stop=False, verbose=0)
    assert train(make, probe) == train(make, None)
    work = probe.profile.work
    assert (work.batch_size, work.optimizer, work.unknown_layers) == (BATCH, "adam", ())
    assert work.parameters > 0


class Fails(layers.Layer):
    """Works in a training, and not when it is called with symbolic tensors afterwards."""

    trained = False

    def call(self, x):
        if Fails.trained:
            raise SystemError("called after the training")
        return x


def test_a_description_that_fails_does_not_harm_the_training() -> None:
    model = keras.Sequential([keras.Input((4,)), Fails(name="fails"), layers.Dense(1)])
    model.compile("sgd", "mse")
    done = keras.callbacks.LambdaCallback(on_train_end=lambda logs: setattr(Fails, "trained", True))
    probe = vs.IterationProbe(False, verbose=0, steps=2)
    model.fit(np.zeros((64, 4)), np.zeros((64, 1)), batch_size=8, verbose=0, callbacks=[done, probe])
    assert probe.profile.outcome == "stopped"
    assert probe.profile.work.unknown_layers == ("fails",)
