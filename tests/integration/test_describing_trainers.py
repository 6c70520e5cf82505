"""Descriptions of torch models by the probes of trainers and scripts: after the measurement, and harmless."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from vmselect.probe.calls import FirstCalls
from vmselect.records.work import Work

torch = pytest.importorskip("torch")
FLOPS = 2 * 8 * (2 * 16 * 32 + 3 * 32 * 2)
"""Products of a step of the network below with 8 examples."""


def make_network() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.2), torch.nn.Linear(32, 2))


def make_loader(dictionary: bool = False) -> Any:
    x, y = torch.randn(160, 16), torch.randint(0, 2, (160,))
    rows = [{"x": x[row], "labels": y[row]} if dictionary else (x[row], y[row]) for row in range(160)]
    return rows if dictionary else torch.utils.data.DataLoader(rows, batch_size=8)


def check(work: Work | None) -> None:
    assert work is not None
    assert (work.batch_size, work.optimizer, work.method) == (8, "adamw", "meta")
    assert work.product_flops == FLOPS


@pytest.mark.filterwarnings("ignore")
def test_lightning_describes_the_part_of_the_module_that_it_calls(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = make_network()

        def training_step(self, batch: Any, _: int) -> Any:
            loss = torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1])
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    def train(probe: Any) -> list[float]:
        torch.manual_seed(5)
        module = Module()
        module.losses = []
        trainer = lightning.Trainer(
            max_epochs=2, callbacks=[probe] if probe else [], accelerator="cpu", logger=False,
            enable_progress_bar=False, enable_checkpointing=False, default_root_dir=tmp_path,
        )  # fmt: skip
        trainer.fit(module, make_loader())
        assert not any(part._forward_pre_hooks for part in module.modules())
        return [*module.losses, torch.rand(1).item()]

    watching = vs.LightningProbe(False, stop=False, verbose=0)
    assert train(watching) == train(None)
    stopping = vs.LightningProbe(False, steps=4, verbose=0)
    train(stopping)
    check(stopping.profile.work)


@pytest.mark.filterwarnings("ignore")
def test_the_trainer_of_hugging_face(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = make_network()

        def forward(self, x: Any, labels: Any = None) -> Any:
            logits = self.network(x)
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    arguments = transformers.TrainingArguments(
        str(tmp_path), per_device_train_batch_size=8, report_to=[], use_cpu=True, save_strategy="no", max_steps=30,
        disable_tqdm=True,
    )  # fmt: skip
    probe = vs.HuggingFaceProbe(False, steps=4, verbose=0)
    transformers.Trainer(Model(), arguments, train_dataset=make_loader(dictionary=True), callbacks=[probe]).train()
    check(probe.profile.work)


SCRIPT = """
import torch

x, y = torch.randn(160, 16), torch.randint(0, 2, (160,))
network = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.2), torch.nn.Linear(32, 2))
optimizer = torch.optim.AdamW(network.parameters())
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8)
for epoch in range(50):
    for inputs, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(inputs), labels).backward()
        optimizer.step()
torch.save(network, "network.pt")
"""


def test_a_plain_torch_script_is_described(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "vmselect", "describe", "--path", "out", "--json", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout.splitlines()[-1])
    assert (printed["product_flops"], printed["optimizer"], printed["batch_size"]) == (FLOPS, "adamw", 8)
    assert not (tmp_path / "network.pt").exists()


def test_watched_models_are_copied_and_saved_as_before(tmp_path: Path) -> None:
    """Also those with a part that is never called, whose hook stays, and copies that are made before the first call."""

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            return self.used(x)

    model, calls = Network(), FirstCalls()
    calls.watch(model)
    duplicate = copy.deepcopy(model)
    for _ in range(3):
        duplicate(torch.ones(8, 4))
    assert calls.choose(None) is None
    model(torch.ones(8, 4))
    for module in (model.unused, duplicate.unused):
        torch.save(module, tmp_path / "model.pt")
        torch.load(tmp_path / "model.pt", weights_only=False)(torch.ones(8, 4))
    calls.close()
    chosen = calls.choose(20)
    assert chosen is not None
    assert chosen[0] is model
    assert [tuple(value.shape) for value in chosen[1]] == [(8, 4)]


def test_a_model_that_cannot_be_watched_is_trained() -> None:
    class Odd:
        def children(self) -> Any:
            raise RuntimeError("no parts")

    calls = FirstCalls()
    calls.watch(Odd())
    assert calls.choose(None) is None


def test_an_attribute_with_a_name_of_fabric_does_not_hide_the_precision() -> None:
    model = torch.nn.Linear(4, 2).bfloat16()
    model._strategy = "beam search"
    calls = FirstCalls()
    calls.watch(model)
    model(torch.zeros(1, 4, dtype=torch.bfloat16))
    assert calls.precision == "bfloat16"
