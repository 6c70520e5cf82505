"""Describes a training from the definition of its model: a profile without times, made without training."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any

from vmselect._checks import check_count, check_name, maybe, show, suggest_arguments
from vmselect.describing import huggingface
from vmselect.describing.inputs import read_batch, read_trainer
from vmselect.describing.tally import SECONDS
from vmselect.describing.validations import UNKNOWN_SIZE, ValidationSize, measure_validation
from vmselect.errors import ArgumentError, DescriptionError
from vmselect.probe import environment
from vmselect.probe.environment import Model, Optimizer
from vmselect.probe.facts import TrainingFacts
from vmselect.records.base import Environment, given_as
from vmselect.records.training import Profile, Setup, Timeline
from vmselect.records.work import Work

PROBE_SECONDS = 1.0
"""Longest time of a description that a probe makes after its measurement."""


@suggest_arguments()
def describe(
    model: Model,
    *,
    batch_size: int | None = None,
    examples: int | None = None,
    optimizer: str | Optimizer = None,
    inputs: Any = None,
    epochs: int | None = None,
    validation_data: Any = None,
    validation_examples: int | None = None,
    precision: str | None = None,
) -> Profile:
    """Describe a training from the definition of its ``model``, without training it and without a GPU.

    ::

        model = keras.applications.ResNet50(weights=None)
        training = vs.describe(model, batch_size=64, examples=50_000, optimizer="adam")
        vs.rank(training, epochs=50, machines="all")

    The result is a :class:`~vmselect.Profile` without times. Its field ``work`` contains the operations of one training
    step. The model is not changed.

    Args:
        model: a Keras model with any backend, a torch module, or a model, configuration or ``Trainer`` of Hugging Face.
            A configuration becomes a model without values, so that it may be larger than the memory of this machine.
        batch_size: number of examples per training step on one GPU; with gradient accumulation, per backward pass. By
            default that of the data loader in ``inputs``, or of the ``Trainer``.
        examples: number of training examples in an epoch, by default those of the data set in ``inputs``.
        optimizer: the optimizer or its name, such as "adam"; by default that of a compiled Keras model. One that is
            unknown counts like Adam.
        inputs: one batch of inputs, their shapes without the batch size, or a data set (``DataLoader``, ``tf.data``,
            ``PyDataset``); required if the model does not define them, as torch modules. For a torch module, the
            arguments of ``forward``: a list for several, a dict for named ones, such as ``{"input_ids": (512,)}``.
        epochs: number of epochs of the training.
        validation_data: data of the validation after each epoch, from which its size is taken: arrays, a data set or a
            loader; by default, those of the ``Trainer``, with its schedule of evaluations.
        validation_examples: number of validation examples, if the data do not state it; 0 for no validation.
        precision: such as "mixed_float16"; by default that of the model. That of ``torch.autocast`` is not seen.
    """
    validation, schedule = UNKNOWN_SIZE, huggingface.Schedule()
    validates = None if validation_data is None else True
    if huggingface.is_trainer(model):
        batch = read_trainer(model)
        settings = huggingface.read_settings(model, batch.examples if examples is None else examples)
        optimizer, precision = optimizer or settings.optimizer, precision or settings.precision
        epochs = settings.epochs if epochs is None else epochs
        if settings.schedule is not None:
            validation, schedule = settings.validation, settings.schedule
        validates = validates or settings.schedule is not None
        model = model.model
    else:
        batch = read_batch(inputs)
    batch_size = batch.batch_size if batch_size is None else batch_size
    if batch_size is None:
        raise ArgumentError("The batch size is unknown. Pass batch_size=, the number of examples per training step.")
    size = check_count("batch_size", batch_size)
    count = maybe(check_count, "examples", batch.examples if examples is None else examples)
    validated = maybe(check_count, "validation_examples", validation_examples, least=0)
    if validation_data is not None:
        validation = measure_validation(validation_data, batch_size=size)
    if validated is not None:
        validation, validates = ValidationSize(validated, math.ceil(validated / size)), validated > 0
    stated = maybe(check_name, "precision", precision)
    model = huggingface.build_model(model) if huggingface.is_config(model) else model
    work = count_work(model, batch_size=size, inputs=batch.inputs, optimizer=name_optimizer(optimizer, model))
    names = _read_names(model)
    with given_as("profile"):
        return Profile(
            outcome="described",
            setup=Setup(
                model=names.model_name,
                parameters=names.parameters or work.parameters + work.constants,
                structure=names.structure,
                batch_size=size,
                batch_size_source="given",
                steps_per_epoch=None if count is None else math.ceil(count / size),
                epochs=maybe(check_count, "epochs", epochs),
                examples=count,
                partial_batch=None if count is None else count % size,
                validation_examples=validation.examples,
                validation_steps=validation.steps or None,
                validation_batch_size=validation.batch_size if validation.batch_size != size else None,
                validates=validates,
                validation_freq=schedule.every,
                validations_per_epoch=None if math.isclose(schedule.per_epoch, 1) else schedule.per_epoch,
            ),
            timeline=Timeline(),
            environment=Environment(**_read_software(model, stated)),
            work=work,
        )


def count_work(
    model: Model, *, batch_size: int, inputs: Any = None, optimizer: str | None = None, seconds: float = SECONDS
) -> Work:
    """Count the operations of a training step of a Keras model or of a torch module, within ``seconds``."""
    if is_keras_model(model):
        from vmselect.describing.keras import describe_model

        return describe_model(model, batch_size=batch_size, inputs=inputs, optimizer=optimizer, seconds=seconds)
    if is_torch_module(model):
        from vmselect.describing.torch import describe_module

        return describe_module(model, batch_size=batch_size, inputs=inputs, optimizer=optimizer, seconds=seconds)
    raise ArgumentError(
        f"model is {_name_kind(model)}. Pass a Keras model, a torch module, or a model, configuration or Trainer of "
        "Hugging Face."
    )


def _name_kind(value: Any) -> str:
    return f"the class {value.__name__}, not one of its objects" if isinstance(value, type) else (
        f"of the type {type(value).__name__}"
    )  # fmt: skip


def count_after_training(
    model: Model,
    *,
    batch_size: int,
    optimizer: Optimizer = None,
    inputs: Any = None,
    data: Any = None,
    seconds: float = PROBE_SECONDS,
    continues: bool = False,
    on_problem: Callable[[Exception], object] = lambda problem: None,
) -> Work | None:
    """Count the operations of a training step after a measurement; None if that fails or takes longer than ``seconds``.

    Whatever the code of the model does when it is called with symbolic tensors: the training has been measured, and
    its program continues. ``on_problem`` is called with the reason of a failure. ``data`` are the shapes of the inputs,
    if the model leaves them open. If the training ``continues`` to its own end, nothing that takes long is imported.
    """
    try:
        if not is_keras_model(model):
            from vmselect.describing import torch

            if continues and not torch.is_warm():
                return None
            torch.warm_up()
        name = name_optimizer(optimizer, model)
        count = functools.partial(count_work, model, batch_size=batch_size, optimizer=name, seconds=seconds)
        try:
            return count(inputs=inputs)
        except DescriptionError:
            if data is None:
                raise
            return count(inputs=data)
    except Exception as problem:  # noqa: BLE001 - code of the user; a record without a description is complete
        on_problem(problem)
        return None


def _read_names(model: Model) -> TrainingFacts:
    """Name, size and structure of ``model``, as the probes write them: both records are of the same training."""
    facts = TrainingFacts()
    if is_keras_model(model):
        facts.model_name = environment.name_model(model)
        facts.parameters = environment.count_parameters(model)
        facts.structure = environment.describe_structure(model)
    else:
        facts.model_name = type(model).__name__
        weights = [(name, tuple(weight.shape), bool(weight.requires_grad)) for name, weight in model.named_parameters()]
        facts.describe_torch(weights, None, workers=1)
    return facts


def _read_software(model: Model, precision: str | None) -> dict[str, Any]:
    """Fields of the environment that describe the software. Those of the machine do not matter."""
    if is_keras_model(model):
        software = environment.read_framework(model)
    else:
        weight = next(model.parameters(), None)
        dtype = None if weight is None else str(weight.dtype).removeprefix("torch.")
        software = {
            "backend": "torch", "versions": environment.read_versions(), "precision": dtype,
            **environment.read_tf32("torch"),
        }  # fmt: skip
    return software if precision is None else software | {"precision": precision}


def is_torch_module(model: Any) -> bool:
    """Whether ``model`` is a module of torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def is_keras_model(model: Any) -> bool:
    """Whether ``model`` is a model of Keras 3."""
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(model, keras.Model)


def name_optimizer(optimizer: str | Optimizer, model: Model = None) -> str | None:
    """Name of an optimizer in lower case; SGD with momentum is ``momentum``. None if unknown."""
    if optimizer is None:
        optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return None
    if isinstance(optimizer, str):
        return check_name("optimizer", optimizer).lower()
    if isinstance(optimizer, bool | int | float | list | tuple | dict | set):
        raise ArgumentError(f'optimizer is {show(optimizer)}. Pass an optimizer or its name, such as "adam".')
    for wrapped in ("inner_optimizer", "_optimizer", "optimizer"):  # for scaled losses, and those of trainers
        inner = getattr(optimizer, wrapped, None)
        optimizer = inner if hasattr(inner, "param_groups") or (wrapped == "inner_optimizer" and inner) else optimizer
    name = (optimizer.__name__ if isinstance(optimizer, type) else type(optimizer).__name__).lower()
    groups = getattr(optimizer, "param_groups", None)
    momentum = groups[0].get("momentum") if groups else getattr(optimizer, "momentum", None)
    return "momentum" if name == "sgd" and momentum else name[:200]
