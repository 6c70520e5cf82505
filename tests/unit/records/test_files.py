"""Record files of every kind and format load; they are written atomically, merged without duplicates and validated."""

from __future__ import annotations

import importlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect import _io
from vmselect._io import Url, check_place
from vmselect.errors import ArgumentError, ProfileError
from vmselect.records import Profile, files
from vmselect.records.files import KINDS, RecordFile, parse_record, unsent_folder

PROFILE = make_profile("g4dn.xlarge", [0.1, 0.30000000000000004, 1e-7], metrics={"loss": 0.1})


def make_study(*epochs: int, **options: Any) -> vs.ConvergenceStudy:
    return vs.ConvergenceStudy.from_epochs({32: list(epochs)}, **options)


def test_a_record_is_read_back_exactly(tmp_path: Path) -> None:
    study = make_study(10, 10, 12, metrics={32: 0.9}, model="m")
    assert Profile.load(PROFILE.save(tmp_path / "profile.json")) == PROFILE
    assert vs.ConvergenceStudy.load(study.save(tmp_path / "study.json")).runs == study.runs
    assert sorted(p.name for p in tmp_path.iterdir()) == ["profile.json", "study.json"]


def test_a_folder_gets_a_new_file_each_time(tmp_path: Path) -> None:
    paths = {PROFILE.save(tmp_path / "runs") for _ in range(3)}
    assert len(paths) == 3
    assert all(path.name.startswith("g4dn.xlarge-64-") for path in paths)
    assert vs.load_profiles(tmp_path / "runs") == [PROFILE] * 3


def test_records_of_one_second_are_read_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    for number in range(1, 13):
        profile = vs.Profile.from_times(instance_type="a", batch_size=8, iteration_seconds=[0.1] * number)
        profile.model_copy(update={"created": moment}).save(tmp_path)
    read = vs.load_profiles(tmp_path)
    assert [len(profile.timeline.steps) for profile in read] == list(range(1, 13))


def test_a_folder_of_folders_with_records_says_to_pass_these(tmp_path: Path) -> None:
    path = PROFILE.save(tmp_path / "2026-03-01T0400" / "001.json")
    with pytest.raises(ProfileError, match="2026-03-01T0400"):
        vs.load_profiles(tmp_path)
    assert len(vs.load_profiles(*tmp_path.iterdir())) == 1
    Path(str(path)).unlink()
    with pytest.raises(ProfileError) as caught:
        vs.load_profiles(tmp_path)
    assert "2026-03-01T0400" not in str(caught.value)


def test_a_hostile_instance_type_cannot_leave_its_folder(tmp_path: Path) -> None:
    assert make_profile("../../etc/passwd\n;rm").save(tmp_path / "runs").parent == tmp_path / "runs"


def edited(tmp_path: Path, **changes: object) -> Path:
    data = json.loads(PROFILE.model_dump_json())
    for dotted, value in changes.items():
        *parents, last = dotted.split("__")
        target = data
        for parent in parents:
            target = target[parent]
        target[last] = value
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"timeline__init_seconds": -1.0}, "timeline.init_seconds"),
        ({"timeline__init_seconds": float("nan")}, "timeline.init_seconds"),
        ({"timeline__init_seconds": "1"}, "timeline.init_seconds"),
        ({"timeline__steps__seconds": [1.0]}, "timeline.steps"),
        ({"timeline__steps__seconds": [0.1, 0.1, 0.1, 1e300]}, "timeline.steps.seconds.3"),
        ({"setup__batch_size": 0}, "setup.batch_size"),
        ({"setup__batch_size": True}, "setup.batch_size"),
        ({"outcome": "fine"}, "outcome"),
        ({"created": "yesterday"}, "created"),
        ({"metrics": {"loss": "low"}}, "metrics.loss"),
        ({"surprise": 1}, "surprise"),
        ({"format": "1"}, "format"),
    ],
)
def test_a_hand_edited_file_names_the_file_and_the_field(tmp_path: Path, change: dict[str, object], named: str) -> None:
    path = edited(tmp_path, **change)
    with pytest.raises(ProfileError) as refused:
        Profile.load(path)
    assert str(path) in str(refused.value)
    assert named in str(refused.value)


