"""The page of comparisons: sentences, tables and charts of groups, effects and scores in one self-contained file.

Text and tables are in the file itself; the script only draws charts of numbers that are in the tables, too.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from vmselect import _files
from vmselect._checks import list_items, show
from vmselect.comparison import Comparison, Effects, Scores
from vmselect.errors import ArgumentError
from vmselect.report.drawing import capitalize
from vmselect.report.files import check_target
from vmselect.report.page import assemble
from vmselect.report.plots import comparison_plots, effects_plots
from vmselect.report.tables import comparison_html, effects_html, scores_html

SCRIPTS = ("numbers", "elements", "axes", "plots", "tools", "comparisons")
Part = Comparison | Effects | Scores


def write_comparisons(parts: Sequence[Part], path: str | os.PathLike[str]) -> Path:
    """Write one page of comparisons, effects and scores to ``path``, in this order, and return the path."""
    target = check_target(path)
    return _files.write_text(target, render_comparisons(parts), error=ArgumentError)


def render_comparisons(parts: Sequence[Part]) -> str:
    """The page as HTML.

    >>> import vmselect as vs
    >>> "<h1" in render_comparisons([vs.compare({"a": [1.0, 2.0], "b": [2.0, 3.0]})])
    True
    """
    parts = list_items(parts)
    for part in parts:
        if not isinstance(part, Part):
            raise ArgumentError(f"A page holds comparisons, effects and scores, not {show(part)}.")
    if not parts:
        raise ArgumentError("There is nothing to show. Give a comparison, effects or scores.")
    plots: list[dict[str, Any]] = []
    sections = [_section(number, part, plots) for number, part in enumerate(parts, 1)]
    titles = [_title(part) for part in parts]
    content = {
        "page": {
            "title": f"vmselect comparison: {' · '.join(titles)}",
            "created": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "subject": _subject(parts),
        },
        "plots": plots,
        "parts": [part.payload() for part in parts],
    }
    main = "\n".join([_hero(parts, titles), *sections, _method(parts)])
    return assemble(content, main=main, scripts=SCRIPTS, first=("part1", "the comparison"))


def _title(part: Part) -> str:
    if isinstance(part, Scores):
        return part.title
    words = ", ".join(part.by if isinstance(part, Comparison) else part.names).replace("_", " ")
    how = "by" if isinstance(part, Comparison) else "and its factors:"
    return capitalize(f"{part.metric.noun} {how} {words}")


def _subject(parts: Iterable[Part]) -> list[str]:
    """How much there is on the page."""
    runs = max((len(part.runs.runs) for part in parts if not isinstance(part, Scores)), default=0)
    models = {
        str(model)
        for part in parts
        if not isinstance(part, Scores)
        for record in part.runs.records
        if (model := getattr(record, "model", None))
    }
    return [*sorted(models)[:1], *([f"{runs} run{'s' * (runs != 1)}"] if runs else [])]


def _hero(parts: Sequence[Part], titles: Sequence[str]) -> str:
    """The first answer large; where there are several, links to all."""
    links = "".join(
        f'<li><a href="#part{number}" dir="auto">{escape(title)}</a></li>' for number, title in enumerate(titles, 1)
    )
    contents = f'<ul class="contents">{links}</ul>' if len(parts) > 1 else ""
    verdict = escape(capitalize(parts[0].verdict))
    return f'<section class="hero"><h1 id="verdict" dir="auto">{verdict}</h1>{contents}</section>'


def _section(number: int, part: Part, plots: list[dict[str, Any]]) -> str:
    """One part as markup; its charts are added to ``plots`` and drawn where their numbers stand."""
    own = (
        comparison_plots(part)
        if isinstance(part, Comparison)
        else effects_plots(part)
        if isinstance(part, Effects)
        else []
    )
    hosts = "".join(_host(len(plots) + i, plot) for i, plot in enumerate(own))
    pictures = f'<div class="plots">{hosts}</div>' if hosts else ""
    plots += own
    verdict = number > 1  # the first stands at the top
    if isinstance(part, Comparison):
        body = comparison_html(part, pictures=pictures, verdict=verdict)
    elif isinstance(part, Effects):
        body = effects_html(part, pictures=pictures, verdict=verdict)
    else:
        body = scores_html(part, verdict=verdict)
    head = f'<h2 id="part{number}-title" dir="auto">{escape(_title(part))}</h2>'
    return (
        f'<section class="section tables" id="part{number}" aria-labelledby="part{number}-title">{head}{body}</section>'
    )


def _host(number: int, plot: dict[str, Any]) -> str:
    words = f'<p class="lede" dir="auto">{escape(plot["lede"])}</p>' if plot["lede"] else ""
    wide = "" if plot.get("narrow") else ' class="wide"'
    title = f'<h3 dir="auto">{escape(plot["title"])}</h3>'
    return f'<div{wide}>{title}{words}<div class="chart-host" data-plot="{number}"></div></div>'


def _method(parts: Iterable[Part]) -> str:
    facts: list[tuple[str, str]] = []
    for part in parts:
        if isinstance(part, Comparison):
            facts += [
                ("Repetition", "a run" if part.unit == "runs" else f"{part.unit} of a run, corrected for correlation"),
                ("Test", f"{part.test.name}; pairs by Mann-Whitney, Holm-corrected; alpha {part.test.alpha:g}"),
                ("Intervals", f"{part.confidence:.0%}, of the ratio of means by bootstrap"),
            ]
        elif isinstance(part, Effects):
            what = "percentages (log scale)" if part.scale == "log" else "differences (linear scale)"
            facts.append(("Effects", f"{what}, {part.fit.confidence:.0%} intervals"))
        else:
            facts.append(("Scores", "grade of each need × its weight, in points of 100"))
    rows = "".join(f'<dt>{escape(name)}</dt><dd dir="auto">{escape(fact)}</dd>' for name, fact in dict.fromkeys(facts))
    body = f'<h2 id="method-title">How this was computed</h2><dl class="facts">{rows}</dl>'
    return f'<section class="section" id="method" aria-labelledby="method-title">{body}</section>'
