"""How many epochs each batch size needs: the study and its estimates. Imports no framework and no numpy."""

from vmselect.convergence.study import ConvergenceStudy, EpochsEstimate
from vmselect.records.convergence import ConvergenceRun, Curve, EpochsForecast, StoppingRule

__all__ = ["ConvergenceRun", "ConvergenceStudy", "Curve", "EpochsEstimate", "EpochsForecast", "StoppingRule"]
