"""``vmselect probe`` on a plain PyTorch script: measured as it is, and with the same losses to the last bit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import vmselect as vs
from vmselect.cli.probe_progress import LINE_SECONDS
from vmselect.watching.display import CLEAR

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import processes

CLI = [sys.executable, "-c", "from vmselect.cli import main; main()"]

SCRIPT = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

accumulate, epochs = int(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(0)
x, y = torch.randn(1003, 8), torch.randn(1003, 1)
train = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
test = DataLoader(TensorDataset(x[:320], y[:320]), batch_size=32)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
mean = sum(a.sum().item() for a, _ in train)  # a pass with gradients on in which nothing is trained
for a, _ in test:  # a look at a batch, as in many a notebook
    break
kept = iter(test)  # and one whose iterator lives on
next(kept)
for epoch in range(epochs):
    for number, (a, b) in enumerate(train, 1):
        loss = ((model(a) - b) ** 2).mean()
        loss.backward()
        if number % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
    with torch.no_grad():
        print(epoch, loss.item().hex(), sum(((model(a) - b) ** 2).mean().item() for a, b in test).hex())
print("to the end")
"""


PHASES = """
import torch
from torch.utils.data import DataLoader

model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 1))
for trainable, size in ((False, 8), (True, 4)):
    model[0].requires_grad_(trainable)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        for batch in DataLoader(torch.ones(160, 8), batch_size=size):
            model(batch).mean().backward()
            optimizer.step()
print("to the end")
"""

WITHOUT_LOADER = """
import sys
import torch

torch.manual_seed(0)
model, critic = torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)
optimizers = [torch.optim.SGD(one.parameters(), lr=0.01) for one in (model, critic)]
data = torch.randn(500, 8)
for step in range(int(sys.argv[1])):
    with torch.no_grad():  # no model runs: part of the step
        data.mul_(1.0)
    if step % 8 == 7:
        with torch.no_grad():
            model(data)
    batch = data[torch.randint(500, (16,))]
    for one, optimizer in zip((model, critic), optimizers):
        one(batch).pow(2).mean().backward()
        torch.nn.utils.clip_grad_norm_(one.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
print("to the end")
"""

GRADIENTS_OFF_INSIDE = """
import sys
import torch
from torch.utils.data import DataLoader

data = torch.randn(800, 8)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
train, test = DataLoader(data, batch_size=8), DataLoader(data, batch_size=100)
for epoch in range(9):
    if sys.argv[1] == "new":
        train = DataLoader(data, batch_size=8)
    for batch in train:
        model(batch).pow(2).mean().backward()
        optimizer.step()
    for batch in test:
        with torch.no_grad():
            model(batch)
"""

OWN_PROBE = """
import torch
from torch.utils.data import DataLoader
import vmselect

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with vmselect.probe_loop(batch_size=8, steps=4, model="own") as p:
    for epoch in p.epochs(9):
        for batch in p.steps(DataLoader(torch.ones(800, 8), batch_size=8)):
            model(batch).mean().backward()
            optimizer.step()
"""

NOTHING_STAYS = """
import time, torch
from torch.utils.data import DataLoader
from vmselect.probe.torch_script import TorchScript
import sys
optimizers, loaders = sys.modules['torch.optim.optimizer'], sys.modules['torch.utils.data.dataloader']
before = DataLoader.__iter__
watch = TorchScript(sample=None, verbose=0, stop=False)
watch.watch_loader(loaders)
watch.watch_optimizer(optimizers)
assert DataLoader.__iter__ is not before
assert len(optimizers._global_optimizer_post_hooks) == 1
watch.close()
assert DataLoader.__iter__ is before
assert len(optimizers._global_optimizer_post_hooks) == 0
print("gone")
"""

LIGHTNING = """
import lightning, torch
from torch.utils.data import DataLoader, TensorDataset

class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(8, 1)
    def training_step(self, batch, number):
        return ((self.line(batch[0]) - batch[1]) ** 2).mean()
    def validation_step(self, batch, number):
        self.log("val_loss", ((self.line(batch[0]) - batch[1]) ** 2).mean())
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

data = TensorDataset(torch.randn(1600, 8), torch.randn(1600, 1))
train, test = DataLoader(data, batch_size=16), DataLoader(data, batch_size=100)
trainer = lightning.Trainer(max_epochs=50, accelerator="cpu", enable_progress_bar=False)
trainer.fit(Line(), train, test)
trainer.save_checkpoint("last.ckpt")
assert torch.load("last.ckpt", weights_only=False)["epoch"] == 2
Line.load_from_checkpoint(trainer.checkpoint_callback.best_model_path)
"""

