"""Requirements: scores and their sources, must-haves, files; scoring rankings and comparisons."""

from __future__ import annotations

from pathlib import Path

import pytest

import vmselect as vs
from vmselect.errors import ArgumentError, ComparisonError

FILE = """
title: nightly training
needs:
  cost: 3
  time: 1
  sla_percent: {weight: 1, better: more}
  memory_gib: {at_least: 16, must: true}
  provider: {one_of: [AWS, azure], must: true}
facts:
  aws:
    sla_percent: {value: 99.99, source: the provider's terms, date: 2024-05-01}
"""


def ranking() -> vs.Ranking:
    def line(name: str, seconds: float) -> vs.Profile:
        return vs.Profile.from_times(
            instance_type=name, batch_size=64, model="net", init_seconds=1.0, first_epoch_seconds=seconds,
            later_epoch_seconds=[seconds] * 3, metrics={"accuracy": 0.9},
        )  # fmt: skip

    profiles = [line("g4dn.xlarge", 30.0), line("g5.xlarge", 12.0), line("c5.xlarge", 90.0)]
    return vs.rank(profiles, epochs=[1, 10], catalog=vs.Catalog.embedded("2026-08-22"), region="us-east-1")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "needs.yaml"
    path.write_text(FILE)
    return path


def test_a_ranking_is_scored_and_every_score_is_traceable(file: Path) -> None:
    scores = vs.stats.Requirements.load(file).score(ranking())
    assert scores.title == "nightly training"
    assert "c5.xlarge" in scores.excluded  # 8 GiB
    assert scores.best in ("g4dn.xlarge", "g5.xlarge")
    parts = scores.parts[scores.parts["candidate"] == scores.best].set_index("need")
    assert parts["points"].sum() == pytest.approx(scores.totals[scores.best])
    sla = parts.loc["sla_percent", ["value", "source", "date"]]
    assert sla.tolist() == [99.99, "the provider's terms", "2024-05-01"]
    row = next(r for r in ranking().rows if r.instance_type == scores.best and r.epochs == 10)
    assert parts.loc["cost", "value"] == pytest.approx(row.cost_usd)
    assert parts.loc["cost", "date"] == row.price_date
    assert parts.loc["cost", "low"] <= parts.loc["cost", "value"] <= parts.loc["cost", "high"]


def test_grades_are_shares_of_the_best() -> None:
    scores = vs.stats.Requirements({"latency": 1, "throughput": 1}).score(
        {"A": {"latency": 2.0, "throughput": 50}, "B": {"latency": 1.0, "throughput": 100}}
    )
    assert scores.totals == {"B": 100, "A": 50}
    assert scores.side_by_side.to_dict("records") == [
        {"need": "latency", "A": 2.0, "B": 1.0, "best": "B"},
        {"need": "throughput", "A": 50, "B": 100, "best": "B"},
    ]


def test_conditions_are_met_or_missed() -> None:
    needs = vs.stats.Requirements({"uptime": {"at_least": 99.9}, "region": {"one_of": ["EU"]}, "gpu": 2})
    scores = needs.score(
        {"A": {"uptime": 99.95, "region": "eu", "gpu": True}, "B": {"uptime": 99.0, "region": "us", "gpu": False}}
    )
    assert scores.totals == {"A": 100, "B": 0}


def test_no_candidate_meets_the_must_haves() -> None:
    scores = vs.stats.Requirements({"memory": {"at_least": 64, "must": True}, "cost": 1}).score({"A": {"cost": 1.0}})
    assert scores.best is None
    assert "64" in scores.excluded["A"]
    assert scores._repr_html_()


def test_comparisons_can_be_scored() -> None:
    latency = vs.compare({"A": [1.0, 1.1, 0.9], "B": [2.0, 2.1, 1.9]}, metric="latency")
    rate = vs.compare({"A": [5.0, 5.0], "B": [10.0, 10.0]}, metric="throughput")
    scores = vs.stats.Requirements({"latency": 3, "throughput": 1}).score([latency, rate])
    assert scores.best == "A"
    assert all("3 runs" in source for source in scores.parts["source"].tolist()[:2])


def test_measured_metrics_beside_a_ranking() -> None:
    ranked = ranking()
    records = [vs.Profile.from_times(instance_type=n, batch_size=64, iteration_seconds=[s], model="net")
               for n, s in (("g4dn.xlarge", 0.1), ("g5.xlarge", 0.05))]  # fmt: skip
    scores = vs.stats.Requirements({"throughput": 1}).score(ranked, records=records)
    assert scores.best == "g5.xlarge"
    assert scores.totals["c5.xlarge"] == 0  # not measured


