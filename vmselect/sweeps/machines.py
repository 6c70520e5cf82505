"""Where a trial runs: what a plan may say of a machine, and what that costs per hour."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from vmselect._checks import check_count, check_flag, check_name, check_number, several, show
from vmselect.errors import PlanError
from vmselect.sweeps.command import check_text

MOST_NODES = 1024
MOST_USD_PER_HOUR = 100_000.0
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:\[\]-]*")


@dataclass(frozen=True)
class Machine:
    """One machine of a plan, or one kind of machine.

    ``options`` are words of one engine only, such as a Slurm partition.
    """

    name: str
    cores: int | None = None
    threads: int | None = None
    hosts: tuple[str, ...] = ()
    python: str = "python3"
    instance_type: str | None = None
    region: str | None = None
    market: str | None = None
    usd_per_hour: float | None = None
    options: Mapping[str, str | bool] = field(default_factory=dict)


def _word(name: str, value: Any) -> str:
    return check_text(name, check_name(name, value))


def _host(name: str, value: Any) -> str:
    text = check_name(name, value)
    if not _HOST.fullmatch(text):  # ssh would take a leading dash for an option
        raise PlanError(f"{name} {show(value)} is no host that ssh takes. Write it as name, user@name or an alias.")
    return text


_OWN: dict[str, Callable[[str, Any], Any]] = {
    "cores": lambda name, value: check_count(name, value, most=4096),
    "threads": lambda name, value: check_count(name, value, most=65536),
    "instance_type": _word,
    "region": _word,
    "market": _word,
    "usd_per_hour": lambda name, value: check_number(name, value, least=0, most=MOST_USD_PER_HOUR),
}
_SSH: dict[str, Callable[[str, Any], Any]] = {
    "hosts": lambda name, value: several(_host, name, value),
    "python": _word,
}
_OPTIONS: dict[str, tuple[str, ...]] = {
    "slurm": ("partition", "account", "qos", "constraint", "gres", "gpus", "mem", "nodelist", "exclusive"),
    "skypilot": ("cloud", "image_id", "disk_size", "accelerators"),
}
RUNNERS = ("local", "ssh", "slurm", "skypilot")
ENDING_SECONDS = {"skypilot": 300.0}
"""How long after its cap a rented machine may still be paid for: its records are fetched, then it is taken down."""


def read_machine(name: str, facts: Any, *, runner: str) -> Machine:
    """What a plan says of the machine ``name``, for ``runner``.

    >>> read_machine("small", {"cores": 1}, runner="local").cores
    1
    """
    where = ("machines", name)
    if facts is None:
        facts = {}
    if not isinstance(facts, Mapping):
        raise PlanError(f"machines: {name} must map words to values, not {show(facts)}.", where)
    checks = _OWN | (_SSH if runner == "ssh" else {"python": _word} if runner == "slurm" else {})
    allowed = [*checks, *_OPTIONS.get(runner, ())]
    given: dict[str, Any] = {}
    options: dict[str, str | bool] = {}
    for word, value in facts.items():
        if word == "host" and runner == "ssh":
            given["hosts"] = (_host(f"machines: {name}: host", value),)
        elif word in checks:
            given[word] = checks[word](f"machines: {name}: {word}", value)
        elif word == "exclusive" and word in allowed:
            options[word] = check_flag(f"machines: {name}: exclusive", value)
        elif word in allowed:
            options[word] = _word(f"machines: {name}: {word}", value if isinstance(value, str) else str(value))
        else:
            near = get_close_matches(str(word), [*allowed, "host"] if runner == "ssh" else allowed, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"With runner {runner}: {', '.join(allowed)}."
            raise PlanError(f"machines: {name} has no {show(word)}. {hint}", (*where, str(word)))
    return Machine(name=name, options=options, **given)
