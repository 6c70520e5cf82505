"""The budget: the worst-case cost of a sweep never exceeds it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from vmselect.errors import SweepError
from vmselect.sweeps.plan import Plan
from vmselect.sweeps.state import State
from vmselect.units import format_usd

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Budget:
    """The prices of all trials and the most that they may cost together."""

    plan: Plan
    prices: Mapping[str, float]
    limit_usd: float | None = None

    def worst_of(self, trial: str) -> float:
        """The worst-case cost of one trial."""
        return self.plan.worst_usd(self.prices[trial])

    def worst_usd(self, state: State, planned: Collection[str]) -> float:
        """Spent so far, plus the worst case of everything that runs and of ``planned``."""
        return state.spent_usd + sum(self.worst_of(trial) for trial in planned)

    def fits(self, state: State, planned: Collection[str]) -> bool:
        """Whether the worst case stays within the limit."""
        worst = self.worst_usd(state, planned)
        return self.limit_usd is None or worst <= self.limit_usd * (1 + _ROUNDING)

    def check(self, state: State, planned: Collection[str]) -> None:
        """Raise if the worst case exceeds the limit.

        A crash may have cost money. A resumed sweep then runs the trials that still fit, if any.
        """
        if state.attempts and any(self.fits(state, [trial]) for trial in planned):
            return
        if planned and not self.fits(state, planned) and self.limit_usd is not None:
            raise SweepError(
                f"The worst case is {format_usd(self.worst_usd(state, planned))} ({format_usd(state.spent_usd)} spent "
                f"or running, {len(planned)} trials to go), more than the budget of {format_usd(self.limit_usd)}. "
                "Nothing was started. Lower minutes, plan fewer trials, or raise the budget."
            )
