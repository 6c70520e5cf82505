"""Reading and writing of files: complete or not at all, through one writer."""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import vmselect as vs
from vmselect import _io
from vmselect.errors import ProfileError, VmselectError
from vmselect.report import write_page

PROFILE = vs.Profile.from_times(instance_type="m", batch_size=8, iteration_seconds=[0.1] * 3)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def ranking() -> vs.Ranking:
    profile = vs.Profile.from_times(instance_type="g4dn.xlarge", first_epoch_seconds=40, later_epoch_seconds=30)
    return vs.rank(profile, epochs=10)


@pytest.fixture(params=["prices", "page", "chart", "profile"])
def write(request: pytest.FixtureRequest, ranking: vs.Ranking) -> tuple[str, Callable[[Path], object]]:
    """The suffix of a kind of file, and a function that writes one."""
    if request.param == "prices":
        return ".csv", vs.Catalog.embedded("2021-02-28").save
    if request.param == "page":
        return ".html", lambda path: write_page(ranking, path)
    if request.param == "chart":
        pytest.importorskip("altair", reason="charts need altair")
        return ".json", lambda path: ranking.chart(path=path)
    return ".json", PROFILE.save


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path, write) -> None:
    suffix, save = write
    target, link = tmp_path / f"real{suffix}", tmp_path / f"link{suffix}"
    save(target)
    before = target.stat().st_ino
    link.symlink_to(target)
    save(link)
    assert link.is_symlink()
    assert target.stat().st_ino != before  # replaced as a whole


def test_permissions_stay(tmp_path: Path, write) -> None:
    suffix, save = write
    path = tmp_path / f"secret{suffix}"
    save(path)
    path.chmod(0o600)
    save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_pipes_and_devices_are_not_written(tmp_path: Path, write) -> None:
    suffix, save = write
    pipe, device = tmp_path / f"pipe{suffix}", tmp_path / f"device{suffix}"
    os.mkfifo(pipe)
    device.symlink_to("/dev/null")
    for path in (pipe, device):
        with pytest.raises(VmselectError):
            save(path)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert names(tmp_path) == sorted([pipe.name, device.name])


def test_pipes_and_devices_are_not_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    for read in (
        lambda: _io.check_writable(pipe),
        lambda: _io.read_bytes(pipe, noun="profile", limit=100),
        lambda: _io.read_bytes("/dev/zero", noun="profile", limit=100),
        lambda: vs.Profile.load(pipe),
        lambda: vs.ConvergenceStudy.load(pipe),
    ):
        with pytest.raises(ProfileError):
            read()


@pytest.mark.parametrize("kind", ["report", "chart"])
def test_pages_and_charts_do_not_overwrite_records(tmp_path: Path, ranking: vs.Ranking, kind: str) -> None:
    """A shell may expand ``--report *.json`` to the names of profiles."""
    path = PROFILE.save(tmp_path / "a.json")
    if kind == "chart":
        pytest.importorskip("altair", reason="charts need altair")
    with pytest.raises(VmselectError):
        ranking.report(path) if kind == "report" else ranking.chart(path=path)
    assert vs.Profile.load(path) == PROFILE


def test_records_overwrite_only_records_of_their_kind(tmp_path: Path) -> None:
    study = vs.ConvergenceStudy.from_epochs({64: [10, 12]})
    script = tmp_path / "train.json"
    script.write_text("print('precious')")
    for record, other in ((PROFILE, study), (study, PROFILE)):
        path = tmp_path / "record.json"
        path.unlink(missing_ok=True)
        other.save(other.save(path))
        for existing in (script, path):
            content = existing.read_text()
            with pytest.raises(ProfileError):
                record.save(existing)
            assert existing.read_text() == content


def test_an_impossible_path_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for path in (tmp_path / "file" / "a.json", "/proc/nothing/here.json", "a\0b.json", "x" * 300 + ".json"):
        with pytest.raises(ProfileError):
            _io.write_text(path, "text")
    assert names(tmp_path) == ["file"]


def test_new_files_replace_none_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    paths = [_io.write_new(tmp_path, "name", f"text {n}") for n in range(3)]
    assert [path.read_text() for path in paths] == ["text 0", "text 1", "text 2"]
    assert all(re.fullmatch(r"name-[0-9a-f]{8}\.json", name) for name in names(tmp_path))


def test_concurrent_writers_leave_one_complete_file(tmp_path: Path) -> None:
    path, texts = tmp_path / "report.html", [str(n) * 200_000 for n in range(4)]
    threads = [threading.Thread(target=_io.write_text, args=(path, text)) for text in texts * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in texts
    assert names(tmp_path) == ["report.html"]


def test_temporary_files_of_killed_writers_are_removed(tmp_path: Path) -> None:
    old, young, foreign = (
        tmp_path / f".vmselect-{'0' * 16}.part", tmp_path / f".vmselect-{'1' * 16}.part", tmp_path / ".other.part",
    )  # fmt: skip
    long_ago = time.time() - 2 * _io.ABANDONED_AFTER_SECONDS
    for path in (old, young, foreign):
        path.write_text("half")
    os.utime(old, (long_ago, long_ago))
    os.utime(foreign, (long_ago, long_ago))
    _io.write_text(tmp_path / "a.json", "whole")
    assert names(tmp_path) == sorted([foreign.name, young.name, "a.json"])


def unreachable(tmp_path: Path, kind: str) -> Path:
    """A path without access."""
    if kind == "too long":
        return Path("a/" * 2100)
    if os.geteuid() == 0:
        pytest.skip("root has access to all")
    (tmp_path / "locked").mkdir(mode=0o000)
    return tmp_path / "locked" / "inside"


@pytest.mark.parametrize("suffix", ["", ".json"])
@pytest.mark.parametrize("kind", ["too long", "forbidden"])
def test_a_path_without_access_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranking: vs.Ranking, kind: str, suffix: str
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = vs.Plan("python -c pass", minutes=1)
    path = unreachable(tmp_path, kind) / f"file{suffix}"
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


def test_the_package_has_one_writer() -> None:
    package = Path(vs.__file__).parent
    writers = ("write_text(", "write_bytes(", "os.replace(", '"wb"', 'open("w', 'open("x', '"xb"')
    exceptions = {
        "_io.py",
        "probe/transfer.py",  # writes to remote storage through fsspec
        "sweeps/runners/supervisor.py",  # runs on machines without vmselect
    }
    for file in sorted(package.rglob("*.py")):
        if file.relative_to(package).as_posix() in exceptions:
            continue
        lines = file.read_text(encoding="utf-8").splitlines()
        code = "\n".join(line for line in lines if not line.lstrip().startswith(">>>")).replace("_io.write_", "")
        if "from vmselect._io import" in code:
            code = code.replace("write_text(", "").replace("write_bytes(", "")
        assert not [word for word in writers if word in code], file
