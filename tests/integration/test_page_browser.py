"""The report page in a real browser: it computes what Python computes, sends no requests and treats names as text."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from vmselect.cli.demo import DESCRIPTIONS
from vmselect.records import Operations
from vmselect.report import render_page
from vmselect.report.page import MAX_CANDIDATES, render_comparisons
from vmselect.units import format_chance, format_seconds, format_usd
from vmselect.watching.summary import sum_up

By = pytest.importorskip(
    "selenium.webdriver.common.by", reason="the page was not opened in a browser: selenium is not installed"
).By
from selenium.webdriver.common.keys import Keys  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from contrast import weak_colours  # noqa: E402
from pages import complaints, load, open_page, replace_data, requests, rows, settle, verdict  # noqa: E402
from parts import split  # noqa: E402

OVERLAPPING = """
    const found = [];
    for (const chart of document.querySelectorAll("#time-cost svg, #epochs svg, #terms svg")) {
      const labels = [...chart.querySelectorAll("text.label")].map((e) => [e.textContent, e.getBoundingClientRect()]);
      labels.forEach(([one, a], i) => labels.slice(i + 1).forEach(([other, b]) => {
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 1 && down > 3) found.push([one, other]);
      }));
    }
    return found;
"""
"""A script that lists pairs of labels of a chart which overlap; lines of text have about three pixels between them."""
MACHINES = {
    "g4dn.xlarge": (0.205, 9), "g5.xlarge": (0.118, 9), "g6.xlarge": (0.121, 8), "g5.12xlarge": (0.05, 20),
    "g4dn.12xlarge": (0.078, 22), "p4d.24xlarge": (0.021, 38),
}  # fmt: skip


def make_ranking(**settings: Any) -> vs.Ranking:
    noise = random.Random(7)
    profiles = []
    for name, (step, init) in MACHINES.items():
        profile = vs.Profile.from_times(
            instance_type=name, batch_size=256, steps_per_epoch=159, init_seconds=init,
            first_iteration_seconds=18 * step + 2.5, validation_seconds=[30 * step, 14 * step], model="seismic-fcn",
            iteration_seconds=[step * noise.lognormvariate(0, 0.03) for _ in range(20)],
        )  # fmt: skip
        # Validating every third epoch makes the number of validations a matter of rounding.
        profiles.append(profile.model_copy(update={"setup": profile.setup.model_copy(update={"validation_freq": 3})}))
    return vs.rank(profiles, **({"epochs": [5, 20, 50]} | settings))


def type_into(browser: Any, field: str, text: str) -> None:
    element = browser.find_element(By.ID, field)
    element.send_keys(Keys.CONTROL, "a")
    element.send_keys(text or Keys.DELETE)
    settle(browser)


@pytest.fixture(scope="module")
def ranking() -> vs.Ranking:
    return make_ranking()


@pytest.fixture
def page(browser: Any, ranking: vs.Ranking, tmp_path: Path) -> Any:
    open_page(browser, tmp_path / "report.html", render_page(ranking))
    return browser


def test_opens_without_errors_or_requests(page: Any) -> None:
    assert complaints(page) == []
    assert requests(page) == [page.current_url]
    assert page.execute_script("return document.querySelectorAll('svg.chart').length") == 6


def test_a_blocked_request_would_be_noticed(page: Any) -> None:
    page.execute_script(
        "const image = new Image(); image.src = 'http://127.0.0.1:9/picture.png'; document.body.append(image)"
    )
    settle(page)
    assert any("Content Security Policy" in message for message in complaints(page))


def test_terms_and_crossovers_are_pythons(page: Any, ranking: vs.Ranking) -> None:
    for field, objective in (("seconds", "time"), ("cost_usd", "cost")):
        found = page.execute_script("return vmselect.leaders(arguments[0], 5000).map((run) => run.from)", field)
        assert found[1:] == [change.epochs for change in ranking.crossovers(objective, up_to=5000)]
    bars = page.execute_script("return document.querySelectorAll('#terms rect').length")
    best = ranking.rerank(epochs=50).rows
    assert bars == sum(sum(seconds > 0 for seconds in row.terms.values()) for row in best)


def test_marks_are_reached_with_the_keyboard(page: Any) -> None:
    stops = "return document.querySelectorAll('#time-cost svg [tabindex=\"0\"]').length"
    assert page.execute_script(stops) == 1
    page.execute_script("document.querySelector('#time-cost svg [tabindex=\"0\"]').focus()")
    shown = set()
    for _ in MACHINES:
        box = page.find_element(By.CSS_SELECTOR, ".tooltip")
        assert box.is_displayed()
        shown.add(box.text.split("\n")[0])
        assert page.switch_to.active_element.get_attribute("aria-label").startswith(box.text.split("\n")[0])
        page.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert shown == set(MACHINES)
    assert page.execute_script(stops) == 1


def test_what_is_shown_is_what_was_computed(page: Any, ranking: vs.Ranking) -> None:
    expected = ranking.rerank(epochs=50)
    shown = rows(page)
    assert [row[1].split("\n")[0].split(" ")[0] for row in shown] == [row.instance_type for row in expected.rows]
    for cells, row in zip(shown, expected.rows, strict=True):
        assert cells[3].split("\n") == [
            format_seconds(row.seconds),
            f"{format_seconds(row.seconds_low)} – {format_seconds(row.seconds_high)}",
        ]
        assert cells[4].split("\n")[0] == format_usd(row.cost_usd)
    best = expected.best
    assert verdict(page).startswith(f"Rent {best.instance_type}")
    assert verdict(page) == expected.verdict
    assert f"{best.instance_type} at AWS {best.region} on demand" in page.find_element(By.ID, "verdict").text


def test_a_watched_training_is_summed_up_below_the_decision(browser: Any, ranking: vs.Ranking, tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    parts = [part.model_copy(update={"setup": part.setup.model_copy(update={"model": hostile})}) for part in split([3])]
    path = tmp_path / "report.html"
    path.write_text(render_page(ranking, records=[parts[0]]), encoding="utf-8")
    load(browser, path)
    fold = browser.find_element(By.CSS_SELECTOR, "#training details")
    assert fold.get_attribute("open") is None
    ids = browser.execute_script("return [...document.querySelectorAll('#sections > section')].map((part) => part.id)")
    assert ids[:2] == ["ranking", "training"]
    open_page(browser, path, render_page(ranking, records=[parts[0]]))
    (training,) = sum_up(ranking, [parts[0]])
    facts = _facts(browser)
    assert facts["Model"] == hostile
    assert facts["Epochs done"] == "3 of 10"
    assert facts["Time so far"] == format_seconds(training.seconds)
    value, low, high = map(format_seconds, training.remaining)
    assert facts["Remaining time"] == f"{value} ({low} – {high})"
    value, low, high = map(format_usd, training.final_usd)
    assert facts["Final cost"] == f"{value} ({low} – {high})"
    assert complaints(browser) == []
    open_page(browser, path, render_page(ranking, records=parts))
    facts = _facts(browser)
    assert facts["State"].startswith("ended")
    assert facts["Parts"].startswith("2, with 1 interruption")
    assert "Remaining time" not in facts


def _facts(browser: Any) -> dict[str, str]:
    script = (
        "return [...document.querySelectorAll('#training dt')].map((dt) => [dt.innerText, dt.nextSibling.innerText])"
    )
    return dict(browser.execute_script(script))


def test_controls_rank_again(page: Any, ranking: vs.Ranking) -> None:
    type_into(page, "epochs", "3")
    assert "3 epochs" in verdict(page)
    page.find_element(By.ID, "weight").send_keys(Keys.END)
    settle(page)
    fastest = ranking.rerank(epochs=3, objective="time").best
    assert verdict(page).startswith(f"Rent {fastest.instance_type}")
    type_into(page, "deadline", "0.0001")
    assert f"{len(MACHINES)} candidates" in verdict(page)
    assert all(name in page.find_element(By.ID, "excluded").text for name in MACHINES)
    assert not page.find_elements(By.CSS_SELECTOR, "#verdict .choice")  # nothing is recommended
    sections = page.execute_script(
        "return [...document.querySelectorAll('main section:not([hidden])')].map((s) => s.id)"
    )
    assert not set(sections) & {"ranking", "time-cost", "epochs", "terms"}
    page.find_element(By.ID, "reset").click()
    settle(page)
    assert "50 epochs" in verdict(page)
    assert page.find_element(By.ID, "deadline").get_attribute("value") == ""
    page.find_element(By.CSS_SELECTOR, "#market option[value=spot]").click()
    settle(page)
    assert "spot" in verdict(page)
    assert complaints(page) == []


def test_sorts_and_filters_by_keyboard(page: Any) -> None:
    header = page.find_element(By.CSS_SELECTOR, "th[data-column=seconds]")
    button = header.find_element(By.TAG_NAME, "button")
    button.send_keys(Keys.ENTER)
    times = page.execute_script("return vmselect.state.view.rows.map((row) => row.seconds)")
    order = [row[0] for row in rows(page)]
    assert header.get_attribute("aria-sort") == "ascending"
    assert order == [str(times.index(value) + 1) for value in sorted(times)]
    button.send_keys(Keys.ENTER)
    assert header.get_attribute("aria-sort") == "descending"
    assert [row[0] for row in rows(page)] == order[::-1]
    type_into(page, "filter", "a10g")
    assert {row[2] for row in rows(page)} == {"A10G", "4 × A10G"}
    type_into(page, "filter", "")
    page.find_element(By.ID, "front").click()
    assert all("Pareto" in row[1] for row in rows(page))


def test_the_table_is_filtered_by_provider_region_gpu_and_price(browser: Any, tmp_path: Path) -> None:
    profile = vs.Profile.load(DESCRIPTIONS / "resnet50.json")
    ranking = vs.rank(profile, machines="all", catalog=vs.Catalog.embedded("2026-08-22"))
    assert len(ranking) > 500
    open_page(browser, tmp_path / "r.html", render_page(ranking))
    assert browser.execute_script("return vmselect.state.view.rows.length") == len(ranking.deciding_rows)
    count = "return document.querySelector('#ranking .count').textContent"
    for name, value in (("provider", "aws"), ("region", "us-east-1"), ("gpu", "A10G")):
        browser.find_element(By.CSS_SELECTOR, f"#filter-{name} option[value='{value}']").click()
        of = {"provider": "provider", "region": "region", "gpu": "gpu_model"}[name]
        expected = [row for row in ranking.deciding_rows if getattr(row, of) == value]
        expected = [row for row in expected if name != "gpu" or row.gpu_count == 1]
        assert browser.execute_script(count).startswith(f"{len(expected)} of ")
        browser.find_element(By.ID, "filter-reset").click()
    type_into(browser, "filter-price", "0.5")
    cheap = sum(row.usd_per_hour <= 0.5 for row in ranking.deciding_rows)
    assert browser.execute_script(count).startswith(f"{cheap} of ")
    assert complaints(browser) == []


CHANGING = """
    const done = arguments[0];
    const shown = [];
    const look = () => shown.push({
      busy: vmselect.chances.busy,
      seconds: vmselect.state.view.rows[0].seconds,
      time: document.querySelector("#table tbody tr").cells[3].innerText.split("\\n")[0],
      chances: [...document.querySelectorAll("#table tbody tr")].map((row) => row.cells[6].innerText),
      headline: document.getElementById("verdict").innerText,
      dimmed: document.getElementById("next").hasAttribute("data-pending"),
    });
    const before = vmselect.chances.started - vmselect.chances.completed;
    const input = document.getElementById("epochs");
    const enter = (epochs) => {
      input.value = epochs;
      input.dispatchEvent(new Event("input", { bubbles: true }));
    };
    const wait = () => {
      if (vmselect.chances.busy) return void setTimeout(wait, 5);
      look();
      done([shown, vmselect.chances.started - vmselect.chances.completed - before]);
    };
    enter(40);
    requestAnimationFrame(() => {
      look();
      enter(70);
      requestAnimationFrame(() => {
        look();
        wait();
      });
    });
