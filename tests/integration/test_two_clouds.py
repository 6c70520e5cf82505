"""The founding study's printed numbers lead to its conclusions."""

from __future__ import annotations

import importlib.util
import statistics
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "examples" / "two_clouds.py"
spec = importlib.util.spec_from_file_location("two_clouds", PATH)
assert spec is not None
assert spec.loader is not None
study = importlib.util.module_from_spec(spec)
spec.loader.exec_module(study)


@pytest.mark.parametrize(("way", "cloud"), [(way, cloud) for way in study.TIMES for cloud in study.PRICES])
def test_the_stand_in_values_have_the_printed_moments(way: str, cloud: str) -> None:
    mean, deviation, median = study.TIMES[way][cloud]
    values = study.spread(mean, deviation, median)
    assert len(values) == 116
    assert min(values) > 0
    assert statistics.fmean(values) == pytest.approx(mean)
    assert statistics.stdev(values) == pytest.approx(deviation)
    assert statistics.median(values) == pytest.approx(median, abs=deviation)


def test_its_conclusions_come_out(capsys: pytest.CaptureFixture[str]) -> None:
    winners = study.main()
    assert winners == {
        "upload": "AWS",
        "download": "Azure",
        "inference": "Azure",
        "cost, 1 instance": "Azure",
        "cost, scaled out": "AWS",
        "availability": "AWS",
    }
    printed = capsys.readouterr().out
    # The study's own totals: 0.5364 an hour and 12.87 a day on AWS; 0.1955 and 4.69 on one instance of Azure.
    for amount in ("$0.54", "$12.87", "$0.20", "$4.69"):
        assert amount in printed
