"""Naming the machine of existing records: the named files, their originals, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect.cli import app
from vmselect.errors import ArgumentError
from vmselect.records import labels
from vmselect.records.labels import label_records


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

    monkeypatch.setattr(labels, "save_record", fail)
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
    command = ["label", str(tmp_path), "--instance-type", "g4dn.xlage"]
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, done.stdout.split()) == (0, [str(unnamed)])
    assert "g4dn.xlarge" in done.stderr, "the name is accepted, and a similar one is suggested"
    assert vs.Profile.load(named).instance_type == "g5.xlarge"
    again = CliRunner().invoke(app, command)
    assert (again.exit_code, again.stdout) == (1, "")
    (tmp_path / "broken.json").write_text("{}")
    assert CliRunner().invoke(app, [*command, "--replace", "--quiet"]).exit_code == 2
    assert vs.Profile.load(named).instance_type == "g4dn.xlage"
