"""Measure: probes that watch a training and leave a profile. The only package that looks at a training framework.

A probe sits in the user's training, so this package loads nothing that the chosen probe does not need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vmselect.probe.convergence_probe import ConvergenceProbe as ConvergenceProbe
    from vmselect.probe.epoch_probe import EpochProbe as EpochProbe
    from vmselect.probe.inference import CallProbe as CallProbe
    from vmselect.probe.inference import InferenceProbe as InferenceProbe
    from vmselect.probe.inference import probe_inference as probe_inference
    from vmselect.probe.iteration_probe import IterationProbe as IterationProbe
    from vmselect.probe.loop import LoopProbe as LoopProbe
    from vmselect.probe.loop import probe_loop as probe_loop
    from vmselect.probe.start import mark_start as mark_start

_HOME = {
    "CallProbe": "vmselect.probe.inference",
    "ConvergenceProbe": "vmselect.probe.convergence_probe",
    "EpochProbe": "vmselect.probe.epoch_probe",
    "InferenceProbe": "vmselect.probe.inference",
    "IterationProbe": "vmselect.probe.iteration_probe",
    "LoopProbe": "vmselect.probe.loop",
    "mark_start": "vmselect.probe.start",
    "probe_inference": "vmselect.probe.inference",
    "probe_loop": "vmselect.probe.loop",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'vmselect.probe' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value
