"""A ranking diagnoses each of its profiles once."""

from __future__ import annotations

from collections import Counter

import pytest

import vmselect as vs
from tests.support.priced import prices
from tests.support.profiles import make_profile
from vmselect.diagnosis import causes, checks
from vmselect.records import Profile


@pytest.mark.parametrize("batch_size", [None, [64, 96, 128]])
def test_each_profile_is_diagnosed_once(monkeypatch: pytest.MonkeyPatch, batch_size: list[int] | None) -> None:
    counts: Counter[str] = Counter()

    def count(profile: Profile) -> tuple[causes.Cause, ...]:
        counts[profile.id] += 1
        return causes.find_causes(profile)

    monkeypatch.setattr(checks, "find_causes", count)
    sizes = (64, 128) if batch_size else (64,)
    profiles = [make_profile(name, batch_size=size) for name in "abc" for size in sizes for _ in range(2)]
    catalog = prices(*((name, 1.0) for name in "abc"))
    ranking = vs.rank(profiles, epochs=20, catalog=catalog, batch_size=batch_size)
    assert str(ranking)
    assert ranking.to_json()
    assert counts == dict.fromkeys((profile.id for profile in profiles), 1)
