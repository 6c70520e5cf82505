"""Runners: what a trial reserves, what they copy, calls of Slurm and SkyPilot, merged outcomes of workers."""

from __future__ import annotations

import json
import subprocess
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

import vmselect as vs
from vmselect.sweeps.plan import Trial
from vmselect.sweeps.runners import runner as base
from vmselect.sweeps.runners import skypilot, slurm, ssh, supervisor
from vmselect.sweeps.runners.runner import Job, Runner, merge_outcomes, read_status
from vmselect.sweeps.runners.supervisor import worker_environments


def job_of(trial: Trial, folder: Path) -> Job:
    return Job(trial, f"vmselect-id-{trial.id}-1-0a1b2c3d", folder, folder, cap_seconds=60.0)


@pytest.mark.parametrize("name", ["local", "ssh"])
def test_trial_reserves_its_cores_or_hosts_until_it_is_gone(name, tmp_path, monkeypatch) -> None:
    left: list[int] = [99]
    runner: Runner
    if name == "local":
        monkeypatch.setattr(base, "available_cores", lambda: [4])
        monkeypatch.setattr(supervisor, "end_trial", lambda *_: {"left": left, "unproved": ""})
        plan = vs.Plan("python t.py {n}", factors={"machine": ["a"], "n": [1, 2]}, machines={"a": {"cores": 1}})
        runner = base.LocalRunner()
    else:
        monkeypatch.setattr(ssh, "end_remote", lambda *_, **__: f"{ssh.SILENT}: no route" if left else "")
        plan = vs.Plan("python t.py {n}", runner="ssh", factors={"machine": ["a"], "n": [1, 2]})
        runner = ssh.SshRunner("id", tmp_path)
    first, second = plan.trials
    handle = runner.announce(job_of(first, tmp_path))
    assert handle.get("cores", handle.get("hosts")) == ([[4]] if name == "local" else ["a"])
    assert not runner.has_room(second)
    assert runner.stop(handle)
    assert not runner.has_room(second)
    left.clear()
    assert runner.stop(handle) == ""
    assert runner.has_room(second)


def test_hosts_stay_reserved_if_the_journal_has_an_invalid_token(tmp_path) -> None:
    (trial,) = vs.Plan("python t.py", runner="ssh", factors={"machine": ["a"]}).trials
    runner = ssh.SshRunner("id", tmp_path)
    with pytest.raises(vs.errors.SweepError):
        runner.stop({"token": "edited", "hosts": ["a"]})
    assert not runner.has_room(trial)


def test_limits_reach_the_supervisor_of_any_runner(tmp_path) -> None:
    factors = {"machine": ["a"], "cores": [2], "memory_gib": [1.5]}
    (trial,) = vs.Plan("python t.py", runner="ssh", factors=factors).trials
    (worker,) = base.make_request(job_of(trial, tmp_path), "folder", "work")["workers"]
    assert (worker["core_count"], worker["memory_bytes"]) == (2, 3 * 2**29)
    (free,) = vs.Plan("python t.py", runner="ssh", factors={"machine": ["a"]}).trials
    (worker,) = base.make_request(job_of(free, tmp_path), "folder", "work")["workers"]
    assert not {"core_count", "memory_bytes"} & set(worker)


@pytest.mark.parametrize(
    "factors", [{"cores": [0]}, {"cores": ["many"]}, {"memory_gib": [0]}, {"memory_gib": ["8 GB"]}]
)
def test_limits_are_numbers(factors) -> None:
    with pytest.raises(vs.errors.PlanError, match=next(iter(factors))):
        vs.Plan("python t.py", factors=factors)


def test_trial_without_a_local_port_fails_alone(tmp_path, monkeypatch) -> None:
    def refuse(count: int) -> list[int]:
        raise OSError(24, "Too many open files")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(base, "free_ports", refuse)
    result = vs.sweep(vs.Plan("python -c pass", factors={"n": [1, 2]}), tmp_path / "out", yes=True)
    assert len(result.failed) == 2
    assert [attempt.why for attempt in vs.sweeps.read_state(tmp_path / "out").all_attempts] == ["start", "start"]


