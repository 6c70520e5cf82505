"""Reads and writes price files (CSV or JSON). Every row is validated; errors contain its line number."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import re
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vmselect import _files
from vmselect._checks import check_path, show
from vmselect.catalog import converters, table
from vmselect.catalog.offer import COLUMNS, NUMBER_LIMITS, SCHEMA_VERSION, describe_column
from vmselect.errors import CatalogError
from vmselect.findings import Finding

MAX_BYTES = 256 * 1024**2
MAX_LINE_BYTES = 64 * 1024
_LARGE_BYTES = 8 * 1024**2  # above this size, the first rows are validated before the others are read
_FIRST_ROWS = 1000
_ROWS_AT_ONCE = 100_000  # a whole file at once would need three times its size in memory
_JSON_FIELDS = ("schema", "currency", "offers")


def read(
    path: str | Path, *, provider: str | None = None, skip_bad_rows: bool = False
) -> tuple[pd.DataFrame, list[Finding]]:
    """Return the validated rows of a price file, and findings about excluded rows.

    An invalid row raises an error; with ``skip_bad_rows=True`` it is excluded. ``provider`` is used for files that do
    not contain the provider.
    """
    path = check_path("path", path)
    head = _read_head(path)
    modified = dt.date.fromtimestamp(path.stat().st_mtime).isoformat()
    findings: list[Finding] = []
    source = "user"
    if path.suffix.lower() == ".json":
        raw, name_row, rules = _read_json(path)
    else:
        header = _read_header(path, head)
        layout = next((one for one in converters.LAYOUTS if one.columns <= set(header)), None)
        if layout is None:
            _check_header(path, header)
            _check_first_rows(path, header)
        raw, name_row, rules = _read_csv(path, header, numbers=() if layout else tuple(NUMBER_LIMITS))
        if layout is not None:
            raw, origin, findings = layout.convert(raw, provider or converters.provider_of(path))
            name_line = name_row
            name_row = lambda positions: name_line([int(origin[p]) for p in positions])  # noqa: E731
            rules = [(mask[origin], lambda i, text=text: text(int(origin[i]))) for mask, text in rules]  # type: ignore[misc]
            source = layout.name
    if provider is not None and "provider" not in raw.columns:
        raw["provider"] = provider
    frame, excluded = table.build(
        raw, name_row=name_row, default_date=modified, default_source=source,
        skip_bad_rows=skip_bad_rows, rules=rules,
    )  # fmt: skip
    if not len(frame):
        raise CatalogError(f"{path.name} contains no valid price. Add at least one row with a price.")
    return frame, [*findings, *excluded]


def check_replaceable(path: str | Path) -> Path:
    """Return ``path``. Raise an error if it is an existing file other than a price file, which must not be replaced."""
    target = check_path("path", path)
    if _files.has_file(target) and target.stat().st_size:
        try:
            read(target, skip_bad_rows=True)
        except CatalogError:
            raise CatalogError(
                f"{target} exists and is not a price file, so it is not replaced. Choose another path."
            ) from None
    return target


def write(frame: pd.DataFrame, path: str | Path) -> Path:
    """Write ``frame`` as CSV, or as JSON if ``path`` ends in ``.json``."""
    path = check_path("path", path)
    texts = pd.DataFrame({c: _as_text(frame[c]) for c in COLUMNS})
    if path.suffix.lower() == ".json":
        rows = [
            {c: (float(v) if c in NUMBER_LIMITS else v) for c, v in row.items() if v != ""}
            for row in texts.to_dict("records")
        ]
        lines = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in rows)
        content = f'{{"schema": {SCHEMA_VERSION}, "offers": [\n{lines}\n]}}\n'
    else:
        content = texts.to_csv(index=False, lineterminator="\n")
    return _files.write_text(path, content, error=CatalogError)


def _as_text(values: pd.Series) -> Any:
    if values.dtype == bool:
        return np.where(values, "yes", "no")
    if isinstance(values.dtype, pd.CategoricalDtype):
        return values
    codes, unique = pd.factorize(values.to_numpy(), use_na_sentinel=False)
    texts = ["" if np.isnan(u) else repr(float(u)).removesuffix(".0") for u in unique]
    return pd.Categorical.from_codes(codes, pd.Index(texts))


# -- JSON --------------------------------------------------------------------------------------------------------------


def _read_json(path: Path) -> tuple[pd.DataFrame, table.RowNamer, list[table.Rule]]:
    """Return the rows of a JSON price file, a function that names rows by file and line, and the violated rules."""
    known = (*COLUMNS, "currency")
    try:
        text = path.read_text(encoding="utf-8-sig")
        rows, lines = _json_offers(text)
    except (OSError, ValueError, RecursionError) as failure:
        raise CatalogError(
            f'{path.name} is not a valid JSON price file: {str(failure)[:160]}. Expected: {{"offers": [{{...}}, ...]}}.'
        ) from failure
    for row, line in zip(rows, lines, strict=True):
        for name, value in row.items():
            if name not in known:
                raise CatalogError(
                    f"{path.name} line {line} has the unknown field {name[:40]!r}. {describe_column(name)}"
                )
            if isinstance(value, list | dict):
                raise CatalogError(f"{path.name} line {line}: {name} must be one value, not a list or object.")
    raw = pd.DataFrame(rows, columns=[c for c in known if any(c in r for r in rows)], dtype=object)
    return raw, lambda positions: [f"{path.name} line {lines[p]}" for p in positions], table.other_currencies(raw)


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def _json_offers(text: str) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the objects of the list ``offers`` in a JSON text, and the line number on which each object begins."""
    decoder = json.JSONDecoder(parse_constant=lambda word: f"{word}", object_pairs_hook=_as_unique)
    whole = decoder.decode(text)
    if _SURROGATE.search(text):  # pandas with Arrow strings cannot hold half of a surrogate pair
        try:
            json.dumps(whole, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a text contains half of a surrogate pair (\\ud800 to \\udfff)") from None
    if isinstance(whole, dict):
        for name in whole:
            if name not in _JSON_FIELDS:
                raise ValueError(f"unknown field {show(name)}; known fields are {', '.join(_JSON_FIELDS)}")
        if whole.get("currency", "USD") != "USD":
            raise ValueError(f"the currency is {show(whole['currency'])}; convert the prices to US dollars")
        version = whole.get("schema", SCHEMA_VERSION)
        if version != SCHEMA_VERSION or isinstance(version, bool):
            raise ValueError(f"the schema is {show(version)}, but this version of vmselect reads {SCHEMA_VERSION}")
        rows = whole.get("offers")
        at = text.index("[", text.index('"offers"')) + 1 if isinstance(rows, list) else 0
    else:
        rows, at = whole, text.find("[") + 1
    if not isinstance(rows, list) or not all(isinstance(r, dict) for r in rows):
        raise ValueError("the file contains no list of offers")
    lines, line, counted = [], 1, 0
    for _ in rows:
        at = text.index("{", at)
        line, counted = line + text.count("\n", counted, at), at
        lines.append(line)
        _, at = decoder.raw_decode(text, at)
    return rows, lines


def _as_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the field {show(twice)} appears twice in one object")
    return names


# -- CSV ---------------------------------------------------------------------------------------------------------------


def _read_head(path: Path) -> bytes:
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):  # a pipe can be read only once; prices are read several times
            raise CatalogError(f"{path} is not a regular file, but perhaps a pipe. Save the prices to a file first.")
        if about.st_size > MAX_BYTES:
            raise CatalogError(f"{path.name} is larger than {MAX_BYTES // 1024**2} MiB. Split it into several files.")
        with path.open("rb") as file:
            head = file.read(MAX_LINE_BYTES)
    except OSError as failure:
        raise CatalogError(f"{path} cannot be read: {failure}. Give the path of a CSV or JSON file.") from failure
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise CatalogError(f"{path.name} is UTF-16 text. Save it as CSV UTF-8.")
    if b"\0" in head:
        raise CatalogError(f"{path.name} is a binary file. Give a CSV or JSON price file.")
    return head


