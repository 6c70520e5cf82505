"""Offers: the one definition of a price row, and tables of validated rows.

A row is the price of a provider's VM type in a region and a market on a date. The fields of :class:`Offer` are the
columns of price files and DataFrames; their :class:`Column` has the rules for values. The same rules validate a single
offer and a table: a table checks each distinct value of a column once, because prices repeat few names.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from vmselect._checks import list_items, show
from vmselect.catalog import age
from vmselect.catalog.gpus import spell_gpu
from vmselect.errors import ArgumentError, CatalogError
from vmselect.findings import Finding
from vmselect.units import format_count

SCHEMA_VERSION = 1
MARKETS = ("on_demand", "spot", "reserved_1y", "reserved_3y")
OLD_AFTER_DAYS = 90
"""Age in days from which a finding names the age of prices."""
SHOWN_PROBLEMS = 5

_SERVICE_IF_OMITTED = "`ec2` for aws (`sagemaker` for types that begin with `ml.`), `gce` for gcp, else `vm`"
_DATE_IF_OMITTED = "the day the file was last changed; today in `with_offers`"
Kind = Literal["name", "place", "label", "note", "market", "date", "flag", "number"]

# Characters of each kind of text, and how a message lists the signs among them. Names of machines and regions become
# parts of commands and file names, so they must not contain slashes, quotes or line breaks.
_PATTERNS: dict[str, tuple[str, str]] = {
    "name": (r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}", ". _ + -"),
    # Oracle's types contain a dollar sign, and some marketplaces have regions such as "Texas, US".
    "place": (r"[^\W_][\w .,:$()+-]{0,127}", ". _ + - , : $ ( )"),
    "label": (r"[A-Za-z0-9][A-Za-z0-9 ._+:/()-]{0,127}", ". _ + - : / ( )"),
}
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
# Texts that Python accepts as numbers, such as "inf", "1_000" and "True", are not prices.
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)


@dataclass(frozen=True)
class Column:
    """The rules for the values of one column, and its documentation."""

    kind: Kind
    about: str
    omitted: str = "required"
    limits: tuple[float, float] = (0.0, 0.0)
    """Lowest and highest number, in the unit that the name of the column states."""

    @property
    def required(self) -> bool:
        """Whether each row must have a value."""
        return self.omitted.startswith("required")

    def find_problem(self, name: str, text: str) -> str | None:
        """Return the reason why ``text`` is invalid in this column, called ``name``; None if it is valid."""
        if text == "":
            missing = "missing" if self.kind == "number" else "empty"
            return f"{name} is {missing}" if self.required else None
        if not (reason := self._find_fault(text)):
            return None
        short = text if len(text) <= 40 else text[:37] + "..."
        return f"{name} {short if _NUMBER.fullmatch(short) else repr(short)} {reason}"

    def _find_fault(self, text: str) -> str | None:
        if self.kind == "number":
            lowest, highest = self.limits
            if not _NUMBER.fullmatch(text):
                return "is not a plain number"
            fits = lowest <= float(text) <= highest
            return None if fits else f"is not between {lowest:g} and {highest:g}"
        if text.startswith(_FORMULA_STARTS):
            return "begins like a formula of a spreadsheet; it must begin with a letter"
        if self.kind == "market":
            return None if text in MARKETS else f"is not one of {', '.join(MARKETS)}"
        if self.kind == "date":
            return None if is_iso_date(text) else "is not in the form 2026-08-22"
        if self.kind == "flag":
            return None if text in ("yes", "no") else "is neither yes nor no"
        if self.kind == "note":
            fits = len(text) <= 300 and text.isprintable()
            return None if fits else "is longer than 300 characters or contains control characters"
        pattern, signs = _PATTERNS[self.kind]
        if re.fullmatch(pattern, text):
            return None
        return f"may contain only letters, digits and {signs} and must start with a letter or digit"


class Offer(BaseModel):
    """The price of a provider's VM type in a region and a market, with its date.

    >>> offer = Offer(provider="aws", instance_type="g4dn.xlarge", region="us-east-1", market="on_demand",
    ...               usd_per_hour=0.41, date="2026-08-22")
    >>> offer.service, offer.source, offer.age_days(dt.date(2026, 9, 1))
    ('ec2', 'user', 10)

    ``None`` means unknown. ``gpu_count`` may be a fraction of a GPU. ``gpu_memory_gib`` is the memory of one GPU or of
    that fraction.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, defer_build=True)

    provider: Annotated[str, Column("name", "`aws`, `azure`, `gcp`, or your own name")]
    service: Annotated[str, Column("name", "`ec2`, `sagemaker`, `vm`, `gce`, or your own", _SERVICE_IF_OMITTED)] = ""
    instance_type: Annotated[str, Column("place", "the provider's name of the VM type, as in `n1-standard-4+1xT4`")]
    region: Annotated[str, Column("place", "the provider's name of the region")]
    market: Annotated[
        str, Column("market", ", ".join(f"`{name}`" for name in MARKETS), "required; `on_demand` in `with_offers`")
    ] = "on_demand"
    # A price of zero is a placeholder in every price list that was seen, and above 100,000 a price per year.
    usd_per_hour: Annotated[float, Column("number", "US dollars for one VM and hour", limits=(1e-6, 1e5))]
    date: Annotated[str, Column("date", "the day on which the price was seen, as `2026-08-22`", _DATE_IF_OMITTED)] = ""
    vcpus: Annotated[float | None, Column("number", "virtual CPUs", "unknown", (0, 1e5))] = None
    memory_gib: Annotated[float | None, Column("number", "memory of the VM in GiB", "unknown", (0, 1e6))] = None
    gpu_model: Annotated[str, Column("label", "a model of `gpu-specs.csv`, such as `T4`, or another", "unknown")] = ""
    gpu_count: Annotated[float | None, Column("number", "GPUs; 0 for none; 0.125 for a share", "unknown", (0, 1e5))] = (
        None
    )
    gpu_memory_gib: Annotated[
        float | None, Column("number", "memory of one GPU or of its share", "unknown", (0, 1e4))
    ] = None
    retired: Annotated[bool, Column("flag", "`yes` when the type can no longer be launched", "`no`")] = False
    source: Annotated[
        str, Column("label", "source of the price: `list price`, `aws API`, `skypilot`, ...", "`user`")
    ] = "user"
    note: Annotated[str, Column("note", "a remark, up to 300 characters", "empty")] = ""

    def __init__(self, **values: object) -> None:
        try:
            super().__init__(**values)
        except ValidationError as invalid:
            reasons = "; ".join(_describe_error(error["loc"], error["msg"]) for error in invalid.errors())
            raise CatalogError(f"The offer is invalid: {reasons}.") from invalid

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: object) -> object:
        if not isinstance(values, dict):
            return values
        values = dict(values)
        provider, instance_type = values.get("provider"), values.get("instance_type")
        if values.get("service") in (None, "") and isinstance(provider, str) and isinstance(instance_type, str):
            values["service"] = default_service(provider, instance_type)
        date = values.get("date")
        if date is None or isinstance(date, dt.date) or date == "":
            values["date"] = (check_day("date", date) if date else age.today()).isoformat()
        for name, column in SCHEMA.items():  # pydantic would read True as 1
            if column.kind == "number" and isinstance(values.get(name), bool | np.bool_):
                raise ValueError(f"{name} {values[name]} is not a number")
        return values

    @model_validator(mode="after")
    def _check(self) -> Offer:
        for name, column in SCHEMA.items():
            if reason := column.find_problem(name, _as_text(getattr(self, name))):
                raise ValueError(reason)
        return self

    def age_days(self, today: dt.date | None = None) -> int:
        """Return the days from the date of this price to ``today`` (default: the current date)."""
        return age_days(self.date, today)


