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
        for one in machine_estimates:
            same = [record for record in self.records if record.instance_type == one.instance_type]
            mine = [record for record in same if not one.provider or record.provider in (None, one.provider)]
            found = {
                "data_in": self._seconds(self.data_gb, mine, "download"),
                "model_out": self._seconds(self.model_gb, mine, "upload"),
            }
            missing = [name.replace("_", " ") for name, taken in found.items() if taken is None]
            if missing:
                reason = f"no transfer record of {one.instance_type} contains the time of {' and '.join(missing)}"
                excluded.append(
                    Excluded(one.title, "no_transfer", f"{reason}; run vmselect.serving.probe_transfer on this machine")
                )
            else:
                charged.append(self._add(one, {name: taken for name, taken in found.items() if taken}, mine))
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
        seen = (max(rates) - min(rates)) / 2 * size_gb * MB_PER_GB
        return seconds, max(seen, SPREAD * seconds)

    def _add(
        self, one: MachineEstimate, found: Mapping[str, tuple[float, float]], records: Sequence[TransferRecord]
    ) -> MachineEstimate:
        runtime = one.runtime
        square = math.fsum(width**2 for _, width in found.values())
        low, high = ((side[0] + square, side[1], side[2]) for side in (runtime.low, runtime.high))
        terms = {name: (seconds, 0.0) for name, (seconds, _) in found.items()}
        longer = replace(runtime, terms={**runtime.terms, **terms}, low=low, high=high)
        usd_per_gb = self.usd_per_gb
        if usd_per_gb is None:
            paid = [r.egress_usd_per_gb for r in records if r.setup.store is None or r.setup.store != one.provider]
            usd_per_gb = max((price for price in paid if price is not None), default=0.0)
        return replace(one, runtime=longer, moving_usd=self.data_gb * usd_per_gb)
