"""The history of a folder: tables, queries, the Parquet files of a compaction, and labels."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect import _io
from vmselect._io import LocalFolder, check_place, open_folder
from vmselect.cli import app
from vmselect.errors import ArgumentError, ProfileError
from vmselect.records import history
from vmselect.records.history import label_records

duckdb = pytest.importorskip("duckdb", reason="the history needs the extra 'history', which is not installed")

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import history as benchmark  # noqa: E402

SECONDS = [0.1, 0.2, 0.3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three records of one month, history."""
    for number, seconds in enumerate(SECONDS):
        profile = make_profile(f"box-{number}", seconds)
        profile.model_copy(update={"created": datetime(2026, 10, 1 + number, tzinfo=UTC)}).save(tmp_path)
    assert vs.history(tmp_path).compact().added == 3
    return tmp_path


def measured(folder: Path) -> list[float]:
    return [round(seconds, 6) for seconds in vs.history(folder).to_frame(["step_seconds"]).step_seconds]


def part(folder: Path, table: str = "columns") -> Path:
    (found,) = history.find_parts(LocalFolder(folder), table)
    return folder / found.path


def rewrite(folder: Path, sql: str, table: str = "columns") -> None:
    """Replace the part of ``table`` by the result of ``sql`` over it, under the name of its digest."""
    old, new = part(folder, table), folder / "new.parquet"
    duckdb.sql(f"copy ({sql.format(f'{str(old)!r}')}) to {str(new)!r} (format parquet)")
    data = new.read_bytes()
    new.unlink()
    old.unlink()
    (old.parent / history._name(data)).write_bytes(data)


