"""Forecast records of a ranking: its predictions for each machine, saved to be compared with real trainings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from vmselect._checks import check_count
from vmselect.estimation.forecasts import Source, find_gpu, make_forecast
from vmselect.grouping import Identity
from vmselect.intervals import Interval
from vmselect.ranking.estimates import MachineEstimate
from vmselect.records import Forecast
from vmselect.records.forecast import Bounds
from vmselect.records.record import new_id

if TYPE_CHECKING:
    from vmselect.ranking.result import Ranking

NUMBERED = ("batch_size", "nodes", "workers")
"""Factors of a machine estimate that a forecast stores in fields of their own."""


@dataclass(frozen=True)
class Inputs:
    """Inputs of a ranking besides its profiles: workload fields that the user gave, and IDs of history records."""

    given: Mapping[str, Any] = field(default_factory=dict)
    history: tuple[str, ...] = ()


def make_forecasts(ranking: Ranking, top: int) -> list[Forecast]:
    """Return at most ``top`` forecasts, for the best offers. Each machine and batch size has one forecast."""
    top = check_count("top", top)
    column, together = ranking.deciding_column, new_id()
    found: list[Forecast] = []
    seen: set[int] = set()
    for which in ranking.assessment.order[column]:
        position = int(ranking.candidates.machine_estimate[which])
        if position not in seen:
            seen.add(position)
            found.append(_make_forecast(ranking, int(which), column, together))
        if len(found) == top:
            break
    return found


def _make_forecast(ranking: Ranking, which: int, column: int, together: str) -> Forecast:
    row, one = ranking.row(which, column), ranking.candidates.of(which)
    records = one.records or tuple(
        record
        for other in ranking.candidates.machine_estimates
        for record in other.records
        if other.batch_size == one.batch_size
    )
    given = dict(ranking.inputs.given) | ({"batch_size": one.batch_size} if one.basis != "measured" else {})
    predicted = one.basis == "predicted"
    source = Source(records=records, given=given, basis=one.basis, history=ranking.inputs.history if predicted else ())
    seconds = Interval(row.seconds, row.seconds_low, row.seconds_high)
    if one.adjustment:
        source = replace(source, own=one.adjustment.undo(seconds))
    gpu = row.gpu_model or (None if predicted else find_gpu(records))
    return make_forecast(
        source, name_training(one, row.provider), seconds,
        epochs=float(row.epochs), method=row.method, confidence=ranking.settings.confidence, region=row.region,
        cost_usd=Bounds(value=row.cost_usd, low=row.cost_low, high=row.cost_high), usd_per_hour=row.usd_per_hour,
        market=row.market, price_date=row.price_date, gpu=gpu, ranking=together, rank=row.rank,
        chance=min(1.0, max(0.0, row.chance)), findings=row.findings,
    )  # fmt: skip


def name_training(one: MachineEstimate, provider: str | None) -> Identity:
    """Instance type, provider, batch size, workers, nodes and factors of the training that ``one`` estimates."""
    varied = tuple(sorted((item for item in one.factors.items() if item[0] not in NUMBERED), key=lambda item: item[0]))
    workers = max(one.nodes, int(one.factors.get("workers", 1)))
    return Identity(one.instance_type, provider, one.batch_size, workers, one.nodes, varied)
