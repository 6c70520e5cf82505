"""Make forecast records from estimates, and save them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vmselect._files import is_folder
from vmselect._stores import Place, Url, check_place
from vmselect.errors import ArgumentError
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.records import Environment, Forecast, Placement, Profile
from vmselect.records.forecast import MAX_USED, Basis, Bounds, Remark
from vmselect.records.identity import Identity, identify, read_conditions
from vmselect.records.record import given_as

MAX_REMARKS = 100


@dataclass(frozen=True, kw_only=True)
class Source:
    """Inputs of an estimate: its profiles, the workload fields that the user gave, and records of other trainings."""

    records: tuple[Profile, ...]
    given: Mapping[str, Any] = field(default_factory=dict)
    basis: Basis = "measured"
    own: Interval[float] | None = None
    """The estimate with its interval before recalibration, if it was recalibrated."""
    history: tuple[str, ...] = ()
    """IDs of the records of other trainings that were used."""

    @property
    def identity(self) -> Identity:
        """Machine, batch size, nodes, workers and factors of the estimated training."""
        known = identify(self.records[0])
        return known._replace(batch_size=self.given.get("batch_size") or known.batch_size)


def make_forecast(source: Source, identity: Identity, seconds: Interval[float], **fields: Any) -> Forecast:
    """A forecast record that predicts ``seconds`` for the training ``identity``; ``fields`` are its other fields."""
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
            conditions=read_conditions(source.records, source.given),
            basis=source.basis,
            seconds=_bounds(seconds),
            own_seconds=_bounds(source.own) if source.own else None,
            used=tuple(dict.fromkeys([*used, *source.history]))[:MAX_USED],
            remarks=tuple(map(_remark, findings))[:MAX_REMARKS],
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


def _remark(finding: Finding) -> Remark:
    return Remark(
        code=finding.code,
        message=finding.message[:5_000],
        remedy=finding.remedy[:5_000],
        severity=finding.severity,
    )
