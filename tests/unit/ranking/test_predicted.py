"""Rankings with machines that were never probed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vmselect as vs
from vmselect.ranking.predicted import scale_steps

CATALOG = vs.Catalog.embedded("2026-08-22")


def profile(instance_type="g4dn.xlarge", seconds=0.2, *, size=64, **given) -> vs.Profile:
    return vs.Profile.from_times(
        instance_type=instance_type, batch_size=size, steps_per_epoch=6400 // size, model="net", init_seconds=5.0,
        first_iteration_seconds=3.0, iteration_seconds=[seconds * (1 + 0.01 * (k % 3)) for k in range(12)],
        validation_seconds=[2.0, 1.0], **given,
    )  # fmt: skip


def test_measured_machines_keep_their_times_and_others_are_added() -> None:
    alone = vs.rank(profile(), epochs=20, catalog=CATALOG)
    ranking = vs.rank(profile(), epochs=20, catalog=CATALOG, machines=["g5.xlarge", "g4dn.xlarge"])
    rows = {row.instance_type: row for row in ranking}
    assert rows["g4dn.xlarge"].basis == "measured"
    assert rows["g4dn.xlarge"].measures == alone.best.measures
    assert rows["g5.xlarge"].basis == "predicted"
    assert rows["g5.xlarge"].terms["initialization"] == alone.best.terms["initialization"]
    assert rows["g5.xlarge"].terms["steady_iterations"] < alone.best.terms["steady_iterations"]
    assert "never-probed" in {finding.code for finding in rows["g5.xlarge"].findings}
    assert "never probed" in str(ranking)
    with pytest.raises(vs.errors.MissingNamesError, match="no GPU"):
        vs.rank(profile(), epochs=20, catalog=CATALOG, machines=["g5.xlarge", "c5.large"])


def test_all_machines_of_the_catalog_with_filters() -> None:
    everything = vs.rank(profile(), epochs=20, catalog=CATALOG, machines="all")
    assert len({row.instance_type for row in everything}) > 100
    assert len(everything) == len(vs.rank(profile(), epochs=20, catalog=CATALOG, machines="catalog"))
    few = vs.rank(profile(), epochs=20, catalog=CATALOG, machines="all", provider="aws", gpu=["L4", "A10G"])
    assert {row.gpu_model for row in few} == {"L4", "A10G"}
    assert {row.provider for row in few} == {"aws"}
    many = next(row for row in everything if row.gpu_count == 4 and row.basis == "predicted")
    assert "one-gpu-predicted" in {finding.code for finding in many.findings}


def test_each_batch_size_is_predicted_from_its_own_probes() -> None:
    probes = [profile(), profile(size=128, seconds=0.35), profile("g5.xlarge", 0.1)]
    ranking = vs.rank(probes, epochs=20, catalog=CATALOG, batch_size="all", machines=["g6.xlarge", "g5.xlarge"])
    found = {(row.instance_type, row.batch_size): row.basis for row in ranking}
    assert found["g5.xlarge", 64] == "measured"
    assert found["g5.xlarge", 128] == "predicted"
    assert found["g6.xlarge", 64] == found["g6.xlarge", 128] == "predicted"


def test_an_out_of_memory_machine_is_not_predicted() -> None:
    failed = profile("g5.xlarge").model_copy(update={"outcome": "out_of_memory"})
    ranking = vs.rank([profile(), failed], epochs=20, catalog=CATALOG, machines=["g5.xlarge"])
    assert {row.instance_type for row in ranking} == {"g4dn.xlarge"}


def test_short_steps_are_warned_of() -> None:
    ranking = vs.rank(profile(seconds=0.004), epochs=20, catalog=CATALOG, machines=["g5.xlarge"])
    row = next(row for row in ranking if row.basis == "predicted")
    found = next(finding for finding in row.findings if finding.code == "short-steps-predicted")
    assert found.severity == "warning"


def test_history_narrows_predicted_intervals() -> None:
    others = [
        vs.Profile.from_times(instance_type=name, batch_size=8, model=f"m{k}", iteration_seconds=[s * (k + 1)] * 9)
        for k in range(4)
        for name, s in (("g4dn.xlarge", 0.2), ("g5.xlarge", 0.09), ("g6.xlarge", 0.11))
    ]
    widths = []
    for history in ([], others):
        ranking = vs.rank(profile(), epochs=20, catalog=CATALOG, machines=["g5.xlarge"], history=history)
        row = next(row for row in ranking if row.basis == "predicted")
        widths.append(row.seconds_high / row.seconds_low)
    assert widths[1] < widths[0]


def test_draws_of_times_agree_with_the_estimate() -> None:
    ranking = vs.rank(profile(), epochs=20, catalog=CATALOG, machines=["g5.xlarge", "g5.2xlarge"])
    one = next(e for e in ranking.candidates.machine_estimates if e.instance_type == "g5.xlarge")
    assert one.prediction is not None
    once, each = one.step_seconds
    draws = one.runtime.seconds(20) + (one.prediction.factors(4000, seed=0) - 1) * (once + each * 20)
    low, high = one.runtime.interval(20)
    assert ((low <= draws) & (draws <= high)).mean() > 0.88
    assert draws.min() > 0


@settings(max_examples=20, deadline=None)
@given(
    st.floats(0.05, 5.0), st.floats(0.5, 0.99), st.floats(1.01, 3.0), st.integers(1, 500)
)  # fmt: skip
def test_a_predicted_interval_is_never_narrower_than_the_measured_one(ratio, low, high, epochs) -> None:
    measured = vs.rank(profile(), epochs=1, catalog=CATALOG).candidates.machine_estimates[0].runtime
    same = replace(
        measured, low=tuple(x * ratio**2 for x in measured.low), high=tuple(x * ratio**2 for x in measured.high)
    )
    predicted = scale_steps(measured, ratio, ratio * low, ratio * high, title="other", confidence=0.9)
    wide, narrow = predicted.interval(epochs), same.interval(epochs)
    assert wide[1] - predicted.seconds(epochs) >= (narrow[1] - same.seconds(epochs)) * (1 - 1e-9)
    assert wide[0] == 0 or predicted.seconds(epochs) - wide[0] >= (same.seconds(epochs) - narrow[0]) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("filters", "condition"),
    [({"gpu": "H100"}, "gpu=H100"), ({"provider": ["gcp", "azure"]}, "provider=gcp,azure")],
)
def test_filters_also_leave_out_probed_machines(filters, condition) -> None:
    ranking = vs.rank(profile(), epochs=20, catalog=CATALOG, machines="all", **filters)
    assert {row.basis for row in ranking} == {"predicted"}
    (left_out,) = [one for one in ranking.excluded if one.reason_code == "filtered"]
    assert condition in left_out.reason
    # What is known about the probed machine still serves to predict the others.
    everything = vs.rank(profile(), epochs=20, catalog=CATALOG, machines="all")
    times = {row.instance_type: row.seconds for row in everything}
    assert all(row.seconds == times[row.instance_type] for row in ranking)


def test_filters_of_the_catalog_leave_out_probed_machines() -> None:
    for restricted in (CATALOG.where(max_usd_per_hour=0.05), CATALOG.where(gpu_memory_gib=40)):
        ranking = vs.rank(profile(), epochs=20, catalog=restricted)
        assert [one.reason_code for one in ranking.excluded] == ["filtered"]


def test_the_command_line_ranks_machines_that_were_never_probed(tmp_path) -> None:
    from typer.testing import CliRunner

    from vmselect.cli import app

    profile().save(tmp_path / "mine" / "a.json")
    for number, (name, seconds) in enumerate((("g4dn.xlarge", 0.2), ("g5.xlarge", 0.09))):
        other = vs.Profile.from_times(instance_type=name, batch_size=8, model="other", iteration_seconds=[seconds] * 9)
        other.save(tmp_path / "team" / f"{number}.json")
    options = ["--machines", "all", "--history", str(tmp_path / "team"), "--gpu", "A10G,L4", "--format", "csv"]
    result = CliRunner().invoke(
        app, ["rank", str(tmp_path / "mine"), "--epochs", "20", "--date", "2026-08-22", *options]
    )
    assert result.exit_code == 0
    assert "g5.xlarge" in result.stdout
    assert "p3.2xlarge" not in result.stdout
