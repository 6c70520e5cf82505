"""Programs with several fits: each by itself, their sum, and the command that shows both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import vmselect as vs
from vmselect.cli.estimate import estimate
from vmselect.estimation import estimate_fits
from vmselect.records.training import Boundary, Fit

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
) -> vs.Profile:
    """The fit of a program: 100 steps an epoch, 2 s for the first one, and 1 s of initialization."""
    made = vs.Profile.from_times(
        instance_type=machine,
        batch_size=32,
        steps_per_epoch=100,
        init_seconds=1.0 if number == 1 else None,
        first_iteration_seconds=2.0,
        iteration_seconds=[step] * 20,
        model="net",
    )
    setup = made.setup.model_copy(update={"structure": structure, "epochs": epochs, "initial_epoch": initial_epoch})
    return made.model_copy(update={"setup": setup, "fit": Fit(number=number, process=process, name=name)})


def test_two_different_fits_are_each_estimated_and_added_up() -> None:
    frozen, tuned = profile(0.1, 1), profile(0.5, 2, structure="whole", epochs=4)
    both = estimate_fits([tuned, frozen])
    assert [(fit.number, fit.times, fit.estimate.epochs) for fit in both.fits] == [(1, 1, 10), (2, 1, 4)]
    assert [fit.estimate.seconds for fit in both.fits] == pytest.approx([1 + 2 + 999 * 0.1, 2 + 399 * 0.5])
    assert both.seconds == pytest.approx(sum(fit.estimate.seconds for fit in both.fits))
    assert both.low == pytest.approx(sum(fit.estimate.low for fit in both.fits))
    assert both.high == pytest.approx(sum(fit.estimate.high for fit in both.fits))
    assert str(both).startswith("p3.2xlarge: 2 fits in")


def test_a_loop_of_equal_fits_is_one_training_as_often_as_it_was_run() -> None:
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


def test_unknown_epochs_are_asked_for() -> None:
    with pytest.raises(vs.errors.ArgumentError, match="--epochs"):
        estimate_fits(profile(0.1, 1, epochs=None))


def test_fits_of_two_machines_are_no_program() -> None:
    with pytest.raises(vs.errors.EstimateError, match="2 different machines"):
        estimate_fits([profile(0.1, 1), profile(0.1, 2, machine="p2.xlarge")])


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.stdout


def save(folder: Path, *profiles: vs.Profile) -> None:
    for number, one in enumerate(profiles):
        one.save(folder / f"{number}.json")


def test_the_command_shows_each_fit_and_their_sum(tmp_path: Path) -> None:
    save(tmp_path, profile(0.1, 1), profile(0.1, 2), profile(0.5, 3, structure="whole", epochs=4))
    rows = json.loads(run(tmp_path, "--format", "json"))
    assert [(row["fit"], row["fits"], row["epochs"]) for row in rows] == [(1, 2, 10), (3, 1, 4), ("all", 3, None)]
    for name in ("seconds", "low", "high"):
        assert rows[-1][name] == pytest.approx(sum(row[name] for row in rows[:-1]))
    assert "all" in run(tmp_path)


def test_without_epochs_the_command_takes_those_of_the_program(tmp_path: Path) -> None:
    save(tmp_path, profile(0.1, 1))
    (row,) = json.loads(run(tmp_path, "--format", "json"))
    assert row["epochs"] == 10
    assert "fit" not in row


def test_one_machine_that_cannot_be_estimated_does_not_hide_the_other(tmp_path: Path) -> None:
    broken = profile(0.1, 1, machine="small").model_copy(update={"outcome": "out_of_memory"})
    save(tmp_path, profile(0.1, 1), broken)
    result = CliRunner().invoke(app, [str(tmp_path), "--format", "json"])
    assert result.exit_code == 2
    assert [row["instance_type"] for row in json.loads(result.stdout)] == ["p3.2xlarge"]
    assert "ran out of memory" in result.stderr


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


def test_several_validations_in_an_epoch_are_all_counted() -> None:
    once = vs.Profile.from_times(
        steps_per_epoch=100, first_iteration_seconds=2.0, iteration_seconds=[0.1] * 20, validation_seconds=[3.0, 1.0]
    )
    often = once.model_copy(update={"setup": once.setup.model_copy(update={"validations_per_epoch": 4.0})})
    more = vs.estimate(often, epochs=10).seconds - vs.estimate(once, epochs=10).seconds
    assert more == pytest.approx(10 * 3 * 1.0)


def test_estimates_in_a_notebook_name_every_term_and_escape_names() -> None:
    one = profile(0.1, 1, machine="<b>big</b>")
    page = vs.estimate(one, epochs=5)._repr_html_()
    assert "steady iterations" in page
    assert "<b>" not in page
    both = estimate_fits(
        [one, profile(0.5, 2, structure="whole", machine="<b>big</b>", name="<i>tuned</i>")]
    )._repr_html_()
    assert both.count("<tr>") == 3
    assert "&lt;i&gt;tuned" in both
    assert "<b>" not in both


@pytest.mark.parametrize(
    ("saving", "code"), [("best", "saves-the-best"), ("batches", "saves-by-batches"), (None, None)]
)
def test_saves_that_come_now_and_then_are_allowed_for_and_named(saving: str | None, code: str | None) -> None:
    made = vs.Profile.from_times(steps_per_epoch=30, first_iteration_seconds=1.0, iteration_seconds=[0.1] * 20)
    ends = tuple(
        Boundary(
            epoch=number, seconds=seconds, before_validation_seconds=0.0, epoch_end_seconds=seconds, final=number > 0
        )
        for number, seconds in enumerate((2.4, 1.0))
    )
    timeline = made.timeline.model_copy(update={"boundaries": ends})
    changed = {
        "setup": made.setup.model_copy(update={"saving": saving}), "timeline": timeline, "outcome": "stopped",
    }  # fmt: skip
    found = vs.estimate(made.model_copy(update=changed), epochs=20)
    assert ({finding.code for finding in found.findings} & {"saves-the-best", "saves-by-batches"}) == ({code} - {None})
    assert (found.low < found.seconds - 15) == (saving == "best")
