"""Files of codecarbon: what is read, what is written, and damaged files."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from vmselect.errors import ArgumentError

HEADER = (
    "timestamp,project_name,run_id,duration,emissions,energy_consumed,cpu_energy,gpu_energy,ram_energy,gpu_count,pue"
)
RUN = "2026-01-01T00:00:00,demo,r1,3600,0.05,0.2,0.03,0.12,0.05,2,1.0"


def training(**changes: object) -> vs.Profile:
    times = {
        "instance_type": "g4dn.xlarge", "provider": "aws", "region": "us-east-1", "batch_size": 64,
        "total_seconds": 1800, "epochs": 3, "gpu_watts": 60, "model": "demo",
    }  # fmt: skip
    return vs.Profile.from_times(**(times | changes))  # type: ignore[arg-type]


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_runs_of_codecarbon_are_read(tmp_path: Path) -> None:
    run = vs.energy.load_emissions(write(tmp_path / "emissions.csv", HEADER, RUN))[0]
    assert (run.seconds, run.energy_kwh, run.co2_kg, run.gpu_kwh, run.gpu_count) == (3600, 0.2, 0.05, 0.12, 2)
    assert run.gpu_watts == pytest.approx(120)
    extended = run.add_to(training(gpu_watts=None))
    assert extended.energy is not None
    assert extended.energy.gpu_watts == pytest.approx(120)
    assert len(extended.energy.parts) == 2


def test_a_run_without_a_gpu_has_no_gpu_power(tmp_path: Path) -> None:
    run = vs.energy.load_emissions(write(tmp_path / "e.csv", HEADER, RUN.replace(",0.12,0.05,2,", ",0,0.05,,")))[0]
    assert run.gpu_watts is None
    with pytest.raises(ArgumentError):
        run.add_to(training())


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "emissions.csv"
    vs.energy.save_emissions(training(), path)
    vs.energy.save_emissions([training(region="eu-north-1")], path)
    here, there = vs.energy.load_emissions(path)
    assert here.gpu_watts == pytest.approx(60)
    assert here.energy_kwh / here.pue == pytest.approx(there.energy_kwh / there.pue)
    assert here.co2_kg > 20 * there.co2_kg
    factor = vs.energy.Emissions().factor("aws", "us-east-1")
    assert factor is not None
    assert here.co2_kg == pytest.approx(here.energy_kwh * factor.grid_g_per_kwh / 1000)
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    assert [row["cpu_energy"] for row in rows] == ["", ""]  # not measured


def test_rows_are_added_to_a_file_of_codecarbon(tmp_path: Path) -> None:
    path = write(tmp_path / "emissions.csv", HEADER, RUN)
    vs.energy.save_emissions(training(), path)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[:2] == [HEADER, RUN]
    assert vs.energy.load_emissions(path)[0].run_id == "r1"


def test_names_are_no_formulas(tmp_path: Path) -> None:
    path = tmp_path / "emissions.csv"
    vs.energy.save_emissions(training(model="=1+1"), path)
    assert next(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))["project_name"] == "'=1+1"


@pytest.mark.parametrize("changes", [{"gpu_watts": None}, {"provider": "office", "region": "desk"}])
def test_unknown_energy_is_not_written(changes: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(ArgumentError):
        vs.energy.save_emissions(training(**changes), tmp_path / "emissions.csv")
    assert not (tmp_path / "emissions.csv").exists()


@pytest.mark.parametrize(
    "lines",
    [
        ("",), ("a,b", "1,2"), (HEADER, RUN.replace("3600", "-1")), (HEADER, RUN.replace("3600", "nan")),
        (HEADER, RUN.replace("3600", "long")), (HEADER, RUN.replace("3600", "")),
    ],
)  # fmt: skip
def test_damaged_files(lines: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(ArgumentError):
        vs.energy.load_emissions(write(tmp_path / "emissions.csv", *lines))


@pytest.mark.parametrize("path", [3, None, "", "a\0b", b"x", "s3://bucket/emissions.csv"])
def test_wrong_paths(path: Any) -> None:
    with pytest.raises(ArgumentError):
        vs.energy.load_emissions(path)
    with pytest.raises(ArgumentError):
        vs.energy.save_emissions(training(), path)


@pytest.mark.parametrize("profiles", [3, None, [], "x", [training(), 3]])
def test_wrong_profiles(profiles: Any, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError):
        vs.energy.save_emissions(profiles, tmp_path / "emissions.csv")
