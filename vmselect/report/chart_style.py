"""Style, units, labels and file output that all charts share."""

from __future__ import annotations

import io
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmselect import _files
from vmselect._checks import check_choice, check_path
from vmselect._optional import require
from vmselect.errors import ArgumentError, RankingError

if TYPE_CHECKING:
    from vmselect.ranking import Ranking, Row
    from vmselect.ranking.candidates import Candidates
    from vmselect.records import Profile

ACCENT, PLAIN = "#0a5fb4", "#8b939d"
SERIES = ("#0072b2", "#d55e00", "#00876c", "#b04e8a", "#a67c00", "#3f9bd1", "#5b6470")
"""Line colors that color-blind readers can distinguish, on screen and on paper."""

WIDTH, HEIGHT = 560, 360
SECONDS_UNITS = ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (180.0, 1.0, "s"), (10_800.0, 1 / 60, "min"))
"""Units of time on an axis: largest value in seconds for which the unit is used, factor from seconds, and name.

Longer times are in hours.
"""

SUFFIXES = (".png", ".svg", ".json", ".html")
FILE_STARTS = (b"<!doctype html", b"<html", b"<svg", b"\x89png")
"""First bytes of page and chart files, in lower case. A chart as JSON contains ``VEGA_SCHEMA`` instead."""
VEGA_SCHEMA = b"vega.github.io/schema"
MAX_FILE_BYTES = 64 * 2**20
_MARKUP = re.compile("<(?=[!/]|script)", re.IGNORECASE)
"""Start of an HTML tag or comment that a browser would recognize inside a script element."""


def altair() -> Any:
    """Import the package altair. If it is missing, the error names the command that installs it."""
    return require("altair", extra="plots", needed_by="A chart")


def color_by(field: str, colors: Mapping[str, str], **options: Any) -> Any:
    """Altair color encoding of ``field``; ``colors`` maps its values to colors."""
    alt = altair()
    scale = alt.Scale(domain=list(colors), range=list(colors.values()))
    return alt.Color(f"{field}:N", scale=scale, **options)


def axis_unit(largest: float, unit: str) -> tuple[float, str]:
    """Conversion factor from ``unit`` to the unit of an axis with values up to ``largest``, and name of that unit."""
    if unit != "s":
        return 1.0, unit
    return next(((factor, name) for limit, factor, name in SECONDS_UNITS if largest < limit), (1 / 3600, "h"))


def capitalize(text: str, unit: str = "") -> str:
    """``text`` with a capital first letter, followed by ``unit``. Other letters stay as they are."""
    return f"{text[:1].upper()}{text[1:]}{f', {unit}' if unit else ''}"


def require_some(ranking: Ranking, shown: Sized) -> None:
    """Raise RankingError if ``shown``, the data of a chart, is empty."""
    if not len(shown):
        raise RankingError(f"The ranking has no candidate to draw. {ranking.verdict}")


def themed(chart: Any, *, title: str, height: int = HEIGHT) -> Any:
    """``chart`` with ``title``, the common width and the common style."""
    return styled(chart.properties(width=WIDTH, height=height, title=title))


def styled(chart: Any) -> Any:
    """``chart`` in the common style, with texts made safe for an HTML page. All charts use this function."""
    style = {"labelColor": "#5b6470", "titleColor": "#5b6470", "titleFontWeight": "normal", "gridColor": "#e2e3df"}
    return _disarm(
        chart.configure_view(stroke=None)
        .configure_axis(domainColor="#8b939d", tickColor="#8b939d", **style)
        .configure_title(anchor="start", fontSize=14, color="#1b1f24", offset=12)
        .configure_legend(labelColor="#1b1f24", titleColor="#5b6470", titleFontWeight="normal")
    )


def _disarm(chart: Any) -> Any:
    """``chart`` with an invisible character in texts that could begin or end an HTML script element.

    Altair writes charts as unescaped JSON into a script element, in HTML files and in notebooks.
    """
    alt = altair()
    with alt.data_transformers.enable("default", max_rows=None):
        spec = chart.to_dict(context={"pre_transform": False})
    text = json.dumps(spec)
    safe = _MARKUP.sub(r"<\\u2060", text)
    return chart if safe == text else alt.Chart.from_dict(json.loads(safe))


