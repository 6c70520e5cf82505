"""Predictions from the first part of a watched training, by every method, and how far they are from its true time."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import vmselect as vs
from vmselect.errors import VmselectError
from vmselect.records import Boundary, Profile

PROBE_EPOCHS = 2

METHODS = {
    "robust": "robust",
    "5.1 two epochs": "malta-epoch",
    "5.3 second": "malta-iteration:second",
    "5.3 mean 2-10": "malta-iteration:mean-2-10",
    "5.4 second": "malta-iteration-no-validation:second",
    "5.4 mean 2-10": "malta-iteration-no-validation:mean-2-10",
}
"""Names in the table, and the methods of vmselect behind them."""

OTHERS: dict[str, Callable[[Profile, float], float]] = {
    "SkyPilot formula": lambda seen, steps: _seconds_per_step(seen) * steps,
    "elapsed / steps": lambda seen, steps: _elapsed(seen) / seen.timeline.steps.steps * steps,
}
"""What other tools do with the same readings."""


@dataclass(frozen=True)
class Score:
    """One method's prediction for one training."""

    part: str
    backend: str
    case: str
    method: str
    true_seconds: float
    seconds: float
    low: float
    high: float
    probe_share: float

    @property
    def error(self) -> float:
        """Relative to the true time."""
        return self.seconds / self.true_seconds - 1

    @property
    def holds(self) -> bool:
        return self.low <= self.true_seconds <= self.high

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2 / self.seconds


def cut(profile: Profile, *, steps: int, epochs: int = PROBE_EPOCHS) -> Profile:
    """The profile as a probe would have left it: ``steps`` steady steps of each of the first ``epochs`` epochs.

    A probe stops an epoch after its first step and ``steps`` more, sees the validation and goes on with the next one.
    Unlike a probe's, the boundaries here come after whole epochs, and are not marked as truncated.
    """
    timeline = profile.timeline
    column = timeline.steps
    kept = [
        index
        for index, (epoch, batch) in enumerate(zip(column.epoch, column.batch, strict=True))
        if epoch < epochs and batch < steps + profile.setup.steps_per_execution
    ]
    reached = {column.epoch[index]: column.batch[index] + 1 for index in kept}
    part = column.model_copy(
        update={
            **{name: tuple(getattr(column, name)[i] for i in kept) for name in ("epoch", "batch", "seconds", "covers")},
            "label": tuple(column.label[i] for i in kept),
            "readings": len(kept),
            "steps": sum(column.covers[i] for i in kept),
            "total_seconds": sum(column.seconds[i] for i in kept),
        }
    )
    whole = {e.epoch: e.steps is not None and reached.get(e.epoch, 0) >= e.steps for e in timeline.epochs}
    cut_timeline = timeline.model_copy(
        update={
            "steps": part,
            "epochs": tuple(e for e in timeline.epochs if e.epoch < epochs and whole[e.epoch]),
            "validations": tuple(v for v in timeline.validations if v.epoch < epochs),
            "boundaries": tuple(_boundaries(timeline.boundaries, epochs)),
            "fit_seconds": None,
        }
    )
    return profile.model_copy(update={"timeline": cut_timeline, "outcome": "stopped"})


def _boundaries(seen: Iterable[Boundary], epochs: int) -> Iterator[Boundary]:
    """Those before the probe's end, and what its last epoch spent before its validation: all after whole epochs."""
    for boundary in seen:
        if boundary.epoch < epochs - 1 and not boundary.final:
            yield boundary
        elif boundary.epoch == epochs - 1 and boundary.before_validation_seconds is not None:
            yield boundary.model_copy(update={"seconds": boundary.before_validation_seconds, "final": True})


def score(part: str, backend: str, case: str, watched: Profile, *, steps: int) -> list[Score]:
    """Every method on the first part of a watched training."""
    true_seconds, epochs = watched.total_seconds, watched.setup.epochs
    assert true_seconds is not None
    assert epochs is not None
    seen = cut(watched, steps=steps)
    return [*predict(part, backend, case, seen, true_seconds, epochs, two_epochs=first_epochs(watched))]


def first_epochs(watched: Profile) -> Profile:
    """The first two whole epochs: what equation 5.1 needs, and pays more for."""
    return cut(watched, steps=10**9)


def predict(
    part: str, backend: str, case: str, seen: Profile, true_seconds: float, epochs: int, *, two_epochs: Profile | None
) -> Iterable[Score]:
    """Every method that can, on what a probe saw."""
    for name, method in METHODS.items():
        source = two_epochs if method == "malta-epoch" else seen
        if source is None:
            continue
        try:
            estimate = vs.estimate(source, epochs=epochs, method=method)
        except VmselectError:
            if method == "robust":
                raise
            continue
        numbers = estimate.seconds, estimate.low, estimate.high
        yield Score(part, backend, case, name, true_seconds, *numbers, _elapsed(source) / true_seconds)
    steps = (seen.steps_per_epoch or 0) * epochs
    for name, formula in OTHERS.items():
        seconds = formula(seen, steps)
        yield Score(part, backend, case, name, true_seconds, seconds, seconds, seconds, _elapsed(seen) / true_seconds)


def _seconds_per_step(seen: Profile) -> float:
    """Mean after one warm-up step, as SkyPilot's callback had it."""
    steps = seen.timeline.steps
    return sum(steps.seconds[1:]) / sum(steps.covers[1:])


def _elapsed(seen: Profile) -> float:
    """Seconds from the start of the program to the end of the probe."""
    timeline = seen.timeline
    lists = (timeline.validations, timeline.boundaries)
    inside = timeline.steps.total_seconds + sum(one.seconds for some in lists for one in some)
    return inside + (timeline.init_seconds or 0.0) + (timeline.fit_to_first_batch_seconds or 0.0)


def table(scores: Sequence[Score]) -> list[list[str]]:
    """Rows: part, backend, method, runs, mean, median, p90, worst, bias, coverage, half-width, probe share."""
    rows = []
    groups: dict[tuple[str, str, str], list[Score]] = {}
    for one in scores:
        groups.setdefault((one.part, one.backend, one.method), []).append(one)
        groups.setdefault((one.part, "all", one.method), []).append(one)
    for (part, backend, method), some in groups.items():
        errors = sorted(abs(one.error) for one in some)
        numbers = [
            statistics.fmean(errors),
            statistics.median(errors),
            errors[min(len(errors) - 1, int(0.9 * len(errors)))],
            errors[-1],
        ]
        interval = method == "robust"
        rows.append(
            [
                part,
                backend,
                method,
                str(len(some)),
                *(f"{100 * number:.1f}" for number in numbers),
                f"{100 * statistics.fmean(one.error for one in some):+.1f}",
                f"{100 * statistics.fmean(one.holds for one in some):.0f}" if interval else "",
                f"{100 * statistics.median(one.half_width for one in some):.1f}" if interval else "",
                f"{100 * statistics.median(one.probe_share for one in some):.0f}",
            ]
        )
    order = ("metronome", "outliers", "in-run", "cross-run")
    backends = ("tensorflow", "jax", "torch", "all")
    return sorted(rows, key=lambda row: (order.index(row[0]), backends.index(row[1])))


HEADER = [
    *("part", "backend", "method", "runs", "mean", "median", "p90", "worst"),
    *("bias", "coverage", "half-width", "probe-share"),
]


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    """The table as Markdown; errors, coverage, half-width and share are percent of the true time."""
    lines = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * 3 + "---:|" * (len(HEADER) - 3)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"
