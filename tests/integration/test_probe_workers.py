"""Two processes that train together: both measure, the chief alone writes and speaks."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import vmselect as vs

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import processes

TRAIN_TORCH = Path(__file__).parents[2] / "examples" / "several_nodes" / "train_torch.py"


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="tensorflow is not installed")
def test_only_the_chief_writes(tmp_path: Path) -> None:
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    workers = [
        processes.start(
            "worker.py",
            tmp_path / "profiles",
            KERAS_BACKEND="tensorflow",
            TF_CONFIG=json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}),
        )
        for index in range(2)
    ]
    try:
        spoken = [worker.communicate(timeout=240) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [0, 0], spoken[0][1][-3000:] + spoken[1][1][-3000:]
    for index, (out, _) in enumerate(spoken):
        assert "refused seconds" in out  # they would stop at different steps
        assert f"seen {index} 2 2 8 12 2" in out
        assert out.count("vmselect: ended the training") == (1 if index == 0 else 0)
    (profile,) = vs.load_profiles(tmp_path / "profiles")
    assert (profile.environment.worker_index, profile.environment.workers) == (0, 2)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_two_that_torchrun_starts_are_on_one_machine(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    place = {"VMSELECT_INSTANCE_TYPE": "pc", "VMSELECT_REGION": "here"}
    done = subprocess.run(
        [*command, "--master-port", str(port), str(TRAIN_TORCH), "--batch", "96", "--steps", "4"],
        env={**os.environ, **place, "VMSELECT_FOLDER": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (profile,) = vs.load_profiles(tmp_path)
    assert (profile.environment.workers, profile.environment.workers_per_machine) == (2, 2)
    offer = {"instance_type": "pc", "region": "here", "market": "on_demand", "usd_per_hour": 6.0}
    catalog = vs.Catalog.embedded().with_offers([{**offer, "provider": profile.provider or "lab"}])
    assert vs.rank([profile], epochs=5, catalog=catalog).best.usd_per_hour == 6.0
