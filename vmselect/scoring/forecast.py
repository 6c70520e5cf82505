"""Forecasts and the trainings they predicted: find the forecast of each outcome, or the reason why there is none."""

from __future__ import annotations

import math
import re
import statistics
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from vmselect._checks import list_items, show
from vmselect.catalog.gpus import identify_gpu
from vmselect.errors import ArgumentError
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.records import Forecast, OutcomeRecord, Profile, Record
from vmselect.records.identity import (
    Assumed,
    Difference,
    assumed_by,
    assumed_of,
    compare_assumed,
    distinct,
    has_factors,
)
from vmselect.scoring.parts import Parts, work_of
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

    ``cases`` has the newest forecast for each outcome, method and basis. ``real`` has the means over all outcomes of
    each forecast, also of forecasts that were replaced by newer ones.
    """

    cases: tuple[Case, ...]
    real: tuple[Real, ...]
    unscored: tuple[Unscored, ...]
    waiting: tuple[Forecast, ...]


class Real(NamedTuple):
    """Mean seconds and cost of all outcomes of a forecast."""

    forecast: Forecast
    seconds: float
    cost_usd: float | None


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
    ignored, because they are short probes. A training that was resumed is one outcome, with the time of all its parts.
    """
    every_record = read_any(records)
    forecasts = [record for record in every_record if isinstance(record, Forecast)]
    by_id = {forecast.id: forecast for forecast in forecasts}
    index = _Index(forecasts)
    cases: list[Case] = []
    unscored: list[Unscored] = []
    runs: dict[str, list[tuple[float, float | None]]] = {}
    resumed = _find_resumed(every_record)
    joined = {part.id for parts in resumed.values() for part in parts.profiles[:-1]}
    for record in every_record:
        if record.id in joined:
            continue
        if isinstance(record, OutcomeRecord):
            if record.forecast not in by_id:
                reason = "its forecast is not among the records; load the folder with the forecasts too"
                unscored.append(Unscored(record.title, "no_forecast", reason))
                continue
            case = _make_case(by_id[record.forecast], record, statistics.fmean(record.run_seconds), record.cost_usd)
            runs.setdefault(record.forecast, []).append((case.real_seconds, case.real_cost_usd))
            cases.append(case)
        elif isinstance(record, Profile) and record.total_seconds is not None:
            result = index.match_resumed(resumed[record.id]) if record.id in resumed else index.match_training(record)
            if isinstance(result, Unscored):
                unscored.append(result)
            else:
                cases += result
        elif isinstance(record, Profile) and record.outcome == "watched":
            reason = "the training was watched to its end, but the profile does not state its total time"
            unscored.append(Unscored(record.title, "unknown_total", reason))
    real = tuple(mean for forecast in forecasts if (mean := index.average(forecast, runs.get(forecast.id, []))))
    matched = {mean.forecast.id for mean in real}
    waiting = tuple(forecast for forecast in forecasts if forecast.id not in matched)
    return Matched(tuple(_only_newest(cases)), real, tuple(unscored), waiting)


def _find_resumed(records: Iterable[Record]) -> dict[str, Parts]:
    """The trainings of several parts that were measured from their first epoch to their end, by their last part."""
    profiles = [record for record in records if isinstance(record, Profile)]
    ended = [profile for profile in profiles if profile.setup.initial_epoch and profile.outcome == "watched"]
    works: dict[Hashable, list[Profile]] = {work_of(profile): [] for profile in ended}
    for profile in profiles if works else ():
        works.get(work_of(profile), []).append(profile)
    every = {profile.id: Parts.of(profile, works[work_of(profile)]) for profile in ended}
    # A limit may have ended a part, which is then a part of a longer training.
    inner = {part.id for parts in every.values() for part in parts.profiles[:-1]}
    return {name: parts for name, parts in every.items() if parts.is_whole and name not in inner}


MOST_COMPARED = 20
"""Number of forecasts among which the nearest one is searched for a training that no forecast predicts."""


class _Dated(NamedTuple):
    """A forecast with its time of creation and its place among all forecasts."""

    time: float
    place: int
    forecast: Forecast


class _Kind:
    """Forecasts that assume the same training, and the trainings that they predict."""

    def __init__(self, assumed: Assumed, epochs: float) -> None:
        self.assumed, self.epochs = assumed, epochs
        self.series: dict[tuple[str, str], list[_Dated]] = {}
        """Forecasts by method and basis, from old to new."""
        self.trainings: dict[str, float] = {}
        """Maps the IDs of the predicted trainings to their seconds."""

    @cached_property
    def mean_seconds(self) -> float:
        """Mean seconds of the predicted trainings; read after all of them were matched."""
        return statistics.fmean(self.trainings.values())


