"""``vmselect sweep``: the command suggested after a sweep gives a result, and the text states what was rented."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import vmselect as vs
from vmselect.cli import app
from vmselect.cli.sweep import CRON_FOLDERS, _list_options, _next_commands
from vmselect.sweeps import SweepResult

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from profiles import make_profile

DESK = (
    "provider,instance_type,region,market,usd_per_hour\ndesk,small,here,on_demand,0.05\ndesk,big,here,on_demand,0.1\n"
)
IDLE = {"framework_gpus": 0, "gpus": ({"name": "Tesla T4"},)}


def result_of(folder: Path, records: list[vs.Profile], **given: Any) -> SweepResult:
    for number, record in enumerate(records):
        record.save(folder / f"{number}.json")
    return SweepResult(folder, list(records), (), (), (), 0.01, 0.02, **given)


@pytest.mark.parametrize(
    ("records", "stand_ins", "command"),
    [
        ([("small", 64), ("big", 64)], False, "rank"),
        ([("small", 64), ("big", 64), ("small", 256)], False, "rank"),  # with --batch-size all
        ([("unheard-of", 64)], False, "estimate"),
        ([("g4dn.xlarge", 64)], True, "estimate"),
        ([("g4dn.xlarge", 64)], False, "estimate"),
    ],
)
def test_suggested_command_works_as_printed(tmp_path: Path, records: Any, stand_ins: bool, command: str) -> None:
    path = tmp_path / "my prices.csv"
    path.write_text(DESK)
    prices = {"own_prices": path}
    catalog = vs.Catalog.default().with_offers(vs.Catalog.load(path))
    profiles = [
        make_profile(name, batch_size=size, outcome="stopped", environment=IDLE if name == "g4dn.xlarge" else {})
        for name, size in records
    ]
    result = result_of(tmp_path / "my results", profiles, stand_ins=stand_ins)
    (line,) = _next_commands(result, catalog, _list_options(date=None, **prices))
    program, *words = shlex.split(line.removeprefix("Next: "))
    assert (program, words[0]) == ("vmselect", command)
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0, ran.stderr


def test_records_that_cannot_be_estimated_are_to_be_checked(tmp_path: Path) -> None:
    result = result_of(tmp_path, [make_profile("small", steps_per_epoch=None)])
    assert _next_commands(result, None, []) == [f"Next: vmselect check {tmp_path}"]


def test_a_stand_in_spends_nothing(tmp_path: Path) -> None:
    for stand_ins in (False, True):
        assert ("spent" in str(SweepResult(tmp_path, [], (), (), (), 1.0, 2.0, stand_ins=stand_ins))) is not stand_ins


PLAN = "command: python3 -c pass\nfactors: {n: [1]}\n"


def cron(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str, plan: str = PLAN) -> Any:
    monkeypatch.chdir(folder)
    (folder / "plan.yaml").write_text(plan)
    return CliRunner().invoke(app, ["sweep", "run", "plan.yaml", *arguments])


@pytest.mark.parametrize(("often", "fields"), [("hourly", 1), ("daily", 2), ("weekly", 3), ("monthly", 3)])
def test_cron_prints_a_line_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, often: str, fields: int
) -> None:
    done = cron(tmp_path, monkeypatch, "his tory/", "--cron", often, "--budget-usd", "5")
    assert done.exit_code == 0
    minute, *times, command = done.stdout.strip().split(" ", 5)
    assert minute.isdecimal()
    assert sum(field != "*" for field in (minute, *times)) == fields
    assert [path.name for path in tmp_path.iterdir()] == ["plan.yaml"]
    # cron passes the command to a shell after it has replaced each escaped percent sign.
    shown = command.replace("\\%", "%").partition(" && ")[2]
    shown = re.sub(r"^PATH=\S* ", "", shown)
    code = "import sys; print(len(sys.argv), sys.argv[2:4], sys.argv[4], sys.argv[5:])"
    program = shlex.split(shown)[0]
    ran = subprocess.run(
        ["/bin/sh", "-c", f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} {shown.removeprefix(program)}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert re.search(r"his tory/\d{4}-\d\d-\d\dT\d{4} \[.*'--budget-usd', '5.*'--yes'", ran.stdout)


def test_cron_finds_the_programs_of_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "my tools" / "train"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    done = cron(tmp_path, monkeypatch, "sweeps", "--cron", "daily", plan=PLAN.replace("python3 -c pass", "train"))
    # What the line sets before it starts vmselect, in the environment that cron has.
    setting = done.stdout.partition(" && ")[2].partition("sweep run")[0].rstrip().rpartition(" ")[0]
    found = subprocess.run(
        ["/bin/sh", "-c", f"{setting}; export PATH; command -v train"],
        env={"PATH": ":".join(CRON_FOLDERS)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout.strip() == str(tool)


@pytest.mark.parametrize("beside", [True, False])
def test_cron_starts_vmselect_of_an_environment_that_is_not_activated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    environment = tmp_path / "my environment"
    environment.mkdir()
    for name in ("python", "vmselect") if beside else ("python",):
        (environment / name).write_text('#!/bin/sh\necho "$0" "$1" "$2"\n')
        (environment / name).chmod(0o755)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", str(environment / "python"))
    done = cron(tmp_path, monkeypatch, "sweeps", "--cron", "daily")
    command = done.stdout.split(" ", 5)[5].replace("\\%", "%")
    ran = subprocess.run(["/bin/sh", "-c", command], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    shown = f"{environment}/vmselect sweep run" if beside else f"{environment}/python -m vmselect"
    assert ran.stdout.strip() == shown


@pytest.mark.parametrize(
    ("runner", "commands"),
    [("", []), ("runner: slurm\n", ["slurm"])],  # jobs of Slurm inherit the PATH
)
def test_cron_adds_the_folders_of_programs_that_are_searched_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: str, commands: list[str]
) -> None:
    for name in ("scripts/train", "tools/train", "slurm/sbatch"):
        tool = tmp_path / name
        tool.parent.mkdir()
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/tools:{tmp_path}/slurm:{os.environ['PATH']}")

    def added(program: str) -> list[str]:
        plan = PLAN.replace("python3 -c pass", program) + runner
        done = cron(tmp_path, monkeypatch, "sweeps", "--cron", "daily", plan=plan)
        assert done.exit_code == 0, done.exception
        return [name for name in ("scripts", "tools", "slurm") if f"{tmp_path}/{name}" in done.stdout]

    assert added("train") == ["tools", *commands]
    # A folder of scripts may contain a file that is called like another program.
    assert added("scripts/train") == added("./scripts/train") == commands


def test_cron_keeps_every_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = (
        "--budget-usd 5.0 --parallel 2 --epochs 50 --history a --history 'b c' --enough-regret 0.1 --date 2026-08-22"
    )
    done = cron(tmp_path, monkeypatch, "sweeps", "--cron", "daily", "--stop-when-sure", *shlex.split(options))
    assert done.exit_code == 0
    assert f"--stop-when-sure {options} --yes --quiet" in done.stdout
    assert "--run-all" in cron(tmp_path, monkeypatch, "sweeps", "--cron", "daily", "--run-all").stdout


def test_cron_refuses_to_rent_without_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renting = "command: python3 -c pass\nrunner: skypilot\nfactors: {instance_type: [g5.xlarge]}\nminutes: 9\n"
    assert "--budget-usd" in str(cron(tmp_path, monkeypatch, "sweeps", "--cron", "daily", plan=renting).exception)
    sure = cron(tmp_path, monkeypatch, "sweeps", "--cron", "daily", "--budget-usd", "5", plan=renting)
    assert sure.exit_code == 0


def test_cron_refuses_names_that_crontab_cannot_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("50%/", "a\nb/"):
        done = cron(tmp_path, monkeypatch, folder, "--cron", "daily")
        assert "crontab" in str(done.exception)
