"""Records one training, and defines the base classes of the probes that record trainings.

A :class:`Recording` contains the timer and collects all fields of the profile. It writes a draft of the profile while
the training runs, so that the measurements are not lost if the process is killed.
"""

from __future__ import annotations

import math
import re
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from numbers import Real
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypedDict

from vmselect._checks import check_count, check_flag, check_seconds, maybe, suggest_fields
from vmselect._io import Place
from vmselect.errors import ProbeError, ProfileError, VmselectError
from vmselect.probe import environment
from vmselect.probe.calls import FirstCalls
from vmselect.probe.compiling import CompileTimes
from vmselect.probe.endings import EndWatch, classify
from vmselect.probe.environment import Model, Optimizer, Tensor
from vmselect.probe.facts import FitFacts, TrainingFacts
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
    from vmselect.records.base import Environment, Placement
    from vmselect.records.training import Ending, EpochLogs, Outcome, Profile
    from vmselect.records.usage import Phase, Usage
    from vmselect.records.work import Work

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


class MachineFacts(TypedDict):
    """Fields of a record that describe the machine and the factors; they do not depend on the measurement."""

    environment: Environment
    placement: Placement
    factors: Mapping[str, Any]


def describe_problem(problem: Exception) -> str:
    """What has happened, in a line: errors of other libraries are named, because their messages may be a word."""
    return str(problem) if isinstance(problem, VmselectError) else f"{type(problem).__name__}: {problem}"


def warn_of(problem: Exception, consequence: str = "its record is incomplete") -> None:
    """Print a line about a ``problem`` and its ``consequence``, because what was measured must not fail with it."""
    with suppress(OSError, ValueError):  # a closed standard error
        sys.stderr.write(f"vmselect: the program continues, but {consequence}: {describe_problem(problem)}\n")


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


