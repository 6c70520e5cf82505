"""The stopping rule without Keras; that it is EarlyStopping's is shown in tests/integration."""

from __future__ import annotations

import math

import pytest

from vmselect.convergence import StoppingRule


def stop_after(values: list[float], **rule: object) -> int | None:
    given = {"monitor": "m", "mode": "max", "patience": 2} | rule
    return StoppingRule.model_validate(given).stop_after(enumerate(values, 1))


@pytest.mark.parametrize(
    ("values", "rule", "expected"),
    [
        ([1, 2, 3, 4, 5], {}, None),
        ([1, 2, 2, 2], {}, 4),  # a tie is no improvement
        ([5, 4, 3, 3, 3], {"mode": "min"}, 5),
        ([1, 1, 1], {"patience": 0}, 2),  # never at the first epoch
        ([1, 1.05, 1.1, 1.15], {"min_delta": 0.2}, 3),
        ([9, 1, 2, 2, 2], {"start_from_epoch": 1}, 5),
        ([math.nan, 1, 2, 3], {}, 3),  # nothing is better than a first value that is no number
        ([1, math.nan, math.nan, 5], {}, 3),
        ([0.5, 0.5 + 1e-9, 0.5 + 2e-9], {}, 3),  # alike in single precision
        ([], {}, None),
    ],
)
def test_scripted_curves(values: list[float], rule: dict[str, object], expected: int | None) -> None:
    assert stop_after(values, **rule) == expected


def test_epochs_without_a_value_are_passed_over() -> None:
    rule = StoppingRule(monitor="val_loss", mode="min", patience=2)
    assert rule.stop_after([(2, 1.0), (4, 1.0), (6, 1.0)]) == 6


def test_the_best_value_ignores_what_is_no_number() -> None:
    rule = StoppingRule(monitor="loss", mode="min")
    assert rule.best_of([math.nan, 2.0, 1.0]) == 1.0
    assert rule.best_of([math.nan]) is None
