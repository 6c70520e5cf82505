"""Forecasts and outcomes: what a file may contain, and how forecasts are made of estimates and rankings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import vmselect as vs
from tests.support.profiles import make_profile
from tests.support.rankings import BOTH, rank
from vmselect.errors import ArgumentError
from vmselect.records import Forecast, OutcomeRecord
from vmselect.records.forecast import MAX_RUNS, MAX_USED, Bounds
from vmselect.records.identity import find_differences

BOUNDS = Bounds(value=2.0, low=1.0, high=3.0)
DATA = Path(__file__).parents[2] / "data"


def forecast(**fields: Any) -> Forecast:
    usual = {"epochs": 10.0, "method": "robust", "basis": "measured", "confidence": 0.9, "seconds": BOUNDS}
    return Forecast(**{**usual, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"epochs": 0.0},
        {"confidence": 1.0},
        {"basis": "guessed"},
        {"used": ("x",)},
        {"used": ("0" * 32,) * (MAX_USED + 1)},
        {"conditions": {f"c{i}": 1 for i in range(101)}},
        {"conditions": {"c": [1]}},
        {"method": "m" * 201},
        {"chance": 1.1},
        {"unknown": 1},
    ],
)
def test_an_invalid_forecast_is_rejected(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        forecast(**fields)


@pytest.mark.parametrize("bounds", [(2.0, 2.1, 3.0), (2.0, 1.0, 1.9), (float("nan"), 1.0, 2.0), (-1.0, -1.0, 1.0)])
def test_bounds_enclose_their_value(bounds: tuple[float, float, float]) -> None:
    with pytest.raises(ValidationError):
        Bounds(value=bounds[0], low=bounds[1], high=bounds[2])


def test_an_outcome_names_its_forecast_and_is_limited() -> None:
    predicted = forecast()
    assert predicted.outcome(seconds=[2.0, 3.0]).run_seconds == (2.0, 3.0)
    assert predicted.outcome(seconds=2.0, cost_usd=1.5).forecast == predicted.id
    for seconds, cost in ((0, None), (float("inf"), None), (1.0, -1), ([1.0] * (MAX_RUNS + 1), None), ([], None)):
        with pytest.raises(ArgumentError):
            predicted.outcome(seconds=seconds, cost_usd=cost)
    with pytest.raises(ValidationError):
        OutcomeRecord(forecast="../../etc/passwd", run_seconds=(1.0,))


def test_an_estimate_is_kept_with_its_source(tmp_path: Path) -> None:
    profile = make_profile("a", 0.1, factors={"seed": 1}, environment={"backend": "jax"})
    estimate = vs.estimate(profile, epochs=5, examples=6400)
    (path,) = estimate.keep(tmp_path)
    (kept,) = vs.load_records(path)
    assert isinstance(kept, Forecast)
    assert kept.seconds.interval == (estimate.seconds, estimate.low, estimate.high)
    assert (kept.used, kept.basis, kept.factors) == ((profile.id,), "measured", {"seed": 1})
    assert kept.conditions["backend"] == "jax"
    assert kept.conditions["number of training examples"] == 6400
    assert "steps per epoch" not in kept.conditions


@pytest.mark.parametrize(("size", "basis"), [(64, "measured"), (96, "interpolated"), (256, "extrapolated")])
def test_an_estimate_at_another_batch_size_names_its_basis(size: int, basis: str) -> None:
    profiles = [
        make_profile("a", 0.001 * at, batch_size=at, steps_per_epoch=12800 // at, setup={"examples": 12800})
        for at in (64, 128)
    ]
    kept = vs.estimate(profiles, epochs=5, batch_size=size).forecast()
    assert (kept.batch_size, kept.basis) == (size, basis)


def test_a_ranking_keeps_the_best_offer_of_each_machine(tmp_path: Path) -> None:
    ranking = rank(region="all", market="all")
    assert len(ranking) > 2
    paths = ranking.keep(tmp_path)
    kept = [record for record in vs.load_records(paths) if isinstance(record, Forecast)]
    best = ranking.best
    assert [record.instance_type for record in kept] == list(dict.fromkeys(row.instance_type for row in ranking))
    assert kept[0].seconds.interval == best.measures["time"]
    assert kept[0].cost_usd is not None
    assert kept[0].cost_usd.interval == best.measures["cost"]
    assert (kept[0].rank, kept[0].market, kept[0].usd_per_hour) == (1, best.market, best.usd_per_hour)
    assert {record.ranking for record in kept} == {kept[0].ranking}
    assert len(ranking.keep(tmp_path, top=1)) == 1
    assert kept[0].used == (next(profile.id for profile in BOTH if profile.instance_type == best.instance_type),)


def test_a_predicted_machine_is_based_on_the_probes_and_the_history(tmp_path: Path) -> None:
    probes = [make_profile("g4dn.xlarge", 0.2, provider="aws")]
    history = [make_profile(name, 0.3, model="other", provider="aws") for name in ("g4dn.xlarge", "g5.xlarge")]
    ranking = vs.rank(probes, epochs=5, machines="all", history=history, catalog=vs.Catalog.embedded("2026-08-22"))
    kept = [record for record in vs.load_records(ranking.keep(tmp_path, top=50)) if isinstance(record, Forecast)]
    predicted = [record for record in kept if record.basis == "predicted"]
    assert predicted
    assert all(set(record.used) == {probe.id for probe in (*probes, *history)} for record in predicted)


def test_a_folder_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError):
        rank().keep(tmp_path / "forecast.json")


def test_differences_are_all_named() -> None:
    kept = vs.estimate(make_profile("a", 0.1, environment={"backend": "jax"}), epochs=5).forecast()

    def names(**changes: Any) -> dict[str, bool]:
        other = make_profile(**{"instance_type": "a", "environment": {"backend": "jax"}, **changes})
        return {difference.name: difference.other_work for difference in find_differences(kept, other)}

    assert names() == {}
    assert names(instance_type=None, batch_size=None, model=None) == {}
    assert names(instance_type="b", factors={"nodes": 2}) == {"instance type": True, "workers": True, "nodes": True}
    assert names(batch_size=32, model="other") == {"batch size": True, "model": True}
    assert names(environment={"backend": "torch"}) == {"backend": False}
    assert names(steps_per_epoch=101) == {}
    assert names(steps_per_epoch=150) == {"steps per epoch": True}
    assert names(factors={"seed": 1}) == {"factors": True}


def test_the_frozen_files_keep_their_values() -> None:
    (kept,) = vs.load_records(DATA / "forecast" / "format-1.json")
    (outcome,) = vs.load_records(DATA / "outcome" / "format-1.json")
    assert isinstance(kept, Forecast)
    assert isinstance(outcome, OutcomeRecord)
    assert outcome.forecast == kept.id
    assert kept.own.low == pytest.approx(0.95 * kept.own.value)
    assert (outcome.run_seconds, outcome.cost_usd) == ((130.0, 133.0), 0.04)
