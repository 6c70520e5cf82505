"""The compacted history of a folder of records: Parquet files in its subfolder ``history``, by kind and month.

There are two tables, which can be read separately: ``columns`` contains the values that queries and rankings use,
``texts`` the contents of the JSON files. The JSON files remain authoritative. A Parquet file is called a part. A row of
a part is used only if its JSON file still exists and has not changed since the row was made. The name of a part is the
digest of its bytes, and its content never changes. A compaction first writes the new part of a partition (kind
and month), and then removes the parts that it replaces. If a compaction is interrupted, repeated, concurrent with
another, or sees an incomplete listing, rows may exist twice or be missing: readers use one of several equal rows, and
read JSON files that have no row.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import operator
import re
import tempfile
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from vmselect._files import has_folder, write_bytes
from vmselect._optional import require
from vmselect._stores import Entry, Folder, LocalFolder, Place, open_folder
from vmselect.errors import MissingPackageError, ProfileError
from vmselect.records.record import Record
from vmselect.records.registry import parse_record
from vmselect.records.step_times import step_seconds
from vmselect.records.training import MAX_STEP_READINGS, METHOD_TIMES, Profile

SUBFOLDER = "history"
LAYOUT = 2
"""Version number of the tables below. Parquet files of other versions are not read; a compaction removes older ones."""

MAX_RECORD_BYTES = 32 * 1024 * 1024
MAX_PART_BYTES = 1024**3
MAX_PART_ROWS = 50_000
BATCH = 5_000
"""Number of records that are parsed before they are added to the table together."""
ATTEMPTS = 5
"""Maximum number of attempts to read, if concurrent compactions remove Parquet files meanwhile."""

_PART = re.compile(r"(\d{1,4})-[0-9a-f]{64}\.parquet")
_KIND = re.compile(r"kind=([a-z_]{1,40})")
_MONTH = re.compile(r"month=(\d{4}-\d{2})")

COLUMNS = {
    "file": "VARCHAR", "version": "VARCHAR", "id": "VARCHAR", "created": "TIMESTAMP", "writer": "VARCHAR",
    "instance_type": "VARCHAR", "provider": "VARCHAR", "region": "VARCHAR", "gpu": "VARCHAR", "gpus": "INTEGER",
    "cores": "INTEGER", "backend": "VARCHAR", "precision": "VARCHAR", "workers": "BIGINT", "factors": "VARCHAR",
    "model": "VARCHAR", "structure": "VARCHAR", "parameters": "BIGINT", "batch_size": "BIGINT",
    "steps_per_epoch": "BIGINT", "epochs": "BIGINT", "examples": "BIGINT", "validation_examples": "BIGINT",
    "outcome": "VARCHAR", "step_seconds": "DOUBLE", "steady_seconds": "DOUBLE[]",
    **dict.fromkeys(METHOD_TIMES, "DOUBLE"), "total_seconds": "DOUBLE",
}  # fmt: skip
"""Columns of the table ``records`` and their SQL types. ``kind`` and ``month`` come from the folder name of a part."""

RANK_COLUMNS = (
    "file", "id", "instance_type", "provider", "region", "gpu", "gpus", "cores", "backend", "precision", "workers",
    "model", "structure", "batch_size", "steps_per_epoch", "epochs", "examples", "validation_examples", "outcome",
    "step_seconds", "steady_seconds", *METHOD_TIMES, "total_seconds",
)  # fmt: skip
"""Columns that a ranking uses: the machine, the workload and the measured times."""

TABLES: Mapping[str, Mapping[str, str]] = {
    "columns": COLUMNS,
    "texts": {"file": "VARCHAR", "version": "VARCHAR", "record": "BLOB"},
}
_FOLDERS = {"columns": "", "texts": "texts/"}
_PARTITION = {"kind": "VARCHAR", "month": "VARCHAR"}

_VALID = {
    "VARCHAR": "strlen({0}) <= 4000",
    "TIMESTAMP": "isfinite({0}) and year({0}) between 1 and 9999",
    "DOUBLE": "{0} between 0 and 1e16",
    "BIGINT": "{0} >= 0",
    "INTEGER": "{0} >= 0",
    "DOUBLE[]": f"len({{0}}) <= {MAX_STEP_READINGS} and list_min({{0}}) >= 0 and list_max({{0}}) <= 1e10",
}
"""SQL condition that a value has to fulfil unless it is null, by its SQL type. NaN is above every number."""
_VALID_COLUMNS = {
    "file": "{0} is not null", "version": "{0} is not null", "id": "{0} is not null and strlen({0}) = 32",
    "created": "{0} is not null and isfinite({0}) and year({0}) between 1 and 9999",
    "factors": "strlen({0}) <= 1000000",
}  # fmt: skip
"""SQL conditions of single columns, which replace those of their type. Rows of unlisted files are not used either."""

Listener = Callable[[int, int], None]
"""Function that is called with the number of JSON files read so far, and the number of JSON files to read."""

Result = TypeVar("Result")


class Part(NamedTuple):
    """One Parquet file: its table, its partition (folder of kind and month), and its file name."""

    table: str
    partition: str
    name: str

    @property
    def path(self) -> str:
        """Path of the Parquet file, relative to the folder of the records."""
        return f"{SUBFOLDER}/{_FOLDERS[self.table]}{self.partition}/{self.name}"


@dataclass(frozen=True)
class Compaction:
    """Result of a compaction: numbers of ``records`` in the history, of ``added`` records, and of written ``parts``.

    ``unreadable`` contains a message for each JSON file that is not a record.
    """

    records: int
    added: int
    parts: int
    unreadable: tuple[str, ...]


def describe(record: Record) -> dict[str, Any]:
    """Values of ``COLUMNS`` for ``record``, except ``file`` and ``version``."""
    environment, setup = record.environment, getattr(record, "setup", None)
    values: dict[str, Any] = {
        "id": record.id,
        "created": record.created.astimezone(UTC).replace(tzinfo=None),
        "writer": record.writer,
        "instance_type": record.instance_type,
        "provider": record.provider,
        "region": record.region,
        "gpu": environment.gpus[0].name if environment.gpus else None,
        "gpus": len(environment.gpus),
        "cores": environment.usable_cores or environment.cpu_cores,
        "backend": environment.backend,
        "precision": environment.precision,
        "workers": environment.workers,
        "factors": json.dumps(dict(record.factors), sort_keys=True),
        "outcome": getattr(record, "outcome", None),
    }
    for name in ("model", "structure", "parameters", "batch_size", "steps_per_epoch", "epochs", "examples",
                 "validation_examples"):  # fmt: skip
        value = getattr(setup, name, getattr(record, name, None))
        values[name] = value if isinstance(value, str | int) else None
    if isinstance(record, Profile):
        steady = record.timeline.steps.steady_seconds
        values |= record.method_seconds
        values["steady_seconds"] = list(steady)
        values["step_seconds"] = step_seconds(record)
        values["total_seconds"] = record.total_seconds
    return values


# -- reading -----------------------------------------------------------------------------------------------------------


def read_texts(place: Place, entries: Sequence[Entry] | None = None) -> dict[str, bytes]:
    """Contents of the JSON files in ``place`` that its compacted history contains, by file name.

    Empty if DuckDB is not installed.
    """
    if isinstance(place, Path) and not has_folder(place / SUBFOLDER):
        return {}

    def read() -> dict[str, bytes]:
        folder = open_folder(place)
        with opened(folder, "texts") as parts:
            if not parts.copies:
                return {}
            with connect() as database:
                listed = list_records(folder) if entries is None else entries
                rows = find_rows(database, "texts", parts.copies, listed)
                if not rows.held:
                    return {}
                texts = database.execute(f"select file, record from {rows.source}").fetchall()
                return {file: text for file, text in texts if text and len(text) <= MAX_RECORD_BYTES}

    try:
        return repeating(read, place)
    except MissingPackageError:
        return {}


def read_columns(
    database: Any, folder: Folder | LocalFolder, parts: Mapping[Part, Path], columns: Iterable[str], *, copied: bool
) -> list[str]:
    """Create the table ``records`` in ``database`` (a view unless ``copied``), with ``columns`` of all records.

    Rows come from the Parquet files ``parts``. JSON files in ``folder`` that have no up-to-date row there are read.
    Returns a message for each file that is not a record.
    """
    wanted = [*dict.fromkeys(("file", *_PARTITION, *columns))]
    entries = list_records(folder)
    rows = find_rows(database, "columns", parts, entries, wanted)
    faults = add(database, folder, _without(entries, rows.held), wanted)
    names = ", ".join(map(_quote, wanted))
    sources = [rows.source, "added"] if rows.held else ["added"]
    selected = " union all ".join(f"select {names} from {source}" for source in sources)
    database.execute(f"create {'table' if copied else 'view'} records as {selected}")
    if copied:  # a query sees nothing but the records
        database.execute("drop table added")
        database.execute("drop table if exists chosen_columns")
    return faults


def list_records(folder: Folder | LocalFolder) -> list[Entry]:
    """The JSON files in ``folder``, without hidden files, in any order."""
    return [one for one in folder.entries() if one[0].endswith(".json") and one[0][0] != "."]


def _without(entries: Sequence[Entry], held: Collection[str]) -> list[Entry]:
    """``entries`` that are not among the files ``held``, sorted by name."""
    return [] if len(held) == len(entries) else sorted(one for one in entries if one.name not in held)


def find_parts(
    folder: Folder | LocalFolder, table: str = "columns", *, layouts: Container[int] = (LAYOUT,)
) -> list[Part]:
    """The Parquet files of ``table`` in the history of ``folder`` whose version (see ``LAYOUT``) is in ``layouts``."""
    found = []
    root = f"{SUBFOLDER}/{_FOLDERS[table]}".rstrip("/")
    for kind in filter(_KIND.fullmatch, folder.subfolders(root)):
        for month in filter(_MONTH.fullmatch, folder.subfolders(f"{root}/{kind}")):
            names = sorted(one.name for one in folder.entries(f"{root}/{kind}/{month}"))
            matches = filter(None, map(_PART.fullmatch, names))
            found += [Part(table, f"{kind}/{month}", match[0]) for match in matches if int(match[1]) in layouts]
    return found


class Opened(NamedTuple):
    """Parquet files of a table: paths of temporary copies of the undamaged files, and the damaged files."""

    copies: dict[Part, Path]
    damaged: list[Part]


@contextmanager
def opened(folder: Folder | LocalFolder, table: str) -> Iterator[Opened]:
    """Context with the Parquet files of ``table`` in the history of ``folder``."""
    with tempfile.TemporaryDirectory(prefix="vmselect-history-") as name:
        parts = Opened({}, [])
        for part in find_parts(folder, table):
            try:
                data = folder.read(part.path, limit=MAX_PART_BYTES)
            except ProfileError:  # removed by a compaction since it was listed
                continue
            if _name(data) != part.name:
                parts.damaged.append(part)  # its JSON files are read instead
                continue
            copy = Path(name, part.partition, part.name)
            if isinstance(folder, LocalFolder):
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.symlink_to(folder.path / part.path)  # its real path may contain characters that DuckDB interprets
            else:
                write_bytes(copy, data)
            parts.copies[part] = copy
        yield parts


@contextmanager
def connect() -> Iterator[Any]:
    """Context with a DuckDB database in memory that loads no extensions and cannot access Python variables."""
    duckdb = require("duckdb", extra="history", needed_by="The compacted history")
    with tempfile.TemporaryDirectory(prefix="vmselect-history-") as spill:
        options = {
            "autoinstall_known_extensions": False, "autoload_known_extensions": False,
            "python_enable_replacements": False, "temp_directory": spill, "pandas_analyze_sample": BATCH,
        }  # fmt: skip
        database = duckdb.connect(":memory:", config=options)
        try:
            yield database
        finally:
            database.close()


def repeating(read: Callable[[], Result], place: Place) -> Result:
    """The result of ``read``, which is called again if a concurrent compaction removed a Parquet file meanwhile."""
    duckdb = require("duckdb", extra="history", needed_by="The compacted history")
    for attempt in itertools.count(1):
        try:
            return read()
        except duckdb.Error as wrong:
            if attempt == ATTEMPTS or not isinstance(wrong, duckdb.IOException):
                reason = (str(wrong).strip().splitlines() or ["unknown reason"])[0][:300]
                raise ProfileError(
                    f"The compacted history of {place} cannot be read: {reason}. Delete its subfolder "
                    f"{SUBFOLDER}, which `vmselect history compact` writes again."
                ) from None
    raise AssertionError  # the loop does not end


class Rows(NamedTuple):
    """Up-to-date rows of a table: SQL that selects them (``source``), and the names of their JSON files (``held``).

    ``paths`` are the valid Parquet files, which may contain outdated rows too.
    """

    source: str = ""
    held: frozenset[str] = frozenset()
    paths: tuple[Path, ...] = ()


def find_rows(
    database: Any, table: str, parts: Mapping[Part, Path], entries: Sequence[Entry], columns: Iterable[str] = ()
) -> Rows:
    """The up-to-date rows of the Parquet files ``parts``, one for each JSON file in ``entries``.

    Parquet files with impossible values in ``columns`` are left out.
    """
    paths = _find_valid(database, table, parts.values(), columns)
    if not paths:
        return Rows()
    known = {name: version for name, _, version in entries if version}
    keys = database.execute(f"select file, version from {_scan(paths)}").fetchnumpy()
    files, versions = keys["file"].tolist(), keys["version"].tolist()
    held = frozenset(files)
    if len(held) == len(files) and all(map(operator.eq, map(known.get, files), versions)):
        return Rows(_scan(paths), held, paths)  # the usual case: no file was changed, removed or compacted twice
    numbered = _scan(paths, numbered=True)
    chosen: dict[str, tuple[str, int]] = {}
    for file, version, path, number in database.execute(
        f"select file, version, filename, file_row_number from {numbered}"
    ).fetchall():
        if known.get(file) == version:
            chosen.setdefault(file, (path, number))
    name = f"chosen_{table}"
    _put(database, name, {"filename": "VARCHAR", "file_row_number": "BIGINT"}, [*chosen.values()])
    source = f"(select * from {numbered} semi join {name} using (filename, file_row_number))"
    return Rows(source, frozenset(chosen), paths)


def _find_valid(database: Any, table: str, paths: Iterable[Path], columns: Iterable[str]) -> tuple[Path, ...]:
    """The Parquet files that have the columns of the ``table``, and no impossible value in ``columns``."""
    import duckdb

    types, usable = TABLES[table], []
    for path in paths:
        with suppress(duckdb.Error):
            query = f"describe select * from read_parquet({_literal(path)}, hive_partitioning=false)"
            if {name: kind for name, kind, *_ in database.execute(query).fetchall()} == types:
                usable.append(path)
    if not usable:
        return ()
    read = [name for name in types if name in ("file", "version") or name in columns]
    conditions = (_VALID_COLUMNS.get(name, _VALID[types[name]]).format(_quote(name)) for name in read)
    valid = " and ".join(f"coalesce({condition}, true)" for condition in conditions)
    wrong = database.execute(
        f"select distinct filename from {_scan(usable, numbered=True)} where not ({valid})"
    ).fetchall()
    return tuple(path for path in usable if (str(path),) not in wrong)


def _scan(paths: Iterable[Path], *, numbered: bool = False) -> str:
    """SQL that reads Parquet files; if ``numbered``, each row has the path of its file and its row number."""
    listed = ", ".join(map(_literal, paths))
    more = ", filename=true, file_row_number=true" if numbered else ""
    return f"read_parquet([{listed}], hive_partitioning=true, hive_types={{'kind': VARCHAR, 'month': VARCHAR}}{more})"


def add(
    database: Any,
    folder: Folder | LocalFolder,
    entries: Sequence[Entry],
    columns: Iterable[str],
    *,
    listener: Listener = lambda done, total: None,
) -> list[str]:
    """Read the JSON files ``entries`` into the new table ``added``; return a message for each invalid file."""
    types = {**_PARTITION, **COLUMNS, **TABLES["texts"]}
    wanted = {name: types[name] for name in columns}
    _put(database, "added", wanted, [])
    faults: list[str] = []
    rows: list[list[Any]] = []
    for number, (entry, content) in enumerate(folder.read_all(entries, limit=MAX_RECORD_BYTES), 1):
        try:
            if isinstance(content, ProfileError):
                raise content
            record = parse_record(content, source=entry.name)
        except ProfileError as unreadable:
            faults.append(str(unreadable))
        else:
            made = {"file": entry.name, "version": entry.version, "kind": record.kind, "record": content}
            made |= {"month": _month(record)} | describe(record)
            rows.append([made.get(name) for name in wanted])
        if len(rows) == BATCH or number == len(entries):
            _put(database, "added", wanted, rows)
            rows = []
            listener(number, len(entries))
    return faults


def _put(database: Any, table: str, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> None:
    """Create the ``table`` unless it exists, and add ``rows`` to it."""
    import pandas as pd

    typed = ", ".join(f"{_quote(name)} {kind}" for name, kind in columns.items())
    database.execute(f"create table if not exists {table} ({typed})")
    if rows:
        values = map(list, zip(*rows, strict=True))
        frame = pd.DataFrame({name: pd.Series(one, dtype=object) for name, one in zip(columns, values, strict=True)})
        database.register("given_rows", frame)
        database.execute(f"insert into {table} select * from given_rows")
        database.unregister("given_rows")


def _month(record: Record) -> str:
    created = record.created.astimezone(UTC)
    return f"{created.year:04d}-{created.month:02d}"


def _quote(name: str) -> str:
    return f'"{name}"'


def _literal(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


# -- writing -----------------------------------------------------------------------------------------------------------


def compact(place: Place, *, listener: Listener = lambda done, total: None) -> Compaction:
    """Bring the compacted history of the folder ``place`` up to date. The JSON files are not changed."""
    folder = open_folder(place)
    return repeating(lambda: _compact(folder, listener), place)


def _compact(folder: Folder | LocalFolder, listener: Listener) -> Compaction:
    with connect() as database, opened(folder, "columns") as columns, opened(folder, "texts") as texts:
        parts = {"columns": columns, "texts": texts}
        for part in (*columns.damaged, *texts.damaged, *find_parts(folder, layouts=range(LAYOUT))):
            folder.remove(part.path)
        entries = list_records(folder)
        rows = {
            "columns": find_rows(database, "columns", columns.copies, entries, COLUMNS),
            "texts": find_rows(database, "texts", texts.copies, entries),
        }
        held = rows["columns"].held & rows["texts"].held
        _put(database, "held", {"file": "VARCHAR"}, [(name,) for name in held])
        faults = add(database, folder, _without(entries, held), (*_PARTITION, *COLUMNS, "record"), listener=listener)
        # A file whose version is unknown has to be read again by every reader.
        database.execute("delete from added where version = ''")
        added = database.execute("select count(*) from added").fetchone()[0]
        written = sum(_write_table(database, folder, table, parts[table].copies, rows[table]) for table in TABLES)
    return Compaction(len(held) + added, added, written, tuple(faults))


def _write_table(
    database: Any, folder: Folder | LocalFolder, table: str, parts: Mapping[Part, Path], rows: Rows
) -> int:
    """Write new Parquet files for changed partitions (kind and month) of a table, and remove the replaced files.

    Returns the number of new files.
    """
    names = ", ".join(map(_quote, (*_PARTITION, *TABLES[table])))
    sources = [f"{rows.source} semi join held using (file)", "added"] if rows.held else ["added"]
    current = " union all ".join(f"select {names} from {one}" for one in sources)
    stored = _count(database, _scan(rows.paths)) if rows.paths else {}
    kept = _count(database, sources[0]) if rows.held else {}
    wrong = {part.partition for part, path in parts.items() if path not in rows.paths}
    added = _count(database, "added")
    written = 0
    for partition in sorted({*stored, *added, *(part.partition for part in parts)}):
        old = {part.name for part in parts if part.partition == partition}
        total = kept.get(partition, 0) + added.get(partition, 0)
        same = partition not in wrong and stored.get(partition, 0) == kept.get(partition, 0) == total
        if same and len(old) <= -(-total // MAX_PART_ROWS):
            continue
        new = _write_partition(database, folder, table, partition, current, total)
        for name in old - new:
            folder.remove(Part(table, partition, name).path)
        written += len(new - old)
    return written


def _count(database: Any, source: str) -> dict[str, int]:
    """Number of rows of each partition (kind and month)."""
    rows = database.execute(f"select kind, month, count(*) from {source} group by kind, month").fetchall()
    return {f"kind={kind}/month={month}": count for kind, month, count in rows}


def _write_partition(
    database: Any, folder: Folder | LocalFolder, table: str, partition: str, current: str, total: int
) -> set[str]:
    """Write the rows of ``partition`` (kind and month) to new Parquet files; return the names of the files."""
    kind, month = (text.partition("=")[2] for text in partition.split("/"))
    names = ", ".join(map(_quote, TABLES[table]))
    order = "created, file" if "created" in TABLES[table] else "file"
    made = set()
    database.execute(
        f"create table partition_rows as select {names} from ({current}) where kind = ? and month = ?", [kind, month]
    )
    with tempfile.TemporaryDirectory(prefix="vmselect-history-") as scratch:
        for start in range(0, total, MAX_PART_ROWS):
            file = Path(scratch, f"{start}.parquet")
            database.execute(
                f"copy (select * from partition_rows order by {order} limit {MAX_PART_ROWS} offset {start}) "
                f"to {_literal(file)} (format parquet, compression zstd)"
            )
            data = file.read_bytes()
            part = Part(table, partition, _name(data))
            folder.create(part.path, data)
            made.add(part.name)
    database.execute("drop table partition_rows")
    return made


def _name(data: bytes) -> str:
    """File name of a Parquet file with the content ``data``."""
    return f"{LAYOUT}-{hashlib.sha256(data).hexdigest()}.parquet"
