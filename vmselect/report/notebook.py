"""A ranking as HTML for a notebook: the verdict and the best rows, without script."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from vmselect.ranking.wording import remarks
from vmselect.report.drawing import deciding_rows

if TYPE_CHECKING:
    from vmselect.ranking import Ranking, Row

MOST_ROWS = 15
HEADINGS = ("#", "Machine", "GPU", "Time", "Cost", "USD an hour", "Score", "")
LEFT = {1, 2, 7}


def to_html(ranking: Ranking, *, most: int = MOST_ROWS) -> str:
    """The verdict, a table of the best candidates, what was left out, and doubts; every name is escaped.

    >>> import vmselect as vs
    >>> profile = vs.Profile.from_times(instance_type="g4dn.xlarge", first_epoch_seconds=40, later_epoch_seconds=30)
    >>> "g4dn.xlarge" in to_html(vs.rank(profile, epochs=10))
    True
    """
    verdict = f'<p dir="auto"><strong>{escape(ranking.verdict)}</strong></p>'
    total = len(ranking.assessment.order[ranking.deciding_column])
    if not total:
        return verdict
    head = "".join(_cell("th", i, text) for i, text in enumerate(HEADINGS))
    body = "".join(f"<tr>{_cells(label, row)}</tr>" for label, row in deciding_rows(ranking, most=most))
    left = f"<p>The best {most} of {total:,} candidates.</p>" if total > most else ""
    told = "".join(f'<li dir="auto">{escape(line)}</li>' for line in remarks(ranking))
    findings = f"<ul>{told}</ul>" if told else ""
    return f"{verdict}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{left}{findings}"


def _cells(label: str, row: Row) -> str:
    texts = (
        str(row.rank),
        label,
        _gpu_words(row),
        row.time_text,
        row.cost_text,
        f"{row.usd_per_hour:.4g}",
        f"{row.score:.2f}",
        _remarks(row),
    )
    return "".join(_cell("td", i, text) for i, text in enumerate(texts))


def _gpu_words(row: Row) -> str:
    if not row.gpu_model:
        return "none"
    return row.gpu_model if not row.gpu_count or row.gpu_count == 1 else f"{row.gpu_count:g} x {row.gpu_model}"


def _remarks(row: Row) -> str:
    doubts = any(finding.severity == "warning" for finding in row.findings)
    told = [
        ("tied", row.tied_with_best and row.rank > 1),
        ("Pareto", row.pareto),
        ("doubts", doubts),
        (row.bound, bool(row.bound)),
    ]
    return ", ".join(word for word, applies in told if applies)


def _cell(tag: str, column: int, text: str) -> str:
    align = "left" if column in LEFT else "right"
    return f'<{tag} style="text-align: {align}"><bdi>{escape(text)}</bdi></{tag}>'
