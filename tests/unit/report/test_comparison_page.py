"""The page of comparisons as a file: whole, closed to the world, safe whatever the names are, and bounded."""

from __future__ import annotations

import json
import re
import sys
from html import unescape
from pathlib import Path

import numpy as np
import pytest

import vmselect as vs
from vmselect.errors import ArgumentError
from vmselect.report import comparison_page
from vmselect.report.comparison_page import comparison_plots, effects_plots, render_comparisons

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from comparisons import profile
from pages import blocks, read_policy

HOSTILE = "</script><script>alert(1)</script> \"'&\u2028 $main 🚀"


def records() -> list[vs.Profile]:
    rng = np.random.default_rng(0)
    return [
        profile(rng, level=0.01 * size / 64, instance_type=name, batch_size=size, factors={"machine": name})
        for name in ("a", HOSTILE) for size in (64, 128) for _ in range(3)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def page() -> str:
    scores = vs.Requirements({"step_seconds": 1.0}).score(vs.compare(records()))
    return render_comparisons(
        [vs.compare(records()), vs.effects(records(), factors=["machine", "batch_size"], metric="step_seconds"), scores]
    )


def test_the_policy_allows_this_script_and_this_style_and_nothing_else(page: str) -> None:
    parts = read_policy(page)
    assert parts["default-src"] == "'none'"
    assert set(re.findall(r"https?://[^\s\"'`<>)]+", page)) == {"http://www.w3.org/2000/svg"}
    assert "style=" not in page


def test_names_are_text_everywhere(page: str) -> None:
    assert page.count("<script") == 2
    assert page.count("alert(1)") == page.count("alert(1)&lt;/script&gt;") + page.count("alert(1)\\u003c/script")
    data = json.loads(blocks(page)["data"])
    assert HOSTILE in {row["name"] for row in data["plots"][0]["rows"]}


def test_words_and_tables_stand_in_the_file_without_script(page: str) -> None:
    words = unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)))
    assert "no significant difference between a and </script>" in words
    for heading in ("Kruskal-Wallis", "Against", "Share of variation", "Scores", "How this was computed"):
        assert heading in words


def test_boxes_hold_every_run_and_its_summary() -> None:
    c = vs.compare(records(), by=["instance_type", "batch_size"])
    boxes, differences = comparison_plots(c)
    assert [len(row["points"]) for row in boxes["rows"]] == [3, 3, 3, 3]
    assert boxes["axis"] == "Step time, ms"
    for row, summary in zip(boxes["rows"], c.groups.to_dict("records"), strict=True):
        names = ("minimum", "quartile_1", "median", "quartile_3", "maximum")
        assert row["edges"] == pytest.approx([1e3 * summary[name] for name in names])
    assert [row["value"] for row in differences["rows"]] == pytest.approx(c.groups["percent"].tolist())
    assert [row["low"] for row in differences["rows"]][1:] == pytest.approx(c.groups["percent_low"].tolist()[1:])
    assert differences["rows"][0]["text"] == [c.baseline, "the baseline"]


def test_effects_have_intervals_and_lines() -> None:
    e = vs.effects(records(), factors=["machine", "batch_size"], metric="step_seconds")
    main, lines, together, cells = effects_plots(e)
    assert [row["low"] for row in main["rows"]] == pytest.approx(e.main["percent_low"].tolist())
    assert [len(line["points"]) for line in lines["lines"]] == [2, 2]
    assert [row["high"] for row in together["rows"]] == pytest.approx(e.interactions["percent_high"].tolist())
    assert sum(len(row["points"]) for row in cells["rows"]) == 12


def test_a_level_shift_is_drawn() -> None:
    steps = [0.010, 0.0101, 0.0099] * 20 + [0.020, 0.0201, 0.0199] * 10
    comparison_page = comparison_plots(vs.compare(vs.Profile.from_times(instance_type="a", iteration_seconds=steps)))
    assert [plot["kind"] for plot in comparison_page] == ["boxes", "series"]
    assert {point["level"] for point in comparison_page[1]["points"]} == {10.0, 20.0}
    assert sum(point["level"] == 20.0 for point in comparison_page[1]["points"]) == 30


def test_many_runs_are_thinned_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison_page, "MOST_GROUPS", 6)
    monkeypatch.setattr(comparison_page, "MOST_POINTS", 200)
    rng = np.random.default_rng(1)
    many = vs.compare({f"g{i}": rng.random(100).tolist() for i in range(11)})
    boxes = comparison_plots(many)[0]
    assert len(boxes["rows"]) == 6
    assert 100 < sum(len(row["points"]) for row in boxes["rows"]) <= 200 + 6
    assert "the first 6 of 11 groups" in boxes["lede"]


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
def test_odd_groups_have_a_page(groups: dict[str, list[float]], tmp_path: Path) -> None:
    written = vs.compare(groups).report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "NaN" not in blocks(written)["data"]
    assert "Infinity" not in blocks(written)["data"]


def test_what_cannot_stand_on_a_page_is_said(tmp_path: Path) -> None:
    c = vs.compare({"a": [1.0, 2.0], "b": [2.0, 3.0]})
    with pytest.raises(ArgumentError):
        c.report(tmp_path / "page.html", also=[5])
    with pytest.raises(ArgumentError):
        render_comparisons([])
    with pytest.raises(ArgumentError):
        c.report(tmp_path)
    assert list(tmp_path.iterdir()) == []
