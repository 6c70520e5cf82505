"""Rankings: machine estimates joined with prices, ordered by cost, time or both, under a deadline and a budget.

Each name is loaded when it is first used, so that the command line can read the options without loading anything heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmselect._imports import load_on_use

if TYPE_CHECKING:
    from vmselect.prediction.scaling import Scale as Scale
    from vmselect.ranking.estimates import MachineEstimate as MachineEstimate
    from vmselect.ranking.estimates import Transfer as Transfer
    from vmselect.ranking.measures import MEASURES as MEASURES
    from vmselect.ranking.measures import Interruptions as Interruptions
    from vmselect.ranking.rank_machines import rank as rank
    from vmselect.ranking.result import Ranking as Ranking
    from vmselect.ranking.rows import Excluded as Excluded
    from vmselect.ranking.rows import Row as Row
    from vmselect.ranking.views import Crossover as Crossover
    from vmselect.ranking.views import MethodologyCost as MethodologyCost
    from vmselect.ranking.views import SelectionCost as SelectionCost

_HOMES = {
    "vmselect.ranking.estimates": ("MachineEstimate", "Transfer"),
    "vmselect.ranking.measures": ("MEASURES", "Interruptions"),
    "vmselect.ranking.rank_machines": ("rank",),
    "vmselect.ranking.result": ("Ranking",),
    "vmselect.ranking.rows": ("Excluded", "Row",),
    "vmselect.prediction.scaling": ("Scale",),
    "vmselect.ranking.views": ("Crossover", "MethodologyCost", "SelectionCost",),
}  # fmt: skip
__all__, __getattr__ = load_on_use(__name__, _HOMES)
