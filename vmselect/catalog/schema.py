"""The columns of a price row and what each may hold.

One row is one price: a VM type of a provider, in a region, in a market, on a day. The same rules check a
single :class:`~vmselect.catalog.Offer` and a file of a million rows.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterable
from difflib import get_close_matches

SCHEMA_VERSION = 1

MARKETS = ("on_demand", "spot", "reserved_1y", "reserved_3y")

# The order of the columns in files and in DataFrames.
COLUMNS = (
    "provider",
    "service",
    "instance_type",
    "region",
    "market",
    "usd_per_hour",
    "date",
    "vcpus",
    "memory_gib",
    "gpu_model",
    "gpu_count",
    "gpu_memory_gib",
    "retired",
    "source",
    "note",
)
KEY = ("provider", "service", "instance_type", "region", "market")
REQUIRED = ("provider", "instance_type", "region", "market", "usd_per_hour")
# What a machine is, as opposed to what it costs.
FACTS = ("vcpus", "memory_gib", "gpu_model", "gpu_count", "gpu_memory_gib")

# column: (lowest, highest) allowed, in the unit of the column's name.
NUMBER_LIMITS: dict[str, tuple[float, float]] = {
    "usd_per_hour": (1e-6, 100_000.0),
    "vcpus": (0.0, 100_000.0),
    "memory_gib": (0.0, 1_000_000.0),
    "gpu_count": (0.0, 100_000.0),
    "gpu_memory_gib": (0.0, 10_000.0),
}
TEXT_COLUMNS = tuple(c for c in COLUMNS if c not in NUMBER_LIMITS)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
# Oracle's types hold a dollar sign, and some marketplaces name a region as people do: "Texas, US".
_PLACE = re.compile(r"[^\W_][\w .,:$()+-]{0,127}")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+:/()-]{0,127}")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_DEFAULT_SERVICE = {"aws": "ec2", "azure": "vm", "gcp": "gce"}


def default_service(provider: str, instance_type: str) -> str:
    """The service that sells ``instance_type`` when a row names none.

    >>> default_service("aws", "ml.g5.xlarge"), default_service("gcp", "a2-highgpu-1g"), default_service("lab", "x")
    ('sagemaker', 'gce', 'vm')
    """
    if provider == "aws" and instance_type.startswith("ml."):
        return "sagemaker"
    return _DEFAULT_SERVICE.get(provider, "vm")


def describe_bad_text(column: str, value: str) -> str | None:
    """Why ``value`` cannot stand in the text ``column``, or None when it can.

    >>> describe_bad_text("market", "ondemand")
    "market 'ondemand' is not one of on_demand, spot, reserved_1y, reserved_3y"
    >>> describe_bad_text("note", "=cmd()")
    "note '=cmd()' starts like a spreadsheet formula; put a letter first"
    """
    shown = repr(value if len(value) <= 40 else value[:37] + "...")
    if value.startswith(_FORMULA_STARTS):
        return f"{column} {shown} starts like a spreadsheet formula; put a letter first"
    if column == "market":
        return None if value in MARKETS else f"market {shown} is not one of {', '.join(MARKETS)}"
    if column == "date":
        return None if is_iso_date(value) else f"date {shown} is not a day written as 2026-08-22"
    if column == "retired":
        return None if value in ("yes", "no", "") else f"retired {shown} is neither yes nor no"
    if column == "note":
        fine = len(value) <= 300 and value.isprintable()
        return None if fine else f"note {shown} is longer than 300 characters or holds control characters"
    if value == "":
        return f"{column} is empty" if column in REQUIRED else None
    pattern, signs = _NAME, ". _ + -"
    if column in ("instance_type", "region"):
        pattern, signs = _PLACE, ". _ + - , : $ ( )"
    elif column in ("gpu_model", "source"):
        pattern, signs = _LABEL, ". _ + - : / ( )"
    if not pattern.fullmatch(value):
        return f"{column} {shown} may hold only letters, digits and {signs} and must start with a letter or digit"
    return None


def describe_bad_number(column: str, value: float) -> str | None:
    """Why ``value`` cannot stand in the number ``column``, or None when it can; NaN means unknown.

    >>> describe_bad_number("usd_per_hour", -3.0)
    'usd_per_hour -3 is outside 1e-06 to 100000'
    """
    lowest, highest = NUMBER_LIMITS[column]
    if math.isnan(value):
        return f"{column} is missing" if column in REQUIRED else None
    if not lowest <= value <= highest:
        return f"{column} {value:g} is outside {lowest:g} to {highest:g}"
    return None


def describe_nearest(name: str, known: Iterable[str]) -> str:
    """The known names that ``name`` may have been meant to be, else some of those there are.

    >>> describe_nearest("US-EST-1", ["us-east-1", "eastus", "mars"])
    'Nearest: us-east-1.'
    """
    by_lower = {k.lower(): k for k in known if k}
    near = [by_lower[n] for n in get_close_matches(name.lower(), list(by_lower), n=3, cutoff=0.6)]
    return f"Nearest: {', '.join(near)}." if near else f"Known: {', '.join(sorted(by_lower.values())[:12])}."


_GPU_NAMES = {
    "gaudi hl-205": "Gaudi",
    "radeon mi25": "MI25",
    "radeon pro v520": "Radeon-Pro-V520",
    "rtx-pro-6000": "RTX-PRO-6000",
    "rtxpro6000": "RTX-PRO-6000",
    "t4g": "T4G",
    "v520": "Radeon-Pro-V520",
}
# The sizes of one model differ in their memory.
_GPU_SIZES_GIB: dict[tuple[str, float], str] = {("A100", 80): "A100-80GB", ("V100", 32): "V100-32GB"}


def name_gpu(name: str, memory_gib: float | None = None) -> str:
    """A GPU or accelerator as our table spells it; a name unknown there stays as it is.

    >>> name_gpu("Radeon Pro V520"), name_gpu("A100", 80)
    ('Radeon-Pro-V520', 'A100-80GB')
    """
    known = _GPU_NAMES.get(name.lower(), name.replace(" ", "-"))
    return known if memory_gib is None else _GPU_SIZES_GIB.get((known, memory_gib), known)


MEANT = {
    **dict.fromkeys(("price", "usd", "cost", "price_per_hour", "hourly", "hourly_price", "price_usd"), "usd_per_hour"),
    **dict.fromkeys(("type", "machine", "machine_type", "vm", "vm_type", "name", "instance"), "instance_type"),
    **dict.fromkeys(("cloud", "vendor"), "provider"),
    **dict.fromkeys(("location", "zone"), "region"),
    **dict.fromkeys(("gpu", "accelerator"), "gpu_model"),
}
"""Common names for a column that its spelling alone would not match."""


def describe_column(name: object) -> str:
    """The column that ``name`` was probably meant to be, else all there are."""
    near = MEANT.get(str(name).strip().lower()) or next(iter(get_close_matches(str(name), COLUMNS, n=1)), None)
    return f"Did you mean {near!r}?" if near else f"The columns are {', '.join(COLUMNS)}."


def is_iso_date(text: str) -> bool:
    """Whether ``text`` is a day written as 2026-08-22."""
    try:
        return dt.date.fromisoformat(text).isoformat() == text  # a week, 2026-W34-6, is ISO too
    except ValueError:
        return False
