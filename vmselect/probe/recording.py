"""Records one training, and defines the base classes of the probes that record trainings.

A :class:`Recording` contains the timer and collects all fields of the profile. It writes a draft of the profile while
the training runs, so that the measurements are not lost if the process is killed.
"""

from __future__ import annotations

import hashlib
import math
import re
import sys
import uuid
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime
from numbers import Integral, Real
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypedDict

from vmselect._checks import check_count, check_flag, check_seconds, maybe
from vmselect._io import Place
from vmselect.errors import ProbeError
from vmselect.probe import environment
from vmselect.probe.environment import Callback, CallbackList, Loader, Model, Optimizer, Tensor
from vmselect.probe.exit_hooks import EndWatch, classify
from vmselect.probe.options import (
    Factors,
    Options,
    check_target,
    check_uncut,
    choose_path,
    evaluate_metrics,
    read_factors,
)
from vmselect.probe.sampling import Observation
from vmselect.probe.timer import PauseWatch, StepBlocks, StepTimer, build_timeline
from vmselect.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vmselect.records.base import Environment, Placement
    from vmselect.records.training import EpochLogs, Outcome, Profile, Saving, Setup
    from vmselect.records.usage import Usage

Kind = Literal["iteration", "epoch", "loop"]

EVERY_SECONDS = 1.0
"""Least seconds between two writes of the draft."""
STEPS_SECONDS = 30.0
"""Seconds after which a draft is written within an epoch, which may take hours."""
LEAST_STEPS = 4
"""Least number of steps in a profile of a program that ends at a save: the first step, which is slower, and three
steady ones. With fewer, the width of an estimate's interval would come from default assumptions only."""
SHARE = 0.02
"""Largest share of the time that is spent on writing drafts. A large draft is written less often."""

KILLED = "the process ended without an error message: it was killed, or the machine was shut down"


@dataclass(frozen=True)
class FitFacts:
    """Arguments of one call of ``fit``, and properties of its data; None if unknown."""

    callback_list: weakref.ref[CallbackList] | None = None
    """Weak reference to Keras' callback list, which is deleted when ``fit`` ends."""
    threaded: bool = False
    """Whether Keras calls ``on_train_batch_end`` from worker threads."""
    test_threaded: bool = False
    """Whether Keras calls ``on_test_batch_end`` from worker threads."""
    batch_size: int | None = None
    partial_batch: int | None = None
    validation_steps: int | None = None
    validation_freq: int | Collection[int] = 1
    has_validation: bool | None = None
    can_restart: bool = True
    """Whether Keras can start another epoch after the probe ended one early."""
    self_tuning_input: bool | None = None
    """Whether the data comes from a tf.data pipeline with autotuning."""
    continuous_input: bool | None = None
    """Whether one iterator over endless data provides the batches of all epochs."""

    def times(self, feeders: int) -> FitFacts:
        """Return a copy with the total batch sizes of ``feeders`` processes, each of which adds a batch to a step."""
        sizes = {name: getattr(self, name) for name in ("batch_size", "partial_batch")}
        return replace(self, **{name: size * feeders for name, size in sizes.items() if size is not None})

    def validates_between(self, first: int, end: int) -> bool:
        """Return whether Keras validates after any of the epochs ``first`` to ``end - 1``, counted from 0.

        Return False if it is unknown whether the training has validation data.
        """
        frequency = self.validation_freq
        if not self.has_validation:
            return False
        if isinstance(frequency, int):  # Keras counts epochs from 1 here: it validates after each multiple
            return frequency > 0 and end // frequency > first // frequency
        return any(first < number <= end for number in frequency)


class Schedule(NamedTuple):
    """Epochs with a validation, counted from 1: from ``first`` to ``last``, every ``every`` epochs.

    If ``first`` is None, it equals ``every``. If ``last`` is None, the validations continue until the training ends.
    """

    every: int
    first: int | None = None
    last: int | None = None


