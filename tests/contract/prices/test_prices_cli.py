"""``vmselect prices``: what it prints, where, and with which exit code."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import sys
from typing import Any

import pytest
from typer import Exit
from typer.testing import CliRunner

import vmselect as vs
from vmselect.catalog.sources import build_table
from vmselect.cli.prices import app, check, show, split
from vmselect.errors import ArgumentError, CatalogError, RefreshError


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


class FakeAzure:
    provider = "azure"
    region_pattern = r"[a-z]+\d?"
    fault: Exception | None = None

    def missing(self) -> str | None:
        return None

    def fetch(self, region, *, progress):
        if self.fault or region == "westus":
            raise self.fault or RefreshError("westus is down.")
        row = {"provider": "azure", "region": region, "market": "on_demand"}
        rows = [
            {**row, "instance_type": "Standard_NC4as_T4_v3", "usd_per_hour": 0.6},
            {**row, "instance_type": "Standard_New", "usd_per_hour": 1.0},
        ]
        return build_table(rows, "azure", region)


@pytest.fixture
def azure(monkeypatch) -> FakeAzure:
    fake = FakeAzure()
    monkeypatch.setattr("vmselect.catalog.refresh.open_source", lambda *_: fake)
    return fake


def test_show_prints_a_table_cheapest_first_and_the_age_apart(monkeypatch) -> None:
    monkeypatch.setenv("VMSELECT_TODAY", "2027-01-01")
    shown = run("show", "--gpu", "T4", "--provider", "azure")
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert "Standard_NC4as_T4_v3" in lines[2]
    cheapest = vs.Catalog.embedded().offer("Standard_NC4as_T4_v3")  # whatever it costs today
    assert f"{cheapest.usd_per_hour:g}" in lines[2]
    assert cheapest.date in shown.stderr


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run_in_terminal(command: Any, width: int, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[str]:
    """The lines that ``command`` prints to a terminal of this width, without colors."""
    terminal = Terminal()
    with monkeypatch.context() as patch, contextlib.suppress(Exit):
        patch.setenv("COLUMNS", str(width))
        patch.setattr(sys, "stdout", terminal)
        command(**options)
    return re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()


@pytest.mark.parametrize(
    "options",
    [{}, {"gpu": ["H100"]}, {"gpu": ["H100", "A100"], "market": "all"}, {"instance_type": ["g5.xlarge", "p3.2xlarge"]},
     {"provider": ["lambda"], "gpu": ["A10"]}],
)  # fmt: skip
def test_the_table_of_prices_fits_a_terminal(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for width, lines_per_price in ((80, 4), (100, 2)):
        _, head, *lines = run_in_terminal(show, width, monkeypatch, **options)
        assert max(map(len, (head, *lines))) <= width
        # Names may be wrapped, numbers and dates are not.
        whole = r" \d{4}-\d\d-\d\d" if options else r" \d+\.\d+"
        assert sum(bool(re.search(whole, line)) for line in lines) >= len(lines) / lines_per_price
        assert {"USD/GPU-h", "date"} <= set(head.split()) or not options


def test_the_table_marks_stale_and_retired_prices() -> None:
    shown = run("show", "p3.2xlarge", "g5.xlarge", "--region", "us-east-1").stdout.splitlines()
    assert {line.split()[0]: line.split()[-1] for line in shown[2:]}["p3.2xlarge"] == "retired"
    marks = [line.rstrip().endswith("stale") for line in run("show", "--gpu", "H100").stdout.splitlines()[2:]]
    assert marks == sorted(marks)
    assert any(marks)


def test_the_table_names_no_region_where_all_have_one_price() -> None:
    shown = run("show", "--gpu", "A10", "--provider", "lambda")
    assert "lambda *" in shown.stdout
    assert "--region all" in shown.stderr
    for options in (["--gpu", "A10", "--region", "all"], ["--gpu", "A10", "--region", "us-east-1"]):
        assert "lambda us-east-1" in run("show", *options, "--provider", "lambda").stdout
    assert "*" not in run("show", "--provider", "aws").stdout


def test_the_table_of_gpus_has_no_reserved_prices() -> None:
    assert isinstance(run("show", "--market", "reserved_1y").exception, ArgumentError)
    assert run("show", "--market", "reserved_1y", "--gpu", "H100").exit_code == 0


def test_show_as_json_and_csv_can_be_read_back(tmp_path) -> None:
    rows = json.loads(run("show", "--all", "--market", "all", "--format", "json").stdout)
    assert {r["market"] for r in rows} == {"on_demand", "spot", "reserved_1y", "reserved_3y"}
    assert rows[0]["gpu_memory_gib"] is None
    for kind in ("json", "csv"):
        path = tmp_path / f"prices.{kind}"
        path.write_text(run("show", "--all", "--market", "all", "--retired", "--format", kind).stdout)
        assert vs.Catalog.load(path) == vs.Catalog.embedded()


def test_show_at_a_date_and_from_a_file(tmp_path) -> None:
    old = list(csv.DictReader(io.StringIO(run("show", "--all", "--date", "2021-02-28", "--format", "csv").stdout)))
    assert len(old) == 19
    path = vs.Catalog.embedded("2021-02-28").save(tmp_path / "mine.csv")
    shown = run("show", "p2.xlarge", "--catalog", str(path), "--format", "csv")
    assert next(csv.DictReader(io.StringIO(shown.stdout)))["usd_per_hour"] == "0.9"


def test_show_nothing_is_exit_1() -> None:
    shown = run("show", "--gpu", "T4", "--market", "reserved_3y")
    assert shown.exit_code == 1
    assert shown.stdout.startswith("0 prices")


def test_errors_are_left_to_the_top_level() -> None:
    assert isinstance(run("show", "g4dn.xlage").exception, CatalogError)
    assert isinstance(run("check").exception, CatalogError)


def test_refresh_then_check(azure) -> None:
    refreshed = run("refresh", "--provider", "azure", "--format", "json")
    assert refreshed.exit_code == 0
    assert refreshed.stderr.splitlines()[:2] == ["azure eastus fetching", "azure eastus fetched"]
    assert json.loads(refreshed.stdout) == [
        {"provider": "azure", "region": "eastus", "state": "fetched", "rows": 2, "detail": ""}
    ]
    changed = run("check", "--format", "csv")
    assert changed.exit_code == 1
    rows = {r["instance_type"]: r for r in csv.DictReader(io.StringIO(changed.stdout))}
    assert rows["Standard_NC4as_T4_v3"]["change"] == "higher"
    assert rows["Standard_New"]["change"] == "new"
    assert rows["Standard_D8s_v3"]["change"] == "gone"


def test_refresh_with_a_failed_part_is_exit_1(azure) -> None:
    refreshed = run("refresh", "--provider", "azure", "--region", "eastus", "--region", "westus")
    assert refreshed.exit_code == 1
    assert "westus" in refreshed.stderr


def test_a_refresh_that_gives_nothing_is_an_error(azure) -> None:
    azure.fault = RefreshError("Azure is down.")
    assert isinstance(run("refresh", "--provider", "azure").exception, RefreshError)


def test_check_of_two_files(tmp_path) -> None:
    path = vs.Catalog.embedded("2021-02-28").save(tmp_path / "mine.csv")
    same = run("check", str(path), "--before", str(path))
    assert same.exit_code == 0
    assert "no change" in same.stdout


def test_check_lists_invalid_rows(tmp_path) -> None:
    path = vs.Catalog.embedded("2021-02-28").save(tmp_path / "mine.csv")
    damaged = tmp_path / "damaged.csv"
    damaged.write_text(path.read_text() + "aws,ec2,x.large,us-east-1,on_demand,-1,2021-02-01,,,,,,no,me,\n")
    checked = run("check", str(damaged), "--before", str(path))
    assert checked.exit_code == 1
    assert "usd_per_hour -1" in " ".join(checked.stderr.split())


def test_check_names_every_kind_of_faulty_price(tmp_path) -> None:
    path = tmp_path / "planted.csv"
    rows = (
        "runpod,1x_H100-SXM_SECURE,US,on_demand,1.5,2026-08-22",  # half of 3.29
        "aws,p5.48xlarge,us-east-1,on_demand,55.04,2026-08-22",
        "aws,p5.48xlarge,us-east-1,spot,60,2026-08-22",
        "lambda,gpu_1x_a10,us-east-1,on_demand,0.1,2026-08-22",  # far below others
        "hyperbolic,1x-H100-75-722,default,on_demand,1.29,2020-01-01",
        "vast,1x-H100,Texas,on_demand,1.9,2020-01-01",
        *(f"cloud,{name},here,{market},3,2026-08-22" for name in "ab" for market in ("on_demand", "spot")),
    )
    header = "provider,instance_type,region,market,usd_per_hour,date"
    path.write_text("\n".join([header + ",source", *(f"{row},skypilot" for row in rows), ""]))
    checked = run("check", str(path))
    assert checked.exit_code == 1
    text = " ".join(checked.stderr.split())
    for problem in (
        "the price 1.5 is 0.46 times another price of the same machine, 3.29",
        "the spot price 60 is not below the on-demand price 55.04",
        "every spot price of the provider equals the on-demand price, here 3",
        "1 price is stale (hyperbolic on_demand of 2020-01-01)",
        "1 price is only typical",
    ):
        assert problem in text, text
    listed = run("check", str(path), "--flagged", "--format", "json")
    flags = {row["instance_type"]: row["flag"] for row in json.loads(listed.stdout)}
    assert flags["1x_H100-SXM_SECURE"] == "half-price"
    assert flags["gpu_1x_a10"] == "half-price"
    assert flags["a"] == "spot-placeholder"


def test_show_names_the_implausible_prices_that_it_lists() -> None:
    shown = run("show", "p5.48xlarge", "--region", "ap-southeast-3", "--market", "all", "--date", "2026-08-22")
    assert "75.9552" in shown.stdout
    assert "1 price (aws) of the spot market is not below on demand" in " ".join(shown.stderr.split())
    assert "not below on demand" not in run("show", "p5.48xlarge", "--region", "us-east-1", "--market", "all").stderr


def test_check_names_invalid_rows_also_beside_flagged_prices(tmp_path) -> None:
    path = tmp_path / "prices.csv"
    rows = ("lab,a,here,on_demand,1", "lab,a,here,on_demand,2")
    path.write_text("\n".join(["provider,instance_type,region,market,usd_per_hour", *rows, ""]))
    for options in ([], ["--json"]):
        checked = run("check", str(path), "--flagged", *options)
        assert "line 3" in checked.stderr
        assert checked.exit_code == 1


def test_check_lists_implausible_shipped_prices_if_none_were_refreshed() -> None:
    listed = run("check", "--flagged", "--format", "json")
    assert listed.exit_code == 1
    rows = json.loads(listed.stdout)
    assert rows[0]["implausible"]
    assert {row["flag"] for row in rows} >= {"spot-above-on-demand", "far-below-median", "one-price-everywhere"}
    assert "stale" in listed.stderr


def test_the_tables_of_check_fit_a_terminal(azure, monkeypatch: pytest.MonkeyPatch) -> None:
    title, head, *flagged = run_in_terminal(check, 100, monkeypatch, flagged=True)
    implausible = int(vs.Catalog.embedded().check()["implausible"].sum())
    assert title.startswith(f"{implausible} implausible prices")
    assert "reason" not in head  # messages explain each flag
    assert max(map(len, (head, *flagged))) <= 100
    assert sum("spot-above-on-demand" in line for line in flagged) == 28
    run("refresh", "--provider", "azure")
    _, head, *changed = run_in_terminal(check, 100, monkeypatch)
    assert max(map(len, (head, *changed))) <= 100
    assert any(line.startswith("higher") and "Standard_NC4as_T4_v3" in line for line in changed)


def test_lists_are_written_with_commas_or_repeated() -> None:
    once = run("show", "--provider", "aws,gcp", "--gpu", "t4,L4", "--market", "on_demand,spot", "--json")
    again = run("show", "--provider", "aws", "--provider", "gcp", "--gpu", "T4", "--gpu", "L4", "--market",
                "on_demand,spot", "--json")  # fmt: skip
    rows = json.loads(once.stdout)
    assert {(row["provider"], row["market"]) for row in rows} >= {("aws", "spot"), ("gcp", "on_demand")}
    assert rows == json.loads(again.stdout)
    spaced = run("show", "--provider", "aws, gcp", "--gpu", "T4, L4", "--market", "on_demand, spot", "--json")
    assert rows == json.loads(spaced.stdout)
    assert split(["Texas, US,us-1"]) == ["Texas, US", "us-1"]


def test_show_without_options_has_a_line_per_gpu() -> None:
    shown = run("show")
    assert shown.exit_code == 0
    lines = [line.split()[0] for line in shown.stdout.splitlines()[2:] if line.strip()]
    assert lines == vs.Catalog.embedded().gpus()["gpu_model"].tolist()
    rows = json.loads(run("show", "--region", "eu", "--json").stdout)
    assert {"gpu_model", "usd_per_gpu_hour", "spot_usd_per_gpu_hour", "providers"} <= set(rows[0])
    spot = [row["spot_usd_per_gpu_hour"] for row in json.loads(run("show", "--market", "spot", "--json").stdout)]
    cheapest = json.loads(run("show", "--market", "spot", "--top", "2", "--json").stdout)
    assert [row["spot_usd_per_gpu_hour"] for row in cheapest] == sorted(spot)[:2] != spot[:2]


def test_the_age_of_a_summary_is_that_of_its_prices(tmp_path) -> None:
    # Stale prices are not in the summary, so they do not make it old.
    rows = [
        "new,a,here,on_demand,2026-11-01,1.0,T4,1", "old,b,here,on_demand,2020-01-01,1.0,T4,1",
        "cpu,c,here,on_demand,2025-12-01,1.0,,0",
    ]  # fmt: skip
    file = tmp_path / "prices.csv"
    header = "provider,instance_type,region,market,date,usd_per_hour,gpu_model,gpu_count"
    file.write_text("\n".join([header, *rows, ""]))
    shown = run("show", "--catalog", str(file))
    assert shown.exit_code == 0
    assert "2020-01-01" not in shown.stderr
    assert "2025-12-01" not in shown.stderr


def test_variants_of_a_gpu_are_named_with_their_prices() -> None:
    shown = run("show", "--gpu", "H100", "--region", "eu")
    cheapest = vs.Catalog.embedded().gpus(region="eu", gpu=["H100-PCIe", "H100-NVL"], market="on_demand")
    for row in cheapest.itertuples():
        assert f"{row.gpu_model} from ${row.usd_per_gpu_hour:.2f}" in shown.stderr
    assert len(cheapest) == 2
    every = run("show", "--gpu", "h100,H100-pcie,H100-NVL", "--region", "eu")
    assert "variants" not in every.stderr
    assert "variants" not in run("show", "--gpu", "T4").stderr


def test_one_command_finds_the_cheapest_gpu_in_europe() -> None:
    rows = json.loads(run("show", "--gpu", "H100", "--region", "eu", "--json").stdout)
    table = vs.Catalog.embedded().gpus(region="eu", gpu="H100")
    assert rows[0]["usd_per_gpu_hour"] == table["usd_per_gpu_hour"].iloc[0]
    assert (rows[0]["provider"], rows[0]["region"]) == (table["provider"].iloc[0], table["region"].iloc[0])
    keys = [(row["stale"], round(row["usd_per_gpu_hour"], 9)) for row in rows]
    assert keys == sorted(keys)  # stale prices come last
    types = [(row["provider"], row["instance_type"], row["stale"]) for row in rows]
    assert len(set(types)) == len(types)
    assert max(row["regions_compared"] for row in rows) > 2
    every = json.loads(run("show", "--gpu", "H100", "--region", "all", "--json").stdout)
    assert len(every) == len(vs.Catalog.embedded().offers(gpu="H100", retired=False))