"""
"""A script that enters two numbers of epochs, and returns what is shown in the frames of both and at the end, and how
many computations were not completed. Its callbacks run in a frame after those of the page."""


def test_the_order_is_shown_before_the_probabilities(browser: Any, tmp_path: Path) -> None:
    profile = vs.Profile.load(DESCRIPTIONS / "resnet50.json")
    ranking = vs.rank(profile, machines="all", catalog=vs.Catalog.embedded("2026-08-22"))
    open_page(browser, tmp_path / "r.html", render_page(ranking))
    (first, second, last), cancelled = browser.execute_async_script(CHANGING)
    for state, epochs in ((first, 40), (second, 70), (last, 70)):
        best = ranking.rerank(epochs=epochs).best
        assert state["seconds"] == pytest.approx(best.seconds, rel=1e-12)
        assert state["time"] == format_seconds(best.seconds)
        assert best.instance_type in state["headline"]
    for state in (first, second):
        assert state["busy"]
        assert state["dimmed"]
        assert set(state["chances"]) == {"…"}
        assert "… chance" in state["headline"]
    assert cancelled == 1  # that of 40 epochs
    assert not last["dimmed"]
    expected = ranking.rerank(epochs=70)
    found = browser.execute_script("return vmselect.state.view.rows.map((row) => row.chance)")
    assert found == pytest.approx([row.chance for row in expected.deciding_rows], abs=1e-12)
    assert last["chances"] == [format_chance(row.chance) for row in expected.deciding_rows[:50]]
    assert verdict(browser) == expected.verdict
    assert complaints(browser) == []


def test_the_first_screen_is_decision_memory_and_next_step(browser: Any, tmp_path: Path) -> None:
    profile = vs.Profile.load(DESCRIPTIONS / "resnet50.json")
    ranking = vs.rank(profile, machines="all", provider="aws", catalog=vs.Catalog.embedded("2026-08-22"))
    program = "'my train.py' --note '<b>&amp;'"
    open_page(browser, tmp_path / "r.html", render_page(ranking, program=program))
    assert browser.find_element(By.ID, "verdict").text == ranking.headline
    titles = [tile.text.split("\n")[0] for tile in browser.find_elements(By.CSS_SELECTOR, ".tile")]
    assert titles == ["Time", "Cost", "Chance", "GPU memory"]
    step = browser.find_element(By.CSS_SELECTOR, ".next").text
    machine = ranking.next_probe.instance_type if ranking.next_probe else ranking.best.instance_type
    assert f"vmselect probe --instance-type {machine} {program}" in step
    assert browser.execute_script("return document.querySelector('.next').getBoundingClientRect().bottom") < 1000
    assert complaints(browser) == []


def test_described_predicted_and_measured_rows_have_three_marks(browser: Any, tmp_path: Path) -> None:
    def look(element: str) -> str:
        return f"const s = getComputedStyle({element}); return [s.borderTopStyle, s.backgroundColor].join()"

    probed = vs.Profile.from_times(
        instance_type="g4dn.xlarge", batch_size=64, steps_per_epoch=100, iteration_seconds=[0.2] * 9
    )
    looks = set()
    for records in ([probed], [vs.Profile.load(DESCRIPTIONS / "resnet50.json")]):
        open_page(browser, tmp_path / "r.html", render_page(vs.rank(records, epochs=9, machines=["g5.xlarge"])))
        for i in range(browser.execute_script("return document.querySelectorAll('#table .basis').length")):
            looks.add(browser.execute_script(look(f"document.querySelectorAll('#table .basis')[{i}]")))
    assert len(looks) == 3


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("basis", ["described", "measured", "compared"])
def test_texts_and_marks_have_contrast(browser: Any, tmp_path: Path, basis: str, theme: str) -> None:
    if basis == "compared":
        runs = {"AWS": [0.63, 0.66, 0.61, 0.62, 0.65], "Azure": [0.59, 0.60, 0.58, 0.57, 0.60]}
        html = render_comparisons([vs.compare(runs, metric="seconds")])
    elif basis == "described":
        profile = vs.Profile.load(DESCRIPTIONS / "resnet50.json")
        html = render_page(vs.rank(profile, machines="all", catalog=vs.Catalog.embedded("2026-08-22")))
    else:
        html = render_page(make_ranking(market="all", deadline_hours=0.2, interruptions={"per_hour": 0.2}))
    open_page(browser, tmp_path / "r.html", html)
    browser.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    assert weak_colours(browser) == {}


def test_a_weak_colour_would_be_noticed(page: Any) -> None:
    page.execute_script("document.querySelector('.lede').style.color = '#888'")
    page.execute_script("document.querySelector('#time-cost circle:not(.reach)').style.fill = '#aaa'")
    assert [key.split()[0] for key in sorted(weak_colours(page))] == ["mark", "text"]


def test_every_control_has_a_name(page: Any) -> None:
    nameless = page.execute_script(
        "return [...document.querySelectorAll('input, select, button')]"
        ".filter((e) => !(e.labels?.length || e.getAttribute('aria-label') || e.textContent.trim()))"
        ".map((e) => e.outerHTML)"
    )
    assert nameless == []


HOSTILE = (
    "</script><script>window.harmed = 1</script>", "\"><img src=x onerror='window.harmed = 1'>", "a & b &lt; 'c'",
    "\u202eright to left", "جهاز كبير", "🚀 rocket", "line\u2028separator", "long" * 50,
)  # fmt: skip


def test_names_are_text(browser: Any, tmp_path: Path) -> None:
    profiles = [
        vs.Profile.from_times(
            instance_type=f"m{i}", model=HOSTILE[0], steps_per_epoch=9, iteration_seconds=[1 + i / 9] * 9
        )
        for i in range(len(HOSTILE))
    ] + [
        vs.Profile.from_times(instance_type=name, model=HOSTILE[0], steps_per_epoch=9, iteration_seconds=[1] * 9)
        for name in (HOSTILE[1], HOSTILE[-1])
    ]
    offers = [
        {"provider": "lab", "instance_type": f"m{i}", "region": "here", "usd_per_hour": 1 + i}
        for i in range(len(HOSTILE))
    ]
    html = render_page(vs.rank(profiles, epochs=10, catalog=vs.Catalog.embedded("2026-08-22").with_offers(offers)))
    for i, name in enumerate(HOSTILE):
        html = replace_data(html, lambda data, i=i, name=name: data.replace(f'"m{i}"', json.dumps(name)))
    open_page(browser, tmp_path / "report.html", html)
    assert complaints(browser) == []
    assert browser.execute_script("return [typeof window.harmed, document.images.length]") == ["undefined", 0]
    machines = browser.execute_script("return [...document.querySelectorAll('#table .who')].map((e) => e.textContent)")
    assert machines == list(HOSTILE)
    assert HOSTILE[1] in browser.find_element(By.ID, "excluded").text
    assert HOSTILE[0] in browser.title
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    assert HOSTILE[0] in browser.find_element(By.ID, "subject").text


def test_two_thousand_candidates_open_quickly(browser: Any, tmp_path: Path) -> None:
    profiles = [
        vs.Profile.from_times(
            instance_type=f"m{i}", first_epoch_seconds=20 + i % 37, later_epoch_seconds=10 + i % 11, init_seconds=i % 5
        )
        for i in range(200)
    ]
    offers = [
        {
            "provider": "lab",
            "instance_type": f"m{i}",
            "region": f"r{r}",
            "usd_per_hour": 0.5 + (i * 7 + r * 13) % 101 / 10,
        }
        for i in range(200)
        for r in range(10)
    ]
    catalog = vs.Catalog.embedded("2026-08-22").with_offers(offers)
    ranking = vs.rank(profiles, epochs=50, region="all", catalog=catalog)
    assert len(ranking.rows) == 2000
    open_page(browser, tmp_path / "report.html", render_page(ranking))
    milliseconds = browser.execute_script("return vmselect.readyMilliseconds")
    # Two seconds is what it must keep on a free machine; a busy one is given five times that.
    assert milliseconds < 10_000
    assert len(rows(browser)) == 50
    assert browser.execute_script("return vmselect.state.view.rows.length") in range(200, MAX_CANDIDATES + 1)
    again = browser.execute_script(
        "const start = performance.now(); vmselect.set({ epochs: 60 }); return performance.now() - start"
    )
    print(f"2,000 candidates: ready after {milliseconds:.0f} ms, ranked and drawn again in {again:.0f} ms")
    assert complaints(browser) == []


def test_the_data_can_be_downloaded(page: Any, ranking: vs.Ranking, tmp_path: Path) -> None:
    page.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path), "eventsEnabled": True}
    )
    page.find_element(By.ID, "download").click()
    for _ in range(200):
        file = tmp_path / "vmselect-report.json"
        if file.exists() and file.stat().st_size:  # Chromium reserves the name first
            break
        settle(page)
    taken = json.loads((tmp_path / "vmselect-report.json").read_text(encoding="utf-8"))
    assert taken["candidates"] == json.loads(ranking.to_json(rows=False))["candidates"]


@pytest.mark.parametrize("width", [390, 1280])
def test_fits_its_window_in_light_and_dark(page: Any, width: int) -> None:
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    try:
        settle(page)
        assert page.execute_script("return document.documentElement.scrollWidth") <= width
        page.execute_script("window.vmselect.set({ market: 'any' })")  # more and longer labels
        assert page.execute_script(OVERLAPPING) == []
        page.execute_script("window.vmselect.set({ market: 'on_demand' })")
        colours = set()
        for _ in range(2):
            page.find_element(By.ID, "theme").click()
            colours.add(page.execute_script("return getComputedStyle(document.body).backgroundColor"))
        assert len(colours) == 2
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("machines", [None, ["g5.xlarge", "g6.xlarge"]])
def test_machines_that_were_never_probed_are_hollow(browser: Any, tmp_path: Path, machines: list[str] | None) -> None:
    probed = vs.Profile.from_times(
        instance_type="g4dn.xlarge", batch_size=64, steps_per_epoch=100, iteration_seconds=[0.2] * 9
    )
    open_page(browser, tmp_path / "r.html", render_page(vs.rank(probed, epochs=10, machines=machines)))
    fill = "return [...document.querySelectorAll(arguments[0])].map((e) => getComputedStyle(e).fill)"
    hollow = browser.execute_script(fill, "#time-cost .point.predicted circle:not(.reach)")
    filled = browser.execute_script(fill, "#time-cost .point:not(.predicted) circle:not(.reach)")
    assert len(hollow) == len(machines or [])
    assert len(filled) == 1
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert set(hollow) <= {paper}
    assert paper not in filled
    legend = [item.text for item in browser.find_elements(By.CSS_SELECTOR, "#time-cost .legend li")]
    assert ("predicted from probes" in legend) is bool(machines)
    assert complaints(browser) == []


def test_time_cost_and_efficiency_by_number_of_gpus(browser: Any, tmp_path: Path) -> None:
    def probe(name: str, seconds: float, gpus: int) -> vs.Profile:
        one = vs.Profile.from_times(
            instance_type=name, batch_size=64 * gpus, steps_per_epoch=1000 // gpus, iteration_seconds=[seconds] * 9
        )
        seen = one.environment.model_copy(update={"replicas": gpus, "framework_gpus": gpus})
        return one.model_copy(update={"environment": seen, "outcome": "stopped"})

    catalog = vs.Catalog.embedded("2026-08-22")
    probes = [probe("g4dn.xlarge", 0.2, 1), probe("g4dn.12xlarge", 0.24, 4)]
    ranking = vs.rank(probes, epochs=50, scale=vs.Scale(gpus=[4, 8]), catalog=catalog)
    open_page(browser, tmp_path / "r.html", render_page(ranking))
    section = browser.find_element(By.ID, "gpus")
    assert ranking.scaling_verdict in section.text
    assert len(section.find_elements(By.CSS_SELECTOR, "svg.chart")) == 3
    time = section.find_element(By.CSS_SELECTOR, "svg.chart")
    assert len(time.find_elements(By.CSS_SELECTOR, ".dot")) == 3
    assert 1 <= len(time.find_elements(By.CSS_SELECTOR, ".dot.predicted")) <= 2  # eight GPUs, maybe another with four
    browser.execute_script("vmselect.set({ epochs: 1 })")
    assert ranking.rerank(epochs=1).scaling_verdict in section.text
    browser.execute_script("vmselect.set({ deadline_hours: 1e-9 })")
    assert not section.is_displayed()
    assert complaints(browser) == []


@pytest.mark.parametrize("count", [1, 2])
def test_one_candidate_and_identical_ones(browser: Any, tmp_path: Path, count: int) -> None:
    times = {"first_epoch_seconds": 20, "later_epoch_seconds": 10}
    profiles = [vs.Profile.from_times(instance_type=f"m{i}", **times) for i in range(count)]
    offers = [{"provider": "lab", "instance_type": f"m{i}", "region": "here", "usd_per_hour": 1} for i in range(count)]
    open_page(
        browser,
        tmp_path / "r.html",
        render_page(vs.rank(profiles, epochs=1, catalog=vs.Catalog.embedded("2026-08-22").with_offers(offers))),
    )
    assert "m0 at lab here on demand" in verdict(browser)
    assert ("m1" in verdict(browser)) is (count == 2)
    assert complaints(browser) == []


def test_machine_and_batch_size_together(browser: Any, tmp_path: Path) -> None:
    seconds = {"g4dn.xlarge": 0.0008, "g5.xlarge": 0.0003}
    profiles = [
        vs.Profile.from_times(
            instance_type=name, batch_size=size, steps_per_epoch=40_960 // size, iteration_seconds=[each * size] * 10
        )
        for name, each in seconds.items()
        for size in (256, 1024)
    ]
    study = vs.ConvergenceStudy.from_epochs({256: [13, 14], 1024: [22, 20]}, metrics={256: 0.97, 1024: 0.95})
    selection = vs.rank(profiles, epochs=study)
    open_page(browser, tmp_path / "report.html", render_page(selection))
    script = (
        "return vmselect.rank(arguments[0]).rows.map((row) => [row.candidate.batch_size, row.seconds, row.cost_high])"
    )
    for in_browser, in_python in (
        ({}, {}),
        (
            {"weights": {"cost": 0.4, "time": 0.6}, "market": "any"},
            {"objective": {"cost": 0.4, "time": 0.6}, "market": "all"},
        ),
    ):
        expected = [(row.batch_size, row.seconds, row.cost_high) for row in selection.rerank(**in_python).rows]
        found = browser.execute_script(script, in_browser)
        assert [value for row in found for value in row] == pytest.approx(
            [v for row in expected for v in row], rel=1e-12
        )
    assert verdict(browser) == selection.verdict
    assert "13.5 epochs" in verdict(browser)
    assert browser.execute_script("return document.querySelectorAll('#batches svg.chart').length") == 4
    assert "val_accuracy 0.97" in rows(browser)[0][1]
    assert not browser.find_elements(By.ID, "epochs")
    assert complaints(browser) == []


def test_an_empty_ranking_states_the_reason(browser: Any, tmp_path: Path) -> None:
    profile = vs.Profile.from_times(instance_type="never-sold", first_epoch_seconds=20, later_epoch_seconds=10)
    open_page(browser, tmp_path / "report.html", render_page(vs.rank(profile, epochs=5)))
    assert verdict(browser).startswith("Nothing is feasible: 1 candidate has no price.")
    assert "never-sold" in browser.find_element(By.ID, "excluded").text
    sections = browser.find_elements(By.CSS_SELECTOR, "section.section")
    assert {section.get_attribute("id") for section in sections if section.is_displayed()} == {"excluded"}
    assert browser.find_elements(By.CSS_SELECTOR, "form, main input, main select") == []
    browser.find_element(By.CSS_SELECTOR, "a.skip[href='#excluded']")
    assert complaints(browser) == []


def test_commands_in_the_headline_are_code(browser: Any, tmp_path: Path) -> None:
    profile = vs.Profile.from_times(first_epoch_seconds=20, later_epoch_seconds=10)
    ranking = vs.rank(profile, epochs=5)
    assert "`" in ranking.verdict
    open_page(browser, tmp_path / "report.html", render_page(ranking))
    assert "`" not in browser.find_element(By.ID, "verdict").text
    assert browser.find_elements(By.CSS_SELECTOR, "#verdict code")


def test_machines_without_a_price_follow_the_market(browser: Any, tmp_path: Path) -> None:
    offer = {"provider": "lab", "region": "here", "usd_per_hour": 1.0}
    offers = [
        {**offer, "instance_type": name, "market": market}
        for name, market in (("both", "on_demand"), ("both", "spot"), ("listed", "on_demand"))
    ]
    profiles = [
        vs.Profile.from_times(instance_type=name, batch_size=8, first_epoch_seconds=9, later_epoch_seconds=[9])
        for name in ("both", "listed")
    ]
    ranking = vs.rank(profiles, epochs=5, market="spot", catalog=vs.Catalog.embedded("2026-08-22").with_offers(offers))
    open_page(browser, tmp_path / "markets.html", render_page(ranking))
    left_out = browser.find_element(By.ID, "excluded")
    assert "listed, batch 8" in left_out.text
    browser.execute_script("vmselect.set({ market: 'on_demand' })")
    assert not left_out.is_displayed()
    assert {row[1].split("\n")[0].split(" ")[0] for row in rows(browser)} == {"both", "listed"}


def test_energy_and_co2_are_shown_and_limited_if_asked_for(browser: Any, tmp_path: Path) -> None:
    profiles = [
        vs.Profile.from_times(
            instance_type=name, provider="aws", region="us-east-1", batch_size=64, steps_per_epoch=1000,
            iteration_seconds=[seconds] * 10, gpu_watts=watts,
        )
        for name, seconds, watts in (("g4dn.xlarge", 0.2, 60), ("g5.xlarge", 0.1, 200))
    ]  # fmt: skip
    asked = vs.rank(profiles, epochs=50, emissions={})
    open_page(browser, tmp_path / "report.html", render_page(asked))
    heads = "return [...document.querySelectorAll('#table th')].map((cell) => cell.innerText)"
    assert {"Energy", "CO2"} <= set(browser.execute_script(heads))
    assert verdict(browser) == asked.verdict
    limit = max(row.measures["co2"].value for row in asked) * 0.99  # type: ignore[union-attr]
    type_into(browser, "co2-limit", f"{limit:.6f}")
    assert len(rows(browser)) == 1
    assert verdict(browser) == asked.rerank(co2_limit_kg=float(f"{limit:.6f}")).verdict
    open_page(browser, tmp_path / "plain.html", render_page(vs.rank(profiles, epochs=50)))
    assert not {"Energy", "CO2"} & set(browser.execute_script(heads))
    assert not browser.find_elements(By.ID, "co2-limit")
    assert complaints(browser) == []


@pytest.mark.parametrize("width", [390, 1280])
def test_long_names_and_limits_overlap_no_label(browser: Any, tmp_path: Path, width: int) -> None:
    names = [*MACHINES, "Standard_NC24ads_A100_v4", "Standard_NC4as_T4_v3", "g2-standard-4"]
    profiles = [
        vs.Profile.from_times(
            instance_type=name, batch_size=256, steps_per_epoch=159, init_seconds=9,
            iteration_seconds=[0.2 / number] * 9,
        )
        for number, name in enumerate(names, 1)
    ]  # fmt: skip
    ranking = vs.rank(profiles, epochs=50, market="all", deadline_hours=0.2, interruptions={"per_hour": 0.2})
    open_page(browser, tmp_path / "report.html", render_page(ranking))
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        settle(browser)
        assert browser.execute_script(OVERLAPPING) == []
        beyond = (
            "(label) => label.getBoundingClientRect().right > label.ownerSVGElement.getBoundingClientRect().right + 1"
        )
        found = (
            f"return [...document.querySelectorAll('#epochs text.label')].filter({beyond}).map((e) => e.textContent)"
        )
        assert browser.execute_script(found) == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_words_of_the_table_are_explained_and_intervals_fit_a_telephone(browser: Any, tmp_path: Path) -> None:
    resnet = vs.Profile.load(DESCRIPTIONS / "resnet50.json")
    assert resnet.work is not None
    parts = resnet.work.operations.model_dump()
    smaller = Operations(**parts | {name: tuple(value / 12 for value in parts[name]) for name in ("flops", "bytes")})
    work = resnet.work.model_copy(update={"operations": smaller})
    ranking = vs.rank(resnet.model_copy(update={"work": work}), epochs=20, catalog=vs.Catalog.embedded("2026-08-22"))
    assert any(row.interval_only for row in ranking.deciding_rows[:20])
    open_page(browser, tmp_path / "r.html", render_page(ranking))
    legend = browser.find_element(By.CSS_SELECTOR, ".meanings").text
    titled = "return [...document.querySelectorAll('#table [title]:is(th button, .badge)')].map((e) => e.textContent)"
    words = set(browser.execute_script(titled))
    assert {"Best", "Score", "Pareto"} <= words
    assert all(f"{word}:" in legend for word in words)
    size = {"width": 390, "height": 1000, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        settle(browser)
        cut = (
            "const edge = document.querySelector('#table').parentElement.getBoundingClientRect().right + 1; "
            "return [...document.querySelectorAll('#table .range')].filter((e) => "
            "e.getBoundingClientRect().right > edge).map((e) => e.textContent)"
        )
        assert browser.execute_script("return document.querySelectorAll('#table .range').length")
        assert browser.execute_script(cut) == []
        # Covers that move with the table lie over shadows that stay at the edges.
        attached = "return getComputedStyle(document.querySelector('#table').parentElement).backgroundAttachment"
        assert browser.execute_script(attached) == "local, local, scroll, scroll"
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert complaints(browser) == []
