"""The machines of a plan: their properties and options for each runner."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from vmselect._checks import check_count, check_flag, check_name, check_number, several, show
from vmselect.errors import ArgumentError, PlanError
from vmselect.sweeps.command import check_text

MOST_NODES = 1024
MOST_USD_PER_HOUR = 100_000.0
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:\[\]-]*")


@dataclass(frozen=True)
class Machine:
    """One machine of a plan, or one kind of machine.

    ``options`` exist for one runner only, such as a Slurm partition.
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


def _text(name: str, value: Any) -> str:
    return check_text(name, check_name(name, value))


def _host(name: str, value: Any) -> str:
    text = check_name(name, value)
    if not _HOST.fullmatch(text):  # ssh would take a leading dash for an option
        raise PlanError(f"{name} {show(value)} is not a valid ssh host. Write it as name, user@name or an alias.")
    return text


def _option(name: str, value: Any) -> str:
    return _text(name, value if isinstance(value, str) else str(value))


_OWN: dict[str, Callable[[str, Any], Any]] = {
    "cores": lambda name, value: check_count(name, value, most=4096),
    "threads": lambda name, value: check_count(name, value, most=65536),
    "instance_type": _text,
    "region": _text,
    "market": _text,
    "usd_per_hour": lambda name, value: check_number(name, value, least=0, most=MOST_USD_PER_HOUR),
}
_SSH: dict[str, Callable[[str, Any], Any]] = {
    "hosts": lambda name, value: several(_host, name, value),
    "host": lambda name, value: (_host(name, value),),
    "python": _text,
}
_OPTIONS: dict[str, tuple[str, ...]] = {
    "slurm": ("partition", "account", "qos", "constraint", "gres", "gpus", "mem", "nodelist", "exclusive"),
    "skypilot": ("cloud", "image_id", "disk_size", "accelerators"),
}
RUNNERS = ("local", "ssh", "slurm", "skypilot")
ENDING_SECONDS = {"skypilot": 300.0}
"""Paid time after the time cap of a rented machine: its records are fetched, then it is terminated."""


def read_machine(name: str, facts: Any, *, runner: str) -> Machine:
    """Check the properties of the machine ``name`` for ``runner``.

    >>> read_machine("small", {"cores": 1}, runner="local").cores
    1
    """
    where = ("machines", name)
    if facts is not None and not isinstance(facts, Mapping):
        raise PlanError(f"machines: {name} must map properties to values, not {show(facts)}.", where)
    checks = _OWN | (_SSH if runner == "ssh" else {"python": _text} if runner == "slurm" else {})
    checks |= {option: check_flag if option == "exclusive" else _option for option in _OPTIONS.get(runner, ())}
    given: dict[str, Any] = {}
    try:
        check_text("machine", name)
        for key, value in (facts or {}).items():
            if key not in checks:
                near = get_close_matches(str(key), list(checks), n=1)
                hint = f"Did you mean {near[0]}?" if near else f"With runner {runner}: {', '.join(checks)}."
                raise PlanError(f"machines: {name} has no property {show(key)}. {hint}", (*where, str(key)))
            given["hosts" if key == "host" else key] = checks[key](f"machines: {name}: {key}", value)
    except ArgumentError as bad:
        raise PlanError(str(bad), getattr(bad, "where", ()) or where) from None
    options = {key: given.pop(key) for key in list(given) if key in _OPTIONS.get(runner, ())}
    return Machine(name=name, options=options, **given)
