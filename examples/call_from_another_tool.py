"""Ask vmselect from another tool, in any language: files and JSON in, JSON out.

    python examples/call_from_another_tool.py

Stands for a scheduler, a CI job or a web service that does not import vmselect. It writes times that it measured itself
as profiles, calls the command line, and reads the answer. Exit codes: 0 fine, 1 nothing feasible, 2 cannot.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import uuid
from datetime import UTC, datetime
from pathlib import Path

# What the tool knows: seconds to initialize, of the first step, and of some later steps, per machine. Made up.
MEASURED = {
    "g4dn.xlarge": (12.0, 4.1, [0.212, 0.209, 0.214, 0.210, 0.211]),
    "g5.xlarge": (11.0, 3.8, [0.083, 0.084, 0.082, 0.083, 0.085]),
    "g6.xlarge": (11.5, 3.9, [0.101, 0.099, 0.100, 0.102, 0.100]),
}
# The program "vmselect", of the same installation as this Python.
VMSELECT = [sys.executable, "-c", "from vmselect.cli import main; main()"]


def profile_of(instance_type: str) -> dict[str, object]:
    """A profile, written by hand in the documented format."""
    init_seconds, first, others = MEASURED[instance_type]
    steps = [first, *others]
    return {
        "kind": "training",
        "format": 3,
        "id": uuid.uuid4().hex,
        "created": datetime.now(UTC).isoformat(),
        "writer": "my-scheduler 3.2",
        "outcome": "given",
        "setup": {"model": "resnet", "batch_size": 64, "batch_size_source": "given", "steps_per_epoch": 500},
        "timeline": {
            "init_seconds": init_seconds,
            "init_source": "given",
            "steps": {
                "epoch": [0] * len(steps),
                "batch": list(range(len(steps))),
                "seconds": steps,
                "covers": [1] * len(steps),
                "label": ["first", *["steady"] * len(others)],
                "readings": len(steps),
                "steps": len(steps),
                "total_seconds": sum(steps),
            },
        },
        "placement": {"instance_type": {"value": instance_type, "source": "given"}},
    }


def ask(folder: Path, *options: str) -> tuple[int, dict[str, object]]:
    """Call ``vmselect rank`` and read its answer."""
    command = [*VMSELECT, "rank", str(folder), "--format", "json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 2:
        sys.exit(done.stderr)
    return done.returncode, json.loads(done.stdout)


def main() -> None:
    """Write profiles, ask twice, print what a program would act on."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for instance_type in MEASURED:
            path = folder / f"{instance_type}.json"
            path.write_text(json.dumps(profile_of(instance_type)), encoding="utf-8")

        code, answer = ask(folder, "--epochs", "30", "--objective", "cost", "--deadline-hours", "1")
        print(f"exit code {code}: {answer['verdict']}")
        for row in answer["rows"]:
            print(
                f"  {row['instance_type']:<12} {row['seconds']:>8.1f} s  {row['cost_usd']:.4f} USD  {row['score']:.2f}"
            )
        for excluded in answer["excluded"]:
            print(f"  left out: {excluded['candidate']}: {excluded['reason']}")

        code, answer = ask(folder, "--epochs", "30", "--budget-usd", "0.01")
        print(f"exit code {code}: {answer['verdict']}")


if __name__ == "__main__":
    main()
