"""Comparison of groups of measurements, effects of factors, and scores of machines by requirements."""

from vmselect.comparison.changes import Change, Changes, find_changes
from vmselect.comparison.comparison import Comparison, compare
from vmselect.comparison.factorial_effects import Effects, effects
from vmselect.comparison.requirements import Need, Requirements, Scores
from vmselect.comparison.speedup import Scaling, scaling

__all__ = [
    "Change",
    "Changes",
    "Comparison",
    "Effects",
    "Need",
    "Requirements",
    "Scaling",
    "Scores",
    "compare",
    "effects",
    "find_changes",
    "scaling",
]
