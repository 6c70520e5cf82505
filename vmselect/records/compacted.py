"""The compacted history of a folder of records: Parquet files in its subfolder ``history``, by kind and month.

The JSON files remain authoritative. A Parquet file is called a part. A row of a part is used only while the folder
lists the JSON file in the version from which the row was made. The name of a part is the digest of its bytes, and its
content never changes. A compaction first writes the new part of a partition (kind and month), and then removes the
parts that it replaces. If a compaction is interrupted, repeated, concurrent with another, or sees an incomplete
listing, rows may exist twice or be missing: readers use one of several equal rows, and read JSON files that have no
row.
"""

from __future__ import annotations

import hashlib
import json
import re
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any, NamedTuple

from vmselect._files import has_folder, write_bytes
from vmselect._optional import require
from vmselect._stores import Entry, Folder, LocalFolder, Place, open_folder
from vmselect.errors import MissingPackageError, ProfileError
from vmselect.records.record import Record
from vmselect.records.registry import parse_record
from vmselect.records.training import METHOD_TIMES, Profile

SUBFOLDER = "history"
LAYOUT = 1
"""Version number of the columns below. Parts with another version number are not read."""

MAX_RECORD_BYTES = 32 * 1024 * 1024
MAX_PART_BYTES = 1024**3
MAX_PART_ROWS = 50_000
BATCH = 5_000
"""Number of records that are parsed before they are added to the table together."""

_PART = re.compile(rf"{LAYOUT}-([0-9a-f]{{64}})\.parquet")
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

_TEXT = {"record": "BLOB"}
_PARTITION = {"kind": "VARCHAR", "month": "VARCHAR"}

Listener = Callable[[int, int], None]
"""Function that is called with the number of JSON files read so far, and the number of JSON files to read."""


class Part(NamedTuple):
    """One Parquet file: its subfolder of ``history`` (``partition``) and its file name."""

    partition: str
    name: str

    @property
    def path(self) -> str:
        """Path of the Parquet file, relative to the folder of the records."""
        return f"{SUBFOLDER}/{self.partition}/{self.name}"


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
        values["step_seconds"] = statistics.median(steady) if steady else None
        values["total_seconds"] = record.total_seconds
    return values


# -- reading -----------------------------------------------------------------------------------------------------------


def read_texts(place: Place, entries: Sequence[Entry] | None = None) -> dict[str, bytes]:
    """Contents of the JSON files in ``place`` that its compacted history contains, by file name.

    Empty if DuckDB is not installed.
    """
    if isinstance(place, Path) and not has_folder(place / SUBFOLDER):
        return {}
    try:
        folder = open_folder(place)
        with opened(folder) as parts:
            if not parts:
                return {}
            with connect() as database:
                load(database, list_records(folder) if entries is None else entries, parts, (*_TEXT,))
                return dict(database.sql("select file, record from records").fetchall())
    except MissingPackageError:
        return {}


def list_records(folder: Folder | LocalFolder) -> list[Entry]:
    """The JSON files in ``folder``, without hidden files."""
    return [one for one in folder.entries() if one.name.endswith(".json") and not one.name.startswith(".")]


def find_parts(folder: Folder | LocalFolder) -> list[Part]:
    """The Parquet files of the history of ``folder``."""
    found = []
    for kind in filter(_KIND.fullmatch, folder.subfolders(SUBFOLDER)):
        for month in filter(_MONTH.fullmatch, folder.subfolders(f"{SUBFOLDER}/{kind}")):
            partition = f"{kind}/{month}"
            names = [one.name for one in folder.entries(f"{SUBFOLDER}/{partition}")]
            found += [Part(partition, name) for name in names if _PART.fullmatch(name)]
    return found


@contextmanager
def opened(folder: Folder | LocalFolder) -> Iterator[dict[Part, Path]]:
    """Context with the undamaged Parquet files of the history of ``folder``, and paths of temporary copies of them."""
    with tempfile.TemporaryDirectory(prefix="vmselect-history-") as name:
        copies: dict[Part, Path] = {}
        for part in find_parts(folder):
            try:
                data = folder.read(part.path, limit=MAX_PART_BYTES)
            except ProfileError:  # removed by a compaction since it was listed
                continue
            if _name(data) != part.name:
                continue  # damaged: its JSON files are read instead
            copy = Path(name, part.partition, part.name)
            if isinstance(folder, LocalFolder):
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.symlink_to(folder.path / part.path)  # its real path may contain characters that DuckDB interprets
            else:
                write_bytes(copy, data)
            copies[part] = copy
        yield copies


@contextmanager
def connect() -> Iterator[Any]:
    """Context with a DuckDB database in memory that loads no extensions and cannot access Python variables."""
    duckdb = require("duckdb", extra="history", needed_by="The compacted history")
    with tempfile.TemporaryDirectory(prefix="vmselect-history-") as spill:
        options = {
            "autoinstall_known_extensions": False, "autoload_known_extensions": False,
            "python_enable_replacements": False, "temp_directory": spill,
        }  # fmt: skip
        database = duckdb.connect(":memory:", config=options)
        try:
            yield database
        finally:
            database.close()


