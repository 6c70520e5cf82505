"""The report page of a selection: in the browser it ranks pairs as Python does, ties included."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from vmselect.report import render_page

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from pages import load, unfold

FIELDS = ("epochs", "seconds", "seconds_low", "seconds_high", "cost_usd", "cost_low", "cost_high", "score")


def make_selection(**settings: Any) -> vs.Ranking:
    speeds = {"g4dn.xlarge": 8e-4, "g5.xlarge": 4e-4, "g6.xlarge": 5e-4}
    profiles = [
        vs.Profile.from_times(
            instance_type=name, batch_size=size, steps_per_epoch=40_960 // size, init_seconds=5, model="lenet",
            iteration_seconds=[0.01 + size * speed] * 12, first_iteration_seconds=3, validation_seconds=[2, 1],
        )
        for name, speed in speeds.items()
        for size in (64, 512)
    ]  # fmt: skip
    study = vs.ConvergenceStudy.from_epochs(
        {64: [10, 12, 11], 256: [15, 14], 512: [20, 26]}, metrics={64: 0.98, 256: 0.97, 512: 0.94}, model="lenet"
    )
    required = settings.pop("required", None)
    return vs.rank(profiles, epochs=study.require(required) if required else study, **settings)


@pytest.mark.parametrize("made_with", [{}, {"required": 0.96}, {"market": "all"}], ids=str)
def test_the_browser_ranks_pairs_as_python_does(browser: Any, tmp_path: Path, made_with: dict[str, Any]) -> None:
    selection = make_selection(**made_with)
    page = tmp_path / "report.html"
    page.write_text(render_page(selection), encoding="utf-8")
    load(browser, page)
    for objective in ("cost", "time"):
        expected = selection.rerank(objective=objective).rows
        found = browser.execute_script(
            "return vmselect.rank(arguments[0]).rows.map(({ candidate: { batch_size, instance_type }, ...row }) => "
            "({ ...row, batch_size, instance_type }))",
            {"weights": {"cost": int(objective == "cost"), "time": int(objective == "time")}},
        )
        assert len(found) == len(expected)
        for there, here in zip(found, expected, strict=True):
            assert (there["instance_type"], there["batch_size"]) == (here.instance_type, here.batch_size)
            assert [there[name] for name in FIELDS] == pytest.approx(
                [getattr(here, name) for name in FIELDS], rel=1e-12
            )
            assert (there["tied"], there["pareto"]) == (here.tied_with_best, here.pareto)
    unfold(browser)
    assert browser.execute_script("return document.querySelectorAll('#batches svg').length") >= 3
    assert "val_accuracy" in browser.find_element("id", "batches").text


def test_where_nothing_is_left_the_page_has_no_controls_and_no_charts(browser: Any, tmp_path: Path) -> None:
    load(browser, make_selection(required=0.999).report(tmp_path / "page.html"))
    shown = browser.find_element("tag name", "body").text
    assert "9 candidates" in shown
    assert not browser.find_elements("id", "batches")
    assert not browser.find_elements("id", "epochs")
