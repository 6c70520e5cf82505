"""Is the diagnosis right? Real trainings with a known cause, and what was said about each.

    python tests/benchmarks/diagnosis.py [--backend tensorflow ...] [--case NAME ...] [--out FOLDER] [--read FOLDER]

Every case is a training of a few seconds in a process of its own: a healthy one, one whose data come slowly (in four
ways), one that prepares data on the processor, one beside a spinning program, and so on. A diagnosis is right when all
expected codes are there and no other; "compute-bound" may always be there, and where the process is bound to fewer
cores than the machine has, "cpu-limited" is true as well. ``--read`` prints the tables of an earlier run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

BACKENDS = ("tensorflow", "jax", "torch")
SLEEP = 0.12
"""Seconds that slow data take: several times what a step takes, or reading ahead would hide them."""

STEPS, BATCH = 60, 32

CASES = {
    "healthy": set(),
    "healthy dataset": set(),
    "sleeping tf.data": {"input-bound"},
    "sleeping PyDataset": {"input-bound"},
    "sleeping generator": {"input-bound"},
    "sleeping DataLoader": {"input-bound"},
    "heavy preparation": {"input-bound", "cpu-saturated"},
    "spinning neighbour": {"noisy-neighbour"},
    "neighbour beside free cores": set(),
    "memory held by another": set(),
    "disk written by another": {"disk-busy"},
    "disk written in steps": {"disk-busy"},
    "sleep between epochs": {"slow-boundaries"},
    "growing data": {"slowing-down"},
    "one core of several": {"cpu-limited"},
}
ALWAYS_ALLOWED = {"compute-bound", "cpu-limited"}
ALSO_TRUE = {"growing data": {"input-bound"}, "disk written by another": {"noisy-neighbour"}}
"""What follows from the cause as well, seen or not: data that grow are waited for late in the run only, and whoever
writes takes some of the processor's time where cores are shared."""

SPIN = "while True: pass"
HOLD = "import time; held = bytearray(2**31); held[::4096] = b'x' * len(held[::4096]); time.sleep(600)"
WRITE = """
import mmap, os, sys
# Past the cache, so that it takes the disk's time and hardly the processor's.
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_DIRECT | os.O_DSYNC)
block = mmap.mmap(-1, 2**22)
while True:
    os.lseek(file, 0, os.SEEK_SET)
    os.write(file, block)
"""


def train(case: str, folder: Path) -> dict[str, object]:
    """One training of ``case`` on the backend of this process, probed."""
    import keras
    import numpy as np

    import vmselect as vs

    rng = np.random.default_rng(0)
    x = rng.random((STEPS * BATCH, 32, 32, 3), "float32")
    y = rng.integers(0, 10, STEPS * BATCH)
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    callbacks: list[object] = []
    data = make_data(case, x, y, folder)
    if case == "disk written in steps":
        callbacks.append(make_callback(on_batch=lambda: write_synced(folder / "own.bin")))
    if case == "sleep between epochs":
        callbacks.append(make_callback(on_epoch=lambda: time.sleep(1.5)))
    if case == "growing data":
        probe: object = vs.IterationProbe(stop=False, verbose=0, sample=0.5)
        epochs = 6
    else:
        probe = vs.IterationProbe(steps=40, validations=2, verbose=0, sample=0.5)
        epochs = 3
    began = time.perf_counter()
    fit = {"batch_size": BATCH} if data[1] is not None else {}
    if case == "growing data":
        fit |= {"steps_per_epoch": 12} if data[1] is not None else {}
    model.fit(data[0], data[1], epochs=epochs, verbose=0, callbacks=[*callbacks, probe], **fit)
    profile = probe.profile
    wait = profile.timeline.input_wait
    usage = profile.usage
    return {
        "codes": sorted({found.code for found in vs.diagnose(profile)}),
        "messages": [f"{found.code}: {found.message}" for found in vs.diagnose(profile)],
        "input_wait_share": None if wait is None else round(wait.share, 3),
        "seconds": round(time.perf_counter() - began, 2),
        "means": {}
        if usage is None
        else {
            name: usage.mean(name)
            for name in ("usable_cpu_share", "process_cores", "other_cores", "steal_share", "io_pressure_share")
        },
    }


def make_data(case: str, x, y, folder: Path):
    """What ``fit`` is given in this case."""
    import keras
    import numpy as np

    def batch(index):
        return x[index * BATCH : (index + 1) * BATCH], y[index * BATCH : (index + 1) * BATCH]

    class Data(keras.utils.PyDataset):
        def __init__(self, work, **options):
            super().__init__(**options)
            self.work, self.epoch = work, 0

        def __len__(self):
            return 12 if case == "growing data" else STEPS

        def __getitem__(self, index):
            self.work(self.epoch)
            return batch(index)

        def on_epoch_end(self):
            self.epoch += 1

    def generate():
        while True:
            for index in range(STEPS):
                time.sleep(SLEEP)
                yield batch(index)

    def prepare(_epoch):
        end = time.thread_time() + SLEEP
        while time.thread_time() < end:
            np.sort(x[:BATCH].ravel()[:20_000])

    if case == "healthy dataset":
        return Data(lambda epoch: None), None
    if case == "sleeping tf.data":
        import tensorflow as tf

        pairs = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
        slow = pairs.map(lambda a, b: tf.py_function(sleepy, (a, b), (tf.float32, tf.int64)))
        shaped = slow.map(lambda a, b: (tf.ensure_shape(a, (None, 32, 32, 3)), tf.ensure_shape(b, (None,))))
        return shaped.apply(tf.data.experimental.assert_cardinality(STEPS)).repeat(3), None
    if case == "sleeping PyDataset":
        return Data(lambda epoch: time.sleep(SLEEP)), None
    if case == "growing data":
        return Data(lambda epoch: time.sleep(0.03 * epoch)), None
    if case == "sleeping generator":
        return generate(), None
    if case == "sleeping DataLoader":
        import torch

        class Slow(torch.utils.data.Dataset):
            def __len__(self):
                return len(x)

            def __getitem__(self, index):
                time.sleep(SLEEP / BATCH)
                return x[index], y[index]

        return torch.utils.data.DataLoader(Slow(), batch_size=BATCH), None
    if case == "heavy preparation":
        return Data(prepare), None
    return x, y


