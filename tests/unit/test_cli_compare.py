"""vmselect compare: rows on standard output, remarks on standard error, exit codes."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from vmselect.cli import app
from vmselect.errors import VmselectError

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from comparisons import profile


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("records")
    rng = np.random.default_rng(0)
    for name, level in (("a", 0.010), ("b", 0.013)):
        for _ in range(5):
            profile(rng, level=level, instance_type=name, factors={"machine": name}).save(where)
    return where


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def test_the_table_says_who_is_best(folder: Path) -> None:
    done = run(folder)
    assert done.exit_code == 0
    assert "step time: a is best" in done.stdout
    assert "Kruskal-Wallis" in done.stderr


def test_json_holds_everything(folder: Path) -> None:
    data = json.loads(run(folder, "--format", "json", "--baseline", "b").stdout)
    assert data["winner"] == "a"
    assert data["baseline"] == "b"
    assert data["test"]["p_value"] < 0.05
    several = json.loads(run(folder, "--metric", "step_seconds,throughput", "--format", "json").stdout)
    assert [one["metric"]["name"] for one in several] == ["step_seconds", "throughput"]


def test_csv_has_a_row_per_group_and_metric(folder: Path) -> None:
    done = run(folder, "--metric", "step_seconds,init_seconds", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["metric"], row["group"], row["count"]) for row in rows] == [
        ("step_seconds", "a", "5"), ("step_seconds", "b", "5"), ("init_seconds", "a", "5"), ("init_seconds", "b", "5"),
    ]  # fmt: skip


@pytest.mark.parametrize("format", ["table", "json", "csv"])
def test_effects(folder: Path, format: str) -> None:  # noqa: A002
    done = run(folder, "--factors", "machine", "--format", format)
    assert done.exit_code == 0
    assert "machine" in done.stdout


@pytest.mark.parametrize("format", ["table", "json", "csv"])
def test_requirements(folder: Path, tmp_path: Path, format: str) -> None:  # noqa: A002
    needs = tmp_path / "needs.yaml"
    needs.write_text("needs: {step_seconds: 2, throughput: 1}\n")
    done = run(folder, "--metric", "step_seconds,throughput", "--needs", needs, "--format", format)
    assert done.exit_code == 0
    assert "step_seconds" in done.stdout


def test_too_few_runs_are_exit_code_1(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        profile(rng, instance_type=name).save(tmp_path)
    done = run(tmp_path)
    assert done.exit_code == 1
    assert "too few to tell" in done.stdout


@pytest.mark.parametrize(
    "wrong", [["--by", "colour"], ["--by", ","], ["--metric", "beauty"], ["--baseline", "z"], ["--metric", "total"]]
)
def test_what_cannot_be_done_is_an_error_of_the_family(folder: Path, wrong: list[str]) -> None:
    done = run(folder, *wrong)
    assert isinstance(done.exception, VmselectError)


def test_a_page_is_written_beside_what_is_printed(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "new" / "page.html"
    done = run(folder, "--metric", "step_seconds,throughput", "--format", "json", "--html", page)
    assert len(json.loads(done.stdout)) == 2
    assert page.as_uri() in done.stderr
    assert "Throughput by instance type" in page.read_text(encoding="utf-8")
    run(folder, "--factors", "machine", "--html", page)
    assert "and its factors: machine" in page.read_text(encoding="utf-8")
    needs = tmp_path / "needs.yaml"
    needs.write_text("needs: {step_seconds: 1}\n")
    assert run(folder, "--needs", needs, "--html", page).exit_code == 0
    assert "Where the numbers come from" in page.read_text(encoding="utf-8")
