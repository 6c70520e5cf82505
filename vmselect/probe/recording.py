"""Writing a record as it comes to be, so that what was measured outlives the process, however that ends."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict

from vmselect._checks import check_count, check_flag, check_seconds, maybe
from vmselect.errors import ProbeError
from vmselect.probe.environment import give_back_initialization, number_fit, take_initialization
from vmselect.probe.exit_hooks import EndWatch, classify
from vmselect.probe.keras_fit import FitFacts, read_fit
from vmselect.probe.monitoring import Observation
from vmselect.probe.options import (
    Factors,
    Metrics,
    Options,
    check_target,
    check_whole,
    choose_path,
    evaluate_metrics,
    read_factors,
)
from vmselect.probe.sampling import Alarm
from vmselect.probe.timer import PauseWatch, StepTimer
from vmselect.records.record import Environment, Placement, Record
from vmselect.records.store import Draft
from vmselect.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vmselect.records.training import Outcome, Profile, Saving, Setup

EVERY_SECONDS = 1.0
SHARE = 0.02
"""No more of the time than this goes into writing: a long record is written less often."""


class WriteAhead:
    """Keeps a draft of the record that ``build`` gives, for ``path``; without a path it does nothing.

    :meth:`note` is to be called between the things that are timed, off the clock.
    """

    def __init__(self, path: Path | None, build: Callable[[], Record], *, identity: str) -> None:
        self._draft = None if path is None else Draft(path, identity=identity)
        self._build = build
        self._next = 0.0

    def note(self) -> None:
        """Something has ended: write what is known now, unless that was done just before."""
        began = time.perf_counter()
        if self._draft is not None and began >= self._next:
            self._draft.write(self._build())
            taken = time.perf_counter() - began
            self._next = began + max(EVERY_SECONDS, taken / SHARE)

    def write(self, record: Record) -> None:
        """Put ``record`` into the draft now."""
        if self._draft is not None:
            self._draft.write(record)

    def finish(self, record: Record) -> Path | None:
        """Give the record its final name."""
        return None if self._draft is None else self._draft.finish(record)

    def discard(self) -> None:
        """There is nothing worth keeping."""
        if self._draft is not None:
            self._draft.discard()


# What probes put into their records beside the times: machine and software, place, factors.


class MachineFacts(TypedDict):
    """The fields of a record that do not depend on what was measured."""

    environment: Environment
    placement: Placement
    factors: Mapping[str, Any]


def read_environment(model: Any = None, backend: str | None = None) -> Environment:
    """The machine and its software, as they are now; ``backend`` where the caller knows what trains."""
    from vmselect.probe.environment import in_notebook, read_framework, read_machine

    return Environment(**read_framework(model, backend), **read_machine(), notebook=in_notebook())


def read_facts(
    *, instance_type: str | None = None, region: str | None = None, model: Any = None, factors: Factors | None = None
) -> MachineFacts:
    """All that can be known of the machine, before anything is timed."""
    from vmselect.probe.environment import locate

    return {
        "environment": read_environment(model),
        "placement": locate(instance_type=instance_type, region=region),
        "factors": read_factors(factors or {}),
    }


# One training being recorded: its stopwatch, and every fact about it that goes into the profile.


Kind = Literal["iteration", "epoch", "loop"]

KILLED = "the process ended without an error message: it was killed, or the machine went down"


class Recording:
    """Starts the clock, then finds out all that can be known before the first step.

    Facts about machine and software are read at the start, off the clock, so that they are at hand however the
    training ends.
    """

    def __init__(
        self,
        kind: Kind,
        *,
        model: Any = None,
        params: Mapping[str, Any] | None = None,
        frame: FrameType | None = None,
        backend: str | None = None,
        options: Options,
    ) -> None:
        target, self._factors = choose_path(options.path), read_factors(options.factors)
        check_target(target, "training")
        self.init = take_initialization()
        self.timer = StepTimer()
        self.timer.start()
        with self.timer.leave_out():
            self.kind = kind
            self.model = model
            self.fit = read_fit(frame) if frame is not None else FitFacts()
            self.options = options
            self._id, self._created, self._number = uuid.uuid4().hex, datetime.now(UTC), number_fit()
            params = params or {}
            self.counted_batch_size: int | None = None
            self.steps: int | None = params.get("steps")
            self.epochs: int | None = params.get("epochs")
            self.initial_epoch: int | None = None
            self.steps_per_execution = max(1, int(getattr(model, "steps_per_execution", 1) or 1))
            self.counted_steps: int | None = None
            self.counted_examples: int | None = None
            self.validation_examples: int | None = None
            self.validations_per_epoch: float | None = None
            self.saving: Saving | None = None
            self.save_freq: int | None = None
            self.redirected: list[str] = []
            """What other callbacks were kept from writing, for people."""
            self._read_facts(backend)
            self._open(target)
            self.observation = Observation(options.sample, options.alarm)

    @property
    def is_chief(self) -> bool:
        """Whether this process may write and print: the first of the workers, or the only one."""
        return self._environment.worker_index == 0

    @property
    def workers(self) -> int:
        """Processes that train together."""
        return self._environment.workers

    @property
    def saw_anything(self) -> bool:
        """Whether any step or epoch has ended."""
        return bool(self.timer.steps or self.timer.epochs_ended)

    def is_late(self, seconds: float | None) -> bool:
        """Whether the training has gone on for longer than ``seconds``, if that is a limit at all."""
        return seconds is not None and self.timer.elapsed_seconds() > seconds

    def is_steady(self, seconds: float | None) -> bool:
        """Whether the steady steps of this epoch have taken as long as is wanted; of several workers none asks that."""
        return seconds is None or self.workers > 1 or self.timer.steady_taken() >= seconds * 1e9

    @property
    def batch_size(self) -> int | None:
        """Examples per step, as given, as the data has it, or as counted."""
        return self.options.batch_size or self.fit.batch_size or self.counted_batch_size

    def count_examples(self, *, steps: int | None) -> int | None:
        """Examples that all workers have seen since the epoch or validation began, ``steps`` ago."""
        from vmselect.probe.environment import count_examples

        counted = count_examples(self.model, steps=steps)
        return None if counted is None else counted * self._counters

    @property
    def steps_per_epoch(self) -> int | None:
        """Steps in a whole epoch, as announced or as counted in one."""
        return self.steps or self.counted_steps

    @property
    def examples(self) -> int | None:
        """Training examples in an epoch, where that can be known."""
        if self.counted_examples is not None:
            return self.counted_examples
        steps, batch_size = self.steps_per_epoch, self.fit.batch_size
        if steps is None or batch_size is None or self.fit.partial_batch is None:
            return None
        return steps * batch_size - (batch_size - self.fit.partial_batch if self.fit.partial_batch else 0)

    @property
    def partial_batch(self) -> int | None:
        """Examples in the smaller last batch; 0 for none, None for unknown."""
        if self.counted_examples is not None and self.batch_size and self.steps_per_epoch:
            missing = self.steps_per_epoch * self.batch_size - self.counted_examples
            if 0 <= missing < self.batch_size:
                return self.batch_size - missing if missing else 0
        return self.fit.partial_batch

    def note(self) -> None:
        """Something that is timed has ended: let what is known outlive this process."""
        with self.timer.leave_out():
            self._ahead.note()

    def snapshot(self, error: BaseException | None = None) -> Profile:
        """The profile so far, of a training that may or may not go on."""
        profile = self.build(*classify(error))
        self._ahead.write(profile)
        return profile

    def keep(self, outcome: Outcome, detail: str | None = None) -> Profile | None:
        """The profile, evaluated, written and announced; None where there is nothing to keep."""
        self.timer.finish()
        self._pauses.stop()
        self.observation.end()
        # Without a single step there is nothing to keep, except that memory ran out.
        if not (self.saw_anything or outcome == "out_of_memory"):
            self._ahead.discard()
            return None
        measured: Mapping[str, float] = {}
        try:
            measured = evaluate_metrics(self.options.metrics)
        finally:  # a faulty metric must not cost the times: they are written, then the fault is shown
            profile = self.build(outcome, detail=detail, metrics=measured)
            written = self._ahead.finish(profile)
            announced = outcome == "stopped" or (outcome == "watched" and self.redirected)
            if self.options.verbose and self.is_chief and announced:
                sys.stdout.write(describe_end(profile, written, self.redirected) + "\n")
                sys.stdout.flush()
        return profile

    def drop(self) -> None:
        """Forget what was seen: it means nothing."""
        give_back_initialization()
        self._pauses.stop()
        self.observation.end()
        self._ahead.discard()

    def build(self, outcome: Outcome, detail: str | None = None, metrics: Mapping[str, float] | None = None) -> Profile:
        """The profile of what was seen until now."""
        from vmselect.probe.environment import read_peak_gpu_memory, read_peak_memory
        from vmselect.probe.timer import build_timeline
        from vmselect.records.training import Fit, Profile

        return Profile(
            id=self._id,
            created=self._created,
            probe=self.kind,
            outcome=outcome,
            detail=detail,
            setup=self._build_setup(),
            timeline=build_timeline(
                self.timer,
                init=self.init,
                partial_batch=self.partial_batch,
                watched=outcome == "watched",
                input_wait=self.observation.input_wait,
            ),
            environment=self._environment.model_copy(
                update={
                    "peak_memory_bytes": read_peak_memory(),
                    "peak_gpu_memory_bytes": read_peak_gpu_memory(self._environment.backend),
                }
            ),
            placement=self._placement,
            fit=Fit(number=self._number[0], process=self._number[1], name=self.options.name),
            factors=self._factors,
            usage=self.observation.usage,
            metrics=dict(metrics or {}),
        )

    def _build_setup(self) -> Setup:
        from vmselect.records.training import Setup

        source: Literal["argument", "data"] | None = "argument" if self.options.batch_size else "data"
        frequency = self.fit.validation_freq
        return Setup(
            model=self.model_name,
            parameters=self.parameters,
            structure=self.structure,
            batch_size=self.batch_size,
            worker_batch_size=self.batch_size // self.workers or None if self.batch_size else None,
            batch_size_source=source if self.batch_size else None,
            steps_per_epoch=self.steps_per_epoch,
            steps_per_execution=self.steps_per_execution,
            epochs=self.epochs,
            initial_epoch=self.initial_epoch or 0,
            examples=self.examples,
            partial_batch=self.partial_batch,
            validation_examples=self.validation_examples,
            validation_steps=self.fit.validation_steps,
            validation_freq=frequency if isinstance(frequency, int) and frequency > 0 else 1,
            validations_per_epoch=self.validations_per_epoch,
            saving=self.saving,
            save_freq=self.save_freq,
            self_tuning_input=self.fit.self_tuning_input,
            continuous_input=self.fit.continuous_input,
        )

    def observe(self, frame: FrameType | None = None, *, alive: Callable[[], bool] | None = None) -> None:
        """Begin to watch machine and input, in the ``fit`` above ``frame``, until the caller ends the observation.

        Without a frame, ``alive()`` is true for as long as the training goes on.
        """
        environment = self._environment
        # Without a batch hook Keras does not wait for a step's end; but on the CPU torch is synchronous.
        synchronous = environment.backend == "torch" and not environment.framework_gpus
        waited_for = self.kind != "epoch" or synchronous
        self.observation.begin(backend=environment.backend, frame=frame, waited_for=waited_for, alive=alive)
        self.timer.enter = self.observation.enter

    def _open(self, target: Path | None) -> None:

        def build() -> Profile:
            plain = {name: value for name, value in self.options.metrics.items() if not callable(value)}
            return self.build("interrupted", detail=KILLED, metrics=plain)

        self._pauses = PauseWatch(self.timer)
        if self.kind == "epoch":  # a pause is a part of the whole epoch: there is no step to take it out of
            self._pauses.stop()
        self._ahead = WriteAhead(target if self.is_chief else None, build, identity=self._id)

    def _read_facts(self, backend: str | None) -> None:
        from vmselect.probe.environment import count_feeders, count_parameters, describe_structure, locate, name_model

        dispatch = None if self.model is None else "threaded" if self.fit.threaded else "direct"
        self._environment = read_environment(self.model, backend).model_copy(update={"dispatch": dispatch})
        self._placement = locate(instance_type=self.options.instance_type, region=self.options.region)
        self.model_name = name_model(self.model)
        self.parameters = count_parameters(self.model)
        self.structure = describe_structure(self.model)
        # Where every worker brings data of its own, a step takes as many batches as there are workers.
        feeders, self._counters = count_feeders(self.workers, self._environment.backend)
        self.fit = self.fit.times(feeders)


def describe_end(profile: Profile, written: Path | None, redirected: Sequence[str] = ()) -> str:
    """The line that a probe prints when it has ended a training, or redirected files of one that ended by itself."""
    timeline = profile.timeline
    steps, epochs, validations = timeline.steps.steps, len(timeline.epochs), len(timeline.validations)
    seen = f"{steps} step{'s' * (steps != 1)}" if steps else f"{epochs} epoch{'s' * (epochs != 1)}"
    if validations:
        seen += f" and {validations} validation{'s' * (validations != 1)}"
    where = f"; profile in {written}" if written is not None else ""
    kept = f"; written to a scratch folder and removed: {', '.join(redirected)}" if redirected else ""
    ended = "ended the training" if profile.outcome == "stopped" else "the training ended by itself"
    return f"vmselect: {ended} after {seen} ({format_seconds(timeline.wall_seconds or 0.0)}){where}{kept}"


# What every probe of trainings does: it holds one recording at a time, and keeps the profile of the last one.


class Probe:
    """However a training is watched, this is how its recording ends."""

    _recording: Recording | None = None
    _watch: EndWatch | None = None
    _profile: Profile | None = None

    def _release(self) -> Recording | None:
        """Let go of the training: nothing of the probe's stays in it."""
        recording, watch = self._recording, self._watch
        self._recording = self._watch = None
        if watch is not None:
            watch.stop()
        return recording

    def _close(self, outcome: Outcome, detail: str | None = None) -> None:
        recording = self._release()
        if recording is not None:
            self._profile = recording.keep(outcome, detail) or self._profile

    def _end_early(self, error: BaseException | None, detail: str | None) -> None:
        self._close(*classify(error, detail))


