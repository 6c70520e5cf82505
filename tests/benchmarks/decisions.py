"""Score choices between machines of which some were never probed, on tables of step times on several GPUs.

    python tests/benchmarks/decisions.py FOLDER_OR_CSV... [--prices catalog|equal] [--format json]

The layout of the CSV files is that of ``prediction.py``. The candidates of a work are the GPUs on which it ran.
``catalog`` prices a GPU as the cheapest machine with one such GPU in the catalog and drops GPUs without a price;
``equal`` draws prices that make all GPUs equally expensive on average; ``none`` ranks by time. The measured times are
the truth.

- Reliability: after one or two probes, how often candidates with a given probability are the best; how often the 90 %
  set contains the best, and its size compared with that of the set of overlapping intervals.
- Choice: how often the lowest estimate is the best candidate, and its regret.
- Search: probes until 90 % of the works are within 5 % of the best, by the rule of ``next_probe``; and the share
  of works within 5 % when the rule stops.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from prediction import MAX_WORKS, Source, Work, read_source

import vmselect as vs
from vmselect.prediction.posterior import CONSTANTS, Computation, Constants, Point, Posterior, predict_log_times
from vmselect.ranking.next_probe import expected_decrease
from vmselect.ranking.options import ENOUGH_REGRET, ENOUGH_REGRET_WITHOUT_HISTORY
from vmselect.ranking.probability import DRAWS

BINS = (0.0, 0.05, 0.2, 0.5, 0.8, 1.0)
CLOSE = math.log(1.05)
RUN_SPREAD = 0.03
SNAPSHOT = "2026-08-22"
"""Date of the shipped prices by which GPUs are compared."""


def catalog_prices() -> dict[str, float]:
    """USD per hour of the cheapest on-demand machine with one GPU, by GPU, also of machines that are retired.

    As in a ranking on the day of the snapshot, implausible prices do not count, nor do stale ones of machines for rent.
    """
    catalog = vs.Catalog.embedded(SNAPSHOT)
    offers = catalog.offers(market="on_demand", retired=None)
    usable = ~catalog.is_implausible(offers) & (offers["retired"] | ~offers["stale"]).to_numpy()
    single = offers[usable & (offers["gpu_count"] == 1).to_numpy()]
    return {
        str(gpu): float(usd) for gpu, usd in single.groupby("gpu_model", observed=True)["usd_per_hour"].min().items()
    }


def equal_prices(source: Source, random: Random) -> dict[str, float]:
    """Prices that make the GPUs of a source equally expensive on average, times a random factor of about 1.5."""
    logs: dict[str, list[float]] = {}
    for works in source.values():
        for work in works.values():
            middle = float(np.mean([point.log_seconds for point in work.values()]))
            for gpu, point in work.items():
                logs.setdefault(gpu, []).append(point.log_seconds - middle)
    return {gpu: math.exp(-float(np.mean(values)) + random.gauss(0, 0.4)) for gpu, values in sorted(logs.items())}


def works_of(source: Source, prices: Mapping[str, float], models: int, seed: int) -> Iterator[tuple[Work, list[Point]]]:
    """Works with at least three priced GPUs, each with the history of other models."""
    for model, works in sorted(source.items()):
        random = Random(f"{seed} {model}")
        usable = {k: {g: p for g, p in w.items() if g in prices} for k, w in works.items()}
        usable = {k: w for k, w in usable.items() if len(w) >= 3}
        others = sorted(set(source) - {model})
        for key in random.sample(sorted(usable), min(MAX_WORKS, len(usable))):
            history = [
                point
                for other in random.sample(others, min(models, len(others)))
                for their in random.sample(sorted(source[other]), min(3, len(source[other])))
                for point in source[other][their].values()
            ]
            yield usable[key], history


def priced_works(
    source: Source, prices: Sequence[Mapping[str, float]], models: int
) -> Iterator[tuple[Work, list[Point], dict[str, float]]]:
    """All works at all price lists, with history and log prices."""
    for number, listed in enumerate(prices):
        for work, history in works_of(source, listed, models, number):
            yield work, history, {gpu: math.log(listed[gpu]) for gpu in work}


class State:
    """What is known of the objective of all candidates after some probes."""

    def __init__(
        self,
        work: Work,
        log_prices: Mapping[str, float],
        probed: Sequence[str],
        history: list[Point],
        constants: Constants = CONSTANTS,
    ) -> None:
        self.gpus = sorted(work)
        self.rest = [gpu for gpu in self.gpus if gpu not in probed]
        first = next(iter(work.values()))
        self.posterior: Posterior = predict_log_times(
            [work[gpu] for gpu in probed], [work[gpu].target for gpu in self.rest], history=history,
            computation=Computation(first.model, first.work, first.cost), constants=constants,
        )  # fmt: skip
        mean = dict(zip(self.rest, self.posterior.mean.tolist(), strict=True))
        mean |= {gpu: work[gpu].log_seconds for gpu in probed}
        self.level = np.array([mean[gpu] + log_prices[gpu] for gpu in self.gpus])
        self.truth = np.array([work[gpu].log_seconds + log_prices[gpu] for gpu in self.gpus])
        self.sd = np.array([self.posterior.sd[self.rest.index(g)] if g in self.rest else 0.0 for g in self.gpus])
        self.choice = int(np.argmin(self.level))

    def draws(self) -> Any:
        """Joint draws of the log objective, a row per draw. Probed candidates differ between runs."""
        drawn = np.random.default_rng(1).normal(0, RUN_SPREAD, size=(DRAWS, len(self.gpus)))
        predicted = self.posterior.draws(DRAWS)
        for column, gpu in enumerate(self.rest):
            drawn[:, self.gpus.index(gpu)] = predicted[:, column]
        return drawn + self.level

    def regret(self) -> float:
        """True log regret of the choice."""
        return float(self.truth[self.choice] - self.truth.min())

    def gains(self) -> Any:
        """Expected decrease of the lowest log objective by a probe of each candidate; 0 for probed ones."""
        covariance = self.posterior.covariance
        found = np.zeros(len(self.gpus))
        for j, gpu in enumerate(self.rest):
            shift = np.zeros(len(self.gpus))
            for i, other in enumerate(self.rest):
                shift[self.gpus.index(other)] = covariance[i, j] / math.sqrt(max(covariance[j, j], 1e-12))
            found[self.gpus.index(gpu)] = expected_decrease(self.level, math.sqrt(self.posterior.scale) * shift)
        return found


def reliability(source: Source, prices: Sequence[Mapping[str, float]], probes: int, models: int) -> dict[str, Any]:
    """Observed frequencies by predicted probability, sizes of the sets, and quality of the choice."""
    said: list[float] = []
    held: list[bool] = []
    inside, size, overlapping, right, regrets, count = 0, 0, 0, 0, [], 0
    for work, history, logs in priced_works(source, prices, models):
        random = Random(f"{sorted(work)} {len(said)}")
        probed = random.sample(sorted(work), probes)
        state = State(work, logs, probed, history)
        drawn = state.draws()
        chance = np.bincount(drawn.argmin(axis=1), minlength=len(state.gpus)) / DRAWS
        best = int(np.argmin(state.truth))
        said += chance.tolist()
        held += [i == best for i in range(len(chance))]
        order = np.argsort(-chance)
        kept = order[np.cumsum(chance[order]) - chance[order] < 0.9]
        low, high = np.quantile(drawn, 0.05, axis=0), np.quantile(drawn, 0.95, axis=0)
        inside += best in kept
        size += len(kept)
        overlapping += int((low <= high[state.choice]).sum())
        right += state.choice == best
        regrets.append(math.expm1(state.regret()))
        count += 1
    which = np.clip(np.digitize(said, BINS) - 1, 0, len(BINS) - 2)
    rates = {
        f"{BINS[b]:g}-{BINS[b + 1]:g}": [int((which == b).sum()), float(np.mean(np.array(held)[which == b]))]
        for b in range(len(BINS) - 1)
        if (which == b).any()
    }
    return {
        "works": count, "best_by_probability": rates, "set_contains_best": inside / max(1, count),
        "set_size": size / max(1, count), "overlapping_size": overlapping / max(1, count),
        "choice_is_best": right / max(1, count), "mean_regret": float(np.mean(regrets)) if regrets else None,
    }  # fmt: skip


def search(
    source: Source, prices: Sequence[Mapping[str, float]], models: int, constants: Constants = CONSTANTS
) -> dict[str, Any]:
    """Probes until 90 % of the works are within 5 % of the best, and the share within 5 % where the rule stops.

    ``start`` is the share of works within 5 % without any probe, where the choice has the lowest expected objective.
    """
    enough = ENOUGH_REGRET if models else ENOUGH_REGRET_WITHOUT_HISTORY
    close: list[list[bool]] = []
    stopped: list[tuple[int, bool]] = []
    regrets: list[list[float]] = []
    for work, history, logs in priced_works(source, prices, models):
        prior = expect(work, history, constants)
        probed = [min(sorted(work), key=lambda gpu: prior[gpu] + logs[gpu])]
        truth = {gpu: work[gpu].log_seconds + logs[gpu] for gpu in work}
        losses = [truth[probed[0]] - min(truth.values())]
        end: tuple[int, bool] | None = None
        while True:
            if len(probed) == len(work):
                losses.append(0.0)
                end = end or (len(probed), True)
                break
            state = State(work, logs, probed, history, constants)
            losses.append(state.regret())
            drawn = state.draws()
            expected = float(np.mean(drawn[:, state.choice] - drawn.min(axis=1)))
            if end is None and -math.expm1(-expected) < enough:
                end = (len(probed), losses[-1] <= CLOSE)
            rate = state.gains() / np.exp([logs[gpu] for gpu in state.gpus])
            probed.append(max(state.rest, key=lambda gpu: rate[state.gpus.index(gpu)]))
        regrets.append(losses)
        close.append([loss <= CLOSE for loss in losses[1:]])
        stopped.append(end)
    most = max((len(path) for path in close), default=0)
    shares = [float(np.mean([path[min(k, len(path) - 1)] for path in close])) for k in range(most)]
    needed = next((k + 1 for k, share in enumerate(shares) if share >= 0.9), None)
    return {
        "works": len(close), "gpus": most, "probes_for_90": needed, "share_by_probes": shares[:6],
        "start": float(np.mean([losses[0] <= CLOSE for losses in regrets])) if regrets else None,
        "regret": [float(np.mean([math.expm1(losses[min(k, len(losses) - 1)]) for losses in regrets])) for k in (0, 1)]
        if regrets else None,
        "stops_after": float(np.mean([count for count, _ in stopped])) if stopped else None,
        "close_at_stop": float(np.mean([good for _, good in stopped])) if stopped else None,
    }  # fmt: skip


def expect(work: Work, history: list[Point], constants: Constants) -> dict[str, float]:
    """Expected log times without any probe; of works without description, except for a constant."""
    first, targets = next(iter(work.values())), [point.target for point in work.values()]
    if first.cost is None:
        mean = predict_log_times([first], targets, constants=constants).mean
    else:
        computation = Computation(first.model, first.work, first.cost)
        mean = predict_log_times([], targets, history=history, computation=computation, constants=constants).mean
    return dict(zip(work, mean.tolist(), strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the scores of all given files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, help="CSV files, or folders of them")
    parser.add_argument("--prices", choices=("catalog", "equal", "none"), default="catalog")
    parser.add_argument("--lists", type=int, default=8, help="number of price lists with --prices equal")
    parser.add_argument("--history", type=int, nargs="+", default=[0, 5], help="number of models in the history")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    given = parser.parse_args(arguments)
    files = [file for path in given.paths for file in (sorted(path.glob("*.csv")) if path.is_dir() else [path])]
    results = []
    for file in files:
        source, _ = read_source(file)
        priced: list[Mapping[str, float]] = [catalog_prices()]
        if given.prices == "equal":
            priced = [equal_prices(source, Random(number)) for number in range(given.lists)]
        elif given.prices == "none":
            priced = [dict.fromkeys(equal_prices(source, Random(0)), 1.0)]
        for models in given.history:
            one: dict[str, Any] = {"source": file.stem, "prices": given.prices, "history": models}
            for probes in (1, 2):
                one[f"after_{probes}"] = reliability(source, priced, probes, models)
            one["search"] = search(source, priced, models)
            results.append(one)
            if given.format == "table" and one["after_1"]["works"]:
                print(json.dumps(one), flush=True)
    if given.format == "json":
        print(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
