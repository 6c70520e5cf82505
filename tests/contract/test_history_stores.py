"""Records, their compacted history and sweeps in real stores: kills, races and delayed listings lose nothing."""

from __future__ import annotations

import getpass
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect import _io
from vmselect.records import history as compacted
from vmselect.records.files import RecordFile
from vmselect.sweeps import resume, run

pytest.importorskip("duckdb", reason="the history needs the extra 'history', which is not installed")
fsspec = pytest.importorskip("fsspec", reason="stores need fsspec, which is not installed")

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import stores  # noqa: E402
from sweep_runners import SimulatedRunner  # noqa: E402


class Killed(BaseException):
    """Ends a compaction as a kill does: no handler of errors runs."""


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    pytest.importorskip("s3fs")
    pytest.importorskip("moto")
    with stores.s3_store() as (_, options):
        yield {
            "AWS_ACCESS_KEY_ID": options["key"],
            "AWS_SECRET_ACCESS_KEY": options["secret"],
            "AWS_ENDPOINT_URL": options["client_kwargs"]["endpoint_url"],
            "AWS_DEFAULT_REGION": "us-east-1",
        }


@pytest.fixture(params=["local", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new folder in a store."""
    monkeypatch.setenv("VMSELECT_CACHE_DIR", str(tmp_path / "cache"))
    if request.param == "local":
        return str(tmp_path / "team")
    if request.param == "memory":
        return f"memory://{tmp_path.name}/team"
    for name, value in request.getfixturevalue("s3").items():
        monkeypatch.setenv(name, value)
    return f"s3://bucket/{tmp_path.name}/team"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """An SFTP server: its folder, in which ``data`` is served, and its port."""
    pytest.importorskip("paramiko")
    if not Path(stores.SSHD).exists() or stores.SFTP_SERVER is None:
        pytest.skip("OpenSSH's server is not installed")
    folder = tmp_path_factory.mktemp("sftp")
    with stores.sftp_store(folder) as (_, options, _):
        yield folder, options["port"]


@pytest.fixture
def sftp(server: tuple[Path, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Path]:
    """The URL of a new folder at the SFTP server, and its path. The key is where OpenSSH has it."""
    folder, port = server
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    shutil.copy(folder / "user", tmp_path / "home" / ".ssh" / "id_ed25519")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("VMSELECT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    path = folder / "data" / tmp_path.name
    return f"sftp://{getpass.getuser()}@127.0.0.1:{port}{path}", path


def save(place: str, count: int, first: int = 0) -> set[str]:
    """Save ``count`` profiles; returns their IDs."""
    made = [make_profile(f"box-{number}", 0.1 + number / 100) for number in range(first, first + count)]
    for profile in made:
        profile.save(place)
    return {profile.id for profile in made}


def compact_forever(place: str) -> None:
    while True:
        vs.history(place).compact()


def ids(place: str) -> list[str]:
    return sorted(record.id for record in vs.load_records(place))


def queried(place: str) -> list[str]:
    return sorted(vs.history(place).query("select id from records").id)


def test_records_are_the_same_before_and_after_compaction(place: str) -> None:
    saved = save(place, 4)
    before = vs.load_records(place)
    assert {record.id for record in before} == saved
    assert vs.history(place).compact().added == 4
    assert vs.load_records(place) == before
    saved |= save(place, 2, first=4)
    assert ids(place) == queried(place) == sorted(saved)
    assert vs.history(place).compact().added == 2
    again = vs.history(place).compact()
    assert (again.records, again.added, again.parts) == (6, 0, 0)
    assert len(compacted.find_parts(_io.open_folder(_io.check_place("folder", place)))) == 1


def test_a_replaced_or_removed_file_counts_and_not_its_row(place: str) -> None:
    save(place, 2)
    vs.history(place).compact()
    folder = _io.open_folder(_io.check_place("folder", place))
    first, second = (entry.name for entry in compacted.list_records(folder))
    other = make_profile("other", 0.3)
    other.save(f"{place}/{first}")
    folder.remove(second)
    assert ids(place) == queried(place) == [other.id]
    assert vs.history(place).compact().records == 1
    assert ids(place) == queried(place) == [other.id]


@pytest.mark.parametrize("seed", range(3))
def test_a_compaction_killed_at_any_point_loses_nothing(place: str, seed: int, monkeypatch) -> None:
    saved = save(place, 3)
    vs.history(place).compact()
    saved |= save(place, 2, first=3)
    rng = random.Random(seed)
    target = _io.LocalFolder if "://" not in place else _io.Folder
    left = rng.randrange(8)

    def kill_at(name: str) -> None:
        call = getattr(target, name)

        def step(self: Any, *given: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0 and rng.random() < 0.5:
                raise Killed
            result = call(self, *given, **named)
            if left < 0:
                raise Killed
            return result

        patch.setattr(target, name, step)

    with monkeypatch.context() as patch:
        for name in ("create", "remove", "read", "entries"):
            kill_at(name)
        with pytest.raises(Killed):
            compact_forever(place)
    assert ids(place) == queried(place) == sorted(saved)
    assert vs.history(place).compact().records == len(saved)
    assert ids(place) == queried(place) == sorted(saved)


def test_compactions_at_the_same_time_lose_nothing(place: str) -> None:
    saved = save(place, 6)
    faults: list[BaseException] = []

    def run() -> None:
        try:
            for _ in range(2):
                vs.history(place).compact()
        except BaseException as fault:  # noqa: BLE001 - reported below
            faults.append(fault)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    saved |= save(place, 2, first=6)
    for thread in threads:
        thread.join()
    assert not faults
    assert ids(place) == queried(place) == sorted(saved)


@pytest.mark.parametrize("seed", range(2))
def test_delayed_listings_lose_nothing(place: str, seed: int, monkeypatch) -> None:
    saved = save(place, 4)
    rng = random.Random(seed)
    target = _io.LocalFolder if "://" not in place else _io.Folder
    entries = target.entries

    def delayed(self: Any, below: str = "") -> list[_io.Entry]:
        return [one for one in entries(self, below) if rng.random() < 0.6]

    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(target, "entries", delayed)
            vs.history(place).compact()
            assert set(queried(place)) <= saved
        assert ids(place) == queried(place) == sorted(saved)


def test_a_damaged_part_is_not_used(place: str) -> None:
    saved = save(place, 2)
    vs.history(place).compact()
    folder = _io.open_folder(_io.check_place("folder", place))
    for table in compacted.TABLES:
        (part,) = compacted.find_parts(folder, table)
        data = folder.read(part.path, limit=10**6)
        folder.remove(part.path)
        folder.create(part.path, data[: len(data) // 2])
    assert ids(place) == queried(place) == sorted(saved)
    assert vs.history(place).compact().parts == 2
    assert ids(place) == queried(place) == sorted(saved)
    assert vs.history(place).compact().parts == 0


def test_writers_at_the_same_time_get_different_names(place: str) -> None:
    profile = make_profile("box", 0.1)
    copies = [profile.model_copy(update={"factors": {"run": number}}) for number in range(4)]  # all have one ID
    threads = [threading.Thread(target=copy.save, args=(place,)) for copy in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(record.factors["run"] for record in vs.load_records(place)) == [0, 1, 2, 3]


def test_a_killed_process_leaves_a_complete_history(tmp_path: Path) -> None:
    """A real kill of a compaction of a local folder."""
    place = str(tmp_path / "team")
    saved = save(place, 30)
    script = f"import vmselect as vs\nprint('go', flush=True)\nwhile True: vs.history({place!r}).compact()"
    for seed in range(2):
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=dict(os.environ))
        assert process.stdout is not None
        process.stdout.readline()
        try:
            process.wait(0.2 + random.Random(seed).random() / 2)
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        assert ids(place) == queried(place) == sorted(saved)


def test_records_over_sftp(sftp: tuple[str, Path]) -> None:
    url, folder = sftp
    saved = save(url, 1)
    profile = make_profile("drafted", 0.1)
    draft = RecordFile(_io.check_place("path", url))
    draft.write(profile)
    draft.finish(profile)
    saved.add(profile.id)
    assert [path.suffix for path in folder.iterdir()] == [".json"] * 2
    assert ids(url) == sorted(saved)
    assert vs.history(url).compact().added == 0  # times of sftp are whole seconds: each file may still change unseen
    for file in folder.glob("*.json"):
        os.utime(file, (time.time() - 100, time.time() - 100))
    assert vs.history(url).compact().added == 2
    assert queried(url) == sorted(saved)
    other = make_profile("other", 0.3)
    name = sorted(file.name for file in folder.glob("*.json"))[0]
    saved.discard(vs.Profile.load(folder / name).id)
    other.save(f"{url}/{name}")
    assert ids(url) == queried(url) == sorted({*saved, other.id})
    assert not _io.Folder(_io.check_place("path", url)).create(name, b"")
    assert vs.Profile.load(folder / name) == other


def test_a_sweep_copies_its_records(s3: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VMSELECT_CACHE_DIR", str(tmp_path / "cache"))
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    url = f"s3://bucket/{tmp_path.name}/sweep"
    monkeypatch.setattr(run, "make_runner", lambda *_: SimulatedRunner(lambda trial: make_profile("box", 0.1)))
    plan = vs.Plan("python -c pass", repetitions=2, minutes=1)
    result = vs.sweep(plan, url, yes=True, parallel=2)
    assert (len(result.records), dict(result.uncopied)) == (2, {})
    resume(url, yes=True)
    assert ids(url) == sorted(record.id for record in result.records)


def test_secrets_are_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("paramiko")
    url = "sftp://me:hunter22@127.0.0.1:1/team"
    with pytest.raises(vs.errors.VmselectError) as caught:
        vs.load_records(url)
    assert "hunter22" not in str(caught.value)
    assert "hunter22" not in repr(vs.history(url))
