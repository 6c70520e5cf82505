"""The history of a folder of records: tables, SQL queries, compaction to Parquet files, and labels.

:func:`history` gives the records of a folder as a table. :meth:`History.compact` writes the same table to Parquet files
in the subfolder ``history``, by kind and month, from which many records load faster.

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
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from vmselect._checks import check_choice, check_flag, check_name, maybe, several, suggest_arguments
from vmselect._imports import require
from vmselect._io import (
    ABANDONED_AFTER_SECONDS,
    Entry,
    Folder,
    LocalFolder,
    Place,
    check_place,
    has_folder,
    open_folder,
    write_bytes,
)
from vmselect.errors import ArgumentError, MissingPackageError, ProfileError
from vmselect.records.base import Record
from vmselect.records.files import (
    KINDS,
    MAX_FILE_BYTES,
    Paths,
    parse_record,
    save_record,
    walk_records,
    without_garbage_collection,
)
from vmselect.records.step_times import step_seconds
from vmselect.records.training import METHOD_TIMES, Profile
from vmselect.units import list_some

if TYPE_CHECKING:
    import pandas as pd
    from duckdb import DuckDBPyConnection as Database

SUBFOLDER = "history"
LAYOUT = 3
"""Version number of the tables below. Parquet files of other versions are not read; a compaction removes older ones.

2: two tables. 3: ``step_seconds`` is the mean without a lone stall, not the median.
"""

MAX_PART_BYTES = 1024**3
MAX_PART_ROWS = 50_000
BATCH = 5_000
"""Number of records that are parsed before they are added to the table together."""
MAX_READ_LOCALLY = 5_000
"""Largest number of records of a local folder that are read from their JSON files, compacted or not: a thousand took
0.2 s. Larger folders, and those at a URL, are listed from their Parquet files."""

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

TABLES: Mapping[str, Mapping[str, str]] = {
    "columns": COLUMNS,
    "texts": {"file": "VARCHAR", "version": "VARCHAR", "record": "BLOB"},
}
_FOLDERS = {"columns": "", "texts": "texts/"}
_PARTITION = {"kind": "VARCHAR", "month": "VARCHAR"}

_AMOUNTS = [name for name, kind in COLUMNS.items() if kind in ("DOUBLE", "BIGINT", "INTEGER")]
_SOUND = {
    "columns": " and ".join(
        [
            "coalesce(regexp_full_match(id, '[0-9a-f]{32}'), false)",
            "created is not null",
            *(f"coalesce({name} between 0 and 1e300, true)" for name in _AMOUNTS),
            "coalesce(list_min(steady_seconds) >= 0 and list_max(steady_seconds) <= 1e300, true)",
        ]
    ),
    # A version begins with the size of the JSON file. That of S3 ends with its MD5 digest, unless it was uploaded in
    # several pieces.
    "texts": "octet_length(record)::varchar = split_part(version, '-', 1) and (md5(record) = "
    "trim(split_part(version, '-', 2), '\"') or not regexp_full_match(version, '[0-9]+-\"?[0-9a-f]{32}\"?'))",
}
"""Conditions in SQL that the rows of each table fulfil. The JSON files of other rows are read: a part may be forged."""

MAX_SQL_LENGTH = 100_000
SETTINGS = ("enable_external_access = false", "memory_limit = '2GB'", "lock_configuration = true")
"""Settings of the database while it runs a query of the user."""

_DAY = re.compile(r"(\d{4})(?:-(0[1-9]|1[0-2])(?:-(0[1-9]|[12]\d|3[01]))?)?")

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


def describe(record: Record) -> dict[str, object]:
    """Values of ``COLUMNS`` for ``record``, except ``file`` and ``version``."""
    environment, setup = record.environment, getattr(record, "setup", None)
    values: dict[str, object] = {
        "id": record.id,
        "created": _utc(record).replace(tzinfo=None),
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

    Empty if DuckDB is not installed, and for a local folder: 1,500 JSON files were read there in 0.15 s, their part in
    0.18 s, and a forged part cannot replace them.
    """
    if isinstance(place, Path):
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
                return {file: text for file, text in texts if text and len(text) <= MAX_FILE_BYTES}

    try:
        return repeating(read, place)
    except MissingPackageError:
        return {}


