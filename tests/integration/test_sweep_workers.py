"""Sweeps whose trials train with several processes, on each framework: what the chief records, and what is lost."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from vmselect.sweeps import read_state
from vmselect.sweeps.runners.supervisor import find_processes

EXAMPLES = Path(__file__).parents[2] / "examples" / "several_nodes"
SCRIPTS = {name: EXAMPLES / f"train_{name}.py" for name in ("jax", "torch", "tensorflow")}
NODES = {"jax": [2], "torch": [1, 3], "tensorflow": [2]}  # torch starts fastest
MANY = 1_000_000
CAP_MINUTES = 8.0


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    # Every worker asks for a thread per core, and all share this machine's.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def plan_of(framework: str, nodes: list[int], *, steps: int = 4, epochs: int = 5) -> vs.Plan:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    script = str(SCRIPTS[framework])
    command = [sys.executable, script, "--batch", "96", "--steps", str(steps), "--epochs", str(epochs)]
    return vs.Plan(command, factors={"machine": ["pc"], "nodes": nodes}, machines={"pc": {"usd_per_hour": 6.0}},
                   minutes=CAP_MINUTES)  # fmt: skip


def outputs(folder: Path) -> str:
    return "\n".join(f"{path}: {path.read_text()[-1500:]}" for path in sorted(folder.glob("trials/*/*/output*.txt")))


@pytest.mark.parametrize("framework", SCRIPTS)
def test_record_of_the_chief_is_the_same_on_every_framework(framework: str, tmp_path: Path) -> None:
    plan = plan_of(framework, NODES[framework])
    result = vs.sweep(plan, tmp_path / "out", yes=True)
    assert not result.failed, outputs(tmp_path / "out")
    assert len(result.records) == len(NODES[framework])  # one of each trial: the chief's
    for record in result.records:
        assert isinstance(record, vs.Profile)
        nodes, setup, environment = record.factors["nodes"], record.setup, record.environment
        assert isinstance(nodes, int)
        assert (environment.workers, environment.replicas, environment.worker_index) == (nodes, nodes, 0)
        assert (setup.batch_size, setup.worker_batch_size) == (96, 96 // nodes)
        assert (setup.steps_per_epoch, setup.examples, setup.partial_batch) == (48, 4608, 0)
        assert environment.backend == framework
    # They can be ranked against each other, and every node costs.
    catalog = vs.Catalog.load(write_prices(tmp_path))
    rows = {row.factors.get("nodes", 1): row for row in vs.rank(result.records, catalog=catalog, epochs=10)}
    assert sorted(rows) == NODES[framework]
    for nodes, row in rows.items():
        assert row.cost_usd == pytest.approx(nodes * 6.0 * row.seconds / 3600)
    attempts = read_state(tmp_path / "out").attempts
    prices = {trial.nodes: attempts[trial.id][0].usd_per_hour for trial in plan.trials}
    assert prices == {nodes: 6.0 * nodes for nodes in NODES[framework]}


@pytest.mark.parametrize(("framework", "lost"), [("jax", 1), ("torch", 1), ("tensorflow", 1)])
def test_killed_worker_ends_the_others_and_fails_the_trial(framework: str, lost: int, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    killed: list[float] = []

    def kill(pids: list[int], records: Path) -> None:
        until = time.monotonic() + 60 * CAP_MINUTES
        while time.monotonic() < until and not any(records.glob("[!.]*.json")):  # its first step has ended
            time.sleep(0.2)
        killed.append(time.monotonic())
        os.kill(pids[lost], signal.SIGKILL)

    def listen(_state: object, event: dict[str, Any]) -> None:
        if event["event"] == "started":
            records = folder / "trials" / event["trial"] / str(event["attempt"]) / "records"
            threading.Thread(target=kill, args=(event["handle"]["pids"], records)).start()

    plan = plan_of(framework, [2], steps=MANY, epochs=MANY)
    result = vs.sweep(plan, folder, yes=True, listener=listen)
    assert killed, outputs(folder)
    assert not result.records
    attempt = read_state(folder).all_attempts[0]
    assert attempt.why == "worker", outputs(folder)
    assert attempt.seconds is not None
    assert attempt.seconds < 60 * CAP_MINUTES * 0.9
    assert not find_processes([attempt.token], supervisors=True)


@pytest.mark.parametrize("plan", ["plan.yaml", "study.yaml"])
def test_the_plans_of_the_examples_can_be_planned(plan: str) -> None:
    command = [sys.executable, "-c", "from vmselect.cli import main; main()", "sweep", "plan", plan, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {row["nodes"] for row in rows} == {1, 2, 3}
    assert len(rows) == (9 if plan == "plan.yaml" else 6)


def test_the_study_is_the_one_that_was_published() -> None:
    plan = vs.Plan.load("study.yaml")
    three = next(trial for trial in plan.trials if trial.nodes == 3)
    assert three.machine.hosts == ("10.0.0.4", "10.0.0.5", "10.0.0.6")
    options = dict(itertools.pairwise(three.arguments))
    assert (options["--epochs"], options["--learning-rate"]) == ("5", "0.001")
    assert 40_000 / int(options["--batch"]) == 1000  # steps an epoch in its log


def write_prices(folder: Path) -> Path:
    path = folder / "prices.csv"
    path.write_text("provider,instance_type,region,market,usd_per_hour\ndesk,pc,here,on_demand,6\n")
    return path