SCHEMA: dict[str, Column] = {
    name: next(rule for rule in field.metadata if isinstance(rule, Column))
    for name, field in Offer.model_fields.items()
}
"""Name of each column, in the order of files and DataFrames, and its rules."""
COLUMNS = tuple(SCHEMA)
KEY = ("provider", "service", "instance_type", "region", "market")
"""Columns that identify a price: a catalog has at most one row for each combination."""
REQUIRED = tuple(name for name, column in SCHEMA.items() if column.required)
NUMBERS = tuple(name for name, column in SCHEMA.items() if column.kind == "number")
FACTS = ("vcpus", "memory_gib", "gpu_model", "gpu_count", "gpu_memory_gib")
"""Columns that describe the machine. A price without them inherits them from another price of the same machine."""
OWN_PRICE = f"Catalog.with_offers, or --own-prices with a CSV file that has the columns {', '.join(REQUIRED)}"
"""How to add a price, for messages."""


# -- services, names and dates -----------------------------------------------------------------------------------------

_DEFAULT_SERVICE = {"aws": "ec2", "azure": "vm", "gcp": "gce"}
SERVICES = ("ec2", "sagemaker")
"""Services of AWS that rent out the same machines. In the second, their names have the prefix ``ml.``."""
ACCELERATOR_SERVICE = "gce-accelerator"
"""Service of offers that price an accelerator of Google Cloud without the machine that it is attached to."""
PREFIXES = ("standard_", "basic_", "ml.")
"""Beginnings of instance type names that people often omit."""
MEANT = {
    **dict.fromkeys(("price", "usd", "cost", "price_per_hour", "hourly", "hourly_price", "price_usd"), "usd_per_hour"),
    **dict.fromkeys(("type", "machine", "machine_type", "vm", "vm_type", "name", "instance"), "instance_type"),
    **dict.fromkeys(("cloud", "vendor"), "provider"),
    **dict.fromkeys(("location", "zone"), "region"),
    **dict.fromkeys(("gpu", "accelerator"), "gpu_model"),
}
"""Maps other common names of columns, which are not spelled similarly, to the names of the columns."""


