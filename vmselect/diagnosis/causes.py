"""All checks together: from a record to what it says about speed."""

from __future__ import annotations

from itertools import chain

from vmselect._checks import check_share, maybe, show
from vmselect.diagnosis.device import find_compute_bound, find_input_bound, find_memory, find_throttling, find_underfed
from vmselect.diagnosis.epochs import find_growth, find_pauses
from vmselect.diagnosis.evidence import Diagnosis
from vmselect.diagnosis.host import (
    find_busy_disk,
    find_full_memory,
    find_limit,
    find_neighbours,
    find_saturation,
    find_swapping,
)
from vmselect.errors import ArgumentError
from vmselect.records import Profile

FINE = "compute-bound"
"""The diagnosis of a training that is as it should be."""


def diagnose(profile: Profile, *, cpu_threshold: float | None = None) -> tuple[Diagnosis, ...]:
    """Why the training is as slow as it is: what limits it, with evidence and remedy; gravest first.

    Nothing is guessed: what was not sampled, or not long enough, gives no diagnosis. ``cpu_threshold`` is the share of
    the processors' time above which they count as saturated. Without it that is 0.9, and said only where processors
    feed something else: where they do the computing they ought to be busy.

    >>> import vmselect as vs
    >>> profile = vs.Profile.from_times(instance_type="g4dn.xlarge", first_epoch_seconds=40,
    ...     later_epoch_seconds=[30, 33, 36, 40])
    >>> [found.code for found in diagnose(profile)]
    ['slowing-down']
    """
    if not isinstance(profile, Profile):
        raise ArgumentError(f"diagnose needs a Profile, not {show(profile)}.")
    threshold = maybe(check_share, "cpu_threshold", cpu_threshold)
    found = chain(
        find_throttling(profile),
        find_swapping(profile),
        find_full_memory(profile),
        find_neighbours(profile),
        find_growth(profile),
        find_limit(profile),
        find_input_bound(profile),
        find_saturation(profile, threshold),
        find_underfed(profile),
        find_memory(profile),
        find_busy_disk(profile),
        find_pauses(profile),
        find_compute_bound(profile),
    )
    return tuple(sorted(found, key=lambda cause: cause.severity != "warning"))


def find_causes(profile: Profile) -> tuple[Diagnosis, ...]:
    """What belongs among the findings of a record: every diagnosis but that all is as it should be."""
    return tuple(cause for cause in diagnose(profile) if cause.code != FINE)
