"""How many epochs each batch size needs: the study and its estimates. Imports no framework and no numpy."""

from vmselect.convergence.epochs import EpochsEstimate
from vmselect.convergence.study import ConvergenceStudy
from vmselect.records.convergence import ConvergenceRun, Curve, EpochsForecast
from vmselect.records.rule import StoppingRule

__all__ = ["ConvergenceRun", "ConvergenceStudy", "Curve", "EpochsEstimate", "EpochsForecast", "StoppingRule"]
