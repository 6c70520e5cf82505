"""Watched trainings in numbers: what their records say about time, money, interruptions and forecasts."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from vmselect.errors import VmselectError
from vmselect.intervals import Interval
from vmselect.records import Forecast, Profile, Record
from vmselect.records.identity import distinct
from vmselect.scoring.parts import Parts, epoch_seconds
from vmselect.scoring.score import score
from vmselect.units import cost_usd
from vmselect.watching.account import LEAST_EPOCHS
from vmselect.watching.moves import estimate_stay
from vmselect.watching.rest import forecast_rest

if TYPE_CHECKING:
    from vmselect.ranking import Ranking

MOST = 5
"""Number of trainings that are summed up, the newest first."""

PROBE_EPOCHS = 2
"""Number of epochs that an interrupted probe may have completed. Equation 5.1 of the dissertation needs two."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The forecast of a training that has ended."""

    seconds: Interval[float]
    confidence: float
    made: str
    error_percent: float
    inside: bool


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A watched training with all its recorded parts. Times are in seconds; what is unknown is None."""

    title: str
    model: str | None
    begun: str
    instance_type: str | None
    region: str | None
    market: str | None
    usd_per_hour: float | None
    state: Literal["ended", "running", "interrupted"]
    """A training that runs, or was killed without a message, is "running": its record cannot tell these apart."""
    detail: str | None
    recorded_until: str
    epochs_done: int
    epochs: int | None
    seconds: float
    remaining: Interval[float] | None
    total: Interval[float] | None
    usd: float | None
    final_usd: Interval[float] | None
    at_most: bool
    """Whether the training may end earlier, because it stops when a metric no longer improves."""
    missing_epochs: int
    """Number of first epochs of which there is no record: their time and money are not included."""
    parts: int
    interruptions: int
    lost_seconds: float
    forecast: Kept | None

    def to_dict(self) -> dict[str, Any]:
        """The values for JSON; an interval is a list of value, low and high."""
        return asdict(self, dict_factory=_plain)


def _plain(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in pairs}


def is_watched(profile: Profile) -> bool:
    """Whether ``profile`` records a whole training, as far as it came."""
    if profile.outcome != "interrupted":
        return profile.outcome == "watched"
    # A probe keeps no metrics and rarely lasts for more epochs; a training in a plain loop has no metrics either.
    return profile.logs is not None or profile.timeline.complete_epochs > PROBE_EPOCHS


def sum_up(ranking: Ranking, profiles: Iterable[Profile], records: Iterable[Record] = ()) -> list[Summary]:
    """The watched trainings among ``profiles`` and ``records``, newest first, at most :data:`MOST`.

    Prices are those of the ``ranking``; forecasts among ``records`` are compared with the trainings that have ended.
    """
    kept = list(records)
    every = distinct([*profiles, *(record for record in kept if isinstance(record, Profile))])
    watched = sorted(filter(is_watched, every), key=lambda profile: profile.created, reverse=True)
    forecasts = [record for record in kept if isinstance(record, Forecast)]
    joined: set[str] = set()
    summaries: list[Summary] = []
    for profile in watched:
        if profile.id in joined or len(summaries) == MOST:
            continue
        parts = Parts.of(profile, watched)
        joined.update(part.id for part in parts.profiles)
        summaries.append(_sum_up(parts, ranking, forecasts))
    return summaries


def _sum_up(parts: Parts, ranking: Ranking, forecasts: Sequence[Forecast]) -> Summary:
    last, seconds = parts.last, parts.seconds
    ended, running = last.outcome == "watched", last.preemption == "killed"
    price, market = _find_price(last, ranking)
    remaining = None if ended else _find_rest(parts, running=running)
    total = Interval(seconds, seconds, seconds) if ended else remaining and remaining.map(lambda rest: seconds + rest)
    # Parts on several machines have several prices.
    alike = len({(part.instance_type, part.region) for part in parts.profiles}) == 1
    usd = cost_usd(seconds, price) if price is not None and alike else None
    final = None
    if total is not None and usd is not None and price is not None:
        final = total.map(lambda seconds: cost_usd(seconds, price))
    until = last.created + dt.timedelta(seconds=last.timeline.wall_seconds or 0.0)
    return Summary(
        title=last.title, model=last.model, begun=parts.profiles[0].created.isoformat(timespec="seconds"),
        instance_type=last.instance_type, region=last.region, market=market, usd_per_hour=price,
        state="ended" if ended else "running" if running else "interrupted",
        detail=None if ended or running else last.detail,
        recorded_until=until.isoformat(timespec="seconds"), epochs_done=parts.epochs_done, epochs=last.setup.epochs,
        seconds=seconds, remaining=remaining, total=total, usd=usd, final_usd=final,
        at_most=last.setup.early_stopping is not None and not ended,
        missing_epochs=parts.profiles[0].setup.initial_epoch, parts=len(parts.profiles),
        interruptions=parts.interruptions, lost_seconds=parts.lost_seconds,
        forecast=_find_forecast(parts, forecasts) if ended else None,
    )  # fmt: skip


def _find_rest(parts: Parts, *, running: bool) -> Interval[float] | None:
    """Remaining seconds on the present machine; None if the length is not recorded, or too few steps are.

    As during the training: by its whole epochs as soon as there are enough of them, before that by its steps.
    """
    last, epochs = parts.last, parts.last.setup.epochs
    if epochs is None or epochs <= parts.epochs_done:
        return None
    left = epochs - parts.epochs_done
    seconds = epoch_seconds(last)
    done = [seconds[epoch.epoch] for epoch in last.timeline.epochs if epoch.complete]
    if len(done) >= LEAST_EPOCHS:
        begun = sum(epoch.steps or 0 for epoch in last.timeline.epochs if not epoch.complete) if running else 0
        return forecast_rest(done, max(0.0, left - begun / (last.steps_per_epoch or math.inf))).interval()
    try:
        stay = estimate_stay(last, left)
    except VmselectError:
        return None
    # The lower side reaches to a machine without other programs, which a probe has to expect, but not a watch.
    return Interval(stay.value, max(stay.low, 2 * stay.value - stay.high), stay.high)


def _find_price(profile: Profile, ranking: Ranking) -> tuple[float | None, str | None]:
    """USD per hour of the machines of ``profile`` together in the ranking, on demand if possible, and its market."""
    candidates = ranking.candidates
    if not len(candidates):
        return None, None
    alike = candidates.column("instance_type") == profile.instance_type
    if profile.region is not None:
        alike &= candidates.column("region") == profile.region
    prices, markets = candidates.usd_per_hour, candidates.column("market")
    offers = [(str(markets[row]), float(prices[row])) for row in alike.nonzero()[0]]
    if not offers:
        return None, None
    market, price = min(offers, key=lambda offer: (offer[0] != "on_demand", offer[1]))
    return price, market


def _find_forecast(parts: Parts, forecasts: Sequence[Forecast]) -> Kept | None:
    """The newest forecast of the training, compared with its real time."""
    cases = score([*forecasts, *parts.profiles]).cases if forecasts else ()
    if not cases:
        return None
    case = max(cases, key=lambda case: case.forecast.created)
    return Kept(
        seconds=case.estimate, confidence=case.forecast.confidence, inside=case.inside,
        made=case.forecast.created.date().isoformat(), error_percent=case.error_percent,
    )  # fmt: skip