def _read_header(path: Path, head: bytes) -> list[str]:
    with path.open("rb") as file:  # parsing a line of millions of fields would take gigabytes
        while line := file.readline(MAX_LINE_BYTES + 1):
            if len(line) > MAX_LINE_BYTES:
                raise CatalogError(
                    f"{path.name} has a line of more than 64 KiB, so it is not a CSV price file. Pass another file."
                )
    line = head.partition(b"\n")[0]
    try:
        header = next(csv.reader(io.StringIO(line.decode("utf-8-sig").rstrip("\r"))), [])
    except (UnicodeDecodeError, csv.Error) as failure:
        raise CatalogError(f"{path.name} line 1 is not UTF-8 CSV ({failure}). Save the file as CSV UTF-8.") from failure
    if not any(header):
        raise CatalogError(f"{path.name} has an empty first line. Write the names of the columns there.")
    return [name.strip() for name in header]


def _check_header(path: Path, header: Sequence[str]) -> None:
    for name in header:
        if header.count(name) > 1:
            raise CatalogError(f"{path.name} has two columns named {name!r}. Remove one of them.")
        if name not in (*COLUMNS, "currency"):
            one_column = len(header) == 1 and re.search(r"[;\t|]", name)
            hint = "Separate the columns by commas." if one_column else describe_column(name)
            raise CatalogError(f"{path.name} has the unknown column {name[:40]!r}. {hint}")


def _check_first_rows(path: Path, header: Sequence[str]) -> None:
    """Raise an error if a large file has no valid price in its first rows: validating all rows would take minutes."""
    if path.stat().st_size <= _LARGE_BYTES:
        return
    raw, name_row, _ = _read_csv(path, header, numbers=(), rows=_FIRST_ROWS)
    valid, excluded = table.build(
        raw, name_row=name_row, default_date="2000-01-01", default_source="user", skip_bad_rows=True
    )
    if not len(valid):
        raise CatalogError(f"{path.name} has no valid price in its first {len(raw)} rows. {excluded[0].message}")


