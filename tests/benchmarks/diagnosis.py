"""Is the diagnosis right? Real trainings with a known cause, and what was said about each.

    python tests/benchmarks/diagnosis.py --out FOLDER [--set first|second] [--backend tensorflow ...] [--case NAME ...]
    python tests/benchmarks/diagnosis.py --read FOLDER [FOLDER ...] [--markdown]

Every case (``diagnosis_trainings.py``) is a training of a few seconds in a process of its own: a healthy one, one whose
data come slowly, one beside a spinning program, and so on. A diagnosis is right when all expected codes are there and
no other; "compute-bound" may always be there. Run it on an idle machine of two cores or more: what was busy before a
training began is kept with its outcome. ``--out`` keeps each outcome, and a second call goes on with what is missing;
a training without an outcome is tried twice and then counted as such, never left out. ``--read`` prints the tables of
earlier runs: of several, also where they disagree.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # the folder of the repository, wherever this was started from
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.diagnosis_trainings import CASES, ONE_CORE, SETS, train

BACKENDS = ("tensorflow", "jax", "torch")
ALWAYS_ALLOWED = {"compute-bound"}
TRIES = 2
MOST_SECONDS = 240
IDLE_SHARE = 0.1
"""A machine that is busier than this before a training began was not idle."""

SPIN = "while True: pass"
HOLD = "import time; held = bytearray(2**31); held[::4096] = b'x' * len(held[::4096]); time.sleep(600)"
FILL = """
import re, time

def available():
    found = dict(re.findall(r"(Mem\\w+): +(\\d+) kB", open("/proc/meminfo").read()))
    return int(found["MemAvailable"]) / int(found["MemTotal"]), int(found["MemTotal"]) * 1024

with open("/proc/self/oom_score_adj", "w") as file:
    file.write("1000")  # if the system has to end somebody, then this program
held = []
while True:
    share, total = available()
    if share > 0.04:
        block = bytearray(min(2**28, max(2**22, int((share - 0.035) * total))))
        block[::4096] = b"x" * len(block[::4096])
        held.append(block)
    elif share < 0.025 and held:
        held.pop()
    else:
        time.sleep(0.02)
"""
WRITE = """
import mmap, os, sys
# Past the cache, so that it takes the disk's time and hardly the processor's.
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_DIRECT | os.O_DSYNC)
block = mmap.mmap(-1, 2**22)
while True:
    os.lseek(file, 0, os.SEEK_SET)
    os.write(file, block)
