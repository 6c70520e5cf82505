"""Intervals and times that are corrected by the outcomes of earlier forecasts."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import vmselect as vs
from tests.benchmarks.track_record import main
from tests.support.forecasts import make_pair
from tests.support.profiles import make_profile
from vmselect.cli import app
from vmselect.errors import ArgumentError, EstimateError
from vmselect.intervals import Interval
from vmselect.records import Forecast, Record
from vmselect.scoring.recalibration import Adjustment, Recalibration

PROBE = make_profile("g4dn.xlarge", 0.1)
runner = CliRunner()


def make_history(count: int, *, bias: float = 0.0, noise: float = 0.06, **fields: Any) -> list[Record]:
    """Outcomes whose errors are the quantiles of a normal distribution."""
    errors = [NormalDist(bias, noise).inv_cdf((i + 0.5) / count) for i in range(count)]
    return [record for error in errors for record in make_pair(error, **{"width": 0.1, **fields})]


def learn(history: list[Record], confidence: float = 0.9) -> Recalibration:
    return Recalibration.of(history, method="robust", confidence=confidence)


def test_without_outcomes_nothing_changes() -> None:
    for history in ([], [PROBE], make_history(30, method="malta-epoch")):
        assert learn(history).adjust("measured", "g4dn.xlarge") == Adjustment()


@pytest.mark.parametrize(("count", "narrowed"), [(19, False), (20, True)])
def test_intervals_are_not_narrowed_with_fewer_than_20_outcomes(count: int, narrowed: bool) -> None:
    factor = learn(make_history(count, noise=0.01)).adjust("measured", "g4dn.xlarge").factor
    assert (factor < 1) is narrowed


def test_narrow_intervals_are_widened_until_they_cover() -> None:
    history = make_history(60, noise=0.2)
    scale = learn(history).scales["measured"]
    assert scale.factor > 2
    assert scale.outcomes == 60
    assert scale.inside < 40


def test_right_intervals_stay_as_they_are() -> None:
    assert learn(make_history(40, noise=0.1 / 1.645)).adjust("measured", "g4dn.xlarge").factor == 1.0


def test_the_bases_are_partially_pooled() -> None:
    wide = make_history(60, noise=0.2)
    alone = learn(make_history(2, noise=0.2, basis="predicted")).scales["predicted"].factor
    pooled = learn([*wide, *make_history(2, noise=0.2, basis="predicted")]).scales
    assert set(pooled) == {"measured", "predicted"}
    assert pooled["predicted"].factor != alone
    assert learn(wide).adjust("extrapolated", "g4dn.xlarge").factor == 1.0


@pytest.mark.parametrize(("count", "codes"), [(9, ["bias-seen"]), (10, ["bias-corrected"])])
def test_a_bias_is_shown_and_corrected_with_enough_outcomes(count: int, codes: list[str]) -> None:
    adjustment = learn(make_history(count, bias=0.14, noise=0.02, width=0.2)).adjust("measured", "g4dn.2xlarge")
    assert [finding.code for finding in adjustment.findings if finding.code.startswith("bias")] == codes
    assert (adjustment.ratio > 1.07) is (count == 10)


def test_the_bias_of_another_family_or_basis_is_not_applied() -> None:
    learned = learn(make_history(30, bias=0.14, noise=0.02))
    assert learned.adjust("measured", "p3.2xlarge").ratio == 1.0
    assert learned.adjust("predicted", "g4dn.xlarge").ratio == 1.0


@given(st.floats(0.5, 2), st.floats(0.1, 10), st.floats(1, 1e6), st.floats(0, 0.09), st.floats(0, 5))
def test_a_correction_can_be_undone(ratio: float, factor: float, value: float, below: float, above: float) -> None:
    interval = Interval(value, value * (1 - below), value * (1 + above))
    adjustment = Adjustment(ratio, factor)
    changed = adjustment.apply(interval)
    assert changed.low <= changed.value <= changed.high
    assert list(adjustment.undo(changed)) == pytest.approx(list(interval))


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=25), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_correction_is_always_finite_and_keeps_the_rules(errors: list[float], confidence: float) -> None:
    history: list[Record] = [record for error in errors for record in make_pair(error)]
    adjustment = learn(history, confidence).adjust("measured", "g4dn.xlarge")
    assert 0 < adjustment.factor <= 20.001
    assert 0 < adjustment.ratio < math.inf
    if len(errors) < 20:
        assert adjustment.factor >= 1
    if len(errors) < 10:
        assert adjustment.ratio == 1


def test_estimate_and_rank_agree_and_can_be_left_alone() -> None:
    history = make_history(30, bias=0.14, noise=0.2)
    own = vs.estimate(PROBE, epochs=10)
    corrected = own.recalibrated(history)
    assert corrected.seconds > own.seconds
    assert corrected.high - corrected.low > own.high - own.low
    assert sum(corrected.terms.values()) == pytest.approx(corrected.seconds)
    with pytest.raises(EstimateError):
        corrected.recalibrated(history)
    assert corrected.forecast().own == pytest.approx((own.seconds, own.low, own.high))
    best = vs.rank([PROBE], epochs=10).recalibrated(history).best
    assert best.measures["time"] == pytest.approx((corrected.seconds, corrected.low, corrected.high))
    assert {"recalibrated", "bias-corrected"} <= {finding.code for finding in best.findings}
    plain = vs.rank([PROBE], epochs=10, history=history).best
    assert plain.measures["time"] == pytest.approx((own.seconds, own.low, own.high))


def test_kept_forecasts_keep_the_interval_of_the_method(tmp_path: Path) -> None:
    """So a recalibration never learns from recalibrated intervals."""
    vs.rank([PROBE], epochs=10).recalibrated(make_history(30, bias=0.14, noise=0.2)).keep(tmp_path)
    (kept,) = vs.load_records(tmp_path)
    assert isinstance(kept, Forecast)
    own = vs.estimate(PROBE, epochs=10)
    assert kept.own == pytest.approx((own.seconds, own.low, own.high))
    assert kept.seconds.value > own.seconds


@pytest.mark.parametrize("wrong", ["folder", [1]])
def test_a_wrong_history_is_rejected(wrong: Any) -> None:
    with pytest.raises(ArgumentError):
        vs.estimate(PROBE, epochs=10).recalibrated(wrong)
    with pytest.raises(ArgumentError):
        vs.rank([PROBE], epochs=10, history=wrong)


def test_the_commands_learn_from_a_history(tmp_path: Path) -> None:
    PROBE.save(tmp_path / "profiles")
    for record in make_history(30, bias=0.14, noise=0.02):
        record.save(tmp_path / "team")
    learning = ["--recalibrate", str(tmp_path / "team")]
    for command, options in (("estimate", []), ("rank", ["--verbose"])):
        arguments = [command, str(tmp_path / "profiles"), "-e", "10", *options]
        done = runner.invoke(app, [*arguments, *learning])
        assert done.exit_code == 0, done.stderr
        assert "multiplied by" in done.stderr
        assert "multiplied by" not in runner.invoke(app, arguments).stderr


def test_the_benchmark_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.benchmarks.track_record.STARTS", (1.0,))
    monkeypatch.setattr("tests.benchmarks.track_record.COUNTS", (20,))
    main(["--teams", "3"])
    assert "| +15% | 20 |" in capsys.readouterr().out
