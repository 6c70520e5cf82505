"""Defaults that Python functions and command-line options share."""

from __future__ import annotations

from typing import Final

MARKET = "on_demand"
OBJECTIVE: Final = "cost"
METHOD = "robust"
CONFIDENCE = 0.9
CHECKPOINT_MINUTES = 60.0
RESTART_MINUTES = 5.0
ENOUGH_REGRET, ENOUGH_REGRET_WITHOUT_HISTORY = 0.02, 0.05
"""Expected regret of a choice, relative to the objective, below which no further probe is recommended."""
KEPT = 20
"""Number of machines of a ranking that are kept as forecasts."""
