"""The documentation site builds without a warning, and needs no other server."""

from __future__ import annotations

import doctest
import functools
import importlib.util
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from tests.support.pages import blocks

pytest.importorskip("mkdocs", reason="the site is not built: the extra docs is not installed")
pytest.importorskip("mkdocstrings", reason="the site is not built: the extra docs is not installed")

ROOT = Path(__file__).parents[2]


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    command += ["--config-file", str(ROOT / "docs" / "site" / "mkdocs.yml"), "--site-dir", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, str]:
    return {path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in site.rglob("*.html")}


def test_every_page_is_in_the_navigation(pages: dict[str, str]) -> None:
    linked = set(re.findall(r'<a href="([^"]+)" class="md-nav__link', pages["index.html"]))
    sources = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    assert {f"{source.with_suffix('').as_posix()}/" for source in sources if source.name != "README.md"} <= linked


def test_every_public_name_is_in_the_api_reference(pages: dict[str, str]) -> None:
    text = "".join(page for name, page in pages.items() if name.startswith("reference/api/"))
    names = [name for name in vs.__all__ if name not in ("energy", "serving", "stats")]
    names += [f"{space}.{name}" for space in ("energy", "serving", "stats") for name in getattr(vs, space).__all__]
    assert [name for name in names if f'id="vmselect.{name}"' not in text] == []


def test_docstrings_are_shown_as_markdown(pages: dict[str, str]) -> None:
    spec = importlib.util.spec_from_file_location("docstrings", ROOT / "docs" / "site" / "docstrings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert doctest.testmod(module).failed == 0
    text = pages["reference/api/decide/index.html"]
    assert "&gt;&gt;&gt; " in text
    assert not re.search(r":(class|func|meth|mod):", re.sub(r"<[^>]+>", "", text))


def test_no_page_needs_another_server(pages: dict[str, str]) -> None:
    for name, page in pages.items():
        assert re.findall(r'<(?:script|img|iframe)[^>]+src="?(?:https?:)?//[^">]+', page) == [], name
        assert re.findall(r'<link[^>]+rel="(?:stylesheet|preconnect|preload)"[^>]+href="?(?:https?:)?//', page) == [], (
            name
        )


def test_the_playground_shows_the_example_report(site: Path, pages: dict[str, str]) -> None:
    assert 'src="example-report.html"' in pages["index.html"]
    assert "p3.2xlarge" in blocks(pages["example-report.html"])["data"]


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    handler = functools.partial(QuietHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_pages_fit_a_phone_and_ask_no_other_server(address: str, browser: Any) -> None:
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        browser.get_log("performance")
        for page in ("", "reference/api/decide/", "validation/prediction/"):
            browser.get(f"{address}/{page}")
            assert browser.execute_script("return document.documentElement.scrollWidth") <= 390, page
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert [url for url in urls if not url.startswith((address, "data:", "blob:"))] == []


def test_the_controls_of_the_playground_work(address: str, browser: Any) -> None:
    browser.get(f"{address}/")
    browser.switch_to.frame(browser.find_element("css selector", "iframe.example"))
    deadline = browser.find_element("css selector", "#deadline")
    before = browser.execute_script("return vmselect.state.view.rows.length")
    deadline.clear()
    deadline.send_keys("2\t")
    assert (before, browser.execute_script("return vmselect.state.view.rows.length")) == (5, 6)
    browser.switch_to.default_content()
