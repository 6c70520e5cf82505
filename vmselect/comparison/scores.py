"""Scores of candidates, each traceable to the number it rests on, its origin and its date."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from vmselect.comparison.answer import Answer
from vmselect.comparison.candidates import Fact
from vmselect.comparison.result import plain_rows

if TYPE_CHECKING:
    import pandas as pd

PART_COLUMNS = (
    "candidate", "need", "value", "unit", "low", "high", "condition", "grade", "weight", "points", "source", "date",
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """What one need gives one candidate: ``grade`` from 0 to 1 times its share of all weights, in points of 100."""

    candidate: str
    need: str
    fact: Fact
    grade: float
    weight: float
    points: float
    condition: str = ""


@dataclass(frozen=True, eq=False)
class Scores(Answer):
    """Candidates with their scores, best first; made by :meth:`vmselect.Requirements.score`."""

    _table = "scores_html"

    candidates: tuple[str, ...]
    needs: tuple[str, ...]
    all_parts: tuple[Part, ...]
    excluded: Mapping[str, str]
    title: str

    @cached_property
    def totals(self) -> dict[str, float]:
        """Score of each candidate, from 0 to 100, best first."""
        sums = {
            name: math.fsum(part.points for part in self.all_parts if part.candidate == name)
            for name in self.candidates
        }
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    @property
    def best(self) -> str | None:
        """The candidate with the highest score, or None where all are out."""
        return next(iter(self.totals), None)

    @property
    def table(self) -> pd.DataFrame:
        """A row per candidate that meets every must-have: rank, score, and the points of each need."""
        import pandas as pd

        points = {(part.candidate, part.need): part.points for part in self.all_parts}
        rows = [
            {"rank": rank, "candidate": name, "score": score, **{need: points[name, need] for need in self.needs}}
            for rank, (name, score) in enumerate(self.totals.items(), start=1)
        ]
        return pd.DataFrame(rows, columns=["rank", "candidate", "score", *self.needs])

    @property
    def parts(self) -> pd.DataFrame:
        """A row per candidate and need: the number, its origin and date, and what it gave."""
        import pandas as pd

        rows = [vars(part) | vars(part.fact) for part in self.all_parts]
        return pd.DataFrame(rows, columns=list(PART_COLUMNS))

    @property
    def side_by_side(self) -> pd.DataFrame:
        """A row per need, a column per candidate with its value, and who is best."""
        import pandas as pd

        rows = []
        for need in self.needs:
            here = [part for part in self.all_parts if part.need == need]
            top = max((part.grade for part in here), default=0.0)
            winners = [part.candidate for part in here if part.grade == top and top > 0]
            rows.append(
                {
                    "need": need,
                    **{part.candidate: part.fact.value for part in here},
                    "best": ", ".join(winners) if len(winners) < len(here) or len(here) == 1 else "equal",
                }
            )
        return pd.DataFrame(rows, columns=["need", *self.candidates, "best"])

    @property
    def verdict(self) -> str:
        """Who scores best, and by what."""
        if not self.totals:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.excluded.items())
            return f"{self.title}: no candidate meets the must-haves ({reasons})."
        (best, score), *rest = self.totals.items()
        own = [part for part in self.all_parts if part.candidate == best and part.weight > 0]
        first = [part.need for part in own if part.grade == 1]
        why = f", first in {', '.join(first)}" if first and rest else ""
        after = f"; then {rest[0][0]} with {rest[0][1]:.1f}" if rest else ""
        out = f"; {len(self.excluded)} left out" if self.excluded else ""
        return f"{self.title}: {best} scores {score:.1f} of 100{why}{after}{out}."

    def payload(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "title": self.title,
            "best": self.best,
            "table": plain_rows(self.table),
            "parts": plain_rows(self.parts),
            "excluded": dict(self.excluded),
            "verdict": self.verdict,
        }

    def __repr__(self) -> str:
        return f"<Scores of {len(self.totals)}: {self}>"
