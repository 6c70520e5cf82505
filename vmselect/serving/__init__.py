"""Serving a model and moving data: measure, rank machines for a load, and add up what a service costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmselect._imports import load_on_use

if TYPE_CHECKING:
    from vmselect.probe.inference import InferenceProbe as InferenceProbe
    from vmselect.probe.inference import probe_inference as probe_inference
    from vmselect.probe.transfer import clean_transfers as clean_transfers
    from vmselect.probe.transfer import probe_transfer as probe_transfer
    from vmselect.ranking.estimates import Transfer as Transfer
    from vmselect.serving.autoscaling import simulate_day as simulate_day
    from vmselect.serving.availability import Downtime as Downtime
    from vmselect.serving.bill import Bill as Bill
    from vmselect.serving.rank import rank_inference as rank_inference
    from vmselect.serving.rank import retrieve_and_infer as retrieve_and_infer

_HOMES = {
    "vmselect.probe.inference": ("InferenceProbe", "probe_inference"),
    "vmselect.probe.transfer": ("clean_transfers", "probe_transfer"),
    "vmselect.ranking.estimates": ("Transfer",),
    "vmselect.serving.autoscaling": ("simulate_day",),
    "vmselect.serving.availability": ("Downtime",),
    "vmselect.serving.bill": ("Bill",),
    "vmselect.serving.rank": ("rank_inference", "retrieve_and_infer"),
}
__all__, __getattr__ = load_on_use(__name__, _HOMES)
