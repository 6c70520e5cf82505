"""Transfers against real stores on loopback, and their errors."""

from __future__ import annotations

import errno
import json
import os
import platform
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from vmselect.probe.transfer import MARKER, Storage, folder_name, read_address

fsspec = pytest.importorskip("fsspec", reason="transfers need the extra 'transfer', which is not installed")
pytest.importorskip("s3fs", reason="the S3 store needs s3fs, which is not installed")
pytest.importorskip("paramiko", reason="the sftp store needs paramiko, which is not installed")

SUPPORT = Path(__file__).parents[1] / "support"
sys.path.insert(0, str(SUPPORT))
import stores  # noqa: E402

Place = tuple[str, dict[str, Any], Callable[[], list[str]]]
SMALL = {"megabytes": 0.5, "files": 5, "streams": 2, "instance_type": "here", "verbose": 0}


@pytest.fixture(scope="module")
def s3() -> Iterator[tuple[str, dict[str, Any]]]:
    with stores.s3_store() as store:
        yield store


@pytest.fixture(scope="module")
def sftp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, Any], Path]]:
    if not Path(stores.SSHD).exists() or stores.SFTP_SERVER is None:
        pytest.skip("OpenSSH's server is not installed")
    folder = tmp_path_factory.mktemp("sftp")
    with stores.sftp_store(folder) as (url, options, _):
        yield url, options, folder / "data"


