"""The report page as a file: complete, small, without requests, and safe whatever the names are."""

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
from vmselect.report.page_data import page_data

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
from pages import HOSTILE, blocks, read_policy
from profiles import make_epoch_profile, make_profile


@pytest.fixture(scope="module")
def ranking() -> vs.Ranking:
    profiles = [make_epoch_profile(name, 60, 40, 41, model=HOSTILE) for name in ("g4dn.xlarge", HOSTILE)]
    return vs.rank(profiles, epochs=[5, 10])


@pytest.fixture(scope="module")
def page(ranking: vs.Ranking) -> str:
    return render_page(ranking)


def test_the_policy_allows_this_script_and_this_style_and_nothing_else(page: str) -> None:
    parts = read_policy(page)
    assert parts["default-src"] == "'none'"
    assert parts["img-src"] == "data:"
    assert set(parts) == {"default-src", "script-src", "style-src", "img-src", "base-uri", "form-action"}
    assert set(re.findall(r"https?://[^\s\"'`<>)]+", page)) == {"http://www.w3.org/2000/svg"}
    assert re.findall(r"<(?:link|iframe|img|object|embed)\b[^>]*>", page) == ['<link rel="icon" href="data:,">']
    script = blocks(page)["script"]
    ways = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|fetch\(|XMLHttp"
    assert not re.search(ways, script)


def test_holds_the_data_as_text(page: str, ranking: vs.Ranking) -> None:
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


def test_a_lone_surrogate_can_be_embedded() -> None:
    embed_json(["broken \ud800 name"]).encode("utf-8")


def test_is_written_completely_and_is_small(ranking: vs.Ranking, tmp_path: Path) -> None:
    target = tmp_path / "new folder" / "report.html"
    assert write_page(ranking, target) == target == ranking.report(str(target))
    assert target.read_text(encoding="utf-8").endswith("</html>\n")
    assert target.stat().st_size < 150_000
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]
    for wrong in (target.parent, target / "report.html"):
        with pytest.raises(ArgumentError):
            ranking.report(wrong)
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]


def test_a_ranking_without_candidates_has_a_page(tmp_path: Path) -> None:
    nothing = vs.rank(make_epoch_profile("never-sold"), epochs=5)
    assert "never-sold" in nothing.report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Nothing is feasible" in to_html(nothing)


def test_states_how_it_was_computed(page: str) -> None:
    facts = dict(json.loads(blocks(page)["data"])["page"]["facts"])
    assert facts["Method"].startswith("robust")
    assert re.search(r"of \d{4}-\d\d-\d\d", facts["Prices"])
    assert facts["Measured"].startswith("2 profiles, all")


def test_the_notebook_shows_names_as_text(ranking: vs.Ranking) -> None:
    html = ranking._repr_html_()
    assert "<table>" in html
    assert "T4" in html
    assert "<script" not in html


def test_of_very_many_candidates_the_page_holds_the_best() -> None:
    names = ("m0", "m1", "m2")
    profiles = [make_epoch_profile(name, 60 + i, 40 - i) for i, name in enumerate(names)]
    offers = [
        {"provider": "lab", "instance_type": name, "region": f"r{r}", "usd_per_hour": 1 + i + r}
        for i, name in enumerate(names)
        for r in range(40)
    ]
    ranking = vs.rank(profiles, epochs=[5, 10], catalog=vs.Catalog.embedded("2026-08-22").with_offers(offers))
    data = page_data(ranking, most=20)
    kept = {(candidate["instance_type"], candidate["region"]) for candidate in data["candidates"]}
    assert len(kept) <= 20
    assert len(kept) + data["page"]["omitted_candidates"] == 120
    assert data["excluded"] == page_data(ranking.rerank(deadline_hours=1e-9))["excluded"] == []
    for objective in ("cost", "time"):
        best = ranking.rerank(objective=objective).best
        assert (best.instance_type, best.region) in kept
    assert to_html(ranking, most=5).count("<tr>") == 6


def test_steps_of_the_best_machine_come_first() -> None:
    seconds = {"a-unsold": 0.01, "g4dn.xlarge": 0.9, "g5.xlarge": 0.1}
    profiles = [make_profile(name, each, steps=5) for name, each in seconds.items()]
    data = page_data(vs.rank(profiles, epochs=10, objective="time"))
    assert [one["title"] for one in data["page"]["steps"]] == [
        "g5.xlarge, batch 64", "g4dn.xlarge, batch 64", "a-unsold, batch 64",
    ]  # fmt: skip
