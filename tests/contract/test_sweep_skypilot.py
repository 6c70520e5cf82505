"""SkyPilot itself, in a separate environment: its API server and a stand-in for AWS, both on loopback.

Nothing is ever launched for real: a dry run ends before a machine would be made.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from skypilot_server import ask, missing_skypilot, skypilot

PLAN = Path(__file__).parents[2] / "examples" / "sweep" / "rented.yaml"

pytestmark = [
    pytest.mark.skipif(bool(missing_skypilot()), reason=missing_skypilot() or "SkyPilot is there"),
    pytest.mark.timeout(900),  # its server takes a minute to start and its first call two
]


@pytest.fixture(scope="session")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """SkyPilot's answers to all calls, made at once: each spends most of its time waiting."""
    folder = tmp_path_factory.mktemp("skypilot")
    for name, step in (("g4dn.xlarge", 0.4), ("g5.xlarge", 0.1)):
        vs.Profile.from_times(
            instance_type=name, batch_size=64, steps_per_epoch=1000, init_seconds=1, first_iteration_seconds=1,
            iteration_seconds=[step, step],
        ).save(folder / "profiles" / f"{name}.json")  # fmt: skip
    with skypilot(folder) as env, ThreadPoolExecutor(3) as pool:
        asked = {
            "validate": pool.submit(ask, "validate", env, str(PLAN), str(folder / "tasks")),
            "optimize": pool.submit(ask, "optimize", env, str(folder / "profiles")),
            "dryrun": pool.submit(ask, "dryrun", env),
        }
        found = {what: one.result() for what, one in asked.items()}
    reached = folder / "reached"
    return {**found, "reached": reached.read_text() if reached.exists() else ""}


def test_skypilot_accepts_every_trial_of_the_example(answers: dict[str, Any]) -> None:
    answer = answers["validate"]
    trials = vs.Plan.load(PLAN).trials
    assert answer["trials"] == len(trials) == 12
    planned = sorted((str(trial.instance_type), trial.market == "spot") for trial in trials)
    assert sorted((task["instance_type"], task["spot"]) for task in answer["tasks"]) == planned
    assert all(task["down"] and task["nodes"] == 1 for task in answer["tasks"])


def test_optimizer_picks_the_machine_with_the_lower_total_cost(
    answers: dict[str, Any],
) -> None:
    assert answers["optimize"] == {"hour": "g4dn.xlarge", "total": "g5.xlarge"}


def test_dry_run_leaves_no_cluster(
    answers: dict[str, Any],
) -> None:
    assert answers["dryrun"]["clusters"] == 0
    assert answers["dryrun"]["unknown"] == "ClusterDoesNotExist", (
        "the error by which the runner detects that a cluster is gone"
    )


def test_skypilot_contacts_only_loopback(answers: dict[str, Any]) -> None:
    assert not answers["reached"]
