"""``vmselect recommend``: what it refuses before it runs a script, and options that it shares with ``rank``."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

import vmselect as vs
from tests.support.pages import blocks
from vmselect.cli import STOPPED, app
from vmselect.cli.demo import DESCRIPTIONS
from vmselect.errors import ArgumentError, MissingNamesError, VmselectError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a described training in ``profiles/``, and a script that tells that it ran."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VMSELECT_FOLDER", "profiles")
    (tmp_path / "profiles").mkdir()
    shutil.copy(DESCRIPTIONS / "resnet50.json", tmp_path / "profiles")
    (tmp_path / "train.py").write_text("open('ran', 'w').close()")
    return tmp_path


@pytest.mark.parametrize("command", ["recommend", "describe", "probe", "watch"])
def test_a_misspelt_option_is_not_taken_as_the_script(command: str, here: Path) -> None:
    done = CliRunner().invoke(app, [command, "--epohcs", "50", "train.py"])
    assert isinstance(done.exception, ArgumentError)
    assert f"vmselect {command} has no option --epohcs" in str(done.exception)
    assert not (here / "ran").exists()


@pytest.mark.parametrize("command", ["recommend", "describe", "probe", "watch"])
@pytest.mark.parametrize("script", ["missing.py", "notebook.ipynb"])
def test_what_is_no_script_is_refused(command: str, script: str, here: Path) -> None:
    (here / "notebook.ipynb").write_text("{}")
    done = CliRunner().invoke(app, [command, script])
    assert isinstance(done.exception, ArgumentError)
    assert str(done.exception).startswith(f"{script} is ")


@pytest.mark.parametrize(
    ("option", "name", "similar"),
    [
        ("--machines", "g5.xlrge", "g5.xlarge"), ("--machines", "g6.xlarge,g5.xlrge", "g5.xlarge"),
        ("--provider", "asw", "aws"), ("--region", "us-esat-1", "us-east-1"), ("--gpu", "A1000", "A100"),
    ],
)  # fmt: skip
def test_a_misspelt_name_is_an_error_before_the_script_runs(option: str, name: str, similar: str, here: Path) -> None:
    done = CliRunner().invoke(app, ["recommend", option, name, "train.py"])
    assert isinstance(done.exception, VmselectError)
    assert similar in str(done.exception)
    assert not (here / "ran").exists()


def test_names_that_cannot_be_ranked_are_ignored_only_if_asked_for(here: Path) -> None:
    words = ["recommend", "--machines", "g6.xlarge,g5.xlrge"]
    refused = CliRunner().invoke(app, words)
    assert isinstance(refused.exception, MissingNamesError)
    done = CliRunner().invoke(app, [*words, "--ignore-missing"])
    assert done.exit_code == 0, done.output
    assert "machines=g5.xlrge was ignored" in done.stderr
    assert "g6.xlarge" in done.stdout


def test_a_model_of_the_folder_is_chosen(here: Path) -> None:
    newer = json.loads((DESCRIPTIONS / "transformer.json").read_text()) | {"created": "2099-01-01T00:00:00Z"}
    (here / "profiles" / "newer.json").write_text(json.dumps(newer))
    words = ["recommend", "--machines", "g6.xlarge", "--json"]
    newest, chosen = (CliRunner().invoke(app, [*words, *more]) for more in ([], ["--model", "resnet50"]))
    assert [json.loads(done.stdout)["candidates"][0]["batch_size"] for done in (newest, chosen)] == [128, 256]
    assert (
        "Training: transformer, batch 128, the newest description; --model chooses another (resnet50)." in newest.stderr
    )
    assert "Training: resnet50, batch 256." in chosen.stderr
    wrong = CliRunner().invoke(app, [*words, "--model", "resnet5"])
    assert isinstance(wrong.exception, ArgumentError)
    assert "resnet50, transformer" in str(wrong.exception)


def test_a_script_is_its_own_choice(here: Path) -> None:
    done = CliRunner().invoke(app, ["recommend", "--model", "resnet50", "train.py"])
    assert isinstance(done.exception, ArgumentError)
    assert "Omit the script" in str(done.exception)
    assert not (here / "ran").exists()


def test_ctrl_c_in_the_script_is_no_failed_description(here: Path) -> None:
    """The process of the script exits by the signal, also if nobody else gets it."""
    (here / "train.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    command = [sys.executable, "-m", "vmselect", "recommend", "train.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert "could not be described" not in done.stderr
    assert done.stderr.splitlines()[-1] == STOPPED
    assert done.stderr.count(STOPPED) == 1


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def has_ended(process: int) -> bool:
    try:
        return psutil.Process(process).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("whole_group", [True, False])
def test_ctrl_c_leaves_no_file_and_no_process(here: Path, whole_group: bool) -> None:
    """A terminal sends the signal to all processes, other programs only to the first one."""
    (here / "train.py").write_text(
        "import pathlib, subprocess, sys, time\n"
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "pathlib.Path('child.txt').write_text(str(other.pid))\n"
        "pathlib.Path('child.txt').rename('ready.txt')\n"
        "time.sleep(600)\n"
    )
    (here / "temporary").mkdir()
    command = [sys.executable, "-m", "vmselect", "recommend", "train.py"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=os.environ | {"TMPDIR": str(here / "temporary")},
    )  # fmt: skip
    wait_until((here / "ready.txt").exists)
    (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == STOPPED
    assert not list((here / "temporary").iterdir())
    other = int((here / "ready.txt").read_text())
    wait_until(lambda: has_ended(other))


def test_a_second_ctrl_c_does_not_interrupt_the_removal_of_files(here: Path) -> None:
    """As on a busy computer, where the process of the script still removes its files when the signal is passed on."""
    (here / "train.py").write_text(
        "import os, pathlib, shutil, signal, time\n"
        "remove = shutil.rmtree\n"
        "def slowly(folder, *args, **options):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(0.2)\n"
        "    remove(folder, *args, **options)\n"
        "shutil.rmtree = slowly\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "time.sleep(600)\n"
    )
    (here / "temporary").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "vmselect", "recommend", "train.py"], capture_output=True, text=True, check=False,
        env=os.environ | {"TMPDIR": str(here / "temporary")}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == STOPPED
    assert not list((here / "temporary").iterdir())


def test_forecasts_are_kept(here: Path) -> None:
    done = CliRunner().invoke(app, ["recommend", "--machines", "g6.xlarge", "--keep", "kept"])
    assert done.exit_code == 0, done.output
    (forecast,) = vs.load_records(here / "kept")
    assert forecast.instance_type == "g6.xlarge"


def test_records_of_other_trainings_do_not_state_the_epochs(here: Path) -> None:
    text = json.loads((here / "profiles" / "resnet50.json").read_text())
    del text["setup"]["epochs"]
    (here / "profiles" / "resnet50.json").write_text(json.dumps(text | {"created": "2099-01-01T00:00:00Z"}))
    shutil.copy(DESCRIPTIONS / "transformer.json", here / "profiles")
    done = CliRunner().invoke(app, ["recommend", "--machines", "g6.xlarge,g5.xlarge"])
    assert done.exit_code == 0, done.output
    assert "this is for one epoch" in done.stderr
    assert "1 epoch at batch 256" in done.stdout


def test_records_of_other_batch_sizes_are_named(here: Path) -> None:
    described = vs.Profile.load(here / "profiles" / "resnet50.json")
    for number, size in enumerate((1024, 64, None, 1024, 256)):
        setup = described.setup.model_copy(update={"batch_size": size})
        measured = {"outcome": "stopped", "work": None, "setup": setup, "id": f"{number:032}"}
        described.model_copy(update=measured).save(here / "profiles" / f"{number}.json")
    done = CliRunner().invoke(app, ["recommend", "--machines", "g6.xlarge"])
    assert done.exit_code == 0, done.output
    assert "4 records of this model not used: batch size 64, 1024, unknown, not 256." in done.stderr


def test_the_commands_of_a_module_run_it_as_a_module(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["vmselect.cli.recommend"], "_describe", lambda *_, **__: None)
    done = CliRunner().invoke(app, ["recommend", "--provider", "aws", "-m", "pkg.train", "--lr", "0.1"])
    assert done.exit_code == 0, done.output
    commands = [line for line in done.stderr.splitlines() if "vmselect probe" in line]
    assert commands
    assert all("-m pkg.train --lr 0.1" in line for line in commands)


@pytest.mark.parametrize(
    ("stated", "arguments", "epochs", "noted"),
    [
        (90, ["--epochs", "20"], 20, True),
        (90, ["--lr", "0.1", "--epochs=20"], 20, True),
        (90, ["--epochs", "90"], 90, False),
        (90, ["--epochs", "many", "--max-epochs", "20"], 90, False),
        (90, ["--epochs", "20", "--epochs", "30"], 30, True),  # argparse takes the last one
        (90, ["--note", "not --epochs 20 as before"], 90, False),
        (None, ["--epochs", "20"], 20, False),
        (None, ["--epochs", "0"], 1, False),
    ],
)
def test_epochs_behind_the_script_are_ranked(
    stated: int | None, arguments: list[str], epochs: int, noted: bool, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["vmselect.cli.recommend"], "_describe", lambda *_, **__: None)
    text = json.loads((here / "profiles" / "resnet50.json").read_text())
    text["setup"]["epochs"] = stated
    (here / "profiles" / "resnet50.json").write_text(json.dumps(text))
    done = CliRunner().invoke(app, ["recommend", "--json", "--machines", "g6.xlarge", "train.py", *arguments])
    assert done.exit_code == 0, done.output
    assert {row["epochs"] for row in json.loads(done.stdout)["rows"]} == {epochs}
    assert ("was given --epochs" in done.stderr) is noted


@pytest.mark.parametrize(
    ("words", "program"),
    [
        ([], "YOUR_SCRIPT.py"),
        (
            ["train.py", "--epochs", "2", "--note", "<b>'x'"],
            shlex.join(["train.py", "--epochs", "2", "--note", "<b>'x'"]),
        ),
    ],
)
def test_the_page_has_the_command_of_the_terminal(
    words: list[str], program: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["vmselect.cli.recommend"], "_describe", lambda *_, **__: None)
    done = CliRunner().invoke(app, ["recommend", "--machines", "g6.xlarge,g5.xlarge", "--html", "r.html", *words])
    assert done.exit_code == 0, done.output
    data = json.loads(blocks((here / "r.html").read_text())["data"])
    assert data["page"]["program"] == program
    assert f" {program}" in done.stderr


def test_a_training_of_unknown_length_is_refused_with_the_remedy(here: Path) -> None:
    text = json.loads((here / "profiles" / "resnet50.json").read_text())
    for name in ("steps_per_epoch", "examples", "partial_batch"):
        text["setup"].pop(name, None)
    (here / "profiles" / "resnet50.json").write_text(json.dumps(text))
    command = ["recommend", "--machines", "g6.xlarge,g5.xlarge"]
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, ArgumentError)
    assert "--steps-per-epoch" in str(done.exception)
    done = CliRunner().invoke(app, [*command, "--steps-per-epoch", "100"])
    assert done.exit_code == 0, done.output


def test_records_at_another_batch_size_are_named(here: Path) -> None:
    text = json.loads((here / "profiles" / "resnet50.json").read_text())
    times = vs.Profile.from_times(instance_type="g6.xlarge", batch_size=64, steps_per_epoch=9, iteration_seconds=0.1)
    setup = times.setup.model_copy(update={"structure": text["setup"].get("structure", "x"), "model": "resnet50"})
    text["setup"]["structure"] = setup.structure
    (here / "profiles" / "resnet50.json").write_text(json.dumps(text))
    times.model_copy(update={"setup": setup}).save(here / "profiles")
    done = CliRunner().invoke(app, ["recommend", "--machines", "g6.xlarge,g5.xlarge"])
    assert done.exit_code == 0, done.output
    assert "batch size 64, not 256" in done.stderr