class _Index:
    """Forecasts by what they assume. Trainings are compared with each kind of forecast and not with each forecast."""

    def __init__(self, forecasts: Sequence[Forecast]) -> None:
        self.first = forecasts[:1]
        self.kinds: dict[tuple[Assumed, float], _Kind] = {}
        self.kind_of: dict[str, _Kind] = {}
        self.by_machine: dict[str | None, list[_Kind]] = {}
        self.by_setting: dict[tuple[Hashable, ...], list[_Kind]] = {}
        self.used_on: dict[str | None, set[str]] = {}
        for place, forecast in enumerate(forecasts):
            self._add(place, forecast)
        for kind in self.kinds.values():
            for series in kind.series.values():
                # Of forecasts made at the same time, the first one counts, so it is the last one here.
                series.sort(key=lambda dated: (dated.time, -dated.place))

    def _add(self, place: int, forecast: Forecast) -> None:
        key = assumed_by(forecast), forecast.epochs
        kind = self.kinds.get(key)
        if kind is None:
            kind = self.kinds[key] = _Kind(*key)
            self.by_machine.setdefault(forecast.instance_type, []).append(kind)
            self.by_setting.setdefault(_setting(kind.assumed, kind.epochs), []).append(kind)
        self.kind_of[forecast.id] = kind
        series = kind.series.setdefault((forecast.method, forecast.basis), [])
        series.append(_Dated(forecast.created.timestamp(), place, forecast))
        self.used_on.setdefault(forecast.instance_type, set()).update(forecast.used)

    def match_resumed(self, parts: Parts) -> list[Case] | Unscored:
        """The cases of a training that was resumed, with the time of all its parts."""
        if len({part.instance_type for part in parts.profiles}) > 1:
            reason = "its parts ran on different machines, so that no forecast predicts the whole"
            return Unscored(parts.last.title, "several_machines", reason)
        return self.match_training(parts.join(), earlier=parts.profiles[:-1], note=str(parts))

    def match_training(
        self, profile: Profile, *, earlier: Sequence[Profile] = (), note: str = ""
    ) -> list[Case] | Unscored:
        """The cases of the newest forecasts that predict this whole training, or the reason why there is none.

        ``earlier`` are its other parts, and ``note`` states what resuming it has cost.
        """
        if profile.instance_type is None:
            reason = "the profile does not name its instance type"
            return Unscored(profile.title, "unknown_instance_type", reason)
        if profile.epochs_trained is None:
            return Unscored(profile.title, "unknown_epochs", "the profile does not state its number of epochs")
        real = assumed_of(profile)
        seconds = statistics.fmean(list_run_seconds([profile]))
        ids = {profile.id, *(part.id for part in earlier)}
        newest: dict[tuple[str, str], tuple[tuple[bool, float, int], Case]] = {}
        for kind in self._find_kinds(real, float(profile.epochs_trained)):
            # Other software or callbacks are part of what a forecast may be wrong about; other data are another
            # training.
            differences = compare_assumed(kind.assumed, real)
            if kind.epochs != profile.epochs_trained or any(difference.other_work for difference in differences):
                continue
            kind.trainings[profile.id] = seconds
            for key, series in kind.series.items():
                if (chosen := _choose(series, profile, ids)) is None:
                    continue
                notes = [*_note(chosen.forecast, profile, differences), *([note] if note else [])]
                case = _make_case(chosen.forecast, profile, seconds, None, notes)
                nearness = (*_nearness(case), -chosen.place)
                if key not in newest or nearness > newest[key][0]:
                    newest[key] = nearness, case
        if newest:
            return [case for _, case in newest.values()]
        return Unscored(profile.title, *self._explain(profile, real))

    def _find_kinds(self, real: Assumed, epochs: float) -> list[_Kind]:
        """The kinds of forecasts that may predict a training, without those that certainly assume another one."""
        machine, size, model = real.identity.instance_type, real.identity.batch_size, real.conditions[0]
        if size is None or model is None or not real.factors_known:
            return [*self.by_machine.get(machine, []), *self.by_machine.get(None, [])]
        # What a forecast does not state may have any value.
        settings = (
            _setting(Assumed(identity, (name,)), epochs)
            for place in (machine, None)
            for identity in (real.identity._replace(instance_type=place, batch_size=number) for number in (size, None))
            for name in (model, None)
        )
        return [kind for setting in settings for kind in self.by_setting.get(setting, [])]

    def _explain(self, profile: Profile, real: Assumed) -> tuple[str, str]:
        """Code and text of the reason why no forecast predicts this training."""
        kinds = [*self.by_machine.get(profile.instance_type, []), *self.by_machine.get(None, [])]
        used = profile.id in self.used_on.get(profile.instance_type, ()) or profile.id in self.used_on.get(None, ())
        if not kinds and self.first:
            # A forecast for another machine can only give a reason why there is no match, so one of them is enough.
            kinds = [self.kind_of[self.first[0].id]]
            used = profile.id in self.first[0].used
        if used:
            return "used", "the training is one of the records on which the forecast is based"
        if not kinds:
            return "no_forecast", "there are no forecasts; save forecasts with ranking.keep(folder) or --keep"
        reasons = []
        # The newest kinds: those of a large team would take long, and tell the user no more.
        for kind in kinds[-MOST_COMPARED:]:
            other = [str(item) for item in compare_assumed(kind.assumed, real) if item.other_work]
            if kind.epochs != profile.epochs_trained:
                other.append(f"epochs ({profile.epochs_trained} instead of {kind.epochs:g})")
            reasons.append((len(other), f"it differs from the nearest forecast in {list_some(other, 4)}"))
        # The reason of the forecast that differs least helps the user most.
        return "differs", min(reasons)[1]

    def average(self, forecast: Forecast, runs: Sequence[tuple[float, float | None]]) -> Real | None:
        """Means over all outcomes of ``forecast``: ``runs`` (seconds and cost) and matched trainings."""
        kind = self.kind_of[forecast.id]
        count, seconds = len(kind.trainings), kind.mean_seconds if kind.trainings else 0.0
        if own := kind.trainings.keys() & set(forecast.used):
            others = [kind.trainings[name] for name in kind.trainings.keys() - own]
            count, seconds = len(others), statistics.fmean(others) if others else 0.0
        if not runs and not count:
            return None
        total = count + len(runs)
        mean = (count * seconds + math.fsum(run for run, _ in runs)) / total if runs else seconds
        costs = [cost for _, cost in runs if cost is not None]
        if count and (cost := _cost_of(forecast, seconds)) is not None:
            cost = (count * cost + math.fsum(costs)) / (count + len(costs)) if costs else cost
            return Real(forecast, mean, cost)
        return Real(forecast, mean, statistics.fmean(costs) if costs else None)