LINE = """
import torch, transformers

class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(8, 1)
    def forward(self, x=None, labels=None):
        seen = self.line(x)
        return {"loss": ((seen - labels) ** 2).mean(), "logits": seen}

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 1600
    def __getitem__(self, number):
        return {"x": torch.ones(8) * number / 1600, "labels": torch.ones(1)}

"""

TRAINER = (
    LINE
    + """
options = transformers.TrainingArguments("out", num_train_epochs=50, per_device_train_batch_size=16, report_to=[],
                                         eval_strategy="epoch", save_strategy="epoch", disable_tqdm=True, use_cpu=True)
trainer = transformers.Trainer(Line(), options, train_dataset=Data(), eval_dataset=Data())
trainer.train()
trainer.save_model("final")
"""
)

TRAINERS = (
    LINE
    + """
import glob, os, pathlib, safetensors.torch, threading

os.makedirs("out/checkpoint-3")
# A checkpoint of an earlier training. Saving it with save_file would end the probed program.
pathlib.Path("out/checkpoint-3/model.safetensors").write_bytes(safetensors.torch.save(Line().state_dict()))
callbacks = [transformers.TrainerControl()]
state = transformers.TrainerState(global_step=3, train_batch_size=16, stateful_callbacks=callbacks)
state.save_to_json("out/checkpoint-3/trainer_state.json")
options = transformers.TrainingArguments("out", num_train_epochs=50, per_device_train_batch_size=16, report_to=[],
                                         save_strategy="epoch", disable_tqdm=True, use_cpu=True)
trainer = transformers.Trainer(Line(), options, train_dataset=Data())
trainer.train(resume_from_checkpoint=True)
print("steps", trainer.state.global_step)
transformers.Trainer(Line(), train_dataset=Data()).train()

class Broken(Line):
    seen = 0
    def forward(self, x=None, labels=None):
        Broken.seen += 1
        if Broken.seen == 4:
            raise ValueError("mine")
        return super().forward(x, labels)

try:
    transformers.Trainer(Broken(), options, train_dataset=Data()).train()
except ValueError:
    # The thread that waits for saves of other processes stays until the program ends.
    ours = [thread.name for thread in threading.enumerate() if "vmselect" in thread.name]
    ours.remove("vmselect-saves")
    print("failed", len(glob.glob("profiles/*.json")), ours)
"""
)

PROBE = (*CLI, "probe", "--path", "p.json")
WATCH = (*CLI, "watch", "--path", "p.json")
SHORT = ("--steady-seconds", "0", "--steps", "6")
RUNS = {
    "alone": (SCRIPT, [sys.executable, "plain.py", "1", "3"]),
    "watched": (SCRIPT, [*WATCH, "plain.py", "1", "3"]),
    "cut short": (SCRIPT, [*PROBE, *SHORT, "plain.py", "1", "50"]),
    "cut short, accumulated": (SCRIPT, [*PROBE, *SHORT, "plain.py", "4", "50"]),
    "first phase": (PHASES, [*PROBE, *SHORT, "--name", "frozen", "plain.py"]),
    "second phase": (PHASES, [*PROBE, *SHORT, "--fit", "2", "--name", "tuned", "plain.py"]),
    "both phases": (PHASES, [*PROBE, *SHORT, "--fits", "2", "--name", "frozen", "--name", "tuned", "plain.py"]),
    "without a loader": (WITHOUT_LOADER, [*PROBE, "--steady-seconds", "0", "--steps", "20", "plain.py", "9999"]),
    "without a loader, watched": (WITHOUT_LOADER, [*WATCH, "plain.py", "30"]),
    "gradients off inside": (GRADIENTS_OFF_INSIDE, [*PROBE, *SHORT, "plain.py", "same"]),
    "gradients off inside, new loaders": (GRADIENTS_OFF_INSIDE, [*PROBE, *SHORT, "plain.py", "new"]),
    "own probe": (OWN_PROBE, [*PROBE, "plain.py"]),
    "nothing stays": (NOTHING_STAYS, [sys.executable, "plain.py"]),
    "lightning": (LIGHTNING, [*PROBE, "--steady-seconds", "0", "--steps", "8", "plain.py"]),
    "transformers": (TRAINER, [*PROBE, "--steady-seconds", "0", "--steps", "8", "plain.py"]),
    "trainers": (TRAINERS, [*CLI, "probe", "--path", "profiles", "--steady-seconds", "0", "--steps", "8", "plain.py"]),
}