def load(database: Any, entries: Sequence[Entry], parts: dict[Part, Path], columns: Iterable[str]) -> list[Entry]:
    """Create the table ``records`` from the up-to-date rows of ``parts``; return the entries without such a row."""
    import pandas as pd

    types = _PARTITION | COLUMNS | _TEXT
    wanted = [*dict.fromkeys(("file", "version", *_PARTITION, *columns))]
    database.execute(f"create table records ({', '.join(f'{_quote(name)} {types[name]}' for name in wanted)})")
    known = [one for one in entries if one.version]
    if not parts or not known:
        return list(entries)
    listing = pd.DataFrame(
        {"file": [one.name for one in known], "version": [one.version for one in known]}, dtype=object
    )
    database.register("listing", listing)
    names = ", ".join(map(_quote, wanted))
    database.execute(
        f"insert into records select distinct on (file) {names} from read_parquet(?, hive_partitioning=true, "
        "hive_types={'kind': VARCHAR, 'month': VARCHAR}) semi join listing using (file, version)",
        [[str(path) for path in parts.values()]],
    )
    database.unregister("listing")
    held = {name for (name,) in database.sql("select file from records").fetchall()}
    return [one for one in entries if one.name not in held]


def add(
    database: Any,
    folder: Folder | LocalFolder,
    entries: Sequence[Entry],
    *,
    listener: Listener = lambda done, total: None,
) -> list[str]:
    """Read the JSON files ``entries`` into the table ``records``; return a message for each invalid file."""
    faults, rows = [], []
    columns = [name for name, *_ in database.sql("select * from records limit 0").description]
    for number, (entry, content) in enumerate(folder.read_all(entries, limit=MAX_RECORD_BYTES), 1):
        try:
            if isinstance(content, ProfileError):
                raise content
            record = parse_record(content, source=entry.name)
        except ProfileError as unreadable:
            faults.append(str(unreadable))
        else:
            made = {"file": entry.name, "version": entry.version, "kind": record.kind, "record": content}
            month = f"{record.created.astimezone(UTC):%Y-%m}"
            rows.append(made | {"month": month} | describe(record))
        if len(rows) == BATCH or number == len(entries):
            _insert(database, columns, rows)
            rows = []
            listener(number, len(entries))
    return faults


def _insert(database: Any, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    import pandas as pd

    if rows:
        frame = pd.DataFrame({name: pd.Series([row.get(name) for row in rows], dtype=object) for name in columns})
        database.register("added", frame)
        database.execute("insert into records select * from added")
        database.unregister("added")


def _quote(name: str) -> str:
    return f'"{name}"'


# -- writing -----------------------------------------------------------------------------------------------------------


def compact(place: Place, *, listener: Listener = lambda done, total: None) -> Compaction:
    """Bring the compacted history of the folder ``place`` up to date. The JSON files are not changed."""
    folder = open_folder(place)
    with opened(folder) as parts, connect() as database:
        fresh = load(database, list_records(folder), parts, (*COLUMNS, *_TEXT))
        faults = add(database, folder, fresh, listener=listener)
        # A file whose version is unknown has to be read again by every reader.
        database.execute("delete from records where version = ''")
        counts = {
            f"kind={kind}/month={month}": count
            for kind, month, count in database.sql("select kind, month, count(*) from records group by all").fetchall()
        }
        written = 0
        for partition in sorted({*counts, *(part.partition for part in parts)}):
            old = {part: copy for part, copy in parts.items() if part.partition == partition}
            new = _write(database, folder, partition, old, counts.get(partition, 0))
            for part in old:
                if part.name not in new:
                    folder.remove(part.path)
            written += len(new - {part.name for part in old})
    added = len(fresh) - len(faults)
    return Compaction(sum(counts.values()), added, written, tuple(faults))


def _write(database: Any, folder: Folder | LocalFolder, partition: str, old: dict[Part, Path], count: int) -> set[str]:
    """Write the rows of ``partition`` unless the ``old`` parts have the same rows; return the names of its parts."""
    kind, month = (text.partition("=")[2] for text in partition.split("/"))
    where = "kind = ? and month = ?"
    if old:
        listed = [str(path) for path in old.values()]
        stored = database.execute("select count(*) from read_parquet(?)", [listed]).fetchone()[0]
        query = f"select count(*) from records where {where} and file in (select file from read_parquet(?))"
        kept = database.execute(query, [kind, month, listed]).fetchone()[0]
        if stored == kept == count and len(old) <= -(-count // MAX_PART_ROWS):
            return {part.name for part in old}
    names = ", ".join(map(_quote, (*COLUMNS, *_TEXT)))
    made = set()
    with tempfile.TemporaryDirectory(prefix="vmselect-history-") as scratch:
        for start in range(0, count, MAX_PART_ROWS):
            file = Path(scratch, f"{start}.parquet")
            database.execute(
                f"copy (select {names} from records where {where} order by file limit {MAX_PART_ROWS} offset {start}) "
                f"to '{file.as_posix()}' (format parquet, compression zstd)",
                [kind, month],
            )
            data = file.read_bytes()
            part = Part(partition, _name(data))
            folder.create(part.path, data)
            made.add(part.name)
    return made


def _name(data: bytes) -> str:
    """File name of a part with the content ``data``."""
    return f"{LAYOUT}-{hashlib.sha256(data).hexdigest()}.parquet"
