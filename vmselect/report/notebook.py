"""A ranking as HTML for a notebook: the verdict and the best rows, without script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vmselect.ranking.wording import remarks
from vmselect.report.drawing import deciding_rows
from vmselect.report.tables import html_list, html_sentence, html_table

if TYPE_CHECKING:
    from vmselect.ranking import Ranking, Row

MOST_ROWS = 15


def to_html(ranking: Ranking, *, most: int = MOST_ROWS) -> str:
    """The verdict, a table of the best candidates, what was excluded, and warnings; every name is escaped.

    >>> import vmselect as vs
    >>> profile = vs.Profile.from_times(instance_type="g4dn.xlarge", first_epoch_seconds=40, later_epoch_seconds=30)
    >>> "g4dn.xlarge" in to_html(vs.rank(profile, epochs=10))
    True
    """
    total = len(ranking.assessment.order[ranking.deciding_column])
    if not total:
        return html_sentence(ranking.verdict)
    table = html_table([_row(label, row) for label, row in deciding_rows(ranking, most=most)], "Ranking")
    shown = f"<p>The best {most} of {total:,} candidates.</p>" if total > most else ""
    return html_sentence(ranking.verdict) + table + shown + html_list(remarks(ranking))


def _row(label: str, row: Row) -> dict[str, Any]:
    gpus = f"{row.gpu_count:g} x " if row.gpu_count and row.gpu_count != 1 else ""
    remarks = {
        "tied": row.tied_with_best and row.rank > 1,
        "Pareto": row.pareto,
        "warnings": any(finding.severity == "warning" for finding in row.findings),
        row.bound: bool(row.bound),
    }
    return {
        "#": row.rank,
        "Machine": label,
        "GPU": f"{gpus}{row.gpu_model}" if row.gpu_model else "none",
        "Time": row.time_text,
        "Cost": row.cost_text,
        "USD per hour": f"{row.usd_per_hour:.4g}",
        "Score": f"{row.score:.2f}",
        "": ", ".join(remark for remark, applies in remarks.items() if applies),
    }
