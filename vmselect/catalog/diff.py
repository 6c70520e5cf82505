"""What changed between two catalogs: new, gone, higher and lower prices."""

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
    >>> changes.loc[changes["change"] == "higher", "instance_type"].tolist()
    ['ml.p3.2xlarge']
    """
    for name, given in (("old", old), ("new", new)):
        if not isinstance(given, Catalog):
            raise ArgumentError(f"{name} must be a Catalog, not {show(given)}. Read a file with Catalog.load first.")
    columns = [*KEY, "usd_per_hour", "date"]
    texts = dict.fromkeys((*KEY, "date"), str)
    before = old.offers(market=None)[[*columns, "retired"]].astype(texts)
    after = new.offers(market=None)[columns].astype(texts)
    scopes = pd.MultiIndex.from_frame(after[list(_SCOPE)])
    before = before[pd.MultiIndex.from_frame(before[list(_SCOPE)]).isin(scopes)]
    before = before.rename(columns={"usd_per_hour": "old_usd_per_hour", "date": "old_date"})
    after = after.rename(columns={"usd_per_hour": "new_usd_per_hour", "date": "new_date"})
    both = pd.merge(before, after, on=list(KEY), how="outer")
    was, now = both["old_usd_per_hour"], both["new_usd_per_hour"]
    both["change"] = np.select(
        [was.isna(), now.isna(), now > was, now < was], ["new", "gone", "higher", "lower"], "same"
    )
    both["percent"] = (now / was - 1) * 100
    gone_before = (both["change"] == "gone") & both["retired"].eq(True)
    both = both[(both["change"] != "same") & ~gone_before]
    both = both.assign(size=both["percent"].abs().fillna(-1))
    order = both.sort_values(["size", *KEY], ascending=[False, *[True] * len(KEY)])
    return order[list(COLUMNS)].reset_index(drop=True)