class Ran(NamedTuple):
    """A script that was run: the folder in which it was, and what it printed."""

    folder: Path
    said: str


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Ran]]:
    pytest.importorskip("torch", reason="torch is not installed: plain torch scripts were left out")

    def run(given: tuple[str, list[str]]) -> Ran:
        source, command = given
        folder = tmp_path_factory.mktemp("plain")
        (folder / "plain.py").write_text(source, encoding="utf-8")
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        assert done.returncode == 0, done.stderr
        return Ran(folder, done.stdout)

    with processes.run_ahead(run, RUNS) as wait_for:
        yield wait_for


def test_watched_it_computes_the_same_and_is_seen_whole(ran: Callable[[str], Ran]) -> None:
    alone, watched = ran("alone").said.splitlines(), ran("watched").said.splitlines()
    assert len(alone) == 4
    assert watched[:3] == alone[:3], "the same losses, bit for bit"
    profile = vs.Profile.load(ran("watched").folder / "p.json")
    assert (profile.outcome, profile.model, profile.environment.backend) == ("watched", "plain", "torch")
    assert (profile.batch_size, profile.steps_per_epoch, profile.setup.examples) == (16, 63, 1003)
    assert profile.setup.parameters == 9
    assert (profile.timeline.init_source, profile.fit.number) == ("mark_start", 1)
    assert [(epoch.steps, epoch.complete) for epoch in profile.timeline.epochs] == [(63, True)] * 3
    assert [validation.batches for validation in profile.timeline.validations] == [10, 10, 10]
    assert vs.estimate(profile, epochs=10).seconds > 0


@pytest.mark.parametrize(("name", "accumulate", "steps"), [("cut short", 1, 14), ("cut short, accumulated", 4, 16)])
def test_cut_short_it_ends_after_two_epochs(name: str, accumulate: int, steps: int, ran: Callable[[str], Ran]) -> None:
    folder, said = ran(name)
    assert "to the end" not in said, "the script was ended"
    profile = vs.Profile.load(folder / "p.json")
    assert profile.outcome == "stopped"
    assert profile.timeline.steps.steps == steps
    assert {*profile.timeline.steps.covers} == {accumulate}
    assert [epoch.complete for epoch in profile.timeline.epochs] == [False, False]
    assert len(profile.timeline.validations) == 2
    assert vs.estimate(profile, epochs=50).seconds > 0


@pytest.mark.parametrize(
    ("name", "said", "profiles"),
    [
        ("first phase", (1, "frozen", 8), 1),
        ("second phase", (2, "tuned", 4), 1),
        ("both phases", (2, "tuned", 4), 2),
    ],
)
def test_trainings_of_a_script_are_chosen_and_named(
    name: str, said: object, profiles: int, ran: Callable[[str], Ran]
) -> None:
    folder, printed = ran(name)
    profile = vs.Profile.load(folder / "p.json")
    assert (profile.fit.number, profile.fit.name, profile.batch_size) == said
    assert [epoch.steps for epoch in profile.timeline.epochs] == [7, 7]
    assert "to the end" not in printed, "the script was ended"
    assert printed.count("vmselect: ended the training") == profiles


def test_a_loop_without_a_loader_is_measured_by_its_updates(ran: Callable[[str], Ran]) -> None:
    folder, printed = ran("without a loader")
    profile = vs.Profile.load(folder / "p.json")
    assert "to the end" not in printed
    assert (profile.outcome, profile.timeline.steps.steps, profile.steps_per_epoch) == ("stopped", 21, None)
    # Before the eighth, sixteenth and further steps; that before the first step is initialization.
    assert [validation.truncated for validation in profile.timeline.validations] == [False, False]
    with pytest.raises(vs.errors.EstimateError, match="steps_per_epoch="):
        vs.estimate(profile, epochs=1)
    found = vs.estimate(profile, epochs=1, steps_per_epoch=9999)
    assert found.seconds > 0
    assert "validations-within-epochs" in {finding.code for finding in found.findings}
    watched = vs.Profile.load(ran("without a loader, watched").folder / "p.json")
    assert (watched.outcome, watched.steps_per_epoch, watched.setup.epochs) == ("watched", 30, 1)
    assert len(watched.timeline.validations) == 3


