"""Prices of VM types: dated prices that ship with vmselect, prices fetched on request, and the user's own prices."""

from vmselect.catalog.boot import BootTime, boot_time
from vmselect.catalog.catalog import Catalog, compare_prices
from vmselect.catalog.gpus import fold_gpu, gpu_specs
from vmselect.catalog.offer import (
    COLUMNS,
    KEY,
    MARKETS,
    OLD_AFTER_DAYS,
    SERVICES,
    Offer,
    describe_age,
    describe_nearest,
    find_nearest,
    name_in_service,
)
from vmselect.catalog.shipped import ProviderTerms, describe_unpriced, last_sold, provider_terms

__all__ = [
    "COLUMNS",
    "KEY",
    "MARKETS",
    "OLD_AFTER_DAYS",
    "SERVICES",
    "BootTime",
    "Catalog",
    "Offer",
    "ProviderTerms",
    "boot_time",
    "compare_prices",
    "describe_age",
    "describe_nearest",
    "describe_unpriced",
    "find_nearest",
    "fold_gpu",
    "gpu_specs",
    "last_sold",
    "name_in_service",
    "provider_terms",
]
