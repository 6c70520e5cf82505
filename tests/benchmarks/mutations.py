"""Would the tests notice a fault? Plant faults, one at a time, and see: ``python tests/benchmarks/mutations.py``.

Each mutant is a copy of the package with one place changed: a comparison, an operator, a number, a condition. The unit
and property tests run against it until the first failure; a mutant that survives them all is printed with its place,
to be judged: an equivalent change, or a law that nobody tests. Which places are tried is decided by the seed.

    python tests/benchmarks/mutations.py --count 60 --seed 1 --package estimation --package ranking
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = ("estimation", "ranking", "catalog", "records")
TESTS = {
    "estimation": ("estimation", "equations", "batch", "along", "selection", "convergence", "grouping", "ranking_rank"),
    "ranking": ("ranking", "selection", "page", "measures", "grouping"),
    "catalog": ("catalog", "prices"),
    "records": ("profile", "record", "convergence", "files", "grouping", "estimation_errors"),
}
"""Package to words in the names of the test files that are run first; the others follow where these let it live."""

SECONDS = 240.0
"""A mutant that runs longer than this hangs, which a person would notice too."""

COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}


class Place(NamedTuple):
    """Where a mutant differs: the file, the number of the place among those of the file, and what was done there."""

    path: Path
    number: int
    line: int
    what: str


def change(node: ast.AST) -> str | None:
    """Plant a fault in ``node`` and say which, or leave it alone."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        before = node.ops[0]
        node.ops[0] = COMPARISONS[type(before)]()
        return f"{type(before).__name__} becomes {type(node.ops[0]).__name__}"
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS and not _joins_text(node):
        before_op = node.op
        node.op = OPERATORS[type(before_op)]()
        return f"{type(before_op).__name__} becomes {type(node.op).__name__}"
    if isinstance(node, ast.BoolOp):
        before_bool = type(node.op).__name__
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return f"{before_bool} becomes {type(node.op).__name__}"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        node.op = ast.UAdd()
        node.operand = ast.Call(ast.Name("bool", ast.Load()), [node.operand], [])
        return "not is dropped"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node.op = ast.UAdd()
        return "a sign is dropped"
    if isinstance(node, ast.Constant) and type(node.value) in (int, float) and not isinstance(node.value, bool):
        before_value = node.value
        node.value = node.value * 1.5 if isinstance(node.value, float) and node.value else node.value + 1
        return f"{before_value} becomes {node.value}"
    return None


def _joins_text(node: ast.BinOp) -> bool:
    def is_text(side: ast.expr) -> bool:
        return isinstance(side, (ast.JoinedStr, ast.List, ast.Tuple)) or (
            isinstance(side, ast.Constant) and isinstance(side.value, str)
        )

    return is_text(node.left) or is_text(node.right)


def list_places(path: Path) -> Iterator[Place]:
    """Every place of a file in which a fault can be planted."""
    tree = ast.parse(path.read_text())
    for number, node in enumerate(_walk(tree)):
        what = change(copy.deepcopy(node))
        if what:
            yield Place(path, number, node.lineno, what)


def _walk(tree: ast.AST) -> Iterator[ast.expr]:
    """Expressions that compute something: no annotations, and no slices of type parameters."""
    hidden: set[int] = set()
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            part = getattr(node, name, None)
            if part is not None:
                hidden |= {id(inner) for inner in ast.walk(part)}
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and id(node) not in hidden:
            yield node


def write_mutant(place: Place, target: Path) -> None:
    """The file of ``place`` with its fault, at ``target``."""
    tree = ast.parse(place.path.read_text())
    for number, node in enumerate(_walk(tree)):
        if number == place.number:
            change(node)
    target.write_text(ast.unparse(ast.fix_missing_locations(tree)))


def find_tests(package: str) -> tuple[list[str], list[str]]:
    """Test files that are likely to notice a fault in ``package``, and all others that need no framework."""
    files = sorted([*(ROOT / "tests/unit").glob("test_*.py"), *(ROOT / "tests/property").glob("test_*.py")])
    files = [file for file in files if "probe" not in file.name]
    near = [file for file in files if any(word in file.name for word in TESTS[package])]
    return [str(f.relative_to(ROOT)) for f in near], [str(f.relative_to(ROOT)) for f in files if f not in near]


def is_killed(copy_of_project: Path, package: str) -> bool:
    """Whether any test fails, or hangs, with the mutant in place."""
    environment = os.environ | {"PYTHONPATH": str(copy_of_project), "PYTHONDONTWRITEBYTECODE": "1"}
    for files in find_tests(package):
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *files]
        try:
            done = subprocess.run(
                command, cwd=copy_of_project, env=environment, capture_output=True, check=False, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return True
        if done.returncode != 0:
            return True
    return False


def main() -> int:
    """Try the mutants and print the share that was noticed, and the survivors."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--count", type=int, default=300)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--package", action="append", choices=PACKAGES)
    words.add_argument("--minutes", type=float, default=600.0, help="stop after this long and report what was tried")
    given = words.parse_args()
    packages = given.package or list(PACKAGES)
    places = [
        (package, place)
        for package in packages
        for path in sorted((ROOT / "vmselect" / package).rglob("*.py"))
        for place in list_places(path)
    ]
    chosen = random.Random(given.seed).sample(places, min(given.count, len(places)))
    print(f"{len(places):,} places in {', '.join(packages)}; {len(chosen)} are tried (seed {given.seed})", flush=True)
    tried, killed, survivors = Counter[str](), Counter[str](), []
    until = time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory() as name:
        project = Path(name)
        for part in ("vmselect", "pricing", "tests", "docs", "examples"):
            shutil.copytree(ROOT / part, project / part, ignore=shutil.ignore_patterns("__pycache__"))
        for part in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / part, project / part)
        for package, place in chosen:
            if time.monotonic() > until:
                break
            target = project / place.path.relative_to(ROOT)
            write_mutant(place, target)
            tried[package] += 1
            if is_killed(project, package):
                killed[package] += 1
            else:
                survivors.append(place)
                print(f"survived: {place.path.relative_to(ROOT)}:{place.line}: {place.what}", flush=True)
            shutil.copy(place.path, target)
    for package in packages:
        if tried[package]:
            print(f"{package}: {killed[package]} of {tried[package]} killed ({killed[package] / tried[package]:.0%})")
    total = sum(tried.values())
    print(f"all: {sum(killed.values())} of {total} killed ({sum(killed.values()) / max(1, total):.0%})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
