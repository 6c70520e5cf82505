"""What a ranking was asked for, checked and in one form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, fields
from typing import Any, Literal

from vmselect import _defaults
from vmselect._checks import (
    check_choice,
    check_count,
    check_flag,
    check_name,
    check_number,
    check_share,
    maybe,
    several,
    show,
)
from vmselect.catalog import MARKETS, Catalog
from vmselect.errors import ArgumentError
from vmselect.estimation import METHODS
from vmselect.ranking.measures import read_objective
from vmselect.ranking.spot import Interruptions

ALL = "all"
FIXED = ("regions", "batch_sizes", "method", "confidence", "include_retired")
"""Settings that decide which candidates there are: changing one of them needs a new ranking."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Epoch counts, objective and constraints.

    ``markets`` and ``batch_sizes`` are None where all count. ``regions`` is None where each machine is priced where it
    was measured, and empty where all regions count. ``epochs`` is empty where each candidate brings its own.
    """

    epochs: tuple[int, ...]
    decide_at: int | None = None
    objective: Mapping[str, float]
    markets: tuple[str, ...] | None = (_defaults.MARKET,)
    regions: tuple[str, ...] | None = None
    batch_sizes: tuple[int, ...] | None = None
    deadline_hours: float | None = None
    budget_usd: float | None = None
    method: str = _defaults.METHOD
    confidence: float = _defaults.CONFIDENCE
    billing: Literal["exact", "provider"] = "exact"
    interruptions: Interruptions | None = None
    include_retired: bool = False

    @classmethod
    def read(cls, **given: Any) -> Settings:
        """Check what a caller gave (values as in :func:`vmselect.rank`) and bring it into one form."""
        given["epochs"] = epochs = () if given.pop("studied", False) else read_epochs(given["epochs"])
        given["decide_at"] = _read_decide_at(given.get("decide_at"), epochs)
        given["objective"] = read_objective(given.get("objective", _defaults.OBJECTIVE))
        given["markets"] = read_markets(given.get("markets"))
        given["regions"] = read_regions(given.get("regions"))
        given["interruptions"] = Interruptions.read(given.get("interruptions"))
        for name in ("deadline_hours", "budget_usd"):
            given[name] = maybe(check_number, name, given.get(name), above=0)
        given["billing"] = check_choice("billing", given.get("billing", "exact"), ("exact", "provider"))
        given["method"] = check_choice("method", given.get("method", _defaults.METHOD), tuple(METHODS))
        given["confidence"] = check_share(
            "confidence", given.get("confidence", _defaults.CONFIDENCE), least=0.5, most=0.999
        )
        given["include_retired"] = check_flag("include_retired", given.get("include_retired", False))
        return cls(**given)

    def changed(self, **changes: Any) -> Settings:
        """The same settings but for ``changes``, which are checked in the same way."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        given |= {"markets": self.markets or ALL, "regions": ALL if self.regions == () else self.regions}
        if "market" in changes:
            changes["markets"] = changes.pop("market")
        wrong = [name for name in changes if name in FIXED or name not in given]
        if wrong:
            raise ArgumentError(
                f"{', '.join(wrong)} cannot be changed on a finished ranking; call vmselect.rank again."
            )
        if changes.get("epochs") is not None and not self.epochs:
            raise ArgumentError("epochs come from the study here; use vmselect.rank to give them yourself.")
        if "epochs" in changes:
            given["decide_at"] = None
        return Settings.read(**(given | changes), studied=not self.epochs)

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
    return several(check_count, "epochs", epochs)


def read_markets(given: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """One market or several. ``"all"`` gives None, and None the default market.

    >>> read_markets("all"), read_markets(None), read_markets(["spot", "on_demand"])
    (None, ('on_demand',), ('spot', 'on_demand'))
    """
    if isinstance(given, str) and given == ALL:
        return None
    return several(check_choice, "market", _defaults.MARKET if given is None else given, choices=MARKETS)


def read_regions(given: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """One region or several. ``"all"`` gives an empty tuple, and None stays None."""
    if given is None or (isinstance(given, str) and given == ALL):
        return None if given is None else ()
    return several(check_name, "region", given)


def read_catalog(catalog: Any) -> Catalog:
    """The catalog given, or the default one."""
    if not isinstance(catalog, Catalog | None):
        raise ArgumentError(f"catalog is {show(catalog)}. Load a price file first, with vmselect.Catalog.load(...).")
    return Catalog.default() if catalog is None else catalog


def read_batch_sizes(given: int | Iterable[int] | Literal["all"] | None) -> tuple[int, ...] | None:
    """One batch size or several; None and ``"all"`` mean every one that was measured."""
    if given is None or (isinstance(given, str) and given == ALL):
        return None
    return several(check_count, "batch_size", given)


def _read_decide_at(given: Any, epochs: tuple[int, ...]) -> int | None:
    if given is None:
        return epochs[-1] if epochs else None
    count = check_count("decide_at", given)
    if count not in epochs:
        known = ", ".join(map(str, epochs)) or "those of the study"
        raise ArgumentError(f"decide_at is {count}, which is not among the epoch counts {known}; add it to epochs.")
    return count
