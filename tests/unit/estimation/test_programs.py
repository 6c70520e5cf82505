"""Estimates of programs with several fits."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect.cli.estimate import estimate
from vmselect.estimation import estimate_fits
from vmselect.records.training import Fit

app = typer.Typer()
app.command()(estimate)


def profile(
    step: float,
    number: int,
    *,
    process: str = "1-a",
    structure: str = "body",
    epochs: int | None = 10,
    name: str | None = None,
    machine: str = "p3.2xlarge",
    initial_epoch: int = 0,
    batch_size: int = 32,
) -> vs.Profile:
    """The fit of a program: 100 steps an epoch, 2 s for the first one, and 1 s of initialization."""
    return make_profile(
        machine,
        step,
        batch_size=batch_size,
        init_seconds=1.0 if number == 1 else None,
        first_iteration_seconds=2.0,
        setup={"structure": structure, "epochs": epochs, "initial_epoch": initial_epoch},
        fit=Fit(number=number, process=process, name=name),
    )


def test_two_different_fits_are_each_estimated_and_added_up() -> None:
    frozen, tuned = profile(0.1, 1), profile(0.5, 2, structure="whole", epochs=4)
    both = estimate_fits([tuned, frozen])
    assert [(fit.number, fit.times, fit.estimate.epochs) for fit in both.fits] == [(1, 1, 10), (2, 1, 4)]
    assert [fit.estimate.seconds for fit in both.fits] == pytest.approx([1 + 2 + 999 * 0.1, 2 + 399 * 0.5])
    assert both.seconds == pytest.approx(sum(fit.estimate.seconds for fit in both.fits))
    assert both.low == pytest.approx(sum(fit.estimate.low for fit in both.fits))
    assert both.high == pytest.approx(sum(fit.estimate.high for fit in both.fits))
    assert str(both).startswith("p3.2xlarge: 2 fits in")


def test_equal_fits_in_a_row_are_joined() -> None:
    loop = estimate_fits([profile(0.1, number) for number in range(1, 6)])
    (fit,) = loop.fits
    assert (fit.number, fit.times) == (1, 5)
    assert loop.seconds == pytest.approx(1 + 5 * (2 + 999 * 0.1))
    assert sum(fit.estimate.terms.values()) == pytest.approx(fit.estimate.seconds)


def test_one_epoch_at_a_time_counted_on_is_a_loop_too() -> None:
    rounds = [profile(0.1, number, epochs=number, initial_epoch=number - 1) for number in (1, 2, 3)]
    (fit,) = estimate_fits(rounds).fits
    assert (fit.times, fit.estimate.epochs) == (3, 1)


def test_runs_of_the_program_are_repetitions_fit_by_fit() -> None:
    runs = [profile(step, number, process=process, structure=str(number))
            for process, step in (("1-a", 0.1), ("2-b", 0.12)) for number in (1, 2)]  # fmt: skip
    both = estimate_fits(runs)
    assert [(fit.number, fit.repetitions) for fit in both.fits] == [(1, 2), (2, 2)]


def test_named_fits_and_given_epochs() -> None:
    both = estimate_fits([profile(0.1, 1, name="frozen"), profile(0.1, 2, name="tuned")], epochs=3)
    assert [(fit.name, fit.times, fit.estimate.epochs) for fit in both.fits] == [("frozen", 1, 3), ("tuned", 1, 3)]
    assert json.loads(json.dumps(both.to_dict()))["fits"][1]["name"] == "tuned"


def test_unknown_epochs_are_an_error() -> None:
    with pytest.raises(vs.errors.ArgumentError, match="--epochs"):
        estimate_fits(profile(0.1, 1, epochs=None))


def test_fits_of_two_machines_are_no_program() -> None:
    with pytest.raises(vs.errors.EstimateError):
        estimate_fits([profile(0.1, 1), profile(0.1, 2, machine="p2.xlarge")])


def out_of_memory(number: int, **about: Any) -> vs.Profile:
    return profile(0.1, number, **about).model_copy(update={"outcome": "out_of_memory"})


def test_one_fit_that_cannot_be_estimated_does_not_hide_the_others() -> None:
    others = estimate_fits([profile(0.1, 1), out_of_memory(2), profile(0.5, 3, structure="whole", epochs=4)])
    assert [fit.number for fit in others.fits] == [1, 3]
    assert others.seconds == pytest.approx(sum(fit.estimate.seconds for fit in others.fits))
    assert others.excluded == (2,)
    (excluded,) = [finding.message for finding in others.findings if finding.code == "fit-excluded"]
    assert all(part in excluded for part in ("fit 2", "p3.2xlarge, batch 32"))
    assert str(others).endswith(", without fit 2")
    assert json.loads(json.dumps(others.to_dict()))["excluded"] == [2]
    assert others._repr_html_().count("<tr>") == 3


def test_the_batch_size_of_a_workload_is_used() -> None:
    runs = [*two_phases(32, "1-a", 0.1), *two_phases(64, "2-b", 0.2)]
    for given in ({"batch_size": 64}, {"workload": vs.Workload(batch_size=64)}):
        assert [fit.batch_size for fit in estimate_fits(runs, **given).fits] == [64, 64]


def test_a_program_without_an_estimable_fit_is_an_error() -> None:
    with pytest.raises(vs.errors.EstimateError, match="memory"):
        estimate_fits([out_of_memory(1), out_of_memory(2)])


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.stdout


def save(folder: Path, *profiles: vs.Profile) -> None:
    for number, one in enumerate(profiles):
        one.save(folder / f"{number}.json")


def estimate_rows(folder: Path, profiles: Iterable[vs.Profile], *options: object) -> list[dict[str, Any]]:
    """The rows that the command prints for these profiles."""
    save(folder, *profiles)
    return json.loads(run(folder, *options, "--format", "json"))


def test_the_command_shows_each_fit_and_their_sum(tmp_path: Path) -> None:
    rows = estimate_rows(tmp_path, [profile(0.1, 1), profile(0.1, 2), profile(0.5, 3, structure="whole", epochs=4)])
    assert [(row["fit"], row["fits"], row["epochs"]) for row in rows] == [(1, 2, 10), (3, 1, 4), ("all", 3, None)]
    for name in ("seconds", "low", "high"):
        assert rows[-1][name] == pytest.approx(sum(row[name] for row in rows[:-1]))
    assert "all" in run(tmp_path)


def test_one_machine_that_cannot_be_estimated_does_not_hide_the_other(tmp_path: Path) -> None:
    broken = profile(0.1, 1, machine="small").model_copy(update={"outcome": "out_of_memory"})
    save(tmp_path, profile(0.1, 1), broken)
    result = CliRunner().invoke(app, [str(tmp_path), "--format", "json"])
    assert result.exit_code == 2
    assert [row["instance_type"] for row in json.loads(result.stdout)] == ["p3.2xlarge"]


def test_the_command_shows_the_other_fits_and_names_the_excluded_one(tmp_path: Path) -> None:
    save(tmp_path, profile(0.1, 1), out_of_memory(2), profile(0.5, 3, structure="whole", epochs=4))
    result = CliRunner().invoke(app, [str(tmp_path), "--format", "json"])
    assert result.exit_code == 2
    assert [(row["fit"], row["fits"]) for row in json.loads(result.stdout)] == [(1, 1), (3, 1), ("all but 2", 2)]
    assert "fit 2" in result.stderr


def two_phases(batch_size: int, process: str, step: float) -> list[vs.Profile]:
    return [
        profile(step * number, number, structure=structure, process=process, batch_size=batch_size)
        for number, structure in ((1, "body"), (2, "whole"))
    ]


def test_a_program_at_two_batch_sizes_is_two_programs(tmp_path: Path) -> None:
    runs = [*two_phases(32, "1-a", 0.1), *two_phases(64, "2-b", 0.2), *two_phases(64, "3-c", 0.2)]
    rows = estimate_rows(tmp_path, [*runs, profile(0.1, 1, process="4-d", structure="other")])
    assert [(row["batch_size"], row["fit"], row["repetitions"]) for row in rows if "fit" in row] == [
        (32, 1, 1), (32, 2, 1), (32, "all", None), (64, 1, 2), (64, 2, 2), (64, "all", None),
    ]  # fmt: skip
    assert [row["batch_size"] for row in rows if "fit" not in row] == [32]  # a training of its own


def test_a_run_that_ended_early_is_one_of_the_program(tmp_path: Path) -> None:
    rows = estimate_rows(tmp_path, [profile(0.1, 1, process="2-b"), *two_phases(32, "1-a", 0.1)])
    assert [(row["fit"], row["repetitions"]) for row in rows] == [(1, 2), (2, 1), ("all", None)]


def test_a_training_of_another_model_is_not_one_of_the_program(tmp_path: Path) -> None:
    def of(model: str, number: int, process: str) -> vs.Profile:
        made = profile(0.1, number, process=process)
        return made.model_copy(update={"setup": made.setup.model_copy(update={"structure": None, "model": model})})

    rows = estimate_rows(tmp_path, [of("vae", 1, "1-a"), of("gan", 2, "1-a"), of("bert", 1, "2-b")])
    assert [(row.get("fit"), row["model"]) for row in rows] == [(1, "vae"), (2, "gan"), ("all", None), (None, "bert")]


def test_two_records_of_one_fit_are_no_program(tmp_path: Path) -> None:
    (row,) = estimate_rows(tmp_path, [profile(0.1, 1), profile(0.1, 1)])
    assert row["repetitions"] == 2


@pytest.mark.parametrize(("size", "step"), [(32, 0.1), (48, 0.15)])
def test_a_program_at_a_batch_size_that_was_asked_for(tmp_path: Path, size: int, step: float) -> None:
    save(tmp_path, *two_phases(32, "1-a", 0.1), *two_phases(64, "2-b", 0.2))
    given = ("--batch-size", size, "--steps-per-epoch", 100)
    rows = json.loads(run(tmp_path, *given, "--terms", "--format", "json"))
    assert [(row["fit"], row["batch_size"]) for row in rows] == [(1, size), (2, size), ("all", size)]
    steady = [row["terms"]["steady_iterations"] for row in rows[:-1]]
    assert steady == pytest.approx([999 * step, 999 * 2 * step], rel=0.01)


def test_a_program_over_several_batch_sizes_is_interpolated(tmp_path: Path) -> None:
    save(tmp_path, profile(0.1, 1, batch_size=32), profile(0.2, 2, batch_size=64))
    (row,) = json.loads(run(tmp_path, "--batch-size", 48, "--steps-per-epoch", 100, "--format", "json"))
    assert row["batch_size"] == 48
    assert "fit" not in row


def test_phases_on_the_command_line(tmp_path: Path) -> None:
    base, slow = profile(0.1, 1), profile(0.3, 1, process="2-b")
    base.save(tmp_path / "base.json")
    slow.save(tmp_path / "slow.json")
    (row,) = json.loads(run(tmp_path / "base.json", "--phase", "10:1", "--phase", f"5:{tmp_path / 'slow.json'}",
                            "--format", "json"))  # fmt: skip
    assert row["epochs"] == 15
    assert row["seconds"] == pytest.approx(vs.estimate(base, phases=[(10, 1.0), (5, slow)]).seconds)
    wrong = CliRunner().invoke(app, [str(tmp_path / "base.json"), "--phase", "often"])
    assert isinstance(wrong.exception, vs.errors.ArgumentError)
    assert "10:1.5" in str(wrong.exception)


def test_validation_steps_are_ambiguous_for_phases_of_other_batch_sizes() -> None:
    def at(batch_size: int) -> vs.Profile:
        setup = {"validation_steps": 3200 // batch_size}
        return make_profile(batch_size=batch_size, validation_seconds=[2.0, 1.0], setup=setup)

    small, large, given = at(64), at(128), vs.Workload(validation_steps=50)
    with pytest.raises(vs.errors.EstimateError, match="validation_examples="):
        vs.estimate(small, workload=given, phases=[(10, 1.0), (5, large)])


def test_estimates_in_a_notebook_name_every_term_and_escape_names() -> None:
    one = profile(0.1, 1, machine="<b>big</b>")
    estimate = vs.estimate(one, epochs=5)
    page = estimate._repr_html_()
    assert page.count("<tr>") == sum(seconds > 0 for seconds in estimate.terms.values())
    assert "<b>" not in page
    both = estimate_fits(
        [one, profile(0.5, 2, structure="whole", machine="<b>big</b>", name="<i>tuned</i>")]
    )._repr_html_()
    assert both.count("<tr>") == 3
    assert "&lt;i&gt;tuned" in both
    assert "<b>" not in both


def test_one_file_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    save(tmp_path, profile(0.1, 1))
    (tmp_path / "broken.json").write_text("{")
    result = CliRunner().invoke(app, [str(tmp_path), "--format", "json"])
    assert result.exit_code == 2
    assert [row["instance_type"] for row in json.loads(result.stdout)] == ["p3.2xlarge"]
    assert "broken.json" in result.stderr
