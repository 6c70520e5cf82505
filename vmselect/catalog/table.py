"""Prices as a typed DataFrame: text columns are categories, number columns are floats.

Categories reduce the memory of a million rows, and make filters faster, because these compare integers, not strings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from vmselect._checks import show
from vmselect.catalog.offer import (
    COLUMNS,
    FACTS,
    KEY,
    NUMBER_LIMITS,
    OWN_PRICE,
    REQUIRED,
    TEXT_COLUMNS,
    default_service,
    describe_bad_number,
    describe_bad_text,
)
from vmselect.errors import CatalogError
from vmselect.findings import Finding

SHOWN_PROBLEMS = 5
_YES_NO = {True: "yes", False: "no"}
Mask = npt.NDArray[np.bool_]
# A violated rule: the mask of the rows that violate it, and a function that gives the message about one of them.
Rule = tuple[Mask, Callable[[int], str]]
# A function that gives the names of the rows at some positions, such as "prices.csv line 7".
RowNamer = Callable[[Sequence[int]], list[str]]


def build(
    raw: pd.DataFrame,
    *,
    name_row: RowNamer,
    default_date: str,
    default_source: str,
    skip_bad_rows: bool | None = None,
    rules: Sequence[Rule] = (),
) -> tuple[pd.DataFrame, list[Finding]]:
    """Validate ``raw`` and convert it to the column types of the catalog.

    Invalid rows raise an error, or are excluded with ``skip_bad_rows=True``. ``name_row`` gives the names of rows in
    messages, such as "prices.csv line 7". ``rules`` are the rules that were found violated while the file was read.
    Rows without date or source get ``default_date`` or ``default_source``. Return the valid rows, and a finding about
    excluded rows.
    """
    missing = [c for c in REQUIRED if c not in raw.columns]
    if missing:
        raise CatalogError(
            f"Columns are missing in the prices: {', '.join(missing)}. The required columns are {', '.join(REQUIRED)}."
        )
    rules = list(rules)
    frame = pd.DataFrame(index=pd.RangeIndex(len(raw)))
    for column in COLUMNS:
        if column in NUMBER_LIMITS:
            frame[column], found = _numbers(raw, column)
        else:
            frame[column], found = _texts(raw, column)
        rules += found
    _fill(frame, "date", default_date)
    _fill(frame, "source", default_source)
    _fill(frame, "retired", "no")
    frame["retired"] = (frame["retired"] == "yes").to_numpy()
    _fill_service(frame)
    rules.append(_repeats(frame, name_row))

    bad = np.logical_or.reduce([mask for mask, _ in rules])
    if not bad.any():
        return frame, []
    problem = _describe(bad, rules, name_row)
    if not skip_bad_rows:
        way_out = "" if skip_bad_rows is None else ", or pass skip_bad_rows=True to use only the valid rows"
        raise CatalogError(f"{problem} Correct {'this row' if bad.sum() == 1 else 'these rows'}{way_out}.")
    return frame[~bad].reset_index(drop=True), [
        Finding(
            "price-rows-excluded",
            f"Excluded {problem}",
            "If the price file is your own, correct these rows; otherwise add your own prices of these machines "
            f"({OWN_PRICE}).",
        )
    ]


def other_currencies(raw: pd.DataFrame) -> list[Rule]:
    """Remove the column ``currency`` from ``raw``, and return a rule that rejects rows in other currencies than USD."""
    if "currency" not in raw.columns:
        return []
    given = raw.pop("currency")
    other = ~(given.isna() | given.isin(["USD", ""])).to_numpy(dtype=bool)
    return [(other, lambda i: "the currency is not USD; convert the price to US dollars")] if other.any() else []


def is_built(frame: object) -> bool:
    """Return whether ``frame`` has the columns and types of a table that :func:`build` returns."""
    return (
        isinstance(frame, pd.DataFrame)
        and len(frame) > 0
        and tuple(frame.columns) == COLUMNS
        and all(isinstance(frame[c].dtype, pd.CategoricalDtype) for c in TEXT_COLUMNS if c != "retired")
    )


def merge(below: pd.DataFrame, above: pd.DataFrame) -> pd.DataFrame:
    """Return all rows of ``above``, and the rows of ``below`` whose key (the columns ``KEY``) is not in ``above``.

    If vCPUs, memory and GPU of a row of ``above`` are unknown, they are taken from the same instance type in ``below``.
    """
    above = inherit_facts(above, below)
    codes = key_codes([below, above])
    kept = below[~np.isin(codes[0], codes[1])]
    return concat([kept, above])


def drop_older(frame: pd.DataFrame, *, than: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of ``frame``, except those for which ``than`` has a later price."""
    keys, others = key_codes([frame, than])
    later = pd.Series(than["date"].astype(str).to_numpy(), index=others).reindex(keys).fillna("").to_numpy()
    return frame[frame["date"].astype(str).to_numpy() >= later].reset_index(drop=True)


