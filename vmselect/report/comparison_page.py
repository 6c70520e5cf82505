"""The comparison page: text, tables and charts of groups, effects, scores and forecasts in one HTML file.

Text and tables are HTML. The script only draws charts of numbers that the tables contain, too.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from vmselect import _files
from vmselect._checks import list_items, show
from vmselect.comparison.effects import Effects
from vmselect.comparison.groups import Comparison
from vmselect.comparison.requirements import Scores
from vmselect.errors import ArgumentError
from vmselect.report.chart_style import capitalize, check_target
from vmselect.report.comparison_charts import Plot, comparison_plots, effects_plots
from vmselect.report.notebook import comparison_html, effects_html, score_html, scores_html
from vmselect.report.page import assemble
from vmselect.report.score_charts import reliability_plot
from vmselect.scoring.score import Score

SCRIPTS = ("numbers", "elements", "axes", "comparison_charts", "tools", "comparison_app")
Part = Comparison | Effects | Scores | Score


def write_comparisons(parts: Sequence[Part], path: str | os.PathLike[str]) -> Path:
    """Write a page of comparisons, effects and scores, in the order of ``parts``, to ``path`` and return the path."""
    return _files.write_text(check_target(path), render_comparisons(parts), error=ArgumentError)


def write_score(score: Score, path: str | os.PathLike[str]) -> Path:
    """Write the page of a score of forecasts to ``path`` and return the path."""
    return write_comparisons([score], path)


def render_comparisons(parts: Sequence[Part]) -> str:
    """The comparison page of ``parts`` as HTML."""
    parts = list_items(parts)
    for part in parts:
        if not isinstance(part, Part):
            raise ArgumentError(f"A page cannot contain {show(part)}. Pass comparisons, effects or scores.")
    if not parts:
        raise ArgumentError("There is nothing to write to the page. Pass at least one comparison, effects or scores.")
    plots: list[Plot] = []
    sections = [_section(number, part, plots) for number, part in enumerate(parts, 1)]
    titles = [_title(part) for part in parts]
    data = {
        "page": {
            "title": f"vmselect comparison: {' · '.join(titles)}",
            "created": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "subject": _subject(parts),
        },
        "plots": plots,
        "parts": [json.loads(part.to_json()) for part in parts],
    }
    main = "\n".join([_hero(parts, titles), *sections, _method(parts)])
    return assemble(data, main=main, scripts=SCRIPTS, first=("part1", "the comparison"))


def _title(part: Part) -> str:
    if isinstance(part, Scores):
        return part.title
    if isinstance(part, Score):
        return "Forecasts against outcomes"
    words = ", ".join(part.by if isinstance(part, Comparison) else part.names).replace("_", " ")
    how = "by" if isinstance(part, Comparison) else "and its factors:"
    return capitalize(f"{part.metric.noun} {how} {words}")


def _subject(parts: Iterable[Part]) -> list[str]:
    """Texts for the top of the page: model and number of runs."""
    measured = [part.runs for part in parts if not isinstance(part, Scores | Score)]
    runs = max((len(one.runs) for one in measured), default=0)
    models = {getattr(record, "model", None) for one in measured for record in one.records} - {None}
    return [*sorted(map(str, models))[:1], *([f"{runs} run{'s' * (runs != 1)}"] if runs else [])]


def _hero(parts: Sequence[Part], titles: Sequence[str]) -> str:
    """The top of the page: the verdict of the first part, and links to all parts if there are several."""
    links = "".join(
        f'<li><a href="#part{number}" dir="auto">{escape(title)}</a></li>' for number, title in enumerate(titles, 1)
    )
    contents = f'<ul class="contents">{links}</ul>' if len(parts) > 1 else ""
    verdict = escape(capitalize(parts[0].verdict))
    return f'<section class="hero"><h1 id="verdict" dir="auto">{verdict}</h1>{contents}</section>'


def _section(number: int, part: Part, plots: list[Plot]) -> str:
    """The HTML of ``part``. The data of its charts is appended to ``plots``."""
    verdict = number > 1  # the first is at the top of the page
    if isinstance(part, Comparison):
        body = comparison_html(part, pictures=_pictures(comparison_plots(part), plots), verdict=verdict)
    elif isinstance(part, Effects):
        body = effects_html(part, pictures=_pictures(effects_plots(part), plots), verdict=verdict)
    elif isinstance(part, Score):
        plot = [reliability_plot(part)] if part else []
        body = score_html(part, pictures=_pictures(plot, plots), verdict=verdict)
    else:
        body = scores_html(part, verdict=verdict)
    title = f"part{number}-title"
    head = f'<h2 id="{title}" dir="auto">{escape(_title(part))}</h2>'
    return f'<section class="section tables" id="part{number}" aria-labelledby="{title}">{head}{body}</section>'


def _pictures(own: list[Plot], plots: list[Plot]) -> str:
    """Empty HTML elements for the charts ``own``, which are appended to ``plots``; the page's script draws them."""
    places = []
    for number, plot in enumerate(own, len(plots)):
        title = f'<h3 dir="auto">{escape(plot["title"])}</h3>'
        lede = f'<p class="lede" dir="auto">{escape(plot["lede"])}</p>' if plot["lede"] else ""
        wide = "" if plot.get("narrow") else ' class="wide"'
        places.append(f'<div{wide}>{title}{lede}<div class="chart-host" data-plot="{number}"></div></div>')
    plots += own
    return f'<div class="plots">{"".join(places)}</div>'


def _method(parts: Iterable[Part]) -> str:
    facts: list[tuple[str, str]] = []
    for part in parts:
        if isinstance(part, Comparison):
            facts += [
                ("Compared", "runs" if part.unit == "runs" else f"{part.unit} of runs, corrected for correlation"),
                ("Test", f"{part.test.name}; pairs: {_pair_test(part)}, Holm-corrected; alpha {part.test.alpha:g}"),
                ("Intervals", f"{part.confidence:.0%} {_interval_method(part)}"),
            ]
        elif isinstance(part, Effects):
            what = "percentages (log scale)" if part.scale == "log" else "differences (linear scale)"
            facts.append(("Effects", f"{what} with {part.fit.confidence:.0%} intervals"))
        elif isinstance(part, Score):
            facts += [
                ("Error", "forecast minus real time, in percent of the real time; bias is the mean with its sign"),
                ("Coverage", "share of the real times inside their interval, with a 90% Wilson interval"),
                ("Levels", "other confidence levels scale the interval of a forecast as a normal distribution"),
            ]
        else:
            facts.append(("Scores", "sum over the requirements of fulfilment (0 to 1) × share of the weights × 100"))
    rows = "".join(f'<dt>{escape(name)}</dt><dd dir="auto">{escape(fact)}</dd>' for name, fact in dict.fromkeys(facts))
    body = f'<h2 id="method-title">How this was computed</h2><dl class="facts">{rows}</dl>'
    return f'<section class="section" id="method" aria-labelledby="method-title">{body}</section>'


def _pair_test(part: Comparison) -> str:
    return "the same test" if part.within else "Mann-Whitney"


def _interval_method(part: Comparison) -> str:
    if part.within:
        return "Student t intervals of the geometric mean of the ratios in all scenarios"
    return "bootstrap intervals of the ratio of means"
