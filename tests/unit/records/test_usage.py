"""Measured energy: what is integrated, what is missing, and that nothing missing counts as zero."""

from __future__ import annotations

import pytest

import vmselect as vs
from vmselect.records.usage import Summary, Usage, measured_energy


def summary(mean: float, seconds: float) -> Summary:
    return Summary(count=1, seconds=seconds, mean=mean, maximum=mean, p50=mean, p95=mean)


def usage(**phases: dict[str, tuple[float, float]]) -> Usage:
    found = {phase: {name: summary(*value) for name, value in each.items()} for phase, each in phases.items()}
    return Usage(interval_seconds=1.0, phases=found, power_sources={"gpu0": "counter"})  # type: ignore[arg-type]


def test_energy_is_the_sum_over_phases_and_parts() -> None:
    measured = measured_energy(
        usage(
            initialization={
                "cpu_share": (0.5, 10.0),
                "gpu0_power_watts": (20.0, 10.0),
                "cpu_power_watts": (30.0, 10.0),
            },
            steady_steps={"gpu0_power_watts": (60.0, 50.0), "cpu_power_watts": (40.0, 50.0), "cpu_share": (1.0, 50.0)},
        ),
        gpus=1,
    )
    assert measured is not None
    assert measured.joules == pytest.approx(20 * 10 + 60 * 50 + 30 * 10 + 40 * 50)
    assert (measured.gpu_watts, measured.cpu_watts, measured.watts) == (60.0, 40.0, 100.0)
    assert {part.name: part.source for part in measured.parts} == {"gpu0": "counter", "cpu": "samples"}


@pytest.mark.parametrize(
    ("quantities", "gpus", "missing"),
    [
        ({"gpu0_power_watts": (60.0, 25.0)}, 1, ("gpu0",)),  # lost half-way
        ({"gpu0_power_watts": (60.0, 50.0)}, 2, ("gpu1",)),  # the second GPU does not report its power
        ({"cpu_power_watts": (60.0, 50.0)}, 1, ("gpu0",)),
    ],
)
def test_a_missing_part_makes_the_sums_unknown(
    quantities: dict[str, tuple[float, float]], gpus: int, missing: tuple[str, ...]
) -> None:
    measured = measured_energy(usage(steady_steps={"cpu_share": (1.0, 50.0), **quantities}), gpus=gpus)
    assert measured is not None
    assert measured.missing == missing
    assert (measured.joules, measured.watts, measured.gpu_watts, measured.cpu_watts) == (None,) * 4


def test_without_power_there_is_no_energy() -> None:
    assert measured_energy(None) is None
    assert measured_energy(usage(steady_steps={"cpu_share": (1.0, 50.0)})) is None
    profile = vs.Profile.from_times(batch_size=8, iteration_seconds=[0.1, 0.1])
    assert (profile.energy, profile.step_joules) == (None, None)


def test_energy_of_a_step() -> None:
    profile = vs.Profile.from_times(batch_size=8, iteration_seconds=[0.1, 0.3], gpu_watts=[50, 150])
    assert profile.step_joules == pytest.approx(200 * 0.2)
    assert profile.energy is not None
    assert [part.source for part in profile.energy.parts] == ["given", "given"]


def test_a_record_keeps_its_power(tmp_path) -> None:  # type: ignore[no-untyped-def]
    profile = vs.Profile.from_times(batch_size=8, iteration_seconds=0.1, gpu_watts=60)
    again = vs.Profile.load(profile.save(tmp_path / "profile.json"))
    assert again.energy == profile.energy
    plain = vs.Profile.from_times(batch_size=8, iteration_seconds=0.1)
    assert "power_sources" not in plain.to_json()
