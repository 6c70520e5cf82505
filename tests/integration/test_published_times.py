"""The example of published times: GPU machines ranked without a probe."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_example_ranks_published_times() -> None:
    example = runpy.run_path(str(ROOT / "examples" / "published_times.py"))
    ranking = example["rank_published"]()
    assert ranking.best.instance_type == "p3.2xlarge"
    assert [one.candidate.split()[0] for one in ranking.deciding_excluded] == ["p2.xlarge"]
    for row in ranking.deciding_rows:
        mean, _ = example["SECONDS"][row.instance_type]
        assert row.seconds == pytest.approx(mean, rel=0.005)
        assert row.seconds_low < mean < row.seconds_high