def default_service(provider: str, instance_type: str) -> str:
    """Return the service of ``provider`` that is assumed for ``instance_type`` in a row without a service."""
    if provider == "aws" and instance_type.startswith("ml."):
        return "sagemaker"
    return _DEFAULT_SERVICE.get(provider, "vm")


def name_in_service(instance_type: str, service: str) -> str:
    """Return the name that the AWS machine ``instance_type`` has in ``service``, one of :data:`SERVICES`.

    >>> name_in_service("p3.2xlarge", "sagemaker"), name_in_service("ml.p3.2xlarge", "ec2")
    ('ml.p3.2xlarge', 'p3.2xlarge')
    """
    plain = instance_type.removeprefix("ml.")
    return f"ml.{plain}" if service == "sagemaker" else plain


def find_nearest(name: str, names: Iterable[str]) -> list[str]:
    """Return those of ``names`` that are most similar to ``name``, the most similar first: at most three, or none.

    >>> find_nearest("g4dn.xlage", ["g4dn.xlarge", "Standard_NC6"]), find_nearest("my-pc", ["g4dn.xlarge"])
    (['g4dn.xlarge'], [])
    """
    by_lower = {candidate.lower(): candidate for candidate in names if candidate}
    for prefix in PREFIXES:
        if prefix + name.lower() in by_lower:
            return [by_lower[prefix + name.lower()]]
    return [by_lower[near] for near in get_close_matches(name.lower(), list(by_lower), n=3, cutoff=0.6)]


MOST_LISTED = 30
"""Largest number of names, such as those of all providers, that are listed if none is similar to a wrong one."""


def describe_nearest(name: str, names: Iterable[str]) -> str:
    """Return a sentence with the ``names`` most similar to ``name``, or with a few of its form if none is similar.

    >>> describe_nearest("NC6", ["Standard_NC6", "Standard_NC6s_v3", "p3.2xlarge"])
    'Did you mean Standard_NC6?'
    """
    listed = sorted({candidate for candidate in names if candidate})
    match find_nearest(name, listed):
        case [] if len(listed) <= MOST_LISTED:
            return f"Known names: {', '.join(listed)}."
        case []:
            form = _read_form(name)
            alike = [candidate for candidate in listed if form and _read_form(candidate) == form]
            alike.sort(key=lambda candidate: -SequenceMatcher(None, candidate.lower(), name.lower()).ratio())
            examples = f" Names of this form are {', '.join(alike[:3])}." if alike else ""
            return f"None of the {len(listed):,} known names is similar.{examples}"
        case [only]:
            return f"Did you mean {only}?"
        case several:
            return f"Similar names: {', '.join(several)}."


