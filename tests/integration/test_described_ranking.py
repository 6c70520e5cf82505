"""From the definition of a Keras model to a ranking of all machines, on a machine without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import vmselect as vs
from vmselect.cli import app

keras = pytest.importorskip("keras")
jsonschema = pytest.importorskip("jsonschema")


@pytest.fixture(scope="module")
def model() -> Any:
    return keras.applications.MobileNetV2(weights=None)


@pytest.fixture(scope="module")
def described(model: Any) -> vs.Profile:
    return vs.describe(model, batch_size=128, examples=50_000, optimizer="adam", epochs=50)


def test_all_machines_are_ranked(described: vs.Profile, tmp_path: Path) -> None:
    ranking = vs.rank(described, machines="all")
    assert len(ranking) > 100
    assert {row.basis for row in ranking} == {"described"}
    assert ranking.verdict.startswith("Probably rent ")
    assert ranking.report(tmp_path / "page.html").stat().st_size > 100_000
    output = json.loads(ranking.to_json(top=20))
    schema = json.loads(CliRunner().invoke(app, ["schema", "ranking"]).stdout)
    jsonschema.validate(output, schema)
    assert output["variants"]


def test_the_command_line_ranks_the_record(described: vs.Profile, tmp_path: Path) -> None:
    described.save(tmp_path)
    result = CliRunner().invoke(app, ["rank", str(tmp_path), "--top", "5", "--json"])
    assert result.exit_code == 0
    assert {row["basis"] for row in json.loads(result.stdout)["rows"]} == {"described"}


def test_a_probe_on_this_machine_describes_the_training(tmp_path: Path) -> None:
    import numpy as np

    small = keras.Sequential(
        [keras.layers.Input((32, 32, 3)), keras.layers.Conv2D(8, 3), keras.layers.GlobalMaxPool2D()]
    )
    small.compile(optimizer="adam", loss="mse")
    probe = vs.IterationProbe(tmp_path, steps=5, validations=0, verbose=0)
    x, y = np.zeros((640, 32, 32, 3), dtype="float32"), np.zeros((640, 8), dtype="float32")
    small.fit(x, y, batch_size=32, epochs=3, verbose=0, callbacks=[probe])
    ranking = vs.rank(vs.load_profiles(tmp_path), epochs=50)
    assert {row.basis for row in ranking} == {"described"}
    # A model as small as this one mostly waits for the host, so that only intervals are stated.
    assert all(row.interval_only for row in ranking)
