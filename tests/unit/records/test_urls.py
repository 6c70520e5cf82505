"""Records at URLs: saved, drafted, recovered and loaded."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect import _stores
from vmselect._stores import Url, check_place
from vmselect.errors import ArgumentError, ProfileError
from vmselect.records.store import Draft, _outbox

pytest.importorskip("fsspec", reason="URLs need fsspec, which is not installed")


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Url:
    monkeypatch.setenv("VMSELECT_CACHE_DIR", str(tmp_path / "cache"))
    place = check_place("path", f"memory://{tmp_path.name}/team")
    assert isinstance(place, Url)
    return place


def test_a_file_at_a_url_is_replaced_only_by_its_kind(url: Url) -> None:
    profile, other = make_profile("a", 0.1), make_profile("b", 0.2)
    saved = profile.save(url / "one.json")
    assert vs.Profile.load(saved) == profile
    other.save(url / "one.json")
    assert vs.load_records(url) == [other]
    _stores.Folder(url).write("two.json", b"{}")
    with pytest.raises(ProfileError):
        profile.save(url / "two.json")
    with pytest.raises(ProfileError):
        vs.load_records(url)


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    assert check_place("path", f"file://{tmp_path}") == tmp_path
    profile = make_profile("a", 0.1)
    profile.save(f"file://{tmp_path}")
    assert vs.load_profiles(tmp_path) == [profile]


def test_a_draft_stays_on_the_machine_until_it_is_finished(url: Url) -> None:
    profile = make_profile("a", 0.1)
    draft = Draft(url, identity=profile.id)
    draft.write(profile)
    with pytest.raises(ProfileError):
        vs.load_records(url)
    saved = draft.finish(profile)
    assert isinstance(saved, Url)
    assert vs.Profile.load(saved) == profile
    assert vs.load_records(url) == [profile]
    assert not [*_outbox(url).iterdir()]


def test_a_record_that_cannot_be_uploaded_is_uploaded_later(url: Url, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = make_profile("a", 0.1)
    draft = Draft(url, identity=profile.id)

    def refuse(*_: object) -> bool:
        raise ProfileError("no network")

    with monkeypatch.context() as patch:
        patch.setattr(_stores.Folder, "create", refuse)
        with pytest.raises(ProfileError):
            draft.finish(profile)
    assert vs.load_records(url) == [profile]
    assert not [*_outbox(url).iterdir()]


def test_a_draft_of_a_writer_that_ended_is_uploaded(url: Url) -> None:
    profile = make_profile("a", 0.1)
    draft = Draft(url, identity=profile.id)
    draft.write(profile)
    draft._release()  # as the kernel does when a process ends
    assert vs.load_records(url) == [profile]


def test_a_name_is_claimed_in_the_way_of_each_store(url: Url, monkeypatch: pytest.MonkeyPatch) -> None:
    """adlfs takes ``overwrite`` where others take ``mode``, and passes on what it does not know."""
    registry = importlib.import_module("fsspec.registry")
    memory = importlib.import_module("fsspec.implementations.memory").MemoryFileSystem

    class ResourceExistsError(Exception):
        pass

    class Azure(memory):  # type: ignore[misc, valid-type]
        protocol = "abfs"

        def pipe_file(self, path: str, value: bytes, overwrite: bool = True) -> None:
            if not overwrite and self.exists(path):
                raise ResourceExistsError
            super().pipe_file(path, value)

    monkeypatch.setitem(registry._registry, "abfs", Azure)
    place = check_place("path", f"abfs://{url.name}/team")
    assert isinstance(place, Url)
    folder = _stores.Folder(place)
    assert [folder.create("one.json", data) for data in (b"1", b"2")] == [True, False]
    assert folder.read("one.json", limit=10) == b"1"
    profile = make_profile("a", 0.1)
    assert profile.save(place) == profile.save(place)


def test_a_large_file_is_not_read(url: Url, monkeypatch: pytest.MonkeyPatch) -> None:
    make_profile("a", 0.1).save(url)
    monkeypatch.setattr("vmselect.records.store.MAX_FILE_BYTES", 100)
    with pytest.raises(ProfileError):
        vs.load_records(url)


@pytest.mark.parametrize("value", [Path("s3://team/sweep"), "simplecache::s3://team/x"])
def test_a_url_that_became_a_path_or_chains_stores_is_rejected(
    value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = vs.Plan("true", factors={"batch_size": [1]}, minutes=1)
    with pytest.raises(ArgumentError):
        vs.sweep(plan, value, yes=True) if "::" not in str(value) else check_place("folder", value)
    assert not [*tmp_path.iterdir()]
