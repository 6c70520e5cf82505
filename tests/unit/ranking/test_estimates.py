"""Machine estimates: merged repetitions, nodes, batch sizes that were not probed, and pairs with a study's epochs."""

from __future__ import annotations

import json
from typing import Any

import pytest

import vmselect as vs
from tests.support.priced import prices
from tests.support.profiles import make_epoch_profile, make_gpu_profile, make_profile
from tests.support.rankings import probe, rank, rank_epochs
from vmselect.errors import ArgumentError, RankingError
from vmselect.prediction.hardware import TIGHT_MEMORY, TOO_LITTLE_MEMORY, UNKNOWN_MEMORY
from vmselect.records import Steps

CATALOG = vs.Catalog.embedded("2026-08-22")
TWO_DOLLARS = prices(("a", 2.0))
EXAMPLES = 40_960
STUDY = vs.ConvergenceStudy.from_epochs(
    {128: [10, 11], 256: [13, 12], 512: [20, 18]}, metrics={128: 0.98, 256: 0.97, 512: 0.93}
)


def test_repetitions_are_merged_into_one_row() -> None:
    ranking = rank([probe("small", 0.09), probe("small", 0.11), probe("big", 0.05)])
    small = next(row for row in ranking if row.instance_type == "small")
    assert len(ranking) == 2
    assert small.terms["steady_iterations"] == pytest.approx(0.1 * 999)
    assert ranking.candidates.machine_estimates[1].repetitions == 2
    assert len(rank([probe("small"), probe("small", provider=None)])) == 1


@pytest.mark.parametrize("instance_type", ["small", "big"])
def test_a_time_with_a_zone_and_one_without_are_ranked_together(instance_type: str) -> None:
    """Repetitions of one machine, or two machines, in either order; as read from files."""
    texts = []
    for name, created in (("small", "2026-01-01T00:00:00Z"), (instance_type, "2026-01-02T00:00:00")):
        texts.append(json.dumps(json.loads(probe(name).model_dump_json()) | {"created": created}))
    aware, bare = map(vs.Profile.model_validate_json, texts)
    for profiles in ([aware, bare], [bare, aware]):
        assert {row.instance_type for row in rank(profiles).rows} == {"small", instance_type}


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (probe(None), "unknown_instance_type"),
        (probe("big", outcome="out_of_memory", detail="OOM when allocating"), "out_of_memory"),
        (probe("big", steps_per_epoch=None, examples=None), "no_estimate"),
    ],
)
def test_a_profile_without_an_estimate_is_excluded(broken: vs.Profile, code: str) -> None:
    (excluded,) = rank([probe("small"), broken]).excluded
    assert excluded.reason_code == code
    assert str(excluded).count("batch 64") == 1
    assert not excluded.reason.endswith(".")
    assert ("OOM when allocating" in excluded.reason) is (code == "out_of_memory")


