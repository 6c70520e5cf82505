"""Runs every scenario of some modules in this process, on one Keras backend, and writes what became of each as JSON.

    KERAS_BACKEND=jax python scenarios.py RESULTS.json MODULE...

Importing a framework takes longer than most scenarios, so that all of a backend share one process.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


class Skip(Exception):
    """This scenario does not apply to this backend; the text says why."""


def run(scenario) -> str:
    """Whether the scenario passed, was skipped and why, or how it failed."""
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.filterwarnings("error", module="vmselect")
            scenario(Path(folder))
    except Skip as reason:
        return f"skipped: {reason}"
    except Exception:  # noqa: BLE001 - whatever went wrong is the result
        return traceback.format_exc()
    return "passed"


def main(results_file: str, *modules: str) -> None:
    results = {}
    for name in modules:
        module = importlib.import_module(name)
        own = [value for key, value in vars(module).items() if key.startswith("scenario_")]
        for scenario in own:
            began = time.perf_counter()
            result = results[f"{name}.{scenario.__name__}"] = run(scenario)
            took = time.perf_counter() - began
            sys.stderr.write(f"{took:6.2f} s  {scenario.__name__}: {result.strip().splitlines()[-1]}\n")
    Path(results_file).write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    from scenarios import main  # not this copy: scenarios import Skip from there

    main(*sys.argv[1:])
    # The results are written, and TensorFlow can take minutes to tear down the input of epochs that were cut short.
    sys.stderr.flush()
    os._exit(0)
