"""DECIDE: profiles joined with prices, ranked by cost, time or both, under a deadline and a budget."""

from vmselect.ranking.bill import Bill, BillPart
from vmselect.ranking.comparison import Crossover, SelectionCost
from vmselect.ranking.decision import rank
from vmselect.ranking.methodology import MethodologyCost
from vmselect.ranking.result import Ranking
from vmselect.ranking.rows import Excluded, Row
from vmselect.ranking.selection import Selection, select
from vmselect.ranking.serving import ServingRanking, ServingRow, rank_inference
from vmselect.ranking.spot import Interruptions

__all__ = [
    "Bill",
    "BillPart",
    "Crossover",
    "Excluded",
    "Interruptions",
    "MethodologyCost",
    "Ranking",
    "Row",
    "Selection",
    "SelectionCost",
    "ServingRanking",
    "ServingRow",
    "rank",
    "rank_inference",
    "select",
]