def test_batch_sizes_are_measured_or_interpolated() -> None:
    pair = [probe("small", 0.1 * size / 64, batch_size=size, steps_per_epoch=6400 // size) for size in (64, 256)]
    (row,) = rank(pair, batch_size=128)
    assert (row.batch_size, row.basis) == (128, "interpolated")
    assert [row.batch_size for row in rank(pair, batch_size=64)] == [64]
    assert [e.reason_code for e in rank(pair, batch_size=64).excluded] == ["other_batch_size"]
    assert {row.batch_size for row in rank(pair, batch_size="all")} == {64, 256}
    assert {row.batch_size for row in rank(pair, batch_size=[64, 256])} == {64, 256}


def test_one_name_at_two_clouds_is_two_machines() -> None:
    catalog = prices(("a", 1.0), provider="one").with_offers(
        [{"provider": "two", "instance_type": "a", "region": "here", "market": "on_demand", "usd_per_hour": 1.0}]
    )
    profiles = [
        make_profile(
            "a", seconds * size / 32, provider=provider, batch_size=size, examples=6400, steps_per_epoch=None,
            init_seconds=None, first_iteration_seconds=seconds * size / 32,
        )
        for provider, seconds in (("one", 0.1), ("two", 1.0))
        for size in (32, 128)
    ]  # fmt: skip
    rows = {row.provider: row for row in rank(profiles, catalog=catalog, batch_size=64)}
    assert rows["two"].seconds == pytest.approx(10 * rows["one"].seconds)
    assert {row.basis for row in rows.values()} == {"interpolated"}


@pytest.mark.parametrize(
    ("workers", "shared", "factors", "nodes", "title"),
    [
        (1, None, {}, 1, "a, batch 64"),
        (3, None, {}, 3, "3 x a, batch 64"),
        (8, None, {"nodes": 1}, 1, "a, batch 64, workers 8"),
        (8, 8, {}, 1, "a, batch 64, workers 8"),
        (16, 8, {}, 2, "2 x a, batch 64, workers 16"),
        (12, 8, {}, 2, "2 x a, batch 64, workers 12"),
    ],
)
def test_nodes_follow_from_the_workers_and_multiply_the_price(
    workers: int, shared: int | None, factors: dict[str, int], nodes: int, title: str
) -> None:
    """As torchrun starts them: each uses one GPU, and all together those of the machine."""
    environment = {"workers": workers, "workers_per_machine": shared, "replicas": workers, "framework_gpus": 1}
    several = make_epoch_profile("a", 360.0, environment=environment, factors=factors, outcome="stopped")
    ranking = rank_epochs([several], prices(("a", 2.0), gpu_count=shared or 1, gpu_model="T4"))
    best = ranking.best
    assert ranking.candidates.machine_estimates[0].title == title
    assert (best.seconds, best.usd_per_hour, best.factors.get("nodes", 1)) == (3600, 2.0 * nodes, nodes)
    codes = {finding.code for finding in best.findings}
    assert "unused-gpus" not in codes
    assert ("several-machines" in codes) is (nodes > 1)


def test_single_iterations_are_recorded_where_there_are_enough_steps() -> None:
    short = make_profile("a", [1.0], first_iteration_seconds=3.0)
    first_only = make_profile(
        "a", [1.0], first_iteration_seconds=3.0, first_epoch_seconds=10.0, later_epoch_seconds=[10.0],
        timeline={"steps": Steps.of(short.timeline.steps.rows[:1])},
    )  # fmt: skip
    both = {"first_iteration": 3.0, "second_iteration": 1.0, "mean_2_10": 1.0}
    assert rank([short], catalog=TWO_DOLLARS).candidates.machine_estimates[0].iterations == both
    lone = rank_epochs([first_only], TWO_DOLLARS).candidates.machine_estimates[0]
    assert lone.iterations == {"first_iteration": 3.0}


# -- methodology 1: epochs from a study ------------------------------------------------------------------------------


def profile(name: str = "g4dn.xlarge", size: int = 256, per_example: float = 1e-3, **changes: Any) -> vs.Profile:
    step = 0.02 + per_example * size
    given = {"batch_size": size, "steps_per_epoch": EXAMPLES // size, "first_iteration_seconds": 2.0, "model": None}
    return make_profile(name, step, steps=12, **(given | changes))


def machines(*sizes: int) -> list[vs.Profile]:
    speeds = {"g4dn.xlarge": 1e-3, "g5.xlarge": 4e-4}
    return [profile(name, size, speed) for name, speed in speeds.items() for size in sizes]


def ranked_sizes(ranking: vs.Ranking) -> set[int | None]:
    return {row.batch_size for row in ranking}


def select(profiles: Any, study: vs.ConvergenceStudy = STUDY, **options: Any) -> vs.Ranking:
    required = options.pop("required", None)
    study = study if required is None else study.require(required)
    return vs.rank(profiles, epochs=study, **({"catalog": CATALOG} | options))


def test_every_pair_is_ranked_with_the_epochs_of_its_batch_size() -> None:
    selection = select(machines(128, 256, 512))
    assert len(selection) == 6
    assert {(row.batch_size, row.epochs) for row in selection} == {(128, 10.5), (256, 12.5), (512, 19)}
    for row in selection:
        assert sum(row.terms.values()) == pytest.approx(row.seconds)
        assert row.seconds_low < row.seconds < row.seconds_high
    costs = [row.cost_usd for row in selection]
    assert costs == sorted(costs)
    assert vs.rank(machines(128, 256, 512), epochs=STUDY, catalog=CATALOG).to_frame().equals(selection.to_frame())


def test_the_interval_holds_the_uncertainty_of_times_and_of_epochs() -> None:
    sure = vs.ConvergenceStudy.from_epochs({256: [13] * 30})
    unsure = vs.ConvergenceStudy.from_epochs({256: [6, 20]})
    narrow, wide = (select(profile(), study).best for study in (sure, unsure))
    assert narrow.seconds == wide.seconds
    assert wide.seconds_high - wide.seconds_low > narrow.seconds_high - narrow.seconds_low
    assert narrow.seconds_high > vs.rank(profile(), epochs=13, catalog=CATALOG).best.seconds_high


def test_a_size_without_a_probe_is_interpolated() -> None:
    selection = select(machines(128, 512))
    found = [row for row in selection if row.batch_size == 256]
    assert all("batch-size-interpolated" in {f.code for f in row.findings} for row in found)
    truth = {row.instance_type: row.seconds for row in select(machines(128, 256, 512)) if row.batch_size == 256}
    assert {row.instance_type: row.seconds for row in found} == pytest.approx(truth, rel=1e-3)


def test_a_size_without_a_study_is_interpolated() -> None:
    study = vs.ConvergenceStudy.from_epochs({128: 10, 512: 20})
    (row,) = select(machines(256)[:1], study, batch_size=256)
    assert 10 < row.epochs < 20


@pytest.mark.parametrize(("size", "known"), [(63, False), (64, True), (1024, True), (1025, False)])
def test_epochs_are_known_from_half_the_smallest_size_to_twice_the_largest(size: int, known: bool) -> None:
    if known:
        assert size in ranked_sizes(select(machines(64, 128, 512, 1024), batch_size=[256, size]))
        return
    with pytest.raises(vs.errors.MissingNamesError, match="study") as caught:
        select(machines(64, 128, 512, 1024), batch_size=[256, size])
    assert (caught.value.argument, caught.value.names) == ("batch_size", (size,))


def test_a_size_that_ran_out_of_memory_is_excluded_once_on_that_machine_alone() -> None:
    failed = profile("g4dn.xlarge", 256, outcome="out_of_memory")
    selection = select([profile("g4dn.xlarge", 128), failed, *machines(128, 256, 512)[3:]])
    assert {row.batch_size for row in selection if row.instance_type == "g5.xlarge"} == {128, 256, 512}
    assert [(e.candidate, e.reason_code) for e in selection.excluded] == [
        ("g4dn.xlarge, batch 256", "out_of_memory"),
        ("g4dn.xlarge, batch 512", "no_estimate"),
    ]


@pytest.mark.parametrize(
    ("demand", "sizes"),
    [(0.97, (128, 256)), (0.9701, (128,)), (0.93, (128, 256, 512)), ({"val_accuracy": 0.965}, (128, 256))],
)
def test_the_required_metric_excludes_batch_sizes(demand: Any, sizes: tuple[int, ...]) -> None:
    selection = select(machines(128, 256, 512), required=demand)
    assert ranked_sizes(selection) == set(sizes)
    assert {e.reason_code for e in selection.excluded} <= {"below_required_metric"}
    assert set(selection.to_frame()["metric"]) == {STUDY.metric(size) for size in sizes}


def test_a_minimum_that_nothing_reaches_leaves_nothing_feasible() -> None:
    selection = select(machines(128, 256), required=0.999)
    assert not selection
    with pytest.raises(RankingError, match="required metric"):
        _ = selection.best


def test_metrics_that_should_fall_are_bounded_from_above() -> None:
    monitored = vs.ConvergenceStudy.from_epochs(
        {128: 5, 256: 5}, metrics={128: 0.1, 256: 0.3}, monitor="val_loss", mode="min"
    )
    assert ranked_sizes(select(machines(128, 256), monitored, required=0.2)) == {128}
    metrics = ({"val_accuracy": 0.9, "val_mae": run.batch_size / 1000} for run in STUDY.runs)
    other = vs.ConvergenceStudy.of(
        [run.model_copy(update={"metrics": found}) for run, found in zip(STUDY.runs, metrics, strict=True)]
    )
    assert ranked_sizes(select(machines(128, 256, 512), other, required={"val_mae": 0.2})) == {128}


def test_the_payload_holds_the_study_and_rerank_keeps_it() -> None:
    selection = select(machines(128, 256), required=0.9)
    plain = json.loads(selection.to_json())
    assert [row["batch_size"] for row in plain["study"]["sizes"]] == [128, 256, 512]
    assert (plain["study"]["monitor"], plain["study"]["required"]) == ("val_accuracy", {"val_accuracy": 0.9})
    assert plain["machines"][0]["epochs"][0] == 10.5
    again = selection.rerank(objective="time")
    assert again.study == selection.study
    assert again.best.seconds <= selection.best.seconds
    with pytest.raises(ArgumentError, match="study"):
        selection.rerank(epochs=5)
    assert str(STUDY) in str(selection)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"required": {"val_f1": 0.5}}, ArgumentError, "val_f1"),
        ({"required": "high"}, ArgumentError, "val_accuracy"),
        ({"study": vs.ConvergenceStudy.from_epochs({256: 13}, model="other")}, RankingError, "other"),
        ({"study": vs.ConvergenceStudy.from_epochs({8192: 13})}, RankingError, "8192"),
        ({"batch_size": 5000}, RankingError, "5000"),
        ({"profiles": profile(outcome="out_of_memory")}, RankingError, "memory"),
        ({"batch_size": 0}, ArgumentError, "batch_size"),
        ({"profiles": []}, RankingError, "profiles"),
    ],
)
def test_an_invalid_selection_is_refused(change: dict[str, Any], error: type[Exception], match: str) -> None:
    given: dict[str, Any] = {"profiles": profile(model="mine"), "study": STUDY} | change
    with pytest.raises(error, match=match):
        select(given.pop("profiles"), given.pop("study"), **given)


