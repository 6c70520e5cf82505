"""Recalibration: scale intervals and correct times by the outcomes of earlier forecasts.

The width of an interval is multiplied by a split-conformal factor: the quantile, at the requested confidence, of the
distances between real times and predictions, in half-widths of the original intervals. There is a factor for each basis
of predictions (measured, interpolated, extrapolated, predicted). The logarithm of the factor of a basis is shrunk
towards the logarithm of a common factor of all bases, with the weight :data:`POOLED_OUTCOMES`. The logarithm of the
common factor is first shrunk towards zero, with the weight :data:`PRIOR_OUTCOMES`. A factor within one standard error
of 1 is set to 1, because the outcomes do not contradict the intervals. With fewer than :data:`ENOUGH_TO_NARROW`
outcomes, an interval is never narrowed.

The bias of a machine family and basis is the median of the logarithms of real time / prediction. It is corrected if
there are at least :data:`ENOUGH_TO_CORRECT` outcomes and it exceeds two standard errors.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from vmselect.errors import EstimateError
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.records import Forecast, Record
from vmselect.scoring.forecast import Case, machine_family, match, read_any
from vmselect.scoring.score import normal_quantile, standardize

if TYPE_CHECKING:
    from vmselect.estimation import RuntimeEstimate, RuntimeModel

PRIOR_OUTCOMES = 1.0
"""Weight of the assumption that the original intervals are right, as a number of outcomes."""
POOLED_OUTCOMES = 3.0
"""Weight of the factor of all bases in the factor of one basis, as a number of outcomes."""
ENOUGH_TO_NARROW = 20
"""Outcomes from which intervals may become narrower: with fewer, a narrow interval may be luck."""
ENOUGH_TO_CORRECT = 10
"""Outcomes of a machine family from which a bias is corrected."""
BIAS_SPREAD = 0.1
"""Prior standard deviation of the log bias of machine families."""
LEAST_NOISE = 0.005
"""Least standard deviation of log ratios, so that a few equal outcomes do not look certain."""
MAX_FACTOR = 20.0
"""Largest factor by which an interval becomes wider or narrower."""
NONE_OF_IT = "Omit recalibrated() (--recalibrate) for the numbers without this correction."


class Bias(NamedTuple):
    """Systematic deviation of real times from predictions for one machine family.

    ``basis`` is the basis of the predictions, such as ``measured``. ``ratio`` is the median of real time / prediction.
    ``shift`` is the logarithm of the factor by which predictions are multiplied; 0 if they are not corrected.
    """

    basis: str
    family: str
    outcomes: int
    ratio: float
    standard_error: float
    shift: float

    @property
    def systematic(self) -> bool:
        """Whether the bias exceeds two standard errors."""
        return self.outcomes > 2 and abs(math.log(self.ratio)) > 2 * self.standard_error


class Scale(NamedTuple):
    """Factor for the width of the intervals of one basis.

    ``outcomes`` is the number of outcomes, and ``inside`` how many real times were inside their original interval.
    """

    factor: float
    outcomes: int
    inside: int


class Adjustment(NamedTuple):
    """Correction of one prediction: ``ratio`` multiplies its time, ``ratio * factor`` the width of its interval."""

    ratio: float = 1.0
    factor: float = 1.0
    applied: tuple[Finding, ...] = ()
    """Findings about the corrections that are applied."""
    seen: tuple[Finding, ...] = ()
    """Findings about deviations that are not corrected yet."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings about the prediction."""
        return (*self.seen, *self.applied)

    def apply(self, interval: Interval[float]) -> Interval[float]:
        """``interval`` with this correction."""
        value, low, high = interval
        scale = self.ratio * self.factor
        center = value * self.ratio
        return Interval(center, max(0.0, center - (value - low) * scale), center + (high - value) * scale)

    def undo(self, interval: Interval[float]) -> Interval[float]:
        """The original interval from which :meth:`apply` made ``interval``."""
        value, low, high = interval
        scale = self.ratio * self.factor
        center = value / self.ratio
        return Interval(center, max(0.0, center - (value - low) / scale), center + (high - value) / scale)

    def apply_to_model(self, model: RuntimeModel) -> RuntimeModel:
        """The runtime model ``model`` with this correction."""
        square = (self.ratio * self.factor) ** 2
        # The distance from the time to its certain part is a bound of the half-width, so it is scaled like one.
        later = model.validation_seconds
        times = (
            model.fixed_seconds + model.first_validation_seconds - later,
            model.epoch_seconds + later / model.validation_freq,
        )
        once, each = (
            self.ratio * (time - self.factor * (time - part)) for time, part in zip(times, model.certain, strict=True)
        )
        low, high = (tuple(part * square for part in side) for side in (model.low, model.high))
        return replace(
            model,
            terms={name: (part[0] * self.ratio, part[1] * self.ratio) for name, part in model.terms.items()},
            first_validation_seconds=model.first_validation_seconds * self.ratio,
            validation_seconds=model.validation_seconds * self.ratio,
            waits=model.waits.scaled(self.ratio),
            low=low,  # type: ignore[arg-type]
            high=high,  # type: ignore[arg-type]
            certain=(once, each),
        )


