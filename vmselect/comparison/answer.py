"""What every comparison can do with its answer: say it, give it as JSON, show it in a notebook and on a page."""

from __future__ import annotations

import importlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from vmselect._checks import check_indent, list_items
from vmselect.units import printable_lines


class Answer(ABC):
    """Base of comparisons, effects and scores; each says what is in it."""

    _table: ClassVar[str]
    """The function of :mod:`vmselect.report.tables` that shows it in a notebook."""

    @property
    @abstractmethod
    def verdict(self) -> str:
        """The answer in a sentence or two."""

    @abstractmethod
    def payload(self) -> dict[str, Any]:
        """Everything as plain values; what is unknown is None."""

    def to_json(self, *, indent: int | None = None) -> str:
        """The same as JSON text."""
        return json.dumps(self.payload(), indent=check_indent(indent), ensure_ascii=False, allow_nan=False)

    def __str__(self) -> str:
        return printable_lines(self.verdict)

    # The report layer stands above this one; it is looked up by name when a picture is asked for.

    def report(self, path: str | os.PathLike[str], *, also: Iterable[Any] = ()) -> Path:
        """Write a self-contained page of this, and of the comparisons, effects or scores ``also``; return its path."""
        pages = importlib.import_module("vmselect.report.comparisons")
        written: Path = pages.write_comparisons([self, *list_items(also)], path)
        return written

    def _repr_html_(self) -> str:
        show = getattr(importlib.import_module("vmselect.report.tables"), self._table)
        html: str = show(self)
        return html
