"""Convergence studies: number of epochs to convergence at each batch size, with an interval.

Between two measured batch sizes, the reciprocal of the number of epochs is interpolated linearly in the logarithm of
the batch size. Outside the measured batch sizes, from half the smallest to twice the largest, the number of epochs of
the nearest measured batch size is used. Its interval is widened: it covers the range from a constant number of epochs
to a number proportional to the batch size. For batch sizes farther away, the number of epochs is unknown. These rules
were chosen on measurements, see docs/explanation/choosing.md.
"""

from __future__ import annotations

import html
import math
import os
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from pydantic import PrivateAttr

from vmselect._checks import check_choice, check_count, check_name, check_number, list_items, maybe, show
from vmselect.errors import ArgumentError, ProfileError
from vmselect.findings import Finding, findings_html, table_html
from vmselect.intervals import Interval
from vmselect.records.convergence import MAX_EPOCHS_RUN, ConvergenceRecord, ConvergenceRun, StoppingRule, check_same
from vmselect.records.files import find_records
from vmselect.units import printable

if TYPE_CHECKING:
    import pandas as pd

REACH = 2.0
"""Numbers of epochs are extrapolated to batch sizes at most this factor beyond the measured batch sizes."""

USUAL_SPREAD = 0.2
"""Prior spread of the number of epochs between repetitions (standard deviation of the logarithm)."""

USUAL_SPREAD_WEIGHT = 8
"""Weight of ``USUAL_SPREAD``, as a number of repetitions beyond the first."""

INTERPOLATION_SPREAD = 0.1
"""Additional spread (standard deviation of the logarithm) of the number of epochs at an interpolated batch size."""

Source = Literal["measured", "interpolated", "extrapolated", "unknown"]


@dataclass(frozen=True)
class EpochsEstimate:
    """Number of epochs to convergence at ``batch_size``: the mean ``value``, and the interval for a single new run.

    Can be unpacked as ``value, low, high``, which are NaN if ``source`` is "unknown". ``mean_half_width`` is the
    relative half-width of the interval for the mean over many runs, which is used to decide whether two batch sizes
    differ significantly.
    """

    batch_size: int
    value: float
    low: float
    high: float
    source: Source
    mean_half_width: float = 0.0
    findings: tuple[Finding, ...] = ()

    @property
    def interval(self) -> Interval[float]:
        """The number of epochs with the bounds of its interval."""
        return Interval(self.value, self.low, self.high)

    def __iter__(self) -> Iterator[float]:
        return iter(self.interval)


def _half_widths(
    epochs: Mapping[int, Sequence[float]], repetitions: int, confidence: float, extra: float = 0.0
) -> tuple[float, float]:
    """Half-widths of the intervals for a new run and for the mean over many runs, on the logarithmic scale.

    The standard deviation between repetitions is pooled over batch sizes and shrunk towards ``USUAL_SPREAD``.
    ``extra`` is an additional standard deviation.
    """
    from scipy.special import stdtrit

    # Two or three runs are usual, too few for a deviation per batch size.
    squares, degrees = USUAL_SPREAD_WEIGHT * USUAL_SPREAD**2, USUAL_SPREAD_WEIGHT
    for values in epochs.values():
        if len(values) > 1:
            squares += statistics.variance(map(math.log, values)) * (len(values) - 1)
            degrees += len(values) - 1
    deviation = math.sqrt(squares / degrees)
    quantile = float(stdtrit(degrees, 0.5 + confidence / 2))
    mean = deviation**2 / repetitions + extra**2
    return quantile * math.sqrt(deviation**2 + mean), quantile * math.sqrt(mean)


