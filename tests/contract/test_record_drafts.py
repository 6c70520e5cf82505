"""A record file is its own draft: killed writers leave a valid record, and no other file remains."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect.records.files import RecordFile

WRITER = """
import sys, time
from pathlib import Path
import vmselect as vs
from vmselect.records.files import RecordFile
profile = vs.Profile.from_times(instance_type="box", batch_size=8, iteration_seconds=0.1)
file = RecordFile(Path(sys.argv[1]))
file.write(profile.model_copy(update={"outcome": "interrupted"}))
print("written", flush=True)
while sys.argv[2:] == ["forever"]:
    file.write(profile.model_copy(update={"outcome": "interrupted"}))
time.sleep(600)
"""


def make_box(seconds: float = 0.1) -> vs.Profile:
    return make_profile("box", seconds, batch_size=8)


def write_draft(path: Path, record: vs.Profile) -> RecordFile:
    file = RecordFile(path)
    file.write(record)
    return file


@pytest.fixture
def writer():
    """Starts a process that writes a record file and then lives on."""
    started = []

    def start(path: Path, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WRITER, str(path), *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("target", [".", "p.json"])
def test_a_record_is_valid_while_its_writer_lives_and_after_it_was_killed(tmp_path: Path, writer, target: str) -> None:
    process = writer(tmp_path / target)
    (before,) = vs.load_profiles(tmp_path / target)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (after,) = vs.load_profiles(tmp_path / target)
    assert (after.instance_type, after.outcome) == ("box", "interrupted")
    assert after == before
    assert len(names(tmp_path)) == 1
    assert not names(tmp_path)[0].startswith(".")


@pytest.mark.parametrize("target", [".", "p.json"])
def test_a_kill_while_writing_leaves_a_whole_record(tmp_path: Path, writer, target: str) -> None:
    for pause in (0.0, 0.003, 0.011, 0.02):
        process = writer(tmp_path / target, "forever")
        time.sleep(pause)
        process.kill()
        process.wait()
    profiles = vs.load_profiles(tmp_path / target)
    assert len(profiles) == (4 if target == "." else 1)
    assert {profile.outcome for profile in profiles} == {"interrupted"}


def test_the_end_replaces_the_draft_and_leaves_nothing(tmp_path: Path) -> None:
    for target in (tmp_path / "folder", tmp_path / "file" / "p.json"):
        first, last = make_box(), make_box(0.2)
        saved = write_draft(target, first.model_copy(update={"created": last.created})).finish(last)
        assert isinstance(saved, Path)
        assert vs.Profile.load(saved) == last
        assert names(saved.parent) == [saved.name]
    assert saved.name == "p.json"


def test_a_batch_size_that_is_found_later_changes_the_name(tmp_path: Path) -> None:
    last = make_box()
    unknown = last.model_copy(update={"setup": last.setup.model_copy(update={"batch_size": None})})
    file = write_draft(tmp_path, unknown)
    assert names(tmp_path)[0].startswith("box-x-")
    saved = file.finish(last)
    assert isinstance(saved, Path)
    assert names(tmp_path) == [saved.name]
    assert saved.name.startswith("box-8-")


def test_writers_of_the_same_second_get_different_names(tmp_path: Path) -> None:
    first = make_box()
    second = make_box(0.2).model_copy(update={"created": first.created})
    files = [write_draft(tmp_path, record) for record in (first, second)]
    for file, record in zip(files, (first, second), strict=True):
        file.finish(record)
    assert sorted(profile.id for profile in vs.load_profiles(tmp_path)) == sorted([first.id, second.id])
    assert len(names(tmp_path)) == 2


def test_an_unfinished_write_is_no_record(tmp_path: Path) -> None:
    made = make_box()
    (tmp_path / ".vmselect-0123456789abcdef.part").write_text(made.to_json()[:100])
    made.save(tmp_path)
    assert vs.load_profiles(tmp_path) == [made]


def test_a_foreign_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_text('{"mine": 1}')
    file = write_draft(path, make_box())
    with pytest.raises(vs.errors.ProfileError):
        file.finish(make_box())
    file.discard()
    assert path.read_text() == '{"mine": 1}'


def test_invalid_measurements_leave_the_folder_or_file_as_it_was(tmp_path: Path) -> None:
    old = make_box(0.5)
    old.save(tmp_path / "p.json")
    write_draft(tmp_path / "p.json", make_box()).discard()
    write_draft(tmp_path / "new", make_box()).discard()
    assert vs.Profile.load(tmp_path / "p.json") == old
    assert names(tmp_path / "new") == []


def test_a_disk_that_is_full_does_not_stop_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    file = RecordFile(tmp_path / "p.json")
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", refuse)
        file.write(make_box())
        with pytest.raises(vs.errors.ProfileError):
            file.finish(make_box())
    assert names(tmp_path) == []


def test_a_child_made_by_fork_neither_writes_nor_removes_it(tmp_path: Path) -> None:
    made = make_box()
    file = write_draft(tmp_path, made)
    if not (child := os.fork()):
        file.write(make_box(9.0))
        file.finish(make_box(9.0))
        file.discard()
        os._exit(0)
    os.waitpid(child, 0)
    assert vs.load_profiles(tmp_path) == [made]
    assert len(names(tmp_path)) == 1


@pytest.mark.parametrize("read", ["link.json", ".", "real/p.json"])
def test_a_link_stays_a_link_and_its_file_gets_what_the_killed_writer_had(tmp_path: Path, writer, read: str) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "p.json", tmp_path / "link.json"
    old = make_box(0.5)
    old.save(target)
    link.symlink_to(target)
    process = writer(link)
    process.kill()
    process.wait()
    (profile,) = vs.load_profiles(tmp_path / read)
    assert profile.id != old.id
    assert link.is_symlink()
    assert vs.Profile.load(target) == vs.Profile.load(link) == profile
    assert (names(tmp_path), names(target.parent)) == (["link.json", "real"], ["p.json"])


def test_a_private_file_stays_private(tmp_path: Path) -> None:
    target = tmp_path / "p.json"
    make_box(0.5).save(target)
    for mode in (0o600, 0o640):
        target.chmod(mode)
        file = write_draft(target, make_box())
        assert stat.S_IMODE(target.stat().st_mode) == mode
        file.finish(make_box())
        assert stat.S_IMODE(target.stat().st_mode) == mode
        assert names(tmp_path) == ["p.json"]


def test_a_copied_folder_is_complete(tmp_path: Path, writer) -> None:
    writer(tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    assert vs.load_profiles(tmp_path / "there") == vs.load_profiles(tmp_path / "here")
