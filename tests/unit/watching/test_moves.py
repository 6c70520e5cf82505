"""Whether it pays to move a running training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import vmselect as vs
from vmselect.cli import app
from vmselect.cli.demo import DESCRIPTIONS, assumed_probe
from vmselect.intervals import Interval
from vmselect.watching.moves import chance_below, count_epochs_left, rank_moves

OFFERS = [
    {"provider": "lab", "instance_type": name, "region": "here", "market": "on_demand", "usd_per_hour": usd}
    for name, usd in (("slow", 1.0), ("fast", 2.0))
]
CATALOG = vs.Catalog.default().with_offers(OFFERS)


def make_profile(name: str = "slow", step_seconds: float = 1.0, **changes: Any) -> vs.Profile:
    times = {
        "instance_type": name, "provider": "lab", "region": "here", "batch_size": 8, "steps_per_epoch": 1000,
        "init_seconds": 5.0, "first_iteration_seconds": 2.0, "epochs": 50, "model": "net",
        "iteration_seconds": [step_seconds, step_seconds * 1.01, step_seconds * 0.99] * 5,
    }  # fmt: skip
    return vs.Profile.from_times(**(times | changes))


def move(fast_seconds: float, **arguments: Any) -> vs.watching.moves.Moves:
    running, other = make_profile(), make_profile("fast", fast_seconds)
    return rank_moves(running, catalog=CATALOG, machines=None, probes=[other], **arguments)


def test_a_much_faster_machine_is_worth_the_move() -> None:
    moves = move(0.1, epochs_left=40)
    assert moves.suggested is not None
    assert moves.suggested.instance_type == "fast"
    assert moves.suggested.saving_usd == pytest.approx(moves.stay_usd.value - moves.suggested.usd.value)
    assert moves.stay_usd.value == pytest.approx(40 * 1000 / 3600, rel=0.02)
    assert moves.suggested.seconds.value == pytest.approx(180 + 5 + 2 + 40 * 100, rel=0.02)


def test_moving_has_a_price() -> None:
    assert move(0.45, epochs_left=1).suggested is None  # booting and starting again eat the saving
    assert move(0.45, epochs_left=1, boot_seconds=1e5)[0].saving_usd < 0
    late = move(0.1, epochs_left=40, lost_seconds=30_000.0)
    assert late[0].saving_usd < move(0.1, epochs_left=40)[0].saving_usd


def test_a_slower_machine_is_not_suggested() -> None:
    moves = move(2.0, epochs_left=40)
    assert moves.suggested is None
    assert moves[0].chance < 0.1


def test_a_wide_interval_upwards_counts() -> None:
    stay = Interval(1.5, 1.45, 1.55)
    assert chance_below(Interval(0.23, 0.05, 1.55), stay) == pytest.approx(0.95, abs=0.01)
    assert chance_below(Interval(1.5, 1.4, 1.6), stay) == pytest.approx(0.5)
    assert chance_below(Interval(0.0, 0.0, 0.0), stay) == 1.0


def test_interruptions_of_the_present_machine_make_a_move_worth_more() -> None:
    often = vs.Interruptions.observed(9, 5.0, checkpoint_minutes=10)
    assert often.per_hour > 0.01
    assert move(0.4, own_interruptions=often)[0].saving_usd > move(0.4)[0].saving_usd


def test_the_suggestion_is_a_task_for_skypilot() -> None:
    task = move(0.1).to_task()
    assert task["resources"] == {"infra": "lab/here", "instance_type": "fast", "use_spot": False}
    assert move(5.0).to_task() == {}
    google = {"provider": "gcp", "region": "us-central1", "market": "spot", "usd_per_hour": 0.1}
    name = "n1-standard-4+1xT4"
    catalog = CATALOG.with_offers([google | {"instance_type": name}])
    probe = make_profile(name, 0.1, provider="gcp", region="us-central1")
    moves = rank_moves(make_profile(), catalog=catalog, machines=None, probes=[probe], market="spot")
    assert moves.to_task()["resources"] == {
        "infra": "gcp/us-central1", "instance_type": "n1-standard-4", "accelerators": "T4:1", "use_spot": True,
    }  # fmt: skip


def test_the_epochs_left_are_those_of_the_record() -> None:
    assert count_epochs_left(make_profile()) == 50
    with pytest.raises(vs.errors.ArgumentError, match="epochs_left"):
        count_epochs_left(make_profile(epochs=None))


def test_the_command_takes_one_record(tmp_path: Path) -> None:
    for name in ("slow", "fast"):
        make_profile(name).save(tmp_path)
    done = CliRunner().invoke(app, ["rank", "--running", str(tmp_path)])
    assert isinstance(done.exception, vs.errors.ArgumentError) or done.exit_code == 2


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """A record of a training on a T4, described so that other machines can be predicted."""
    described = vs.Profile.load(DESCRIPTIONS / "resnet50.json")
    ranking = vs.rank(described, machines=["g4dn.xlarge"])
    return Path(str(assumed_probe(described, ranking, ranking.best).save(tmp_path / "running.json")))


COMMAND = ["--epochs", "80", "--machines", "g4dn.xlarge,g6.xlarge,a2-highgpu-1g", "--market", "spot"]


def test_the_printed_task_can_be_read(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (record.parent / "sky.py").write_text("")  # as if SkyPilot were installed
    monkeypatch.syspath_prepend(record.parent)
    prices = record.with_name("prices.csv")
    header = "provider,instance_type,region,market,usd_per_hour,gpu_model,gpu_count"
    prices.write_text(f"{header}\naws,g6.xlarge,us-east-1,spot,0.01,L4,1\n")
    done = CliRunner().invoke(app, ["rank", "--running", str(record), *COMMAND, "--own-prices", str(prices)])
    assert done.exit_code == 0, done.output
    text = done.stdout[done.stdout.index("resources:") : done.stdout.index("instance_type  ")]
    task = yaml.safe_load(text)
    assert task["resources"] == {"infra": "aws/us-east-1", "instance_type": "g6.xlarge", "use_spot": True}
    assert set(task) == {"resources", "workdir", "run"}


@pytest.mark.parametrize(
    "options",
    [
        ["--next"], ["--study", "s"], ["--relative"], ["--against", "x"], ["--keep", "x"], ["--model", "x"],
        ["--recalibrate", "x"], ["--ignore-missing"], ["--examples", "10"],
    ],
)  # fmt: skip
def test_options_without_effect_are_refused(options: list[str], record: Path) -> None:
    done = CliRunner().invoke(app, ["rank", "--running", str(record), *COMMAND, *options])
    assert isinstance(done.exception, vs.errors.ArgumentError)
    assert options[0] in str(done.exception)
    assert CliRunner().invoke(app, ["rank", "--next", str(record), "--relative"]).exit_code != 0
