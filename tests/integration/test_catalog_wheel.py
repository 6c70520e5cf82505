"""The wheel that is built holds the prices, and an installed package finds them without the checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytest.importorskip("hatchling", reason="hatchling is not installed: no wheel was built")


def test_a_built_wheel_finds_its_prices(tmp_path: Path) -> None:
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    wheel = tmp_path / done.stdout.split()[-1]
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    ask = (
        "import vmselect as vs, vmselect.catalog.snapshots as s; "
        "print(vs.Catalog.embedded().price('g4dn.xlarge'), vs.Catalog.embedded('2021-02-28').price('p2.xlarge'), "
        "s.pricing_folder())"
    )
    # -I keeps the checkout off the path: only what the wheel brought can be imported.
    code = f"import sys; sys.path.insert(0, {str(installed)!r}); {ask}"
    answer = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.split() == ["0.526", "0.9", str(installed / "vmselect" / "_pricing")]


def test_the_checkout_finds_its_prices_beside_the_package() -> None:
    from vmselect.catalog.snapshots import pricing_folder

    assert pricing_folder().name in ("pricing", "_pricing")
