"""A ranking as a table and as plain values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from vmselect import __version__
from vmselect.findings import Finding
from vmselect.ranking.candidates import OFFER_FIELDS
from vmselect.ranking.measures import MEASURES
from vmselect.ranking.rows import Row

if TYPE_CHECKING:
    import pandas as pd

    from vmselect.ranking.result import Ranking

FORMAT = 1
COSTS = ("study_seconds", "study_usd", "probe_seconds", "probe_usd", "exhaustive_seconds", "exhaustive_usd", "fraction")


def to_frame(ranking: Ranking) -> pd.DataFrame:
    """A row per :class:`Row`, a column per field; measures that have no field of their own follow."""
    import pandas as pd

    which, column = ranking.positions
    result, candidates = ranking.assessment, ranking.candidates
    at = which, column
    columns: dict[str, Any] = {
        "rank": result.rank[at], "score": result.score[at], "tied_with_best": result.tied[at],
        "pareto": result.pareto[at], "epochs": result.epochs[candidates.machine_estimate[which], column],
        "price_date": candidates.column("date")[which], "usd_per_hour": candidates.usd_per_hour[which],
    }  # fmt: skip
    for measure in MEASURES.values():
        columns |= dict(zip(measure.fields, (p[at] for p in result.measures[measure.name]), strict=True))
    columns |= {name: candidates.column(name)[which] for name in OFFER_FIELDS}
    for name in ("instance_type", "batch_size", "factors", "basis"):
        columns[name] = candidates.per_machine_estimate(attrgetter(name))[which]
    columns["method"] = candidates.per_machine_estimate(lambda one: one.runtime.method)[which]
    places = list(zip(which.tolist(), column.tolist(), strict=True))
    columns["terms"] = [ranking.terms_of(*place) for place in places]
    columns["findings"] = [ranking.findings_of(*place) for place in places]
    columns["title"] = [candidates.title(candidate) for candidate, _ in places]
    columns["measures"] = [ranking.measures_of(*place) for place in places]
    names = dict.fromkeys([*(field.name for field in fields(Row)), *columns])
    frame = pd.DataFrame({name: columns[name] for name in names})
    if ranking.studied:
        metrics = [ranking.metric(size) for size in frame["batch_size"]]
        frame.insert(list(frame.columns).index("batch_size") + 1, "metric", metrics)
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
                "instance_type": one.instance_type,
                "provider": one.provider,
                "batch_size": one.batch_size,
                "factors": dict(one.factors),
                "title": one.title,
                "basis": one.basis,
                "repetitions": one.repetitions,
                "probe_seconds": one.probe_seconds,
                "method": one.runtime.method,
                "runtime": one.runtime.coefficients(),
                "iterations": one.iterations,
                "epochs": list(one.epochs) if one.epochs else None,
            }
            for one in candidates.machine_estimates
        ],
        "candidates": [
            {"machine": int(candidates.machine_estimate[i]), "title": candidates.title(i)}
            | candidates.identity(i)
            | {
                "usd_per_hour": float(candidates.usd_per_hour[i]),
                "moving_usd": float(candidates.moving_usd[i]),
                "billing_increment_seconds": float(candidates.increment_seconds[i]),
                "billing_minimum_seconds": float(candidates.minimum_seconds[i]),
                "findings": number(ranking.findings_of(i)),
            }
            for i in (range(len(candidates)) if which is None else which)
        ],
        "excluded": [asdict(excluded) for excluded in (ranking.excluded if rows else ranking.always_excluded)],
    }
    if rows:
        plain["rows"] = [
            vars(row)
            | {"candidate": int(candidate), "findings": number(row.findings), "factors": dict(row.factors)}
            | {"measures": {name: value._asdict() for name, value in row.measures.items()}}
            for row, candidate in zip(ranking.rows, ranking.positions[0], strict=True)
        ]
    plain["ranking_findings"] = whole
    plain["findings"] = [asdict(finding) for finding in findings]
    if ranking.studied:
        sizes = sorted({one.batch_size for one in candidates.machine_estimates if one.batch_size})
        cost = ranking.selection_cost()
        plain["study"] = ranking.studied.to_dict(sizes, {name: getattr(cost, name) for name in COSTS})
    return plain
