"""``vmselect describe``: the first training of a script is described, and nothing that the script saves is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import vmselect as vs

pytest.importorskip("keras", reason="keras is not installed: no script was described")

TRAIN = """
import numpy as np
import keras

model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(2)], name="small")
model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
x, y = np.zeros((100, 8)), np.zeros((100, 2))
model.fit(x, y, batch_size=32, epochs=7, validation_data=(x[:9], y[:9]))
model.save("model.keras")
"""
SAVES_FIRST = """
import keras

keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]).save("model.keras")
"""
NOTHING = "print('no training')"
OPEN = """
import numpy as np
import keras

inputs = keras.Input((None,), dtype="int32")
outputs = keras.layers.Dense(1)(keras.layers.LSTM(4)(keras.layers.Embedding(50, 8)(inputs)))
model = keras.Model(inputs, outputs, name="text")
model.compile("sgd", "mse")
begun = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda *_: print("a step began"))
model.fit(np.zeros((64, 20), "int32"), np.zeros(64), batch_size=16, epochs=3, callbacks=[begun])
"""
PARTS = """
import torch
from torch import nn

class Part(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layer = nn.Linear(*size)

    def forward(self, x):
        print("a part is called")
        return self.layer(x)

encoder, decoder = Part((64, 16)), Part((16, 64))
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
data = torch.utils.data.DataLoader(torch.zeros(80, 64), batch_size=8)
for epoch in range(3):
    for x in data:
        optimizer.zero_grad()
        (decoder(encoder(x)) - x).square().mean().backward()
        optimizer.step()
        print("a step ended")
"""


MIXED = """
import argparse
import torch

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int)
    size = parser.parse_args().batch_size
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters())
    loader = torch.utils.data.DataLoader(torch.zeros(80, 64), batch_size=size)
    for x in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x).sum()
        loss.backward()
        optimizer.step()
        print("a step ended")

if __name__ == "__main__":
    main()
"""


PIPELINE = """
import numpy as np
import tensorflow as tf
import keras

def data(count):
    one = (np.zeros(8, "float32"), np.zeros(1, "float32"))
    made = tf.data.Dataset.from_generator(lambda: (one for _ in range(count)), output_signature=(
        tf.TensorSpec((8,)), tf.TensorSpec((1,))))
    return made.apply(tf.data.experimental.assert_cardinality(count)).batch(16)REGROUPED.prefetch(2)

class Note(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        print("a step began")

    def on_test_begin(self, logs=None):
        print("a validation began")

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile("sgd", "mse", metrics=["mae"])
model.fit(data(100), validation_data=data(50), epochs=7, callbacks=[Note()])
"""


TAPE = """
import tensorflow as tf
import keras

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1)], name="taped")
optimizer = keras.optimizers.Adam()
data = tf.data.Dataset.from_tensor_slices((tf.zeros((200, 8)), tf.zeros((200, 1)))).batch(20)

@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))

for epoch in range(3):
    for x, y in data:
        step(x, y)
"""


BY_INDEX = """
import torch

