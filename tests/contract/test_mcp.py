"""``vmselect mcp`` as agents use it: the SDK's client lists and calls the tools of a real server over stdio."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

import vmselect as vs

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from descriptions import make_description
from profiles import make_profile

mcp = pytest.importorskip("mcp", reason="the MCP SDK is not installed: no server was started")

CLI = ["-c", "from vmselect.cli import main; main()", "mcp"]
PLAN = {"command": "python train.py", "runner": "skypilot", "factors": {"instance_type": ["g5.xlarge"]}, "minutes": 30}
CALLS: dict[str, dict[str, Any]] = {
    "recommend": {"profiles": ["described"], "epochs": 50, "region": "eu"},
    "prices": {"instance_type": ["g4dn.xlarge", "g5.xlarge"], "market": "all"},
    "estimate": {"profiles": ["profiles"], "epochs": 50},
    "rank": {"profiles": ["profiles"], "epochs": [5, 50], "objective": {"cost": 0.5, "time": 0.5}, "market": "all"},
    "check": {"profiles": ["profiles"]},
    "compare": {"paths": ["profiles"], "by": "instance_type"},
    "plan_sweep": PLAN,
}
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("fly", {}, "There is no tool fly."),
    ("rank", {}, "profiles"),
    ("rank", {"profiles": ["profiles"], "epochs": [1, {}]}, "epochs"),
    ("rank", {"profiles": ["profiles"], "epochs": 50, "keep": "forecasts"}, "keep"),
    ("rank", {"profiles": ["../"], "epochs": 50}, "vmselect mcp --folder"),
    ("check", {"profiles": ["nowhere.json"]}, "nowhere.json"),
    ("prices", {"instance_type": ["no.such.type"]}, "no.such.type"),
    ("plan_sweep", {**PLAN, "minutes": -1}, "minutes"),
]


def parameters(folder: Path) -> Any:
    own = {"VMSELECT_CACHE_DIR": str(folder.parent / "cache"), "TMPDIR": str(folder.parent)}
    return mcp.StdioServerParameters(command=sys.executable, args=CLI, cwd=str(folder), env={**os.environ, **own})


def contents(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("mcp") / "project"
    for name, seconds in (("g4dn.xlarge", 0.2), ("g5.xlarge", 0.08)):
        make_profile(name, [seconds * (1 + 0.01 * (i % 5)) for i in range(60)]).save(where / "profiles")
    make_description().save(where / "described")
    return where


@pytest.fixture(scope="module")
def session(folder: Path) -> dict[str, Any]:
    """What one server answers: its tools, each call, bad calls; then it is killed during a call."""
    answers: dict[str, Any] = {}

    async def talk() -> None:
        async with mcp.Client(parameters(folder)) as client:
            answers["tools"] = (await client.list_tools()).tools
            answers["good"] = {name: await client.call_tool(name, given) for name, given in CALLS.items()}
            answers["bad"] = [await client.call_tool(name, given) for name, given, _ in BAD]
            answers["after"] = await client.call_tool("check", CALLS["check"])
            (server,) = [one for one in psutil.Process().children() if CLI[1] in one.cmdline()]
            calling = asyncio.ensure_future(client.call_tool("rank", CALLS["rank"]))
            await asyncio.sleep(0.01)
            answers["processes"] = [server, *server.children(recursive=True)]
            server.send_signal(signal.SIGKILL)
            (answers["killed"],) = await asyncio.gather(calling, return_exceptions=True)

    answers["folder"] = contents(folder.parent)
    asyncio.run(talk())
    return answers


@pytest.fixture(autouse=True)
def no_refreshed_prices(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("VMSELECT_CACHE_DIR", str(folder.parent / "cache"))


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


def answer(session: dict[str, Any], name: str) -> dict[str, Any]:
    result = session["good"][name]
    assert not result.is_error, result.content
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


def test_every_tool_is_listed_as_reading_only(session: dict[str, Any]) -> None:
    assert {tool.name for tool in session["tools"]} == set(CALLS)
    for tool in session["tools"]:
        assert tool.annotations.read_only_hint
        assert tool.description
        assert tool.input_schema["additionalProperties"] is False


def test_prices_are_those_of_the_catalog(session: dict[str, Any]) -> None:
    offers = vs.Catalog.default().offers(instance_type=CALLS["prices"]["instance_type"], market="all")
    got = answer(session, "prices")
    assert [row["usd_per_hour"] for row in got["prices"]] == sorted(offers["usd_per_hour"])[:20]
    assert len(got["prices"]) + got["omitted"] == len(offers)


def test_estimates_are_those_of_python(session: dict[str, Any], folder: Path) -> None:
    rows = answer(session, "estimate")["estimates"]
    estimates = [vs.estimate(profile, epochs=50).to_dict() for profile in vs.load_profiles(folder / "profiles")]
    names = ("method", "epochs", "confidence", "seconds", "low", "high", "terms")
    assert [{name: row[name] for name in names} for row in rows] == plain(
        [{name: one[name] for name in names} for one in estimates]
    )


def test_the_ranking_is_that_of_python(session: dict[str, Any], folder: Path) -> None:
    profiles = vs.load_profiles(folder / "profiles")
    ranking = vs.rank(profiles, epochs=[5, 50], objective={"cost": 0.5, "time": 0.5}, market="all")
    assert answer(session, "rank") == json.loads(ranking.to_json(top=20))


def test_findings_are_those_of_the_profiles(session: dict[str, Any], folder: Path) -> None:
    codes = {finding.code for profile in vs.load_profiles(folder / "profiles") for finding in profile.findings}
    rows = answer(session, "check")["findings"]
    assert {row["code"] for row in rows if row["code"]} >= codes
    assert {row["instance_type"] for row in rows} == {"g4dn.xlarge", "g5.xlarge"}


def test_the_comparison_is_that_of_python(session: dict[str, Any], folder: Path) -> None:
    compared = vs.compare(vs.load_records(folder / "profiles"), by="instance_type")
    assert answer(session, "compare") == {"comparisons": [json.loads(compared.to_json())]}


def test_a_sweep_is_planned_and_not_started(session: dict[str, Any]) -> None:
    got = answer(session, "plan_sweep")
    assert got["worst_usd"] == pytest.approx(vs.Plan(**PLAN).to_frame()["worst_usd"].sum())
    assert "--yes" not in got["command"]


def test_bad_calls_are_tool_errors_and_the_server_goes_on(session: dict[str, Any]) -> None:
    for (_, _, message), result in zip(BAD, session["bad"], strict=True):
        assert result.is_error
        assert message in result.content[0].text
    assert not session["after"].is_error


def test_a_killed_server_leaves_nothing_behind(session: dict[str, Any], folder: Path) -> None:
    assert isinstance(session["killed"], Exception), "the call was answered before the server was killed"
    (server,) = session["processes"]
    with contextlib.suppress(psutil.NoSuchProcess):
        assert server.status() == psutil.STATUS_ZOMBIE
    assert contents(folder.parent) == session["folder"]


def test_a_lone_surrogate_is_answered(folder: Path) -> None:
    """JSON may contain half of a character, as "\\ud800", which no answer can repeat."""
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    calls = [
        {"id": 1, "method": "initialize", "params": about},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "check", "arguments": {"profiles": ["\ud800"]}}},
        {"id": 3, "method": "tools/call", "params": {"name": "\udfff", "arguments": {}}},
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **call}) + "\n" for call in calls)
    with subprocess.Popen(
        [sys.executable, *CLI], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(lines)
        server.stdin.flush()
        answers = {answer["id"]: answer for answer in (json.loads(server.stdout.readline()) for _ in range(3))}
        server.stdin.close()
    assert answers[2]["result"]["isError"]
    assert answers[3]["result"]["isError"]
