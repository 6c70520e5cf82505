"""The page of a score in a real browser: it draws the reliability, sends no requests and fits a phone."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from tests.support.forecasts import make_forecast, make_pair
from vmselect.report.comparison_charts import SHOWN_LEVELS
from vmselect.scoring.score import Score

By = pytest.importorskip(
    "selenium.webdriver.common.by", reason="the page was not opened in a browser: selenium is not installed"
).By

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from pages import complaints, open_page, requests  # noqa: E402

MACHINES = ("g4dn.xlarge", "p3.2xlarge", "</script><b>third")


@pytest.fixture(scope="module")
def score() -> Score:
    generator = random.Random(3)
    errors = [(name, generator.gauss(0, 0.2)) for name in MACHINES for _ in range(5)]
    pairs = [record for name, error in errors for record in make_pair(error, instance_type=name)]
    return vs.score([*pairs, make_forecast("waiting"), make_forecast("lost").outcome(seconds=7.0)])


def test_it_draws_the_reliability_and_lists_groups_and_worst_cases(browser: Any, score: Score, tmp_path: Path) -> None:
    page = score.report(tmp_path / "page.html")
    open_page(browser, page, page.read_text(encoding="utf-8"))
    assert complaints(browser) == []
    assert requests(browser) == [browser.current_url]
    assert browser.find_element(By.ID, "verdict").text.lower() == score.verdict.lower()

    def count(selector: str) -> int:
        return len(browser.find_elements(By.CSS_SELECTOR, selector))

    assert count("#part1 svg .line") == 2
    assert count("#part1 svg .line .leader") == len(SHOWN_LEVELS) + 2  # intervals, and lines to the two names
    assert count("#part1 svg .dot") == 2 * len(SHOWN_LEVELS)
    assert count("[aria-label='Groups'] tbody tr") == len(score.groups)
    assert count("[aria-label='Worst cases'] tbody tr") == len(score.worst) == 5
    assert count("[aria-label='Not scored'] tbody tr") == 1
    assert count("b") == 0


def test_it_fits_a_phone_and_has_a_dark_side(browser: Any, score: Score, tmp_path: Path) -> None:
    browser.set_window_size(390, 800)
    try:
        page = score.report(tmp_path / "page.html")
        open_page(browser, page, page.read_text(encoding="utf-8"))
        wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert browser.execute_script(wide) <= 0
        before = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        browser.find_element(By.ID, "theme").click()
        assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") != before
    finally:
        browser.set_window_size(1280, 1000)
