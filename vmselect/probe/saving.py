"""The last act of every probe: evaluate the user's metrics, build the profile, write it, say so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vmselect.probe.options import Metrics, evaluate_metrics
from vmselect.units import format_seconds

if TYPE_CHECKING:
    from vmselect.probe.recording import Recording
    from vmselect.records.training import Outcome, Profile


def keep_profile(
    recording: Recording,
    outcome: Outcome,
    *,
    detail: str | None,
    metrics: Metrics,
    path: Path | None,
    verbose: int,
) -> Profile:
    """The profile of a recording, written to ``path`` by the first worker."""
    try:
        measured = evaluate_metrics(metrics)
    except BaseException:
        # A faulty metric must not cost the times: they are written, then the fault is shown.
        _write(recording, recording.build(outcome, detail=detail), path=path, verbose=verbose)
        raise
    profile = recording.build(outcome, detail=detail, metrics=measured)
    _write(recording, profile, path=path, verbose=verbose)
    return profile


def describe_stop(profile: Profile, written: Path | None) -> str:
    """The one line that a probe says when it has ended a training."""
    timeline = profile.timeline
    steps, epochs, validations = timeline.steps.steps, len(timeline.epochs), len(timeline.validations)
    seen = f"{steps} step{'s' * (steps != 1)}" if steps else f"{epochs} epoch{'s' * (epochs != 1)}"
    if validations:
        seen += f" and {validations} validation{'s' * (validations != 1)}"
    where = f"; profile in {written}" if written is not None else ""
    return f"vmselect: ended the training after {seen} ({format_seconds(timeline.wall_seconds or 0.0)}){where}"


def _write(recording: Recording, profile: Profile, *, path: Path | None, verbose: int) -> None:
    if not recording.is_chief:
        return
    written = profile.save(path) if path is not None else None
    if verbose and profile.outcome == "stopped":
        sys.stdout.write(describe_stop(profile, written) + "\n")
        sys.stdout.flush()
