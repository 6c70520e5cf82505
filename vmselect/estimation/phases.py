"""Recipes that change during the run: progressive resizing, growing batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from vmselect._checks import check_count, is_number, list_items, show
from vmselect.errors import ArgumentError
from vmselect.estimation.runtime import TERMS, RuntimeEstimate, RuntimeModel
from vmselect.records import Profile

ONCE = ("boot", "initialization")
"""Terms that the whole training spends once, however many phases it has."""


def estimate_phases(
    base: RuntimeModel,
    phases: Sequence[tuple[int, Profile | float]],
    *,
    fit_phase: Callable[[Profile], RuntimeModel],
    epochs: int | None,
) -> RuntimeEstimate:
    """The sum over phases, each (epochs, profile of that phase) or (epochs, factor on the epochs of ``base``).

    A phase with a profile of its own compiles anew, so it pays its own first iteration and first validation; a factor
    scales what an ordinary epoch takes. Half-widths add up in full: phases share the machine and its drift.
    """
    title = base.title
    pairs = _read_pairs(phases, title)
    lengths = [check_count(f"{title}: the epochs of a phase", length) for length, _ in pairs]
    if epochs is not None and check_count(f"{title}: epochs", epochs) != sum(lengths):
        raise ArgumentError(f"{title}: phases hold {sum(lengths)} epochs, not epochs={epochs}. Leave epochs out.")
    total = {name: base.terms[name][0] for name in ONCE if name in base.terms}
    low = high = 0.0
    findings = list(base.findings)
    for number, (length, what) in enumerate(zip(lengths, (what for _, what in pairs), strict=True)):
        if isinstance(what, Profile):
            own = fit_phase(what)
            part = own.at(length)
            terms = dict(part.terms)
            down, up = part.seconds - part.low, part.high - part.seconds
            findings += [finding for finding in own.findings if finding not in findings]
        else:
            factor = _check_factor(what, title)
            terms, down, up = _scaled(base, length, factor, opening=number == 0)
        for name, seconds in terms.items():
            if name in ONCE:
                continue
            total[name] = total.get(name, 0.0) + seconds
        low, high = low + down, high + up
    seconds = math.fsum(total.values())
    return RuntimeEstimate(
        seconds=seconds,
        low=max(0.0, seconds - low),
        high=seconds + high,
        terms={name: total[name] for name in TERMS if total.get(name)},
        method=base.method,
        confidence=base.confidence,
        epochs=sum(lengths),
        title=title,
        findings=tuple(findings),
    )


def _read_pairs(phases: Any, title: str) -> list[tuple[Any, Any]]:
    wanted = "Give (epochs, profile) or (epochs, factor) pairs."
    if isinstance(phases, (str, bytes)) or not isinstance(phases, Iterable):
        raise ArgumentError(f"{title}: phases is {show(phases)}. {wanted}")
    pairs = list_items(phases)
    if not pairs:
        raise ArgumentError(f"{title}: phases is empty. {wanted}")
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ArgumentError(f"{title}: {show(pair)} is no phase. {wanted}")
    return [(length, what) for length, what in pairs]


def _check_factor(factor: Any, title: str) -> float:
    if not is_number(factor) or factor <= 0:
        raise ArgumentError(f"{title}: {show(factor)} describes no phase. Give a profile, or a factor above zero.")
    return float(factor)


def _scaled(model: RuntimeModel, epochs: int, factor: float, *, opening: bool) -> tuple[dict[str, float], float, float]:
    """Terms of ``epochs`` ordinary epochs, each taking ``factor`` times as long, and their half-widths."""
    alone = model.at(epochs)
    scaled = dict(alone.terms)
    for name, (fixed, per_epoch) in model.terms.items():
        scaled[name] = fixed * opening + per_epoch * epochs * factor
    validations = epochs // model.validation_freq
    if opening and validations:
        compiling = model.first_validation_seconds - model.validation_seconds
        scaled["first_validation"] = max(0.0, compiling) + model.validation_seconds * factor
        validations -= 1
    else:
        scaled.pop("first_validation", None)
    scaled["later_validations"] = model.validation_seconds * factor * validations
    return scaled, (alone.seconds - alone.low) * max(1.0, factor), (alone.high - alone.seconds) * max(1.0, factor)
