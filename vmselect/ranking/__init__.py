"""Rankings: machine estimates joined with prices, ordered by cost, time or both, under a deadline and a budget."""

from vmselect.ranking.estimates import MachineEstimate as MachineEstimate
from vmselect.ranking.measures import MEASURES as MEASURES
from vmselect.ranking.rank_machines import rank as rank
from vmselect.ranking.rank_machines import select as select
from vmselect.ranking.result import Crossover as Crossover
from vmselect.ranking.result import Ranking as Ranking
from vmselect.ranking.rows import Excluded as Excluded
from vmselect.ranking.rows import Row as Row
from vmselect.ranking.selection_cost import MethodologyCost as MethodologyCost
from vmselect.ranking.selection_cost import SelectionCost as SelectionCost
from vmselect.ranking.spot import Interruptions as Interruptions
from vmselect.ranking.transfer_cost import Transfer as Transfer
