"""codecarbon and vmselect measure the same run: both read the energy counter of a driver with known power."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import vmselect as vs
from tests.support.nvml import CARD, COMPILER, Driver
from vmselect.records.usage import Usage, measured_energy

WATTS = 55
PROGRAM = """
import json, socket, sys, time

def refuse(*_):
    raise OSError("this test contacts no host")

socket.socket.connect = socket.socket.connect_ex = refuse
from codecarbon import OfflineEmissionsTracker
from vmselect.probe.sampling import Sampler

tracker = OfflineEmissionsTracker(
    country_iso_code="DEU", output_dir=sys.argv[1], measure_power_secs=1, log_level="error", project_name="run"
)
tracker.start()
sampler = Sampler(0.5)
sampler.start()
sampler.enter("steady_steps")
time.sleep(4)
usage = sampler.stop()
tracker.stop()
print(json.dumps(usage.model_dump(mode="json")))
"""


@pytest.mark.skipif(importlib.util.find_spec("codecarbon") is None, reason="codecarbon is not installed")
@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler to build the driver stub with")
def test_both_measure_the_same_power(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.answer(CARD | {"steady_milliwatts": WATTS * 1000, "milliwatts": WATTS * 1000})
    program = tmp_path / "nvidia-smi"  # without such a program, codecarbon looks for no GPU
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    environment = driver.environment | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    usage = Usage.model_validate_json(done.stdout.strip().splitlines()[-1])
    mine, theirs = measured_energy(usage, gpus=1), vs.energy.load_emissions(tmp_path / "emissions.csv")[0]
    assert mine is not None
    assert mine.gpu_watts == pytest.approx(WATTS, rel=0.01)
    assert theirs.gpu_watts == pytest.approx(WATTS, rel=0.05)  # its last interval may end before the run does
    assert json.loads(done.stdout.strip().splitlines()[-1])["power_sources"] == {"gpu0": "counter"}
    probe = vs.Profile.from_times(instance_type="g4dn.xlarge", batch_size=8, iteration_seconds=0.1)
    assert theirs.add_to(probe).energy.gpu_watts == pytest.approx(WATTS, rel=0.05)  # type: ignore[union-attr]
