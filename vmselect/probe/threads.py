"""Several threads at once, whose first error is raised by the one that waits for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence


def run_together(
    tasks: Sequence[Callable[[], None]], *, stop: threading.Event, name: str, patience: float | None = None
) -> None:
    """Run each task in a thread of its own, and wait for all of them.

    An error of any, or whatever ends the waiting, sets ``stop``, for which tasks are to look between two pieces of
    work. Those that are at work then are waited for, ``patience`` seconds each if that is a limit.

    >>> done = []
    >>> run_together([lambda: done.append("a"), lambda: done.append("b")], stop=threading.Event(), name="example")
    >>> sorted(done)
    ['a', 'b']
    """
    errors: list[BaseException] = []

    def run(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - kept, and raised again by the thread that waits
            errors.append(error)
            stop.set()

    threads = [
        threading.Thread(target=run, args=(task,), name=f"vmselect-{name}-{number}", daemon=True)
        for number, task in enumerate(tasks)
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        # Ctrl-C reaches the main thread only: the others finish what they are in, and no more.
        stop.set()
        for thread in threads:
            if thread.is_alive():
                thread.join(patience)
        raise
    if errors:
        raise errors[0]
