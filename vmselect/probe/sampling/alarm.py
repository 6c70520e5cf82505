"""An alarm while a training runs: raised once when the processors have been too busy for too long."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vmselect._checks import check_seconds, check_share, show
from vmselect.errors import ArgumentError
from vmselect.findings import Finding
from vmselect.units import format_seconds

if TYPE_CHECKING:
    from vmselect.records.usage import Limits


class Alarm:
    """Calls ``notify`` when the processors' use stays above ``cpu`` for ``seconds``; again only after it fell below.

    Args:
        notify: a function that takes the :class:`~vmselect.Finding`, or a command: a list of words, or a line that is
            split as a shell would, without being given to one. A command finds the text in the environment variable
            ``VMSELECT_ALARM``. It runs beside the training, which never waits for it and never fails with it.
        cpu: the share of the cores that the process may use, above which they are too busy. Where a container allows
            fewer cores' worth of time, of those.
        seconds: for how long they must be.

    >>> import vmselect as vs
    >>> probe = vs.IterationProbe("records/", stop=False, alarm=vs.Alarm(print, cpu=0.95, seconds=60))
    """

    def __init__(
        self, notify: Callable[[Finding], object] | str | Sequence[str], *, cpu: float = 0.9, seconds: float = 10.0
    ) -> None:
        self.cpu = check_share("cpu", cpu)
        self.seconds = check_seconds("seconds", seconds)
        self.notify = _check_notify(notify)
        self.reset()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_above_since": None, "_raised": False}

    def reset(self) -> None:
        """A training begins, and with it the clock: what was seen before is forgotten."""
        self._above_since: float | None = None
        self._raised = False

    def see(self, now: float, values: Mapping[str, float], limits: Limits | None = None) -> None:
        """A sample: the time since the start, what was read, and what the process may use."""
        share, who = values.get("usable_cpu_share"), "The processors have"
        allowed = None if limits is None else limits.container_cores
        if limits is not None and allowed is not None and (limits.cores is None or allowed < limits.cores):
            who = f"The container's {allowed:g} core{' has' if allowed == 1 else 's have'}"
            share = min(1.0, values["process_cores"] / allowed) if "process_cores" in values else None
        if share is None:
            return
        if share <= self.cpu:
            self._above_since, self._raised = None, False
            return
        if self._above_since is None:
            self._above_since = now
        if not self._raised and now - self._above_since >= self.seconds:
            self._raised = True
            self._raise(
                Finding(
                    "cpu-saturated",
                    f"{who} been more than {self.cpu:.0%} busy for {format_seconds(self.seconds)}, now {share:.0%}.",
                    "Use more cores, or give them less to do: fewer other programs, cheaper preprocessing.",
                    "info",
                )
            )

    def _raise(self, finding: Finding) -> None:
        # A thread of its own: neither the sampler nor the training waits for it.
        threading.Thread(target=_notify, args=(self.notify, finding), name="vmselect-alarm", daemon=True).start()


def _notify(notify: Callable[[Finding], object] | tuple[str, ...], finding: Finding) -> None:
    try:
        if callable(notify):
            notify(finding)
        else:
            environment = {**os.environ, "VMSELECT_ALARM": str(finding)}
            subprocess.run(notify, env=environment, stdin=subprocess.DEVNULL, check=False)
    except Exception as problem:  # noqa: BLE001 - the function is the caller's; the training must not end with it
        sys.stderr.write(f"vmselect: the alarm could not be given ({problem}): {finding}\n")


def _check_notify(notify: Any) -> Callable[[Finding], object] | tuple[str, ...]:
    if callable(notify):
        return notify  # type: ignore[no-any-return]
    try:
        words = shlex.split(notify) if isinstance(notify, str) else list(notify)
    except (TypeError, ValueError):
        words = []
    if not words or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise ArgumentError(f"notify must be a function or a command, not {show(notify)}.")
    return tuple(words)
