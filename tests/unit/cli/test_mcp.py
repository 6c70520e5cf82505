"""The tools for agents, without the protocol: arguments, paths, answers."""

from __future__ import annotations

import inspect
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import vmselect as vs
from vmselect.cli import app
from vmselect.cli.demo import DESCRIPTIONS
from vmselect.cli.mcp import PATHS, list_tools, mcp
from vmselect.errors import ArgumentError, ProfileError, VmselectError

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from profiles import make_profile

SWEEP = {"command": "python train.py", "runner": "skypilot", "factors": {"instance_type": ["g5.xlarge"]}, "minutes": 30}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VMSELECT_CACHE_DIR", str(tmp_path / "cache"))
    for name, seconds in (("g4dn.xlarge", 0.2), ("g5.xlarge", 0.08)):
        make_profile(name, seconds).save(tmp_path / "project" / "profiles")
    make_profile("g6.xlarge").save(tmp_path / "private" / "secret.json")
    return tmp_path / "project"


def call(name: str, folder: Path, **arguments: Any) -> dict[str, Any]:
    answer = list_tools()[name].call(arguments, [folder])
    return json.loads(json.dumps(answer, allow_nan=False))


def test_tools_are_few_and_have_few_arguments() -> None:
    tools = list_tools()
    assert next(iter(tools)) == "recommend"
    assert len(tools) <= 7
    assert max(len(tool.parameters) for tool in tools.values()) <= 15


def test_the_help_names_all_tools() -> None:
    (listed,) = re.findall(r"The tools are ([^.]+)\.", inspect.getdoc(mcp))
    assert re.split(r",\s+|\s+and\s+", listed) == list(list_tools())


def test_the_next_probe_is_that_of_python(folder: Path) -> None:
    machines = ["g6.xlarge", "g6e.xlarge"]
    probe = vs.rank(vs.load_profiles(folder / "profiles"), epochs=5000, machines=machines).next_probe
    found = call("rank", folder, profiles=["profiles"], epochs=5000, machines=machines)["next_probe"]
    assert found == (json.loads(json.dumps(asdict(probe))) if probe else None)


def test_the_arguments_are_the_options_of_the_commands() -> None:
    schema = list_tools()["rank"].input_schema
    ranked = set(inspect.signature(vs.rank).parameters) & set(schema["properties"])
    assert {"epochs", "objective", "deadline_hours", "machines"} <= ranked
    assert schema["required"] == ["profiles"]
    assert schema["additionalProperties"] is False
    assert "hours" in schema["properties"]["deadline_hours"]["description"]
    assert schema["properties"]["top"]["minimum"] == 1


def test_no_tool_can_write_or_run() -> None:
    named = {argument for tool in list_tools().values() for argument in tool.parameters}
    assert named.isdisjoint({"keep", "html", "output", "out", "report", "path", "folder", "yes", "script", "format"})


def test_every_argument_that_names_a_file_is_restricted() -> None:
    """An option of the type Path always is; a text whose help speaks of files or folders must be in PATHS."""
    for name, tool in list_tools().items():
        for argument, schema in tool.input_schema["properties"].items():
            text = json.dumps(schema).lower()
            if '"format": "path"' not in text and ("file" in text.replace("profile", "") or "folder" in text):
                assert argument in PATHS, (name, argument)


@pytest.mark.parametrize("given", ["../private", "../private/secret.json", "/etc/passwd", "link", "s3://team/records"])
def test_paths_outside_the_folders_are_refused(given: str, folder: Path) -> None:
    (folder / "link").symlink_to(folder.parent / "private")
    for name, argument in (("rank", "profiles"), ("compare", "paths")):
        with pytest.raises(ArgumentError):
            call(name, folder, **{argument: ["profiles", given]})
    with pytest.raises(ArgumentError):
        call("rank", folder, profiles=["profiles"], epochs=50, history=[given])
    for name in ("catalog", "own_prices", "grid_hourly"):
        with pytest.raises(ArgumentError, match=name):
            call("rank", folder, profiles=["profiles"], epochs=50, **{name: given})


def test_a_link_in_a_folder_does_not_lead_out_of_it(folder: Path) -> None:
    """A folder is read as a whole, so an agent need not name the link."""
    (folder / "profiles" / "link.json").symlink_to(folder.parent / "private" / "secret.json")
    for profiles in ("profiles", "profiles/."):
        answer = call("estimate", folder, profiles=[profiles], epochs=5)
        assert "g6.xlarge" not in json.dumps(answer)
        assert [error for error in answer["errors"] if "link.json" in error]
    answer = list_tools()["check"].call({"profiles": ["profiles"]}, [folder])
    assert "g6.xlarge" not in json.dumps(answer)
    assert [error for error in answer["errors"] if "link.json" in error]
    inside = [folder, folder.parent / "private"]
    assert list_tools()["check"].call({"profiles": ["profiles"]}, inside)["errors"] == []
    (folder / "profiles" / "link.json").unlink()
    (folder / "profiles" / "history").symlink_to(folder.parent / "private")
    assert call("estimate", folder, profiles=["profiles"], epochs=5)["errors"] == []


