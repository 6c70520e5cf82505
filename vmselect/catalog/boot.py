"""Boot times: seconds from the request of a machine to its first command, as measured by others."""

from __future__ import annotations

import csv
import functools
from typing import NamedTuple

from vmselect._io import pricing_folder
from vmselect.units import format_seconds


class BootTime(NamedTuple):
    """Median and 90th percentile of the boot times of a provider, and the number of measured starts."""

    median_seconds: float
    p90_seconds: float
    starts: int
    source: str

    def __str__(self) -> str:
        return (
            f"{format_seconds(self.median_seconds)} (median of {self.starts:,} starts; nine of ten within "
            f"{format_seconds(self.p90_seconds)}; {self.source})"
        )


def boot_time(provider: str, *, gpu: bool = True) -> BootTime | None:
    """Return the boot time of machines of ``provider`` with or without a GPU; None if it was not measured.

    >>> boot_time("gcp").median_seconds, boot_time("my-cluster")
    (53.0, None)
    """
    return _boot_times().get((provider, "gpu" if gpu else "cpu"))


@functools.cache
def _boot_times() -> dict[tuple[str, str], BootTime]:
    with (pricing_folder() / "boot-times.csv").open(encoding="utf-8", newline="") as lines:
        return {
            (row["provider"], row["machine"]): BootTime(
                float(row["median_seconds"]), float(row["p90_seconds"]), int(row["starts"]), row["source"]
            )
            for row in csv.DictReader(lines)
        }
