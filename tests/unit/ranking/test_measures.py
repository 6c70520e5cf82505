"""Measures, objectives, limits, settings, and interruptions of spot machines."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import poisson
from typer.testing import CliRunner

import vmselect as vs
from tests.support.priced import prices
from tests.support.profiles import make_epoch_profile, make_profile
from tests.support.rankings import BOTH, LAB, probe, rank, rank_epochs
from vmselect.cli import app
from vmselect.errors import ArgumentError
from vmselect.intervals import Interval
from vmselect.ranking import Interruptions
from vmselect.ranking.decision import count_reasons
from vmselect.ranking.measures import MEASURES, Measure, billed_seconds, describe_objective, read_objective, score

HOUR = [make_epoch_profile("a", 360.0)]  # ten epochs are an hour
TWO_DOLLARS = prices(("a", 2.0))


def test_a_new_measure_is_one_entry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    litres_per_hour = {"small": 0.1, "big": 0.15}

    def use_water(candidates: Any, _: Any, time: Interval[Any]) -> Interval[Any]:
        rate = candidates.per_machine_estimate(lambda one: litres_per_hour[one.instance_type]).astype(float)
        return Interval(*(part / 3600 * rate[:, None] for part in time))

    fields = ("water_litres", "water_low", "water_high")
    water = Measure(
        name="water", fields=fields, of=use_water, format=lambda litres: f"{litres:.3g} l", aim="least water"
    )
    monkeypatch.setitem(MEASURES, "water", water)
    ranking = rank(objective="water", epochs=[5, 10])
    assert [row.instance_type for row in ranking.deciding_rows] == ["big", "small"]
    best = ranking.best
    assert best.measures["water"] == pytest.approx(
        (best.seconds * 0.15 / 3600, best.seconds_low * 0.15 / 3600, best.seconds_high * 0.15 / 3600)
    )
    assert "water" in ranking.verdict
    assert ranking.to_frame()["water_litres"].tolist() == [row.measures["water"].value for row in ranking]
    assert json.loads(ranking.to_json())["rows"][0]["measures"]["water"]["value"] == best.measures["water"].value
    assert ranking.relative("water")[10]["big"] == 1.0
    assert [change.epochs for change in ranking.crossovers("water", up_to=50)] == [3]
    mixed = rank(objective={"cost": 1, "water": 1})
    assert describe_objective(mixed.settings.objective) == "0.5 cost + 0.5 water"
    saved = [str(one.save(tmp_path / "records")) for one in BOTH]
    command = ["rank", *saved, "-e", "1,10", "--catalog", str(LAB.save(tmp_path / "prices.csv"))]
    table = CliRunner().invoke(app, command)
    assert "water" in table.stdout
    assert "By water: " in table.stderr
    assert set(fields) <= set(CliRunner().invoke(app, [*command, "--format", "csv"]).stdout.split("\n")[0].split(","))


def test_objectives_become_weights_that_sum_to_one() -> None:
    assert dict(read_objective("time")) == {"cost": 0.0, "time": 1.0}
    assert dict(read_objective({"cost": 3, "time": 1})) == {"cost": 0.75, "time": 0.25}
    assert dict(read_objective({"time": 2})) == {"cost": 0.0, "time": 1.0}


def test_a_score_sums_weighted_ratios_to_the_best() -> None:
    assert (rank(objective="cost").best.instance_type, rank(objective="time").best.instance_type) == ("small", "big")
    mixed = rank(objective={"cost": 0.5, "time": 0.5})
    by_hand = {
        row.instance_type: 0.5 * row.cost_usd / min(r.cost_usd for r in mixed)
        + 0.5 * row.seconds / min(r.seconds for r in mixed)
        for row in mixed
    }
    assert {row.instance_type: row.score for row in mixed} == pytest.approx(by_hand)


def test_a_free_machine_is_the_reference_of_the_score() -> None:
    values = {"cost": np.array([0.0, 3.0]), "time": np.array([20.0, 10.0])}
    best = {"cost": np.array(0.0), "time": np.array(10.0)}
    assert score({"cost": 1.0, "time": 0.0}, values, best).tolist() == [1.0, math.inf]
    assert score({"cost": 0.25, "time": 0.75}, values, best).tolist() == [0.25 + 1.5, math.inf]


@pytest.mark.parametrize(
    ("seconds", "increment", "minimum", "billed"),
    [
        (1.0, 0, 0, 1.0), (59, 1, 60, 60), (60.5, 1, 60, 61), (61, 60, 0, 120), (61.5, 0, 60, 61.5), (9, 0, 60, 60),
        (10.2, 0.5, 0, 10.5), (3601, 3600, 60, 7200),
    ],
)  # fmt: skip
def test_billing_rounds_up_to_the_increment_and_the_minimum(
    seconds: float, increment: float, minimum: float, billed: float
) -> None:
    found = billed_seconds(np.array([seconds]), increment=np.array([increment]), minimum=np.array([minimum]))
    assert found.tolist() == [billed]


def test_provider_billing_changes_the_cost_and_not_the_time() -> None:
    short = [probe("g4dn.xlarge", 0.001, region=None, provider=None)]
    catalog = vs.Catalog.embedded("2026-08-22")
    exact, billed = (vs.rank(short, epochs=1, catalog=catalog.where(billing=how)).best for how in ("exact", "provider"))
    assert exact.seconds == billed.seconds < 60
    assert billed.cost_usd == pytest.approx(60 / 3600 * billed.usd_per_hour)


@pytest.mark.parametrize(("limit", "kept", "broken"), [("deadline_hours", 1.0, 0.999), ("budget_usd", 2.0, 1.999)])
def test_a_limit_may_be_reached_and_not_passed(limit: str, kept: float, broken: float) -> None:
    assert rank_epochs(HOUR, TWO_DOLLARS, **{limit: kept}).best.seconds == pytest.approx(3600)
    assert not rank_epochs(HOUR, TWO_DOLLARS, **{limit: broken})


def test_the_reason_names_the_limit_and_of_two_the_deadline() -> None:
    both = rank_epochs(HOUR, TWO_DOLLARS, deadline_hours=0.5, budget_usd=0.5)
    (excluded,) = both.excluded
    assert (excluded.reason_code, excluded.epochs) == ("over_deadline", 10)
    assert all(part in excluded.reason for part in ("10 epochs", "1 h", "30 min"))
    assert count_reasons(both) == {"over_deadline": 1}
    one = rank_epochs([make_epoch_profile("a", 3600.0)], TWO_DOLLARS, epochs=1, budget_usd=0.5)
    assert all(part in one.excluded[0].reason for part in ("1 epoch ", "$2.00", "$0.50"))


def test_a_limit_excludes_at_each_epoch_count() -> None:
    ranking = rank(epochs=[10, 100], deadline_hours=0.2)
    assert [(e.reason_code, e.epochs) for e in ranking.excluded] == [("over_deadline", 100)]
    all_over = rank(epochs=[10, 100], deadline_hours=0.001)
    assert [e.epochs for e in all_over.excluded] == [100, 100, 10, 10]
    assert [e.epochs for e in all_over.deciding_excluded] == [100, 100]


@pytest.mark.parametrize(
    ("limit", "codes"),
    [
        ({"deadline_hours": 3721 / 3600}, set()),
        ({"deadline_hours": 3719 / 3600}, {"may-miss-deadline"}),
        ({"budget_usd": 3721 / 1800}, set()),
        ({"budget_usd": 3719 / 1800}, {"may-exceed-budget"}),
    ],
)
def test_a_limit_within_the_interval_is_a_warning(limit: dict[str, float], codes: set[str]) -> None:
    moved = {"data_gb": 10, "download_seconds_per_mb": 0.01}  # 100 s, with a half-width of 20 s
    row = rank_epochs(HOUR, TWO_DOLLARS, transfer=moved, **limit).best
    assert {f.code for f in row.findings} & {"may-miss-deadline", "may-exceed-budget"} == codes


def test_numbers_of_numpy_are_numbers() -> None:
    both = [probe("small", batch_size=64), probe("small", batch_size=128)]
    ranking = rank(
        both, epochs=np.array([10, 5]), batch_size=np.array([64, 128]),
        deadline_hours=np.float32(9), budget_usd=np.int64(9),
    )  # fmt: skip
    assert (ranking.best.epochs, {row.batch_size for row in ranking}) == (5, {64, 128})
    assert json.loads(ranking.to_json())["settings"]["epochs"] == [10, 5]
    assert rank(both, epochs=np.int64(7), batch_size=np.int64(64)).best.epochs == 7
    assert ranking.rerank(epochs=np.int32(3)).best.epochs == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", None), ("epochs", [None]), ("epochs", 10**400), ("epochs", {5, 10}), ("epochs", "5"),
        ("epochs", 0), ("epochs", 2.5), ("epochs", [5, True]), ("epochs", []),
        ("batch_size", 64.5), ("batch_size", []), ("batch_size", "64"), ("batch_size", 0), ("batch_size", [True]),
        ("objective", None), ("objective", 5), ("objective", ["cost"]), ("objective", "price"), ("objective", {}),
        ("objective", {"cost": "much"}), ("objective", {"cost": None}), ("objective", {"cost": math.nan}),
        ("objective", {"cost": math.inf}), ("objective", {"cost": -1, "time": 2}),
        ("objective", {"cost": 0, "time": 0}), ("objective", {"carbon": 1}),
        ("deadline_hours", True), ("deadline_hours", "1"), ("deadline_hours", 0), ("budget_usd", math.nan),
        ("budget_usd", 0), ("market", 5), ("market", "ondemand"), ("region", 5), ("region", []),
        ("provider", 5), ("gpu", []), ("chance", 1.0), ("scale", 4), ("workload", 4),
        ("confidence", 0.499), ("confidence", 0.9991), ("interruptions", {"rate": 1}),
        ("catalog", "prices.csv"), ("profiles", None), ("profiles", Path("profiles")), ("profiles", "profiles/"),
    ],
)  # fmt: skip
def test_an_invalid_argument_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=f"(?i){name}"):
        vs.rank(**({"profiles": BOTH, "epochs": 10, "catalog": LAB} | {name: value}))


def test_the_last_epoch_count_decides() -> None:
    ranking = rank(epochs=[1, 1000, 1], objective="cost")
    assert (ranking.best.epochs, ranking.rows[0], len(ranking)) == (1000, ranking.best, 4)
    assert rank(epochs=[1000, 1]).best.epochs == 1


@pytest.mark.parametrize("confidence", [0.5, 0.999])
def test_the_bounds_of_the_confidence_are_allowed(confidence: float) -> None:
    assert rank(confidence=confidence).settings.confidence == confidence


def test_rerank_gives_what_rank_gives() -> None:
    options: dict[str, Any] = {
        "epochs": [3, 30], "objective": "time", "market": None, "deadline_hours": 0.1,
        "interruptions": {"per_hour": 1, "checkpoint_minutes": 5},
    }  # fmt: skip
    assert json.loads(rank().rerank(**options).to_json()) == json.loads(rank(**options).to_json())
    with pytest.raises(ArgumentError, match="method"):
        rank().rerank(method="malta-epoch")


USUAL = Interruptions(per_hour=0.5, checkpoint_minutes=30, restart_minutes=9)


def stretch(interruptions: Interruptions, *work: float, confidence: float = 0.9) -> Interval[Any]:
    value, low, high = work if len(work) == 3 else work * 3
    return interruptions.stretch(Interval(*(np.array([[x]]) for x in (value, low, high))), confidence=confidence)


@pytest.mark.parametrize(
    ("given", "factor"),
    [
        ({"per_hour": 0.5, "checkpoint_minutes": 30, "restart_minutes": 9}, 1 / (1 - 24 / 120)),
        ({"mean_uptime_hours": 2, "checkpoint_minutes": 30, "restart_minutes": 9}, 1 / (1 - 24 / 120)),
        ({"per_hour": 0.5, "checkpoint_minutes": 38}, 1 / (1 - 24 / 120)),  # a restart takes five minutes
        ({"per_hour": 0, "checkpoint_minutes": 30}, 1.0),
    ],
)
def test_the_expected_time_grows_by_the_lost_share(given: dict[str, float], factor: float) -> None:
    hour, spot = [make_epoch_profile("a", 360.0)], prices(("a", 2.0), market="spot")
    row = rank_epochs(hour, spot, market="spot", interruptions=given).best
    assert (row.seconds, row.cost_usd) == pytest.approx((3600 * factor, 2.0 * factor))
    (finding,) = (finding for finding in row.findings if finding.code == "spot-expected")
    assert ("less than 1.005 times" in finding.message) is (factor == 1.0)


def test_interruptions_lengthen_spot_runs_only() -> None:
    plain = rank(market="all")
    spot = rank(market="all", interruptions={"per_hour": 0.5, "checkpoint_minutes": 20, "restart_minutes": 5})
    for before, after in zip(sorted(plain, key=str), sorted(spot, key=str), strict=True):
        assert (before.instance_type, before.market) == (after.instance_type, after.market)
        if after.market == "spot":
            assert after.seconds == pytest.approx(before.seconds / (1 - 0.5 * 15 / 60))
            assert after.terms["interruptions"] == pytest.approx(after.seconds - before.seconds)
            assert [f.code for f in after.findings if f.code.startswith("spot")] == ["spot-expected"]
            assert [f.code for f in before.findings if f.code.startswith("spot")] == ["spot-uninterrupted"]
        else:
            assert (after.measures, after.terms) == (before.measures, before.terms)


def test_plain_numbers_for_json() -> None:
    assert USUAL.to_dict(confidence=0.9) == pytest.approx(
        {"interruptions_per_second": 1 / 7200, "lost_seconds": 1440, "factor": 1.25, "deviations": 1.6448536269514722,
         "loss_deviation_seconds": 1800 / math.sqrt(12)}
    )  # fmt: skip
    assert Interruptions(per_hour=0, checkpoint_minutes=30).uptime_seconds == math.inf


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("mean", [0.01, 0.3, 1.0, 2.9957, 10.0, 100.0, 5000.0])
def test_the_interval_spans_the_poisson_counts_of_the_confidence(mean: float, confidence: float) -> None:
    work = mean * USUAL.uptime_seconds / USUAL.factor
    found = stretch(USUAL, work, confidence=confidence)
    fewest, most = (max(0.0, poisson.ppf(share, mean)) for share in ((1 - confidence) / 2, (1 + confidence) / 2))
    deviation = USUAL.to_dict(confidence=confidence)["deviations"] * USUAL.loss_deviation_seconds
    low = work + max(0.0, fewest * USUAL.lost_seconds - deviation * math.sqrt(fewest))
    high = work + most * USUAL.lost_seconds + deviation * math.sqrt(most)
    expected = work * USUAL.factor
    assert [part[0, 0] for part in found] == pytest.approx([expected, min(low, expected), max(high, expected)])


def test_a_run_too_short_to_be_interrupted_keeps_its_interval() -> None:
    seldom = Interruptions(per_hour=0.05, checkpoint_minutes=30)
    found = stretch(seldom, 60.0, 50.0, 70.0)
    assert (found.low[0, 0], found.high[0, 0]) == (50.0, 70.0)
    assert 60.0 < found.value[0, 0] < 62.0
    assert [part[0, 0] for part in stretch(seldom, 0.0)] == [0.0, 0.0, 0.0]


def test_interrupted_times_match_a_simulation() -> None:
    spot = Interruptions(mean_uptime_hours=4, checkpoint_minutes=30, restart_minutes=10)
    work = 36 * 3600.0
    times = stretch(spot, work)
    random = np.random.default_rng(1)

    def run() -> float:
        done, clock, up = 0.0, 0.0, random.exponential(spot.uptime_seconds)
        while True:
            ready = 600.0 if clock else 0.0  # every start but the first begins with a restart
            if ready + (work - done) <= up:
                return clock + ready + work - done
            clock += up
            done += max(0.0, up - ready) // 1800.0 * 1800.0
            up = random.exponential(spot.uptime_seconds)

    totals = np.array([run() for _ in range(4000)])
    # The model is first order (it lets every interruption lose half an interval): a few percent of the truth.
    assert times.value[0, 0] == pytest.approx(totals.mean(), rel=0.05)
    assert 0.85 <= times.contains(totals).mean() <= 0.99


@pytest.mark.parametrize(
    "wrong",
    [
        {"checkpoint_minutes": -30},
        {"per_hour": 1, "mean_uptime_hours": 1},
        {"per_hour": -0.001},
        {"per_hour": [1, 2]},
        {"per_hour": True},
        {"mean_uptime_hours": 0},
        {"per_hour": 0.1, "checkpoint_minutes": 0},
        {"per_hour": 0.1, "checkpoint_minutes": math.nan},
        {"per_hour": 0.1, "checkpoint_minutes": None},
        {"per_hour": 0.1, "restart_minutes": None},
        {"per_hour": 0.1, "restart_minutes": -0.001},
        {"mean_uptime_hours": 0.5, "checkpoint_minutes": 50, "restart_minutes": 5},  # no time is left for work
        {"rate": 1},
    ],
)
def test_impossible_interruptions_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=r"(?i)interruptions"):
        rank(interruptions=wrong)


def test_the_bounds_of_interruptions_are_allowed() -> None:
    Interruptions(per_hour=0, restart_minutes=0)
    Interruptions(mean_uptime_hours=0.5, checkpoint_minutes=50, restart_minutes=4.9)


def test_without_a_rate_each_spot_machine_has_that_of_its_type_and_region() -> None:
    # 75 % of these machines last for a month in Frankfurt, 97.5 % in Dublin; nothing is known of the region "here".
    offers = [
        {"provider": "aws", "instance_type": "g4ad.2xlarge", "region": region, "market": "spot", "usd_per_hour": 0.2}
        for region in ("eu-central-1", "eu-west-1", "here")
    ]
    catalog = vs.Catalog.embedded("2021-02-01").with_offers(offers)
    profile = make_profile("g4ad.2xlarge", 0.1, provider="aws", region=None)
    options: dict[str, Any] = {"epochs": 100_000, "catalog": catalog, "market": "spot", "region": "all"}
    alone, typical = (
        {row.region: row for row in vs.rank([profile], interruptions=spot, deadline_hours=1e5, **options)}
        for spot in (0.0, {"checkpoint_minutes": 240})
    )
    ratio = {region: typical[region].seconds / alone[region].seconds for region in alone}
    assert ratio["here"] == 1.0
    for region, share in (("eu-central-1", 0.25), ("eu-west-1", 0.025)):
        rate = -math.log1p(-share) / (365.25 * 24 / 12)
        assert ratio[region] == pytest.approx(1 / (1 - rate * 125 / 60))
        assert "spot-expected" in {finding.code for finding in typical[region].findings}
    assert "spot-uninterrupted" in {finding.code for finding in typical["here"].findings}
    assert vs.Interruptions().by_type
    assert not vs.Interruptions(per_hour=0).by_type
