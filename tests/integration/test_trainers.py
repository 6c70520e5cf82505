"""The probes for Lightning and for Hugging Face's Trainer, in real trainings of the real packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import processes

ON_GPU = """
from contextlib import contextmanager
from vmselect.probe import environment

@contextmanager
def on_gpu():  # with a stand-in for the counter of a GPU, which rises whenever it is read
    peaks, usual = iter(range(1, 1000)), (environment.count_framework_gpus, environment.read_gpu_memory)
    environment.count_framework_gpus = lambda *_: 1
    environment.read_gpu_memory = lambda *_: (next(peaks), {"source": "torch"})
    yield
    environment.count_framework_gpus, environment.read_gpu_memory = usual
"""

LIGHTNING = """
import json, lightning as L, time, torch, vmselect as vs
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

class Line(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(8, 1)
    def training_step(self, batch, number):
        return ((self.line(batch[0]) - batch[1]) ** 2).mean()
    def validation_step(self, batch, number):
        self.log("val_loss", ((self.line(batch[0]) - batch[1]) ** 2).mean())
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

class Slow(TensorDataset):
    def __getitem__(self, number):
        time.sleep(0.002)
        return super().__getitem__(number)

data = TensorDataset(torch.randn(1000, 8), torch.randn(1000, 1))
train, test = DataLoader(data, batch_size=16), DataLoader(data, batch_size=100)

def fit(name, train=train, **options):
    settings = {"steps": 6, "verbose": 0, "sample": None, **options.pop("probe", {})}
    probe = vs.LightningProbe(f"out/{name}.json", **settings)
    options = {"logger": False, "enable_checkpointing": False, "max_epochs": 50, **options}
    options["callbacks"] = [*options.get("callbacks", []), probe]
    trainer = L.Trainer(accelerator="cpu", enable_progress_bar=False, enable_model_summary=False, **options)
    trainer.fit(Line(), train, test)
    return trainer

saving = ModelCheckpoint("kept", monitor="val_loss", save_last=True)
fit("plain", callbacks=[saving], enable_checkpointing=True)
assert saving.dirpath.endswith("kept"), saving.dirpath
saving = ModelCheckpoint(monitor="val_loss")  # makes its folder from the trainer's
fit("default_place", callbacks=[saving], enable_checkpointing=True)
assert saving.dirpath is None, saving.dirpath
kept = fit("accumulated", accumulate_grad_batches=4, check_val_every_n_epoch=2, min_epochs=7)
assert kept.min_epochs == 7
fit("in_steps", max_epochs=-1, max_steps=100, val_check_interval=10)
fit("watched", max_epochs=2, probe={"stop": False})
with on_gpu():
    fit("on_gpu")
loop = fit("slow", train=DataLoader(Slow(*data.tensors), batch_size=16), probe={"sample": 0.1}).fit_loop.epoch_loop
assert not [name for name in vars(loop) if name.endswith("_fetch")]
class Broken(Line):
    def training_step(self, batch, number):
        if number == 3:
            raise ValueError("mine")
        return super().training_step(batch, number)
try:
    Line = Broken
    fit("broken")
except ValueError:
    print("raised")
"""

TRAINER = """
import threading, time, torch, transformers, vmselect as vs

class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(8, 1)
    def forward(self, x=None, labels=None):
        seen = self.line(x)
        return {"loss": ((seen - labels) ** 2).mean(), "logits": seen}

class Data(torch.utils.data.Dataset):
    def __init__(self, count):
        self.count = count
    def __len__(self):
        return self.count
    def __getitem__(self, number):
        return {"x": torch.ones(8) * number / 1600, "labels": torch.ones(1)}

class Slow(Data):
    def __getitem__(self, number):
        time.sleep(0.002)
        return super().__getitem__(number)

class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return (Data(1000)[number] for number in range(1000))

def new_probe(name, **options):
    return vs.HuggingFaceProbe(f"out/{name}.json", **{"steps": 6, "verbose": 0, "sample": None, **options})

def train(name, kind=Line, data=Data(1000), probe=None, **options):
    probe = probe or new_probe(name)
    options = {"num_train_epochs": 50, "save_strategy": "no", **options}
    arguments = transformers.TrainingArguments("kept", per_device_train_batch_size=16, per_device_eval_batch_size=50,
                                               report_to=[], disable_tqdm=True, use_cpu=True, **options)
    trainer = transformers.Trainer(kind(), arguments, train_dataset=data, eval_dataset=Data(200), callbacks=[probe])
    try:
        trainer.train()
        assert "get_batch_samples" not in vars(trainer)
    finally:
        assert arguments.output_dir == "kept", arguments.output_dir

train("plain", eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True)
train("accumulated", gradient_accumulation_steps=4, save_strategy="steps")
train("in_steps", max_steps=100, eval_strategy="steps", eval_steps=10)
train("watched", num_train_epochs=2, eval_strategy="epoch", probe=new_probe("watched", stop=False))
with on_gpu():
    train("on_gpu")
train("half", num_train_epochs=0.5, gradient_accumulation_steps=4)
train("and_a_half", num_train_epochs=2.5, eval_strategy="epoch")
train("short_epochs", num_train_epochs=2.5, data=Data(80))
train("streamed", max_steps=100, data=Stream())
train("slow", data=Slow(1000), probe=new_probe("slow", sample=0.1), eval_strategy="epoch")

class Broken(Line):
    seen = 0
    def forward(self, x=None, labels=None):
        Broken.seen += 1
        if Broken.seen == 4:
            raise ValueError("mine")
        return super().forward(x, labels)

try:
    train("broken", Broken, save_strategy="steps", save_steps=2)
except ValueError:
    print("raised")

again, kept, Broken.seen = new_probe("again", sample=0.1), None, 0
try:
    train("again", Broken, probe=again)
except ValueError as error:
    kept = error  # as a notebook does: all that was held is alive
deadline = time.monotonic() + 10
while (left := [one.name for one in threading.enumerate() if "vmselect" in one.name]) and time.monotonic() < deadline:
    time.sleep(0.02)
print("left", left)
train("again", probe=again, save_strategy="steps", save_steps=2)
"""


def run(folder: Path, source: str) -> str:
    (folder / "train.py").write_text(source, encoding="utf-8")
    (folder / "kept").mkdir()
    (folder / "kept" / "last.ckpt").write_text("mine", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "train.py"], capture_output=True, text=True, check=False, cwd=folder,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


PAGES = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1] / "support")!r})
import page_trainings
for page in page_trainings.run_blocks("PACKAGE"):
    print("ran a block of", page)
"""

SOURCES = {
    "lightning": ON_GPU + LIGHTNING + PAGES.replace("PACKAGE", "lightning"),
    "transformers": ON_GPU + TRAINER + PAGES.replace("PACKAGE", "transformers"),
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    def train(package: str) -> Path:
        made = tmp_path_factory.mktemp(package)
        (made / "said.txt").write_text(run(made, SOURCES[package]), encoding="utf-8")
        return made

    with processes.run_ahead(train, {package: package for package in SOURCES}) as wait_for:
        yield wait_for


@pytest.fixture(scope="module", params=SOURCES)
def folder(request: pytest.FixtureRequest, ran: Callable[[str], Path]) -> Path:
    pytest.importorskip(request.param, reason=f"{request.param} is not installed: its probe was left out")
    return ran(request.param)


def load(folder: Path, name: str) -> vs.Profile:
    return vs.Profile.load(folder / "out" / f"{name}.json")


def facts(profile: vs.Profile) -> dict[str, Any]:
    return json.loads(profile.to_json())["setup"]


def test_two_short_epochs_with_their_validations(folder: Path) -> None:
    profile = load(folder, "plain")
    assert (profile.outcome, profile.probe, profile.model) == ("stopped", "loop", "Line")
    assert (profile.batch_size, profile.steps_per_epoch, profile.setup.examples) == (16, 63, 1000)
    assert (profile.setup.epochs, profile.setup.parameters) == (50, 9)
    assert [(epoch.steps, epoch.complete) for epoch in profile.timeline.epochs] == [(7, False), (7, False)]
    batches = 10 if folder.name.startswith("lightning") else 4
    assert [one.batches for one in profile.timeline.validations] == [batches, batches]
    assert vs.estimate(profile, epochs=50).terms.keys() >= {"first_validation", "later_validations"}


def test_the_block_of_the_documentation_runs(folder: Path) -> None:
    assert "ran a block of docs/how-to/probe-a-training.md" in (folder / "said.txt").read_text()


def test_the_users_files_are_as_they_were(folder: Path) -> None:
    assert {path.name: path.read_text() for path in (folder / "kept").iterdir()} == {"last.ckpt": "mine"}


def test_a_step_is_a_batch_and_a_reading_covers_those_of_an_update(folder: Path) -> None:
    profile = load(folder, "accumulated")
    assert {*profile.timeline.steps.covers} == {4}
    assert profile.steps_per_epoch == 63
    assert [epoch.steps for epoch in profile.timeline.epochs][:2] == [8, 8]
    if folder.name.startswith("lightning"):
        assert profile.setup.validation_freq == 2
        assert [one.epoch for one in profile.timeline.validations] == [1, 3]
    else:
        assert not profile.timeline.validations
        assert (profile.setup.saving, profile.setup.save_freq) == ("batches", 4 * 500)


def test_a_training_counted_in_steps_is_one_epoch_of_them(folder: Path) -> None:
    profile = load(folder, "in_steps")
    assert (profile.setup.epochs, profile.steps_per_epoch) == (1, 100)
    assert profile.setup.validations_per_epoch == 10
    assert profile.timeline.validations
    once = profile.model_copy(update={"setup": profile.setup.model_copy(update={"validations_per_epoch": None})})
    assert vs.estimate(profile, epochs=1).seconds > vs.estimate(once, epochs=1).seconds


def test_watched_it_is_seen_whole(folder: Path) -> None:
    profile = load(folder, "watched")
    assert profile.outcome == "watched"
    assert [(epoch.steps, epoch.complete) for epoch in profile.timeline.epochs] == [(63, True), (63, True)]
    assert len(profile.timeline.validations) == 2
    assert profile.total_seconds is not None


def test_sizes_of_weights_and_optimizer_are_recorded(folder: Path) -> None:
    seen = load(folder, "on_gpu").environment.gpu_memory
    assert seen is not None
    assert (seen.weights_bytes, seen.gradients_bytes) == (36, 36)
    moments = 72 if folder.name.startswith("transformers") else 0  # AdamW, and plain SGD
    assert moments <= (seen.optimizer_bytes or 0) <= moments + 8


def test_an_exception_propagates_and_is_recorded(folder: Path) -> None:
    assert "raised" in (folder / "said.txt").read_text()
    profile = load(folder, "broken")
    assert profile.outcome == "interrupted"
    if folder.name.startswith("lightning"):  # Trainer has no event for exceptions
        assert profile.detail == "ValueError: mine"


def test_how_long_steps_wait_for_data_is_learnt(folder: Path) -> None:
    slow = load(folder, "slow")
    assert slow.timeline.input_wait.share > 0.5
    assert (slow.timeline.input_wait.steps, slow.timeline.input_wait.method) == (10, "trainer")
    assert "input-bound" in [found.code for found in vs.diagnose(slow)]
    assert load(folder, "plain").timeline.input_wait is None, "what is not sampled is not watched"


@pytest.fixture(scope="module")
def transformers_folder(ran: Callable[[str], Path]) -> Path:
    pytest.importorskip("transformers", reason="transformers is not installed: its probe was left out")
    return ran("transformers")


def test_a_part_of_an_epoch_is_not_rounded_up(transformers_folder: Path) -> None:
    half, more = load(transformers_folder, "half"), load(transformers_folder, "and_a_half")
    assert (half.setup.epochs, half.steps_per_epoch) == (1, 32)
    assert (more.setup.epochs, more.steps_per_epoch, more.setup.validations_per_epoch) == (1, 158, 3)


def test_epochs_of_a_training_counted_in_steps_are_parts_of_it(transformers_folder: Path) -> None:
    profile = load(transformers_folder, "short_epochs")
    assert (profile.outcome, profile.setup.epochs, profile.steps_per_epoch) == ("stopped", 1, 13)
    assert [(epoch.steps, epoch.complete) for epoch in profile.timeline.epochs] == [(5, False), (5, False)]


def test_data_of_unknown_length(transformers_folder: Path) -> None:
    profile = load(transformers_folder, "streamed")
    assert (profile.outcome, profile.setup.epochs, profile.steps_per_epoch) == ("stopped", 1, 100)
    assert (profile.batch_size, profile.setup.examples) == (16, None)


def test_after_a_failure_sampling_ends_and_the_probe_serves_again(transformers_folder: Path) -> None:
    assert "left []" in (transformers_folder / "said.txt").read_text()
    profile = load(transformers_folder, "again")
    assert profile.outcome == "stopped"
    assert [epoch.steps for epoch in profile.timeline.epochs] == [7, 7]