def test_a_second_folder_may_be_read(folder: Path) -> None:
    private = folder.parent / "private"
    arguments = {"profiles": ["profiles", str(private)]}
    answer = list_tools()["check"].call(arguments, [folder, private])
    assert {row["instance_type"] for row in answer["findings"]} == {"g4dn.xlarge", "g5.xlarge", "g6.xlarge"}


def test_a_value_is_accepted_where_python_takes_a_value_or_a_list(folder: Path) -> None:
    as_list = call("rank", folder, profiles=["profiles"], epochs=[50], provider=["aws"])
    assert call("rank", folder, profiles=["profiles"], epochs=50, provider="aws") == as_list


def test_a_recommendation_needs_no_probe(folder: Path) -> None:
    described = vs.Profile.load(DESCRIPTIONS / "resnet50.json")
    described.save(folder / "described")
    tool = list_tools()["recommend"]
    assert len(tool.parameters) <= 15
    answer = tool.call({"profiles": ["described"], "provider": "aws", "top": 2}, [folder])
    assert {row["basis"] for row in answer["ranking"]["rows"]} == {"described"}
    assert len(answer["ranking"]["rows"]) == 2
    assert (answer["ranking"]["next_probe"] is None) == (not answer["commands"])
    assert answer["reason"].endswith(".")


def test_a_ranking_is_that_of_python(folder: Path) -> None:
    ranking = vs.rank(vs.load_profiles(folder / "profiles"), epochs=[5, 50], market="all", objective="time")
    arguments = {"epochs": [5, 50], "market": "all", "objective": "time"}
    assert call("rank", folder, profiles=["profiles"], top=100, **arguments) == json.loads(ranking.to_json(top=100))
    short = call("rank", folder, profiles=["profiles"], top=2, **arguments)
    assert short["omitted"]["rows"] == len(ranking) - 2
    named = [short["machines"][short["candidates"][row["candidate"]]["machine"]] for row in short["rows"]]
    assert [one["instance_type"] for one in named] == [row.instance_type for row in ranking.rows[:2]]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("rank", {}, "profiles"),
        ("rank", {"profiles": ["profiles"], "speed": 1}, "speed"),
        ("rank", {"profiles": ["profiles"], "keep": "forecasts"}, "keep"),
        ("rank", {"profiles": "profiles"}, "profiles"),
        ("rank", {"profiles": ["profiles"], "top": 0}, "top"),
        ("rank", {"profiles": ["profiles"], "epochs": "many"}, "epochs"),
        ("rank", {"profiles": ["profiles"], "epochs": 50, "market": "bazaar"}, "market"),
        ("rank", {"profiles": ["profiles"], "epochs": 50, "deadline_hours": -1}, "deadline_hours"),
        ("estimate", {"profiles": ["nowhere"]}, "nowhere"),
        ("check", {"profiles": ["nowhere"]}, "nowhere"),
        ("compare", {"paths": ["profiles"], "metric": "beauty"}, "beauty"),
        ("prices", {"date": "yesterday"}, "yesterday"),
        ("plan_sweep", {**SWEEP, "runner": "teleport"}, "runner"),
        ("plan_sweep", {**SWEEP, "command": "python train.py; rm -rf /"}, "command"),
    ],
)
def test_bad_arguments_are_errors_that_name_the_argument(
    name: str, arguments: dict[str, Any], message: str, folder: Path
) -> None:
    with pytest.raises(VmselectError, match=message):
        call(name, folder, **arguments)


def test_a_plan_is_returned_with_its_cost_and_a_command_that_asks(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    answer = call("plan_sweep", folder, **SWEEP, budget_usd=2)
    plan = vs.Plan(**SWEEP)  # type: ignore[arg-type]
    assert answer["worst_usd"] == pytest.approx(plan.to_frame()["worst_usd"].sum())
    assert (answer["within_budget"], answer["trials"]) == (True, 1)
    assert answer["command"] == "vmselect sweep run plan.yaml sweep/ --budget-usd 2"
    (folder / "plan.yaml").write_text(answer["plan_yaml"])
    assert vs.Plan.load(folder / "plan.yaml").fingerprint == plan.fingerprint
    (folder / "plan.yaml").unlink()
    assert sorted(folder.rglob("*")) == before


def test_a_folder_without_readable_profiles_is_an_error(folder: Path) -> None:
    (folder / "broken.json").write_text("{")
    with pytest.raises(ProfileError):
        call("check", folder, profiles=["broken.json"])
    answer = call("check", folder, profiles=["profiles", "broken.json"])
    assert (len(answer["findings"]) >= 2, len(answer["errors"])) == (True, 1)


def test_a_missing_sdk_is_an_error_with_the_command_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.lowlevel", None)
    error = CliRunner().invoke(app, ["mcp"]).exception
    assert isinstance(error, vs.errors.MissingPackageError)
    assert 'pip install "vmselect[mcp]"' in str(error)
