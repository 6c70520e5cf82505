"""Equations of a dissertation for the time of a training, as pure functions.

Source: E. M. Malta, *Selecting Efficient Virtual Machines for Training Deep Learning Models on the Cloud*, MSc
dissertation, UNICAMP, 2021. The docstrings give its equation numbers; its *iteration* is a step. All times are
seconds. The functions also accept numpy arrays and fractional ``iterations_per_epoch``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

from vmselect._checks import show
from vmselect.errors import ArgumentError

Arguments = ParamSpec("Arguments")


def _of_numbers(equation: Callable[Arguments, float]) -> Callable[Arguments, float]:
    """Decorator: ``equation`` raises ArgumentError for arguments that are not numbers or arrays of one shape."""

    @functools.wraps(equation)
    def compute(*values: Arguments.args, **named: Arguments.kwargs) -> float:
        try:
            return equation(*values, **named)
        except (TypeError, ValueError, ArithmeticError):
            shown = ", ".join(show(value) for value in (*values, *named.values()))
            raise ArgumentError(
                f"{equation.__name__} requires numbers or arrays of the same shape, not {shown}."
            ) from None

    return compute


@_of_numbers
def epoch_runtime(first_epoch_seconds: float, later_epoch_seconds: float, epochs: float) -> float:
    """Equation 4.1 of the dissertation: seconds of a training as a slower first epoch and equal later epochs.

    >>> epoch_runtime(14.0, 10.0, 5)
    54.0
    """
    return first_epoch_seconds + (epochs - 1) * later_epoch_seconds


@_of_numbers
def epoch_runtime_with_init(
    init_seconds: float, first_epoch_seconds: float, later_epoch_seconds: float, epochs: float
) -> float:
    """Equation 5.1 of the dissertation: seconds of a training as initialization plus equation 4.1.

    >>> epoch_runtime_with_init(0.5, 14.0, 10.0, 5)
    54.5
    """
    return init_seconds + epoch_runtime(first_epoch_seconds, later_epoch_seconds, epochs)


@_of_numbers
def epoch_time(iteration_seconds: float, iterations_per_epoch: float, validation_seconds: float) -> float:
    """Equation 5.2 of the dissertation: seconds of an epoch as its iterations plus one validation.

    >>> epoch_time(0.25, 40, 2.0)
    12.0
    """
    return iteration_seconds * iterations_per_epoch + validation_seconds


@_of_numbers
def iteration_runtime(
    init_seconds: float,
    first_iteration_seconds: float,
    second_iteration_seconds: float,
    iterations_per_epoch: float,
    first_validation_seconds: float,
    second_validation_seconds: float,
    epochs: float,
) -> float:
    """Equation 5.3 of the dissertation: seconds of a training with a slower first iteration and first validation.

    >>> iteration_runtime(1.0, 5.0, 0.5, 10, 3.0, 2.0, 4)
    34.5
    """
    first_epoch = first_iteration_seconds + second_iteration_seconds * (iterations_per_epoch - 1)
    later_epoch = epoch_time(second_iteration_seconds, iterations_per_epoch, second_validation_seconds)
    return init_seconds + first_epoch + first_validation_seconds + (epochs - 1) * later_epoch


@_of_numbers
def iteration_runtime_without_validation(
    init_seconds: float,
    first_iteration_seconds: float,
    second_iteration_seconds: float,
    iterations_per_epoch: float,
    epochs: float,
) -> float:
    """Equation 5.4 of the dissertation: equation 5.3 without validation.

    The equation as printed counts the first iteration in addition to all ordinary iterations. Here, the first
    iteration replaces one ordinary iteration.

    >>> iteration_runtime_without_validation(1.0, 5.0, 0.5, 10, 4)
    25.5
    """
    return init_seconds + first_iteration_seconds + second_iteration_seconds * (iterations_per_epoch * epochs - 1)