WITH_RETIRED = vs.Catalog.embedded("2026-08-22").where(retired=True)


def rank_five(*profiles: vs.Profile, **options: Any) -> vs.Ranking:
    return vs.rank(profiles, epochs=5, catalog=WITH_RETIRED, **options)


def excluded(ranking: vs.Ranking) -> dict[str, str]:
    return {one.candidate: one.reason_code for one in ranking.excluded}


def test_predicted_machines_with_too_little_memory_are_excluded() -> None:
    ranking = rank_five(make_gpu_profile(64, 13.0), machines=["g3s.xlarge", "g4dn.2xlarge", "g5.xlarge"])
    assert {row.instance_type for row in ranking} == {"g4dn.xlarge", "g4dn.2xlarge", "g5.xlarge"}
    assert excluded(ranking) == {"g3s.xlarge, batch 64": TOO_LITTLE_MEMORY}
    assert "batch size" in ranking.excluded[0].reason
    assert UNKNOWN_MEMORY not in ranking.findings


def test_a_tight_machine_is_flagged() -> None:
    # T4: 0.93 x 16 - 0.6 = 14.28 GiB for 13.8 GiB, up to 14.5 GiB
    a10g = {"gpus": ({"name": "NVIDIA A10G", "memory_bytes": int(22.5 * 2**30)},)}
    probe = make_gpu_profile(64, 13.8, instance_type="g5.xlarge", environment=a10g)
    ranking = rank_five(probe, machines=["g4dn.xlarge", "g6.xlarge"])
    codes = {row.instance_type: {finding.code for finding in row.findings} for row in ranking}
    assert TIGHT_MEMORY in codes["g4dn.xlarge"]
    assert TIGHT_MEMORY not in codes["g5.xlarge"] | codes["g6.xlarge"]