def _read_form(name: str) -> str:
    """The first separator in a name, which differs between providers; empty if there is none."""
    return next((letter for letter in name if letter in "._-"), "")


def describe_column(name: object) -> str:
    """Return a sentence with the column that ``name`` probably means, or with all columns if none is similar."""
    near = MEANT.get(str(name).strip().lower()) or next(iter(get_close_matches(str(name), COLUMNS, n=1)), None)
    return f"Did you mean {near!r}?" if near else f"The columns are {', '.join(COLUMNS)}."


def is_iso_date(text: str) -> bool:
    """Return whether ``text`` is a date in the form 2026-08-22."""
    try:
        return dt.date.fromisoformat(text).isoformat() == text  # a week, 2026-W34-6, is ISO too
    except ValueError:
        return False


def check_day(name: str, value: object) -> dt.date:
    """Convert a date, a datetime, or a text such as 2026-08-22 to a date. ``name`` is its name in error messages."""
    if isinstance(value, dt.datetime) and value == value:  # pandas' NaT is a datetime, but not equal to itself
        return value.date()
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    if not isinstance(value, str) or not is_iso_date(value):
        raise ArgumentError(f"{name} {show(value)} is not a date. Give a date such as 2026-08-22.")
    return dt.date.fromisoformat(value)


def age_days(date: str, today: dt.date | None = None) -> int:
    """Return the days from ``date`` to ``today`` (default: the current date)."""
    now = age.today() if today is None else check_day("today", today)
    return (now - check_day("date", date)).days


def describe_age(dates: Iterable[str], *, today: dt.date | None = None) -> Finding | None:
    """Return a finding if prices of these ``dates`` are older than 90 days or have different dates, else None.

    >>> describe_age(["2026-08-22"], today=dt.date(2026, 9, 1)) is None
    True
    >>> print(describe_age(["2021-02-01", "2026-08-22"], today=dt.date(2026, 9, 1)))
    Prices have different dates, 2021-02-01 to 2026-08-22; the oldest is 2038 days old. Run `vmselect prices refresh`.
    """
    listed = [dates] if isinstance(dates, str) else list_items(dates)
    days = sorted({check_day("a date", date).isoformat() for date in listed})
    if not days:
        return None
    days_old = age_days(days[0], today)
    old = days_old > OLD_AFTER_DAYS
    if not old and len(days) == 1:
        return None
    message = f"Prices are from {days[0]}, {days_old} days ago."
    if len(days) > 1:
        message = f"Prices have different dates, {days[0]} to {days[-1]}; the oldest is {days_old} days old."
    if old:
        return Finding("old-prices", message, "Run `vmselect prices refresh`.")
    return Finding("mixed-price-dates", message, "Check the dates before comparing these prices.", "info")


# -- tables of offers --------------------------------------------------------------------------------------------------

Codes = npt.NDArray[np.intp]