def test_folder_is_copied_completely_or_not_at_all(tmp_path, monkeypatch) -> None:
    remote, into = tmp_path / "remote", tmp_path / "here"
    (remote / "records").mkdir(parents=True)
    into.mkdir()
    (remote / "records" / "a.json").write_text("{}")
    (remote / "output.txt").write_text("step 1" * 10_000)
    cuts = [50_000]

    def call(host: str, command: str, *, stdout: IO[bytes], **_: Any) -> str:
        data = subprocess.run(command, shell=True, capture_output=True, check=True).stdout
        stdout.write(data[: cuts.pop()] if cuts else data)
        return ""

    monkeypatch.setattr(ssh, "call", call)
    with pytest.raises(vs.errors.SweepError):
        ssh.copy_folder("host", str(remote), into, seconds=60)
    assert not list(into.iterdir())
    cuts.append(50_000)
    ssh.fetch_all(["host"], str(remote), into, seconds=60)  # the second attempt is complete
    assert (into / "records" / "a.json").read_text() == "{}"
    assert len((into / "output.txt").read_text()) == 60_000
    ssh.copy_folder("host", str(tmp_path / "missing"), into, seconds=60)


def test_no_copy_of_a_worker_starts_after_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = []

    def copy(host: str, remote: str, into: Path, *, seconds: float) -> None:
        copies.append((host, seconds >= 0))

    monkeypatch.setattr(ssh, "copy_folder", copy)
    assert ssh.fetch_all(["chief", "worker"], "remote", tmp_path, seconds=-1) == ["worker"]
    assert copies == [("chief", True)]
    assert ssh.fetch_all(["chief", "worker"], "remote", tmp_path, seconds=60) == []
    assert copies[1:] == [("chief", True), ("worker", True)]