@pytest.fixture(autouse=True)
def _read_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read Parquet files, as of a large folder, unless a test asks for the usual limit."""
    if "usual_limit" not in request.fixturenames:
        monkeypatch.setattr(history, "MAX_READ_LOCALLY", 0)


@pytest.fixture
def usual_limit() -> int:
    return history.MAX_READ_LOCALLY


@pytest.mark.parametrize("change", ["step_seconds: 0.001", "instance_type: 'p5.48xlarge'", "model: 'forged'"])
def test_plausible_forged_values_are_not_shown(folder: Path, usual_limit: int, change: str) -> None:
    name, _, value = change.partition(": ")
    before = vs.history(folder).to_frame([name])
    rewrite(folder, f"select * replace ({value} as {name}) from {{}}")
    assert vs.history(folder).to_frame([name]).equals(before)
    assert len(before) <= usual_limit


@pytest.mark.parametrize(
    "sql",
    [
        "select * replace ('1' as batch_size) from {}",
        "select * exclude (model) from {}",
        "select 1 as one from {}",
    ],
)
def test_a_part_with_other_columns_is_not_used_and_is_replaced(folder: Path, sql: str) -> None:
    rewrite(folder, sql)
    wrong = part(folder)
    assert measured(folder) == SECONDS
    assert len(vs.history(folder).query("select * from records")) == 3
    assert vs.history(folder).compact().parts >= 1
    assert part(folder) != wrong
    assert measured(folder) == SECONDS


def test_a_part_that_is_no_parquet_file_is_replaced(folder: Path) -> None:
    for table in history.TABLES:
        old = part(folder, table)
        old.unlink()
        (old.parent / history._name(b"nothing")).write_bytes(b"nothing")
    assert measured(folder) == SECONDS
    assert len(vs.load_profiles(folder)) == 3
    assert vs.history(folder).compact().parts == 2
    assert measured(folder) == SECONDS


def test_each_table_is_read_without_the_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a JSON file was read")

    with monkeypatch.context() as patch:
        patch.setattr(history, "parse_record", refuse)
        part(folder, "texts").unlink()
        assert measured(folder) == SECONDS
    assert vs.history(folder).compact().parts == 1


@pytest.mark.parametrize(
    "change",
    ["step_seconds: -1.0", "step_seconds: 'nan'::double", "id: 'x'", "created: null", "steady_seconds: [0.1, -5.0]",
     "batch_size: -3::bigint", "total_seconds: 'inf'::double"],
)  # fmt: skip
def test_a_forged_row_does_not_replace_its_json_file(folder: Path, change: str) -> None:
    name, _, value = change.partition(": ")
    columns = ["file", "step_seconds", "id", "created", "steady_seconds", "batch_size", "total_seconds"]
    before = vs.history(folder).to_frame(columns)
    rewrite(folder, f"select * replace ({value} as {name}) from {{}}")
    assert vs.history(folder).to_frame(columns).equals(before)


def test_a_forged_text_does_not_replace_its_json_file(folder: Path) -> None:
    """A local folder is read from its JSON files; elsewhere a text has the size, and in S3 the digest, of its file."""
    rewrite(folder, "select * replace (encode('{{}}') as record) from {}", "texts")
    assert len(vs.load_profiles(folder)) == 3
    row = "select 'a.json' as file, '{}' as version, encode('text') as record"
    digest = hashlib.md5(b"text", usedforsecurity=False).hexdigest()
    for version, sound in ((f'4-"{digest}"', True), ("4-17", True), ("5-17", False), (f'4-"{"0" * 32}"', False)):
        with history.connect() as database:
            query = f"select {history._SOUND['texts']} from ({row.format(version)})"
            assert database.execute(query).fetchone() == (sound,), version


def test_an_edit_that_keeps_size_and_time_is_noticed(folder: Path) -> None:
    path = sorted(folder.glob("*.json"))[0]
    about, text = path.stat(), path.read_text()
    path.write_text(text.replace("box-0", "box-9"))
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert path.stat().st_size == about.st_size
    names = vs.history(folder).to_frame(["instance_type"]).instance_type.tolist()
    assert names == ["box-9", "box-1", "box-2"]


@pytest.mark.parametrize("created", ["0001-01-01T00:00:00+10:00", "9999-12-31T23:59:59-10:00", "0001-01-01T00:00:00Z"])
def test_a_date_at_an_end_of_the_calendar_does_not_hide_other_records(folder: Path, created: str) -> None:
    data = json.loads(next(folder.glob("*.json")).read_text())
    (folder / "odd.json").write_text(json.dumps({**data, "created": created, "id": "1" * 32}))
    for _ in range(2):
        listed = CliRunner().invoke(app, ["history", "list", str(folder), "--format", "json"])
        assert listed.exit_code == 0
        assert created[:10] in {row["created"][:10] for row in json.loads(listed.stdout)}
        assert vs.history(folder).compact().records == 4


def test_folders_of_killed_compactions_are_removed(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    ended = subprocess.Popen(["true"])
    ended.wait()
    for name in (f"{ended.pid}-old", f"{ended.pid}-new", f"{os.getpid()}-mine", "name-of-an-earlier-version"):
        path = temporary / f"vmselect-history-{name}"
        path.mkdir()
        if "new" not in name:
            os.utime(path, (0, 0))
    vs.history(folder).compact()
    left = {path.name.rpartition("-")[2] for path in temporary.iterdir()}
    assert left == {"new", "mine"}


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="no such folder"):
        vs.history(tmp_path / "nowhere").to_frame()


def test_a_missing_bucket_is_an_error_and_a_missing_folder_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    class Store:
        """A store with the bucket "team" and no files."""

        def invalidate_cache(self) -> None:
            pass

        def ls(self, path: str, **_: object) -> list[object]:
            raise FileNotFoundError(path)

        def exists(self, path: str) -> bool:
            return path == "team"

    monkeypatch.setattr(_io, "open_files", lambda address, **_: (Store(), address.text.partition("://")[2]))
    assert open_folder(check_place("folder", "s3://team/records")).entries() == []
    with pytest.raises(ProfileError, match="no bucket tema"):
        open_folder(check_place("folder", "s3://tema/records")).entries()


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
    with history.connect() as database:
        rows = [(None, None)] * (history.BATCH - 1) + [([0.5], "text")]
        history._put(database, "rows", {"seconds": "DOUBLE[]", "name": "VARCHAR"}, rows)
        assert database.execute("select seconds, name from rows where name is not null").fetchall() == [([0.5], "text")]


def test_a_part_that_vanishes_while_it_is_read_is_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction by another process replaces the parts in the middle of a query."""
    read = history.find_rows

    def find_rows(*given: object) -> history.Rows:
        rows = read(*given)  # type: ignore[arg-type]
        part(folder).unlink()
        monkeypatch.setattr(history, "find_rows", read)
        return rows

    monkeypatch.setattr(history, "find_rows", find_rows)
    assert measured(folder) == SECONDS


def test_the_benchmark_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(benchmark, "ROUNDS", 1)
    benchmark.main(6, 4)
    shown = capsys.readouterr().out
    assert "columns: 6 records" in shown
    assert "json: 4 records" in shown


@pytest.fixture
def months(tmp_path: Path) -> Path:
    for number, month in enumerate((9, 10, 11)):
        profile = make_profile(f"box-{number}", 0.1 * (number + 1), batch_size=8)
        profile.model_copy(update={"created": datetime(2026, month, 5, tzinfo=UTC)}).save(tmp_path / "records")
    return tmp_path / "records"


@pytest.mark.parametrize("compacted", [False, True])
def test_days_are_included(months: Path, compacted: bool) -> None:
    h = vs.history(months)
    if compacted:
        h.compact()
    assert h.to_frame(["instance_type"], since="2026-10").instance_type.tolist() == ["box-1", "box-2"]
    assert h.to_frame(["instance_type"], until="2026-10").instance_type.tolist() == ["box-0", "box-1"]
    assert h.to_frame(["instance_type"], since="2026-10-05", until="2026-10-05").instance_type.tolist() == ["box-1"]
    assert h.to_frame(["instance_type"], since="2026-10-06", until="2026").instance_type.tolist() == ["box-2"]
    assert len(h.to_frame()) == 3
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
def test_a_query_reaches_nothing_but_the_records(months: Path, sql: str) -> None:
    h = vs.history(months)
    h.compact()
    file = next(months.glob("*.json"))
    before = sorted(months.rglob("*"))
    with pytest.raises(ArgumentError):
        h.query(sql.format(file, months))
    assert sorted(months.rglob("*")) == before


