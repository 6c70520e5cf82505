"""Would the tests notice a fault? Plant faults, one at a time, and see: ``python tests/benchmarks/mutations.py``.

Each mutant is a copy of the package with one place changed: a comparison, an operator, a number, a condition. First
the unit and property tests run once, and which of them run which line is kept; then each mutant is tried on the tests
that run its line, until the first failure. A mutant that survives is printed with its place, to be judged: an
equivalent change, or a law that nobody tests. Which places are tried is decided by the seed.

    python tests/benchmarks/mutations.py --count 300 --seed 1 --kept mutants/
    python tests/benchmarks/mutations.py --count 300 --seed 1 --kept mutants/ --from 60 --most 60    # a slice of them
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from mutation_places import Place, list_places, plant
from mutation_tests import Record, import_heavy_parts, importers_of, is_killed, record

ROOT = Path(__file__).parents[2]
PACKAGES = ("estimation", "ranking", "catalog", "records")


def choose(project: Path, packages: list[str], count: int, seed: int) -> list[tuple[str, Place]]:
    """The mutants that are tried, each with its package."""
    places = [
        (package, place)
        for package in packages
        for path in sorted((project / "vmselect" / package).rglob("*.py"))
        for place in list_places(path)
    ]
    print(f"{len(places):,} places in {', '.join(packages)}; {count} are tried (seed {seed})", flush=True)
    return random.Random(seed).sample(places, min(count, len(places)))


def copy_project(target: Path) -> None:
    """What the tests need, apart from the files that are being worked on."""
    for part in ("vmselect", "pricing", "tests", "docs", "examples"):
        shutil.copytree(ROOT / part, target / part, ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / part, target / part)


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
    """Unit and property tests that need no framework."""
    files = sorted([*(project / "tests/unit").glob("test_*.py"), *(project / "tests/property").glob("test_*.py")])
    return [str(file.relative_to(project)) for file in files if "probe" not in file.name]


def find_tests(project: Path, known: Record, place: Place) -> dict[str, float]:
    """Tests that run the place; where it only runs on import, those that run its file or one that imports from it."""
    file = str(place.path.relative_to(project))
    found = known.find(file, place.first, place.last, on_import=place.on_import)
    if place.on_import:
        for other in importers_of(place.path, project):
            found |= known.find(other, 0, 0, on_import=True)
    return found


def report(results: list[dict[str, str | int | bool]]) -> None:
    """Killed and tried, by package, and the survivors."""
    tried = Counter(str(one["package"]) for one in results)
    killed = Counter(str(one["package"]) for one in results if one["killed"])
    print("| package | killed | tried | share |\n|---|---:|---:|---:|")
    for name in PACKAGES:
        if tried[name]:
            print(f"| {name} | {killed[name]} | {tried[name]} | {killed[name] / tried[name]:.0%} |")
    print(f"| all | {killed.total()} | {tried.total()} | {killed.total() / max(1, tried.total()):.0%} |")
    for one in results:
        if not one["killed"]:
            print(f"survived: {one['place']}: {one['what']} ({one['tests']} tests run it)")


def main() -> int:
    """Try the mutants and print the share that was noticed, and the survivors."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--count", type=int, default=300)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--package", action="append", choices=PACKAGES)
    words.add_argument("--tests", action="append", help="only files of tests with this in their name")
    words.add_argument("--from", dest="start", type=int, default=0, help="the first mutant of the sample to try")
    words.add_argument("--most", type=int, default=10**9, help="how many of them to try")
    words.add_argument("--kept", type=Path, help="folder for the record of tests and for results, reused when there")
    given = words.parse_args()
    packages = given.package or list(PACKAGES)
    import_heavy_parts()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        project = Path(name).resolve() / "project"
        copy_project(project)
        chosen = choose(project, packages, given.count, given.seed)[given.start : given.start + given.most]
        kept: Path = (given.kept or Path(name)).resolve()
        kept.mkdir(parents=True, exist_ok=True)
        known = record_all(project, kept, given.tests or [])
        print(f"{len(known.seconds)} tests are known ({time.monotonic() - began:.0f} s)", flush=True)
        quick = dict(sorted(known.seconds.items(), key=lambda one: one[1])[:200])
        if is_killed(project, quick):
            sys.exit("tests fail on the unchanged copy: what they say of mutants would mean nothing")
        results = kept / f"seed-{given.seed}.jsonl"
        for package, place in chosen:
            tests, source = find_tests(project, known, place), place.path.read_bytes()
            try:
                place.path.write_bytes(plant(place))
                killed = is_killed(project, tests)
            finally:
                place.path.write_bytes(source)
            where = f"{place.path.relative_to(project)}:{place.line}"
            row = {"package": package, "place": where, "what": place.what, "tests": len(tests), "killed": killed}
            with results.open("a") as file:
                file.write(json.dumps(row) + "\n")
            if not killed:
                print(f"survived: {where}: {place.what} ({len(tests)} tests run it)", flush=True)
        print(f"{len(chosen)} mutants ({time.monotonic() - began:.0f} s)")
        report([json.loads(line) for line in results.read_text().splitlines()] if results.exists() else [])
    return 0


if __name__ == "__main__":
    sys.exit(main())
