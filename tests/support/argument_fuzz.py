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
from vmselect.probe.sampling import Alarm
from vmselect.records import InferenceRecord, TransferRecord
from vmselect.records.base import Environment


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
    "a/" * 2100,
)  # fmt: skip


CALLBACKS = ("clock", "sleep", "listener", "confirm", "ask_stop", "open_storage")
"""Functions that the caller gives: what they raise is the caller's."""


@dataclass
class Target:
    """A public function, with arguments that it takes."""

    name: str
    call: Callable[..., Any]
    good: dict[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    """Of the arguments, where the function takes any."""

    @functools.cached_property
    def parameters(self) -> list[str]:
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        if self.names:
            return list(self.names)
        given = inspect.signature(self.call).parameters.values()
        return [p.name for p in given if p.kind in kinds and p.name not in CALLBACKS]


def targets() -> list[Target]:
    """Every public function that can be called without a network, another process or a training."""
    times = {"instance_type": "g4dn.xlarge", "first_epoch_seconds": 40.0, "later_epoch_seconds": 30.0}
    profile = vs.Profile.from_times(**times, batch_size=64)
    more = [profile, vs.Profile.from_times(**{**times, "later_epoch_seconds": 20.0}, batch_size=128)]
    steps = {"instance_type": "g4dn.xlarge", "first_iteration_seconds": 2.0, "validation_seconds": [1.0, 0.5]}
    stepped = [
        vs.Profile.from_times(**steps, batch_size=size, examples=6_400, iteration_seconds=[size / 640] * 10)
        for size in (64, 128)
    ]
    sized = [one.model_copy(update={"environment": Environment(peak_gpu_memory_bytes=peak * 2**30)})
             for one, peak in zip(stepped, (3, 5), strict=True)]  # fmt: skip
    study = vs.ConvergenceStudy.from_epochs({64: [10, 12], 128: [14, 15]}, metrics={64: 0.9, 128: 0.8})
    catalog = prices.Catalog.embedded("2021-02-28").with_offers(
        [{"provider": "aws", "instance_type": "g4dn.xlarge", "region": "us-east-1", "usd_per_hour": 0.5}]
    )
    watched = vs.Profile.from_times(instance_type="g4dn.xlarge", batch_size=64, epochs=10, total_seconds=320.0)
    ranking = vs.rank(more, epochs=10, catalog=catalog, batch_size="all")
    estimate = vs.estimate(profile, epochs=10)
    profile.save("a.json")
    study.save("b.json")
    catalog.save("prices.csv")
    Path("needs.json").write_text('{"needs": {"cost": 5}}')
    offer = {"provider": "aws", "instance_type": "x", "region": "r", "usd_per_hour": 1.0}
    found = [
        Target("Profile.from_times", vs.Profile.from_times, times),
        Target("Profile.load", vs.Profile.load, {"path": "a.json"}),
        Target("Profile.save", profile.save, {"path": "a.json"}),
        Target("load_profiles", lambda paths: vs.load_profiles(paths), {"paths": "a.json"}),
        Target("load_records", lambda paths: vs.load_records(paths), {"paths": "a.json"}),
        Target("estimate", vs.estimate, {"profile": profile, "epochs": 10}),
        Target("estimate steps", vs.estimate, {"profile": stepped[0], "epochs": 10}),
        Target("estimate between sizes", vs.estimate, {"profile": stepped, "epochs": 10, "batch_size": 96}),
        Target("rank", vs.rank, {"profiles": more, "epochs": 10, "catalog": catalog, "batch_size": 64}),
        Target("rank steps", vs.rank, {"profiles": stepped, "epochs": 10, "catalog": catalog, "batch_size": 96}),
        Target("rank all", vs.rank, {"profiles": stepped[:1], "epochs": 10, "catalog": catalog, "machines": "all"}),
        Target("predict", vs.predict, {"profiles": stepped[:1], "catalog": catalog}),
        Target("estimate_memory", vs.estimate_memory, {"profiles": sized, "catalog": catalog}),
        Target("rank study", vs.rank, {"profiles": more, "epochs": study, "catalog": catalog}),
        Target("Workload", vs.Workload),
        Target("RuntimeEstimate.to_dict", estimate.to_dict),
        Target("ConvergenceStudy.from_epochs", vs.ConvergenceStudy.from_epochs, {"epochs": {64: [10, 12]}}),
        Target("ConvergenceStudy.epochs", study.epochs, {"batch_size": 64}),
        Target("ConvergenceStudy.metric", study.metric, {"batch_size": 64}),
        Target("ConvergenceStudy.runs_at", study.runs_at, {"batch_size": 64}),
        Target("ConvergenceStudy.load", lambda paths: vs.ConvergenceStudy.load(paths), {"paths": "b.json"}),
        Target("ConvergenceStudy.save", study.save, {"path": "b.json"}),
        Target("IterationProbe", vs.IterationProbe, {"path": "a.json"}),
        Target("EpochProbe", vs.EpochProbe, {"path": "a.json"}),
        Target("LightningProbe", vs.LightningProbe, {"path": "a.json"}),
        Target("HuggingFaceProbe", vs.HuggingFaceProbe, {"path": "a.json"}),
        Target("ConvergenceProbe", vs.ConvergenceProbe, {"path": "a.json"}),
        Target("Catalog", prices.Catalog, {"frame": catalog.offers(market=None).drop(columns="stale"), "origin": "x"}),
        Target("Catalog.embedded", prices.Catalog.embedded),
        Target("Catalog.load", prices.Catalog.load, {"path": "prices.csv"}),
        Target("Catalog.refreshed", prices.Catalog.refreshed),
        Target("Catalog.with_offers", catalog.with_offers, {"offers": [offer]}),
        Target("Catalog.with_offers of", lambda **values: catalog.with_offers([offer | values]),
               names=prices.COLUMNS),
        Target("Catalog.save", catalog.save, {"path": "prices.csv"}),
        Target("Catalog.offers", catalog.offers),
        Target("Catalog.where", catalog.where),
        Target("Catalog.offer", catalog.offer, {"instance_type": "g4dn.xlarge"}),
        Target("Catalog.price", catalog.price, {"instance_type": "g4dn.xlarge"}),
        Target("Catalog.is_stale", catalog.is_stale),
        Target("Offer", vs.Offer, offer),
        Target("compare_prices", prices.compare_prices, {"old": catalog, "new": catalog}),
        Target("describe_age", prices.describe_age, {"dates": ["2026-08-22"]}),
        Target("provider_terms", prices.provider_terms, {"provider": "aws"}),
        Target("Ranking.against", ranking.against, {"watched": watched}),
        Target("Ranking.relative_to", ranking.tables.relative_to, {"instance_type": "g4dn.xlarge"}),
        Target("Ranking.chart", ranking.chart, {}),
        Target("Ranking.crossovers", ranking.crossovers),
        Target("Ranking.relative", ranking.relative),
        Target("Ranking.settled_from", ranking.tables.settled_from),
        Target("Ranking.strategies", ranking.tables.strategies),
        Target("Ranking.report", ranking.report, {"path": "page.html"}),
        Target("Ranking.rerank", lambda objective="cost", deadline_hours=None, budget_usd=None: ranking.rerank(
            objective=objective, deadline_hours=deadline_hours, budget_usd=budget_usd)),
        *_comparing(catalog, ranking),
        *_probing(),
        *_serving(catalog),
        *_sweeping(more, catalog),
    ]  # fmt: skip
    for name, function in inspect.getmembers(vs.equations, inspect.isfunction):
        if function.__module__ == vs.equations.__name__ and not name.startswith("_"):
            numbers = dict.fromkeys(inspect.signature(function).parameters, 3)
            found.append(Target(f"equations.{name}", function, numbers))
    return found


def _comparing(catalog: vs.Catalog, ranking: vs.Ranking) -> list[Target]:
    records = [
        vs.Profile.from_times(
            instance_type="g4dn.xlarge", batch_size=batch_size, steps_per_epoch=100, init_seconds=1,
            first_iteration_seconds=1, iteration_seconds=[seconds, seconds * 1.1, seconds * 0.9],
        )
        for batch_size, seconds in ((64, 0.1), (64, 0.11), (64, 0.12), (128, 0.2), (128, 0.21), (128, 0.19))
    ]  # fmt: skip
    by = {"records": records, "by": "batch_size"}
    between = vs.compare(records, by="batch_size")
    needs = vs.stats.Requirements({"cost": 5})
    workers = [one.model_copy(update={"factors": {"nodes": 1 + one.batch_size // 128}}) for one in records]
    sped_up = vs.stats.scaling(workers, epochs=5)
    return [
        Target("scaling", vs.stats.scaling, {"records": workers, "epochs": 5}),
        Target("Scaling.to_json", sped_up.to_json),
        Target("compare", vs.compare, by),
        Target("compare by price", vs.compare, by | {"metric": "cost_usd", "epochs": 5, "catalog": catalog}),
        Target("Comparison.ratio", between.ratio, {"group": "64", "other": "128"}),
        Target("Comparison.differ", between.differ, {"group": "64", "other": "128"}),
        Target("Comparison.chart", between.chart),
        Target("Comparison.to_json", between.to_json),
        Target("effects", vs.stats.effects, {"records": records, "factors": "batch_size"}),
        Target("Comparison.report", between.report, {"path": "comparison.html"}),
        Target("Requirements", vs.stats.Requirements, {"needs": {"cost": 5}}),
        Target("Requirements.load", vs.stats.Requirements.load, {"path": "needs.json"}),
        Target("Requirements.score", needs.score, {"ranking": ranking}),
        Target("diagnose", vs.diagnose, {"profile": records[0]}),
    ]


def _probing() -> list[Target]:
    return [
        Target("probe_loop", vs.probe_loop, {"path": "a.json", "batch_size": 8}),
        Target("InferenceProbe", vs.serving.InferenceProbe, {"path": "a.json"}),
        Target("probe_inference", vs.serving.probe_inference, {"path": "a.json", "batch_size": 8}),
        Target("Alarm", Alarm, {"notify": "echo"}),
        Target("Transfer", vs.serving.Transfer, {"data_gb": 1.0}),
        Target("TransferRecord.from_times", TransferRecord.from_times, {
            "instance_type": "x", "url": "s3://bucket", "megabytes": 10, "upload_seconds": [1, 2],
            "download_seconds": [1, 2]}),
        Target("InferenceRecord.from_times", InferenceRecord.from_times, {
            "instance_type": "x", "batch_size": 8, "call_seconds": [0.02, 0.03]}),
    ]  # fmt: skip


def _serving(catalog: vs.Catalog) -> list[Target]:
    record = InferenceRecord.from_times(instance_type="g4dn.xlarge", batch_size=8, call_seconds=[0.02] * 50)
    ranking = vs.serving.rank_inference([record], load=50, catalog=catalog)
    return [
        Target("rank_inference", vs.serving.rank_inference, {"records": [record], "load": 50, "catalog": catalog}),
        Target("ServingRanking.chart", ranking.chart),
        Target("ServingRow.cost_usd", ranking.best.cost_usd, {"items": 5}),
        Target("Bill.of", vs.serving.Bill.of, {"parts": {"training": 5.0}}),
        Target("Bill.of named", lambda training: vs.serving.Bill.of(training=training), {"training": 5.0}),
        Target("Bill.times", vs.serving.Bill.of(training=5.0).times, {"factor": 2}),
    ]


def _sweeping(profiles: list[vs.Profile], catalog: vs.Catalog) -> list[Target]:
    plan = vs.Plan("python -c pass", factors={"batch_size": [64, 128]}, minutes=1)
    plan.save("plan.json")
    factors = {
        "factors": {"batch_size": [64, 128], "machine": ["small"]},
        "machines": {"small": {"instance_type": "g4dn.xlarge"}},
    }
    # Nothing is started: `yes` is not among the arguments, and nothing confirms.
    start = functools.partial(vs.sweep, plan, yes=False)
    return [
        Target("Plan", vs.Plan, {"command": "python train.py"}),
        Target("Plan.trials", lambda **values: vs.Plan("python train.py", **values).to_frame(), factors,
               ("factors", "machines", "exclude", "include", "blocks", "environment", "repetitions", "minutes")),
        Target("Plan.factors", lambda **values: vs.Plan("x {a}", factors=values).to_frame(), {"a": [1, 2]}, ("a", "b")),
        Target("Plan.load", vs.Plan.load, {"path": "plan.json"}),
        Target("Plan.save", plan.save, {"path": "plan.json"}),
        Target("Plan.to_frame", plan.to_frame, {"catalog": catalog}),
        Target("Plan.prices", plan.prices, {"catalog": catalog}),
        Target("sweep", lambda folder, budget_usd=None, parallel=1, catalog=None: start(
            folder, budget_usd=budget_usd, parallel=parallel, catalog=catalog), {"folder": "swept"}),
        Target("sweep of", lambda plan: vs.sweep(plan, "other", yes=False), {"plan": plan}),
        Target("skypilot_estimator", vs.skypilot_estimator, {"profiles": profiles[:1], "epochs": 5}),
        Target("skypilot_estimator of", lambda batch_size, steps_per_epoch=None: vs.skypilot_estimator(
            profiles, epochs=5, batch_size=batch_size, steps_per_epoch=steps_per_epoch), {"batch_size": 64}),
    ]  # fmt: skip


def attack(calls: int, *, seed: int) -> Iterator[str]:
    """Call functions with one or two wrong arguments; yields what ended outside the family."""
    chance = random.Random(seed)
    every = [target for target in targets() if target.parameters]
    for _ in range(calls):
        target = chance.choice(every)
        names = chance.sample(target.parameters, min(len(target.parameters), chance.choice((1, 1, 2))))
        yield from _call(target, {name: chance.choice(VALUES) for name in names})


def attack_all() -> Iterator[str]:
    """The same with every value for every argument, one at a time; an empty text for each call that ended well."""
    for target in targets():
        for name in target.parameters:
            for value in VALUES:
                yield from _call(target, {name: value}) or [""]


def _call(target: Target, wrong: dict[str, Any]) -> list[str]:
    try:
        target.call(**{**target.good, **wrong})
    except VmselectError:
        return []
    except Exception as outside:  # noqa: BLE001 - which is what is looked for
        where = traceback.extract_tb(outside.__traceback__)[-1]
        shown = ", ".join(f"{name}={type(value).__name__} {_words(value)}" for name, value in wrong.items())
        return [f"{target.name}({shown}): {type(outside).__name__} at {Path(where.filename).name}:{where.lineno}"]
    return []


def _words(value: object) -> str:
    return "" if isinstance(value, Odd) else repr(value)[:30].replace("\n", " ")
