"""``import vmselect`` brings nothing heavy: measured in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEAVY = [
    "numpy",
    "pandas",
    "scipy",
    "keras",
    "tensorflow",
    "jax",
    "torch",
    "boto3",
    "requests",
    "altair",
    "pydantic",
    "psutil",
    "typer",
    "rich",
]


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_after("import vmselect").isdisjoint(HEAVY)


def test_probing_loads_no_framework_and_no_data_packages() -> None:
    loaded = loaded_after("import vmselect as vs\nvs.IterationProbe(verbose=0)\nvs.Profile\nvs.load_profiles")
    assert loaded.isdisjoint(["numpy", "pandas", "scipy", "keras", "tensorflow", "jax", "torch", "boto3", "altair"])


def test_importing_costs_a_small_part_of_starting_python() -> None:
    """An absolute limit would test the machine, so the import is compared with that of pydantic.

    Both need ``re`` and ``typing``, which are imported before.
    """
    code = (
        "import re, sys, time, typing; a = time.process_time(); import vmselect; b = time.process_time(); "
        "import pydantic; c = time.process_time(); print((b - a) / (c - b))"
    )
    ratios = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5)]
    assert min(ratios) < 0.5, f"importing vmselect took {min(ratios):.2f} of importing pydantic"


IN_A_BROWSER = """
import sys
from pathlib import Path

# What Python in a browser (Pyodide) has not: packages without a build for it, and modules of the operating system.
for name in {absent}:
    sys.modules[name] = None

import vmselect as vs

times = {{"g4dn.xlarge": 0.4, "g5.xlarge": 0.2}}
for name, seconds in times.items():
    vs.Profile.from_times(
        instance_type=name, batch_size=64, steps_per_epoch=100, init_seconds=9, first_iteration_seconds=3,
        iteration_seconds=[seconds] * 9,
    ).save(f"profiles/{{name}}.json")
ranking = vs.rank(vs.load_profiles("profiles"), epochs=50, machines=["g6.xlarge"])
ranking.report("report.html")
print(len(ranking))
"""


def test_ranking_needs_nothing_that_a_browser_lacks(tmp_path: Path) -> None:
    absent = ["psutil", "pynvml", "boto3", "requests", "keras", "tensorflow", "jax", "torch", "altair", "typer", "rich"]
    absent += ["fcntl", "grp", "pwd", "resource", "syslog", "termios"]
    code = IN_A_BROWSER.format(absent=absent)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    assert (tmp_path / "report.html").is_file()