def test_a_file_that_is_no_record_is_reported(months: Path) -> None:
    (months / "other.json").write_text("{}")
    h = vs.history(months)
    assert len(h.query("select id from records")) == 3
    assert len(h.unreadable) == 1
    assert h.compact().records == 3
    assert len(h.unreadable) == 1


@pytest.mark.parametrize("since", ["2026-13", "yesterday", 5, "2026-10-32"])
def test_days_are_checked(months: Path, since: object) -> None:
    with pytest.raises(ArgumentError):
        vs.history(months).to_frame(since=since)  # type: ignore[arg-type]


def save(folder: Path, instance_type: str | None = None, **changes: Any) -> Path:
    return Path(make_profile(instance_type, **changes).save(folder))


def original(path: Path) -> Path:
    return path.with_name(f"{path.name}.original")


def test_an_unnamed_record_is_named_and_its_original_is_kept(tmp_path: Path) -> None:
    path = save(tmp_path)
    before, old = path.read_bytes(), vs.Profile.load(path)
    done = label_records(tmp_path, instance_type="g4dn.xlarge", region="us-east-1")
    assert (done.changed, done.named, done.unreadable) == ([path], [], [])
    (named,) = vs.load_profiles(tmp_path)  # the original is not read
    assert (named.instance_type, named.region, named.provider) == ("g4dn.xlarge", "us-east-1", None)
    assert {fact.source for fact in (named.placement.instance_type, named.placement.region) if fact} == {"given"}
    assert named == old.with_placement(instance_type="g4dn.xlarge", region="us-east-1")
    assert named.id == old.id
    assert original(path).read_bytes() == before
    assert vs.rank(named, epochs=5).best.instance_type == "g4dn.xlarge"


def test_named_records_are_changed_only_on_request_and_the_first_original_stays(tmp_path: Path) -> None:
    path = save(tmp_path, "g4dn.xlage")
    before = path.read_bytes()
    assert label_records(path, instance_type="g4dn.xlarge").named == [path]
    assert path.read_bytes() == before
    assert not original(path).exists()
    for name in ("g4dn.2xlarge", "g4dn.xlarge"):
        assert label_records(path, instance_type=name, replace=True).changed == [path]
        assert vs.Profile.load(path).instance_type == name
    assert original(path).read_bytes() == before


def test_records_of_different_machines_are_refused_and_stay(tmp_path: Path) -> None:
    paths = [save(tmp_path, environment={"cpu_model": model, "cpu_cores": 4}) for model in ("Xeon", "EPYC")]
    before = [path.read_bytes() for path in paths]
    with pytest.raises(ArgumentError, match="EPYC"):
        label_records(tmp_path, instance_type="g4dn.xlarge")
    assert [path.read_bytes() for path in paths] == before
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    assert label_records(paths[0], instance_type="g4dn.xlarge").changed == paths[:1]


@pytest.mark.parametrize("name", ["", " ", "x" * 201, chr(0xD800), chr(0xDC80)])
def test_an_invalid_name_changes_nothing(name: str, tmp_path: Path) -> None:
    path = save(tmp_path)
    before = path.read_bytes()
    with pytest.raises(ArgumentError):
        label_records(path, instance_type=name)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_record_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(history, "save_record", fail)
    with pytest.raises(OSError, match="disk full"):
        label_records(path, instance_type="g4dn.xlarge")
    assert path.read_bytes() == original(path).read_bytes() == before
    monkeypatch.undo()
    assert label_records(path, instance_type="g4dn.xlarge").changed == [path]


def test_a_folder_may_be_a_url(tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="URLs need fsspec")
    url = f"memory://{tmp_path.name}-labels/records"
    make_profile(None).save(url)
    assert len(label_records(url, instance_type="g4dn.xlarge").changed) == 1
    assert [one.instance_type for one in vs.load_profiles(url)] == ["g4dn.xlarge"]


def test_the_command_prints_the_changed_files(tmp_path: Path) -> None:
    unnamed, named = save(tmp_path), save(tmp_path, "g5.xlarge")
    command = ["history", "label", str(tmp_path), "--instance-type", "g4dn.xlage"]
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, done.stdout.split()) == (0, [str(unnamed)])
    assert "g4dn.xlarge" in done.stderr, "the name is accepted, and a similar one is suggested"
    assert vs.Profile.load(named).instance_type == "g5.xlarge"
    again = CliRunner().invoke(app, command)
    assert (again.exit_code, again.stdout) == (1, "")
    (tmp_path / "broken.json").write_text("{}")
    assert CliRunner().invoke(app, [*command, "--replace", "--quiet"]).exit_code == 2
    assert vs.Profile.load(named).instance_type == "g4dn.xlage"
