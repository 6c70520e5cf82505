"""Engines that run trials somewhere: one module each, loaded when used."""

from __future__ import annotations

from pathlib import Path

from vmselect.errors import SweepError
from vmselect.sweeps.plan import Plan
from vmselect.sweeps.runners.base import Runner


def make_runner(plan: Plan, sweep_id: str, folder: Path) -> Runner:
    """The engine that ``plan`` names."""
    if plan.runner == "ssh":
        from vmselect.sweeps.runners.ssh import SshRunner

        return SshRunner(sweep_id, folder)
    if plan.runner != "local":
        raise SweepError(f"The runner {plan.runner} can be planned for, and not yet run. Use local or ssh.")
    from vmselect.sweeps.runners.local import LocalRunner

    return LocalRunner()
