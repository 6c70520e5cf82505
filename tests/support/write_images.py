"""Take the pictures of the README: ``python -m tests.support.write_images``. Needs Chromium and selenium.

The page of ``vmselect demo`` at 1280 and 390 pixels and dark, its output in a terminal of 100 columns, and the pictures
of charts in the how-to guides. With names, as in ``python -m tests.support.write_images usage``, only these charts.
"""

from __future__ import annotations

import base64
import io
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text

import vmselect as vs
from vmselect.records.usage import Usage
from vmselect.report import save_chart
from vmselect.report.charts import usage_chart
from vmselect.report.page import write_comparisons

IMAGES = Path(__file__).parents[2] / "docs" / "images"
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--hide-scrollbars",
)  # fmt: skip
SHOTS = {
    "example": (1280, 1000), "example-narrow": (390, 1000), "example-dark": (1280, 1000), "report": (1280, 1500),
}  # fmt: skip
"""Width and height of the pictures of the page by name. One whose name ends with dark has the dark colours."""
IS_COMPLETE = "return document.readyState === 'complete' && !document.querySelector('[data-pending], [aria-busy=true]')"
"""Whether a page shows everything: its probabilities follow within about a second."""
WAIT_SECONDS = 120
PAGE = """<!doctype html><meta charset="utf-8"><style>
body { margin: 0; padding: 18px 22px; background: #14171b; color: #e8eaed; }
pre { margin: 0; font: 14px/1.5 "DejaVu Sans Mono", monospace; }
</style><pre>{}</pre>
"""
"""A page in the colours of a dark terminal."""


def take(page: Path, name: str, size: tuple[int, int]) -> None:
    """Take a picture of ``page`` in a browser with a profile of its own, when it is complete."""
    from selenium import webdriver
    from selenium.webdriver.support.ui import WebDriverWait

    width, height = size
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        browser = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
        try:
            metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            scheme = {"name": "prefers-color-scheme", "value": "dark" if name.endswith("dark") else "light"}
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
            browser.get(page.resolve().as_uri())
            WebDriverWait(browser, WAIT_SECONDS).until(lambda shown: shown.execute_script(IS_COMPLETE))
            picture = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
        finally:
            browser.quit()
    (IMAGES / f"{name}.png").write_bytes(base64.b64decode(picture))


def write_terminal(folder: Path) -> Path:
    """The output of the demo in a terminal of 100 columns, as a page."""
    command = f"stty cols 100; vmselect demo --out {folder / 'terminal-demo.html'}"
    done = subprocess.run(["script", "-qc", command, "/dev/null"], check=True, capture_output=True, text=True)
    console = Console(width=100, record=True, file=io.StringIO(), force_terminal=True)
    console.print(Text("$ vmselect demo", style="dim"))
    for line in done.stdout.replace("\r", "").splitlines():
        if not line.startswith("Report:"):
            console.print(Text.from_ansi(line))
    page = folder / "terminal.html"
    page.write_text(PAGE.replace("{}", console.export_html(inline_styles=True, code_format="{code}")), encoding="utf-8")
    return page


def write_pages(folder: Path) -> Path:
    """The pages of the demo in ``folder``; return the first."""
    done = subprocess.run(["vmselect", "demo", "--quiet", "--json", "--out", "demo.html"], cwd=folder, check=True,
                          capture_output=True)  # fmt: skip
    assert done.stdout
    return folder / "demo.html"


def rank_made_up() -> vs.Ranking:
    """A ranking of six machines from made-up times of steps."""
    seconds = {
        "g4dn.xlarge": 0.205, "g5.xlarge": 0.118, "g6.xlarge": 0.121, "g5.12xlarge": 0.05, "g4dn.12xlarge": 0.078,
        "p4d.24xlarge": 0.021,
    }  # fmt: skip
    noise = random.Random(7)
    profiles = [
        vs.Profile.from_times(
            instance_type=name, batch_size=256, steps_per_epoch=159, init_seconds=30 if name.startswith("p") else 9,
            iteration_seconds=[step * noise.lognormvariate(0, 0.03) for _ in range(20)],
        )
        for name, step in seconds.items()
    ]  # fmt: skip
    return vs.rank(profiles, epochs=50, catalog=vs.Catalog.embedded("2026-08-22"))


def draw_time_cost() -> None:
    """Time against cost of a made-up ranking."""
    save_chart(rank_made_up().chart("time-cost"), IMAGES / "time-cost.png", scale=1.0)


def draw_epochs_time() -> None:
    """Training time against epochs of a made-up ranking."""
    save_chart(rank_made_up().chart("epochs-time"), IMAGES / "epochs-time.png", scale=1.0)


def draw_usage() -> None:
    """Simulated samples of a training: a start, two epochs with validation."""
    draw = random.Random(7)
    phases = ["initialization"] * 3 + ["first_step"] * 4 + (["steady_steps"] * 20 + ["validation"] * 5) * 2
    levels = {"initialization": 0.1, "first_step": 0.5, "steady_steps": 0.35, "validation": 0.7}
    busy = {"initialization": 0.0, "first_step": 0.2, "steady_steps": 0.85, "validation": 0.6}
    usage = Usage(
        interval_seconds=1.0,
        seconds=tuple(float(second) for second in range(1, len(phases) + 1)),
        phase=tuple(phases),
        series={
            "usable_cpu_share": tuple(levels[phase] + draw.uniform(-0.05, 0.05) for phase in phases),
            "gpu0_busy_share": tuple(max(0.0, busy[phase] + draw.uniform(-0.1, 0.1)) for phase in phases),
            "memory_available_share": tuple(0.55 - 0.002 * second for second in range(len(phases))),
        },
    )
    profile = vs.Profile.from_times(
        instance_type="g4dn.xlarge", batch_size=64, steps_per_epoch=100, iteration_seconds=[0.2] * 9
    )
    save_chart(usage_chart(profile.model_copy(update={"usage": usage})), IMAGES / "usage.png", scale=1.0)


def draw_comparison() -> None:
    """The page of the made-up comparison in docs/how-to/compare-machines.md."""
    runs = {"AWS": [0.63, 0.66, 0.61, 0.62, 0.65], "Azure": [0.59, 0.60, 0.58, 0.57, 0.60]}
    with tempfile.TemporaryDirectory() as folder:
        page = write_comparisons([vs.compare(runs, metric="seconds")], Path(folder) / "comparison.html")
        take(page, "comparison", (1180, 960))


CHARTS: dict[str, Callable[[], None]] = {
    "time-cost": draw_time_cost, "epochs-time": draw_epochs_time, "usage": draw_usage, "comparison": draw_comparison,
}  # fmt: skip
"""Pictures of the how-to guides by name."""


if __name__ == "__main__":
    for chart in sys.argv[1:] or CHARTS:
        CHARTS[chart]()
    if sys.argv[1:]:
        sys.exit()
    with tempfile.TemporaryDirectory() as name:
        page = write_pages(Path(name))
        for shot, size in SHOTS.items():
            take(page, shot, size)
        take(write_terminal(Path(name)), "terminal", (900, 660))
