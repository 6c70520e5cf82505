"""Wheel and source distribution: their content, and the commands of an installation in an empty environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import vmselect as vs

ROOT = Path(__file__).parents[2]
pytest.importorskip("hatchling", reason="hatchling is not installed: no wheel was built")
pytest.importorskip("hatch_vcs", reason="hatch-vcs is not installed: no wheel was built")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A wheel and a source distribution of the checkout."""
    folder = tmp_path_factory.mktemp("dist")
    build = "import sys, hatchling.build as b; print(b.build_wheel(sys.argv[1])); print(b.build_sdist(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", build, str(folder)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    wheel, source = done.stdout.split()[-2:]
    return folder / wheel, folder / source


def test_the_wheel_has_the_package_and_the_prices_only(built: tuple[Path, Path]) -> None:
    names = zipfile.ZipFile(built[0]).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"vmselect"}
    wanted = {path.relative_to(ROOT).as_posix() for path in (ROOT / "vmselect").rglob("*.py")}
    wanted |= {f"vmselect/_pricing/{path.name}" for path in (ROOT / "pricing").glob("*.csv")}
    assert wanted <= {*names}


def test_the_source_has_everything_that_its_tests_need(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    for wanted in ("pyproject.toml", "README.md", "LICENSE", "tests/conftest.py", "docs/README.md"):
        assert wanted in names
    assert not [name for name in names if name.startswith((".github", ".ci", "dist/"))]


def test_an_installation_in_an_empty_environment_works(built: tuple[Path, Path], tmp_path: Path) -> None:
    # Installing the source distribution builds a wheel from it, so that both are used.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "empty"], check=True)
    programs = tmp_path / "empty" / "bin"
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def run(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    pip = (sys.executable, "-m", "pip", "--python", programs / "python", "--disable-pip-version-check", "install")
    run(*pip, "--quiet", "--no-compile", built[1])
    vs.Profile.from_times(
        instance_type="g5.xlarge", batch_size=64, steps_per_epoch=100, iteration_seconds=[0.1] * 9
    ).save(tmp_path / "profiles")
    ranking = json.loads(run(programs / "vmselect", "rank", "profiles", "--epochs", "5", "--format", "json"))
    assert ranking["rows"][0]["instance_type"] == "g5.xlarge"
    run(programs / "vmselect", "demo", "--out", "demo.html")
    assert "<html" in (tmp_path / "demo.html").read_text(encoding="utf-8")
    place = run(programs / "python", "-c", "import vmselect._io as s; print(s.pricing_folder())")
    assert Path(place.strip()).name == "_pricing"


def test_the_checkout_finds_its_prices_beside_the_package() -> None:
    from vmselect._io import pricing_folder

    assert pricing_folder().name in ("pricing", "_pricing")
