"""The Parquet files of a compacted history: what is read from them, and what is not believed."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect._stores import LocalFolder
from vmselect.records import compacted

duckdb = pytest.importorskip("duckdb", reason="the history needs the extra 'history', which is not installed")

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import history as benchmark  # noqa: E402

SECONDS = [0.1, 0.2, 0.3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three records of one month, compacted."""
    for number, seconds in enumerate(SECONDS):
        profile = make_profile(f"box-{number}", seconds)
        profile.model_copy(update={"created": datetime(2026, 10, 1 + number, tzinfo=UTC)}).save(tmp_path)
    assert vs.history(tmp_path).compact().added == 3
    return tmp_path


def measured(folder: Path) -> list[float]:
    return [round(seconds, 6) for seconds in vs.history(folder).to_frame(["step_seconds"]).step_seconds]


def part(folder: Path, table: str = "columns") -> Path:
    (found,) = compacted.find_parts(LocalFolder(folder), table)
    return folder / found.path


def rewrite(folder: Path, sql: str) -> None:
    """Replace the part of the columns by the result of ``sql`` over it, under the name of its digest."""
    old, new = part(folder), folder / "new.parquet"
    duckdb.sql(f"copy ({sql.format(f'{str(old)!r}')}) to {str(new)!r} (format parquet)")
    data = new.read_bytes()
    new.unlink()
    old.unlink()
    (old.parent / compacted._name(data)).write_bytes(data)


@pytest.mark.parametrize(
    "sql",
    [
        "select * replace (-1.0 as step_seconds) from {}",
        "select * replace ('nan'::double as step_seconds) from {}",
        "select * replace (['nan'::double] as steady_seconds) from {}",
        "select * replace (repeat('x', 5000) as model) from {}",
        "select * replace (null::varchar as id) from {}",
        "select * replace (null::varchar as file, null::varchar as version) from {}",
        "select * replace ('infinity'::timestamp as created) from {}",
        "select * replace ('1' as batch_size) from {}",
        "select * exclude (model) from {}",
        "select 1 as one from {}",
    ],
)
def test_a_part_with_impossible_values_is_not_used_and_is_replaced(folder: Path, sql: str) -> None:
    rewrite(folder, sql)
    wrong = part(folder)
    assert measured(folder) == SECONDS
    assert len(vs.history(folder).query("select * from records")) == 3
    assert vs.history(folder).compact().parts >= 1
    assert part(folder) != wrong
    assert measured(folder) == SECONDS


def test_a_part_that_is_no_parquet_file_is_replaced(folder: Path) -> None:
    for table in compacted.TABLES:
        old = part(folder, table)
        old.unlink()
        (old.parent / compacted._name(b"nothing")).write_bytes(b"nothing")
    assert measured(folder) == SECONDS
    assert len(vs.load_profiles(folder)) == 3
    assert vs.history(folder).compact().parts == 2
    assert measured(folder) == SECONDS


def test_each_table_is_read_without_the_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a JSON file was read")

    with monkeypatch.context() as patch:
        patch.setattr(compacted, "parse_record", refuse)
        part(folder, "texts").unlink()
        assert measured(folder) == SECONDS
    assert vs.history(folder).compact().parts == 1
    part(folder).unlink()
    with monkeypatch.context() as patch:
        patch.setattr("vmselect.records.store.read_bytes", refuse)
        assert len(vs.load_profiles(folder)) == 3


def test_parts_of_an_earlier_layout_are_removed(folder: Path) -> None:
    old = part(folder).parent / f"1-{'0' * 64}.parquet"
    newer = part(folder).parent / f"9999-{'0' * 64}.parquet"
    for file in (old, newer):
        file.write_bytes(b"")
    assert measured(folder) == SECONDS
    assert vs.history(folder).compact().added == 0
    assert (old.exists(), newer.exists()) == (False, True)


def test_only_a_changed_month_is_written_again(folder: Path) -> None:
    profile = make_profile("new", 0.4)
    profile.model_copy(update={"created": datetime(2026, 11, 1, tzinfo=UTC)}).save(folder)
    before = part(folder)
    assert vs.history(folder).compact().parts == 2
    assert before.exists()
    assert measured(folder) == [*SECONDS, 0.4]


def test_a_value_after_many_unknown_ones_keeps_its_type() -> None:
    with compacted.connect() as database:
        rows = [(None, None)] * (compacted.BATCH - 1) + [([0.5], "text")]
        compacted._put(database, "rows", {"seconds": "DOUBLE[]", "name": "VARCHAR"}, rows)
        assert database.execute("select seconds, name from rows where name is not null").fetchall() == [([0.5], "text")]


def test_a_part_that_vanishes_while_it_is_read_is_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction by another process replaces the parts in the middle of a query."""
    read = compacted.find_rows

    def find_rows(*given: object) -> compacted.Rows:
        rows = read(*given)  # type: ignore[arg-type]
        part(folder).unlink()
        monkeypatch.setattr(compacted, "find_rows", read)
        return rows

    monkeypatch.setattr(compacted, "find_rows", find_rows)
    assert measured(folder) == SECONDS


def test_the_benchmark_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(benchmark, "ROUNDS", 1)
    benchmark.main(6, 4)
    shown = capsys.readouterr().out
    assert "columns: 6 records" in shown
    assert "json: 4 records" in shown
