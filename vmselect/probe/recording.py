"""One training being recorded: its stopwatch, and every fact about it that goes into the profile."""

from __future__ import annotations

from datetime import UTC, datetime
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

from vmselect.probe.facts.process import in_notebook, take_initialization
from vmselect.probe.keras.fit import FitFacts, read_fit
from vmselect.probe.observation import Observation
from vmselect.probe.recorder.stopwatch import StepTimer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vmselect.probe.options import Factors
    from vmselect.probe.sampling import Alarm
    from vmselect.records.training import Outcome, Profile, Setup

Kind = Literal["iteration", "epoch", "loop"]


class Recording:
    """Starts the clock, then finds out all that can be known before the first step.

    Facts about machine and software are read at the start, off the clock, so that they are at hand however the
    training ends.
    """

    def __init__(
        self,
        kind: Kind,
        *,
        model: Any = None,
        params: Mapping[str, Any] | None = None,
        frame: FrameType | None = None,
        batch_size: int | None = None,
        instance_type: str | None = None,
        region: str | None = None,
        factors: Factors | None = None,
        sample: float | None = None,
        alarm: Alarm | None = None,
    ) -> None:
        self.init = take_initialization()
        self.timer = StepTimer()
        self.timer.start()
        with self.timer.leave_out():
            self.kind = kind
            self.model = model
            self.fit = read_fit(frame) if frame is not None else FitFacts()
            params = params or {}
            self.given_batch_size = batch_size
            self.factors = dict(factors or {})
            self.counted_batch_size: int | None = None
            self.steps: int | None = params.get("steps")
            self.epochs: int | None = params.get("epochs")
            self.initial_epoch: int | None = None
            self.steps_per_execution = max(1, int(getattr(model, "steps_per_execution", 1) or 1))
            self.counted_steps: int | None = None
            self.counted_examples: int | None = None
            self.validation_examples: int | None = None
            self._read_facts(instance_type, region)
            self.observation = Observation(sample, alarm)

    @property
    def is_chief(self) -> bool:
        """Whether this process may write and print: the first of the workers, or the only one."""
        return bool(self._environment["worker_index"] == 0)

    @property
    def workers(self) -> int:
        """Processes that train together."""
        return int(self._environment["workers"])

    @property
    def saw_anything(self) -> bool:
        """Whether any step or epoch has ended."""
        return bool(self.timer.steps or self.timer.epochs_ended)

    @property
    def batch_size(self) -> int | None:
        """Examples per step, as given, as the data says, or as counted."""
        return self.given_batch_size or self.fit.batch_size or self.counted_batch_size

    @property
    def steps_per_epoch(self) -> int | None:
        """Steps in a whole epoch, as announced or as counted in one."""
        return self.steps or self.counted_steps

    @property
    def examples(self) -> int | None:
        """Training examples in an epoch, where that can be known."""
        if self.counted_examples is not None:
            return self.counted_examples
        steps, batch_size = self.steps_per_epoch, self.fit.batch_size
        if steps is None or batch_size is None or self.fit.partial_batch is None:
            return None
        return steps * batch_size - (batch_size - self.fit.partial_batch if self.fit.partial_batch else 0)

    @property
    def partial_batch(self) -> int | None:
        """Examples in the smaller last batch; 0 for none, None for unknown."""
        if self.counted_examples is not None and self.batch_size and self.steps_per_epoch:
            missing = self.steps_per_epoch * self.batch_size - self.counted_examples
            if 0 <= missing < self.batch_size:
                return self.batch_size - missing if missing else 0
        return self.fit.partial_batch

    def build(
        self, outcome: Outcome, *, detail: str | None = None, metrics: Mapping[str, float] | None = None
    ) -> Profile:
        """The profile of what was seen until now."""
        from vmselect.probe.facts.framework import read_peak_gpu_memory
        from vmselect.probe.facts.hardware import read_peak_memory
        from vmselect.probe.recorder.timeline import build_timeline
        from vmselect.records.base import Environment
        from vmselect.records.training import Profile

        return Profile(
            created=datetime.now(UTC),
            probe=self.kind,
            outcome=outcome,
            detail=detail,
            setup=self._build_setup(),
            timeline=build_timeline(
                self.timer,
                init=self.init,
                partial_batch=self.partial_batch,
                watched=outcome == "watched",
                input_wait=self.observation.input_wait,
            ),
            environment=Environment(
                **self._environment,
                peak_memory_bytes=read_peak_memory(),
                peak_gpu_memory_bytes=read_peak_gpu_memory(),
            ),
            placement=self._placement,
            factors=self.factors,
            usage=self.observation.usage,
            metrics=dict(metrics or {}),
        )

    def _build_setup(self) -> Setup:
        from vmselect.records.training import Setup

        source: Literal["argument", "data"] | None = "argument" if self.given_batch_size else "data"
        frequency = self.fit.validation_freq
        return Setup(
            model=self.model_name,
            parameters=self._parameters,
            batch_size=self.batch_size,
            batch_size_source=source if self.batch_size else None,
            steps_per_epoch=self.steps_per_epoch,
            steps_per_execution=self.steps_per_execution,
            epochs=self.epochs,
            initial_epoch=self.initial_epoch or 0,
            examples=self.examples,
            partial_batch=self.partial_batch,
            validation_examples=self.validation_examples,
            validation_steps=self.fit.validation_steps,
            validation_freq=frequency if isinstance(frequency, int) and frequency > 0 else 1,
            self_tuning_input=self.fit.self_tuning_input,
        )

    def observe(self, frame: FrameType | None = None) -> None:
        """Begin to watch what is not time, in the ``fit`` above ``frame``; whoever calls this ends the observation."""
        environment = self._environment
        # Without a hook at each batch nobody waits for a step's end; but on the CPU torch has done all when it returns.
        synchronous = environment["backend"] == "torch" and not environment["framework_gpus"]
        self.observation.begin(
            backend=environment["backend"], frame=frame, waited_for=self.kind != "epoch" or synchronous
        )
        self.timer.enter = self.observation.enter

    def _read_facts(self, instance_type: str | None, region: str | None) -> None:
        from vmselect.probe.facts.framework import count_parameters, name_model, read_framework
        from vmselect.probe.facts.hardware import read_machine
        from vmselect.probe.facts.placement import locate

        self._environment: dict[str, Any] = {
            **read_framework(self.model),
            **read_machine(),
            "notebook": in_notebook(),
            "dispatch": None if self.model is None else "threaded" if self.fit.threaded else "direct",
        }
        self._placement = locate(instance_type=instance_type, region=region)
        self.model_name = name_model(self.model)
        self._parameters = count_parameters(self.model)
