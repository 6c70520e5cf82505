from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect.errors import ArgumentError
from vmselect.records.compacted import RANK_COLUMNS

pytest.importorskip("duckdb", reason="the history needs the extra 'history', which is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, month in enumerate((9, 10, 11)):
        profile = make_profile(f"box-{number}", 0.1 * (number + 1), batch_size=8)
        profile.model_copy(update={"created": datetime(2026, month, 5, tzinfo=UTC)}).save(tmp_path / "records")
    return tmp_path / "records"


@pytest.mark.parametrize("compacted", [False, True])
def test_days_are_included(folder: Path, compacted: bool) -> None:
    h = vs.history(folder)
    if compacted:
        h.compact()
    assert h.to_frame(["instance_type"], since="2026-10").instance_type.tolist() == ["box-1", "box-2"]
    assert h.to_frame(["instance_type"], until="2026-10").instance_type.tolist() == ["box-0", "box-1"]
    assert h.to_frame(["instance_type"], since="2026-10-05", until="2026-10-05").instance_type.tolist() == ["box-1"]
    assert h.to_frame(["instance_type"], since="2026-10-06", until="2026").instance_type.tolist() == ["box-2"]
    assert len(h.to_frame(RANK_COLUMNS)) == 3
    assert h.to_frame(["month"]).month.tolist() == ["2026-09", "2026-10", "2026-11"]


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_text('{0}')",
        "select * from '{0}'",
        "select * from glob('{1}/*')",
        "select * from read_parquet('{1}/history/*/*/*.parquet')",
        "copy records to '{1}/stolen.csv'",
        "attach '{1}/stolen.db'",
        "set enable_external_access = true",
        "install httpfs",
        "drop table records",
        "select 1; drop table records",
        "select * from folder",
        "nonsense",
        "",
    ],
)
def test_a_query_reaches_nothing_but_the_records(folder: Path, sql: str) -> None:
    h = vs.history(folder)
    h.compact()
    file = next(folder.glob("*.json"))
    before = sorted(folder.rglob("*"))
    with pytest.raises(ArgumentError):
        h.query(sql.format(file, folder))
    assert sorted(folder.rglob("*")) == before


def test_a_file_that_is_no_record_is_reported(folder: Path) -> None:
    (folder / "other.json").write_text("{}")
    h = vs.history(folder)
    assert len(h.query("select id from records")) == 3
    assert len(h.unreadable) == 1
    assert h.compact().records == 3
    assert len(h.unreadable) == 1


@pytest.mark.parametrize("since", ["2026-13", "yesterday", 5, "2026-10-32"])
def test_days_are_checked(folder: Path, since: object) -> None:
    with pytest.raises(ArgumentError):
        vs.history(folder).to_frame(since=since)  # type: ignore[arg-type]
