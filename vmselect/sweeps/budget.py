"""Money: what a sweep may cost in the worst case, and the limit that this never passes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from vmselect.errors import SweepError
from vmselect.sweeps.state import State
from vmselect.units import cost_usd, format_usd

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Budget:
    """The worst case of every trial and the most that all may cost together."""

    prices: Mapping[str, float]
    cap_seconds: float
    limit_usd: float | None = None
    ending_seconds: float = 0.0
    """What ending a trial may take beyond its cap, at the same price."""

    @property
    def paid_seconds(self) -> float:
        """How long a trial may be paid for."""
        return self.cap_seconds + self.ending_seconds

    def worst_of(self, trial: str) -> float:
        """Price x (time cap and what ending it may take)."""
        return cost_usd(self.paid_seconds, self.prices[trial])

    def worst_usd(self, state: State, planned: Collection[str]) -> float:
        """What was spent, the worst case of what runs, and the worst case of ``planned``."""
        return state.spent_usd + sum(self.worst_of(trial) for trial in planned)

    def fits(self, state: State, planned: Collection[str]) -> bool:
        """Whether all of it stays within the limit."""
        worst = self.worst_usd(state, planned)
        return self.limit_usd is None or worst <= self.limit_usd * (1 + _ROUNDING)

    def check(self, state: State, planned: Collection[str]) -> None:
        """Raise where the worst case of everything passes the limit.

        What is lost in a crash was paid for; a sweep that is resumed then runs what still fits, if anything does.
        """
        if state.attempts and any(self.fits(state, [trial]) for trial in planned):
            return
        if planned and not self.fits(state, planned) and self.limit_usd is not None:
            raise SweepError(
                f"The worst case is {format_usd(self.worst_usd(state, planned))} ({format_usd(state.spent_usd)} spent "
                f"or running, {len(planned)} trials to go), more than the budget of {format_usd(self.limit_usd)}. "
                "Nothing was started. Lower minutes, plan fewer trials, or raise the budget."
            )
