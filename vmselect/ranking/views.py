"""A ranking as text and as tables: verdict, rows as a DataFrame, values relative to the best, changes over the epochs.

``verdict_text.js`` of the report page writes the same verdict (tested). Also what the selection cost:
probes and study, compared with training all candidates completely.

:class:`~vmselect.ranking.result.Ranking` has a method for those that most readers want, and ``ranking.tables`` has
the others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from vmselect._checks import check_choice, check_count, check_name, check_number
from vmselect.energy.grids import DEFAULT, regions
from vmselect.energy.power import UnknownPower
from vmselect.errors import CatalogError, RankingError
from vmselect.findings import Finding, group_by_code, warnings_first
from vmselect.intervals import Interval
from vmselect.ranking.candidates import OFFER_FIELDS
from vmselect.ranking.decision import FEASIBLE, OTHER_MARKET, count_reasons, measure, unknown_co2
from vmselect.ranking.knees import epochs_until_negligible, startup_seconds, tabulate_knees
from vmselect.ranking.measures import MEASURES, describe_objective, read_measure
from vmselect.ranking.next_probe import chance_of_choice
from vmselect.ranking.rows import Floats, Ints, Row
from vmselect.units import (
    SECONDS_PER_HOUR,
    format_chance,
    format_count,
    format_epoch_count,
    format_kg,
    format_seconds,
    format_usd,
    printable,
)

if TYPE_CHECKING:
    from vmselect.catalog import Catalog
    from vmselect.ranking.estimates import MachineEstimate, MachineKey
    from vmselect.ranking.result import Ranking

HORIZON = 1_000_000
"""Number of epochs up to which crossovers are searched, more than any training takes."""
MAX_COMPUTED = 200_000
"""Maximum number of candidates times epoch counts to compute if runtimes are not linear in the number of epochs."""
SCALING_COLUMNS = (
    "rank", "gpu_model", "gpus", "nodes", "instance_type", "provider", "region", "market", "batch_size", "basis",
    "seconds", "seconds_low", "seconds_high", "cost_usd", "cost_low", "cost_high", "speed_up", "efficiency",
)  # fmt: skip
MAX_MODELS = 3
"""Maximum number of GPU models that the text about numbers of GPUs describes."""
SHORTCUTS = ("first_iteration", "second_iteration", "mean_2_10")
"""Step times by which machines are sometimes compared instead of by the whole training."""


@dataclass(frozen=True)
class Crossover:
    """A change of the best candidate: ``winner`` from ``epochs`` on, ``previous`` at fewer epochs."""

    epochs: int
    previous: str
    winner: str

    def __str__(self) -> str:
        return printable(f"from {self.epochs:,} epochs on {self.winner}, before that {self.previous}")


@dataclass(frozen=True)
class Tables:
    """Tables of a ranking that few readers need: ``ranking.tables.relative_to("g4dn.xlarge")``."""

    ranking: Ranking

    def strategies(self, objective: str = "time") -> pd.DataFrame:
        """Time or cost of each candidate relative to the best one, by the estimate and by single steps.

        The columns of single steps (first step, second step, mean of steps 2 to 10) show how far such shortcuts are
        from the estimate of the whole training.
        """
        check_choice("objective", objective, ("cost", "time"))
        candidates, column = self.ranking.candidates, self.ranking.deciding_column
        feasible = _feasible(self.ranking)
        prices = candidates.usd_per_hour[feasible] if objective == "cost" else np.ones(len(feasible))
        columns: dict[str, Floats] = {}
        for name in SHORTCUTS:
            seconds = [machine.iterations.get(name, np.nan) for machine in candidates.machine_estimates]
            columns[name] = np.array(seconds, dtype=float)[candidates.machine_estimate[feasible]] * prices
        columns["estimate"] = values_of(self.ranking, objective)[feasible, column]
        table = pd.DataFrame(columns, index=_index(self.ranking, feasible)).sort_values("estimate", kind="stable")
        return table / table.min()

    def settled_from(self, objective: str = "cost", *, up_to: int = HORIZON) -> int:
        """Number of epochs from which the order of all candidates no longer changes, up to ``up_to`` epochs."""
        # Two lines cross at most once, so once the final order is reached it stays: bisection finds that point.
        feasible, early = _search_range(self.ranking, up_to)

        def unlike_final(counts: Ints) -> Ints:
            values = _values_at(self.ranking, objective, np.append(counts, up_to))[feasible]
            orders = np.argsort(values, axis=0, kind="stable")
            differing: Ints = counts[(orders[:, :-1] != orders[:, -1:]).any(axis=0)]
            return differing

        low, high = int(early[-1]), up_to
        if not len(unlike_final(early[-1:])):
            return int(unlike_final(early).max(initial=0)) + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if len(unlike_final(np.array([middle]))) else (low, middle)
        return high

    def startup(self, share: float = 0.01) -> pd.DataFrame:
        """Seconds of initialization and first iteration of each candidate, and the epochs of which they are negligible.

        ``epochs`` is the smallest number of epochs of which they are less than ``share``; NaN if it is never reached.
        Both are NaN if neither initialization nor first iteration (or first epoch) is known.
        """
        limit = check_number("share", share, above=0, most=1)
        feasible = _feasible(self.ranking)
        runtimes = [self.ranking.candidates.of(int(candidate)).runtime for candidate in feasible]
        columns = {
            "startup_seconds": [startup_seconds(runtime) for runtime in runtimes],
            "epochs": [epochs_until_negligible(runtime, limit) for runtime in runtimes],
        }
        return pd.DataFrame(columns, index=_index(self.ranking, feasible)).astype(float)

    def knees(self) -> pd.DataFrame:
        """Examples per second of each machine by batch size; ``knee`` marks the size from which steps stop scaling.

        From there on, twice the batch raises the examples per second by less than 10 %. Machines that were probed at
        one batch size are left out.
        """
        return tabulate_knees(self.ranking.candidates.machine_estimates)

    def relative_to(self, instance_type: str) -> pd.DataFrame:
        """Price ratio, speed-up and cost ratio of each candidate to the cheapest offer of ``instance_type``."""
        instance_type = check_name("instance_type", instance_type)
        ranking, candidates, column = self.ranking, self.ranking.candidates, self.ranking.deciding_column
        names = candidates.per_machine_estimate(attrgetter("instance_type"))[ranking.in_market]
        same = ranking.in_market[names == instance_type]
        if not len(same):
            choices = ", ".join(sorted(set(names)))
            raise RankingError(f"{instance_type} is not among the candidates. Choose one of: {choices}.")
        seconds, cost = (values_of(ranking, name)[:, column] for name in ("time", "cost"))
        price = candidates.usd_per_hour
        base = same[np.argmin(cost[same])]
        # The baseline may exceed the limits: other candidates are compared with it, but it is not rented.
        order = ranking.assessment.order[column]
        order = order if base in order else np.append(order, base)
        ratios = {
            "price_ratio": price[order] / price[base],
            "speed_up": seconds[base] / seconds[order],
            "cost_ratio": cost[order] / cost[base],
        }
        return pd.DataFrame(ratios, index=_index(ranking, order))


def make_frame(ranking: Ranking, *, details: bool) -> pd.DataFrame:
    """The rows as a DataFrame; see :meth:`Ranking.to_frame`."""
    which, column = ranking.positions
    assessment, candidates = ranking.assessment, ranking.candidates
    at = which, column
    columns: dict[str, Any] = {
        "rank": assessment.rank[at], "score": assessment.score[at], "chance": assessment.chance[at],
        "tied_with_best": assessment.tied[at], "pareto": assessment.pareto[at],
        "epochs": assessment.epochs[candidates.machine_estimate[which], column],
        "price_date": candidates.column("date")[which], "usd_per_hour": candidates.usd_per_hour[which],
    }  # fmt: skip
    for name, spread in assessment.measures.items():
        columns |= zip(MEASURES[name].fields, (part[at] for part in spread), strict=True)
    columns |= {name: candidates.column(name)[which] for name in OFFER_FIELDS}
    for name in ("instance_type", "batch_size", "basis", "interval_only"):
        columns[name] = candidates.per_machine_estimate(attrgetter(name))[which]
    columns["method"] = candidates.per_machine_estimate(attrgetter("runtime.method"))[which]
    columns["title"] = [candidates.title(candidate) for candidate in which.tolist()]
    chances = {name: chance[at] for name, chance in assessment.limit_chances.items()}
    columns |= {MEASURES[name].limit.chance_column: chance for name, chance in chances.items()}  # type: ignore[union-attr]
    if details:
        places = list(zip(which.tolist(), column.tolist(), strict=True))
        columns["factors"] = candidates.per_machine_estimate(attrgetter("factors"))[which]
        columns["terms"] = [ranking.terms_of(*place) for place in places]
        columns["findings"] = [ranking.findings_of(*place) for place in places]
        columns["measures"] = [ranking.measures_of(*place) for place in places]
        columns["limit_chances"] = [{name: float(chances[name][i]) for name in chances} for i in range(len(which))]
    names = dict.fromkeys([*(field.name for field in fields(Row) if field.name in columns), *columns])
    frame = pd.DataFrame({name: columns[name] for name in names})
    if ranking.studied:
        metrics = [ranking.studied.metric(size) for size in frame["batch_size"]]
        frame.insert(list(frame.columns).index("batch_size") + 1, "metric", metrics)
    whole = (frame["epochs"] % 1 == 0).all()
    return frame.astype({"epochs": int}) if whole else frame


def relative_values(ranking: Ranking, objective: str) -> pd.DataFrame:
    """Time or cost of each candidate (row) at each epoch count (column), divided by the minimum of the column."""
    table = relative_by_candidate(ranking, objective)
    return table.set_axis(_index(ranking, table.index.to_numpy()), axis="index")


def relative_by_candidate(ranking: Ranking, objective: str) -> pd.DataFrame:
    """:func:`relative_values` with the candidates' indices as row labels, best first at the deciding epoch count."""
    values = np.where(ranking.assessment.limits == FEASIBLE, values_of(ranking, objective), np.nan)
    order = np.lexsort((np.arange(len(values)), values[:, ranking.deciding_column]))
    shown = order[np.isfinite(values[order]).any(axis=1)]
    labels: list[int | str] = list(ranking.settings.epochs) or ["study"]
    table = pd.DataFrame(values[shown], index=shown, columns=pd.Index(labels, name="epochs"))
    return table / table.min()


