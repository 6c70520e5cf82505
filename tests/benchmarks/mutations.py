"""Would the tests notice a fault? Plant faults, one at a time, and see: ``python tests/benchmarks/mutations.py``.

Each mutant is a copy of the package with one place changed: a comparison, an operator, a number, a condition. First
the unit and property tests run once, and which of them run which line is kept; then each mutant is tried on the tests
that run its line, until the first failure. A mutant that survives is printed with its place, to be judged: an
equivalent change, or a law that nobody tests. Which places are tried is decided by the seed.

    python tests/benchmarks/mutations.py --count 300 --seed 1 --kept mutants/
    python tests/benchmarks/mutations.py --count 300 --seed 1 --kept mutants/ --most 60    # and again, for the next 60
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from mutation_places import Place, list_places, plant
from mutation_tests import HANGS, Record, compile_all, find_killer, import_heavy_parts, importers_of, record

ROOT = Path(__file__).parents[2]
PACKAGES = ("estimation", "ranking", "catalog", "records")
COUNTED = ("tests/unit", "tests/property")
ALSO = "tests/contract/prices"
"""Tried on what the counted tests let pass, and shown apart."""


def choose(project: Path, packages: list[str], count: int, seed: int) -> list[tuple[str, Place]]:
    """The mutants that are tried, each with its package: equally many of each, in turn."""
    chosen = []
    for package in packages:
        files = sorted((project / "vmselect" / package).rglob("*.py"))
        places = [place for path in files for place in list_places(path)]
        each = min(count // len(packages), len(places))
        print(f"{len(places):,} places in {package}; {each} are tried (seed {seed})", flush=True)
        chosen.append([(package, place) for place in random.Random(f"{seed} {package}").sample(places, each)])
    return [one for row in zip_longest(*chosen) for one in row if one]


def copy_project(target: Path) -> None:
    """What the tests need, apart from the files that are being worked on."""
    for part in ("vmselect", "pricing", "tests", "docs", "examples"):
        shutil.copytree(ROOT / part, target / part, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    for part in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / part, target / part)
    for path in target.rglob("*.py"):
        if not (ROOT / path.relative_to(target)).exists():
            path.unlink()  # of an earlier call


def record_all(project: Path, kept: Path, words: list[str]) -> Record:
    """Which tests run which lines; what was kept of the same code and the same tests is not run again.

    With ``words`` only files of tests with one of them in their names are asked, which can only let more survive.
    """
    code = hashlib.sha256()
    for path in sorted((project / "vmselect").rglob("*.py")):
        code.update(path.read_bytes())
    known = Record()
    for name in list_tests(project):
        if words and not any(word in name for word in words):
            continue
        word = hashlib.sha256(code.digest() + (project / name).read_bytes()).hexdigest()[:12]
        table = kept / f"{Path(name).stem}-{word}.json"
        if not table.exists():
            record(project, PACKAGES, name, table)
        if table.exists():
            known.add(json.loads(table.read_text()))
        else:
            print(f"{name} did not run", flush=True)
    return known


def list_tests(project: Path) -> list[str]:
    """Unit and property tests, and the tests of price sources against saved answers."""
    files = [file for folder in (*COUNTED, ALSO) for file in sorted((project / folder).glob("test_*.py"))]
    return [str(file.relative_to(project)) for file in files]


def find_tests(project: Path, known: Record, place: Place) -> dict[str, float]:
    """Tests that run the place; where it only runs on import, those that run its file or one that imports from it."""
    file = str(place.path.relative_to(project))
    found = known.find(file, place.first, place.last, on_import=place.on_import)
    if place.on_import:
        for other in importers_of(place.path, project):
            found |= known.find(other, 0, 0, on_import=True)
    return found


def try_mutant(project: Path, place: Place, tests: dict[str, float]) -> str | None:
    """The test that notices the fault at ``place``, or None: first those that count, then the others."""
    source, about = place.path.read_bytes(), place.path.stat()
    counted = {name: seconds for name, seconds in tests.items() if name.startswith(COUNTED)}
    others = {name: seconds for name, seconds in tests.items() if name not in counted}
    try:
        place.path.write_bytes(plant(place))
        killer = find_killer(project, counted)
        if killer is None and (other := find_killer(project, others)):
            killer = f"{ALSO}: {other.rpartition('::')[2]}"
    finally:
        place.path.write_bytes(source)
        os.utime(place.path, ns=(about.st_atime_ns, about.st_mtime_ns))  # what was compiled of it holds again
    return killer


def find_unreliable(project: Path, known: Record, rows: Iterable[dict[str, Any]]) -> list[str]:
    """Tests that noticed a fault and fail on the unchanged copy as well: what they say means nothing."""
    killers = {str(row["killer"]) for row in rows} & known.seconds.keys()
    found = []
    while failing := find_killer(project, {name: known.seconds[name] for name in killers}):
        found.append(failing)
        killers.discard(failing)
        if failing not in known.seconds:
            break
    return found


def passed(row: dict[str, Any]) -> bool:
    """Whether the counted tests let it pass."""
    return row["killer"] is None or row["killer"].startswith(ALSO)


def report(results: list[dict[str, Any]]) -> None:
    """Killed and tried, by package, and the survivors."""
    print("| package | tried | killed by unit and property tests | share | by contract tests of prices | survived |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in (*PACKAGES, "all"):
        rows = [one for one in results if name in (one["package"], "all")]
        killed = sum(not passed(one) for one in rows)
        survived = sum(one["killer"] is None for one in rows)
        share = f"{killed / len(rows):.0%}" if rows else "-"
        print(f"| {name} | {len(rows)} | {killed} | {share} | {len(rows) - killed - survived} | {survived} |")
    print(f"{sum(one['killer'] == HANGS for one in results)} of the killed hang")
    for one in filter(passed, results):
        print(f"survived: {one['number']} {one['place']}: {one['what']} ({one['tests']} tests run it; {one['killer']})")


def main() -> int:
    """Try the mutants and print the share that was noticed, and the survivors."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--count", type=int, default=300)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--package", action="append", choices=PACKAGES)
    words.add_argument("--tests", action="append", help="only files of tests with this in their name")
    words.add_argument("--most", type=int, default=10**9, help="how many mutants to try now; the next call goes on")
    words.add_argument("--again", action="store_true", help="try those again that the counted tests let pass")
    words.add_argument("--kept", type=Path, help="folder for the record of tests and for results, reused when there")
    given = words.parse_args()
    packages = given.package or list(PACKAGES)
    import_heavy_parts()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        kept: Path = (given.kept or Path(name)).resolve()
        project = kept / "project"
        copy_project(project)
        chosen = choose(project, packages, given.count, given.seed)
        known = record_all(project, kept, given.tests or [])
        compile_all(project, list_tests(project))
        print(f"{len(known.seconds)} tests are known ({time.monotonic() - began:.0f} s)", flush=True)
        results = kept / f"seed-{given.seed}-{'-'.join(packages)}-{given.count}.json"
        rows: dict[str, dict[str, Any]] = json.loads(results.read_text()) if results.exists() else {}
        tried = 0
        for number, (package, place) in enumerate(chosen):
            where = f"{place.path.relative_to(project)}:{place.line}"
            row = {"number": number, "package": package, "place": where, "what": place.what}
            before = rows.get(str(number), {})
            done = row.items() <= before.items() and not (given.again and passed(before))
            if done or tried >= given.most:
                continue
            tests = find_tests(project, known, place)
            killer = try_mutant(project, place, tests)
            tried += 1
            rows[str(number)] = row | {"tests": len(tests), "killer": killer}
            results.write_text(json.dumps(rows, indent=1))
            if not killer:
                print(f"survived: {number} {where}: {place.what} ({len(tests)} tests run it)", flush=True)
        print(f"{tried} mutants ({time.monotonic() - began:.0f} s)", flush=True)
        report(list(rows.values()))
        if tried < given.most:
            print(f"fail without a fault too: {', '.join(find_unreliable(project, known, rows.values())) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
