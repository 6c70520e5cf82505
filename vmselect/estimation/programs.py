"""A program with several trainings: each fit by itself, and what they take together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from vmselect._checks import check_count, maybe
from vmselect.errors import ArgumentError, EstimateError
from vmselect.estimation.methods import Profiles, fit_runtime
from vmselect.estimation.runtime import TERMS, RuntimeEstimate
from vmselect.findings import Finding, findings_html
from vmselect.grouping import Identity, distinct, identify, read_records
from vmselect.records import Profile
from vmselect.units import format_seconds, list_all, printable

EXCLUDED_FIT = "fit-excluded"
"""The code of the finding that a sum lacks a fit."""


@dataclass(frozen=True)
class FitEstimate:
    """One training of a program, or ``times`` equal ones in a row, and what they take together.

    ``number`` is the place of the first of them in the order of the program.
    """

    number: int
    times: int
    name: str | None
    model: str | None
    batch_size: int | None
    repetitions: int
    estimate: RuntimeEstimate


@dataclass(frozen=True)
class FitsEstimate:
    """All trainings of a program on one machine: each of ``fits``, and their sum between ``low`` and ``high``.

    ``excluded`` are the numbers of those that could not be estimated, which the sum lacks.

    >>> from vmselect import Profile
    >>> frozen = Profile.from_times(instance_type="a", steps_per_epoch=10, iteration_seconds=[0.1] * 5)
    >>> tuned = Profile.from_times(instance_type="a", steps_per_epoch=10, iteration_seconds=[0.3] * 5)
    >>> both = estimate_fits([frozen, tuned], epochs=10)
    >>> round(both.seconds, 6), [round(fit.estimate.seconds, 6) for fit in both.fits]
    (40.0, [10.0, 30.0])
    """

    title: str
    fits: tuple[FitEstimate, ...]
    seconds: float
    low: float
    high: float
    confidence: float
    findings: tuple[Finding, ...] = ()
    excluded: tuple[int, ...] = ()

    def __str__(self) -> str:
        count = sum(fit.times for fit in self.fits)
        times = f"{format_seconds(self.seconds)} ({format_seconds(self.low)} to {format_seconds(self.high)})"
        lacking = f", without fit {list_all(self.excluded)}" if self.excluded else ""
        return printable(f"{self.title}: {count} fit{'s' * (count != 1)} in {times}{lacking}")

    def _repr_html_(self) -> str:
        rows = ""
        for fit in self.fits:
            one, name = fit.estimate, escape(fit.name or fit.model or "")
            rows += f"<tr><td>{fit.number}</td><td><bdi>{name}</bdi></td><td>{fit.times}</td><td>{one.epochs}</td>"
            rows += "".join(f"<td>{format_seconds(seconds)}</td>" for seconds in (one.seconds, one.low, one.high))
            rows += "</tr>"
        head = "".join(f"<th>{name}</th>" for name in ("", "fit", "times", "epochs", "time", "low", "high"))
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        return f"<p><bdi>{escape(str(self))}</bdi></p>{table}{findings_html(self.findings)}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain = {name: getattr(self, name) for name in ("title", "seconds", "low", "high", "confidence")}
        parts = [{**vars(fit), "estimate": fit.estimate.to_dict()} for fit in self.fits]
        findings = [vars(finding) for finding in self.findings]
        return plain | {"fits": parts, "findings": findings, "excluded": list(self.excluded)}


def estimate_fits(profiles: Profiles, *, epochs: int | None = None, **options: Any) -> FitsEstimate:
    """What the trainings of one program take, in its order, on the one machine where it was probed.

    Without ``epochs`` every fit has the epochs that its program gave it. Several runs of the program are repetitions:
    its second fit is compared with the second fit of the others. Equal fits in a row, a loop, are shown as one
    training. Errors of fits on one machine go together, so their half-widths add up in full. A fit that cannot be
    estimated is left out of the sum, and a finding says so. ``options`` are those of :func:`~vmselect.estimate`.
    """
    maybe(check_count, "epochs", epochs)
    measured = read_records(profiles, Profile)
    machines = {machine_of(one) for one in measured}
    if len(machines) > 1:
        raise EstimateError(
            f"The fits come from {len(machines)} different machines or setups, so they are no single program. "
            "Estimate each machine by itself."
        )
    said = options.get("batch_size") or getattr(options.get("workload"), "batch_size", None)
    fits: list[FitEstimate] = []
    excluded: dict[int, EstimateError] = {}
    before: object = None
    for position, same in enumerate(order_fits(measured), 1):
        number = same[0].fit.number if same[0].fit else position
        count = epochs or epochs_of(same[0])
        try:
            predicted = fit_runtime(same, **options).at(count)
        except EstimateError as wrong:  # the others can be told all the same
            excluded[number] = wrong
            continue
        one = FitEstimate(
            number=number,
            times=1,
            name=same[0].fit.name if same[0].fit else None,
            model=same[0].model,
            batch_size=said or same[0].batch_size,
            repetitions=len(same),
            estimate=predicted,
        )
        kind = _kind(same[0], count)
        if fits and kind is not None and kind == before:
            fits[-1] = _join(fits[-1], one)
        else:
            fits.append(one)
        before = kind
    if not fits:
        raise next(iter(excluded.values()))
    parts = [fit.estimate for fit in fits]
    lacking = (
        Finding(
            EXCLUDED_FIT, f"The sum lacks fit {number}. {wrong}", "Measure that fit again, or add its time by hand."
        )
        for number, wrong in excluded.items()
    )
    return FitsEstimate(
        title=measured[0].instance_type or "unknown machine",
        fits=tuple(fits),
        seconds=math.fsum(part.seconds for part in parts),
        low=math.fsum(part.low for part in parts),
        high=math.fsum(part.high for part in parts),
        confidence=parts[0].confidence,
        findings=(*dict.fromkeys(finding for part in parts for finding in part.findings), *lacking),
        excluded=tuple(excluded),
    )


def order_fits(profiles: Iterable[Profile]) -> list[list[Profile]]:
    """The fits of a program in its order, each with its repetitions in other runs of the program."""
    numbered: dict[object, list[Profile]] = {}
    for position, profile in enumerate(sorted(profiles, key=_place)):
        numbered.setdefault(profile.fit.number if profile.fit else ("given", position), []).append(profile)
    return list(numbered.values())


def split_programs(
    profiles: Iterable[Profile], *, across_sizes: bool = False
) -> tuple[list[list[Profile]], list[Profile]]:
    """The programs with several fits, each with all its runs, oldest first; and the profiles that are of none.

    Two runs on a machine are of one program where the fits that both have agree in batch size and structure. With
    ``across_sizes`` they need not agree in size, and a run over several sizes is no program, but measures one training
    at each of them. In a notebook cells are run again and again, so what they leave is no program either.
    """
    every = sorted(distinct(profiles), key=lambda one: one.created)
    runs: dict[object, list[Profile]] = {}
    for one in every:
        if one.fit is not None and not one.environment.notebook:
            runs.setdefault((machine_of(one), one.fit.process), []).append(one)
    programs: list[list[Profile]] = []
    for run in sorted(runs.values(), key=len, reverse=True):  # one that ended early joins one that went on
        same = [program for program in programs if _agree(program, run, across_sizes=across_sizes)]
        sizes = {one.batch_size for one in run} - {None}
        if same:
            same[0].extend(run)
        elif len(_by_number(run)) > 1 and not (across_sizes and len(sizes) > 1):
            programs.append(run)
    taken = {one.id for program in programs for one in program}
    return programs, [one for one in every if one.id not in taken]


def machine_of(profile: Profile) -> Identity:
    """Where a profile was measured: the identity of its machine estimate without the batch size."""
    return identify(profile)._replace(batch_size=None)


def _agree(program: Sequence[Profile], run: Sequence[Profile], *, across_sizes: bool) -> bool:
    """Whether a run may be one of this program; what is not known agrees with everything."""
    known, new = _by_number(program), _by_number(run)
    pairs = [(known[number], new[number]) for number in known.keys() & new.keys()]

    def differ(read: Callable[[Profile], object]) -> bool:
        return any(len({read(one), read(other)} - {None}) > 1 for one, other in pairs)

    return (
        bool(pairs)
        and machine_of(program[0]) == machine_of(run[0])
        and not differ(lambda one: one.model)
        and not differ(lambda one: one.setup.structure)
        and (across_sizes or not differ(lambda one: one.batch_size))
    )


def _by_number(run: Sequence[Profile]) -> dict[int, Profile]:
    """The fits of a run by their number, of several runs those of the first."""
    return {one.fit.number: one for one in reversed(run) if one.fit is not None}


def _place(profile: Profile) -> tuple[int, Any]:
    # Those of one moment stay in the order in which they were given.
    return (profile.fit.number if profile.fit else 0), profile.created


def epochs_of(profile: Profile) -> int:
    """The epochs that the program gave this training."""
    setup = profile.setup
    if setup.epochs is None:
        raise ArgumentError(
            f"{profile.title}: the program does not say how many epochs it trains. Pass epochs= (on the command line "
            "--epochs)."
        )
    return max(1, setup.epochs - setup.initial_epoch)


def _kind(profile: Profile, epochs: int) -> object:
    """What two fits of a program have in common where one is the other over again."""
    setup = profile.setup
    name = profile.fit.name if profile.fit else None
    if profile.fit is None or setup.structure is None:
        return None
    return setup.model, setup.structure, setup.batch_size, setup.steps_per_epoch, epochs, name


def _join(fit: FitEstimate, other: FitEstimate) -> FitEstimate:
    one, two = fit.estimate, other.estimate
    terms = {name: one.terms.get(name, 0.0) + two.terms.get(name, 0.0) for name in TERMS}
    together = replace(
        one,
        seconds=one.seconds + two.seconds,
        low=one.low + two.low,
        high=one.high + two.high,
        terms={name: seconds for name, seconds in terms.items() if seconds},
        # Equal fits have the same findings, with slightly different numbers.
        findings=tuple({finding.code: finding for finding in (*two.findings, *one.findings)}.values()),
    )
    return replace(fit, times=fit.times + 1, repetitions=min(fit.repetitions, other.repetitions), estimate=together)
