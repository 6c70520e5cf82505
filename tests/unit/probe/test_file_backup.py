"""Backups restore every file that a script has changed, after any order of changes and after being repeated."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vmselect.probe import file_backup, file_protection
from vmselect.probe.file_backup import Backup

NAMES = ("a", "b", "hard", "soft", "folder/c", "folder/d", "new", "folder/new")


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = make(tmp_path / "work")
    monkeypatch.chdir(folder)
    return folder


def make(folder: Path) -> Path:
    (folder / "folder").mkdir(parents=True)
    for name in ("a", "b", "folder/c", "folder/d"):
        (folder / name).write_text(f"content of {name}")
    os.link(folder / "a", folder / "hard")
    (folder / "soft").symlink_to("b")
    (folder / "b").chmod(0o640)
    return folder


def look(folder: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        state = path.lstat()
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_dir():
            found[name] = stat.S_IMODE(state.st_mode)
        else:
            found[name] = (path.read_bytes(), stat.S_IMODE(state.st_mode), state.st_mtime_ns, state.st_nlink)
    return found


class Changes:
    """Changes files as a script does, and reports each change before."""

    def __init__(self, work: Path, backup: Backup) -> None:
        self.work, self.backup = work, backup

    def apply(self, change: str, one: str, other: str) -> None:
        first, second = str(self.work / one), str(self.work / other)
        with suppress(OSError):  # such as renaming what does not exist, which a script may try
            getattr(self, change)(first, second)

    def write(self, path: str, _: str) -> None:
        self.backup.will_write(path, truncates=True)
        Path(path).write_text("written")

    def append(self, path: str, _: str) -> None:
        self.backup.will_write(path)
        with Path(path).open("a") as file:
            file.write("appended")

    def remove(self, path: str, _: str) -> None:
        self.backup.will_remove(path)
        Path(path).unlink()

    def rename(self, path: str, other: str) -> None:
        self.backup.will_rename(path, other)
        Path(path).replace(other)

    def rename_folder(self, path: str, other: str) -> None:
        first, second = str(self.work / "folder"), str(self.work / "elsewhere")
        if Path(second).exists():
            first, second = second, first
        self.backup.will_rename(first, second)
        Path(first).rename(second)

    def link(self, path: str, other: str) -> None:
        self.backup.will_link(path, other)
        os.link(path, other)

    def permit(self, path: str, _: str) -> None:
        self.backup.will_change(path)
        Path(path).chmod(0o600)

    def mkdir(self, path: str, _: str) -> None:
        self.backup.will_make(path)
        Path(path).mkdir()

    def remove_tree(self, path: str, other: str) -> None:
        folder = self.work / "folder"
        for inside in (*folder.rglob("*"), folder):
            self.backup.will_remove(str(inside))
        shutil.rmtree(folder)


CHANGES = ("write", "append", "remove", "rename", "rename_folder", "link", "permit", "mkdir", "remove_tree")


@settings(max_examples=60, deadline=None)
@given(
    changes=st.lists(st.tuples(st.sampled_from(CHANGES), st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=12),
    cut=st.booleans(),
)
def test_after_any_changes_every_existing_file_is_as_it_was(tmp_path_factory, changes, cut):
    top = tmp_path_factory.mktemp("any")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(top / "state"))
        patch.setattr("os.fdatasync", lambda handle: None)
        work = make(top / "work")
        patch.chdir(work)
        before = look(work)
        folder, lock = file_backup.begin()
        backup = Backup(folder)
        (folder / "training").touch()
        if cut:
            (folder / "cut").touch()
        script = Changes(work, backup)
        for change in changes:
            script.apply(*change)
        backup.close()
        file_backup.settle(folder)
        os.close(lock)
        after = look(work)
        for name, state in before.items():
            assert after[name] == state, name
        if cut:
            assert after.keys() == before.keys()
        assert not folder.exists()


def test_new_versions_of_a_whole_training_are_kept_and_new_files_stay(work):
    folder, lock = file_backup.begin()
    script = Changes(work, Backup(folder))
    for change in ("write", "append"):
        script.apply(change, "a", "a")
        script.apply(change, "new", "new")
    script.apply("append", "folder/c", "")
    done = file_backup.settle(folder)
    os.close(lock)
    assert (work / "a").read_text() == "content of a"
    assert (work / "new").read_text() == "writtenappended"
    kept = Path(done.versions_folder)
    assert (kept / "a").read_text() == "writtenappended"
    assert (kept / "folder" / "c").read_text() == "content of folder/cappended"
    assert sorted(done.restored) == [str(work / "a"), str(work / "folder/c")]


def test_only_files_of_the_training_are_removed_if_it_was_cut_short(work):
    folder, lock = file_backup.begin()
    script = Changes(work, Backup(folder))
    script.apply("write", "data", "")
    (folder / "training").touch()
    script.apply("write", "model", "")
    (folder / "cut").touch()
    done = file_backup.settle(folder)
    os.close(lock)
    assert (work / "data").exists()
    assert not (work / "model").exists()
    assert done.removed == [str(work / "model")]


def test_unprotected_paths_caches_and_records_are_not_restored(work, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(work / "cache"))
    (work / "cache").mkdir()
    (work / "cache" / "x").write_text("old")
    folder, lock = file_backup.begin()
    (folder / "training").touch()
    (folder / "cut").touch()
    script = Changes(work, Backup(folder, unprotected=[work / "folder"]))
    script.apply("write", "cache/x", "")
    script.apply("write", "folder/c", "")
    script.apply("write", ".vmselect-0123456789abcdef.part", "")
    script.apply("rename", ".vmselect-0123456789abcdef.part", "record.json")
    done = file_backup.settle(folder)
    os.close(lock)
    assert done.restored == done.removed == []
    assert {(work / name).read_text() for name in ("cache/x", "folder/c", "record.json")} == {"written"}


def test_unreported_changes_by_a_program_in_the_working_folder_are_undone(work):
    """Moves, links and changes of files, links and folders, as by a shell whose calls are not seen."""
    before = look(work)
    folder, lock = file_backup.begin()
    Backup(folder).will_run(str(work))
    commands = "mv hard moved; mv soft elsewhere; ln b linked; echo more >> linked; rm -r folder; echo more >> moved"
    subprocess.run(["sh", "-c", commands], check=True)
    done = file_backup.settle(folder)
    os.close(lock)
    after = look(work)
    assert {name: after[name] for name in before} == before
    assert (work / "linked").read_text() == "content of bmore\n"
    assert not (work / "moved").exists()
    assert (Path(done.versions_folder) / "a").read_text() == "content of amore\n"


def test_a_socket_of_the_script_is_not_restored(work):
    folder, lock = file_backup.begin()
    backup = Backup(folder)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("listener")
    backup.will_remove(str(work / "listener"))
    (work / "listener").unlink()
    assert file_backup.settle(folder).restored == []
    os.close(lock)
    assert not (work / "listener").exists()


def test_backups_in_the_working_folder_are_no_new_names(work, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(work / "state"))
    before = look(work)
    folder, lock = file_backup.begin()
    Backup(folder).will_run(str(work))
    (work / "b").unlink()
    file_backup.settle(folder)
    os.close(lock)
    after = look(work)
    assert {name: after[name] for name in before} == before


def test_a_new_folder_that_became_a_link_leads_to_no_removal(work):
    folder, lock = file_backup.begin()
    (folder / "training").touch()
    (folder / "cut").touch()
    backup = Backup(folder)
    script = Changes(work, backup)
    script.apply("mkdir", "run", "")
    script.apply("write", "run/c", "")
    script.apply("remove", "run/c", "")
    backup.will_remove(str(work / "run"))
    (work / "run").rmdir()
    backup.will_make(str(work / "run"))
    (work / "run").symlink_to("folder")
    file_backup.settle(folder)
    os.close(lock)
    assert (work / "folder" / "c").read_text() == "content of folder/c"
    assert not (work / "run").is_symlink()


def test_two_workers_that_change_one_file_restore_its_first_content(work):
    (first, lock), (second, other_lock) = file_backup.begin(), file_backup.begin()
    one, other = Changes(work, Backup(first)), Changes(work, Backup(second))
    one.apply("write", "b", "")
    other.apply("append", "b", "")
    other.apply("write", "b", "")
    file_backup.settle(first)
    os.close(lock)
    assert (work / "b").read_text() == "content of b"
    other.apply("append", "b", "")
    file_backup.settle(second)
    os.close(other_lock)
    assert (work / "b").read_text() == "content of b"


KILLED = """
import os, signal, sys
from vmselect.probe import file_backup
folder, lock = file_backup.begin()
backup = file_backup.Backup(folder)
for name in ("a", "b"):
    backup.will_write(os.path.abspath(name), truncates=name == "a")
    open(name, "w" if name == "a" else "a").write("changed")
