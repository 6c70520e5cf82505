"""What makes two records the same machine, the same training, or repetitions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.profiles import make_profile
from vmselect.records import Environment, Fact, Placement, Profile, identity
from vmselect.records.identity import NOT_FACTORS, Identity, identify, training_key, work_key
from vmselect.records.training import Fit

BASE = make_profile(examples=6400)


def changed(part: str | None = None, **values: Any) -> Profile:
    """Another profile of the same setup, except for ``values``."""
    if part is not None:
        values = {part: getattr(BASE, part).model_copy(update=values)}
    return BASE.model_copy(update={"id": f"{abs(hash(str(values))):032x}"[:32], **values})


def test_settings_and_identity_are_inverse() -> None:
    several = changed(factors={"nodes": 2, "image_size": 224}, environment=Environment(workers=8))
    for profile in (BASE, several):
        known = identify(profile)
        assert Identity.of_settings(known.instance_type, known.provider, known.settings) == known
    assert identify(several).settings == {"batch_size": 64, "nodes": 2, "workers": 8, "image_size": 224}


@pytest.mark.parametrize("name", sorted(NOT_FACTORS - {"nodes"}))
def test_names_of_machine_and_batch_size_are_no_factors(name: str) -> None:
    named = changed(factors={name: 7})
    assert identify(named) == identify(BASE)
    assert work_key(named, 64) == work_key(BASE, 64)
    assert identify(changed(factors={"nodes": 3})).nodes == 3


def test_the_same_computation_may_run_on_any_machine_but_not_in_another_precision() -> None:
    elsewhere = changed(placement=Placement(instance_type=Fact(value="other", source="given")))
    assert work_key(elsewhere, 64) == work_key(BASE, 64)
    assert work_key(BASE, 32) != work_key(BASE, 64)
    assert work_key(changed("environment", precision="mixed_float16"), 64) != work_key(BASE, 64)
    assert identify(elsewhere) != identify(BASE)
    assert identify(changed("setup", batch_size=32)).machine == identify(BASE).machine


def test_fits_of_a_program_are_other_trainings() -> None:
    fits = [changed(fit=Fit(process="p", number=number)) for number in (1, 2)]
    assert len({training_key(profile) for profile in (BASE, *fits)}) == 3


def test_factors_that_repeat_other_fields_make_no_other_machine_estimate() -> None:
    assert len(identity.group_repetitions([BASE, changed(factors={"batch_size": 64, "machine": "a"})])) == 1


def test_copies_of_a_profile_count_once() -> None:
    other = changed(factors={})
    assert identity.distinct([BASE, other, BASE]) == [BASE, other]
    (group,) = identity.group_repetitions([BASE, BASE, other]).values()
    assert len(group) == 2


def test_an_unknown_provider_joins_the_only_known_one() -> None:
    named = [
        changed(
            placement=Placement(instance_type=Fact(value="a", source="given"), provider=Fact(value=p, source="dmi"))
        )
        for p in ("aws", "gcp")
    ]
    assert len(identity.group_repetitions([BASE, named[0]])) == 1
    assert len(identity.group_repetitions([BASE, *named])) == 3


def test_the_order_in_which_files_are_read_changes_nothing() -> None:
    early = changed(created=datetime(2020, 1, 1, tzinfo=UTC))
    assert identity.group_repetitions([BASE, early]) == identity.group_repetitions([early, BASE])
