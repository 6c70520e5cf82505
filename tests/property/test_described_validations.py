"""The validation time of a described training: never negative, and longer with more examples."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

import vmselect as vs
from tests.support.descriptions import make_description
from vmselect.intervals import Interval
from vmselect.ranking.described import describe_runtime

counts = st.integers(0, 10_000_000)
seconds = st.floats(1e-6, 1e3)


@given(
    sizes=st.tuples(counts, counts), step=seconds, spread=st.floats(1, 10), epochs=st.integers(1, 500),
    every=st.integers(1, 20), several=st.none() | st.floats(1, 50), stated=st.booleans(),
)  # fmt: skip
def test_more_examples_take_longer(
    sizes: tuple[int, int], step: float, spread: float, epochs: int, every: int, several: float | None, stated: bool
) -> None:
    totals = []
    for size in sorted(sizes):
        setup = {} if stated else {"validation_examples": size}
        described = make_description(validation_freq=every, validations_per_epoch=several, **setup)
        workload = vs.Workload(validation_examples=size) if stated else vs.Workload()
        model = describe_runtime(described, workload, Interval.within_factor(step, spread), title="m", confidence=0.9)
        terms = model.terms_at(epochs)
        parts = [terms.get(name, 0.0) for name in ("first_validation", "later_validations")]
        assert min(parts) >= 0
        assert (sum(parts) > 0) == (size > 0 and epochs >= every)
        low, high = model.interval(epochs)
        assert 0 <= low <= model.seconds(epochs) <= high
        totals.append((math.fsum(parts), high - low))
    (fewer, narrower), (more, wider) = totals
    assert fewer <= more
    assert narrower <= wider * (1 + 1e-9)