def read_columns(
    database: Database,
    folder: Folder | LocalFolder,
    parts: Mapping[Part, Path],
    columns: Iterable[str],
    *,
    copied: bool,
) -> list[str]:
    """Create the table ``records`` in ``database`` (a view unless ``copied``), with ``columns`` of all records.

    Rows come from the Parquet files ``parts``. JSON files in ``folder`` that have no up-to-date row there are read.
    Returns a message for each file that is not a record.
    """
    selected = [*dict.fromkeys(("file", *_PARTITION, *columns))]
    entries = list_records(folder)
    rows = find_rows(database, "columns", parts, entries)
    faults = add(database, folder, _without(entries, rows.held), selected)
    names = ", ".join(map(_quote, selected))
    sources = [rows.source, "added"] if rows.held else ["added"]
    union = " union all ".join(f"select {names} from {source}" for source in sources)
    database.execute(f"create {'table' if copied else 'view'} records as {union}")
    if copied:  # a query sees nothing but the records
        database.execute("drop table added")
        database.execute("drop table if exists chosen_columns")
    return faults


def list_records(folder: Folder | LocalFolder) -> list[Entry]:
    """The JSON files in ``folder``, without hidden files, in any order."""
    return [entry for entry in folder.entries() if entry.name.endswith(".json") and entry.name[0] != "."]


def _without(entries: Sequence[Entry], held: Collection[str]) -> list[Entry]:
    """``entries`` that are not among the files ``held``, sorted by name."""
    return [] if len(held) == len(entries) else sorted(entry for entry in entries if entry.name not in held)


def find_parts(
    folder: Folder | LocalFolder, table: str = "columns", *, layouts: Container[int] = (LAYOUT,)
) -> list[Part]:
    """The Parquet files of ``table`` in the history of ``folder`` whose version (see ``LAYOUT``) is in ``layouts``."""
    parts: list[Part] = []
    root = f"{SUBFOLDER}/{_FOLDERS[table]}".rstrip("/")
    for kind in filter(_KIND.fullmatch, folder.subfolders(root)):
        for month in filter(_MONTH.fullmatch, folder.subfolders(f"{root}/{kind}")):
            names = sorted(entry.name for entry in folder.entries(f"{root}/{kind}/{month}"))
            matches = filter(None, map(_PART.fullmatch, names))
            parts += [Part(table, f"{kind}/{month}", match[0]) for match in matches if int(match[1]) in layouts]
    return parts


class Opened(NamedTuple):
    """Parquet files of a table: paths of temporary copies of the undamaged files, and the damaged files."""

    copies: dict[Part, Path]
    damaged: list[Part]


@contextmanager
def _scratch_folder() -> Iterator[str]:
    """Context with a temporary folder. Those of killed processes are removed first."""
    _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=f"vmselect-history-{os.getpid()}-") as name:
        yield name


def _remove_abandoned(folder: Path) -> None:
    import psutil  # takes time to import

    oldest = time.time() - ABANDONED_AFTER_SECONDS
    for path in folder.glob("vmselect-history-*"):
        number = path.name.split("-")[2]
        # Both conditions: a compaction may take hours, and a container with the same files does not know its number.
        with suppress(OSError):
            if path.lstat().st_mtime < oldest and not (number.isdigit() and psutil.pid_exists(int(number))):
                shutil.rmtree(path)


@contextmanager
def opened(folder: Folder | LocalFolder, table: str) -> Iterator[Opened]:
    """Context with the Parquet files of ``table`` in the history of ``folder``."""
    with _scratch_folder() as name:
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
def connect() -> Iterator[Database]:
    """Context with a DuckDB database in memory that loads no extensions and cannot access Python variables."""
    duckdb = require("duckdb", extra="history", needed_by="The compacted history")
    with _scratch_folder() as spill:
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


def find_rows(database: Database, table: str, parts: Mapping[Part, Path], entries: Sequence[Entry]) -> Rows:
    """The up-to-date rows of the Parquet files ``parts``, one for each JSON file in ``entries``."""
    paths = _find_valid(database, table, parts.values())
    if not paths:
        return Rows()
    current = {name: version for name, _, version in entries if version}
    keys = database.execute(
        f"select file, case when {_SOUND[table]} then version end as version from {_scan(paths)}"
    ).fetchnumpy()
    files, versions = keys["file"].tolist(), keys["version"].tolist()
    held = frozenset(files)
    if len(held) == len(files) and all(map(operator.eq, map(current.get, files), versions)):
        return Rows(_scan(paths), held, paths)  # the usual case: no file was changed, removed or compacted twice
    numbered = _scan(paths, numbered=True)
    chosen: dict[str, tuple[str, int]] = {}
    for file, version, path, number in database.execute(
        f"select file, version, filename, file_row_number from {numbered} where {_SOUND[table]}"
    ).fetchall():
        if version and current.get(file) == version:
            chosen.setdefault(file, (path, number))
    name = f"chosen_{table}"
    _put(database, name, {"filename": "VARCHAR", "file_row_number": "BIGINT"}, [*chosen.values()])
    source = f"(select * from {numbered} semi join {name} using (filename, file_row_number))"
    return Rows(source, frozenset(chosen), paths)


