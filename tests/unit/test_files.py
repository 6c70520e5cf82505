"""Files, whole or not at all: nothing of the user's is replaced, followed, or left behind."""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from pathlib import Path

import pytest

import vmselect as vs
from vmselect import _files
from vmselect.errors import ProfileError, VmselectError

PROFILE = vs.Profile.from_times(instance_type="m", batch_size=8, iteration_seconds=[0.1] * 3)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_no_file_is_neither_read_nor_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    for act in (
        lambda: _files.write_text(pipe, "x"),
        lambda: _files.check_writable(pipe),
        lambda: _files.read_bytes(pipe, noun="profile", limit=100),
        lambda: vs.Profile.load(pipe),
        lambda: vs.ConvergenceStudy.load(pipe),
        lambda: PROFILE.save(pipe),
        lambda: _files.write_text("/dev/null", "x"),
        lambda: _files.read_bytes("/dev/zero", noun="profile", limit=100),
    ):
        with pytest.raises(ProfileError, match=r"no ordinary file|not overwritten"):
            act()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert names(tmp_path) == ["pipe.json"]


def test_a_file_that_is_no_record_is_not_overwritten(tmp_path: Path) -> None:
    script = tmp_path / "train.json"
    script.write_text("print('precious')")
    with pytest.raises(ProfileError, match="not overwritten"):
        PROFILE.save(script)
    assert script.read_text() == "print('precious')"
    assert vs.Profile.load(PROFILE.save(tmp_path / "new.json")) == PROFILE
    assert vs.Profile.load(PROFILE.save(tmp_path / "new.json")) == PROFILE


def test_a_record_of_another_kind_is_not_overwritten(tmp_path: Path) -> None:
    study = vs.ConvergenceStudy.from_epochs({64: [10, 12]})
    paths = {"study.json": study, "profile.json": PROFILE}
    for name, record in paths.items():
        record.save(tmp_path / name)
    for record, name in ((PROFILE, "study.json"), (study, "profile.json")):
        with pytest.raises(ProfileError, match=r"not a (profile|convergence study), so it is not overwritten"):
            record.save(tmp_path / name)
    assert vs.Profile.load(tmp_path / "profile.json") == PROFILE
    assert vs.ConvergenceStudy.load(tmp_path / "study.json").batch_sizes == study.batch_sizes


def test_a_full_or_forbidden_place_is_one_clear_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for path in (tmp_path / "file" / "a.json", "/proc/nothing/here.json", "a\0b.json", "x" * 300 + ".json"):
        with pytest.raises(ProfileError, match="cannot write"):
            _files.write_text(path, "text")
    assert names(tmp_path) == ["file"]


def test_new_files_replace_none_where_links_are_not_to_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    paths = [_files.write_new(tmp_path, "name", f"text {n}") for n in range(3)]
    assert [path.read_text() for path in paths] == ["text 0", "text 1", "text 2"]
    assert all(re.fullmatch(r"name-[0-9a-f]{8}\.json", name) for name in names(tmp_path))


def test_threads_that_write_one_file_leave_one_whole(tmp_path: Path) -> None:
    path, texts = tmp_path / "report.html", [str(n) * 200_000 for n in range(4)]
    threads = [threading.Thread(target=_files.write_text, args=(path, text)) for text in texts * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in texts
    assert names(tmp_path) == ["report.html"]


def test_what_a_killed_writer_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    old, young, foreign = (
        tmp_path / f".vmselect-{'0' * 16}.part", tmp_path / f".vmselect-{'1' * 16}.part", tmp_path / ".other.part",
    )  # fmt: skip
    long_ago = time.time() - 2 * _files.ABANDONED_AFTER_SECONDS
    for path in (old, young, foreign):
        path.write_text("half")
    os.utime(old, (long_ago, long_ago))
    os.utime(foreign, (long_ago, long_ago))
    _files.write_text(tmp_path / "a.json", "whole")
    assert names(tmp_path) == sorted([foreign.name, young.name, "a.json"])


@pytest.mark.parametrize("text", [b'"' + b'\\"' * 500_000, b'{"a": "' + b"\\" * 1_000_000, b"[" * 1_000_000])
def test_a_hostile_file_costs_no_more_than_its_length(tmp_path: Path, text: bytes) -> None:
    # A parser that looks back at every escape needs minutes for this; the time limit of the tests would end it.
    path = tmp_path / "hostile.json"
    path.write_bytes(text)
    with pytest.raises(ProfileError, match=r"hostile\.json"):
        vs.Profile.load(path)


def unreachable(tmp_path: Path, kind: str) -> Path:
    """A path that the system refuses even to look at."""
    if kind == "too long":
        return Path("a/" * 2100)
    if os.geteuid() == 0:
        pytest.skip("nothing is forbidden to root")
    (tmp_path / "locked").mkdir(mode=0o000)
    return tmp_path / "locked" / "inside"


@pytest.mark.parametrize("ending", ["", ".json"])
@pytest.mark.parametrize("kind", ["too long", "forbidden"])
def test_a_path_that_cannot_be_looked_at_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, ending: str
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = vs.Plan("python -c pass", minutes=1)
    path = unreachable(tmp_path, kind) / f"file{ending}"
    ranking = vs.rank(
        vs.Profile.from_times(instance_type="g4dn.xlarge", first_epoch_seconds=40, later_epoch_seconds=30), epochs=10
    )
    for act in (
        lambda: vs.load_profiles(path),
        lambda: vs.load_records(path),
        lambda: vs.Profile.load(path),
        lambda: PROFILE.save(path),
        lambda: vs.ConvergenceStudy.load(path),
        lambda: vs.Catalog.load(path),
        lambda: vs.Catalog.embedded("2021-02-28").save(path),
        lambda: ranking.report(path),
        lambda: plan.save(path),
        lambda: vs.sweep(plan, path),
    ):
        with pytest.raises(VmselectError):
            act()
