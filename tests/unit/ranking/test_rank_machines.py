"""Which profiles ``rank`` takes, and which it refuses to rank together."""

from __future__ import annotations

import pytest

import vmselect as vs
from tests.support.rankings import LAB, probe, rank
from vmselect.errors import ArgumentError, RankingError
from vmselect.estimation.programs import choose_profiles
from vmselect.records import InferenceRecord
from vmselect.records.training import Fit


def test_profiles_of_different_batch_sizes_are_refused() -> None:
    with pytest.raises(RankingError, match="64, 128"):
        rank([probe("small"), probe("big", batch_size=128, steps_per_epoch=50)])


def test_a_given_value_makes_profiles_comparable() -> None:
    models = [probe("small"), probe("big", model="other")]
    assert rank(choose_profiles(models, model="other")).best.instance_type == "big"
    with pytest.raises(ArgumentError, match="net, other"):
        choose_profiles(models, model="third")
    with pytest.raises(ArgumentError, match="at least one profile"):
        choose_profiles([])
    differ = [probe("small", examples=6400), probe("big", examples=12800)]
    assert len(rank(differ, workload=vs.Workload(examples=6400))) == 2
    assert len(rank([probe("small"), probe("big", steps_per_epoch=101)])) == 2  # within a batch


def test_only_profiles_are_ranked() -> None:
    with pytest.raises(RankingError, match="profiles"):
        rank([])
    with pytest.raises(ArgumentError, match="load_profiles"):
        rank(["profiles/"])
    calls = InferenceRecord.from_times(instance_type="small", call_seconds=[0.1] * 200, batch_size=10)
    for records in (calls, [calls], [probe(), calls]):
        with pytest.raises(ArgumentError, match="rank_inference"):
            vs.rank(records, catalog=LAB)


def test_machines_are_ranked_by_one_fit_of_a_program() -> None:
    def measure(name: str, number: int, step_seconds: float) -> vs.Profile:
        fit = Fit(number=number, process=f"on {name}", name="tuned" if number == 2 else None)
        return probe(name, step_seconds, fit=fit, setup={"structure": f"layers of fit {number}"})

    program = [measure(name, number, 0.1 / number) for name in ("small", "big") for number in (1, 2)]
    alone = rank([program[1], program[3]]).to_frame()
    for fit in (2, 2.0, "tuned"):
        assert rank(choose_profiles(program, fit=fit)).to_frame().equals(alone)
    with pytest.raises(ArgumentError, match=r"\b3\b.* 1, 2 \(tuned\)"):
        choose_profiles(program, fit=3)
    with pytest.raises(ArgumentError, match="tuned"):
        choose_profiles([probe()], fit="tuned")


def test_a_workload_changes_the_training() -> None:
    longer = rank([probe()], workload=vs.Workload(steps_per_epoch=200))
    assert longer.best.seconds > 1.8 * rank([probe()]).best.seconds
    assert rank([probe()], workload={"steps_per_epoch": 200}).best.seconds == longer.best.seconds
    booted = rank([probe()], workload=vs.Workload(boot_seconds=60)).best
    assert booted.terms["boot"] == 60
    assert booted.seconds == pytest.approx(60 + rank([probe()]).best.seconds)
    assert rank([probe(), probe(batch_size=128)], workload=vs.Workload(batch_size=128)).best.batch_size == 128


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("epoch", "epochs"),
        ("deadline", "deadline_hours"),
        ("examples", "Workload(examples"),
        ("gpus", "Scale(gpus"),
        ("max_usd_per_hour", "where(max_usd_per_hour"),
        ("checkpoint_minutes", "Interruptions(checkpoint_minutes"),
        ("colour", "profiles"),
    ],
)
def test_an_unknown_argument_is_refused_with_advice(name: str, advice: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        rank(**{name: 1})
    assert advice in str(refused.value)


def test_epochs_are_those_of_the_probed_trainings() -> None:
    both = [probe("small", epochs=7), probe("big", setup={"epochs": 10, "initial_epoch": 3}), probe("same")]
    assert vs.rank(both, catalog=LAB).settings.epochs == (7,)
    with pytest.raises(ArgumentError, match="epochs="):
        vs.rank([probe("small")], catalog=LAB)
    with pytest.raises(ArgumentError, match="7, 8 epochs"):
        vs.rank([probe("small", epochs=7), probe("big", epochs=8)], catalog=LAB)
