"""Runners: start, watch, fetch and stop trials on this machine, over ssh, on Slurm or on rented machines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vmselect.sweeps.plan import Plan
from vmselect.sweeps.runners.runner import LocalRunner, Runner
from vmselect.sweeps.runners.skypilot import SkyPilotRunner
from vmselect.sweeps.runners.slurm import SlurmRunner
from vmselect.sweeps.runners.ssh import SshRunner


def make_runner(plan: Plan, sweep_id: str, folder: Path, locations: Mapping[str, str]) -> Runner:
    """Return the runner of ``plan``. ``locations`` contains the clouds and regions in which SkyPilot rents machines."""
    if plan.runner == "ssh":
        return SshRunner(sweep_id, folder, {machine.python for machine in plan.machines.values()})
    if plan.runner == "slurm":
        return SlurmRunner()
    return SkyPilotRunner(locations) if plan.runner == "skypilot" else LocalRunner()