def find_crossovers(ranking: Ranking, objective: str, up_to: int) -> tuple[Crossover, ...]:
    """Epoch counts from 1 to ``up_to`` at which the best candidate changes, among those that are feasible."""
    # If runtimes are linear in the number of epochs, the best value is a concave envelope: a candidate that is best
    # at two epoch counts is best between them. So bisecting intervals with different ends finds all changes.
    feasible, early = _search_range(ranking, up_to)
    if not len(feasible):
        return ()

    def winners(counts: Ints) -> Ints:
        best: Ints = np.argmin(_values_at(ranking, objective, counts)[feasible], axis=0)
        return feasible[best]

    title = ranking.candidates.title
    leaders = winners(early)
    changes = [
        Crossover(int(early[i]), title(leaders[i - 1]), title(leaders[i])) for i in np.flatnonzero(np.diff(leaders)) + 1
    ]
    pending = [(int(early[-1]), int(leaders[-1]), up_to, int(winners(np.array([up_to]))[0]))]
    while pending:
        low, first, high, last = pending.pop()
        if first == last:
            continue
        if high - low == 1:
            changes.append(Crossover(high, title(first), title(last)))
            continue
        middle = (low + high) // 2
        between = int(winners(np.array([middle]))[0])
        pending += [(middle, between, high, last), (low, first, middle, between)]
    return tuple(changes)


