"""The page as a file: whole, small, closed to the world, and safe whatever the names are."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vmselect as vs
from vmselect.errors import ArgumentError
from vmselect.report import render_page, to_html, write_page
from vmselect.report.page import embed_json
from vmselect.report.page_data import page_content

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
from pages import blocks, read_policy

HOSTILE = "</script><script>alert(1)</script> \"'&\u2028 🚀"


@pytest.fixture(scope="module")
def ranking() -> vs.Ranking:
    profiles = [
        vs.Profile.from_times(instance_type=name, model=HOSTILE, first_epoch_seconds=60, later_epoch_seconds=[40, 41])
        for name in ("g4dn.xlarge", HOSTILE)
    ]
    return vs.rank(profiles, epochs=[5, 10])


@pytest.fixture(scope="module")
def page(ranking: vs.Ranking) -> str:
    return render_page(ranking)


def test_the_policy_allows_this_script_and_this_style_and_nothing_else(page: str) -> None:
    parts = read_policy(page)
    assert parts["default-src"] == "'none'"
    assert parts["img-src"] == "data:"
    assert set(parts) == {"default-src", "script-src", "style-src", "img-src", "base-uri", "form-action"}


def test_names_no_other_host(page: str) -> None:
    assert set(re.findall(r"https?://[^\s\"'`<>)]+", page)) == {"http://www.w3.org/2000/svg"}
    assert re.findall(r"<(?:link|iframe|img|object|embed)\b[^>]*>", page) == ['<link rel="icon" href="data:,">']


def test_inserts_nothing_as_markup(page: str) -> None:
    script = blocks(page)["script"]
    ways = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|fetch\(|XMLHttp"
    assert not re.search(ways, script)


def test_holds_the_data_whatever_the_names(page: str, ranking: vs.Ranking) -> None:
    data = json.loads(blocks(page)["data"])
    assert {name: data[name] for name in ("machines", "candidates", "settings")} == json.loads(
        json.dumps({name: ranking.payload(rows=False)[name] for name in ("machines", "candidates", "settings")})
    )
    assert data["page"]["subject"][0] == HOSTILE
    assert HOSTILE in data["excluded"][0]["candidate"]
    assert page.count("<script") == 2
    assert "<title>vmselect report: &lt;/script&gt;" in page


@given(st.text())
def test_any_text_survives_embedding(text: str) -> None:
    embedded = embed_json([text])
    assert not set("<>&\u2028\u2029") & set(embedded)
    assert json.loads(embedded) == [text]


def test_a_lone_surrogate_does_not_prevent_the_page() -> None:
    embed_json(["broken \ud800 name"]).encode("utf-8")


def test_is_small(page: str) -> None:
    assert len(page.encode()) < 150_000


def test_is_written_whole_and_says_where(ranking: vs.Ranking, tmp_path: Path) -> None:
    target = tmp_path / "new folder" / "report.html"
    assert write_page(ranking, target) == target == ranking.report(str(target))
    assert target.read_text(encoding="utf-8").endswith("</html>\n")
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]
    for wrong in (target.parent, target / "report.html"):
        with pytest.raises(ArgumentError):
            ranking.report(wrong)
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]


def test_a_page_about_nothing_is_still_a_page(tmp_path: Path) -> None:
    profile = vs.Profile.from_times(instance_type="never-sold", first_epoch_seconds=60, later_epoch_seconds=40)
    nothing = vs.rank(profile, epochs=5)
    assert "never-sold" in nothing.report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Nothing is feasible" in to_html(nothing)


def test_says_how_it_was_computed(page: str) -> None:
    facts = dict(json.loads(blocks(page)["data"])["page"]["facts"])
    assert facts["Method"].startswith("robust")
    assert re.search(r"of \d{4}-\d\d-\d\d", facts["Prices"])
    assert facts["Measured"] == "2 profiles, all from times that were measured elsewhere"


def test_the_notebook_shows_names_as_text(ranking: vs.Ranking) -> None:
    profile = vs.Profile.from_times(instance_type="g4dn.xlarge", first_epoch_seconds=60, later_epoch_seconds=[40, 41])
    html = vs.rank(profile, epochs=10)._repr_html_()
    assert "<table>" in html
    assert "T4" in html
    assert "<script" not in ranking._repr_html_()


def test_the_notebook_shows_the_best_only() -> None:
    profile = vs.Profile.from_times(instance_type="m", first_epoch_seconds=60, later_epoch_seconds=40)
    offers = [{"provider": "lab", "instance_type": "m", "region": f"r{i}", "usd_per_hour": 1 + i} for i in range(40)]
    ranking = vs.rank(profile, epochs=10, catalog=vs.Catalog.embedded("2026-08-22").with_offers(offers))
    html = to_html(ranking, most=5)
    assert html.count("<tr>") == 6
    assert "The best 5 of 40 candidates" in html


def test_of_very_many_candidates_the_page_holds_the_best() -> None:
    profiles = [
        vs.Profile.from_times(instance_type=f"m{i}", first_epoch_seconds=60 + i, later_epoch_seconds=40 - i)
        for i in range(3)
    ]
    offers = [
        {"provider": "lab", "instance_type": f"m{i}", "region": f"r{r}", "usd_per_hour": 1 + i + r}
        for i in range(3)
        for r in range(40)
    ]
    ranking = vs.rank(profiles, epochs=[5, 10], catalog=vs.Catalog.embedded("2026-08-22").with_offers(offers))
    content = page_content(ranking, most=20)
    kept = {(candidate["instance_type"], candidate["region"]) for candidate in content["candidates"]}
    assert len(kept) <= 20
    assert len(kept) + content["page"]["candidates_left_off"] == 120
    assert content["excluded"] == page_content(ranking.rerank(deadline_hours=1e-9))["excluded"] == []
    for objective in ("cost", "time"):
        best = ranking.rerank(objective=objective).best
        assert (best.instance_type, best.region) in kept


def test_what_was_measured_of_the_best_comes_first() -> None:
    profiles = [
        vs.Profile.from_times(instance_type=name, batch_size=64, steps_per_epoch=100, iteration_seconds=[seconds] * 5)
        for name, seconds in (("a-unsold", 0.01), ("g4dn.xlarge", 0.9), ("g5.xlarge", 0.1))
    ]
    content = page_content(vs.rank(profiles, epochs=10, objective="time"))
    assert [one["title"] for one in content["page"]["steps"]] == [
        "g5.xlarge, batch 64", "g4dn.xlarge, batch 64", "a-unsold, batch 64",
    ]  # fmt: skip
