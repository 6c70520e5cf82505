"""Kill a probed training at random moments and count what is left of it.

    python tests/benchmarks/kills.py [--runs 100] [--seed 0] [--backends tensorflow jax torch]

For every backend one process imports the framework, and each run is a child made by fork, which trains and is killed
(SIGKILL) at a random moment of its life. Every second one writes its record at every step's end that it may, instead of
once a second, so that many kills fall into the writing. A run that had ended its first step must leave exactly one
readable profile, marked interrupted, and nothing else in the folder once an hour has passed and another has written
there. Runs that had come to their end are counted apart.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BATCH, STEPS, EPOCHS = 8, 6, 4


def train(folder: Path, note: int, *, into_folder: bool, often: bool) -> None:
    """The training that is killed; a byte goes into ``note`` when its first step has been seen."""
    import keras
    import numpy as np

    import vmselect as vs
    from vmselect.probe import recording

    if often:
        recording.EVERY_SECONDS, recording.SHARE = 0.0, 1.0

    class Teller(keras.callbacks.Callback):
        told = False

        def on_train_batch_end(self, batch, logs=None):
            if not self.told:
                os.write(note, b"1")
                self.told = True

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    x, y = np.ones((BATCH * STEPS, 4), "float32"), np.ones((BATCH * STEPS, 1), "float32")
    probe = vs.IterationProbe(folder if into_folder else folder / "p.json", stop=False, verbose=0)
    os.write(note, b"0")
    model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0, validation_data=(x, y), callbacks=[probe, Teller()])


def run(folder: Path, *, into_folder: bool, often: bool, share: float | None, typical: float) -> tuple[str, float]:
    """One child, killed after ``share`` of a typical life; what was left of it, and how long it lived."""
    import vmselect as vs

    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            train(folder, writing, into_folder=into_folder, often=often)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as notes:
        started = notes.read(1)  # the model is made: the kill falls into the training
        began = time.perf_counter()
        if share is not None:
            time.sleep(share * typical)
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        lived = time.perf_counter() - began
        first_step = notes.read() == b"1"
    if not started or (os.WIFEXITED(status) and os.WEXITSTATUS(status)):
        return "failed", lived
    profiles = vs.load_profiles(folder) if any(folder.iterdir()) and list(vs_walk(folder)) else []
    tidy_after_an_hour(folder)
    litter = [path.name for path in folder.iterdir() if path.name.startswith(".")]
    whole = all(profile.timeline.steps.steps >= 1 for profile in profiles)
    killed = os.WIFSIGNALED(status)
    marked = all(profile.outcome == "interrupted" for profile in profiles) or not killed or first_step
    if litter or not whole or not marked or len(profiles) > 1:
        return "broken", lived
    if first_step and not profiles:
        return "lost", lived
    if not killed:
        return "ended before", lived
    return ("kept" if profiles else "nothing yet"), lived


def tidy_after_an_hour(folder: Path) -> None:
    """Let an hour pass over what lies there, and somebody else write: half files of the killed writer go then."""
    from vmselect import _io

    long_ago = time.time() - 2 * _io.ABANDONED_AFTER_SECONDS
    for path in folder.glob(".vmselect-*.part"):
        os.utime(path, (long_ago, long_ago))
    _io._cleaned.discard(folder)
    _io.write_text(folder / "other.txt", "another writer")
    (folder / "other.txt").unlink()


def vs_walk(folder: Path) -> list[object]:
    """All that a reader finds, readable or not, except that there is nothing."""
    from vmselect.records import Record
    from vmselect.records.files import walk_records

    return [found for path, found in walk_records(folder) if isinstance(found, Record) or path != folder]


def run_backend(runs: int, seed: int) -> dict[str, int]:
    import keras  # noqa: F401 - imported once, before the children are made

    import vmselect.records.files  # noqa: F401

    chance = random.Random(seed)
    counts = dict.fromkeys(("kept", "nothing yet", "ended before", "lost", "broken", "failed"), 0)
    root = Path(tempfile.mkdtemp())
    typical = 0.0
    for number in range(-2, runs):
        folder = root / str(number)
        folder.mkdir()
        share = None if number < 0 else chance.uniform(0.0, 1.0)
        result, lived = run(
            folder, into_folder=bool(number % 2), often=bool(number // 2 % 2), share=share, typical=typical
        )
        if result == "ended before":
            typical = min(typical or lived, lived)  # later ones are to be killed in time
        if number < 0:
            assert result == "ended before", result
        else:
            counts[result] += 1
        shutil.rmtree(folder)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100, help="kills on each backend")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backends", nargs="+", default=["tensorflow", "jax", "torch"])
    parser.add_argument("--here", action="store_true", help="in this process, on the backend of KERAS_BACKEND")
    options = parser.parse_args()
    if options.here:
        print(json.dumps(run_backend(options.runs, options.seed)))
        return 0
    bad = 0
    for backend in options.backends:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", __file__, "--here", "--runs", str(options.runs), "--seed",
             str(options.seed)],
            env={**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        counts = json.loads(done.stdout.splitlines()[-1])
        bad += counts["lost"] + counts["broken"] + counts["failed"]
        print(f"{backend}: {options.runs} kills: " + ", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
