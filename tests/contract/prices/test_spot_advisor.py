"""The Spot Instance Advisor of AWS, served on loopback."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from vmselect.catalog import interruptions
from vmselect.catalog.sources.spot_advisor import fetch_classes
from vmselect.cli import app
from vmselect.errors import RefreshError

RANGES = [
    {"index": number, "label": label, "dots": number, "max": 5 * number}
    for number, label in enumerate(interruptions.SHARES)
]
ANSWER: dict[str, Any] = {
    "global_rate": "<10%",
    "instance_types": {"g5.xlarge": {"cores": 4, "emr": True, "ram_gb": 16.0}},
    "ranges": RANGES,
    "spot_advisor": {
        "us-east-1": {
            "Linux": {
                "g5.xlarge": {"s": 40, "r": 3}, "p5.48xlarge": {"s": 60, "r": 9}, "=bad": {"s": 1, "r": 1}, "x": 7,
                "g6.xlarge": {"s": 1, "r": [1]}, "g4dn.xlarge": {"s": 1, "r": None},
            },
            "Windows": {"g5.xlarge": {"s": 10, "r": 0}},
        },
        "eu-west-1": {"Linux": {"g5.xlarge": {"s": 50, "r": 0}}},
        "mars": None,
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def _fresh():
    interruptions._classes.cache_clear()
    yield
    interruptions._classes.cache_clear()


def test_classes_of_linux_machines_are_read(cloud, answer, client) -> None:
    cloud.reply = lambda _: answer(ANSWER)
    assert fetch_classes(url=f"{cloud.url}/data.json", client=client) == {
        ("aws", "g5.xlarge", "us-east-1"): "15-20%",
        ("aws", "g5.xlarge", "eu-west-1"): "<5%",
    }


LISTS = {"ranges": [{"index": [1], "label": "<5%"}], "spot_advisor": ANSWER["spot_advisor"]}


@pytest.mark.parametrize(
    "wrong", [{}, {"ranges": RANGES}, {"ranges": RANGES, "spot_advisor": {}}, {"ranges": 3}, LISTS]
)
def test_another_form_is_an_error(cloud, answer, client, wrong: Any) -> None:
    cloud.reply = lambda _: answer(wrong)
    with pytest.raises(RefreshError):
        fetch_classes(url=cloud.url, client=client)


def test_the_command_stores_the_classes(cloud, answer, client, monkeypatch) -> None:
    cloud.reply = lambda _: answer(ANSWER)
    monkeypatch.setattr("vmselect.catalog.sources.spot_advisor.URL", cloud.url)
    monkeypatch.setattr("vmselect.catalog.sources.spot_advisor.JsonClient", lambda: client)
    run = CliRunner().invoke(app, ["prices", "refresh", "--interruptions", "--format", "json"])
    assert run.exit_code == 0, run.output
    assert [(row["provider"], row["state"], row["rows"]) for row in json.loads(run.stdout)] == [("aws", "fetched", 2)]
    known = interruptions.find_class("aws", "g5.xlarge", "us-east-1")
    assert known is not None
    assert known.label == "15-20%"
