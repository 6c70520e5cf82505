"""Records of forecasts (saved predictions of a training's time) and of outcomes (the real times of such trainings).

:func:`make_forecast` makes a record from an estimate, and :func:`save_forecasts` writes records to a folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from vmselect._checks import check_number, check_seconds, list_items, maybe
from vmselect._io import Place, Url, check_place, is_folder
from vmselect.errors import ArgumentError
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.records.base import (
    Environment,
    Factor,
    Name,
    Part,
    Placement,
    PositiveCount,
    Record,
    Seconds,
    Text,
    given_as,
)

if TYPE_CHECKING:
    from vmselect.records.identity import Identity
    from vmselect.records.training import Profile

MAX_USED = 10_000
MAX_RUNS = 10_000
MAX_REMARKS = 100

Identifier = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
Share = Annotated[float, Field(ge=0, le=1)]
Usd = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Basis = Literal["measured", "interpolated", "extrapolated", "predicted", "described"]
"""What a runtime is based on: a probe of this machine at this batch size (``measured``), probes at smaller and larger
batch sizes (``interpolated``), probes only at smaller or only at larger batch sizes (``extrapolated``), probes of
other machines (``predicted``), or the description of the training without any probe on a GPU (``described``)."""
NEVER_PROBED: tuple[Basis, ...] = ("predicted", "described")
"""Bases of machines that were never probed."""


class Bounds(Part):
    """A predicted value with the bounds of its interval."""

    value: Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
    low: Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
    high: Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]

    @model_validator(mode="after")
    def _ordered(self) -> Bounds:
        if not self.low <= self.value <= self.high:
            raise ValueError("the value is not between low and high")
        return self

    @property
    def interval(self) -> Interval[float]:
        """The bounds as an :class:`Interval`."""
        return Interval(self.value, self.low, self.high)


MAX_TEXT = 5_000
"""Largest number of characters of a message or a remedy."""


class Remark(Part):
    """A finding as it is stored in a forecast."""

    code: Name
    message: Annotated[str, StringConstraints(max_length=MAX_TEXT)]
    remedy: Annotated[str, StringConstraints(max_length=MAX_TEXT)]
    severity: Literal["warning", "info"] = "warning"

    @classmethod
    def of(cls, finding: Finding) -> Remark:
        """``finding`` with texts that are cut to the largest length of a remark."""
        return cls.model_validate(finding.shortened(MAX_TEXT))


class Forecast(Record):
    """A saved prediction: time and cost of a training on a machine, with intervals.

    ``conditions`` maps the names of :data:`vmselect.records.identity.CONDITIONS` to the values for which the forecast
    holds. If ``seconds`` was recalibrated, ``own_seconds`` is the prediction before. All forecasts of one ranking have
    the same ID ``ranking``; ``rank`` 1 is its recommended candidate. ``used`` are the IDs of the records on which the
    forecast is based.

    >>> import vmselect as vs
    >>> profile = vs.Profile.from_times(instance_type="g4dn.xlarge", batch_size=64, steps_per_epoch=100,
    ...                                 iteration_seconds=[0.1] * 10)
    >>> import tempfile
    >>> (path,) = vs.estimate(profile, epochs=10).keep(tempfile.mkdtemp())
    >>> (forecast,) = vs.load_records(path)
    >>> forecast.title, forecast.seconds.value, forecast.basis
    ('g4dn.xlarge, batch 64, 10 epochs', 100.0, 'measured')
    """

    kind: Literal["forecast"] = "forecast"
    format: Literal[1] = 1
    model: Text | None = None
    batch_size: PositiveCount | None = None
    nodes: PositiveCount = 1
    workers: PositiveCount = 1
    conditions: Mapping[Name, Factor] = Field(default_factory=dict, max_length=100)
    epochs: Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
    method: Name
    basis: Basis
    confidence: Annotated[float, Field(gt=0, lt=1)]
    seconds: Bounds
    own_seconds: Bounds | None = None
    cost_usd: Bounds | None = None
    usd_per_hour: Usd | None = None
    market: Name | None = None
    price_date: Name | None = None
    gpu: Name | None = None
    ranking: Identifier | None = None
    rank: PositiveCount | None = None
    chance: Share | None = None
    used: tuple[Identifier, ...] = Field(default=(), max_length=MAX_USED)
    remarks: tuple[Remark, ...] = Field(default=(), max_length=MAX_REMARKS)

    @property
    def title(self) -> str:
        """A short name for messages and tables: instance type, batch size, factors and epochs."""
        several = f"{self.nodes} x " if self.nodes > 1 else ""
        batch = [f"batch {self.batch_size}"] if self.batch_size else []
        varied = [f"{name} {value}" for name, value in self.factors.items()]
        machine = f"{several}{self.instance_type or 'unknown machine'}"
        return ", ".join([machine, *batch, *varied, f"{self.epochs:g} epochs"])

    @property
    def file_stem(self) -> str:
        """Start of the file name: instance type, batch size and kind."""
        return f"{self.instance_type or 'unknown'}-{self.batch_size or 'x'}-forecast"

    @property
    def own(self) -> Interval[float]:
        """The predicted seconds with their interval before recalibration."""
        return (self.own_seconds or self.seconds).interval

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings about the prediction at the time when it was saved."""
        return tuple(Finding(**remark.model_dump()) for remark in self.remarks)

    def outcome(self, *, seconds: float | Sequence[float], cost_usd: float | None = None) -> OutcomeRecord:
        """A record of the real times of the predicted training: ``seconds`` of one run or of each run, and its cost.

        >>> import vmselect as vs
        >>> profile = vs.Profile.from_times(instance_type="a", batch_size=8, first_epoch_seconds=9,
        ...                                 later_epoch_seconds=[9, 9])
        >>> forecast = vs.estimate(profile, epochs=10).forecast()
        >>> forecast.outcome(seconds=93.5, cost_usd=0.02).run_seconds
        (93.5,)
        """
        runs = [check_seconds("seconds", run, above=0) for run in list_items(seconds)]
        with given_as("outcome"):
            return OutcomeRecord(
                forecast=self.id,
                placement=self.placement,
                factors=self.factors,
                run_seconds=tuple(runs),
                cost_usd=maybe(check_number, "cost_usd", cost_usd, least=0),
            )


