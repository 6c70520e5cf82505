"""Prices per GPU-hour: the cheapest offers of each GPU model."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from vmselect.catalog.gpus import nominal_memory_gib
from vmselect.catalog.offer import ACCELERATOR_SERVICE

SUMMARIZED = {"on_demand": "", "spot": "spot_"}
"""Markets of :func:`summarize_gpus`, and the prefix of the names of their columns."""
OFFER = ("provider", "region", "instance_type")
COLUMNS = (
    "gpu_model", "gpu_memory_gib", "providers", "usd_per_gpu_hour", *OFFER, "spot_usd_per_gpu_hour",
    *(f"spot_{name}" for name in OFFER),
)  # fmt: skip
"""Columns of :func:`summarize_gpus`."""


def per_gpu_hour(offers: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Return the price of one whole GPU for an hour of each of the ``offers``; NaN if an offer has no GPU."""
    count = offers["gpu_count"].to_numpy(dtype=float)
    each = np.full(len(offers), np.nan)
    np.divide(offers["usd_per_hour"].to_numpy(dtype=float), count, out=each, where=count > 0)
    return each


def order_by_gpu(offers: pd.DataFrame) -> pd.DataFrame:
    """Return the ``offers`` by price per GPU-hour, then by price, provider, region and instance type."""
    texts = [offers[name].astype(str).to_numpy() for name in ("instance_type", "region", "provider")]
    # Rounded, because 9.87 / 3 is not 3.29.
    keys = [*texts, offers["usd_per_hour"].to_numpy(), per_gpu_hour(offers).round(9)]
    return offers.iloc[np.lexsort(keys)].reset_index(drop=True)


def summarize_gpus(offers: pd.DataFrame) -> pd.DataFrame:
    """Return a row per GPU model with its cheapest offer per GPU-hour, on demand and spot, in alphabetical order.

    ``providers`` is the number of providers with an offer. The memory is the nominal one, or else that of an offer. An
    accelerator without its host is no offer.
    """
    priced = offers["market"].isin(list(SUMMARIZED)) & (offers["service"] != ACCELERATOR_SERVICE)
    rows = offers[(offers["gpu_count"] > 0) & (offers["gpu_model"] != "") & priced]
    rows = order_by_gpu(rows).assign(usd_per_gpu_hour=lambda table: per_gpu_hour(table))
    rows = rows.astype(dict.fromkeys(("gpu_model", *OFFER, "market"), str))
    summary = rows.groupby("gpu_model").agg(providers=("provider", "nunique"), offered_gib=("gpu_memory_gib", "max"))
    for market, prefix in SUMMARIZED.items():
        first = rows[rows["market"] == market].drop_duplicates("gpu_model").set_index("gpu_model")
        summary = summary.join(first[["usd_per_gpu_hour", *OFFER]].add_prefix(prefix))
    summary = summary.reset_index()
    nominal = [nominal_memory_gib(model) for model in summary["gpu_model"]]
    summary["gpu_memory_gib"] = pd.Series(nominal, dtype=float).fillna(summary["offered_gib"])
    order = summary["gpu_model"].str.casefold().argsort()
    return summary.iloc[order][list(COLUMNS)].reset_index(drop=True)
