"""Convergence studies: number of epochs to convergence by batch size. Imports no ML framework and no numpy."""

from vmselect.convergence.study import ConvergenceStudy, EpochsEstimate
from vmselect.records.convergence import ConvergenceRun, Curve, EpochsForecast, StoppingRule

__all__ = ["ConvergenceRun", "ConvergenceStudy", "Curve", "EpochsEstimate", "EpochsForecast", "StoppingRule"]
