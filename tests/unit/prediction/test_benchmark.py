"""The script that scores predictions runs on any table of the documented form."""

from __future__ import annotations

import csv
import gzip
import importlib
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


def write_works(folder: Path) -> None:
    """Descriptions and times of three sources that follow float32 rates."""
    rates = {"T4": 8.1, "V100": 15.7, "P100": 9.3}
    with (folder / "works.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            [
                "source",
                "model",
                "precision",
                "config",
                "batch_size",
                "gpu",
                "seconds",
                "exact",
                "optimizer",
                "key",
                "params",
                "param_tensors",
            ]
        )
        for source in ("one", "two", "lambda_pt"):
            for number in range(3):
                for gpu, rate in rates.items():
                    seconds = 0.4 * (number + 1) / rate
                    row = [source, f"m{number}", "fp32", "", 8, gpu, seconds, int(number < 2), "sgd", f"k{number}"]
                    writer.writerow([*row, 1000, 2])
    with gzip.open(folder / "work_operations.csv.gz", "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["key", "class", "flops", "bytes", "m", "n", "k", "b", "count"])
        for number in range(3):
            writer.writerow([f"k{number}", "mm", 2e9, 1.2e7, 1000, 1000, 1000, 1, 200 * (number + 1)])
            writer.writerow([f"k{number}", "opt", 1.0, 1.0, 0, 0, 0, 1, 1])


def test_described_works_are_read_fitted_and_scored(benchmark, tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    described = importlib.import_module("described")
    write_works(tmp_path)
    sources = described.read_works(tmp_path)
    assert set(sources) == {"one", "two", "lambda_pt"}
    assert set(described.keep_definable("one", sources["one"])) == {"m0", "m1"}
    step, item = (next(iter(sources[name]["m0"].values()))["T4"] for name in ("one", "lambda_pt"))
    assert step.log_seconds - item.log_seconds == pytest.approx(math.log(8))
    constants = described.fit_described([sources["one"], sources["lambda_pt"]], iterations=3)
    for models, worst in ((0, 60), (2, 60)):
        result = benchmark.score("two", sources["two"], probes=0, models=models, constants=constants)
        assert result.pairs == 9
        assert result.mean < worst
        assert result.coverage == 100