def read_schedule(
    frequency: int | Collection[int], *, initial_epoch: int = 0, epochs: int | None = None
) -> Schedule | None:
    """Convert Keras' ``validation_freq`` to a schedule, counted from the first epoch; None if there are no validations.

    A list of epochs at unequal distances becomes a schedule with the same number of validations. If the list reaches
    the end of the training (``epochs``), the schedule has no end, so that it also applies to a longer training.

    >>> read_schedule(range(1000, 4001, 20), epochs=4000)
    Schedule(every=20, first=1000, last=None)
    >>> read_schedule([1, 2, 10], epochs=100)
    Schedule(every=4, first=1, last=9)
    """
    if isinstance(frequency, int):
        every = max(1, frequency)
        first = every - initial_epoch % every
        return Schedule(every, first if first != every else None)
    numbers = sorted({int(number) - initial_epoch for number in frequency if isinstance(number, Integral)})
    remaining = None if epochs is None else epochs - initial_epoch
    numbers = [number for number in numbers if number > 0 and (remaining is None or number <= remaining)]
    if not numbers:
        return None
    first, more = numbers[0], len(numbers) - 1
    every = (numbers[-1] - first) // more if more else first
    last = first + every * more
    continues = remaining is not None and last + every > remaining
    return Schedule(every, first if first != every else None, None if continues else last)


def find_earliest_stop(callbacks: Iterable[Callback]) -> int | None:
    """Return the least number of epochs after which early stopping can end the training; None if it is not used."""
    earliest = [
        max(0, getattr(callback, "start_from_epoch", 0)) + max(1, getattr(callback, "patience", 0)) + 1
        for callback in callbacks
        if any(kind.__name__ == "EarlyStopping" for kind in type(callback).__mro__)
    ]
    return min(earliest, default=None)


class MachineFacts(TypedDict):
    """Fields of a record that describe the machine and the factors; they do not depend on the measurement."""

    environment: Environment
    placement: Placement
    factors: Mapping[str, Any]


def read_environment(model: Model = None, backend: str | None = None) -> Environment:
    """Return hardware and software of this machine. ``backend`` is the training framework, by default detected."""
    from vmselect.records.base import Environment

    framework, machine = environment.read_framework(model, backend), environment.read_machine()
    return Environment(**framework, **machine, notebook=environment.in_notebook())


def read_facts(
    *, instance_type: str | None = None, region: str | None = None, model: Model = None, factors: Factors | None = None
) -> MachineFacts:
    """Return the fields of a record that describe the machine and the factors. Called before the measurement."""
    return {
        "environment": read_environment(model),
        "placement": environment.locate(instance_type=instance_type, region=region),
        "factors": read_factors(factors),
    }


