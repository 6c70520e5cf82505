"""Runners: one module each, loaded when used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vmselect.sweeps.plan import Plan
from vmselect.sweeps.runners.runner import Runner


def make_runner(plan: Plan, sweep_id: str, folder: Path, locations: Mapping[str, str]) -> Runner:
    """The runner that ``plan`` names; it rents in the ``locations`` whose prices were taken."""
    if plan.runner == "ssh":
        from vmselect.sweeps.runners.ssh import SshRunner

        return SshRunner(sweep_id, folder)
    if plan.runner == "slurm":
        from vmselect.sweeps.runners.slurm import SlurmRunner

        return SlurmRunner()
    if plan.runner == "skypilot":
        from vmselect.sweeps.runners.skypilot import SkyPilotRunner

        return SkyPilotRunner(locations)
    from vmselect.sweeps.runners.local import LocalRunner

    return LocalRunner()