def _find_valid(database: Database, table: str, paths: Iterable[Path]) -> tuple[Path, ...]:
    """The Parquet files that have the columns of the ``table``. Their values are checked by ``_SOUND``."""
    import duckdb

    valid = []
    for path in paths:
        with suppress(duckdb.Error):
            query = f"describe select * from read_parquet({_literal(path)}, hive_partitioning=false)"
            if {name: kind for name, kind, *_ in database.execute(query).fetchall()} == TABLES[table]:
                valid.append(path)
    return tuple(valid)


def _scan(paths: Iterable[Path], *, numbered: bool = False) -> str:
    """SQL that reads Parquet files; if ``numbered``, each row has the path of its file and its row number."""
    listed = ", ".join(map(_literal, paths))
    more = ", filename=true, file_row_number=true" if numbered else ""
    return f"read_parquet([{listed}], hive_partitioning=true, hive_types={{'kind': VARCHAR, 'month': VARCHAR}}{more})"


def add(
    database: Database,
    folder: Folder | LocalFolder,
    entries: Sequence[Entry],
    columns: Iterable[str],
    *,
    listener: Listener = lambda done, total: None,
) -> list[str]:
    """Read the JSON files ``entries`` into the new table ``added``; return a message for each invalid file."""
    types = {**_PARTITION, **COLUMNS, **TABLES["texts"]}
    table = {name: types[name] for name in columns}
    _put(database, "added", table, [])
    faults: list[str] = []
    rows: list[list[object]] = []
    for number, (entry, content) in enumerate(folder.read_all(entries, limit=MAX_FILE_BYTES), 1):
        try:
            if isinstance(content, ProfileError):
                raise content
            record = parse_record(content, source=entry.name)
        except ProfileError as unreadable:
            faults.append(str(unreadable))
        else:
            made: dict[str, object] = {
                "file": entry.name,
                "version": entry.version,
                "kind": record.kind,
                "record": content,
            }
            made |= {"month": _month(record)} | describe(record)
            rows.append([made.get(name) for name in table])
        if len(rows) == BATCH or number == len(entries):
            _put(database, "added", table, rows)
            rows = []
            listener(number, len(entries))
    return faults


