"""examples/thesis.py prints the scores that the dissertation's own rankings have."""

from __future__ import annotations

import csv
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from errata import WRONG_VALUES, find_numbers, list_numbers

SCRIPT = Path(__file__).parents[2] / "examples" / "thesis.py"


@pytest.fixture(scope="module")
def output() -> str:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def thesis() -> ModuleType:
    spec = importlib.util.spec_from_file_location("thesis_example", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "line",
    [
        "10 epochs, time: top-1 7/8, mean Kendall tau 0.93",
        "10 epochs, cost: top-1 7.5/8, mean Kendall tau 1.00",
        "10 epochs, both: mean regret 0.69%, worst 10%",
        "20 epochs, time: top-1 7/8,",
        "20 epochs, cost: top-1 7/8,",
        "21 of 24 costs as printed; not so: p2.16xlarge/1024 prints 0.50, is 0.45",
        "21 of 24 costs as printed, hours rounded to 0.01 h first",
        "that is 13.6 times the price of p2.xlarge, 3.8 times its speed",
        "recovered from the printed ratios by least squares",
        "880 iterations are 11 epochs; 14 are printed",
        "480 iterations are 12 epochs; 14 are printed",
        *(f"iterations are {count} epochs" for count in (87, 82, 92, 123)),
        "Table 5.4: errors are shares of the real time",
        *(f"Table {table}: errors are shares of the estimate time" for table in ("5.2", "5.3", "5.5", "5.9")),
        "p3.16xlarge, 10 epochs: time x price gives 19.1; 12.2 is printed",
        "p2.16xlarge, 20 epochs: time x price gives 15.9; 13.9 is printed",
        "real time of 167.40 s; 167.17 is printed",
        "real 241.7 s is printed, 248.5 s",
        "with 50,000 images, 1 of 4 iterations",
        "with 60,000 images, 4 of 4 iterations",
        "batch 256: the estimate fits a second validation of 0.011 s",
        "batch 2048: the estimate fits a second validation of 0.018 s",
        "seismic/FCN: methodology 1 costs 14.7% of 35.84 USD, a saving of 85.3%",
        "MNIST/Simple-CNN: methodology 1 costs 37.8% of 19.21 USD, a saving of 62.2%",
        "MNIST/Simple-CNN: methodology 2 costs 13.6% of 19.21 USD, a saving of 86.4%",
        "methodology 2 saves 64.0% of the cost of methodology 1",
        "Tables 5.6 and 5.7, p2.xlarge: the real time of the same run is 4.01 and 5.27",
        "MNIST/Simple-CNN, batch 256: 195 iterations are those of 1 epochs; 15 epochs are printed beside them",
        "Table 5.9: the caption states 3 runs, the text 5",
        "CIFAR-10: images of 28x28 are printed; they have 32x32 pixels",
        "the costs of methodology 2 sum to 2.61 USD; 2.62 is printed",
        "Table 5.2, equation 5.1, epochs 13 / 11 / 12 / 16: 4 of 4, to the printed digit",
        "Table 5.5, equation 5.4, epochs 13 / 14 / 14 / 16, with images / batch size: 4 of 4 within the rounding",
        "with whole iterations: 0 of 4 within the rounding",
        *(
            f"Table {table}: the caption names equation {caption}; it shows equation {shown}"
            for table, caption, shown in (("5.2", "4.1", "5.1"), ("5.4", "5.3", "5.4"), ("5.5", "5.3", "5.4"))
        ),
        "Table 5.2, validation included in epoch time: mean error 1.60 %",
        "Table 5.3, validation yes: mean error 4.85 %",
        "Table 5.4, validation no: mean error 4.94 %",
        "Table 5.5, validation no: mean error 7.64 %",
        "Table 5.9, validation yes: mean error 2.33 %",
        "Table 5.9, validation no: mean error 8.91 %",
        "best by time: p3.8xlarge at batch 1024, 12 epochs, 32 s, 0.11 USD; the table's smallest: p3.8xlarge at",
        "best by cost: p2.xlarge at batch 512, 11 epochs, 122 s, 0.03 USD; the table's smallest: p2.xlarge at",
        "best by time: p3.8xlarge at batch 512, 82 epochs, 705 s, 2.40 USD; the table's smallest: p3.8xlarge at",
        "best by cost: p3.2xlarge at batch 1024, 92 epochs, 1024 s, 0.87 USD; the table's smallest: p3.2xlarge at",
        "USD; the study on p2.xlarge cost 15.87 and two epochs of every pair 1.83: 6.8%",
        "5 trainings at every batch size would cost 8.51 USD, one probe of each 0.53: 6.2%; printed are 7.65 and 0.88",
        "batch  512: 8 K80 3.15 (39%), 16 K80 2.45 (15%), 4 V100 1.78 (45%), 8 V100 1.37 (17%)",
        "batch  512: 8 K80 1.58 (20%), 16 K80 0.87 (5%), 4 V100 1.13 (28%), 8 V100 0.40 (5%)",
        "CIFAR-10/ResNet-50: p2.xlarge 512, p2.8xlarge 512, p2.16xlarge not reached, p3.2xlarge 1024, p3.8xlarge 512",
        "batch  256: 46.5 s, 28% of 15 epochs, less than 1 % from 571 epochs on",
        "exhaustive 35.84 USD, methodology 1 5.26",
        "exhaustive 19.21 USD, methodology 1 7.27, methodology 2 2.62",
    ],
)
def test_it_prints_the_known_scores(output: str, line: str) -> None:
    assert line in output


