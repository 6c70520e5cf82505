"""Models of Hugging Face from their configurations, built on the meta device: without weights, and without memory."""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple, TypeAlias

from vmselect.describing.precisions import MIXED_PRECISIONS
from vmselect.describing.validations import UNKNOWN_SIZE, ValidationSize, add_sizes, measure_validation
from vmselect.errors import DescriptionError

Config: TypeAlias = Any
Module: TypeAlias = Any

BUILDERS = (
    ("AutoModelForSpeechSeq2Seq", "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING"),
    ("AutoModelForCTC", "MODEL_FOR_CTC_MAPPING"),
    ("AutoModelForZeroShotImageClassification", "MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING"),
    ("AutoModelForImageTextToText", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING"),
    ("AutoModelForObjectDetection", "MODEL_FOR_OBJECT_DETECTION_MAPPING"),
    ("AutoModelForSeq2SeqLM", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING"),
    ("AutoModelForImageClassification", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING"),
    ("AutoModelForMaskedLM", "MODEL_FOR_MASKED_LM_MAPPING"),
    ("AutoModelForCausalLM", "MODEL_FOR_CAUSAL_LM_MAPPING"),
)
"""Classes that build a model with a head for its usual training, and the configurations that each of them takes.

The first one that takes a configuration is used: a part of a model for speech is also one for text."""


def is_config(value: Any) -> bool:
    """Whether ``value`` is a configuration of a Hugging Face model."""
    module = sys.modules.get("transformers.configuration_utils")
    kinds = [getattr(module, name, None) for name in ("PreTrainedConfig", "PretrainedConfig")]
    return any(kind is not None and isinstance(value, kind) for kind in kinds)


class Settings(NamedTuple):
    """What a ``Trainer`` and its arguments say about a training; None if unknown."""

    optimizer: Any
    """The optimizer, if there is one already, else its name."""
    precision: str | None
    epochs: int | None
    validation: ValidationSize = UNKNOWN_SIZE
    """Size of an evaluation."""
    schedule: Schedule | None = None
    """When it is evaluated; None if never."""


class Schedule(NamedTuple):
    """Evaluations after every ``every`` epochs, ``per_epoch`` in each of these epochs."""

    every: int = 1
    per_epoch: float = 1.0

    @classmethod
    def of(cls, often: float) -> Schedule:
        """The schedule of ``often`` evaluations per epoch; a profile stores whole epochs between evaluations.

        >>> Schedule.of(2.5), Schedule.of(0.5)
        (Schedule(every=1, per_epoch=2.5), Schedule(every=2, per_epoch=1.0))
        """
        every = max(1, round(1 / often))
        return cls(every, often * every)


def is_trainer(value: Any) -> bool:
    """Whether ``value`` is a ``Trainer`` of Hugging Face."""
    kind = getattr(sys.modules.get("transformers.trainer"), "Trainer", None)
    return kind is not None and isinstance(value, kind)


def read_settings(trainer: Any, examples: int | None = None) -> Settings:
    """Settings of a ``Trainer`` before its training on ``examples`` examples."""
    arguments = trainer.args
    named = str(getattr(arguments.optim, "value", arguments.optim)).partition("_")[0]
    epochs, limited = float(arguments.num_train_epochs), arguments.max_steps > 0
    return Settings(
        named if trainer.optimizer is None else trainer.optimizer,
        read_precision(arguments),
        int(epochs) if epochs.is_integer() and epochs >= 1 and not limited else None,
        measure_evaluation(trainer),
        _read_schedule(arguments, examples),
    )


def measure_evaluation(trainer: Any) -> ValidationSize:
    """Size of an evaluation of a ``Trainer``, on one data set or on each of a dict of them."""
    data, size = getattr(trainer, "eval_dataset", None), getattr(trainer.args, "eval_batch_size", None)
    sets = data.values() if isinstance(data, dict) else () if data is None else (data,)
    return add_sizes(measure_validation(part, batch_size=size) for part in sets)


def name_strategy(strategy: object) -> str:
    """The word for when a ``Trainer`` evaluates or saves: "no", "epoch" or "steps"."""
    return str(getattr(strategy, "value", strategy))


def _read_schedule(arguments: Any, examples: int | None) -> Schedule | None:
    """When the ``arguments`` evaluate during a training, before it has begun."""
    strategy, size = name_strategy(arguments.eval_strategy), arguments.train_batch_size
    if strategy not in ("steps", "epoch"):
        return None
    interval = arguments.eval_steps
    if strategy == "epoch" or not (interval and examples):
        return Schedule()
    updates = math.ceil(math.ceil(examples / size) / arguments.gradient_accumulation_steps)
    if interval < 1:  # a share of the whole training
        interval *= arguments.max_steps if arguments.max_steps > 0 else updates * arguments.num_train_epochs
    return Schedule.of(updates / max(1.0, math.ceil(interval)))


def read_precision(arguments: Any) -> str | None:
    """Mixed precision that the arguments of a ``Trainer`` ask for; None if they do not."""
    return next((MIXED_PRECISIONS[name] for name in ("bf16", "fp16") if getattr(arguments, name, False)), None)


def build_model(config: Config) -> Module:
    """The model of ``config`` on the meta device: its architecture, or the usual one for its kind."""
    import torch

    transformers: Any = sys.modules["transformers"]
    named = next(iter(getattr(config, "architectures", None) or ()), None)
    kind = getattr(transformers, named, None) if isinstance(named, str) else None
    state = torch.get_rng_state()
    try:
        with torch.device("meta"):
            if isinstance(kind, type) and issubclass(kind, torch.nn.Module):
                return kind(config)
            for name, mapping in BUILDERS:
                if type(config) in getattr(transformers, mapping, {}):
                    return getattr(transformers, name).from_config(config)
            return transformers.AutoModel.from_config(config)
    except Exception as problem:  # noqa: BLE001 - whatever a model makes of a configuration of another one
        raise DescriptionError(
            f"The configuration {type(config).__name__} makes no model ({type(problem).__name__}: {problem}). "
            "Pass a model instead."
        ) from None
    finally:
        torch.set_rng_state(state)


RANDOM_PARTS = ("layerdrop", "encoder_layerdrop", "decoder_layerdrop")
"""Settings with the probability that a layer is left out in a step."""


def steady(module: Module) -> None:
    """Make a copy of a model compute all of its layers in every step, without random masks of its inputs."""
    for part in module.modules():
        config: Any = getattr(part, "config", None)
        for name in RANDOM_PARTS:
            if isinstance(getattr(config, name, None), float):
                setattr(config, name, 0.0)
        if getattr(config, "apply_spec_augment", None) is True:
            config.apply_spec_augment = False
