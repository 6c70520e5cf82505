"""Rankings: machine estimates joined with prices, ordered by cost, time or both, under a deadline and a budget."""

from vmselect.ranking.bill import Bill, BillPart
from vmselect.ranking.estimates import MachineEstimate
from vmselect.ranking.measures import MEASURES
from vmselect.ranking.rank_machines import rank, select
from vmselect.ranking.result import Crossover, Ranking
from vmselect.ranking.rows import Excluded, Row
from vmselect.ranking.selection_cost import MethodologyCost, SelectionCost
from vmselect.ranking.serving import ServingRanking, ServingRow, rank_inference
from vmselect.ranking.spot import Interruptions
from vmselect.ranking.transfer_cost import Transfer

__all__ = [
    "MEASURES",
    "Bill",
    "BillPart",
    "Crossover",
    "Excluded",
    "Interruptions",
    "MachineEstimate",
    "MethodologyCost",
    "Ranking",
    "Row",
    "SelectionCost",
    "ServingRanking",
    "ServingRow",
    "Transfer",
    "rank",
    "rank_inference",
    "select",
]
