"""Scores of forecasts: numbers, groups, reliability, worst cases, and every form of output."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import vmselect as vs
from tests.support.forecasts import make_forecast, make_pair
from tests.support.profiles import make_profile
from tests.support.rankings import rank
from vmselect.cli import app
from vmselect.errors import ArgumentError
from vmselect.records import Forecast, OutcomeRecord
from vmselect.scoring.score import BY, standardize

runner = CliRunner()
ERRORS = (0.0, 0.05, -0.05, 0.3)
PAIRS = [record for error in ERRORS for record in make_pair(error)]


def test_the_numbers_of_four_outcomes() -> None:
    score = vs.score(PAIRS)
    errors = [100 * (math.exp(-error) - 1) for error in ERRORS]
    assert len(score) == 4
    assert score.coverage == 0.75
    assert score.confidence == pytest.approx(0.9)
    assert score.width_percent == pytest.approx(20.0)
    assert score.bias_percent == pytest.approx(sum(errors) / 4)
    assert score.mean_error_percent == pytest.approx(sum(map(abs, errors)) / 4)
    assert score.worst[0].error_percent == pytest.approx(errors[3])
    assert score.regret == {"time": None, "cost": None}
    assert list(score.to_frame()["inside"]) == [True, True, True, False]


def test_every_grouping_has_all_outcomes() -> None:
    other = [record for error in ERRORS for record in make_pair(error, instance_type="p3.2xlarge", basis="predicted")]
    score = vs.score([*PAIRS, *other])
    for name in BY:
        assert score.by(name)["outcomes"].sum() == 8
    assert list(score.by("family")["group"]) == ["g4dn", "p3"]
    assert list(score.by("gpu")["group"]) == ["unknown"]
    assert set(score.groups["by"]) == set(BY)
    with pytest.raises(ArgumentError):
        score.by("weather")


def test_gpu_names_of_drivers_and_catalogs_are_one_group() -> None:
    pairs = [record for name in ("T4", "Tesla T4") for record in make_pair(0.0, gpu=name)]
    assert list(vs.score(pairs).by("gpu")["group"]) == ["T4"]


def test_reliability_of_right_intervals_is_the_diagonal() -> None:
    generator = random.Random(1)
    pairs = []
    for _ in range(1_000):
        forecast = make_forecast(width=0.1)
        pairs += [forecast, forecast.outcome(seconds=100.0 + generator.gauss(0.0, 10.0 / 1.6448536))]
    reliability = vs.score(pairs).reliability
    assert (reliability["coverage"] - reliability["confidence"]).abs().max() < 0.05
    assert (reliability["low"] <= reliability["coverage"]).all()


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=20))
def test_reliability_rises_with_the_level(errors: list[float]) -> None:
    reliability = vs.score([record for error in errors for record in make_pair(error)]).reliability
    assert reliability["coverage"].is_monotonic_increasing


def test_a_forecast_without_width_has_no_deviation() -> None:
    score = vs.score(make_pair(0.1, width=0.0))
    assert standardize(score.cases[0]) is None
    assert len(score.reliability) == 0
    json.loads(score.to_json())


def test_the_regret_of_a_kept_ranking(tmp_path: Path) -> None:
    ranking = rank(objective="time")
    ranking.keep(tmp_path)
    forecasts = {record.instance_type: record for record in vs.load_records(tmp_path) if isinstance(record, Forecast)}
    assert ranking.best.instance_type == "big"
    outcomes = [forecasts["big"].outcome(seconds=120.0), forecasts["small"].outcome(seconds=100.0)]
    score = vs.score([*forecasts.values(), *outcomes])
    assert score.regret["time"] == pytest.approx(0.2)
    assert score.regret["cost"] is not None


@pytest.mark.parametrize(("width", "code"), [(0.02, "intervals-too-narrow"), (0.9, "intervals-too-wide"), (0.2, None)])
def test_wrong_coverage_is_a_finding(width: float, code: str | None) -> None:
    generator = random.Random(2)
    pairs = [record for _ in range(60) for record in make_pair(generator.gauss(0.0, 0.12), width=width)]
    assert [finding.code for finding in vs.score(pairs).findings] == ([code] if code else [])


def test_charts_notebook_and_page_show_the_score(tmp_path: Path) -> None:
    hostile = make_pair(0.5, instance_type="<script>alert(1)</script>")
    score = vs.score([*PAIRS, *hostile])
    for kind in ("reliability", "errors"):
        assert score.chart(kind).to_dict()["layer"]
    page = score.report(tmp_path / "score.html").read_text()
    for text in (page, score._repr_html_()):
        assert "<script>alert" not in text
    assert "Reliability" in page
    with pytest.raises(ArgumentError):
        vs.score([make_forecast()]).chart()
    assert vs.score([make_forecast()]).report(tmp_path / "none.html").exists()


def test_the_commands_record_an_outcome_and_score_it(tmp_path: Path) -> None:
    (kept, *_) = rank().keep(tmp_path)
    assert runner.invoke(app, ["score", str(tmp_path)]).exit_code == 1
    done = runner.invoke(app, ["score", "add", str(kept), "--hours", "0.03", "--usd", "0.03"])
    assert done.exit_code == 0, done.stderr
    (outcome,) = vs.load_records(done.stdout.strip())
    assert isinstance(outcome, OutcomeRecord)
    assert outcome.run_seconds == (pytest.approx(108.0),)
    scored = runner.invoke(app, ["score", str(tmp_path), "--format", "json", "--html", str(tmp_path / "page.html")])
    assert scored.exit_code == 0
    assert json.loads(scored.stdout)["outcomes"] == 1
    assert (tmp_path / "page.html").exists()
    assert "measured" in runner.invoke(app, ["score", str(tmp_path), "--by", "basis"]).stdout
    assert len(runner.invoke(app, ["score", str(tmp_path), "--format", "csv"]).stdout.splitlines()) == 2


@pytest.mark.parametrize("hours", ["0", "-1", "nan"])
def test_an_impossible_outcome_is_rejected(tmp_path: Path, hours: str) -> None:
    (kept, *_) = rank().keep(tmp_path)
    done = runner.invoke(app, ["score", "add", str(kept), "--hours", hours])
    assert isinstance(done.exception, ArgumentError)
    assert len(list(tmp_path.glob("*outcome*"))) == 0


def test_rank_and_estimate_keep_forecasts_on_request(tmp_path: Path) -> None:
    make_profile("g4dn.xlarge", 0.1).save(tmp_path / "profiles")
    for command in ("rank", "estimate"):
        folder = tmp_path / command
        assert runner.invoke(app, [command, str(tmp_path / "profiles"), "-e", "5"]).exit_code == 0
        assert not folder.exists()
        options = [command, str(tmp_path / "profiles"), "-e", "5", "--keep", str(folder)]
        assert runner.invoke(app, options).exit_code == 0
        assert [record.kind for record in vs.load_records(folder)] == ["forecast"]
