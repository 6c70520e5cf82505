"""Predicted step times of machines that were never probed."""

from vmselect.prediction.figures import GpuFigures, figures_of
from vmselect.prediction.posterior import Point, Posterior, Target, predict_log_times

__all__ = ["GpuFigures", "Point", "Posterior", "Target", "figures_of", "predict_log_times"]
