"""Probes inside real trainings, on every backend that is installed; one process per backend, all at once."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"
sys.path.insert(0, str(SUPPORT))
import processes  # noqa: E402

SETS = (
    "probe_scenarios",
    "probe_rough_scenarios",
    "probe_backend_scenarios",
    "probe_metronome_scenarios",
    "inference_scenarios",
)
BACKENDS = ("tensorflow", "jax", "torch")
TESTS = [
    (backend, name, scenario)
    for backend in BACKENDS
    for name in SETS
    for scenario in re.findall(r"^def scenario_(\w+)", (SUPPORT / f"{name}.py").read_text("utf-8"), re.MULTILINE)
]

Running = dict[str, tuple[subprocess.Popen[str], Path]]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Running:
    """A process for each installed backend, which runs all scenarios and then writes what became of them."""
    folder = tmp_path_factory.mktemp("scenarios")
    return {
        backend: (processes.start("scenarios.py", results, *SETS, KERAS_BACKEND=backend), results)
        for backend, results in ((backend, folder / f"{backend}.json") for backend in BACKENDS)
        if importlib.util.find_spec(backend) is not None
    }


@pytest.fixture(scope="module")
def outcomes(running: Running) -> dict[str, dict[str, str]]:
    """Backend to scenario to what became of it, filled when a backend is first asked for."""
    return {}


@pytest.mark.parametrize(("backend", "name", "scenario"), TESTS)
def test_scenario(backend: str, name: str, scenario: str, running: Running, outcomes) -> None:
    if backend not in running:
        pytest.skip(f"{backend} is not installed: this scenario was left out on it")
    if backend not in outcomes:
        process, results = running[backend]
        _, errors = process.communicate(timeout=500)
        assert process.returncode == 0, errors[-3000:]
        outcomes[backend] = json.loads(results.read_text("utf-8"))
    outcome = outcomes[backend][f"{name}.scenario_{scenario}"]
    if outcome.startswith("skipped: "):
        pytest.skip(outcome.removeprefix("skipped: "))
    assert outcome == "passed", outcome
