"""Findings: warnings and information about measurements and results, each with a remedy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Literal

from vmselect.units import printable_lines


@dataclass(frozen=True)
class Finding:
    """A ``code`` for programs, a ``message`` with the fact, a ``remedy`` and a ``severity``.

    A ``warning`` can make the numbers wrong; an ``info`` cannot.
    """

    code: str
    message: str
    remedy: str
    severity: Literal["warning", "info"] = "warning"

    def __str__(self) -> str:
        return printable_lines(f"{self.message} {self.remedy}")


def warnings_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each finding once, warnings first, otherwise in the order given."""
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: finding.severity != "warning"))


def table_html(rows: Iterable[Iterable[object]], head: Iterable[str] = ()) -> str:
    """A table for a notebook, escaped."""
    lines = [f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>"] if head else []
    for row in rows:
        cells = (f'<td style="text-align:left"><bdi>{escape(str(value))}</bdi></td>' for value in row)
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table>{''.join(lines)}</table>"


def findings_html(findings: Iterable[Finding]) -> str:
    """Findings as a list for a notebook, escaped; nothing where there is none."""
    items = "".join(f"<li>{escape(str(finding))}</li>" for finding in findings)
    return f"<ul>{items}</ul>" if items else ""
