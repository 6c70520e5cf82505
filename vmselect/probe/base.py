"""What every probe of trainings does: it holds one recording at a time, and keeps the profile of the last one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from vmselect.errors import ProbeError
from vmselect.probe.ending import EndWatch, classify
from vmselect.probe.options import Options
from vmselect.probe.recording import Recording

if TYPE_CHECKING:
    from vmselect.records.training import Outcome, Profile


class Probe:
    """However a training is watched, this is how its recording ends."""

    _recording: Recording | None = None
    _watch: EndWatch | None = None
    _profile: Profile | None = None

    def _release(self) -> Recording | None:
        """Let go of the training: nothing of the probe's stays in it."""
        recording, watch = self._recording, self._watch
        self._recording = self._watch = None
        if watch is not None:
            watch.stop()
        return recording

    def _close(self, outcome: Outcome, detail: str | None = None) -> None:
        recording = self._release()
        if recording is not None:
            self._profile = recording.keep(outcome, detail) or self._profile

    def _end_early(self, error: BaseException | None, detail: str | None) -> None:
        self._close(*classify(error, detail))


class CallbackProbe(Probe):
    """A probe that is handed over to whatever trains: it may be copied, and serve several trainings in turn."""

    options: Options
    _way: ClassVar[str]
    """How to have something measured, in words."""

    def _reset(self) -> None:
        self._recording = self._watch = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy is a fresh probe with the same settings: a recording belongs to one training in one process.
        return {name: value for name, value in self.__dict__.items() if name[0] != "_" or name == "_profile"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    @property
    def path(self) -> Path | None:
        """Where the profile goes, as given."""
        return self.options.path

    @property
    def batch_size(self) -> int | None:
        """Examples per step, as given."""
        return self.options.batch_size

    @property
    def profile(self) -> Profile:
        """The :class:`~vmselect.Profile` of the last training; of one that has not come to its end, what was seen."""
        # Nobody says when a training has failed. An exception that is being handled is what ended it.
        if self._recording is not None and self._recording.saw_anything:
            return self._recording.snapshot(sys.exc_info()[1])
        if self._profile is None:
            raise ProbeError(f"Nothing has been measured yet. {self._way}")
        return self._profile

    @property
    def measured(self) -> bool:
        """Whether there is a profile."""
        return self._profile is not None or (self._recording is not None and self._recording.saw_anything)
