"""Calls that are answered, timed: a callback for Keras, a context for anything else, one load generator for both."""

from vmselect.probe.inference.callback import InferenceProbe
from vmselect.probe.inference.context import CallProbe, probe_inference

__all__ = ["CallProbe", "InferenceProbe", "probe_inference"]