@dataclass(frozen=True)
class Recalibration:
    """Corrections learned from ``cases`` (forecasts by one method with their outcomes), for a ``confidence`` level."""

    cases: tuple[Case, ...]
    confidence: float

    @classmethod
    def of(cls, history: Record | Iterable[Record], *, method: str, confidence: float) -> Recalibration:
        """Learn corrections from the forecasts and outcomes in ``history``. Other records are ignored."""
        records = read_any(history)
        cases = match(records).cases if any(isinstance(record, Forecast) for record in records) else ()
        usable = (
            case
            for case in cases
            if case.forecast.method == method and min(case.forecast.own.value, case.real_seconds) > 0
        )
        return cls(tuple(usable), confidence)

    @cached_property
    def biases(self) -> Mapping[tuple[str, str], Bias]:
        """Bias of each basis and machine family."""
        groups: dict[tuple[str, str], list[float]] = {}
        for case in self.cases:
            groups.setdefault(_key(case), []).append(_log_ratio(case))
        return {key: _find_bias(key, logs) for key, logs in groups.items()}

    @cached_property
    def _deviations(self) -> Mapping[str, list[float]]:
        """Absolute deviations of real times from predictions in standard deviations, by basis.

        The bias that is subtracted from a case is computed from the other cases.
        """
        logs: dict[tuple[str, str], list[float]] = {}
        for case in self.cases:
            logs.setdefault(_key(case), []).append(_log_ratio(case))
        ordered = {key: sorted(values) for key, values in logs.items()}
        deviations: dict[str, list[float]] = {}
        for case in self.cases:
            shift, key = 0.0, _key(case)
            if self.biases[key].shift:
                bias = self.biases[key]
                others = _median_without(ordered[key], _log_ratio(case))
                shift = others * bias.shift / math.log(bias.ratio)
            deviation = standardize(case, own=True, shift=shift)
            if deviation is not None:
                deviations.setdefault(case.forecast.basis, []).append(abs(deviation))
        return deviations

    @cached_property
    def scales(self) -> Mapping[str, Scale]:
        """Maps a basis (measured, interpolated, extrapolated, predicted) to the factor for its intervals."""
        every = [deviation for group in self._deviations.values() for deviation in group]
        if not every:
            return {}
        overall = len(every) / (len(every) + PRIOR_OUTCOMES) * self._log_factor(every)
        scales = {}
        for basis, group in self._deviations.items():
            weight = len(group) / (len(group) + POOLED_OUTCOMES)
            factor = self._settle(weight * self._log_factor(group) + (1 - weight) * overall, len(group))
            cases = [case for case in self.cases if case.forecast.basis == basis]
            inside = sum(bool(case.forecast.own.contains(case.real_seconds)) for case in cases)
            scales[basis] = Scale(factor, len(group), inside)
        return scales

    def _log_factor(self, deviations: Sequence[float]) -> float:
        """Logarithm of the conformal factor: a quantile of ``deviations`` relative to that of a normal distribution."""
        ordered = sorted(deviations)
        place = min((len(ordered) + 1) * self.confidence, float(len(ordered))) - 1
        below = max(0, math.floor(place))
        above = min(below + 1, len(ordered) - 1)
        part = max(0.0, place - below)
        # Without this case, an infinite deviation above an exact place would become NaN (0 times infinity).
        exact = above == below or not part
        quantile = ordered[below] if exact else (1 - part) * ordered[below] + part * ordered[above]
        limited = min(MAX_FACTOR, max(1 / MAX_FACTOR, quantile / normal_quantile(self.confidence)))
        return math.log(limited)

    def _settle(self, log_factor: float, outcomes: int) -> float:
        quantile = normal_quantile(self.confidence)
        density = 2 * statistics.NormalDist().pdf(quantile) * quantile
        error = math.sqrt(self.confidence * (1 - self.confidence) / outcomes) / density
        if abs(log_factor) <= error or (log_factor < 0 and outcomes < ENOUGH_TO_NARROW):
            return 1.0
        return math.exp(log_factor)

    def adjust(self, basis: str, instance_type: str | None) -> Adjustment:
        """The correction of a prediction with the given ``basis`` for an instance type."""
        family = machine_family(instance_type) or ""
        bias, scale = self.biases.get((basis, family)), self.scales.get(basis)
        shift, factor = bias.shift if bias else 0.0, scale.factor if scale else 1.0
        about_bias = (_describe_bias(bias),) if bias and bias.systematic else ()
        about_scale = (_describe_scale(scale, basis, self.confidence),) if scale and factor != 1 else ()
        if shift:
            return Adjustment(math.exp(shift), factor, (*about_bias, *about_scale))
        return Adjustment(1.0, factor, about_scale, about_bias)


