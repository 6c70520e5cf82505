"""Power readings of GPUs and of the CPU: counters, samples, resets, lost cards; against a driver library built here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.nvml import CARD, COMPILER, Driver
from vmselect.probe.counters import RaplReader
from vmselect.records.usage import MeasuredEnergy, Usage, measured_energy

PROGRAM = """
import json, sys
from pathlib import Path
from vmselect.probe.counters import GpuReader
from vmselect.probe.sampling import Sampler

def write(cards):
    lines = [f"-1 cards {len(cards)}"]
    lines += [f"{i} {name} {value}" for i, card in enumerate(cards) for name, value in card.items()]
    Path(sys.argv[1]).write_text("\\n".join(lines) + "\\n")

found = {}
for name, timeline in json.load(sys.stdin).items():
    now = [0.0]
    write(timeline[0])
    sampler = Sampler(1.0, clock=lambda: now[0])
    sampler._readers = [GpuReader()]
    sampler.enter("steady_steps")
    for cards in timeline[1:]:
        now[0] += 1.0
        write(cards)
        sampler._tick()
    found[name] = sampler.usage().model_dump(mode="json")
print(json.dumps(found))
"""

WATTS = [40, 65, 70, 66, 20, 68, 70, 67, 69, 45] * 3
"""Power in each second."""


def follow(watts: list[int], *, counter: bool = True, power: bool = True) -> list[dict[str, int]]:
    """The answers of a card at the start and after each second."""
    used = [sum(watts[:second]) * 1000 for second in range(len(watts) + 1)]
    plain = {name: value for name, value in CARD.items() if name != "milliwatts"}
    return [
        plain
        | ({"millijoules": 5_000_000 + joules} if counter else {})
        | ({"milliwatts": (watts[second - 1] if second else 0) * 1000} if power else {})
        for second, joules in enumerate(used)
    ]


def reset(card: list[dict[str, int]], at: int) -> list[dict[str, int]]:
    """The same answers, with an energy counter that starts at 0 again."""
    base = card[at]["millijoules"]
    return [one if i < at else one | {"millijoules": one["millijoules"] - base} for i, one in enumerate(card)]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, MeasuredEnergy | None]:
    if COMPILER is None:
        pytest.skip("there is no C compiler to build the driver stub with")
    driver = Driver(tmp_path_factory.mktemp("driver"))
    half = [2 * watts for watts in WATTS]
    lost: Any = [[one, {"lost": 1}] for one in follow(WATTS)[16:]]
    timelines: dict[str, Any] = {
        "counter": [[one] for one in follow(WATTS)],
        "counter only": [[one] for one in follow(WATTS, power=False)],
        "samples": [[one] for one in follow(WATTS, counter=False)],
        "missing": [[one] for one in follow(WATTS, counter=False, power=False)],
        "reset": [[one] for one in reset(follow(WATTS), 11)],
        "stuck": [[one | {"millijoules": 7}] for one in follow(WATTS)],
        "two": [list(pair) for pair in zip(follow(WATTS), follow(half, counter=False), strict=True)],
        "lost": [list(pair) for pair in zip(follow(WATTS), follow(half), strict=True)][:16] + lost,
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(driver.answers)], env=driver.environment, input=json.dumps(timelines),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    usages = {name: Usage.model_validate_json(json.dumps(one)) for name, one in json.loads(done.stdout).items()}
    return {name: measured_energy(one, gpus=2 if name in ("two", "lost") else 1) for name, one in usages.items()}


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("counter", "counter"), ("counter only", "counter"), ("samples", "samples"), ("reset", "counter"),
        ("stuck", "samples"),
    ],
)  # fmt: skip
def test_energy_of_one_card(measured: dict[str, MeasuredEnergy], name: str, source: str) -> None:
    assert measured[name].joules == pytest.approx(sum(WATTS), rel=0.01)
    assert measured[name].watts == pytest.approx(sum(WATTS) / len(WATTS), rel=0.01)
    assert measured[name].parts[0].source == source


def test_a_card_without_power_has_no_energy(measured: dict[str, MeasuredEnergy | None]) -> None:
    assert measured["missing"] is None


def test_two_cards_count_together(measured: dict[str, MeasuredEnergy]) -> None:
    assert measured["two"].joules == pytest.approx(3 * sum(WATTS), rel=0.01)
    assert [part.source for part in measured["two"].parts] == ["counter", "samples"]


def test_a_card_that_vanishes_is_unknown_afterwards(measured: dict[str, MeasuredEnergy]) -> None:
    whole, part = measured["lost"].parts
    assert whole.joules == pytest.approx(sum(WATTS), rel=0.01)
    assert part.joules == pytest.approx(2 * sum(WATTS[:15]), rel=0.01)
    assert part.seconds == pytest.approx(15)
    assert measured["lost"].missing == ("gpu1",)
    assert measured["lost"].joules is None


# -- CPU ---------------------------------------------------------------------------------------------------------------


def write_zones(root: Path, **zones: tuple[str, float | None]) -> None:
    """Zones of the kernel's powercap folder: name and energy in joules; None is not readable."""
    for zone, (name, joules) in zones.items():
        folder = root / zone.replace("_", ":").replace("rapl", "intel-rapl")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "max_energy_range_uj").write_text("1000000000\n")  # 1000 J
        if joules is not None:
            (folder / "energy_uj").write_text(f"{int(joules * 1e6)}\n")


def test_packages_and_memory_are_summed(tmp_path: Path) -> None:
    write_zones(
        tmp_path, rapl_0=("package-0", 10), rapl_1=("package-1", 20), rapl_0_0=("dram", 1), rapl_0_1=("core", 0)
    )
    reader = RaplReader(tmp_path)
    write_zones(
        tmp_path, rapl_0=("package-0", 60), rapl_1=("package-1", 100), rapl_0_0=("dram", 5), rapl_0_1=("core", 9)
    )
    assert reader.read(2.0) == pytest.approx({"cpu_power_watts": 65.0, "memory_power_watts": 2.0})
    assert reader.sources == {"cpu": "rapl", "memory": "rapl"}


def test_a_counter_that_starts_again_at_zero(tmp_path: Path) -> None:
    write_zones(tmp_path, rapl_0=("package-0", 990))
    reader = RaplReader(tmp_path)
    write_zones(tmp_path, rapl_0=("package-0", 40))
    assert reader.read(1.0) == pytest.approx({"cpu_power_watts": 50.0})


def test_one_package_that_cannot_be_read_makes_the_power_unknown(tmp_path: Path) -> None:
    write_zones(tmp_path, rapl_0=("package-0", 10), rapl_1=("package-1", None))
    reader = RaplReader(tmp_path)
    assert (reader.read(1.0), reader.sources) == ({}, {})


def test_a_package_that_can_no_longer_be_read(tmp_path: Path) -> None:
    write_zones(tmp_path, rapl_0=("package-0", 10))
    reader = RaplReader(tmp_path)
    (tmp_path / "intel-rapl:0" / "energy_uj").unlink()
    assert reader.read(1.0) == {}
    write_zones(tmp_path, rapl_0=("package-0", 500))
    assert reader.read(1.0) == {}  # the reading before is unknown
    write_zones(tmp_path, rapl_0=("package-0", 530))
    assert reader.read(1.0) == pytest.approx({"cpu_power_watts": 30.0})


def test_no_counters(tmp_path: Path) -> None:
    assert RaplReader(tmp_path / "none").read(1.0) == {}
