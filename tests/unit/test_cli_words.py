"""The command line as a whole: defaults, prices, help."""

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
        printed = capsys.readouterr()
        return printed.out + printed.err

    return run


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    folder = tmp_path / "profiles"
    folder.mkdir()
    for name in ("g4dn.xlarge", UNPRICED, "made.up"):
        vs.Profile.from_times(
            instance_type=name, batch_size=64, steps_per_epoch=100, init_seconds=1.0, first_iteration_seconds=2.0,
            iteration_seconds=[0.1] * 10,
        ).save(folder)  # fmt: skip
    return folder


def test_the_defaults_of_rank_are_those_of_the_library() -> None:
    library = {
        name: one.default
        for maker in (Interruptions, vs.rank)
        for name, one in inspect.signature(maker).parameters.items()
    }
    library["epochs"] = ",".join(map(str, library["epochs"]))
    for option in typer.main.get_command(app).commands["rank"].params:  # type: ignore[attr-defined]
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


def test_a_machine_without_a_price_is_told_from_one_that_is_not_known(run: Run, profiles: Path) -> None:
    printed = run("rank", profiles, "-e", 5)
    assert f"no price of {UNPRICED} is known ({describe_unpriced(UNPRICED)})" in printed
    assert "the catalog has no price of made.up" in printed


def test_one_type_without_a_price_does_not_hide_the_others(run: Run) -> None:
    printed = run("prices", "show", UNPRICED, "g4dn.xlarge", ANOTHER)
    assert "1 prices in USD per hour" in printed
    assert f"No price of {UNPRICED} is known ({describe_unpriced(UNPRICED)})" in printed
    assert f"No price of {ANOTHER} is known" in printed


def test_own_prices_count_beside_the_shipped_ones(run: Run, profiles: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.csv"
    own.write_text("provider,instance_type,region,market,usd_per_hour\nlab,made.up,here,on_demand,0.01\n")
    printed = run("rank", profiles, "-e", 5, "--own-prices", own)
    assert "Rent made.up (lab, here, on_demand)" in printed
    assert "g4dn.xlarge" in printed
    assert "Excluded: g4dn.xlarge" not in printed
    alone = run("rank", profiles, "-e", 5, "--catalog", own)
    assert "Excluded: g4dn.xlarge" in alone


@pytest.mark.parametrize("command", ["probe", "estimate", "rank", "prices show", "compare", "transfer", "sweep run"])
def test_flags_look_like_flags(run: Run, command: str) -> None:
    lines = [line for line in run(*command.split(), "--help").splitlines() if "--help" not in line]
    assert any("--" in line for line in lines)
    assert not [line for line in lines if "bool" in line.lower()]


def test_the_command_line_is_there_without_its_script() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "vmselect", "--version"], capture_output=True, text=True, check=True
    )
    assert printed.stdout == f"vmselect {vs.__version__}\n"
