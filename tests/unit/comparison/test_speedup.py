"""Speed-up and efficiency of several workers over one: known numbers, intervals, findings."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import vmselect as vs
from vmselect.cli import app
from vmselect.comparison.speedup import SAME_BATCH, SAME_SHARE
from vmselect.report.charts import labels
from vmselect.report.page import page_data
from vmselect.sweeps.run import SweepResult


def probed(
    nodes: int, step: float, *, batch: int = 96, steps: int = 100, noise: float = 0.0, seed: int = 0
) -> vs.Profile:
    chance = np.random.default_rng(seed)
    made = vs.Profile.from_times(
        instance_type="m", batch_size=batch, steps_per_epoch=steps, init_seconds=1.0, first_iteration_seconds=step,
        iteration_seconds=[step * (1 + noise * float(chance.standard_normal())) for _ in range(20)],
    )  # fmt: skip
    return made.model_copy(update={"factors": {"nodes": nodes}})


def test_speedup_efficiency_and_cost_are_those_of_the_totals() -> None:
    scaling = vs.stats.scaling([probed(1, 0.4), probed(2, 0.25), probed(4, 0.2)], epochs=50)
    rows = [(row.nodes, row.base, row.worker_batch_size) for row in scaling.rows]
    assert rows == [(2, SAME_BATCH, 48), (4, SAME_BATCH, 24)]
    times = {n: vs.estimate(probed(n, s), epochs=50).seconds for n, s in ((1, 0.4), (2, 0.25), (4, 0.2))}
    for row in scaling.rows:
        assert row.seconds == pytest.approx(times[row.nodes])
        assert row.speedup == pytest.approx(times[1] / times[row.nodes])
        assert row.efficiency == pytest.approx(row.speedup / row.nodes)
        assert row.cost_ratio == pytest.approx(row.nodes * times[row.nodes] / times[1])
        assert row.speedup_low < row.speedup < row.speedup_high
        assert row.cost_ratio_low < row.cost_ratio < row.cost_ratio_high
    assert scaling.table["nodes"].tolist() == [2, 4]
    assert json.loads(scaling.to_json())["rows"][0]["nodes"] == 2


def test_the_interval_of_a_ratio_is_narrower_than_its_corners_and_wider_than_either_side() -> None:
    single, double = (
        vs.estimate(probed(1, step, noise=0.05, seed=seed), epochs=50) for step, seed in ((0.4, 1), (0.25, 2))
    )
    (row,) = vs.stats.scaling([probed(1, 0.4, noise=0.05, seed=1), probed(2, 0.25, noise=0.05, seed=2)], epochs=50).rows
    assert single.low / double.high < row.speedup_low < min(single.low / double.seconds, single.seconds / double.high)
    assert max(single.high / double.seconds, single.seconds / double.low) < row.speedup_high < single.high / double.low


def test_repetitions_are_one_setup() -> None:
    records = [probed(nodes, step, noise=0.02, seed=seed) for nodes, step in ((1, 0.4), (2, 0.25)) for seed in range(3)]
    (row,) = vs.stats.scaling(records, epochs=50).rows
    assert row.runs == 3


def test_a_batch_that_grows_with_the_workers_is_compared_with_one_workers_share() -> None:
    scaling = vs.stats.scaling([probed(1, 0.2, batch=32, steps=300), probed(3, 0.25, batch=96, steps=100)], epochs=50)
    (row,) = scaling.rows
    assert (row.base, row.worker_batch_size) == (SAME_SHARE, 32)
    assert row.speedup == pytest.approx(2.4, rel=0.05)
    assert [finding.code for finding in scaling.findings] == ["batch-grows"]
    both = vs.stats.scaling([probed(1, 0.2, batch=32, steps=300), probed(1, 0.5), probed(3, 0.25)], epochs=50)
    assert [row.base for row in both.rows] == [SAME_BATCH, SAME_SHARE]


def test_setups_that_are_more_than_linear_or_have_no_single_worker_are_found() -> None:
    scaling = vs.stats.scaling([probed(1, 1.8), probed(3, 0.3), probed(2, 0.9, batch=64)], epochs=50)
    assert [finding.code for finding in scaling.findings] == ["more-than-linear", "no-single-worker"]
    different = [
        profile.model_copy(update={"setup": profile.setup.model_copy(update={"examples": examples})})
        for profile, examples in ((probed(1, 0.3), 9600), (probed(2, 0.3), 77))
    ]
    for records, model in (([probed(2, 0.3), probed(3, 0.3)], None), (different, None), ([probed(1, 0.3)], "x")):
        with pytest.raises(vs.errors.ComparisonError):
            vs.stats.scaling(records, epochs=50, model=model)


def test_infinite_bounds_are_null_in_json() -> None:
    scaling = vs.stats.scaling([probed(1, 0.4), probed(2, 0.25)], epochs=50)
    endless = replace(scaling, rows=(replace(scaling.rows[0], cost_ratio_high=math.inf),))
    assert json.loads(endless.to_json())["rows"][0]["cost_ratio_high"] is None


def test_a_sweep_the_command_line_and_the_page_agree(tmp_path: Path) -> None:
    records = [probed(1, 0.4), probed(2, 0.25)]
    for number, record in enumerate(records):
        record.save(tmp_path / f"{number}.json")
    result = SweepResult(tmp_path, list(records), (), (), (), 0.0, 0.0)
    (row,) = result.scaling(epochs=50).rows
    done = CliRunner().invoke(app, ["compare", str(tmp_path), "--scaling", "-e", "50", "--confidence", "0.9",
                                    "--format", "json"])  # fmt: skip
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"][0]["speedup_low"] == pytest.approx(row.speedup_low)
    table = CliRunner().invoke(app, ["compare", str(tmp_path), "--scaling", "-e", "50"], env={"COLUMNS": "200"})
    assert f"{row.efficiency:.0%}" in table.stdout
    without = CliRunner().invoke(app, ["compare", str(tmp_path), "--scaling"])
    assert without.exit_code != 0
    prices = tmp_path / "prices.csv"
    prices.write_text("provider,instance_type,region,market,usd_per_hour\ndesk,m,here,on_demand,6\n")
    catalog = vs.Catalog.load(prices)
    facts = dict(map(tuple, page_data(vs.rank(records, epochs=50, catalog=catalog))["page"]["facts"]))
    assert facts["Several workers"] == f"{row}, in 50 epochs"
    # Every node costs here, too.
    cost = vs.compare(records, by="nodes", metric="cost", epochs=50, catalog=catalog)
    assert cost.groups["mean"][1] / cost.groups["mean"][0] == pytest.approx(row.cost_ratio)


def launched(workers: int, per_machine: int, step: float) -> vs.Profile:
    """As torchrun starts them: so many workers, of which each machine has its share."""
    seen = {"workers": workers, "workers_per_machine": per_machine, "replicas": workers}
    made = probed(1, step, batch=256)
    environment = made.environment.model_copy(update=seen)
    return made.model_copy(update={"factors": {}, "environment": environment, "outcome": "watched"})


def test_workers_that_share_a_machine_count_as_workers_and_pay_for_one_machine() -> None:
    scaling = vs.stats.scaling([launched(1, 1, 0.8), launched(8, 8, 0.2), launched(16, 8, 0.1)], epochs=50)
    rows = [(row.nodes, row.unit, row.worker_batch_size) for row in scaling.rows]
    assert rows == [(8, "worker", 32), (16, "worker", 16)]
    for row, machines in zip(scaling.rows, (1, 2), strict=True):
        assert row.efficiency == pytest.approx(row.speedup / row.nodes)
        assert row.cost_ratio == pytest.approx(machines / row.speedup)


def test_several_machines_of_several_workers_are_compared_with_one_such_machine() -> None:
    (row,) = vs.stats.scaling([launched(8, 8, 0.2), launched(16, 8, 0.125)], epochs=50).rows
    assert (row.nodes, row.unit, row.worker_batch_size) == (2, "machine", 16)
    assert row.efficiency == pytest.approx(row.speedup / 2)
    assert row.cost_ratio == pytest.approx(2 / row.speedup)


def test_one_and_eight_workers_of_one_machine_are_two_machine_estimates_at_one_price() -> None:
    offer = {"provider": "p", "instance_type": "m", "region": "r", "usd_per_hour": 2.0}
    ranking = vs.rank([launched(1, 1, 0.8), launched(8, 8, 0.2)], epochs=5,
                      catalog=vs.Catalog.embedded().with_offers([offer]))  # fmt: skip
    assert [(row.factors.get("workers", 1), row.usd_per_hour) for row in ranking.rows] == [(8, 2.0), (1, 2.0)]
    assert "m (p, r, on_demand), batch 256, workers 8" in str(ranking.best)
    assert sorted(labels(ranking.candidates, (0, 1)).values()) == ["m", "m · workers 8"]
    assert {candidate["varied"] for candidate in page_data(ranking)["candidates"]} == {None, "workers 8"}


def with_quality(nodes: int, seconds: float, **more: object) -> vs.Profile:
    made = vs.Profile.from_times(
        instance_type="m", batch_size=96, steps_per_epoch=100, iteration_seconds=[seconds] * 9, **more,  # type: ignore[arg-type]
    )  # fmt: skip
    return made.model_copy(update={"factors": {"nodes": nodes}})


def test_a_metric_is_shown_beside_the_speed_up() -> None:
    records = [
        with_quality(1, 0.40, metrics={"accuracy": 0.72}),
        with_quality(3, 0.20, metrics={"accuracy": 0.68}),
        with_quality(3, 0.20, metrics={"accuracy": 0.70}),
    ]
    (row,) = vs.stats.scaling(records, epochs=5, metric="accuracy").rows
    assert (row.metric, row.metric_value, row.metric_alone) == ("accuracy", pytest.approx(0.69), 0.72)
    assert "accuracy 0.69 instead of 0.72" in str(row)
    (plain,) = vs.stats.scaling(records, epochs=5).rows
    assert (plain.metric, plain.metric_value) == (None, None)
    with pytest.raises(vs.errors.ComparisonError, match="val_loss"):
        vs.stats.scaling(records, epochs=5, metric="val_loss")
