"""Blocks of the documentation that train a model, or need a tracker or a store, run as they stand there."""

from __future__ import annotations

import collections
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from page_examples import find_blocks  # noqa: E402

MODULES = {"keras": ["keras"], "jax": ["jax"], "s3": ["moto", "s3fs", "duckdb", "keras"], "mlflow": ["mlflow"]}
"""What the blocks of each package import. All run in one process, because importing takes longer than the blocks."""

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARKED = [
    (block.package, path.relative_to(ROOT).as_posix())
    for path in PAGES
    for block in find_blocks(path.read_text(encoding="utf-8"))
    if block.package
]


def test_every_named_package_is_run() -> None:
    in_test_trainers = {"lightning", "transformers"}
    assert {package for package, _ in MARKED} == {*MODULES, *in_test_trainers}


def test_blocks_run(tmp_path: Path) -> None:
    present = [package for package, names in MODULES.items() if all(map(importlib.util.find_spec, names))]
    if not present:
        pytest.skip(f"none of {', '.join(MODULES)} is installed: their blocks were not run")
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "support" / "page_trainings.py", *present],
        cwd=tmp_path,
        env=os.environ | {"KERAS_BACKEND": "jax", "TF_CPP_MIN_LOG_LEVEL": "3", "VMSELECT_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    ran = [tuple(line.split()[1:]) for line in done.stdout.splitlines() if line.startswith("ran ")]
    assert collections.Counter(ran) == collections.Counter(one for one in MARKED if one[0] in present)
