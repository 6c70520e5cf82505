"""The size of the validations in descriptions of real trainings, and their predicted time."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from vmselect.probe.recording import EnoughTrainings
from vmselect.records.training import without_times

CATALOG = vs.Catalog.embedded("2026-08-22")


def describe(probe: Any, train: Any) -> vs.Profile:
    """The description of the training that ``train`` starts with ``probe``, before its first step if that is enough."""
    probe.describes_only, probe.describing_seconds = True, 60.0
    with suppress(EnoughTrainings):
        train(probe)
    return without_times(probe.profile)


def read_size(profile: vs.Profile) -> tuple[int | None, int | None, int | None]:
    setup = profile.setup
    return setup.validation_examples, setup.validation_steps, setup.validation_batch_size


def terms_of(profile: vs.Profile) -> set[str]:
    ranking = vs.rank(profile, epochs=3, catalog=CATALOG, machines=["g5.xlarge"], workload=vs.Workload(examples=6400))
    return {name for name in ranking.best.terms if "validation" in name}


BOTH = {"first_validation", "later_validations"}


# -- Keras -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keras() -> Any:
    module = pytest.importorskip("keras")
    if module.backend.backend() != "tensorflow":
        pytest.skip("the data sets are those of TensorFlow")
    return module


@pytest.fixture(scope="module")
def arrays() -> Any:
    numpy = pytest.importorskip("numpy")
    return lambda count: (numpy.zeros((count, 8), "float32"), numpy.zeros((count, 2), "float32"))


def fit(keras: Any, data: Any, **options: Any) -> vs.Profile:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    probe = vs.IterationProbe(False, steps=1, validations=0, verbose=0)
    x, y = data if isinstance(data, tuple) else (data, None)
    return describe(probe, lambda callback: model.fit(x, y, epochs=3, verbose=0, callbacks=[callback], **options))


def test_arrays_of_keras(keras: Any, arrays: Any) -> None:
    for options, expected in (
        ({"validation_data": arrays(100)}, (100, None, None)),
        ({"validation_data": arrays(100), "validation_batch_size": 50}, (100, None, 50)),
        ({"validation_data": arrays(100), "validation_steps": 2}, (32, 2, None)),
        ({"validation_split": 0.25}, (80, None, None)),
    ):
        profile = fit(keras, arrays(320), batch_size=16, **options)
        assert read_size(profile) == expected
        assert profile.setup.validates is True
        assert terms_of(profile) == BOTH


def test_a_fit_without_validation(keras: Any, arrays: Any) -> None:
    for options in ({}, {"validation_steps": 3}, {"validation_data": arrays(9), "validation_freq": [7]}):
        profile = fit(keras, arrays(320), batch_size=16, **options)
        assert (profile.setup.validates, *read_size(profile)) == (False, None, None, None)
        assert not terms_of(profile)


@pytest.mark.filterwarnings("ignore:.shuffle=True.")
def test_data_sets_of_tensorflow(keras: Any, arrays: Any) -> None:
    import tensorflow as tf

    def make(count: int, size: int, **options: Any) -> Any:
        return tf.data.Dataset.from_tensor_slices(arrays(count)).batch(size, **options).prefetch(2)

    whole = make(100, 16)
    for data, steps, expected in (
        (whole, None, (100, None, None)),
        (make(100, 32), None, (100, None, 32)),
        (make(100, 16, drop_remainder=True), None, (96, None, None)),
        (whole.take(3), None, (None, 3, None)),
        (make(100, 32).filter(lambda *_: True), None, (None, None, 32)),
        (make(100, 32).repeat(), 5, (None, 5, 32)),
    ):
        profile = fit(keras, make(320, 16), validation_data=data, validation_steps=steps)
        assert read_size(profile) == expected
        assert profile.setup.validates is True
        assert (terms_of(profile) == BOTH) == (expected[:2] != (None, None))


@pytest.mark.filterwarnings("ignore:.shuffle=True.")
def test_generators_and_indexed_data_sets_of_keras(keras: Any, arrays: Any) -> None:
    class Data(keras.utils.PyDataset):
        def __init__(self, batches: int, size: int) -> None:
            super().__init__()
            self.batches, self.batch_size = batches, size

        def __len__(self) -> int:
            return self.batches

        def __getitem__(self, number: int) -> Any:
            return arrays(self.batch_size)

    assert read_size(fit(keras, Data(20, 16), validation_data=Data(7, 32))) == (None, 7, 32)

    def generate() -> Any:
        while True:
            yield arrays(16)

    profile = fit(keras, generate(), steps_per_epoch=20, validation_data=generate(), validation_steps=4)
    assert read_size(profile) == (None, 4, None)
    assert terms_of(profile) == BOTH


def test_a_description_and_a_measurement_agree(keras: Any, arrays: Any) -> None:
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices(arrays(100)).batch(32)
    described = fit(keras, arrays(320), batch_size=16, validation_data=data, validation_freq=2)
    assert described.setup.validation_freq == 2
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    probe = vs.IterationProbe(False, steps=5, verbose=0)
    model.fit(
        *arrays(320), batch_size=16, epochs=5, verbose=0, validation_data=data, validation_freq=2, callbacks=[probe]
    )
    assert probe.profile.timeline.validations
    assert read_size(probe.profile) == read_size(described)


def test_validation_data_of_a_model(keras: Any, arrays: Any) -> None:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
    described = vs.describe(model, batch_size=16, examples=320, validation_data=arrays(100))
    assert (described.setup.validates, *read_size(described)) == (True, 100, 7, None)
    assert vs.describe(model, batch_size=16, validation_data=arrays(100), validation_examples=50).setup.validates
    assert vs.describe(model, batch_size=16, validation_examples=0).setup.validates is False
    ranking = vs.recommend(
        model, *arrays(320), batch_size=16, epochs=3, validation_data=arrays(100), records=[], catalog=CATALOG
    )
    assert ranking.best.terms.keys() >= BOTH


# -- Hugging Face ------------------------------------------------------------------------------------------------------


@pytest.fixture
def trainer(tmp_path: Path) -> Any:
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(16, 2)

        def forward(self, x: Any, labels: Any = None) -> Any:
            logits = self.layer(x)
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    def rows(count: int) -> Any:
        return [{"x": torch.zeros(16), "labels": 0} for _ in range(count)]

    class Data(torch.utils.data.Dataset):  # type: ignore[misc]
        def __init__(self, count: int) -> None:
            self.rows = rows(count)

        def __len__(self) -> int:
            return len(self.rows)

        def __getitem__(self, number: int) -> Any:
            return self.rows[number]

    def make(evaluated: Any, callbacks: Any = (), **options: Any) -> Any:
        arguments = transformers.TrainingArguments(
            str(tmp_path), per_device_train_batch_size=8, per_device_eval_batch_size=64, report_to=[], use_cpu=True,
            save_strategy="no", disable_tqdm=True, num_train_epochs=3, **options,
        )  # fmt: skip
        sets = {name: Data(count) for name, count in evaluated.items()} if isinstance(evaluated, dict) else (
            Data(evaluated) if evaluated else None
        )  # fmt: skip
        return transformers.Trainer(
            Model(), arguments, train_dataset=Data(320), eval_dataset=sets, callbacks=list(callbacks)
        )

    return make


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("evaluated", "options", "schedule"),
    [
        (100, {"eval_strategy": "epoch"}, (1, None)),
        (100, {"eval_strategy": "steps", "eval_steps": 10}, (1, 4.0)),
        (100, {"eval_strategy": "steps", "eval_steps": 80}, (2, None)),
        (100, {"eval_strategy": "steps", "eval_steps": 10, "gradient_accumulation_steps": 2}, (1, 2.0)),
        ({"easy": 60, "hard": 40}, {"eval_strategy": "epoch"}, (1, None)),
    ],
)
def test_evaluations_of_hugging_face(trainer: Any, evaluated: Any, options: Any, schedule: Any) -> None:
    described = vs.describe(trainer(evaluated, **options))
    probed = describe(
        vs.HuggingFaceProbe(False, verbose=0), lambda probe: trainer(evaluated, [probe], **options).train()
    )
    for profile in (described, probed):
        setup = profile.setup
        assert (setup.validates, setup.validation_examples, setup.validation_batch_size) == (True, 100, 64)
        assert (setup.validation_freq, setup.validations_per_epoch) == schedule
        assert terms_of(profile) <= BOTH
        assert "first_validation" in terms_of(profile)


@pytest.mark.filterwarnings("ignore")
def test_a_trainer_that_does_not_evaluate(trainer: Any) -> None:
    described = vs.describe(trainer(100))  # the data set is for a call of evaluate()
    probed = describe(vs.HuggingFaceProbe(False, verbose=0), lambda probe: trainer(100, [probe]).train())
    for profile in (described, probed):
        assert (profile.setup.validates, *read_size(profile)) == (False, None, None, None)
        assert not terms_of(profile)


# -- Lightning ---------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("options", "sizes", "expected", "every"),
    [
        ({}, [100], (100, None, 32), 1),
        ({"check_val_every_n_epoch": 3}, [100], (100, None, 32), 3),
        ({"limit_val_batches": 2}, [100], (64, None, 32), 1),
        ({"limit_val_batches": 0.5}, [100], (64, None, 32), 1),
        ({"limit_val_batches": 2}, [100, 40], (104, None, 32), 1),
        ({"limit_val_batches": 0}, [100], (None, None, None), 1),
        ({}, [], (None, None, None), 1),
    ],
)
def test_validations_of_lightning(tmp_path: Path, options: Any, sizes: Any, expected: Any, every: int) -> None:
    lightning, torch = pytest.importorskip("lightning"), pytest.importorskip("torch")

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 2)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.layer(batch).sum()

        def validation_step(self, batch: Any, number: int, dataloader_idx: int = 0) -> None:
            self.layer(batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters())

    def load(count: int, size: int) -> Any:
        return torch.utils.data.DataLoader(torch.zeros(count, 8), batch_size=size)

    trainer_options = {"max_epochs": 6, "accelerator": "cpu", "logger": False, "enable_progress_bar": False,
                       "enable_checkpointing": False, "default_root_dir": tmp_path}  # fmt: skip

    def train(probe: Any) -> None:
        trainer = lightning.Trainer(callbacks=[probe], **trainer_options, **options)
        trainer.fit(Module(), load(320, 16), [load(count, 32) for count in sizes] or None)

    profile = describe(vs.LightningProbe(False, verbose=0), train)
    assert read_size(profile) == expected
    assert profile.setup.validates is (expected[0] is not None)
    assert profile.setup.validation_freq == every
    assert bool(terms_of(profile)) == (expected[0] is not None)


# -- hand-written loops ------------------------------------------------------------------------------------------------

LOOP = """
import torch