def _put(database: Database, table: str, columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> None:
    """Create the ``table`` unless it exists, and add ``rows`` to it."""
    import pandas as pd

    typed = ", ".join(f"{_quote(name)} {kind}" for name, kind in columns.items())
    database.execute(f"create table if not exists {table} ({typed})")
    if rows:
        values = map(list, zip(*rows, strict=True))
        pairs = zip(columns, values, strict=True)
        frame = pd.DataFrame({name: pd.Series(column, dtype=object) for name, column in pairs})
        database.register("new_rows", frame)
        database.execute(f"insert into {table} select * from new_rows")
        database.unregister("new_rows")


def _utc(record: Record) -> datetime:
    """Time of creation in UTC. At the ends of the calendar, which a wrong clock may write, the zone is left out."""
    try:
        return record.created.astimezone(UTC)
    except OverflowError:
        return record.created.replace(tzinfo=UTC)


def _month(record: Record) -> str:
    created = _utc(record)
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
        old = [part for table in TABLES for part in find_parts(folder, table, layouts=range(LAYOUT))]
        for part in (*columns.damaged, *texts.damaged, *old):
            folder.remove(part.path)
        entries = list_records(folder)
        rows = {
            "columns": find_rows(database, "columns", columns.copies, entries),
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
    database: Database, folder: Folder | LocalFolder, table: str, parts: Mapping[Part, Path], rows: Rows
) -> int:
    """Write new Parquet files for changed partitions (kind and month) of a table, and remove the replaced files.

    Returns the number of new files.
    """
    names = ", ".join(map(_quote, (*_PARTITION, *TABLES[table])))
    sources = [f"{rows.source} semi join held using (file)", "added"] if rows.held else ["added"]
    current = " union all ".join(f"select {names} from {source}" for source in sources)
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


def _count(database: Database, source: str) -> dict[str, int]:
    """Number of rows of each partition (kind and month)."""
    rows = database.execute(f"select kind, month, count(*) from {source} group by kind, month").fetchall()
    return {f"kind={kind}/month={month}": count for kind, month, count in rows}


def _write_partition(
    database: Database, folder: Folder | LocalFolder, table: str, partition: str, current: str, total: int
) -> set[str]:
    """Write the rows of ``partition`` (kind and month) to new Parquet files; return the names of the files."""
    kind, month = (text.partition("=")[2] for text in partition.split("/"))
    names = ", ".join(map(_quote, TABLES[table]))
    order = "created, file" if "created" in TABLES[table] else "file"
    made = set()
    database.execute(
        f"create table partition_rows as select {names} from ({current}) where kind = ? and month = ?", [kind, month]
    )
    with _scratch_folder() as scratch:
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


# -- queries -----------------------------------------------------------------------------------------------------------


class History:
    """All records in a folder or at a URL, as a table. Created by :func:`vmselect.history`."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self._place = check_place("folder", place)
        self.unreadable: tuple[str, ...] = ()
        """A message for each JSON file that the last call could not read as a record."""

    def __repr__(self) -> str:
        return f"history({str(self._place)!r})"

    def compact(self, *, listener: Listener = lambda done, total: None) -> Compaction:
        """Write the records to Parquet files in the subfolder ``history``, from which they load faster.

        The JSON files are not changed and remain authoritative. Only new and changed JSON files are read. ``listener``
        is called with the number of files read so far and the number of files to read.
        """
        compaction = compact(self._place, listener=listener)
        self.unreadable = compaction.unreadable
        return compaction

    def query(self, sql: str) -> pd.DataFrame:
        """The result of one SELECT statement in DuckDB's SQL on the table ``records``, which has a row per record.

        The query can only read this table, and cannot write.
        """
        text = check_name("sql", sql, longest=MAX_SQL_LENGTH)
        return self._run([*COLUMNS], text, (), by_user=True)

    def to_frame(
        self,
        columns: Sequence[str] | None = None,
        *,
        kind: str | None = None,
        gpu: str | None = None,
        instance_type: str | None = None,
        model: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> pd.DataFrame:
        """The records as a table, oldest first, with the given ``columns`` or, by default, with all columns.

        ``gpu`` is a part of the GPU's name, such as ``"T4"``. ``since`` and ``until`` are days, months or years in UTC,
        such as ``"2026-10"``; both are included.
        """
        chosen = [*COLUMNS, "kind"] if columns is None else list(several(check_name, "columns", columns))
        for name in chosen:
            check_choice("columns", name, [*COLUMNS, "kind", "month"])
        conditions: list[tuple[str, str | None]] = [
            ("kind = ?", maybe(check_choice, "kind", kind, choices=[*KINDS])),
            ("contains(lower(gpu), lower(?))", maybe(check_name, "gpu", gpu)),
            ("instance_type = ?", maybe(check_name, "instance_type", instance_type)),
            ("model = ?", maybe(check_name, "model", model)),
            ("strftime(created, '%Y-%m-%d') >= ?", maybe(_first_day, "since", since)),
            ("strftime(created, '%Y-%m-%d') <= ?", maybe(_last_day, "until", until)),
        ]
        filters = [(condition, value) for condition, value in conditions if value is not None]
        where = " and ".join(condition for condition, _ in filters) or "true"
        names = ", ".join(f'"{name}"' for name in chosen)
        used = [name for name in COLUMNS if name in chosen or name in where]
        sql = f"select {names} from records where {where} order by created, file"
        return self._run(["created", *used], sql, [value for _, value in filters])

    def _run(self, columns: Sequence[str], sql: str, values: Sequence[str], *, by_user: bool = False) -> pd.DataFrame:
        """The result of ``sql``. If it was written ``by_user``, it can read nothing but the table ``records``."""

        if isinstance(self._place, Path) and not has_folder(self._place):
            raise ProfileError(f"{self._place}: there is no such folder. Check the path.")

        def read() -> pd.DataFrame:
            folder = open_folder(self._place)
            with connect() as database, opened(folder, "columns") as parts:
                copies = {} if _is_soon_read(folder) else parts.copies
                faults = read_columns(database, folder, copies, columns, copied=by_user)
                self.unreadable = tuple(faults)
                for setting in SETTINGS if by_user else ():
                    database.execute(f"set {setting}")
                return _select(database, sql, values) if by_user else database.execute(sql, values).df()

        with without_garbage_collection():
            return repeating(read, self._place)


@suggest_arguments()
def history(folder: str | os.PathLike[str]) -> History:
    """The records in ``folder``, a path or a URL such as ``s3://team/records``, as a table for queries.

    >>> import tempfile
    >>> from vmselect import Profile
    >>> folder = tempfile.mkdtemp()
    >>> for machine, seconds in (("small", 0.4), ("big", 0.1)):
    ...     _ = Profile.from_times(instance_type=machine, batch_size=8, iteration_seconds=seconds).save(folder)
    >>> h = history(folder)
    >>> h.compact().records
    2
    >>> h.query("select instance_type from records order by step_seconds").instance_type.tolist()
    ['big', 'small']
    """
    return History(folder)


def _is_soon_read(folder: Folder | LocalFolder) -> bool:
    """Whether the JSON files of ``folder`` are read within about a second, so that no forged part can replace them."""
    return isinstance(folder, LocalFolder) and len(list_records(folder)) <= MAX_READ_LOCALLY


def _select(database: Database, sql: str, values: Sequence[str]) -> pd.DataFrame:
    import duckdb

    try:
        statements = database.extract_statements(sql)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise ArgumentError('The query is not a single SELECT statement. Write it as "select ... from records".')
        frame: pd.DataFrame = database.execute(statements[0], list(values)).df()
        return frame
    except duckdb.Error as wrong:
        reason = str(wrong).strip().splitlines()
        raise ArgumentError(
            f"The query cannot be run: {reason[0][:300] if reason else 'unknown error'}. "
            f"The table records has the columns {', '.join(COLUMNS)}, kind and month."
        ) from None


def _first_day(name: str, value: object) -> str:
    return _complete(name, value, "01", "01")


def _last_day(name: str, value: object) -> str:
    return _complete(name, value, "12", "31")


def _complete(name: str, value: object, month: str, day: str) -> str:
    match = _DAY.fullmatch(value) if isinstance(value, str) else None
    if not match:
        raise ArgumentError(f"{name} must be a day, a month or a year such as 2026-10-05, 2026-10 or 2026.")
    return f"{match[1]}-{match[2] or month}-{match[3] or day}"


# -- labels ------------------------------------------------------------------------------------------------------------

ORIGINAL = ".original"
"""Ending that is added to the name of a changed file for its first content. Only files that end in .json are read."""


@dataclass(frozen=True)
class Labelled:
    """Files that were changed, files that already name an instance type, and errors of files that cannot be read."""

    changed: Sequence[Place]
    named: Sequence[Place]
    unreadable: Sequence[ProfileError]


def label_records(
    *paths: Paths, instance_type: str, region: str | None = None, provider: str | None = None, replace: bool = False
) -> Labelled:
    """Write ``instance_type``, and ``region`` and ``provider`` if given, to the record files in ``paths``.

    Records that already name an instance type are only changed with ``replace=True``. The first content of a changed
    file is kept in the same folder, under the name of the file followed by ``.original``. If the records to change are
    of different hardware, an ArgumentError is raised and no file is changed.
    """
    replace = check_flag("replace", replace)
    files = list(walk_records(*paths))
    unreadable = [record for _, record in files if isinstance(record, ProfileError)]
    records = [(path, record) for path, record in files if isinstance(record, Record)]
    unnamed = [(path, record) for path, record in records if replace or record.instance_type is None]
    hardware = list(dict.fromkeys(filter(None, (_describe_hardware(record) for _, record in unnamed))))
    if len(hardware) > 1:
        raise ArgumentError(
            f"The records are of different machines ({list_some(hardware, 4)}). Pass only the files of one machine."
        )
    changed = []
    for path, record in unnamed:
        named = record.with_placement(instance_type=instance_type, region=region, provider=provider)
        folder = open_folder(path.parent)
        folder.create(f"{path.name}{ORIGINAL}", folder.read(path.name, limit=MAX_FILE_BYTES))
        save_record(named, path)
        changed.append(path)
    chosen = {id(record) for _, record in unnamed}
    return Labelled(changed, [path for path, record in records if id(record) not in chosen], unreadable)


def _describe_hardware(record: Record) -> str:
    """Text with the GPUs and the CPU of the machine of a record; empty if they are not known."""
    machine = record.environment
    gpus = [f"{len(machine.gpus)} x {machine.gpus[0].name}"] if machine.gpus else []
    cores = [f"{machine.cpu_cores} cores"] if machine.cpu_cores else []
    return " with ".join([*gpus, " ".join([*cores, *filter(None, [machine.cpu_model])])]).removesuffix(" with ")