def draw(
    charts: Mapping[str, Callable[..., Any]],
    subject: Any,
    kind: str,
    *,
    path: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Any:
    """Draw ``subject`` with the function ``charts[kind]``. If ``path`` is given, also write the chart to it."""
    chart = charts[check_choice("kind", kind, list(charts))](subject, **options)
    if path is not None:
        save_chart(chart, path)
    return chart


def check_target(path: str | os.PathLike[str]) -> Path:
    """``path`` as a Path, after a check that it is a new file or an existing page or chart of vmselect.

    Any other existing file raises ArgumentError, because it was probably named by mistake and would be lost.
    """
    target = check_path("path", path)
    if _files.has_folder(target):
        raise ArgumentError(f"{target} is a folder. Give the path of a file, such as {target / 'report.html'}.")
    if _files.has_file(target):
        old = _files.read_bytes(target, noun="page or chart", limit=MAX_FILE_BYTES, error=ArgumentError)
        if old and not old[:16].lower().startswith(FILE_STARTS) and VEGA_SCHEMA not in old:
            raise ArgumentError(f"{target} exists and is not a page or chart of vmselect. Choose another path.")
    return target


def save_chart(chart: Any, path: str | os.PathLike[str], *, scale: float = 2.0) -> Path:
    """Write ``chart`` as PNG, SVG, Vega-Lite JSON or self-contained HTML, depending on the suffix of ``path``.

    ``scale`` multiplies the width and height of a PNG in pixels.
    """
    target = check_target(path)
    suffix = target.suffix.lower()
    if suffix not in SUFFIXES:
        raise ArgumentError(f"{target.name} lacks the suffix of a chart file. Use one of: {', '.join(SUFFIXES)}.")
    if suffix != ".json":
        require("vl_convert", extra="plots", needed_by=f"A chart as {suffix}")
    # "inline" embeds the script, so that the HTML file loads nothing.
    options: dict[str, dict[str, Any]] = {".png": {"scale_factor": scale}, ".html": {"inline": True}}
    drawn: Any = io.BytesIO() if suffix == ".png" else io.StringIO()
    chart.save(drawn, format=suffix[1:], **options.get(suffix, {}))
    content = drawn.getvalue()
    return _files.write_bytes(target, content if suffix == ".png" else content.encode(), error=ArgumentError)


def labels(candidates: Candidates, which: Iterable[int]) -> dict[int, str]:
    """A short label for each candidate in ``which``: its instance type, and the fields in which candidates differ.

    Labels omit the market ``on_demand``.
    """
    who = {int(i): candidates.identity(int(i)) for i in which}
    fields = ("batch_size", "varied", "region", "service", "provider", "market")
    varying = [name for name in fields if len({one[name] for one in who.values()}) > 1]
    repeated = Counter(one["instance_type"] for one in who.values())
    named = {}
    for i, one in who.items():
        more = varying if repeated[one["instance_type"]] > 1 else ()
        parts = [
            f"batch {one[name]}" if name == "batch_size" else str(one[name])
            for name in more
            if one[name] not in (None, "on_demand")
        ]
        named[i] = " · ".join([one["instance_type"], *parts])
    return named


def records_of(ranking: Ranking, instance_type: str | None) -> list[Profile]:
    """The profiles of ``instance_type`` in ``ranking``, by default of the best candidate."""
    wanted = instance_type or ranking.best.instance_type
    return [p for one in ranking.candidates.machine_estimates if one.instance_type == wanted for p in one.records]


def deciding_rows(ranking: Ranking, *, most: int | None = None) -> list[tuple[str, Row]]:
    """Labels and rows of the candidates, best first; at most ``most`` if it is given."""
    column = ranking.deciding_column
    order = ranking.assessment.order[column][:most]
    named = labels(ranking.candidates, order)
    return [(named[int(i)], ranking.row(int(i), column)) for i in order]
