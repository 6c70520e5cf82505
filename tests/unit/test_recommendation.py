"""From a model to a decision."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import vmselect as vs
from vmselect.cli import app
from vmselect.cli.demo import DESCRIPTIONS
from vmselect.findings import RecordsNotUsed
from vmselect.ranking.described import INITIALIZATION
from vmselect.ranking.next_probe import NextProbe
from vmselect.recommendation import explain_memory, is_same_training, newest_description, probe_commands
from vmselect.records.work import Operation, Operations
from vmselect.report.page import page_data

RESNET = vs.Profile.load(DESCRIPTIONS / "resnet50.json")
MACHINES = ["g4dn.xlarge", "g5.xlarge", "g6.xlarge"]


def make_probe(name: str, step_seconds: float, gpu: str, **setup: Any) -> vs.Profile:
    """A probe of the described training on a machine."""
    times = vs.Profile.from_times(
        instance_type=name, region="us-east-1", provider="aws", batch_size=256, steps_per_epoch=5005,
        iteration_seconds=[step_seconds, 1.01 * step_seconds, 0.99 * step_seconds] * 4, precision="mixed_float16",
    )  # fmt: skip
    environment = times.environment.model_copy(
        update={"gpus": (vs.records.Gpu(name=gpu, memory_bytes=24 * 2**30),), "framework_gpus": 1}
    )
    return times.model_copy(
        update={"environment": environment, "setup": RESNET.setup.model_copy(update=setup), "work": RESNET.work}
    )


def test_a_description_is_enough() -> None:
    ranking = vs.recommend(RESNET, machines=MACHINES, records=[])
    assert {row.basis for row in ranking} == {"described"}
    assert {row.instance_type for row in ranking} == set(MACHINES)
    assert vs.rank(RESNET, machines=MACHINES).to_frame().equals(ranking.to_frame())


def test_records_of_the_same_training_sharpen_the_answer() -> None:
    probe = make_probe("g5.xlarge", 0.5, "NVIDIA A10G")
    before = vs.recommend(RESNET, machines=MACHINES, records=[])
    after = vs.recommend(RESNET, machines=MACHINES, records=[probe])
    rows = {row.instance_type: row for row in after}
    assert rows["g5.xlarge"].basis == "measured"

    def width(ranking: vs.Ranking, name: str) -> float:
        row = next(row for row in ranking if row.instance_type == name)
        return row.seconds_high / row.seconds_low

    assert width(after, "g6.xlarge") < width(before, "g6.xlarge")


@pytest.mark.parametrize("changed", [{"structure": "another"}, {"batch_size": 64}])
def test_other_trainings_are_left_out(changed: dict[str, Any]) -> None:
    assert is_same_training(RESNET, make_probe("g5.xlarge", 0.5, "NVIDIA A10G"))
    assert not is_same_training(RESNET, make_probe("g5.xlarge", 0.5, "NVIDIA A10G", **changed))
    assert not is_same_training(RESNET, RESNET)


def test_records_that_contradict_the_description_are_left_out_with_a_finding() -> None:
    probes = [make_probe("g5.xlarge", 0.5, "NVIDIA A10G", examples=count) for count in (1_281_167, 5)]
    used, contradicted = (vs.recommend(RESNET, machines=MACHINES, records=[probe]) for probe in probes)
    assert "records-not-used" not in {finding.code for finding in used.findings}
    assert {row.basis for row in contradicted} == {"described"}
    (finding,) = [finding for finding in contradicted.findings if finding.code == "records-not-used"]
    assert finding.severity == "warning"
    assert "1281167" in finding.message


def test_a_record_of_a_gpu_machine_without_its_gpu_changes_nothing(tmp_path: Path) -> None:
    probe = make_probe("g5.xlarge", 0.5, "NVIDIA A10G")
    environment = probe.environment.model_copy(update={"gpus": (), "framework_gpus": 0, "precision": "float32"})
    wait = vs.records.InputWait(seconds=9.0, wall_seconds=10.0, steps=10, method="test")
    timeline = probe.timeline.model_copy(update={"init_seconds": 3.0, "init_source": "mark_start", "input_wait": wait})
    blind = probe.model_copy(update={"environment": environment, "timeline": timeline})
    before, after = (vs.recommend(RESNET, machines="all", records=records) for records in ([], [blind]))
    assert before.to_frame().equals(after.to_frame())
    assert "g5.xlarge" in {row.instance_type for row in after}
    assert {row.terms["initialization"] for row in after} == {INITIALIZATION.value}
    (finding,) = [finding for finding in after.findings if isinstance(finding, RecordsNotUsed)]
    assert (finding.code, finding.severity) == ("records-not-used", "warning")
    assert "g5.xlarge" in finding.message
    # Without a description of its own, the record has one; times of other machines are used.
    alone = vs.rank(blind, epochs=90)
    assert {row.basis for row in alone} == {"described"}
    good = make_probe("g6.xlarge", 0.5, "NVIDIA L4")
    mixed = vs.recommend(RESNET, machines=MACHINES, records=[good, blind])
    assert {row.instance_type: row.basis for row in mixed} == {
        "g4dn.xlarge": "predicted", "g5.xlarge": "predicted", "g6.xlarge": "measured",
    }  # fmt: skip
    # If only measured machines are asked for, the machine is excluded with the reason.
    measured = vs.rank([good, blind], epochs=90)
    assert [entry.reason_code for entry in measured.excluded] == ["unused_gpu"]
    assert page_data(measured)["page"]["subject"][-1] == "1 machine measured"

    blind.save(tmp_path)
    RESNET.save(tmp_path)
    page = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["recommend", "--path", str(tmp_path), "--html", str(page)])
    assert done.exit_code == 0, done.stderr
    assert str(finding) in " ".join(done.stderr.split())


def test_the_newest_description_counts() -> None:
    newer = RESNET.model_copy(update={"created": RESNET.created.replace(year=2099), "id": "0" * 32})
    assert newest_description([newer, RESNET]) == newer
    with pytest.raises(vs.errors.ArgumentError, match=r"train\.py"):
        newest_description([])


def test_another_model_is_named_before_another_batch_size() -> None:
    setup = RESNET.setup.model_copy(update={"model": "another", "batch_size": 8})
    other = RESNET.model_copy(update={"setup": setup, "id": "0" * 32})
    with pytest.raises(vs.errors.RankingError, match="differ in the model"):
        vs.rank([RESNET, other], machines=MACHINES, epochs=5)


def test_memory_of_a_tiny_model_is_not_stated_as_zero() -> None:
    ranking = vs.recommend(RESNET, machines=MACHINES, records=[])
    assert re.search(r"batch 256 needs about [1-9]", explain_memory(ranking, RESNET))
    assert RESNET.work is not None
    operations = Operations.of([Operation("mm", 2e3, 3e2, 10, 10, 10, 1, 1)])
    tiny = RESNET.work.model_copy(update={"parameters": 10, "saved_bytes": 4096.0, "operations": operations})
    explained = explain_memory(ranking, RESNET.model_copy(update={"work": tiny}))
    assert explained.startswith("Memory: batch 256 needs less than 0.5 GiB on a GPU;")


def make_next_probe(instance_type: str, provider: str = "aws", market: str = "on_demand") -> NextProbe:
    return NextProbe(
        instance_type=instance_type, provider=provider, region="us-east-1", market=market, probe_usd=0.1,
        expected_saving_usd=1, expected_saving=0.1, chance=0.1, chance_after=0.2, batch_size=8, gpus=1, nodes=1,
        reason="",
    )  # fmt: skip


def test_commands_of_a_probe_are_quoted() -> None:
    own, sky = probe_commands(make_next_probe("a b; rm -rf ~"), ["my train.py", "--lr", "$(id)"])
    assert shlex.split(own)[4:] == [
        "vmselect", "probe", "--instance-type", "a b; rm -rf ~", "my train.py", "--lr", "$(id)",
    ]  # fmt: skip
    assert shlex.split(sky)[-1] == own
    assert "a b; rm -rf ~" in shlex.split(sky)


def test_skypilot_rents_the_machine_of_a_probe_in_the_market_of_its_price() -> None:
    on_demand, spot = (
        shlex.split(probe_commands(make_next_probe("g5.xlarge", market=m))[1]) for m in ("on_demand", "spot")
    )
    assert "--use-spot" not in on_demand
    assert "--use-spot" in spot
    google = shlex.split(probe_commands(make_next_probe("n1-standard-4+1xT4", "gcp"))[1])
    # SkyPilot's Google machines have no GPU in their name.
    assert google[google.index("--instance-type") + 1] == "n1-standard-4"
    assert google[google.index("--gpus") + 1] == "T4:1"
    # SkyPilot cannot rent at the price of a commitment.
    assert len(probe_commands(make_next_probe("a2-highgpu-1g", "gcp", "reserved_1y"))) == 1
    assert len(probe_commands(make_next_probe("workstation", "lab"))) == 1


def test_the_command_ranks_the_records_of_a_folder(tmp_path: Path) -> None:
    RESNET.save(tmp_path / "records")
    command = ["recommend", "--path", str(tmp_path / "records"), "--machines", ",".join(MACHINES)]
    done = CliRunner().invoke(app, [*command, "--html", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("Probably rent")
    assert (tmp_path / "page.html").exists()
    nothing = CliRunner().invoke(app, ["recommend", "--path", str(tmp_path / "empty")])
    assert isinstance(nothing.exception, vs.errors.ArgumentError)
