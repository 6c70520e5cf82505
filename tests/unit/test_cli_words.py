"""What commands say: options instead of arguments of Python, and what to run instead of what to write."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import vmselect as vs
from vmselect.catalog import describe_unpriced
from vmselect.catalog.snapshot import unpriced
from vmselect.cli import main
from vmselect.cli.wording import in_options

PYTHON = re.compile(r"\b[a-z_]+=(?![a-z\d])|with_offers|vmselect\.[a-z]")
"""An argument without a value, a method, a name in the package."""

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


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("rank", "--market", "all", "-e", 5), "--interruptions-per-hour"),
        (("rank", "-e", 5), "--own-prices FILE"),
        (("rank", "-e", 5, "--region", "eu-west-1"), "--source skypilot --region eu-west-1"),
        (("estimate",), "--epochs"),
        (("check",), ""),
        (("prices", "show", UNPRICED), "--own-prices FILE"),
    ],
)
def test_messages_name_options(run: Run, profiles: Path, arguments: tuple[object, ...], expected: str) -> None:
    command, *options = arguments
    printed = run(command, *([] if command == "prices" else [profiles]), *options)
    assert expected in printed
    assert not PYTHON.findall(printed.replace(str(profiles), ""))


def test_the_remedies_of_a_check_name_options(run: Run, tmp_path: Path) -> None:
    vs.Profile.from_times(iteration_seconds=[0.1] * 10, batch_size=64, steps_per_epoch=10).save(tmp_path / "one.json")
    printed = run("check", tmp_path / "one.json")
    assert "--instance-type" in printed
    assert "instance_type=" not in printed


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
    assert "Left out: g4dn.xlarge" not in printed
    alone = run("rank", profiles, "-e", 5, "--catalog", own)
    assert "Left out: g4dn.xlarge" in alone


@pytest.mark.parametrize(
    "text",
    [
        "runs/batch_size=64/a.json: no profile",
        "trial 3 (batch_size=64) failed",
        "--option must be written as name=value",
        "write it as cost=0.7,time=0.3.",
        "python train.py --batch_size=64",
    ],
)
def test_what_only_looks_like_an_argument_stays(text: str) -> None:
    assert in_options(text) == text


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
