"""How many mutated journals are shown, resumed and cleaned without an unexpected error, and without a live trial left.

python tests/benchmarks/journals.py --journals 1000
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from journal_mutations import Counts, run_mutated


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--journals", type=int, default=1000)
    parser.add_argument("--first-seed", type=int, default=0)
    given = parser.parse_args(arguments)
    counts, began, shown = Counts(), time.monotonic(), time.monotonic()
    with tempfile.TemporaryDirectory() as base:
        os.chdir(base)
        for seed in range(given.first_seed, given.first_seed + given.journals):
            run_mutated(seed, Path(base) / str(seed), counts)
            if time.monotonic() - shown > 5:
                shown = time.monotonic()
                print(f"{counts.journals} of {given.journals}", file=sys.stderr, flush=True)
        os.chdir("/")
    for wrong in counts.wrong:
        print(wrong)
    print(f"{counts.journals} journals, {counts.mutations.total()} mutations, {counts.live} live trials in undamaged "
          f"lines, {counts.refused} refused with a message, {len(counts.wrong)} wrong, "
          f"{time.monotonic() - began:.0f} s")  # fmt: skip
    print("  mutations:", ", ".join(f"{name} {count}" for name, count in sorted(counts.mutations.items())))
    return 1 if counts.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
