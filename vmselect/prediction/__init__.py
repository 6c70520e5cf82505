"""Predicted step times of machines that were never probed."""

from vmselect.prediction.machines import Machine, MachineTypes, Prediction, Predictor, Probe, Refusal
from vmselect.prediction.memory import estimate_memory
from vmselect.prediction.posterior import Point, Posterior, Target, predict_log_times
from vmselect.prediction.step_times import predict

__all__ = [
    "Machine", "MachineTypes", "Point", "Posterior", "Prediction", "Predictor", "Probe", "Refusal", "Target",
    "estimate_memory", "predict", "predict_log_times",
]  # fmt: skip
