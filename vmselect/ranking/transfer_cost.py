"""Time and cost of moving the data to the machine and the model away from it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vmselect._checks import check_number, maybe
from vmselect.ranking.estimates import MachineEstimate
from vmselect.ranking.rows import Excluded
from vmselect.records.identity import read_records
from vmselect.records.transfer import TransferRecord

MB_PER_GB = 1_000
SPREAD = 0.2
"""Minimum relative half-width of the interval of a transfer time, because networks are shared."""


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """Data to move to and from each machine; the speed comes from transfer records or from seconds per megabyte.

    Args:
        data_gb: gigabytes to move from a store to the machine.
        model_gb: gigabytes to move from the machine to a store.
        records: transfer records; each applies to machines of its instance type.
        download_seconds_per_mb: seconds per megabyte from the store, for machines without a transfer record.
        upload_seconds_per_mb: seconds per megabyte to the store, for machines without a transfer record.
        usd_per_gb: price per gigabyte that leaves the store. Default: the price in the records, or 0 if store and
            machine are in the same cloud.
    """

    data_gb: float = 0.0
    model_gb: float = 0.0
    records: Sequence[TransferRecord] = field(default=(), repr=False)
    download_seconds_per_mb: float | None = None
    upload_seconds_per_mb: float | None = None
    usd_per_gb: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "records", tuple(read_records(self.records, TransferRecord, error=None)))
        for name in ("data_gb", "model_gb"):
            object.__setattr__(self, name, check_number(name, getattr(self, name), least=0, most=1e9))
        for name in ("download_seconds_per_mb", "upload_seconds_per_mb", "usd_per_gb"):
            object.__setattr__(self, name, maybe(check_number, name, getattr(self, name), least=0))

    def charge(self, machine_estimates: Iterable[MachineEstimate]) -> tuple[list[MachineEstimate], list[Excluded]]:
        """Machine estimates with time and cost of the transfer added, and those whose transfer time is unknown."""
        charged: list[MachineEstimate] = []
        excluded: list[Excluded] = []
        for estimate in machine_estimates:
            provider = estimate.provider
            # Two providers may use one name; a record or an estimate without a provider may be of either.
            records = [
                record
                for record in self.records
                if record.instance_type == estimate.instance_type
                and (not provider or record.provider in (None, provider))
            ]
            durations = {
                "data_in": self._seconds(self.data_gb, records, "download"),
                "model_out": self._seconds(self.model_gb, records, "upload"),
            }
            missing = [name.replace("_", " ") for name, duration in durations.items() if duration is None]
            if missing:
                reason = f"no transfer record of {estimate.instance_type} contains the time of {' and '.join(missing)}"
                remedy = "run vmselect.serving.probe_transfer on this machine"
                excluded.append(Excluded(estimate.title, "no_transfer", f"{reason}; {remedy}"))
            else:
                measured = {name: duration for name, duration in durations.items() if duration}
                charged.append(self._add(estimate, measured, records))
        return charged, excluded

    def _seconds(self, size_gb: float, records: Sequence[TransferRecord], way: str) -> tuple[float, float] | None:
        """Seconds to move ``size_gb`` gigabytes, and their half-width; None if the speed is not known.

        ``way`` is ``download`` or ``upload``.
        """
        if not size_gb:
            return 0.0, 0.0
        name = f"{way}_seconds_per_mb"
        rates = [rate for record in records if (rate := getattr(record, name)) is not None] or [getattr(self, name)]
        if None in rates:
            return None
        seconds = statistics.fmean(rates) * size_gb * MB_PER_GB
        # Half of the range of few records; a single record says nothing about the spread.
        seen = (max(rates) - min(rates)) / 2 * size_gb * MB_PER_GB
        return seconds, max(seen, SPREAD * seconds)

    def _add(
        self,
        estimate: MachineEstimate,
        durations: Mapping[str, tuple[float, float]],
        records: Sequence[TransferRecord],
    ) -> MachineEstimate:
        """``estimate`` with the ``durations`` (seconds and half-widths by name) and the egress price of the data."""
        runtime = estimate.runtime
        # Transfers happen once, so their squared half-widths add to the constant term of the closed form.
        square = math.fsum(width**2 for _, width in durations.values())
        low, high = ((side[0] + square, side[1], side[2]) for side in (runtime.low, runtime.high))
        terms = {name: (seconds, 0.0) for name, (seconds, _) in durations.items()}
        longer = replace(runtime, terms={**runtime.terms, **terms}, low=low, high=high)
        usd_per_gb = self.usd_per_gb
        if usd_per_gb is None:
            # Data that stays within a cloud costs nothing. Of several prices, the highest is the safe one.
            paid = [
                record.egress_usd_per_gb
                for record in records
                if record.setup.store is None or record.setup.store != estimate.provider
            ]
            usd_per_gb = max((price for price in paid if price is not None), default=0.0)
        return replace(estimate, runtime=longer, moving_usd=self.data_gb * usd_per_gb)
