"""Which outcomes belong to which forecasts, and which reasons are given for those that do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from tests.support.forecasts import make_forecast
from tests.support.profiles import make_profile
from vmselect.errors import ArgumentError
from vmselect.records import Profile
from vmselect.records.forecast import Bounds
from vmselect.scoring.forecast import match

DATA = Path(__file__).parents[2] / "data"


def real(**changes: Any) -> Profile:
    usual = {"instance_type": "g4dn.xlarge", "batch_size": 64, "epochs": 10, "total_seconds": 105.0, "model": "net"}
    return vs.Profile.from_times(**{**usual, **changes})


def test_a_whole_training_is_matched_by_machine_batch_size_and_epochs() -> None:
    forecast = make_forecast()
    (case,) = match([forecast, real(total_seconds=[104.0, 106.0])]).cases
    assert (case.forecast.id, case.real_seconds, case.inside, case.differences) == (forecast.id, 105.0, True, ())


@pytest.mark.parametrize(
    "changes",
    [
        {"instance_type": "g5.xlarge"},
        {"batch_size": 32},
        {"epochs": 11},
        {"model": "other"},
        {"factors": {"nodes": 2}},
        {"factors": {"seed": 1}},
    ],
)
def test_another_training_is_not_scored_and_the_reason_is_named(changes: dict[str, Any]) -> None:
    matched = match([make_forecast(conditions={"model": "net"}), real(**changes)])
    assert not matched.cases
    assert [outcome.reason_code for outcome in matched.unscored] == ["differs"]
    assert len(matched.waiting) == 1


def test_other_software_is_scored_and_reported() -> None:
    watched = make_profile("g4dn.xlarge", total_seconds=100.0, epochs=10, environment={"backend": "torch"})
    (case,) = match([make_forecast(conditions={"backend": "jax"}), watched]).cases
    assert [text.partition(" ")[0] for text in case.differences] == ["backend"]
    assert case.findings[0].code == "outcome-differs"


def test_a_record_that_the_forecast_used_tests_nothing() -> None:
    watched = real()
    matched = match([make_forecast(used=(watched.id,)), watched])
    assert [outcome.reason_code for outcome in matched.unscored] == ["used"]


def test_probes_are_no_outcomes() -> None:
    matched = match([make_forecast(), make_profile("g4dn.xlarge")])
    assert (matched.cases, matched.unscored, len(matched.waiting)) == ((), (), 1)


def test_the_newest_forecast_before_the_training_counts() -> None:
    old, new = make_forecast(seconds=90.0, day=0), make_forecast(seconds=100.0, day=1)
    other = make_forecast(seconds=80.0, day=0, method="malta-epoch")
    matched = match([old, new, other, real()])
    assert sorted(case.forecast.id for case in matched.cases) == sorted([new.id, other.id])
    assert len(matched.real) == 3


def test_a_forecast_after_the_training_says_so() -> None:
    (case,) = match([make_forecast(day=40_000), real()]).cases
    assert case.differences == ("date (before the forecast)",)


def test_an_outcome_belongs_to_its_forecast_only() -> None:
    forecast, other = make_forecast(), make_forecast()
    matched = match([forecast, other, forecast.outcome(seconds=110.0, cost_usd=2.0)])
    assert [(case.forecast.id, case.real_cost_usd) for case in matched.cases] == [(forecast.id, 2.0)]
    lone = match([other, forecast.outcome(seconds=110.0)])
    assert [outcome.reason_code for outcome in lone.unscored] == ["no_forecast"]


def test_without_a_cost_the_price_of_the_forecast_counts() -> None:
    forecast = make_forecast(seconds=100.0, cost_usd=Bounds(value=4.0, low=3.0, high=5.0))
    (case,) = match([forecast, forecast.outcome(seconds=150.0)]).cases
    assert case.real_cost_usd == pytest.approx(6.0)


def test_old_profiles_are_scored_and_others_refused_with_a_reason() -> None:
    """Profiles of the first format have neither IDs nor factors."""
    (old,) = vs.load_profiles(DATA / "profiles" / "format-1.json")
    whole = old.model_copy(update={"timeline": old.timeline.model_copy(update={"run_seconds": (50.0,)})})
    nameless = real().model_copy(update={"placement": type(whole.placement)(), "id": "1" * 32})
    endless = real().model_copy(update={"setup": real().setup.model_copy(update={"epochs": None}), "id": "2" * 32})
    assert whole.instance_type
    assert whole.epochs_trained
    forecast = make_forecast(
        whole.instance_type, 50.0, batch_size=whole.batch_size, epochs=float(whole.epochs_trained), model=None
    )
    matched = match([forecast, whole, nameless, endless])
    assert [case.outcome.id for case in matched.cases] == [old.id]
    assert [outcome.reason_code for outcome in matched.unscored] == ["unknown_instance_type", "unknown_epochs"]


@pytest.mark.parametrize("number", [1, 2])
def test_a_file_of_an_old_format_is_scored(number: int, tmp_path: Path) -> None:
    """It has no kind, no ID and no factors, so that its factors are unknown and not empty."""
    data = json.loads((DATA / "profiles" / f"format-{number}.json").read_text())
    assert not {"kind", "id", "factors"} & set(data)
    data |= {"outcome": "watched"}
    data["timeline"]["fit_seconds"] = 45.0
    data["timeline"]["epochs"] = [{"epoch": epoch, "seconds": 4.0} for epoch in range(10)]
    (tmp_path / "old.json").write_text(json.dumps(data))
    (old,) = vs.load_profiles(tmp_path)
    make_forecast(str(old.instance_type), 50.0, factors={"seed": 1}, model=None).save(tmp_path)
    (case,) = vs.score(vs.load_records(tmp_path)).cases
    assert case.real_seconds == pytest.approx(50.25)
    assert case.differences[0] == "factors (unknown)"
    stated = old.model_copy(update={"factors": {}, "id": "3" * 32})
    matched = match([make_forecast(str(old.instance_type), 50.0, factors={"seed": 1}, model=None), stated])
    assert [outcome.reason_code for outcome in matched.unscored] == ["differs"]


def test_a_watched_training_without_a_total_is_refused_with_a_reason() -> None:
    watched = make_profile("g4dn.xlarge", outcome="watched")
    assert watched.total_seconds is None
    matched = match([make_forecast(), watched])
    assert [outcome.reason_code for outcome in matched.unscored] == ["unknown_total"]


def test_an_unknown_batch_size_is_noted() -> None:
    (case,) = match([make_forecast(), real(batch_size=None)]).cases
    assert case.differences == ("batch size (unknown)",)


@pytest.mark.parametrize("wrong", ["folder", [1], 7])
def test_only_records_are_accepted(wrong: Any) -> None:
    with pytest.raises(ArgumentError):
        match(wrong)
