"""Runners: what a trial reserves, what they copy, and their calls of Slurm and SkyPilot."""

from __future__ import annotations

import subprocess
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

import vmselect as vs
from vmselect.sweeps.plan import Trial
from vmselect.sweeps.runners import local, skypilot, slurm, ssh, supervisor
from vmselect.sweeps.runners.runner import Job, Runner


def job_of(trial: Trial, folder: Path, **given: Any) -> Job:
    return Job(**({"trial": trial, "token": f"t-{trial.id}", "folder": folder, "work": folder, "cap_seconds": 60.0,
                   "environment": {}} | given))  # fmt: skip


@pytest.mark.parametrize("name", ["local", "ssh"])
def test_trial_reserves_its_cores_or_hosts_until_it_is_gone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = [99]
    runner: Runner
    if name == "local":
        monkeypatch.setattr(local, "available_cores", lambda: [4])
        monkeypatch.setattr(supervisor, "end_processes", lambda identifiers: left)
        plan = vs.Plan("python t.py {n}", factors={"machine": ["a"], "n": [1, 2]}, machines={"a": {"cores": 1}})
        runner = local.LocalRunner()
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


def test_folder_is_copied_completely_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_slurm_that_does_not_answer_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(command: list[str], *, text: str = "") -> str:
        raise vs.errors.SweepError("squeue did not answer")

    monkeypatch.setattr(slurm, "call", silent)
    assert slurm.SlurmRunner().watch({"token": "t", "folder": "f"}).state == "unknown"


def test_skypilot_calls_are_retried_and_limited_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_processes_on_a_rented_machine_end_before_its_records_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[tuple[str, str]] = []
    monkeypatch.setattr(skypilot, "end_remote", lambda host, *_, **__: order.append(("end", host)))
    monkeypatch.setattr(skypilot, "fetch_all", lambda hosts, *_, **__: order.append(("fetch", hosts[0])))
    handle = {"cluster": "c", "far": "/tmp/c", "token": "t", "guards": 2}
    skypilot.SkyPilotRunner({}).fetch(handle, tmp_path, seconds=60)
    assert order == [("end", "c"), ("end", "c-worker1"), ("fetch", "c")]


def test_variable_without_a_value_is_a_secret_if_skypilot_has_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "hush")
    kept: dict[str, dict[str, str]] = {"envs": {}, "secrets": {}}

    def task(**_: Any) -> Any:
        ignored: dict[str, Any] = {"set_resources": lambda _: None, "set_file_mounts": lambda _: None}
        return types.SimpleNamespace(**ignored, update_envs=kept["envs"].update, update_secrets=kept["secrets"].update)

    sky = types.SimpleNamespace(
        Task=task, Resources=lambda **_: None, get=lambda _: (1, None), launch=lambda *_, **__: 1
    )
    monkeypatch.setattr(skypilot, "load_sky", lambda: sky)
    plan = vs.Plan("python t.py", runner="skypilot", factors={"instance_type": ["g5.xlarge"]}, minutes=10,
                   environment={"WANDB_API_KEY": None})  # fmt: skip
    runner, job = skypilot.SkyPilotRunner({}), job_of(plan.trials[0], tmp_path, cap_seconds=600.0)
    assert runner.start(job, runner.announce(job)) == {"job": 1}
    assert kept == {"envs": {}, "secrets": {"WANDB_API_KEY": "hush"}}
