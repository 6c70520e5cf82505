"""Call every public function with wrong arguments; prints what is not answered by an error of the family.

``python tests/benchmarks/arguments.py [calls] [seed]``; 5,000 calls unless told. ``all`` in the place of a number tries
every value for every argument, one at a time.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from argument_fuzz import attack, attack_all


def main() -> None:
    wanted = sys.argv[1] if len(sys.argv) > 1 else "5000"
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with tempfile.TemporaryDirectory() as folder:
        deep = Path(folder, "a", "b", "c")  # one of the values is the folder above the folder above
        deep.mkdir(parents=True)
        os.chdir(deep)
        os.environ["VMSELECT_CACHE_DIR"] = folder
        found = Counter(attack_all() if wanted == "all" else attack(int(wanted), seed=seed))
        os.chdir("/")
    calls = str(sum(found.values())) if wanted == "all" else f"{wanted} calls with seed {seed}"
    del found[""]
    for line, count in found.most_common():
        print(count, line)
    print(f"{calls}: {sum(found.values())} outside the family")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
