"""Several workers: their environment variables, their merged outcomes, and how batches are counted."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from vmselect.probe import environment
from vmselect.probe.keras_fit import FitFacts
from vmselect.sweeps import workers
from vmselect.sweeps.runners.runner import SUPERVISOR, WORKERS, merge_outcomes, read_status
from vmselect.sweeps.workers import worker_environments


def address(host: str, boot: str = "", port: int = 5000) -> dict[str, Any]:
    return {"host": host, "boot": boot, "ports": [port, port + 1]}


def test_workers_of_several_machines_are_told_where_the_first_is() -> None:
    variables = worker_environments([address("a", "1"), address("b", "2", 6000), address("fd00::3", "3")])
    assert {one["JAX_COORDINATOR_ADDRESS"] for one in variables} == {"a:5000"}
    assert {(one["MASTER_ADDR"], one["MASTER_PORT"]) for one in variables} == {("a", "5000")}
    assert [one["JAX_PROCESS_ID"] for one in variables] == [one["RANK"] for one in variables] == ["0", "1", "2"]
    assert {one["LOCAL_RANK"] for one in variables} == {"0"}
    for index, one in enumerate(variables):
        cluster = json.loads(one["TF_CONFIG"])
        assert cluster["cluster"]["worker"] == ["a:5001", "b:6001", "[fd00::3]:5001"]
        assert cluster["task"] == {"type": "worker", "index": index}


def test_workers_of_one_machine_meet_on_loopback_whatever_it_is_called() -> None:
    variables = worker_environments([address("alias-1", "x"), address("alias-2", "x", 6000)])
    assert [one["MASTER_ADDR"] for one in variables] == ["127.0.0.1"] * 2
    assert [one["LOCAL_RANK"] for one in variables] == ["0", "1"]
    assert json.loads(variables[0]["TF_CONFIG"])["cluster"]["worker"] == ["127.0.0.1:5001", "127.0.0.1:6001"]
    # Of two machines with two workers each, the second on each is the second there.
    ranks = [
        one["LOCAL_RANK"] for one in worker_environments([address("a", "1"), address("a", "1"), address("b", "2")])
    ]
    assert ranks == ["0", "1", "0"]


GOOD = {"state": "ended", "exit": 0, "why": "exit"}
KILLED = {"state": "ended", "exit": -9, "why": "exit"}
STOPPED = {"state": "ended", "exit": -15, "why": "stop"}
LATE = {"state": "ended", "exit": -15, "why": "cap"}


@pytest.mark.parametrize(
    ("others", "state", "code", "why"),
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
def test_outcomes_of_several_supervisors_are_merged(
    others: list[dict[str, Any]], state: str, code: int | None, why: str
) -> None:
    merged = merge_outcomes(others)
    assert (merged["state"], merged.get("exit"), merged["why"]) == (state, code, why)


def test_nothing_written_is_nothing_known(tmp_path: Path) -> None:
    assert read_status(tmp_path, 3) == {}
    (tmp_path / "worker-1").mkdir()
    (tmp_path / "worker-1" / "status.json").write_text(json.dumps(GOOD))
    assert read_status(tmp_path, 2)["why"] == "worker"


@pytest.mark.parametrize(
    ("strict", "command", "code"), [(True, "exit 3", 1), (True, "exit 0", 0), (False, "exit 3", 0)]
)
def test_a_strict_supervisor_exits_as_its_worker_did(strict: bool, command: str, code: int, tmp_path: Path) -> None:
    worker = {"argv": ["sh", "-c", command], "cwd": ".", "env": {}, "output": "output.txt"}
    request = {"workers": [worker], "cap_seconds": 60, "strict": strict}
    (tmp_path / "request.json").write_text(json.dumps(request))
    done = subprocess.run([sys.executable, str(SUPERVISOR), "run", str(tmp_path), "token"], check=False, timeout=60,
                          capture_output=True)  # fmt: skip
    assert done.returncode == code


def test_a_worker_that_misses_the_others_gives_up(tmp_path: Path) -> None:
    asked = {
        "count": 2,
        "ports": [],
        "program": SUPERVISOR.name,
        "request": {"cap_seconds": 0.3, "workers": [{"env": {}}]},
    }
    (tmp_path / "workers.json").write_text(json.dumps(asked))
    done = subprocess.run([sys.executable, str(WORKERS), "run", str(tmp_path), "token"], check=False, timeout=60,
                          capture_output=True, text=True, env={"SLURM_PROCID": "0"})  # fmt: skip
    assert done.returncode == 1
    assert "2 workers were planned" in done.stderr
    assert subprocess.run([sys.executable, str(WORKERS)], check=False, capture_output=True).returncode == 2


def test_a_machine_says_where_it_is() -> None:
    done = subprocess.run([sys.executable, str(WORKERS), "address"], check=True, capture_output=True, text=True)
    said = json.loads(done.stdout)
    assert said["host"]
    assert len(set(said["ports"])) == 2
    assert workers.find_address("x")["boot"] == said["boot"]


@pytest.mark.parametrize(
    ("backend", "shards", "given", "counted"),
    [
        ("tensorflow", None, 96, 96),  # the batch of all workers is given, and counted once
        ("jax", False, 32, 96),  # each brings its own, and all are counted
        ("jax", True, 96, 96),  # Keras splits what is given
        ("torch", None, 32, 32),  # each brings its own, and counts it alone
    ],
)
def test_the_batch_is_that_of_all_workers_on_every_backend(
    backend: str, shards: bool | None, given: int, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution = types.SimpleNamespace(distribution=lambda: types.SimpleNamespace(auto_shard_dataset=shards))
    monkeypatch.setitem(sys.modules, "keras", types.SimpleNamespace(distribution=distribution))  # type: ignore[arg-type]
    feeders, counters = environment.count_feeders(3, backend)
    assert FitFacts(batch_size=given, partial_batch=given // 2).times(feeders).batch_size == 96
    assert counted * counters == 96
    assert environment.count_feeders(1, backend) == (1, 1)
