"""Journals of sweeps with live trials, seeded mutations of their lines, and what must hold after."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vmselect.errors import VmselectError
from vmselect.sweeps import Plan, clean, read_state, run, sweep
from vmselect.sweeps.journal import NAME
from vmselect.sweeps.run import status_rows
from vmselect.sweeps.runners.runner import this_machine
from vmselect.sweeps.runners.supervisor import TOKEN_VARIABLE, find_processes

TRIALS = 4
LIVE = 2
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, float("nan"), 10**400, "", "../../..", "-oProxyCommand=x", [], [[1]], {}, {"a": {}},
    "002", "9999-12-31T23:59:59+14:00", "\ud800",
)  # fmt: skip


@dataclass
class Counts:
    """What was tried and seen."""

    journals: int = 0
    mutations: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    """Sweeps that a message of vmselect declined to continue."""
    live: int = 0
    """Live trials whose start line was not mutated."""
    wrong: list[str] = field(default_factory=list)


def make_journal(folder: Path) -> tuple[Plan, list[str]]:
    """A sweep in ``folder`` whose process was killed while the last trials ran; returns the plan and all tokens."""
    plan = Plan([sys.executable, "-c", "pass"], factors={"number": list(range(TRIALS))}, seed=None)
    tokens = []
    with run.opened(plan, folder, limit=None, catalog=None, listener=lambda state, event: None) as engine:
        engine.write("session", budget_usd=None, stop_when_sure=False, epochs=None)
        for number, trial in enumerate(plan.trials):
            token = f"vmselect-{engine.state.id}-{trial.id}-1-{os.urandom(4).hex()}"
            handle = {"runner": "local", "token": token, "folder": str(folder / "trials" / trial.id / "1"), "cores": [],
                      **this_machine()}  # fmt: skip
            engine.write(
                "start", trial=trial.id, attempt=1, token=token, usd_per_hour=1.0, worst_usd=0.1, handle=handle
            )
            engine.write("started", trial=trial.id, attempt=1, handle={"pids": [], "pipes": []})
            if number < TRIALS - LIVE:
                engine.write("gone", trial=trial.id, attempt=1, seconds=1.0, exit=1, token=token, why="exit", error="")
                engine.write("fetched", trial=trial.id, attempt=1)
                engine.write("empty", trial=trial.id, attempt=1, why="")
            tokens.append(token)
    return plan, tokens


def mutate(lines: list[bytes], chance: random.Random, counts: Counter[str]) -> list[bytes]:
    """Damage one line in one way."""
    lines = list(lines)
    at = chance.randrange(len(lines))
    line = lines[at]

    def edit(change: Callable[[dict[str, Any]], None]) -> bytes:
        event = json.loads(line)
        inner = event["handle"] if "handle" in event and chance.random() < 0.4 else event
        with contextlib.suppress(IndexError):  # an empty handle
            change(inner)
        return json.dumps(event).encode()

    def replace(event: dict[str, Any]) -> None:
        event[chance.choice(list(event))] = chance.choice(VALUES)

    def drop(event: dict[str, Any]) -> None:
        del event[chance.choice(list(event))]

    def flip() -> bytes:
        data = bytearray(line)
        for _ in range(chance.choice((1, 1, 5))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        return bytes(data)

    kinds: dict[str, Callable[[], bytes]] = {
        "bytes": flip,
        "value": lambda: edit(replace),
        "missing field": lambda: edit(drop),
        "cut": lambda: line[: chance.randrange(len(line))],
        "joined": lambda: line + lines[chance.randrange(len(lines))],
        "nested": lambda: b"[" * 100_000,
        "other value": lambda: json.dumps(chance.choice(VALUES[:-1])).encode(),
        "removed": lambda: b"",
    }
    kind = chance.choice(list(kinds))
    with contextlib.suppress(ValueError, RecursionError, TypeError):  # a line that an earlier mutation left
        lines[at] = kinds[kind]()
        counts[kind] += 1
    return lines


def run_mutated(seed: int, folder: Path, counts: Counts) -> None:
    """Mutate the journal of a new sweep, show it, then clean it, or resume it and clean it; count what went wrong."""
    chance = random.Random(seed)
    plan, tokens = make_journal(folder)
    before = (folder / NAME).read_bytes().splitlines()
    after = before
    for _ in range(chance.choice((1, 1, 2, 4))):
        after = mutate(after, chance, counts.mutations)
    (folder / NAME).write_bytes(b"\n".join(after) + b"\n")
    kept = [token for token in tokens[-LIVE:] if any(b'"start"' in line and token.encode() in line for line in after
                                                     if line in before)]  # fmt: skip
    counts.journals += 1
    counts.live += len(kept)
    with live(tokens[-LIVE:]):
        for act in (_show, *((_resume,) if chance.random() < 0.3 else ()), lambda plan, folder: clean(folder)):
            try:
                act(plan, folder)
            except VmselectError as refused:
                counts.refused += 1
                if act not in (_show, _resume):
                    counts.wrong.append(f"seed {seed}: clean refused: {refused}")
            except Exception as error:  # noqa: BLE001 - what the test looks for
                counts.wrong.append(f"seed {seed}: {type(error).__name__}: {error}"[:300])
        if left := find_processes(kept, supervisors=True):
            counts.wrong.append(f"seed {seed}: {len(left)} trials still run")


def _show(plan: Plan, folder: Path) -> None:
    state = read_state(folder)
    json.dumps(status_rows(state))
    assert all(line.isprintable() for line in state.damaged)


def _resume(plan: Plan, folder: Path) -> None:
    sweep(plan, folder, confirm=lambda proposal: False)


@contextmanager
def live(tokens: list[str]) -> Iterator[None]:
    """A process with each of ``tokens``, as a killed vmselect leaves it."""
    processes = [subprocess.Popen(["sleep", "600"], env={**os.environ, TOKEN_VARIABLE: token}) for token in tokens]
    deadline = time.monotonic() + 60  # until exec, a process has the environment of this one
    while len(find_processes(tokens, supervisors=False)) < len(tokens) and time.monotonic() < deadline:
        time.sleep(0.001)
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
