"""Options of the command watch."""

from __future__ import annotations

import pytest

from vmselect.cli.watch import _read_condition
from vmselect.errors import ArgumentError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpu_share>0.9", {"quantity": "cpu_share", "above": 0.9}),
        ("gpu*_busy_share < 2e-1", {"quantity": "gpu*_busy_share", "below": 0.2}),
    ],
)
def test_the_condition_of_an_alarm(text: str, expected: dict[str, object]) -> None:
    assert _read_condition(text) == expected


@pytest.mark.parametrize("text", ["", "cpu_share", "cpu_share>", "cpu_share>high", "cpu_share=0.9", "a b>1"])
def test_a_condition_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ArgumentError, match="--alarm-when"):
        _read_condition(text)
