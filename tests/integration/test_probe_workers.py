"""Two processes that train together: both measure, the chief alone writes and speaks."""

from __future__ import annotations

import importlib.util
import json
import socket
import sys
from pathlib import Path

import pytest

import vmselect as vs

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import processes


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
