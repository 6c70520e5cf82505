"""What renting the best machine means beyond its price per hour.

That is what its price does not say, commitments, and the time until it has booted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vmselect.catalog.boot import boot_time
from vmselect.catalog.commitments import TERMS, Commitment
from vmselect.catalog.guards import SUSPICIOUS, describe_flags
from vmselect.catalog.offer import KEY
from vmselect.findings import Finding
from vmselect.units import format_usd

if TYPE_CHECKING:
    import pandas as pd

    from vmselect.catalog import Catalog
    from vmselect.ranking.result import Ranking

LONG_BOOT = 0.05
"""Share of the time of a training from which on the 90th percentile of boot times is named. Chosen by judgement."""


def describe_commitment(commitment: Commitment) -> Finding:
    """Finding about a candidate whose price is that of a commitment, which is paid for its whole term."""
    term = TERMS[commitment.market]
    message = f"The price is that of a commitment of {term}, which is paid for every hour, used or not."
    if not commitment.pays:
        return Finding("commitment", message, "On demand costs less, whatever the use.")
    remedy = f"It is cheaper than on demand from {commitment.hours_per_month:.0f} hours of use a month on."
    return Finding("commitment", message, remedy)


def renting_findings(ranking: Ranking) -> list[Finding]:
    """Findings about the best candidate: its price, from which use on a commitment is cheaper, and a long boot time."""
    candidates, column = ranking.candidates, ranking.deciding_column
    best = int(ranking.assessment.order[column][0])
    row = ranking.best
    findings = _describe_price(ranking.inputs.catalog, candidates.offers.iloc[int(candidates.offer[best])])
    commitments = [commitment for commitment in candidates.commitments(best) if commitment.pays]
    if commitments and row.market == "on_demand":
        findings.append(_describe_break_even(commitments))
    boot = boot_time(row.provider, gpu=bool(row.gpu_count))
    if boot is not None and "boot" not in row.terms and boot.p90_seconds > LONG_BOOT * row.seconds:
        message = f"Times do not contain booting. A machine of {row.provider} takes {boot}."
        remedy = f"Pass boot_seconds={boot.median_seconds:g} (--boot-seconds) to add it."
        findings.append(Finding("boot-excluded", message, remedy, "info"))
    return findings


def _describe_price(catalog: Catalog | None, offer: pd.Series) -> list[Finding]:
    """Findings about a price that is ranked, but says less than it seems to, such as one price in every region."""
    if catalog is None:
        return []
    flags = catalog.unrestricted.check()
    here = ~flags["flag"].isin(SUSPICIOUS)  # findings of the ranking name those
    for name in KEY:
        here &= flags[name] == str(offer[name])
    return describe_flags(flags[here])


def _describe_break_even(commitments: Sequence[Commitment]) -> Finding:
    parts = [
        f"{TERMS[commitment.market]} reserved ({format_usd(commitment.usd_per_hour)} an hour) from "
        f"{commitment.hours_per_month:.0f} hours a month on"
        for commitment in sorted(commitments, key=lambda commitment: commitment.market)
    ]
    price = format_usd(commitments[0].on_demand_usd_per_hour)
    message = f"Instead of {price} an hour on demand, a commitment is cheaper: {'; '.join(parts)}."
    return Finding("break-even", message, "Commit only if you use the machine that much for the whole term.", "info")