class Recording:
    """Records one training: starts the timer, then reads properties of machine, software, model and data.

    These are read at the start, so that the record of a failed training contains them too. The time for this is
    excluded from the measured time.
    """

    def __init__(
        self,
        kind: Kind,
        *,
        model: Model = None,
        params: Mapping[str, Any] | None = None,
        fit: FitFacts | None = None,
        backend: str | None = None,
        options: Options,
    ) -> None:
        from vmselect.records.files import RecordFile

        target, self._factors = choose_path(options.path), read_factors(options.factors)
        check_target(target, "training")
        self.init = environment.take_initialization()
        self.timer = StepTimer()
        self.timer.start()
        with self.timer.leave_out():
            params = params or {}
            self.kind = kind
            self.model = model
            self.options = options
            self.name = options.name
            self.steps: int | None = params.get("steps")
            self.epochs: int | None = params.get("epochs")
            self.steps_per_execution = max(1, int(getattr(model, "steps_per_execution", 1) or 1))
            self.model_name = environment.name_model(model)
            self.parameters = environment.count_parameters(model)
            self.structure = environment.describe_structure(model)
            self.initial_epoch: int | None = None
            self.counted_batch_size: int | None = None
            self.counted_steps: int | None = None
            self.counted_examples: int | None = None
            self.validation_examples: int | None = None
            self.validations_per_epoch: float | None = None
            self.saving: Saving | None = None
            self.save_freq: int | None = None
            self.logs: list[tuple[int, Mapping[str, float | None]]] = []
            """Number and metrics of each epoch, if the probe does not end the training early."""
            self.torch_state: Callable[[], tuple[Iterable[Tensor], Iterable[Optimizer]]] | None = None
            """Returns the weights of a torch model and its optimizers, of which only the sizes are read."""
            self.early_stopping: int | None = None
            self.redirected: list[str] = []
            """Callbacks whose files were redirected to a scratch folder, for the line that is printed at the end."""
            self._id, self._created, self._number = uuid.uuid4().hex, datetime.now(UTC), environment.number_fit()
            fit = fit or FitFacts()
            dispatch = None if model is None else "threaded" if fit.threaded else "direct"
            self._environment = read_environment(model, backend).model_copy(update={"dispatch": dispatch})
            if kind != "epoch":
                timing = "blocks" if fit.threaded and self.is_asynchronous else "steps"  # a loop may begin blocks later
                self._environment = self._environment.model_copy(update={"step_timing": timing})
            self._placement = environment.locate(instance_type=options.instance_type, region=options.region)
            # If every worker reads its own data, a step processes as many batches as there are workers.
            feeders, self._counters = environment.count_feeders(self.workers, self._environment.backend)
            self.fit = fit.times(feeders)
            self.blocks: StepBlocks | None = None
            """Measures blocks of steps, if the device is asynchronous and the training does not use Keras ``fit``."""
            self._pauses = PauseWatch(self.timer)
            if kind == "epoch":  # a garbage collection stays part of the epoch: there is no step to exclude it from
                self._pauses.stop()
            self._draft = RecordFile(target) if target is not None and self.is_chief else None
            self._next_draft = 0.0
            self.timer.on_due = self.note
            self.observation = Observation(options.sample, options.alarm)
            self._fixed_bytes: dict[str, Any] = {}
            before = environment.read_gpu_memory(self.backend)
            self._peak_before = before[0] if before else None

    @property
    def is_chief(self) -> bool:
        """Whether this process is the first or only worker, which writes the record and prints."""
        return self._environment.worker_index == 0

    @property
    def workers(self) -> int:
        """Number of processes that train together."""
        return self._environment.workers

    @property
    def backend(self) -> str | None:
        """Name of the training framework, such as "torch"; None if unknown."""
        return self._environment.backend

    @property
    def has_gpu(self) -> bool:
        """Whether the framework uses a GPU."""
        return bool(self._environment.framework_gpus)

    @property
    def is_asynchronous(self) -> bool:
        """Whether the framework's step function returns before the device has executed the step."""
        return self.backend == "jax" or self.has_gpu

    @property
    def saw_anything(self) -> bool:
        """Whether at least one step or epoch has ended."""
        return bool(self.timer.steps or self.timer.epochs_ended)

    def is_late(self, seconds: float | None) -> bool:
        """Return whether the training has lasted longer than ``seconds``; False if ``seconds`` is None."""
        return seconds is not None and self.timer.elapsed_seconds() > seconds

    def is_steady(self, seconds: float | None) -> bool:
        """Return whether the steady steps of this epoch have lasted ``seconds`` in total.

        Return True if ``seconds`` is None, or if there are several workers, which must all end at the same step.
        """
        return seconds is None or self.workers > 1 or self.timer.steady_taken() >= seconds * 1e9

    @property
    def batch_size(self) -> int | None:
        """Number of examples per step: the probe's argument, else read from the data, else counted; None if unknown."""
        return self.options.batch_size or self.fit.batch_size or self.counted_batch_size

    def count_examples(self, *, steps: int | None) -> int | None:
        """Return the examples that all workers have processed in the first ``steps`` of this epoch or validation."""
        counted = environment.count_examples(self.model, steps=steps)
        return None if counted is None else counted * self._counters

    @property
    def steps_per_epoch(self) -> int | None:
        """Number of steps in a complete epoch, reported by the framework or counted; None if unknown."""
        return self.steps or self.counted_steps

    @property
    def examples(self) -> int | None:
        """Number of training examples in an epoch, or None if unknown."""
        if self.counted_examples is not None:
            return self.counted_examples
        steps, batch_size = self.steps_per_epoch, self.fit.batch_size
        if steps is None or batch_size is None or self.fit.partial_batch is None:
            return None
        return steps * batch_size - (batch_size - self.fit.partial_batch if self.fit.partial_batch else 0)

    @property
    def partial_batch(self) -> int | None:
        """Number of examples in the smaller last batch of an epoch; 0 if there is none, None if unknown."""
        if self.counted_examples is not None and self.batch_size and self.steps_per_epoch:
            missing = self.steps_per_epoch * self.batch_size - self.counted_examples
            if 0 <= missing < self.batch_size:
                return self.batch_size - missing if missing else 0
        return self.fit.partial_batch

    def set_backend(self, backend: str | None) -> None:
        """Set the training framework, if it is known only after the first step."""
        if backend != self.backend:
            timing = self._environment.step_timing
            self._environment = read_environment(self.model, backend).model_copy(update={"step_timing": timing})

    def begin_blocks(self, synchronize: Callable[[], object], *, overlap: bool, watched_after: int | None) -> None:
        """From now on, measure blocks of steps instead of single steps; see :class:`StepBlocks` for the arguments."""
        self._environment = self._environment.model_copy(update={"step_timing": "blocks"})
        self.blocks = StepBlocks(
            self.timer, synchronize, overlap=overlap, watched_after=watched_after, drained=self.observation.drained
        )

    def end_step(self, batch: int, covers: int = 1, *, last: bool = False) -> bool:
        """Record that ``covers`` steps up to step ``batch`` of the epoch have ended.

        If blocks of steps are measured, the steps have only been submitted to the device, and ``last=True`` ends the
        block. The last step of an epoch and the step before a smaller last batch end a block too. Return whether a
        block has ended; if single steps are measured, return True.
        """
        if self.blocks is None:
            self.timer.end_step(batch, covers)
            return True
        steps = self.steps
        if steps is not None and batch >= steps - 2:
            last = last or batch >= steps - 1 or bool(self.partial_batch)
        return self.blocks.submit(batch, covers, last=last)

    def close_block(self) -> None:
        """End the current block of steps, if blocks are measured."""
        if self.blocks is not None:
            self.blocks.close()

    @property
    def steps_begun(self) -> int:
        """Number of steps so far, including the steps of the current block, which has not ended."""
        return self.timer.steps + (self.blocks.steps if self.blocks is not None else 0)

    def describe_torch(self, weights: Sequence[tuple[Any, ...]], loader: Loader) -> None:
        """Record the size of a torch model and the batch size of its ``loader``.

        Each tuple in ``weights`` describes a tensor; its last two items are its shape and whether it is trainable.
        """
        if weights:
            self.parameters = sum(math.prod(weight[-2]) for weight in weights)
            self.structure = hashlib.sha256(repr(weights).encode()).hexdigest()[:16]
        sampler = getattr(loader, "batch_sampler", None)
        size = getattr(loader, "batch_size", None) or getattr(sampler, "batch_size", None)
        self.counted_batch_size = size * self.workers if isinstance(size, int) else None

    def observe(self, frame: FrameType | None = None, *, alive: Callable[[], bool] | None = None) -> None:
        """Start sampling usage and measuring the input wait of the Keras ``fit`` call among the callers of ``frame``.

        If ``frame`` is None, a training without Keras is observed until ``alive()`` returns False.
        """
        # An epoch probe does not wait for the end of a step.
        waited_for = self.kind != "epoch" or (self.backend == "torch" and not self.is_asynchronous)
        self.observation.begin(backend=self.backend, frame=frame, waited_for=waited_for, alive=alive)
        self.timer.enter = self.observation.enter

    def add_logs(self, epoch: int, logs: Mapping[str, Any] | None) -> None:
        """Keep the numbers in the ``logs`` of an epoch. Other values, such as tensors on a GPU, are ignored."""
        with self.timer.leave_out():
            plain = {str(name): value for name, value in (logs or {}).items() if isinstance(value, Real)}
            numbers = {name: float(value) if math.isfinite(value) else None for name, value in plain.items()}
            self.logs.append((epoch, numbers))

    def _build_logs(self) -> EpochLogs | None:
        from vmselect.records.training import MAX_EPOCHS, EpochLogs

        rows = self.logs[:: -(-len(self.logs) // MAX_EPOCHS)] if self.logs else []
        names = list(dict.fromkeys(name[:1000] for _, values in rows for name in values))[:200]
        if not names:
            return None
        columns = {name: tuple(values.get(name) for _, values in rows) for name in names}
        return EpochLogs(epoch=tuple(epoch for epoch, _ in rows), values=columns)

    def note(self) -> None:
        """Write a draft, unless one was written recently. Called after steps, validations and epochs."""
        with self.timer.leave_out():
            began = self.timer.clock() / 1e9
            if self._draft is not None and began >= self._next_draft:
                plain = {name: value for name, value in (self.options.metrics or {}).items() if not callable(value)}
                self._draft.write(self.build("interrupted", detail=KILLED, metrics=plain))
                taken = self.timer.clock() / 1e9 - began
                self._next_draft = began + max(EVERY_SECONDS, taken / SHARE)
                self.timer.due = max(began + STEPS_SECONDS, self._next_draft) * 1e9

    def snapshot(self, error: BaseException | None = None) -> Profile:
        """Return the profile of the measurements so far. The training may still run, or ``error`` has ended it."""
        profile = self.build(*classify(error))
        if self._draft is not None:
            self._draft.write(profile)
        return profile

    def keep(self, outcome: Outcome, detail: str | None = None) -> Profile | None:
        """End the recording, write the profile and print a line. Return the profile; None if nothing was measured."""
        if outcome in ("stopped", "watched") and self.timer.taken is None:
            self.close_block()
        self.timer.finish()
        self._pauses.stop()
        self.observation.end()
        # Without a single step, the only information is that memory ran out.
        if not (self.saw_anything or outcome == "out_of_memory"):
            self._discard()
            return None
        measured: Mapping[str, float] = {}
        try:
            measured = evaluate_metrics(self.options.metrics or {})
        finally:  # if a metric fails, the times are written before the exception propagates
            profile = self.build(outcome, detail=detail, metrics=measured)
            written = None if self._draft is None else self._draft.finish(profile)
            announced = outcome == "stopped" or (outcome == "watched" and self.redirected)
            if self.is_chief and announced:
                advises = getattr(self.options, "_advises", False) and not getattr(self.options, "exit_program", True)
                self.options.print_line(describe_end(profile, written, self.redirected, advises=advises))
        return profile

    def drop(self) -> None:
        """End the recording without writing a profile, because the measurements are invalid."""
        environment.give_back_initialization()
        self._pauses.stop()
        self.observation.end()
        self._discard()

    def build(self, outcome: Outcome, detail: str | None = None, metrics: Mapping[str, float] | None = None) -> Profile:
        """Return a profile of the measurements so far."""
        from vmselect.records.training import Fit, Profile

        usage = self.observation.usage
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
                in_blocks=self._environment.step_timing == "blocks",
                input_wait=self.observation.input_wait,
            ),
            environment=self._environment.model_copy(
                update={
                    "peak_memory_bytes": environment.read_peak_memory(),
                    **self._read_gpu_memory(usage),
                }
            ),
            placement=self._placement,
            fit=Fit(number=self._number[0], process=self._number[1], name=self.name),
            factors=self._factors,
            usage=usage,
            metrics=dict(metrics or {}),
            logs=self._build_logs(),
        )

    def _read_gpu_memory(self, usage: Usage | None) -> dict[str, Any]:
        """Return the fields of the environment about peak GPU memory; an empty dict if the peak is unknown.

        The framework's counter covers the whole process. If it did not rise during this training, the peak belongs to
        an earlier training.
        """
        from vmselect.records.base import GpuMemory

        if self._environment.framework_gpus == 0:
            return {}
        reading = environment.read_gpu_memory(self.backend)
        if reading is not None and self._number[0] > 1 and self._peak_before and reading[0] <= self._peak_before:
            return {}
        if reading is None and usage is not None:
            reading = _read_sampled_gpu_memory(usage)
        if reading is None:
            return {}
        # Shapes do not change, so they are read once, after the optimizer has its variables.
        if not self._fixed_bytes:
            self._fixed_bytes = environment.read_fixed_bytes(self.model)
        if not self._fixed_bytes and self.torch_state is not None and self.timer.steps:
            self._fixed_bytes = environment.read_torch_bytes(self.torch_state)
        peak, details = reading
        return {"peak_gpu_memory_bytes": peak, "gpu_memory": GpuMemory(**details, **self._fixed_bytes)}

    def _build_setup(self) -> Setup:
        from vmselect.records.training import Setup

        source: Literal["argument", "data"] | None = "argument" if self.options.batch_size else "data"
        initial_epoch = self.initial_epoch or 0
        schedule = read_schedule(self.fit.validation_freq, initial_epoch=initial_epoch, epochs=self.epochs)
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
            initial_epoch=initial_epoch,
            examples=self.examples,
            partial_batch=self.partial_batch,
            validation_examples=self.validation_examples,
            validation_steps=self.fit.validation_steps,
            validates=self.fit.has_validation and schedule is not None,
            validation_freq=schedule.every if schedule else 1,
            validation_from=schedule.first if schedule else None,
            validation_until=schedule.last if schedule else None,
            validations_per_epoch=self.validations_per_epoch,
            saving=self.saving,
            save_freq=self.save_freq,
            early_stopping=self.early_stopping,
            self_tuning_input=self.fit.self_tuning_input,
            continuous_input=self.fit.continuous_input,
        )

    def _discard(self) -> None:
        if self._draft is not None:
            self._draft.discard()


