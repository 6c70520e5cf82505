"""Seeded faults for sweeps: misbehaving trials, killed programs, then resume and clean; and what must hold after."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import vmselect as vs
from vmselect.sweeps import Plan, clean, read_state, sweep
from vmselect.sweeps.journal import State, read_journal
from vmselect.sweeps.runners.runner import SUPERVISOR
from vmselect.sweeps.runners.supervisor import find_processes

SCRIPT = Path(__file__).with_name("sweep_trial.py")
FAULTS = ("ok", "slow", "fail", "hang", "deaf", "garbage", "half", "full", "fork", "setsid", "setsid-hang",
          "record-fail", "record-hang")  # fmt: skip
HANG = {"hang", "deaf", "setsid-hang", "record-hang"}
LEAVE_RECORD = {"ok", "slow", "fork", "setsid", "record-fail", "record-hang"}
KILLS = ("none", "vmselect", "inner supervisor", "outer supervisor", "both supervisors", "stopped vmselect")
MINUTES = 2.5 / 60
"""Time limit of the trials of a plan in which one hangs; a busy machine may not finish the others in it."""
AMPLE_MINUTES = 2.0
"""Time limit if none hangs."""
MAX_RESUMES = 10
KILL_SECONDS = 3.0
"""Time to wait for supervisors to kill."""
USD_PER_HOUR = 36.0

SURVIVE = """
import os, signal, sys, time
from pathlib import Path
if "VMSELECT_TOKEN" in os.environ:
    inner = os.getppid()
    outer = int(Path(f"/proc/{inner}/stat").read_text().rpartition(")")[2].split()[1])
    if os.fork():
        time.sleep(600)  # killed with the inner supervisor
    os.setsid()
    os.environ["SUPERVISORS"] = f"{outer} {inner}"
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    kept = {name: os.environ[name] for name in ("PATH", "SUPERVISORS")}
    os.execve(sys.executable, [sys.executable, *sys.argv], kept)
Path(sys.argv[1]).write_text(str(os.getpid()))
for supervisor in os.environ["SUPERVISORS"].split():
    os.kill(int(supervisor), signal.SIGKILL)
time.sleep(600)
"""
"""A trial that leaves its session, its output and its environment, kills both supervisors, and goes on."""


def is_alive(pid: int) -> bool:
    """Whether a process runs. One that has ended but was not yet reaped by its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


@dataclass
class Tally:
    """What was tried and seen."""

    runs: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    connections: Counter[str] = field(default_factory=Counter)
    copies: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    resumes: int = 0
    """Further ones, because a busy machine did not finish a trial within its time limit."""
    records: int = 0
    accepted: int = 0
    """Trials whose end was not proved, because both supervisors were killed; checked here, then accepted."""
    violations: list[str] = field(default_factory=list)


def make_plan(seed: int, folder: Path, *, minutes: float = MINUTES, **places: Any) -> Plan:
    """Two or three misbehaving trials; the mark is in the command line of everything they start."""
    chance = random.Random(seed)
    faults = chance.sample(FAULTS, k=chance.choice((2, 2, 3)))
    template = folder / "template.json"
    vs.Profile.from_times(instance_type="x", batch_size=8, iteration_seconds=0.1).save(template)
    given: dict[str, Any] = {
        "factors": {"fault": faults, "machine": ["here"]},
        "machines": {"here": {"usd_per_hour": USD_PER_HOUR}},
    }
    given["factors"] |= places.pop("factors", {})
    given |= places
    command = [sys.executable if given.get("runner", "local") == "local" else "python3", "-S", "-E", str(SCRIPT),
               mark_of(seed, folder), str(folder / "log.jsonl"), str(template)]  # fmt: skip
    return Plan(command, minutes=minutes if HANG.intersection(faults) else AMPLE_MINUTES, seed=seed, **given)


def mark_of(seed: int, folder: Path) -> str:
    """How long the children of this run would sleep; no other process has this number."""
    return f"{100_000 + seed}.{abs(hash(str(folder))) % 10**9:09d}"


def run_case(
    seed: int, folder: Path, *, kills: tuple[str, ...] = KILLS, tally: Tally | None = None, slack: float = 0.0,
    disturb: Callable[[random.Random], None] | None = None, settle: Callable[[], None] | None = None, **places: Any,
) -> Tally:  # fmt: skip
    """One seeded run: a sweep, a fault in the middle of it, clean or resume or both, and every promise checked."""
    tally = tally or Tally()
    chance = random.Random(seed * 7919)
    folder.mkdir(parents=True, exist_ok=True)
    plan = make_plan(seed, folder, **places)
    out, kill = folder / "sweep", chance.choice(kills)
    budget = len(plan.trials) * plan.minutes / 60 * USD_PER_HOUR * 3
    pid = os.fork()
    if not pid:
        _be_vmselect(plan, out, budget, parallel=chance.choice((1, 2)))
    time.sleep(chance.uniform(0.0, 2.0 + slack))
    if disturb:
        disturb(chance)
    _kill(kill, pid, out)
    _, status = os.waitpid(pid, 0)
    tally.runs += 1
    tally.kills[kill] += 1
    tally.faults.update(str(trial.factors["fault"]) for trial in plan.trials)
    if kill in ("vmselect", "stopped vmselect"):
        time.sleep(chance.choice((0.0, 0.3)))
    elif status != 0:
        tally.violations.append(f"seed {seed}: vmselect ended with {status} after the kill of {kill}")
    if settle:
        settle()
    if chance.random() < 0.6 and (out / "journal.jsonl").exists():
        clean(out)
    sweep(plan, out, budget_usd=budget, yes=True)
    for number in range(1, MAX_RESUMES):  # as users do, with more money
        accepted = kill == "both supervisors" and accept_unproved(seed, folder, out, tally)
        if not accepted and not find_late(plan, folder, out):
            break
        tally.resumes += 1
        sweep(plan, out, budget_usd=budget * (1 + number / 2), yes=True)
    left = clean(out)
    check_promises(seed, plan, folder, out, tally)
    if not all(one.gone for one in left):
        tally.violations.append(f"seed {seed}: not proved gone: {left}")
    return tally


