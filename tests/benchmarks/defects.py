"""Defects that testers met in the first versions, each tried as a new user would: the new behaviour, ok or FAILED.

    python tests/benchmarks/defects.py [--only B5 D24 ...] [--suite]

Every line runs in a temporary folder, through the command line or the Python library, with real trainings in Keras on
TensorFlow and in torch. The letters group them: A the test command, B wrong or silent results, C loss, leaks and load,
D scripts as people write them, E what people meet first. ``--suite`` also runs the whole test command three times
beside two busy loops, which takes half an hour. Nothing is contacted but loopback. Exit code 1 if a line failed.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.server
import json
import os
import re
import shutil
import signal
import socketserver
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import vmselect as vs
from tests.support.profiles import make_epoch_profile, make_gpu_profile, make_profile

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 600.0
"""Longest time of one command. A busy machine may need much of it to import TensorFlow."""
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "KERAS_BACKEND": "tensorflow"}
CLOSED = "http://127.0.0.1:9"
"""A proxy that does not exist, so that no request leaves this machine."""

KERAS = """
import keras, numpy as np
def make(units=4):
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(units), keras.layers.Dense(1)])
    model.compile(loss="mse")
    return model
x, y = np.ones((640, 8), "float32"), np.ones((640, 1), "float32")
"""

Check = Callable[[Path], str]
CHECKS: dict[str, tuple[str, Check]] = {}


class Done(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """Everything that was printed."""
        return self.out + self.err


def line(label: str, title: str) -> Callable[[Check], Check]:
    """Register a function that tries one line and returns a text about the new behaviour."""

    def register(check: Check) -> Check:
        CHECKS[label] = title, check
        return check

    return register


def run(folder: Path, *words: object, environment: dict[str, str] | None = None) -> Done:
    """Run a command of vmselect in ``folder``."""
    return start(folder, [sys.executable, "-m", "vmselect", *map(str, words)], environment)


def train(folder: Path, code: str) -> Done:
    """Run a Python program that trains with Keras in ``folder``."""
    file = folder / "program.py"
    file.write_text(KERAS + textwrap.dedent(code), encoding="utf-8")
    return start(folder, [sys.executable, str(file)], None)


def start(folder: Path, command: list[str], environment: dict[str, str] | None) -> Done:
    """Run ``command`` in ``folder`` with a cache of prices of its own."""
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    own = {"PYTHONPATH": paths, "VMSELECT_CACHE_DIR": str(folder / "cache"), **QUIET, **(environment or {})}
    ended = subprocess.run(
        command, cwd=folder, env={**os.environ, **own}, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    return Done(ended.returncode, ended.stdout, ended.stderr)


def expect(is_met: object, problem: object) -> None:
    """Raise an error with ``problem`` unless the condition ``is_met``."""
    if not is_met:
        raise AssertionError(str(problem)[:600])


def first(text: str, pattern: str = "") -> str:
    """The first line of ``text`` that contains ``pattern``, cut to the width of a terminal."""
    lines = [entry.strip() for entry in text.splitlines() if re.search(pattern, entry) and entry.strip()]
    expect(lines, f"no line with {pattern!r} in {text[-400:]!r}")
    return lines[0][:160]


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """Context in which two processes keep the processor busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


# -- A: the test command -----------------------------------------------------------------------------------------------


@line("A1", "no term of an estimate is negative")
def _(folder: Path) -> str:
    profile = vs.Profile.from_times(
        instance_type="a", steps_per_epoch=2, init_seconds=1, first_iteration_seconds=0.5, iteration_seconds=[3.0]
    )
    estimate = vs.estimate(profile, phases=[(1, 0.25)])
    expect(min(estimate.terms.values()) >= 0 and 0 < estimate.low <= estimate.seconds, estimate)
    laws = pytest(folder, "tests/property/test_estimation_laws.py", "-k", "low_end_of_phases")
    expect(laws.code == 0, laws.text[-500:])
    return f"{estimate}; the law holds alone in a process"


@line("A2", "tests do not depend on the load")
def _(folder: Path) -> str:
    with busy_cores():
        done = pytest(folder, "tests/unit/probe/test_counters.py", "tests/unit/probe/test_observation.py")
    expect(done.code == 0, done.text[-500:])
    return f"beside two busy loops: {first(done.out, 'passed')}"


@line("A3", "the test command probes inside Keras")
def _(folder: Path) -> str:
    extras = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("\ntest = [")[2].partition("\n]")[0]
    expect("tensorflow" in extras and "keras" in extras, f"the extra test has {extras}")
    listed = pytest(folder, "tests/contract/test_keras.py", "--collect-only")
    expect(listed.code == 0 and "test_keras.py" in listed.out, listed.text[-400:])
    expect("pytest" in (ROOT / "README.md").read_text(encoding="utf-8"), "the README does not mention the command")
    return f"plain pytest runs {first(listed.out, 'test_keras.py')}"