"""


def run_case(case: str, backend: str, which: str) -> dict[str, Any]:
    """The outcome of one case in a process of its own; ``failed`` says why there is none."""
    cores = sorted(os.sched_getaffinity(0))
    own = cores[-1:] if CASES[case].cores == ONE_CORE else cores
    others = [core for core in range(os.cpu_count() or 1) if core not in own]
    outcome: dict[str, Any] = {"case": case, "set": which, "backend": backend, "busy_before_share": busy_share()}
    if case == "neighbour on the other core" and not others:
        return outcome | {"failed": "there is one core only"}
    command = [sys.executable, "-W", "ignore", __file__, "--inner", case, which]
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    with tempfile.TemporaryDirectory() as folder, beside(case, own, others, Path(folder)):
        process = subprocess.Popen(
            [*bound_to(own), *command, folder],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            said, complaints = process.communicate(timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return outcome | {"failed": f"took more than {MOST_SECONDS} s"}
    if process.returncode or not said.strip():
        return outcome | {"failed": (complaints.strip().splitlines() or ["no word"])[-1][:160]}
    return outcome | json.loads(said.splitlines()[-1])


@contextmanager
def beside(case: str, own: list[int], others: list[int], folder: Path) -> Iterator[None]:
    """The programs that run beside the training of this case."""
    programs: list[list[str]] = []
    if case.startswith("spinning neighbour"):
        programs = [[*bound_to([core]), sys.executable, "-c", SPIN] for core in own]
    elif case == "neighbour on the other core":
        programs = [[*bound_to(others[:1]), sys.executable, "-c", SPIN]]
    elif case == "memory held by another":
        programs = [[sys.executable, "-c", HOLD]]
    elif case == "memory filled by another":
        programs = [[sys.executable, "-c", FILL]]
    elif case == "disk written by another":
        programs = [[sys.executable, "-c", WRITE, str(folder / "other.bin")]]
    started = [subprocess.Popen(program) for program in programs]
    try:
        if case == "memory filled by another":
            wait_until_full()
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def wait_until_full() -> None:
    """Until hardly any memory is free, which takes its time."""
    import psutil

    until = time.monotonic() + MOST_SECONDS
    while time.monotonic() < until:
        memory = psutil.virtual_memory()
        if memory.available < 0.045 * memory.total:
            return
        time.sleep(0.2)


def bound_to(cores: list[int]) -> list[str]:
    return ["taskset", "-c", ",".join(map(str, cores))]


def busy_share() -> float:
    """How busy the machine is with other things, before a training begins; waits a little for it to become idle."""
    import psutil

    share = 1.0
    for _ in range(10):
        share = psutil.cpu_percent(1.0) / 100
        if share <= IDLE_SHARE:
            break
    return round(share, 3)


def also_true(run: dict[str, Any]) -> frozenset[str]:
    """What may be said of a run beside what is expected."""
    case = CASES[run["case"]]
    confined = {"cpu-limited"} if run["cores"] < run["machine_cores"] else set()
    if run["cores"] == 1 and case.slow:
        confined.add("cpu-saturated")  # one busy core is all there are
    return (case.also | confined) - case.expected


def judge(run: dict[str, Any]) -> str:
    """right, missed (an expected code is not there), false (one is there that should not be), or no answer."""
    if "failed" in run:
        return "no answer"
    case, codes = CASES[run["case"]], set(run["codes"])
    if case.expected - codes:
        return "missed"
    return "false" if codes - case.expected - also_true(run) - ALWAYS_ALLOWED else "right"


# -- tables ------------------------------------------------------------------------------------------------------------


def confusion(runs: list[dict[str, Any]]) -> list[str]:
    """For each code how often it was expected and said. What may also be true of a case is no count of that code."""
    runs = [run for run in runs if "failed" not in run]
    every = sorted({code for run in runs for code in (*run["codes"], *CASES[run["case"]].expected)} - ALWAYS_ALLOWED)
    lines = [
        "| code | expected, reported | expected, missing | unexpected | neither | allowed: reported, not reported |",
        "|---|---|---|---|---|---|",
    ]
    for code in every:
        counts: Counter[tuple[bool, bool] | str] = Counter()
        for run in runs:
            case, said = CASES[run["case"]], code in run["codes"]
            if code in also_true(run):
                counts["said" if said else "unsaid"] += 1
            else:
                counts[code in case.expected, said] += 1
        cells = [counts[pair] for pair in ((True, True), (True, False), (False, True), (False, False))]
        lines.append(f"| {code} | {' | '.join(map(str, cells))} | {counts['said']}, {counts['unsaid']} |")
    return lines


def table(runs: list[dict[str, Any]]) -> list[str]:
    """Run by run."""
    lines = ["| case | backend | input wait | reported | verdict |", "|---|---|---|---|---|"]
    for run in runs:
        if "failed" in run:
            lines.append(f"| {run['case']} | {run['backend']} | | {run['failed']} | no answer |")
            continue
        share = run["input_wait_share"]
        wait = "unknown" if share is None else f"{share:.0%}"
        said = ", ".join(run["codes"]) or "nothing"
        lines.append(f"| {run['case']} | {run['backend']} | {wait} | {said} | {judge(run)} |")
    return lines


def summary(runs: list[dict[str, Any]]) -> list[str]:
    """How many were right, where and with what it ran, and whether the machine was idle."""
    verdicts = Counter(judge(run) for run in runs)
    told = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in ("right", "missed", "false", "no answer"))
    versions = sorted({f"{name} {version}" for run in runs for name, version in run.get("versions", {}).items()})
    busy = [run for run in runs if run["busy_before_share"] > IDLE_SHARE]
    sets = ", ".join(sorted({run["set"] for run in runs}))
    cores = max((run.get("cores", 0) for run in runs), default=0)
    lines = [
        f"{len(runs)} runs of the {sets} set on {cores} cores: {told}.",
        f"Versions: {', '.join(versions)}.",
        f"Runs before which the machine was more than {IDLE_SHARE:.0%} busy with other things: {len(busy)}"
        + (": " + "; ".join(f"{run['case']}, {run['backend']}" for run in busy) if busy else "")
        + ".",
    ]
    wrong = [f"{run['case']}, {run['backend']}: {judge(run)}" for run in runs if judge(run) != "right"]
    return [*lines, f"Not right: {'; '.join(wrong) or 'none'}."]


def disagreements(folders: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Trainings that were judged differently in different runs of the same set."""
    verdicts: dict[tuple[str, str, str], dict[str, str]] = {}
    for name, runs in folders.items():
        for run in runs:
            verdicts.setdefault((run["set"], run["case"], run["backend"]), {})[name] = judge(run)
    twice = {key: named for key, named in verdicts.items() if len(named) > 1}
    differing = [
        f"{case}, {backend}: {named}" for (_, case, backend), named in twice.items() if len({*named.values()}) > 1
    ]
    return [f"{len(twice)} trainings were run more than once; judged differently: {'; '.join(differing) or 'none'}."]


