"""The report page: one HTML file that holds its data, its script and its style, and contacts no one.

:func:`assemble` is what every page of ours is put together by, so that all have one look and one policy.
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
from vmselect.report.files import check_target
from vmselect.report.page_data import page_content

if TYPE_CHECKING:
    from vmselect.ranking import Ranking

SCRIPTS = (
    "numbers", "model", "words", "elements", "axes", "charts", "verdict", "controls", "table", "sections", "batches",
    "usage", "report", "tools", "app",
)  # fmt: skip
"""The scripts of a ranking's page, in the order in which they are joined into one."""

# What could end the script element or, as a line separator, break a script in an old browser, becomes an escape that
# JSON reads back as the same character.
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def write_page(ranking: Ranking, path: str | os.PathLike[str]) -> Path:
    """Write the report page of ``ranking`` to ``path`` and return the path.

    The file appears whole or not at all: it is written beside its final name and then renamed.
    """
    target = check_target(path)
    return _files.write_text(target, render_page(ranking), error=ArgumentError)


def render_page(ranking: Ranking) -> str:
    """The report page of ``ranking`` as HTML."""
    content = page_content(ranking)
    main = read_asset("ranking.html").rstrip()
    return assemble(content, main=main, scripts=SCRIPTS, first=("ranking", "the ranking"))


def assemble(content: Mapping[str, Any], *, main: str, scripts: Sequence[str], first: tuple[str, str]) -> str:
    """A page as HTML: ``main`` is its body, ``content`` its data, ``first`` the id and the name of where it begins."""
    style = read_asset("page.css")
    script = '"use strict";\n{\n' + "\n".join(read_asset(f"{name}.js") for name in scripts) + "}\n"
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return Template(read_asset("page.html")).substitute(
        policy=policy,
        version=vmselect.__version__,
        title=html.escape(content["page"]["title"]),
        first=first[0],
        first_words=first[1],
        main=main,
        style=style,
        script=script,
        data=embed_json(content),
    )


def embed_json(value: Any) -> str:
    """``value`` as JSON that may stand inside a script element whatever its strings hold.

    >>> embed_json({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A lone surrogate cannot be written as UTF-8; a profile with a broken name still deserves its page.
    return text.translate(_ESCAPES).encode("utf-8", "replace").decode("utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def read_asset(name: str) -> str:
    """The text of a file that the page is put together from."""
    return resources.files("vmselect.report").joinpath("assets", name).read_text(encoding="utf-8")