def pytest(folder: Path, *words: str) -> Done:
    """Run tests of the repository in one process."""
    return start(
        ROOT, [sys.executable, "-m", "pytest", "-n", "0", "-q", f"--basetemp={folder / 'tests'}", *words], None
    )


# -- B: wrong or silent results ----------------------------------------------------------------------------------------


@line("B4", "a probe without arguments writes to a folder that it names")
def _(folder: Path) -> str:
    done = train(folder, """
        import vmselect as vs
        make().fit(x, y, epochs=3, verbose=0, callbacks=[vs.IterationProbe(instance_type="g5.xlarge")])
        print(len(vs.load_profiles()), "loaded")
        make().fit(x, y, epochs=3, verbose=0, callbacks=[vs.IterationProbe(path=False, verbose=0)])
        print(len(vs.load_profiles()), "after path=False")
        """)  # fmt: skip
    expect(done.code == 0, done.err)
    expect("1 loaded" in done.out and "1 after path=False" in done.out, done.out)
    return first(done.out, "profiles")


def save_two(folder: Path) -> Path:
    """Two probed machines."""
    for name, step in (("g4dn.xlarge", 0.2), ("g5.xlarge", 0.08)):
        make_profile(name, step, setup={"epochs": 10}).save(folder / "profiles")
    return folder / "profiles"


@line("B5", "a name that cannot be ranked is an error with similar names")
def _(folder: Path) -> str:
    profiles = save_two(folder)
    wrong = run(folder, "rank", profiles, "--machines", "g5.xlrge")
    expect(wrong.code == 2 and "g5.xlarge" in wrong.err and "Rent" not in wrong.out, wrong)
    for option, name in (
        ("--batch-size", "64,128"),
        ("--region", "us-est-1"),
        ("--gpu", "T44"),
        ("--provider", "awss"),
    ):
        done = run(folder, "rank", profiles, option, name)
        expect(done.code == 2 and "Rent" not in done.out, (option, done))
    ignored = run(folder, "rank", profiles, "--machines", "g5.xlrge,g6.xlarge", "--ignore-missing", "--verbose")
    expect(ignored.code == 0 and ignored.err.count("machines=g5.xlrge") == 1, ignored)
    return first(wrong.err)


@line("B5b", "recommend refuses misspelt options and names before it runs the script")
def _(folder: Path) -> str:
    (folder / "train.py").write_text("open('ran', 'w').close()")
    for option, name, hint in (
        ("--epohcs", "50", "--help"),
        ("--machines", "g5.xlrge", "g5.xlarge"),
        ("--region", "us-est-1", "us-east-1"),
        ("--provider", "awss", "aws"),
    ):
        done = run(folder, "recommend", option, name, "train.py")
        expect(done.code == 2 and hint in done.err and not (folder / "ran").exists(), (option, done))
    return first(done.err)


@line("B6", "why no probe is next, in one shape for people and agents")
def _(folder: Path) -> str:
    make_profile("c5.xlarge", 0.2, setup={"epochs": 10}).save(folder / "profiles")
    done = run(folder, "rank", folder / "profiles", "--next")
    expect("No machine is left" not in done.text and done.text.strip(), done)
    answer = json.loads(run(folder, "rank", folder / "profiles", "--next", "--json").out)
    expect(isinstance(answer, dict) and answer, answer)
    agent = call_tool(folder, "rank", {"profiles": ["profiles"]})
    shared = ("next_probe", "verdict", "expected_regret")
    expect([agent.get(key, "absent") for key in shared] == [answer[key] for key in shared], (agent, answer))
    return first(done.text)


