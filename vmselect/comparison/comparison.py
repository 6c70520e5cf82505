"""What comparisons, effects and scores share: text, JSON, notebook table and page."""

from __future__ import annotations

import itertools
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from vmselect._checks import check_choice, check_indent, check_number, is_number, list_items, show
from vmselect._hooks import hook
from vmselect.comparison.level_shifts import LEAST_BLOCKS, block_length, block_means, find_shifts
from vmselect.comparison.metrics import Metric, Terms
from vmselect.comparison.runs import Run, Runs, collect_runs
from vmselect.comparison.significance import (
    LEAST_FOR_INTERVAL,
    GroupTest,
    Pair,
    Summary,
    compare_groups,
    compare_pairs,
    format_p,
    ratio_of_means,
    summarise,
)
from vmselect.errors import ArgumentError, ComparisonError
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.units import format_seconds, format_usd, list_all, list_some, printable_lines

if TYPE_CHECKING:
    import pandas as pd

    from vmselect.catalog import Catalog


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


# The comparison: tables, test, sentence, level shifts, and the way to pictures and files.


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
        return verdict(self)

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


# The answer in words: the winner, by how much, how sure; or why that cannot be said.


def format_value(value: float | None, unit: str) -> str:
    """A value with its unit, for people.

    >>> format_value(0.0132, "s"), format_value(2.5, "USD"), format_value(1234.56, "examples/s"), format_value(0.78, "")
    ('13.2 ms', '$2.50', '1,235 examples/s', '0.78')
    """
    if value is None or not math.isfinite(value):
        return "unknown"
    if unit == "s":
        return format_seconds(value)
    if unit == "USD":
        return format_usd(value)
    number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{number} {unit}".rstrip()


def format_percent(row: Mapping[Any, Any]) -> str:
    """A difference in percent with its interval, where there is one: a row of any of our tables.

    >>> format_percent({"percent": 4.2, "percent_low": 1.0, "percent_high": 7.5})
    '+4.2 (+1 to +7.5) %'
    """
    if math.isnan(row["percent"]):
        return "unknown"
    low, high = row["percent_low"], row["percent_high"]
    sides = "" if math.isnan(low) or math.isnan(high) else f" ({low:+.3g} to {high:+.3g})"
    return f"{row['percent']:+.3g}{sides} %"


def group_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """A row per group for people: runs, mean, spread, and the difference against the base."""
    unit = comparison.metric.unit
    return [
        {
            "group": row["group"],
            "runs": row["count"],
            "mean": format_value(row["mean"], unit),
            "sd": format_value(row["sd"], unit) if row["count"] > 1 else "",
            "median": format_value(row["median"], unit),
            "quartiles": f"{format_value(row['quartile_1'], unit)} to {format_value(row['quartile_3'], unit)}",
            "difference": "base" if row["baseline"] else format_percent(row),
        }
        for row in comparison.groups.to_dict("records")
    ]


def verdict(comparison: Comparison) -> str:
    """One sentence or two."""
    noun = comparison.metric.noun
    names = list(comparison.members)
    if len(names) == 1:
        only = comparison.summaries[names[0]]
        return (
            f"{noun}: there is only one group, {names[0]} ({format_value(only.mean, comparison.metric.unit)}, "
            f"{_count(only.count, 'run')}); there is nothing to compare it with."
        )
    order = comparison.order
    best, next_best = order[0], order[1]
    test = comparison.test
    if test.p_value is None:
        return f"{noun}: {_lead(comparison, best, next_best, sure=False)}; too few to tell: {test.reason}."
    if not test.significant:
        return (
            f"{noun}: no difference is shown between {_list(order)} ({_chance(comparison)}, "
            f"{_counts(comparison)}){_seen(comparison, best, order[-1])}."
        )
    rivals = [name for name in order[1:] if not comparison.differ(best, name)]
    if len(rivals) == len(order) - 1:
        return (
            f"{noun}: the groups differ ({_chance(comparison)}, {_counts(comparison)}), but no single pair that "
            f"{best} is part of can be told apart."
        )
    words = _lead(comparison, best, _reference(comparison, best), sure=True)
    tied = f" It is not told apart from {_list(rivals)}." if rivals else ""
    alone = (
        "" if comparison.unit == "runs" else " This holds for these runs; other runs of the same machines may differ."
    )
    return f"{noun}: {words}.{tied}{alone}"


