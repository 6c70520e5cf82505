"""The page of comparisons in a real browser: it draws every run, sends no requests and can be read without a mouse."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vmselect as vs
from vmselect.report.page import render_comparisons

By = pytest.importorskip(
    "selenium.webdriver.common.by", reason="the page was not opened in a browser: selenium is not installed"
).By
from selenium.webdriver.common.keys import Keys  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from comparisons import profile  # noqa: E402
from pages import complaints, open_page, requests  # noqa: E402

NAMES = ("small", "big", "</script><b>third")
SIZES = (64, 128)


@pytest.fixture(scope="module")
def parts() -> list[Any]:
    rng = np.random.default_rng(5)
    records = [
        profile(rng, level=0.01 * (i + 1) * size, instance_type=name, batch_size=size, factors={"machine": name})
        for i, name in enumerate(NAMES) for size in SIZES for _ in range(4)
    ]  # fmt: skip
    c = vs.compare(records, by="instance_type", baseline="small")
    e = vs.stats.effects(records, factors=["machine", "batch_size"], metric="step_seconds", scale="log")
    return [c, e, vs.stats.Requirements({"step_seconds": 1.0}).score(c)]


@pytest.fixture
def page(browser: Any, parts: list[Any], tmp_path: Path) -> Any:
    open_page(browser, tmp_path / "page.html", render_comparisons(parts))
    return browser


def count(page: Any, selector: str) -> int:
    return int(page.execute_script("return document.querySelectorAll(arguments[0]).length", selector))


def test_it_draws_every_run_and_every_interval(page: Any, parts: list[Any]) -> None:
    assert complaints(page) == []
    assert requests(page) == [page.current_url]
    comparison, effects, _ = parts
    assert page.find_element(By.ID, "verdict").text.lower() == comparison.verdict.lower()
    assert count(page, "#part1 .run") == len(comparison.points)
    assert count(page, "#part1 .box rect") == len(NAMES)
    assert count(page, "#part2 .interval .dot") == len(effects.main) + len(effects.interactions)
    assert count(page, "#part2 .line") == len(SIZES)
    assert count(page, "#part2 .run") == len(comparison.points)
    assert count(page, "b") == 0
    heads = page.execute_script("return [...document.querySelectorAll('#part3 th')].map((cell) => cell.innerText)")
    assert "score" in heads


def test_marks_are_where_their_values_are(page: Any, parts: list[Any]) -> None:
    points = parts[0].points
    across = page.execute_script(
        "return [...document.querySelectorAll('#part1 .run')].map((mark) => Number(mark.getAttribute('cx')))"
    )
    values = [value for name in parts[0].members for value in points[points["group"] == name]["value"]]
    assert np.corrcoef(across, values)[0, 1] > 0.999999


def test_every_run_is_reached_with_the_keyboard(page: Any) -> None:
    assert count(page, "#part1 svg:has(.run) [tabindex='0']") == 1
    page.execute_script("document.querySelector('#part1 svg:has(.run) [tabindex=\"0\"]').focus()")
    shown = []
    for _ in range(len(NAMES) * len(SIZES) * 4):
        box = page.find_element(By.CSS_SELECTOR, ".tooltip")
        assert box.is_displayed()
        shown.append(box.text)
        assert page.switch_to.active_element.get_attribute("aria-label").startswith(box.text.split("\n")[0])
        page.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert {text.split("\n")[0] for text in shown} == set(NAMES)
    again = page.execute_script("return document.activeElement.getAttribute('aria-label')")
    assert again == shown[0].replace("\n", ", ")  # round the circle


def test_it_fits_a_phone_and_has_a_dark_side(page: Any) -> None:
    page.set_window_size(390, 800)
    try:
        page.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))")
        wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.execute_script(wide) <= 0
        before = page.execute_script("return getComputedStyle(document.body).backgroundColor")
        page.find_element(By.ID, "theme").click()
        assert page.execute_script("return getComputedStyle(document.body).backgroundColor") != before
    finally:
        page.set_window_size(1280, 1000)


def test_text_and_tables_need_no_script(browser: Any, parts: list[Any], tmp_path: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    path = tmp_path / "page.html"
    path.write_text(render_comparisons(parts), encoding="utf-8")
    try:
        browser.get(path.as_uri())
        assert browser.find_element(By.ID, "verdict").text
        assert len(browser.find_elements(By.CSS_SELECTOR, "#part1 tbody tr")) >= len(NAMES)
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
