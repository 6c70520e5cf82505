"""Epochs from which starting is negligible, and batch sizes from which steps stop scaling."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vmselect as vs
from tests.support.priced import prices
from tests.support.profiles import make_profile
from vmselect.estimation.runtime import RuntimeModel
from vmselect.ranking.knees import epochs_until_negligible, find_knee

CATALOG = prices(("a", 2.0), ("b", 4.0))
RATES = {64: 1000.0, 128: 1800.0, 256: 1900.0, 512: 1950.0}


def sized(name: str, rates: dict[int, float]) -> list[vs.Profile]:
    return [make_profile(name, size / rate, batch_size=size, steps_per_epoch=100) for size, rate in rates.items()]


@given(st.floats(0.1, 1e4), st.floats(1e-3, 1e3), st.floats(1e-3, 0.9))
def test_starting_is_negligible_from_the_first_such_number_of_epochs_on(
    start: float, epoch: float, share: float
) -> None:
    model = RuntimeModel("a", "robust", 0.9, {"initialization": (start, 0.0), "steady_iterations": (0.0, epoch)})
    epochs = epochs_until_negligible(model, share)
    if epochs is not None:
        assert start < share * model.seconds(epochs)
        assert epochs == 1 or start >= share * model.seconds(epochs - 1)


def test_a_ranking_tabulates_starting() -> None:
    profiles = [
        make_profile(name, 0.1, steps_per_epoch=100, init_seconds=init) for name, init in (("a", 9.0), ("b", 99.0))
    ]
    table = vs.rank(profiles, epochs=5, catalog=CATALOG).tables.startup(0.01)
    assert table.loc["b", "startup_seconds"] == pytest.approx(table.loc["a", "startup_seconds"] + 90)
    assert table.loc["b", "epochs"] > table.loc["a", "epochs"] > 1
    with pytest.raises(vs.errors.ArgumentError, match="share"):
        vs.rank(profiles, epochs=5, catalog=CATALOG).tables.startup(0)


def test_a_ranking_names_a_start_that_is_a_large_part_of_its_best_machine() -> None:
    profile = make_profile("a", 0.1, steps_per_epoch=100, init_seconds=9.0)
    few, many = (vs.rank(profile, epochs=count, catalog=CATALOG) for count in (5, 50))
    (finding,) = [finding for finding in few.findings if finding.code == "long-start"]
    assert f"from {few.tables.startup(0.01).loc['a', 'epochs']:.0f} epochs on" in finding.message
    assert "long-start" not in {finding.code for finding in many.findings}


@pytest.mark.parametrize(
    ("times", "seconds", "epochs"),
    [
        # 4 s and the excess of the first epoch, 1 s, are less than 1 % of 5 s + n x 7 s.
        ({"init_seconds": 4.0, "first_epoch_seconds": 8.0, "later_epoch_seconds": [7.0, 7.0]}, 5.0, 71.0),
        ({"init_seconds": 4.0, "first_epoch_seconds": 6.0, "later_epoch_seconds": [7.0, 7.0]}, 4.0, None),
        ({"total_seconds": 50.0, "epochs": 5}, math.nan, math.nan),
        ({"steps_per_epoch": 100, "iteration_seconds": [0.1] * 5}, math.nan, math.nan),
    ],
)
def test_starting_is_only_what_is_known_of_it(times: dict[str, Any], seconds: float, epochs: float | None) -> None:
    profile = vs.Profile.from_times(instance_type="a", batch_size=64, **times)
    ((shown, least),) = vs.rank(profile, epochs=5, catalog=CATALOG).tables.startup(0.01).to_numpy().tolist()
    assert shown == pytest.approx(seconds, nan_ok=True)
    assert epochs is None or least == pytest.approx(epochs, nan_ok=True)


def test_the_knee_is_the_size_from_which_a_larger_batch_gains_little() -> None:
    assert find_knee(RATES) == 128
    assert find_knee({64: 1000.0, 256: 3900.0}) is None
    assert find_knee({64: 1000.0}) is None
    # A dip is no knee if a still larger batch is faster: these are the rates of one machine of the dissertation.
    assert find_knee({256: 3427.0, 512: 3259.0, 1024: 4501.0, 2048: 4561.0}) == 1024


def test_a_ranking_of_several_batch_sizes_names_the_knee_of_its_best_machine() -> None:
    ranking = vs.rank(
        [*sized("a", RATES), *sized("b", {64: 3000.0, 128: 5900.0})], epochs=3, batch_size="all", catalog=CATALOG
    )
    table = ranking.tables.knees()
    assert table[table["knee"]][["machine", "batch_size"]].to_numpy().tolist() == [["a", 128]]
    assert math.isnan(table[table["machine"] == "a"]["gain_per_doubling"].iloc[-1])
    alone = vs.rank(sized("a", RATES), epochs=3, batch_size="all", catalog=CATALOG)
    (finding,) = [finding for finding in alone.findings if finding.code == "batch-size-knee"]
    assert "from batch size 128 on" in finding.message
    assert "batch-size-knee" not in {finding.code for finding in ranking.findings}  # b is best, and has no knee


def test_one_batch_size_has_no_knee() -> None:
    assert vs.rank(sized("a", {64: 10.0}), epochs=3, catalog=CATALOG).tables.knees().empty