class Observer(Protocol):
    """Looks at a recording after steps, validations and epochs; returns the clock seconds of the next look."""

    def __call__(self, recording: Recording, *, final: bool = False) -> float:
        """Look at ``recording``; ``final`` is True after its end."""


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
        # Initialization ends and the training begins here; all that follows is work of the probe.
        self.init = environment.take_initialization()
        self.timer = StepTimer()
        self.timer.start()
        with self.timer.leave_out():
            params = params or {}
            self.kind = kind
            self.model = model
            self.options = options
            self.name = options.name
            self.kept: Profile | None = None
            """The profile of the whole recording, as soon as the recording has ended."""
            self.facts = TrainingFacts(
                stated_batch_size=options.batch_size,
                steps=params.get("steps"),
                epochs=params.get("epochs"),
                steps_per_execution=max(1, int(getattr(model, "steps_per_execution", 1) or 1)),
                model_name=environment.name_model(model),
                parameters=environment.count_parameters(model),
                structure=environment.describe_structure(model),
            )
            self.logs: list[tuple[int, Mapping[str, float | None]]] = []
            """Number and metrics of each epoch, if the probe does not end the training early."""
            self.torch_state: Callable[[], tuple[Iterable[Tensor], Iterable[Optimizer]]] | None = None
            """Returns the weights of a torch model and its optimizers, of which only the sizes are read."""
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
            self.facts.fit = fit.times(feeders)
            self.blocks: StepBlocks | None = None
            """Measures blocks of steps, if the device is asynchronous and the training does not use Keras ``fit``."""
            self._pauses = PauseWatch(self.timer)
            if kind == "epoch":  # a garbage collection stays part of the epoch: there is no step to exclude it from
                self._pauses.stop()
            self._file = RecordFile(target) if target is not None and self.is_chief else None
            self._next_write, self._next_draft = 0.0, math.inf
            self._draft: Profile | None = None
            self._warned: set[str] = set()
            self.observer: Observer | None = None
            """Follows the training while it runs, such as the account of :class:`vmselect.Watch`."""
            self.stop_requested = False
            """Whether the observer wants the training to end as soon as its framework allows it."""
            self.stopper: Callable[[], object] = lambda: None
            """Asks the framework at once to end the training, if that is possible."""
            self.shows_progress = params.get("verbose", 0) not in (0, 2)
            """Whether the framework shows a progress bar of its own, which a display must not overwrite."""
            self.timer.on_due = self._look
            self.observation = Observation(options.sample, options.alarm)
            self.compiling = CompileTimes(lambda: self.timer.leaves_out)
            self._fixed_bytes: dict[str, Any] = {}
            self._work: Work | None = None
            self.description_problem: str | None = None
            """Why the training could not be described."""
            self.calls = FirstCalls()
            """How the training calls its torch model, if the probe watches that."""
            # The framework's counter is not reset by a new training, so its value now separates earlier peaks.
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

    def count_examples(self, *, steps: int | None) -> int | None:
        """Return the examples that all workers have processed in the first ``steps`` of this epoch or validation."""
        counted = environment.count_examples(self.model, steps=steps)
        return None if counted is None else counted * self._counters

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
        # A smaller last batch is excluded from the mean, so that it must not share a block with whole batches.
        steps = self.facts.steps
        if steps is not None and batch >= steps - 2:
            last = last or batch >= steps - 1 or bool(self.facts.partial_batch)
        return self.blocks.submit(batch, covers, last=last)

    def close_block(self) -> None:
        """End the current block of steps, if blocks are measured."""
        if self.blocks is not None:
            self.blocks.close()

    @property
    def steps_begun(self) -> int:
        """Number of steps so far, including the steps of the current block, which has not ended."""
        return self.timer.steps + (self.blocks.steps if self.blocks is not None else 0)

    def observe(self, frame: FrameType | None = None, *, alive: Callable[[], bool] | None = None) -> None:
        """Start sampling usage and measuring the input wait of the Keras ``fit`` call among the callers of ``frame``.

        If ``frame`` is None, a training without Keras is observed until ``alive()`` returns False.
        """
        # An epoch probe does not wait for the end of a step.
        waited_for = self.kind != "epoch" or (self.backend == "torch" and not self.is_asynchronous)
        self.observation.begin(backend=self.backend, frame=frame, waited_for=waited_for, alive=alive)
        self.timer.enter = self._enter

    def watch_compiling_since(self, earlier: CompileTimes) -> None:
        """Use the times of ``earlier``, which began to listen before this recording."""
        self.compiling.stop()
        self.compiling = earlier

    def _enter(self, phase: Phase) -> None:
        if phase != "first_step":
            self.compiling.stop()
        self.observation.enter(phase)

    def add_logs(self, epoch: int, logs: Mapping[str, Any] | None) -> None:
        """Keep the numbers in the ``logs`` of an epoch. Other values, such as tensors on a GPU, are ignored."""
        with self.timer.leave_out():
            plain = {str(name): value for name, value in (logs or {}).items() if isinstance(value, Real)}
            numbers = {name: float(value) if math.isfinite(value) else None for name, value in plain.items()}
            self.logs.append((epoch, numbers))

    def _build_logs(self) -> EpochLogs | None:
        from vmselect.records.training import MAX_EPOCHS, EpochLogs

        rows = self.logs[:: -(-len(self.logs) // MAX_EPOCHS)] if self.logs else []
        names = list(dict.fromkeys(name for _, values in rows for name in values))[:200]
        if not names:
            return None
        columns: dict[str, tuple[float | None, ...]] = {}
        for position, name in enumerate(names):
            # A record allows 1000 characters. Names that are equal up to there stay apart by their position.
            title = name[:1000] if name[:1000] not in columns else f"{name[:990]} ({position})"
            columns[title] = tuple(values.get(name) for _, values in rows)
        return EpochLogs(epoch=tuple(epoch for epoch, _ in rows), values=columns)

    def note(self) -> None:
        """Write a draft, unless one was written recently. Called after steps, validations and epochs."""
        with self.timer.leave_out():
            began = self.timer.clock() / 1e9
            if self._file is not None and began >= self._next_write:
                # A metric that is a function, such as an evaluation, may take long: it is called at the end only.
                plain = {name: value for name, value in (self.options.metrics or {}).items() if not callable(value)}
                try:
                    self._draft = self.build(*classify(None, "killed"), metrics=plain)
                    self._file.write(self._draft)
                except ValueError as problem:  # a number that a record cannot hold
                    self._warn_once(problem)
                taken = self.timer.clock() / 1e9 - began
                self._next_write = began + max(EVERY_SECONDS, taken / SHARE)
                self._next_draft = max(began + STEPS_SECONDS, self._next_write)
            self._call_observer()

    def _look(self) -> None:
        """Write a draft if it is time for one within the epoch, and call the observer. Called after a step."""
        if self.timer.clock() / 1e9 >= self._next_draft:
            self.note()
            return
        with self.timer.leave_out():
            self._call_observer()

    def _call_observer(self) -> None:
        following = self.observer(self) if self.observer is not None else math.inf
        self.timer.due = min(self._next_draft, following) * 1e9

    def request_stop(self) -> None:
        """End the training as soon as its framework allows it. Called by the observer."""
        self.stop_requested = True
        self.stopper()

    def snapshot(self, error: BaseException | None = None) -> Profile:
        """Return the profile of the measurements so far. The training may still run, or ``error`` has ended it."""
        profile = self.build(*classify(error))
        if self._file is not None:
            self._file.write(profile)
        return profile

    def keep(self, outcome: Outcome, detail: str | None = None, ending: Ending | None = None) -> Profile | None:
        """End the recording, write the profile and print a line. Return the profile; None if nothing was measured."""
        # After a failure, the device may never finish the steps of the current block: they are not waited for.
        if outcome in ("stopped", "watched") and self.timer.taken is None:
            self.close_block()
        self.timer.finish()
        self._pauses.stop()
        self.compiling.stop()
        self.observation.end()
        self.calls.close()
        if self.observer is not None and self.saw_anything:
            self.observer(self, final=True)
        # Without a single step, the only information is that memory ran out.
        if not (self.saw_anything or outcome == "out_of_memory"):
            self._discard()
            return None
        if outcome in ("stopped", "watched"):
            self._work = environment.attempt(lambda: self._count_work(continues=outcome == "watched"))
        problems: list[BaseException] = []
        measured: Mapping[str, float] = {}
        try:
            measured = evaluate_metrics(self.options.metrics or {})
        except BaseException as problem:  # noqa: BLE001 - a function of the user; raised or reported below
            problems.append(problem)
        written = None
        try:
            # The profile is kept even if it cannot be written: `probe.profile` still has the measurements.
            self.kept = self.build(outcome, detail, ending, metrics=measured)
            written = None if self._file is None else self._file.finish(self.kept)
        except (ProfileError, OSError, ValueError) as problem:  # also a number that a record cannot hold
            problems.append(problem)
            if self.kept is None:
                self._explain_draft(outcome, detail, problem)
        # A file at a place that nobody named is announced, too.
        unnamed = written is not None and self.options.path is None
        announced = outcome == "stopped" or (outcome == "watched" and (self.redirected or unnamed))
        if self.kept is not None and self.is_chief and announced:
            advises = getattr(self.options, "_advises", False) and not getattr(self.options, "exit_program", True)
            self.options.print_line(describe_end(self.kept, written, self.redirected, advises=advises))
        for failure in problems:
            # If the training ran to its own end, an exception would lose the model that the program saves next.
            if outcome == "stopped" or not isinstance(failure, Exception):
                raise failure
            self._warn_once(failure)
        return self.kept

    def _explain_draft(self, outcome: Outcome, detail: str | None, problem: Exception) -> None:
        """Say in the last draft, which stays because of ``problem``, how the training ended: it was not killed."""
        if self._file is not None and self._draft is not None:
            ended = detail or {"stopped": "the probe ended it", "watched": "it ended by itself"}.get(outcome, outcome)
            text = f"{ended}; only this draft was written, because of {describe_problem(problem)}"[:300]
            kind = outcome if outcome == "out_of_memory" else "interrupted"
            self._file.write(self._draft.model_copy(update={"outcome": kind, "detail": text, "ending": None}))

    def keep_description(self) -> bool:
        """End the recording before the first step with a description of the training. Return whether that is possible.

        Otherwise the recording continues, because a step may show what is missing.
        """
        from vmselect.records.training import without_times

        if self.saw_anything or (work := self._count_work(continues=False)) is None:
            return False
        self._work = work
        self.kept = without_times(self.build("interrupted"))
        self.drop()
        return True

    def drop(self) -> None:
        """End the recording without writing a profile, because the measurements are invalid."""
        environment.give_back_initialization()
        self._pauses.stop()
        self.compiling.stop()
        self.observation.end()
        self._discard()

    def build(
        self,
        outcome: Outcome,
        detail: str | None = None,
        ending: Ending | None = None,
        *,
        metrics: Mapping[str, float] | None = None,
    ) -> Profile:
        """Return a profile of the measurements so far."""
        from vmselect.records.training import Fit, Profile

        usage = self.observation.usage
        return Profile(
            id=self._id,
            created=self._created,
            probe=self.kind,
            outcome=outcome,
            detail=detail,
            ending=ending,
            setup=self.facts.build(workers=self.workers),
            timeline=build_timeline(
                self.timer,
                init=self.init,
                partial_batch=self.facts.partial_batch,
                watched=outcome == "watched",
                in_blocks=self._environment.step_timing == "blocks",
                input_wait=self.observation.input_wait,
                first_step=self.compiling.parts(self.backend, self.timer.first_span),
            ),
            environment=self._environment.model_copy(
                update={
                    "precision": self._environment.precision or self.calls.precision,
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
            work=self._work,
        )

    def _count_work(self, *, continues: bool) -> Work | None:
        """Count the operations of a step on one GPU, outside of the measurement; None if the model is not known."""
        size, model, inputs = self.facts.batch_size, self.model, None
        from vmselect.describing.tally import count_inputs

        if model is None and (call := self.calls.choose(self.facts.parameters)) is not None:
            model, inputs = call
            counted = count_inputs(inputs)
            if size is None and self.facts.counts_inputs and self.workers == 1:
                self.facts.counted_batch_size = counted
            size = size or counted
        if model is None or size is None or not self.is_chief:
            return None
        self.calls.close()  # the model is copied and called
        from vmselect.probe.description import count_after_training

        optimizers = None if self.torch_state is None else environment.attempt(self.torch_state)
        return count_after_training(
            model,
            batch_size=max(1, size // self._environment.replicas),
            optimizer=next(iter(optimizers[1]), None) if optimizers else None,
            inputs=inputs,
            data=self.facts.fit.inputs,
            seconds=self.options.describing_seconds,
            continues=continues,
            on_problem=self._note_problem,
        )

    def _note_problem(self, problem: Exception) -> None:
        self.description_problem = describe_problem(problem)[:500]

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
        return {"peak_gpu_memory_bytes": reading[0], "gpu_memory": GpuMemory(**reading[1], **self._fixed_bytes)}

    def _warn_once(self, problem: Exception) -> None:
        """Print a line about a ``problem`` of the record, unless it was printed before; the training continues."""
        if str(problem) not in self._warned:
            self._warned.add(str(problem))
            warn_of(problem)

    def _discard(self) -> None:
        if self._file is not None:
            self._file.discard()


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
    where = f"; profile in {written}" if written is not None else "; profile in memory only"
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


class EnoughTrainings(BaseException):
    """Raised to end the script after all requested trainings have been measured or described."""


class Probe:
    """Base class of all probes of trainings. It records one training at a time and keeps the last profile."""

    _recording: Recording | None = None
    _watch: EndWatch | None = None
    _profile: Profile | None = None
    _cut_short = False
    """Whether the probe has ended the training or an epoch of it early."""
    description_problem: str | None = None
    """Why the last training could not be described."""
    on_start: Callable[[Recording], object] = staticmethod(lambda recording: None)
    """Function that is called with the recording when a training begins."""

    def _start(
        self, options: Options, *, backend: str | None = None, alive: Callable[[], bool] | None = None
    ) -> Recording:
        """Start recording a training that does not use Keras ``fit``. ``alive()`` returns whether it still runs."""
        self._recording = recording = Recording("loop", backend=backend, options=options)
        with recording.timer.leave_out():
            self._watch = EndWatch(self._end_early, anchor=self)
            recording.observe(alive=alive)
            self.on_start(recording)
        return recording

    def _release(self) -> Recording | None:
        """Stop watching the training, and return its recording."""
        recording, watch = self._recording, self._watch
        self._recording = self._watch = None
        if watch is not None:
            watch.stop()
        return recording

    def _close(self, outcome: Outcome, detail: str | None = None, ending: Ending | None = None) -> None:
        recording = self._release()
        if recording is not None:
            try:
                recording.keep(outcome, detail, ending)
            finally:
                self._profile = recording.kept or self._profile
                self.description_problem = recording.description_problem

    def _end_described(self) -> None:
        """End the program before the first step, if only a description is wanted and the training can be described."""
        recording = self._recording
        if recording is not None and recording.options.describes_only and recording.keep_description():
            self._profile = recording.kept
            self._release()
            raise EnoughTrainings

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

    def _end_early(self, error: BaseException | None, ending: Ending | None = None) -> None:
        self._close(*classify(error, ending))

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


@suggest_fields
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
            # A training that is watched to its end is slowed down by synchronizing only until enough was measured.
            watched_after = None if self.stop else self.steps
            wait = environment.synchronize_devices
            recording.begin_blocks(wait, overlap=recording.has_gpu, watched_after=watched_after)
        return recording
