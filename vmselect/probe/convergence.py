"""A callback for Keras ``model.fit`` that records after how many epochs a training converges."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from vmselect._checks import (
    check_choice,
    check_count,
    check_factors,
    check_flag,
    check_name,
    check_number,
    maybe,
    suggest_fields,
)
from vmselect._io import Folder, Place, Url
from vmselect.convergence import ConvergenceStudy
from vmselect.errors import ArgumentError, ProbeError, ProfileError
from vmselect.probe import environment
from vmselect.probe.facts import FitFacts
from vmselect.probe.keras import Logs, PlainCallback, read_fit
from vmselect.probe.options import Factors, RecordPath, check_record_path, check_target, choose_path, read_factors
from vmselect.probe.recording import warn_of
from vmselect.probe.sampling import Observation, check_sample, watch_call
from vmselect.records.convergence import ConvergenceRun, Curve, StoppingRule, as_logged
from vmselect.records.training import MAX_EPOCHS
from vmselect.records.usage import Usage
from vmselect.units import format_count

SAVE_EVERY_SECONDS = 2.0
"""Least time between two writes of the record of a running training. Its record survives an interruption."""


@suggest_fields
class ConvergenceProbe(PlainCallback):
    """Callback that records after how many epochs the monitored metric converges, without changing the training.

    A training has converged after the epoch at which ``keras.callbacks.EarlyStopping`` with the same arguments stops
    it. The probe passes the metrics to such a callback. With ``stop=True`` the training really stops at this epoch
    (and, with ``restore_best_weights=True``, its best weights are restored). Every training adds a run to the file or
    folder ``path``.

    ::

        watch = vs.ConvergenceProbe("study/", monitor="val_accuracy", patience=5)
        model.fit(x, y, batch_size=256, epochs=200, validation_data=val, callbacks=[watch])
        watch.epochs_to_stabilise

        study = vs.ConvergenceStudy.load("study/")

    >>> ConvergenceProbe(monitor="val_loss", patience=3).patience
    3
    """

    def __init__(
        self,
        path: RecordPath = None,
        *,
        monitor: str = "val_accuracy",
        patience: int = 5,
        min_delta: float = 0.0,
        mode: Literal["auto", "min", "max"] = "auto",
        start_from_epoch: int = 0,
        batch_size: int | None = None,
        stop: bool = False,
        restore_best_weights: bool = False,
        instance_type: str | None = None,
        factors: Factors | None = None,
        sample: float | None = 1.0,
        verbose: int = 0,
    ) -> None:
        self.path = check_record_path(path)
        self.monitor = check_name("monitor", monitor)
        self.patience = check_count("patience", patience, least=0)
        self.min_delta = check_number("min_delta", min_delta)
        self.mode = check_choice("mode", mode, ("auto", "min", "max"))
        self.start_from_epoch = check_count("start_from_epoch", start_from_epoch, least=0)
        self.batch_size = maybe(check_count, "batch_size", batch_size)
        self.stop = check_flag("stop", stop)
        self.restore_best_weights = check_flag("restore_best_weights", restore_best_weights)
        if self.restore_best_weights and not self.stop:
            raise ArgumentError(
                "restore_best_weights=True replaces the final weights of the model, but stop=False only records the "
                "training. Pass stop=True too, or omit restore_best_weights."
            )
        self.instance_type = maybe(check_name, "instance_type", instance_type)
        self.factors = check_factors("factors", factors)
        self.sample, _ = check_sample(sample, None)
        self.verbose = check_count("verbose", verbose, least=0)
        self.saved_to: Place | None = None
        self._watch = _Watch()

    @property
    def run(self) -> ConvergenceRun | None:
        """Record of the running or last training; None until the monitored metric is logged for the first time."""
        watch = self._watch
        if watch.direction is None or watch.batch_size is None:
            return None
        return ConvergenceRun(
            created=watch.created,
            batch_size=watch.batch_size,
            rule=StoppingRule(
                monitor=self.monitor,
                mode=watch.direction,
                patience=self.patience,
                min_delta=abs(self.min_delta),
                start_from_epoch=self.start_from_epoch,
            ),
            model=watch.model,
            parameters=watch.parameters,
            epochs_run=watch.epochs_run,
            stabilised_after=watch.stabilised_after,
            ended=watch.ended,
            curve=Curve.of(watch.curve),
            metrics={name: as_logged(value) for name, value in watch.metrics.items()},
            fit_seconds=watch.fit_seconds,
            instance_type=watch.instance_type,
            initial_epoch=watch.initial_epoch,
            usage=watch.usage,
        )

    @property
    def epochs_to_stabilise(self) -> int:
        """Number of epochs until early stopping would have ended the last training; all its epochs if it would not."""
        if not self._watch.epochs_run:
            raise ProbeError("Nothing has been recorded yet. Train with model.fit(..., callbacks=[probe]) first.")
        return self._watch.stabilised_after or self._watch.epochs_run

    @property
    def stabilised(self) -> bool:
        """Whether the last training converged, which means that early stopping would have ended it."""
        return self._watch.stabilised_after is not None

    def on_train_begin(self, logs: Logs = None) -> None:
        """Start recording a training. Called by Keras."""
        import keras

        self._watch.observation.end()  # an earlier training whose end was not reported
        target = choose_path(self.path)
        factors = read_factors(self.factors)
        check_target(target, "convergence")
        self._check_rule(target)
        self.saved_to = None
        frame = sys._getframe(1)
        facts = read_fit(frame)
        machine = environment.locate(instance_type=self.instance_type).instance_type
        early_stopping = keras.callbacks.EarlyStopping(
            monitor=self.monitor,
            patience=self.patience,
            min_delta=self.min_delta,
            mode=self.mode,
            start_from_epoch=self.start_from_epoch,
            restore_best_weights=self.restore_best_weights,
        )
        early_stopping.set_model(self._model if self.stop else _Unstoppable(self._model))
        early_stopping.on_train_begin()
        self._watch = _Watch(
            facts=facts,
            early_stopping=early_stopping,
            target=target,
            factors=factors,
            batch_size=self.batch_size or facts.batch_size,
            instance_type=machine.value if machine else None,
            is_chief=environment.read_worker(self._model)[0] == 0,
            observation=Observation(self.sample),
        )
        self._watch.observation.start(watch_call(frame))

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Record that the steps of an epoch begin. Called by Keras."""
        self._watch.observation.enter("steady_steps" if self._watch.epochs_run else "first_step")

    def on_test_begin(self, logs: Logs = None) -> None:
        """Record that a validation begins. Called by Keras."""
        self._watch.observation.enter("validation")

    def on_test_end(self, logs: Logs = None) -> None:
        """Record that a validation has ended. Called by Keras."""
        self._watch.observation.enter("boundary")

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Infer the batch size from the first step if it is unknown. Called by Keras."""
        watch = self._watch
        watch.observation.enter("steady_steps")
        if watch.batch_size is None and not watch.epochs_run and not watch.facts.threaded:
            examples = environment.count_examples(self._model)
            if examples is not None:
                watch.batch_size = max(1, examples // (batch + 1))

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Apply the stopping rule to the monitored metric, if it was logged in this epoch. Called by Keras."""
        logs, watch = logs or {}, self._watch
        watch.observation.enter("boundary")
        if watch.batch_size is None:
            raise ProbeError(
                "The batch size cannot be inferred from the data. Pass it with ConvergenceProbe(batch_size=...)."
            )
        if not watch.epochs_run:
            watch.initial_epoch = epoch
            watch.model = environment.name_model(self._model)
            watch.parameters = environment.count_parameters(self._model)
        watch.epochs_run, watch.fit_seconds = epoch + 1, time.perf_counter() - watch.clock
        value = logs.get(self.monitor)
        if value is None:
            self._check_absence(epoch, logs)
        elif len(watch.curve) < MAX_EPOCHS:
            watch.curve[epoch + 1] = float(value)
        if watch.stabilised_after is None:
            for name, logged in logs.items():
                with suppress(TypeError, ValueError):  # values that are not single numbers
                    watch.metrics[name] = float(logged)
            if value is not None:
                self._apply_rule(epoch, logs)
        if watch.stabilised_after == epoch + 1 or watch.fit_seconds >= watch.next_save:
            self._save_or_warn()

    def on_train_end(self, logs: Logs = None) -> None:
        """Complete and save the record of the training. Called by Keras."""
        watch = self._watch
        if watch.early_stopping is None:
            return
        watch.early_stopping.on_train_end()
        watch.observation.end()
        watch.ended, watch.fit_seconds = True, time.perf_counter() - watch.clock
        self._save_or_warn()
        # A file at a place that nobody named is announced.
        if self.path is None and self.saved_to is not None:
            recorded = format_count(watch.epochs_run, "epoch")
            sys.stdout.write(f"vmselect: recorded {recorded}; study in {self.saved_to}\n")
            sys.stdout.flush()
        self._watch, self._model = watch.without_training(), None

    def _apply_rule(self, epoch: int, logs: Mapping[str, Any]) -> None:
        watch, early_stopping = self._watch, self._watch.early_stopping
        try:
            early_stopping.on_epoch_end(epoch, logs)
        except ValueError as unknown:
            if early_stopping.monitor_op is not None:
                raise
            raise ProbeError(
                f"Keras cannot infer whether {self.monitor} should increase or decrease. "
                'Pass mode="max" or mode="min" to ConvergenceProbe.'
            ) from unknown
        watch.direction = "min" if bool(early_stopping.monitor_op(0.0, 1.0)) else "max"
        if 0 < early_stopping.stopped_epoch == epoch:
            watch.stabilised_after = epoch + 1
            if self.verbose:
                sys.stdout.write(f"vmselect: {self.monitor} converged after {epoch + 1} epochs\n")
                sys.stdout.flush()

    def _check_absence(self, epoch: int, logs: Mapping[str, Any]) -> None:
        """Raise an error if the monitored metric is not logged and no later validation can log it."""
        facts, epochs = self._watch.facts, self.params.get("epochs")
        validated = any(name.startswith("val_") for name in logs)
        will_validate = facts.has_validation is None or epochs is None or facts.validates_between(epoch + 1, epochs)
        may_come = self.monitor.startswith("val_") and will_validate and not validated
        if not self._watch.curve and not may_come:
            raise ProbeError(
                f"The training does not log {self.monitor!r}, but only: {', '.join(logs) or 'nothing'}. Pass a logged "
                "metric as monitor=, pass validation data (with a validation_freq of at most the number of epochs), or "
                "place the callback that logs the metric before the probe."
            )

    def _check_rule(self, target: Place | None) -> None:
        """Raise an error before the training if the study at ``target`` has another rule: it could not be saved."""
        for run in _runs_in(target) if target is not None else ():
            for name in ("monitor", "patience", "start_from_epoch", "min_delta"):
                own = abs(self.min_delta) if name == "min_delta" else getattr(self, name)
                if getattr(run.rule, name) != own:
                    raise ProfileError(
                        f"The runs in {target} have {name}={getattr(run.rule, name)!r}, but this training has {own!r}. "
                        "Pass another path, or the same stopping rule."
                    )

    def _save_or_warn(self) -> None:
        """Save the run. A failure, such as a full disk, must not cost the program the model that it trains."""
        watch = self._watch
        try:
            self._save()
        except (ProfileError, OSError) as problem:
            if not watch.warned or watch.ended:
                warn_of(problem)
            watch.warned = True
            watch.next_save = time.perf_counter() - watch.clock + SAVE_EVERY_SECONDS

    def _save(self) -> None:
        watch = self._watch
        target = self.saved_to or watch.target
        run = self.run if watch.is_chief and target is not None else None
        if run is None or target is None or (isinstance(target, Url) and not watch.ended):
            return  # a training does not wait for a network
        earlier = [other for other in _runs_in(target) if other.created != run.created]
        study = ConvergenceStudy.of([*earlier, run]).model_copy(update={"factors": watch.factors})
        self.saved_to = study.save(target)
        watch.next_save = time.perf_counter() - watch.clock + SAVE_EVERY_SECONDS

    def __getstate__(self) -> dict[str, Any]:
        # A copy does not refer to the running training.
        return self.__dict__ | {"_watch": self._watch.without_training(), "_model": None}