def _reference(comparison: Comparison, best: str) -> str:
    """Whom the winner is measured against: the base where it is told apart from it, else the next that is."""
    apart = [name for name in comparison.order[1:] if comparison.differ(best, name)]
    return comparison.baseline if comparison.baseline in apart else apart[0]


def _lead(comparison: Comparison, best: str, other: str, *, sure: bool) -> str:
    ratio = comparison.ratio(best, other)
    word = "best" if comparison.metric.better else "lowest"
    away = "below" if ratio.value < 1 else "above"
    gap = f"{abs(100 * (ratio.value - 1)):.3g} % {away} {other}" if math.isfinite(ratio.value) else f"ahead of {other}"
    if not sure:
        return f"{best} has the {word} mean, {gap} ({_counts(comparison)})"
    sides = [f"{abs(100 * (side - 1)):.3g}" for side in (ratio.low, ratio.high) if not math.isnan(side)]
    if ratio.contains(1):
        interval = f"{100 * (ratio.low - 1):+.3g} to {100 * (ratio.high - 1):+.3g} %"
    else:
        interval = " to ".join(sorted(sides, key=float)) + " %"
    level = f"{interval} with {100 * comparison.confidence:.3g} % confidence; " if sides else ""
    return f"{best} is {word}, {gap} ({level}{_chance(comparison)}, {_counts(comparison)})"


def _seen(comparison: Comparison, best: str, worst: str) -> str:
    ratio = comparison.ratio(best, worst)
    if math.isnan(ratio.low) or ratio.value == 1:
        return ""
    return f"; {best} against {worst}: {100 * (ratio.low - 1):+.3g} to {100 * (ratio.high - 1):+.3g} %"


def _chance(comparison: Comparison) -> str:
    test = comparison.test
    exact = test.exact_p_value
    return (
        f"exact {format_p(exact)}" if exact is not None else format_p(test.p_value if test.p_value is not None else 1.0)
    )


def _counts(comparison: Comparison) -> str:
    counts = [len(values) for values in comparison.values.values()]
    unit = comparison.unit
    if len(set(counts)) == 1 and len(counts) > 2:
        return f"{counts[0]} {unit} each"
    return f"{list_all(counts)} {unit}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _list(names: list[str], most: int = 5) -> str:
    return list_some(names, most) if len(names) > most else list_all(names)


# ``compare``: from groups of runs to an answer.


UNITS = ("runs", "blocks")
MOST_GROUPS = 200


