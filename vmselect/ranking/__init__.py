"""DECIDE: profiles joined with prices, ranked by cost, time or both, under a deadline and a budget."""

from vmselect.ranking.comparison import Crossover, SelectionCost
from vmselect.ranking.decision import rank
from vmselect.ranking.methodology import MethodologyCost
from vmselect.ranking.result import Ranking
from vmselect.ranking.rows import Excluded, Row
from vmselect.ranking.selection import Selection, select
from vmselect.ranking.spot import Interruptions

__all__ = [
    "Crossover",
    "Excluded",
    "Interruptions",
    "MethodologyCost",
    "Ranking",
    "Row",
    "Selection",
    "SelectionCost",
    "rank",
    "select",
]
