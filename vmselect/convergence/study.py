"""The convergence study: runs at several batch sizes, merged; what it knows travels beside the profiles."""

from __future__ import annotations

import html
import os
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from vmselect._checks import check_choice, check_count, check_name, check_number, list_items, maybe, show
from vmselect.convergence.epochs import EpochsEstimate, predict_epochs
from vmselect.errors import ArgumentError, ProfileError
from vmselect.findings import Finding, findings_html
from vmselect.records.convergence import MOST_EPOCHS, ConvergenceRecord, ConvergenceRun, check_same
from vmselect.records.folder import find_records
from vmselect.records.rule import StoppingRule
from vmselect.units import printable

if TYPE_CHECKING:
    import pandas as pd


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
