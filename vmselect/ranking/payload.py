"""A ranking as a table and as plain values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from vmselect import __version__
from vmselect.findings import Finding
from vmselect.ranking.rows import Row

if TYPE_CHECKING:
    import pandas as pd

    from vmselect.ranking.result import Ranking

FORMAT = 1


def to_frame(ranking: Ranking) -> pd.DataFrame:
    """A row per :class:`Row`, a column per field."""
    import pandas as pd

    names = [field.name for field in fields(Row)]
    which, column = ranking.positions
    result, candidates = ranking.assessment, ranking.candidates
    machine = candidates.machine[which]
    matrices = {
        "rank": result.rank, "seconds": result.time.value, "seconds_low": result.time.low,
        "seconds_high": result.time.high, "cost_usd": result.cost.value, "cost_low": result.cost.low,
        "cost_high": result.cost.high, "score": result.score, "tied_with_best": result.tied, "pareto": result.pareto,
    }  # fmt: skip
    columns: dict[str, Any] = {name: matrix[which, column] for name, matrix in matrices.items()}
    columns["epochs"] = result.epochs[machine, column]
    for name in ("provider", "service", "region", "market", "gpu_model", "gpu_count", "vcpus", "memory_gib"):
        columns[name] = candidates.column(name)[which]
    columns["price_date"] = candidates.column("date")[which]
    columns["usd_per_hour"] = candidates.usd_per_hour[which]
    columns["instance_type"] = candidates.per_machine(lambda m: m.instance_type)[which]
    columns["batch_size"] = candidates.per_machine(lambda m: m.batch_size)[which]
    columns["method"] = candidates.per_machine(lambda m: m.runtime.method)[which]
    places = list(zip(which.tolist(), column.tolist(), strict=True))
    columns["terms"] = [ranking.terms_of(*place) for place in places]
    columns["findings"] = [ranking.findings_of(*place) for place in places]
    frame = pd.DataFrame({name: columns[name] for name in names})
    whole = (frame["epochs"] % 1 == 0).all()
    return frame.astype({"epochs": int}) if whole else frame


def to_payload(ranking: Ranking, *, rows: bool, which: Sequence[int] | None) -> dict[str, Any]:
    """Plain values, all of them finite: identities, prices, coefficients, settings, and with ``rows`` the results.

    Without them, what is excluded is only what no settings bring back.
    """
    findings: dict[Finding, int] = {}

    def number(found: tuple[Finding, ...]) -> list[int]:
        return [findings.setdefault(finding, len(findings)) for finding in found]

    candidates = ranking.candidates
    whole = number(ranking.findings)
    plain: dict[str, Any] = {
        "format": FORMAT,
        "writer": f"vmselect {__version__}",
        "verdict": ranking.verdict,
        "settings": ranking.settings.to_dict(),
        "machines": [
            {
                "instance_type": machine.instance_type,
                "batch_size": machine.batch_size,
                "repetitions": machine.repetitions,
                "probe_seconds": machine.probe_seconds,
                "method": machine.runtime.method,
                "runtime": machine.coefficients,
                "iterations": dict(machine.iterations),
                "epochs": machine.epochs,
            }
            for machine in candidates.machines
        ],
        "candidates": [
            {"machine": int(candidates.machine[i])}
            | candidates.identity(i)
            | {
                "usd_per_hour": float(candidates.usd_per_hour[i]),
                "billing_increment_seconds": float(candidates.increment_seconds[i]),
                "billing_minimum_seconds": float(candidates.minimum_seconds[i]),
                "findings": number(ranking.findings_of(i)),
            }
            for i in (range(len(candidates)) if which is None else which)
        ],
        "excluded": [asdict(excluded) for excluded in (ranking.excluded if rows else ranking.unusable)],
    }
    if rows:
        plain["rows"] = [
            asdict(row) | {"candidate": int(candidate), "findings": number(row.findings)}
            for row, candidate in zip(ranking.rows, ranking.positions[0], strict=True)
        ]
    plain["ranking_findings"] = whole
    plain["findings"] = [asdict(finding) for finding in findings]
    return plain
