"""Measure: probes that watch a training and leave a profile. The only package that looks at a training framework.

A probe sits in the user's training, so this package loads nothing that the chosen probe does not need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmselect._optional import load_on_use

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

_HOMES = {
    "vmselect.probe.facts.process": ("mark_start",),
    "vmselect.probe.inference": ("CallProbe", "InferenceProbe", "probe_inference"),
    "vmselect.probe.keras.convergence": ("ConvergenceProbe",),
    "vmselect.probe.keras.epoch": ("EpochProbe",),
    "vmselect.probe.keras.iteration": ("IterationProbe",),
    "vmselect.probe.loop": ("LoopProbe", "probe_loop"),
    "vmselect.probe.sampling": ("Alarm",),
    "vmselect.probe.trainers.hugging_face": ("HuggingFaceProbe",),
    "vmselect.probe.trainers.lightning": ("LightningProbe",),
    "vmselect.probe.transfer": ("clean_transfers", "plan_transfer", "probe_transfer"),
}
_names, __getattr__ = load_on_use(__name__, _HOMES)
__all__ = [*_names]
