"""What the machines are that a price API only names: taken from the newest embedded snapshot."""

from __future__ import annotations

import functools

import numpy as np

from vmselect.catalog.schema import FACTS, NUMBER_LIMITS
from vmselect.catalog.snapshot import read_snapshot, snapshot_at
from vmselect.catalog.sources import Row


@functools.cache
def known_machines(provider: str) -> dict[str, Row]:
    """Facts (vCPUs, memory, GPU, retired or not) of every type of ``provider`` in the embedded snapshot, by name."""
    rows = read_snapshot(snapshot_at().file)
    rows = rows[rows["provider"] == provider].drop_duplicates("instance_type")
    machines = {}
    for row in rows.to_dict("records"):
        facts = {c: row[c] for c in FACTS if c not in NUMBER_LIMITS or not np.isnan(row[c])}
        # Price lists go on listing what nobody can rent any more.
        machines[str(row["instance_type"])] = {**facts, "retired": bool(row["retired"])}
    return machines
