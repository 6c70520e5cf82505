"""Candidates: every measured machine joined with every price it can be rented at, in columns.

A candidate is a pair of numbers: which machine, which offer. Everything about a million of them is then a few arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from vmselect.estimation.runtime import TERMS
from vmselect.findings import Finding
from vmselect.ranking.evaluation import Bools, Coefficients, Floats, Ints
from vmselect.records import Profile

if TYPE_CHECKING:
    import pandas as pd

    from vmselect.estimation import RuntimeModel

OFFER_FIELDS = ("provider", "service", "region", "market", "gpu_model", "gpu_count", "vcpus", "memory_gib")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One instance type measured at one batch size; repetitions are merged into one runtime model."""

    instance_type: str
    batch_size: int | None
    provider: str | None
    regions: tuple[str, ...]
    runtime: RuntimeModel
    profiles: tuple[Profile, ...] = field(repr=False)
    probe_seconds: float | None
    gpus_used: int | None = None
    iterations: Mapping[str, float] = field(default_factory=dict)
    """Seconds of ``first_iteration``, ``second_iteration`` and ``mean_2_10``, where they were recorded."""
    epochs: tuple[float, float, float] | None = None
    """Epoch count and its bounds, where it depends on the batch size and comes from a study."""
    findings: tuple[Finding, ...] = ()

    @cached_property
    def coefficients(self) -> dict[str, Any]:
        """The runtime in closed form."""
        return self.runtime.coefficients()

    @property
    def repetitions(self) -> int:
        """How many profiles were merged."""
        return len(self.profiles)

    def terms_at(self, epochs: float) -> dict[str, float]:
        """Seconds by name at ``epochs``, which may be a mean and so no whole number."""
        model = self.runtime
        parts = {name: fixed + per_epoch * epochs for name, (fixed, per_epoch) in model.terms.items()}
        passes = epochs // model.validation_freq
        parts["first_validation"] = model.first_validation_seconds * (passes >= 1)
        parts["later_validations"] = model.validation_seconds * max(0, passes - 1)
        return {name: parts[name] for name in TERMS if parts.get(name)}

    @property
    def title(self) -> str:
        """A short name for messages."""
        return f"{self.instance_type}, batch {self.batch_size}" if self.batch_size else self.instance_type


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """The join. ``machine`` and ``offer`` hold, for each candidate, positions in ``machines`` and ``offers``."""

    machines: tuple[Machine, ...]
    offers: pd.DataFrame
    machine: Ints
    offer: Ints
    increment_seconds: Floats
    minimum_seconds: Floats

    def __len__(self) -> int:
        return len(self.machine)

    @cached_property
    def coefficients(self) -> Coefficients:
        """Runtime coefficients, a row per machine."""
        return Coefficients.of([machine.coefficients for machine in self.machines])

    def column(self, name: str) -> Any:
        """A column of the offers, a value per candidate."""
        return self.offers[name].to_numpy()[self.offer]

    @cached_property
    def usd_per_hour(self) -> Floats:
        """Price of each candidate."""
        return np.asarray(self.column("usd_per_hour"), dtype=float)

    @cached_property
    def is_spot(self) -> Bools:
        """Which candidates can be interrupted."""
        return np.asarray(self.column("market") == "spot", dtype=bool)

    def per_machine(self, value: Callable[[Machine], Any]) -> Any:
        """A value of each candidate's machine."""
        values = np.empty(len(self.machines), dtype=object)
        values[:] = [value(machine) for machine in self.machines]
        return values[self.machine]

    def identity(self, candidate: int) -> dict[str, Any]:
        """Who the candidate is, in plain values."""
        machine = self.machines[self.machine[candidate]]
        offer: Mapping[str, Any] = self._offer_rows[self.offer[candidate]]
        return {"instance_type": machine.instance_type, "batch_size": machine.batch_size, **offer}

    def title(self, candidate: int) -> str:
        """The candidate in words."""
        who = self.identity(candidate)
        place = ", ".join(str(who[name]) for name in ("provider", "region", "market") if who[name])
        batch = f", batch {who['batch_size']}" if who["batch_size"] else ""
        return f"{who['instance_type']} ({place}){batch}"

    @cached_property
    def _offer_rows(self) -> _PlainRows:
        return _PlainRows(self.offers, (*OFFER_FIELDS, "date"))


class _PlainRows(Sequence[Mapping[str, Any]]):
    """Rows of a frame as dictionaries of plain Python values, made when they are looked at."""

    def __init__(self, frame: pd.DataFrame, names: Sequence[str]) -> None:
        self._columns = {name: frame[name].to_numpy() for name in names}
        self._length = len(frame)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, position: Any) -> Any:
        return {name: plain(column[position]) for name, column in self._columns.items()}


def plain(value: Any) -> Any:
    """A cell of a frame as a plain Python value; a missing one as None."""
    if hasattr(value, "item"):
        value = value.item()
    if value is None or value != value or type(value).__name__ in ("NAType", "NaTType"):
        return None
    return value.isoformat() if hasattr(value, "isoformat") else value
