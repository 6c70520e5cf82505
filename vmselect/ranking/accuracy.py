"""Accuracy of a ranking: its estimates compared with the real times of trainings that were measured to their end."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from vmselect._checks import check_indent
from vmselect._hooks import hook
from vmselect.errors import ArgumentError, RankingError
from vmselect.grouping import Identity, group_repetitions, read_records
from vmselect.intervals import Interval
from vmselect.ranking.estimates import name_factors
from vmselect.ranking.measures import MEASURES
from vmselect.ranking.rows import Excluded, only_finite
from vmselect.records import Profile
from vmselect.scoring.arithmetic import error_percent, kendall_tau, list_run_seconds
from vmselect.scoring.arithmetic import regret as measure_regret
from vmselect.units import count_of, format_seconds, printable, printable_lines

if TYPE_CHECKING:
    from vmselect.ranking.result import Ranking

MEASURED = ("time", "cost")


@dataclass(frozen=True, kw_only=True)
class AccuracyRow:
    """Real and estimated time and cost of a training, in seconds and USD. ``real_seconds`` is the mean of ``runs``."""

    title: str
    instance_type: str
    batch_size: int | None
    epochs: float
    runs: int
    real_seconds: float
    seconds: float
    seconds_low: float
    seconds_high: float
    error_percent: float
    """(estimate - real) / real, in percent."""
    inside: bool
    """Whether the real time is inside the interval of the estimate."""
    real_cost_usd: float
    cost_usd: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Accuracy:
    """Estimates of a ranking compared with real times; made by :meth:`Ranking.against`.

    ``kendall_tau`` and ``regret`` map ``time`` and ``cost`` to a number, or to None if fewer than two machines can be
    compared. The regret is the relative difference between the real time (or cost) of the candidate with the lowest
    estimate and the lowest real time (or cost). ``excluded`` lists trainings that the ranking does not estimate.
    """

    rows: tuple[AccuracyRow, ...]
    kendall_tau: Mapping[str, float | None]
    regret: Mapping[str, float | None]
    excluded: tuple[Excluded, ...]
    confidence: float

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[AccuracyRow]:
        return iter(self.rows)

    @property
    def mean_error_percent(self) -> float:
        """Mean of the absolute errors, in percent of the real time."""
        return statistics.fmean(abs(row.error_percent) for row in self.rows)

    @property
    def coverage(self) -> float:
        """Share of the real times that are inside the interval of their estimate."""
        return statistics.fmean(row.inside for row in self.rows)

    @property
    def verdict(self) -> str:
        """Sentence with the mean error, the coverage of the intervals, Kendall's tau and the regret."""
        inside = f"{sum(row.inside for row in self.rows)} of {len(self)} inside the {self.confidence:.0%} interval"
        parts = [f"mean error {self.mean_error_percent:.3g} % of the real time", inside]
        for name in MEASURED:
            if (tau := self.kendall_tau[name]) is not None:
                parts.append(f"by {name}: Kendall's tau {tau:.2f}, regret {100 * (self.regret[name] or 0.0):.3g} %")
        return "; ".join(parts) + "."

    def __str__(self) -> str:
        lines = [
            printable(
                f"{row.title}: real {format_seconds(row.real_seconds)}, estimate {format_seconds(row.seconds)} "
                f"({format_seconds(row.seconds_low)} to {format_seconds(row.seconds_high)}), {row.error_percent:+.1f} %"
            )
            for row in self.rows
        ]
        return printable_lines("\n".join([*lines, self.verdict]))

    def __repr__(self) -> str:
        return f"<Accuracy of {count_of(len(self), 'training')}: {self.verdict}>"

    def to_frame(self) -> pd.DataFrame:
        """A DataFrame with a row per training."""
        return pd.DataFrame([asdict(row) for row in self.rows])

    def payload(self) -> dict[str, Any]:
        """All results as a dictionary of plain values for JSON."""
        return {
            "rows": [only_finite(asdict(row)) for row in self.rows],
            "mean_error_percent": self.mean_error_percent,
            "coverage": self.coverage,
            "confidence": self.confidence,
            "kendall_tau": dict(self.kendall_tau),
            "regret": dict(self.regret),
            "excluded": [asdict(one) for one in self.excluded],
            "verdict": self.verdict,
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """The result of :meth:`payload` as JSON text."""
        return json.dumps(self.payload(), indent=check_indent(indent), ensure_ascii=False, allow_nan=False)

    def chart(self, kind: str = "real-estimate", **options: Any) -> Any:
        """An Altair chart with a pair of bars (real, estimate) per training."""
        return hook("accuracy_chart")(self, kind, **options)


def compare_with_real(ranking: Ranking, watched: Any) -> Accuracy:
    """Compare the estimates of ``ranking`` with ``watched`` trainings; see :meth:`Ranking.against`."""
    profiles = read_records(watched, Profile, error=RankingError)
    used = {record.id for one in ranking.candidates.machine_estimates for record in one.records}
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
    excluded: list[Excluded] = []
    for identity, group in group_repetitions(profiles).items():
        counts = list(dict.fromkeys(profile.epochs_trained for profile in group))
        for count in counts:
            same = [profile for profile in group if profile.epochs_trained == count]
            found = _make_row(ranking, identity, same, count)
            (excluded if isinstance(found, Excluded) else rows).append(found)  # type: ignore[arg-type]
    if not rows:
        why = "; ".join(map(str, excluded[:3]))
        raise RankingError(f"The ranking estimates none of these trainings: {why}. Rank profiles of the same machines.")
    rows.sort(key=lambda row: (row.epochs, row.seconds, row.title))
    comparable = bool(ranking.studied) or len({(row.batch_size, row.epochs) for row in rows}) == len(
        {row.batch_size for row in rows}
    )
    pairs = {"time": [(row.seconds, row.real_seconds) for row in rows]}
    pairs["cost"] = [(row.cost_usd, row.real_cost_usd) for row in rows]
    known = comparable and len(rows) > 1
    return Accuracy(
        rows=tuple(rows),
        kendall_tau={name: kendall_tau(pairs[name]) if known else None for name in MEASURED},
        regret={name: measure_regret(pairs[name]) if known else None for name in MEASURED},
        excluded=tuple(excluded),
        confidence=ranking.settings.confidence,
    )


def _make_row(
    ranking: Ranking, identity: Identity, group: Sequence[Profile], epochs: int | None
) -> AccuracyRow | Excluded:
    candidates, title = ranking.candidates, group[0].title
    factors = name_factors(identity)
    wanted = [
        position
        for position, one in enumerate(candidates.machine_estimates)
        if one.instance_type == identity.instance_type
        and one.factors == factors
        and (one.provider is None or identity.provider is None or one.provider == identity.provider)
    ]
    priced = [int(i) for i in ranking.assessment.order[ranking.deciding_column]]
    priced += [int(i) for i in ranking._in_market if int(i) not in set(priced)]
    which = next((i for i in priced if int(candidates.machine_estimate[i]) in wanted), None)
    if which is None:
        return Excluded(title, "no_estimate", "the ranking has no candidate with this machine and these factors")
    machine = int(candidates.machine_estimate[which])
    if ranking.studied:
        estimate = ranking.assessment.work.map(lambda part: float(part[machine, 0]))
        count = float(ranking.assessment.epochs[machine, 0])
    else:
        count = float(epochs or ranking.settings.decide_at or 0)
        runtime = candidates.machine_estimates[machine].runtime
        estimate = Interval(runtime.seconds(count), *runtime.interval(count))
    totals = list_run_seconds(group)
    real = math.fsum(totals) / len(totals)

    def cost(seconds: float) -> float:
        every = np.full((len(candidates), 1), seconds)
        return float(MEASURES["cost"].of(candidates, ranking.settings, Interval.exact(every)).value[which, 0])

    return AccuracyRow(
        title=title, instance_type=identity.instance_type or "", batch_size=identity.batch_size,
        epochs=int(count) if count.is_integer() else count, runs=len(totals), real_seconds=real,
        seconds=estimate.value, seconds_low=estimate.low, seconds_high=estimate.high,
        error_percent=error_percent(estimate.value, real), inside=bool(estimate.contains(real)),
        real_cost_usd=cost(real), cost_usd=cost(estimate.value),
    )  # fmt: skip
