"""Sweeps: a plan of trials, run where the machines are, within a budget, leaving nothing running."""

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
