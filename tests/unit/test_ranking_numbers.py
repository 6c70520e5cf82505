"""Numbers and words of a ranking, exactly: what a choice gives up, thin batches, lost time, what choosing cost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import vmselect as vs
from tests.support.priced import prices
from vmselect.errors import ArgumentError
from vmselect.intervals import Interval
from vmselect.ranking import Interruptions, estimates
from vmselect.ranking.decision import pareto_front
from vmselect.ranking.measures import billed_seconds
from vmselect.ranking.rows import Lazy
from vmselect.ranking.selection_cost import MethodologyCost, SelectionCost
from vmselect.ranking.spot import two_sided_deviations
from vmselect.records import Environment, Gpu, Profile


def line(name: str, epoch: float, first: float | None = None, **more: Any) -> Profile:
    first = epoch if first is None else first
    usual = {"batch_size": 64, "init_seconds": 0.0, "first_epoch_seconds": first, "later_epoch_seconds": [epoch]}
    return Profile.from_times(instance_type=name, **(usual | more))


def rank(profiles: list[Profile], catalog: vs.Catalog, **options: Any) -> vs.Ranking:
    return vs.rank(profiles, **({"epochs": 10, "catalog": catalog, "method": "malta-epoch"} | options))


# Words


def unlike(quick: float, cheap: float) -> vs.Ranking:
    """Two machines whose times are tied, at these prices."""
    profiles = [
        Profile.from_times(
            instance_type=name, batch_size=64, steps_per_epoch=1000, init_seconds=0.0, first_iteration_seconds=seconds,
            iteration_seconds=[seconds] * 5,
        )
        for name, seconds in (("quick", 0.1), ("cheap", 0.101))
    ]  # fmt: skip
    return rank(profiles, prices(("quick", quick * 1.01), ("cheap", cheap)), method="robust", objective="time")


@pytest.mark.parametrize(
    ("quick", "cheap", "words"),
    [
        (2.0, 1.0, "its cost is 2 times that of the choice"),
        (999.4, 1.0, "its cost is 999 times that of the choice"),
        (1200.0, 1.0, "its cost is 1,200 times that of the choice"),
    ],
)
def test_what_a_choice_gives_up_in_words(quick: float, cheap: float, words: str) -> None:
    verdict = unlike(quick, cheap).verdict
    assert words in verdict
    assert "tied for the shortest time of 2 candidates. By the estimates alone quick" in verdict
    assert "has the shortest time, 16 min 40 s instead of 16 min 50 s, but its cost" in verdict


def test_a_thin_batch_in_words() -> None:
    gpus = (Gpu(name="Tesla T4"),) * 4
    seen = Environment(framework_gpus=4, replicas=4, gpus=gpus)
    profile = line("a", 360.0).model_copy(update={"environment": seen, "outcome": "stopped"})
    best = rank([profile], prices(("a", 1.0), gpu_count=4, gpu_model="T4")).best
    said = {finding.code: finding.message for finding in best.findings}
    assert said["thin-batch"] == "a, batch 64: a batch of 64 over 4 GPUs is 16 examples each."


def test_hardware_that_contradicts_its_price_in_words() -> None:
    def said(sold: float, model: str) -> list[str]:
        seen = Environment(framework_gpus=2, replicas=2, gpus=(Gpu(name="Tesla T4"), Gpu(name="Tesla V100")))
        profile = line("a", 360.0).model_copy(update={"environment": seen, "outcome": "stopped"})
        best = rank([profile], prices(("a", 1.0), gpu_count=sold, gpu_model=model)).best
        return [f.message for f in best.findings if f.code == "hardware-contradicts-price"]

    assert said(2, "T4") == ["a is priced with 2 x T4, and the probe found 2 x Tesla V100."]
    assert said(0, "") == ["a is priced with no GPU, and the probe found 2 x Tesla T4."]


def test_a_sequence_in_a_notebook_shows_a_hundred() -> None:
    assert Lazy(100, str)._repr_html_().count("<li>") == 100
    assert "The first" not in Lazy(100, str)._repr_html_()
    more = Lazy(1_101, str)._repr_html_()
    assert (more.count("<li>"), more.endswith("<p>The first 100 of 1,101.</p>")) == (100, True)


# What choosing cost


@pytest.mark.parametrize(
    ("times", "seen", "seconds"),
    [
        ({"iteration_seconds": [0.5] * 4, "first_iteration_seconds": 2.0, "validation_seconds": [3.0, 1.0]}, {}, 8.0),
        ({"first_epoch_seconds": 5.0, "later_epoch_seconds": [4.0], "init_seconds": 1.5}, {}, 10.5),
        ({"iteration_seconds": [0.5] * 4}, {"init_seconds": 1.0, "fit_to_first_batch_seconds": 0.25}, 3.25),
        ({"iteration_seconds": [0.5] * 4}, {"fit_seconds": 20.0}, 20.0),
        ({"iteration_seconds": [0.5] * 4, "init_seconds": 1.5}, {"fit_seconds": 20.0}, 21.5),
    ],
)
def test_how_long_a_machine_was_in_use_for_a_probe(times: Any, seen: Any, seconds: float) -> None:
    profile = Profile.from_times(batch_size=8, **times)
    profile = profile.model_copy(update={"timeline": profile.timeline.model_copy(update=seen)})
    assert estimates._probe_seconds(profile) == pytest.approx(seconds)


# Moving data


@pytest.mark.parametrize(
    ("recorded", "measured", "fits"),
    [("lab", "lab", True), ("other", "lab", False), (None, "lab", True), ("other", None, True), (None, None, True)],
)
def test_a_transfer_counts_for_machines_of_its_own_cloud(
    recorded: str | None, measured: str | None, fits: bool
) -> None:
    record = vs.TransferRecord.from_times(
        instance_type="a", url="s3://b", megabytes=10, download_seconds=[0.1], provider=recorded
    )
    moved = vs.Transfer(data_gb=10, records=[record])
    ranking = rank([line("a", 360.0, provider=measured)], prices(("a", 2.0)), transfer=moved)
    assert bool(ranking) is fits
    if fits:
        assert ranking.best.terms["data_in"] == pytest.approx(100.0)


@pytest.mark.parametrize("name", ["download_seconds_per_mb", "upload_seconds_per_mb", "usd_per_gb"])
def test_moving_may_take_and_cost_nothing(name: str) -> None:
    assert getattr(vs.Transfer(**{name: 0}), name) == 0.0
    with pytest.raises(ArgumentError, match=name):
        vs.Transfer(**{name: -0.001})


def test_a_price_that_is_given_goes_before_those_of_records() -> None:
    given = {"data_gb": 10, "download_seconds_per_mb": 0.01}
    for usd, paid in ((0.0, 0.0), (0.5, 5.0), (None, 0.0)):
        row = rank([line("a", 360.0)], prices(("a", 2.0)), transfer=vs.Transfer(**given, usd_per_gb=usd)).best
        assert row.cost_usd == pytest.approx(3700 / 1800 + paid)


# Interruptions


def test_interruptions_in_plain_numbers() -> None:
    told = Interruptions(per_hour=0.5, checkpoint_minutes=30, restart_minutes=9)
    plain = told.to_dict(confidence=0.9)
    assert plain == pytest.approx(
        {"interruptions_per_second": 1 / 7200, "lost_seconds": 1440, "factor": 1.25, "deviations": 1.6448536269514722,
         "loss_deviation_seconds": 1800 / math.sqrt(12)}
    )  # fmt: skip
    assert two_sided_deviations(0.95) == pytest.approx(1.959963984540054)
    assert Interruptions(per_hour=0, checkpoint_minutes=30).uptime_seconds == math.inf


def test_how_far_interruptions_may_stretch_a_run() -> None:
    told = Interruptions(per_hour=0.5, checkpoint_minutes=30, restart_minutes=9)
    work = np.array([[57_600.0]])  # ten interruptions on average
    found = told.stretch(Interval(work, work, work), confidence=0.9)
    fewest, most = 5, 15  # of a Poisson count with a mean of ten
    off = 1.6448536269514722 * 1800 / math.sqrt(12)
    assert found.value.tolist() == [[pytest.approx(72_000)]]
    assert found.low.tolist() == [[pytest.approx(57_600 + fewest * 1440 - off * math.sqrt(fewest))]]
    assert found.high.tolist() == [[pytest.approx(57_600 + most * 1440 + off * math.sqrt(most))]]


def test_a_run_that_is_hardly_ever_interrupted_stays_within_its_own_time() -> None:
    told = Interruptions(per_hour=0.001, checkpoint_minutes=30, restart_minutes=9)
    work = np.array([[0.0, 3600.0]])
    found = told.stretch(Interval(work, work, work), confidence=0.9)
    assert found.low.tolist() == work.tolist()
    assert found.high.tolist() == [pytest.approx([0.0, 3600 * told.factor])]


# Choosing


def test_what_choosing_cost_as_a_share() -> None:
    sums = {"probe_seconds": 1.0, "probe_usd": 2.0, "exhaustive_seconds": 1.0, "exhaustive_usd": 8.0}
    assert SelectionCost(**sums).fraction == 0.25
    assert MethodologyCost(**sums, study_seconds=1.0, study_usd=4.0).fraction == 0.75
    assert math.isnan(SelectionCost(**(sums | {"exhaustive_usd": 0.0})).fraction)


@pytest.mark.parametrize(
    ("seconds", "cost", "front"),
    [
        ([1.0, 1.0], [2.0, 2.0], [True, True]),
        ([1.0, 2.0], [2.0, 2.0], [True, False]),
        ([1.0, 1.0], [2.0, 3.0], [True, False]),
        ([3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [True, True, True]),
        ([1.0, 2.0, 2.0, 3.0], [3.0, 2.0, 2.0, 2.0], [True, True, True, False]),
        ([], [], []),
    ],
)
def test_points_that_no_other_beats(seconds: list[float], cost: list[float], front: list[bool]) -> None:
    assert pareto_front(np.array(seconds), np.array(cost)).tolist() == front


def test_half_as_much_again_is_not_yet_much() -> None:
    from vmselect.ranking.decision import _prefer

    assert _prefer([np.array([1.5, 1.0])]) == 0
    assert _prefer([np.array([1.51, 1.0])]) == 1
    assert _prefer([np.array([9.0, 1.0]), np.array([1.0, 9.0])]) == 0  # each is much worse in something


@pytest.mark.parametrize(("first", "changes"), [(100.0, 12), (1000.0, 102)])
def test_from_which_epoch_on_another_machine_wins(first: float, changes: int) -> None:
    """One starts at once and is slow, the other needs ``first`` seconds more and gains ten in every epoch."""
    ranking = rank([line("early", 20.0), line("late", 10.0, first + 20.0)], prices(("early", 1.0), ("late", 1.0)))
    (change,) = ranking.crossovers("time")
    assert change.epochs == changes  # an epoch earlier both take as long
    assert change.previous.startswith("early")
    assert change.winner.startswith("late")
    assert ranking.settled_from("time") == change.epochs
    before, after = (ranking.rerank(epochs=change.epochs + step, objective="time").best for step in (-1, 0))
    assert (before.instance_type, after.instance_type) == ("early", "late")
    assert ranking.crossovers("time", up_to=change.epochs - 1) == ()
    assert len(ranking.crossovers("time", up_to=change.epochs)) == 1


def test_ratios_to_a_baseline() -> None:
    ranking = rank([line("a", 100.0), line("b", 50.0)], prices(("a", 1.0), ("b", 4.0)))
    table = ranking.against("a")
    assert table.loc["b"].to_dict() == pytest.approx({"price_ratio": 4.0, "speed_up": 2.0, "cost_ratio": 2.0})
    assert ranking.relative("time")[10].to_dict() == {"b": 1.0, "a": 2.0}


@pytest.mark.parametrize(("confidence", "fits"), [(0.5, True), (0.499, False), (0.999, True), (0.9991, False)])
def test_how_sure_one_may_ask_to_be(confidence: float, fits: bool) -> None:
    if fits:
        assert rank([line("a", 1.0)], prices(("a", 1.0)), confidence=confidence).settings.confidence == confidence
    else:
        with pytest.raises(ArgumentError, match="confidence"):
            rank([line("a", 1.0)], prices(("a", 1.0)), confidence=confidence)


# Machine estimates


def test_what_a_probe_took_without_a_whole_fit_is_the_sum_of_its_parts() -> None:
    from vmselect.ranking.estimates import _probe_seconds

    steps = Profile.from_times(
        instance_type="a", batch_size=64, steps_per_epoch=100, init_seconds=7.0, first_iteration_seconds=3.0,
        iteration_seconds=[0.5] * 10,
    )  # fmt: skip
    bare = steps.timeline.model_copy(update={"fit_seconds": None, "fit_to_first_batch_seconds": 2.0})
    trained = bare.steps.total_seconds
    assert trained
    assert _probe_seconds(steps.model_copy(update={"timeline": bare})) == pytest.approx(7.0 + 2.0 + trained)
    fitted = bare.model_copy(update={"fit_seconds": 40.0})
    assert _probe_seconds(steps.model_copy(update={"timeline": fitted})) == pytest.approx(47.0)
    unsaid = fitted.model_copy(update={"init_seconds": None})
    assert _probe_seconds(steps.model_copy(update={"timeline": unsaid})) == pytest.approx(40.0)


def test_repetitions_count_once_each_in_what_all_runs_would_cost() -> None:
    twice = [line("a", 360.0, total_seconds=720.0), line("a", 360.0, total_seconds=720.0)]
    spent = rank(twice, prices(("a", 2.0))).selection_cost()
    assert (spent.exhaustive_seconds, spent.exhaustive_usd) == pytest.approx((7200.0, 4.0))
    assert spent.probe_usd == pytest.approx(spent.probe_seconds / 1800)


def test_why_a_machine_has_no_price_names_four_places_and_five_others() -> None:
    from vmselect.ranking.candidates import explain_no_price
    from vmselect.units import list_some

    places, sold = [f"p{n}" for n in range(7)], [f"s{n}" for n in range(8)]
    said = explain_no_price("a", places=places, sold_in=[*sold, *sold])
    expected = f"the catalog has no price of a in {list_some(places, 4)}, only in {list_some(sold, 5)}; run "
    assert said.startswith(expected)
    assert "--region p0`" in said
    assert explain_no_price("none", provider="lab").startswith("the catalog has no price of none from lab; add one")


def test_the_table_marks_ties_and_the_front() -> None:
    one = str(rank([line("a", 100.0)], prices(("a", 1.0)))).splitlines()
    assert one[3].endswith("1.00   pareto")
    both = str(rank([line("a", 100.0), line("b", 100.0)], prices(("a", 1.0), ("b", 1.0)))).splitlines()
    assert both[3].endswith("1.00   tie pareto")
    assert both[4].endswith("1.00   tie pareto")


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_the_count_that_is_not_exceeded(share: float) -> None:
    from scipy.stats import poisson

    from vmselect.ranking.spot import _poisson_quantile

    means = np.array([0.01, 0.5, 1.0, 2.5, 10.0, 99.0])
    assert _poisson_quantile(share, means).tolist() == poisson.ppf(share, means).tolist()
    assert _poisson_quantile(share, np.array([0.0])).tolist() == [0.0]


@pytest.mark.parametrize("weights", [{"cost": 0, "time": 0}, {"cost": -1, "time": 2}, {"cost": math.inf}, {}])
def test_weights_that_weigh_nothing_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(ArgumentError, match="give numbers of at least 0 that are not all 0"):
        rank([line("a", 1.0)], prices(("a", 1.0)), objective=weights)


def test_a_baseline_may_break_the_limits() -> None:
    ranking = rank([line("a", 360.0), line("b", 36.0)], prices(("a", 1.0), ("b", 1.0)), deadline_hours=0.5)
    table = ranking.against("a")
    assert table["speed_up"].to_dict() == pytest.approx({"b": 10.0, "a": 1.0})
    assert len(ranking.against("b")) == 1


def test_what_single_iterations_would_have_said() -> None:
    def steps(name: str, first: float, second: float, later: float) -> Profile:
        return Profile.from_times(
            instance_type=name, batch_size=64, steps_per_epoch=100, init_seconds=0.0, first_iteration_seconds=first,
            iteration_seconds=[second, *[later] * 12],
        )  # fmt: skip

    ranking = rank(
        [steps("a", 1.0, 0.2, 0.2), steps("b", 4.0, 0.2, 0.1)], prices(("a", 1.0), ("b", 3.0)), method="robust"
    )
    time, cost = ranking.strategies("time"), ranking.strategies("cost")
    assert time["first_iteration"].to_dict() == pytest.approx({"a": 1.0, "b": 4.0})
    assert time["mean_2_10"].to_dict() == pytest.approx({"a": 1.8, "b": 1.0})
    assert cost["first_iteration"].to_dict() == pytest.approx({"a": 1.0, "b": 12.0})


@pytest.mark.parametrize(
    ("increment", "minimum", "billed"), [(0, 0, 10.2), (0.5, 0, 10.5), (1, 0, 11.0), (1, 60, 60.0)]
)
def test_what_is_billed_of_ten_seconds_and_a_fifth(increment: float, minimum: float, billed: float) -> None:
    given = {"increment": np.array([float(increment)]), "minimum": np.array([float(minimum)])}
    assert billed_seconds(np.array([10.2]), **given) == pytest.approx([billed])
