"""``vmselect estimate``, run as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import vmselect as vs
from vmselect.cli.estimate import estimate
from vmselect.errors import ArgumentError
from vmselect.records.training import Fit

app = typer.Typer()
app.command()(estimate)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, (machine, step) in enumerate([("p2.xlarge", 0.4), ("p3.2xlarge", 0.1), ("p3.2xlarge", 0.1)]):
        vs.Profile.from_times(
            instance_type=machine,
            batch_size=256,
            steps_per_epoch=100,
            init_seconds=1.0,
            first_iteration_seconds=2.0,
            iteration_seconds=[step] * 20,
        ).save(tmp_path / f"{number}.json")
    return tmp_path


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.stdout


def test_rows_of_every_machine_and_number_of_epochs(folder: Path) -> None:
    rows = json.loads(run(folder, "--epochs", "5,10", "--format", "json"))
    assert [(row["instance_type"], row["epochs"], row["repetitions"]) for row in rows] == [
        ("p2.xlarge", 5, 1),
        ("p2.xlarge", 10, 1),
        ("p3.2xlarge", 5, 2),
        ("p3.2xlarge", 10, 2),
    ]
    assert rows[2]["seconds"] == pytest.approx(1.0 + 2.0 + 499 * 0.1)
    assert rows[2]["low"] < rows[2]["seconds"] < rows[2]["high"]


def test_terms_sum_to_the_seconds(folder: Path) -> None:
    rows = json.loads(run(folder, "--epochs", 7, "--terms", "--format", "json"))
    for row in rows:
        parts = row["initialization"] + row["first_iteration"] + row["steady_iterations"]
        assert parts == pytest.approx(row["seconds"])


def test_a_doubt_is_said_beside_the_estimate(tmp_path: Path) -> None:
    vs.Profile.from_times(
        instance_type="a", batch_size=8, steps_per_epoch=10, first_iteration_seconds=1.0, iteration_seconds=0.1
    ).save(tmp_path / "one.json")
    result = CliRunner().invoke(app, [str(tmp_path), "--epochs", "5"])
    assert result.exit_code == 0
    assert "1 steady step" in result.stderr


def test_the_doubts_of_the_profiles_are_said_too(tmp_path: Path) -> None:
    vs.Profile.from_times(
        instance_type="a", batch_size=8, steps_per_epoch=10, first_iteration_seconds=1.0,
        iteration_seconds=[0.1, 0.3] * 10,
    ).save(tmp_path / "one.json")  # fmt: skip
    result = CliRunner().invoke(app, [str(tmp_path), "--epochs", "5"])
    assert result.exit_code == 0
    assert "a, batch 8: Steady steps vary widely" in result.stderr


def test_a_loop_of_fits_says_each_thing_once(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        one = vs.Profile.from_times(
            instance_type="a", first_epoch_seconds=20, later_epoch_seconds=[10] * 4 + [15 + number] * 4
        )
        alike = {"fit": Fit(number=number, process="p"), "setup": one.setup.model_copy(update={"structure": "s"})}
        one.model_copy(update=alike).save(tmp_path / f"{number}.json")
    result = CliRunner().invoke(app, [str(tmp_path), "--epochs", "1"])
    assert result.exit_code == 0
    assert result.stderr.count("later epochs take") == 1, result.stderr


@pytest.mark.parametrize("phase", ["²:1", "9" * 5000 + ":1", "5", ":1", "5:", "0:1", "-5:1", "five:1"])
def test_a_phase_that_cannot_be_read_says_how_to_write_one(folder: Path, phase: str) -> None:
    result = CliRunner().invoke(app, [str(folder / "0.json"), "--phase", phase])
    assert isinstance(result.exception, ArgumentError)
    assert "give EPOCHS:FACTOR or EPOCHS:PROFILE" in str(result.exception)
