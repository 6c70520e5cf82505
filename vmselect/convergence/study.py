"""How many epochs a batch size needs, from those that were tried: value, interval and where it comes from.

Between two sizes that were tried, the *rate* of learning (one over epochs) is interpolated along the logarithm of the
batch size. Beyond them, up to twice the largest or down to half the smallest, nothing is fitted: the epochs of the
nearest size are carried over, and the interval is widened to the bracket "constant epochs .. growing in proportion to
the batch size". Farther out that bracket is too wide to act on, so nothing is said. All were chosen on measurements:
see docs/explanation/when-methodology-1-pays.md.
"""

from __future__ import annotations

import html
import math
import os
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from vmselect._checks import check_choice, check_count, check_name, check_number, list_items, maybe, show
from vmselect.errors import ArgumentError, ProfileError
from vmselect.findings import Finding, findings_html
from vmselect.intervals import Interval
from vmselect.records.convergence import MOST_EPOCHS, ConvergenceRecord, ConvergenceRun, StoppingRule, check_same
from vmselect.records.store import find_records
from vmselect.units import printable

if TYPE_CHECKING:
    import pandas as pd

REACH = 2.0
"""How far beyond the sizes that were tried epochs are still given, as a factor."""

USUAL_SPREAD = 0.2
"""Spread of epochs between repetitions (standard deviation of their logarithm) before any was seen."""

USUAL_SPREAD_WEIGHT = 8
"""How many repetitions beyond the first the usual spread counts for."""

INTERPOLATION_SPREAD = 0.1
"""Additional spread of a batch size that lies between two that were tried."""

Source = Literal["measured", "interpolated", "extrapolated", "unknown"]


