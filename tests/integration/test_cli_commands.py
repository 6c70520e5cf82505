"""The command line as a user meets it: what it prints, where, and its exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import vmselect as vs
from vmselect.cli import STOPPED, app, main
from vmselect.errors import ArgumentError
from vmselect.records import Environment

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from pages import blocks

CLI = [sys.executable, "-c", "from vmselect.cli import main; main()"]
runner = CliRunner()


def profile(name: str, step_seconds: float, **changes: object) -> vs.Profile:
    given = {
        "instance_type": name, "batch_size": 64, "steps_per_epoch": 100, "init_seconds": 10.0, "model": "net",
        "first_iteration_seconds": 1.0, "iteration_seconds": [step_seconds] * 20,
    }  # fmt: skip
    return vs.Profile.from_times(**(given | changes))  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, seconds in (("g4dn.xlarge", 0.2), ("g5.xlarge", 0.08), ("p3.2xlarge", 0.05)):
        profile(name, seconds).save(tmp_path / "profiles")
    return tmp_path / "profiles"


def test_rank_names_the_best_machine(folder: Path) -> None:
    done = runner.invoke(app, ["rank", str(folder), "--epochs", "50"])
    assert done.exit_code == 0
    assert done.stdout.startswith("Rent g5.xlarge at AWS us-east-1 on demand, ")
    assert "Excluded: p3.2xlarge" in done.stderr


def test_rank_prints_json_and_csv_that_equal_python(folder: Path) -> None:
    ranking = vs.rank(vs.load_profiles(folder), epochs=[5, 50], objective={"cost": 0.5, "time": 0.5}, market="all")
    options = ["rank", str(folder), "-e", "5,50", "-o", "cost=1,time=1", "--market", "all"]
    plain = json.loads(runner.invoke(app, [*options, "--format", "json"]).stdout)
    assert plain == json.loads(ranking.to_json())
    rows = list(csv.DictReader(io.StringIO(runner.invoke(app, [*options, "--format", "csv"]).stdout)))
    assert [float(row["cost_usd"]) for row in rows] == [row.cost_usd for row in ranking]
    assert rows[0]["tied_with_best"] == "yes"


def test_rank_options_reach_the_ranking(folder: Path) -> None:
    options = [
        "rank", folder, "-e", "50", "--market", "spot", "--interruptions", "0.1", "--checkpoint-minutes", "20",
        "--deadline-hours", "3", "--budget-usd", "9", "--billing", "provider", "--retired",
        "--confidence", "0.8", "--region", "us-east-1", "--batch-size", "64", "--format", "json",
    ]  # fmt: skip
    done = runner.invoke(app, [str(option) for option in options])
    settings = json.loads(done.stdout)["settings"]
    expected = {
        "market": ["spot"], "deadline_hours": 3, "budget_usd": 9, "billing": "provider",
        "confidence": 0.8, "region": ["us-east-1"], "batch_size": [64],
    }  # fmt: skip
    assert {name: settings[name] for name in expected} == expected
    assert settings["interruptions"]["interruptions_per_second"] == pytest.approx(0.1 / 3600)


def test_rank_with_prices_of_a_day_or_of_a_file(folder: Path, tmp_path: Path) -> None:
    old = runner.invoke(app, ["rank", str(folder), "-e", "50", "--date", "2021-02-28", "--format", "json"])
    assert [row["instance_type"] for row in json.loads(old.stdout)["rows"]] == ["p3.2xlarge"]
    offer = {"provider": "lab", "instance_type": "g4dn.xlarge", "region": "x", "market": "on_demand", "usd_per_hour": 1}
    path = vs.Catalog.embedded(date="2021-02-28").with_offers([offer]).save(tmp_path / "mine.csv")
    mine = runner.invoke(app, ["rank", str(folder), "-e", "50", "--catalog", str(path), "--format", "json"])
    answer = json.loads(mine.stdout)
    # All published prices of this catalog are old: they are ranked, and the ranking says so.
    assert {row["provider"] for row in answer["rows"]} == {"aws", "lab"}
    assert "outdated-catalog" in {finding["code"] for finding in answer["findings"]}
    with pytest.raises(ArgumentError, match="catalog"):
        runner.invoke(
            app, ["rank", str(folder), "--catalog", str(path), "--date", "2021-02-28"], catch_exceptions=False
        )


def test_rank_compares_with_a_baseline(folder: Path) -> None:
    done = runner.invoke(app, ["rank", str(folder), "-e", "50", "--relative-to", "g4dn.xlarge"])
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("g5.xlarge: ")]
    assert all(str(ratio) in line for ratio in (1.91, 2.46, 0.778))


def test_rank_compares_with_watched_trainings(folder: Path, tmp_path: Path) -> None:
    probe = vs.load_profiles(folder)[0]
    real = vs.Profile.from_times(
        instance_type=probe.instance_type, batch_size=probe.batch_size, total_seconds=100, epochs=2
    )
    real.save(tmp_path / "watched.json")
    done = runner.invoke(app, ["rank", str(folder), "-e", "50", "--against", str(tmp_path / "watched.json")])
    assert (done.exit_code, "mean error" in done.stderr) == (0, True)


def test_nothing_feasible_exits_1(folder: Path) -> None:
    done = runner.invoke(app, ["rank", str(folder), "-e", "50", "--budget-usd", "0.001"])
    assert done.exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rank", "nowhere.json"], "vmselect: nowhere.json: there is no such file or folder"),
        (["rank", "{folder}", "--epochs", "many"], "vmselect: --epochs 'many'"),
        (["rank", "{folder}", "--objective", "cost=much"], "vmselect: --objective"),
        (["rank", "{folder}", "-e", "50", "--market", "bazaar"], "vmselect: market must be one of"),
        (["probe", "missing.py"], "vmselect: missing.py"),
        (["rank", "{folder}", "--speed"], "No such option"),
        (["fly"], "No such command"),
    ],
)
def test_what_cannot_be_done_exits_2_with_one_message(
    folder: Path,
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder.parent)
    monkeypatch.setattr(sys, "argv", ["vmselect", *(argument.format(folder=folder) for argument in arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    assert ended.value.code == 2
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


def test_rank_writes_the_page_and_prints_its_address(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "out" / "page.html"
    done = runner.invoke(app, ["rank", str(folder), "-e", "50", "--html", str(page)])
    assert done.exit_code == 0
    assert page.resolve().as_uri() in done.stderr
    assert "g5.xlarge" in blocks(page.read_text(encoding="utf-8"))["data"]


def test_an_output_path_that_cannot_be_written_is_an_error(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for output, fact in ((tmp_path, "is a folder"), (tmp_path / "file" / "report.html", "cannot be written")):
        done = subprocess.run(
            [*CLI, "rank", str(folder), "-e", "50", "--html", str(output)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert fact in done.stderr
        assert "Traceback" not in done.stderr


def test_the_verdict_is_text_whatever_a_name_holds_and_whatever_the_terminal_can_show(tmp_path: Path) -> None:
    profile("m\x1b[31m \N{ROCKET}", 0.1).save(tmp_path / "profiles")
    for options, code in (
        (["rank", "profiles", "-e", "50"], 1),
        (["check", "profiles"], 0),
        (["rank", "profiles", "-e", "50", "--format", "json"], 1),
    ):
        environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
        done = subprocess.run([*CLI, *options], capture_output=True, check=False, cwd=tmp_path, env=environment)
        assert done.returncode == code, done.stderr
        assert b"\x1b" not in done.stdout


def test_check_exits_1_with_a_warning_and_2_with_an_unreadable_file(folder: Path) -> None:
    fine = runner.invoke(app, ["check", str(folder), "--format", "json"])
    assert fine.exit_code == 0
    assert [row["severity"] for row in json.loads(fine.stdout)] == ["fine"] * 3
    assert all(row["second_iteration_seconds"] > 0 for row in json.loads(fine.stdout))
    odd = profile("g4dn.xlarge", 0.1).model_copy(update={"environment": Environment(dispatch="threaded")})
    odd.save(folder / "odd.json")
    warned = runner.invoke(app, ["check", str(folder), "--format", "json"])
    assert warned.exit_code == 1
    (row,) = [row for row in json.loads(warned.stdout) if row["severity"] == "warning"]
    assert (row["code"], Path(row["file"]).name) == ("threaded-dispatch", "odd.json")
    (folder / "broken.json").write_text("{", encoding="utf-8")
    damaged = runner.invoke(app, ["check", str(folder)])
    assert (damaged.exit_code, "broken.json" in damaged.stderr, "odd.json" in damaged.stdout) == (2, True, True)


def test_check_prints_a_block_per_profile_in_80_columns_with_the_unused_gpu_first(tmp_path: Path) -> None:
    seen = Environment(dispatch="threaded", framework_gpus=0)
    for name in ("g4dn.xlarge", "c5.xlarge"):
        odd = profile(name, 0.1).model_copy(update={"environment": seen, "outcome": "stopped"})
        odd.save(tmp_path / f"{name}.json")
    shown = runner.invoke(app, ["check", str(tmp_path)], env={"COLUMNS": "80"})
    blocks = [block.splitlines() for block in shown.stdout.split("\n\n")]
    assert [[line.split(":")[0].strip() for line in block if line.startswith("  warning")] for block in blocks] == [
        ["warning threaded-dispatch"],  # the catalog lists no GPU of it
        ["warning unused-gpu", "warning threaded-dispatch"],
    ]
    for block in blocks:
        assert all(len(line) <= 80 for line in block if str(tmp_path) not in line)
        assert any(line.startswith(" " * 6) for line in block)  # a remedy


def test_help_has_examples() -> None:
    for command in ("probe", "estimate", "rank", "check"):
        shown = runner.invoke(app, [command, "--help"], env={"COLUMNS": "100"})
        assert shown.exit_code == 0
        assert f"vmselect {command} " in shown.stdout
    assert runner.invoke(app, ["--version"]).stdout == f"vmselect {vs.__version__}\n"


def test_a_closed_pipe_is_no_error(folder: Path) -> None:
    command = f'{sys.executable} -c "from vmselect.cli import main; main()" rank {folder} --format json | head -c 10'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals: an interrupt cannot be sent to one process on Windows")
def test_an_interrupt_ends_a_script_by_the_signal_and_leaves_nothing_behind(tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text("import pathlib, time\npathlib.Path('started').touch()\ntime.sleep(60)\n", encoding="utf-8")
    process = subprocess.Popen(
        [*CLI, "probe", "slow.py"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "started").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT, "a shell stops its loop only if the signal itself ended the command"
    assert errors.splitlines()[-2] == "KeyboardInterrupt"
    assert errors.splitlines()[-1].startswith(STOPPED)
    assert "vmselect/cli" not in errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["slow.py", "started"]


def test_another_tool_can_call_through_json() -> None:
    script = Path(__file__).parents[2] / "examples" / "call_from_another_tool.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search("exit code 0: .*g6.xlarge", done.stdout)
    assert "exit code 1: " in done.stdout
