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
PLAIN = """
import torch
from torch import nn

BEFORE
device = torch.device("cuda")
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
data = torch.utils.data.TensorDataset(torch.randn(80, 16), torch.zeros(80, dtype=torch.long))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True, **LOADER)
CALLS
for epoch in range(5):
    for x, y in loader:
        IN_STEP
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
        optimizer.step()
        print("a step ended")
"""
GENERATOR = """
generator = torch.Generator("cuda").manual_seed(0)
noise = torch.randn(3, generator=generator, device=device)
assert isinstance(generator, torch.Generator) and isinstance(torch.default_generator, torch.Generator)
torch.cuda.set_rng_state(torch.cuda.get_rng_state())
"""
MEMORY = """
torch.cuda.init()
torch.cuda.empty_cache()
torch.cuda.ipc_collect()
torch.cuda.reset_peak_memory_stats(device)
torch.cuda.set_per_process_memory_fraction(0.9)
assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated(device) == 0
host = torch.empty(3, pin_memory=True).pin_memory()
"""
STREAMS = """
class Prefetcher:
    def __init__(self):
        self.stream, self.batches = torch.cuda.Stream(), iter(loader)

    def next(self):
        with torch.cuda.stream(self.stream):
            x = next(self.batches)[0].cuda(non_blocking=True)
        torch.cuda.current_stream().wait_stream(self.stream)
        x.record_stream(torch.cuda.current_stream())
        event = self.stream.record_event()
        self.stream.wait_event(event)
        assert event.query() and self.stream.query()
        return x

with torch.cuda.device(0):
    assert Prefetcher().next().shape == (8, 16)
"""
EVENTS = """
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        torch.cuda.nvtx.range_push("step")
"""
HARMLESS: dict[str, dict[str, str]] = {
    "generator": {"CALLS": GENERATOR, "LOADER": '{"generator": torch.Generator(device=device)}'},
    "memory": {"CALLS": MEMORY},
    "streams": {"CALLS": STREAMS},
    "events": {"IN_STEP": EVENTS},
    "loader": {"LOADER": '{"pin_memory": True, "num_workers": 2}'},
    "scaler": {"CALLS": 'scaler = torch.amp.GradScaler("cuda")\ntorch.cuda.amp.GradScaler()'},
    "compile": {"BEFORE": "import torch._dynamo", "CALLS": "model = torch.compile(model)"},
}
"""Parts of scripts that ask a GPU for nothing that a description could get wrong."""
REFUSED = {
    "properties": "batch = 64 if torch.cuda.get_device_properties(0).total_memory > 2**34 else 32",
    "name": "print(torch.cuda.get_device_name())",
    "capability": "half = torch.cuda.get_device_capability()[0] >= 8",
    "free memory": "free, total = torch.cuda.mem_get_info()",
    "peak": 'peak = torch.cuda.memory_stats()["allocated_bytes.all.peak"]',
    "time": "a, b = torch.cuda.Event(), torch.cuda.Event()\nprint(a.elapsed_time(b))",
    "graph": "graph = torch.cuda.CUDAGraph()",
    "place": "assert torch.zeros(1, device=device).is_cuda",
    "available": "assert torch.cuda.is_available()",
    "exit": "raise SystemExit('A GPU is required.')",
}
"""Questions about a GPU, times of one, and what only one can do."""
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


def fill(**parts: str) -> str:
    script = PLAIN
    for name, empty in (("BEFORE", ""), ("CALLS", ""), ("LOADER", "{}"), ("IN_STEP", "pass")):
        script = script.replace(name, parts.get(name, empty).strip())
    return script


@pytest.mark.parametrize("parts", HARMLESS.values(), ids=HARMLESS)
def test_what_claims_nothing_about_a_gpu_is_described(tmp_path: Path, parts: dict[str, str]) -> None:
    done, printed = describe(tmp_path, fill(**parts))
    assert done.returncode == 0, done.stderr
    assert "a step ended" not in done.stdout
    assert "demands a GPU" in done.stderr
    assert (printed["batch_size"], printed["examples"], printed["product_flops"]) == (8, 80, LAYERS)


@pytest.mark.parametrize("calls", REFUSED.values(), ids=REFUSED)
def test_questions_about_a_gpu_still_fail_and_the_remedy_is_named(tmp_path: Path, calls: str) -> None:
    done, _ = describe(tmp_path, fill(CALLS=calls))
    assert done.returncode == 1
    assert any(line.startswith("vmselect: ") and "vmselect.describe(" in line for line in done.stderr.splitlines())


ACCELERATOR = """
from lightning.pytorch.accelerators import CUDAAccelerator
from lightning.pytorch.plugins import MixedPrecision

OPTIONS = {"accelerator": CUDAAccelerator(), "devices": 1}
OPTIONS |= {"plugins": MixedPrecision("PRECISION", device="cuda")} if "PRECISION" else {}
"""


@pytest.mark.parametrize(
    ("name", "precision"),
    [("", None), ("16-mixed", "mixed_float16"), ("bf16-mixed", "mixed_bfloat16")],
)
@pytest.mark.filterwarnings("ignore")
def test_lightning_with_objects_instead_of_names(tmp_path: Path, name: str, precision: str | None) -> None:
    pytest.importorskip("lightning", reason="lightning is not installed")
    done, printed = describe(tmp_path, ACCELERATOR.replace("PRECISION", name) + LIGHTNING)
    assert done.returncode == 0, done.stderr
    assert "demands a GPU" in done.stderr
    assert (printed["batch_size"], printed["precision"]) == (8, precision)


def test_everything_is_restored() -> None:
    from vmselect.probe.without_cuda import WithoutCuda

    def functions() -> list[object]:
        parts = (torch, torch.cuda, torch.cuda.nvtx, torch.Tensor, torch.amp.autocast_mode.autocast)
        values = [vars(part).get(name, getattr(part, name)) for part in parts for name in dir(part)]
        return [value for value in values if callable(value)]

    before = functions()
    redirection = WithoutCuda()
    redirection.watch_torch(torch)
    assert torch.zeros(2).cuda().device.type == "cpu"
    assert redirection.redirected
    redirection.close()
    assert functions() == before
    with pytest.raises((AssertionError, RuntimeError)):
        torch.zeros(2).cuda()
