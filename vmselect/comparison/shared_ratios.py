"""Ratios of step times between machine types, which a team can share without revealing what it trains.

A row contains two machine types, the ratio of their step times, and three coarse features of the training. Machine
types that no provider sells are left out, because their names may be names of private hosts. Times, dates, models,
paths, users and data are not exported.
"""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Hashable, Iterable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from vmselect._files import write_text
from vmselect.catalog import Catalog
from vmselect.diagnosis import diagnose
from vmselect.grouping import count_nodes, distinct
from vmselect.prediction.figures import read_precision
from vmselect.prediction.machines import step_seconds
from vmselect.records import Profile

COLUMNS = ("instance_type", "compared_with", "precision", "batch_size", "limited_by", "time_ratio", "trainings")

LIMITS = ("input-bound", "compute-bound", "underfed-gpu", "cpu-saturated", "cpu-limited")
"""Diagnoses that may be exported; any other limit is exported as ``unknown``."""

DIGITS = 3
"""Significant digits of a ratio."""


def share_ratios(profiles: Iterable[Profile]) -> list[dict[str, Any]]:
    """Rows of :data:`COLUMNS`: for each pair of machine types and features, the ratio of their times per step.

    Only profiles of the same training on both machine types are compared. A ratio is the median over all trainings with
    these features; the column ``trainings`` contains their number.
    """
    sold = set(Catalog.embedded().offers(market=None, region="all")["instance_type"])
    trainings: dict[Hashable, dict[str, list[tuple[float, str]]]] = {}
    for profile in distinct(profiles):
        machine, seconds = profile.instance_type, step_seconds(profile)
        if machine is not None and machine in sold and seconds and profile.outcome != "out_of_memory":
            machines = trainings.setdefault(_training(profile), {})
            machines.setdefault(machine, []).append((seconds, _limit(profile)))
    found: dict[tuple[str, ...], list[float]] = {}
    for (precision, sizes), machines in _with_features(trainings):
        for one, other in combinations(sorted(machines), 2):
            times = [statistics.median(seconds for seconds, _ in machines[name]) for name in (one, other)]
            limits = {limit for name in (one, other) for _, limit in machines[name]}
            limit = limits.pop() if len(limits) == 1 else "unknown"
            found.setdefault((one, other, precision, sizes, limit), []).append(times[0] / times[1])
    rows = ((*key, _round(statistics.median(ratios)), len(ratios)) for key, ratios in sorted(found.items()))
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def write_ratios(rows: Iterable[Mapping[str, Any]], path: Path) -> Path:
    """Write ``rows`` as CSV to ``path``."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return write_text(path, text.getvalue())


def batch_class(batch_size: int | None) -> str:
    """Range of batch sizes that contains ``batch_size``, a factor of four wide.

    >>> [batch_class(size) for size in (1, 48, 64, 65, None)]
    ['1-4', '17-64', '17-64', '65-256', 'unknown']
    """
    if batch_size is None:
        return "unknown"
    upper = 4
    while upper < batch_size:
        upper *= 4
    return f"{upper // 4 + 1 if upper > 4 else 1}-{upper}"


def _training(profile: Profile) -> tuple[Hashable, ...]:
    """Key that is equal for profiles of the same training on different machines.

    Of its values, only the precision and the range of the batch size are exported.
    """
    seen, setup = profile.environment, profile.setup
    machine = ("instance_type", "machine", "provider", "region", "market")
    varied = tuple(sorted((name, str(value)) for name, value in profile.factors.items() if name not in machine))
    return (
        profile.model, setup.parameters, setup.structure, profile.batch_size, seen.precision, seen.backend, seen.jit,
        seen.workers, seen.replicas, count_nodes(profile), varied,
    )  # fmt: skip


def _with_features(
    trainings: Mapping[Any, dict[str, list[tuple[float, str]]]],
) -> Iterable[tuple[tuple[str, str], dict[str, list[tuple[float, str]]]]]:
    for key, machines in trainings.items():
        yield (read_precision(key[4]) if key[4] else "unknown", batch_class(key[3])), machines


def _limit(profile: Profile) -> str:
    return next((one.code for one in diagnose(profile) if one.code in LIMITS), "unknown")


def _round(ratio: float) -> float:
    return round(ratio, DIGITS - 1 - math.floor(math.log10(ratio)))
