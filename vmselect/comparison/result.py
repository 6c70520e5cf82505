"""The comparison: tables, test, sentence, level shifts, and the way to pictures and files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from vmselect._checks import check_choice
from vmselect._hooks import hook
from vmselect.comparison import wording
from vmselect.comparison.answer import Answer
from vmselect.comparison.differences import Summary, ratio_of_means, summarise
from vmselect.comparison.metrics import Metric
from vmselect.comparison.runs import Run, Runs
from vmselect.comparison.shifts import find_shifts
from vmselect.comparison.significance import GroupTest, Pair
from vmselect.findings import Finding
from vmselect.intervals import Interval

if TYPE_CHECKING:
    import pandas as pd

GROUP_COLUMNS = (
    "group", "count", "mean", "sd", "median", "quartile_1", "quartile_3", "minimum", "maximum",
    "ratio", "ratio_low", "ratio_high", "percent", "percent_low", "percent_high", "baseline",
)  # fmt: skip
PAIR_COLUMNS = (
    "first", "second", "difference", "ratio", "ratio_low", "ratio_high", "percent",
    "statistic", "p_value", "p_adjusted", "effect_size", "significant",
)  # fmt: skip
TEST_FIELDS = ("name", "statistic", "p_value", "exact_p_value", "alpha", "significant", "reason")
MOST_SHIFTS_SHOWN = 5
SHIFT_COLUMNS = ("group", "run", "after", "before", "then", "percent", "p_value")


@dataclass(frozen=True, eq=False)
class Comparison(Answer):
    """Groups of runs beside each other; made by :func:`vmselect.compare`.

    ``groups`` and ``pairs`` are tables, ``test`` says whether any group differs, ``verdict`` is a sentence, ``shifts``
    lists where the level changed inside a run, ``findings`` the warnings.
    """

    _table = "comparison_html"

    runs: Runs
    members: Mapping[str, Sequence[Run]]
    values: Mapping[str, Sequence[float]]
    """The independent values of each group that the test used."""
    unit: str
    baseline: str
    test: GroupTest
    tested_pairs: tuple[Pair, ...]
    confidence: float
    run_findings: tuple[Finding, ...]
    """Findings about the runs themselves; ``findings`` adds level shifts inside them."""

    @property
    def metric(self) -> Metric:
        """What is compared."""
        return self.runs.metric

    @property
    def by(self) -> tuple[str, ...]:
        """What the groups differ in."""
        return self.runs.names

    @cached_property
    def summaries(self) -> dict[str, Summary]:
        """Each group described, from its runs."""
        return {name: summarise([run.value for run in runs]) for name, runs in self.members.items()}

    @property
    def order(self) -> list[str]:
        """Groups, the best mean first; the lowest where it is unknown which way is better."""
        sign = -1 if self.metric.better == "more" else 1
        return sorted(self.summaries, key=lambda name: sign * self.summaries[name].mean)

    @property
    def winner(self) -> str | None:
        """The best group where the difference to some other is significant, else None."""
        if self.metric.better is None or not self.test.significant:
            return None
        best = self.order[0]
        return best if any(self.differ(best, other) for other in self.order[1:]) else None

    def ratio(self, one: str, other: str) -> Interval[float]:
        """Mean of one group over the mean of another, with its interval."""
        key = (self._known(one), self._known(other))
        if key not in self._ratios:
            self._ratios[key] = ratio_of_means(*(self.values[name] for name in key), confidence=self.confidence)
        return self._ratios[key]

    def _known(self, name: Any) -> str:
        return check_choice("a group", name, tuple(self.values))

    @cached_property
    def _ratios(self) -> dict[tuple[str, str], Interval[float]]:
        return {}

    def differ(self, one: str, other: str) -> bool:
        """Whether these two differ significantly, the number of pairs allowed for."""
        wanted = {self._known(one), self._known(other)}
        for pair in self.tested_pairs:
            if {pair.first, pair.second} == wanted:
                return pair.p_adjusted is not None and pair.p_adjusted < self.test.alpha
        return False

    # -- tables ----------------------------------------------------------------------------------------------------

    @cached_property
    def groups(self) -> pd.DataFrame:
        """A row per group: count, mean, spread, and the ratio to the base in all and in percent, with intervals."""
        import pandas as pd

        rows = []
        for name, summary in self.summaries.items():
            ratio = self.ratio(name, self.baseline) if name != self.baseline else Interval(1.0, math.nan, math.nan)
            rows.append(
                {
                    "group": name,
                    **vars(summary),
                    **_ratio_columns(ratio),
                    "baseline": name == self.baseline,
                }
            )
        return _numeric(pd.DataFrame(rows, columns=list(GROUP_COLUMNS)), texts=("group", "baseline"))

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """A row per pair: Mann-Whitney's test, Holm's correction, Cliff's delta, ratio of the first to the second."""
        import pandas as pd

        rows = []
        for pair in self.tested_pairs:
            ratio = self.ratio(pair.first, pair.second)
            rows.append(
                {
                    **vars(pair),
                    "difference": self.summaries[pair.first].mean - self.summaries[pair.second].mean,
                    **_ratio_columns(ratio),
                    "significant": pair.p_adjusted is not None and pair.p_adjusted < self.test.alpha,
                }
            )
        return _numeric(pd.DataFrame(rows, columns=list(PAIR_COLUMNS)), texts=("first", "second", "significant"))

    @cached_property
    def shifts(self) -> pd.DataFrame:
        """A row for each change of level inside a run: after which reading, from what to what."""
        import pandas as pd

        rows = [
            {"group": name, "run": number, **vars(shift), "percent": shift.percent}
            for name, runs in self.members.items()
            for number, run in enumerate(runs, start=1)
            for shift in find_shifts(run.series)
        ]
        return pd.DataFrame(rows, columns=list(SHIFT_COLUMNS))

    @property
    def points(self) -> pd.DataFrame:
        """Every run: its group and its value."""
        import pandas as pd

        rows = [(name, run.value, run.title, run.date) for name, runs in self.members.items() for run in runs]
        return pd.DataFrame(rows, columns=["group", "value", "run", "date"])

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Findings about the groups, and about runs whose level changed."""
        found = [
            Finding(
                "level-shift",
                f"{row['group']}, run {row['run']}: after reading {row['after']} its {self.metric.noun} changes by "
                f"{row['percent']:+.0f} %.",
                "A mean describes neither part: look at chart('series'), and at what happened then.",
            )
            for row in self.shifts.head(MOST_SHIFTS_SHOWN).to_dict("records")
        ]
        if len(self.shifts) > MOST_SHIFTS_SHOWN:
            more = f"{len(self.shifts) - MOST_SHIFTS_SHOWN} more level shifts inside runs."
            found.append(Finding("level-shift", more, "The table shifts lists all of them."))
        return (*self.run_findings, *found)

    # -- words -----------------------------------------------------------------------------------------------------

    @property
    def verdict(self) -> str:
        """The winner, by how much, how sure; or why that cannot be said."""
        return wording.verdict(self)

    def __repr__(self) -> str:
        return f"<Comparison by {', '.join(self.by)}: {self}>"

    # -- out -------------------------------------------------------------------------------------------------------

    def payload(self) -> dict[str, Any]:
        """Everything as plain values; what is unknown is None."""
        return {
            "metric": {"name": self.metric.name, "unit": self.metric.unit, "better": self.metric.better},
            "by": list(self.by),
            "unit": self.unit,
            "baseline": self.baseline,
            "confidence": self.confidence,
            "groups": plain_rows(self.groups),
            "pairs": plain_rows(self.pairs),
            "test": {name: self.test[name] for name in TEST_FIELDS},
            "winner": self.winner,
            "verdict": self.verdict,
            "values": {name: list(values) for name, values in self.values.items()},
            "shifts": plain_rows(self.shifts),
            "findings": [vars(finding) for finding in self.findings],
        }

    def to_frame(self) -> pd.DataFrame:
        """The table of groups."""
        return self.groups

    def chart(self, kind: str = "boxes", **options: Any) -> Any:
        """An Altair chart: ``boxes`` with every point, ``differences`` against the base, ``series`` with its levels."""
        return hook("comparison_chart")(self, kind, **options)


def _ratio_columns(ratio: Interval[float]) -> dict[str, float]:
    """A ratio with its bounds, as a multiple and in percent."""
    sides = ("", "_low", "_high")
    ratios = {f"ratio{side}": value for side, value in zip(sides, ratio, strict=True)}
    return ratios | {f"percent{side}": 100 * (value - 1) for side, value in zip(sides, ratio, strict=True)}


def _numeric(frame: pd.DataFrame, *, texts: Sequence[str]) -> pd.DataFrame:
    """Numbers as numbers even where all are missing, so that columns can be computed with."""
    counted = {"count"}
    return frame.astype({name: float for name in frame.columns if name not in {*texts, *counted}})


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as plain values that JSON has words for."""
    return [{str(key): _plain(value) for key, value in row.items()} for row in frame.to_dict("records")]


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
