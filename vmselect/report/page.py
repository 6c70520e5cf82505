"""The report page: one HTML file that contains its data, script and style, and sends no requests.

:func:`assemble` builds every page, so that all pages share one style and one content security policy.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import vmselect
from vmselect import _files
from vmselect.errors import ArgumentError
from vmselect.report.chart_style import check_target
from vmselect.report.page_data import page_data

if TYPE_CHECKING:
    from vmselect.ranking import Ranking

SCRIPTS = (
    "numbers", "probability", "model", "limits", "next_probe", "scaling", "verdict_text", "elements", "axes",
    "ranking_charts", "verdict", "controls", "table", "sections", "gpu_counts", "batch_sizes", "training_charts",
    "report", "tools", "app",
)  # fmt: skip
"""The scripts of the report page, in the order in which they are concatenated."""

# Characters that could end the script element, or break a script in an old browser. JSON parsers decode the escapes.
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def write_page(ranking: Ranking, path: str | os.PathLike[str]) -> Path:
    """Write the report page of ``ranking`` to ``path`` and return the path."""
    return _files.write_text(check_target(path), render_page(ranking), error=ArgumentError)


def render_page(ranking: Ranking) -> str:
    """The report page of ``ranking`` as HTML."""
    main = read_asset("ranking.html").rstrip()
    first = ("ranking", "the ranking") if len(ranking.candidates) else ("excluded", "the excluded candidates")
    return assemble(page_data(ranking), main=main, scripts=SCRIPTS, first=first)


def assemble(data: Mapping[str, Any], *, main: str, scripts: Sequence[str], first: tuple[str, str]) -> str:
    """A page as HTML with the body ``main``. ``first`` contains the HTML id and the name of its first section."""
    style = read_asset("page.css")
    script = '"use strict";\n{\n' + "\n".join(read_asset(f"{name}.js") for name in scripts) + "}\n"
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return Template(read_asset("page.html")).substitute(
        policy=policy,
        version=vmselect.__version__,
        title=html.escape(data["page"]["title"]),
        first=first[0],
        first_words=first[1],
        main=main,
        style=style,
        script=script,
        data=embed_json(data),
    )


def embed_json(value: Any) -> str:
    """``value`` as JSON that is safe inside a script element, whatever its strings contain."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A lone surrogate, as in a broken name, cannot be written as UTF-8.
    return text.translate(_ESCAPES).encode("utf-8", "replace").decode("utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def read_asset(name: str) -> str:
    """The text of the file ``name`` in the folder ``assets``."""
    return resources.files("vmselect.report").joinpath("assets", name).read_text(encoding="utf-8")
