"""Limits that a run must keep: a deadline and a budget; and the markets it may be rented in."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vmselect.ranking.candidates import Candidates
from vmselect.ranking.evaluation import Bools, Spread
from vmselect.ranking.rows import Excluded
from vmselect.ranking.settings import Settings
from vmselect.units import SECONDS_PER_HOUR, count_epochs, format_seconds, format_usd

FEASIBLE, OVER_DEADLINE, OVER_BUDGET, OTHER_MARKET = range(4)
Codes = npt.NDArray[np.int8]

REASON_CODES = {OVER_DEADLINE: "over_deadline", OVER_BUDGET: "over_budget"}


def check_limits(settings: Settings, *, time: Spread, cost: Spread, wanted: Bools) -> Codes:
    """For each candidate and epoch count, whether it keeps the limits, and if not, the first that it breaks."""
    verdict = np.zeros(time.value.shape, dtype=np.int8)
    if settings.budget_usd is not None:
        verdict[cost.value > settings.budget_usd] = OVER_BUDGET
    if settings.deadline_hours is not None:
        verdict[time.value > settings.deadline_hours * SECONDS_PER_HOUR] = OVER_DEADLINE
    verdict[~wanted] = OTHER_MARKET
    return verdict


def name_unsold(candidates: Candidates, settings: Settings, *, wanted: Bools) -> tuple[Excluded, ...]:
    """Machines that are sold, but in none of the markets asked for."""
    sold = np.zeros(len(candidates.machines), dtype=bool)
    sold[candidates.machine[wanted]] = True
    missing = np.setdiff1d(candidates.machine, np.flatnonzero(sold))
    asked, markets = ", ".join(settings.markets or ()), candidates.column("market")
    found = []
    for position in missing:
        machine = candidates.machines[position]
        others = ", ".join(sorted(set(markets[candidates.machine == position])))
        reason = f"the catalog has no {asked} price of {machine.instance_type}, only {others}"
        found.append(Excluded(machine.title, "no_price", reason))
    return tuple(found)


def explain(settings: Settings, code: int, *, seconds: float, usd: float, epochs: float) -> dict[str, Any]:
    """Reason code and sentence for a candidate that breaks a limit."""
    run, s = count_epochs(epochs), "s" if epochs == 1 else ""
    if code == OVER_DEADLINE:
        limit = format_seconds((settings.deadline_hours or 0.0) * SECONDS_PER_HOUR)
        reason = f"{run} take{s} {format_seconds(seconds)}, over the deadline of {limit}"
    else:
        limit = format_usd(settings.budget_usd or 0.0)
        reason = f"{run} cost{s} {format_usd(usd)}, over the budget of {limit}"
    return {"reason_code": REASON_CODES[code], "reason": reason, "epochs": epochs}
