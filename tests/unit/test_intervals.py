import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmselect.intervals import Interval

POSITIVE = st.floats(1e-3, 1e3)
ESTIMATES = st.builds(
    lambda value, down, up: Interval(value, value / down, value * up), POSITIVE, st.floats(1, 5), st.floats(1, 5)
)


@given(ESTIMATES, ESTIMATES)
def test_ratio_undoes_the_value_of_a_product(left: Interval[float], right: Interval[float]) -> None:
    product = left.times(right)
    assert product.value == left.value * right.value
    assert product.over(right).value == pytest.approx(left.value)
    # Errors are independent, so dividing again adds to the width.
    assert product.low <= product.value <= product.high
    assert product.over(right).high >= left.high * (1 - 1e-9)


@given(ESTIMATES, POSITIVE)
def test_exact_numbers_add_no_width(estimate: Interval[float], factor: float) -> None:
    exact = Interval.exact(factor)
    assert estimate.times(exact) == pytest.approx(estimate.map(lambda part: part * factor))
    assert estimate.over(exact) == pytest.approx(estimate.map(lambda part: part / factor))
    assert estimate.minus(exact) == pytest.approx(estimate.map(lambda part: part - factor), abs=1e-9)


def test_a_lower_bound_of_zero_widens_without_limit_unless_one_is_set() -> None:
    ratio = Interval(1.0, 0.0, 1.0).over(Interval(1.0, 0.0, 1.0))
    assert ratio == (1.0, 0.0, math.inf)
    assert Interval(1.0, 0.0, 1.0).over(Interval.exact(1.0), most=10.0).low == pytest.approx(0.1)


def test_log_widths_of_arrays_are_zero_for_an_exact_zero() -> None:
    times = Interval(np.array([0.0, 2.0, 2.0]), np.array([0.0, 1.0, 0.0]), np.array([0.0, 4.0, 2.0]))
    below, above = times.log_widths()
    assert below.tolist() == [0.0, math.log(2), math.inf]
    assert above.tolist() == [0.0, math.log(2), 0.0]
