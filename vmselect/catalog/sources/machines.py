"""What the machines are that a price API only names: taken from the tables that ship."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd

from vmselect.catalog.offer import FACTS, NUMBER_LIMITS
from vmselect.catalog.snapshots import newest_prices, unpriced
from vmselect.catalog.sources import Row


@functools.cache
def known_machines(provider: str) -> dict[str, Row]:
    """Facts (vCPUs, memory, GPU, retired or not) of every type of ``provider`` that we know, by name."""
    rows = pd.concat([newest_prices(), unpriced().assign(retired=False)])
    rows = rows[rows["provider"] == provider].drop_duplicates("instance_type")
    machines = {}
    for row in rows.to_dict("records"):
        facts = {c: row[c] for c in FACTS if c not in NUMBER_LIMITS or not np.isnan(row[c])}
        # Price lists still name types that can no longer be rented.
        machines[str(row["instance_type"])] = {**facts, "retired": bool(row["retired"])}
    return machines
