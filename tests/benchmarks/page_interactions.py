"""Time from an interaction with a report page to its visible update, in Chromium.

``python tests/benchmarks/page_interactions.py [page.html]`` takes about a minute on an idle machine. Without a page, it
measures one with more than 600 candidates. Each interaction is repeated. Printed are median and largest time from the
event to the painted frame with the new order, table and charts, and the median time to the probabilities. ``script``
and ``layout`` are processor times of the page for the whole interaction, on which other processes have less influence.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

from selenium import webdriver

import vmselect as vs
from vmselect.cli.demo import DESCRIPTIONS
from vmselect.report import render_page

LIMIT = 100
"""Milliseconds up to which an update counts as immediate."""
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--window-size=1280,1000",
)  # fmt: skip
INTERACTIONS = (
    ("epochs", "#controls input[type=range]", "input", ("500", "600")),
    ("weight", "#weight", "input", ("30", "0")),
    ("deadline", "#deadline", "input", ("20", "")),
    ("budget", "#budget", "input", ("50", "")),
    ("filter by words", "#filter", "input", ("rtx", "")),
    ("filter by provider", "#filter-provider", "change", ("aws", "")),
    ("filter by region", "#filter-region", "change", ("us-east-1", "")),
    ("filter by GPU", "#filter-gpu", "change", ("H100", "")),
    ("filter by price", "#filter-price", "input", ("1", "")),
    ("sort by time", "th[data-column=seconds] button", "click", ("", "")),
    ("sort by chance", "th[data-column=chance] button", "click", ("", "")),
    ("hover a point", "#time-cost .tip", "pointermove", ("", "")),
)
"""Name, selector, event, and the values that are set in turn."""
ACT = """
    const [selector, type, value, done] = arguments;
    const element = document.querySelector(selector);
    if ("value" in element && value !== undefined && type !== "click") element.value = value;
    const start = performance.now();
    element.dispatchEvent(new (type === "pointermove" ? PointerEvent : Event)(type, { bubbles: true }));
    let shown;
    const complete = () => {
      if (vmselect.chances.busy) return void setTimeout(complete, 1);
      const end = performance.now();
      requestAnimationFrame(() => setTimeout(() => done([shown - start, end - start])));
    };
    // A message that is sent in a frame arrives after the frame is laid out and painted.
    requestAnimationFrame(() => {
      const channel = new MessageChannel();
      channel.port1.onmessage = () => {
        shown = performance.now();
        complete();
      };
      channel.port2.postMessage(null);
    });
"""


def write_large_page(path: Path) -> Path:
    """A page of all machines of the catalog for a described training."""
    profile = vs.Profile.load(DESCRIPTIONS / "resnet50.json")
    ranking = vs.rank(profile, machines="all", catalog=vs.Catalog.embedded("2026-08-22"))
    path.write_text(render_page(ranking), encoding="utf-8")
    return path


def processor_times(browser: Any) -> tuple[float, float]:
    """Milliseconds of the processor that scripts, and style and layout, took so far."""
    metrics = {
        entry["name"]: entry["value"] for entry in browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    }
    return 1e3 * metrics["ScriptDuration"], 1e3 * (metrics["LayoutDuration"] + metrics["RecalcStyleDuration"])


def measure(browser: Any, repeats: int) -> bool:
    """Print the times of all interactions; return whether every median is within the limit."""
    print(f"{'interaction':20}{'shown: median':>15}{'largest':>9}{'complete':>10}{'script':>8}{'layout':>8}   (ms)")
    within = True
    for name, selector, event, values in INTERACTIONS:
        shown, complete, script, layout = [], [], [], []
        for value in values * repeats:
            before = processor_times(browser)
            first, last = browser.execute_async_script(ACT, selector, event, value)
            after = processor_times(browser)
            shown.append(first)
            complete.append(last)
            script.append(after[0] - before[0])
            layout.append(after[1] - before[1])
        median = statistics.median(shown)
        within &= median <= LIMIT
        rest = (statistics.median(values) for values in (complete, script, layout))
        print(f"{name:20}{median:15.0f}{max(shown):9.0f}" + "{:10.0f}{:8.0f}{:8.0f}".format(*rest))
    return within


def main() -> None:
    """Measure the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("page", nargs="?", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = arguments.page or write_large_page(Path(folder) / "page.html")
        options = webdriver.ChromeOptions()
        for flag in (*FLAGS, f"--user-data-dir={folder}/browser"):
            options.add_argument(flag)
        options.binary_location = shutil.which("chromium") or ""
        # With the driver's path, selenium looks nothing up in the network.
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
        try:
            browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
            browser.set_script_timeout(60)
            browser.get(page.resolve().as_uri())
            count = browser.execute_script("vmselect.verdict(); return vmselect.state.view.rows.length")
            print(
                f"{count} candidates, ready after {browser.execute_script('return vmselect.readyMilliseconds'):.0f} ms"
            )
            within = measure(browser, arguments.repeats)
        finally:
            browser.quit()
    print(f"{'All' if within else 'Not all'} medians are within {LIMIT} ms.")


if __name__ == "__main__":
    main()
