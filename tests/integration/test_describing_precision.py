"""``vmselect describe`` without a GPU, of scripts that switch mixed precision on only where they see a GPU."""

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

LOOP = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="store_true")
args = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
use_amp = device.type == "cuda"
AMP = False
scaler = torch.amp.GradScaler(device.type, enabled=SCALED)
model = torch.nn.Linear(16, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(80, 16))
for epoch in range(5):
    for x, in torch.utils.data.DataLoader(data, batch_size=8):
        optimizer.zero_grad()
        with CONTEXT:
            loss = model(x.to(device)).sum()
        loss.backward()
        optimizer.step()
"""
TRAINER = """
import torch
import transformers

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 4)

    def forward(self, x, labels=None):
        return {"loss": self.layer(x).sum()}

has_gpu = torch.cuda.is_available()
arguments = transformers.TrainingArguments(
    output_dir="out",
    num_train_epochs=5,
    per_device_train_batch_size=8,
    report_to="none",
    OPTIONS
)
data = [{"x": torch.randn(16), "labels": 0} for _ in range(80)]
transformers.Trainer(Model(), arguments, train_dataset=data).train()
"""


def describe(folder: Path, script: str, *options: str) -> tuple[bool, str, dict[str, Any]]:
    """Whether there is a warning about the precision, the first line, and the printed description."""
    (folder / "train.py").write_text(script)
    command = [sys.executable, "-m", "vmselect", "describe", "--json", "--path", "out", *options, "train.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "computed in" in line]
    return "--precision" in done.stderr, line, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("context", "precision"),
    [
        ("torch.autocast(device.type, enabled=device.type == 'cuda')", "mixed_float16"),
        ("torch.autocast(device.type, torch.bfloat16, device.type.startswith('cuda'))", "mixed_bfloat16"),
        ("torch.cuda.amp.autocast(enabled=torch.cuda.is_available())", "mixed_float16"),
        ("torch.cuda.amp.autocast(use_amp)", "mixed_float16"),
        ("torch.autocast(device_type=device.type,\n            enabled=use_amp and not AMP)", "mixed_float16"),
        ("torch.autocast(device.type, enabled=False)", None),
        ("torch.autocast(device.type, enabled=AMP and use_amp)", None),
        ("torch.enable_grad()", None),
    ],
)
def test_a_switch_that_depends_on_cuda_counts(tmp_path: Path, context: str, precision: str | None) -> None:
    warned, line, printed = describe(tmp_path, LOOP.replace("SCALED", "False").replace("CONTEXT", context))
    assert (printed["precision"], warned) == (precision, False)
    assert ("where a GPU is present" in line) is (precision is not None)


@pytest.mark.parametrize(
    ("scaled", "context"),
    [
        ("False", "torch.autocast(device.type, enabled=args.amp)"),
        ("False", "torch.autocast(device.type, enabled=args.amp and use_amp)"),
        ("False", "torch.autocast(device.type, enabled=use_amp and x == 0)"),  # comparing tensors gives no bool
        ("use_amp", "torch.autocast(device.type, enabled=scaler.is_enabled())"),
        ("use_amp", "torch.enable_grad()"),
    ],
)
def test_a_switch_whose_value_with_a_gpu_is_unknown_is_a_warning(tmp_path: Path, scaled: str, context: str) -> None:
    script = LOOP.replace("SCALED", scaled).replace("CONTEXT", context)
    warned, line, printed = describe(tmp_path, script)
    assert (printed["precision"], warned, "where a GPU" in line) == (None, True, False)
    warned, _, printed = describe(tmp_path, script, "--precision", "mixed_bfloat16")
    assert (printed["precision"], warned) == ("mixed_bfloat16", False)


@pytest.mark.parametrize(
    ("options", "precision", "unclear"),
    [
        ("bf16=torch.cuda.is_available(),", "mixed_bfloat16", False),
        ("fp16=has_gpu,", "mixed_float16", False),
        ("bf16=torch.cuda.is_bf16_supported(), fp16=not torch.cuda.is_bf16_supported(),", "mixed_bfloat16", False),
        ("bf16=bool(int('0')),", None, True),
        ("bf16=False,", None, False),
        ("", None, False),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_arguments_of_transformers(tmp_path: Path, options: str, precision: str | None, unclear: bool) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    warned, line, printed = describe(tmp_path, TRAINER.replace("OPTIONS", options))
    assert (printed["precision"], printed["batch_size"], warned) == (precision, 8, unclear)
    assert ("where a GPU is present" in line) is (precision is not None)


def test_everything_is_restored() -> None:
    from vmselect.probe.precision_switch import PrecisionSwitches

    def patched() -> list[object]:
        autocast = torch.amp.autocast_mode.autocast
        return [autocast.__init__, autocast.__enter__, autocast.__exit__, torch.amp.GradScaler.__init__]

    before, switches = patched(), PrecisionSwitches()
    switches.watch_torch(torch)
    assert not set(before) & set(patched())
    with torch.autocast("cpu", enabled=torch.cuda.is_available()):
        assert switches.read_context() == switches.applied == "mixed_float16"
    assert switches.read_context() is None
    switches.close()
    assert before == patched()
