"""Forecast records of a ranking, and its estimates compared with real trainings that were measured to their end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vmselect._checks import check_count
from vmselect.errors import ArgumentError, RankingError
from vmselect.intervals import Interval
from vmselect.ranking.measures import MEASURES
from vmselect.records import Forecast, Profile
from vmselect.records.base import new_id
from vmselect.records.forecast import Bounds, Source, find_gpu, make_forecast
from vmselect.records.identity import Identity, group_repetitions, read_records
from vmselect.scoring.forecast import Unscored, error_percent, list_run_seconds
from vmselect.scoring.score import MEASURED, Accuracy, AccuracyRow, kendall_tau
from vmselect.scoring.score import regret as measure_regret

if TYPE_CHECKING:
    from vmselect.ranking.result import Ranking


@dataclass(frozen=True)
class Inputs:
    """Inputs of a ranking besides its profiles: what the user passed of the workload, and IDs of history records.

    ``example`` is True for a ranking of example records, whose prices are old on purpose.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    history: tuple[str, ...] = ()
    example: bool = False


def make_forecasts(ranking: Ranking, top: int) -> list[Forecast]:
    """Return at most ``top`` forecasts, for the best offers. Each machine and batch size has one forecast."""
    top = check_count("top", top)
    column, together = ranking.deciding_column, new_id()
    forecasts: dict[int, Forecast] = {}
    for candidate in ranking.assessment.order[column]:
        position = int(ranking.candidates.machine_estimate[candidate])
        if position not in forecasts:
            forecasts[position] = _make_forecast(ranking, int(candidate), column, together)
        if len(forecasts) == top:
            break
    return list(forecasts.values())


def _make_forecast(ranking: Ranking, candidate: int, column: int, together: str) -> Forecast:
    row, machine = ranking.row(candidate, column), ranking.candidates.of(candidate)
    # A predicted machine has no records of its own: the forecast used those of the probed machines.
    records = machine.records or tuple(
        record
        for other in ranking.candidates.machine_estimates
        for record in other.records
        if other.batch_size == machine.batch_size
    )
    arguments = dict(ranking.inputs.arguments)
    if machine.basis != "measured":
        arguments["batch_size"] = machine.batch_size
    predicted = machine.basis == "predicted"
    history = ranking.inputs.history if predicted else ()
    source = Source(records=records, arguments=arguments, basis=machine.basis, history=history)
    seconds = Interval(row.seconds, row.seconds_low, row.seconds_high)
    if machine.adjustment:
        source = replace(source, own=machine.adjustment.undo(seconds))
    gpu = row.gpu_model or (None if predicted else find_gpu(records))
    return make_forecast(
        source, Identity.of_settings(machine.instance_type, row.provider, machine.factors), seconds,
        epochs=float(row.epochs), method=row.method, confidence=ranking.settings.confidence, region=row.region,
        cost_usd=Bounds(value=row.cost_usd, low=row.cost_low, high=row.cost_high), usd_per_hour=row.usd_per_hour,
        market=row.market, price_date=row.price_date, gpu=gpu, ranking=together, rank=row.rank,
        chance=min(1.0, max(0.0, row.chance)), findings=row.findings,
    )  # fmt: skip


def compare_with_real(ranking: Ranking, watched: Profile | Iterable[Profile]) -> Accuracy:
    """Compare the estimates of ``ranking`` with ``watched`` trainings; see :meth:`Ranking.against`."""
    profiles = read_records(watched, Profile, error=RankingError)
    used = {record.id for machine in ranking.candidates.machine_estimates for record in machine.records}
    for profile in profiles:
        if profile.total_seconds is None:
            raise ArgumentError(
                f"{profile.title}: the profile has no total time. Measure whole trainings with "
                "IterationProbe(stop=False), or pass total_seconds= to Profile.from_times."
            )
        if profile.id in used:
            raise ArgumentError(
                f"{profile.title}: this training is also a profile of the ranking, so it does not test the estimate. "
                "Rank the other profiles only."
            )
    rows: list[AccuracyRow] = []
    excluded: list[Unscored] = []
    for identity, group in group_repetitions(profiles).items():
        for epochs in dict.fromkeys(profile.epochs_trained for profile in group):
            same = [profile for profile in group if profile.epochs_trained == epochs]
            row = _make_row(ranking, identity, same, epochs)
            if isinstance(row, Unscored):
                excluded.append(row)
            else:
                rows.append(row)
    if not rows:
        reasons = "; ".join(map(str, excluded[:3]))
        raise RankingError(
            f"The ranking estimates none of these trainings: {reasons}. Rank profiles of the same machines."
        )
    rows.sort(key=lambda row: (row.epochs, row.seconds, row.title))
    # Without a study, the order of machines is only meaningful among trainings of as many epochs.
    comparable = bool(ranking.studied) or len({(row.batch_size, row.epochs) for row in rows}) == len(
        {row.batch_size for row in rows}
    )
    pairs = {"time": [(row.seconds, row.real_seconds) for row in rows]}
    pairs["cost"] = [(row.cost_usd, row.real_cost_usd) for row in rows]
    ordered = comparable and len(rows) > 1
    return Accuracy(
        rows=tuple(rows),
        kendall_tau={name: kendall_tau(pairs[name]) if ordered else None for name in MEASURED},
        regret={name: measure_regret(pairs[name]) if ordered else None for name in MEASURED},
        excluded=tuple(excluded),
        confidence=ranking.settings.confidence,
    )


def _make_row(
    ranking: Ranking, identity: Identity, group: Sequence[Profile], epochs: int | None
) -> AccuracyRow | Unscored:
    candidates, title = ranking.candidates, group[0].title
    factors = identity.settings
    machines = {
        position
        for position, machine in enumerate(candidates.machine_estimates)
        if machine.instance_type == identity.instance_type
        and machine.factors == factors
        and (machine.provider is None or identity.provider is None or machine.provider == identity.provider)
    }
    # The best-ranked offer of the machine states its price; an offer that misses a limit is better than none.
    ranked = [int(candidate) for candidate in ranking.assessment.order[ranking.deciding_column]]
    others = [int(candidate) for candidate in ranking.in_market if int(candidate) not in set(ranked)]
    offers = [candidate for candidate in ranked + others if int(candidates.machine_estimate[candidate]) in machines]
    if not offers:
        return Unscored(title, "no_estimate", "the ranking has no candidate with this machine and these factors")
    candidate = offers[0]
    position = int(candidates.machine_estimate[candidate])
    if ranking.studied:
        estimate = ranking.assessment.work.map(lambda part: float(part[position, 0]))
        count = float(ranking.assessment.epochs[position, 0])
    else:
        count = float(epochs or ranking.settings.decide_at or 0)
        runtime = candidates.machine_estimates[position].runtime
        estimate = Interval(runtime.seconds(count), *runtime.interval(count))
    totals = list_run_seconds(group)
    real = math.fsum(totals) / len(totals)

    def cost(seconds: float) -> float:
        every = np.full((len(candidates), 1), seconds)
        costs = MEASURES["cost"].of(candidates, ranking.settings, Interval.exact(every))
        return float(costs.value[candidate, 0])

    return AccuracyRow(
        title=title, instance_type=identity.instance_type or "", batch_size=identity.batch_size,
        epochs=int(count) if count.is_integer() else count, runs=len(totals), real_seconds=real,
        seconds=estimate.value, seconds_low=estimate.low, seconds_high=estimate.high,
        error_percent=error_percent(estimate.value, real), inside=bool(estimate.contains(real)),
        real_cost_usd=cost(real), cost_usd=cost(estimate.value),
    )  # fmt: skip
