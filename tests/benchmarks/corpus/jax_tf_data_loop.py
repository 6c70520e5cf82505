"""A training state and a jitted step, as with flax and optax, with data of tf.data: JAX, measured by probe_loop."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf

import vmselect as vs

EPOCHS, STEPS_PER_EPOCH, BATCH, WIDTH = 12, 180, 64, 512

rng = np.random.default_rng(21)
x, y = rng.random((12_800, 256), "float32"), rng.integers(0, 10, 12_800)
data = tf.data.Dataset.from_tensor_slices((x, y))
train = data.take(11_520).shuffle(4_000, seed=1).batch(BATCH, drop_remainder=True).prefetch(2)
test = data.skip(11_520).batch(BATCH, drop_remainder=True)


def make_state(key):
    sizes = (256, WIDTH, WIDTH, WIDTH, 10)
    keys = jax.random.split(key, len(sizes) - 1)
    layers = [
        (jax.random.normal(one, pair) / pair[0] ** 0.5, jnp.zeros(pair[1]))
        for one, pair in zip(keys, itertools.pairwise(sizes), strict=True)
    ]
    return {"params": layers, "momentum": jax.tree.map(jnp.zeros_like, layers)}


def apply(params, images):
    for weights, bias in params[:-1]:
        images = jax.nn.relu(images @ weights + bias)
    weights, bias = params[-1]
    return images @ weights + bias


def compute_loss(params, images, labels):
    logits = jax.nn.log_softmax(apply(params, images))
    return -jnp.take_along_axis(logits, labels[:, None], axis=1).mean()


@functools.partial(jax.jit, donate_argnums=0)
def train_step(state, images, labels):
    loss, gradients = jax.value_and_grad(compute_loss)(state["params"], images, labels)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state["momentum"], gradients)
    params = jax.tree.map(lambda p, m: p - 0.01 * m, state["params"], momentum)
    return {"params": params, "momentum": momentum}, loss


@jax.jit
def evaluate(state, images, labels):
    return (apply(state["params"], images).argmax(-1) == labels).mean()


state = make_state(jax.random.key(0))
with vs.probe_loop(batch_size=BATCH, model="dense") as p:
    for epoch in p.epochs(EPOCHS):
        for images, labels in p.steps(train.as_numpy_iterator()):
            state, loss = train_step(state, images, labels)
        with p.validation():
            shares = [float(evaluate(state, *batch)) for batch in test.as_numpy_iterator()]
        print(f"epoch {epoch}: loss {float(loss):.3f}, accuracy {np.mean(shares):.3f}")