@pytest.mark.parametrize("fails", [False, True])
def test_a_folder_that_was_not_copied_stays_on_its_host(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = []

    def copy(host: str, remote: str, into: Path, *, seconds: float) -> None:
        if fails and host == "worker":
            raise vs.errors.SweepError("The connection was lost.")

    monkeypatch.setattr(ssh, "copy_folder", copy)
    monkeypatch.setattr(ssh, "call", lambda host, command, **_: removed.append(host) if "rm -rf" in command else None)
    runner = ssh.SshRunner.__new__(ssh.SshRunner)
    monkeypatch.setattr(runner, "_contacted", set(), raising=False)
    monkeypatch.setattr(runner, "_remote", lambda token: "remote", raising=False)
    runner.fetch({"token": "t", "hosts": ["chief", "worker"]}, tmp_path, seconds=60)
    assert removed == (["chief"] if fails else ["chief", "worker"])


def test_slurm_that_does_not_answer_is_unknown(monkeypatch) -> None:
    def silent(command: list[str], *, text: str = "") -> str:
        raise vs.errors.SweepError("squeue did not answer")

    monkeypatch.setattr(slurm, "call", silent)
    assert slurm.SlurmRunner().watch({"token": "t", "folder": "f"}).state == "unknown"


@pytest.mark.parametrize(
    ("tracking", "answer", "proved"),
    [
        ("proctrack/cgroup", {"left": [], "unproved": "both supervisors were killed"}, True),
        ("proctrack/cgroup", {"left": [7], "unproved": ""}, False),
        ("proctrack/linuxproc", {"left": [], "unproved": "both supervisors were killed"}, False),
        ("proctrack/linuxproc", {"left": [], "unproved": ""}, True),
        (None, {"left": [], "unproved": "both supervisors were killed"}, False),
    ],
)
def test_slurm_with_control_groups_proves_the_end(tracking, answer, proved, tmp_path, monkeypatch) -> None:
    (tmp_path / "status.json").write_text(json.dumps({"state": "running", "host": "node1", "pipes": ["pipe:[1]@b"]}))

    def call(command: list[str], *, text: str = "", fine: object = ()) -> str:
        if command[0] == "scontrol":
            if tracking is None:
                raise vs.errors.SweepError("scontrol did not answer")
            return f"PropagatePrioProcess    = 0\nProctrackType           = {tracking}\n"
        assert command[-4:] == ["end", str(tmp_path), "t", "pipe:[1]@b"]
        assert text == Path(supervisor.__file__).read_text()
        return json.dumps(answer)

    monkeypatch.setattr(slurm, "call", call)
    assert (slurm.end_on_nodes({"token": "t", "folder": str(tmp_path)}) == "") is proved


def test_skypilot_calls_are_retried_and_limited_in_time(monkeypatch) -> None:
    existing = ["c"]
    sky = types.SimpleNamespace(
        get=lambda request: request(), StatusRefreshMode=types.SimpleNamespace(FORCE="force"),
        status=lambda cluster_names, refresh: lambda: list(existing),
    )  # fmt: skip

    def fail(kind: type[Exception]) -> Callable[..., object]:
        def raise_it() -> None:
            raise kind("why")

        return lambda cluster, job_ids: raise_it

    monkeypatch.setattr(skypilot, "load_sky", lambda: sky)
    runner, handle = skypilot.SkyPilotRunner({}), {"cluster": "c", "token": "t"}
    sky.job_status = fail(ConnectionError)
    states = [runner.watch(handle).state for _ in range(skypilot.MAX_UNANSWERED)]
    assert states == ["unknown"] * (skypilot.MAX_UNANSWERED - 1) + ["lost"]
    sky.job_status = fail(type("ClusterDoesNotExist", (ValueError,), {}))
    assert runner.watch(handle).state == "lost", "SkyPilot still lists it"
    existing.clear()
    assert runner.watch(handle).state == "gone"
    never = threading.Event()
    with pytest.raises(vs.errors.SweepError):
        skypilot.call(never.wait, seconds=0.01)
    never.set()


def address(host: str, boot: str = "", port: int = 5000) -> dict[str, Any]:
    return {"host": host, "boot": boot, "ports": [port, port + 1]}


def test_workers_of_several_machines_get_the_address_of_the_chief() -> None:
    variables = worker_environments([address("a", "1"), address("b", "2", 6000), address("fd00::3", "3")])
    assert {worker["JAX_COORDINATOR_ADDRESS"] for worker in variables} == {"a:5000"}
    assert {(worker["MASTER_ADDR"], worker["MASTER_PORT"]) for worker in variables} == {("a", "5000")}
    assert (
        [worker["JAX_PROCESS_ID"] for worker in variables]
        == [worker["RANK"] for worker in variables]
        == ["0", "1", "2"]
    )
    assert {worker["LOCAL_RANK"] for worker in variables} == {"0"}
    for index, worker in enumerate(variables):
        cluster = json.loads(worker["TF_CONFIG"])
        assert cluster["cluster"]["worker"] == ["a:5001", "b:6001", "[fd00::3]:5001"]
        assert cluster["task"] == {"type": "worker", "index": index}


def test_workers_of_one_machine_use_loopback_and_are_numbered_per_machine() -> None:
    variables = worker_environments([address("alias-1", "x"), address("alias-2", "x", 6000)])
    assert [worker["MASTER_ADDR"] for worker in variables] == ["127.0.0.1"] * 2
    assert json.loads(variables[0]["TF_CONFIG"])["cluster"]["worker"] == ["127.0.0.1:5001", "127.0.0.1:6001"]
    mixed = worker_environments([address("a", "1"), address("a", "1"), address("b", "2")])
    assert [worker["LOCAL_RANK"] for worker in mixed] == ["0", "1", "0"]


GOOD = {"state": "ended", "exit": 0, "why": "exit"}
KILLED = {"state": "ended", "exit": -9, "why": "exit"}
STOPPED = {"state": "ended", "exit": -15, "why": "stop"}
LATE = {"state": "ended", "exit": -15, "why": "cap"}


@pytest.mark.parametrize(
    ("outcomes", "state", "code", "why"),
    [
        ([GOOD, GOOD], "ended", 0, "exit"),
        ([GOOD, KILLED], "ended", -9, "worker"),
        ([STOPPED, KILLED], "ended", -9, "worker"),
        ([STOPPED, STOPPED], "ended", None, "stop"),
        ([LATE, STOPPED], "ended", None, "cap"),
        ([GOOD, {}], "running", None, "worker"),
        ([GOOD, {"state": "running"}], "running", None, "worker"),
    ],
)
def test_outcomes_of_several_supervisors_are_merged(outcomes, state, code, why) -> None:
    merged = merge_outcomes(outcomes)
    assert (merged["state"], merged.get("exit"), merged["why"]) == (state, code, why)


def test_status_is_empty_if_no_supervisor_wrote_one(tmp_path) -> None:
    assert read_status(tmp_path, 3) == {}
    (tmp_path / "worker-1").mkdir()
    (tmp_path / "worker-1" / "status.json").write_text(json.dumps(GOOD))
    assert read_status(tmp_path, 2)["why"] == "worker"


def test_the_worker_that_failed_is_named() -> None:
    good, bad, ended = {"exit": 0, "why": "exit"}, {"exit": 3, "why": "exit"}, {"exit": None, "why": "stop"}
    merged = base.merge_outcomes([ended, bad, ended])
    assert (merged["why"], merged["error"]) == ("worker", "worker 1 of 3 ended with exit code 3")
    assert base.merge_outcomes([{**ended, "error": "own words"}, bad])["error"] == "own words"
    assert base.name_lost([good, {}], ["alpha", "beta"]) == "worker 1 of 2 (beta) was lost"
    assert base.name_lost([good, good]) == ""
