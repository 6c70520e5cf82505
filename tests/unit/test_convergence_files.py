"""Study files: whole or not at all, merged without counting twice, nothing trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from vmselect.convergence import ConvergenceRun
from vmselect.errors import ProfileError


def study(*epochs: int, **options: Any) -> vs.ConvergenceStudy:
    return vs.ConvergenceStudy.from_epochs({32: list(epochs)}, **options)


def test_a_study_comes_back_as_it_was(tmp_path: Path) -> None:
    kept = study(10, 10, 12, metrics={32: 0.9}, model="m")
    path = kept.save(tmp_path / "study.json")
    assert vs.ConvergenceStudy.load(path).runs == kept.runs
    assert [p.name for p in tmp_path.iterdir()] == ["study.json"]


def test_numbers_that_json_has_no_word_for_survive(tmp_path: Path) -> None:
    text = study(10).save(tmp_path / "a.json").read_text()
    data = json.loads(text)
    data["runs"][0]["curve"] = {"epoch": [1, 2, 3], "value": ["nan", "-inf", 0.5]}
    (tmp_path / "a.json").write_text(json.dumps(data))
    values = [value for _, value in vs.ConvergenceStudy.load(tmp_path / "a.json").runs[0].curve.points]
    assert values[0] != values[0]
    assert values[1:] == [float("-inf"), 0.5]


def test_a_folder_collects_runs_and_none_counts_twice(tmp_path: Path) -> None:
    first, second = study(10, 10), study(30)
    one, two = first.save(tmp_path), second.save(tmp_path)
    assert one != two
    merged = vs.ConvergenceStudy.load(tmp_path, one)
    assert len(merged.runs) == 3
    assert merged.epochs(32).value == pytest.approx(50 / 3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d | {"format": 99}, "pip install --upgrade"),
        (lambda d: d | {"extra": 1}, "extra"),
        (lambda d: d | {"kind": "profile"}, "kind"),
        (lambda d: d | {"runs": []}, "runs"),
        (lambda d: {k: v for k, v in d.items() if k != "format"}, "no format number"),
        (lambda d: [d], "no format number"),
        (lambda d: d | {"runs": [d["runs"][0] | {"batch_size": 0}]}, "batch_size"),
        (lambda d: d | {"runs": [d["runs"][0] | {"epochs_run": 1.0}]}, "stabilised_after"),
        (lambda d: d | {"runs": [d["runs"][0] | {"curve": {"epoch": [2, 1], "value": [1, 1]}}]}, "ascending"),
        (lambda d: d | {"runs": [d["runs"][0] | {"curve": {"epoch": [1], "value": []}}]}, "differ in length"),
        (lambda d: d | {"runs": [d["runs"][0], d["runs"][0] | {"model": "other"}]}, "different models"),
    ],
)
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, change: Any, words: str) -> None:
    path = study(10, model="m").save(tmp_path / "study.json")
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(ProfileError, match=words):
        vs.ConvergenceStudy.load(path)


def profile() -> vs.Profile:
    return vs.Profile.from_times(instance_type="a", batch_size=8, steps_per_epoch=3, iteration_seconds=0.1)


def test_a_profile_is_no_study_and_a_study_no_profile(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"this is a profile, not a convergence study.*load_profiles"):
        vs.ConvergenceStudy.load(profile().save(tmp_path / "profile.json"))
    with pytest.raises(ProfileError, match=r"this is a convergence study, not a profile.*ConvergenceStudy\.load"):
        vs.Profile.load(study(3).save(tmp_path / "study.json"))


def test_profiles_and_studies_may_share_a_folder(tmp_path: Path) -> None:
    kept = profile()
    kept.save(tmp_path)
    study(3).save(tmp_path)
    assert vs.load_profiles(tmp_path) == [kept]
    assert vs.ConvergenceStudy.load(tmp_path).epochs(32).value == 3
    (tmp_path / "else.json").write_text("{}")
    for load in (vs.load_profiles, vs.ConvergenceStudy.load):
        with pytest.raises(ProfileError, match=r"else\.json: not a"):
            load(tmp_path)


def test_a_folder_of_the_other_kind_alone_is_an_error(tmp_path: Path) -> None:
    profile().save(tmp_path / "profiles")
    study(3).save(tmp_path / "studies")
    with pytest.raises(ProfileError, match="no convergence study"):
        vs.ConvergenceStudy.load(tmp_path / "profiles")
    with pytest.raises(ProfileError, match="no profile"):
        vs.load_profiles(tmp_path / "studies")


@pytest.mark.parametrize("name", ["format-1.json", "format-2.json"])
def test_every_format_stays_readable(name: str) -> None:
    frozen = Path(__file__).parents[1] / "data" / "convergence" / name
    kept = vs.ConvergenceStudy.load(frozen)
    assert kept.batch_sizes == (32, 64)
    assert kept.epochs(32).value == 7
    assert isinstance(kept.runs[0], ConvergenceRun)
