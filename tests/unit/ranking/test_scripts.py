"""Rankings of scripts with several fits, which are ranked as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from tests.support.profiles import make_gpu_profile, make_profile
from vmselect.errors import ArgumentError, RankingError
from vmselect.estimation import estimate_fits
from vmselect.estimation.programs import choose_profiles
from vmselect.records.training import Fit


def measure(machine: str, number: int, step: float, *, epochs: int | None = 10, **changes: Any) -> vs.Profile:
    """One fit of a script that was probed on ``machine``; fits differ in their model."""
    setup = {"structure": f"layers of fit {number}", "epochs": epochs, **changes.pop("setup", {})}
    fit = Fit(number=number, process=changes.pop("process", f"on {machine}"), name=changes.pop("name", None))
    return make_profile(machine, step, **{"model": f"net {number}", **changes}, fit=fit, setup=setup)


def program(machine: str, speed: float = 1.0, fits: int = 2, **changes: Any) -> list[vs.Profile]:
    steps = range(1, fits + 1)
    return [measure(machine, number, 0.1 * number / speed, epochs=5 * number, **changes) for number in steps]


@pytest.mark.parametrize("fits", [2, 3])
@pytest.mark.parametrize("epochs", [None, 7])
def test_a_script_is_ranked_by_the_sum_of_its_fits(fits: int, epochs: int | None) -> None:
    machines = {"g4dn.xlarge": program("g4dn.xlarge", fits=fits), "g5.xlarge": program("g5.xlarge", 3, fits=fits)}
    ranking = vs.rank([profile for profiles in machines.values() for profile in profiles], epochs=epochs)
    assert {row.instance_type for row in ranking} == set(machines)
    for row in ranking:
        whole = estimate_fits(machines[row.instance_type], epochs=epochs)
        assert (row.seconds, row.seconds_low, row.seconds_high) == pytest.approx((whole.seconds, whole.low, whole.high))
        assert sum(row.terms.values()) == pytest.approx(row.seconds)
        assert row.epochs == (epochs or sum(5 * number for number in range(1, fits + 1)))
        assert min(row.terms.values()) >= 0
    assert "whole-script" in {finding.code for finding in ranking.findings}
    assert {machine.repetitions for machine in ranking.candidates.machine_estimates} == {1}


def test_validations_early_stopping_and_several_epoch_counts_are_those_of_the_fits() -> None:
    validated = {"validation_seconds": [3.0, 1.0], "setup": {"validation_freq": 2}}
    profiles = [measure("g5.xlarge", 1, 0.1, epochs=4, **validated), measure("g5.xlarge", 2, 0.3, epochs=7)]
    (row,) = vs.rank(profiles)
    assert row.seconds == pytest.approx(estimate_fits(profiles).seconds)
    every = [measure("g5.xlarge", number, 0.1, validation_seconds=[3.0, 1.0]) for number in (1, 2)]
    for row in vs.rank(every, epochs=[1, 5, 20]):
        assert row.seconds == pytest.approx(estimate_fits(every, epochs=int(row.epochs)).seconds)


def test_runs_of_a_script_are_repetitions() -> None:
    runs = [*program("g5.xlarge"), *program("g5.xlarge", process="again")]
    (machine,) = vs.rank(runs).candidates.machine_estimates
    assert (machine.repetitions, len(machine.records)) == (2, 4)


def test_fits_of_different_batch_sizes_are_one_script_but_not_a_try_of_sizes() -> None:
    profiles = [measure("g5.xlarge", number, 0.1, batch_size=32 * number) for number in (1, 2)]
    (row,) = vs.rank(profiles)
    assert row.batch_size is None
    assert row.seconds == pytest.approx(estimate_fits(profiles).seconds)
    same = {"model": "net", "setup": {"structure": "layers"}}
    sizes = [measure("g5.xlarge", number, 0.1, batch_size=32 * number, **same) for number in (1, 2)]
    with pytest.raises(RankingError, match="batch_size="):
        vs.rank(sizes)
    assert {row.batch_size for row in vs.rank(sizes, batch_size="all")} == {32, 64}


def test_a_machine_with_a_part_of_the_script_is_excluded() -> None:
    published = make_profile("p3.2xlarge", 0.1)
    first = measure("g4dn.xlarge", 1, 0.001, epochs=5)
    ranking = vs.rank([*program("g5.xlarge"), first, published])
    assert [row.instance_type for row in ranking] == ["g5.xlarge"]
    codes = {entry.candidate.split(",")[0]: entry.reason_code for entry in ranking.excluded}
    assert codes == {"g4dn.xlarge": "incomplete_script", "p3.2xlarge": "incomplete_script"}


def test_a_fit_that_cannot_be_estimated_excludes_the_machine() -> None:
    failed = measure("g4dn.xlarge", 2, 0.1, steps_per_epoch=None, epochs=10)
    profiles = [*program("g5.xlarge"), measure("g4dn.xlarge", 1, 0.1, epochs=5), failed]
    ranking = vs.rank(profiles)
    assert [row.instance_type for row in ranking] == ["g5.xlarge"]
    assert "no_estimate" in {entry.reason_code for entry in ranking.excluded}


def test_unprobed_machines_are_predicted_for_the_whole_script() -> None:
    ranking = vs.rank(program("g4dn.xlarge"), machines=["g5.xlarge"])
    times = {row.instance_type: row.seconds for row in ranking}
    assert 0 < times["g5.xlarge"] < times["g4dn.xlarge"]


def test_every_fit_has_to_fit_into_gpu_memory() -> None:
    fits = [
        make_gpu_profile(
            size, peak, fit=Fit(number=number, process="p"), epochs=5, model=f"net {number}",
            setup={"structure": str(number)},
        )
        for number, size, peak in ((1, 32, 2.0), (2, 64, 14.0))
    ]  # fmt: skip
    ranking = vs.rank(fits, machines="all")
    ranked = {row.instance_type for row in ranking}
    for fit in (1, 2):
        alone = {row.instance_type for row in vs.rank(choose_profiles(fits, fit=fit), machines="all")}
        assert ranked <= alone
        assert fit == 2 or ranked < alone


def test_what_needs_one_training_says_so(tmp_path: Path) -> None:
    ranking = vs.rank([*program("g5.xlarge"), *program("g4dn.xlarge")])
    with pytest.raises(RankingError, match="--fit"):
        ranking.keep(tmp_path)
    with pytest.raises(RankingError, match="--fit"):
        ranking.against(vs.Profile.from_times(instance_type="g5.xlarge", batch_size=64, epochs=5, total_seconds=[90]))
    with pytest.raises(RankingError, match="--fit"):
        vs.rank(program("g5.xlarge"), scale={"gpus": (1, 2)})
    assert len(vs.rank(choose_profiles(program("g5.xlarge"), fit=2)).keep(tmp_path)) == 1


def test_epochs_that_differ_between_machines_have_to_be_passed() -> None:
    profiles = [*program("g5.xlarge"), measure("g4dn.xlarge", 1, 0.1, epochs=5), measure("g4dn.xlarge", 2, 0.1)]
    assert len(vs.rank(profiles)) == 2
    profiles[-1] = measure("g4dn.xlarge", 2, 0.1, epochs=11)
    with pytest.raises(ArgumentError, match="epochs="):
        vs.rank(profiles)
    assert len(vs.rank(profiles, epochs=3)) == 2


def test_cells_of_a_notebook_are_repetitions() -> None:
    same = {"environment": {"notebook": True}, "model": "net", "setup": {"structure": "layers"}}
    cells = [measure("g5.xlarge", number, 0.1, **same) for number in (1, 2)]
    (machine,) = vs.rank(cells).candidates.machine_estimates
    assert machine.repetitions == 2
