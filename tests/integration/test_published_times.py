"""The example that leads the README: GPU machines ranked by published times."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_readme_shows_the_ranking_of_published_times() -> None:
    example = runpy.run_path(str(ROOT / "examples" / "published_times.py"))
    ranking, readme = example["rank_published"](), (ROOT / "README.md").read_text(encoding="utf-8")
    assert ranking.best.instance_type == "p3.2xlarge"
    assert [one.candidate.split()[0] for one in ranking.deciding_excluded] == ["p2.xlarge"]
    for row in ranking.deciding_rows:
        mean, _ = example["SECONDS"][row.instance_type]
        assert row.seconds == pytest.approx(mean, rel=0.005)
        assert f"{row.rank}  {row.instance_type}  " in readme
        assert f"{row.time_text}  " in readme
        assert row.cost_text in readme
    assert " ".join(ranking.verdict.split()) in " ".join(readme.split())
