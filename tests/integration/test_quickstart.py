"""The main job, as the README prints it, in a folder of its own."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path

import vmselect as vs

SCRIPT = Path(__file__).parents[2] / "examples" / "quickstart.py"


def test_quickstart_probes_ranks_and_writes_the_page(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    output = tmp_path / "quickstart-output"
    (folder,) = output.glob("records-*")
    (profile,) = vs.load_profiles(folder)
    assert (profile.instance_type, profile.batch_size, profile.model) == ("this-computer", 128, "small_resnet")
    assert "Probably rent" in done.stdout  # also on a busy machine: the description does not depend on the probe
    # Numbers that are left out are explained by the marks before them.
    shown = [re.match(r"   (\d+)\. \S+(?: \+(\d+))? \(", line) for line in done.stdout.splitlines()]
    ranks = [(int(match[1]), int(match[2] or 0)) for match in shown if match]
    assert ranks[0][0] == 1
    assert all(after == rank + 1 + more for (rank, more), (after, _) in itertools.pairwise(ranks))
    assert "this computer is not a candidate" in done.stdout or "too busy" in done.stdout
    assert (output / "report.html").resolve().as_uri() in done.stdout
