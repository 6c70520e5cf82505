"""Wrong arguments for every public function: what may be raised is the family of errors and nothing else."""

from __future__ import annotations

import datetime as dt
import functools
import inspect
import random
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import vmselect as vs
from vmselect import catalog as prices
from vmselect.errors import VmselectError


class Odd:
    """A value that answers nothing it is asked."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")


VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 64, 10**18, 10**400, -(10**30), 0.0, 0.5, 1.0, -0.5, 64.0, 1e308, 5e-324,
    float("nan"), float("inf"), -float("inf"), "", " ", "x", "64", "nan", "all", "cost", "\0", "\ud800", "x" * 300,
    "=1+1", "../..", "\x1b[31m", "g4dn.xlarge", "2026-08-22", b"x", bytearray(b"y"), (), [], {}, set(), [None], [[]],
    [1, 2], [64, 128], ["a", 5], {"a": 1}, {1: 2}, {"cost": 1}, {64: 10}, {"val_accuracy": 0.5}, range(3),
    object(), Odd(), int, len, lambda *_: None, 3 + 4j, np.int64(3), np.float32(0.5), np.float64("nan"), np.bool_(True),
    np.str_("x"), np.array([1.0, 2.0]), np.array(5), pd.NA, pd.NaT, pd.Series([1]), pd.DataFrame({"a": [1]}),
    dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, tzinfo=dt.UTC), Path("nowhere"), ValueError("x"), slice(1),
)  # fmt: skip


@dataclass
class Target:
    """A public function, with arguments that it takes."""

    name: str
    call: Callable[..., Any]
    good: dict[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def parameters(self) -> list[str]:
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        given = inspect.signature(self.call).parameters.values()
        return [p.name for p in given if p.kind in kinds and p.name not in ("clock", "sleep")]


def targets() -> list[Target]:
    """Every public function that can be called without a network, another process or a training."""
    times = {"instance_type": "g4dn.xlarge", "first_epoch_seconds": 40.0, "later_epoch_seconds": 30.0}
    profile = vs.Profile.from_times(**times, batch_size=64)
    more = [profile, vs.Profile.from_times(**{**times, "later_epoch_seconds": 20.0}, batch_size=128)]
    study = vs.ConvergenceStudy.from_epochs({64: [10, 12], 128: [14, 15]})
    catalog = prices.Catalog.embedded("2021-02-28").with_offers(
        [{"provider": "aws", "instance_type": "g4dn.xlarge", "region": "us-east-1", "usd_per_hour": 0.5}]
    )
    ranking = vs.rank(more, epochs=10, catalog=catalog, batch_size="all")
    estimate = vs.estimate(profile, epochs=10)
    offer = {"provider": "aws", "instance_type": "x", "region": "r", "usd_per_hour": 1.0}
    found = [
        Target("Profile.from_times", vs.Profile.from_times, times),
        Target("Profile.load", vs.Profile.load, {"path": "a.json"}),
        Target("Profile.save", profile.save, {"path": "a.json"}),
        Target("load_profiles", lambda paths: vs.load_profiles(paths), {"paths": "a.json"}),
        Target("load_records", lambda paths: vs.load_records(paths), {"paths": "a.json"}),
        Target("estimate", vs.estimate, {"profile": profile, "epochs": 10}),
        Target("rank", vs.rank, {"profiles": more, "epochs": 10, "catalog": catalog}),
        Target("select", vs.select, {"profiles": more, "study": study, "catalog": catalog}),
        Target("Workload", vs.Workload),
        Target("RuntimeEstimate.to_dict", estimate.to_dict),
        Target("ConvergenceStudy.from_epochs", vs.ConvergenceStudy.from_epochs, {"epochs": {64: [10, 12]}}),
        Target("ConvergenceStudy.epochs", study.epochs, {"batch_size": 64}),
        Target("ConvergenceStudy.metric", study.metric, {"batch_size": 64}),
        Target("ConvergenceStudy.runs_at", study.runs_at, {"batch_size": 64}),
        Target("ConvergenceStudy.load", vs.ConvergenceStudy.load, {"path": "a.json"}),
        Target("ConvergenceStudy.save", study.save, {"path": "b.json"}),
        Target("IterationProbe", vs.IterationProbe, {"path": "a.json"}),
        Target("EpochProbe", vs.EpochProbe, {"path": "a.json"}),
        Target("ConvergenceProbe", vs.ConvergenceProbe, {"path": "a.json"}),
        Target("Catalog", prices.Catalog, {"frame": catalog.offers(market=None), "origin": "x"}),
        Target("Catalog.embedded", prices.Catalog.embedded),
        Target("Catalog.load", prices.Catalog.load, {"path": "prices.csv"}),
        Target("Catalog.refreshed", prices.Catalog.refreshed),
        Target("Catalog.with_offers", catalog.with_offers, {"offers": [offer]}),
        Target("Catalog.with_offers of", lambda **values: catalog.with_offers([offer | values])),
        Target("Catalog.save", catalog.save, {"path": "prices.csv"}),
        Target("Catalog.offers", catalog.offers),
        Target("Catalog.offer", catalog.offer, {"instance_type": "g4dn.xlarge"}),
        Target("Catalog.price", catalog.price, {"instance_type": "g4dn.xlarge"}),
        Target("Catalog.is_stale", catalog.is_stale),
        Target("Offer", vs.Offer, offer),
        Target("compare_prices", prices.compare_prices, {"old": catalog, "new": catalog}),
        Target("describe_age", prices.describe_age, {"dates": ["2026-08-22"]}),
        Target("provider_terms", prices.provider_terms, {"provider": "aws"}),
        Target("Ranking.against", ranking.against, {"instance_type": "g4dn.xlarge"}),
        Target("Ranking.chart", ranking.chart, {}),
        Target("Ranking.crossovers", ranking.crossovers),
        Target("Ranking.relative", ranking.relative),
        Target("Ranking.settled_from", ranking.settled_from),
        Target("Ranking.strategies", ranking.strategies),
        Target("Ranking.report", ranking.report, {"path": "page.html"}),
        Target("Ranking.rerank", lambda objective="cost", deadline_hours=None, budget_usd=None: ranking.rerank(
            objective=objective, deadline_hours=deadline_hours, budget_usd=budget_usd)),
        Target("compare", vs.compare, {"records": more, "by": "batch_size", "epochs": 5}),
        Target("effects", vs.effects, {"records": more, "factors": "batch_size", "epochs": 5}),
        Target("Requirements", vs.Requirements, {"needs": {"cost": "< 5"}}),
        Target("Plan", vs.Plan, {"command": "python train.py"}),
    ]  # fmt: skip
    for name, function in inspect.getmembers(vs.equations, inspect.isfunction):
        if function.__module__ == vs.equations.__name__ and not name.startswith("_"):
            numbers = dict.fromkeys(inspect.signature(function).parameters, 3)
            found.append(Target(f"equations.{name}", function, numbers))
    return found


def attack(calls: int, *, seed: int, without: tuple[str, ...] = ()) -> Iterator[str]:
    """Call functions with one or two wrong arguments; yields what ended outside the family."""
    chance = random.Random(seed)
    every = [target for target in targets() if not target.name.startswith(without)]
    for _ in range(calls):
        target = chance.choice(every)
        if not target.parameters:
            continue
        wrong = {
            name: chance.choice(VALUES)
            for name in chance.sample(target.parameters, min(len(target.parameters), chance.choice((1, 1, 2))))
        }
        try:
            target.call(**{**target.good, **wrong})
        except VmselectError:
            continue
        except Exception as outside:  # noqa: BLE001 - which is what is looked for
            where = traceback.extract_tb(outside.__traceback__)[-1]
            shown = ", ".join(f"{name}={type(value).__name__} {_words(value)}" for name, value in wrong.items())
            yield f"{target.name}({shown}): {type(outside).__name__} at {Path(where.filename).name}:{where.lineno}"


def _words(value: object) -> str:
    return "" if isinstance(value, Odd) else repr(value)[:30].replace("\n", " ")