def values_of(ranking: Ranking, objective: str) -> Floats:
    """Values of the measure ``objective``, with a row per candidate and a column per epoch count of the ranking."""
    chosen, computed = read_measure(objective), ranking.assessment.measures
    if chosen.name in computed:
        return computed[chosen.name].value
    return chosen.of(ranking.candidates, ranking.settings, computed["time"]).value


def _values_at(ranking: Ranking, objective: str, counts: Ints) -> Floats:
    """Values of ``objective``, with a row per candidate and a column per epoch count in ``counts``."""
    name, epochs = read_measure(objective).name, counts[None, :].astype(float)
    work = ranking.candidates.work(Interval.exact(epochs))
    values = measure(ranking.candidates, ranking.settings, work, [name])[name].value
    return np.where(np.isnan(values), np.inf, values)


def _feasible(ranking: Ranking) -> Ints:
    """Indices of the candidates that are feasible at the epoch count that decides the ranking."""
    return np.flatnonzero(ranking.assessment.limits[:, ranking.deciding_column] == FEASIBLE)


def _search_range(ranking: Ranking, up_to: int) -> tuple[Ints, Ints]:
    """Indices of the feasible candidates, and the epoch counts to compute one by one.

    Changes of the order after the last of these epoch counts are found by bisection. If all times and costs are
    linear in the number of epochs, bisection finds all changes, and the only epoch count returned is 1. Validation
    every few epochs and rounded bills make times and costs jump, so that the best candidate may change several
    times.
    """
    if not ranking.settings.epochs:
        raise RankingError(
            "The epochs of this ranking come from a convergence study. Call vmselect.rank with numbers of epochs."
        )
    check_count("up_to", up_to)
    feasible = _feasible(ranking)
    form, machines = ranking.candidates.form, ranking.candidates.machine_estimate[feasible]
    schedule = (form.validation_freq, form.validation_from, form.validation_until)
    every, first, last = (np.asarray(column)[machines] for column in schedule)
    always = (every == 1) & (first == 1) & np.isinf(last)
    if ranking.settings.billing == "exact" and always.all():
        return feasible, np.array([1])
    return feasible, np.arange(1, min(up_to, max(1, MAX_COMPUTED // max(1, len(feasible)))) + 1)


def _index(ranking: Ranking, which: Ints) -> pd.Index:
    """Row index of a table of the candidates ``which``: instance types and, if not unique, other columns."""
    candidates = ranking.candidates
    levels: dict[str, Any] = {
        name: candidates.per_machine_estimate(attrgetter(name))[which] for name in ("instance_type", "batch_size")
    }
    levels |= {name: candidates.column(name)[which] for name in ("provider", "service", "region", "market")}
    kept = {name: values for name, values in levels.items() if name == "instance_type" or len(set(values)) > 1}
    instance_types: pd.Index = pd.Index(kept["instance_type"], name="instance_type")
    if instance_types.is_unique or len(kept) == 1:
        return instance_types
    return pd.MultiIndex.from_arrays(list(kept.values()), names=list(kept))


def scaling_table(ranking: Ranking) -> pd.DataFrame:
    """The cheapest and the fastest row of each GPU model and total number of GPUs, at the ranking's deciding epochs.

    ``speed_up`` and ``efficiency`` are relative to the fastest row with one GPU of the same model.
    """
    column, candidates = ranking.deciding_column, ranking.candidates
    order = ranking.assessment.order[column]
    order = order[candidates.gpus[order] > 0]
    models = candidates.offers["gpu_model"].astype("category").cat
    model, gpus = models.codes.to_numpy()[candidates.offer[order]].astype(np.int64), candidates.gpus[order]
    group = model * (int(gpus.max(initial=0)) + 1) + gpus
    chosen: set[int] = set()
    for name in ("cost", "time"):  # the cheapest and the fastest of each group
        value = ranking.assessment.measures[name].value[order, column]
        sorted_by = np.lexsort((np.arange(len(order)), value, group))  # equal values: the better rank first
        chosen.update(order[sorted_by[np.unique(group[sorted_by], return_index=True)[1]]].tolist())
    rows = [(ranking.row(which, column), candidates.of(which), int(candidates.gpus[which])) for which in chosen]
    alone: dict[str | None, float] = {}
    for row, _, total in rows:
        if total == 1:
            alone[row.gpu_model] = min(row.seconds, alone.get(row.gpu_model, math.inf))
    table = []
    for row, estimate, total in sorted(rows, key=lambda entry: (str(entry[0].gpu_model), entry[2], entry[0].rank)):
        speed_up = alone.get(row.gpu_model, math.nan) / row.seconds
        own = {"gpus": total, "nodes": estimate.nodes, "speed_up": speed_up, "efficiency": speed_up / total}
        table.append({name: own[name] if name in own else getattr(row, name) for name in SCALING_COLUMNS})
    return pd.DataFrame(table, columns=list(SCALING_COLUMNS))


def describe_scaling(table: pd.DataFrame) -> str:
    """Text with the fastest and the cheapest number of GPUs of each GPU model.

    Of more than :data:`MAX_MODELS` models, those with the best rank are described. ``scaling.js`` of the report page
    writes the same text.
    """
    by_gpu: dict[str, list[dict[Hashable, Any]]] = {}
    for row in table.sort_values("rank", kind="stable").to_dict("records"):
        by_gpu.setdefault(row["gpu_model"], []).append(row)
    compared = {gpu: rows for gpu, rows in by_gpu.items() if len({row["gpus"] for row in rows}) > 1}
    texts = [_describe_gpu(gpu, rows) for gpu, rows in list(compared.items())[:MAX_MODELS]]
    if more := len(compared) - len(texts):
        texts.append(f"{more} more GPU model{'s were' if more > 1 else ' was'} ranked with several numbers of GPUs.")
    return " ".join(texts)


def _describe_gpu(gpu: str, rows: Sequence[Mapping[Hashable, Any]]) -> str:
    fastest, cheapest = (min(rows, key=lambda row: (row[name], row["gpus"])) for name in ("seconds", "cost_usd"))
    same = fastest["gpus"] == cheapest["gpus"]
    speed = ""
    if fastest["gpus"] > 1 and not math.isnan(fastest["speed_up"]):
        efficiency = format_chance(min(1.0, fastest["efficiency"]))
        speed = f" ({fastest['speed_up']:.2g} times as fast as on 1 GPU, efficiency {efficiency})"
    most = max(row["gpus"] for row in rows)
    limit = ", the largest number ranked" if fastest["gpus"] == most else "; more GPUs make it slower"
    least = "" if same else f" It costs least on {_count_gpus(cheapest['gpus'])}."
    both = " and costs least" if same else ""
    return f"{gpu}: the training is fastest{both} on {_count_gpus(fastest['gpus'])}{speed}{limit}.{least}"


def _count_gpus(gpus: int) -> str:
    return f"{gpus} GPU" if gpus == 1 else f"{gpus} GPUs"


# -- cost of selection -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SelectionCost:
    """Cost of the probes, and exhaustive cost: the cost of the whole training on every measured machine."""

    probe_seconds: float
    probe_usd: float
    exhaustive_seconds: float
    exhaustive_usd: float
    without_times: tuple[str, ...] = ()
    """Titles of machines and runs that the sums do not include because their price or time is not known."""

    @property
    def total_usd(self) -> float:
        """Total cost of selection, in USD."""
        return self.probe_usd

    @property
    def fraction(self) -> float:
        """Total cost of selection divided by the exhaustive cost."""
        return self.total_usd / self.exhaustive_usd if self.exhaustive_usd else float("nan")


@dataclass(frozen=True, kw_only=True)
class MethodologyCost(SelectionCost):
    """Cost of the study's runs and of the probes, and exhaustive cost: the cost of training all pairs completely.

    A pair is an instance type with a batch size.
    """

    study_seconds: float
    study_usd: float

    @property
    def total_usd(self) -> float:
        """Total cost of study and probes, in USD."""
        return self.study_usd + self.probe_usd


Spent = tuple[str, float | None, float | None]
"""Title of a machine or run, its time in seconds and its price in USD per hour; None if not known."""


def sum_selection_cost(ranking: Ranking, trainings: int | None = None) -> SelectionCost:
    """Return what the probes (and the study) of ``ranking`` cost, and what whole trainings on every machine would cost.

    Each machine counts at its lowest price in the ranking. ``trainings`` is the number of whole trainings of each
    machine. By default, a machine that was probed twice counts as two whole trainings; with a study, there are as many
    whole trainings of each pair of instance type and batch size as the study has runs at that batch size (at least
    one).
    """
    prices, studied = _cheapest(ranking), ranking.studied

    def spend(machine: MachineEstimate, seconds: float | None) -> Spent:
        return machine.title, seconds, prices.get(machine.machine_key)

    if studied is None:
        machine_estimates = ranking.candidates.machine_estimates
        probed = [spend(machine, machine.probe_seconds) for machine in machine_estimates]
        epochs = ranking.assessment.epochs[:, ranking.deciding_column]
        full = [
            spend(machine, machine.runtime.seconds(float(n)) * (trainings or machine.repetitions))
            for machine, n in zip(machine_estimates, epochs, strict=True)
            if machine.probe_seconds is not None
        ]
        return SelectionCost(**_sum("probe", probed), **_sum("exhaustive", full), without_times=_name_unknown(probed))
    study, catalog = studied.study, studied.catalog
    for machine in studied.measured:
        if machine.machine_key not in prices and (usd := _offered(catalog, machine.instance_type)) is not None:
            prices[machine.machine_key] = usd * machine.nodes
    cheapest = min(
        (prices[machine.machine_key] for machine in studied.measured if machine.machine_key in prices), default=None
    )
    trained = [
        (f"study, batch {r.batch_size}", r.fit_seconds, _offered(catalog, r.instance_type) or cheapest)
        for r in study.runs
    ]
    probed = [spend(machine, machine.probe_seconds) for machine in studied.measured]
    repetitions = {size: trainings or len(study.runs_at(size)) for size in study.batch_sizes}
    full = [
        spend(
            machine,
            machine.runtime.seconds(machine.epochs.value) * repetitions.get(machine.batch_size or 0, trainings or 1),
        )
        for machine in studied.pairs
        if machine.epochs
    ]
    return MethodologyCost(
        **_sum("study", trained),
        **_sum("probe", probed),
        **_sum("exhaustive", full),
        without_times=_name_unknown([*trained, *probed]),
    )


def _sum(name: str, spent: Iterable[Spent]) -> dict[str, float]:
    priced = [(seconds, price) for _, seconds, price in spent if seconds is not None and price is not None]
    usd = math.fsum(seconds * price for seconds, price in priced) / SECONDS_PER_HOUR
    return {f"{name}_seconds": math.fsum(seconds for seconds, _ in priced), f"{name}_usd": usd}


def _name_unknown(spent: Iterable[Spent]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(title for title, *numbers in spent if None in numbers))


def _cheapest(ranking: Ranking) -> dict[MachineKey, float]:
    """Lowest price in USD per hour of each machine (by machine key) in the chosen markets."""
    candidates = ranking.candidates
    cheapest = np.full(len(candidates.machine_estimates), np.inf)
    sold = ranking.assessment.limits[:, ranking.deciding_column] != OTHER_MARKET
    np.minimum.at(cheapest, candidates.machine_estimate[sold], candidates.usd_per_hour[sold])
    prices: dict[MachineKey, float] = {}
    for machine, usd in zip(candidates.machine_estimates, cheapest.tolist(), strict=True):
        if math.isfinite(usd):
            prices[machine.machine_key] = min(prices.get(machine.machine_key, math.inf), usd)
    return prices


def _offered(catalog: Catalog | None, instance_type: str | None) -> float | None:
    """Lowest price in USD per hour of ``instance_type`` in the catalog; None if it has no price."""
    if catalog is None or instance_type is None:
        return None
    try:
        offers = catalog.offers(instance_type=instance_type)
    except CatalogError:  # the catalog does not know the instance type
        return None
    return float(offers["usd_per_hour"].min()) if len(offers) else None


SHOWN = 3
"""Maximum number of rivals that a text describes."""
REASONS = {
    "below_required_metric": "misses the required metric",
    "co2_unknown": "emits an unknown amount of CO2",
    "contradictory_records": "cannot be predicted from contradictory records",
    "implausible_price": "has only an implausible price",
    "energy_unknown": "uses an unknown amount of energy",
    "epochs_unknown": "needs an unknown number of epochs",
    "filtered": "is left out by the filters",
    "input_bound": "cannot be predicted from steps that are limited by CPU or input",
    "interrupted_too_often": "is interrupted too often on the spot market",
    "metric_unknown": "has an unknown final metric",
    "never_probed": "was never probed",
    "no_cost": "cannot be predicted without the operations of a step",
    "no_estimate": "cannot be estimated",
    "no_gpu": "has no GPU",
    "no_gpu_figures": "has no published GPU figures",
    "no_gpu_probed": "cannot be predicted without a probe on a GPU",
    "no_price": "has no price",
    "no_probe_to_predict_from": "cannot be predicted from these profiles",
    "no_steps": "cannot be predicted without step times",
    "no_transfer": "has no measured transfer time",
    "no_two_node_probe": "was not probed on two nodes",
    "other_batch_size": "was measured at another batch size",
    "other_vendor": "has a GPU of a vendor that was not probed",
    "out_of_memory": "ran out of memory",
    "over_budget": "is over the budget",
    "over_co2_limit": "is over the CO2 limit",
    "over_deadline": "is over the deadline",
    "retired": "can no longer be rented",
    "several_gpus": "cannot be predicted from a probe on several GPUs",
    "share_of_gpu": "has only a share of a GPU",
    "stale_price": "has only a stale price",
    "too_disturbed": "was measured under too much disturbance",
    "too_little_gpu_memory": "has too little GPU memory",
    "too_many_gpus": "has too many GPUs to be predicted",
    "too_many_nodes": "has too many nodes to be predicted",
    "unknown_instance_type": "has no instance type in its profile",
    "unused_gpu": "has a GPU that the training did not use",
}
"""Verb phrase that explains the exclusion of one candidate, by reason code; ``verdict_text.js`` has the same table."""
PLURALS = {"emits": "emit", "has": "have", "is": "are", "misses": "miss", "needs": "need", "uses": "use", "was": "were"}
"""Plurals of the verbs with which the texts of :data:`REASONS` begin; other verbs have the same form."""
BASIS_MARKS = {"predicted": "never probed", "described": "described only"}
"""Marks of rows that were not measured, by basis; ``numbers.js`` has the same ones."""
NOT_MEASURED = {
    "described": "All times above are predicted from the description of the model, not from a probe.",
    "predicted": "All times above are predicted from probes of other machines.",
}
"""Line below a table whose rows all have this basis. If they differ, they have a column."""
SIMILAR = "+1, +2 ...: further machines of the provider with this GPU, time and cost; best counts them, too."
"""Line below a table in which rows are folded."""
MARKET_NAMES = {
    "on_demand": "on demand", "spot": "spot",
    "reserved_1y": "reserved for 1 year", "reserved_3y": "reserved for 3 years",
}  # fmt: skip
"""Markets in words; ``verdict_text.js`` has the same table."""
SUPERLATIVES = {"cost": "cheapest", "time": "fastest", "energy": "the lowest in energy", "co2": "the cleanest"}
"""Word for the best candidate by each measure; ``verdict_text.js`` has the same table."""
PROVIDER_NAMES = {
    "aws": "AWS", "azure": "Azure", "cudo": "Cudo", "do": "DigitalOcean", "fluidstack": "FluidStack",
    "gcp": "Google Cloud", "hyperbolic": "Hyperbolic", "hyperstack": "Hyperstack", "ibm": "IBM Cloud",
    "lambda": "Lambda", "nebius": "Nebius", "oci": "Oracle Cloud", "ovhcloud": "OVHcloud", "paperspace": "Paperspace",
    "primeintellect": "Prime Intellect", "runpod": "RunPod", "scaleway": "Scaleway", "scp": "Samsung Cloud",
    "seeweb": "Seeweb", "shadeform": "Shadeform", "vast": "Vast.ai", "verda": "Verda", "vultr": "Vultr",
    "yotta": "Yotta",
}  # fmt: skip
"""Names of providers as they spell them; a page contains those of its own providers."""
NEARLY_AS_GOOD, MUCH_LESS = 1.1, 0.8
"""Limits for an alternative: its score is at most 10 % worse than that of the choice, and a measure that is not in the
objective is at least 20 % lower. Chosen by judgement."""
MUCH_CLEANER = 0.8
"""A region is suggested if it causes at most this share of the CO2. Chosen by judgement."""


def _never_probed(ranking: Ranking) -> str:
    """Sentence: that the choice was not probed. A described choice is called probable instead, if there are others."""
    alone = len(ranking.deciding_rows) == 1
    unprobed = ranking.best.basis == "predicted" or (ranking.best.basis == "described" and alone)
    return " It was never probed." if unprobed else ""


def _consumption(ranking: Ranking) -> str:
    """Sentence on energy and CO2 of the choice, if the settings ask for them and they are known."""
    best = ranking.best
    shown = [name for name in ranking.settings.measured if MEASURES[name].optional and best.measures[name] is not None]
    used = [f"{MEASURES[name].verb} {measure_text(best, name)} of {MEASURES[name].title or name}" for name in shown]
    return f" It {' and '.join(used)}." if used else ""


def verdict(ranking: Ranking) -> str:
    """The verdict: the machine to rent with its probability of being best, time and cost, and alternatives."""
    return " ".join(filter(None, (headline(ranking), details(ranking))))


def headline(ranking: Ranking) -> str:
    """One line: the machine to rent, where, its price per hour, and the probability that it is the best choice."""
    if not ranking:
        return nothing_feasible(ranking)
    best, column = ranking.best, ranking.deciding_column
    name = f"{best.factors['nodes']} x {best.instance_type}" if best.factors.get("nodes", 1) > 1 else best.instance_type
    where = " ".join(filter(None, (PROVIDER_NAMES.get(best.provider, best.provider), best.region)))
    rent = f"{name} at {where} {MARKET_NAMES.get(best.market, best.market)}, {format_usd(best.usd_per_hour)}/h"
    if len(ranking.assessment.order[column]) == 1:
        return printable(f"Rent {rent}: the only candidate.")
    described = best.basis == "described"
    chance = chance_of_choice(ranking) if described else best.chance
    start = "Probably rent" if described else "Rent"
    # Which of the machines with the same GPU is the best, a description does not tell.
    claim = "its GPU is" if described and best.gpu_model else "of being"
    return printable(f"{start} {rent} ({format_chance(chance)} chance {claim} {_superlative(ranking)}).")


def details(ranking: Ranking) -> str:
    """Time and cost of the choice, how many candidates it was chosen from, alternatives, and what a probe would add."""
    if not ranking:
        return ""
    best, result, column = ranking.best, ranking.assessment, ranking.deciding_column
    order = [int(i) for i in result.order[column]]
    settings = [f"at batch {best.batch_size}"] if best.batch_size else []
    varied = ranking.candidates.of(order[0]).varied
    settings += [varied] if varied else []
    take, cost = ("takes", "costs") if best.epochs == 1 else ("take", "cost")
    run = f"{format_epoch_count(best.epochs)} {', '.join(settings)}".rstrip()
    run = printable(f"{run} {take} {best.time_text} and {cost} {best.cost_text}")
    if len(order) == 1:
        return f"{run}.{_never_probed(ranking)}{_consumption(ranking)}"
    objective = describe_objective(ranking.settings.objective)
    aim = MEASURES[objective].aim if objective in MEASURES else f"best {objective}"
    claim = f"{run}: the {aim} of {len(order):,} candidates."
    rivals = sorted((i for i in order[1:] if result.tied[i, column]), key=lambda i: -result.chance[i, column])
    # The table names the others, so that the verdict stays short.
    if len(rivals) > 1:
        others = f" {len(rivals):,} others may be the best."
    elif rivals:
        rival = format_chance(float(result.chance[rivals[0], column]))
        others = f" It may also be {_brief(ranking, rivals[0])[:-1]}, {rival})."
    else:
        others = _alternative(ranking, order)
    return f"{claim}{_never_probed(ranking)}{_consumption(ranking)}{others}{_worth_of_probe(ranking)}"


def _superlative(ranking: Ranking) -> str:
    """Word for the best candidate by the objective, such as "cheapest"."""
    return SUPERLATIVES.get(describe_objective(ranking.settings.objective), "the best")


def _worth_of_probe(ranking: Ranking) -> str:
    """Sentence: to what probability the next probe raises that of a described choice."""
    probe = ranking.next_probe if ranking.best.basis == "described" else None
    if probe is None:
        return ""
    raised = f"for {format_usd(probe.probe_usd)} raises the chance to {format_chance(probe.chance_after)}"
    return f" A probe on {printable(probe.instance_type)} {raised}."


def _brief(ranking: Ranking, candidate: int) -> str:
    """Title, cost and time of a candidate."""
    measures = ranking.measures_of(candidate, ranking.deciding_column)
    cost, time = measures["cost"], measures["time"]
    if ranking.candidates.of(candidate).interval_only:
        costs, times = (
            f"{write(low)} to {write(high)}" for (_, low, high), write in ((cost, format_usd), (time, format_seconds))
        )
    else:
        costs, times = format_usd(cost.value), format_seconds(time.value)
    return f"{ranking.candidates.title(candidate)} ({costs} in {times})"


def _alternative(ranking: Ranking, order: Sequence[int]) -> str:
    """Sentence on a candidate that is nearly as good as the choice, and much better in a measure that has no weight."""
    column = ranking.deciding_column
    for name in (name for name, weight in ranking.settings.objective.items() if not weight):
        near = [
            i
            for i in order[1:]
            if ranking.assessment.score[i, column] <= NEARLY_AS_GOOD and not ranking.candidates.of(i).interval_only
        ]
        values = ranking.assessment.measures[name].value[:, column]
        rival = min(near, key=lambda i: values[i], default=order[0])
        if values[rival] <= MUCH_LESS * values[order[0]]:
            less = " instead of ".join(MEASURES[name].format(float(values[i])) for i in (rival, order[0]))
            worse = float(ranking.assessment.score[rival, column] / ranking.assessment.score[order[0], column] - 1)
            return f" {_brief(ranking, rival)} is nearly as good ({worse:.0%} worse) with a {name} of {less}."
    return ""


def as_text(ranking: Ranking, *, shown: int = 10) -> str:
    """Text with verdict, table of the best rows, excluded candidates and findings."""
    if not ranking:
        return verdict(ranking)
    rows = ranking.deciding_rows[:shown]
    more_measures = [name for name in ranking.settings.measured if MEASURES[name].optional]
    heads = [MEASURES[name].title or name for name in more_measures]
    table = [("", "instance type", "where", "market", "batch", "time", "cost", *heads, "score", "best", "")]
    for row in rows:
        table.append(
            (str(row.rank), row.instance_type, f"{row.provider} {row.region}", row.market, str(row.batch_size or "?"),
             row.time_text, row.cost_text, *(measure_text(row, name) for name in more_measures), f"{row.score:.2f}",
             format_chance(row.chance), marks(row))
        )  # fmt: skip
    widths = [max(len(line[k]) for line in table) for k in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
    more = len(ranking.deciding_rows) - len(rows)
    tail = [f"... and {more:,} more"] if more > 0 else []
    study = [f"\n{ranking.study}"] if ranking.study else []
    return "\n".join([verdict(ranking), "", *lines, *tail, *remarks(ranking, rows), *study])


def measure_text(row: Row, name: str) -> str:
    """Text with the measure ``name`` of a row and its interval."""
    spread, write = row.measures[name], MEASURES[name].format
    return "unknown" if spread is None else row.text_of(spread, write)


def marks(row: Row) -> str:
    """Text of the last cell of a row: ``pareto``, a mark of its basis, and the largest speed-up by a faster GPU."""
    return ", ".join(filter(None, ("pareto" if row.pareto else "", BASIS_MARKS.get(row.basis, ""), row.bound)))


class Line(NamedTuple):
    """A line of the table: a row, and the rows below it that do not differ in what decides."""

    row: Row
    similar: Sequence[Row]


def fold_similar(rows: Iterable[Row], top: int) -> list[Line]:
    """The first ``top`` lines of a table of ``rows``.

    Providers sell one GPU with many sizes of the host. A prediction from the GPU gives them equal times, and at an
    equal price they would fill the table, so that only the first of them has a line. Measured rows are never folded.
    """
    lines: dict[Any, list[Row]] = {}
    for row in rows:
        alike = (row.provider, row.market, row.gpu_model, row.gpu_count, row.batch_size, row.seconds, row.cost_usd)
        lines.setdefault((row.rank, row.epochs) if row.basis == "measured" else (row.epochs, *alike), []).append(row)
    return [Line(first, similar) for first, *similar in itertools.islice(lines.values(), top)]


def remarks(ranking: Ranking, rows: Sequence[Row]) -> list[str]:
    """Lines below a table of ``rows``: excluded candidates with reasons, and findings."""
    lines = [f"Next: {ranking.next_probe}"] if ranking.next_probe else []
    lines += [ranking.scaling_verdict] if ranking.scaling_verdict else []
    if ranking.deciding_excluded:
        lines.append(f"Excluded: {describe_exclusions(ranking)}; see ranking.excluded.")
        lines += [f"  {excluded}" for excluded in ranking.deciding_excluded[:SHOWN]]
    return lines + describe_findings(ranking, rows)


def describe_findings(ranking: Ranking, rows: Sequence[Row]) -> list[str]:
    """A line per kind of finding about the ranking or one of ``rows``, with the ranks that it concerns."""
    about: dict[Finding, list[int]] = {finding: [] for finding in ranking.findings}
    for row in rows:
        for finding in row.findings:
            about.setdefault(finding, []).append(row.rank)
    lines = []
    for kind in group_by_code(warnings_first(about)).values():
        # Findings of one kind mostly differ in numbers: that of the best row is printed, and the ranks of the others.
        first, *others = sorted(kind, key=lambda finding: min(about[finding], default=0))
        ranks = about[first]
        more = {rank for other in others for rank in about[other]}.difference(ranks)
        similar = f"; similar: {_join_ranks(more)}" if more else ""
        noun = "row" if len(ranks) == 1 else "rows"
        where = f" ({noun} {_join_ranks(ranks)}{similar})" if ranks and len(ranks) < len(rows) else ""
        lines.append(f"{first.severity.capitalize()}{where}: {first}")
    return lines


def _join_ranks(ranks: Iterable[int]) -> str:
    """Text of ranks, such as "1-3, 7"."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def nothing_feasible(ranking: Ranking) -> str:
    """Verdict if all candidates are excluded: their number for each reason, and the nearest candidate or an example.

    The nearest candidate is the one that exceeds its limits least; the text states by how much. If no candidate was
    excluded because of a limit, the text has an excluded candidate with the most frequent reason instead.
    """
    reasons = count_reasons(ranking)
    if not reasons:
        return "Nothing is feasible: there are no candidates."
    if short := ranking.shortfall:
        return f"Nothing is feasible: {describe_exclusions(ranking)}. {short}"
    most = reasons.most_common(1)[0][0]
    example = next(excluded for excluded in ranking.deciding_excluded if excluded.reason_code == most)
    return f"Nothing is feasible: {describe_exclusions(ranking)}. For example, {example}."


def describe_exclusions(ranking: Ranking) -> str:
    """Text with the number of excluded candidates for each reason."""
    return ", ".join(describe_reason(code, count) for code, count in count_reasons(ranking).most_common())


def describe_reason(code: str, count: int) -> str:
    """Text: that ``count`` candidates are excluded with the reason ``code``.

    >>> describe_reason("no_price", 1), describe_reason("over_deadline", 2)
    ('1 candidate has no price', '2 candidates are over the deadline')
    """
    verb, _, rest = REASONS.get(code, f"is excluded ({code.replace('_', ' ')})").partition(" ")
    return f"{format_count(count, 'candidate')} {verb if count == 1 else PLURALS.get(verb, verb)} {rest}"


def energy_findings(ranking: Ranking) -> list[Finding]:
    """Findings about the energy and CO2 of the best candidate: what the numbers contain, and a cleaner region."""
    candidates, settings, column = ranking.candidates, ranking.settings, ranking.deciding_column
    best = int(ranking.assessment.order[column][0])
    power = candidates.power.powers[int(candidates.machine_estimate[best])]
    if isinstance(power, UnknownPower):
        message = f"The energy of {candidates.title(best)} is unknown: {power.problem}."
        return [Finding("energy-unknown", message, _sentence(power.remedy), "info")]
    findings = []
    if power.basis == "predicted":
        message = f"The energy of {candidates.title(best)} is predicted from the fraction of TDP on other GPUs."
        remedy = "Probe this machine: its power is then measured, if its driver reports it."
        findings.append(Finding("energy-predicted", message, remedy, "info"))
    elif power.basis != "measured":
        low, high = (f"{part:.0f}" for part in power.interval(settings.confidence)[1:])
        source = "the description of the training" if power.basis == "described" else "typical trainings"
        message = (
            f"No power was measured: the energy of {candidates.title(best)} is computed from a power of "
            f"{power.watts:.0f} W ({low} to {high} W), by the fraction of TDP of {source}."
        )
        remedy = "Probe this machine: its power is then measured, if its driver reports it."
        findings.append(Finding("energy-assumed", message, remedy, "info"))
    offer, emissions = candidates.identity(best), settings.emissions or DEFAULT
    factor = emissions.factor(offer["provider"], offer["region"])
    if factor is None:
        problem, remedy = unknown_co2(settings, offer)
        return [*findings, Finding("co2-unknown", _sentence(problem), _sentence(remedy), "info")]
    basis = "market-based" if emissions.basis == "market" else "location-based"
    message = (
        f"CO2 is that of the electricity of the training ({basis}, {factor.grid_g_per_kwh:.3g} g per kWh, "
        f"{factor.source}). Making the hardware (embodied carbon) is excluded."
    )
    remedy = "Pass emissions= to use your own grid intensity or PUE."
    findings.append(Finding("co2-scope", message, remedy, "info"))
    cleaner = _cleaner_region(ranking, best, offer, factor.kg_per_kwh)
    return [*findings, cleaner] if cleaner else findings


def _sentence(phrase: str) -> str:
    return f"{phrase[0].upper()}{phrase[1:]}."


def _cleaner_region(ranking: Ranking, best: int, offer: Mapping[str, Any], now: float) -> Finding | None:
    """The region of the same provider in which the same machine causes least CO2, if it is much less."""
    emissions = ranking.settings.emissions or DEFAULT
    # With an intensity for all machines, no region is cleaner than another.
    if emissions.grid_g_per_kwh is not None or emissions.hourly is not None or now <= 0:
        return None
    factors = {
        place.region: factor.kg_per_kwh
        for place in regions().values()
        if place.provider == offer["provider"] and (factor := emissions.factor(place.provider, place.region))
    }
    offers = ranking.candidates.offers
    same = offers[
        (offers["instance_type"] == offer["instance_type"]) & (offers["provider"] == offer["provider"])
        & (offers["market"] == offer["market"]) & ~offers["retired"].astype(bool) & ~offers["stale"].astype(bool)
    ]  # fmt: skip
    if (catalog := ranking.inputs.catalog) is not None:
        same = same[~catalog.is_implausible(same)]
    prices = dict(zip(same["region"].astype(str), same["usd_per_hour"].astype(float), strict=True))
    sold = [region for region in factors if region in prices]
    # Without a price in another region, the cleanest region of the provider is named.
    cleanest = min(sold or factors, key=lambda region: (factors[region], region), default=None)
    if cleanest is not None and factors[cleanest] > MUCH_CLEANER * now:
        cleanest = min(factors, key=lambda region: (factors[region], region))
    if cleanest is None or factors[cleanest] > MUCH_CLEANER * now:
        return None
    co2 = ranking.measures_of(best, ranking.deciding_column)["co2"]
    assert co2 is not None
    there = f"{format_kg(co2.value * factors[cleanest] / now)} instead of {format_kg(co2.value)} of CO2"
    if cleanest in prices:
        here = format_usd(prices.get(offer["region"], math.nan))
        cost = f"at {format_usd(prices[cleanest])} per hour instead of {here}"
        remedy = f"Pass region={cleanest!r} (--region {cleanest}) to rank there."
    else:
        cost = "at a price that the catalog does not have"
        remedy = f"Run `vmselect prices refresh --source skypilot --region {cleanest}`, then rank in {cleanest}."
    message = f"{offer['instance_type']} in {cleanest} would cause {there}, {cost}."
    return Finding("cleaner-region", message, remedy, "info")
