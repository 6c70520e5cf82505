"""Record files: written atomically, read back exactly, merged without duplicates, and validated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect import _files
from vmselect.errors import ProfileError
from vmselect.records import Profile

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


def test_missing_files_and_empty_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"nowhere\.json"):
        Profile.load(tmp_path / "nowhere.json")
    with pytest.raises(ProfileError, match=tmp_path.name):
        vs.load_profiles(tmp_path)
    with pytest.raises(ProfileError):
        vs.load_profiles()


def test_an_unwritable_path_is_found_before_it_is_needed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ProfileError, match="file"):
        _files.check_writable(tmp_path / "file" / "profile.json")
    _files.check_writable(tmp_path / "new" / "profile.json")
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
