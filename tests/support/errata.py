"""Numbers in the tables of the page about errata."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
WRONG_VALUES = "Values that are wrong, or contradict others"


def find_numbers(text: str) -> set[str]:
    """The numbers in ``text``, without separators of thousands.

    >>> sorted(find_numbers("60,000 images, 0.5 s and 5, 10, 20 epochs"))
    ['0.5', '10', '20', '5', '60000']
    """
    return {number.replace(",", "") for number in re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", text)}


def list_numbers(*headings: str) -> set[str]:
    """The numbers in all columns but the first of the tables below the headings that start with ``headings``."""
    (page,) = [text for path in DOCS.rglob("*.md") if WRONG_VALUES in (text := path.read_text(encoding="utf-8"))]
    parts = re.split(r"^#+ ", page, flags=re.MULTILINE)
    chosen = [part for part in parts if part.startswith(headings)]
    assert len(chosen) == len(headings)
    rows = [line for part in chosen for line in part.splitlines() if line.startswith("|") and "---" not in line]
    return set().union(*(find_numbers(cell) for row in rows for cell in row.strip("|").split("|")[1:]))
