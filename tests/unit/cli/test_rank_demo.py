"""``vmselect demo``: the example records ranked, printed and written as a page, with no training framework."""

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
from vmselect.cli.rank import EXAMPLE_RECORDS, rank_example

ROOT = Path(__file__).parents[3]


def test_it_prints_the_ranking_and_writes_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["demo", "--out", str(page)])
    assert done.exit_code == 0
    assert rank_example().verdict in done.stdout
    assert page.resolve().as_uri() in done.stderr
    assert page.read_text(encoding="utf-8").startswith("<!")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_json_equals_python(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "page.html"), "--format", "json"])
    assert json.loads(done.stdout) == json.loads(rank_example().to_json())


def test_the_ranking_is_labelled_as_an_example() -> None:
    codes = {finding.code for finding in rank_example().findings}
    assert "example" in codes
    assert "old-prices" not in codes  # they are old on purpose
    assert all("example" in profile.writer for profile in vs.load_profiles(EXAMPLE_RECORDS))


def test_the_records_are_the_published_times_of_the_example_script() -> None:
    published = runpy.run_path(str(ROOT / "examples" / "published_times.py"))["rank_published"]()
    demo = rank_example()
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
