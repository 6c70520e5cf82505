"""Data moved to a store and back, over fsspec: content verified, everything removed."""

from vmselect.probe.transfer.marker import clean_transfers
from vmselect.probe.transfer.probe import TransferPlan, plan_transfer, probe_transfer

__all__ = ["TransferPlan", "clean_transfers", "plan_transfer", "probe_transfer"]
