"""The script that scores predictions runs on any table of the documented form."""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "prediction.py"
COLUMNS = (
    "source", "model", "precision", "config", "batch_size", "gpu", "gpu_count", "nodes", "host", "time", "time_unit",
)  # fmt: skip


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("prediction_benchmark", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def write_source(path: Path, *, unit: str = "ms/step") -> Path:
    """Times that follow float32 rates, with a deviation per model and GPU; one GPU without figures; two-GPU rows."""
    rates = {"T4": 8.1, "V100": 15.7, "P100": 9.3, "Voodoo": 1.0}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for model in range(7):
            for number, (gpu, rate) in enumerate(rates.items()):
                time = (model + 1) * 1000 / rate * math.exp(0.05 * ((model * 7 + number * 3) % 5 - 2))
                row = [path.stem, f"m{model}", "fp32", "", 32, gpu, 1, 1, "", time, unit]
                writer.writerows([row, [*row[:6], 2, *row[7:9], time * 0.6, unit]])
    return path


def test_scores_of_a_table(benchmark, tmp_path, capsys) -> None:
    files = [str(write_source(tmp_path / f"{name}.csv")) for name in ("one", "two")]
    assert benchmark.main([*files, "--format", "json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert [(s["source"], s["probes"], s["history"]) for s in scores[:4]] == [
        ("one", 1, 0), ("one", 1, 5), ("one", 2, 0), ("one", 2, 5),
    ]  # fmt: skip
    assert scores[0]["pairs"] == 7 * 6  # one GPU has no figures, and two GPUs are not used
    assert scores[1]["mean"] < scores[0]["mean"]
    assert scores[1]["mean"] < 20
    assert scores[0] | {"source": "two"} == scores[4]


def test_the_second_probe_can_be_chosen(benchmark, tmp_path, capsys) -> None:
    file = str(write_source(tmp_path / "one.csv"))
    scores = {}
    for second in ("any", "chosen"):
        assert benchmark.main([file, "--probes", "2", "--history", "0", "--second", second, "--format", "json"]) == 0
        (scores[second],) = json.loads(capsys.readouterr().out)
    assert (scores["any"]["pairs"], scores["chosen"]["pairs"]) == (7 * 3, 7 * 3)
    assert scores["any"]["mean"] != scores["chosen"]["mean"]


def test_the_unit_does_not_matter(benchmark, tmp_path) -> None:
    results = []
    for unit in ("ms/step", "s/epoch"):
        source, missing = benchmark.read_source(write_source(tmp_path / "x.csv", unit=unit))
        assert missing == ["Voodoo"]
        results.append(benchmark.score("x", source, probes=1, models=5))
    assert results[0].mean == pytest.approx(results[1].mean, rel=1e-6)


def test_constants_are_fitted_to_other_sources(benchmark, tmp_path, capsys) -> None:
    files = [str(write_source(tmp_path / f"{name}.csv")) for name in ("one", "two")]
    options = ["--refit", "--iterations", "1", "--probes", "1", "--history", "0"]
    assert benchmark.main([*files, *options]) == 0
    assert capsys.readouterr().out.count("coverage") == 2
    with pytest.raises(SystemExit):
        benchmark.main([files[0], "--refit"])


def test_sources_and_works_can_be_selected(benchmark, tmp_path, capsys) -> None:
    files = [write_source(tmp_path / f"{name}.csv") for name in ("one", "two")]
    lines = files[0].read_text().splitlines()
    files[0].write_text("\n".join(line for line in lines if ",m6," not in line or ",T4," not in line) + "\n")
    arguments = [*map(str, files), "--only", "one", "--probes", "1", "--history", "5", "--format", "json"]
    scores = []
    for more in ([], ["--complete"]):
        assert benchmark.main([*arguments, *more]) == 0
        scores += json.loads(capsys.readouterr().out)
    assert [(score["source"], score["pairs"]) for score in scores] == [("one", 6 * 6 + 2), ("one", 6 * 6)]
