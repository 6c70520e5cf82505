"""``vmselect prices``: what it prints, where, and with which exit code."""

from __future__ import annotations

import csv
import io
import json

import pytest
from typer.testing import CliRunner

import vmselect as vs
from vmselect.catalog.sources import build_table
from vmselect.cli.prices import app, split
from vmselect.errors import CatalogError, RefreshError


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


def test_show_prints_a_table_cheapest_first_and_the_age_apart() -> None:
    shown = run("show", "--gpu", "T4", "--provider", "azure")
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert "Standard_NC4as_T4_v3" in lines[2]
    cheapest = vs.Catalog.embedded().offer("Standard_NC4as_T4_v3")  # whatever it costs today
    assert f"{cheapest.usd_per_hour:g}" in lines[2]
    assert cheapest.date in shown.stderr


def test_show_as_json_and_csv_can_be_read_back(tmp_path) -> None:
    rows = json.loads(run("show", "--market", "all", "--format", "json").stdout)
    assert {r["market"] for r in rows} == {"on_demand", "spot"}
    assert rows[0]["gpu_memory_gib"] is None
    for kind in ("json", "csv"):
        path = tmp_path / f"prices.{kind}"
        path.write_text(run("show", "--market", "all", "--retired", "--format", kind).stdout)
        assert vs.Catalog.load(path) == vs.Catalog.embedded()


def test_show_at_a_date_and_from_a_file(tmp_path) -> None:
    old = list(csv.DictReader(io.StringIO(run("show", "--date", "2021-02-28", "--format", "csv").stdout)))
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


def test_lists_are_written_with_commas_or_repeated() -> None:
    once = run("show", "--provider", "aws,gcp", "--gpu", "t4,L4", "--market", "on_demand,spot", "--json")
    again = run("show", "--provider", "aws", "--provider", "gcp", "--gpu", "T4", "--gpu", "L4", "--market",
                "on_demand,spot", "--json")  # fmt: skip
    rows = json.loads(once.stdout)
    assert {(row["provider"], row["market"]) for row in rows} >= {("aws", "spot"), ("gcp", "on_demand")}
    assert rows == json.loads(again.stdout)
    assert split(["Texas, US,us-1"]) == ["Texas, US", "us-1"]
