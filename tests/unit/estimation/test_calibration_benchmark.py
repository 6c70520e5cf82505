"""The benchmark of calibration reads every layout, and its measures are those of known distributions."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support.profiles import make_profile

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import calibration
from calibration import Case, assess


def spread_cases(half: float, count: int = 1000) -> list[Case]:
    """Truths whose logarithms are spread evenly over -1 to 1, and intervals of a constant half-width."""
    truths = np.exp(np.linspace(-1, 1, count))
    return [Case("q", "s", "", float(truth), 1.0, math.exp(-half), math.exp(half)) for truth in truths]


def test_the_oracle_covers_nine_tenths_and_has_the_best_score() -> None:
    row = assess(spread_cases(0.9))
    assert (row.coverage, row.score) == pytest.approx((90, 1), abs=0.2)
    assert row.oracle == pytest.approx(row.half_width, rel=0.01) == pytest.approx(100 * math.expm1(0.9), rel=0.01)
    assert assess(spread_cases(0.5)).coverage == pytest.approx(50, abs=0.2)
    assert min(assess(spread_cases(half)).score for half in (0.5, 1.5)) > 1.2


def test_a_bound_of_zero_is_a_wide_interval() -> None:
    assert math.isfinite(assess([Case("q", "s", "", 1.0, 1.0, 0.0, math.inf)] * 2).half_width)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    units = [
        {"run": f"v9/me/box/net/{run}", "unit": "epoch", "start_s": 10.0 * n, "duration_s": 10.0}
        for run in range(12)
        for n in range(8)
    ]
    common = {"source": "s", "precision": "fp32", "nodes": 1}
    repeated = [
        {**common, "model": "net", "batch_size": 2**size, "gpu": "T4", "gpu_count": 1, "instance_type": "a",
         "metric": "iteration_ms", "value": 10.0 * 2**size, "repeat": repeat}
        for size in range(6)
        for repeat in range(4)
    ]  # fmt: skip
    machines = [
        {**common, "model": f"net{model}", "config": "", "batch_size": 8, "gpu": gpu, "gpu_count": gpus, "host": "",
         "time": seconds * (1 + 0.1 * math.log2(gpus)), "time_unit": "ms/step"}
        for model in range(12)
        for gpu, seconds in (("T4", 400.0), ("V100", 100.0))
        for gpus in (1, 2, 4, 8)
    ]  # fmt: skip
    memory = [
        {"model": f"net{model}", "batch_size": 2**n, "peak_bytes": 1e9 + 1e8 * 2**n, "fixed_bytes": 1e9,
         "least_fixed_bytes": 0.8e9}
        for model in range(3)
        for n in range(4)
    ]  # fmt: skip
    for name, rows in {"units": units, "repeated": repeated, "machines": machines, "memory": memory}.items():
        pd.DataFrame(rows).to_csv(tmp_path / f"{name}.csv", index=False)
    for seconds in (0.1, 0.11, 0.12, 0.13):
        make_profile("a", seconds, outcome="stopped", environment={"backend": "jax"}).save(tmp_path)
    return tmp_path


def test_every_layout_is_scored_and_the_table_replaces_that_of_a_page(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = folder / "page.md"
    page.write_text("above\n<!-- calibration -->\nold\n<!-- /calibration -->\nbelow\n", encoding="utf-8")
    assert calibration.main([str(folder), "--write", str(page)]) == 0
    table = capsys.readouterr().out.strip()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    names = {quantity.split(",")[0].split(" from")[0] for quantity, *_ in rows}
    assert names == {"run", "other run", "batch size", "other machine", "4 GPUs", "8 GPUs", "GPU memory",
                     "other process"}  # fmt: skip
    errors = {quantity: cells[2] for quantity, *cells in rows}
    assert errors["run, 3 units of the run"] == errors["other run, one time given"] == "0.0 %"
    text = page.read_text(encoding="utf-8")
    assert text.startswith("above\n<!-- calibration -->\n| quantity | sources |")
    assert text.endswith("\n<!-- /calibration -->\nbelow\n")
    assert {line.split("|")[1].strip() for line in text.splitlines()[4:-2]} == {
        quantity.strip() for quantity, *_ in rows
    }


def test_tables_without_optional_columns_are_scored_and_other_files_are_skipped(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pd.read_csv(folder / "machines.csv")
    for file in folder.glob("*.*"):
        file.unlink()
    bare = folder / "unknown-study.csv"
    table.drop(columns=["source", "precision", "config", "nodes", "host", "time_unit"]).to_csv(bare, index=False)
    (folder / "empty.csv").write_text("", encoding="utf-8")
    (folder / "notes.csv").write_text('free text\n"one, two"\n', encoding="utf-8")
    (folder / "other.json").write_text('{"not": "a record"}', encoding="utf-8")
    (folder / "records").mkdir()
    for seconds in (0.1, 0.11, 0.12, 0.13):
        make_profile("a", seconds, outcome="stopped", environment={"backend": "jax"}).save(folder / "records")
    assert calibration.main([str(folder)]) == 0
    printed = capsys.readouterr()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.out.splitlines()[2:]]
    assert {source for _, source, *_ in rows} == {"unknown_study", "jax"}
    kinds = {quantity.split(",")[0].split(" from")[0] for quantity, *_ in rows}
    assert kinds == {"other machine", "4 GPUs", "8 GPUs", "other process"}
    assert "empty.csv is not a table" in printed.err
    assert "other.json" in printed.err


def test_choices_have_the_regret_of_their_true_times(tmp_path: Path) -> None:
    rows = [
        {"model": f"net{model}", "batch_size": 8, "gpu": gpu, "gpu_count": 1, "time": seconds * (model + 1),
         "time_unit": "ms/step"}
        for model in range(4)
        for gpu, seconds in (("T4", 400.0), ("P100", 300.0), ("V100", 100.0))
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(tmp_path / "study.csv", index=False)
    source = calibration.read_data([tmp_path]).machines["study"]
    choices = list(calibration.choose_machines(source, 3))
    assert [count for count, _ in choices] == [1, 2] * 4 * calibration.PRICE_LISTS
    assert all(choice.close == (choice.true <= 1 - 1 / 1.05 + 1e-9) for _, choice in choices)
    assert all(0 <= choice.true < 1 and 0 <= choice.expected < 1 for _, choice in choices)
    lines = calibration.format_choices({"study": source}).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == [
        f"{probes}, history of {models} models" for models in (0, 5) for probes in ("1 probe", "2 probes")
    ]


def test_constants_are_chosen_without_the_scored_source(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pd.read_csv(folder / "machines.csv")
    table.to_csv(folder / "other.csv", index=False)
    fitted: list[int] = []
    monkeypatch.setattr(calibration.scaling, "fit_constants", lambda others: fitted.append(len(list(others))))
    calibration.refit(calibration.read_data([folder]), "scaling")
    assert fitted == [1, 1]