def test_new_facts_of_a_later_version_are_ignored(tmp_path: Path) -> None:
    assert Profile.load(edited(tmp_path, environment__flux_capacitor="on")) == PROFILE


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe\x00",
        b"\x89PNG",
        b'{"format": 1',
        b'{"format": 1}',
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"format": ' + b"9" * 5000 + b"}",
        b"=cmd()",
    ],
    ids=lambda content: repr(content[:12]),
)
def test_foreign_and_broken_files_are_rejected(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "foreign.json"
    path.write_bytes(content)
    with pytest.raises(ProfileError, match=r"foreign\.json"):
        Profile.load(path)


def test_a_truncated_profile_is_rejected_at_every_length(tmp_path: Path) -> None:
    whole = PROFILE.save(tmp_path / "whole.json").read_bytes()
    path = tmp_path / "part.json"
    for length in range(0, len(whole.rstrip()), 37):
        path.write_bytes(whole[:length])
        with pytest.raises(ProfileError, match=r"part\.json"):
            Profile.load(path)


def test_missing_files_and_empty_folders_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProfileError, match=r"nowhere\.json"):
        Profile.load(tmp_path / "nowhere.json")
    with pytest.raises(ProfileError, match=tmp_path.name):
        vs.load_profiles(tmp_path)
    monkeypatch.setenv("VMSELECT_FOLDER", str(tmp_path / "elsewhere"))
    with pytest.raises(ProfileError, match="elsewhere"):
        vs.load_profiles()


def test_an_unwritable_path_is_found_before_it_is_needed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ProfileError, match="file"):
        _io.check_writable(tmp_path / "file" / "profile.json")
    _io.check_writable(tmp_path / "new" / "profile.json")
    assert not (tmp_path / "new").exists()


# Several kinds of records


def test_values_that_json_cannot_express_survive(tmp_path: Path) -> None:
    path = make_study(10).save(tmp_path / "a.json")
    data = json.loads(path.read_text())
    data["runs"][0]["curve"] = {"epoch": [1, 2, 3], "value": ["nan", "-inf", 0.5]}
    path.write_text(json.dumps(data))
    values = [value for _, value in vs.ConvergenceStudy.load(path).runs[0].curve.points]
    assert values[0] != values[0]
    assert values[1:] == [float("-inf"), 0.5]


def test_runs_of_a_folder_are_merged_and_none_counts_twice(tmp_path: Path) -> None:
    one, two = make_study(10, 10).save(tmp_path), make_study(30).save(tmp_path)
    assert one != two
    merged = vs.ConvergenceStudy.load(tmp_path, one)
    assert len(merged.runs) == 3
    assert merged.epochs(32).value == pytest.approx(50 / 3)


def test_a_record_of_another_kind_names_its_loader(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="load_profiles"):
        vs.ConvergenceStudy.load(PROFILE.save(tmp_path / "profile.json"))
    with pytest.raises(ProfileError, match=r"ConvergenceStudy\.load"):
        Profile.load(make_study(3).save(tmp_path / "study.json"))


def test_profiles_and_studies_may_share_a_folder(tmp_path: Path) -> None:
    PROFILE.save(tmp_path)
    with pytest.raises(ProfileError, match=tmp_path.name):
        vs.ConvergenceStudy.load(tmp_path)
    make_study(3).save(tmp_path)
    assert vs.load_profiles(tmp_path) == [PROFILE]
    assert vs.ConvergenceStudy.load(tmp_path).epochs(32).value == 3
    (tmp_path / "else.json").write_text("{}")
    for load in (vs.load_profiles, vs.ConvergenceStudy.load):
        with pytest.raises(ProfileError, match=r"else\.json"):
            load(tmp_path)


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Url:
    pytest.importorskip("fsspec", reason="URLs need fsspec, which is not installed")
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
    _io.Folder(url).write("two.json", b"{}")
    with pytest.raises(ProfileError):
        profile.save(url / "two.json")
    with pytest.raises(ProfileError):
        vs.load_records(url)


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    assert check_place("path", f"file://{tmp_path}") == tmp_path
    profile = make_profile("a", 0.1)
    profile.save(f"file://{tmp_path}")
    assert vs.load_profiles(tmp_path) == [profile]


