"""What every probe of trainings does: it holds one recording at a time, and keeps the profile of the last one."""

from __future__ import annotations

import os
import sys
from dataclasses import KW_ONLY, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from vmselect._checks import check_count, check_flag, check_seconds, maybe
from vmselect.errors import ProbeError
from vmselect.probe.ending import EndWatch, classify
from vmselect.probe.options import Factors, Metrics, Options, check_whole
from vmselect.probe.recording import Recording
from vmselect.probe.sampling import Alarm

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


@dataclass(eq=False, repr=False)
class CallbackProbe(Probe):
    """A probe that is passed to whatever trains: it may be copied, and serve several trainings in turn."""

    _way: ClassVar[str]
    """How to have something measured, in words."""

    path: str | os.PathLike[str] | None = None
    _: KW_ONLY
    stop: bool = True
    batch_size: int | None = None
    instance_type: str | None = None
    region: str | None = None
    metrics: Metrics | None = None
    factors: Factors | None = None
    sample: float | None = 1.0
    alarm: Alarm | None = None
    name: str | None = None
    protect_files: bool = True
    verbose: int = 1

    def __post_init__(self) -> None:
        self.stop = check_flag("stop", self.stop)
        self.protect_files = check_flag("protect_files", self.protect_files)
        self.options = Options.of(**{field.name: getattr(self, field.name) for field in fields(Options)})
        self.path = self.options.path
        self._reset()

    def _reset(self) -> None:
        self._recording = self._watch = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy is a fresh probe with the same settings: a recording belongs to one training in one process.
        return {name: value for name, value in self.__dict__.items() if name[0] != "_" or name == "_profile"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    @property
    def profile(self) -> Profile:
        """The :class:`~vmselect.Profile` of the last training; of one that has not come to its end, what was seen."""
        # No hook reports a failed training. An exception that is being handled is what ended it.
        if self._recording is not None and self._recording.saw_anything:
            return self._recording.snapshot(sys.exc_info()[1])
        if self._profile is None:
            raise ProbeError(f"Nothing has been measured yet. {self._way}")
        return self._profile

    @property
    def measured(self) -> bool:
        """Whether there is a profile."""
        return self._profile is not None or (self._recording is not None and self._recording.saw_anything)


@dataclass(eq=False, repr=False, kw_only=True)
class StepProbe(CallbackProbe):
    """A probe that cuts epochs short after a few steps."""

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
        check_whole(self.stop, seconds=self.seconds, steady_seconds=self.steady_seconds)
