"""Names that others wrote stay text in every output: one property per sink."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import sinks

PARTS = st.sampled_from(sinks.FRAGMENTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
NAMES = st.lists(PARTS, min_size=1, max_size=4).map("".join).filter(str.strip)
LARGE = ("HTML", "terminal", "spreadsheet")
"""Sinks of which one check takes long, so that fewer names are drawn."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sinks")


@pytest.mark.parametrize("sink", sorted(sinks.SINKS.keys() - {"chart JSON"}))
def test_a_name_is_text_in(sink: str, folder: Path) -> None:
    @settings(max_examples=8 if sink in LARGE else 60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(NAMES)
    def check(name: str) -> None:
        sinks.SINKS[sink](name, folder)

    check()


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(sinks.CHARTS)), NAMES)
def test_a_name_is_text_in_the_json_of_a_chart(kind: str, name: str) -> None:
    sinks.check_one_chart(kind, f"{name}</script><script>harm()")
