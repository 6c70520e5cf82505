"""Rankings with more GPUs and nodes than were probed."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect.diagnosis import Cause
from vmselect.errors import ArgumentError, RankingError
from vmselect.ranking.next_probe import probe_seconds, rank_probes
from vmselect.ranking.probability import ErrorModel
from vmselect.ranking.views import describe_scaling
from vmselect.report.ranking_charts import gpus_points

CATALOG = vs.Catalog.embedded("2026-08-22")


def profile(instance_type="g4dn.xlarge", seconds=0.2, *, size=64, gpus=1, nodes=1, **times) -> vs.Profile:
    environment = {"replicas": gpus * nodes, "framework_gpus": gpus, "workers": nodes}
    return make_profile(
        instance_type, seconds, batch_size=size, steps_per_epoch=64_000 // size, outcome="stopped",
        environment=environment, **({"factors": {"nodes": nodes}} if nodes > 1 else {}), **times,
    )  # fmt: skip


def two_gpus(seconds=0.22, *, size=128, **times) -> vs.Profile:
    return profile("g4dn.12xlarge", seconds, size=size, gpus=2, **times)


def rank(profiles, **options):
    scale = {name: options.pop(name) for name in ("gpus", "nodes", "constant_batch") if name in options}
    return vs.rank(profiles, **({"epochs": 20, "catalog": CATALOG, "scale": scale or None} | options))


def predicted(ranking) -> dict:
    return {(row.instance_type, row.batch_size): row for row in ranking if row.basis == "predicted"}


def codes(row) -> set[str]:
    return {finding.code for finding in row.findings}


def test_machines_with_more_of_the_probed_gpus_are_added() -> None:
    ranking = rank([profile(), two_gpus()], gpus=[1, 2, 4, 8])
    rows = predicted(ranking)
    four, eight = rows["g4dn.12xlarge", 256], rows["g4dn.metal", 512]
    assert {row.gpu_model for row in rows.values()} == {"T4"}
    assert {row.provider for row in rows.values()} == {"aws"}
    single = next(row for row in ranking if row.instance_type == "g4dn.xlarge")
    step = single.terms["steady_iterations"]
    assert four.terms["steady_iterations"] == pytest.approx(step * 1.15 / 4, rel=0.03)  # the ring form
    assert eight.terms["steady_iterations"] == pytest.approx(step * 1.175 / 8, rel=0.04)
    assert {"gpus-predicted", "epochs-held-constant", "never-probed"} <= codes(four)
    assert "one-gpu-predicted" not in codes(four)
    assert four.seconds_low < four.seconds < four.seconds_high


def test_a_probe_on_two_gpus_narrows_the_interval() -> None:
    widths = []
    for probes in ([profile()], [profile(), two_gpus()]):
        row = predicted(rank(probes, gpus=4))["g4dn.12xlarge", 256]
        widths.append(row.seconds_high / row.seconds_low)
    assert widths[1] < widths[0]


def test_records_of_other_models_on_several_gpus_are_used() -> None:
    history = [
        make
        for k in range(5)
        for make in (
            profile(seconds=0.1, model=f"m{k}"),
            two_gpus(0.11, model=f"m{k}"),
            profile("g4dn.metal", 0.4, size=512, gpus=8, model=f"m{k}"),
        )
    ]
    alone = predicted(rank([profile(), two_gpus()], gpus=8))["g4dn.metal", 512]
    helped = predicted(rank([profile(), two_gpus()], gpus=8, history=history))["g4dn.metal", 512]
    assert helped.seconds > 1.3 * alone.seconds


def test_a_constant_global_batch_size_uses_the_time_of_smaller_batches() -> None:
    sizes = [profile(size=64, seconds=0.2), profile(size=16, seconds=0.08)]
    ranking = rank([*sizes, two_gpus(0.21, size=128)], gpus=4, constant_batch="global", batch_size=64)
    row = predicted(ranking)["g4dn.12xlarge", 64]
    # Summing gradients takes 0.01 s more on two GPUs, and 1.5 times as much on four; a step has 16 examples per GPU.
    assert row.terms["steady_iterations"] == pytest.approx(20 * 1000 * (0.08 + 0.015), rel=0.03)
    assert "epochs-held-constant" not in codes(row)
    refused = rank([profile(size=64)], gpus=4, constant_batch="global")
    assert not predicted(refused)
    assert any("Probe at batch size 16" in exclusion.reason for exclusion in refused.excluded)


def test_epochs_come_from_a_study() -> None:
    study = vs.ConvergenceStudy.from_epochs({64: [10, 11], 256: [18, 19]}, metrics={64: 0.9, 256: 0.9})
    ranking = rank([profile(), two_gpus()], epochs=study, gpus=[4, 8], batch_size=64)
    four = predicted(ranking)["g4dn.12xlarge", 256]
    assert four.epochs == pytest.approx(18.5, abs=1)
    assert "epochs-held-constant" not in codes(four)
    short = vs.ConvergenceStudy.from_epochs({32: [9, 9], 64: [10, 11]}, metrics={32: 0.9, 64: 0.9})
    beyond = rank([profile()], epochs=short, gpus=8, batch_size=64)
    assert not predicted(beyond)
    assert ("epochs_unknown", "g4dn.metal, batch 512") in {
        (exclusion.reason_code, exclusion.candidate) for exclusion in beyond.excluded
    }


def test_unknown_territory_is_refused_with_the_probe_that_would_help() -> None:
    ranking = rank([profile()], gpus=[1, 16], nodes=[2, 8])
    exclusions = {exclusion.reason_code: exclusion for exclusion in ranking.excluded}
    assert {"too_many_gpus", "too_many_nodes", "no_two_node_probe"} <= exclusions.keys()
    assert all("probe" in exclusion.reason for exclusion in exclusions.values())
    assert "2 x g4dn.xlarge" in exclusions["no_two_node_probe"].reason
    cpu = rank([make_profile("c5.xlarge", 0.3)], gpus=4)
    assert [exclusion.reason_code for exclusion in cpu.excluded] == ["no_gpu_probed"]


def test_input_bound_work_is_refused(monkeypatch) -> None:
    waits = Cause("input-bound", {"input_wait_share": 0.5})
    monkeypatch.setattr("vmselect.prediction.machines.find_host_limit", lambda _: waits)
    ranking = rank([profile(), two_gpus()], gpus=4)
    assert not predicted(ranking)
    assert {exclusion.reason_code for exclusion in ranking.excluded} == {"input_bound"}


def test_three_nodes_follow_from_two_and_never_from_one() -> None:
    both = [profile(), profile(seconds=0.3, size=128, nodes=2)]
    ranking = rank(both, nodes=[2, 3])
    three = predicted(ranking)["g4dn.xlarge", 192]
    two = next(row for row in ranking if row.factors.get("nodes") == 2)
    assert three.terms["steady_iterations"] == pytest.approx(two.terms["steady_iterations"] * 2 / 3)
    assert three.usd_per_hour == pytest.approx(two.usd_per_hour * 3 / 2)
    assert {"nodes-predicted", "epochs-held-constant"} <= codes(three)
    assert not predicted(rank([profile()], nodes=[2, 3]))


def test_machines_that_were_never_probed_use_all_gpus_only_if_asked() -> None:
    usual = predicted(rank([profile()], machines=["g5.12xlarge"]))
    assert "one-gpu-predicted" in codes(usual["g5.12xlarge", 64])
    asked = predicted(rank([profile()], machines=["g5.12xlarge", "g5.xlarge"], gpus=[1, 4]))
    assert "gpus-predicted" in codes(asked["g5.12xlarge", 256])
    assert "gpus-predicted" not in codes(asked["g5.xlarge", 64])
    assert asked["g5.12xlarge", 256].seconds < usual["g5.12xlarge", 64].seconds


def test_efficiency_and_where_more_gpus_stop_paying_off() -> None:
    ranking = rank([profile(), two_gpus()], gpus=[1, 2, 4, 8])
    table = ranking.scaling.drop_duplicates("gpus").set_index("gpus")
    assert table.loc[1, "efficiency"] == pytest.approx(1.0)
    assert table.loc[4, "efficiency"] == pytest.approx(table.loc[4, "speed_up"] / 4)
    assert table.loc[8, "efficiency"] < table.loc[4, "efficiency"] < 1
    assert ranking.scaling_verdict.startswith("T4: ")
    points = gpus_points(ranking)
    assert sorted(set(points["gpus"])) == [1, 4, 8]
    assert len(points) == 9  # time, cost and efficiency
    assert len(ranking.chart("gpus").to_dict()["hconcat"]) == 3
    with pytest.raises(RankingError):
        rank([make_profile("c5.xlarge", 0.3)]).chart("gpus")
    slow = rank([profile(seconds=0.1), two_gpus(1.2)], gpus=[4, 8])
    fastest = slow.scaling.loc[slow.scaling["seconds"].idxmin()]
    assert fastest["gpus"] == 1
    assert rank([profile()]).scaling_verdict == ""


def test_the_number_of_gpus_is_in_the_text_the_json_and_the_notebook() -> None:
    ranking = rank([profile(), two_gpus()], gpus=[1, 2, 4, 8])
    payload = json.loads(ranking.to_json())
    scaling = payload["scaling"]
    assert scaling["verdict"] == ranking.scaling_verdict
    assert scaling["verdict"] in str(ranking)
    assert [row["gpus"] for row in scaling["rows"]] == list(ranking.scaling["gpus"])
    json.dumps(payload, allow_nan=False)
    by_type = {candidate["instance_type"]: candidate["gpus"] for candidate in payload["candidates"]}
    assert (by_type["g4dn.xlarge"], by_type["g4dn.metal"]) == (1, 8)
    assert by_type["g4dn.12xlarge"] in (0, 4)  # 0 for the probe on two of its four GPUs
    html = ranking._repr_html_()
    assert "Number of GPUs" in html
    assert "g4dn.metal" in html
    alone = rank([profile()])
    assert json.loads(alone.to_json())["scaling"]["verdict"] == ""
    assert "Number of GPUs" not in alone._repr_html_()


def test_where_more_gpus_stop_paying_off() -> None:
    table = rank([profile(), two_gpus()], gpus=[1, 2, 4, 8]).scaling
    for seconds, cost, parts in (
        (
            [8.0, 5.0, 9.0],
            [1.0, 2.0, 3.0],
            ("fastest on 4 GPUs (1.6 times", "make it slower.", "costs least on 1 GPU."),
        ),
        ([8.0, 5.0, 3.0], [3.0, 2.0, 1.0], ("fastest and costs least on 8 GPUs", "the largest number ranked")),
        ([3.0, 5.0, 8.0], [1.0, 2.0, 3.0], ("fastest and costs least on 1 GPU; more GPUs make it slower.",)),
    ):
        changed = table.drop_duplicates("gpus").assign(seconds=seconds, cost_usd=cost)
        changed["speed_up"] = seconds[0] / changed["seconds"]
        changed["efficiency"] = changed["speed_up"] / changed["gpus"]
        text = describe_scaling(changed)
        assert all(part in text for part in parts)
        many = pd.concat([changed.assign(gpu_model=name, rank=at) for at, name in enumerate("ABCDE")])
        assert describe_scaling(many).endswith("2 more GPU models were ranked with several numbers of GPUs.")
        unknown = changed[changed["gpus"] > 1].assign(speed_up=math.nan, efficiency=math.nan)
        assert "efficiency" not in describe_scaling(unknown)


def test_numbers_of_gpus_of_one_kind_share_its_errors() -> None:
    """A machine with four GPUs of a kind that was never probed informs about eight of them, and about one."""
    names = ["g5.xlarge", "g5.12xlarge", "g5.48xlarge", "g6.xlarge"]
    ranking = rank([profile()], machines=names, gpus=[1, 4, 8])
    estimates = ranking.candidates.machine_estimates
    place = {estimate.instance_type: at for at, estimate in enumerate(estimates)}
    correlation = ErrorModel.of(estimates, 0.9).correlation()
    single, four, eight, other = (place[name] for name in names)
    assert correlation[four, eight] > correlation[single, eight] > correlation[other, eight]
    assert correlation[four, eight] > 0.7
    assert np.diag(correlation) == pytest.approx(np.ones(len(estimates)))
    drawn = ErrorModel.of(estimates, 0.9).draw(np.array([four, eight]))
    assert np.corrcoef(drawn)[0, 1] > 0.7


def test_the_next_probe_may_be_of_several_gpus() -> None:
    names = ["g5.12xlarge", "g5.48xlarge"]
    ranking = rank([profile()], machines=names, gpus=[4, 8], epochs=5000)
    probe = ranking.next_probe
    assert probe is not None
    row = next(row for row in ranking.deciding_rows if row.instance_type == probe.instance_type)
    assert row.basis == "predicted"
    assert (probe.gpus, probe.batch_size, probe.nodes) == (row.gpu_count, row.batch_size, 1)
    assert f"with {probe.gpus} GPUs at batch size {probe.batch_size}" in str(probe)
    assert probe.probe_usd == pytest.approx(row.usd_per_hour * probe_seconds(ranking) / 3600)
    assert json.loads(ranking.to_json())["next_probe"]["gpus"] == probe.gpus


def test_the_next_probe_may_be_of_several_nodes() -> None:
    both = [profile(seconds=0.5), profile(seconds=0.55, size=128, nodes=2)]
    ranking = rank(both, nodes=[3, 4], epochs=5000)
    probes = {ranking.row(option.candidate, 0).factors["nodes"]: option for option in rank_probes(ranking)}
    assert probes.keys() == {3, 4}
    assert all(option.gain >= 0 and option.cost_usd > 0 for option in probes.values())
    assert probes[4].cost_usd / probes[3].cost_usd == pytest.approx(4 / 3)
    probe = ranking.next_probe
    assert probe is not None
    assert (probe.nodes, probe.gpus) in {(3, 3), (4, 4)}
    assert str(probe).startswith(f"Probe {probe.nodes} x g4dn.xlarge with {probe.gpus} GPUs")


def test_every_refusal_of_several_gpus_names_the_probe_that_would_help() -> None:
    """The named probe, once made, removes the refusal."""
    refused = rank([profile("g4dn.12xlarge", 0.3, size=256, gpus=4)], gpus=8)
    assert {exclusion.reason_code for exclusion in refused.excluded} == {"several_gpus"} or not predicted(refused)
    alone = rank([profile()], nodes=[3])
    (reason,) = (exclusion.reason for exclusion in alone.excluded if exclusion.reason_code == "no_two_node_probe")
    assert "probe 2 x g4dn.xlarge" in reason
    helped = rank([profile(), profile(seconds=0.3, size=128, nodes=2)], nodes=[3])
    assert not [exclusion for exclusion in helped.excluded if exclusion.reason_code == "no_two_node_probe"]
    assert predicted(helped)
    assert [finding.code for finding in (*alone.findings, *helped.findings)].count("nodes-not-ranked") == 1


def test_arguments() -> None:
    for options in ({"gpus": 0}, {"gpus": []}, {"nodes": -1}, {"gpus": 2, "constant_batch": "x"}):
        with pytest.raises(ArgumentError):
            rank([profile()], **options)
    assert not predicted(rank([profile()], constant_batch="global"))
    with pytest.raises(RankingError):
        rank([profile(), two_gpus(size=64)], gpus=4)  # 64 and 32 examples per GPU


def test_the_command_line_adds_gpus(tmp_path) -> None:
    from typer.testing import CliRunner

    from vmselect.cli import app

    for number, record in enumerate((profile(), two_gpus())):
        record.save(tmp_path / f"{number}.json")
    options = ["--epochs", "20", "--date", "2026-08-22", "--gpus", "4,8", "--constant-batch", "per_gpu"]
    result = CliRunner().invoke(app, ["rank", str(tmp_path), *options, "--format", "json"])
    assert result.exit_code == 0
    rows = json.loads(result.stdout)["rows"]
    assert {(row["instance_type"], row["basis"]) for row in rows} >= {("g4dn.metal", "predicted")}
    assert "T4: " in result.stderr
