"""``vmselect probe`` of a machine type with a GPU, on a computer without one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import vmselect as vs
from vmselect.diagnosis import find_causes

torch = pytest.importorskip("torch", reason="torch is not installed: no torch script was probed")
if torch.cuda.is_available():
    pytest.skip("this computer has a CUDA device", allow_module_level=True)

LOOP = """
import torch

model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(800, 16))
for epoch in range(5):
    for x, in torch.utils.data.DataLoader(data, batch_size=8):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""
PROBE = ("probe", "--path", "out", "--steps", "5", "--steady-seconds", "0", "--sample", "0")
REFUSED = """
import transformers

transformers.TrainingArguments(output_dir="out", bf16=True)
"""
FAILS = """
import torch

raise RuntimeError("the data are missing\\nand more")
"""


def run(folder: Path, script: str, *command: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(script)
    whole = [sys.executable, "-m", "vmselect", *command]
    return subprocess.run(whole, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("name", "is_warned"), [("1x_RTXA5000_SECURE", True), ("t1-45", True), ("c5.large", False)])
def test_a_missing_gpu_is_noticed_at_once(tmp_path: Path, name: str, is_warned: bool) -> None:
    done = run(tmp_path, LOOP, *PROBE, "--instance-type", name, "train.py")
    assert done.returncode == 0, done.stderr
    assert (f"{name} has a GPU" in done.stderr) is is_warned
    (profile,) = vs.load_profiles(tmp_path / "out")
    # The name of t1-45, of OVHcloud, tells nothing: only the catalog knows its GPU.
    told = is_warned and name != "t1-45"
    kinds = {cause.kind for cause in find_causes(profile)}
    assert ("gpu-not-visible" in kinds) is ("unused-gpu" in {f.code for f in profile.findings}) is told
    checked = run(tmp_path, LOOP, "check", "out")
    assert checked.stdout.count("unused-gpu") == int(is_warned)


def test_recommend_ranks_the_machine_by_its_description(tmp_path: Path) -> None:
    assert run(tmp_path, LOOP, *PROBE, "--instance-type", "1x_RTXA5000_SECURE", "train.py").returncode == 0
    done = run(
        tmp_path, LOOP, "recommend", "--path", "out", "--machines", "1x_RTXA5000_SECURE,1x_RTXA4500_SECURE", "train.py"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("_SECURE") >= 2
    assert "1 record of 1x_RTXA5000_SECURE is not used" in done.stderr


@pytest.mark.filterwarnings("ignore")
def test_a_script_that_fails_before_its_training_is_explained(tmp_path: Path) -> None:
    done = run(tmp_path, FAILS, "probe", "train.py")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("vmselect: train.py ")
    assert "RuntimeError: the data are missing." in last
    assert "rented machine" in last
    late = run(
        tmp_path, LOOP.replace("optimizer.step()", "optimizer.step()\n        assert epoch < 0"), "probe", "train.py"
    )
    assert late.returncode == 1
    assert "rented machine" not in late.stderr


@pytest.mark.filterwarnings("ignore")
def test_transformers_that_refuse_bf16_without_a_gpu(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    done = run(tmp_path, REFUSED, "probe", "--instance-type", "1x_RTXA5000_SECURE", "train.py")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "ValueError" in last
    assert "rented machine" in last
