"""Sweeps whose folder is a URL: records are copied there, and the journal stays on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect import _io
from vmselect.cli import app
from vmselect.errors import ArgumentError, ProfileError, SweepError
from vmselect.sweeps import clean, read_state, resume, run
from vmselect.sweeps.plan import Trial

pytest.importorskip("fsspec", reason="URLs need fsspec, which is not installed")

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
from sweep_runners import SimulatedRunner

PLAN = vs.Plan("python -c pass", factors={"batch_size": [32, 64]}, minutes=1)
runner = CliRunner()


def measure(trial: Trial) -> vs.Profile:
    return make_profile("box", 0.1, batch_size=trial.factors["batch_size"])


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new folder in memory, and sweeps that end each trial at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VMSELECT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(run, "make_runner", lambda *_: SimulatedRunner(measure))
    return f"memory://{tmp_path.name}/team"


def refuse_records(patch: pytest.MonkeyPatch) -> None:
    """A store that can be written to at first, and does not accept any record."""
    create = _io.Folder.create

    def refuse(self: _io.Folder, name: str, data: bytes) -> bool:
        if name.endswith(".json"):
            raise ProfileError("Cannot write: no network.")
        return create(self, name, data)

    patch.setattr(_io.Folder, "create", refuse)


def ids(records: Any) -> list[str]:
    return sorted(record.id for record in records)


def test_records_are_copied_once(url: str, tmp_path: Path) -> None:
    result = vs.sweep(PLAN, url, yes=True)
    assert (len(result.records), result.url, dict(result.uncopied)) == (2, url, {})
    assert ids(vs.load_records(url)) == ids(result.records)
    assert result.folder.is_relative_to(tmp_path / "cache")
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
    assert vs.sweep(PLAN, f"{url}/", yes=True).folder == result.folder
    assert ids(resume(url, yes=True).records) == ids(result.records)
    assert ids(vs.load_records(url)) == ids(result.records)
    assert read_state(url).count_statuses()["done"] == 2
    assert clean(url) == []


def test_a_record_that_cannot_be_copied_is_copied_by_resume(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        refuse_records(patch)
        result = vs.sweep(PLAN, url, yes=True)
    assert len(result.records) == len(result.uncopied) == 2
    assert not result.failed
    assert read_state(url).copied == set()
    with pytest.raises(ProfileError):
        vs.load_records(url)
    by_folder = resume(result.folder, yes=True)
    assert dict(by_folder.uncopied) == {}
    assert ids(vs.load_records(url)) == ids(result.records)


def test_records_of_an_interrupted_sweep_are_copied_by_resume(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(state: object, event: dict[str, Any]) -> None:
        if event["event"] == "record":
            raise KeyboardInterrupt

    first = vs.sweep(PLAN, url, yes=True, listener=interrupt)
    assert (len(first.records), len(first.uncopied), len(first.not_started)) == (1, 1, 1)
    rest = resume(url, yes=True)
    assert (len(rest.records), dict(rest.uncopied)) == (2, {})
    assert ids(vs.load_records(url)) == ids(rest.records)


def test_several_plans_share_a_url(url: str) -> None:
    other = vs.Plan("python -c pass", factors={"batch_size": [128]}, minutes=1)
    first, second = vs.sweep(PLAN, url, yes=True), vs.sweep(other, url, yes=True)
    assert ids(vs.load_records(url)) == ids([*first.records, *second.records])
    for act in (read_state, resume, clean):
        with pytest.raises(SweepError) as several:
            act(url)
        assert str(second.folder) in str(several.value)
    assert len(resume(second.folder, yes=True).records) == 1


def test_a_url_that_cannot_be_written_starts_nothing(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bool:
        raise ProfileError("Cannot write: no permission.")

    monkeypatch.setattr(_io.Folder, "create", refuse)
    with pytest.raises(ProfileError):
        vs.sweep(PLAN, url, yes=True)
    assert not [*tmp_path.iterdir()]
    with pytest.raises(SweepError):
        read_state(url)
    with pytest.raises(ArgumentError):
        vs.sweep(PLAN, f"{url}/one.json", yes=True)


def test_no_password_is_kept_or_shown(url: str, tmp_path: Path) -> None:
    secret = url.replace("memory://", "memory://me:hunter22@")
    result = vs.sweep(PLAN, secret, yes=True)
    assert not result.uncopied
    assert "hunter22" not in str(result)
    for file in result.folder.rglob("*"):
        assert "hunter22" not in str(file)
        assert file.is_dir() or b"hunter22" not in file.read_bytes()


def test_the_commands_accept_a_url(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PLAN.save(tmp_path / "plan.yaml")
    with monkeypatch.context() as patch:
        refuse_records(patch)
        done = runner.invoke(app, ["sweep", "run", "plan.yaml", url, "--yes", "--format", "json"])
    assert done.exit_code == 1, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["url"], len(summary["uncopied"]), summary["failed"]) == (url, 2, [])
    assert summary["folder"] in done.stderr
    status = runner.invoke(app, ["sweep", "status", url, "--format", "json"])
    assert [row["status"] for row in json.loads(status.stdout)] == ["done", "done"]
    assert "2 records" in status.stderr
    assert runner.invoke(app, ["sweep", "resume", url, "--yes"]).exit_code == 0
    assert len(vs.load_records(url)) == 2
    assert "records are not copied" not in runner.invoke(app, ["sweep", "status", summary["folder"]]).stderr
    assert runner.invoke(app, ["sweep", "clean", url, "--yes"]).exit_code == 0
