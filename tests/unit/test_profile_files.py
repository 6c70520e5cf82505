"""Profile files: whole or not at all, readable for ever, and nothing in them is trusted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vmselect as vs
from vmselect import _files
from vmselect.records import Profile, store, training

DATA = Path(__file__).parents[1] / "data" / "profiles"
PROFILE = Profile.from_times(
    instance_type="g4dn.xlarge",
    batch_size=64,
    steps_per_epoch=100,
    init_seconds=1.0,
    first_iteration_seconds=2.0,
    iteration_seconds=[0.1, 0.30000000000000004, 1e-7],
    validation_seconds=[1.0, 0.5],
    model="net",
    metrics={"loss": 0.1},
)


def test_what_is_saved_is_read_back_exactly(tmp_path: Path) -> None:
    path = PROFILE.save(tmp_path / "profile.json")
    assert Profile.load(path) == PROFILE
    assert [p.name for p in tmp_path.iterdir()] == ["profile.json"]


def test_a_folder_gets_a_new_file_each_time(tmp_path: Path) -> None:
    paths = {PROFILE.save(tmp_path / "runs") for _ in range(3)}
    assert len(paths) == 3
    assert all(path.name.startswith("g4dn.xlarge-64-") for path in paths)
    assert vs.load_profiles(tmp_path / "runs") == [PROFILE] * 3


def test_a_hostile_instance_type_cannot_leave_its_folder(tmp_path: Path) -> None:
    hostile = Profile.from_times(instance_type="../../etc/passwd\n;rm", iteration_seconds=1.0)
    assert hostile.save(tmp_path / "runs").parent == tmp_path / "runs"


@pytest.mark.parametrize("path", sorted(DATA.glob("format-*.json")), ids=lambda path: path.name)
def test_files_of_every_format_ever_written_stay_readable(path: Path) -> None:
    profile = Profile.load(path)
    assert profile.format == training.FORMAT
    assert profile.timeline.steps.readings > 0


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
        ({"format": 4}, "format 4"),
        ({"format": 0}, "format 0"),
        ({"format": "1"}, "no format number"),
        ({"format": True}, "no format number"),
    ],
)
def test_a_hand_edited_file_names_the_file_and_the_field(tmp_path: Path, change: dict[str, object], named: str) -> None:
    path = edited(tmp_path, **change)
    with pytest.raises(vs.errors.ProfileError) as refused:
        Profile.load(path)
    assert str(path) in str(refused.value)
    assert named in str(refused.value)


def test_new_facts_of_a_later_version_are_passed_over(tmp_path: Path) -> None:
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
def test_foreign_and_broken_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "foreign.json"
    path.write_bytes(content)
    with pytest.raises(vs.errors.ProfileError, match=r"foreign\.json"):
        Profile.load(path)


def test_a_truncated_profile_is_refused_at_every_length(tmp_path: Path) -> None:
    whole = PROFILE.save(tmp_path / "whole.json").read_bytes()
    path = tmp_path / "part.json"
    for length in range(0, len(whole.rstrip()), 37):
        path.write_bytes(whole[:length])
        with pytest.raises(vs.errors.ProfileError, match=r"part\.json"):
            Profile.load(path)


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(10 * store.MAX_FILE_BYTES)  # sparse: costs no disk
    with pytest.raises(vs.errors.ProfileError, match="larger than"):
        Profile.load(path)


def test_missing_files_and_empty_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(vs.errors.ProfileError, match=r"nowhere\.json"):
        Profile.load(tmp_path / "nowhere.json")
    with pytest.raises(vs.errors.ProfileError, match="no profile"):
        vs.load_profiles(tmp_path)
    with pytest.raises(vs.errors.ProfileError, match="No profile was named"):
        vs.load_profiles()


def test_an_unwritable_path_is_found_before_it_is_needed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(vs.errors.ProfileError, match="cannot write"):
        _files.check_writable(tmp_path / "file" / "profile.json")
    _files.check_writable(tmp_path / "new" / "profile.json")
    assert not (tmp_path / "new").exists()


# -- SkyPilot ----------------------------------------------------------------------------------------------------------


def test_a_list_of_profiles_is_a_table_in_a_notebook(tmp_path: Path) -> None:
    for number, model in enumerate(("<b>net</b>", "other")):
        vs.Profile.from_times(instance_type="a", batch_size=8, iteration_seconds=0.1, model=model).save(
            tmp_path / f"{number}.json"
        )
    profiles = vs.load_profiles(tmp_path)
    assert profiles == [*profiles]
    page = profiles._repr_html_()
    assert page.count("<tr>") == 3
    assert "&lt;b&gt;net" in page
    assert "<b>" not in page
