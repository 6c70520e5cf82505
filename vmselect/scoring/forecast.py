"""Forecasts and the trainings they predicted: find the forecast of each outcome, or the reason why there is none."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from vmselect._checks import list_items, show
from vmselect.catalog.gpus import identify_gpu
from vmselect.errors import ArgumentError
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.records import Forecast, OutcomeRecord, Profile, Record
from vmselect.records.identity import distinct, find_differences, has_factors
from vmselect.units import list_some, printable

_AZURE = re.compile(r"Standard_([A-Z]+)\d+(?:-\d+)?([a-z]*)((?:_\w+)?)")
_GOOGLE = re.compile(r"([a-z]+\d+[a-z]*)-\w[\w-]*")


@dataclass(frozen=True)
class Unscored:
    """An outcome that could not be compared with a forecast, and the reason."""

    title: str
    reason_code: str
    reason: str

    def __str__(self) -> str:
        return printable(f"{self.title}: {self.reason}")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A forecast and the outcome of the predicted training. Times are in seconds, costs in USD."""

    forecast: Forecast
    outcome: Record
    real_seconds: float
    """Mean time of the runs of the outcome."""
    real_cost_usd: float | None
    """Cost that the outcome states, or else the cost of the real time at the price of the forecast."""
    differences: tuple[str, ...] = ()
    """Texts on conditions that differ between forecast and outcome, or that are unknown."""

    @property
    def title(self) -> str:
        """Title of the forecast."""
        return self.forecast.title

    @property
    def estimate(self) -> Interval[float]:
        """Predicted seconds with their interval, after any recalibration."""
        return self.forecast.seconds.interval

    @property
    def error_percent(self) -> float:
        """(estimate - real) / real, in percent."""
        return error_percent(self.estimate.value, self.real_seconds)

    @property
    def inside(self) -> bool:
        """Whether the real time is inside the interval of the forecast."""
        return bool(self.estimate.contains(self.real_seconds))

    @property
    def width_percent(self) -> float:
        """Width of the interval in percent of the prediction."""
        return 100 * (self.estimate.high - self.estimate.low) / self.estimate.value if self.estimate.value else 0.0

    @property
    def family(self) -> str | None:
        """Family of the instance type, such as ``g4dn``."""
        return machine_family(self.forecast.instance_type)

    @property
    def groups(self) -> dict[str, str]:
        """Values by which cases can be grouped (method, basis, GPU and others); ``unknown`` if not known."""
        forecast = self.forecast
        values = {
            "method": forecast.method,
            "basis": forecast.basis,
            "family": self.family,
            # Drivers and catalogs spell the same GPU differently.
            "gpu": (identify_gpu(forecast.gpu) or forecast.gpu) if forecast.gpu else None,
            "backend": forecast.environment.backend,
            "model": forecast.model,
            "month": f"{self.outcome.created:%Y-%m}",
        }
        return {name: value or "unknown" for name, value in values.items()}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the forecast, and a finding if the real training differs from the forecast."""
        if not self.differences:
            return self.forecast.findings
        finding = Finding(
            "outcome-differs",
            f"{self.title}: the real training differs from the forecast in {list_some(self.differences, 4)}.",
            "Train under the conditions of the forecast, or make a forecast for the real conditions.",
            "info",
        )
        return (finding, *self.forecast.findings)

    def row(self) -> dict[str, Any]:
        """The case as a dictionary of plain values."""
        value, low, high = self.estimate
        cost = self.forecast.cost_usd
        return {
            "title": self.title,
            **self.groups,
            "batch_size": self.forecast.batch_size,
            "epochs": self.forecast.epochs,
            "real_seconds": self.real_seconds,
            "seconds": value,
            "seconds_low": low,
            "seconds_high": high,
            "confidence": self.forecast.confidence,
            "error_percent": self.error_percent,
            "inside": self.inside,
            "width_percent": self.width_percent,
            "real_cost_usd": self.real_cost_usd,
            "cost_usd": cost.value if cost else None,
            "differences": "; ".join(self.differences),
            "forecast": self.forecast.id,
            "outcome": self.outcome.id,
        }


class Matched(NamedTuple):
    """Scored cases, outcomes that could not be scored, and forecasts without an outcome so far (``waiting``).

    ``every_case`` contains all cases, ``cases`` only that of the newest forecast for each outcome, method and basis.
    """

    cases: tuple[Case, ...]
    every_case: tuple[Case, ...]
    unscored: tuple[Unscored, ...]
    waiting: tuple[Forecast, ...]


def read_any(records: object) -> list[Record]:
    """``records``, a record or an iterable of records of any kind, as a list with only the first record of each ID.

    Raise ArgumentError if an item is not a record.
    """
    items = [records] if isinstance(records, (Record, str, bytes)) else list_items(records)
    for item in items:
        if not isinstance(item, Record):
            raise ArgumentError(f"{show(item)} is not a record. Load records with vmselect.load_records(folder).")
    return distinct(items)


def match(records: Record | Iterable[Record]) -> Matched:
    """Match the forecasts among ``records`` with the outcomes among them.

    Outcomes are :class:`OutcomeRecord` and profiles of whole trainings. Profiles of trainings that a probe stopped are
    ignored, because they are short probes.
    """
    every_record = read_any(records)
    forecasts = [record for record in every_record if isinstance(record, Forecast)]
    by_id = {forecast.id: forecast for forecast in forecasts}
    by_machine: dict[str | None, list[Forecast]] = {}
    for forecast in forecasts:
        by_machine.setdefault(forecast.instance_type, []).append(forecast)
    cases: list[Case] = []
    unscored: list[Unscored] = []
    for record in every_record:
        if isinstance(record, OutcomeRecord):
            if record.forecast not in by_id:
                reason = "its forecast is not among the records; load the folder with the forecasts too"
                unscored.append(Unscored(record.title, "no_forecast", reason))
                continue
            seconds = statistics.fmean(record.run_seconds)
            cases.append(_make_case(by_id[record.forecast], record, seconds, record.cost_usd))
        elif isinstance(record, Profile) and record.total_seconds is not None:
            # A forecast for another machine can only give a reason why there is no match, so one of them is enough.
            nearest = [*by_machine.get(record.instance_type, []), *by_machine.get(None, [])]
            result = _match_training(record, nearest or forecasts[:1])
            if isinstance(result, Unscored):
                unscored.append(result)
            else:
                cases += result
        elif isinstance(record, Profile) and record.outcome == "watched":
            reason = "the training was watched to its end, but the profile does not state its total time"
            unscored.append(Unscored(record.title, "unknown_total", reason))
    matched = {case.forecast.id for case in cases}
    waiting = tuple(forecast for forecast in forecasts if forecast.id not in matched)
    return Matched(tuple(_only_newest(cases)), tuple(cases), tuple(unscored), waiting)


def _match_training(profile: Profile, forecasts: Sequence[Forecast]) -> list[Case] | Unscored:
    """A case for each forecast that predicts this whole training; or the reason why there is none."""

    def refuse(code: str, reason: str) -> Unscored:
        return Unscored(profile.title, code, reason)

    if profile.instance_type is None:
        return refuse("unknown_instance_type", "the profile does not name its instance type")
    if profile.epochs_trained is None:
        return refuse("unknown_epochs", "the profile does not state its number of epochs")
    cases: list[Case] = []
    reasons: list[tuple[int, str, str]] = []
    for forecast in forecasts:
        if profile.id in forecast.used:
            reasons.append((0, "used", "the training is one of the records on which the forecast is based"))
            continue
        # Other software or callbacks are part of what a forecast may be wrong about; other data are another training.
        differences = find_differences(forecast, profile)
        other = [str(difference) for difference in differences if difference.other_work]
        if forecast.epochs != profile.epochs_trained:
            other.append(f"epochs ({profile.epochs_trained} instead of {forecast.epochs:g})")
        if other:
            reasons.append((len(other), "differs", f"it differs from the nearest forecast in {list_some(other, 4)}"))
            continue
        notes = [str(difference) for difference in differences]
        notes += ["batch size (unknown)"] if profile.batch_size is None and forecast.batch_size else []
        notes += ["factors (unknown)"] if forecast.factors and not has_factors(profile) else []
        notes += ["date (before the forecast)"] if profile.created < forecast.created else []
        seconds = statistics.fmean(list_run_seconds([profile]))
        cases.append(_make_case(forecast, profile, seconds, None, notes))
    if cases:
        return cases
    if not reasons:
        return refuse("no_forecast", "there are no forecasts; save forecasts with ranking.keep(folder) or --keep")
    # The reason of the forecast that differs least tells the user most.
    _, code, reason = min(reasons)
    return refuse(code, reason)


def _make_case(
    forecast: Forecast, outcome: Record, seconds: float, cost_usd: float | None, notes: Iterable[str] = ()
) -> Case:
    # Without a bill, the price of the forecast is charged for the real time: only the time is tested.
    predicted = forecast.cost_usd
    if cost_usd is None and predicted is not None and forecast.seconds.value:
        cost_usd = predicted.value * seconds / forecast.seconds.value
    return Case(
        forecast=forecast, outcome=outcome, real_seconds=seconds, real_cost_usd=cost_usd, differences=tuple(notes)
    )


def _only_newest(cases: Iterable[Case]) -> list[Case]:
    """One case for each outcome, method and basis: the newest forecast before the outcome, else the oldest forecast."""
    best: dict[tuple[str, str, str], Case] = {}
    for case in cases:
        key = case.outcome.id, case.forecast.method, case.forecast.basis
        if key not in best or _nearness(case) > _nearness(best[key]):
            best[key] = case
    return list(best.values())


def _nearness(case: Case) -> tuple[bool, float]:
    before = case.forecast.created <= case.outcome.created
    seconds = case.forecast.created.timestamp()
    return before, seconds if before else -seconds


def error_percent(estimate: float, real: float) -> float:
    """(estimate - real) / real in percent; NaN if the real value is zero."""
    return 100 * (estimate / real - 1) if real else math.nan


def list_run_seconds(profiles: Iterable[Profile]) -> list[float]:
    """Seconds of all whole trainings that ``profiles`` contain."""
    return [
        seconds for profile in profiles for seconds in profile.timeline.run_seconds or (profile.total_seconds or 0.0,)
    ]


def machine_family(instance_type: str | None) -> str | None:
    """The family of an instance type (the same hardware in several sizes).

    A name that does not have the form of a cloud's instance types is returned unchanged.

    >>> [machine_family(name) for name in ("g4dn.xlarge", "ml.g4dn.2xlarge", "Standard_NC4as_T4_v3", "n1-standard-8")]
    ['g4dn', 'g4dn', 'NCas_T4_v3', 'n1']
    >>> machine_family("lab-pc")
    'lab-pc'
    """
    if instance_type is None:
        return None
    if name := _AZURE.fullmatch(instance_type):
        return "".join(name.groups())
    if name := _GOOGLE.fullmatch(instance_type):
        return name[1]
    return instance_type.removeprefix("ml.").partition(".")[0] or instance_type
