"""What changed between two catalogs: new, gone, dearer, cheaper."""

from __future__ import annotations

import numpy as np
import pandas as pd

from vmselect._checks import show
from vmselect.catalog.catalog import Catalog
from vmselect.catalog.schema import KEY
from vmselect.errors import ArgumentError

COLUMNS = ("change", *KEY, "old_usd_per_hour", "new_usd_per_hour", "percent", "old_date", "new_date")
_SCOPE = ("provider", "service", "region", "market")


def compare_prices(old: Catalog, new: Catalog) -> pd.DataFrame:
    """A row per price that differs, in the columns of :data:`COLUMNS`, the largest change first.

    A price is gone only where ``new`` covers the same provider, service, region and market; a retired type is not
    gone again.

    >>> then, now = Catalog.embedded("2021-02-28"), Catalog.embedded("2026-08-22")
    >>> changes = compare_prices(then, now)
    >>> changes.loc[changes["change"] == "dearer", "instance_type"].tolist()
    ['ml.p3.2xlarge']
    """
    for name, given in (("old", old), ("new", new)):
        if not isinstance(given, Catalog):
            raise ArgumentError(f"{name} must be a Catalog, not {show(given)}. Read a file with Catalog.load first.")
    before = old.offers(market=None)
    after = new.offers(market=None)
    scopes = set(map(tuple, after[list(_SCOPE)].astype(str).drop_duplicates().to_numpy()))
    covered = [scope in scopes for scope in map(tuple, before[list(_SCOPE)].astype(str).to_numpy())]
    before = before[np.array(covered, dtype=bool)]
    both = pd.merge(
        before[[*KEY, "usd_per_hour", "date", "retired"]].astype(dict.fromkeys((*KEY, "date"), str)),
        after[[*KEY, "usd_per_hour", "date"]].astype(dict.fromkeys((*KEY, "date"), str)),
        on=list(KEY),
        how="outer",
        suffixes=("_old", "_new"),
    )
    was, now = both["usd_per_hour_old"], both["usd_per_hour_new"]
    both["change"] = np.select(
        [was.isna(), now.isna(), now > was, now < was], ["new", "gone", "dearer", "cheaper"], "same"
    )
    both["percent"] = (now / was - 1) * 100
    gone_before = (both["change"] == "gone") & both["retired"].eq(True)
    both = both[(both["change"] != "same") & ~gone_before]
    both = both.rename(
        columns={
            "usd_per_hour_old": "old_usd_per_hour",
            "usd_per_hour_new": "new_usd_per_hour",
            "date_old": "old_date",
            "date_new": "new_date",
        }
    )
    size = both["percent"].abs().fillna(-1)
    return (
        both.assign(size=size)
        .sort_values(["size", *KEY], ascending=[False, *[True] * len(KEY)])[list(COLUMNS)]
        .reset_index(drop=True)
    )
