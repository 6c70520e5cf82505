"""``vmselect serve inference``: machines ranked for a load; ``serve transfer`` has integration tests with stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from vmselect.cli import app
from vmselect.records import InferenceRecord


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, seconds in (("g4dn.xlarge", 0.02), ("g5.xlarge", 0.008)):
        record = InferenceRecord.from_times(instance_type=name, batch_size=32, call_seconds=[seconds] * 200)
        record.save(tmp_path / f"{name}.json")
    return tmp_path


def serve(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["serve", "inference", *map(str, arguments)])


def test_machines_are_ranked_for_a_load(folder: Path) -> None:
    done = serve(folder, "--load", 3000, "--date", "2026-08-22", "--json")
    assert done.exit_code == 0
    rows = json.loads(done.stdout)
    assert [(row["instance_type"], row["instances"]) for row in rows] == [("g5.xlarge", 1), ("g4dn.xlarge", 2)]


def test_the_last_load_decides(folder: Path) -> None:
    rows = json.loads(serve(folder, "--load", 3000, "--load", 100, "--json").stdout)
    assert [row["load"] for row in rows] == [100, 100, 3000, 3000]


def test_an_impossible_load_is_exit_code_1(folder: Path) -> None:
    done = serve(folder, "--load", 1e9)
    assert done.exit_code == 1
    assert "capacity" in done.stderr


def test_own_prices_take_precedence(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text(
        "provider,instance_type,region,market,usd_per_hour\naws,g4dn.xlarge,us-east-1,on_demand,0.001\n"
    )
    rows = json.loads(serve(folder, "--own-prices", tmp_path / "own.csv", "--region", "us-east-1", "--json").stdout)
    assert rows[0]["instance_type"] == "g4dn.xlarge"
    assert rows[0]["hourly_usd"] == 0.001
