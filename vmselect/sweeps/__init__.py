"""Sweeps: run the trials of a plan on local, remote or rented machines within a budget, and collect their records."""

from vmselect.sweeps.plan import Plan, Trial
from vmselect.sweeps.run import Cleaned, Missing, Proposal, SweepResult, clean, read_state, resume, sweep
from vmselect.sweeps.runners.skypilot import skypilot_estimator

__all__ = [
    "Cleaned",
    "Missing",
    "Plan",
    "Proposal",
    "SweepResult",
    "Trial",
    "clean",
    "read_state",
    "resume",
    "skypilot_estimator",
    "sweep",
]