def print_tables(folders: dict[str, list[dict[str, Any]]], *, markdown: bool) -> None:
    """The tables of each folder; with ``markdown`` the single runs too, as the documentation has them."""
    for name, runs in folders.items():
        head = [f"## {name}", ""] if len(folders) > 1 else []
        paragraphs = (
            [paragraph for line in summary(runs) for paragraph in (line, "")] if markdown else [*summary(runs), ""]
        )
        print("\n".join([*head, *paragraphs, *confusion(runs)]))
        if markdown:
            print("\n".join(["", *table(runs), ""]))
    if len(folders) > 1:
        print("\n".join(disagreements(folders)))


# -- the command -------------------------------------------------------------------------------------------------------


def read_folder(folder: Path) -> list[dict[str, Any]]:
    runs = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    if not runs:
        raise SystemExit(f"{folder} holds no outcome of this script.")
    order = list(CASES)
    return sorted(runs, key=lambda run: (order.index(run["case"]), BACKENDS.index(run["backend"])))


def installed() -> dict[str, str]:
    names = ("keras", "tensorflow", "jax", "torch")
    return {name: metadata.version(name) for name in names}


def run_all(options: argparse.Namespace) -> None:
    versions = installed()
    wanted = [(case, backend) for backend in options.backend for case in options.case]
    options.out.mkdir(parents=True, exist_ok=True)
    for number, (case, backend) in enumerate(wanted, 1):
        file = options.out / f"{case.replace(' ', '-')}.{backend}.{options.set}.json"
        if file.exists() and "failed" not in json.loads(file.read_text()):
            continue
        for _ in range(TRIES):
            run = run_case(case, backend, options.set)
            if "failed" not in run:
                break
        run["versions"] = {name: versions[name] for name in ("keras", backend)}
        part = file.with_suffix(".part")
        part.write_text(json.dumps(run))
        part.replace(file)
        said = run.get("failed") or f"{run['codes']}, step {run['step_seconds'] * 1e3:.0f} ms"
        told = f"{case}, {backend}: {judge(run)}, {said}, {run.get('means')}"
        print(f"{number}/{len(wanted)} {told}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", default="first", choices=list(SETS))
    parser.add_argument("--backend", nargs="*", default=list(BACKENDS), choices=BACKENDS)
    parser.add_argument("--case", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--out", type=Path, default=None, help="keep the outcome of each run here, and go on from it")
    parser.add_argument("--read", type=Path, nargs="+", default=None, help="print the tables of these folders")
    parser.add_argument("--markdown", action="store_true", help="the tables as the documentation has them")
    parser.add_argument("--inner", nargs=3, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inner:
        case, which, folder = options.inner
        print(json.dumps(train(case, which, Path(folder))), flush=True)
        # TensorFlow may wait for ever, at the end of a program, for a pipeline thread that is inside Python.
        os._exit(0)
    if options.read is None:
        options.out = options.out or Path(tempfile.mkdtemp(prefix="vmselect-diagnosis-"))
        run_all(options)
    folders = options.read or [options.out]
    print_tables({str(folder): read_folder(folder) for folder in folders}, markdown=options.markdown)


if __name__ == "__main__":
    main()
