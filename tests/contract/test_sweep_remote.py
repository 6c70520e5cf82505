"""Sweeps on other machines: ssh against a real sshd, Slurm real and by recorded answers, SkyPilot by a stand-in."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from vmselect.sweeps import clean, read_state
from vmselect.sweeps.journal import Event, State, read_journal
from vmselect.sweeps.runners import skypilot as skypilot_runner
from vmselect.sweeps.runners import slurm as slurm_runner
from vmselect.sweeps.runners import ssh as ssh_runner
from vmselect.sweeps.runners import supervisor
from vmselect.sweeps.runners.supervisor import find_processes

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from loopback_clusters import missing_slurm, missing_sshd, run_remote_case, slurm, ssh_config, sshd
from sweep_faults import SURVIVE, is_alive

COPY = "import os, shutil, sys\nprint(sys.argv)\nshutil.copy('template.json', os.environ['VMSELECT_FOLDER'])\n"


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    vs.Profile.from_times(batch_size=8, iteration_seconds=0.1).save(folder / "template.json")
    (folder / "train.py").write_text(COPY)
    monkeypatch.chdir(folder)
    return folder


needs_sshd = pytest.mark.skipif(bool(missing_sshd()), reason=missing_sshd() or "sshd is there")
needs_slurm = pytest.mark.skipif(bool(missing_slurm()), reason=missing_slurm() or "Slurm is there")


@needs_sshd
def test_ssh_sends_the_folder_and_fetches_the_records(work: Path, tmp_path: Path) -> None:
    value = "it's $HOME *"
    plan = vs.Plan("python3 train.py {word}", runner="ssh", factors={"machine": ["remote"], "word": [value]}, minutes=2)
    with sshd(tmp_path / "sshd") as config, ssh_config(config):
        result = vs.sweep(plan, work / "out", yes=True)
        assert clean(work / "out") == []
    assert [dict(r.factors) for r in result.records] == [{"machine": "remote", "word": value}], result.failed
    assert result.records[0].instance_type == "remote"
    assert not list((tmp_path / "sshd" / "home").iterdir())
    assert str(["train.py", value]) in (work / "out" / "trials" / "001" / "1" / "output.txt").read_text()


@needs_sshd
def test_edited_journal_removes_no_other_folder_of_a_host(work: Path, tmp_path: Path) -> None:
    (work / "train.py").write_text("import time\ntime.sleep(600)\n")
    plan = vs.Plan("python3 train.py", runner="ssh", factors={"machine": ["remote"]}, minutes=2)
    home, journal = tmp_path / "sshd" / "home", work / "out" / "journal.jsonl"

    def kill(state: State, event: Event) -> None:
        if event["event"] == "started":
            os._exit(0)

    with sshd(tmp_path / "sshd") as config, ssh_config(config):
        (home / "thesis").mkdir()
        if not (pid := os.fork()):
            vs.sweep(plan, work / "out", yes=True, listener=kill)
        os.waitpid(pid, 0)
        token = read_state(work / "out").all_attempts[0].token
        remote = read_state(work / "out").all_attempts[0].handle["far"]
        journal.write_text(journal.read_text().replace(remote, "thesis"))
        assert [one.gone for one in clean(work / "out")] == [True]
        assert not find_processes([token], supervisors=True)
    assert (home / "thesis").is_dir()
    assert (home / remote).is_dir()
    assert "thesis" in read_state(work / "out").all_attempts[0].error


@needs_sshd
def test_unreachable_host_fails_its_trial_and_leaves_it_unproved(work: Path, tmp_path: Path) -> None:
    plan = vs.Plan("python3 train.py", runner="ssh", factors={"machine": ["nowhere"]}, minutes=2)
    with sshd(tmp_path / "sshd") as config, ssh_config(config):
        config.write_text("Host nowhere\n HostName 127.0.0.1\n Port 1\n")
        result = vs.sweep(plan, work / "out", yes=True)
        assert [one.id for one in result.unproved] == ["001"]
        assert [one.gone for one in clean(work / "out")] == [False]


@needs_sshd
@pytest.mark.parametrize("cgroups", [True, False])
def test_end_on_a_host_is_proved_or_the_trial_stays_unproved(
    cgroups: bool, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if cgroups and not supervisor.remove_cgroup(supervisor.make_cgroup("test")):
        pytest.skip("no control group can be created here")
    if not cgroups:
        program = tmp_path / "supervisor.py"
        program.write_text(Path(supervisor.__file__).read_text().replace('kind.startswith("cgroup2 ")', "False"))
        monkeypatch.setattr(ssh_runner, "SUPERVISOR", program)
    pid, home = work / "pid", tmp_path / "sshd" / "home"
    (work / "train.py").write_text(SURVIVE)
    plan = vs.Plan(["python3", "train.py", str(pid)], runner="ssh", factors={"machine": ["remote"]}, minutes=2)
    with sshd(tmp_path / "sshd") as config, ssh_config(config):
        try:
            result = vs.sweep(plan, work / "out", yes=True)
            alive = is_alive(int(pid.read_text()))
            assert (bool(result.unproved), alive) == ((False, False) if cgroups else (True, True))
        finally:
            with contextlib.suppress(OSError):
                os.kill(int(pid.read_text()), signal.SIGKILL)
        if not cgroups:
            shutil.rmtree(home / ".vmselect-sweeps")  # neither status nor supervisor: no proof either
            assert [one.gone for one in clean(work / "out")] == [False]
            assert [one.gone for one in clean(work / "out", accept=["001"])] == [True]


@needs_sshd
def test_ssh_leaves_nothing_running_after_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not run_remote_case("ssh", 3, tmp_path / "case").violations


@needs_slurm
def test_slurm_leaves_nothing_running_after_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ("a long name " * 10)  # longer than the path of a socket can be
    assert not run_remote_case("slurm", 1, folder / "case").violations


@needs_slurm
def test_slurm_job_that_ignores_sigterm_is_waited_for(work: Path, tmp_path: Path) -> None:
    (work / "train.py").write_text(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)\n"
    )
    plan = vs.Plan("python3 train.py", runner="slurm", minutes=0.05)
    with slurm():
        result = vs.sweep(plan, work / "out", yes=True)
        assert not result.unproved
        assert read_state(work / "out").all_attempts[0].why == "cap"
        assert slurm_runner.list_jobs(read_state(work / "out").all_attempts[0].token) == []


MEET = """
import json, os, socket, sys, time
rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
cluster = json.loads(os.environ["TF_CONFIG"])
assert cluster["task"]["index"] == rank and len(set(cluster["cluster"]["worker"])) == count, cluster
assert os.environ["JAX_COORDINATOR_ADDRESS"] == f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:  # as a framework's coordinator does: hear of every worker, then let all of them go on
    server = socket.create_server(where)
    server.settimeout(60)
    others = [server.accept()[0] for _ in range(count - 1)]
    heard = sorted(int(other.recv(8)) for other in others)
    assert heard == list(range(1, count)), heard
    for other in others:
        other.sendall(b"go")