backup.will_remove(os.path.abspath("folder/c"))
os.remove("folder/c")
if len(sys.argv) > 1:
    with open(folder / "journal.jsonl", "a") as file:
        file.write('{"path": "/etc/unfin')
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("damaged", [False, True])
def test_the_next_command_restores_the_files_of_a_killed_probe_once(work, damaged):
    before = look(work)
    done = subprocess.run([sys.executable, "-c", KILLED, *(["damaged"] if damaged else [])], cwd=work, check=False)
    assert done.returncode == -signal.SIGKILL
    assert look(work) != before
    (settled,) = file_backup.recover()
    assert len(settled.restored) == 3
    shutil.rmtree(settled.versions_folder)
    assert look(work) == before
    assert file_backup.recover() == []


def test_a_running_probe_and_one_on_another_machine_are_left_alone(work, monkeypatch):
    folder, lock = file_backup.begin()
    script = Changes(work, Backup(folder))
    script.apply("write", "a", "")
    assert file_backup.recover() == []
    os.close(lock)
    monkeypatch.setattr("socket.gethostname", lambda: "another")
    assert file_backup.recover() == []
    monkeypatch.undo()
    file_backup.settle(folder)


def test_a_file_that_cannot_be_restored_keeps_its_backup(work, monkeypatch):
    folder, lock = file_backup.begin()
    Changes(work, Backup(folder)).apply("write", "b", "")

    def fail(*_: object, **__: object) -> None:
        raise PermissionError(13, "no")

    with monkeypatch.context() as patch:
        patch.setattr("os.rename", fail)
        patch.setattr(file_backup, "_copy_content", fail)
        (failed,) = file_backup.settle(folder).failed
    assert str(work / "b") in failed
    assert file_backup.settle(folder).restored == [str(work / "b")]
    os.close(lock)
    assert (work / "b").read_text() == "content of b"