def recalibrate_estimate(estimate: RuntimeEstimate, records: Record | Iterable[Record]) -> RuntimeEstimate:
    """``estimate`` corrected by the outcomes among ``records``; called by :meth:`RuntimeEstimate.recalibrated`."""
    source = estimate.require_source()
    if source.own is not None:
        raise EstimateError(f"{estimate.title}: the estimate is already recalibrated. Recalibrate the original one.")
    learned = Recalibration.of(records, method=estimate.method, confidence=estimate.confidence)
    adjustment = learned.adjust(source.basis, source.identity.instance_type)
    own = estimate.interval
    seconds, low, high = adjustment.apply(own)
    return replace(
        estimate,
        seconds=seconds,
        low=low,
        high=high,
        terms={name: part * adjustment.ratio for name, part in estimate.terms.items()},
        findings=(*estimate.findings, *adjustment.findings),
        source=replace(source, own=own),
    )


def _key(case: Case) -> tuple[str, str]:
    return case.forecast.basis, case.family or ""


def _log_ratio(case: Case) -> float:
    return math.log(case.real_seconds / case.forecast.own.value)


def _median_without(ordered: Sequence[float], value: float) -> float:
    """The median of the sorted values ``ordered`` without ``value``, one of them."""
    place, count = bisect_left(ordered, value), len(ordered) - 1
    middle = [ordered[index + (index >= place)] for index in {(count - 1) // 2, count // 2}]
    return sum(middle) / len(middle)


def _find_bias(key: tuple[str, str], logs: Sequence[float]) -> Bias:
    middle, count = statistics.median(logs), len(logs)
    # The median and the median absolute deviation resist an outcome of another training. 1.4826 and 1.2533 are the
    # ratios to the standard deviation, and to the standard error of the mean, of a normal distribution.
    noise = max(LEAST_NOISE, 1.4826 * statistics.median(abs(log - middle) for log in logs))
    error = 1.2533 * noise / math.sqrt(count)
    enough = count >= ENOUGH_TO_CORRECT and abs(middle) > 2 * error
    shift = middle * BIAS_SPREAD**2 / (BIAS_SPREAD**2 + error**2) if enough else 0.0
    return Bias(*key, count, math.exp(middle), error, shift)


def _describe_bias(bias: Bias) -> Finding:
    percent = 100 * (bias.ratio - 1)
    seen = f"{bias.outcomes} trainings on {bias.family} took {abs(percent):.0f} % {'longer' if percent > 0 else 'less'}"
    if bias.shift:
        message = f"{seen} than predicted, so {bias.basis} times are multiplied by {math.exp(bias.shift):.3g}."
        return Finding("bias-corrected", message, NONE_OF_IT, "info")
    message = f"{seen} than predicted. Times are corrected after at least {ENOUGH_TO_CORRECT} such trainings."
    return Finding("bias-seen", message, "Record the outcomes of more trainings.", "info")


def _describe_scale(scale: Scale, basis: str, confidence: float) -> Finding:
    message = (
        f"The width of intervals of {basis} times is multiplied by {scale.factor:.3g} at {confidence:.0%} confidence, "
        f"because {scale.inside} of {scale.outcomes} earlier outcomes were inside their interval."
    )
    return Finding("recalibrated", message, NONE_OF_IT, "info")
