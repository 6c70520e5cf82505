"""A doubt about a number: what is odd, why it matters, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Literal

from vmselect.units import printable_lines


@dataclass(frozen=True)
class Finding:
    """One doubt: a short ``code`` for programs, a ``message`` with the fact, a ``remedy``, and how grave it is.

    A ``doubt`` can make the numbers wrong; a ``note`` is worth knowing.
    """

    code: str
    message: str
    remedy: str
    severity: Literal["doubt", "note"] = "doubt"

    def __str__(self) -> str:
        return printable_lines(f"{self.message} {self.remedy}")


def gravest_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each finding once, doubts before notes, otherwise in the order given."""
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: finding.severity != "doubt"))


def findings_html(findings: Iterable[Finding]) -> str:
    """Findings as a list for a notebook, escaped; nothing where there is none."""
    items = "".join(f"<li>{escape(str(finding))}</li>" for finding in findings)
    return f"<ul>{items}</ul>" if items else ""
