"""Default values that Python functions and command-line options share."""

from __future__ import annotations

from typing import Final

MARKET = "on_demand"
OBJECTIVE: Final = "cost"
METHOD = "robust"
CONFIDENCE = 0.9
CHECKPOINT_MINUTES = 60.0
RESTART_MINUTES = 5.0
ENOUGH_REGRET, ENOUGH_REGRET_WITHOUT_HISTORY = 0.02, 0.05
"""No further probe is recommended if the best machine is expected to be better than the chosen one by less than this.

The difference is relative to the time or cost that is minimized. The second limit applies if no outcomes of earlier
forecasts are known.
"""
KEPT = 20
"""Number of machines of a ranking whose predictions are kept as forecast records."""
