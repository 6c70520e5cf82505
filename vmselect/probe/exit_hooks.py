"""Detect the end of a training that Keras does not report: an exception, a kill.

Keras calls no hook when ``fit`` raises. The record that is written ahead outlives any end; what is here adds what was
the matter, and gives the record its final name while the process lives:

* the step functions are called through a guard, which sees memory run out at the moment when it does;
* the list of callbacks lives as long as ``fit`` does: when it dies, or the interpreter ends, ``fit`` is over;
* SIGTERM, which by default ends a process at once, is noted first and then ends the process.

And what a training that was cut in mid-epoch leaves behind is let go before the interpreter ends.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, Literal

EndOutcome = Literal["interrupted", "out_of_memory"]
Note = Callable[[BaseException | None, str | None], None]
"""Takes the exception that ended the training, where known, or else what is known of it."""

_MEMORY_ERRORS = {"ResourceExhaustedError", "OutOfMemoryError"}
_MEMORY_WORDS = (
    "resource_exhausted",
    "oom when allocating",
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
)


class EndWatch:
    """Calls ``note`` once when a training ends and no hook is called; :meth:`stop` ends the watch.

    ``anchor`` is something that lives as long as the training does.
    """

    def __init__(self, note: Note, *, anchor: object) -> None:
        self._note = note
        self._guards: list[tuple[weakref.ref[Any], str, Any, Any]] = []
        self._signal_set = self._over = False
        self._process = os.getpid()
        # Where nothing dies with the training, the end of the interpreter is the net that remains.
        self._finalizer = weakref.finalize(anchor, self._forgotten)
        self._watch_signal()

    def guard(self, owner: Any, name: str) -> None:
        """From now on, see the exceptions that this function of ``owner`` raises."""
        function = vars(owner).get(name)
        if function is None or any(name == guard[1] for guard in self._guards):
            return

        def guarded(*arguments: Any, **options: Any) -> Any:
            try:
                return function(*arguments, **options)
            except BaseException as error:
                # These two are how Keras' loops over data end.
                if not isinstance(error, StopIteration) and type(error).__name__ != "OutOfRangeError":
                    self._end(error, None)
                raise

        self._guards.append((weakref.ref(owner), name, function, guarded))
        setattr(owner, name, guarded)

    def release(self, name: str | None = None) -> None:
        """Put back what was guarded: the function ``name``, or all."""
        for guard in [guard for guard in self._guards if name in (None, guard[1])]:
            self._guards.remove(guard)
            reference, guarded_name, before, guarded = guard
            owner = reference()
            if owner is not None and vars(owner).get(guarded_name) is guarded:
                setattr(owner, guarded_name, before)

    def stop(self) -> None:
        """The training has ended as it should, or its end was noted."""
        self._over = True
        self.release()
        self._finalizer.detach()
        if self._signal_set and threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGTERM) == self._on_signal:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._signal_set = False

    def _end(self, error: BaseException | None, detail: str | None) -> None:
        self.stop()
        self._note(error, detail)

    def _forgotten(self) -> None:
        if os.getpid() != self._process:  # a child made by fork ends, and with it nothing of ours
            return
        error = sys.exc_info()[1] or getattr(sys, "last_value", None)
        self._end(error, None)

    def _watch_signal(self) -> None:
        # A handler of the user's own raises or exits in its way, which the other nets catch.
        if threading.current_thread() is not threading.main_thread():
            return
        handler = signal.getsignal(signal.SIGTERM)
        # A watch that was called off by another thread could not put the signal back.
        left = getattr(handler, "__self__", None)
        if handler == signal.SIG_DFL or (isinstance(left, EndWatch) and left._over):
            signal.signal(signal.SIGTERM, self._on_signal)
            self._signal_set = True

    def _on_signal(self, number: int, _frame: Any) -> None:
        if os.getpid() == self._process:
            self._end(None, "SIGTERM")
        else:  # a child made by fork has the handler too, and nothing to note
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # the default action is back in force: end as without the probe


def release_data_before_exit() -> None:
    """TensorFlow reads a Python data set ahead in a thread of its own, also when the epoch it reads for was left.

    If that thread is still at it when the interpreter ends, each waits for the other for ever: the process never exits.
    A collection while Python still runs lets the abandoned iterator, and with it the thread, end in order.
    """
    if "tensorflow" in sys.modules:
        atexit.unregister(gc.collect)  # once is enough, however many trainings were cut
        atexit.register(gc.collect)


def classify(error: BaseException | None, detail: str | None = None) -> tuple[EndOutcome, str | None]:
    """The outcome that ``error`` means, and one line about it."""
    if error is None:
        return "interrupted", detail
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # TensorFlow opens with "Graph execution error:" and comes to the point much later.
    relevant = next((line for line in lines if _mentions_memory(line)), lines[0] if lines else "")
    text = f"{type(error).__name__}: {relevant}" if relevant else type(error).__name__
    return ("out_of_memory" if is_out_of_memory(error) else "interrupted"), text[:300]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error``, or what it was raised from, reports that host or device memory ran out."""
    if isinstance(error, MemoryError) or type(error).__name__ in _MEMORY_ERRORS:
        return True
    # XLA and torch raise plain runtime errors; only the message identifies them.
    technical = isinstance(error, RuntimeError) or type(error).__module__.startswith(("tensorflow", "jax", "torch"))
    if technical and _mentions_memory(str(error)):
        return True
    return error.__cause__ is not None and is_out_of_memory(error.__cause__)


def _mentions_memory(text: str) -> bool:
    lowered = text.lower()
    return any(words in lowered for words in _MEMORY_WORDS)
