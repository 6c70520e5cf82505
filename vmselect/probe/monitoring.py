"""Observation of one measurement: samples of the machine, and for trainings the wait for input."""

from __future__ import annotations

import faulthandler
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from vmselect._checks import check_number, maybe, show
from vmselect.errors import ArgumentError
from vmselect.probe.input_wait import FetchClock, TensorFlowTrace, find_epoch_iterator, time_fetches, watch_iterator
from vmselect.probe.sampling import MIN_SAMPLE_SECONDS, Alarm, Sampler

if TYPE_CHECKING:
    from vmselect.records.training import InputWait
    from vmselect.records.usage import Phase, Usage


def check_sample(sample: Any, alarm: Any) -> tuple[float | None, Alarm | None]:
    """Check the interval in seconds, and the alarm that checks the samples."""
    interval = maybe(check_number, "sample", sample, least=MIN_SAMPLE_SECONDS, most=3600)
    if alarm is not None and not isinstance(alarm, Alarm):
        raise ArgumentError(f"alarm must be a vmselect.Alarm, not {show(alarm)}.")
    if alarm is not None and interval is None:
        raise ArgumentError("alarm= needs samples. Set sample= to the seconds between two of them.")
    return interval, alarm


def watch_call(frame: FrameType, name: str = "fit") -> Callable[[], bool] | None:
    """A function that returns whether a call of ``name`` above ``frame`` is still running; None without such a call.

    Keras calls no hook when ``fit`` raises, and what keeps the exception (a notebook, a search over settings) keeps all
    objects of ``fit`` alive. The only sign left is that the thread's stack holds fewer such calls than now. The stack
    is read from the output of ``faulthandler``, because walking the frames of a running thread from another one
    (``sys._current_frames``) crashes Python 3.11.7.
    """
    calls = 0
    above: FrameType | None = frame
    while above is not None:
        calls += above.f_code.co_name == name
        above = above.f_back
    if not calls:
        return None
    heading, ending = f" 0x{threading.get_ident():016x} ", f" in {name}"

    def is_running() -> bool:
        with tempfile.TemporaryFile() as dump:
            faulthandler.dump_traceback(dump, all_threads=True)
            dump.seek(0)
            stacks = dump.read().decode("ascii", "replace").split("\n\n")
        # A stack that is cut for its length, or not listed at all, may hold the call.
        mine = next((stack for stack in stacks if heading in stack), "..." if "..." in stacks[-1] else "")
        lines = mine.splitlines()
        return sum(line.endswith(ending) for line in lines) >= calls or any(line.strip() == "..." for line in lines)

    return is_running


class Observation:
    """Observes one measurement from its start to :meth:`end`. ``sample=None`` starts, wraps and traces nothing."""

    def __init__(self, sample: float | None, alarm: Alarm | None = None) -> None:
        self._sampler = None if sample is None else Sampler(sample, alarm=alarm)
        self._fetches: FetchClock | None = None
        self._method = "loop"
        self._undo: Callable[[], None] | None = None
        self._input_wait: InputWait | None = None
        self.trace: TensorFlowTrace | None = None
        """Traces steps where the wait is measured in that way."""

    def start(self, alive: Callable[[], bool] | None = None) -> None:
        """Begin to sample the machine, and nothing else, at most for as long as ``alive()`` is true."""
        if self._sampler is not None:
            self._sampler.alive = alive
            self._sampler.start()

    def begin(
        self,
        *,
        backend: str | None,
        frame: FrameType | None,
        waited_for: bool,
        alive: Callable[[], bool] | None = None,
    ) -> None:
        """Begin to observe the ``fit`` above ``frame``, or without a frame a training that runs while ``alive()``.

        ``waited_for`` states whether the end of every step is waited for.
        """
        if self._sampler is None:
            return
        if frame is None:
            self._fetches = FetchClock()
        elif backend == "tensorflow":
            self.trace = TensorFlowTrace() if waited_for else None
        elif waited_for:
            # Otherwise a device may compute while the next batch is fetched, and nothing waits for that batch.
            clock = FetchClock()
            self._undo = watch_iterator(clock, find_epoch_iterator(frame))
            if self._undo is not None:
                self._fetches, self._method = clock, "epoch iterator"
        self.start(alive if frame is None else watch_call(frame))

    def enter(self, phase: Phase) -> None:
        """Note that ``phase`` begins now."""
        if self._sampler is not None:
            self._sampler.enter(phase)
        if self._fetches is not None and phase not in ("first_step", "steady_steps"):
            self._fetches.pause()

    def watch(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The batches of a loop; fetching them is timed."""
        return iter(batches) if self._fetches is None else self._fetches.watch(batches)

    def time_fetches(self, owner: Any, first: str, last: str) -> None:
        """Time fetches that last from a call of ``first``, a function of ``owner``, to the end of ``last``."""
        if self._fetches is not None:
            self._undo = time_fetches(self._fetches, owner, first, last)
            self._method = "loop" if self._undo is None else "trainer"

    def fetcher(self) -> Callable[[Iterator[Any]], Any]:
        """A function that fetches the batches of an epoch from now on, timed where the wait is measured."""
        if self._fetches is None:
            return next
        self._fetches.pause()
        return self._fetches.fetch

    def end(self) -> None:
        """Stop observing; later calls change nothing."""
        if self._fetches is not None:
            self._input_wait, self._fetches = self._fetches.result(self._method), None
        if self._undo is not None:
            self._undo()
            self._undo = None  # it holds what was watched
        if self._sampler is not None:
            self._sampler.stop()

    @property
    def usage(self) -> Usage | None:
        """The usage of the machine until now; None if it was not sampled."""
        usage = None if self._sampler is None else self._sampler.usage()
        return usage if usage is not None and usage.phases else None

    @property
    def input_wait(self) -> InputWait | None:
        """How long steps waited for input; None until known."""
        return self._input_wait or (None if self.trace is None else self.trace.result)