def _setting(assumed: Assumed, epochs: float) -> tuple[Hashable, ...]:
    """What almost every record states: machine, batch size, nodes, workers, factors, model, and epochs."""
    model = assumed.conditions[0]  # the first of CONDITIONS
    return (*assumed.identity._replace(provider=None), model, epochs)


def _choose(series: Sequence[_Dated], profile: Profile, ids: Set[str]) -> _Dated | None:
    """The newest forecast before the training that is not based on its records ``ids``, or the oldest after it."""
    end = bisect_right(series, profile.created.timestamp(), key=attrgetter("time"))
    places = chain(range(end - 1, -1, -1), range(end, len(series)))
    return next((series[place] for place in places if ids.isdisjoint(series[place].forecast.used)), None)


def _note(forecast: Forecast, profile: Profile, differences: Iterable[Difference]) -> list[str]:
    notes = [str(difference) for difference in differences]
    notes += ["batch size (unknown)"] if profile.batch_size is None and forecast.batch_size else []
    notes += ["factors (unknown)"] if forecast.factors and not has_factors(profile) else []
    notes += ["date (before the forecast)"] if profile.created < forecast.created else []
    return notes


def _cost_of(forecast: Forecast, seconds: float) -> float | None:
    """Cost of ``seconds`` at the price of the forecast: without a bill, only the time is tested."""
    predicted = forecast.cost_usd
    if predicted is None or not forecast.seconds.value:
        return None
    return predicted.value * seconds / forecast.seconds.value


def _make_case(
    forecast: Forecast, outcome: Record, seconds: float, cost_usd: float | None, notes: Iterable[str] = ()
) -> Case:
    if cost_usd is None:
        cost_usd = _cost_of(forecast, seconds)
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