def build_frame(
    raw: pd.DataFrame,
    *,
    name_row: Callable[[int], str],
    default_date: str,
    default_source: str,
    skip_bad_rows: bool | None = None,
    problems: Mapping[int, str] | None = None,
) -> tuple[pd.DataFrame, list[Finding]]:
    """Validate the rows of ``raw``. Return them with the columns of the catalog, and a finding about excluded rows.

    Text columns become categories, which need less memory and are faster to filter; numbers become floats.

    Args:
        raw: Cells of any type, with the required columns and any other columns of the catalog.
        name_row: Gives the name of the row at a position for messages, such as "prices.csv line 7".
        default_date: Date of rows without one.
        default_source: Source of rows without one.
        skip_bad_rows: True excludes invalid rows. False and None raise an error; None if the caller has no such option.
        problems: Reasons why rows, by position, were already found to be invalid when they were read.
    """
    missing = [name for name in REQUIRED if name not in raw.columns]
    if missing:
        raise CatalogError(
            f"Columns are missing in the prices: {', '.join(missing)}. The required columns are {', '.join(REQUIRED)}."
        )
    reasons: dict[int, list[str]] = {row: [reason] for row, reason in (problems or {}).items()}
    defaults = {"date": default_date, "source": default_source, "retired": "no"}
    columns: dict[str, object] = {}
    for name, column in SCHEMA.items():
        cells = raw[name] if name in raw.columns else pd.Series([""] * len(raw), dtype=object)
        codes, texts = _distinct_texts(cells, defaults.get(name, ""))
        faults = [column.find_problem(name, text) for text in texts]
        if any(faults):
            for row in np.flatnonzero(np.array([fault is not None for fault in faults])[codes]):
                reasons.setdefault(int(row), []).append(str(faults[codes[row]]))
            # Such a row is excluded, or the whole table is refused.
            texts = ["" if fault else text for text, fault in zip(texts, faults, strict=True)]
        if name == "gpu_model":  # one spelling, so that offers of a GPU are found and compared with each other
            texts = [spell_gpu(text) for text in texts]
        if column.kind == "number":
            columns[name] = np.array([float(text) if text else np.nan for text in texts], dtype=float)[codes]
        elif column.kind == "flag":
            columns[name] = np.array([text == "yes" for text in texts], dtype=bool)[codes]
        else:
            columns[name] = _as_categories(codes, texts)
    frame = _fill_service(pd.DataFrame(columns))
    if frame.duplicated(list(KEY)).any():
        _find_repeats(frame, reasons, name_row)
    if not reasons:
        return frame, []
    problem = _describe_problems(reasons, name_row)
    if not skip_bad_rows:
        # Who gives a file on the command line can only change it.
        remedy = "Correct" if skip_bad_rows is None else "Correct or remove"
        in_python = "" if skip_bad_rows is None else " In Python, skip_bad_rows=True uses only the valid rows."
        raise CatalogError(f"{problem} {remedy} {'this row' if len(reasons) == 1 else 'these rows'}.{in_python}")
    remedy = (
        "If the price file is your own, correct these rows; otherwise add your own prices of these machines "
        f"({OWN_PRICE})."
    )
    kept = frame.drop(index=list(reasons)).reset_index(drop=True)
    return kept, [Finding("price-rows-excluded", f"Excluded {problem}", remedy)]


def is_built(frame: object) -> bool:
    """Return whether ``frame`` has the columns and types of a table that :func:`build_frame` returns, and a row."""
    if not isinstance(frame, pd.DataFrame) or not len(frame) or tuple(frame.columns) != COLUMNS:
        return False
    texts = frame.drop(columns=[*NUMBERS, "retired"])
    return all(isinstance(dtype, pd.CategoricalDtype) for dtype in texts.dtypes)