@pytest.mark.parametrize(
    "needs",
    [
        {}, [], "cost", None, {"cost": "much"}, {"cost": -1}, {"cost": {"must": True}}, {"cost": {"weight": 1, "x": 2}},
        {"cost": {"better": "cheap"}}, {"cost": {"one_of": []}}, [{"weight": 1}], [{"name": "a"}, {"name": "a"}],
        {"": 1}, {"a": {"at_least": "x"}}, {"a": {"must": "perhaps", "at_least": 1}},
    ],
)  # fmt: skip
def test_wrong_needs_are_argument_errors(needs: object) -> None:
    with pytest.raises(ArgumentError):
        vs.stats.Requirements(needs)


@pytest.mark.parametrize("scored", [None, 3, "x", [], [1], {"A": 3}, {"A": {"cost": [1]}}, {"A": {"cost": {"v": 1}}}])
def test_what_cannot_be_scored_is_an_error(scored: object) -> None:
    with pytest.raises(vs.errors.VmselectError):
        vs.stats.Requirements({"cost": 1}).score(scored)


def test_a_need_without_a_fact_is_an_error() -> None:
    with pytest.raises(ComparisonError, match="beauty"):
        vs.stats.Requirements({"beauty": 1}).score({"A": {"cost": 1}})


@pytest.mark.parametrize(
    "text",
    ["", "- a\n- b", "needs: {cost: much}", "needs: {a: 1}\nwants: 2", "a: [", "needs: 3",
     "!!python/object:os.system x", None],
)  # fmt: skip
def test_an_unusable_file_is_an_error_with_its_name(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "needs.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ComparisonError, match=r"needs\.yaml"):
        vs.stats.Requirements.load(path)


@pytest.mark.parametrize("name", ["uptime", "sla_percent", "service-level agreement", "availability"])
def test_an_uptime_is_graded_by_its_downtime(name: str) -> None:
    needs = vs.stats.Requirements({name: {"better": "more"}})
    scores = needs.score({"A": {name: 99.99}, "B": {name: 99.95}})
    assert scores.totals == {"A": 100.0, "B": pytest.approx(20.0)}
    shares = needs.score({"A": {name: 0.9999}, "B": {name: 0.9995}})
    assert shares.totals["B"] == pytest.approx(20.0)
    never_down = needs.score({"A": {name: 100.0}, "B": {name: 99.95}})
    assert never_down.totals == {"A": 100.0, "B": 0.0}


def test_other_measures_of_which_more_is_better_are_graded_by_their_ratio() -> None:
    scores = vs.stats.Requirements({"throughput": 1}).score({"A": {"throughput": 100}, "B": {"throughput": 50}})
    assert scores.totals["B"] == 50.0


@pytest.mark.parametrize("name", ["uptime", "sla_percent", "service-level agreement", "availability"])
def test_more_of_an_uptime_is_better_without_saying_so(name: str) -> None:
    scores = vs.stats.Requirements({name: 1}).score({"A": {name: 99.99}, "B": {name: 99.95}})
    assert scores.totals == {"A": 100.0, "B": pytest.approx(20.0)}


@pytest.mark.parametrize(
    ("needs", "here", "there"),
    [
        ({"beauty": 1}, 3, 4),  # is less or more better?
        ({"sla": 1}, "99.99 %", 99.95),
        ({"sla": 1}, 99.99, 0.9995),  # a percentage and a share
        ({"cost": 1}, 3, "3 USD"),
        ({"gpu_model": 1}, "T4", "L4"),
    ],
)
def test_facts_that_cannot_be_graded_are_an_error_and_not_zero(
    needs: dict[str, int], here: object, there: object
) -> None:
    (name,) = needs
    with pytest.raises(ComparisonError, match=name):
        vs.stats.Requirements(needs).score({"A": {name: here}, "B": {name: there}})
    scores = vs.stats.Requirements({name: 0, "managed": 1}).score({"A": {name: here, "managed": True}})
    assert scores.totals == {"A": 100.0}  # without a weight it is only shown


def test_a_text_is_no_number_that_misses_a_bound() -> None:
    needs = vs.stats.Requirements({"memory": {"at_least": 16}})
    with pytest.raises(ComparisonError, match="64 GiB"):
        needs.score({"A": {"memory": "64 GiB"}, "B": {"memory": 16}})


def test_an_uptime_of_0_hides_no_share_among_percentages() -> None:
    with pytest.raises(ComparisonError, match="percentage"):
        vs.stats.Requirements({"sla": 1}).score({"A": {"sla": 0}, "B": {"sla": 0.9995}, "C": {"sla": 99.99}})


def test_an_unknown_fact_has_the_grade_0() -> None:
    scores = vs.stats.Requirements({"sla": 1}).score({"A": {"sla": 99.99}, "B": {"sla": None}})
    assert scores.totals == {"A": 100.0, "B": 0.0}