else:
    until = time.time() + 60
    while True:
        try:
            one = socket.create_connection(where, timeout=60)
            break
        except OSError:
            assert time.time() < until
            time.sleep(0.1)
    one.sendall(str(rank).encode())
    assert one.recv(8) == b"go"
"""
LOSE = """
if rank == count - 1:
    os.kill(os.getpid(), 9)
time.sleep(600)
"""


@pytest.fixture
def several(work: Path) -> Path:
    """A script whose workers find each other; the chief leaves a record, as a probe does."""
    (work / "train.py").write_text(MEET + "if rank == 0:\n    " + COPY.replace("\n", "\n    "))
    return work


@needs_sshd
def test_ssh_runs_a_worker_on_every_host(several: Path, tmp_path: Path) -> None:
    machines = {"pair": {"hosts": ["remote", "remote2"], "usd_per_hour": 1.0}}
    plan = vs.Plan("python3 train.py", runner="ssh", factors={"machine": ["pair"], "nodes": [2]}, machines=machines,
                   minutes=3)  # fmt: skip
    with sshd(tmp_path / "sshd") as config, ssh_config(config):
        result = vs.sweep(plan, several / "out", yes=True)
        assert [dict(r.factors) for r in result.records] == [{"machine": "pair", "nodes": 2}], result.failed
        assert (several / "out" / "trials" / "001" / "1" / "worker-1" / "status.json").exists()
        (several / "train.py").write_text(MEET + LOSE)
        lost = vs.sweep(plan, several / "lost", yes=True)
    assert not lost.records
    assert [attempt.why for attempt in read_state(several / "lost").all_attempts] == ["worker"]


def test_workers_of_one_trial_on_one_machine_do_not_end_each_other(tmp_path: Path) -> None:
    supervisors = []
    for name, seconds in (("first", 0.0), ("second", 1.5)):
        (tmp_path / name).mkdir()
        argv = [sys.executable, "-c", f"import time; time.sleep({seconds})"]
        worker = {"argv": argv, "env": {}, "cwd": str(tmp_path), "output": "output.txt"}
        (tmp_path / name / "request.json").write_text(json.dumps({"workers": [worker], "cap_seconds": 60}))
        command = [sys.executable, supervisor.__file__, "run", str(tmp_path / name), "one-token-of-both"]
        supervisors.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
    assert [one.wait(60) for one in supervisors] == [0, 0]
    for name in ("first", "second"):
        status = json.loads((tmp_path / name / "status.json").read_text())
        assert (status["exit"], status["why"], status["left"]) == (0, "exit", [])


def kill_in_the_middle(plan: vs.Plan, folder: Path) -> None:
    """Run ``plan``, kill vmselect once every worker is at work, and clean up after it."""
    plan.save(folder / "plan.yaml")
    command = [sys.executable, "-c", "from vmselect.cli import main; main()", "sweep", "run", "plan.yaml", "out", "-y"]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
    until = time.monotonic() + 120
    while len(list(folder.glob("at-work-*"))) < plan.trials[0].nodes and time.monotonic() < until:
        time.sleep(0.2)
    running.kill()
    running.wait()
    token = read_state(folder / "out").all_attempts[0].token
    assert find_processes([token], supervisors=True)
    assert [(one.gone, one.detail) for one in clean(folder / "out")] == [(True, "proved gone")]
    assert not find_processes([token], supervisors=True)
    assert not list((folder / "out").glob("*.json"))


@needs_sshd
def test_a_killed_sweep_leaves_no_worker_on_any_host(work: Path, tmp_path: Path) -> None:
    mark = f"open({str(work)!r} + f'/at-work-{{rank}}', 'w').close()\n"
    (work / "train.py").write_text(MEET + mark + "time.sleep(600)\n")
    plan = vs.Plan("python3 train.py", runner="ssh", factors={"machine": ["pair"], "nodes": [2]}, minutes=5,
                   machines={"pair": {"hosts": ["remote", "remote2"]}})  # fmt: skip
    with sshd(tmp_path / "sshd") as config, ssh_config(config):
        kill_in_the_middle(plan, work)


@needs_slurm
def test_a_killed_sweep_leaves_no_worker_on_any_node(work: Path, tmp_path: Path) -> None:
    mark = f"open({str(work)!r} + f'/at-work-{{rank}}', 'w').close()\n"
    (work / "train.py").write_text(MEET + mark + "time.sleep(600)\n")
    with slurm(nodes=2):
        kill_in_the_middle(vs.Plan("python3 train.py", runner="slurm", factors={"nodes": [2]}, minutes=5), work)


@needs_slurm
def test_slurm_runs_a_worker_on_every_node_and_a_lost_one_ends_all(several: Path, tmp_path: Path) -> None:
    plan = vs.Plan("python3 train.py", runner="slurm", factors={"nodes": [3]}, minutes=3)
    with slurm(nodes=3):
        result = vs.sweep(plan, several / "out", yes=True)
        assert [dict(r.factors) for r in result.records] == [{"nodes": 3}], result.failed
        (several / "train.py").write_text(MEET + LOSE)
        lost = vs.sweep(plan, several / "lost", yes=True)
        assert not lost.records
        attempt = read_state(several / "lost").all_attempts[0]
        assert attempt.why == "worker"
        assert not find_processes([attempt.token], supervisors=True)
        assert attempt.seconds is not None
        assert attempt.seconds < 60 * 3 * 0.9


class Answers:
    """Slurm's commands as small programs that note how they were called and answer as was recorded."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **answers: str) -> None:
        self.calls = folder / "calls"
        programs = folder / "slurm-bin"
        programs.mkdir()
        for name in ("sbatch", "squeue", "scancel", "srun"):
            body = f'#!/bin/sh\necho {name} "$@" >> {self.calls}\n{answers.get(name, "true")}\n'
            (programs / name).write_text(body)
            (programs / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")


def test_slurm_options_and_answers(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_runner, "STATUS_SECONDS", 20.0)
    # The job runs at once; squeue lists it while its script does, as slurmctld 22.05 answers.
    answers = Answers(tmp_path, monkeypatch, sbatch=f"sh -s < /dev/stdin > {tmp_path}/log 2>&1\necho '42;cluster'")
    machines = {"gpu": {"partition": "gpu", "gres": "gpu:1", "exclusive": True, "cores": 1, "usd_per_hour": 6.0}}
    plan = vs.Plan("python3 train.py", runner="slurm", factors={"machine": ["gpu"]}, machines=machines, minutes=1.5)
    result = vs.sweep(plan, work / "out", budget_usd=1, yes=True)
    assert len(result.records) == 1, (result.failed, (tmp_path / "log").read_text())
    submitted = answers.calls.read_text().splitlines()[0]
    for option in ("--parsable", "--time=3", "--partition=gpu", "--gres=gpu:1", "--exclusive", "--cpus-per-task=1"):
        assert option in submitted.split()
    started = next(e for e in read_journal(work / "out") if e["event"] == "started")
    assert started["handle"] == {"job": 42}


def test_cancelled_slurm_job_is_watched_until_it_is_gone(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = tmp_path / "count"
    listing = f'echo x >> {count}\n[ "$(wc -l < {count})" -gt 3 ] || echo COMPLETING'
    Answers(tmp_path, monkeypatch, squeue=listing)
    assert slurm_runner.SlurmRunner().stop({"token": "t", "folder": str(work)}) == ""
    assert len(count.read_text().splitlines()) == 4
    monkeypatch.setattr(slurm_runner, "GONE_SECONDS", 0.0)
    count.write_text("")
    assert "COMPLETING" in slurm_runner.SlurmRunner().stop({"token": "t", "folder": str(work)})


class FakeSky(types.SimpleNamespace):
    """A stand-in for SkyPilot's SDK: it runs the task here, keeps a list of clusters, and fails at ``fail``."""

    def __init__(self, fail: str = "") -> None:
        super().__init__(clusters={}, downs=[], launches=[], fail=fail)
        self.StatusRefreshMode = types.SimpleNamespace(FORCE="force")

    def Resources(self, **given: Any) -> Any:
        return types.SimpleNamespace(**given)

    def Task(self, **given: Any) -> Any:
        task = types.SimpleNamespace(**given, mounts={}, resources=None, envs={}, secrets={})
        task.set_resources = lambda resources: setattr(task, "resources", resources)
        task.set_file_mounts = task.mounts.update
        task.update_envs, task.update_secrets = task.envs.update, task.secrets.update
        return task

    def mount(self, task: Any) -> None:
        for remote, here in task.mounts.items():
            Path(remote).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(here, remote)

    def get(self, request: Any) -> Any:
        return request()

    def launch(self, task: Any, *, cluster_name: str, down: bool, idle_minutes_to_autostop: int) -> Any:
        def act() -> Any:
            assert down
            self.launches.append(cluster_name)
            self.clusters[cluster_name] = task
            assert (task.envs, task.secrets) == ({}, {"WANDB_API_KEY": "hush"})
            if self.fail == "launch":
                raise RuntimeError("no capacity in us-east-1")
            self.mount(task)
            assert os.system(task.run) == 0
            return 1, object()

        return act

    def job_status(self, cluster: str, job_ids: Any) -> Any:
        def act() -> Any:
            if self.fail == "status":
                raise ConnectionError("the API server is gone")
            return {1: types.SimpleNamespace(is_terminal=lambda: True, value="SUCCEEDED")}

        return act

    def down(self, cluster: str) -> Any:
        def act() -> None:
            self.downs.append(cluster)
            if self.fail == "down" and len(self.downs) < 3:
                raise RuntimeError("rate exceeded")
            if self.clusters.pop(cluster, None) is None:
                raise type("ClusterDoesNotExist", (ValueError,), {})(cluster)

        return act

    def status(self, *, cluster_names: list[str], refresh: str) -> Any:
        return lambda: [name for name in cluster_names if name in self.clusters]


@pytest.mark.parametrize("fail", ["", "launch", "status", "down"])
def test_every_launched_cluster_is_terminated(
    fail: str, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sky = FakeSky(fail)
    monkeypatch.setitem(sys.modules, "sky", sky)  # type: ignore[arg-type]
    monkeypatch.setattr(skypilot_runner.SkyPilotRunner, "poll_seconds", 0.05)

    def copy(host: str, remote: str, into: Path, *, seconds: float) -> None:
        shutil.copytree(remote, into, dirs_exist_ok=True)

    monkeypatch.setattr(ssh_runner, "copy_folder", copy)
    monkeypatch.setattr(skypilot_runner, "end_remote", lambda *_, **__: "")
    monkeypatch.setenv("WANDB_API_KEY", "hush")  # a variable without a value in the plan
    plan = vs.Plan("python3 train.py", runner="skypilot", minutes=6, environment={"WANDB_API_KEY": None},
                   factors={"instance_type": ["g4dn.xlarge"], "market": ["spot", "on_demand"]})  # fmt: skip
    with pytest.raises(vs.errors.SweepError, match="budget_usd="):
        vs.sweep(plan, work / "none", yes=True)
    result = vs.sweep(plan, work / "out", budget_usd=1, yes=True)
    assert len(result.records) == (0 if fail == "launch" else 2), result.failed
    assert not sky.clusters
    assert set(sky.launches) <= set(sky.downs)
    assert len(sky.launches) == 2
    assert os.environ["SKYPILOT_DISABLE_USAGE_COLLECTION"] == "1"
    announced = [e["handle"]["cluster"] for e in read_journal(work / "out") if e["event"] == "start"]
    assert announced == sky.launches
    assert all(len(name) <= 63 for name in announced)


def find_low_ports(count: int) -> tuple[int, ...]:
    """Free ports that no outgoing connection is given: workers try to connect before anybody listens."""
    found: list[int] = []
    for port in range(21_000 + os.getpid() % 5_000, 32_000):
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            found.append(port)
        if len(found) == count:
            break
    return tuple(found)


def left_after(token: str, *, seconds: float) -> list[int]:
    """Processes of a trial that are there for ``seconds``: a supervisor that reported its outcome has yet to exit."""
    until = time.monotonic() + seconds
    while (left := find_processes([token], supervisors=True)) and time.monotonic() < until:
        time.sleep(0.05)
    return left


class SeveralSky(FakeSky):
    """Runs a task as SkyPilot does on several nodes: all at once, and when one fails the others are ended."""

    def launch(self, task: Any, *, cluster_name: str, down: bool, idle_minutes_to_autostop: int) -> Any:
        def act() -> Any:
            self.launches.append(cluster_name)
            self.clusters[cluster_name] = task
            self.mount(task)
            hosts = "\n".join(f"127.0.0.{1 + rank}" for rank in range(task.num_nodes))
            nodes = [
                subprocess.Popen(task.run, shell=True, start_new_session=True,
                                 env={**os.environ, "SKYPILOT_NODE_IPS": hosts, "SKYPILOT_NODE_RANK": str(rank)})
                for rank in range(task.num_nodes)
            ]  # fmt: skip
            while any(node.poll() is None for node in nodes):
                if any(node.poll() for node in nodes):
                    for node in nodes:
                        with contextlib.suppress(OSError):
                            os.killpg(node.pid, signal.SIGTERM)
                time.sleep(0.1)
            self.verdict = "FAILED" if any(node.returncode for node in nodes) else "SUCCEEDED"
            return 1, object()

        return act

    def job_status(self, cluster: str, job_ids: Any) -> Any:
        return lambda: {1: types.SimpleNamespace(is_terminal=lambda: True, value=self.verdict)}


@pytest.mark.parametrize("loses", [False, True])
def test_rented_nodes_find_each_other_and_a_lost_one_fails_the_trial(
    loses: bool, several: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sky = SeveralSky()
    monkeypatch.setitem(sys.modules, "sky", sky)  # type: ignore[arg-type]
    monkeypatch.setattr(skypilot_runner.SkyPilotRunner, "poll_seconds", 0.05)
    monkeypatch.setattr(skypilot_runner, "PORTS", find_low_ports(2))
    acts: list[tuple[str, str]] = []

    def copy(host: str, remote: str, into: Path, *, seconds: float) -> None:
        acts.append(("copy", host))
        shutil.copytree(remote, into, dirs_exist_ok=True)

    monkeypatch.setattr(ssh_runner, "copy_folder", copy)
    monkeypatch.setattr(skypilot_runner, "end_remote", lambda host, *_, **__: acts.append(("end", host)))
    if loses:
        (several / "train.py").write_text(MEET + LOSE)
    plan = vs.Plan("python3 train.py", runner="skypilot", minutes=6,
                   factors={"instance_type": ["g4dn.xlarge"], "nodes": [3]})  # fmt: skip
    one = vs.Catalog.default().price("g4dn.xlarge")
    result = vs.sweep(plan, several / "out", budget_usd=1, yes=True)
    start = next(e for e in read_journal(several / "out") if e["event"] == "start")
    name = start["handle"]["cluster"]
    assert start["usd_per_hour"] == pytest.approx(3 * one)
    hosts = [name, f"{name}-worker1", f"{name}-worker2"]
    assert acts == [*(("end", host) for host in hosts), *(("copy", host) for host in hosts)]
    assert sky.downs == [name]
    assert len(result.records) == (0 if loses else 1), result.failed
    if loses:
        assert read_state(several / "out").all_attempts[0].why == "worker"
        assert not left_after(start["token"], seconds=10)


def test_missing_skypilot_names_the_extra_to_install(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sky", None)
    plan = vs.Plan("python3 train.py", runner="skypilot", factors={"instance_type": ["g5.xlarge"]}, minutes=6)
    with pytest.raises(vs.errors.MissingPackageError, match=r"vmselect\[skypilot\]"):
        vs.sweep(plan, work / "out", budget_usd=1, yes=True)
    assert not (work / "out").exists()


def test_estimator_returns_seconds_per_instance_type() -> None:
    profiles = [
        vs.Profile.from_times(instance_type=name, batch_size=64, steps_per_epoch=100, init_seconds=1,
                              first_iteration_seconds=1, iteration_seconds=[step, step])
        for name, step in (("g4dn.xlarge", 0.4), ("g5.xlarge", 0.1), ("g5.xlarge", 0.1))
    ]  # fmt: skip
    seconds_on = vs.skypilot_estimator(profiles, epochs=50)
    slow, fast = (seconds_on(types.SimpleNamespace(instance_type=name)) for name in ("g4dn.xlarge", "g5.xlarge"))
    assert slow == pytest.approx(2001.6, rel=0.01)
    assert fast == pytest.approx(501.9, rel=0.01)
    with pytest.raises(vs.errors.EstimateError, match=r"p3\.2xlarge"):
        seconds_on(types.SimpleNamespace(instance_type="p3.2xlarge"))
    for wrong in (None, [], ["x"]):
        with pytest.raises(vs.errors.VmselectError):
            vs.skypilot_estimator(wrong, epochs=50)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "options", "fields"),
    [
        ("g5.xlarge", {"cloud": "aws", "region": "us-east-1"}, {"infra": "aws/us-east-1"}),
        ("g5.xlarge", {"region": "us-east-1"}, {"region": "us-east-1"}),
        ("n1-standard-4+1xT4", {"cloud": "gcp"}, {"accelerators": "T4:1", "infra": "gcp"}),
    ],
)
def test_resources_have_the_fields_of_skypilot(name: str, options: dict[str, str], fields: dict[str, str]) -> None:
    plan = vs.Plan("python3 t.py", runner="skypilot", factors={"machine": ["m"]}, minutes=5,
                   machines={"m": {"instance_type": name, **options}})  # fmt: skip
    expected = {**fields, "instance_type": name.split("+")[0], "use_spot": False,
                "autostop": {"idle_minutes": 1, "down": True}}  # fmt: skip
    assert skypilot_runner.resources_of(plan.trials[0]) == expected