def concat_frames(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of all ``frames`` in one table, with the union of their categories."""
    columns: dict[str, object] = {}
    for name in COLUMNS:
        parts = [frame[name] for frame in frames]
        if isinstance(parts[0].dtype, pd.CategoricalDtype):
            columns[name] = pd.api.types.union_categoricals(parts)
        else:
            columns[name] = np.concatenate([part.to_numpy() for part in parts])
    return pd.DataFrame(columns)


def merge_frames(below: pd.DataFrame, above: pd.DataFrame, *, newest: bool = False) -> pd.DataFrame:
    """Return the rows of both tables. Of two prices with the same ``KEY``, that of ``above`` is kept.

    With ``newest``, a later price of ``below`` is kept instead. A row of ``above`` without any fact about the machine
    gets those of the same instance type in ``below``.
    """
    rows = concat_frames([below, inherit_facts(above, below)])
    # A stable sort keeps ``above`` last among prices of one day.
    order = np.argsort(rows["date"].astype(str).to_numpy(), kind="stable") if newest else np.arange(len(rows))
    replaced = rows.iloc[order].duplicated(list(KEY), keep="last")
    return rows[~replaced.sort_index()].reset_index(drop=True)


def inherit_facts(above: pd.DataFrame, below: pd.DataFrame) -> pd.DataFrame:
    """Return ``above``, with unknown vCPUs, memory and GPU taken from the same instance type in ``below``."""
    unknown = above[["vcpus", "memory_gib", "gpu_count"]].isna().all(axis=1).to_numpy()
    if not unknown.any() or not len(below):
        return above
    types = below.drop_duplicates(["provider", "instance_type"])
    position = pd.Index(_type_names(types)).get_indexer(pd.Index(_type_names(above)))
    rows = np.flatnonzero(unknown & (position >= 0))
    filled = above.copy()
    for name in FACTS:
        values = above[name].to_numpy(dtype=object).copy()
        values[rows] = types[name].to_numpy(dtype=object)[position[rows]]
        filled[name] = values.astype(float) if name in NUMBERS else pd.Series(values).astype(str).astype("category")
    return filled


def _distinct_texts(cells: pd.Series, default: str) -> tuple[Codes, list[str]]:
    """Return the number of each cell's text in a list of distinct texts, and that list; empty texts are ``default``."""
    if cells.dtype == object and pd.api.types.infer_dtype(cells, skipna=False) != "string":
        # As texts, because True and 1 would be the same value otherwise.
        cells = pd.Series(np.array([_as_text(value) for value in cells], dtype=object), dtype=object)
    codes, values = pd.factorize(cells, use_na_sentinel=False)
    texts: dict[str, int] = {}
    numbers = [texts.setdefault(_as_text(value).strip() or default, len(texts)) for value in values]
    return np.array(numbers, dtype=np.intp)[codes], list(texts)


def _as_text(value: object) -> str:
    """Return a cell as it is written in a file; an unknown value is empty."""
    if isinstance(value, str):
        return value
    if value is None or value is pd.NA or value is pd.NaT:
        return ""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, dt.datetime):
        return value.date().isoformat()
    if isinstance(value, float | np.floating):
        return "" if np.isnan(value) else repr(float(value))
    # Python refuses to print a number of thousands of digits.
    return "inf" if isinstance(value, int) and abs(value) > 10**30 else str(value)


def _as_categories(codes: Codes, texts: Sequence[str]) -> pd.Categorical[str]:
    """Return the categorical column of ``texts[codes]``, with sorted categories."""
    names = sorted(set(texts))
    position = {text: number for number, text in enumerate(names)}
    return pd.Categorical.from_codes(
        np.array([position[text] for text in texts], dtype=np.intp)[codes], pd.Index(names)
    )


def _fill_service(frame: pd.DataFrame) -> pd.DataFrame:
    blank = (frame["service"] == "").to_numpy()
    if not blank.any():
        return frame
    services = frame["service"].astype(object)
    pairs = zip(frame.loc[blank, "provider"], frame.loc[blank, "instance_type"], strict=True)
    services[blank] = [default_service(provider, instance_type) for provider, instance_type in pairs]
    return frame.assign(service=services.astype(str).astype("category"))


def _find_repeats(frame: pd.DataFrame, reasons: dict[int, list[str]], name_row: Callable[[int], str]) -> None:
    """Add a reason for each valid row whose key an earlier valid row has."""
    first: dict[tuple[str, ...], int] = {}
    for row, key in enumerate(zip(*(frame[name].astype(str) for name in KEY), strict=True)):
        if row not in reasons and first.setdefault(key, row) != row:
            earlier = name_row(first[key])
            reasons[row] = [f"the row repeats the price of {' '.join(key)}, which {earlier} already contains"]


def _describe_problems(reasons: Mapping[int, Sequence[str]], name_row: Callable[[int], str]) -> str:
    shown = [f"{name_row(row)}: {'; '.join(reasons[row])}" for row in sorted(reasons)[:SHOWN_PROBLEMS]]
    more = f" (and {len(reasons) - len(shown)} more)" if len(reasons) > len(shown) else ""
    return f"{format_count(len(reasons), 'invalid price row')}: {' | '.join(shown)}{more}."


def _describe_error(location: tuple[int | str, ...], message: str) -> str:
    text = message.removeprefix("Value error, ")
    return f"{'.'.join(map(str, location))}: {text}" if location else text


def _type_names(frame: pd.DataFrame) -> pd.Series:
    return frame["provider"].astype(str) + " " + frame["instance_type"].astype(str)
