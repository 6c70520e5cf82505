"""Calls of SkyPilot itself, run by the interpreter that has it; prints one line of JSON.

python skypilot_calls.py validate PLAN FOLDER | optimize PROFILES | dryrun
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import sky

import vmselect as vs
from vmselect.sweeps.plan import Trial
from vmselect.sweeps.runners.runner import Job
from vmselect.sweeps.runners.skypilot import IDLE_MINUTES, make_task


def validate(plan_file: str, folder: str) -> dict[str, Any]:
    """Every trial of a plan as a task of the SDK."""
    plan = vs.Plan.load(plan_file)
    Path(folder).mkdir(parents=True, exist_ok=True)
    ours = []
    for trial in plan.trials:
        task = _task_of(trial, Path(folder))
        task.validate()
        ours.append(_describe(task))
    return {"trials": len(plan.trials), "tasks": ours}


def optimize(profiles: str) -> dict[str, Any]:
    """Which of two machines its optimizer picks in this process, by price per hour and by our estimate."""
    picked = {}
    for by in ("hour", "total"):
        with sky.Dag() as dag:
            task = sky.Task(name="train", run="true")
            task.set_resources(
                {sky.Resources(infra="aws", instance_type=name) for name in ("g4dn.xlarge", "g5.xlarge")}
            )
            if by == "total":
                task.set_time_estimator(vs.skypilot_estimator(vs.load_profiles(profiles), epochs=50))
        sky.Optimizer.optimize(dag, minimize=sky.OptimizeTarget.COST, quiet=True)
        picked[by] = task.best_resources.instance_type
    return picked


def dryrun() -> dict[str, Any]:
    """A launch through the API server that rents nothing."""
    plan = vs.Plan("python3 train.py", runner="skypilot", minutes=10, factors={"machine": ["m"]},
                   machines={"m": {"instance_type": "g4dn.xlarge", "cloud": "aws", "region": "us-east-1",
                                   "image_id": os.environ["IMAGE"]}})  # fmt: skip
    work = Path.home() / "work"
    work.mkdir(exist_ok=True)
    (work / "train.py").write_text("print('trained')\n")
    task = _task_of(plan.trials[0], work)
    began = time.monotonic()
    request = sky.launch(task, cluster_name="vmselect-try", dryrun=True, down=True,
                         idle_minutes_to_autostop=IDLE_MINUTES)  # fmt: skip
    answer = sky.stream_and_get(request)
    seconds = time.monotonic() - began
    there = sky.get(sky.status())
    try:
        sky.get(sky.down("vmselect-try"))
        unknown = ""
    except Exception as refused:  # noqa: BLE001 - its name is the result
        unknown = type(refused).__name__
    return {"answer": repr(answer), "clusters": len(there), "seconds": seconds, "unknown": unknown}


def _task_of(trial: Trial, work: Path) -> Any:
    job = Job(trial=trial, token="token", folder=work, work=work, cap_seconds=600.0)
    return make_task(sky, job, f"/tmp/{trial.id}")


def _describe(task: Any) -> dict[str, Any]:
    (resources,) = task.resources
    return {"instance_type": resources.instance_type, "spot": resources.use_spot, "nodes": task.num_nodes,
            "down": bool(resources.autostop_config and resources.autostop_config.down)}  # fmt: skip


if __name__ == "__main__":
    print(json.dumps({"validate": validate, "optimize": optimize, "dryrun": dryrun}[sys.argv[1]](*sys.argv[2:])))