@dataclass
class _Watch:
    """What the probe has recorded of one training so far."""

    facts: FitFacts = field(default_factory=FitFacts)
    early_stopping: Any = None
    target: Place | None = None
    factors: Factors = field(default_factory=dict)
    batch_size: int | None = None
    instance_type: str | None = None
    is_chief: bool = True
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    clock: float = field(default_factory=time.perf_counter)
    fit_seconds: float = 0.0
    next_save: float = 0.0
    model: str | None = None
    parameters: int | None = None
    direction: Literal["min", "max"] | None = None
    curve: dict[int, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    initial_epoch: int = 0
    epochs_run: int = 0
    stabilised_after: int | None = None
    ended: bool = False
    warned: bool = False
    """Whether a line about a failed saving was printed."""
    observation: Observation = field(default_factory=lambda: Observation(None))
    kept_usage: Usage | None = None

    @property
    def usage(self) -> Usage | None:
        """Machine usage until now, or None if it was not sampled."""
        seen = self.observation.usage
        return self.kept_usage if seen is None else seen.summed_up()

    def without_training(self) -> _Watch:
        """Return a copy without references to objects of the training, such as its callbacks."""
        facts, observation = FitFacts(), Observation(None)
        return replace(self, facts=facts, observation=observation, early_stopping=None, kept_usage=self.usage)


class _Unstoppable:
    """Replacement for the model: early stopping sets its ``stop_training``, and the training continues."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.stop_training = False

    @property
    def metrics(self) -> Any:
        """Metrics of the model, from which early stopping infers whether a metric should increase or decrease."""
        return self._model.metrics


def _runs_in(path: Place) -> tuple[ConvergenceRun, ...]:
    """Return the runs that the file ``path`` contains; none if the file does not exist."""
    exists = path.is_record and Folder(path.parent).has(path.name) if isinstance(path, Url) else path.is_file()
    return ConvergenceStudy.load(path).runs if exists else ()
