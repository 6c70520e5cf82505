"""What a ranking was asked for, checked and in one form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from vmselect.catalog.schema import MARKETS
from vmselect.errors import ArgumentError
from vmselect.ranking.objectives import read_objective
from vmselect.ranking.spot import Interruptions

FIXED = ("regions", "batch_sizes", "method", "confidence", "include_retired")
"""Settings that decide which candidates there are: changing one of them needs a new ranking."""


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
        if epochs and given.get("decide_at") is None:
            given["decide_at"] = epochs[-1]
        if epochs and given["decide_at"] not in epochs:
            raise ArgumentError(
                f"decide_at is {given['decide_at']!r}, which is not among the epoch counts "
                f"{', '.join(map(str, epochs))}; add it to epochs."
            )
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
            limit = given.get(name)
            if limit is not None and not (isinstance(limit, (int, float)) and math.isfinite(limit) and limit > 0):
                raise ArgumentError(f"{name} is {limit!r}; give a positive number, or None for no limit.")
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
    counts = [epochs] if isinstance(epochs, (int, float, str)) else list(epochs)
    for count in counts:
        whole = not isinstance(count, (bool, str)) and float(count).is_integer() and count >= 1
        if not whole:
            raise ArgumentError(f"epochs is {count!r}; give whole numbers of at least 1.")
    return tuple(dict.fromkeys(int(count) for count in counts))


def read_names(given: str | Iterable[str] | None, *, what: str) -> tuple[str, ...] | None:
    """One name or several; None means all of them."""
    if given is None:
        return None
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ArgumentError(f"{what} is {given!r}; give a name, a list of names, or None for all.")
    return tuple(dict.fromkeys(names))


def read_batch_sizes(given: int | Iterable[int] | Literal["all"] | None) -> tuple[int, ...] | None:
    """One batch size or several; None and "all" mean every one that was measured."""
    if given is None or given == "all":
        return None
    sizes = (given,) if isinstance(given, int) else tuple(given)
    if not sizes or not all(isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in sizes):
        raise ArgumentError(f'batch_size is {given!r}; give whole numbers of at least 1, or "all".')
    return tuple(dict.fromkeys(sizes))