class OutcomeRecord(Record):
    """Real seconds of each run of the training that a forecast predicted (``run_seconds``), and cost of a run."""

    kind: Literal["outcome"] = "outcome"
    format: Literal[1] = 1
    forecast: Identifier
    run_seconds: tuple[Seconds, ...] = Field(min_length=1, max_length=MAX_RUNS)
    cost_usd: Usd | None = None

    @property
    def title(self) -> str:
        """A short name for messages and tables: instance type and ID of the forecast."""
        return f"{self.instance_type or 'unknown machine'}, outcome of forecast {self.forecast[:8]}"

    @property
    def file_stem(self) -> str:
        """Start of the file name: instance type and kind."""
        return f"{self.instance_type or 'unknown'}-outcome"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Always empty: there are no findings about an outcome."""
        return ()


# -- from an estimate to a record --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Source:
    """Inputs of an estimate: its profiles, the workload that the user asked for, and records of other trainings."""

    records: tuple[Profile, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the workload that the user passed, by name."""
    basis: Basis = "measured"
    own: Interval[float] | None = None
    """The estimate with its interval before recalibration, if it was recalibrated."""
    history: tuple[str, ...] = ()
    """IDs of the records of other trainings that were used."""

    @property
    def identity(self) -> Identity:
        """Machine, batch size, nodes, workers and factors of the estimated training."""
        from vmselect.records.identity import identify  # imports this module

        measured = identify(self.records[0])
        return measured._replace(batch_size=self.arguments.get("batch_size") or measured.batch_size)


def make_forecast(source: Source, identity: Identity, seconds: Interval[float], **fields: Any) -> Forecast:
    """A forecast record that predicts ``seconds`` for the training ``identity``; ``fields`` are its other fields."""
    from vmselect.records.identity import read_conditions  # imports this module

    region, findings = fields.pop("region", None), fields.pop("findings", ())
    place = {"instance_type": identity.instance_type, "provider": identity.provider, "region": region}
    used = [record.id for record in source.records]
    first = source.records[0].environment if source.records else Environment()
    with given_as("forecast"):
        return Forecast(
            placement=Placement.given(**place),
            environment=Environment(backend=first.backend, precision=first.precision, versions=first.versions),
            model=next((record.model for record in source.records if record.model), None),
            batch_size=identity.batch_size,
            nodes=identity.nodes,
            workers=identity.workers,
            factors=dict(identity.factors),
            conditions=read_conditions(source.records, source.arguments),
            basis=source.basis,
            seconds=_bounds(seconds),
            own_seconds=_bounds(source.own) if source.own else None,
            used=tuple(dict.fromkeys([*used, *source.history]))[:MAX_USED],
            remarks=tuple(map(Remark.of, findings))[:MAX_REMARKS],
            **fields,
        )


def save_forecasts(forecasts: Iterable[Forecast], folder: str | os.PathLike[str]) -> list[Place]:
    """Save each forecast to a new file in ``folder`` and return the paths of the files."""
    target = check_place("folder", folder)
    if target.is_record if isinstance(target, Url) else not is_folder(target):
        raise ArgumentError(f"{target} is a file. Pass the folder in which to save the forecasts.")
    return [forecast.save(target) for forecast in forecasts]


def find_gpu(records: Sequence[Profile]) -> str | None:
    """Name of the first GPU that ``records`` contain; None if they contain none."""
    return next((gpu.name[:200] for record in records for gpu in record.environment.gpus if gpu.name), None)


def _bounds(interval: Interval[float]) -> Bounds:
    value, low, high = map(float, interval)
    return Bounds(value=value, low=min(low, value), high=max(high, value))
