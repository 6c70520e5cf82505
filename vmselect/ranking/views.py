"""Tables of a ranking: its rows as a DataFrame, values relative to the best, changes of the best over the epochs.

Also what the selection cost: probes and study, compared with training all candidates completely.

:class:`~vmselect.ranking.result.Ranking` has a method for those that most readers want, and ``ranking.tables`` has
the others.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from vmselect._checks import check_choice, check_count, check_name
from vmselect.errors import CatalogError, RankingError
from vmselect.intervals import Interval
from vmselect.ranking.candidates import OFFER_FIELDS
from vmselect.ranking.decision import FEASIBLE, OTHER_MARKET, measure
from vmselect.ranking.measures import MEASURES, read_measure
from vmselect.ranking.rows import Floats, Ints, Row
from vmselect.units import SECONDS_PER_HOUR, format_chance, printable

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


def make_frame(ranking: Ranking) -> pd.DataFrame:
    """The rows as a DataFrame, with the fields of :class:`Row` and of the measures asked for as columns."""
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
    for name in ("instance_type", "batch_size", "factors", "basis"):
        columns[name] = candidates.per_machine_estimate(attrgetter(name))[which]
    columns["method"] = candidates.per_machine_estimate(attrgetter("runtime.method"))[which]
    places = list(zip(which.tolist(), column.tolist(), strict=True))
    columns["terms"] = [ranking.terms_of(*place) for place in places]
    columns["findings"] = [ranking.findings_of(*place) for place in places]
    columns["title"] = [candidates.title(candidate) for candidate, _ in places]
    columns["measures"] = [ranking.measures_of(*place) for place in places]
    chances = {name: chance[at] for name, chance in assessment.limit_chances.items()}
    columns["limit_chances"] = [{name: float(chances[name][i]) for name in chances} for i in range(len(which))]
    columns |= {MEASURES[name].limit.chance_column: chance for name, chance in chances.items()}  # type: ignore[union-attr]
    names = dict.fromkeys([*(field.name for field in fields(Row)), *columns])
    frame = pd.DataFrame({name: columns[name] for name in names})
    if ranking.studied:
        metrics = [ranking.studied.metric(size) for size in frame["batch_size"]]
        frame.insert(list(frame.columns).index("batch_size") + 1, "metric", metrics)
    whole = (frame["epochs"] % 1 == 0).all()
    return frame.astype({"epochs": int}) if whole else frame


def relative_values(ranking: Ranking, objective: str) -> pd.DataFrame:
    """Time or cost of each candidate (row) at each epoch count (column), divided by the minimum of the column."""
    values = np.where(ranking.assessment.limits == FEASIBLE, values_of(ranking, objective), np.nan)
    order = np.lexsort((np.arange(len(values)), values[:, ranking.deciding_column]))
    shown = order[np.isfinite(values[order]).any(axis=1)]
    labels: list[int | str] = list(ranking.settings.epochs) or ["study"]
    table = pd.DataFrame(values[shown], index=_index(ranking, shown), columns=pd.Index(labels, name="epochs"))
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


def sum_selection_cost(ranking: Ranking) -> SelectionCost:
    """Return what the probes (and the study) of ``ranking`` cost, and what whole trainings on every machine would cost.

    Each machine counts at its lowest price in the ranking. A machine that was probed twice counts as two whole
    trainings. With a study, there are as many whole trainings of each pair of instance type and batch size as the study
    has runs at that batch size (at least one).
    """
    prices, studied = _cheapest(ranking), ranking.studied

    def spend(machine: MachineEstimate, seconds: float | None) -> Spent:
        return machine.title, seconds, prices.get(machine.machine_key)

    if studied is None:
        machine_estimates = ranking.candidates.machine_estimates
        probed = [spend(machine, machine.probe_seconds) for machine in machine_estimates]
        epochs = ranking.assessment.epochs[:, ranking.deciding_column]
        full = [
            spend(machine, machine.runtime.seconds(float(n)) * machine.repetitions)
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
    repetitions = {size: len(study.runs_at(size)) for size in study.batch_sizes}
    full = [
        spend(machine, machine.runtime.seconds(machine.epochs.value) * repetitions.get(machine.batch_size or 0, 1))
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