def test_batch_sizes_that_were_not_probed() -> None:
    probes = (make_gpu_profile(64, 6.0), make_gpu_profile(128, 11.0))  # 256: 21 GiB
    ranking = rank_five(*probes, batch_size=[96, 256], machines=["g5.xlarge", "g6e.xlarge"])
    found = {(row.instance_type, row.batch_size): row.basis for row in ranking}
    assert found["g4dn.xlarge", 96] == "interpolated"
    assert ("g4dn.xlarge", 256) not in found
    assert excluded(ranking)["g4dn.xlarge, batch 256"] == TOO_LITTLE_MEMORY
    assert found["g6e.xlarge", 256] == "predicted", "its time follows from a machine that is too small itself"


def test_machines_like_one_that_ran_out_of_memory() -> None:
    failed = make_gpu_profile(64, None, instance_type="g4dn.2xlarge", outcome="out_of_memory")
    other = make_gpu_profile(64, None, instance_type="g5.xlarge", environment={"gpus": ()})
    ranking = rank_five(other, failed, machines=["g4dn.xlarge", "g5.2xlarge"])
    assert {row.instance_type for row in ranking} == {"g5.xlarge", "g5.2xlarge"}
    assert excluded(ranking) == {"g4dn.2xlarge, batch 64": "out_of_memory", "g4dn.xlarge, batch 64": TOO_LITTLE_MEMORY}
    assert UNKNOWN_MEMORY in ranking.findings


def test_unknown_memory_excludes_nothing() -> None:
    ranking = rank_five(make_gpu_profile(64, None), machines=["g3s.xlarge", "g5.xlarge"])
    assert len({row.instance_type for row in ranking}) == 3
    assert UNKNOWN_MEMORY in ranking.findings
    assert UNKNOWN_MEMORY not in rank_five(make_gpu_profile(64, None)).findings


def test_each_gpu_of_several_gets_its_share() -> None:
    def probe(size: int, peak: float) -> vs.Profile:
        seen = {"replicas": 4, "framework_gpus": 4}
        return make_gpu_profile(size, peak, instance_type="g4dn.12xlarge", environment=seen)

    ranking = rank_five(probe(64, 2.0), probe(128, 3.0), batch_size=256)  # 64 examples per GPU: 5 GiB
    assert [row.basis for row in ranking] == ["extrapolated"]
    alone = rank_five(probe(64, 6.0), probe(128, 9.0), batch_size=256)
    assert excluded(alone)["g4dn.12xlarge, batch 256"] == TOO_LITTLE_MEMORY