def concat(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of all ``frames`` in one table, with the union of their categories."""
    columns: dict[str, object] = {}
    for column in COLUMNS:
        parts = [f[column] for f in frames]
        if isinstance(parts[0].dtype, pd.CategoricalDtype):
            columns[column] = pd.api.types.union_categoricals(parts)
        else:
            columns[column] = np.concatenate([p.to_numpy() for p in parts])
    return pd.DataFrame(columns)


def key_codes(frames: Sequence[pd.DataFrame]) -> list[npt.NDArray[np.int64]]:
    """Return an integer for each row of each frame. Rows have equal integers if their columns ``KEY`` are equal."""
    codes, bound = np.zeros(sum(map(len, frames)), dtype=np.int64), 1
    for column in KEY:
        joined = pd.api.types.union_categoricals([f[column] for f in frames])
        size = len(joined.categories) + 1
        if bound * size > 2**62:  # too many combinations for 64 bits: number only those that occur
            codes, used = pd.factorize(codes)
            bound = len(used)
        codes, bound = codes * size + joined.codes, bound * size
    return np.split(codes, np.cumsum([len(f) for f in frames])[:-1])


def _texts(raw: pd.DataFrame, column: str) -> tuple[pd.Series, list[Rule]]:
    if column not in raw.columns:
        return pd.Series(pd.Categorical.from_codes(np.zeros(len(raw), np.int8), pd.Index([""]))), []
    given = raw[column].reset_index(drop=True)
    if column == "retired" and not isinstance(given.dtype, pd.CategoricalDtype):
        given = given.replace({True: "yes", False: "no"}) if given.dtype == object else given.map(_YES_NO)
    if not isinstance(given.dtype, pd.CategoricalDtype):
        plain = given.astype(object).where(given.notna(), "")
        _check_encodable(plain, column)
        given = plain.astype(str).astype("category")
    cleaned = given.cat.rename_categories(str)
    if cleaned.isna().any():
        cleaned = cleaned.cat.add_categories([""] if "" not in cleaned.cat.categories else []).fillna("")
    names = cleaned.cat.categories.tolist()  # faster than iterating over the index
    if any(name != name.strip() for name in names):
        cleaned = cleaned.astype(object).str.strip().astype("category")
        names = cleaned.cat.categories.tolist()
    reasons = [describe_bad_text(column, name) if column != "date" or name else None for name in names]
    if not any(reasons):
        return cleaned, []
    codes = cleaned.cat.codes.to_numpy()
    mask = np.array([r is not None for r in reasons])[codes]
    return cleaned, [(mask, lambda i: str(reasons[codes[i]]))]


def _check_encodable(values: pd.Series, column: str) -> None:
    """Raise an error if a text contains half of a surrogate pair, which is no character and cannot be encoded."""
    for value in values:
        if isinstance(value, str) and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise CatalogError(
                    f"{column} {show(value)} contains half of a surrogate pair, which is not a character. Correct the "
                    "text."
                ) from None


def _numbers(raw: pd.DataFrame, column: str) -> tuple[pd.Series, list[Rule]]:
    if column not in raw.columns:
        return pd.Series(np.full(len(raw), np.nan)), []
    given = raw[column].reset_index(drop=True)
    rules: list[Rule] = []
    if given.dtype == np.float64:
        numbers = given
    else:
        _check_encodable(given, column)
        texts = given.astype(str).str.strip()
        # Texts that Python accepts as numbers, such as "inf", "1_000" and "True", are not prices.
        plain = texts.str.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
        numbers = pd.to_numeric(texts.where(plain), errors="coerce").astype(np.float64)
        wrong = (~plain & ~given.isna() & (texts != "")).to_numpy(dtype=bool)
        unit = " in US dollars" if column == "usd_per_hour" else ""
        if wrong.any():
            rules.append((wrong, lambda i: f"{column} {str(given[i])[:40]!r} is not a plain number{unit}"))
    values = numbers.to_numpy(dtype=np.float64)
    lowest, highest = NUMBER_LIMITS[column]
    fine = (values >= lowest) & (values <= highest)
    if column not in REQUIRED:
        fine |= np.isnan(values)
    for already, _ in rules:
        fine |= already  # reported above
    if not fine.all():
        rules.append((~fine, lambda i: str(describe_bad_number(column, float(values[i])))))
    return pd.Series(values), rules


def _fill(frame: pd.DataFrame, column: str, default: str) -> None:
    categories = frame[column].cat.categories
    if "" not in categories:
        return
    if default in categories:
        blank = (frame[column] == "").to_numpy()
        filled = frame[column].where(~blank, default)
        frame[column] = filled.cat.remove_categories([""])
    else:
        frame[column] = frame[column].cat.rename_categories({"": default})


def _fill_service(frame: pd.DataFrame) -> None:
    if "" not in frame["service"].cat.categories:
        return
    blank = (frame["service"] == "").to_numpy()
    wanted = frame.loc[blank, ["provider", "instance_type"]].astype(str)
    pairs = wanted.drop_duplicates()
    lookup = {(p, t): default_service(p, t) for p, t in zip(pairs.provider, pairs.instance_type, strict=True)}
    filled = frame["service"].astype(object)
    filled[blank] = [lookup[p, t] for p, t in zip(wanted.provider, wanted.instance_type, strict=True)]
    frame["service"] = filled.astype(str).astype("category")


def _repeats(frame: pd.DataFrame, name_row: RowNamer) -> Rule:
    codes = key_codes([frame])[0]
    repeated = pd.Series(codes).duplicated().to_numpy()

    def describe(i: int) -> str:
        first = int(np.flatnonzero(codes == codes[i])[0])
        key = " ".join(str(frame.at[i, c]) for c in KEY)
        return f"the row repeats the price of {key}, which {name_row([first])[0]} already contains"

    return repeated, describe


def _describe(bad: Mask, rules: Sequence[Rule], name_row: RowNamer) -> str:
    positions = [int(i) for i in np.flatnonzero(bad)[:SHOWN_PROBLEMS]]
    names = name_row(positions)
    shown = [
        f"{name}: {'; '.join(dict.fromkeys(text(i) for mask, text in rules if mask[i]))}"
        for i, name in zip(positions, names, strict=True)
    ]
    count = int(bad.sum())
    more = f" (and {count - len(shown)} more)" if count > len(shown) else ""
    return f"{count} invalid price row{'s' if count > 1 else ''}: " + " | ".join(shown) + more + "."


def inherit_facts(above: pd.DataFrame, below: pd.DataFrame) -> pd.DataFrame:
    """Return ``above``, with unknown vCPUs, memory and GPU taken from the same instance type in ``below``."""
    unknown = (above["vcpus"].isna() & above["memory_gib"].isna() & above["gpu_count"].isna()).to_numpy()
    if not unknown.any() or not len(below):
        return above
    known = below.drop_duplicates(["provider", "instance_type"])
    at = pd.Index(_type_names(known)).get_indexer(pd.Index(_type_names(above)))
    rows = np.flatnonzero(unknown & (at >= 0))
    filled = above.copy()
    for column in FACTS:
        values = above[column].to_numpy(dtype=object).copy()
        values[rows] = known[column].to_numpy(dtype=object)[at[rows]]
        texts = column not in NUMBER_LIMITS
        filled[column] = pd.Series(values).astype(str).astype("category") if texts else values.astype(np.float64)
    return filled


def _type_names(frame: pd.DataFrame) -> pd.Series:
    return frame["provider"].astype(str) + " " + frame["instance_type"].astype(str)
