"""Options that commands share: defaults, prices, help."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

import vmselect as vs
from vmselect.catalog import describe_unpriced
from vmselect.catalog.offer import REQUIRED
from vmselect.catalog.shipped import unpriced
from vmselect.cli import _name_options, app, main
from vmselect.cli.options import note_unknown_type, parse
from vmselect.ranking.options import BY_NAME

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


def test_an_option_that_is_not_given_leaves_the_default_to_the_library() -> None:
    for option in typer.main.get_command(app).commands["rank"].params:  # type: ignore[attr-defined]
        if option.name in BY_NAME:
            assert option.default in (None, False)


def test_lists_are_written_with_commas_or_repeated(run: Run, profiles: Path) -> None:
    once = run("rank", profiles, "-e", "5,10", "--market", "on_demand,spot", "--format", "json")
    twice = run("rank", profiles, "-e", 5, "-e", 10, "--market", "on_demand", "--market", "spot", "--format", "json")
    assert once == twice
    settings = json.JSONDecoder().raw_decode(once)[0]["settings"]
    assert (settings["epochs"], settings["market"]) == ([5, 10], ["on_demand", "spot"])


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (["us-east-1,eu"], ["us-east-1", "eu"]),
        (["us-east-1, eu", "de"], ["us-east-1", "eu", "de"]),
        (["US, NA"], ["US, NA"]),  # a region of a marketplace
        (["Oregon, US, NA,us-east-1"], ["Oregon, US, NA", "us-east-1"]),
        (["all"], "all"),
    ],
)
def test_the_name_of_a_region_may_contain_commas(given: list[str], names: object) -> None:
    assert parse(BY_NAME["region"], given) == names


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
    assert "made.up at lab here" in printed.splitlines()[0]
    assert "g4dn.xlarge" in printed
    assert "Excluded: g4dn.xlarge" not in printed
    assert "Excluded: g4dn.xlarge" in run("rank", profiles, "-e", 5, "--catalog", own)


@pytest.mark.parametrize(
    "command", ["probe", "estimate", "rank", "prices show", "compare", "serve transfer", "sweep run"]
)
def test_help_shows_no_value_for_flags(run: Run, command: str) -> None:
    lines = [line for line in run(*command.split(), "--help").splitlines() if "--help" not in line]
    assert any("--" in line for line in lines)
    assert not [line for line in lines if "bool" in line.lower()]


def test_python_m_vmselect_is_the_command_line() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "vmselect", "--version"], capture_output=True, text=True, check=True
    )
    assert printed.stdout == f"vmselect {vs.__version__}\n"


@pytest.mark.parametrize(
    ("name", "similar"),
    [
        ("g4dn.xlarge", None),
        ("g4dn.xlage", "g4dn.xlarge"),
        ("NC6s_v3", "Standard_NC6s_v3"),
        ("my-pc", None),
        (UNPRICED, None),
        ("p2.xlarge", None),
    ],
)
def test_similar_names_of_an_unknown_instance_type(name: str, similar: str | None) -> None:
    note = note_unknown_type(name)
    assert (note is None) is (similar is None)
    assert similar is None or similar in str(note)


def test_a_mistyped_machine_is_an_error_with_similar_names(run: Run, profiles: Path) -> None:
    printed = run("rank", profiles, "-e", 5, "--machines", "g5.xlage")
    assert "g5.xlarge" in printed
    assert "Rent" not in printed
    # Ignored names are a warning before the ranking, also if nothing else was named.
    for names in ("g5.xlage", "g5.xlage,g6.xlarge"):
        printed = run("rank", profiles, "-e", 5, "--machines", names, "--ignore-missing")
        for more in ((), ("--verbose",), ("--json",)):
            printed = run("rank", profiles, "-e", 5, "--machines", names, "--ignore-missing", *more)
            lines = [line.removeprefix("Warning: ") for line in printed.splitlines()]
            assert sum(line.startswith("machines=g5.xlage") for line in lines) == 1
        printed = run("rank", profiles, "-e", 5, "--machines", names, "--ignore-missing")
    assert "g6.xlarge" in printed
    assert "Rent" not in run("rank", profiles, "-e", 5, "--region", "nowhere", "--ignore-missing")
    make_profile("g4dn.xlage").save(profiles)
    (line,) = [line for line in run("rank", profiles, "-e", 5).splitlines() if line.startswith("Excluded: g4dn.xlage")]
    assert "g4dn.xlarge" in line


def test_machines_that_an_unnamed_profile_cannot_predict_are_listed(run: Run, tmp_path: Path) -> None:
    make_profile(None).save(tmp_path / "unnamed")
    printed = run("rank", tmp_path / "unnamed", "-e", 5, "--machines", "g5.xlarge")
    (line,) = [line for line in printed.splitlines() if line.startswith("Excluded: g5.xlarge")]
    assert "vmselect history label" in line


def test_a_missing_price_names_the_columns_of_a_price_file(run: Run, profiles: Path) -> None:
    (line,) = [line for line in run("rank", profiles, "-e", 5).splitlines() if line.startswith("Excluded: made.up")]
    assert all(column in line for column in REQUIRED)
    assert not line.endswith("..")
    own = profiles.parent / "own.csv"
    own.write_text("instance_type,usd_per_hour\nmade.up,0.01\n")
    assert all(column in run("rank", profiles, "-e", 5, "--own-prices", own) for column in REQUIRED)


def test_a_missing_folder_is_not_called_a_profile(run: Run, tmp_path: Path) -> None:
    printed = run("rank", tmp_path / "nowhere")
    assert str(tmp_path / "nowhere") in printed
    assert "the profile" not in printed


def test_a_search_without_a_match_suggests_similar_instance_types(run: Run, profiles: Path) -> None:
    pytest.importorskip("duckdb", reason="the history of a folder is read with duckdb")
    assert "g4dn.xlarge" in run("history", "list", profiles, "--instance-type", "g4dn.xlage")
    assert "g4dn.xlarge" not in run("history", "list", profiles, "--instance-type", "my-pc")


@pytest.mark.parametrize(
    ("message", "words", "expected"),
    [
        ("Choose one with model=, or not.", ["rank", "p/"], "Choose one with --model, or not."),
        ("Pass validation_examples= (0 for none).", ["-q", "rank"], "Pass --validation-examples (0 for none)."),
        ("Pass co2_limit_kg= too.", ["rank"], "Pass --co2-limit-kg too."),
        (
            "Pass grid_g_per_kwh= (--grid-g-per-kwh) or co2_limit_kg= (--co2-limit-kg).",
            ["rank"],
            "Pass --grid-g-per-kwh or --co2-limit-kg.",
        ),
        ("Pass epochs=.", ["compare", "a", "--before", "b"], "Pass --epochs."),
        ("Pass model=.", ["check", "p/"], "Pass model=."),  # the command has no such option
        ("No file epochs=5.json.", ["rank"], "No file epochs=5.json."),
    ],
)
def test_errors_name_options_instead_of_arguments(message: str, words: list[str], expected: str) -> None:
    assert _name_options(message, words) == expected
