"""Break-even hours of commitments: from which use on a reserved machine is cheaper than one on demand.

A commitment is paid for every hour of its term, used or not. So it is cheaper if the machine is used for more than the
share of the hours of a month that its price is of the price on demand.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from vmselect.catalog.interruptions import HOURS_PER_MONTH

TERMS = {"reserved_1y": "one year", "reserved_3y": "three years"}
"""Markets with a commitment, and its term."""
_OFFER = ("provider", "service", "instance_type", "region")
COMMITMENT_COLUMNS = (*_OFFER, "market", "usd_per_hour", "on_demand_usd_per_hour", "hours_per_month")


class Commitment(NamedTuple):
    """A commitment: its price per hour of the whole term, and the use in hours a month from which on it is cheaper."""

    market: str
    usd_per_hour: float
    on_demand_usd_per_hour: float

    @property
    def hours_per_month(self) -> float:
        """Hours of use a month from which on the commitment is cheaper than on demand.

        >>> round(Commitment("reserved_1y", 0.6, 1.0).hours_per_month)
        438
        """
        return HOURS_PER_MONTH * self.usd_per_hour / self.on_demand_usd_per_hour

    @property
    def pays(self) -> bool:
        """Whether the commitment is cheaper if the machine is always used."""
        return self.usd_per_hour < self.on_demand_usd_per_hour


def find_commitments(offers: pd.DataFrame) -> dict[int, tuple[Commitment, ...]]:
    """Commitments by the position of their offer, and of the on-demand offer of the same machine."""
    reserved = np.flatnonzero(offers["market"].isin(list(TERMS)))
    on_demand = np.flatnonzero(offers["market"] == "on_demand")
    if not len(reserved) or not len(on_demand):
        return {}
    names = pd.MultiIndex.from_frame(offers[list(_OFFER)].astype(str))
    place = names[on_demand].get_indexer(names[reserved])
    price, market = offers["usd_per_hour"].to_numpy(dtype=float), offers["market"].astype(str).to_numpy()
    commitments: dict[int, tuple[Commitment, ...]] = {}
    for row, at in zip(reserved.tolist(), place.tolist(), strict=True):
        if at >= 0:
            beside = int(on_demand[at])
            commitment = Commitment(str(market[row]), float(price[row]), float(price[beside]))
            commitments[row] = (commitment,)
            commitments[beside] = (*commitments.get(beside, ()), commitment)
    return commitments


def list_commitments(offers: pd.DataFrame) -> pd.DataFrame:
    """Return the reserved ``offers`` with an on-demand price, with their break-even hours a month, lowest first."""
    rows = [
        (*(str(offers[name].iloc[row]) for name in _OFFER), *commitment, commitment.hours_per_month)
        for row, (commitment, *_) in find_commitments(offers).items()
        if str(offers["market"].iloc[row]) in TERMS
    ]
    table = pd.DataFrame(rows, columns=list(COMMITMENT_COLUMNS))
    return table.sort_values(["hours_per_month", *_OFFER], kind="stable", ignore_index=True)
