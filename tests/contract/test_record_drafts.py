"""Drafts of killed writers: recovered once, never while the writer lives, and no other file remains."""

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
from vmselect.records import store as drafts
from vmselect.records.store import Draft

WRITER = """
import sys, time
from pathlib import Path
import vmselect as vs
from vmselect.records.store import Draft
profile = vs.Profile.from_times(instance_type="box", batch_size=8, iteration_seconds=0.1)
draft = Draft(Path(sys.argv[1]), identity=profile.id)
draft.write(profile)
print("written", flush=True)
time.sleep(600)
"""


def make_box(seconds: float = 0.1) -> vs.Profile:
    return make_profile("box", seconds, batch_size=8)


def write_draft(path: Path, record: vs.Profile) -> Draft:
    draft = Draft(path, identity=record.id)
    draft.write(record)
    return draft


@pytest.fixture
def writer():
    """Starts a process that writes a draft and then lives on."""
    started = []

    def start(path: Path) -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
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
def test_a_writer_that_lives_is_left_alone_and_a_dead_one_recovered(tmp_path: Path, writer, target: str) -> None:
    process = writer(tmp_path / target)
    with pytest.raises(vs.errors.ProfileError):
        vs.load_profiles(tmp_path / target)
    assert len(names(tmp_path)) == 1
    process.send_signal(signal.SIGKILL)
    process.wait()
    (profile,) = vs.load_profiles(tmp_path / target)
    assert profile.instance_type == "box"
    assert [name[0] for name in names(tmp_path)] != ["."]
    assert vs.load_profiles(tmp_path) == [profile]


def test_the_end_gives_the_record_its_name_and_leaves_nothing(tmp_path: Path) -> None:
    for target in (tmp_path / "folder", tmp_path / "file" / "p.json"):
        first, last = make_box(), make_box(0.2)
        draft = write_draft(target, first)
        saved = draft.finish(last)
        assert saved is not None
        assert vs.Profile.load(saved) == last
        assert names(saved.parent) == [saved.name]
    assert saved.name == "p.json"


def test_an_end_that_was_cut_off_is_completed_once(tmp_path: Path) -> None:
    made = make_box()
    draft = write_draft(tmp_path, made)
    os.link(draft._file, tmp_path / "box-8-final.json")  # killed between claiming the name and removing the draft
    draft._release()
    assert vs.load_profiles(tmp_path) == [made]
    assert names(tmp_path) == ["box-8-final.json"]


def test_a_draft_that_was_being_replaced_is_no_record(tmp_path: Path) -> None:
    made = make_box()
    (tmp_path / f".vmselect-{made.id}.draft-{made.id}").write_text(made.to_json()[:100])
    made.save(tmp_path)
    assert vs.load_profiles(tmp_path) == [made]
    assert len(names(tmp_path)) == 1


def test_a_newer_file_is_not_replaced_by_an_older_draft_nor_a_foreign_one(tmp_path: Path) -> None:
    old, new = make_box(), make_box(0.2)
    for target, text in (("p.json", new.to_json()), ("notes.json", '{"mine": 1}')):
        draft = write_draft(tmp_path / target, old)
        os.utime(draft._file, (time.time() - 60,) * 2)
        draft._release()
        (tmp_path / target).write_text(text)
    assert vs.Profile.load(tmp_path / "p.json") == new
    with pytest.raises(vs.errors.ProfileError):
        vs.Profile.load(tmp_path / "notes.json")
    assert (tmp_path / "notes.json").read_text() == '{"mine": 1}'
    assert not [name for name in names(tmp_path) if name.startswith(".")]


def test_a_child_made_by_fork_neither_keeps_nor_ends_it(tmp_path: Path) -> None:
    made = make_box()
    draft = write_draft(tmp_path, made)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        draft.write(make_box(9.0))
        draft.finish(make_box(9.0))
        draft.discard()
        os.write(writing, b"1")
        time.sleep(600)
    try:
        os.read(reading, 1)
        assert len(names(tmp_path)) == 1
        draft._release()  # the parent dies; its child lives on
        assert vs.load_profiles(tmp_path) == [made]
        assert not names(tmp_path)[0].startswith(".")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading), os.close(writing)


def test_without_locks_age_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "fcntl", None)
    made = make_box()
    draft = write_draft(tmp_path, made)
    draft._release()
    with pytest.raises(vs.errors.ProfileError):
        vs.load_profiles(tmp_path)
    os.utime(draft._file, (time.time() - 2 * drafts.ABANDONED_AFTER_SECONDS,) * 2)
    assert vs.load_profiles(tmp_path) == [made]


def test_what_was_taken_for_abandoned_is_replaced_by_its_end(tmp_path: Path) -> None:
    made = make_box()
    draft = write_draft(tmp_path, made)
    own = tmp_path / f"{drafts.name_record(made)}-{made.id[:8]}.json"
    draft._file.rename(own)  # a reader on another machine, which does not see the lock
    assert draft.finish(made) == own
    assert names(tmp_path) == [own.name]


@pytest.mark.parametrize("read", ["link.json", ".", "real/p.json"])
def test_a_link_stays_a_link_and_its_file_gets_what_the_killed_writer_had(tmp_path: Path, writer, read: str) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "p.json", tmp_path / "link.json"
    old = make_box(0.5)
    old.save(target)
    os.utime(target, (time.time() - 60,) * 2)
    link.symlink_to(target)
    process = writer(link)
    process.kill()
    process.wait()
    (profile,) = vs.load_profiles(tmp_path / read)
    assert profile.id != old.id
    assert link.is_symlink()
    assert vs.Profile.load(target) == vs.Profile.load(link) == profile
    assert (names(tmp_path), names(target.parent)) == (["link.json", "real"], ["p.json"])


def test_a_private_file_has_a_private_draft_and_stays_private(tmp_path: Path) -> None:
    target, new = tmp_path / "p.json", make_box()
    make_box(0.5).save(target)
    os.utime(target, (time.time() - 60,) * 2)
    for mode in (0o600, 0o640):
        target.chmod(0o600)
        draft = write_draft(target, new)
        assert stat.S_IMODE(draft._file.stat().st_mode) == 0o600
        draft._release()  # as if its process had died
        target.chmod(mode)
        assert vs.Profile.load(target) == new
        assert stat.S_IMODE(target.stat().st_mode) == mode
        assert names(tmp_path) == ["p.json"]
        os.utime(target, (time.time() - 60,) * 2)


def test_a_link_that_came_since_is_not_replaced(tmp_path: Path) -> None:
    old, new = make_box(), make_box(0.2)
    draft = write_draft(tmp_path / "p.json", new)
    draft._release()
    (tmp_path / "p.json").symlink_to(old.save(tmp_path / "old.json"))
    assert sorted(one.id for one in vs.load_profiles(tmp_path)) == sorted([old.id, old.id, new.id])
    assert vs.Profile.load(tmp_path / "p.json") == old


def test_a_copied_folder_has_no_writer(tmp_path: Path, writer) -> None:
    writer(tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    assert len(vs.load_profiles(tmp_path / "there")) == 1
    assert not names(tmp_path / "there")[0].startswith(".")