@pytest.fixture(params=["memory", "file", "s3", "sftp"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Address and options of a store, and a function that lists all that is in it."""
    if request.param == "memory":
        files = fsspec.filesystem("memory")
        files.store.clear()  # of other tests in this process
        return "memory://store/folder", {}, lambda: files.find("/")
    if request.param == "file":
        return str(tmp_path / "store"), {}, lambda: [str(path) for path in tmp_path.rglob("*")]
    if request.param == "s3":
        url, options = request.getfixturevalue("s3")

        def look() -> list[str]:
            files = fsspec.filesystem("s3", skip_instance_cache=True, **options)
            pending = files.call_s3("list_multipart_uploads", Bucket="bucket").get("Uploads", [])
            return [*files.find("bucket"), *pending]

        return url, options, look
    url, options, folder = request.getfixturevalue("sftp")
    return url, options, lambda: [str(path) for path in folder.rglob("*")]


def test_files_go_and_come_back_and_nothing_is_left(place: Place, tmp_path_factory: pytest.TempPathFactory) -> None:
    url, options, look = place
    folder = tmp_path_factory.mktemp("records")
    record = vs.serving.probe_transfer(url, folder, options=options, **SMALL)
    assert vs.load_records(folder) == [record]
    assert record.kind == "transfer"
    assert record.setup.url == url
    assert record.upload is not None
    assert record.download is not None
    assert record.upload.bytes == record.download.bytes == (100_000,) * 5
    assert record.upload_seconds_per_mb == pytest.approx(record.upload.seconds / 0.5)
    assert all(start + taken <= record.upload.seconds + 1e-9 for start, taken in zip(
        record.upload.start, record.upload.taken, strict=True))  # fmt: skip
    assert record.first_upload_seconds is not None
    assert record.first_download_seconds is not None
    assert look() == []
    with pytest.raises(vs.errors.ProfileError):
        vs.load_profiles(folder)


def test_a_file_of_several_parts_survives(s3: tuple[str, dict[str, Any]]) -> None:
    url, options = s3
    record = vs.serving.probe_transfer(url, options=options, megabytes=60, files=1, instance_type="here", verbose=0)
    assert record.upload is not None
    assert record.upload.total_bytes == 60_000_000


class Swapping(Storage):
    """Writes something else of the same length."""

    def upload(self, content: Any, *parts: str, stopped: Callable[[], bool] = lambda: False) -> None:
        if parts[-1] == "part-000003.bin":
            self.write(b"x" * content.size, *parts)
        else:
            super().upload(content, *parts, stopped=stopped)


class Cutting(Storage):
    """Loses the end of a file."""

    def upload(self, content: Any, *parts: str, stopped: Callable[[], bool] = lambda: False) -> None:
        self.write(b"".join(map(bytes, content.chunks()))[:-1], *parts)


class Full(Storage):
    """Has no room for the third file."""

    def upload(self, content: Any, *parts: str, stopped: Callable[[], bool] = lambda: False) -> None:
        if parts[-1] == "part-000002.bin":
            with self.translating("write to"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().upload(content, *parts, stopped=stopped)


@pytest.mark.parametrize(
    ("kind", "message"),
    [(Swapping, "content"), (Cutting, "content"), (Full, "megabytes=")],
)
def test_wrong_content_and_a_full_disk_are_errors_and_nothing_is_left(
    place: Place, kind: type[Storage], message: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    url, options, look = place
    folder = tmp_path_factory.mktemp("records")
    with pytest.raises(vs.errors.TransferError, match=message):
        vs.serving.probe_transfer(url, folder, options=options, open_storage=kind, **SMALL)
    assert look() == []
    assert list(folder.iterdir()) == []


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("this user may not mount a small disk: only a simulated full disk was tried")
    try:
        with pytest.raises(vs.errors.TransferError, match=os.strerror(errno.ENOSPC)):
            vs.serving.probe_transfer(str(disk), megabytes=4, files=4, verbose=0)
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_broken_connection_is_an_error_and_nothing_is_left(place: Place) -> None:
    url, options, look = place
    if url.startswith("s3"):
        port = int(options["client_kwargs"]["endpoint_url"].rpartition(":")[2])
        proxy = stores.CuttingProxy(port, limit=200_000)
        options = {**options, "client_kwargs": {"endpoint_url": f"http://127.0.0.1:{proxy.port}"}, "config_kwargs": {
            "retries": {"max_attempts": 0}}}  # fmt: skip
        Patient = type("Patient", (Storage,), {"__init__": _without_retries})
    elif url.startswith("sftp"):
        proxy = stores.CuttingProxy(options["port"], limit=200_000)
        options = {**options, "port": proxy.port}
        Patient = Storage
    else:
        pytest.skip("a store on this machine has no connection to break")
    try:
        with pytest.raises(vs.errors.TransferError):
            vs.serving.probe_transfer(
                url, options=options, megabytes=4, files=2, streams=1, open_storage=Patient, verbose=0
            )
        assert proxy.cuts
    finally:
        proxy.close()
    assert look() == []


def _without_retries(self: Storage, address: Any) -> None:
    Storage.__init__(self, address)
    self.files.retries = 1


def test_missing_permission_is_an_error(sftp: Any, tmp_path: Path) -> None:
    with pytest.raises(vs.errors.TransferError, match="credentials"):
        vs.serving.probe_transfer("/sys/vmselect", megabytes=0.1, verbose=0)
    with stores.sftp_store(tmp_path, server_options="-R") as (url, options, _):
        (tmp_path / "data").mkdir()
        with pytest.raises(vs.errors.TransferError, match=os.strerror(errno.EACCES)):
            vs.serving.probe_transfer(url, options=options, megabytes=0.1, verbose=0)
        assert list((tmp_path / "data").iterdir()) == []
        wrong = {**options, "key_filename": str(tmp_path / "host")}
        with pytest.raises(vs.errors.TransferError, match="credentials"):
            vs.serving.probe_transfer(url, options=wrong, megabytes=0.1, verbose=0)
    with pytest.raises(vs.errors.TransferError):
        vs.serving.probe_transfer(url, options=options, megabytes=0.1, verbose=0)


def test_refused_keys_and_a_missing_bucket(capfd: pytest.CaptureFixture[str]) -> None:
    with stores.s3_store() as (url, options):
        with pytest.raises(vs.errors.TransferError, match="bucket"):
            vs.serving.probe_transfer("s3://nothing/here", options=options, megabytes=0.1, verbose=0)
        endpoint = options["client_kwargs"]["endpoint_url"]
        _check_keys(endpoint, after_requests=0)
        try:
            with pytest.raises(vs.errors.TransferError, match="credentials") as refused:
                vs.serving.probe_transfer(url, options=options, megabytes=0.1, verbose=0)
        finally:
            _check_keys(endpoint, after_requests=float("inf"))
        assert stores.SECRET not in str(refused.value)
    assert stores.SECRET not in "".join(capfd.readouterr())


def _check_keys(endpoint: str, *, after_requests: float) -> None:
    """Set the number of requests after which the S3 server checks keys."""
    request = urllib.request.Request(
        f"{endpoint}/moto-api/reset-auth", data=str(after_requests).encode(), headers={"Content-Type": "text/plain"}
    )
    urllib.request.urlopen(request).close()


def _start_slow(url: str, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(SUPPORT / "slow_transfer.py"), url, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for _ in range(600):
        if any(Path(url).glob("vmselect-transfer-*/part-*")):
            return process
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("the transfer did not begin")


def test_ctrl_c_removes_everything(tmp_path: Path) -> None:
    store = tmp_path / "store"
    process = _start_slow(str(store), tmp_path / "records")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert b"KeyboardInterrupt" in errors
    assert not store.exists()


def test_kill_9_is_cleaned_up_by_the_command_and_not_before(tmp_path: Path) -> None:
    store = tmp_path / "store"
    process = _start_slow(str(store), tmp_path / "records")
    try:
        (kept,) = vs.serving.clean_transfers(str(store))
        assert not kept.removed
        assert kept.reason
        assert _command("serve", "transfer", str(store), "--clean").returncode == 1
    finally:
        process.kill()
        process.communicate()
    (store / "vmselect-transfer-notes").mkdir()  # looks alike, and is the user's
    (store / "data.csv").write_text("1")
    assert any(store.glob("vmselect-transfer-*/part-*"))
    done = _command("serve", "transfer", str(store), "--clean")
    assert done.returncode == 0, done.stderr
    assert "removed" in done.stderr
    assert sorted(path.name for path in store.iterdir()) == ["data.csv", "vmselect-transfer-notes"]
    assert "removed" not in _command("serve", "transfer", str(store), "--clean").stderr


def test_leftovers_of_every_store_are_found(place: Place) -> None:
    url, options, look = place
    storage = Storage(read_address(url, options))
    dead = json.dumps({"host": platform.node(), "pid": 1, "process_started": -1.0, "written": time.time()}).encode()
    markers = {"0": dead, "1": b"{}", "2": b"not json", "3": None, "6": b"[" * 100_000}
    for run, marker in ((digit * 32, marker) for digit, marker in markers.items()):
        storage.make_folder(folder_name(run))
        if marker is not None:
            storage.write(marker, folder_name(run), MARKER)
        storage.write(b"left", folder_name(run), "part-000000.bin")
    elsewhere = json.dumps({"host": "another", "pid": 1, "process_started": 0.0, "written": time.time()}).encode()
    storage.make_folder(folder_name("4" * 32))
    storage.write(elsewhere, folder_name("4" * 32), MARKER)
    if url.startswith("s3"):
        key = f"folder/{folder_name('5' * 32)}/part-000000.bin"
        storage.files.call_s3("create_multipart_upload", Bucket="bucket", Key=key)
    storage.close()
    found = vs.serving.clean_transfers(url, options=options)
    assert [leftover.removed for leftover in found] == [True] + [False] * (5 + url.startswith("s3"))
    assert all(leftover.removed for leftover in vs.serving.clean_transfers(url, options=options, everything=True))
    left = [path for path in look() if not str(path).endswith(("store", "data"))]
    assert left == []


def test_no_credential_is_recorded_or_printed(s3: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    url, options = s3
    record = vs.serving.probe_transfer(url, tmp_path, options=options, megabytes=0.1, instance_type="here")
    with pytest.raises(vs.errors.TransferError) as refused:
        vs.serving.probe_transfer("sftp://me:hush-hush@127.0.0.1:1/x?token=abcdef", megabytes=0.1)
    shown = record.to_json() + repr(record) + str(refused.value) + "".join(capfd.readouterr())
    shown += "".join(path.read_text() for path in tmp_path.iterdir())
    for secret in (stores.SECRET, "AKIATESTTESTTEST", "hush-hush", "abcdef"):
        assert secret not in shown


def _command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from vmselect.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_the_command_shows_size_and_cost_before_anything_moves(tmp_path: Path) -> None:
    store = tmp_path / "store"
    asked = _command("serve", "transfer", str(store), "--megabytes", "1")
    assert asked.returncode == 2
    assert "1 MB" in asked.stderr
    assert "--yes" in asked.stderr
    assert not store.exists()
    done = _command(
        "serve", "transfer", str(store), str(tmp_path / "records"), "--megabytes", "1", "--yes", "--format", "json"
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert (row["megabytes"], row["files"], row["cost_usd"]) == (1.0, 8, 0.0)
    assert len(vs.load_records(tmp_path / "records")) == 1
    assert not store.exists()
