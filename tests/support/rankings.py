"""Rankings for tests: a catalog of made-up machines, probes of them, and ``rank`` with defaults."""

from __future__ import annotations

from typing import Any

import vmselect as vs
from tests.support.profiles import make_profile

LAB = vs.Catalog.embedded(date="2021-02-28").with_offers(
    [
        {"provider": "lab", "instance_type": name, "region": region, "market": market, "usd_per_hour": usd}
        for name, region, market, usd in (
            ("small", "here", "on_demand", 1.0),
            ("small", "there", "on_demand", 0.8),
            ("small", "here", "spot", 0.3),
            ("big", "here", "on_demand", 3.0),
            ("big", "here", "spot", 1.0),
            ("same", "here", "on_demand", 1.0),
        )
    ]
)


def probe(name: str | None = "small", step_seconds: float = 0.1, **changes: Any) -> vs.Profile:
    """A probe of 100 steps an epoch on a machine of the lab."""
    return make_profile(name, step_seconds, **({"init_seconds": 10.0, "region": "here", "provider": "lab"} | changes))


BOTH = (probe("small", 0.1), probe("big", 0.05))


def rank(profiles: Any = BOTH, **options: Any) -> vs.Ranking:
    """Profiles ranked at ten epochs by the prices of the lab."""
    return vs.rank(profiles, **({"epochs": 10, "catalog": LAB} | options))


def rank_epochs(profiles: Any, catalog: vs.Catalog, **options: Any) -> vs.Ranking:
    """Probes of whole epochs, ranked at ten epochs: the time is the initialization and the sum of the epochs."""
    return vs.rank(profiles, **({"epochs": 10, "catalog": catalog, "method": "malta-epoch"} | options))
