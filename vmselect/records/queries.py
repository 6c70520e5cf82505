"""Tables of all records in a folder, and SQL queries over them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vmselect._checks import check_choice, check_name, maybe, several
from vmselect._stores import check_place, open_folder
from vmselect.errors import ArgumentError
from vmselect.records import compacted
from vmselect.records.compacted import COLUMNS, Compaction, Listener
from vmselect.records.registry import KINDS
from vmselect.records.store import settle, without_garbage_collection

if TYPE_CHECKING:
    import pandas as pd

MAX_SQL_LENGTH = 100_000
SETTINGS = ("enable_external_access = false", "memory_limit = '2GB'", "lock_configuration = true")
"""Settings of the database while it runs a query of the user."""

_DAY = re.compile(r"(\d{4})(?:-(0[1-9]|1[0-2])(?:-(0[1-9]|[12]\d|3[01]))?)?")


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
        settle(self._place)
        done = compacted.compact(self._place, listener=listener)
        self.unreadable = done.unreadable
        return done

    def query(self, sql: str) -> pd.DataFrame:
        """The result of one SELECT statement in DuckDB's SQL on the table ``records``, which has a row per record.

        The query can only read this table, and cannot write.
        """
        text = check_name("sql", sql, longest=MAX_SQL_LENGTH)
        return self._run([*COLUMNS], text, (), given=True)

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
        conditions: list[tuple[str, Any]] = [
            ("kind = ?", maybe(check_choice, "kind", kind, choices=[*KINDS])),
            ("contains(lower(gpu), lower(?))", maybe(check_name, "gpu", gpu)),
            ("instance_type = ?", maybe(check_name, "instance_type", instance_type)),
            ("model = ?", maybe(check_name, "model", model)),
            ("strftime(created, '%Y-%m-%d') >= ?", maybe(_first_day, "since", since)),
            ("strftime(created, '%Y-%m-%d') <= ?", maybe(_last_day, "until", until)),
        ]
        given = [(condition, value) for condition, value in conditions if value is not None]
        where = " and ".join(condition for condition, _ in given) or "true"
        names = ", ".join(f'"{name}"' for name in chosen)
        used = [name for name in COLUMNS if name in chosen or name in where]
        sql = f"select {names} from records where {where} order by created, file"
        return self._run(["created", *used], sql, [value for _, value in given])

    def _run(self, columns: Sequence[str], sql: str, values: Sequence[Any], *, given: bool = False) -> pd.DataFrame:
        """The result of ``sql``. If it was ``given`` by the user, it can read nothing but the table ``records``."""

        def read() -> pd.DataFrame:
            folder = open_folder(self._place)
            with compacted.connect() as database, compacted.opened(folder, "columns") as parts:
                faults = compacted.read_columns(database, folder, parts.copies, columns, copied=given)
                self.unreadable = tuple(faults)
                for setting in SETTINGS if given else ():
                    database.execute(f"set {setting}")
                return _select(database, sql, values) if given else database.execute(sql, values).df()

        with without_garbage_collection():
            return compacted.repeating(read, self._place)


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


def _select(database: Any, sql: str, values: Sequence[Any]) -> pd.DataFrame:
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


def _first_day(name: str, value: Any) -> str:
    return _complete(name, value, "01", "01")


def _last_day(name: str, value: Any) -> str:
    return _complete(name, value, "12", "31")


def _complete(name: str, value: Any, month: str, day: str) -> str:
    found = _DAY.fullmatch(value) if isinstance(value, str) else None
    if not found:
        raise ArgumentError(f"{name} must be a day, a month or a year such as 2026-10-05, 2026-10 or 2026.")
    return f"{found[1]}-{found[2] or month}-{found[3] or day}"
