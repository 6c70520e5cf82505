"""The supervisor as a program: exit codes, several nodes, addresses, and the processes it finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from vmselect.sweeps.runners import supervisor
from vmselect.sweeps.runners.runner import SUPERVISOR, read_status


def run_supervisor(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SUPERVISOR), *arguments], check=False, timeout=60, capture_output=True,
                          text=True, env={**os.environ, **environment})  # fmt: skip


@pytest.mark.parametrize(("nodes", "command", "code"), [(1, "exit 3", 1), (1, "exit 0", 0), (None, "exit 3", 0)])
def test_one_of_several_nodes_exits_as_its_worker_did(nodes, command, code, tmp_path) -> None:
    worker = {"argv": ["sh", "-c", command], "cwd": ".", "env": {}, "output": "output.txt"}
    request = {"workers": [worker], "cap_seconds": 60, **({"nodes": nodes} if nodes else {})}
    (tmp_path / "request.json").write_text(json.dumps(request))
    assert run_supervisor("run", str(tmp_path), "token", SLURM_PROCID="0").returncode == code
    assert read_status(tmp_path)["exit"] == int(command[-1])


def test_worker_gives_up_if_the_others_do_not_come(tmp_path) -> None:
    (tmp_path / "request.json").write_text(json.dumps({"nodes": 2, "cap_seconds": 0.3, "workers": [{"env": {}}]}))
    done = run_supervisor("run", str(tmp_path), "token", SLURM_PROCID="0")
    assert (done.returncode, "2 workers" in done.stderr) == (1, True)
    assert run_supervisor().returncode == 2


def test_supervisor_prints_the_address_of_its_host() -> None:
    printed = json.loads(run_supervisor("address").stdout)
    assert printed["host"]
    assert len(set(printed["ports"])) == 2
    assert supervisor.find_address("x")["boot"] == printed["boot"]


def test_pipes_of_another_machine_or_boot_identify_no_process() -> None:
    read, write = os.pipe()
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=write)
    try:
        pipe = os.readlink(f"/proc/{stranger.pid}/fd/1")  # noqa: PTH115 - a link without a target
        for identifier in (pipe, f"{pipe}@another-boot"):
            assert supervisor.find_processes(["token", identifier], supervisors=True) == []
        assert supervisor.find_processes(["token", pipe + supervisor.THIS_BOOT], supervisors=True) == [stranger.pid]
    finally:
        stranger.kill()
        stranger.communicate()
        os.close(read)
        os.close(write)
