"""Laws of energy and CO2: more work needs more, a grid changes CO2 only, unknown power stays unknown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vmselect as vs

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from priced import sell

watts = st.one_of(st.none(), st.floats(1, 1000))
machines = st.lists(
    st.tuples(st.floats(0, 100), st.floats(0.001, 2), watts, st.floats(0.1, 10)), min_size=1, max_size=4
)
every_hour = st.lists(st.floats(0, 900), min_size=1, max_size=5)
hours = st.one_of(st.just({}), st.fixed_dictionaries({"hourly": every_hour, "start_hour": st.floats(0, 30)}))


def rank(given_machines: list[Any], **options: Any) -> vs.Ranking:
    profiles = [
        vs.Profile.from_times(
            instance_type=f"m{i}", batch_size=8, init_seconds=start, steps_per_epoch=10, iteration_seconds=[step] * 6,
            gpu_watts=power,
        )
        for i, (start, step, power, _) in enumerate(given_machines)
    ]  # fmt: skip
    options = {"epochs": 20, "emissions": {"country": "DE"}} | options
    return vs.rank(profiles, catalog=sell(on_demand=[price for *_, price in given_machines]), **options)


@settings(max_examples=12, deadline=None)
@given(machines, st.lists(st.integers(1, 5000), min_size=2, max_size=3, unique=True), hours)
def test_more_work_never_needs_less_energy(given_machines: list[Any], epochs: list[int], hourly: Any) -> None:
    frame = rank(given_machines, epochs=sorted(epochs), emissions=hourly or {"country": "DE"}).to_frame()
    for _, rows in frame.sort_values("epochs").groupby("instance_type", observed=True):
        # Errors of power and time are added as squares, so that in an hour without emissions the low end of more work
        # can be lower by a hair.
        for name in ("energy_kwh", "energy_low", "energy_high", "co2_kg", *(() if hourly else ("co2_low",))):
            values = rows[name].dropna().to_numpy()
            assert (values[1:] >= values[:-1] * (1 - 1e-9) - 1e-15).all()
    measured = frame.dropna(subset="energy_kwh")
    assert (measured["energy_low"] <= measured["energy_kwh"]).all()
    assert (measured["energy_kwh"] <= measured["energy_high"]).all()


@settings(max_examples=12, deadline=None)
@given(machines, st.floats(0, 2000), st.floats(1, 3))
def test_a_grid_changes_co2_only(given_machines: list[Any], grid: float, pue: float) -> None:
    first, second = rank(given_machines), rank(given_machines, emissions={"grid_g_per_kwh": grid, "pue": pue})
    assert [row.title for row in first] == [row.title for row in second]
    for here, there in zip(first, second, strict=True):
        assert (here.seconds, here.cost_usd, here.score, here.chance) == (
            there.seconds, there.cost_usd, there.score, there.chance,
        )  # fmt: skip
        assert here.measures["energy"] == there.measures["energy"]
        if there.measures["energy"] is not None:
            assert there.measures["co2"].value == pytest.approx(there.measures["energy"].value * grid * pue / 1000)  # type: ignore[union-attr]


@settings(max_examples=12, deadline=None)
@given(
    machines, st.sampled_from([{"objective": "energy"}, {"objective": {"cost": 1, "co2": 1}}, {"co2_limit_kg": 1e9}])
)
def test_unknown_power_stays_unknown(given_machines: list[Any], asked: Any) -> None:
    shown, needed = rank(given_machines), rank(given_machines, **asked)
    unknown = {f"m{i}" for i, (_, _, power, _) in enumerate(given_machines) if power is None}
    for row in shown:
        assert (row.measures["energy"] is None) == (row.instance_type in unknown) == (row.measures["co2"] is None)
    assert {row.instance_type for row in needed} == {row.instance_type for row in shown} - unknown
    codes = {exclusion.candidate.split(",")[0].split(" ")[0]: exclusion.reason_code for exclusion in needed.excluded}
    assert codes == dict.fromkeys(unknown, "energy_unknown")
    if needed:
        assert sum(row.chance for row in needed) == pytest.approx(1)
