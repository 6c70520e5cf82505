"""Which tests run which lines, recorded once; and a mutant tried on the tests that run its line, quickest first.

Everything heavy is imported once, here; each try is a fork of this process, which imports only vmselect and the tests.
"""

from __future__ import annotations

import ast
import compileall
import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import coverage
import hypothesis
import pytest

HEAVY = (
    "numpy", "pandas", "scipy.special", "scipy.stats", "pydantic", "hypothesis.strategies", "requests", "typer.testing",
    "rich.console", "rich.table", "psutil", "yaml", "fsspec", "altair", "boto3", "botocore.config", "py_mini_racer",
)  # fmt: skip
UNWARNED = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # plugins are imported before the fork
ARGUMENTS = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--no-header", "-o", "timeout=0", *UNWARNED]
MOST_SECONDS = 60.0
"""A mutant is tried on no more tests than ran this long together when they were recorded."""

SLACK_SECONDS = 60.0
"""A mutant whose tests take twice the processor time that they did and this on top hangs, which a person would notice
too..."""

WALL = 3.0
"""...and so does one that takes this many times as long by the clock, however busy the machine is."""

PAUSE_SECONDS = 5.0
"""Whoever was not run for so long was paused: what tests say then, of time above all, means nothing."""

HANGS = "it hangs"
FIRST_FILES = 4


@dataclass
class Record:
    """Seconds of every test, and by source file and line the tests that run it."""

    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, set[str]]] = field(default_factory=dict)

    def add(self, kept: dict[str, Any]) -> None:
        """Take in what one file of tests left."""
        self.seconds |= kept["seconds"]
        for file, found in kept["lines"].items():
            here = self.lines.setdefault(file, {})
            for line, tests in found.items():
                here.setdefault(int(line), set()).update(tests)

    def find(self, file: str, first: int, last: int, *, on_import: bool) -> dict[str, float]:
        """Tests that run one of the lines, and their seconds; for lines that run on import, the users of the file."""
        found = self.lines.get(file, {})
        lines = found if on_import else range(first, last + 1)
        return {test: self.seconds[test] for line in lines for test in found.get(line, ())}


def import_heavy_parts() -> None:
    """What every try needs and no mutant changes."""
    for name in HEAVY:
        with suppress(ImportError):  # what is not installed is not tested
            importlib.import_module(name)
    for plugin in entry_points(group="pytest11"):
        plugin.load()


class _Recorder:
    """Notes what each test that passes runs, and how long it takes."""

    def __init__(self, watcher: coverage.Coverage) -> None:
        self.watcher = watcher
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.watcher.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if not report.passed:
            self.failed.add(report.nodeid)


class _Chooser:
    """Keeps the tests that were asked for, quickest first, up to a total of :data:`MOST_SECONDS`; notes a failure."""

    def __init__(self, seconds: Mapping[str, float], noted: Path) -> None:
        self.seconds = seconds
        self.noted = noted

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.noted.write_text(report.nodeid)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self.seconds]
        items.sort(key=lambda item: self.seconds[item.nodeid])
        spent = 0.0
        for index, item in enumerate(items):
            spent += self.seconds[item.nodeid]
            if spent > MOST_SECONDS:
                del items[index:]
                break


def record(project: Path, packages: Collection[str], tests: str, kept: Path) -> None:
    """Run one file of tests on the unchanged copy and keep which of them run which lines of ``packages``."""

    def run() -> int:
        watcher = coverage.Coverage(
            data_file=None, config_file=False, include=[f"{project}/vmselect/{package}/*" for package in packages]
        )
        watcher.start()
        recorder = _Recorder(watcher)
        pytest.main([*ARGUMENTS[1:], tests], plugins=[recorder])
        watcher.stop()
        passed = {name: seconds for name, seconds in recorder.seconds.items() if name not in recorder.failed}
        data = watcher.get_data()
        lines = {
            str(Path(file).relative_to(project)): {
                line: sorted(passed.keys() & set(names)) for line, names in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        kept.write_text(json.dumps({"seconds": passed, "lines": lines}))
        return 0

    _fork(project, run, seconds=900.0, quiet=True)


def compile_all(project: Path, tests: Sequence[str]) -> None:
    """Leave the unchanged copy compiled, tests too, so that a try compiles no more than its own fault."""

    def run() -> int:
        sys.dont_write_bytecode = False
        compileall.compile_dir(project / "vmselect", quiet=2)
        return int(pytest.main([*ARGUMENTS, "--collect-only", *tests]))

    if any(not list((project / name).parent.glob(f"__pycache__/{Path(name).stem}.*")) for name in tests):
        _fork(project, run, seconds=900.0, quiet=True)


def find_killer(project: Path, tests: Mapping[str, float]) -> str | None:
    """The first of ``tests`` (name to seconds) that fails on the copy as it stands, or that they hang.

    The files with the most of them come first: they are likely to be about the fault, and to read all takes longer.
    """
    files = [file for file, _ in Counter(map(_file_of, tests)).most_common()]
    for some in (files[:FIRST_FILES], files[FIRST_FILES:]):
        chosen = {name: seconds for name, seconds in tests.items() if _file_of(name) in some}
        if chosen and (killer := _find_killer(project, chosen, some)):
            return killer
    return None


def _file_of(test: str) -> str:
    return test.split("::")[0]


def _find_killer(project: Path, tests: Mapping[str, float], files: Sequence[str]) -> str | None:
    noted = project.parent / "killer"
    noted.write_text("import")

    def run() -> int:
        _settle_examples()
        return int(pytest.main([*ARGUMENTS, *files], plugins=[_Chooser(tests, noted)]))

    limit = 2 * min(MOST_SECONDS, sum(tests.values())) + SLACK_SECONDS
    while (code := _fork(project, run, seconds=limit, quiet=True)) is None:
        noted.write_text("import")
    if code in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise RuntimeError(f"pytest itself failed (exit code {code}), which says nothing about the mutant")
    if code < 0:
        return HANGS
    return noted.read_text() if code else None


def _settle_examples() -> None:
    """The same examples for every mutant, unshrunk; no test of ours fails for being slow, least of all here."""
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutants", deadline=None, database=None, derandomize=True, phases=phases)
    hypothesis.settings.load_profile("mutants")


def _fork(project: Path, run: Any, *, seconds: float, quiet: bool) -> int | None:
    """The exit code of ``run`` in a process of its own within the copy; -1 if it took too long, None if paused."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 3
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 5))
            os.chdir(project)
            sys.path.insert(0, str(project))
            os.environ["PYTHONPATH"] = str(project)  # programs that tests start read the copy too
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # a fault of one moment must not be read in the next
            sys.dont_write_bytecode = True
            if quiet:
                nowhere = os.open(os.devnull, os.O_RDWR)
                for stream in (0, 1, 2):
                    os.dup2(nowhere, stream)
            code = run()
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            sys.stdout.flush()
            os._exit(code)
    now = time.monotonic()
    until, paused = now + WALL * seconds, False
    while now < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return None if paused else os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
        before, now = now, time.monotonic()
        if now - before > PAUSE_SECONDS:
            until, paused = until + now - before, True
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None if paused else -1


def importers_of(module: Path, root: Path) -> list[str]:
    """Files of the package, relative to ``root``, that import something from ``module``."""
    name = ".".join(module.relative_to(root).with_suffix("").parts)
    found = []
    for path in sorted((root / "vmselect").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == name:
                found.append(str(path.relative_to(root)))
                break
    return found
