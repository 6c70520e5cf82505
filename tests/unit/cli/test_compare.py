"""``vmselect compare``: rows on standard output, messages on standard error, exit codes."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import vmselect as vs
from vmselect.cli import app
from vmselect.errors import VmselectError

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from comparisons import profile

METRICS = "step_seconds,throughput"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("records")
    rng = np.random.default_rng(0)
    for name, level in (("a", 0.010), ("b", 0.013)):
        for _ in range(5):
            profile(rng, level=level, instance_type=name, factors={"machine": name}).save(where)
    (where / "needs.yaml").write_text("needs: {step_seconds: 2, throughput: 1}\n")
    return where


def compare(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def test_the_table_names_the_best_group(folder: Path) -> None:
    done = compare(folder)
    assert done.exit_code == 0
    assert vs.compare(vs.load_profiles(folder)).verdict in done.stdout
    assert "Kruskal-Wallis" in done.stderr


def test_a_csv_file_of_numbers_is_compared(tmp_path: Path) -> None:
    file = tmp_path / "batches.csv"
    rows = [("AWS", 0.63 + 0.01 * i) for i in range(5)] + [("Azure", 0.43 + 0.01 * i) for i in range(5)]
    file.write_text("platform,seconds_per_mb\n" + "".join(f"{name},{value}\n" for name, value in rows))
    done = compare(file, "--by", "platform", "--metric", "seconds_per_mb", "--format", "json")
    data = json.loads(done.stdout)
    assert (data["winner"], data["values"]["AWS"]) == ("Azure", [value for name, value in rows if name == "AWS"])


@pytest.mark.parametrize("text", ["", "a,a\n1,2\n", "a,seconds\nx\n", "a,seconds\nx,1,2\n", "a,seconds\nx,slow\n"])
def test_a_damaged_csv_file_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "numbers.csv").write_text(text)
    with pytest.raises(VmselectError):
        raise compare(tmp_path / "numbers.csv", "--by", "a", "--metric", "seconds").exception or AssertionError


def test_json_holds_everything(folder: Path) -> None:
    data = json.loads(compare(folder, "--format", "json", "--baseline", "b").stdout)
    assert (data["winner"], data["baseline"]) == ("a", "b")
    assert data["test"]["p_value"] < 0.05


def test_csv_has_a_row_per_group_and_metric(folder: Path) -> None:
    done = compare(folder, "--metric", "step_seconds,init_seconds", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["metric"], row["group"], row["count"]) for row in rows] == [
        ("step_seconds", "a", "5"), ("step_seconds", "b", "5"), ("init_seconds", "a", "5"), ("init_seconds", "b", "5"),
    ]  # fmt: skip


@pytest.mark.parametrize("printed_as", ["table", "json", "csv"])
def test_effects_and_scores_in_every_format(folder: Path, printed_as: str) -> None:
    effects = compare(folder, "--factors", "machine", "--format", printed_as)
    scores = compare(folder, "--metric", METRICS, "--needs", folder / "needs.yaml", "--format", printed_as)
    assert (effects.exit_code, scores.exit_code) == (0, 0)
    assert "machine" in effects.stdout
    assert "step_seconds" in scores.stdout


def test_too_few_runs_are_exit_code_1(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        profile(rng, instance_type=name).save(tmp_path)
    assert compare(tmp_path).exit_code == 1


@pytest.mark.parametrize(
    "wrong", ["--by color", "--by ,", "--metric beauty", "--baseline z", "--metric total", "--scaling"]
)
def test_invalid_options_are_errors_of_vmselect(folder: Path, wrong: str) -> None:
    assert isinstance(compare(folder, *wrong.split()).exception, VmselectError)


def test_a_page_is_written_beside_what_is_printed(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "new" / "page.html"
    done = compare(folder, "--metric", METRICS, "--format", "json", "--html", page)
    assert [one["metric"]["name"] for one in json.loads(done.stdout)] == ["step_seconds", "throughput"]
    assert page.as_uri() in done.stderr
    plain = page.read_text(encoding="utf-8")
    for more in (["--factors", "machine"], ["--metric", METRICS, "--needs", folder / "needs.yaml"]):
        page.unlink()
        assert compare(folder, *more, "--html", page).exit_code == 0
        assert page.read_text(encoding="utf-8") != plain


def test_the_table_of_scenarios_follows_that_of_the_groups(folder: Path) -> None:
    done = compare(folder, "--within", "model")
    assert done.exit_code == 0, done.stderr
    assert "scenario" in done.stdout
    assert "scenario" not in compare(folder).stdout