def compare(
    records: Any,
    *,
    by: str | Sequence[str] = "instance_type",
    metric: str | None = None,
    baseline: str | None = None,
    unit: str = "runs",
    alpha: float = 0.05,
    confidence: float = 0.95,
    better: str | None = None,
    epochs: int | None = None,
    catalog: Catalog | None = None,
    market: str = "on_demand",
    region: str | None = None,
    model: str | None = None,
) -> Comparison:
    """Whether groups of measurements really differ, by how much, and how sure that is.

    ``records`` are records, rows (a DataFrame, or mappings), or a mapping of names to numbers or records. ``by`` names
    one factor or several. ``metric`` is ``step_seconds`` unless told. ``baseline`` is the group that the others are
    compared with: the first, if not given. A repetition is a run; ``unit="blocks"`` asks instead whether these single
    runs differ, from blocks of their steps that are long enough to be independent. ``epochs`` and ``catalog`` serve
    predicted totals and costs; ``better`` says which way a metric of your own is better.

    >>> import vmselect as vs
    >>> c = vs.compare({"AWS": [0.63, 0.66, 0.61, 0.62, 0.65], "Azure": [0.59, 0.60, 0.58, 0.57, 0.60]},
    ...                metric="seconds", baseline="AWS")
    >>> c.test.name, round(c.test.p_value, 3)
    ('Kruskal-Wallis', 0.009)
    >>> print(c.verdict)
    seconds: Azure is best, 7.26 % below AWS (2.92 to 11.5 % with 95 % confidence; exact p = 0.0079, ...).
    """
    check_choice("unit", unit, UNITS)
    alpha = check_number("alpha", alpha, above=0, most=0.5)
    confidence = check_number("confidence", confidence, least=0.5, most=0.999)
    terms = Terms(epochs, catalog, market, region)
    found = collect_runs(records, names=by, metric=metric, better=better, terms=terms, model=model)
    groups = found.by_group()
    if len(groups) > MOST_GROUPS:
        raise ComparisonError(
            f"There are {len(groups)} groups by {', '.join(found.names)}; more than {MOST_GROUPS} tell nothing. Group "
            "by something with fewer values."
        )
    base = _choose_baseline(baseline, list(groups))
    findings = [*found.findings, *_few(groups, unit)]
    values, used = _values(groups, unit)
    test = _test(values, used, alpha)
    pairs = compare_pairs(values, alpha=alpha, testable=test.p_value is not None, unit=used)
    return Comparison(
        runs=found,
        members=groups,
        values=values,
        unit=used,
        baseline=base,
        test=test,
        tested_pairs=tuple(pairs),
        confidence=confidence,
        run_findings=tuple(dict.fromkeys(findings)),
    )


def _choose_baseline(baseline: Any, names: Sequence[str]) -> str:
    if baseline is None:
        return names[0]
    wanted = str(baseline) if isinstance(baseline, str) or is_number(baseline) else ""
    if wanted not in names:
        raise ArgumentError(f"baseline {show(baseline)} is none of the groups. Choose one of: {', '.join(names)}.")
    return wanted


def _values(groups: Mapping[str, Sequence[Run]], unit: str) -> tuple[dict[str, list[float]], str]:
    """The independent values of each group, and what they are."""
    if unit == "runs":
        return {name: [run.value for run in runs] for name, runs in groups.items()}, "runs"
    for name, runs in groups.items():
        if len(runs) > 1:
            raise ArgumentError(
                f"unit='blocks' compares single runs, and {name} has {len(runs)}. Repetitions say more than blocks: "
                "leave unit= out, or pass one run of each group."
            )
        if not runs[0].series:
            raise ComparisonError(f"{name}: its run holds no single readings, so there are no blocks. Use unit='runs'.")
    every = [run.series for run in itertools.chain.from_iterable(groups.values())]
    length = block_length(every)
    values = {name: block_means(runs[0].series, length=length) for name, runs in groups.items()}
    short = [name for name, blocks in values.items() if len(blocks) < LEAST_BLOCKS]
    if short:
        # The means of the runs remain; there are just no blocks to test.
        return {name: [run.value for run in runs] for name, runs in groups.items()}, f"blocks of {length} readings"
    return values, f"blocks of {length} readings"


def _test(values: Mapping[str, Sequence[float]], unit: str, alpha: float) -> GroupTest:
    """The test over all groups that have repetitions."""
    repeated = {name: some for name, some in values.items() if len(some) > 1}
    if len(values) > 1 and len(repeated) < 2:
        repeated = dict(values)
    return compare_groups(repeated, unit=unit, alpha=alpha)


def _few(groups: Mapping[str, Sequence[Run]], unit: str) -> list[Finding]:
    if unit != "runs" or len(groups) < 2:
        return []
    single = [name for name, runs in groups.items() if len(runs) == 1]
    if single:
        return [
            Finding(
                "single-runs",
                f"There is only one run of {list_some(single, 4)}: how far repetitions differ is not known there.",
                "Measure each group at least five times.",
            )
        ]
    fewest = min(len(runs) for runs in groups.values())
    if fewest < LEAST_FOR_INTERVAL + 1:
        return [
            Finding("few-runs", f"A group has only {fewest} runs.", "Measure each group at least five times.", "info")
        ]
    return []