def test_a_record_for_a_url_is_on_this_machine_until_it_is_finished(url: Url) -> None:
    profile = make_profile("a", 0.1)
    file = RecordFile(url)
    file.write(profile)
    assert vs.load_records(unsent_folder()) == [profile]
    with pytest.raises(ProfileError):
        vs.load_records(url)
    saved = file.finish(profile)
    assert isinstance(saved, Url)
    assert vs.Profile.load(saved) == profile
    assert vs.load_records(url) == [profile]
    assert not [*unsent_folder().iterdir()]


def test_a_record_that_cannot_be_uploaded_stays_on_this_machine(url: Url, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = make_profile("a", 0.1)

    def refuse(*_: object) -> bool:
        raise ProfileError("no network")

    with monkeypatch.context() as patch:
        patch.setattr(_io.Folder, "create", refuse)
        with pytest.raises(ProfileError, match=r"unsent"):
            RecordFile(url).finish(profile)
    assert vs.load_records(unsent_folder()) == [profile]


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
    folder = _io.Folder(place)
    assert [folder.create("one.json", data) for data in (b"1", b"2")] == [True, False]
    assert folder.read("one.json", limit=10) == b"1"
    profile = make_profile("a", 0.1)
    assert profile.save(place) == profile.save(place)


def test_a_large_file_is_not_read(url: Url, monkeypatch: pytest.MonkeyPatch) -> None:
    make_profile("a", 0.1).save(url)
    monkeypatch.setattr("vmselect.records.files.MAX_FILE_BYTES", 100)
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


DATA = Path(__file__).parents[2] / "data"
FOLDERS = {"training": "profiles"}
"""Folders of kinds that are not named like the kind."""

FILES = [(kind, number) for kind, known in KINDS.items() for number in range(1, known.format + 1)]
"""One frozen file each. A new kind or format needs its file."""


@pytest.mark.parametrize(("kind", "number"), FILES)
def test_every_kind_and_format_stays_readable(kind: str, number: int) -> None:
    path = DATA / FOLDERS.get(kind, kind) / f"format-{number}.json"
    (record,) = vs.load_records(path)
    assert record.kind == kind
    assert record.format == KINDS[kind].format
    assert (record,) == tuple(vs.load_records(path))


@pytest.mark.parametrize("number", [1, 2])
def test_old_studies_keep_their_values(number: int) -> None:
    study = vs.ConvergenceStudy.load(DATA / "convergence" / f"format-{number}.json")
    assert study.batch_sizes == (32, 64)
    assert study.epochs(32).value == 7


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"[1]", "format"),
        (b'{"format": true}', "format"),
        (b'{"format": 3, "kind": "other"}', "kind 'other'"),
        (b'{"format": 3, "kind": "' + b"k" * 70 + b'"}', f"kind '{'k' * 60}'"),
        (b'{"format": 4}', "format 4"),
        (b'{"format": 0}', "format 0"),
        (b'{"format": 3, "kind": "training"}', "field"),
        (b'{"format": 3, "kind": "training", "outcome": "given"}', "field timeline"),
        (b'{"kind": "training",', "line 1 column 20"),
    ],
)
def test_an_invalid_file_is_named_with_the_reason(text: bytes, reason: str) -> None:
    with pytest.raises(ProfileError, match=rf"^a\.json: .*{reason}"):
        parse_record(text, source="a.json")


@pytest.mark.parametrize("part", ["{},", "[],", "0,"])
def test_a_file_of_millions_of_values_is_refused_before_it_is_parsed(
    tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parsed, a file of allowed size would take gigabytes."""
    monkeypatch.setattr(files, "_adapter", lambda: pytest.fail("the file was parsed"))
    path = tmp_path / "odd.json"
    path.write_text(f'{{"format": 3, "kind": "training", "x": [{part * (files.MAX_VALUES + 1)}0]}}')
    with pytest.raises(ProfileError, match="values"):
        vs.load_profiles(path)


def test_thousands_of_wrong_fields_are_counted_and_not_listed(tmp_path: Path) -> None:
    data = json.loads(make_profile("g4dn.xlarge").to_json()) | {f"odd {number}": 0 for number in range(2_000)}
    (tmp_path / "odd.json").write_text(json.dumps(data))
    with pytest.raises(ProfileError, match="2,000 fields"):
        vs.load_profiles(tmp_path / "odd.json")