def _read_sampled_gpu_memory(usage: Usage) -> tuple[int, dict[str, Any]] | None:
    """Return the highest sample of used GPU memory in bytes, as the driver reported it; None if it was not sampled."""
    names = [name for name in usage.quantities() if re.fullmatch(r"gpu\d+_memory_used_bytes", name)]
    maxima = [summary.maximum for phase in usage.phases.values() for name in names if (summary := phase.get(name))]
    return (int(max(maxima)), {"source": "nvml"}) if maxima else None


def describe_end(
    profile: Profile, written: Place | None, redirected: Sequence[str] = (), *, advises: bool = False
) -> str:
    """Return the line to print when a probe has ended a training, or has redirected files of a training.

    With ``advises=True`` the line mentions ``exit_program``, if the probe ended the training.
    """
    timeline = profile.timeline
    steps, epochs, validations = timeline.steps.steps, len(timeline.epochs), len(timeline.validations)
    seen = f"{steps} step{'s' * (steps != 1)}" if steps else f"{epochs} epoch{'s' * (epochs != 1)}"
    if validations:
        seen += f" and {validations} validation{'s' * (validations != 1)}"
    where = f"; profile in {written}" if written is not None else ""
    kept = f"; files of these callbacks were not kept: {', '.join(redirected)}" if redirected else ""
    stopped = profile.outcome == "stopped"
    ended = "ended the training" if stopped else "the training ended by itself"
    advice = (
        "; the program continues with a barely trained model (exit_program=True would end it)"
        if stopped and advises
        else ""
    )
    unknown = written is not None and stopped and profile.instance_type is None
    machine = "; the machine type is unknown, so name it (instance_type= or --instance-type)" if unknown else ""
    return f"{ended} after {seen} ({format_seconds(timeline.wall_seconds or 0.0)}){where}{machine}{kept}{advice}"


