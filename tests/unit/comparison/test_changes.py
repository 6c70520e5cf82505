"""``vmselect compare --before``: changes between two sets of profiles, limits, and the GitHub action."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect.cli import app
from vmselect.comparison.changes import LARGEST_FACTOR, ChangeOutput, _divide, escape_markdown, find_changes
from vmselect.errors import ArgumentError, ComparisonError
from vmselect.intervals import Interval
from vmselect.records.usage import Limits, Summary, Usage

ROOT = Path(__file__).parents[3]


def probe(step: float = 0.1, **fields: object) -> vs.Profile:
    fields: dict[str, object] = {
        "instance_type": "g5.xlarge", "batch_size": 64, "steps_per_epoch": 1000, "first_iteration_seconds": 2.0,
        "model": "resnet", **fields,
    }  # fmt: skip
    return vs.Profile.from_times(iteration_seconds=[step] * 20, **fields)  # type: ignore[arg-type]


def test_a_slower_step_takes_more_time_and_money() -> None:
    (change,) = find_changes(probe(0.10), probe(0.12), epochs=50)
    assert change.step_ratio is not None
    assert change.usd is not None
    assert change.step_ratio.value == pytest.approx(1.2, rel=0.01)
    assert change.time_ratio.low < change.time_ratio.value < change.time_ratio.high
    extra = change.seconds[1].value - change.seconds[0].value
    assert change.usd.value == pytest.approx(extra / 3600 * vs.Catalog.default().price("g5.xlarge"))
    assert change.exceeds == ()


def test_equal_profiles_exceed_no_limit() -> None:
    (change,) = find_changes(probe(), probe(), epochs=50, limit_percent=0, limit_usd=0)
    assert change.time_ratio.value == 1
    assert change.exceeds == ()


def test_limits_hold_for_certain_increases_only() -> None:
    faster, slower = probe(0.10), probe(0.13)
    assert find_changes(faster, slower, epochs=50, limit_percent=10)[0].exceeds == ("time",)
    assert find_changes(faster, slower, epochs=50, limit_usd=0.01)[0].exceeds == ("cost",)
    assert not find_changes(faster, slower, epochs=50, limit_percent=90, limit_usd=1000).exceeds
    assert not find_changes(slower, faster, epochs=50, limit_percent=10, limit_usd=0.01).exceeds


@given(st.floats(0.01, 1.0), st.floats(0.5, 2.0))
def test_the_reverse_change_is_the_inverse(step: float, ratio: float) -> None:
    old, new = probe(step), probe(step * ratio)
    (there,), (back,) = find_changes(old, new, epochs=10), find_changes(new, old, epochs=10)
    assert there.time_ratio.value * back.time_ratio.value == pytest.approx(1)
    assert there.time_ratio.low * back.time_ratio.high == pytest.approx(1, rel=1e-6)


def test_trainings_without_a_partner_are_listed() -> None:
    changes = find_changes([probe(), probe(batch_size=128)], [probe(), probe(instance_type="g6.xlarge")], epochs=5)
    assert len(changes) == 1
    assert [finding.code for finding in changes.findings] == ["unmatched-training"] * 2


def test_the_error_without_common_trainings_shows_both_sides_in_limited_length() -> None:
    others = [probe(model="vit" * 60, batch_size=size, instance_type="g6.xlarge") for size in (32, 64, 128, 256)]
    with pytest.raises(ComparisonError) as error:
        find_changes(probe(), others, epochs=5)
    text = str(error.value)
    assert all(part in text for part in ("resnet", "g5.xlarge, batch 64", "vitvit", "g6.xlarge, batch 32"))
    assert len(text) < 700


def loud(step: float = 0.1) -> vs.Profile:
    """A probe during which other programs used most of the CPU cores, so that no ranking uses it."""
    means = {"other_cores": 0.86 * 4, "usable_cpu_share": 1.0}
    summaries = {
        name: Summary(count=10, seconds=5.0, mean=mean, maximum=mean, p50=mean, p95=mean)
        for name, mean in means.items()
    }
    usage = Usage(interval_seconds=1.0, limits=Limits(cores=4), phases={"steady_steps": summaries})
    return make_profile(
        "g5.xlarge", step, model="resnet", usage=usage, environment={"framework_gpus": 0, "usable_cores": 4}
    )


def test_records_that_are_too_disturbed_to_rank_are_not_compared() -> None:
    quiet = make_profile("g5.xlarge", 0.1, model="resnet")
    for old, new in ((loud(), quiet), (quiet, loud())):
        changes = find_changes(old, new, epochs=50, limit_percent=10)
        assert (len(changes), changes.too_uncertain, changes.exceeds) == (0, True, False)
        assert "too-disturbed" in [finding.code for finding in changes.findings]
        assert json.loads(changes.to_json())["changes"] == []
    both = find_changes([loud(), probe(batch_size=128)], [quiet, probe(batch_size=128)], epochs=50)
    assert [change.batch_size for change in both] == [128]


@given(st.floats(0.001, 1e6), st.floats(0.001, 1e6), st.floats(0, 1), st.floats(0, 10))
def test_ratios_have_finite_bounds(new: float, old: float, below: float, above: float) -> None:
    sides = (Interval(value, value * (1 - below), value * (1 + above)) for value in (new, old))
    ratio = _divide(*sides)
    assert 0 < ratio.low <= ratio.value <= ratio.high <= ratio.value * LARGEST_FACTOR * (1 + 1e-9)


def test_other_changed_conditions_are_reported() -> None:
    changes = find_changes(probe(), probe(steps_per_epoch=1200), epochs=5)
    assert [finding.code for finding in changes.findings] == ["conditions-changed"]
    assert changes[0].time_ratio.value > 1.1


def test_a_machine_without_a_price_has_no_cost() -> None:
    (change,) = find_changes(probe(instance_type="mine"), probe(instance_type="mine"), epochs=5, limit_usd=0)
    assert (change.usd_per_hour, change.usd, change.exceeds) == (None, None, ())


def test_the_number_of_epochs_is_asked_for() -> None:
    with pytest.raises(ArgumentError):
        find_changes(probe(), probe())


@given(st.text(max_size=30))
def test_markdown_has_no_active_characters(text: str) -> None:
    assert not set(escape_markdown(text)) & set("|<>`*_[]()@!\\\n\r")


# -- the command and the action ----------------------------------------------------------------------------------------


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    probe(0.10).save(tmp_path / "old")
    probe(0.12).save(tmp_path / "new")
    return tmp_path / "old", tmp_path / "new"


def test_exit_codes_and_formats(folders: tuple[Path, Path], tmp_path: Path) -> None:
    def run(*options: str) -> tuple[int, str]:
        done = CliRunner().invoke(
            app, ["compare", str(folders[1]), "--before", str(folders[0]), "--epochs", "50", *options]
        )
        return done.exit_code, done.stdout

    assert run()[0] == 0
    assert run("--limit-percent", "10")[0] == 1
    summary = tmp_path / "summary.md"
    code, text = run("--limit-usd", "0.01", "--format", "json", "--markdown", str(summary))
    plain = json.loads(text)
    assert (code, plain["exceeds"], plain["changes"][0]["exceeds"]) == (1, True, "cost")
    assert summary.read_text().count("\n") == 3
    rows = list(csv.DictReader(io.StringIO(run("--format", "csv")[1])))
    assert list(rows[0]) == list(ChangeOutput.model_fields)
    assert float(rows[0]["time_percent"]) == pytest.approx(plain["changes"][0]["time_percent"])


@pytest.mark.parametrize(
    ("more", "options", "status"),
    [
        ([], [], 2),  # nothing can be compared
        ([0.1, 0.1], [], 0),
        ([0.1, 0.1], ["--limit-percent", "10"], 2),  # the limit of the other training cannot be checked
        ([0.1, 0.2], ["--limit-percent", "10"], 1),
    ],
)
def test_exit_codes_if_a_training_is_too_disturbed(
    tmp_path: Path, more: list[float], options: list[str], status: int
) -> None:
    loud().save(tmp_path / "old")
    make_profile("g5.xlarge", 0.1, model="resnet").save(tmp_path / "new")
    for folder, step in zip(("old", "new"), more, strict=False):
        probe(step, batch_size=128).save(tmp_path / folder)
    words = ["compare", str(tmp_path / "new"), "--before", str(tmp_path / "old"), "--epochs", "50", "--quiet", *options]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == status
    assert "disturbed" in done.stderr
    checked = CliRunner().invoke(app, ["check", str(tmp_path / "old"), "--format", "json"])
    assert "too-disturbed" in [row["code"] for row in json.loads(checked.stdout)]


@pytest.mark.parametrize(("limit", "status"), [("10", 1), ("60", 0), ("$(touch marker)", 2)])
def test_the_action_runs_the_command(folders: tuple[Path, Path], tmp_path: Path, limit: str, status: int) -> None:
    action = yaml.safe_load((ROOT / ".github/actions/cost/action.yml").read_text(encoding="utf-8"))
    step = action["runs"]["steps"][-1]
    # An input within a script would be run by the shell.
    assert not [step["run"] for step in action["runs"]["steps"] if "${{" in step["run"]]
    passed = {"old": str(folders[0]), "new": str(folders[1]), "epochs": "50", "limit-percent": limit}
    inputs = {name: passed.get(name, field.get("default")) for name, field in action["inputs"].items()}
    variables = {name: inputs[text.split("inputs.")[1].split(" ")[0]] for name, text in step["env"].items()}
    (tmp_path / "vmselect").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vmselect "$@"\n')
    (tmp_path / "vmselect").chmod(0o755)
    files = {"GITHUB_STEP_SUMMARY": "summary.md", "GITHUB_OUTPUT": "output", "RUNNER_TEMP": ""}
    environment = os.environ | variables | {name: str(tmp_path / path) for name, path in files.items()}
    environment |= {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", step["run"]], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == status, done.stderr
    assert not (tmp_path / "marker").exists()
    if status < 2:
        assert json.loads(Path((tmp_path / "output").read_text().strip().split("=", 1)[1]).read_text())["changes"]
