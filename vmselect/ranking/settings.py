"""What a ranking was asked for, checked and in one form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, Literal

from vmselect.catalog.schema import MARKETS
from vmselect.errors import ArgumentError
from vmselect.ranking.objectives import read_objective
from vmselect.ranking.spot import Interruptions

FIXED = ("regions", "batch_sizes", "method", "confidence", "include_retired")
"""Settings that decide which candidates there are: changing one of them needs a new ranking."""

MOST = 2**53
"""Whole numbers beyond this are not exact where times are computed."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Epoch counts, objective and constraints.

    ``markets``, ``regions`` and ``batch_sizes`` are None where nothing is left out. ``epochs`` is empty where each
    candidate brings its own epoch count.
    """

    epochs: tuple[int, ...]
    decide_at: int | None = None
    objective: Mapping[str, float]
    markets: tuple[str, ...] | None = ("on_demand",)
    regions: tuple[str, ...] | None = None
    batch_sizes: tuple[int, ...] | None = None
    deadline_hours: float | None = None
    budget_usd: float | None = None
    method: str = "robust"
    confidence: float = 0.9
    billing: Literal["exact", "provider"] = "exact"
    interruptions: Interruptions | None = None
    include_retired: bool = False

    @classmethod
    def read(cls, **given: Any) -> Settings:
        """Check what a caller gave (values as in :func:`vmselect.rank`) and bring it into one form."""
        given["epochs"] = epochs = read_epochs(given["epochs"])
        if epochs:
            given["decide_at"] = _read_decide_at(given.get("decide_at"), epochs)
        given["objective"] = read_objective(given.get("objective", "cost"))
        given["markets"] = read_names(given.get("markets", "on_demand"), what="market")
        given["regions"] = read_names(given.get("regions"), what="region")
        given["interruptions"] = Interruptions.read(given.get("interruptions"))
        unknown = [market for market in given["markets"] or () if market not in MARKETS]
        if unknown:
            raise ArgumentError(
                f"market is {unknown[0]!r}; the markets are {', '.join(MARKETS)}, or None for all of them."
            )
        for name in ("deadline_hours", "budget_usd"):
            given[name] = _read_limit(given.get(name), name=name)
        if given.get("billing", "exact") not in ("exact", "provider"):
            raise ArgumentError(
                f'billing is {given["billing"]!r}; use "exact" (time x price) or "provider" (with its increment).'
            )
        return cls(**given)

    def changed(self, **changes: Any) -> Settings:
        """The same settings but for ``changes``, which are checked in the same way."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        if "market" in changes:
            changes["markets"] = changes.pop("market")
        wrong = [name for name in changes if name in FIXED or name not in given]
        if wrong:
            raise ArgumentError(
                f"{', '.join(wrong)} cannot be changed on a finished ranking; call vmselect.rank again."
            )
        if "epochs" in changes:
            given["decide_at"] = None
        return Settings.read(**(given | changes))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        spot = self.interruptions.to_dict(confidence=self.confidence) if self.interruptions else None
        return plain | {"objective": dict(self.objective), "interruptions": spot}


def read_epochs(epochs: int | Iterable[int]) -> tuple[int, ...]:
    """One epoch count or several, each once, in the order given.

    >>> read_epochs(50), read_epochs([5, 10, 20])
    ((50,), (5, 10, 20))
    """
    if isinstance(epochs, Set):
        raise ArgumentError(f"epochs is {epochs!r}, which has no last one to decide; give a list.")
    return _read_whole_numbers(epochs, what="epochs")


def read_names(given: str | Iterable[str] | None, *, what: str) -> tuple[str, ...] | None:
    """One name or several; None means all of them."""
    if given is None:
        return None
    names = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ArgumentError(f"{what} is {given!r}; give a name, a list of names, or None for all.")
    return tuple(dict.fromkeys(names))


def read_batch_sizes(given: int | Iterable[int] | Literal["all"] | None) -> tuple[int, ...] | None:
    """One batch size or several; None and "all" mean every one that was measured."""
    if given is None or (isinstance(given, str) and given == "all"):
        return None
    sizes = _read_whole_numbers(given, what="batch_size")
    if not sizes:
        raise ArgumentError('batch_size is empty; give whole numbers of at least 1, or "all".')
    return sizes


def _read_whole_numbers(given: Any, *, what: str) -> tuple[int, ...]:
    """One number or several, each once, in the order given; those of numpy are taken too."""
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes))
    numbers = list(given) if several else [given]
    for number in numbers:
        if not (_is_number(number) and 1 <= number <= MOST and number == int(number)):
            raise ArgumentError(f"{what} is {number!r}; give whole numbers of at least 1.")
    return tuple(dict.fromkeys(int(number) for number in numbers))


def _read_decide_at(given: Any, epochs: tuple[int, ...]) -> int:
    if given is None:
        return epochs[-1]
    if not _is_number(given) or given not in epochs:
        known = ", ".join(map(str, epochs))
        raise ArgumentError(f"decide_at is {given!r}, which is not among the epoch counts {known}; add it to epochs.")
    return int(given)


def _read_limit(given: Any, *, name: str) -> float | None:
    if given is None:
        return None
    if not (_is_number(given) and 0 < given < math.inf):
        raise ArgumentError(f"{name} is {given!r}; give a positive number, or None for no limit.")
    return float(given)


def _is_number(given: Any) -> bool:
    return isinstance(given, Real) and not isinstance(given, bool)