def predict_epochs(
    epochs: Mapping[int, Sequence[float]], batch_size: int, *, confidence: float = 0.9
) -> EpochsEstimate:
    """Estimate the epochs to convergence at ``batch_size``.

    ``epochs`` maps each measured batch size to the numbers of epochs of its runs.
    """
    confidence = check_number("confidence", confidence, above=0, most=0.9999)
    sizes = sorted(epochs)
    tried = f"({sizes[0]} to {sizes[-1]})"
    remedy = f"Train once at batch size {batch_size} with ConvergenceProbe."
    source: Source = "measured"
    findings: tuple[Finding, ...] = ()
    below = above = 0.0
    if batch_size in epochs:
        value = statistics.fmean(epochs[batch_size])
        half, mean_half_width = _half_widths(epochs, len(epochs[batch_size]), confidence)
    elif sizes[0] < batch_size < sizes[-1]:
        source = "interpolated"
        smaller, larger = _neighbors(sizes, batch_size)
        # Progress per epoch (the reciprocal) is interpolated, on the scale of doublings of the batch size.
        weight = math.log(batch_size / smaller) / math.log(larger / smaller)
        value = 1 / ((1 - weight) / statistics.fmean(epochs[smaller]) + weight / statistics.fmean(epochs[larger]))
        repetitions = min(len(epochs[smaller]), len(epochs[larger]))
        half, mean_half_width = _half_widths(epochs, repetitions, confidence, INTERPOLATION_SPREAD)
    elif sizes[0] / REACH <= batch_size <= sizes[-1] * REACH:
        source = "extrapolated"
        nearest = sizes[-1] if batch_size > sizes[-1] else sizes[0]
        ratio = max(batch_size / nearest, nearest / batch_size)
        value = statistics.fmean(epochs[nearest])
        half, mean_half_width = _half_widths(epochs, len(epochs[nearest]), confidence)
        # Larger batches need as many epochs or, at the other extreme, as many steps as before.
        above = math.log(ratio)
        below = 0.0 if batch_size > nearest else above
        mean_half_width += above
        lowest = value if batch_size > nearest else value / ratio
        message = (
            f"Batch size {batch_size} lies outside the measured batch sizes {tried}. The training may take "
            f"{lowest:.3g} to {value * ratio:.3g} epochs to converge."
        )
        findings = (Finding("epochs-extrapolated", message, remedy),)
    else:
        message = (
            f"The number of epochs at batch size {batch_size} is unknown: it is too far from the measured batch sizes "
            f"{tried}."
        )
        finding = Finding("epochs-unknown", message, remedy)
        return EpochsEstimate(batch_size, math.nan, math.nan, math.nan, "unknown", math.inf, (finding,))
    # No training is shorter than one epoch, unless a measured run was.
    low = min(value, max(1.0, value * math.exp(-(half + below))))
    return EpochsEstimate(batch_size, value, low, value * math.exp(half + above), source, mean_half_width, findings)


def _neighbors(sizes: Collection[int], batch_size: int) -> tuple[int, int]:
    return max(size for size in sizes if size < batch_size), min(size for size in sizes if size > batch_size)


