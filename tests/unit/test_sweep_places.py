"""Machines of trials: reserved, priced where they are rented, and other processes on them are left alone."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import IO, Any

import pytest

import vmselect as vs
from vmselect.records.store import Draft
from vmselect.sweeps import clean, read_state, run
from vmselect.sweeps.engine import collect
from vmselect.sweeps.journal import Journal
from vmselect.sweeps.plan import Trial
from vmselect.sweeps.runners import local, skypilot, ssh
from vmselect.sweeps.runners import supervisor as supervisor
from vmselect.sweeps.runners.runner import Job
from vmselect.sweeps.skypilot_export import write_tasks

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from sweep_rented import RentedRunner


def job_of(trial: Trial, token: str, folder: Path) -> Job:
    return Job(trial, token, folder, folder, 60.0, {})


def test_cores_are_taken_when_a_trial_is_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "available_cores", lambda: [4, 7])
    plan = vs.Plan("python t.py {n}", factors={"machine": ["m"], "n": [1, 2, 3]}, machines={"m": {"cores": 1}})
    first, second, third = plan.trials
    runner = local.LocalRunner()
    handles = [runner.announce(job_of(trial, f"t-{trial.id}", tmp_path)) for trial in (first, second)]
    assert [handle["cores"] for handle in handles] == [[[4]], [[7]]]
    assert not runner.has_room(third)
    monkeypatch.setattr(supervisor, "end_processes", lambda marks: [99])
    assert runner.stop(handles[0])
    assert not runner.has_room(third), "what does not end keeps its core"
    monkeypatch.setattr(supervisor, "end_processes", lambda marks: [])
    assert runner.stop(handles[0]) == ""
    assert runner.has_room(third)


def test_hosts_are_taken_when_a_trial_is_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = vs.Plan("python t.py {n}", runner="ssh", factors={"machine": ["a", "b"], "n": [1, 2]}, seed=None)
    runner = ssh.SshRunner("id", tmp_path)
    handle = runner.announce(job_of(plan.trials[0], "t-1", tmp_path))
    assert [runner.has_room(trial) for trial in plan.trials] == [False, False, True, True]
    monkeypatch.setattr(ssh, "end_remote", lambda *_, **__: f"{ssh.SILENT}: no route")
    assert "no route" in runner.stop(handle)
    assert not runner.has_room(plan.trials[1])
    monkeypatch.setattr(ssh, "end_remote", lambda *_, **__: "")
    assert runner.stop(handle) == ""
    assert runner.has_room(plan.trials[1])


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_trial_whose_machine_stays_busy_is_skipped_after_a_retry(
    comes_back: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    class OneRoom(RentedRunner):
        taken: str | None = None

        def has_room(self, trial: Trial) -> bool:
            return self.taken is None

        def announce(self, job: Job) -> dict[str, Any]:
            assert self.taken is None, "two trials on one machine"
            self.taken = job.token
            return super().announce(job)

        def stop(self, handle: dict[str, Any]) -> str:
            super().stop(handle)
            if self.stops.count(handle["token"]) == 1 or not comes_back:
                return "no route to it"
            self.taken = None
            return ""

    runner = OneRoom()
    monkeypatch.setattr(run, "make_runner", lambda *_: runner)
    machine = {"instance_type": "invented", "usd_per_hour": 1.0}
    plan = vs.Plan("python -c pass", runner="skypilot", factors={"machine": ["m"], "n": [1, 2]},
                   machines={"m": machine})  # fmt: skip
    result = vs.sweep(plan, tmp_path / "out", budget_usd=9, yes=True, parallel=2)
    assert len(runner.starts) == (2 if comes_back else 1)
    assert len(result.skipped) == (0 if comes_back else 1)


def test_pipes_of_another_machine_or_boot_identify_no_process() -> None:
    read, write = os.pipe()
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=write)
    try:
        pipe = os.readlink(f"/proc/{stranger.pid}/fd/1")  # noqa: PTH115 - a link that leads nowhere
        for mark in (pipe, f"{pipe}@another-start"):
            assert supervisor.find_processes(["token", mark], supervisors=True) == []
        assert supervisor.find_processes(["token", pipe + supervisor.THIS_BOOT], supervisors=True) == [stranger.pid]
    finally:
        stranger.kill()
        stranger.communicate()
        os.close(read)
        os.close(write)


def test_the_draft_of_a_killed_trial_is_collected(tmp_path: Path) -> None:
    records = tmp_path / "attempt" / "records"
    records.mkdir(parents=True)
    if not (child := os.fork()):
        draft = Draft(records, identity="0" * 32)
        draft.write(vs.Profile.from_times(instance_type="x", batch_size=8, iteration_seconds=0.1))
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    files, faults = collect(vs.Plan("python t.py").trials[0], tmp_path / "attempt", tmp_path)
    assert (len(files), faults) == (1, [])
    assert vs.load_records(files[0])[0].instance_type == "x"


def test_a_folder_is_copied_completely_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_processes_on_a_rented_machine_end_before_its_records_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[tuple[str, str]] = []
    monkeypatch.setattr(skypilot, "end_remote", lambda host, *_, **__: order.append(("end", host)))
    monkeypatch.setattr(skypilot, "fetch_all", lambda hosts, *_, **__: order.append(("fetch", hosts[0])))
    handle = {"cluster": "c", "far": "/tmp/c", "token": "t", "guards": 2}
    skypilot.SkyPilotRunner().fetch(handle, tmp_path, seconds=60)
    assert order == [("end", "c"), ("end", "c-worker1"), ("fetch", "c")]


@pytest.mark.parametrize("level", ["1e-3", "5e1", "+1e5", "0x1f", "yes", "1:30", "2024-01-01", "1_000", "eggs", 1e-7])
def test_a_level_comes_back_from_the_file_as_it_was(level: object, tmp_path: Path) -> None:
    plan = vs.Plan("python t.py", factors={"a": [level]})
    again = vs.Plan.load(plan.save(tmp_path / "plan.yaml"))
    assert again.factors == plan.factors
    assert again.fingerprint == plan.fingerprint


def test_clean_goes_by_the_journal_whatever_became_of_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runner = RentedRunner()
    monkeypatch.setattr(run, "make_runner", lambda *_: runner)
    plan = vs.Plan("python -c pass", factors={"n": [1, 2]}, seed=None)
    with run.opened(plan, tmp_path / "out", limit=None, catalog=None, listener=lambda *_: None) as engine:
        engine._announce(plan.trials[0])
    vs.Plan("python -c pass", factors={"n": [1.0, 2.5]}, seed=None).save(tmp_path / "out" / "plan.yaml")
    assert [one.gone for one in clean(tmp_path / "out")] == [True]
    assert not read_state(tmp_path / "out").open_attempts
    assert Journal(tmp_path / "out").path.exists()


def test_accelerators_need_a_price_and_what_is_rented_is_rented_where_it_was_priced(tmp_path: Path) -> None:
    catalog = vs.Catalog.embedded("2026-08-22")
    facts = {"instance_type": "n1-standard-4", "accelerators": "V100:4", "cloud": "gcp"}
    attached = {"runner": "skypilot", "factors": {"machine": ["m"]}, "minutes": 60}
    with pytest.raises(vs.errors.PlanError):
        vs.Plan("python t.py", machines={"m": facts}, **attached).prices(catalog)  # type: ignore[arg-type]
    own = vs.Plan("python t.py", machines={"m": {**facts, "usd_per_hour": 9.0}}, **attached)  # type: ignore[arg-type]
    assert own.prices(catalog) == {"001": 9.0}
    assert own.locations(catalog) == {}
    for cloud, place in (("aws", "aws/us-east-1"), ("AWS/us-east-1", "aws/us-east-1"), ("elsewhere", None)):
        named = vs.Plan("python t.py", runner="skypilot", factors={"machine": ["m"]},
                        machines={"m": {"instance_type": "g5.xlarge", "cloud": cloud}})  # fmt: skip
        assert list(named.locations(catalog).values()) == ([place] if place else [])
    plan = vs.Plan("python t.py", runner="skypilot", minutes=10, seed=None,
                   factors={"instance_type": ["g5.xlarge", "Standard_NC4as_T4_v3", "n1-standard-4+1xT4"]})  # fmt: skip
    places = plan.locations(catalog)
    assert list(places.values()) == ["aws/us-east-1", "azure/eastus", "gcp/us-central1"]
    for trial in plan.trials:
        said = skypilot.resources_of(trial, places[trial.offer])
        assert said["infra"] == places[trial.offer]
        assert not {"region", "cloud"} & said.keys()
    assert "infra: aws/us-east-1" in write_tasks(plan, tmp_path)[0].read_text()


def test_a_variable_without_a_value_is_a_secret_where_skypilot_knows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "hush")
    kept: dict[str, dict[str, str]] = {"envs": {}, "secrets": {}}

    def task(**said: Any) -> Any:
        ignored: dict[str, Any] = {"set_resources": lambda _: None, "set_file_mounts": lambda _: None}
        return types.SimpleNamespace(**ignored, update_envs=kept["envs"].update, update_secrets=kept["secrets"].update)

    sky = types.SimpleNamespace(
        Task=task, Resources=lambda **_: None, get=lambda _: (1, None), launch=lambda *_, **__: 1
    )
    monkeypatch.setattr(skypilot, "load_sky", lambda: sky)
    plan = vs.Plan("python t.py", runner="skypilot", factors={"instance_type": ["g5.xlarge"]}, minutes=10,
                   environment={"WANDB_API_KEY": None})  # fmt: skip
    runner, job = skypilot.SkyPilotRunner(), Job(plan.trials[0], "t", tmp_path, tmp_path, 600.0, {})
    assert runner.start(job, runner.announce(job)) == {"job": 1}
    assert kept == {"envs": {}, "secrets": {"WANDB_API_KEY": "hush"}}
