"""GPU counters through the real binding, against a driver library built here. No GPU was at hand."""

import json
import subprocess
import sys

import pytest

from tests.support.nvml import CARD, COMPILER, Driver

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler to build the driver stub with")

PROGRAM = """
import json, sys
from pathlib import Path
from vmselect.probe.sampling.gpus import GpuReader
from vmselect.probe.facts.hardware import read_gpus
reader = GpuReader()
first = reader.read(1.0)
if len(sys.argv) > 1:
    Path(sys.argv[2]).replace(sys.argv[1])
second = reader.read(1.0)
third = reader.read(1.0)
reader.close()
print(json.dumps([first, second, third, reader.read(1.0), [gpu.model_dump() for gpu in read_gpus()]]))
"""


def ask(driver, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], env=driver.environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.fixture
def driver(tmp_path):
    return Driver(tmp_path)


def test_two_cards(driver):
    driver.answer(CARD, CARD | {"utilization": 20, "temperature": 70})
    first, *_, after_close, gpus = ask(driver)
    assert first["gpu0_busy_share"] == 0.8
    assert first["gpu1_busy_share"] == 0.2
    assert first["gpu0_memory_used_bytes"] == 4 * 2**30
    assert first["gpu0_power_watts"] == 60
    assert (first["gpu0_temperature_celsius"], first["gpu1_temperature_celsius"]) == (55, 70)
    assert (first["gpu0_clock_megahertz"], first["gpu0_memory_clock_megahertz"]) == (1500, 5000)
    assert after_close == {}
    assert [gpu["name"] for gpu in gpus] == ["Stub GPU", "Stub GPU"]


def test_a_question_that_is_not_supported(driver):
    driver.answer({name: value for name, value in CARD.items() if name not in ("milliwatts", "reasons")})
    first, *_ = ask(driver)
    assert "gpu0_power_watts" not in first
    assert "gpu0_throttled_by_heat_share" not in first
    assert first["gpu0_busy_share"] == 0.8


def test_a_function_that_the_driver_lacks(tmp_path):
    driver = Driver(tmp_path, "-DWITHOUT_TEMPERATURE")
    driver.answer(CARD)
    first, second, *_ = ask(driver)
    assert "gpu0_temperature_celsius" not in first
    assert second["gpu0_busy_share"] == 0.8


def test_a_card_that_vanishes(driver, tmp_path):
    driver.answer(CARD, {"lost": 1})
    lost = tmp_path / "lost.txt"
    driver.answers.rename(lost)
    driver.answer(CARD, CARD)
    first, second, third, *_ = ask(driver, str(driver.answers), str(lost))
    assert "gpu1_busy_share" in first
    assert not [name for name in second | third if name.startswith("gpu1")]
    assert third["gpu0_busy_share"] == 0.8


@pytest.mark.parametrize(
    ("reasons", "heat", "power"),
    [(0x00, 0, 0), (0x01, 0, 0), (0x04, 0, 1), (0x20, 1, 0), (0x40, 1, 0), (0x80, 0, 1), (0x44, 1, 1)],
)
def test_throttling(driver, reasons, heat, power):
    driver.answer(CARD | {"reasons": reasons})
    first, *_ = ask(driver)
    assert (first["gpu0_throttled_by_heat_share"], first["gpu0_throttled_by_power_share"]) == (heat, power)


def test_no_driver(tmp_path):
    driver = Driver(tmp_path)
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"no library")
    assert ask(driver) == [{}, {}, {}, {}, []]
