"""The supervisor as a program: exit codes, several nodes, addresses, and the processes it finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

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


def status_of(folder: Path, **facts: object) -> dict[str, object]:
    status = {"state": "running", "pipes": [], "cgroup": "", **supervisor.describe_machine(), **facts}
    (folder / "status.json").write_text(json.dumps(status))
    return status


@pytest.mark.parametrize(
    ("facts", "started", "proved"),
    [
        (None, False, True),  # the status is written before the first worker starts
        (None, True, False),
        ({"state": "starting"}, False, False),
        ({"state": "running"}, True, False),
        ({"state": "running", "boot": "an earlier one"}, True, True),
        ({"state": "running", "boot": "another", "host": "another"}, True, False),
        ({"state": "ended", "left": []}, True, True),
        ({"state": "ended", "left": [os.getpid()]}, True, False),
    ],
)
def test_end_is_proved_only_by_the_status(facts, started, proved, tmp_path) -> None:
    if facts is not None:
        status_of(tmp_path, **facts)
    answer = supervisor.end_trial(str(tmp_path), ["no-such-token", *(["pipe:[0]@no-such-boot"] if started else [])])
    assert answer["left"] == []
    assert (answer["unproved"] == "") is proved


def test_unreadable_status_proves_nothing(tmp_path) -> None:
    (tmp_path / "status.json").write_text('{"state": "ended"')
    assert supervisor.end_trial(str(tmp_path), ["no-such-token"])["unproved"]


needs_cgroups = pytest.mark.skipif(
    not supervisor.remove_cgroup(supervisor.make_cgroup("test")), reason="no control group can be created here"
)


@needs_cgroups
def test_processes_of_a_control_group_are_ended_and_it_is_removed(tmp_path) -> None:
    cgroup = supervisor.make_cgroup("some-token")
    inside = subprocess.Popen(["sh", "-c", "trap '' TERM; setsid sleep 600 & setsid sleep 600 & wait"], env={},
                              preexec_fn=lambda: supervisor.enter_cgroup(cgroup))  # fmt: skip
    outside = subprocess.Popen(["sleep", "600"], env={})
    try:
        status_of(tmp_path, cgroup=cgroup)
        threading.Thread(target=inside.wait, daemon=True).start()
        assert supervisor.end_trial(str(tmp_path), ["some-token"]) == {"left": [], "unproved": ""}
        assert not Path(cgroup).exists()
        assert outside.poll() is None
        assert json.loads((tmp_path / "status.json").read_text())["state"] == "ended"
        assert supervisor.end_trial(str(tmp_path), ["some-token", "pipe:[0]"])["unproved"] == ""
    finally:
        outside.kill()
        outside.wait()


@needs_cgroups
def test_edited_status_names_no_other_control_group(tmp_path) -> None:
    cgroup = supervisor.make_cgroup("some-token")
    try:
        parent = str(Path(cgroup).parent)
        name = Path(cgroup).name
        assert supervisor.find_cgroup(status_of(tmp_path, cgroup=cgroup), "some-token") == cgroup
        for wrong in (parent, f"{parent}/other-token.1", f"{cgroup}/../{name}", f"/tmp/{name}", name, 7, None):
            assert supervisor.find_cgroup(status_of(tmp_path, cgroup=wrong), "some-token") == ""
        assert supervisor.find_cgroup(status_of(tmp_path, cgroup=cgroup, cgroups="another"), "some-token") == ""
        assert supervisor.make_cgroup("../some-token") == ""
    finally:
        assert supervisor.remove_cgroup(cgroup)


@pytest.mark.parametrize("works", [True, False])
def test_supervisor_moves_to_a_scope_if_it_can_create_no_control_group(works, tmp_path) -> None:
    """A stand-in for systemd-run: as the real one, it runs the command in its own process."""
    program = tmp_path / "bin" / "systemd-run"
    program.parent.mkdir()
    skip = 'while [ "${1#--}" != "$1" ]; do shift; done'
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n{"" if works else "exit 1"}\n{skip}\nexec "$@"\n')
    program.chmod(0o755)
    copy = tmp_path / "supervisor.py"
    copy.write_text(SUPERVISOR.read_text().replace('kind.startswith("cgroup2 ")', "False"))
    worker = {"argv": ["true"], "cwd": ".", "env": {}, "output": "output.txt"}
    request = json.dumps({"workers": [worker], "cap_seconds": 60}) + "\n"
    command = [sys.executable, str(copy), "run", str(tmp_path), "some-token", "scope"]
    path = f"{program.parent}:{os.environ['PATH']}"
    done = subprocess.run(command, input=request, text=True, capture_output=True, timeout=60, check=False,
                          env={**os.environ, "PATH": path})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["ended"]["exit"] == 0
    calls = (tmp_path / "calls").read_text().splitlines()
    assert all(call.startswith("--user --scope ") for call in calls)
    assert len(calls) == (2 if works else 1)
    assert ("some-token" in calls[-1]) is works


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
