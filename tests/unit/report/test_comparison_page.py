"""The page of comparisons as a file: complete, without requests, and safe whatever the names are."""

from __future__ import annotations

import json
import re
import sys
from html import unescape
from pathlib import Path

import pytest

import vmselect as vs
from vmselect.errors import ArgumentError
from vmselect.report.comparison_page import render_comparisons

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from comparisons import factorial
from pages import HOSTILE, blocks, read_policy

NAME = f"{HOSTILE} $main"


@pytest.fixture(scope="module")
def page() -> str:
    records = factorial("a", NAME)
    compared = vs.compare(records)
    effects = vs.effects(records, factors=["machine", "batch_size"], metric="step_seconds")
    return render_comparisons([compared, effects, vs.Requirements({"step_seconds": 1.0}).score(compared)])


def test_the_policy_allows_this_script_and_this_style_and_nothing_else(page: str) -> None:
    assert read_policy(page)["default-src"] == "'none'"
    assert set(re.findall(r"https?://[^\s\"'`<>)]+", page)) == {"http://www.w3.org/2000/svg"}
    assert "style=" not in page


def test_names_are_text_everywhere(page: str) -> None:
    assert page.count("<script") == 2
    assert page.count("alert(1)") == page.count("alert(1)&lt;/script&gt;") + page.count("alert(1)\\u003c/script")
    data = json.loads(blocks(page)["data"])
    assert NAME in {row["name"] for row in data["plots"][0]["rows"]}


def test_text_and_tables_are_in_the_file_without_script(page: str) -> None:
    text = unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)))
    assert "no significant difference between a and </script>" in text
    for heading in ("Kruskal-Wallis", "Against", "Share of variation", "Scores", "How this was computed"):
        assert heading in text


@pytest.mark.parametrize(
    "groups",
    [
        {"a": [1.0]},
        {"a": [1.0], "b": [2.0]},
        {"a": [2.0, 2.0, 2.0], "b": [2.0, 2.0, 2.0]},
        {"a": [0.0, 0.0], "b": [-1.0, 1.0]},
        {"a": [1e-12, 2e-12], "b": [1e12]},
    ],
)
def test_degenerate_groups_have_a_page(groups: dict[str, list[float]], tmp_path: Path) -> None:
    written = vs.compare(groups).report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "NaN" not in blocks(written)["data"]
    assert "Infinity" not in blocks(written)["data"]


def test_invalid_parts_and_paths_are_errors(tmp_path: Path) -> None:
    c = vs.compare({"a": [1.0, 2.0], "b": [2.0, 3.0]})
    with pytest.raises(ArgumentError):
        c.report(tmp_path / "page.html", also=[5])
    with pytest.raises(ArgumentError):
        render_comparisons([])
    with pytest.raises(ArgumentError):
        c.report(tmp_path)
    assert list(tmp_path.iterdir()) == []