class Probe:
    """Base class of all probes of trainings. It records one training at a time and keeps the last profile."""

    _recording: Recording | None = None
    _watch: EndWatch | None = None
    _profile: Profile | None = None
    _cut_short = False
    """Whether the probe has ended the training or an epoch of it early."""

    def _start(
        self, options: Options, *, backend: str | None = None, alive: Callable[[], bool] | None = None
    ) -> Recording:
        """Start recording a training that does not use Keras ``fit``. ``alive()`` returns whether it still runs."""
        self._recording = recording = Recording("loop", backend=backend, options=options)
        with recording.timer.leave_out():
            self._watch = EndWatch(self._end_early, anchor=self)
            recording.observe(alive=alive)
        return recording

    def _release(self) -> Recording | None:
        """Stop watching the training, and return its recording."""
        recording, watch = self._recording, self._watch
        self._recording = self._watch = None
        if watch is not None:
            watch.stop()
        return recording

    def _close(self, outcome: Outcome, detail: str | None = None) -> None:
        recording = self._release()
        if recording is not None:
            self._profile = recording.keep(outcome, detail) or self._profile

    def _close_block(self) -> None:
        """End the current block of steps, if blocks are measured."""
        if self._recording is not None:
            self._recording.close_block()

    def end_program(self) -> None:
        """End the recording because the program ends here, unless too few steps were measured for an estimate."""
        recording = self._recording
        if recording is None:
            return
        self._close_block()
        if recording.timer.steps >= LEAST_STEPS or recording.timer.epochs_ended:
            self._close("stopped")
        else:
            self._release()
            recording.drop()

    def _end_early(self, error: BaseException | None, detail: str | None = None) -> None:
        self._close(*classify(error, detail))

    def _finish(self, error: BaseException | None = None) -> None:
        """End the recording after the training has ended, by itself, by the probe or by the exception ``error``."""
        if error is None:
            self._close("stopped" if self._cut_short else "watched")
        else:
            self._end_early(error)


