"""Measure: probes that watch a training and leave a profile. The only package that looks at a training framework.

A probe sits in the user's training, so this package loads nothing that the chosen probe does not need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vmselect.probe.facts.process import mark_start as mark_start
    from vmselect.probe.inference import CallProbe as CallProbe
    from vmselect.probe.inference import InferenceProbe as InferenceProbe
    from vmselect.probe.inference import probe_inference as probe_inference
    from vmselect.probe.keras.convergence import ConvergenceProbe as ConvergenceProbe
    from vmselect.probe.keras.epoch import EpochProbe as EpochProbe
    from vmselect.probe.keras.iteration import IterationProbe as IterationProbe
    from vmselect.probe.loop import LoopProbe as LoopProbe
    from vmselect.probe.loop import probe_loop as probe_loop
    from vmselect.probe.sampling import Alarm as Alarm
    from vmselect.probe.trainers.hugging_face import HuggingFaceProbe as HuggingFaceProbe
    from vmselect.probe.trainers.lightning import LightningProbe as LightningProbe
    from vmselect.probe.transfer import clean_transfers as clean_transfers
    from vmselect.probe.transfer import plan_transfer as plan_transfer
    from vmselect.probe.transfer import probe_transfer as probe_transfer

_HOME = {
    "Alarm": "vmselect.probe.sampling",
    "clean_transfers": "vmselect.probe.transfer",
    "plan_transfer": "vmselect.probe.transfer",
    "probe_transfer": "vmselect.probe.transfer",
    "CallProbe": "vmselect.probe.inference",
    "HuggingFaceProbe": "vmselect.probe.trainers.hugging_face",
    "InferenceProbe": "vmselect.probe.inference",
    "LightningProbe": "vmselect.probe.trainers.lightning",
    "probe_inference": "vmselect.probe.inference",
    "ConvergenceProbe": "vmselect.probe.keras.convergence",
    "EpochProbe": "vmselect.probe.keras.epoch",
    "IterationProbe": "vmselect.probe.keras.iteration",
    "LoopProbe": "vmselect.probe.loop",
    "mark_start": "vmselect.probe.facts.process",
    "probe_loop": "vmselect.probe.loop",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'vmselect.probe' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value