@pytest.mark.parametrize("name", ["gradients off inside", "gradients off inside, new loaders"])
def test_gradients_may_be_turned_off_inside_the_loop_over_validation_data(name: str, ran: Callable[[str], Ran]) -> None:
    profile = vs.Profile.load(ran(name).folder / "p.json")
    assert [epoch.steps for epoch in profile.timeline.epochs] == [7, 7]
    assert [(one.epoch, one.batches, one.truncated) for one in profile.timeline.validations] == [
        (0, 8, False),
        (1, 8, False),
    ]


def test_the_probe_of_the_script_itself_counts(ran: Callable[[str], Ran]) -> None:
    folder, printed = ran("own probe")
    profile = vs.Profile.load(folder / "p.json")
    assert (profile.model, profile.timeline.steps.steps) == ("own", 10)
    assert printed.count("vmselect: ended the training") == 1


def test_nothing_stays_in_torch(ran: Callable[[str], Ran]) -> None:
    assert ran("nothing stays").said == "gone\n"


@pytest.mark.parametrize("package", ["lightning", "transformers"])
def test_what_trains_through_torch_is_measured_too(package: str, ran: Callable[[str], Ran]) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed: its trainings were left out")
    folder, _ = ran(package)
    saved = [path for path in folder.rglob("*") if path.suffix in (".bin", ".ckpt", ".pt", ".safetensors")]
    assert not saved, "checkpoints go to a temporary folder"
    profile = vs.Profile.load(folder / "p.json")
    assert (profile.outcome, profile.batch_size, profile.steps_per_epoch) == ("stopped", 16, 100)
    assert profile.setup.epochs == 50
    assert [epoch.steps for epoch in profile.timeline.epochs] == [9, 9]
    assert len(profile.timeline.validations) == 2
    assert vs.estimate(profile, epochs=50).seconds > 0


@pytest.fixture(scope="module")
def trainers(ran: Callable[[str], Ran]) -> Ran:
    pytest.importorskip("transformers", reason="transformers is not installed: its trainings were left out")
    return ran("trainers")


def profile_of(fit: int, folder: Path) -> vs.Profile:
    return next(one for one in vs.load_profiles(folder / "profiles") if one.fit.number == fit)


def test_a_training_is_resumed_and_its_checkpoints_stay_as_they_were(trainers: Ran) -> None:
    folder, said = trainers
    assert "steps 21" in said, "three before, nine in each of two epochs"
    kept = {path.name for path in (folder / "out").rglob("*")}
    assert kept == {"checkpoint-3", "model.safetensors", "trainer_state.json"}
    assert [path.parent.name for path in folder.rglob("*.safetensors")] == ["checkpoint-3"]
    assert [(one.outcome, one.steps_per_epoch) for one in (profile_of(1, folder), profile_of(2, folder))] == [
        ("stopped", 100),
        ("stopped", 200),
    ]


def test_a_training_that_fails_is_recorded_at_once(trainers: Ran) -> None:
    folder, said = trainers
    assert "failed 3 []" in said, "a profile of each, and nothing is sampled any more"
    failed = profile_of(3, folder)
    assert (failed.outcome, failed.detail) == ("interrupted", "ValueError: mine")


SLOW = """
import time
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(3):
    for batch in DataLoader(torch.ones(160, 8), batch_size=4):
        model(batch).mean().backward()
        optimizer.step()
        time.sleep(0.25)
"""


def test_the_progress_is_a_line_in_a_terminal_and_the_start_anywhere(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SLOW)
    options = ["--path", "out", "--steps", "11", "--instance-type", "box"]
    command = [*CLI, "probe", *options, "train.py"]
    piped = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    start, *others = [line for line in piped.stderr.splitlines() if line.startswith("vmselect: ")]
    assert "train.py" in start
    assert "12 steps" in start
    assert "--seconds" in start
    assert not any("step " in line or "begins" in line for line in others)  # that the script was ended after a training
    assert len([line for line in piped.stdout.splitlines() if line.startswith("vmselect: ")]) == 1

    main, other = os.openpty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=other, cwd=tmp_path) as process:
        os.close(other)
        seen = b"".join(iter(lambda: _read(main), b"")).decode()
        assert process.wait() == 0
    os.close(main)
    updates = seen.split(CLEAR)[1:]
    shown = [update.splitlines()[0] for update in updates if update.strip()]
    assert any(re.search(r"epoch 1 of 2: step \d+ of 12", line) for line in shown)
    assert any("epoch 2 of 2" in line for line in shown)
    assert len(shown) <= 3 + (2 * 12 * 0.25 + 3) / LINE_SECONDS


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # closed by the program
        return b""