def test_scratch_folders_of_killed_processes_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(file_protection, "LOCKED_WITHIN_SECONDS", -1.0)
    code = (
        "import os, signal, tempfile, pathlib, sys; tempfile.tempdir = sys.argv[1]\n"
        "from vmselect.probe.file_protection import make_scratch_folder\n"
        "made = make_scratch_folder(pathlib.Path(sys.argv[1]) / 'x'); (made / 'y').write_text('z')\n"
        "print(made, flush=True); signal.pause()"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        theirs = Path(process.stdout.readline().strip())
        mine = file_protection.make_scratch_folder(tmp_path / "x")
        assert theirs.exists()
    finally:
        process.kill()
        process.communicate()
    file_protection.remove_abandoned(tmp_path)
    assert (theirs.exists(), mine.exists()) == (False, True)
    file_protection.remove_scratch_folder(mine)
    assert not mine.exists()


def test_a_process_that_keeps_the_lock_does_not_block_other_commands(work, monkeypatch):
    import fcntl

    monkeypatch.setattr(file_backup, "MAX_LOCK_SECONDS", 0.05)
    folder, handle = file_backup.begin()
    os.close(handle)
    with (folder.parent / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert [done.journal for done in file_backup.recover()] == [str(folder / file_backup.JOURNAL)]
