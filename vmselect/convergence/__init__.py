"""How many epochs each batch size needs: the study, its runs and its file format. Imports no framework and no numpy."""

from vmselect.convergence.epochs import EpochsEstimate
from vmselect.convergence.rule import StoppingRule
from vmselect.convergence.run import ConvergenceRun, Curve
from vmselect.convergence.study import FORMAT, ConvergenceStudy

__all__ = ["FORMAT", "ConvergenceRun", "ConvergenceStudy", "Curve", "EpochsEstimate", "StoppingRule"]
