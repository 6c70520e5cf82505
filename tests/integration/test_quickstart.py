"""The main job, as the README prints it, in a folder of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import vmselect as vs

SCRIPT = Path(__file__).parents[2] / "examples" / "quickstart.py"


def test_quickstart_probes_ranks_and_writes_the_page(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    output = tmp_path / "quickstart-output"
    (folder,) = output.glob("profiles-*")
    profiles = vs.load_profiles(folder)
    assert {(p.instance_type, p.batch_size) for p in profiles} == {
        (machine, batch) for machine in ("standin-one-core", "standin-all-cores") for batch in (32, 128)
    }
    assert all(p.model == "small_cnn" and len(p.timeline.validations) == 2 for p in profiles)
    page = (output / "report.html").read_text()
    assert "standin-all-cores" in page
    assert "stand-ins" in done.stdout
    assert (output / "report.html").resolve().as_uri() in done.stdout