@dataclass(eq=False, repr=False)
class CallbackProbe(Probe):
    """A probe that is passed to whatever trains: it may be copied, and serve several trainings in turn."""

    _way: ClassVar[str]
    """How to have something measured, in words."""

    path: str | os.PathLike[str] | None = None
    _: KW_ONLY
    stop: bool = True
    batch_size: int | None = None
    instance_type: str | None = None
    region: str | None = None
    metrics: Metrics | None = None
    factors: Factors | None = None
    sample: float | None = 1.0
    alarm: Alarm | None = None
    name: str | None = None
    protect_files: bool = True
    verbose: int = 1

    def __post_init__(self) -> None:
        self.stop = check_flag("stop", self.stop)
        self.protect_files = check_flag("protect_files", self.protect_files)
        self.options = Options.of(**{field.name: getattr(self, field.name) for field in fields(Options)})
        self.path = self.options.path
        self._reset()

    def _reset(self) -> None:
        self._recording = self._watch = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy is a fresh probe with the same settings: a recording belongs to one training in one process.
        return {name: value for name, value in self.__dict__.items() if name[0] != "_" or name == "_profile"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    @property
    def profile(self) -> Profile:
        """The :class:`~vmselect.Profile` of the last training; of one that has not come to its end, what was seen."""
        # No hook reports a failed training. An exception that is being handled is what ended it.
        if self._recording is not None and self._recording.saw_anything:
            return self._recording.snapshot(sys.exc_info()[1])
        if self._profile is None:
            raise ProbeError(f"Nothing has been measured yet. {self._way}")
        return self._profile

    @property
    def measured(self) -> bool:
        """Whether there is a profile."""
        return self._profile is not None or (self._recording is not None and self._recording.saw_anything)


@dataclass(eq=False, repr=False, kw_only=True)
class StepProbe(CallbackProbe):
    """A probe that cuts epochs short after a few steps."""

    steps: int = 20
    validations: int = 2
    seconds: float | None = None
    steady_seconds: float | None = None

    def __post_init__(self) -> None:
        self.steps = check_count("steps", self.steps)
        self.validations = check_count("validations", self.validations, least=0, most=2)
        self.seconds = maybe(check_seconds, "seconds", self.seconds, above=0)
        self.steady_seconds = maybe(check_seconds, "steady_seconds", self.steady_seconds)
        super().__post_init__()
        check_whole(self.stop, seconds=self.seconds, steady_seconds=self.steady_seconds)
