"""Predicted step times and GPU memory of machines that were never probed."""

from vmselect.prediction.machines import predict as predict
from vmselect.prediction.memory import estimate_memory as estimate_memory
