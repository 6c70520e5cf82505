"""What the documentation promises of the robust method, checked against measured scores."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from accuracy_scores import Score


def broken_promises(scores: Sequence[Score], spreads: Mapping[tuple[str, str], float], *, quick: bool) -> list[str]:
    """A sentence for every promise that the scores break; a quick run has too few for the statistical ones."""
    broken = [
        f"metronome {one.case} on {one.backend}: robust is {100 * one.error:+.2f} % off, more than 1 %"
        for one in scores
        if one.part == "metronome" and one.method == "robust" and abs(one.error) > 0.01
    ]
    if quick:
        return broken
    return [*broken, *_outliers(scores), *_in_run(scores), *_cross_run(scores, spreads)]


def _of(scores: Sequence[Score], part: str, method: str, backend: str | None = None) -> list[Score]:
    return [s for s in scores if s.part == part and s.method == method and backend in (None, s.backend)]


def _mean(scores: Sequence[Score]) -> float:
    return statistics.fmean(abs(one.error) for one in scores)


def _share(scores: Sequence[Score]) -> float:
    return statistics.fmean(one.probe_share for one in scores)


def _outliers(scores: Sequence[Score]) -> list[str]:
    broken = []
    for backend in sorted({one.backend for one in scores if one.part == "outliers"}):
        robust = _of(scores, "outliers", "robust", backend)
        bias = statistics.fmean(one.error for one in robust)
        error = statistics.stdev(one.error for one in robust) / len(robust) ** 0.5
        held = statistics.fmean(one.holds for one in robust)
        if abs(bias) > 2 * error:
            broken.append(f"outliers on {backend}: biased by {100 * bias:+.1f} %, standard error {100 * error:.1f} %")
        if held < 0.88:
            broken.append(f"outliers on {backend}: the interval held in {held:.0%}, less than 88 %")
    return broken


def _in_run(scores: Sequence[Score]) -> list[str]:
    everywhere = _of(scores, "in-run", "robust")
    if not everywhere:
        return []
    broken = []
    methods = {one.method for one in scores} - {"robust"}
    for backend in sorted({one.backend for one in everywhere}):
        ours = _of(scores, "in-run", "robust", backend)
        for method in sorted(methods):
            theirs = _of(scores, "in-run", method, backend)
            more_probing = _share(theirs) > _share(ours) * 1.01
            if not more_probing and _mean(ours) >= _mean(theirs):
                broken.append(
                    f"in-run on {backend}: robust {100 * _mean(ours):.1f} %, {method} {100 * _mean(theirs):.1f} %"
                )
    ratio = _mean(everywhere) / _mean(_of(scores, "in-run", "SkyPilot formula"))
    if ratio > 0.6:
        broken.append(f"in-run: robust's error is {ratio:.2f} of the SkyPilot formula's, more than 0.6")
    held = statistics.fmean(one.holds for one in everywhere)
    if held < 0.88:
        broken.append(f"in-run: intervals held in {held:.0%}, less than 88 %")
    width = statistics.median(one.half_width for one in everywhere)
    if width > 0.2:
        broken.append(f"in-run: the median half-width is {width:.0%}, more than 20 %")
    return broken


def _cross_run(scores: Sequence[Score], spreads: Mapping[tuple[str, str], float]) -> list[str]:
    broken = []
    methods = {one.method for one in scores if one.part == "cross-run"} - {"robust"}
    for backend in sorted({one.backend for one in scores if one.part == "cross-run"}):
        ours = _mean(_of(scores, "cross-run", "robust", backend))
        best = min(_mean(some) for m in methods if (some := _of(scores, "cross-run", m, backend)))
        allowed = statistics.fmean(spread for (where, _), spread in spreads.items() if where == backend)
        if ours > best + allowed:
            broken.append(
                f"cross-run on {backend}: robust {100 * ours:.1f} %, the best other {100 * best:.1f} %, repeated runs "
                f"{100 * allowed:.1f} % apart"
            )
    return broken
