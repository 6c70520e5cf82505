"""How trainings end: detection of their end, and its outcome.

Keras calls no callback when ``fit`` raises. An :class:`EndWatch` detects the end of a training in three ways:

* it wraps the function that executes a step, and so receives its exceptions;
* it waits for the deletion of Keras' callback list, which exists as long as ``fit`` runs, or for the exit of the
  interpreter;
* it handles SIGTERM, which by default ends a process at once.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from vmselect.records.training import Ending

EndOutcome = Literal["interrupted", "out_of_memory"]
OnEnd = Callable[[BaseException | None, "Ending | None"], None]
"""Function that is called with the exception that ended a training, or with None and what ended it from outside."""


class End(NamedTuple):
    """How a training ended before its time: the fields of its record."""

    outcome: EndOutcome
    detail: str | None = None
    ending: Ending | None = None


_MEMORY_ERRORS = {"ResourceExhaustedError", "OutOfMemoryError"}
_MEMORY_MESSAGE = re.compile("resource_exhausted|oom when allocating|out of memory|can('t|not) allocate memory", re.I)


class EndWatch:
    """Calls ``on_end`` once if a training ends before :meth:`stop` is called.

    ``anchor`` is an object that exists as long as the training runs; its deletion is taken as the end.
    """

    def __init__(self, on_end: OnEnd, *, anchor: object) -> None:
        self._on_end = on_end
        self._guards: list[tuple[weakref.ref[Any], str, Any, Any]] = []
        self._signal_set = self._over = False
        self._process = os.getpid()
        # If the anchor outlives the training, the exit of the interpreter ends the watch.
        self._finalizer = weakref.finalize(anchor, self._on_deletion)
        self._watch_signal()

    def guard(self, owner: Any, name: str) -> None:
        """Wrap the method ``name`` of ``owner``, so that an exception in it is detected as the end of the training."""
        function = vars(owner).get(name)
        if function is None or any(name == guard[1] for guard in self._guards):
            return

        def guarded(*arguments: Any, **options: Any) -> Any:
            try:
                return function(*arguments, **options)
            except BaseException as error:
                # Keras' loops over data end with one of these two exceptions.
                if not isinstance(error, StopIteration) and type(error).__name__ != "OutOfRangeError":
                    self._end(error)
                raise

        self._guards.append((weakref.ref(owner), name, function, guarded))
        setattr(owner, name, guarded)

    def release(self, name: str | None = None) -> None:
        """Replace the wrapped method ``name``, or all wrapped methods if it is None, by the original."""
        for guard in [guard for guard in self._guards if name in (None, guard[1])]:
            self._guards.remove(guard)
            reference, guarded_name, before, guarded = guard
            owner = reference()
            if owner is not None and vars(owner).get(guarded_name) is guarded:
                setattr(owner, guarded_name, before)

    def stop(self) -> None:
        """Stop watching. Called when the training has ended normally or its end has been detected."""
        self._over = True
        self.release()
        self._finalizer.detach()
        if self._signal_set and threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGTERM) == self._on_signal:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._signal_set = False

    def _end(self, error: BaseException | None, ending: Ending | None = None) -> None:
        self.stop()
        self._on_end(error, ending)

    def _on_deletion(self) -> None:
        if os.getpid() == self._process:  # otherwise a forked child exits, and the training continues
            self._end(sys.exc_info()[1] or getattr(sys, "last_value", None))

    def _watch_signal(self) -> None:
        # If the user has set a handler, it raises or exits, which is detected in the other two ways.
        if threading.current_thread() is not threading.main_thread():
            return
        handler = signal.getsignal(signal.SIGTERM)
        # A watch that was stopped in another thread could not restore the signal handler.
        left = getattr(handler, "__self__", None)
        if handler == signal.SIG_DFL or (isinstance(left, EndWatch) and left._over):
            signal.signal(signal.SIGTERM, self._on_signal)
            self._signal_set = True

    def _on_signal(self, number: int, _frame: Any) -> None:
        if os.getpid() == self._process:
            self._end(None, "terminated")
        else:  # a forked child inherits the handler, and has nothing to report
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # with the default action restored, end as without the probe


def release_data_before_exit() -> None:
    """Make TensorFlow's prefetching thread end before the interpreter exits.

    The thread prefetches from a Python dataset, even after a probe ended the epoch early. If it still runs at exit,
    thread and interpreter wait for each other forever. A garbage collection at exit deletes the iterator, which ends
    the thread.
    """
    if "tensorflow" in sys.modules:
        atexit.unregister(gc.collect)  # once is enough for any number of trainings
        atexit.register(gc.collect)


def classify(error: BaseException | None, ending: Ending | None = None) -> End:
    """Return how a training ended that the exception ``error`` ended, or ``ending`` from outside."""
    from vmselect.records.training import ENDING_DETAILS

    if error is None:
        return End("interrupted", None if ending is None else ENDING_DETAILS[ending], ending)
    if isinstance(error, KeyboardInterrupt):
        return End("interrupted", "KeyboardInterrupt: the user stopped it with Ctrl-C")
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # TensorFlow's message begins with "Graph execution error:" and mentions memory much later.
    relevant = next(filter(_MEMORY_MESSAGE.search, lines), lines[0] if lines else "")
    text = f"{type(error).__name__}: {relevant}" if relevant else type(error).__name__
    return End("out_of_memory" if is_out_of_memory(error) else "interrupted", text[:300])


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether ``error``, or the exception that caused it, states that host or device memory was exhausted."""
    if isinstance(error, MemoryError) or type(error).__name__ in _MEMORY_ERRORS:
        return True
    # XLA and torch raise plain runtime errors; only the message identifies them.
    technical = isinstance(error, RuntimeError) or type(error).__module__.startswith(("tensorflow", "jax", "torch"))
    if technical and _MEMORY_MESSAGE.search(str(error)):
        return True
    return error.__cause__ is not None and is_out_of_memory(error.__cause__)
