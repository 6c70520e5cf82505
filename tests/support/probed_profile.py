"""A profile as a probe leaves it, of the parts that a test is about."""

from __future__ import annotations

from typing import Any

from vmselect.records import Environment, Profile, Setup, Timeline


def probed(*, environment: Any = None, usage: Any = None, timeline: Any = None, **setup: Any) -> Profile:
    return Profile(
        outcome="stopped",
        setup=Setup(**setup),
        timeline=Timeline(**(timeline or {})),
        environment=Environment(**(environment or {})),
        usage=usage,
    )