class ConvergenceStudy(ConvergenceRecord):
    """Number of epochs to convergence by batch size. It does not depend on the machine on which it is measured.

    >>> study = ConvergenceStudy.from_epochs({256: [13, 15], 1024: [14]}, metrics={256: 0.97, 1024: 0.96})
    >>> study.batch_sizes
    (256, 1024)
    >>> study.epochs(256).value
    14.0
    """

    _required: dict[str, float] = PrivateAttr(default_factory=dict)

    @classmethod
    def of(cls, runs: Iterable[ConvergenceRun]) -> ConvergenceStudy:
        """A study made of ``runs``, which may be in any order."""
        ordered = tuple(sorted(runs, key=lambda run: (run.batch_size, run.created)))
        if not ordered:
            raise ProfileError("The convergence study has no runs. Train with ConvergenceProbe first.")
        try:
            check_same(ordered)
        except ValueError as differ:
            raise ProfileError(f"These runs are not of one convergence study: {differ}") from None
        return cls(runs=ordered)

    @classmethod
    def from_epochs(
        cls,
        epochs: Mapping[int, Sequence[float] | float],
        *,
        metrics: Mapping[int, float] | None = None,
        monitor: str = "val_accuracy",
        mode: Literal["min", "max"] = "max",
        patience: int = 5,
        model: str | None = None,
    ) -> ConvergenceStudy:
        """A study from known results. ``epochs`` maps each batch size to the number of epochs of one or more runs."""
        for name, value in (("epochs", epochs), ("metrics", {} if metrics is None else metrics)):
            if not isinstance(value, Mapping):
                raise ArgumentError(f"{name} must be a mapping from batch sizes to numbers, not {show(value)}.")
        monitor = check_name("monitor", monitor)
        model = maybe(check_name, "model", model)
        rule = StoppingRule(
            monitor=monitor,
            mode=check_choice("mode", mode, ("min", "max")),  # type: ignore[arg-type]
            patience=check_count("patience", patience, least=0),
        )
        now = datetime.now(UTC)
        runs = []
        for key, results in epochs.items():
            batch_size = check_count("a batch size in epochs", key)
            final = metrics.get(key) if metrics else None
            for value in [results] if isinstance(results, str) else list_items(results):
                count = check_number(f"epochs[{batch_size}]", value, above=0, most=MAX_EPOCHS_RUN)
                logged = {} if final is None else {monitor: check_number(f"metrics[{batch_size}]", final)}
                runs.append(
                    ConvergenceRun(
                        created=now,
                        batch_size=batch_size,
                        rule=rule,
                        model=model,
                        epochs_run=count,
                        stabilised_after=count,
                        metrics=logged,
                    )
                )
        return cls.of(runs)

    @classmethod
    def load(cls, *paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> ConvergenceStudy:
        """Read study files and folders and merge their runs into one study.

        Runs that appear in several files count once. Runs with different models or stopping rules raise
        :class:`ProfileError`.
        """
        texts: Counter[str] = Counter()
        for record in find_records(*paths, kind="convergence"):
            texts |= Counter(run.model_dump_json() for run in record.runs)
        return cls.of(ConvergenceRun.model_validate_json(text) for text in texts.elements())

    @property
    def rule(self) -> StoppingRule:
        """The stopping rule of all runs."""
        return self.runs[0].rule

    @property
    def monitor(self) -> str:
        """Name of the monitored metric."""
        return self.rule.monitor

    def require(self, metric: float | Mapping[str, float]) -> ConvergenceStudy:
        """A copy of the study for rankings that exclude batch sizes whose final metric does not reach ``metric``.

        A number is the value that the monitored metric must reach; a mapping has a value for each metric by name. For
        metrics where smaller is better, it is an upper bound.

        >>> study = ConvergenceStudy.from_epochs({256: 14, 1024: 22}, metrics={256: 0.97, 1024: 0.95})
        >>> study.require(0.96).required
        {'val_accuracy': 0.96}
        """
        values = dict(metric) if isinstance(metric, Mapping) else {self.monitor: metric}
        study = self.model_copy()
        study._required = {name: check_number(f"required {name}", value) for name, value in values.items()}
        for name in values:
            self.metric(1, name)  # raises if no run has this metric
        return study

    @property
    def required(self) -> dict[str, float]:
        """Values that the final metrics must reach in a ranking, by name; empty without :meth:`require`."""
        return dict(self._required)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The measured batch sizes, in ascending order."""
        return tuple(sorted(self._epochs()))

    def epochs(self, batch_size: int, *, confidence: float = 0.9) -> EpochsEstimate:
        """Estimated number of epochs to convergence at ``batch_size``; can be unpacked as ``value, low, high``.

        For a measured batch size, it is the mean of its runs. For other batch sizes, it is interpolated, or
        extrapolated with a finding.
        """
        batch_size = check_count("batch_size", batch_size)
        measured = self._epochs()
        if not measured:
            raise ProfileError("No run has ended or converged yet. Let a run finish, or use ConvergenceRun.forecast().")
        estimate = predict_epochs(measured, batch_size, confidence=confidence)
        runs = self.runs_at(batch_size)
        early = sum(run.stabilised_after is None for run in runs)
        if not early:
            return estimate
        finding = Finding(
            "not-stabilised",
            f"{early} of {len(runs)} runs at batch size {batch_size} ended before {self.monitor} converged, so the "
            "number of epochs is underestimated.",
            "Train for more epochs, or use ConvergenceRun.forecast().",
        )
        return replace(estimate, findings=(*estimate.findings, finding))

    def metric(self, batch_size: int, name: str | None = None) -> float | None:
        """Mean final value of the metric ``name`` (default: the monitored metric) at ``batch_size``.

        The value is interpolated between measured batch sizes and None outside them. Unfinished runs are ignored.
        """
        name = maybe(check_name, "name", name) or self.monitor
        batch_size = check_count("batch_size", batch_size)
        logged = sorted({key for run in self.runs for key in run.metrics})
        if name not in logged:
            raise ArgumentError(
                f"No run of this study logged a metric {name!r}. Choose one of: {', '.join(logged) or 'none'}."
            )
        sizes = {run.batch_size for run in self.runs if name in run.metrics and _is_finished(run)}
        logs = {size: [run.metrics for run in self.runs_at(size)] for size in sizes}
        means = {size: statistics.fmean(float(log[name]) for log in logs[size] if name in log) for size in sizes}
        if batch_size in means:
            return means[batch_size]
        # Beyond the measured sizes, accuracy may fall at any rate, so no value is better than a wrong one.
        if not means or not min(means) < batch_size < max(means):
            return None
        below, above = _neighbors(means, batch_size)
        weight = (batch_size - below) / (above - below)
        return (1 - weight) * means[below] + weight * means[above]

    def runs_at(self, batch_size: int) -> tuple[ConvergenceRun, ...]:
        """The finished runs at ``batch_size``."""
        batch_size = check_count("batch_size", batch_size)
        return tuple(run for run in self.runs if run.batch_size == batch_size and _is_finished(run))

    def rows(self, *, confidence: float = 0.9) -> list[dict[str, Any]]:
        """One row per batch size: number of runs, epochs with interval and deviation, mean final and best metric."""
        table = []
        for size in self.batch_sizes:
            runs, estimate = self.runs_at(size), self.epochs(size, confidence=confidence)
            counts = [run.epochs_to_stabilise for run in runs]
            best = [run.best for run in runs if run.best is not None]
            final = [run.final for run in runs if run.final is not None]
            table.append(
                {
                    "batch_size": size,
                    "repetitions": len(runs),
                    "epochs": estimate.value,
                    "epochs_low": estimate.low,
                    "epochs_high": estimate.high,
                    "epochs_deviation": statistics.stdev(counts) if len(counts) > 1 else None,
                    "metric": statistics.fmean(final) if final else None,
                    "best_metric": statistics.fmean(best) if best else None,
                    "stabilised": sum(run.stabilised_after is not None for run in runs),
                }
            )
        return table

    def to_frame(self) -> pd.DataFrame:
        """:meth:`rows` as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings about this study, each with a remedy."""
        findings = [finding for size in self.batch_sizes for finding in self.epochs(size).findings]
        if unfinished := sum(not _is_finished(run) for run in self.runs):
            message = f"{unfinished} runs ended before {self.monitor} converged and are excluded."
            remedy = "Let the runs finish, or use ConvergenceRun.forecast()."
            findings.append(Finding("unfinished-runs", message, remedy))
        return tuple(findings)

    def __str__(self) -> str:
        name, patience = self.model or "unnamed model", self.rule.patience
        lines = [f"{name}: epochs until {self.monitor} converges (patience {patience})"]
        lines += ["  ".join(f"{key} {value}" for key, value in row.items()) for row in self._printable()]
        return "\n".join(map(printable, lines + [f"! {finding}" for finding in self.findings]))

    def _repr_html_(self) -> str:
        rows = self._printable()
        title = html.escape(f"{self.model or 'unnamed model'}, {self.monitor}")
        table = table_html((row.values() for row in rows), rows[0] if rows else ())
        return f"<p>{title}</p>{table}{findings_html(self.findings)}"

    def _printable(self) -> list[dict[str, str]]:
        return [
            {
                "batch size": str(row["batch_size"]),
                "epochs": f"{row['epochs']:.3g} ({row['epochs_low']:.3g} to {row['epochs_high']:.3g})",
                "repetitions": str(row["repetitions"]),
                self.monitor: "unknown" if row["metric"] is None else f"{row['metric']:.4g}",
            }
            for row in self.rows()
        ]

    def _epochs(self) -> dict[int, list[float]]:
        counts: dict[int, list[float]] = {}
        for run in self.runs:
            if _is_finished(run):
                counts.setdefault(run.batch_size, []).append(run.epochs_to_stabilise)
        return counts


def _is_finished(run: ConvergenceRun) -> bool:
    return run.ended or run.stabilised_after is not None