data, passes = torch.zeros(500, 64), PASSES
for seed in range(2):
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters())
    for iteration in range(30 * 20):
        for _ in range(passes):
            model(data[torch.randint(500, (12,))]).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def run(folder: Path, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(script)
    command = [sys.executable, "-m", "vmselect", "describe", "--path", "out", *options, "train.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ})


def test_the_first_training_is_described_and_nothing_is_saved(tmp_path: Path) -> None:
    done = run(tmp_path, TRAIN, "--json")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout.splitlines()[-1])
    assert (printed["model"], printed["batch_size"], printed["examples"]) == ("small", 32, 100)
    assert (printed["parameters"], printed["optimizer"]) == (8 * 16 + 16 + 16 * 2 + 2, "momentum")
    assert printed["product_flops"] == 2 * 32 * (2 * 8 * 16 + 3 * 16 * 2)
    profile = vs.Profile.load(tmp_path / printed["path"])
    assert profile.outcome == "described"
    assert Path(printed["path"]).name.startswith("described-32-")  # no machine was measured that could be unknown
    assert (profile.setup.epochs, profile.steps_per_epoch, profile.setup.validates) == (7, 4, True)
    assert profile.timeline.steps.steps == 0
    assert profile.environment.cpu_cores is None
    assert not (tmp_path / "model.keras").exists()


@pytest.mark.parametrize(("script", "code"), [(SAVES_FIRST, 2), (NOTHING, 1)])
def test_a_script_without_a_training_is_refused(tmp_path: Path, script: str, code: int) -> None:
    done = run(tmp_path, script)
    assert done.returncode == code
    assert "vmselect.describe(model" in done.stderr
    assert not (tmp_path / "model.keras").exists()
    assert not (tmp_path / "out").exists()


STAGES = [("", 0, 16), (".unbatch().batch(5)", 0, 5), (".rebatch(8)", 1, 8)]


@pytest.mark.skipif(os.environ.get("KERAS_BACKEND", "tensorflow") != "tensorflow", reason="a pipeline of TensorFlow")
@pytest.mark.parametrize(("stage", "steps", "size"), STAGES)
def test_a_pipeline_is_described_without_a_bar_and_a_validation(
    stage: str, steps: int, size: int, tmp_path: Path
) -> None:
    """Its stage states the batch size, so that no step has to count it; without such a stage, one step does."""
    done = run(tmp_path, PIPELINE.replace("REGROUPED", stage), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["batch_size"] == size
    assert done.stdout.count("a step began") == steps
    assert "a validation began" not in done.stdout
    assert "Epoch" not in done.stdout + done.stderr


def test_a_script_ends_before_its_first_step(tmp_path: Path) -> None:
    done = run(tmp_path, OPEN, "--json")
    assert done.returncode == 0, done.stderr
    assert "a step began" not in done.stdout
    printed = json.loads(done.stdout.splitlines()[-1])
    assert (printed["model"], printed["batch_size"], printed["examples"]) == ("text", 16, 64)
    steps, gates = 20, 4 * 4  # the input product has no gradient of the embedding's input, but one of its output
    assert printed["product_flops"] == 2 * 16 * (3 * steps * (8 * gates + 4 * gates) + 3 * 4)


def test_parts_that_a_loop_calls_one_after_the_other(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: no torch script was described")
    done = run(tmp_path, PARTS, "--json")
    assert done.returncode == 0, done.stderr
    assert "a step ended" not in done.stdout
    printed = json.loads(done.stdout.splitlines()[-1])
    assert (printed["batch_size"], printed["examples"], printed["optimizer"]) == (8, 80, "adam")
    assert printed["product_flops"] == 2 * 8 * (2 + 3) * 64 * 16
    assert printed["caveats"] == ["unknown_layers"]


def test_arguments_of_the_script_and_the_precision_of_its_steps(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: no torch script was described")
    (tmp_path / "train.py").write_text(MIXED)
    command = [
        sys.executable,
        "-m",
        "vmselect",
        "describe",
        "--json",
        "--path",
        "out",
        "train.py",
        "--batch-size",
        "16",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "a step ended" not in done.stdout
    printed = json.loads(done.stdout.splitlines()[-1])
    assert (printed["batch_size"], printed["precision"]) == (16, "mixed_bfloat16")


SEVERAL = """
import torch

one, other = torch.nn.Linear(64, 64), torch.nn.Linear(64, 10)
optimizers = [torch.optim.SGD(model.parameters()) for model in (one, other)]
loader = torch.utils.data.DataLoader(torch.zeros(160, 64), batch_size=8)
for epoch in range(3):
    for x in loader:
        other(one(x)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    torch.save(one.state_dict(), f"{epoch}.pt")
"""


def test_a_loop_that_needs_steps_is_described_before_it_saves(tmp_path: Path) -> None:
    """With several optimizers, only steps show which models are trained together."""
    pytest.importorskip("torch", reason="torch is not installed: no torch script was described")
    done = run(tmp_path, SEVERAL, "--json")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout.splitlines()[-1])
    assert (printed["batch_size"], printed["examples"]) == (8, 160)
    assert printed["parameters"] == 64 * 64 + 64 + 64 * 10 + 10
    assert not list(tmp_path.glob("*.pt"))


@pytest.mark.parametrize(("passes", "measured"), [(1, 12), (4, None)])
def test_a_loop_that_selects_batches_by_index(passes: int, measured: int | None, tmp_path: Path) -> None:
    """The inputs of the model show the batch size. A probe measures updates, which may have several batches."""
    pytest.importorskip("torch", reason="torch is not installed: no torch script was described")
    done = run(tmp_path, BY_INDEX.replace("PASSES", str(passes)))
    assert done.returncode == 0, done.stderr
    (described,) = vs.load_profiles(tmp_path / "out")
    assert (described.batch_size, described.setup.epochs, described.steps_per_epoch) == (12, 1, 600 * passes)
    assert described.work is not None
    assert vs.rank(described, machines=["g5.xlarge"]).best.basis == "described"
    command = [sys.executable, "-m", "vmselect", "probe", "--path", "probed", "--steps", "5", "--steady-seconds", "0"]
    probed = subprocess.run([*command, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert probed.returncode == 0, probed.stderr
    (profile,) = vs.load_profiles(tmp_path / "probed")
    assert (profile.batch_size, profile.setup.structure) == (measured, described.setup.structure)


def test_a_loop_with_a_tape_is_described_by_the_model_with_its_weights(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed: no tape was described")
    (tmp_path / "train.py").write_text(TAPE)
    command = [sys.executable, "-m", "vmselect", "describe", "--json", "--path", "out", "train.py"]
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout.splitlines()[-1])
    assert (printed["batch_size"], printed["parameters"], printed["optimizer"]) == (20, 8 * 4 + 4 + 4 + 1, None)
    assert printed["product_flops"] == 2 * 20 * (2 * 8 * 4 + 3 * 4)


FORMATS = """
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

config = BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
data = [{"input_ids": torch.ones(8, dtype=torch.long), "labels": 1}] * 64
arguments = TrainingArguments("out", num_train_epochs=3, per_device_train_batch_size=4, report_to="none", **OPTIONS)
Trainer(BertForSequenceClassification(config), arguments, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("options", "precision"),
    [({}, "float32 without TF32"), ({"bf16": True}, "mixed_bfloat16"), ({"tf32": True}, "float32")],
    ids=["plain", "bf16", "tf32"],
)
def test_formats_of_a_gpu_are_described_without_one(options: dict[str, bool], precision: str, tmp_path: Path) -> None:
    """transformers refuses the arguments on a computer without such a GPU, which is where trainings are described."""
    pytest.importorskip("transformers", reason="transformers is not installed: no Trainer was described")
    pytest.importorskip("accelerate", reason="accelerate is not installed: no Trainer was described")
    done = run(tmp_path, f"OPTIONS = {options}\n{FORMATS}")
    assert done.returncode == 0, done.stderr
    assert f"batch 4, computed in {precision}\n" in done.stdout
