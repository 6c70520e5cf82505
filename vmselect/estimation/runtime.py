"""Runtime models: the estimated time of a training, its terms and its interval as functions of the number of epochs."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from html import escape
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from vmselect._checks import check_count
from vmselect._imports import hook
from vmselect._io import Place
from vmselect.diagnosis.checks import UNDISTURBED, Disturbance
from vmselect.errors import EstimateError
from vmselect.estimation.readings import Level
from vmselect.findings import Finding, findings_html, table_html
from vmselect.intervals import Interval
from vmselect.records import Forecast, Record
from vmselect.records.forecast import Basis, Source, find_gpu, make_forecast, save_forecasts
from vmselect.units import format_epoch_count, format_seconds, format_usd, printable

TERMS = (
    "boot",
    "data_in",
    "initialization",
    "first_iteration",
    "steady_iterations",
    "partial_batch",
    "first_validation",
    "later_validations",
    "epoch_boundaries",
    "model_out",
)
"""Names of all terms of an estimate, in the order in which they are shown."""

LONG_WAIT = 0.05
"""Share of the epoch time above which autotune waits and checkpoints are reported."""

TURN_OFF = (
    "Turn autotuning off in the script (options = tf.data.Options(); options.autotune.enabled = False; "
    "model.fit(data.with_options(options)), where data = tf.data.Dataset.from_tensor_slices((x, y)).batch(size) for "
    "arrays)"
)
FIND_EPOCHS = "Find the number of epochs with a convergence study (ConvergenceProbe), and pass epochs= (--epochs)."

Quadratic = tuple[float, float, float]
"""Coefficients (a, b, c) of a squared half-width: ``a + b n + c n**2`` for ``n`` epochs."""


Number: TypeAlias = float | npt.NDArray[np.floating[Any]]
"""A number, or a column vector with one row per machine."""


def _table(unit: str, *multiplies: str) -> dict[str, Any]:
    """Row of the table of coefficients: the unit, and the counts that the coefficient multiplies."""
    return {"unit": unit, "multiplies": multiplies}


@dataclass(frozen=True)
class ClosedForm:
    """Time of a training in seconds, and its interval, as functions of the number of epochs ``n``.

    This is the only list of the coefficients: :data:`COEFFICIENTS`, the JSON of rankings and the report page derive
    from it. The time is the sum of all coefficients that multiply one count (see :meth:`counts`). ``low`` and ``high``
    are quadratics: squared half-widths below and above the time. The lower bound is never below ``certain``. The first
    validation follows epoch ``validation_from``, and no validation follows an epoch after ``validation_until``.
    ``early_stopping`` contains the smallest number of epochs after which a callback may stop the training, and the
    planned number; infinity if no callback may.

    Fields are numbers, or numpy column vectors with one row per machine (see :meth:`stack`). Methods take the number of
    epochs as a number, as a row of numbers for all machines, or as a matrix with one row per machine.
    """

    fixed_seconds: Number = field(default=0.0, metadata=_table("s", "once"))
    epoch_seconds: Number = field(default=0.0, metadata=_table("s", "epochs"))
    first_validation_seconds: Number = field(default=0.0, metadata=_table("s", "first_validation"))
    validation_seconds: Number = field(default=0.0, metadata=_table("s", "later_validations"))
    validation_freq: Number = field(default=1, metadata=_table("epochs"))
    validation_from: Number = field(default=1, metadata=_table("epochs"))
    validation_until: Number = field(default=math.inf, metadata=_table("epochs"))
    early_stopping: tuple[Number, Number] = field(default=(math.inf, math.inf), metadata=_table("epochs"))
    low: tuple[Number, Number, Number] = field(
        default=(0.0, 0.0, 0.0), metadata=_table("s²", "once", "epochs", "epochs²")
    )
    high: tuple[Number, Number, Number] = field(
        default=(0.0, 0.0, 0.0), metadata=_table("s²", "once", "epochs", "epochs²")
    )
    certain: tuple[Number, Number] = field(default=(0.0, 0.0), metadata=_table("s", "once", "epochs"))

    @classmethod
    def stack(cls, forms: Sequence[ClosedForm]) -> ClosedForm:
        """Combine the closed forms of several machines into one, with one row per machine."""

        def column(values: Iterable[Number]) -> Number:
            return np.array(list(values), dtype=float).reshape(-1, 1)

        columns: dict[str, Any] = {}
        for name, default in ((coefficient.name, coefficient.default) for coefficient in COEFFICIENTS):
            if isinstance(default, tuple):
                columns[name] = tuple(column(getattr(form, name)[i] for form in forms) for i in range(len(default)))
            else:
                columns[name] = column(getattr(form, name) for form in forms)
        return cls(**columns)

    def counts(self, epochs: Number) -> dict[str, Number]:
        """How often the parts of a training of ``epochs`` epochs occur, by the names that coefficients multiply."""
        passes = self.validations(epochs)
        return {
            "once": 1.0,
            "epochs": epochs,
            "first_validation": (passes >= 1) * 1.0,
            "later_validations": (passes > 1) * (passes - 1),
        }

    def validations(self, epochs: Number) -> Number:
        """Number of validations in ``epochs`` epochs."""
        return count_validations(epochs, self.validation_freq, self.validation_from, self.validation_until)

    def seconds(self, epochs: Number) -> Number:
        """Estimated seconds of a training of ``epochs`` epochs."""
        counts = self.counts(epochs)
        parts: Iterable[Number] = (getattr(self, part.name) * counts[part.multiplies[0]] for part in SUMMED)
        return sum(parts, start=0.0)

    def interval(
        self, low_epochs: Number, high_epochs: Number | None = None, *, early_stopping: bool = False
    ) -> tuple[Number, Number]:
        """Lower bound for ``low_epochs`` epochs and upper bound for ``high_epochs`` epochs (default: ``low_epochs``).

        With ``early_stopping``, if a callback may stop the training, the lower bound is for its earliest possible stop.
        """
        high_epochs = low_epochs if high_epochs is None else high_epochs
        low = self._low(low_epochs)
        if early_stopping:
            earlier = self._low(np.minimum(low_epochs, self.early_stopping[0]))
            low = np.where(self.may_stop(low_epochs), np.minimum(low, earlier), low)
        return low, self.seconds(high_epochs) + half_width(self.high, high_epochs)

    def may_stop(self, epochs: Number) -> npt.NDArray[np.bool_] | bool:
        """Whether a callback may stop a training of ``epochs`` epochs before its last epoch.

        If ``epochs`` is less than the script plans, the user is assumed to know how many epochs the training takes.
        """
        earliest, planned = self.early_stopping
        return (epochs > earliest) & (epochs >= planned)

    def _low(self, epochs: Number) -> Number:
        seconds, (once, per_epoch) = self.seconds(epochs), self.certain
        certain = np.minimum(seconds, once + per_epoch * epochs)
        return np.maximum(0.0, np.maximum(certain, seconds - half_width(self.low, epochs)))


class Coefficient(NamedTuple):
    """A coefficient of the time: its name, its unit, and the counts that it multiplies (see :meth:`ClosedForm.counts`).

    A coefficient that multiplies no count says when validations take place, or when a callback may end the training.
    """

    name: str
    unit: str
    multiplies: tuple[str, ...]
    default: Any

    def to_plain(self, value: Any) -> Any:
        """``value`` for JSON, which has no infinity: None where the coefficient does not apply."""
        numbers = list(value) if isinstance(self.default, tuple) else [value]
        if any(math.isinf(number) for number in numbers):
            return None
        return numbers if isinstance(self.default, tuple) else value


COEFFICIENTS = tuple(Coefficient(part.name, **part.metadata, default=part.default) for part in fields(ClosedForm))
"""The coefficients of the time of a training, in the order in which the parts of the time are added."""
SUMMED = tuple(part for part in COEFFICIENTS if len(part.multiplies) == 1)
"""Coefficients whose products with their count are the parts of the time."""


def count_validations(epochs: Number, every: Number, first: Number, last: Number = math.inf) -> Number:
    """Number of validations in ``epochs`` epochs: after epoch ``first`` and each ``every`` epochs, until ``last``."""
    return np.maximum(0.0, (np.minimum(epochs, last) - first) // every + 1)


def half_width(square: tuple[Number, Number, Number], epochs: Number) -> Number:
    """Square root of ``a + b n + c n**2`` for ``n`` epochs; 0 if the sum is negative."""
    a, b, c = square
    return np.sqrt(np.maximum(0.0, a + b * epochs + c * epochs * epochs))


@dataclass(frozen=True)
class RuntimeEstimate:
    """Estimated seconds of a training, with the interval from ``low`` to ``high`` at ``confidence``.

    ``terms`` maps the terms of the estimate to seconds, which add up to ``seconds``.

    >>> import vmselect as vs
    >>> profile = vs.Profile.from_times(instance_type="p3.2xlarge", batch_size=256, steps_per_epoch=159,
    ...     init_seconds=0.2, first_iteration_seconds=3.4, iteration_seconds=[0.13, 0.13],
    ...     validation_seconds=[0.17, 0.02])
    >>> estimate = vs.estimate(profile, epochs=13)
    >>> round(estimate.seconds, 2), round(sum(estimate.terms.values()), 2)
    (272.59, 272.59)
    """

    seconds: float
    low: float
    high: float
    terms: Mapping[str, float]
    method: str
    confidence: float
    epochs: int
    title: str
    findings: tuple[Finding, ...] = ()
    source: Source | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        times = f"{format_seconds(self.seconds)} ({format_seconds(self.low)} to {format_seconds(self.high)})"
        # The time before the first step is often mistaken for a part of the training.
        before = self.terms.get("initialization", 0.0)
        parts = f": {format_seconds(self.seconds - before)} training, {format_seconds(before)} initialization"
        return printable(f"{self.title}: {self.epochs} epochs in {times} by {self.method}{parts if before else ''}")

    def _repr_html_(self) -> str:
        total = self.seconds or 1.0
        rows = ((name.replace("_", " "), format_seconds(s), f"{s / total:.0%}") for name, s in self.terms.items())
        return f"<p><bdi>{escape(str(self))}</bdi></p>{table_html(rows)}{findings_html(self.findings)}"

    @property
    def interval(self) -> Interval[float]:
        """The estimated seconds with their bounds."""
        return Interval(self.seconds, self.low, self.high)

    def to_dict(self) -> dict[str, Any]:
        """The estimate as plain values that can be written as JSON."""
        names = ("title", "method", "epochs", "confidence", "seconds", "low", "high")
        plain: dict[str, Any] = {name: getattr(self, name) for name in names}
        return plain | {"terms": dict(self.terms), "findings": [vars(finding) for finding in self.findings]}

    def forecast(self) -> Forecast:
        """The estimate as a forecast record."""
        source = self.require_source()
        return make_forecast(
            source,
            source.identity,
            self.interval,
            epochs=float(self.epochs),
            method=self.method,
            confidence=self.confidence,
            gpu=find_gpu(source.records),
            region=source.records[0].region,
            findings=self.findings,
        )

    def require_source(self) -> Source:
        """The inputs of the estimate. Raises EstimateError if it was not made by :func:`vmselect.estimate`."""
        if self.source is None:
            raise EstimateError(
                f"{self.title}: the estimate does not contain the profiles it was made from. Make it with "
                "vmselect.estimate."
            )
        return self.source

    def recalibrated(self, records: Record | Iterable[Record]) -> RuntimeEstimate:
        """The estimate corrected by the outcomes of earlier forecasts among ``records``.

        Only forecasts by the same method count. See :mod:`vmselect.scoring.recalibration` for the rules.

        >>> import vmselect as vs
        >>> profile = vs.Profile.from_times(instance_type="a", batch_size=8, first_epoch_seconds=9,
        ...                                 later_epoch_seconds=[9, 9])
        >>> estimate = vs.estimate(profile, epochs=10)
        >>> outcome = (forecast := estimate.forecast()).outcome(seconds=200)
        >>> corrected = estimate.recalibrated([forecast, outcome])
        >>> corrected.high > estimate.high
        True
        """
        corrected: RuntimeEstimate = hook("recalibrate_estimate")(self, records)
        return corrected

    def keep(self, folder: str | os.PathLike[str]) -> list[Place]:
        """Save the estimate as a forecast in ``folder``, to be compared later with the real training.

        >>> import tempfile
        >>> import vmselect as vs
        >>> profile = vs.Profile.from_times(instance_type="g4dn.xlarge", batch_size=64, first_epoch_seconds=20,
        ...                                 later_epoch_seconds=[18, 18])
        >>> folder = tempfile.mkdtemp()
        >>> _ = vs.estimate(profile, epochs=50).keep(folder)
        >>> [record.kind for record in vs.load_records(folder)]
        ['forecast']
        """
        return save_forecasts([self.forecast()], folder)


@dataclass(frozen=True)
class Waits:
    """Autotune waits between epochs: the mean over all epochs and the longest, in seconds.

    ``often`` is the share of epochs that end with a wait, ``epoch_seconds`` the time of an epoch without its wait.
    """

    mean_seconds: float = 0.0
    longest_seconds: float = 0.0
    often: float = 0.0
    epoch_seconds: float = 0.0
    remedy: ClassVar[str] = f"{TURN_OFF} and probe again, or measure the whole training (stop=False, vmselect watch)."

    @property
    def are_long(self) -> bool:
        """Whether waits are long enough to be reported."""
        return self.longest_seconds > LONG_WAIT * self.epoch_seconds

    def scaled(self, ratio: float) -> Waits:
        """The waits of a training that takes ``ratio`` times as long."""
        return Waits(self.mean_seconds * ratio, self.longest_seconds * ratio, self.often, self.epoch_seconds * ratio)

    def describe(self, title: str, epochs: float | None, usd_per_hour: float | None) -> Finding:
        """The finding about the waits of the training ``title``, with their sum over all ``epochs`` and its cost."""
        total = ""
        if epochs is not None:
            seconds = self.mean_seconds * epochs
            paid = "" if usd_per_hour is None else f", which costs {format_usd(seconds / 3600 * usd_per_hour)}"
            total = f" Over {format_epoch_count(epochs)} the waits add up to {format_seconds(seconds)}{paid}."
        share = self.mean_seconds / (self.epoch_seconds + self.mean_seconds)
        return Finding(
            "waits-between-epochs",
            f"{title}: TensorFlow waits up to {format_seconds(self.longest_seconds)} for the tf.data autotuner after "
            f"{self.often:.0%} of the epochs (estimated from the CPU load). The mean is "
            f"{format_seconds(self.mean_seconds)} per epoch, {share:.0%} of the time and cost.{total}",
            self.remedy,
            "warning" if share > LONG_WAIT else "info",
        )


@dataclass(frozen=True)
class RuntimeModel:
    """Time of a training on one machine as a function of the number of epochs ``n >= 1``.

    ``terms`` maps each term to (seconds that occur once, seconds per epoch). Validation is separate, because it occurs
    every ``validation_freq`` epochs, the first time after epoch ``validation_from`` (None: after ``validation_freq``
    epochs), the last time no later than after epoch ``validation_until`` (None: until the end). ``low`` and ``high``
    are coefficients of quadratics in ``n``: the squared distances from the time to the lower and upper bound of its
    interval. ``certain`` contains seconds (once, per epoch) that the training takes in any case, so the lower bound is
    never below them: times that occur once, and all steps at the speed of the fastest measured block of steps.
    ``repetitions`` contains one model per repetition.
    ``early_stopping`` is None, or two numbers of epochs: the smallest after which a callback may stop the training, and
    the planned number. The interval for the planned number then starts at the time of the smallest. ``basis`` states
    whether the time was measured at this batch size. ``disturbance`` states how much the probes were disturbed,
    ``waits`` how long TensorFlow waits between epochs, and ``narrowed_by`` contains what narrows the
    interval, the most effective first.
    """

    title: str
    method: str
    confidence: float
    terms: Mapping[str, tuple[float, float]]
    first_validation_seconds: float = 0.0
    validation_seconds: float = 0.0
    validation_freq: int = 1
    validation_from: int | None = None
    validation_until: int | None = None
    low: Quadratic = (0.0, 0.0, 0.0)
    high: Quadratic = (0.0, 0.0, 0.0)
    certain: tuple[float, float] = (0.0, 0.0)
    findings: tuple[Finding, ...] = ()
    basis: Basis = "measured"
    disturbance: Disturbance = UNDISTURBED
    waits: Waits = Waits()
    narrowed_by: tuple[str, ...] = ()
    repetitions: tuple[RuntimeModel, ...] = field(default=(), repr=False)
    early_stopping: tuple[int, int] | None = None

    @property
    def fixed_seconds(self) -> float:
        """Seconds that occur once per training, without validation."""
        return sum(fixed for fixed, _ in self.terms.values())

    @property
    def epoch_seconds(self) -> float:
        """Seconds of each epoch, without validation."""
        return sum(per_epoch for _, per_epoch in self.terms.values())

    @cached_property
    def form(self) -> ClosedForm:
        """This model as a :class:`ClosedForm`."""
        values = {part.name: getattr(self, part.name) for part in COEFFICIENTS}
        values["validation_from"] = self.validation_from or self.validation_freq
        return ClosedForm(**{name: value for name, value in values.items() if value is not None})

    def seconds(self, epochs: float) -> float:
        """Seconds of a training of ``epochs`` epochs."""
        return float(self.form.seconds(epochs))

    def interval(self, epochs: float) -> tuple[float, float]:
        """Lower and upper bound of the seconds of ``epochs`` epochs, if no callback stops the training earlier."""
        low, high = self.form.interval(epochs)
        return float(low), float(high)

    def validations(self, epochs: float) -> float:
        """Number of validations in a training of ``epochs`` epochs."""
        return float(self.form.validations(epochs))

    def terms_at(self, epochs: float) -> dict[str, float]:
        """Seconds of each term in a training of ``epochs`` epochs (may be fractional); terms of 0 s are omitted."""
        parts = {name: fixed + per_epoch * epochs for name, (fixed, per_epoch) in self.terms.items()}
        # Each count of validations is a term of its own, and has the same name.
        counts = self.form.counts(epochs)
        parts |= {part.multiplies[0]: getattr(self, part.name) * counts[part.multiplies[0]] for part in SUMMED}
        return {name: float(parts[name]) for name in TERMS if parts.get(name)}

    def at(self, epochs: int) -> RuntimeEstimate:
        """The estimate for ``epochs`` epochs."""
        epochs = check_count(f"{self.title}: epochs", epochs)
        parts = self.terms_at(epochs)
        seconds = math.fsum(parts.values())
        low, high = self.interval(epochs)
        findings = self._why_wider(epochs, high - low)
        low, high = map(float, self.form.interval(epochs, early_stopping=True))
        findings += self.find_early_stopping(epochs)
        return RuntimeEstimate(
            seconds=seconds,
            low=min(low, seconds),
            high=max(high, seconds),
            terms=parts,
            method=self.method,
            confidence=self.confidence,
            epochs=epochs,
            title=self.title,
            findings=(*self.findings, *self.find_waits(epochs), *findings),
        )

    def coefficients(self) -> dict[str, Any]:
        """Values of :data:`COEFFICIENTS`, and the terms, as plain numbers for JSON and for the report page."""
        plain = {part.name: part.to_plain(getattr(self.form, part.name)) for part in COEFFICIENTS}
        return plain | {"terms": {name: list(pair) for name, pair in self.terms.items()}}

    def find_waits(self, epochs: float | None = None, usd_per_hour: float | None = None) -> tuple[Finding, ...]:
        """A finding if TensorFlow waits between epochs for long, with time and cost of the waits of ``epochs``."""
        return (self.waits.describe(self.title, epochs, usd_per_hour),) if self.waits.are_long else ()

    def find_early_stopping(self, epochs: float | None = None) -> tuple[Finding, ...]:
        """A finding if a callback may end a training (of ``epochs`` epochs) before its last epoch."""
        if self.early_stopping is None:
            return ()
        if epochs is None:
            message = f"{self.title}: a callback may end the training after {self.early_stopping[0]} epochs or more."
            return (Finding("early-stopping", message, FIND_EPOCHS, "info"),)
        if not self.form.may_stop(epochs):
            return ()
        each = format_seconds(self.epoch_seconds + self.validation_seconds / self.validation_freq)
        return (
            Finding(
                "early-stopping",
                f"{self.title}: a callback may end the training after {self.early_stopping[0]} to {epochs:g} epochs of "
                f"{each} each, so the time of {epochs:g} epochs is an upper bound.",
                FIND_EPOCHS,
            ),
        )

    def _why_wider(self, epochs: int, width: float) -> tuple[Finding, ...]:
        alone = [model.interval(epochs) for model in self.repetitions]
        if not alone or width <= max(high - low for low, high in alone) * (1 + 1e-9):
            return ()
        totals = [model.seconds(epochs) for model in self.repetitions]
        apart = format_seconds(max(totals) - min(totals))
        return (
            Finding(
                "repetitions-disagree",
                f"{self.title}: the estimates of {len(totals)} repetitions differ by {apart}, so the interval is wide.",
                "Check what changed between the repetitions (other programs, another VM of this type), or probe again.",
            ),
        )


class HalfWidths:
    """Sums of squared half-widths below and above the estimate, each ``a + b n + c n**2`` for ``n`` epochs.

    The errors of the parts are independent, so their squared half-widths are added.
    """

    def __init__(self) -> None:
        self.low: Quadratic = (0.0, 0.0, 0.0)
        self.high: Quadratic = (0.0, 0.0, 0.0)

    def add_level(self, level: Level, *, once: float = 0.0, per_epoch: float = 0.0) -> None:
        """Add the half-widths of a duration ``level`` that occurs ``once + per_epoch * n`` times."""
        self.add_sides(level.half_width_below, level.half_width_above, once=once, per_epoch=per_epoch)

    def add_sides(self, low: float, high: float, *, once: float = 0.0, per_epoch: float = 0.0) -> None:
        """Add half-widths ``low`` and ``high`` in seconds of a duration that occurs ``once + per_epoch * n`` times."""
        self.low, self.high = _add(self.low, low, once, per_epoch), _add(self.high, high, once, per_epoch)

    def add_noise(self, width: float, *, per_epoch: float) -> None:
        """Add the random error of ``per_epoch * n`` independent readings, each with half-width ``width``."""
        square = width * width
        self.low, self.high = ((a, b + square * per_epoch, c) for a, b, c in (self.low, self.high))


def _add(side: Quadratic, width: float, once: float, per_epoch: float) -> Quadratic:
    square = width * width
    a, b, c = side
    return a + square * once * once, b + 2 * square * once * per_epoch, c + square * per_epoch * per_epoch
