"""``vmselect rank --study``: exit codes, formats, the page, and errors."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import vmselect as vs
from vmselect.cli import app
from vmselect.errors import VmselectError

RUNNER = CliRunner()


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, str]:
    for name, speed in (("g4dn.xlarge", 8e-4), ("g5.xlarge", 3e-4)):
        for size in (64, 512):
            vs.Profile.from_times(
                instance_type=name, batch_size=size, steps_per_epoch=40_960 // size, model="lenet",
                iteration_seconds=[0.01 + size * speed] * 12,
            ).save(tmp_path / "profiles")  # fmt: skip
    study = vs.ConvergenceStudy.from_epochs({64: [10, 12], 512: [20, 26]}, metrics={64: 0.98, 512: 0.94}, model="lenet")
    study.save(tmp_path / "study")
    return str(tmp_path / "profiles"), str(tmp_path / "study")


def select(*arguments: str) -> Any:
    return RUNNER.invoke(app, ["rank", *arguments])


def test_the_table_names_the_pair_and_its_metric(folders: tuple[str, str]) -> None:
    done = select(folders[0], "--study", folders[1])
    assert done.exit_code == 0, done.output
    assert "g5.xlarge" in done.output
    assert "val_accuracy" in done.output
    assert "0.98" in done.output


def test_profiles_and_study_may_share_a_folder(folders: tuple[str, str]) -> None:
    for file in Path(folders[1]).iterdir():
        file.rename(Path(folders[0]) / file.name)
    assert select(folders[0], "--study", folders[0]).exit_code == 0
    for other in (["rank", folders[0], "-b", "64", "-e", "5"], ["check", folders[0]]):
        done = RUNNER.invoke(app, other)
        assert done.exit_code == 0, done.output


def test_json_and_csv_hold_every_pair(folders: tuple[str, str]) -> None:
    payload = json.loads(select(folders[0], "-s", folders[1], "--format", "json").stdout)
    assert len(payload["rows"]) == 4
    assert payload["study"]["monitor"] == "val_accuracy"
    rows = list(csv.DictReader(io.StringIO(select(folders[0], "-s", folders[1], "--format", "csv").stdout)))
    assert {(row["batch_size"], row["val_accuracy"]) for row in rows} == {("64", "0.98"), ("512", "0.94")}


def test_a_minimum_excludes_pairs_and_too_high_a_one_all_of_them(folders: tuple[str, str]) -> None:
    done = select(folders[0], "-s", folders[1], "--require", "0.95", "--format", "json")
    assert {row["batch_size"] for row in json.loads(done.stdout)["rows"]} == {64}
    assert select(folders[0], "-s", folders[1], "--require", "val_accuracy=0.999").exit_code == 1


def test_the_page_is_written(folders: tuple[str, str], tmp_path: Path) -> None:
    done = select(folders[0], "-s", folders[1], "--html", str(tmp_path / "page.html"))
    assert done.exit_code == 0
    assert (tmp_path / "page.html").read_text().startswith("<!")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--require", "high"), "--require 'high'"),
        (("--require", "val_f1=0.5"), "val_f1"),
        (("--study", "nowhere.json"), "nowhere.json: there is no such file or folder"),
    ],
)
def test_an_invalid_argument_is_an_error(folders: tuple[str, str], arguments: tuple[str, ...], message: str) -> None:
    done = select(folders[0], "-s", folders[1], *arguments)
    assert isinstance(done.exception, VmselectError)
    assert message in str(done.exception)
