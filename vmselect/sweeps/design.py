"""The design of experiments: combinations of levels, exclusions, repetitions, and random order by blocks."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from vmselect._checks import is_number, list_items, show
from vmselect.errors import PlanError
from vmselect.sweeps.command import check_text

Level = str | int | float | bool
Factors = dict[str, Level]

MOST_TRIALS = 100_000
REPETITION = "repetition"
_NAME = re.compile(r"[A-Za-z_]\w{0,63}")


def read_factors(given: Any) -> dict[str, tuple[Level, ...]]:
    """Factor names to their levels."""
    if not isinstance(given, Mapping):
        raise PlanError(f"factors must map names to lists of levels, not {show(given)}.", ("factors",))
    factors: dict[str, tuple[Level, ...]] = {}
    for name, levels in given.items():
        where = ("factors", str(name))
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name == REPETITION:
            raise PlanError(f"{show(name)} cannot name a factor. Use letters, digits and _, such as batch_size.", where)
        levels = [levels] if isinstance(levels, (str, bytes, Mapping)) else list_items(levels)
        read = tuple(read_level(f"factor {name}: level", level, where) for level in levels)
        if not read:
            raise PlanError(f"Factor {name} has no levels, so there is nothing to run. Give at least one.", where)
        twice = {str(level) for level in read if [str(other) for other in read].count(str(level)) > 1}
        if twice:
            raise PlanError(
                f"Factor {name} names {', '.join(sorted(twice))} twice, which makes duplicate trials.", where
            )
        factors[name] = read
    return factors


def read_level(what: str, level: Any, where: tuple[str | int, ...]) -> Level:
    """A level in its plain form: a text, a number or a truth value."""
    if hasattr(level, "item") and not isinstance(level, str):
        level = level.item()
    if isinstance(level, str) and level.strip():
        try:
            return check_text(what, level)
        except PlanError as bad:
            raise PlanError(str(bad), where) from None
    if isinstance(level, bool) or (isinstance(level, (int, float)) and is_number(level)):
        return level
    raise PlanError(f"{what} must be a text or a number, not {show(level)}.", where)


def read_rules(name: str, given: Any, factors: Mapping[str, tuple[Level, ...]]) -> tuple[dict[str, Any], ...]:
    """Rules such as ``{"machine": "small", "batch_size": [128, 256]}``: a trial fits where every factor does."""
    if isinstance(given, Mapping):
        given = [given]
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)):
        raise PlanError(f"{name} must be a list of rules, not {show(given)}.", (name,))
    rules: list[dict[str, Any]] = []
    for position, rule in enumerate(given):
        where: tuple[str | int, ...] = (name, position)
        if not isinstance(rule, Mapping) or not rule:
            raise PlanError(f"A rule in {name} must map factors to levels, not {show(rule)}.", where)
        read: dict[str, Any] = {}
        for factor, levels in rule.items():
            check_factor(factor, factors, f"A rule in {name}", (*where, str(factor)))
            several = isinstance(levels, Sequence) and not isinstance(levels, str)
            plain = [read_level(f"{name}: {factor}", level, where) for level in (levels if several else [levels])]
            for level in plain:
                if level not in factors[factor]:
                    known = ", ".join(map(str, factors[factor]))
                    raise PlanError(f"A rule in {name} names {factor} {level!r}; its levels are {known}.", where)
            read[factor] = plain if several else plain[0]
        rules.append(read)
    return tuple(rules)


def check_factor(name: Any, factors: Mapping[str, Any], who: str, where: tuple[str | int, ...]) -> None:
    """Raise where ``name`` is no factor."""
    if name not in factors:
        known = ", ".join(factors) or "none"
        raise PlanError(f"{who} names the unknown factor {show(name)}; the factors are {known}.", where)


def cross(
    factors: Mapping[str, tuple[Level, ...]],
    *,
    exclude: Sequence[Mapping[str, Any]],
    include: Sequence[Mapping[str, Any]],
) -> list[Factors]:
    """Every combination of levels that is allowed, in the order of the factors."""
    size = 1
    for levels in factors.values():
        size *= len(levels)
    if size > MOST_TRIALS:
        raise PlanError(f"The factors make {size:,} combinations, more than {MOST_TRIALS:,}. Use fewer.", ("factors",))
    combined = [dict(zip(factors, levels, strict=True)) for levels in itertools.product(*factors.values())]
    kept = [c for c in combined if not _fits_any(c, exclude) and (not include or _fits_any(c, include))]
    if not kept:
        raise PlanError("The rules leave no candidate to run. Exclude less.", ("exclude",))
    return kept


def order(
    combinations: Sequence[Factors], *, repetitions: int, blocks: Sequence[str], seed: int | None
) -> list[tuple[int, int, str]]:
    """Positions in ``combinations`` with their repetition and block, in the order in which they are to run.

    Blocks run one after the other, in random order, and each is shuffled inside; without a seed nothing is.
    """
    if len(combinations) * repetitions > MOST_TRIALS:
        total = len(combinations) * repetitions
        raise PlanError(f"{total:,} trials are more than {MOST_TRIALS:,}. Use fewer.", ("repetitions",))
    grouped: dict[tuple[Any, ...], list[tuple[int, int, str]]] = {}
    for repetition in range(1, repetitions + 1):
        for position, factors in enumerate(combinations):
            levels = {**factors, REPETITION: repetition}
            key = tuple(levels[name] for name in blocks)
            name = ", ".join(f"{b} {level}" for b, level in zip(blocks, key, strict=True))
            grouped.setdefault(key, []).append((position, repetition, name))
    groups = list(grouped.values())
    if seed is not None:
        chance = random.Random(seed)
        chance.shuffle(groups)
        for group in groups:
            chance.shuffle(group)
    return [trial for group in groups for trial in group]


def _fits_any(factors: Factors, rules: Sequence[Mapping[str, Any]]) -> bool:
    return any(
        all(
            factors[name] in levels if isinstance(levels, list) else factors[name] == levels
            for name, levels in rule.items()
        )
        for rule in rules
    )
