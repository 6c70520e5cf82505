"""``vmselect demo``: shipped descriptions ranked, printed and written as a page, with no training framework."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import vmselect as vs
from vmselect.cli import app
from vmselect.cli.demo import FOUNDING_RECORDS, probe_stages, rank_example, rank_founding_example

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from pages import blocks

ROOT = Path(__file__).parents[3]


def test_it_prints_the_ranking_and_writes_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["demo", "--out", str(page)])
    assert done.exit_code == 0
    assert done.stdout.startswith(f"{rank_example().headline}\n{rank_example().details}\n")
    assert page.resolve().as_uri() in done.stderr
    assert page.read_text(encoding="utf-8").startswith("<!")
    other = tmp_path / "page-transformer.html"
    assert sorted(tmp_path.iterdir()) == [other, page]
    for file in (page, other):
        tabs = json.loads(blocks(file.read_text(encoding="utf-8"))["data"])["page"]["tabs"]
        assert [(tab["file"], tab["current"]) for tab in tabs] == [(p.name, p == file) for p in (page, other)]
    assert "warning" not in done.stderr


def test_the_page_does_not_replace_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (".", str(tmp_path)):
        done = CliRunner().invoke(app, ["demo", "--out", folder])
        assert isinstance(done.exception, vs.errors.ArgumentError)
    assert not list(tmp_path.iterdir())


def test_an_example_names_its_prices() -> None:
    (example,) = [finding for finding in rank_example().findings if finding.code == "example"]
    assert vs.Catalog.default().origin in example.message


def test_tabs_link_to_files_with_any_name(tmp_path: Path) -> None:
    page = tmp_path / "a:b #1.html"
    assert CliRunner().invoke(app, ["demo", "--out", str(page)]).exit_code == 0
    tabs = json.loads(blocks(page.read_text(encoding="utf-8"))["data"])["page"]["tabs"]
    assert [tab["file"] for tab in tabs] == ["a%3Ab%20%231.html", "a%3Ab%20%231-transformer.html"]


def test_two_probes_narrow_the_interval_and_raise_the_chance() -> None:
    before, _, after = probe_stages(rank_example())
    assert after.chance > before.chance
    assert after.best.seconds_high / after.best.seconds_low < before.best.seconds_high / before.best.seconds_low
    assert before.best.basis == "described"


@pytest.mark.parametrize("model", ["resnet50", "transformer"])
def test_a_present_day_decision(model: str) -> None:
    ranking = rank_example(model)  # type: ignore[arg-type]
    assert ranking.best.basis == "described"
    assert len({row.provider for row in ranking.deciding_rows}) >= 5
    assert not any(row.gpu_model in ("K80", "M60") for row in ranking.deciding_rows[:10])


@pytest.mark.parametrize("day", ["2027-12-23", "2030-03-01"])
def test_years_after_the_release_it_ranks_at_the_newest_prices_and_says_so(
    day: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = {row.instance_type: row for row in rank_example().deciding_rows}
    monkeypatch.setenv("VMSELECT_TODAY", day)
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "page.html")])
    assert done.exit_code == 0
    assert "nobody knows what machines cost now" in done.stderr
    best = rank_example().best
    sure = now[best.instance_type]
    assert best.cost_high / best.cost_low > sure.cost_high / sure.cost_low
    assert (best.seconds_low, best.seconds_high) == (sure.seconds_low, sure.seconds_high)


def test_json_equals_python(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "page.html"), "--format", "json"])
    assert json.loads(done.stdout) == json.loads(rank_example().to_json())


def test_the_ranking_is_labelled_as_an_example() -> None:
    codes = {finding.code for finding in rank_founding_example().findings}
    assert "example" in codes
    assert "old-prices" not in codes  # they are old on purpose
    assert all("example" in profile.writer for profile in vs.load_profiles(FOUNDING_RECORDS))


def test_the_example_shows_how_little_several_gpus_help() -> None:
    catalog = vs.Catalog.embedded(date="2021-02-28")
    table = vs.rank(vs.load_profiles(FOUNDING_RECORDS), catalog=catalog).scaling.set_index(["gpu_model", "gpus"])
    assert table["efficiency"][("K80", 8)] == pytest.approx(0.394, abs=0.001)
    assert table["speed_up"][("K80", 8)] == pytest.approx(3.15, abs=0.005)


def test_the_records_are_the_published_times_of_the_example_script() -> None:
    published = runpy.run_path(str(ROOT / "examples" / "published_times.py"))["rank_published"]()
    demo = rank_founding_example()
    assert [row.instance_type for row in demo] == [row.instance_type for row in published]
    for ours, theirs in zip(demo, published, strict=True):
        assert (ours.seconds, ours.cost_usd) == pytest.approx((theirs.seconds, theirs.cost_usd))
    assert [one.candidate for one in demo.excluded] == [one.candidate for one in published.excluded]


def test_it_needs_no_framework_and_no_network(tmp_path: Path) -> None:
    """Run as users do, from an empty folder: the page is written there, and no framework is imported."""
    code = (
        "import socket, sys\n"
        "def refuse(*_): raise AssertionError('the demo opened a socket')\n"
        "socket.socket.connect = refuse\n"
        "from vmselect.cli import app\n"
        "app(['demo'], standalone_mode=False)\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert {"keras", "tensorflow", "jax", "torch", "altair"}.isdisjoint(done.stderr.split())
    assert (tmp_path / "demo.html").exists()
