"""Ctrl-C: one line and exit code 130, while modules are imported and while a command runs."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.profiles import make_profile
from vmselect import cli
from vmselect.cli import STOPPED
from vmselect.diagnosis.checks import check_profile
from vmselect.probe.endings import classify

IMPORTING = """
import os, runpy, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
sys.argv = ["vmselect", "schema"]
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("vmselect", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("name", ["vmselect.errors", "vmselect.units", "vmselect.cli", "typer", "vmselect.cli.rank"])
def test_ctrl_c_while_importing(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING.format(name=name)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", f"{STOPPED}\n")


def test_ctrl_c_in_a_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("vmselect.records.walk_records", interrupt, raising=False)
    monkeypatch.setattr("vmselect.records.files.walk_records", interrupt)
    monkeypatch.setattr(sys, "argv", ["vmselect", "check", "nowhere"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 130
    assert capsys.readouterr().err == f"{STOPPED}\n"


def test_a_record_says_that_the_user_stopped_the_training() -> None:
    outcome, detail, ending = classify(KeyboardInterrupt())
    profile = make_profile("g4dn.xlarge", [0.1, 0.1], outcome=outcome, detail=detail, ending=ending)
    findings = {finding.code: finding.message for finding in check_profile(profile)}
    assert "Ctrl-C" in findings["interrupted"]
    assert "few-steps" not in findings


def test_another_program_keeps_its_handler_of_ctrl_c() -> None:
    code = "import signal, vmselect.cli; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