def _read_csv(
    path: Path, header: Sequence[str], *, numbers: Sequence[str], rows: int | None = None
) -> tuple[pd.DataFrame, table.RowNamer, list[table.Rule]]:
    """Return rows of a CSV price file, a function that names rows by file and line, and the violated rules.

    Only the first ``rows`` rows are read, or all if it is None. Columns in ``numbers`` become floats if every cell is a
    number; all other columns become categories.
    """
    if too_long := _find_long_row(path, header, rows=1):  # pandas drops surplus fields of the first row silently
        raise too_long
    try:
        try:
            raw = _parse_csv(path, header, numbers, rows)
        except (pd.errors.ParserError, UnicodeDecodeError):
            raise
        except (ValueError, OverflowError):  # a cell of ``numbers`` is not a number
            raw = _parse_csv(path, header, (), rows)
    except UnicodeDecodeError as broken:
        raise CatalogError(f"{path.name} is not UTF-8 text ({broken.reason}). Save it as CSV UTF-8.") from broken
    except (ValueError, OverflowError) as broken:
        raise _find_long_row(path, header) or CatalogError(
            f"{path.name} is not valid CSV ({str(broken).strip()[:120]}). Check for a missing closing quote."
        ) from broken

    def name_row(positions: Sequence[int]) -> list[str]:
        lines = [line for line, _ in islice(_rows(path), 1, max(positions) + 2)]
        return [f"{path.name} line {lines[min(p, len(lines) - 1)]}" for p in positions]

    rules: list[table.Rule] = []
    if len(raw) and (reason := _describe_cut(path, len(header))):
        last = np.arange(len(raw)) == len(raw) - 1
        rules.append((last, lambda i: reason))
    return raw, name_row, rules + table.other_currencies(raw)


def _parse_csv(path: Path, header: Sequence[str], floats: Sequence[str], rows: int | None) -> pd.DataFrame:
    """Parse a CSV file to a table: columns in ``floats`` as numbers, all others as categories of the exact text."""
    options: dict[str, Any] = {
        "names": list(header), "header": 0, "index_col": False, "keep_default_na": False, "encoding": "utf-8-sig",
        "na_values": {c: [""] for c in floats}, "low_memory": False, "nrows": rows,
    }  # fmt: skip
    dtypes: dict[str, Any] = {c: "float64" if c in floats else "category" for c in header}
    parts = list(pd.read_csv(path, dtype=dtypes, chunksize=_ROWS_AT_ONCE, **options))
    columns: dict[str, Any] = {}
    for name in header:
        pieces = [part.pop(name) for part in parts]
        if name in floats:
            # pandas reads columns of True and False as ones and zeros.
            if any(p.isin([0.0, 1.0]).any() and p.isin([0.0, 1.0, np.nan]).all() for p in pieces):
                again = pd.read_csv(path, usecols=[name], dtype=str, **options)[name].fillna("")
                if again.str.contains(r"true|false", case=False).any():
                    raise ValueError(f"{name} contains text")
            columns[name] = np.concatenate([p.to_numpy() for p in pieces])
        elif all(p.cat.categories.inferred_type in ("string", "empty") for p in pieces):
            columns[name] = pd.api.types.union_categoricals(pieces)
        else:
            # pandas reads categories that all look like numbers as numbers: "+1" becomes 1.
            again = pd.read_csv(path, usecols=[name], dtype=str, **options)
            columns[name] = again[name].astype("category")
    return pd.DataFrame(columns)


def _describe_cut(path: Path, fields: int) -> str | None:
    """Return the reason why the last line may be incomplete, as after an interrupted download; None if it is not."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MAX_LINE_BYTES))
        last = re.split(rb"[\r\n]", file.read())[-1].decode("utf-8", "replace")
    cells = next(csv.reader([last]), [])
    if not last.strip():
        return None
    if len(cells) < fields:
        return f"the line has fewer than {fields} fields; the file may be incomplete"
    if re.search(r"[0-9.]\s*$", cells[-1]):
        # 3.0 may be a part of 3.06; only a line break shows that the number is complete.
        return f"the line may be cut off after {show(cells[-1])}; if the file is complete, add a line break at its end"
    return None


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and cells of each row, including the header, without blank rows."""
    csv.field_size_limit(MAX_BYTES)
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.reader(file)
        for cells in reader:
            if cells and (len(cells) > 1 or cells[0].strip(" \t")):  # pandas skips only these blanks
                yield reader.line_num, cells


def _find_long_row(path: Path, header: Sequence[str], *, rows: int | None = None) -> CatalogError | None:
    """Return an error about the first of ``rows`` rows that has more fields than the header; None without one."""
    for line, cells in islice(_rows(path), None if rows is None else rows + 1):
        if len(cells) > len(header):
            return CatalogError(
                f"{path.name} line {line} has {len(cells)} fields, but the header has {len(header)}. "
                "Put text that contains a comma in quotes, and write 3.06 instead of 3,06."
            )
    return None
