"""What is watched beside the clock while a training is recorded: the machine's use, and the wait for input.

``None`` for the interval turns all of it off: then nothing is started, wrapped or traced.
"""

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
from vmselect.probe.sampling import Alarm, Sampler

if TYPE_CHECKING:
    from vmselect.records.training import InputWait
    from vmselect.records.usage import Phase, Usage

SHORTEST_INTERVAL = 0.1


def check_sample(sample: Any, alarm: Any) -> tuple[float | None, Alarm | None]:
    """The interval in seconds, and the alarm that listens to the samples."""
    interval = maybe(check_number, "sample", sample, least=SHORTEST_INTERVAL, most=3600)
    if alarm is not None and not isinstance(alarm, Alarm):
        raise ArgumentError(f"alarm must be a vmselect.Alarm, not {show(alarm)}.")
    if alarm is not None and interval is None:
        raise ArgumentError("alarm= needs samples. Give sample= the seconds between two of them.")
    return interval, alarm


def watch_call(frame: FrameType, name: str = "fit") -> Callable[[], bool] | None:
    """A function that returns whether a call of ``name`` above ``frame`` goes on; None where there is no such call.

    Keras calls no hook when ``fit`` raises, and whatever keeps the exception (a notebook, a search over settings) keeps
    all objects of ``fit`` alive. The only sign left is that the thread's stack holds fewer such calls than now. The
    stack is read from the text of ``faulthandler``, because walking the frames of a running thread from another one
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

    def goes_on() -> bool:
        with tempfile.TemporaryFile() as dump:
            faulthandler.dump_traceback(dump, all_threads=True)
            dump.seek(0)
            stacks = dump.read().decode("ascii", "replace").split("\n\n")
        # A stack that is cut for its length, or not listed at all, may hold the call.
        mine = next((stack for stack in stacks if heading in stack), "..." if "..." in stacks[-1] else "")
        lines = mine.splitlines()
        return sum(line.endswith(ending) for line in lines) >= calls or any(line.strip() == "..." for line in lines)

    return goes_on


class Observation:
    """Watches one training from its start to :meth:`end`, which may come more than once."""

    def __init__(self, sample: float | None, alarm: Alarm | None = None) -> None:
        self._sampler = None if sample is None else Sampler(sample, alarm=alarm)
        self._fetches: FetchClock | None = None
        self._method = "loop"
        self._untime: Callable[[], None] | None = None
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
        """The training begins, in the ``fit`` above ``frame``; ``waited_for`` if the end of every step is waited for.

        Without a frame, ``alive()`` is true for as long as the training goes on.
        """
        if self._sampler is None:
            return
        if frame is None:
            self._fetches = FetchClock()
        elif backend == "tensorflow":
            self.trace = TensorFlowTrace() if waited_for else None
        elif waited_for:
            # Otherwise a device may be at work while the next batch is fetched, and nothing waits for that batch.
            clock = FetchClock()
            self._untime = watch_iterator(clock, find_epoch_iterator(frame))
            if self._untime is not None:
                self._fetches, self._method = clock, "epoch iterator"
        self.start(alive if frame is None else watch_call(frame))

    def enter(self, phase: Phase) -> None:
        """The training is in ``phase`` from now on."""
        if self._sampler is not None:
            self._sampler.enter(phase)
        if self._fetches is not None and phase not in ("first_step", "steady_steps"):
            self._fetches.pause()

    def watch(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The batches of a loop, fetched under the clock."""
        return iter(batches) if self._fetches is None else self._fetches.watch(batches)

    def time_fetches(self, owner: Any, first: str, last: str) -> None:
        """Have fetches timed that last from a call of ``first``, a function of ``owner``, to the end of ``last``."""
        if self._fetches is not None:
            self._untime = time_fetches(self._fetches, owner, first, last)
            self._method = "loop" if self._untime is None else "trainer"

    def fetcher(self) -> Callable[[Iterator[Any]], Any]:
        """What fetches the batches of an epoch from now on, under the clock where there is one."""
        if self._fetches is None:
            return next
        self._fetches.pause()
        return self._fetches.fetch

    def end(self) -> None:
        """Stop watching."""
        if self._fetches is not None:
            self._input_wait, self._fetches = self._fetches.result(self._method), None
        if self._untime is not None:
            self._untime()
            self._untime = None  # it holds what was watched
        if self._sampler is not None:
            self._sampler.stop()

    @property
    def usage(self) -> Usage | None:
        """What the machine has done until now; None if it was not sampled."""
        usage = None if self._sampler is None else self._sampler.usage()
        return usage if usage is not None and usage.phases else None

    @property
    def input_wait(self) -> InputWait | None:
        """How long steps waited for input; None until it is known."""
        return self._input_wait or (None if self.trace is None else self.trace.result)