def sleepy(a, b):
    time.sleep(SLEEP)
    return a, b


def make_callback(on_batch=None, on_epoch=None):
    import keras

    class Work(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if on_epoch is not None:
                on_epoch()

    if on_batch is not None:
        Work.on_train_batch_end = lambda self, batch, logs=None: on_batch()
    return Work()


BLOCK = os.urandom(2**20) * 48


def write_synced(file: Path) -> None:
    with file.open("wb", buffering=0) as target:
        target.write(BLOCK)
        os.fsync(target.fileno())


def run_case(case: str, backend: str) -> dict[str, object] | str:
    """The outcome of one case in a process of its own, or why there is none."""
    beside: list[subprocess.Popen[bytes]] = []
    bound: list[str] = []
    cores = sorted(os.sched_getaffinity(0))
    free = sorted(set(range(os.cpu_count() or 1)) - set(cores))
    elsewhere = ["taskset", "-c", str(free[0])] if free else []
    with tempfile.TemporaryDirectory() as folder:
        try:
            if case == "spinning neighbour":
                beside = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in cores]
            elif case == "neighbour beside free cores":
                if len(cores) == os.cpu_count():
                    return "left out: needs a core that the training may not use"
                beside = [subprocess.Popen([*elsewhere, sys.executable, "-c", SPIN])]
            elif case == "one core of several":
                if os.cpu_count() == 1:
                    return "left out: there is one core only"
                bound = ["taskset", "-c", str(cores[-1])]
            elif case == "memory held by another":
                beside = [subprocess.Popen([sys.executable, "-c", HOLD])]
            elif case == "disk written by another":
                beside = [subprocess.Popen([sys.executable, "-c", WRITE, f"{folder}/other.bin"])]
            done = subprocess.run(
                [*bound, sys.executable, "-W", "ignore", __file__, "--inner", case, folder],
                env={**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"},
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
        finally:
            for process in beside:
                process.kill()
                process.wait()
    if done.returncode:
        return "failed: " + (done.stderr.strip().splitlines() or ["no word"])[-1][:160]
    return json.loads(done.stdout.splitlines()[-1])


def judge(case: str, codes: set[str]) -> str:
    """right, missed (an expected code is not there) or false (one is there that should not be)."""
    if CASES[case] - codes:
        return "missed"
    return "false" if codes - CASES[case] - ALWAYS_ALLOWED - ALSO_TRUE.get(case, set()) else "right"


def print_tables(runs: list[dict[str, object]]) -> None:
    print("| case | backend | wait for input | said | verdict |\n|---|---|---|---|---|")
    for run in runs:
        share = run["input_wait_share"]
        wait = "unknown" if share is None else f"{share:.0%}"
        said = ", ".join(code for code in run["codes"]) or "nothing"
        print(f"| {run['case']} | {run['backend']} | {wait} | {said} | {judge(run['case'], set(run['codes']))} |")
    expected = sorted({code for run in runs for code in CASES[run["case"]]} | {c for r in runs for c in r["codes"]})
    said = {code: Counter() for code in expected}
    for run in runs:
        truth = CASES[run["case"]]
        codes = set(run["codes"]) - ALSO_TRUE.get(run["case"], set())
        for code in expected:
            said[code][(code in truth, code in codes)] += 1
    print("\n| code | expected and said | expected, not said | said, not expected | neither |\n|---|---|---|---|---|")
    for code in expected:
        cells = [said[code][pair] for pair in ((True, True), (True, False), (False, True), (False, False))]
        if code not in ALWAYS_ALLOWED:
            print(f"| {code} | {cells[0]} | {cells[1]} | {cells[2]} | {cells[3]} |")
    verdicts = Counter(judge(run["case"], set(run["codes"])) for run in runs)
    print(f"\n{len(runs)} runs: " + ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", nargs="*", default=list(BACKENDS), choices=BACKENDS)
    parser.add_argument("--case", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--out", type=Path, default=None, help="keep the outcome of each run here, and go on from it")
    parser.add_argument("--read", type=Path, default=None)
    parser.add_argument("--inner", nargs=2, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inner:
        print(json.dumps(train(options.inner[0], Path(options.inner[1]))), flush=True)
        # TensorFlow may wait for ever, at the end of a program, for a pipeline thread that is inside Python.
        os._exit(0)
    if options.read:
        print_tables([json.loads(file.read_text()) for file in sorted(options.read.glob("*.json"))])
        return
    runs = []
    for backend in options.backend:
        for case in options.case:
            file = None if options.out is None else options.out / f"{case.replace(' ', '-')}.{backend}.json"
            if file is not None and file.exists():
                runs.append(json.loads(file.read_text()))
                continue
            outcome = run_case(case, backend)
            if isinstance(outcome, str):
                print(f"{case}, {backend}: {outcome}", file=sys.stderr, flush=True)
                continue
            run = {"case": case, "backend": backend} | outcome
            verdict = judge(case, set(run["codes"]))
            print(f"{case}, {backend}: {verdict} {run['codes']} {run['means']}", file=sys.stderr, flush=True)
            runs.append(run)
            if file is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(run))
    print_tables(runs)


if __name__ == "__main__":
    main()
