"""What all tests need of the process that runs them."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

# The same examples in every run: a test fails because of a change, not by chance. Search for new ones with
# --hypothesis-profile=random, or with benchmarks/adversarial.py.
# There is no deadline, because a busy machine would miss it.
settings.register_profile("random", derandomize=False, deadline=None)
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")

# Newer releases of hypothesis also draw constants of all project modules that happen to be loaded, so that the examples
# of a test would depend on the tests before it. There is no setting against that. A random search draws them.
if hasattr(providers, "_get_local_constants"):
    NO_CONSTANTS, collect_constants = providers._local_constants, providers._get_local_constants
    providers._get_local_constants = lambda: NO_CONSTANTS if settings.default.derandomize else collect_constants()

# The day of all tests, also in the commands that they start: prices age, and rankings change with them.
os.environ["VMSELECT_TODAY"] = "2026-09-01"

# A shell ignores SIGINT in what it runs in the background, and children inherit that: nobody would hear Ctrl-C.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _default_folder() -> Iterator[None]:
    """Let probes without a path write to a temporary folder, not to a folder of the checkout."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "VMSELECT_FOLDER", folder)
        yield


@pytest.fixture(scope="session", autouse=True)
def _temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Create the folder of all temporary files now: two threads of a fixture that ask for it at once would both do."""
    tmp_path_factory.getbasetemp()


MARKS = {
    "integration": "slow",
    "test_types.py": "slow",
    "test_mcp.py": "slow",
    "test_history_stores.py": "slow",
    "test_sweep_local.py": "slow",
    "test_sweep_remote.py": "cluster",
    "test_sweep_skypilot.py": "cluster",
}
"""Folders and files whose tests plain ``pytest`` does not run, and their mark."""

LONGEST_FIRST = (
    "test_keras.py", "test_backends.py", "test_sweep_skypilot.py", "test_sweep_remote.py", "test_sweep_workers.py",
    "test_cli_probe_torch.py", "test_cli_probe_scripts.py", "test_convergence_training.py", "test_probe_ends.py",
    "test_sampling_fits.py", "test_trainers.py", "test_selection_tutorial.py", "test_quickstart.py",
    "test_distributions.py", "test_types.py",
)  # fmt: skip
"""Files that take longest. A file stays on one worker, so that one of these at the end would leave the other idle."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        marks = [MARKS[part] for part in item.path.relative_to(Path(__file__).parent).parts if part in MARKS]
        if "browser" in getattr(item, "fixturenames", ()):
            marks = ["browser"]
        for mark in marks:
            item.add_marker(mark)
    place = {name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))
