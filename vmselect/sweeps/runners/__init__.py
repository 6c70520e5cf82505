"""Runners start, watch, fetch and stop trials. To add a runner, write a ``Runner`` and add it to ``make_runner``.

There are runners for this machine, ssh, Slurm and rented machines. The name of a runner is also in ``RUNNERS`` of
:mod:`vmselect.sweeps.plan`, and the fields of its handle in ``NEEDED`` of :mod:`vmselect.sweeps.journal`.
"""

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
