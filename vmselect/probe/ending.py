"""How a training ends when Keras does not say so: an exception, a kill.

Keras calls no hook when ``fit`` raises. Four nets catch what can happen, none of which costs anything until then:

* the compiled step functions are called through a guard that sees every exception of a step, memory above all;
* the list of callbacks lives as long as ``fit`` does: when it dies, or the interpreter ends, ``fit`` is over;
* SIGTERM, which by default ends a process without a word, is noted first and then does what it did;
* whoever asks the probe for its profile asks whether ``fit`` still runs.
"""

from __future__ import annotations

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
_MEMORY_WORDS = ("resource_exhausted", "out of memory", "can't allocate memory", "cannot allocate memory")


class EndWatch:
    """Tells ``note`` once when a training ends without saying so; :meth:`stop` calls the watch off.

    ``anchor`` is something that lives as long as the training does.
    """

    def __init__(self, note: Note, *, anchor: object, model: Any = None) -> None:
        self._note = note
        self._model = model
        self._guarded: dict[str, tuple[Any, Any]] = {}
        self._signal_set = False
        # Where nothing dies with the training, the end of the interpreter is the net that remains.
        self._finalizer = weakref.finalize(anchor, self._forgotten)
        self._watch_signal()

    def guard(self, name: Literal["train_function", "test_function"]) -> None:
        """Call the model's step function through the guard from now on."""
        function = getattr(self._model, name, None)
        if function is None or name in self._guarded:
            return

        def guarded(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except StopIteration:  # how Keras' data loops end
                raise
            except BaseException as error:
                if not _is_end_of_data(error):
                    self._end(error, None)
                raise

        self._guarded[name] = (function, guarded)
        setattr(self._model, name, guarded)

    def release(self, name: Literal["train_function", "test_function"]) -> None:
        """Give the model its own step function back."""
        function, guarded = self._guarded.pop(name, (None, None))
        if guarded is not None and getattr(self._model, name, None) is guarded:
            setattr(self._model, name, function)

    def stop(self) -> None:
        """The training has ended as it should, or its end was noted."""
        self.release("train_function")
        self.release("test_function")
        self._finalizer.detach()
        if self._signal_set and threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGTERM) == self._on_signal:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._signal_set = False

    def _end(self, error: BaseException | None, detail: str | None) -> None:
        self.stop()
        self._note(error, detail)

    def _forgotten(self) -> None:
        error = sys.exc_info()[1] or getattr(sys, "last_value", None)
        self._end(error, None)

    def _watch_signal(self) -> None:
        # A handler of the user's own raises or exits in its way, which the other nets catch.
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_signal)
            self._signal_set = True

    def _on_signal(self, number: int, _frame: Any) -> None:
        self._end(None, "SIGTERM")
        os.kill(os.getpid(), number)  # the default action is back in force: end as without the probe


def classify(error: BaseException | None, detail: str | None = None) -> tuple[EndOutcome, str | None]:
    """The outcome that ``error`` means, and one line about it."""
    if error is None:
        return "interrupted", detail
    first_line = (str(error).strip().splitlines() or [""])[0]
    text = f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__
    return ("out_of_memory" if is_out_of_memory(error) else "interrupted"), text[:300]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error``, or what it was raised from, says that host or device memory ran out."""
    if isinstance(error, MemoryError) or type(error).__name__ in _MEMORY_ERRORS:
        return True
    # XLA and torch raise plain runtime errors; only their words tell.
    if isinstance(error, RuntimeError) or type(error).__module__.partition(".")[0] in ("tensorflow", "jax", "torch"):
        words = str(error).lower()
        if any(word in words for word in _MEMORY_WORDS):
            return True
    return error.__cause__ is not None and is_out_of_memory(error.__cause__)


def _is_end_of_data(error: BaseException) -> bool:
    return type(error).__name__ == "OutOfRangeError"
