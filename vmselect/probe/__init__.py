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

_NAMES = {
    "facts.process": ("mark_start",),
    "inference": ("CallProbe", "InferenceProbe", "probe_inference"),
    "keras.convergence": ("ConvergenceProbe",),
    "keras.epoch": ("EpochProbe",),
    "keras.iteration": ("IterationProbe",),
    "loop": ("LoopProbe", "probe_loop"),
    "sampling": ("Alarm",),
    "trainers.hugging_face": ("HuggingFaceProbe",),
    "trainers.lightning": ("LightningProbe",),
    "transfer": ("clean_transfers", "plan_transfer", "probe_transfer"),
}
_HOME = {name: f"vmselect.probe.{module}" for module, names in _NAMES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'vmselect.probe' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value