def test_the_cost_of_choosing_is_that_of_its_table(output: str) -> None:
    # Table 4.4 prints 35.84 and 0.84, each summed from rounded parts.
    assert re.search(r"\b35\.95 USD.*\b0\.84\b", output)


@pytest.mark.parametrize("table", ["5.7", "5.8", "5.10", "5.11", "5.12", "5.13", "A.1", "A.2", "A.3", "B.1", "B.4"])
def test_it_prints_every_ranking_table(output: str, table: str) -> None:
    assert f"\nTable {table}: " in output


MNIST_TABLES = ("5.10", "5.11", "5.12", "5.13", "B.1", "B.2", "B.3", "B.4")


@pytest.mark.parametrize("table", MNIST_TABLES)
def test_tables_of_mnist_have_a_half_with_and_one_without_validation(output: str, table: str) -> None:
    headings = [line for line in output.splitlines() if line.startswith(f"Table {table}: MNIST")]
    assert [heading.endswith(", without validation") for heading in headings] == [False, True]


def test_halves_without_validation_meet_the_printed_ratios_and_are_not_scored(output: str) -> None:
    sections = output.partition("SCORES OVER")[0].split("\nTable ")[1:]
    halves = [section for section in sections if "without validation" in section.splitlines()[0]]
    assert len(halves) == len(MNIST_TABLES)
    for section in halves:
        assert float(section.partition("met within ")[2].partition("%")[0]) <= 0.5


def test_tables_5_12_and_5_13_have_the_columns_they_really_show(output: str) -> None:
    for table in ("5.12", "5.13"):
        header = output.split(f"\nTable {table}: ")[1].splitlines()[1].split()
        assert header == ["epochs", "10", "20", "25", "real"]


def test_every_recovered_ratio_is_the_printed_one_within_its_rounding(thesis: ModuleType) -> None:
    for application, batch_size, validation in thesis.CASES:
        where = {"application": application, "batch_size": str(batch_size), "with_validation": validation}
        printed = [row for row in thesis.read("rankings", **where) if row["table"] != "5.6"]
        lines = thesis.recover_lines(printed)
        prices = {vm: thesis.PRICES.price(vm) for vm in thesis.VMS}
        for row in printed:
            if row["column"] == "real" or "erratum" in row["note"]:
                continue
            epochs = int(row["column_per_text"])
            values = {vm: a + b * epochs for vm, (a, b) in lines.items()}
            if row["objective"] == "cost":
                values = {vm: value * prices[vm] for vm, value in values.items()}
            ratio = values[row["instance_type"]] / min(values.values())
            last_digit = 10.0 ** -len(row["value"].partition(".")[2])
            # The printed ratios were themselves rounded from rounded times: at most two in the last digit.
            assert abs(ratio - float(row["value"])) < 2 * last_digit, (row, ratio)


def test_a_tie_splits_the_point_and_the_regret(thesis: ModuleType) -> None:
    simulated = pd.Series(dict.fromkeys(thesis.VMS, 3.0)) + pd.Series(range(6), index=thesis.VMS)
    simulated["p2.xlarge"], simulated["p3.2xlarge"] = 1.0, 1.001
    real = simulated.copy()
    real["p2.xlarge"], real["p3.2xlarge"] = 1.02, 1.0
    found = thesis.score(simulated, real)
    assert found.winners == ("p2.xlarge", "p3.2xlarge")
    assert (found.top_1, round(found.regret, 6)) == (0.5, 0.01)


def test_the_seed_file_is_the_only_copy_of_its_numbers() -> None:
    with (SCRIPT.parents[1] / "tests/data/malta/malta-rankings.csv").open(encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == 600


def test_every_number_of_the_errata_is_printed(output: str) -> None:
    assert not list_numbers(WRONG_VALUES, "Reproduced values", "Errors of prediction") - find_numbers(output)