def accept_unproved(seed: int, folder: Path, out: Path, tally: Tally) -> bool:
    """Accept trials as ended whose end is not proved, after looking for their processes; returns whether any was."""
    waiting = [one.trial for one in clean(out) if not one.gone]
    if left := _left(seed, folder, read_state(out)):
        tally.violations.append(f"seed {seed}: processes left: {left}")
    if waiting:
        clean(out, accept=waiting)
    tally.accepted += len(waiting)
    return bool(waiting)


def find_late(plan: Plan, folder: Path, out: Path) -> list[str]:
    """Trials that were ended before they wrote their record, only because this machine was too busy."""
    state = read_state(out)
    wrote = {trial for event, trial, _ in _read_log(folder / "log.jsonl") if event == "wrote"}
    expected = {trial.id for trial in plan.trials if trial.factors["fault"] in LEAVE_RECORD}
    ended = {trial: state.attempts[trial][-1].why for trial in expected - wrote if trial in state.attempts}
    return [t for t, why in ended.items() if why in ("cap", "silent", "start") and not state.records.get(t)]


def check_promises(seed: int, plan: Plan, folder: Path, out: Path, tally: Tally) -> None:
    """No process left, no trial run twice whose record was there, no record lost, the budget never exceeded."""
    state = read_state(out)
    wrong = tally.violations.append
    deadline = time.monotonic() + 3  # one that was just killed may still be listed
    while (left := _left(seed, folder, state)) and time.monotonic() < deadline:
        time.sleep(0.05)
    if left:
        wrong(f"seed {seed}: processes left: {left}")
    lines = _read_log(folder / "log.jsonl")
    wrote: set[str] = set()
    for event, trial, _ in lines:
        if event == "began" and trial in wrote:
            wrong(f"seed {seed}: trial {trial} ran again although its record was there")
        if event == "wrote":
            wrote.add(trial)
    for trial in plan.trials:
        expected = trial.factors["fault"] in LEAVE_RECORD
        there = [name for name in state.records.get(trial.id, ()) if (out / name).is_file()]
        if trial.id in wrote and not there:
            wrong(f"seed {seed}: the record of trial {trial.id} ({trial.factors['fault']}) is lost")
        if not expected and there:
            wrong(f"seed {seed}: trial {trial.id} ({trial.factors['fault']}) has a record that it cannot have")
        if expected and not there:
            wrong(f"seed {seed}: trial {trial.id} ({trial.factors['fault']}) has no record after resume")
    if state.records:
        vs.load_records(out)
    replayed = State(out)
    for event in read_journal(out):
        replayed.apply(event)
        budget = replayed.budget_usd
        assert budget is not None
        if replayed.spent_usd > budget * (1 + 1e-9):
            wrong(f"seed {seed}: {replayed.spent_usd:.4f} of {budget:.4f} dollars at {event['event']}")
            break
    tally.starts += len(state.all_attempts)
    tally.records += sum(map(len, state.records.values()))


def _be_vmselect(plan: Plan, out: Path, budget: float, parallel: int) -> None:
    """The forked child: a vmselect of its own, which may be killed at any moment."""
    code = 1
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 2)
        sweep(plan, out, budget_usd=budget, parallel=parallel, yes=True)
        code = 0
    finally:
        os._exit(code)


def _kill(kill: str, pid: int, out: Path) -> None:
    if kill == "vmselect":
        _signal(pid, signal.SIGKILL)
    elif kill == "stopped vmselect":
        _signal(pid, signal.SIGSTOP)
        time.sleep(0.5)
        _signal(pid, signal.SIGKILL)
    elif kill != "none":
        supervisors: list[int] = []
        until = time.monotonic() + KILL_SECONDS
        while len(supervisors) < 2 and time.monotonic() < until:  # between two trials there are none
            time.sleep(0.02)
            tokens = [a.token for a in read_state(out).all_attempts] if (out / "journal.jsonl").exists() else []
            supervisors = [p for p in find_processes(tokens, supervisors=True) if _is_supervisor(p)]
        inner = [p for p in supervisors if _parent(p) in supervisors]
        outer = [p for p in supervisors if p not in inner]
        victims = {"inner supervisor": inner, "outer supervisor": outer, "both supervisors": [*outer, *inner]}
        for victim in victims[kill]:
            _signal(victim, signal.SIGKILL)


def _left(seed: int, folder: Path, state: State) -> list[int]:
    mark = mark_of(seed, folder).encode()
    marked = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark in words:
            marked.append(int(path.name))
    return marked + find_processes([attempt.token for attempt in state.all_attempts], supervisors=True)


def _read_log(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return


def _is_supervisor(pid: int) -> bool:
    try:
        return SUPERVISOR.name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return 0
