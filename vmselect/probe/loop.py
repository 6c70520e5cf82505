"""The probe for hand-written training loops, in any framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from vmselect._checks import check_callable, check_count, check_flag, check_name, check_seconds, maybe, suggest_fields
from vmselect.errors import ProbeError
from vmselect.probe.environment import name_loop_backend, synchronize_devices
from vmselect.probe.options import Factors, Metrics, Options, RecordPath
from vmselect.probe.recording import Probe, Recording
from vmselect.probe.sampling import Alarm

if TYPE_CHECKING:
    from vmselect.records.training import Profile

Batch = TypeVar("Batch")


AROUND: list[Callable[[LoopProbe, Options], AbstractContextManager[Any]]] = []
"""Functions that take a probe and its options and return a context manager, which is active during the measured loop.

``vmselect probe`` registers its own functions here."""


@suggest_fields
class LoopProbe(Probe):
    """Context manager that measures the training loop inside it; use it as :func:`vmselect.probe_loop`.

    It writes the same profile as :class:`~vmselect.IterationProbe`, which documents the arguments that are not listed
    here.

    Args:
        model: name of the model for the profile.
        examples: number of training examples in an epoch; required only if the last batch is smaller than the others.
        synchronize: function that waits until the device has finished; called after the first step of an epoch, after
            each further block of steps, and after each validation. By default, the probe waits for torch, JAX or
            TensorFlow, whichever the loop uses.

    >>> with LoopProbe(path=False, batch_size=4, steps=5, instance_type="my-laptop", verbose=0) as p:
    ...     for epoch in p.epochs(50):
    ...         for batch in p.steps([[1, 2, 3, 4]] * 100):
    ...             _ = sum(batch)
    ...         with p.validation():
    ...             _ = sum(range(10))
    >>> p.profile.steps_per_epoch, p.profile.timeline.steps.steps, len(p.profile.timeline.validations)
    (100, 12, 2)
    """

    def __init__(
        self,
        path: RecordPath = None,
        *,
        steps: int = 20,
        validations: int = 2,
        seconds: float | None = None,
        stop: bool = True,
        batch_size: int | None = None,
        model: str | None = None,
        examples: int | None = None,
        instance_type: str | None = None,
        region: str | None = None,
        metrics: Metrics | None = None,
        factors: Factors | None = None,
        name: str | None = None,
        sample: float | None = 1.0,
        alarm: Alarm | None = None,
        synchronize: Callable[[], Any] | None = None,
        verbose: int = 1,
    ) -> None:
        self._options = Options(
            path,
            batch_size=batch_size,
            instance_type=instance_type,
            region=region,
            metrics=metrics,
            factors=factors,
            name=name,
            sample=sample,
            alarm=alarm,
            verbose=verbose,
        )
        self._steps_to_see = check_count("steps", steps)
        self._epochs_to_see = max(1, check_count("validations", validations, least=0, most=2))
        self._seconds = maybe(check_seconds, "seconds", seconds, above=0)
        self._stop = check_flag("stop", stop)
        self._model = maybe(check_name, "model", model)
        self._examples = maybe(check_count, "examples", examples)
        self._is_asynchronous = maybe(check_callable, "synchronize", synchronize) is not None
        self._synchronize: Callable[[], Any] = synchronize or synchronize_devices
        self._epochs_begun = 0
        self._whole = self._stepping = False
        self._around = ExitStack()

    @property
    def measured(self) -> bool:
        """Whether the training has been measured, so that ``profile`` is available."""
        return self._profile is not None

    @property
    def profile(self) -> Profile:
        """Profile of the training, available after the ``with`` block has ended."""
        if self._profile is None:
            raise ProbeError(
                "Nothing has been measured yet. Read the profile after the block `with vmselect.probe_loop() as p:`."
            )
        return self._profile

    @property
    def finished(self) -> bool:
        """Whether the probe has measured enough, so that the training loop can end."""
        recording = self._recording
        if recording is None or self._stepping:
            return False
        if not self._stop:
            return recording.stop_requested
        return self._epochs_begun >= self._epochs_to_see or recording.is_late(self._seconds)

    def __enter__(self) -> LoopProbe:
        for around in AROUND:
            self._around.enter_context(around(self, self._options))
        recording = self._start(self._options)
        recording.facts.model_name = self._model
        recording.facts.counted_examples = self._examples
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None and self._recording is not None:
            self._end_epoch(self._recording)
        with self._around:
            self._finish(error)

    def epochs(self, count: int, *, initial_epoch: int = 0) -> Iterator[int]:
        """Yield the epoch numbers from ``initial_epoch`` to ``count - 1``, until the probe has measured enough.

        Pass ``initial_epoch`` if the training is resumed from a checkpoint.
        """
        recording = self._require()
        recording.facts.epochs = check_count("count", count)
        recording.facts.initial_epoch = check_count("initial_epoch", initial_epoch, least=0)
        for epoch in range(initial_epoch, count):
            if self.finished:
                self._cut_short = self._stop
                break
            yield epoch

    def steps(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches of one epoch, one per step, until enough steps have been measured."""
        recording = self._require()
        timer = recording.timer
        self._end_epoch(recording)
        if self.finished:
            self._cut_short = self._stop
            timer.finish()  # the profile excludes the rest of the loop
            return
        if isinstance(batches, Sized):
            recording.facts.steps = len(batches) or None
        timer.begin_epoch(self._epochs_begun)
        timer.open()
        self._epochs_begun += 1
        self._stepping, self._whole = True, False
        last = (recording.facts.steps or 0) - 1
        index = 0
        try:
            for batch in recording.observation.watch(batches):
                yield batch  # the caller runs the step, and asks for the next batch when it has ended
                enough = self._stop and (index >= self._steps_to_see or recording.is_late(self._seconds))
                enough = enough or recording.stop_requested
                if recording.blocks is None:
                    self._synchronize()
                recording.end_step(index, last=enough)
                if not timer.epochs_ended and not index:
                    self._recognize_framework(recording)
                if enough and index != last:
                    self._cut_short = self._stop
                    return
                index += 1
            recording.close_block()
            self._whole = True
            recording.facts.counted_steps = recording.facts.counted_steps or index or None
        finally:
            self._stepping = False

    @contextmanager
    def validation(self) -> Iterator[None]:
        """Context manager that measures the time of the validation inside it, after the steps of an epoch."""
        recording = self._require()
        recording.close_block()
        recording.timer.begin_validation()
        try:
            yield
        finally:
            self._synchronize()
            recording.timer.end_validation()
            recording.note()

    def _recognize_framework(self, recording: Recording) -> None:
        """Record the framework, and measure blocks of steps if it is asynchronous. Called after the first step."""
        with recording.timer.leave_out():
            recording.set_backend(name_loop_backend())
            # A synchronize= of the user implies that steps are asynchronous, in a framework that vmselect may not know.
            if recording.is_asynchronous or self._is_asynchronous:
                overlap = recording.has_gpu or recording.backend is None
                watched_after = None if self._stop else self._steps_to_see
                recording.begin_blocks(self._synchronize, overlap=overlap, watched_after=watched_after)
        recording.note()

    def _require(self) -> Recording:
        if self._recording is None:
            raise ProbeError(
                "The probe is not running. Call its methods inside the block `with vmselect.probe_loop() as p:`."
            )
        return self._recording

    def _end_epoch(self, recording: Recording) -> None:
        if recording.timer.current is not None:
            recording.close_block()  # of a loop that the program has left early
            recording.timer.end_epoch(complete=self._whole)
            recording.note()


probe_loop = LoopProbe