@dataclass(eq=False, repr=False)
class CallbackProbe(Options, Probe):
    """A probe that is passed to a training library as a callback. It can be copied and reused for further trainings."""

    _remedy: ClassVar[str]
    """Second sentence of the error message if nothing has been measured: what the user has to do."""

    _: KW_ONLY
    stop: bool = True
    protect_files: bool = True
    exit_program: bool = False

    _advises = True
    """Whether the line that is printed at the end mentions ``exit_program``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.stop = check_flag("stop", self.stop)
        self.protect_files = check_flag("protect_files", self.protect_files)
        self.exit_program = check_flag("exit_program", self.exit_program)
        check_uncut(self.stop, exit_program=self.exit_program or None)
        self._reset()

    def _reset(self) -> None:
        self._recording = self._watch = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy is a fresh probe with the same settings: a recording belongs to one training in one process.
        return {name: value for name, value in self.__dict__.items() if name[0] != "_" or name == "_profile"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def _exit_if_stopped(self, earlier: Profile | None) -> None:
        """End the program if ``exit_program`` is True and the probe has just ended a training.

        ``earlier`` is the profile of the previous training.
        """
        profile = self._profile
        if self.exit_program and profile is not None and profile is not earlier and profile.outcome == "stopped":
            raise SystemExit(0)

    @property
    def profile(self) -> Profile:
        """The :class:`~vmselect.Profile` of the last training, or of the running training so far."""
        # No callback reports a failed training. If an exception is being handled, it has ended the training.
        if self._recording is not None and self._recording.saw_anything:
            return self._recording.snapshot(sys.exc_info()[1])
        if self._profile is None:
            raise ProbeError(f"Nothing has been measured yet. {self._remedy}")
        return self._profile

    @property
    def measured(self) -> bool:
        """Whether something has been measured, so that ``profile`` is available."""
        return self._profile is not None or (self._recording is not None and self._recording.saw_anything)


@dataclass(eq=False, repr=False, kw_only=True)
class StepProbe(CallbackProbe):
    """A probe that ends each epoch after a few steps."""

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
        check_uncut(self.stop, seconds=self.seconds, steady_seconds=self.steady_seconds)

    def _start(
        self, options: Options, *, backend: str | None = None, alive: Callable[[], bool] | None = None
    ) -> Recording:
        recording = super()._start(options, backend=backend, alive=alive)
        if recording.is_asynchronous:
            watched_after = None if self.stop else self.steps
            wait = environment.synchronize_devices
            recording.begin_blocks(wait, overlap=recording.has_gpu, watched_after=watched_after)
        return recording
