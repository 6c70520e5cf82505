"""Damaged journals: no error but vmselect's own, and clean stops every live trial of an undamaged line."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vmselect.sweeps.journal import FIELDS, find_problem

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from journal_mutations import Counts, run_mutated

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1 << 40))
def test_clean_stops_live_trials_whatever_the_other_lines_contain(seed: int) -> None:
    counts = Counts()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_mutated(seed, Path(folder) / "out", counts)
    assert not counts.wrong


@settings(deadline=None)
@given(kind=st.sampled_from([*FIELDS, "later"]), data=st.data())
def test_any_event_is_accepted_or_has_a_problem(kind: str, data: st.DataObject) -> None:
    names = [*FIELDS.get(kind, {}), "x"]
    event = {"event": kind, **data.draw(st.dictionaries(st.sampled_from(names), VALUES))}
    assert isinstance(find_problem(event), str)
    assert find_problem(data.draw(VALUES))
