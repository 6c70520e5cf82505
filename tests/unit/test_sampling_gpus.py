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
from vmselect.probe.counters import GpuReader
from vmselect.probe.environment import read_gpus
reader = GpuReader()
first = reader.read(1.0)
reads = [first]
for answers in sys.argv[2:]:
    Path(answers).replace(sys.argv[1])
    reads.append(reader.read(1.0))
reads.append(reader.read(1.0))
reader.close()
print(json.dumps([*reads, reader.read(1.0), [gpu.model_dump() for gpu in read_gpus()]]))
"""


def ask(driver, *later):
    """What one program reads: from the answers there are, from each later ones, again, closed; and the cards."""
    command = [sys.executable, "-c", PROGRAM, str(driver.answers), *map(str, later)]
    done = subprocess.run(command, env=driver.environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def keep(driver, name, *cards):
    """Answers for later, in a file of their own."""
    driver.answer(*cards)
    return driver.answers.rename(driver.answers.with_name(name))


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
    first, again, *_ = ask(driver)
    assert "gpu0_temperature_celsius" not in first
    assert again["gpu0_busy_share"] == 0.8


def test_a_card_that_vanishes(driver):
    lost = keep(driver, "lost.txt", CARD, {"lost": 1})
    driver.answer(CARD, CARD)
    first, second, third, *_ = ask(driver, lost)
    assert "gpu1_busy_share" in first
    assert not [name for name in second | third if name.startswith("gpu1")]
    assert third["gpu0_busy_share"] == 0.8


def test_throttling(driver):
    expected = {
        0x00: (0, 0, 0), 0x01: (0, 0, 0), 0x04: (0, 1, 0), 0x20: (1, 0, 0), 0x40: (1, 0, 0), 0x80: (0, 1, 0),
        0x44: (1, 1, 0), 0x08: (0, 0, 1), 0x48: (1, 0, 0), 0x28: (1, 0, 0), 0x88: (0, 1, 0), 0x0C: (0, 1, 1),
    }  # fmt: skip
    later = [keep(driver, f"{reasons}.txt", CARD | {"reasons": reasons}) for reasons in expected]
    driver.answer(CARD)
    _, *reads, _again, _closed, _cards = ask(driver, *later)
    causes = ("heat", "power", "hardware")
    found = [tuple(read[f"gpu0_throttled_by_{cause}_share"] for cause in causes) for read in reads]
    assert dict(zip(expected, found, strict=True)) == expected


def test_no_driver(tmp_path):
    driver = Driver(tmp_path)
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"no library")
    assert ask(driver) == [{}, {}, {}, []]
