"""Findings: warnings and information about records, estimates and rankings, each with a remedy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Literal

from vmselect.units import printable_lines


@dataclass(frozen=True)
class Finding:
    """A remark about a record, an estimate or a ranking.

    ``code`` identifies the kind of finding for programs, ``message`` states what was found, and ``remedy`` what to do.
    The ``severity`` is "warning" if the numbers may be wrong, otherwise "info".
    """

    code: str
    message: str
    remedy: str
    severity: Literal["warning", "info"] = "warning"

    def __str__(self) -> str:
        return printable_lines(f"{self.message} {self.remedy}")


def warnings_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return ``findings`` without duplicates, warnings before information, otherwise in the original order."""
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: finding.severity != "warning"))


def table_html(rows: Iterable[Iterable[object]], head: Iterable[str] = ()) -> str:
    """Return an HTML table of ``rows``, with the column titles ``head``, for a notebook. All values are escaped."""
    lines = [f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>"] if head else []
    for row in rows:
        cells = (f'<td style="text-align:left"><bdi>{escape(str(value))}</bdi></td>' for value in row)
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table>{''.join(lines)}</table>"


def findings_html(findings: Iterable[Finding]) -> str:
    """Return ``findings`` as an HTML list for a notebook, with escaped texts; an empty string if there are none."""
    items = "".join(f"<li>{escape(str(finding))}</li>" for finding in findings)
    return f"<ul>{items}</ul>" if items else ""