def call_tool(folder: Path, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The answer of a tool of ``vmselect mcp``, asked over standard input."""
    requests: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-03-26", "capabilities": {},
                                                     "clientInfo": {"name": "defects", "version": "1"}}},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": name, "arguments": arguments}},
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "VMSELECT_CACHE_DIR": str(folder / "cache")}
    with subprocess.Popen(
        [sys.executable, "-m", "vmselect", "mcp"], cwd=folder, env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as server:  # fmt: skip
        assert server.stdin is not None
        assert server.stdout is not None
        watchdog = threading.Timer(SECONDS, server.kill)
        watchdog.start()
        try:
            for request in requests:
                server.stdin.write(json.dumps({"jsonrpc": "2.0", **request}) + "\n")
                server.stdin.flush()
            for text in server.stdout:
                answer = json.loads(text)
                if answer.get("id") == 2:
                    return dict(_content(answer))
        finally:
            watchdog.cancel()
            server.kill()
    raise AssertionError("the server gave no answer")


def _content(answer: dict[str, Any]) -> dict[str, Any]:
    result = answer.get("result") or {"error": answer.get("error")}
    if isinstance(result.get("structuredContent"), dict):
        return dict(result["structuredContent"])
    text = (result.get("content") or [{}])[0].get("text", "")
    try:
        return dict(json.loads(text))
    except ValueError:
        return {"error": text or result}


@line("B7", "old spot prices do not win")
def _(folder: Path) -> str:
    offers = vs.Catalog.embedded().offers(provider="azure", market="spot")
    dates = sorted(offers["date"].astype(str).unique())
    expect("2025-09-11" not in dates, dates)
    best = vs.rank(save_two_profiles(), machines="all", market="all", region="all").best
    newest = vs.Catalog.embedded().price_dates[1]
    age = (datetime.fromisoformat(newest) - datetime.fromisoformat(str(best.price_date))).days
    expect(best.market != "spot" or age < 180, (best.title, best.price_date))
    return (
        f"best of all markets: {best.title}, price of {best.price_date}; dates of Azure spot: {', '.join(dates[-2:])}"
    )


@line("B7b", "years after the newest price, the demo still ranks and says that prices are old")
def _(folder: Path) -> str:
    for day in ("2027-12-23", "2030-03-01", "2126-01-01"):
        done = run(folder, "demo", environment={"VMSELECT_TODAY": day})
        expect(done.code == 0 and "nobody knows what machines cost now" in done.err, (day, done))
    return first(done.err, "nobody knows")


def save_two_profiles() -> list[vs.Profile]:
    """Two probed machines, in memory."""
    return [
        make_profile(name, step, setup={"epochs": 10}) for name, step in (("g4dn.xlarge", 0.2), ("g5.xlarge", 0.08))
    ]


@line("B8", "published times are no cost of probes")
def _(folder: Path) -> str:
    done = run(folder, "demo", "--out", "demo.html")
    page = (folder / "demo.html").read_text(encoding="utf-8")
    expect(done.code == 0 and "$56" not in page and "56.33" not in page, first(page, "56"))
    return f"no cost of choosing from {len(re.findall('probes', page))} mentions of probes"


@line("B9", "a price without its host has a finding")
def _(folder: Path) -> str:
    catalog = vs.Catalog.default()
    names = [name for name in catalog.offers(market=None)["instance_type"].unique() if "accelerator" in str(name)]
    if not names:
        return "no offer of the catalog is an accelerator without its host"
    ranking = vs.rank([make_profile(str(names[0]), 0.1, setup={"epochs": 5})], region="all", market="all")
    codes = {finding.code for row in ranking for finding in row.findings}
    expect(not len(ranking) or "price-without-host" in codes, codes)
    return f"{names[0]}: price-without-host" if len(ranking) else f"{names[0]} is not ranked"


@line("B10", "an on-demand ranking has no finding about spot")
def _(folder: Path) -> str:
    ranking = vs.rank(save_two_profiles())
    codes = {finding.code for finding in (*ranking.findings, *(f for row in ranking for f in row.findings))}
    expect("spot-uninterrupted" not in codes, codes)
    return f"findings: {', '.join(sorted(codes)) or 'none'}"


@line("B11", "drift is reported and widens the interval")
def _(folder: Path) -> str:
    drifting = make_epoch_profile("g5.xlarge", *[10 * 1.04**n for n in range(8)])
    steady = make_epoch_profile("g5.xlarge", *[10.0] * 8)
    estimate, other = vs.estimate(drifting, epochs=20), vs.estimate(steady, epochs=20)
    codes = {finding.code for finding in estimate.findings}
    expect(codes & {"drifting-epochs", "changing-epochs"}, codes)
    real = sum(10 * 1.04**n for n in range(20))
    wide, narrow = (estimate.high - estimate.low) / estimate.seconds, (other.high - other.low) / other.seconds
    expect(wide > 2 * narrow, (wide, narrow))
    return f"{estimate}; {', '.join(sorted(codes))}; real {real:.0f} s"


@line("B12", "effects mention the correction")
def _(folder: Path) -> str:
    done = pytest(folder, "tests/unit/comparison", "-k", "correction or holm or adjusted")
    expect(done.code == 0, done.text[-400:])
    source = (ROOT / "vmselect/comparison/effects.py").read_text(encoding="utf-8")
    expect("Holm" in source, "the verdict names no correction")
    return f"the verdict states p with Holm's correction; {first(done.out, 'passed')}"


@line("B13", "history that contradicts the probes counts little")
def _(folder: Path) -> str:
    def steps(model: str, factor: float, names: tuple[str, ...]) -> list[vs.Profile]:
        real = {"g4dn.xlarge": 0.20, "g5.xlarge": 0.08, "g6e.xlarge": 0.05, "g6.xlarge": 0.11}
        return [
            make_gpu_profile(64, None, instance_type=name, model=model, iteration_seconds=[real[name] ** factor] * 20)
            for name in names
        ]

    probes = steps("mine", 1.0, ("g4dn.xlarge", "g5.xlarge"))
    odd = steps("other", 0.3, ("g4dn.xlarge", "g5.xlarge", "g6e.xlarge", "g6.xlarge"))
    errors = {}
    for name, history in (("without", []), ("with", odd)):
        rows = {row.instance_type: row for row in vs.rank(probes, epochs=10, machines=["g6.xlarge"], history=history)}
        step = rows["g6.xlarge"].terms["steady_iterations"] / rows["g5.xlarge"].terms["steady_iterations"] * 0.08
        errors[name] = abs(step / 0.11 - 1)
    expect(errors["with"] <= errors["without"] + 0.05, errors)
    return ", ".join(f"error {name} history {error:.0%}" for name, error in errors.items())


@line("B14", "a memory peak has a constant part")
def _(folder: Path) -> str:
    # GiB: context of the framework, weights with their gradients and the state of Adam, activations of an example
    context, weights, each = 0.6, 25_000_000 * 16 / 2**30, 0.05
    peak = context + weights + each * 8
    parts = {"weights_bytes": 10**8, "gradients_bytes": 10**8, "optimizer_bytes": 2 * 10**8}
    memory = {"gpu_memory": {"source": "nvml", **parts}}
    probe = make_gpu_profile(8, peak, environment=memory, setup={"parameters": 25_000_000})
    frame = vs.estimate_memory(probe, batch_size=64)
    row = frame[frame["answer"] == "peak"].iloc[-1]
    real, proportional = context + weights + each * 64, peak * 8
    expect(row["peak_gib"] < 0.8 * proportional, (row["peak_gib"], proportional))
    expect(row["low_gib"] <= real <= row["high_gib"], dict(row))
    interval = f"{row['peak_gib']:.1f} GiB ({row['low_gib']:.1f} to {row['high_gib']:.1f})"
    return f"batch 64 from batch 8: {interval}, real {real:.1f}"


@line("B15", "published times may state precision, memory, parameters and GPUs")
def _(folder: Path) -> str:
    import inspect

    names = set(inspect.signature(vs.Profile.from_times).parameters)
    stated = {name for name in names if re.search("precision|memory|parameters|gpus", name)}
    expect(len(stated) >= 4, sorted(names))
    two = vs.Profile.from_times(
        instance_type="g4dn.12xlarge", workers=2, steps_per_epoch=10, batch_size=64, iteration_seconds=[0.1] * 5
    )
    (row, *_) = vs.rank(two, epochs=5)
    expect(row.factors.get("nodes", 1) == 1, row.title)
    return f"{', '.join(sorted(stated))}; workers=2 is {row.title}"


@line("B16", "a repeated median is no proof of precision")
def _(folder: Path) -> str:
    estimate = vs.estimate(make_profile("g5.xlarge", [0.1] * 20), epochs=50)
    half = (estimate.high - estimate.low) / 2 / estimate.seconds
    expect(half >= 0.017, f"half-width {half:.2%}")
    return f"20 equal readings: {estimate} (half-width {half:.1%})"


# -- C: loss, leaks, load ----------------------------------------------------------------------------------------------


@line("C17", "a probe never ends a training that it watches")
def _(folder: Path) -> str:
    done = train(folder, """
        import vmselect as vs
        probe = vs.IterationProbe("profiles", stop=False, metrics={"bad": lambda: 1 / 0})
        make().fit(x, y, epochs=2, verbose=0, callbacks=[probe])
        import vmselect.records.files as files
        def full(*_, **__): raise OSError(28, "No space left on device")
        files.RecordFile.finish = full
        other = vs.IterationProbe("profiles", stop=False)
        make().fit(x, y, epochs=2, verbose=0, callbacks=[other])
        from vmselect.convergence import ConvergenceStudy
        ConvergenceStudy.save = full
        make().fit(x, y, epochs=3, verbose=0, callbacks=[vs.ConvergenceProbe("study", monitor="loss")])
        print("the program saves its model", probe.profile.outcome, other.profile.outcome)
        """)  # fmt: skip
    expect(done.code == 0 and "the program saves its model watched watched" in done.out, done)
    expect(done.err.count("the program continues") >= 3, done.err)
    return first(done.err, "the program continues")


@line("C18", "the server of tools follows no link out of its folder")
def _(folder: Path) -> str:
    secret, shared = folder / "secret", folder / "shared"
    make_profile("p3.2xlarge", 0.1).save(secret)
    make_profile("g5.xlarge", 0.1).save(shared)
    (shared / "link.json").symlink_to(next(secret.glob("*.json")))
    answer = call_tool(shared, "check", {"profiles": ["."]})
    expect("p3.2xlarge" not in json.dumps(answer), answer)
    odd = call_tool(shared, "prices", {"instance_type": ["\ud800"]})
    expect(odd, "a lone surrogate got no answer")
    (folder / "odd.json").write_text('{"a":[' + ",".join(["{}"] * 10_000_000) + "]}", encoding="utf-8")
    began = time.process_time()
    with contextlib.suppress(vs.errors.ProfileError):
        vs.load_records(folder / "odd.json")
        raise AssertionError("a record of ten million values was read")
    expect(time.process_time() - began < 5, "a record of ten million values takes long")
    return f"only the record of the folder; a lone surrogate: {json.dumps(odd)[:80]}"


@line("C19", "JSON files win over parts made from them, and odd dates break nothing")
def _(folder: Path) -> str:
    records = folder / "records"
    make_profile("g5.xlarge", 0.1).save(records)
    for year in (1, 9999):
        make_profile("g4dn.xlarge", 0.1, created=datetime(year, 1, 1, tzinfo=UTC)).save(records / f"{year}.json")
    expect(run(folder, "history", "compact", records).code == 0, "compact")
    file = next(path for path in records.glob("*.json") if "g5" in path.name)
    before = file.stat()
    file.write_text(file.read_text(encoding="utf-8").replace("g5.xlarge", "g6.xlarge"), encoding="utf-8")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    listed = run(folder, "history", "list", records, "--json")
    names = sorted(row["instance_type"] for row in json.loads(listed.out))
    expect(names == ["g4dn.xlarge", "g4dn.xlarge", "g6.xlarge"], names)
    for part in [path for path in (records / "history").rglob("*.parquet") if b"g5.xlarge" in path.read_bytes()]:
        part.write_bytes(part.read_bytes()[:-40])
    expect(run(folder, "history", "list", records).code == 0, "a damaged part")
    missing = run(folder, "history", "list", "no/such/folder")
    expect(missing.code == 2 and "No record matches" not in missing.err, missing.err)
    return f"listed {', '.join(names)}; missing folder: {first(missing.err)}"


class Endless(http.server.BaseHTTPRequestHandler):
    """Sends a body without an end, or redirects to another host."""

    sent = 0

    def do_GET(self) -> None:
        if self.path.startswith("/moved"):
            self.send_response(302)
            self.send_header("Location", "http://169.254.169.254/latest/meta-data")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            while Endless.sent < 4 * 1024**3:
                Endless.sent += self.wfile.write(b" " * 1024**2)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@line("C20", "reading from the web stops at the limit and follows no redirect to another host")
def _(folder: Path) -> str:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Endless) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"http://127.0.0.1:{server.server_address[1]}"
        endless = run(folder, "check", f"{host}/endless.json")
        moved = run(folder, "check", f"{host}/moved.json")
        server.shutdown()
    expect(endless.code == 2 and Endless.sent < 2 * 1024**3, (endless, Endless.sent))
    expect(moved.code == 2 and "Traceback" not in moved.err, moved)
    return f"stopped after {Endless.sent / 1024**2:.0f} MiB; redirect: {first(moved.err)}"


@line("C21", "Ctrl-C prints one line and exits with 130")
def _(folder: Path) -> str:
    profiles = save_two(folder)
    commands: list[list[object]] = [
        ["rank", profiles],
        ["estimate", profiles],
        ["prices", "show"],
        ["demo"],
        ["history", "list", profiles],
    ]
    tracebacks, early, codes = 0, 0, []
    for words in commands:
        for after in (0.1, 0.4, 1.0):
            ended = interrupt(folder, [sys.executable, "-m", "vmselect", *map(str, words)], after)
            # On a busy machine, Ctrl-C may come before the first line of the package, while Python itself starts.
            package = str(Path(vs.__file__).parent)
            if "Traceback" in ended.err and (package not in ended.err or "from vmselect import _inter" in ended.err):
                early += 1
                continue
            codes.append(ended.code)
            tracebacks += "Traceback" in ended.err
    expect(tracebacks == 0, f"{tracebacks} tracebacks")
    # At its very end, Python no longer handles signals: a shell shows 130 for a process that one has ended.
    expect(set(codes) <= {0, 130, -signal.SIGINT} and 130 in codes, codes)
    (folder / "train.py").write_text(KERAS + "make().fit(x, y, epochs=100000, verbose=0)\n", encoding="utf-8")
    words = ["watch", "--path", "stopped", "--instance-type", "c5.xlarge", "train.py"]
    stopped = interrupt(folder, [sys.executable, "-m", "vmselect", *words], 0, until=folder / "stopped")
    expect("Ctrl-C" in stopped.err, stopped.err[-300:])
    expect("Ctrl-C" in str(vs.load_profiles(folder / "stopped")[0].detail), "the record does not say it")
    return f"{codes.count(130)} of {len(codes)} interrupted, {early} before the package; {first(stopped.err, 'Ctrl-C')}"


def interrupt(folder: Path, command: list[str], seconds: float, *, until: Path | None = None) -> Done:
    """Run ``command`` and send Ctrl-C after ``seconds``, or once the folder ``until`` contains a record."""
    environment = {**os.environ, **QUIET, "PYTHONPATH": str(ROOT), "VMSELECT_CACHE_DIR": str(folder / "cache")}
    with subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        deadline = time.monotonic() + SECONDS
        while until is not None and not list(until.glob("*.json")) and process.poll() is None:
            expect(time.monotonic() < deadline, "nothing was recorded")
            time.sleep(0.2)
        time.sleep(seconds)
        for _ in range(3):  # Python ignores exceptions in some places, so people press it again
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                out, err = process.communicate(timeout=SECONDS / 10)
                return Done(process.returncode, out, err)
        process.kill()
        raise AssertionError(f"{command} goes on after Ctrl-C")


@line("C22", "scores and estimates with many forecasts are not quadratic")
def _(folder: Path) -> str:
    taken = {}
    profile = make_profile("g5.xlarge", 0.1)
    forecast = vs.estimate(profile, epochs=10).forecast()
    for count in (1_000, 4_000):
        forecasts = [forecast.model_copy(update={"id": f"{number:032x}"}) for number in range(count)]
        records = [*forecasts, *(entry.outcome(seconds=103.0) for entry in forecasts)]
        began = time.process_time()
        vs.score(records)
        taken[count] = time.process_time() - began
    expect(taken[4_000] < 10 * max(taken[1_000], 0.05), taken)
    (folder / "plan.yaml").write_text("command: " + "[" * 1_000 + "]" * 1_000, encoding="utf-8")
    began = time.process_time()
    with contextlib.suppress(vs.errors.VmselectError):
        vs.Plan.load(folder / "plan.yaml")
    expect(time.process_time() - began < 2, "a plan of 1,000 nested brackets takes long")
    journal = pytest(folder, "tests/unit/sweeps/test_journal.py", "-k", "grows_with_the_lines")
    expect(journal.code == 0, journal.text[-400:])
    return ", ".join(f"{count} forecasts: {seconds:.2f} s of CPU" for count, seconds in taken.items())


@line("C23", "refreshing prices without a network gives up soon, a line per source")
def _(folder: Path) -> str:
    proxies = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), CLOSED)
    proxies |= {"AWS_EC2_METADATA_DISABLED": "true", "NO_PROXY": "", "no_proxy": ""}
    began = time.monotonic()
    done = run(folder, "prices", "refresh", environment=proxies)
    taken = time.monotonic() - began
    expect(done.code in (1, 2) and "botocore.exceptions" not in done.err, done)
    expect("fetching" in done.err or "skipped" in done.err, done.err)
    expect(taken < 60, f"{taken:.0f} s")  # at most 15 s, and the start of Python on a busy machine
    return f"{taken:.0f} s; {first(done.err, 'not fetched|failed')}"


# -- D: scripts as people write them -----------------------------------------------------------------------------------


def probe(folder: Path, script: str, *options: object) -> Done:
    """Probe a training script."""
    (folder / "train.py").write_text(textwrap.dedent(script), encoding="utf-8")
    return run(folder, "probe", "--instance-type", "c5.xlarge", "--steady-seconds", 0.5, *options, "train.py")


@line("D24", "a script with several fits is ranked as a whole")
def _(folder: Path) -> str:
    done = probe(folder, KERAS + "for units in (4, 8, 16):\n    make(units).fit(x, y, epochs=units, verbose=0)\n")
    expect(done.code == 0, done.err[-400:])
    total = json.loads(run(folder, "estimate", "profiles", "--json").out)[-1]
    ranking = json.loads(run(folder, "rank", "profiles", "--json").out)
    rows = ranking["rows"]
    if rows:
        expect(abs(rows[0]["seconds"] / total["seconds"] - 1) < 1e-6, (rows[0]["seconds"], total["seconds"]))
        expect(rows[0]["epochs"] == 28, rows[0]["epochs"])
    else:  # on a busy machine the probes are too disturbed to be ranked
        expect("too_disturbed" in json.dumps(ranking["excluded"]), ranking["excluded"])
    return f"rank: {first(run(folder, 'rank', 'profiles', '--verbose').text, 'trains 3 times')}"


MANUAL = """
import torch
x = torch.ones(4000, 64); w = torch.ones(64, 1, requires_grad=True)
for epoch in range(100000):
    for i in range(0, 4000, 100):
        (x[i:i + 100] @ w).pow(2).mean().backward()
        with torch.no_grad():
            w -= 1e-6 * w.grad; w.grad.zero_()
"""
TAPE = """
import tensorflow as tf
x = tf.ones((4000, 64)); w = tf.Variable(tf.ones((64, 1)))
data = tf.data.Dataset.from_tensor_slices(x).batch(50)
@tf.function
def step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((batch @ w) ** 2)
    w.assign_sub(1e-6 * tape.gradient(loss, w))
for epoch in range(100000):
    for batch in data:
        step(batch)
"""
JAX = """
import jax, jax.numpy as jnp, time
w = jnp.zeros((64, 1))
step = jax.jit(lambda w: w - 0.01 * jax.grad(lambda v: ((jnp.ones((100, 64)) @ v - 1) ** 2).mean())(w))
for i in range(100000):
    w = step(w); time.sleep(0.01)
"""


@line("D25", "loops without an optimizer, and with a gradient tape, are measured; others are given up")
def _(folder: Path) -> str:
    texts = []
    for name, script in (("torch", MANUAL), ("tape", TAPE)):
        done = probe(folder, script, "--path", name)
        expect(done.code == 0 and len(vs.load_profiles(folder / name)) == 1, (name, done))
        texts.append(f"{name}: {vs.load_profiles(folder / name)[0].timeline.steps.steps} steps")
    try:
        import jax  # noqa: F401
    except ImportError:
        return "; ".join(texts)
    unknown = probe(folder, JAX, "--path", "jax", "--seconds", 3)
    expect(unknown.code == 1 and "jax.grad in train.py" in unknown.err and "probe_loop" in unknown.err, unknown)
    return f"{'; '.join(texts)}; JAX: {first(unknown.err, 'gradients')}"


@line("D26", "the first step of a loop without a loader is a step, also with LBFGS")
def _(folder: Path) -> str:
    script = """
    import torch, time
    x = torch.ones(200, 8); model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1)
    began = time.perf_counter()
    for number in range(5):
        def closure():
            optimizer.zero_grad()
            loss = ((model(x) - number) ** 2).mean(); loss.backward(); time.sleep(0.02)
            return loss
        optimizer.step(closure)
    print("took", time.perf_counter() - began)
    """
    done = probe(folder, script)
    expect(done.code == 0, done.err)
    (profile,) = vs.load_profiles(folder / "profiles")
    took = float(done.out.split("took")[1].split()[0])
    estimate = vs.estimate(profile, epochs=1)
    training = estimate.seconds - estimate.terms.get("initialization", 0.0)
    expect((profile.steps_per_epoch, profile.timeline.steps.steps) == (5, 5), profile.timeline.steps.steps)
    expect(abs(training / took - 1) < 0.2, (training, took))
    return f"5 steps; estimated {training:.2f} s of training, real {took:.2f} s"


@line("D27", "close to a wake-up of the autotuner, the interval contains both sides")
def _(folder: Path) -> str:
    from vmselect.estimation.overheads import expect_waiting, next_wake_up, weigh_evidence

    profile = make_profile("g5.xlarge", 0.1, environment={"usable_cores": 1})
    waiting = expect_waiting(profile, [weigh_evidence(1, cut_short=False)] * 3, [(2.45, 1.0)], confidence=0.9)
    low, high = (waiting.each.value - waiting.each.half_width_below, waiting.each.value + waiting.each.half_width_above)
    near, far = (next_wake_up(seconds) - seconds for seconds in (2.5, 2.6))
    expect(low <= near and high >= 0.95 * far, (low, high, near, far))
    wait = f"{waiting.each.value:.2f} s ({low:.2f} to {high:.2f})"
    return f"an epoch of 2.45 s waits {wait}; sides: {near:.2f} and {far:.2f} s"


@line("D28", "messages fit the script and the command line")
def _(folder: Path) -> str:
    done = probe(folder, MANUAL)
    expect("--fits" in done.err, done.err)
    save_two(folder / "other")
    make_profile("p3.2xlarge", 0.1, setup={"epochs": 20}).save(folder / "other" / "profiles")
    epochs = run(folder, "rank", "other/profiles")
    expect("--epochs" in epochs.err and "(--epochs)" not in epochs.err and "[5, 10" not in epochs.err, epochs.err)
    make_profile("g5.xlarge", 0.1, batch_size=None).save(folder / "unknown")
    unknown = run(folder, "estimate", "unknown", "--epochs", 5)
    expect("IterationProbe(" not in unknown.err and "--batch-size" in unknown.err, unknown.err)
    from vmselect.diagnosis.checks import Disturbance

    waits = Disturbance(faster=0.2, slower=0.2, waits=("steps waited for input 40% of the time",))
    (finding,) = waits.findings("training")
    expect(finding.code != "disturbed" and "Stop the cause" not in finding.remedy, finding)
    return f"{first(done.err, '--fits')} | {first(epochs.err)}"


# -- E: what people meet first -----------------------------------------------------------------------------------------


@line("E-json", "every command that prints rows has --json")
def _(folder: Path) -> str:
    profiles = save_two(folder)
    for words in (("rank", profiles), ("estimate", profiles), ("check", profiles), ("prices", "show", "--top", 3)):
        json.loads(run(folder, *words, "--json").out)
    return "rank, estimate, check, prices show"


@line("E-gpu", "prices show --gpu sorts by USD per GPU-hour")
def _(folder: Path) -> str:
    done = run(folder, "prices", "show", "--gpu", "T4", "--json")
    rows = json.loads(done.out)
    name = next((key for key in rows[0] if "gpu" in key and ("usd" in key or "hour" in key)), None)
    expect(name is not None, f"columns {list(rows[0])}")
    prices = [row[name] for row in rows if row[name] is not None]
    expect(prices == sorted(prices), prices[:5])
    return f"{name}: {prices[0]} to {prices[-1]}"


@line("E-names", "unknown names suggest similar ones of the same kind")
def _(folder: Path) -> str:
    machine = run(folder, "prices", "show", "g5.xlrge")
    expect(machine.code == 2 and "g5.xlarge" in machine.err and "Standard_" not in machine.err, machine.err)
    far = run(folder, "prices", "show", "t3.nanoo")
    expect("t3." in far.err and "Standard_" not in far.err and "SECURE" not in far.err, far.err)
    region = run(folder, "prices", "show", "--region", "eu-wst-1", "--gpu", "T4")
    expect(region.code == 2 and "eu-west-1" in region.err, region.err)
    return f"{first(machine.err)} | {first(region.err)}"


@line("E-headline", "no literal backticks in the headline of a page")
def _(folder: Path) -> str:
    profiles = save_two(folder)
    expect(run(folder, "rank", profiles, "--html", "page.html", "--deadline-hours", 0.00001).code in (0, 1), "rank")
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        return "not tried without a browser"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    options += ["--disable-component-update", "--no-first-run", f"--user-data-dir={folder / 'browser'}", "--dump-dom"]
    page = start(folder, [browser, *options, (folder / "page.html").as_uri()], None).out
    headline = re.search(r"<h1[^>]*>(.*?)</h1>", page, re.S)
    text = " ".join(re.sub(r"<[^>]+>", "", headline[1] if headline else "").split())
    expect(text and "`" not in text, f"headline {text!r}")
    return f"headline: {text[:120]}"


@line("E-keywords", "unknown keywords suggest the nearest argument")
def _(folder: Path) -> str:
    texts = []
    calls: list[tuple[Callable[..., Any], str]] = [
        (functools.partial(vs.rank, []), "epoch"), (functools.partial(vs.compare, []), "metrics"),
        (vs.IterationProbe, "step"), (vs.Profile.from_times, "batchsize"),
    ]  # fmt: skip
    for function, name in calls:
        try:
            function(**{name: 1})
        except vs.errors.ArgumentError as error:
            expect("Did you mean" in str(error) or "argument" in str(error), error)
            texts.append(str(error))
    expect(len(texts) == len(calls), texts)
    return texts[0]


@line("E-notebook", "the notebook table has cloud and region")
def _(folder: Path) -> str:
    html = vs.rank(save_two_profiles())._repr_html_()
    expect("aws" in html and "us-east-1" in html, html[:300])
    return "aws and us-east-1 are in the table"


@line("E-frame", "to_frame has flat columns")
def _(folder: Path) -> str:
    ranking = vs.rank(save_two_profiles())
    frame = ranking.to_frame()
    nested = [name for name in frame if frame[name].map(lambda value: isinstance(value, (dict, list, tuple))).any()]
    expect(not nested, nested)
    detailed = ranking.to_frame(details=True)
    expect(len(detailed.columns) > len(frame.columns), "details=True adds nothing")
    return f"{len(frame.columns)} flat columns, {len(detailed.columns)} with details=True"


@line("E-verdict", "the verdict has at most two lines")
def _(folder: Path) -> str:
    done = run(folder, "rank", save_two(folder))
    head = re.split(r"\n\s*(?:#|rank)\s", done.out)[0].strip()
    expect(len(head) <= 240 and head.count("\n") <= 1, head)
    return " / ".join(head.splitlines())


@line("E-times", "estimate prints times that people read")
def _(folder: Path) -> str:
    make_profile("g5.xlarge", 1.0).save(folder / "long")
    done = run(folder, "estimate", "long", "--epochs", 100)
    expect(re.search(r"\d h\b|\d+ h ", done.out) and "10000." not in done.out, done.out)
    return first(done.out, "g5.xlarge")


@line("E-docs", "the glossary has anchors, and the README names the platforms")
def _(folder: Path) -> str:
    glossary = (ROOT / "docs/reference/glossary.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    anchors = len(re.findall(r'<a id="', glossary))
    expect(anchors >= 10, f"{anchors} anchors")
    expect("Linux" in readme, "the README does not mention Linux")
    return f"{anchors} anchors; README: {first(readme, 'Linux')}"


def run_suite() -> bool:
    """Run the test command three times beside two busy loops."""
    with busy_cores():
        for number in range(1, 4):
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-q"], cwd=ROOT, capture_output=True, text=True, check=False
            )
            passed = done.returncode == 0
            sys.stdout.write(f"suite {number} {'ok' if passed else 'FAILED'}  {done.stdout.splitlines()[-1]}\n")
            if not passed:
                return False
    return True


def main() -> None:
    """Try every line and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="LINE", help="lines to try, such as B5, or letters, such as D")
    parser.add_argument("--suite", action="store_true", help="also run the test command three times on a busy machine")
    options = parser.parse_args()
    os.environ.update(QUIET)
    chosen = {
        label: check for label, check in CHECKS.items() if not options.only or label.startswith(tuple(options.only))
    }
    failed = []
    for label, (title, check) in chosen.items():
        with tempfile.TemporaryDirectory(prefix="defects-") as name:
            try:
                state, text = "ok", check(Path(name))
            except Exception as error:  # noqa: BLE001 - a line that fails in any way is reported
                failed.append(label)
                frame = traceback.extract_tb(error.__traceback__)[-1]
                state, text = "FAILED", f"{type(error).__name__} (line {frame.lineno}): {str(error)[:600]}"
        sys.stdout.write(f"{label:<11} {state:<6} {title}\n{'':19}{' '.join(text.split())}\n")
        sys.stdout.flush()
    if options.suite and not run_suite():
        failed.append("suite")
    count = len(chosen) - len([label for label in failed if label != "suite"])
    sys.stdout.write(f"{count} of {len(chosen)} lines ok{'; failed: ' + ', '.join(failed) if failed else ''}\n")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
