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

    def shortened(self, most: int) -> dict[str, str]:
        """Code, severity, and message and remedy of at most ``most`` characters, to be stored in a record."""
        texts = {"message": self.message[:most], "remedy": self.remedy[:most]}
        return {"code": self.code, **texts, "severity": self.severity}


class RecordsNotUsed(Finding):
    """A remark that records of the training do not contribute to its ranking. It is always shown in full."""


PLAIN_NAMES = {
    "arm-host": "Arm processor", "launch-bound": "very short steps",
    "launch-overhead": "short steps", "no-interval": "intervals unknown",
    "uneven-spread": "unequal variation", "level-shift": "step times changed", "input-wait": "waits for data",
}  # fmt: skip
"""Names of kinds of findings whose codes are no plain words."""


def name_code(code: str) -> str:
    """A plain name of a kind of finding.

    >>> name_code("launch-bound"), name_code("early-stopping")
    ('very short steps', 'early stopping')
    """
    return PLAIN_NAMES.get(code, code.replace("-", " ").replace("gpu", "GPU"))


def warnings_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return ``findings`` without duplicates, warnings before information, otherwise in the original order."""
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: finding.severity != "warning"))


def group_by_code(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """``findings`` of each code, in the order of their first findings, to show similar findings once."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.code, []).append(finding)
    return groups


def last_of_each_code(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The last finding of each code: findings about equal trainings differ only in their numbers."""
    return tuple(group[-1] for group in group_by_code(findings).values())


def code_html(text: str) -> str:
    """``text`` as escaped HTML, with commands between backticks as code.

    >>> code_html("Run `vmselect check <file>`.")
    'Run <code>vmselect check &lt;file&gt;</code>.'
    """
    parts = escape(text).split("`")
    if len(parts) % 2 == 0:  # one of the backticks is not a quotation mark
        return escape(text)
    return "".join(f"<code>{part}</code>" if position % 2 else part for position, part in enumerate(parts))


def table_html(rows: Iterable[Iterable[object]], head: Iterable[str] = ()) -> str:
    """Return an HTML table of ``rows``, with the column titles ``head``, for a notebook. All values are escaped."""
    lines = [f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>"] if head else []
    for row in rows:
        cells = (f'<td style="text-align:left"><bdi>{escape(str(value))}</bdi></td>' for value in row)
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table>{''.join(lines)}</table>"


def findings_html(findings: Iterable[Finding]) -> str:
    """Return ``findings`` as an HTML list for a notebook, with escaped texts; an empty string if there are none."""
    items = "".join(f"<li>{code_html(str(finding))}</li>" for finding in findings)
    return f"<ul>{items}</ul>" if items else ""
