"""Power of machines: measured with the rest of the machine, predicted by the fraction of TDP, or unknown."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import vmselect as vs
from vmselect.energy import power as energy
from vmselect.energy.power import (
    Power,
    UnknownPower,
    measured_power,
    predict_fraction,
    predict_power,
    tdp_fraction,
)
from vmselect.records.base import Environment, Gpu
from vmselect.records.usage import Summary

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "energy.py"


def profile(watts: Any = 60.0, *, cpu: float | None = None, gpus: tuple[Gpu, ...] = (), **seen: Any) -> vs.Profile:
    profile = vs.Profile.from_times(instance_type="g4dn.xlarge", batch_size=8, iteration_seconds=[0.1], gpu_watts=watts)
    if cpu is not None:
        summary = Summary(count=1, seconds=1.0, mean=cpu, maximum=cpu, p50=cpu, p95=cpu)
        phases = {
            "steady_steps": {
                **(profile.usage.phases["steady_steps"] if profile.usage else {}),
                "cpu_power_watts": summary,
            }
        }
        usage = (profile.usage or vs.Profile.from_times(iteration_seconds=1.0, gpu_watts=1).usage).model_copy(  # type: ignore[union-attr]
            update={"phases": phases}
        )
        profile = profile.model_copy(update={"usage": usage})
    return profile.model_copy(update={"environment": Environment(gpus=gpus, **seen)})


def test_measured_gpus_get_the_share_of_the_machine() -> None:
    power = measured_power([profile(60.0)], name="m")
    assert power is not None
    assert power.watts == pytest.approx(60 / energy.GPU_SHARE)
    assert power.basis == "measured"
    low, high = power.interval(0.9)[1:]
    assert low < power.watts < high


def test_a_measured_cpu_narrows_the_interval() -> None:
    power, without = measured_power([profile(60.0, cpu=40.0)], name="m"), measured_power([profile(60.0)], name="m")
    assert power is not None
    assert without is not None
    assert power.watts == pytest.approx(100 * (1 + energy.REST_SHARE))
    assert power.deviation < without.deviation


def test_a_machine_without_gpus_needs_its_cpu() -> None:
    power = measured_power([profile(None, cpu=40.0)], name="m")
    assert power is not None
    assert power.watts == pytest.approx(40 * (1 + energy.REST_SHARE))
    assert measured_power([profile(None)], name="m") is None


def test_repetitions_are_averaged_and_profiles_without_power_ignored() -> None:
    power = measured_power([profile(50.0), profile(None), profile(72.0)], name="m")
    assert power is not None
    assert power.watts == pytest.approx(60 / energy.GPU_SHARE)


def test_a_fraction_counts_the_gpus_that_trained() -> None:
    cards = (Gpu(name="Tesla T4"), Gpu(name="Tesla T4"))
    assert tdp_fraction(profile([63, 7], gpus=cards, framework_gpus=1)) == pytest.approx(0.9)
    assert tdp_fraction(profile([63, 49], gpus=cards, framework_gpus=2, replicas=2)) == pytest.approx(0.8)
    assert tdp_fraction(profile(35.0), gpu="T4") == pytest.approx(0.5)
    assert tdp_fraction(profile(None)) is None
    assert tdp_fraction(profile(35.0)) is None
    unlisted = (Gpu(name="Voodoo", power_limit_watts=100.0),)
    assert tdp_fraction(profile(35.0, gpus=unlisted)) == pytest.approx(0.35)


def test_power_of_another_gpu_follows_its_tdp() -> None:
    fraction = predict_fraction([0.8])
    t4, v100 = predict_power(fraction, "T4", used=1, count=1), predict_power(fraction, "V100", used=1, count=1)
    assert isinstance(t4, Power)
    assert isinstance(v100, Power)
    assert v100.watts / t4.watts == pytest.approx(300 / 70)
    assert t4.basis == "predicted"
    idle = predict_power(fraction, "T4", used=1, count=4)
    assert isinstance(idle, Power)
    assert t4.watts < idle.watts < 2 * t4.watts


def test_what_is_not_known_stays_unknown() -> None:
    fraction = predict_fraction([0.8])
    assert isinstance(predict_power(fraction, "Voodoo", used=1, count=1), UnknownPower)
    assert isinstance(predict_power(fraction, None, used=0, count=0), UnknownPower)


def test_without_measured_power_a_typical_fraction_is_assumed() -> None:
    power = predict_power(predict_fraction([]), "T4", used=1, count=1)
    assert isinstance(power, Power)
    assert power.basis == "assumed"
    low, high = (part * energy.GPU_SHARE / 70 for part in power.interval(0.9)[1:])
    assert low < 0.28 < energy.TYPICAL_FRACTION < 0.82 < high  # the quartiles of public measurements


def test_a_described_training_that_waits_uses_less_power() -> None:
    busy, half, waiting = (predict_fraction([], launch_share=share) for share in (0.0, 0.5, 1.0))
    assert busy.value > half.value > waiting.value > 0.1
    assert busy.basis == "described"
    assert busy.deviation < predict_fraction([]).deviation
    # A measured fraction is better than any assumption.
    assert predict_fraction([0.8], launch_share=1.0) == predict_fraction([0.8])


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("energy_benchmark", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_script_chooses_and_reports(
    benchmark: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["model,dataset,batch_size,gpu,power_limit,optimizer,note"]
    for task in range(4):
        for gpu, tdp in (("V100-32GB", 250), ("P100", 250), ("A40", 300)):
            for size in (8, 16):
                watts = tdp * (0.3 + 0.1 * task) * (1.0632 if gpu == "A40" else 1.0)
                rows.append(f"m{task},d,{size},{gpu},{tdp},adam,optimizer=adam;avg_power={watts}")
                rows.append(f"m{task},d,{size},{gpu},100,adam,optimizer=adam;avg_power=90")
    file = tmp_path / "power.csv"
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    assert benchmark.main([str(file)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [part["tasks"] for part in report["left_out_tasks"]] == [["m0/d"], ["m1/d"], ["m2/d"], ["m3/d"]]
    assert [part["tasks"] for part in report["left_out_halves"]] == [["m0/d", "m2/d"], ["m1/d", "m3/d"]]
    assert [part["pairs"] for part in report["left_out_halves"]] == [2 * 2 * 6] * 2
    assert report["coverage_of_left_out_tasks"] == 1.0
    assert report["between_doubled_batch_sizes"] == [0.0, 0.0]
    assert 0.05 < report["spread_of_all_tasks"] < 0.1  # the widths are below 1
    assert benchmark.main([str(file), "--constant"]) == 0
    assert json.loads(capsys.readouterr().out)["spread_of_all_tasks"] == 0.05


def test_a_busy_gpu_leaves_less_room_for_another_fraction() -> None:
    fractions = [predict_fraction([fraction]) for fraction in (0.2, 0.6, 0.95, 1.0)]
    powers = [predict_power(fraction, "T4", used=1, count=1) for fraction in fractions]
    deviations = [power.deviation for power in powers if isinstance(power, Power)]
    assert deviations[0] > deviations[1] > deviations[2] == deviations[3] > energy.GPU_SHARE_DEVIATION
