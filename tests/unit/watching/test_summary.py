"""What the page says about watched trainings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import vmselect as vs
from tests.support.forecasts import make_forecast
from tests.support.pages import blocks
from tests.support.parts import EPOCHS, INIT, make_part, split
from tests.support.profiles import make_epoch_profile
from vmselect.cli import app
from vmselect.report.page import page_data
from vmselect.watching.summary import MOST, sum_up

PRICE = 3.6
"""USD per hour of the machine: a thousandth of a dollar per second."""


@pytest.fixture(scope="module")
def ranking() -> vs.Ranking:
    offer = {"provider": "lab", "instance_type": "g4dn.xlarge", "region": "here", "usd_per_hour": PRICE}
    spot = offer | {"market": "spot", "usd_per_hour": 1.0}
    catalog = vs.Catalog.default().with_offers([offer, spot]).where(provider="lab")
    return vs.rank([make_epoch_profile("g4dn.xlarge", 10.0, 9.0)], epochs=EPOCHS, catalog=catalog, market="all")


def test_an_ended_training_of_several_parts_and_its_forecast(ranking: vs.Ranking) -> None:
    parts = split([3, 7], begun=0.5)
    forecast = make_forecast(seconds=20.0, epochs=float(EPOCHS))
    (training,) = sum_up(ranking, parts[:1], [*parts, forecast])
    seconds = sum(part.timeline.wall_seconds + INIT for part in parts)
    assert (training.state, training.epochs_done, training.epochs) == ("ended", EPOCHS, EPOCHS)
    assert (training.parts, training.interruptions, training.missing_epochs) == (3, 2, 0)
    assert training.seconds == pytest.approx(seconds)
    assert training.usd == pytest.approx(seconds / 1000)
    assert (training.market, training.usd_per_hour) == ("on_demand", PRICE)
    assert training.forecast.error_percent == pytest.approx(100 * (20.0 / seconds - 1))
    assert training.forecast.inside == (18.0 <= seconds <= 22.0)
    assert training.lost_seconds > 2 * (INIT + 0.5)


def test_a_running_training_has_its_rest_with_an_interval(ranking: vs.Ranking) -> None:
    parts = split([3, 7])[:2]
    (training,) = sum_up(ranking, parts)
    assert (training.state, training.epochs_done, training.parts) == ("running", 7, 2)
    per_epoch = 1.0 + 0.3 + 0.2
    assert training.remaining.low < 3 * per_epoch < training.remaining.high
    assert training.total.value == pytest.approx(training.seconds + training.remaining.value)
    assert training.final_usd.value == pytest.approx(training.total.value / 1000)
    assert training.usd < training.final_usd.low
    assert training.forecast is None


def test_an_interrupted_training_says_why_and_what_is_missing(ranking: vs.Ranking) -> None:
    (training,) = sum_up(ranking, [make_part(4, 3, detail="ValueError: wrong", ending=None)])
    assert (training.state, training.detail) == ("interrupted", "ValueError: wrong")
    assert (training.missing_epochs, training.epochs_done, training.interruptions) == (4, 7, 0)


def test_probes_and_imported_times_are_not_watched(ranking: vs.Ranking) -> None:
    probes = [make_part(0, 2), make_part(0, 1, outcome="stopped"), make_epoch_profile("a", 10.0)]
    assert sum_up(ranking, probes) == []
    several = [make_part(0, EPOCHS, number=number, factors={"seed": number}) for number in range(MOST + 2)]
    assert [training.begun for training in sum_up(ranking, several)] == [
        part.created.isoformat(timespec="seconds") for part in several[:1:-1]
    ]


def test_unknown_prices_and_lengths_are_none(ranking: vs.Ranking) -> None:
    endless = make_part(0, 4, instance_type="other")
    endless = endless.model_copy(update={"setup": endless.setup.model_copy(update={"epochs": None})})
    (training,) = sum_up(ranking, [endless])
    assert (training.usd, training.market, training.remaining, training.final_usd) == (None, None, None, None)


def test_the_page_has_plain_values(ranking: vs.Ranking) -> None:
    data = page_data(ranking, records=split([3])[:1])["page"]["trainings"]
    (training,) = json.loads(json.dumps(data, allow_nan=False))
    assert [type(value) for value in training["remaining"]] == [float] * 3
    assert page_data(ranking)["page"]["trainings"] == []


def test_the_commands_write_the_section(tmp_path: Path) -> None:
    part = split([6])[0]
    path = part.save(tmp_path / "records")
    for number, arguments in enumerate([["--running", str(path)], [str(path.parent), "-e", "10"]]):
        page = tmp_path / f"{number}.html"
        CliRunner().invoke(app, ["rank", *arguments, "--html", str(page)], catch_exceptions=False)
        (training,) = json.loads(blocks(page.read_text())["data"])["page"]["trainings"]
        assert (training["state"], training["epochs_done"]) == ("running", 6)


def test_what_continues_a_complete_training_is_another_training(ranking: vs.Ranking) -> None:
    whole, more = make_part(0, EPOCHS), make_part(4, 6, number=1)
    assert [training.missing_epochs for training in sum_up(ranking, [whole, more])] == [4, 0]