def load(data):
    return torch.utils.data.DataLoader(data, batch_size=8)

x = torch.zeros(160, 16)
model = torch.nn.Linear(16, 2)
SETUP
optimizer = torch.optim.SGD(model.parameters())

def run(loader):
    for batch in loader:
        optimizer.zero_grad()
        LOSS.backward()
        optimizer.step()

def main():
    loader = load(x)
    MORE
    for epoch in range(3):
        BEGIN
        run(loader)

main()
"""
PLAIN = {"SETUP": "", "LOSS": "model(batch).sum()", "MORE": "", "BEGIN": ""}


@pytest.mark.parametrize(
    ("changes", "validates"),
    [
        ({}, None),
        ({"MORE": "others = {'val': load(torch.zeros(40, 16))}"}, True),
        ({"MORE": "others = load(torch.utils.data.Subset(x, range(40)))"}, True),
        ({"MORE": "again = load(x)"}, None),
        ({"BEGIN": "model.eval(); model.train()"}, True),
        ({"SETUP": "teacher = torch.nn.Linear(16, 2).eval()", "BEGIN": "model.train()"}, None),
        ({"MORE": "loader, both = load(x), load(torch.zeros(160, 16)); iter(both)"}, None),
    ],
)
def test_signs_of_a_validation_in_a_loop(changes: dict[str, str], validates: bool | None, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = LOOP
    for name, code in (PLAIN | changes).items():
        script = script.replace(name, code)
    (tmp_path / "train.py").write_text(script)
    command = [sys.executable, "-m", "vmselect", "describe", "--path", "out.json", "train.py"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    profile = vs.Profile.load(tmp_path / "out.json")
    assert profile.setup.validates is validates
    ranking = vs.rank(profile, epochs=3, catalog=CATALOG, machines=["g5.xlarge"])
    assert ("validation-unseen" in {finding.code for finding in ranking.findings}) == (validates is True)
