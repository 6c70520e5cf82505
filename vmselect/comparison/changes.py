"""Changes of time and cost between two sets of profiles of the same trainings, such as before and after a commit.

The models of the JSON (:class:`ChangesOutput`) are at the end of this module.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vmselect._checks import check_number, maybe
from vmselect._models import FindingOutput, Output
from vmselect.catalog import Catalog
from vmselect.comparison.runs import Terms
from vmselect.diagnosis.checks import REMEDY
from vmselect.errors import ArgumentError, ComparisonError
from vmselect.estimation import RuntimeModel, fit_runtime
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.records import Profile
from vmselect.records.identity import CONDITIONS, read_records, training_key
from vmselect.records.step_times import typical_step_seconds
from vmselect.units import cost_usd, format_usd, list_some, printable

LARGEST_FACTOR = 1000.0
"""Largest distance of a bound from its ratio, as a factor, so that a bound is finite if a time may be almost zero."""


@dataclass(frozen=True)
class Change:
    """The change of one training on one machine type.

    ``step_ratio`` and ``time_ratio`` are new divided by old, with their intervals. ``usd`` is the difference of the
    costs in USD, None if the catalog has no price. ``exceeds`` contains the limits that the change exceeds.
    """

    title: str
    model: str | None
    instance_type: str | None
    batch_size: int | None
    epochs: tuple[int, int]
    seconds: tuple[Interval[float], Interval[float]]
    time_ratio: Interval[float]
    step_seconds: tuple[float, float] | None
    step_ratio: Interval[float] | None
    usd_per_hour: float | None
    usd: Interval[float] | None
    exceeds: tuple[str, ...] = ()

    def __str__(self) -> str:
        noun, ratio = ("step time", self.step_ratio) if self.step_ratio is not None else ("time", self.time_ratio)
        text = f"{self.title}: {noun} {format_change(ratio)}"
        if self.usd is not None:
            text += f", {_format_money(self.usd)}"
        return printable(text)

    def to_output(self) -> ChangeOutput:
        """The change as the model that is printed as JSON, with the intervals of ratios in percent."""
        step_old, step_new = self.step_seconds or (None, None)
        step, step_low, step_high = ratio_percents(self.step_ratio) if self.step_ratio else (None, None, None)
        time, time_low, time_high = ratio_percents(self.time_ratio)
        usd, usd_low, usd_high = self.usd or (None, None, None)
        return ChangeOutput.of(
            self,
            epochs_old=self.epochs[0],
            epochs_new=self.epochs[1],
            step_seconds_old=step_old,
            step_seconds_new=step_new,
            step_percent=step,
            step_percent_low=step_low,
            step_percent_high=step_high,
            seconds_old=self.seconds[0].value,
            seconds_new=self.seconds[1].value,
            time_percent=time,
            time_percent_low=time_low,
            time_percent_high=time_high,
            usd_change=usd,
            usd_change_low=usd_low,
            usd_change_high=usd_high,
            exceeds=", ".join(self.exceeds),
        )


@dataclass(frozen=True)
class Changes:
    """The changes of all trainings that both sets of profiles contain. ``findings`` lists what could not be compared.

    >>> import vmselect as vs
    >>> def probe(step):
    ...     return vs.Profile.from_times(instance_type="g5.xlarge", batch_size=64, steps_per_epoch=1000,
    ...                                  first_iteration_seconds=2, iteration_seconds=[step] * 20)
    >>> changes = find_changes(probe(0.10), probe(0.12), epochs=50, limit_percent=10)
    >>> round(changes[0].time_ratio.value, 2), changes[0].exceeds
    (1.2, ('time',))
    """

    changes: tuple[Change, ...]
    findings: tuple[Finding, ...] = ()
    too_uncertain: bool = False
    """Whether a training has no change because its records are too disturbed. Its limits cannot be checked."""

    def __len__(self) -> int:
        return len(self.changes)

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __getitem__(self, index: int) -> Change:
        return self.changes[index]

    @property
    def exceeds(self) -> bool:
        """Whether any change exceeds a limit."""
        return any(change.exceeds for change in self.changes)

    def to_output(self) -> ChangesOutput:
        """The changes as the model that is printed as JSON."""
        return ChangesOutput.of(self, changes=[change.to_output() for change in self])

    def to_json(self, *, indent: int | None = None) -> str:
        """All changes and findings as JSON."""
        return self.to_output().to_json(indent=indent)

    def to_markdown(self) -> str:
        """The changes as a Markdown table, such as for a comment on a pull request. Names are escaped."""
        lines = ["| training | step time | total time | cost | limit |", "|---|---|---|---|---|"]
        for change in self.changes:
            cells = (
                escape_markdown(change.title),
                format_change(change.step_ratio) if change.step_ratio is not None else "unknown",
                format_change(change.time_ratio),
                escape_markdown(_format_money(change.usd)) if change.usd is not None else "no price",
                "exceeded" if change.exceeds else "",
            )
            lines.append(f"| {' | '.join(cells)} |")
        notes = [f"- {escape_markdown(str(finding))}" for finding in self.findings]
        return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def find_changes(
    old: Profile | Iterable[Profile],
    new: Profile | Iterable[Profile],
    *,
    epochs: int | None = None,
    limit_percent: float | None = None,
    limit_usd: float | None = None,
    catalog: Catalog | None = None,
    region: str | None = None,
    market: str = "on_demand",
) -> Changes:
    """The changes of time and cost from the profiles ``old`` to the profiles ``new`` of the same trainings.

    Trainings are matched by model, fit, machine type, batch size and factors. ``epochs`` defaults to the number that
    each training was given. A change exceeds ``limit_percent`` (of the total time) or ``limit_usd`` (of the cost) if
    the estimate is above the limit and the whole interval is above zero, so that noise alone does not exceed a limit.
    A training whose records are too disturbed to rank it has the finding ``too-disturbed`` instead of a change.
    """
    terms = Terms(epochs=epochs, catalog=catalog or Catalog.default(), market=market, region=region)
    limits = {
        "time": maybe(check_number, "limit_percent", limit_percent),
        "cost": maybe(check_number, "limit_usd", limit_usd),
    }
    before, after = _group(read_records(old, Profile)), _group(read_records(new, Profile))
    both = [key for key in before if key in after]
    findings = [
        Finding(
            "unmatched-training",
            f"Only the {side} records contain {list_some([records[0].title for records in unmatched], most=3)}.",
            "Probe the same model, machine type and batch size before and after the change.",
        )
        for side, unmatched in (
            ("old", [records for key, records in before.items() if key not in after]),
            ("new", [records for key, records in after.items() if key not in before]),
        )
        if unmatched
    ]
    if not both:
        sides = f"old: {_list_trainings(before)}; new: {_list_trainings(after)}"
        raise ComparisonError(
            f"No training occurs in both sets of records ({sides}). "
            "Probe the same model, machine type and batch size before and after the change."
        )
    # A disturbed training gets no change: its limits can be neither kept nor exceeded.
    changes = []
    too_uncertain = False
    for key in both:
        models = fit_runtime(before[key]), fit_runtime(after[key])
        disturbed = _find_disturbed(models)
        findings += disturbed
        if disturbed:
            too_uncertain = True
        else:
            changes.append(_compare(before[key], after[key], models, terms, limits))
        findings += _find_differences(before[key][0], after[key][0])
    return Changes(tuple(changes), tuple(findings), too_uncertain)


def format_change(ratio: Interval[float]) -> str:
    """A ratio as a percentage with its interval.

    >>> format_change(Interval(1.12, 1.08, 1.16))
    '+12 % (+8 to +16 %)'
    """
    value, low, high = (f"{percent:+.{0 if abs(percent) >= 2 else 1}f}" for percent in ratio_percents(ratio))
    return f"{value} % ({low} to {high} %)"


def escape_markdown(text: str) -> str:
    """``text`` escaped so that it has no meaning in Markdown or HTML and mentions no user."""
    # Titles come from records, and the table is posted as a comment on a pull request.
    return "".join(char if char.isalnum() or char in " ,.;:%$/=" else f"&#{ord(char)};" for char in printable(text))


def _group(profiles: Iterable[Profile]) -> dict[Hashable, list[Profile]]:
    """Repetitions by the training and machine that they measured."""
    groups: dict[Hashable, list[Profile]] = {}
    for profile in profiles:
        groups.setdefault(training_key(profile), []).append(profile)
    return groups


def _list_trainings(groups: Mapping[Hashable, list[Profile]]) -> str:
    """The first trainings of ``groups`` with what they are matched by, for a message of limited length."""
    return list_some([_describe(records[0])[:160] for records in groups.values()], most=2)


def _describe(profile: Profile) -> str:
    """Model, machine type and batch size of a training, and its fit and factors if there are any."""
    parts = [f"model {profile.setup.model or 'unknown'}"[:60], profile.title]
    if profile.fit is not None:
        parts.append(f"fit {profile.fit.name or profile.fit.number}"[:40])
    parts += [f"{name}={value}"[:40] for name, value in profile.factors.items()]
    return f"[{', '.join(parts)}]"


def _find_disturbed(models: tuple[RuntimeModel, RuntimeModel]) -> list[Finding]:
    """A finding for each of the old and the new records that is too disturbed to compare, by the rule of a ranking."""
    return [
        Finding(
            "too-disturbed",
            f"{model.title}: too uncertain to compare because of the {side} records: {model.disturbance}",
            REMEDY,
        )
        for side, model in zip(("old", "new"), models, strict=True)
        if model.disturbance.too_strong
    ]


def _compare(
    old: list[Profile],
    new: list[Profile],
    models: tuple[RuntimeModel, RuntimeModel],
    terms: Terms,
    limits: Mapping[str, float | None],
) -> Change:
    epochs = _read_epochs(old[0], terms), _read_epochs(new[0], terms)
    first, second = (model.at(count).interval for model, count in zip(models, epochs, strict=True))
    time_ratio = _divide(second, first)
    steps = [_step(model, profiles) for model, profiles in zip(models, (old, new), strict=True)]
    both = [step for step in steps if step is not None]
    # The old and the new training are charged at today's price, so that only the code makes a difference.
    price = terms.usd_per_hour(new[0])
    usd = None
    if price is not None:
        costs = [side.map(lambda seconds: cost_usd(seconds, price)) for side in (first, second)]
        usd = costs[1].minus(costs[0])
    # The whole interval must be above zero, so that noise alone does not fail a pull request.
    exceeds = []
    if limits["time"] is not None and time_ratio.low > 1 and ratio_percents(time_ratio)[0] > limits["time"]:
        exceeds.append("time")
    if limits["cost"] is not None and usd is not None and usd.low > 0 and usd.value > limits["cost"]:
        exceeds.append("cost")
    return Change(
        title=new[0].title,
        model=new[0].setup.model,
        instance_type=new[0].instance_type,
        batch_size=new[0].batch_size,
        epochs=epochs,
        seconds=(first, second),
        time_ratio=time_ratio,
        step_seconds=(both[0].value, both[1].value) if len(both) == 2 else None,
        step_ratio=_divide(both[1], both[0]) if len(both) == 2 else None,
        usd_per_hour=price,
        usd=usd,
        exceeds=tuple(exceeds),
    )


def _read_epochs(profile: Profile, terms: Terms) -> int:
    count = terms.epochs or profile.setup.epochs
    if not count:
        raise ArgumentError(f"{profile.title}: the number of epochs is unknown. Pass epochs=.")
    return count


def _step(model: RuntimeModel, profiles: Sequence[Profile]) -> Interval[float] | None:
    """Seconds per step of repetitions; None if unknown.

    The interval is as wide, relative to the value, as that of the time per epoch in a long training.
    """
    seconds = typical_step_seconds(profiles)
    if not seconds or not model.epoch_seconds:
        return None
    low, high = (math.sqrt(max(0.0, side[2])) / model.epoch_seconds for side in (model.low, model.high))
    return Interval(seconds, seconds * max(0.0, 1 - low), seconds * (1 + high))


def _find_differences(old: Profile, new: Profile) -> list[Finding]:
    """A finding that lists the conditions in which the two trainings differ."""
    pairs = [(condition.name, condition.read(old), condition.read(new)) for condition in CONDITIONS]
    changed = [f"{name} ({a} to {b})" for name, a, b in pairs if a is not None and b is not None and a != b]
    if not changed:
        return []
    return [
        Finding(
            "conditions-changed",
            f"{new.title}: other conditions changed, too: {list_some(changed, most=4)}.",
            "Keep these conditions the same if only the code should be compared.",
            severity="info",
        )
    ]


def _divide(new: Interval[float], old: Interval[float]) -> Interval[float]:
    """Ratio of two estimates; a bound differs from the ratio by at most :data:`LARGEST_FACTOR`."""
    if not old.value or not new.value:
        raise ComparisonError("A training of zero seconds has no relative change. Probe more steps.")
    return new.over(old, most=LARGEST_FACTOR)


def ratio_percents(ratio: Interval[float]) -> tuple[float, float, float]:
    """Change in percent of ``ratio`` (new divided by old) and of its bounds."""
    value, low, high = (100 * (part - 1) for part in ratio)
    return value, low, high


def _format_money(usd: Interval[float]) -> str:
    word = "more" if usd.value >= 0 else "less"
    low, high = sorted((usd.low, usd.high)) if usd.value >= 0 else sorted((-usd.low, -usd.high))
    return f"about {format_usd(abs(usd.value))} {word} per run ({format_usd(low)} to {format_usd(high)})"


# -- JSON output -------------------------------------------------------------------------------------------------------


class ChangeOutput(Output):
    """Change of the time and cost of a training on one machine, from the old to the new profiles."""

    title: str
    model: str | None
    instance_type: str | None
    batch_size: int | None
    epochs_old: int
    epochs_new: int
    step_seconds_old: float | None
    step_seconds_new: float | None
    step_percent: float | None
    step_percent_low: float | None
    step_percent_high: float | None
    seconds_old: float
    seconds_new: float
    time_percent: float
    time_percent_low: float
    time_percent_high: float
    usd_per_hour: float | None
    usd_change: float | None
    usd_change_low: float | None
    usd_change_high: float | None
    exceeds: str


class ChangesOutput(Output):
    """The changes of all trainings, and whether one of them exceeds a limit."""

    changes: list[ChangeOutput]
    exceeds: bool
    findings: list[FindingOutput]