@dataclass(frozen=True)
class EpochsEstimate:
    """Epochs that a training at ``batch_size`` takes: ``value``, and the interval in which the next run should fall.

    Unpacks as ``value, low, high``, which are NaN where the ``source`` is "unknown". ``mean_half_width`` is the
    half-width of the mean over many runs, as a share of ``value``. It is smaller than that of the next run and decides
    ties between batch sizes.
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
        """The value with its bounds."""
        return Interval(self.value, self.low, self.high)

    def __iter__(self) -> Iterator[float]:
        return iter(self.interval)


@dataclass(frozen=True)
class Spread:
    """Relative spread of epochs between repetitions, and how well it is known."""

    deviation: float
    degrees: int

    def widths(self, repetitions: int, confidence: float, extra: float = 0.0) -> tuple[float, float]:
        """Half the interval of the next run, and of the mean over many, on the logarithmic scale."""
        from scipy.special import stdtrit

        quantile = float(stdtrit(self.degrees, 0.5 + confidence / 2))
        mean = self.deviation**2 / repetitions + extra**2
        return quantile * math.sqrt(self.deviation**2 + mean), quantile * math.sqrt(mean)


def pool_spread(epochs: Mapping[int, Sequence[float]]) -> Spread:
    """The spread between repetitions, pooled over batch sizes and drawn towards the usual one while runs are few."""
    squares, degrees = USUAL_SPREAD_WEIGHT * USUAL_SPREAD**2, USUAL_SPREAD_WEIGHT
    for values in epochs.values():
        if len(values) > 1:
            logs = [math.log(value) for value in values]
            squares += statistics.variance(logs) * (len(logs) - 1)
            degrees += len(logs) - 1
    return Spread(math.sqrt(squares / degrees), degrees)


def predict_epochs(
    epochs: Mapping[int, Sequence[float]], batch_size: int, *, confidence: float = 0.9
) -> EpochsEstimate:
    """Epochs at ``batch_size`` from the repetitions in ``epochs`` (batch size to epochs of each).

    >>> estimate = predict_epochs({256: [13], 1024: [13]}, 512)
    >>> estimate.source, round(estimate.value, 9)
    ('interpolated', 13.0)
    """
    confidence = check_number("confidence", confidence, above=0, most=0.9999)
    batch_size = check_count("batch_size", batch_size)
    spread = pool_spread(epochs)
    sizes = sorted(epochs)
    if batch_size in epochs:
        values = epochs[batch_size]
        half, mean_half_width = spread.widths(len(values), confidence)
        return _estimate(batch_size, statistics.fmean(values), half, half, "measured", mean_half_width)
    if sizes[0] < batch_size < sizes[-1]:
        return _between(epochs, sizes, batch_size, spread, confidence)
    if not sizes[0] / REACH <= batch_size <= sizes[-1] * REACH:
        finding = Finding(
            "epochs-unknown",
            f"Batch size {batch_size} lies too far from those whose epochs were measured ({sizes[0]} to {sizes[-1]}): "
            "how many it needs is unknown.",
            f"Train once at batch size {batch_size} with ConvergenceProbe.",
        )
        return EpochsEstimate(batch_size, math.nan, math.nan, math.nan, "unknown", math.inf, (finding,))
    return _beyond(epochs, sizes, batch_size, spread, confidence)


def _between(
    epochs: Mapping[int, Sequence[float]], sizes: list[int], batch_size: int, spread: Spread, confidence: float
) -> EpochsEstimate:
    below = max(size for size in sizes if size < batch_size)
    above = min(size for size in sizes if size > batch_size)
    weight = math.log(batch_size / below) / math.log(above / below)
    rate = (1 - weight) / statistics.fmean(epochs[below]) + weight / statistics.fmean(epochs[above])
    repetitions = min(len(epochs[below]), len(epochs[above]))
    half, mean_half_width = spread.widths(repetitions, confidence, INTERPOLATION_SPREAD)
    return _estimate(batch_size, 1 / rate, half, half, "interpolated", mean_half_width)


def _beyond(
    epochs: Mapping[int, Sequence[float]], sizes: list[int], batch_size: int, spread: Spread, confidence: float
) -> EpochsEstimate:
    larger = batch_size > sizes[-1]
    nearest = sizes[-1] if larger else sizes[0]
    ratio = max(batch_size / nearest, nearest / batch_size)
    value = statistics.fmean(epochs[nearest])
    half, mean_half_width = spread.widths(len(epochs[nearest]), confidence)
    if larger:
        bracket = f"{value:.3g} epochs (constant) .. {value * ratio:.3g} (growing in proportion)"
    else:
        bracket = f"{value / ratio:.3g} epochs (shrinking in proportion) .. {value * ratio:.3g} (growing in proportion)"
    finding = Finding(
        "epochs-extrapolated",
        f"Batch size {batch_size} lies beyond those whose epochs were measured ({sizes[0]} to {sizes[-1]}); "
        f"the truth may be anywhere in {bracket}.",
        f"Train once at batch size {batch_size} with ConvergenceProbe.",
    )
    below = half if larger else half + math.log(ratio)
    return _estimate(
        batch_size, value, below, half + math.log(ratio), "extrapolated", mean_half_width + math.log(ratio), (finding,)
    )


def _estimate(
    batch_size: int,
    value: float,
    half_below: float,
    half_above: float,
    source: Source,
    mean_half_width: float,
    findings: tuple[Finding, ...] = (),
) -> EpochsEstimate:
    # No training is shorter than one epoch, unless a run was measured that was.
    low = min(value, max(1.0, value * math.exp(-half_below)))
    return EpochsEstimate(batch_size, value, low, value * math.exp(half_above), source, mean_half_width, findings)


# The convergence study: runs at several batch sizes, merged; what it knows travels beside the profiles.


class ConvergenceStudy(ConvergenceRecord):
    """How many epochs each batch size needs: a property of the training, measured once on any machine.

    >>> study = ConvergenceStudy.from_epochs({256: [13, 15], 1024: [14]}, metrics={256: 0.97, 1024: 0.96})
    >>> study.batch_sizes
    (256, 1024)
    >>> study.epochs(256).value
    14.0
    """

    # -- making ----------------------------------------------------------------------------------------------------

    @classmethod
    def of(cls, runs: Iterable[ConvergenceRun]) -> ConvergenceStudy:
        """The study of ``runs``; their order does not matter."""
        ordered = tuple(sorted(runs, key=lambda run: (run.batch_size, run.created)))
        if not ordered:
            raise ProfileError("A study needs at least one run. Train with ConvergenceProbe first.")
        try:
            check_same(ordered)
        except ValueError as differ:
            raise ProfileError(f"These runs cannot be one study: {differ}") from None
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
        """A study from epoch counts that are known from elsewhere: batch size to epochs, or to those of each run."""
        for what, value in (("epochs", epochs), ("metrics", {} if metrics is None else metrics)):
            if not isinstance(value, Mapping):
                raise ArgumentError(f"{what} must map batch sizes to numbers, not {show(value)}.")
        monitor = check_name("monitor", monitor)
        model = maybe(check_name, "model", model)
        rule = StoppingRule(
            monitor=monitor,
            mode=check_choice("mode", mode, ("min", "max")),  # type: ignore[arg-type]
            patience=check_count("patience", patience, least=0),
        )
        now = datetime.now(UTC)
        runs = []
        for key, given in epochs.items():
            batch_size = check_count("a batch size in epochs", key)
            final = metrics.get(key) if metrics else None
            for value in [given] if isinstance(given, str) else list_items(given):
                count = check_number(f"epochs[{batch_size}]", value, above=0, most=MOST_EPOCHS)
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

    # -- files -----------------------------------------------------------------------------------------------------

    @classmethod
    def load(cls, *paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> ConvergenceStudy:
        """Read study files, and folders of them, and merge their runs into one study.

        Runs that appear in several of the files count once. Runs of different models, or judged by different rules,
        are a :class:`ProfileError`.
        """
        texts: Counter[str] = Counter()
        for record in find_records(*paths, kind="convergence"):
            texts |= Counter(run.model_dump_json() for run in record.runs)
        return cls.of(ConvergenceRun.model_validate_json(text) for text in texts.elements())

    # -- what it knows ---------------------------------------------------------------------------------------------

    @property
    def rule(self) -> StoppingRule:
        """The rule by which all runs were judged."""
        return self.runs[0].rule

    @property
    def monitor(self) -> str:
        """Name of the monitored metric."""
        return self.rule.monitor

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The batch sizes whose epochs are known, ascending."""
        return tuple(sorted(self._epochs()))

    def epochs(self, batch_size: int, *, confidence: float = 0.9) -> EpochsEstimate:
        """Epochs that the next training at ``batch_size`` takes; unpacks as value, low, high.

        Measured sizes give the mean of their repetitions. Sizes between are interpolated. Beyond, the interval is
        the bracket "constant .. growing in proportion", and a finding says so.
        """
        batch_size = check_count("batch_size", batch_size)
        known = self._epochs()
        if not known:
            raise ProfileError(
                "No run of this study has ended or stabilised yet. Let one finish, or see ConvergenceRun.forecast()."
            )
        estimate = predict_epochs(known, batch_size, confidence=confidence)
        unsettled = [run for run in self.runs_at(batch_size) if run.stabilised_after is None]
        if not unsettled:
            return estimate
        finding = Finding(
            "not-stabilised",
            f"{len(unsettled)} of {len(self.runs_at(batch_size))} runs at batch size {batch_size} ended before "
            f"{self.monitor} stabilised, so their epochs are what they were given, not what they need.",
            "Train longer, or see ConvergenceRun.forecast().",
        )
        return replace(estimate, findings=(*estimate.findings, finding))

    def metric(self, batch_size: int, name: str | None = None) -> float | None:
        """Mean final value of a metric at ``batch_size``; interpolated between measured sizes, None beyond them.

        Without ``name`` it is the monitored metric. A name that no run logged is an :class:`ArgumentError`. What an
        unfinished run logged last is no final value.
        """
        name = maybe(check_name, "name", name) or self.monitor
        batch_size = check_count("batch_size", batch_size)
        logged = sorted({key for run in self.runs for key in run.metrics})
        if name not in logged:
            raise ArgumentError(f"No run of this study has a metric {name!r}. It has: {', '.join(logged) or 'none'}.")
        known: dict[int, list[float]] = {}
        for run in self.runs:
            if name in run.metrics and _tells(run):
                known.setdefault(run.batch_size, []).append(float(run.metrics[name]))
        means = {size: statistics.fmean(values) for size, values in known.items()}
        if batch_size in means:
            return means[batch_size]
        below = max((size for size in means if size < batch_size), default=None)
        above = min((size for size in means if size > batch_size), default=None)
        if below is None or above is None:
            return None
        weight = (batch_size - below) / (above - below)
        return (1 - weight) * means[below] + weight * means[above]

    def runs_at(self, batch_size: int) -> tuple[ConvergenceRun, ...]:
        """The repetitions at ``batch_size`` that tell its epochs."""
        batch_size = check_count("batch_size", batch_size)
        return tuple(run for run in self.runs if run.batch_size == batch_size and _tells(run))

    def rows(self, *, confidence: float = 0.9) -> list[dict[str, Any]]:
        """One row per batch size tried: repetitions, epochs with interval and spread, final and best metric."""
        table = []
        for size in self.batch_sizes:
            runs, estimate = self.runs_at(size), self.epochs(size, confidence=confidence)
            counts = [run.epochs_to_stabilise for run in runs]
            best = [run.best for run in runs if run.best is not None]
            final = [run.final for run in runs if run.final is not None]
            row = {
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
            table.append(row)
        return table

    def to_frame(self) -> pd.DataFrame:
        """:meth:`rows` as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Warnings about this study, each with a remedy."""
        found = [finding for size in self.batch_sizes for finding in self.epochs(size).findings]
        partial = [run for run in self.runs if not _tells(run)]
        if partial:
            found.append(
                Finding(
                    "unfinished-runs",
                    f"{len(partial)} runs were still going, or were interrupted, before {self.monitor} stabilised; "
                    "they are left out.",
                    "Let them finish, or see ConvergenceRun.forecast().",
                )
            )
        return tuple(found)

    def __str__(self) -> str:
        name, patience = self.model or "unnamed model", self.rule.patience
        lines = [f"{name}: epochs until {self.monitor} stabilises (patience {patience})"]
        lines += ["  ".join(f"{key} {value}" for key, value in row.items()) for row in self._printable()]
        return "\n".join(map(printable, lines + [f"! {finding}" for finding in self.findings]))

    def _repr_html_(self) -> str:
        rows = self._printable()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0]) if rows else ""
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(value)}</td>" for value in row.values()) + "</tr>" for row in rows
        )
        title = html.escape(f"{self.model or 'unnamed model'}, {self.monitor}")
        table = f"<table><caption>{title}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return table + findings_html(self.findings)

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
        known: dict[int, list[float]] = {}
        for run in self.runs:
            if _tells(run):
                known.setdefault(run.batch_size, []).append(run.epochs_to_stabilise)
        return known


def _tells(run: ConvergenceRun) -> bool:
    return run.ended or run.stabilised_after is not None
