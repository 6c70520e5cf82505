"""``vmselect estimate``: rows on standard output, warnings on standard error."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from vmselect.cli import app
from vmselect.errors import ArgumentError, EstimateError
from vmselect.records.training import Fit

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from profiles import make_epoch_profile, make_gpu_profile, make_profile


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, (machine, step) in enumerate([("p2.xlarge", 0.4), ("p3.2xlarge", 0.1), ("p3.2xlarge", 0.1)]):
        make_profile(machine, step).save(tmp_path / f"{number}.json")
    return tmp_path


def estimate(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["estimate", *map(str, arguments)])


def test_rows_of_every_machine_and_number_of_epochs(folder: Path) -> None:
    rows = json.loads(estimate(folder, "--epochs", "5,10", "--json").stdout)
    assert [(row["instance_type"], row["epochs"], row["repetitions"]) for row in rows] == [
        ("p2.xlarge", 5, 1),
        ("p2.xlarge", 10, 1),
        ("p3.2xlarge", 5, 2),
        ("p3.2xlarge", 10, 2),
    ]
    assert rows[2]["seconds"] == pytest.approx(1.0 + 1.0 + 499 * 0.1)
    assert rows[2]["low"] < rows[2]["seconds"] < rows[2]["high"]
    for row in rows:
        assert sum(row["terms"].values()) == pytest.approx(row["seconds"])


@pytest.mark.parametrize(
    ("step_seconds", "warning"),
    [([0.1], "1 steady step"), ([0.1, 0.3] * 10, "a, batch 64: The step times vary widely")],
)
def test_warnings_of_the_estimate_and_of_the_profile(tmp_path: Path, step_seconds: list[float], warning: str) -> None:
    make_profile("a", step_seconds).save(tmp_path / "one.json")
    result = estimate(tmp_path, "--epochs", "5")
    assert result.exit_code == 0
    assert warning in result.stderr


def test_a_loop_of_fits_has_each_warning_once(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        fit = Fit(number=number, process="p")
        seconds = [20.0, *[10.0] * 4, *[15.0 + number] * 4]
        make_epoch_profile("a", *seconds, fit=fit, setup={"structure": "s"}).save(tmp_path / f"{number}.json")
    result = estimate(tmp_path, "--epochs", "1")
    assert result.exit_code == 0
    assert result.stderr.count("in later epochs") == 1, result.stderr


@pytest.mark.parametrize("phase", ["²:1", "9" * 5000 + ":1", "5", ":1", "5:", "0:1", "-5:1", "five:1"])
def test_a_phase_that_cannot_be_read_is_an_argument_error(folder: Path, phase: str) -> None:
    assert isinstance(estimate(folder / "0.json", "--phase", phase).exception, ArgumentError)


def test_gpu_memory(tmp_path: Path) -> None:
    for size, peak in ((32, 4.0), (64, 8.0)):
        make_gpu_profile(size, peak).save(tmp_path / f"{size}.json")
    rows = json.loads(estimate(tmp_path, "--memory", "--gpu", "T4,A10G", "--format", "json").stdout)
    assert [(row["answer"], row["gpu_model"], row["batch_size"]) for row in rows[:3]] == [
        ("peak", None, 32), ("peak", None, 64), ("largest", "T4", rows[2]["batch_size"]),
    ]  # fmt: skip
    assert 64 < rows[2]["batch_size"] < rows[3]["batch_size"]
    assert rows[2]["high_gib"] <= rows[2]["usable_gib"]
    table = estimate(tmp_path, "--memory", "--batch-size", "48").stdout
    assert "interpolated" in table
    assert "H100" in table
    lines = estimate(tmp_path, "--memory", "--gpu", "T4", "--format", "csv").stdout.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("answer,model,gpu_model")
    (tmp_path / "broken.json").write_text("{")
    broken = estimate(tmp_path, "--memory")
    assert broken.exit_code == 2
    assert "T4" in broken.stdout


def test_gpu_memory_that_is_unknown(folder: Path) -> None:
    assert isinstance(estimate(folder, "--memory").exception, EstimateError)
    assert isinstance(estimate(folder, "--gpu", "T4", "--epochs", "5").exception, ArgumentError)


def test_messages_name_options_of_the_command_line(tmp_path: Path) -> None:
    make_profile("g5.xlarge", 0.1, batch_size=None, iteration_seconds=[0.1, 0.1]).save(tmp_path / "a.json")
    printed = estimate(tmp_path, "--epochs", "5").stderr
    assert "--batch-size" in printed
    assert "IterationProbe" not in printed
    assert "batch_size=" not in printed
