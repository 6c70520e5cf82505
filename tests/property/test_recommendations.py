"""No text and no page names an excluded machine as a recommendation, whatever excludes it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import vmselect as vs

pytest.importorskip("py_mini_racer", reason="the page's scripts were not run: mini-racer is not installed")
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from priced import sell
from profiles import make_profile
from scripts import Scripts

machines = st.lists(
    st.tuples(
        st.floats(0.001, 1),
        st.floats(0.01, 50),
        st.sampled_from(["fine", "fine", "unused GPU", "out of memory", "no price", "spot only"]),
    ),
    min_size=1,
    max_size=6,
)
limits = st.one_of(st.none(), st.floats(0.001, 10))
spot = st.one_of(st.none(), st.fixed_dictionaries({"per_hour": st.floats(0, 1)}))


@pytest.fixture(scope="module")
def scripts() -> Iterator[Scripts]:
    engine = Scripts()
    yield engine
    engine.close()


def make(given_machines: list[tuple[float, float, str]], **options: Any) -> vs.Ranking:
    """A ranking of m0, m1, ..., each excluded or not as its last value says."""
    profiles = []
    for i, (seconds, _, state) in enumerate(given_machines):
        outcome = "out_of_memory" if state == "out of memory" else "stopped"
        gpus = {"framework_gpus": 0, "gpus": ({"name": "Tesla T4"},)} if state == "unused GPU" else {}
        profiles.append(make_profile(f"m{i}", seconds, steps=6, outcome=outcome, environment=gpus, provider="lab"))
    on_demand = [None if state in ("no price", "spot only") else price for _, price, state in given_machines]
    on_spot = [None if state == "no price" else price / 3 for _, price, state in given_machines]
    unprobed = [None] * (7 - len(given_machines)) + [1.0]  # a catalog is never empty
    catalog = sell(on_demand=[*on_demand, *unprobed], spot=on_spot)
    return vs.rank(profiles, epochs=[1, 20], catalog=catalog, **options)


def named(text: str) -> set[str]:
    return set(re.findall(r"\bm\d\b", text))


@settings(max_examples=40, deadline=None)
@given(machines, limits, limits, st.sampled_from(["on_demand", "spot", "all"]), st.floats(0, 1), spot)
def test_only_feasible_machines_are_recommended(
    scripts: Scripts, given_machines: list[Any], deadline: float | None, budget: float | None, market: str,
    weight: float, interruptions: Any,
) -> None:  # fmt: skip
    ranking = make(
        given_machines, deadline_hours=deadline, budget_usd=budget, market=market, interruptions=interruptions,
        objective={"cost": weight, "time": 1 - weight},
    )  # fmt: skip
    feasible = {row.instance_type for row in ranking.deciding_rows}
    never = set().union(*(named(one.candidate) for one in ranking.always_excluded))
    unusable = {f"m{i}" for i, (*_, state) in enumerate(given_machines) if state not in ("fine", "spot only")}
    event(f"feasible: {bool(feasible)}, always excluded: {bool(never)}")
    assert never == unusable
    assert not feasible & unusable
    view = scripts.rank(ranking, {})
    chosen = {row["candidate"]["instance_type"] for row in view["rows"]}
    assert chosen == feasible
    for verdict in (ranking.verdict, view["verdict"]):
        assert verdict.startswith("Rent ") == bool(feasible)
        assert not feasible or named(verdict) <= feasible
    for name in ("cost", "time"):
        changes = ranking.crossovers(name, up_to=100)
        assert named(" ".join(map(str, changes))) <= feasible
        assert named(" ".join(title for _, title in view["leaders"][name])) <= feasible
    for row in ranking.deciding_rows:
        others = named(" ".join(map(str, row.findings))) - {row.instance_type}
        assert not others & unusable  # a safe alternative can be rented, in whatever market
