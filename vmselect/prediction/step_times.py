"""``predict``: a table of measured and predicted step times of machine types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import pandas as pd

from vmselect import _defaults
from vmselect._checks import check_count, check_name, check_number, list_items, maybe, several, show
from vmselect.catalog import Catalog
from vmselect.errors import ArgumentError, EstimateError
from vmselect.estimation.grouping import check_comparable, list_values
from vmselect.estimation.statistics import locate
from vmselect.prediction.machines import (
    MachineTypes,
    Prediction,
    Predictor,
    Probe,
    Refusal,
    choose_machines,
    read_history,
)
from vmselect.prediction.memory import MemoryCheck
from vmselect.records import Profile, Record
from vmselect.records.identity import group_repetitions, read_records
from vmselect.records.step_times import typical_step_seconds

COLUMNS = ("instance_type", "step_seconds", "low", "high", "basis", "reason")


def predict(
    profiles: Profile | Iterable[Profile],
    *,
    machines: Literal["catalog", "all"] | str | Iterable[str] = "catalog",
    history: Iterable[Record] = (),
    batch_size: int | None = None,
    catalog: Catalog | None = None,
    confidence: float = _defaults.CONFIDENCE,
) -> pd.DataFrame:
    """Seconds per step of machine types, with intervals: measured for probed machines, predicted for all others.

    >>> import vmselect as vs
    >>> probe = vs.Profile.from_times(instance_type="g4dn.xlarge", batch_size=256, iteration_seconds=[0.20] * 10)
    >>> times = vs.predict(probe, machines=["g4dn.xlarge", "g5.xlarge", "c5.large"])
    >>> list(times["basis"])
    ['measured', 'predicted', None]

    ``machines`` are names of instance types, or ``"catalog"`` (also ``"all"``) for all machine types with a GPU.
    ``history`` are records of other trainings on several GPUs, which narrow the intervals. If the time of a machine
    cannot be predicted, or its GPU has too little memory, the column ``reason`` states why and what would help. The
    times are those of one GPU. The method and its limits are described in docs/explanation/prediction.md.
    """
    given = read_records(profiles, Profile, error=EstimateError)
    confidence = check_number("confidence", confidence, least=0.5, most=0.999)
    size = maybe(check_count, "batch_size", batch_size)
    chosen = [one for one in given if one.instance_type and (size is None or one.batch_size == size)]
    if not chosen:
        what = "names its instance type" if size is None else f"is of batch size {size} and names its instance type"
        raise EstimateError(
            f"No profile {what}. Probe again at the batch size of your training, and pass instance_type= to the probe."
        )
    sizes = {one.batch_size for one in chosen}
    if len(sizes) > 1:
        raise ArgumentError(f"The profiles have the batch sizes {list_values(sizes)}. Pass batch_size= to choose one.")
    check_comparable(chosen, error=EstimateError)
    if not isinstance(catalog, Catalog | None):
        raise ArgumentError(f"catalog is {show(catalog)}. Pass a catalog, such as vmselect.Catalog.load(path).")
    types = MachineTypes(Catalog.default() if catalog is None else catalog)
    probes = [_as_probe(group) for group in group_repetitions(chosen).values()]
    probes.sort(key=lambda probe: (probe.instance_type, probe.provider or ""))
    records = [*read_profiles(history), *given]
    predictor = Predictor(probes, types, read_history(records, types))
    measured = {probe.instance_type: _measured(probe, confidence) for probe in probes}

    if isinstance(machines, str) and machines in ("catalog", "all"):
        names = None
    else:
        names = several(check_name, "machines", machines)
    wanted = choose_machines(types, names=names, include_retired=names is not None)
    others = [machine for machine in wanted if machine.instance_type not in measured]
    rows: dict[str, dict[str, Any]] = {name: row for name, row in measured.items() if names is None or name in names}
    memory, examples = MemoryCheck(given, types), sizes.pop()
    for machine, result in zip(others, predictor.predict(others), strict=True):
        fits = memory.check(machine, examples) if examples and isinstance(result, Prediction) else None
        if isinstance(fits, Refusal):
            row = _row(machine.instance_type, reason=fits.reason)
        elif isinstance(result, Prediction):
            low, high = result.interval(confidence)
            row = _row(machine.instance_type, result.seconds, low, high, basis="predicted")
        else:
            row = _row(machine.instance_type, reason=result.reason)
        rows.setdefault(machine.instance_type, row)
    for name in names or ():
        rows.setdefault(
            name, _row(name, reason="the catalog does not contain this machine; add it with Catalog.with_offers")
        )
    ordered = sorted(rows) if names is None else dict.fromkeys(names)
    frame = pd.DataFrame([rows[name] for name in ordered], columns=list(COLUMNS))
    return (
        frame.astype({"basis": object, "reason": object})
        .where(frame.notna(), other=None)
        .astype({"step_seconds": float, "low": float, "high": float})
    )


def read_profiles(history: Any) -> list[Profile]:
    """The profiles among the records of ``history``; records of other kinds contain no step times."""
    if isinstance(history, (str, bytes)):
        raise ArgumentError(f"history is {show(history)}. Load records with vmselect.load_profiles(folder).")
    records = [history] if isinstance(history, Record) else list_items(history)
    for one in records:
        if not isinstance(one, Record):
            raise ArgumentError(f"history contains {show(one)}. Load records with vmselect.load_profiles(folder).")
    return read_records([one for one in records if isinstance(one, Profile)], Profile, error=None)


def _as_probe(group: list[Profile]) -> Probe:
    first = group[0]
    seconds = typical_step_seconds(group)
    return Probe(first.instance_type or "", first.provider, seconds, tuple(group), first.batch_size)


def _measured(probe: Probe, confidence: float) -> dict[str, Any]:
    if probe.seconds is None:
        return _row(probe.instance_type, reason="its records contain no step times; probe it with IterationProbe")
    steady = [seconds for profile in probe.profiles for seconds in profile.timeline.steps.steady_seconds]
    level = locate(steady or [probe.seconds], confidence=confidence)
    low, high = max(0.0, probe.seconds - level.half_width_below), probe.seconds + level.half_width_above
    return _row(probe.instance_type, probe.seconds, low, high, basis="measured")


def _row(
    name: str,
    seconds: float | None = None,
    low: float | None = None,
    high: float | None = None,
    *,
    basis: str | None = None,
    reason: str | None = None,
) -> dict[str, Any]:
    return dict(zip(COLUMNS, (name, seconds, low, high, basis, reason), strict=True))
