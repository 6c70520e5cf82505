"""Every option is declared once: Python, command line, tools for agents and JSON have the same ones."""

from __future__ import annotations

import inspect
import json

import pytest
import typer

import vmselect as vs
from tests.support.rankings import probe, rank
from vmselect.catalog import Catalog
from vmselect.cli import app
from vmselect.cli.mcp import list_tools
from vmselect.errors import ArgumentError
from vmselect.ranking.options import BY_NAME, OPTIONS, SETTINGS, Settings

OBJECTS = {
    "workload": vs.Workload, "scale": vs.Scale, "interruptions": vs.Interruptions, "emissions": vs.energy.Emissions,
    "catalog": Catalog.where,
}  # fmt: skip
"""The objects that own options which are no arguments of rank."""


def test_rank_has_the_declared_arguments_with_their_defaults() -> None:
    parameters = inspect.signature(vs.rank).parameters
    declared = {option.name for option in OPTIONS if option.owner == "rank"}
    assert set(parameters) == declared | {"profiles", *OBJECTS, "transfer"}
    assert len(parameters) <= 23  # profiles and 22 options
    for name in declared - {"history"}:
        assert parameters[name].default == BY_NAME[name].default


def test_objects_have_the_options_that_they_own() -> None:
    for option in OPTIONS:
        if option.owner in OBJECTS:
            assert option.argument in inspect.signature(OBJECTS[option.owner]).parameters


def test_the_command_line_has_every_option_and_the_tools_for_agents_no_others() -> None:
    command = typer.main.get_command(app).commands["rank"]  # type: ignore[attr-defined]
    options = {option.name for option in OPTIONS}
    parameters = {parameter.name for parameter in command.params}
    assert options <= parameters
    for tool in ("rank", "recommend"):
        arguments = set(list_tools()[tool].input_schema["properties"])
        assert arguments <= parameters
        assert {"objective", "deadline_hours", "budget_usd", "provider", "region", "market"} <= arguments & options


def test_json_has_every_setting_by_its_name() -> None:
    settings = json.loads(rank().to_json())["settings"]
    assert set(settings) == {option.name for option in SETTINGS} | {"billing", "quantile"}
    assert set(vars(Settings.read(epochs=5))) == {option.name for option in SETTINGS} | {"billing"}


def test_json_settings_have_the_words_of_python() -> None:
    settings = json.loads(rank(market="all", region="all", epochs=[10, 5]).to_json())["settings"]
    assert (settings["market"], settings["region"], settings["epochs"]) == ("all", "all", [10, 5])
    assert json.loads(rank(market="spot").to_json())["settings"]["market"] == ["spot"]


def test_one_chance_applies_to_every_limit() -> None:
    alone = [probe()]
    hours, usd = rank(alone).best.seconds / 3600 * 1.001, rank(alone).best.cost_usd * 1.001
    for limit in ({"deadline_hours": hours}, {"budget_usd": usd}):
        assert rank(alone, **limit)
        assert rank(alone, **limit, chance=0.4)
        assert not rank(alone, **limit, chance=0.999)
    with pytest.raises(ArgumentError, match="chance"):
        rank(chance=0.9)


def test_interruptions_may_be_a_rate() -> None:
    rate, spelled = (rank(market="spot", interruptions=given).best for given in (0.1, vs.Interruptions(per_hour=0.1)))
    assert rate.seconds == spelled.seconds
