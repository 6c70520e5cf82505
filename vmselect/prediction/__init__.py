"""Predicted step times and GPU memory of machines that were never probed."""

from vmselect.prediction.hardware import estimate_memory as estimate_memory
from vmselect.prediction.machines import predict as predict
