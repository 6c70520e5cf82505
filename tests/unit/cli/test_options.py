"""Options that commands share: defaults, prices, help."""

from __future__ import annotations

import contextlib
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

import vmselect as vs
from vmselect.catalog import describe_unpriced
from vmselect.catalog.snapshots import unpriced
from vmselect.cli import app, main
from vmselect.ranking import Interruptions

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from profiles import make_profile

UNPRICED, ANOTHER = (str(name) for name in unpriced()["instance_type"][:2])
"""Types that are known and have no price, whichever those are in the prices that ship."""

Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command as a user does; gives all that it printed."""
    monkeypatch.setenv("VMSELECT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["vmselect", *map(str, arguments)])
        with contextlib.suppress(SystemExit):
            main()
        return "".join(capsys.readouterr())

    return run


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    folder = tmp_path / "profiles"
    for name in ("g4dn.xlarge", UNPRICED, "made.up"):
        make_profile(name).save(folder)
    return folder


@pytest.mark.parametrize("command", ["rank", "report", "select"])
def test_defaults_are_those_of_the_library(command: str) -> None:
    library = {
        name: one.default
        for maker in (Interruptions, vs.rank)
        for name, one in inspect.signature(maker).parameters.items()
    }
    assert library["epochs"] is None
    library["epochs"] = "as probed"
    for option in typer.main.get_command(app).commands[command].params:  # type: ignore[attr-defined]
        if isinstance(shown := getattr(option, "show_default", None), str):
            default = library[option.name]
            assert shown == (f"{default:g}" if isinstance(default, float) else default)
            assert option.default is None


def test_all_means_all_in_python_and_in_options(run: Run, profiles: Path) -> None:
    text = run("rank", profiles, "-e", 5, "--market", "all", "--region", "all", "--format", "json")
    printed, _ = json.JSONDecoder().raw_decode(text)  # findings follow
    ranking = vs.rank(vs.load_profiles(profiles), epochs=5, market="all", region="all")
    assert printed["rows"] == json.loads(ranking.to_json())["rows"]
    assert len({row["market"] for row in printed["rows"]}) > 1


def test_machines_without_a_price_are_excluded_with_the_reason(run: Run, profiles: Path) -> None:
    printed = run("rank", profiles, "-e", 5)
    assert describe_unpriced(UNPRICED) in printed
    assert "Excluded: made.up" in printed


def test_one_type_without_a_price_does_not_hide_the_others(run: Run) -> None:
    printed = run("prices", "show", UNPRICED, "g4dn.xlarge", ANOTHER)
    assert "g4dn.xlarge" in printed
    for name in (UNPRICED, ANOTHER):
        assert describe_unpriced(name) in printed


def test_own_prices_add_to_the_shipped_ones_and_a_catalog_replaces_them(run: Run, profiles: Path) -> None:
    own = profiles.parent / "own.csv"
    own.write_text("provider,instance_type,region,market,usd_per_hour\nlab,made.up,here,on_demand,0.01\n")
    printed = run("rank", profiles, "-e", 5, "--own-prices", own)
    assert "made.up (lab, here, on_demand)" in printed.splitlines()[0]
    assert "g4dn.xlarge" in printed
    assert "Excluded: g4dn.xlarge" not in printed
    assert "Excluded: g4dn.xlarge" in run("rank", profiles, "-e", 5, "--catalog", own)


@pytest.mark.parametrize("command", ["probe", "estimate", "rank", "prices show", "compare", "transfer", "sweep run"])
def test_help_shows_no_value_for_flags(run: Run, command: str) -> None:
    lines = [line for line in run(*command.split(), "--help").splitlines() if "--help" not in line]
    assert any("--" in line for line in lines)
    assert not [line for line in lines if "bool" in line.lower()]


def test_python_m_vmselect_is_the_command_line() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "vmselect", "--version"], capture_output=True, text=True, check=True
    )
    assert printed.stdout == f"vmselect {vs.__version__}\n"
