"""Everything that the package writes goes through one writer: links, devices, permissions, threads, killed writers."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

import vmselect as vs
from vmselect.errors import VmselectError
from vmselect.report import write_page

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links, devices and permissions of POSIX")


@pytest.fixture
def ranking():
    profile = vs.Profile.from_times(instance_type="g4dn.xlarge", first_epoch_seconds=40, later_epoch_seconds=30)
    return vs.rank(profile, epochs=10)


@pytest.fixture(params=["prices", "page", "chart", "profile"])
def write(request, ranking):
    """Writes something to a path; its name must end as ``ending`` says."""
    if request.param == "prices":
        return ".csv", vs.Catalog.embedded("2021-02-28").save
    if request.param == "page":
        return ".html", lambda path: write_page(ranking, path)
    if request.param == "chart":
        pytest.importorskip("altair", reason="charts need altair")
        return ".json", lambda path: ranking.chart(path=path)
    profile = vs.Profile.from_times(instance_type="x", first_epoch_seconds=4, later_epoch_seconds=3)
    return ".json", profile.save


def test_a_link_is_followed_and_stays_a_link(tmp_path, write) -> None:
    ending, save = write
    target, link = tmp_path / f"real{ending}", tmp_path / f"link{ending}"
    save(target)
    before = target.stat().st_ino
    link.symlink_to(target)
    save(link)
    assert link.is_symlink()
    assert not target.is_symlink()
    assert target.stat().st_ino != before  # replaced as a whole, behind the link


@pytest.mark.parametrize("option", ["report", "chart"])
def test_pages_and_charts_replace_only_their_like(tmp_path, ranking, option) -> None:
    """A shell that turns ``--report *.json`` into the names of profiles must not cost the first of them."""
    profile = vs.Profile.from_times(instance_type="x", first_epoch_seconds=4, later_epoch_seconds=3)
    path = profile.save(tmp_path / "a.json")
    save = ranking.report if option == "report" else lambda path: ranking.chart(path=path)
    if option == "chart":
        pytest.importorskip("altair", reason="charts need altair")
    with pytest.raises(VmselectError, match="neither a page nor a chart, so it is not overwritten"):
        save(path)
    assert vs.Profile.load(path) == profile


def test_permissions_stay(tmp_path, write) -> None:
    ending, save = write
    path = tmp_path / f"secret{ending}"
    save(path)
    path.chmod(0o600)
    save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_pipe_or_device_is_refused_and_stays(tmp_path, write) -> None:
    ending, save = write
    pipe, device = tmp_path / f"pipe{ending}", tmp_path / f"device{ending}"
    os.mkfifo(pipe)
    device.symlink_to("/dev/null")
    for path in (pipe, device):
        with pytest.raises(VmselectError, match="no ordinary file"):
            save(path)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_link_laid_for_the_unfinished_file_is_not_followed(tmp_path, ranking) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / f".page.html.{os.getpid()}.part").symlink_to(victim)
    write_page(ranking, tmp_path / "page.html")
    assert victim.read_text() == "mine"


def test_the_package_has_one_writer() -> None:
    package = Path(vs.__file__).parent
    writers = ("write_text(", "write_bytes(", "os.replace(", '"wb"', 'open("w', 'open("x', '"xb"')
    own_ways = {
        "_files.py",
        "probe/storage.py",  # writes to a store elsewhere, through fsspec
        "sweeps/runners/supervisor.py",  # is copied to machines that have no vmselect
        "records/store.py",  # holds a lock on the very file that it writes
    }
    for file in sorted(package.rglob("*.py")):
        if file.relative_to(package).as_posix() in own_ways:
            continue
        lines = file.read_text(encoding="utf-8").splitlines()
        code = "\n".join(line for line in lines if not line.lstrip().startswith(">>>")).replace("_files.write_", "")
        if "from vmselect._files import" in code:
            code = code.replace("write_text(", "").replace("write_bytes(", "")
        assert not [word for word in writers if word in code], file
