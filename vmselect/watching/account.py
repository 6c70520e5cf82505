"""The account of a running training: time and money so far and at the end, and the limits that it has to keep.

An account is updated by the thread that trains, after a step or epoch, and only every few seconds. It never raises.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from vmselect.intervals import Interval
from vmselect.probe.recording import SHARE, warn_of
from vmselect.scoring.parts import Parts, part_seconds
from vmselect.units import cost_usd, format_chance, format_seconds, format_usd, hours
from vmselect.watching.rest import (
    LEAST_WINDOW,
    Rest,
    expect_rest,
    find_change,
    forecast_rest,
    mean_step,
    weigh_epochs,
)

if TYPE_CHECKING:
    from vmselect.convergence import ConvergenceStudy
    from vmselect.probe.recording import Recording
    from vmselect.records import Profile

OnLimit = Literal["warn", "stop"] | Callable[["Status"], object]
LEAST_EPOCHS = 3
"""Number of epochs, with the first, from which on the rest is computed from whole epochs instead of steps."""
MAX_WINDOWS = 30
MAX_EPOCHS = 200
"""Number of the latest epochs from which the rest is computed: earlier ones weigh less than a thousandth of them."""
EPOCH_SECONDS = 0.25
"""Least seconds between two looks at the ends of epochs, which may be shorter than a look takes."""
SENSE_SECONDS, SENSE_SECONDS_IN_BLOCKS = 1.0, 5.0
"""Least seconds between two measurements of the speed. On a device that runs asynchronously, each one waits for it."""
ADVICE_SECONDS = 3600.0
"""Seconds before the first suggestion to move, and between two of them. Computing one takes about a second."""
CLOCK_SECONDS = 1e-6
"""Seconds by which a clock may seem to be early after conversions between nanoseconds and seconds."""
UNLIKELY = 0.5
"""Probability of keeping a limit below which a warning is given."""
RESERVE = 1.5
"""Time that is reserved for the callbacks at the end of an epoch, which may save, relative to the longest so far."""


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """Earlier parts of the same training, which was resumed from a checkpoint."""

    seconds: float = 0.0
    usd: float | None = 0.0
    interruptions: int = 0

    @classmethod
    def of(cls, parts: Iterable[Profile], usd_per_hour: Callable[[Profile], float | None]) -> Earlier:
        """Sum up the recorded ``parts``; those that were killed are interruptions, unlike those ended by an error."""
        whole, usd, unknown = Parts(tuple(parts)), 0.0, False
        for part in whole.profiles:
            price = usd_per_hour(part)
            unknown |= price is None
            usd += cost_usd(part_seconds(part), price or 0.0)
        return cls(seconds=whole.seconds, usd=None if unknown else usd, interruptions=whole.interruptions)


@dataclass(frozen=True, kw_only=True)
class Status:
    """The account at one moment. Times are in seconds; what is unknown is None."""

    epoch: int
    """Number of completed epochs."""
    epochs: int | None
    steps: int
    seconds: float
    """Time so far, with all parts of a training that was resumed."""
    remaining: Interval[float] | None
    usd: float | None
    """Money so far."""
    final_usd: Interval[float] | None
    budget_chance: float | None
    deadline_chance: float | None
    at_most: bool
    """Whether the training may end earlier, because it stops when a metric no longer improves."""
    change: float = 1.0
    """Ratio of the recent step time to the earlier one."""
    interruptions: int = 0
    spot: bool = False

    def __str__(self) -> str:
        return " | ".join(self.describe())

    def describe(self) -> list[str]:
        """What is known, as short texts."""
        done = f"epoch {self.epoch}" + (f" of {self.epochs}" if self.epochs else "") + f", {self.steps:,} steps"
        parts = [done, f"{format_seconds(self.seconds)} so far"]
        if self.remaining is not None:
            most = "at most " if self.at_most else ""
            parts.append(f"{most}{_write(self.remaining, format_seconds)} left")
        if self.usd is not None:
            spot = " (spot)" if self.spot else ""
            parts.append(f"{format_usd(self.usd)} so far{spot}")
        if self.final_usd is not None:
            parts.append(f"{_write(self.final_usd, format_usd)} in all")
        for name, chance in (("budget", self.budget_chance), ("deadline", self.deadline_chance)):
            if chance is not None:
                parts.append(f"{name} kept: {format_chance(chance)}")
        if self.change != 1.0:
            parts.append(f"steps now take {self.change:.2g} times as long")
        return parts

    def fit(self, width: int) -> str:
        """The status in at most ``width`` characters: shorter words, then without intervals or last parts."""
        if len(str(self)) <= width:
            return str(self)
        for text in (_write, _write_range, _write_value):
            parts = [f"epoch {self.epoch}" + (f"/{self.epochs}" if self.epochs else "")]
            if self.remaining is not None:
                parts.append(f"{'at most ' * self.at_most}{text(self.remaining, format_seconds)} left")
            if self.final_usd is not None and self.usd is not None:
                parts.append(f"{format_usd(self.usd)} of {text(self.final_usd, format_usd)}")
            elif self.usd is not None:
                parts.append(format_usd(self.usd))
            for name, chance in (("budget", self.budget_chance), ("deadline", self.deadline_chance)):
                parts += [] if chance is None else [f"{name} {format_chance(chance)}"]
            if len(line := " | ".join(parts)) <= width:
                return line
        while len(parts) > 1 and len(line) > width:
            del parts[-1]
            line = " | ".join(parts)
        return line[: max(0, width)]

    def to_scalars(self) -> dict[str, float]:
        """The numbers of the account by name, for TensorBoard, MLflow and Weights & Biases."""
        values = {
            "hours": hours(self.seconds),
            "remaining_hours": None if self.remaining is None else hours(self.remaining.value),
            "usd": self.usd,
            "final_usd": None if self.final_usd is None else self.final_usd.value,
            "budget_chance": self.budget_chance,
            "deadline_chance": self.deadline_chance,
        }
        return {f"vmselect/{name}": value for name, value in values.items() if value is not None}


def _write(interval: Interval[float], text: Callable[[float], str]) -> str:
    return f"{text(interval.value)} ({text(interval.low)} to {text(interval.high)})"


def _write_range(interval: Interval[float], text: Callable[[float], str]) -> str:
    return f"{text(interval.low)} to {text(interval.high)}"


def _write_value(interval: Interval[float], text: Callable[[float], str]) -> str:
    return text(interval.value)


@dataclass(kw_only=True)
class Account:
    """Follows a recording: forecasts its end, shows it, and ends the training before a limit is exceeded.

    ``usd_per_hour`` is the price of all machines of the training together.
    """

    usd_per_hour: float | None = None
    budget_usd: float | None = None
    deadline_hours: float | None = None
    on_limit: OnLimit = "warn"
    chance: float = 0.9
    every_seconds: float = 30.0
    save: Callable[[], object] | None = None
    save_seconds: float | None = None
    show: Callable[[Status, bool], object] = lambda status, final: None
    say: Callable[[str], object] = lambda line: None
    """Prints a message that must not be missed: a warning, or why the training was ended."""
    find_earlier: Callable[[Recording], Earlier] = lambda recording: Earlier()
    """Finds earlier parts of a training that was resumed. Called at the first look, when its first epoch is known."""
    spot: bool = False
    track: Callable[[Mapping[str, float], int], object] | None = None
    """Writes the scalars of a status, with the number of steps, to an experiment tracker."""
    advise: Callable[[], str | None] | None = None
    """Returns a message if it pays to move the training. Called once per :data:`ADVICE_SECONDS`."""
    resume: str = "pass initial_epoch={epoch} to epochs"
    """How a training is resumed, for the message at a limit."""
    study: ConvergenceStudy | None = None
    """Number of epochs after which trainings like this one stop early."""
    epochs: int | None = None
    """Number of epochs of a training that does not state it."""
    phases: Mapping[int, float] = field(default_factory=dict)
    """Relative time of an epoch from each of these epochs on, such as {0: 1, 18: 1.8}; counted from 0."""

    earlier: Earlier | None = None
    status: Status | None = None
    limit: str | None = None
    """Why the training was ended; None if it was not."""
    _epochs_ended: int = 0
    _epoch_marks: deque[float] = field(default_factory=lambda: deque([0.0], maxlen=MAX_EPOCHS + 1))
    """Times of the ends of the latest epochs, after that of the begin of the first of them."""
    _epoch_steps: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=MAX_EPOCHS))
    """Steps of each completed epoch and their seconds, relative to the weight of its phase."""
    _counted: tuple[int, float] = (0, 0.0)
    _windows: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=MAX_WINDOWS))
    _seen: tuple[int, float] = (0, 0.0)
    _next: float = 0.0
    _next_sense: float = 0.0
    _next_epoch: float = 0.0
    _warned: set[str] = field(default_factory=set)
    _failed: set[str] = field(default_factory=set)
    _longest_end: float = 0.0
    _longest_validation: float = 0.0
    _next_advice: float | None = None

    def update(self, recording: Recording, *, final: bool = False) -> float:
        """Look at ``recording`` after a step or epoch. Returns the clock seconds of the next update.

        A problem of the account is reported once and never ends the training.
        """
        now = recording.timer.clock() / 1e9
        try:
            epoch_ended = self._note_epochs(recording)
            # Epochs and validations may follow each other faster than they can be looked at.
            if now + CLOCK_SECONDS < (self._next_epoch if epoch_ended else self._due) and not final:
                return self._due
            if epoch_ended:
                self._next_epoch = now + EPOCH_SECONDS
            self._note_steps(recording)
            before = self.status.change if self.status is not None else 1.0
            due = final or now >= self._next or (epoch_ended and self._has_limits)
            # A change of the speed is shown at once.
            if due or (self._find_change() == 1.0) != (before == 1.0):
                self._look(recording, epoch_ended=epoch_ended, final=final)
                taken = recording.timer.clock() / 1e9 - now
                self._next = now + max(0.0 if self._awaits_forecast else self.every_seconds, taken / SHARE)
        except Exception as problem:  # noqa: BLE001 - the training must go on, whatever fails here
            self._next = now + self.every_seconds
            self._fail("account", problem)
        least = SENSE_SECONDS_IN_BLOCKS if recording.is_asynchronous else SENSE_SECONDS
        step = self._windows[-1][1] / self._windows[-1][0] if self._windows else 0.0
        self._next_sense = now + max(least, LEAST_WINDOW * step)
        return self._due

    @property
    def _due(self) -> float:
        """Clock seconds of the next update."""
        return self._next_sense if self._awaits_forecast else min(self._next, self._next_sense)

    @property
    def _awaits_forecast(self) -> bool:
        """Whether there is no forecast yet: until then, each measurement of the speed may make one possible."""
        return self.status is not None and self.status.remaining is None and self.status.epochs is not None

    @property
    def _has_limits(self) -> bool:
        return self.budget_usd is not None or self.deadline_hours is not None

    def _note_epochs(self, recording: Recording) -> bool:
        """Keep the time of each completed epoch, from end to end. Returns whether one has just ended."""
        ended = recording.timer.epochs_ended
        missed = ended - self._epochs_ended
        if missed <= 0:
            return False
        timer = recording.timer
        weight = self._weight(recording, ended - 1)
        steps, taken = timer.steps - self._counted[0], timer.steps_taken / 1e9 - self._counted[1]
        self._epochs_ended = ended
        self._epoch_marks += [timer.elapsed_seconds()] * missed
        self._epoch_steps += [(steps // missed, taken / weight / missed)] * missed
        self._counted = timer.steps, timer.steps_taken / 1e9
        return True

    def _note_steps(self, recording: Recording) -> None:
        """Keep the time of the latest steps. Windows with few steps are joined."""
        steps, taken = recording.timer.steps, recording.timer.steps_taken / 1e9
        if steps <= self._seen[0]:
            return
        # Relative to the phase, so that a declared phase is no change of the speed.
        window = steps - self._seen[0], (taken - self._seen[1]) / self._weight(recording)
        self._seen = steps, taken
        if self._windows and self._windows[-1][0] < LEAST_WINDOW:
            before = self._windows.pop()
            window = window[0] + before[0], window[1] + before[1]
        self._windows.append(window)

    def _look(self, recording: Recording, *, epoch_ended: bool, final: bool) -> None:
        timer = recording.timer
        if timer.previous is not None and timer.previous.epoch_end:
            self._longest_end = max(self._longest_end, timer.previous.epoch_end / 1e9)
        if timer.previous is not None:
            validations = [validation.taken / 1e9 for validation in timer.previous.validations]
            self._longest_validation = max(self._longest_validation, *validations, 0.0)
        if self.earlier is None:
            self._add_earlier(recording)
        rest = None if final else self._forecast(recording)
        self.status = status = self._sum_up(recording, rest)
        try:
            self.show(status, final)
        except Exception as problem:  # noqa: BLE001 - limits are kept even if nothing can be shown
            self._fail("display", problem)
        self._report(status, recording.timer.clock() / 1e9, final=final)
        if final or not self._has_limits:
            return
        if self._must_stop(recording, status, epoch_ended=epoch_ended):
            self._act(recording, status, epoch_ended=epoch_ended)
        elif self.on_limit == "warn":
            self._warn(status)

    def _add_earlier(self, recording: Recording) -> None:
        self.earlier = Earlier()
        try:
            self.earlier = self.find_earlier(recording)
        except Exception as problem:  # noqa: BLE001 - limits are kept for the present part
            self._fail("earlier part", problem)
        if self.earlier.usd is None and self.budget_usd is not None:
            self.say(
                "the budget cannot be watched, because the price of an earlier part of this training is unknown. Pass "
                "usd_per_hour= to the watch."
            )

    def _report(self, status: Status, now: float, *, final: bool) -> None:
        """Write scalars to a tracker, and a suggestion to move once an hour. A failure is reported once."""
        if self.track is not None:
            try:
                self.track(status.to_scalars(), status.steps)
            except Exception as problem:  # noqa: BLE001 - whatever a tracker raises
                self.track = None
                self.say(f"no more scalars are written to the tracker: {problem}")
        if self.advise is None or final:
            return
        if self._next_advice is None:
            self._next_advice = now + ADVICE_SECONDS
        if now >= self._next_advice:
            self._next_advice = now + ADVICE_SECONDS
            try:
                advice = self.advise()
            except Exception:  # noqa: BLE001 - without a price or enough steps there is nothing to advise
                advice = None
            if advice is not None:
                self.say(advice)

    # -- the rest ----------------------------------------------------------------------------------------------------

    def _forecast(self, recording: Recording) -> Rest | None:
        facts, timer = recording.facts, recording.timer
        first = facts.initial_epoch or 0
        left = self._count_left(recording)
        if left is None:
            return None
        done = timer.epochs_ended + self._share_of_epoch(recording)
        if self._epochs_ended >= LEAST_EPOCHS:
            rest = forecast_rest(self._epoch_seconds(first), self._weigh(first + done, first + done + left))
        else:
            estimated = self._estimate(recording, done + left, left)
            if estimated is None:
                return None
            rest = estimated
        stop = self._find_stop(recording)
        if stop is not None and left:
            rest = rest.stop_early(*expect_rest(stop, first + done, first + done + left), left)
        ratio = self._find_change()
        return rest if ratio == 1.0 else rest.after_change(ratio)

    def _count_left(self, recording: Recording) -> float | None:
        """Number of epochs that remain; None if the length of the training is unknown."""
        facts, timer = recording.facts, recording.timer
        if facts.steps_left is not None and facts.steps_per_epoch:
            return max(0, facts.steps_left - timer.steps) / facts.steps_per_epoch
        epochs = facts.stated_epochs or self.epochs
        if epochs is None:
            return None
        return max(0.0, epochs - (facts.initial_epoch or 0) - timer.epochs_ended - self._share_of_epoch(recording))

    @staticmethod
    def _share_of_epoch(recording: Recording) -> float:
        """Share of the current epoch that is done."""
        timer, steps = recording.timer, recording.facts.steps_per_epoch
        if timer.current is None or not steps:
            return 0.0
        return min(1.0, (timer.steps - timer.current.steps_before) / steps)

    def _find_change(self, *, until: int | None = None) -> float:
        """Ratio of the present speed to that on which the forecast is based; ``until`` leaves out the latest windows.

        Once the rest is computed from whole epochs, these are the basis, and before that all steps.
        """
        windows = list(self._windows)[:until]
        later = [epoch for epoch in list(self._epoch_steps)[1:] if epoch[0] > 0 and epoch[1] > 0]
        reference = None
        if self._epochs_ended >= LEAST_EPOCHS and later:
            reference = mean_step(later, weigh_epochs(len(later)))
        return find_change(windows, reference)

    def _epoch_seconds(self, first: int) -> list[float]:
        """Seconds of the latest epochs, divided by the weights of their phases; ``first`` is the very first epoch."""
        first += self._epochs_ended - (len(self._epoch_marks) - 1)
        return [
            (after - before) / self._weigh(number, number + 1)
            for number, (before, after) in enumerate(pairwise(self._epoch_marks), first)
        ]

    def _weigh(self, begin: float, end: float) -> float:
        """Number of epochs from ``begin`` to ``end``, each weighed by the relative time of its phase."""
        if not self.phases:
            return end - begin
        starts = sorted({0: 1.0, **self.phases}.items())
        ends = [start for start, _ in starts[1:]] + [math.inf]
        return math.fsum(
            weight * max(0.0, min(end, until) - max(begin, start))
            for (start, weight), until in zip(starts, ends, strict=True)
        )

    def _weight(self, recording: Recording, number: int | None = None) -> float:
        """Relative time of the epoch with this ``number`` in this part of the training, by default the current one."""
        number = recording.timer.epochs_ended if number is None else number
        epoch = (recording.facts.initial_epoch or 0) + number
        return self._weigh(epoch, epoch + 1)

    def _find_stop(self, recording: Recording) -> Interval[float] | None:
        """Epoch at which early stopping will end the training, by the study; None if that is not known."""
        size = recording.facts.batch_size
        if self.study is None or recording.facts.early_stopping is None or size is None:
            return None
        epochs = self.study.epochs(size)
        return None if epochs.source == "unknown" else epochs.interval

    def _estimate(self, recording: Recording, epochs: float, left: float) -> Rest | None:
        """The rest by the step times so far, as for a probe: ``left`` of ``epochs``. None if there are too few."""
        from vmselect.errors import VmselectError
        from vmselect.estimation import estimate

        try:
            whole = max(1, math.ceil(epochs))
            profile = recording.build("interrupted")
            started = profile.timeline.model_copy(update={"init_seconds": None, "init_source": None})
            runtime = estimate(profile.model_copy(update={"timeline": started}), epochs=whole)
        except VmselectError:
            return None
        seconds = max(0.0, runtime.seconds - runtime.terms.get("first_iteration", 0.0)) * left / whole
        # The lower side reaches to a machine without other programs, which a probe has to expect, but not a watch.
        relative = (runtime.high - runtime.seconds) / runtime.seconds
        # The half-width of a 90 % interval is 1.86 scales with 8 degrees of freedom.
        return Rest(seconds=seconds, scale=seconds * relative / 1.86, freedom=8.0)

    def _sum_up(self, recording: Recording, rest: Rest | None) -> Status:
        timer, facts, earlier = recording.timer, recording.facts, self.earlier or Earlier()
        own = (recording.init[0] if recording.init else 0.0) + timer.elapsed_seconds()
        seconds = earlier.seconds + own
        price = self.usd_per_hour
        usd = None if price is None or earlier.usd is None else earlier.usd + cost_usd(own, price)
        remaining = rest.interval() if rest else None
        final = None
        if remaining is not None and usd is not None and price is not None:
            final = remaining.map(lambda seconds: usd + cost_usd(seconds, price))
        budget = deadline = None
        if rest is not None and self.budget_usd is not None and usd is not None and price:
            budget = rest.chance_within((self.budget_usd - usd) / price * 3600)
        if rest is not None and self.deadline_hours is not None:
            deadline = rest.chance_within(self.deadline_hours * 3600 - seconds)
        at_most = facts.early_stopping is not None and self._find_stop(recording) is None
        # A limit may have ended the last epoch early.
        begun = self.limit is not None and timer.previous is not None and not timer.previous.complete
        return Status(
            epoch=timer.epochs_ended - begun + (facts.initial_epoch or 0), epochs=facts.stated_epochs or self.epochs,
            steps=timer.steps, seconds=seconds, remaining=remaining, usd=usd, final_usd=final, budget_chance=budget,
            deadline_chance=deadline, at_most=at_most, change=rest.change if rest else 1.0,
            interruptions=earlier.interruptions, spot=self.spot,
        )  # fmt: skip

    # -- limits ------------------------------------------------------------------------------------------------------

    def seconds_left(self, status: Status) -> dict[str, float]:
        """Seconds until each limit is reached, by its name."""
        left = {}
        if self.budget_usd is not None and status.usd is not None and self.usd_per_hour:
            left["budget"] = (self.budget_usd - status.usd) / self.usd_per_hour * 3600
        if self.deadline_hours is not None:
            left["deadline"] = self.deadline_hours * 3600 - status.seconds
        return left

    def _must_stop(self, recording: Recording, status: Status, *, epoch_ended: bool) -> bool:
        if self.on_limit == "warn" or self.limit is not None:
            return False
        left = min(self.seconds_left(status).values(), default=math.inf)
        reserve = RESERVE * self._longest_end if self.save_seconds is None else self.save_seconds
        timer = recording.timer
        if not epoch_ended or not self._epochs_ended:
            # Within an epoch, only if it does not fit, and only when the next look would be too late.
            # Keras validates once more after a training is stopped.
            reserve += self._longest_validation
            steps, taken = self._windows[-1] if self._windows else (1, 0.0)
            taken *= self._weight(recording)
            too_late = left <= self.every_seconds + reserve + RESERVE * taken / steps
            return too_late and self._steps_left(recording) * taken / steps + reserve > left
        if self._count_left(recording) == 0:
            return False
        if timer.previous is not None and not timer.previous.validations:
            reserve += self._longest_validation  # with transformers, it follows the end of the epoch
        following = self._following(recording, status)
        if following.seconds < EPOCH_SECONDS:  # the end of the next epoch may not be looked at
            reserve += EPOCH_SECONDS
        return following.chance_within(left - reserve) < self.chance

    def _following(self, recording: Recording, status: Status) -> Rest:
        """Seconds of the next epoch. A change of the speed counts if it is older than the latest steps: these may
        contain a single disturbance, such as a save."""
        length = min(1.0, self._count_left(recording) or 1.0)
        following = forecast_rest(
            self._epoch_seconds(recording.facts.initial_epoch or 0),
            self._weigh(status.epoch, status.epoch + 1) * length,
        )
        lasting = status.change != 1.0 and self._find_change(until=-1) != 1.0
        return following.after_change(status.change) if lasting else following

    @staticmethod
    def _steps_left(recording: Recording) -> float:
        """Number of steps that remain in the current epoch; infinite if the length of an epoch is unknown."""
        steps, current = recording.facts.steps_per_epoch, recording.timer.current
        if steps is None or current is None:
            return math.inf
        return max(0, steps - (recording.timer.steps - current.steps_before))

    def _act(self, recording: Recording, status: Status, *, epoch_ended: bool) -> None:
        left = self.seconds_left(status)
        limit = min(left, key=lambda name: left[name], default="budget")
        reached = [format_seconds(status.seconds), *([format_usd(status.usd)] if status.usd is not None else [])]
        missing = "" if status.epochs is None else f"; {status.epochs - status.epoch} of {status.epochs} epochs remain"
        when = "the rest of this epoch"
        if epoch_ended:
            when = f"the next epoch (about {format_seconds(self._following(recording, status).seconds)})"
        self.limit = f"{when} would probably exceed the {limit} (so far: {', '.join(reached)}{missing})"
        if callable(self.on_limit):
            self.on_limit(status)
            return
        try:
            if self.save is not None:
                self.save()
        except Exception as problem:  # noqa: BLE001 - whatever a function of the user raises: the limit holds
            self.say(f"save= has failed, so the last checkpoint is an earlier one: {problem}")
        resume = f"To resume, load the last checkpoint and {self.resume.format(epoch=status.epoch)}."
        self.say(f"the training ends here, because {self.limit}. {resume}")
        recording.request_stop()

    def _warn(self, status: Status) -> None:
        chances = {"budget": status.budget_chance, "deadline": status.deadline_chance}
        for name, chance in chances.items():
            if chance is not None and chance < UNLIKELY and name not in self._warned:
                self._warned.add(name)
                self.say(f"the {name} will be kept with a probability of only {format_chance(chance)}: {status}")

    def _fail(self, part: str, problem: Exception) -> None:
        """Report once that a ``part`` of the account has failed."""
        if part not in self._failed:
            self._failed.add(part)
            warn_of(problem, f"its {part} is incomplete")
