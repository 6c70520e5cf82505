"""Charts and tables of comparisons: the numbers that are drawn, and that drawing works."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import vmselect as vs
from vmselect.errors import ArgumentError, ComparisonError

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from comparisons import profile


def records() -> list[vs.Profile]:
    rng = np.random.default_rng(0)
    return [
        profile(rng, level=0.01 * size / 64, instance_type=name, batch_size=size, factors={"machine": name})
        for name in ("a", "b") for size in (64, 128) for _ in range(3)
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["boxes", "differences", "series"])
def test_comparisons_are_drawn(kind: str, tmp_path: Path) -> None:
    target = tmp_path / f"{kind}.svg"
    vs.compare(records(), by="instance_type").chart(kind, path=target)
    assert "<svg" in target.read_text()


@pytest.mark.parametrize("kind", ["main", "interactions"])
def test_effects_are_drawn(kind: str, tmp_path: Path) -> None:
    e = vs.effects(records(), factors=["machine", "batch_size"], metric="step_seconds")
    target = tmp_path / f"{kind}.svg"
    e.chart(kind, path=target)
    assert "<svg" in target.read_text()


def test_what_cannot_be_drawn_is_said() -> None:
    c = vs.compare({"a": [1.0, 2.0], "b": [2.0, 3.0]})
    with pytest.raises(ArgumentError):
        c.chart("pie")
    with pytest.raises(ComparisonError):
        c.chart("series")
    e = vs.effects([{"a": 1, "v": 1.0}, {"a": 2, "v": 2.0}], factors="a", metric="v")
    with pytest.raises(ComparisonError):
        e.chart("interactions")
    with pytest.raises(ArgumentError):
        e.chart("pie")


def test_notebooks_show_tables_with_escaped_names() -> None:
    c = vs.compare({"<script>": [1.0, 2.0, 3.0, 4.0], "b": [5.0, 6.0, 7.0, 8.0], "c": [5.0, 6.0, 7.0, 9.0]})
    html = c._repr_html_()
    assert "<script>" not in html
    assert "Cliff" in html
    e = vs.effects(records(), factors=["machine", "batch_size"], metric="step_seconds")
    assert "batch_size" in e._repr_html_()
    scores = vs.Requirements({"cost": 1}).score({"<i>": {"cost": 1.0}})
    assert "<i>" not in scores._repr_html_()
