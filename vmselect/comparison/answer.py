"""What comparisons, effects and scores share: text, JSON, notebook table and page."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from vmselect._checks import check_indent, list_items
from vmselect._hooks import hook
from vmselect.units import printable_lines


class Answer(ABC):
    """Base of comparisons, effects and scores."""

    _table: ClassVar[str]
    """The hook that shows it in a notebook."""

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

    def report(self, path: str | os.PathLike[str], *, also: Iterable[Any] = ()) -> Path:
        """Write a self-contained page of this, and of the comparisons, effects or scores ``also``; return its path."""
        written: Path = hook("comparison_page")([self, *list_items(also)], path)
        return written

    def _repr_html_(self) -> str:
        html: str = hook(self._table)(self)
        return html
