from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

import vmselect as vs
from vmselect.comparison.shared_ratios import COLUMNS, share_ratios, write_ratios

SECRETS = {
    "model": "secret-model", "path": "secret-folder", "host": "secret-host", "user": "secret-user",
    "dataset": "secret-data",
}  # fmt: skip


def make(machine: str, seconds: float, *, batch_size: int = 48, model: str = SECRETS["model"]) -> vs.Profile:
    return vs.Profile.from_times(
        instance_type=machine, batch_size=batch_size, iteration_seconds=[seconds] * 3, model=model, examples=987_654,
        region="secret-region", init_seconds=12.3456,
        factors={"user": SECRETS["user"], "dataset": SECRETS["dataset"], "path": f"/home/{SECRETS['path']}"},
    )  # fmt: skip


def test_ratios_of_the_same_training_on_two_machine_types() -> None:
    rows = share_ratios([make("g4dn.xlarge", 0.4), make("g4dn.xlarge", 0.4), make("g5.xlarge", 0.1)])
    assert [row["time_ratio"] for row in rows] == [4.0]
    assert [(row["instance_type"], row["compared_with"]) for row in rows] == [("g4dn.xlarge", "g5.xlarge")]
    assert rows[0]["batch_size"] == "17-64"
    assert rows[0]["trainings"] == 1


def test_different_trainings_are_not_compared() -> None:
    assert share_ratios([make("g4dn.xlarge", 0.4), make("g5.xlarge", 0.1, batch_size=64)]) == []
    assert share_ratios([make("g4dn.xlarge", 0.4), make("g5.xlarge", 0.1, model="another")]) == []


def test_the_export_has_nothing_that_identifies_the_team(tmp_path: Path) -> None:
    profiles = [
        make("g4dn.xlarge", 0.4123), make("g5.xlarge", 0.1357), make(SECRETS["host"], 0.2),
        make("p3.2xlarge", 0.0951, model=SECRETS["model"]),
    ]  # fmt: skip
    text = write_ratios(share_ratios(profiles), tmp_path / "ratios.csv").read_text(encoding="utf-8")
    for profile in profiles:
        forbidden = [
            *SECRETS.values(), "secret", profile.id[:8], f"{profile.created:%Y-%m}", f"{profile.created:%Y%m}",
            profile.writer, "0.4123", "0.1357", "0.0951", "412", "12.3", "987654", "48", str(tmp_path),
        ]  # fmt: skip
        assert not [word for word in forbidden if word in text]
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == 3
    for row in rows:
        assert tuple(row) == COLUMNS
        assert row["precision"] in ("half", "single", "strict", "unknown")
        assert re.fullmatch(r"\d+-\d+|unknown", row["batch_size"])
        assert float(row["time_ratio"]) == pytest.approx(float(f"{float(row['time_ratio']):.3g}"))
