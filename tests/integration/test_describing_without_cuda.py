"""``vmselect describe`` of scripts that demand CUDA, on a computer without it: what they place there is on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: no torch script was described")
if torch.cuda.is_available():
    pytest.skip("this computer has a CUDA device", allow_module_level=True)

DEMANDS = """
import torch
from torch import nn

torch.cuda.set_device(0)
device = torch.device("cuda", torch.cuda.current_device())
model = nn.Sequential(nn.Linear(16, 32, device="cuda:0"), nn.ReLU(), nn.Linear(32, 4)).to(device)
weights = torch.ones(4, device=device)
loss_function = nn.CrossEntropyLoss(weight=weights).cuda()
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler("cuda")
data = torch.utils.data.TensorDataset(torch.randn(80, 16), torch.zeros(80, dtype=torch.long))
for epoch in range(5):
    for x, y in torch.utils.data.DataLoader(data, batch_size=8, pin_memory=True):
        x, y = x.to(0, non_blocking=True), y.cuda(non_blocking=True)
        optimizer.zero_grad()
        with torch.autocast(device.type, enabled=MIXED):
            loss = loss_function(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        torch.cuda.synchronize()
        print("a step ended")
"""
DEFAULT = """
import torch

assert not torch.cuda.is_available()
torch.set_default_device("cuda")

class Noisy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.layer(x + torch.zeros(16, device="cuda"))

model = Noisy()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    optimizer.zero_grad()
    model(torch.ones(8, 16)).sum().backward()
    optimizer.step()
    print("a step ended")
"""
LIGHTNING = """
import lightning
import torch

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = torch.nn.Linear(16, 4)

    def training_step(self, batch, _):
        return self.network(batch[0]).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

data = torch.utils.data.TensorDataset(torch.randn(80, 16))
trainer = lightning.Trainer(max_epochs=6, logger=False, enable_checkpointing=False, **OPTIONS)
trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=8))
"""
FABRIC = """
import lightning
import torch

fabric = lightning.Fabric(accelerator="cuda", devices=1, precision="bf16-mixed")
model = torch.nn.Linear(16, 4)
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
data = torch.utils.data.TensorDataset(torch.randn(80, 16))
for x, in fabric.setup_dataloaders(torch.utils.data.DataLoader(data, batch_size=8)):
    fabric.backward(model(x).sum())
    optimizer.step()
"""
ACCELERATE = """
import accelerate
import torch

accelerator = accelerate.Accelerator(mixed_precision="bf16")
model = torch.nn.Linear(16, 4)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(80, 16)), batch_size=8)
model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), data)
for x, in data:
    accelerator.backward(model(x).sum())
    optimizer.step()
"""
ASKS = "import torch\nprint(torch.cuda.get_device_properties(0))\n"
LAYERS = 2 * 8 * (2 * 16 * 32 + 3 * 32 * 4)
"""Products of a step of the first script."""


def describe(folder: Path, script: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    (folder / "train.py").write_text(script)
    command = [sys.executable, "-m", "vmselect", "describe", "--json", "--path", "out", "train.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done, json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}


@pytest.mark.parametrize(("mixed", "precision"), [(True, "mixed_float16"), (False, None)])
def test_a_loop_that_demands_cuda(tmp_path: Path, mixed: bool, precision: str | None) -> None:
    done, printed = describe(tmp_path, DEMANDS.replace("MIXED", str(mixed)))
    assert done.returncode == 0, done.stderr
    assert "a step ended" not in done.stdout
    assert "demands a GPU" in done.stderr
    assert (printed["batch_size"], printed["examples"], printed["precision"]) == (8, 80, precision)
    assert (printed["product_flops"], printed["optimizer"]) == (LAYERS, "adamw")


def test_cuda_as_the_default_device_and_inside_of_a_model(tmp_path: Path) -> None:
    done, printed = describe(tmp_path, DEFAULT)
    assert done.returncode == 0, done.stderr
    assert "a step ended" not in done.stdout
    assert printed["product_flops"] == 2 * 8 * 2 * 16 * 4


@pytest.mark.parametrize(
    ("options", "precision"),
    [
        ({"accelerator": "gpu", "devices": 2, "strategy": "ddp"}, None),
        ({"accelerator": "gpu", "precision": "16-mixed"}, "mixed_float16"),
        ({"precision": "bf16-mixed"}, "mixed_bfloat16"),
    ],
    ids=["gpus", "half", "choice"],
)
@pytest.mark.filterwarnings("ignore")
def test_trainers_of_lightning(tmp_path: Path, options: dict[str, Any], precision: str | None) -> None:
    pytest.importorskip("lightning", reason="lightning is not installed")
    done, printed = describe(tmp_path, f"OPTIONS = {options}\n{LIGHTNING}")
    assert done.returncode == 0, done.stderr
    assert ("demands a GPU" in done.stderr) is ("accelerator" in options)
    assert (printed["batch_size"], printed["examples"], printed["precision"]) == (8, 80, precision)


@pytest.mark.parametrize(("package", "script"), [("lightning", FABRIC), ("accelerate", ACCELERATE)])
@pytest.mark.filterwarnings("ignore")
def test_mixed_precision_that_begins_inside_of_the_call(tmp_path: Path, package: str, script: str) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed")
    done, printed = describe(tmp_path, script)
    assert done.returncode == 0, done.stderr
    assert (printed["batch_size"], printed["precision"]) == (8, "mixed_bfloat16")
    assert printed["product_flops"] == 2 * 8 * 2 * 16 * 4


def test_questions_about_a_gpu_still_fail(tmp_path: Path) -> None:
    done, _ = describe(tmp_path, ASKS)
    assert done.returncode == 1
    assert "get_device_properties" in done.stderr


def test_everything_is_restored() -> None:
    from vmselect.probe.without_cuda import WithoutCuda

    before = torch.cuda.synchronize, torch.set_default_device, torch.amp.autocast_mode.autocast.__init__
    redirection = WithoutCuda()
    redirection.watch_torch(torch)
    assert torch.zeros(2).cuda().device.type == "cpu"
    assert redirection.redirected
    redirection.close()
    assert before == (torch.cuda.synchronize, torch.set_default_device, torch.amp.autocast_mode.autocast.__init__)
    with pytest.raises((AssertionError, RuntimeError)):
        torch.zeros(2).cuda()
