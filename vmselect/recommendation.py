"""From a model to a decision: :func:`recommend` describes a training, adds its records, and ranks all machines."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmselect._checks import check_count, maybe
from vmselect._io import default_folder
from vmselect.describing.huggingface import is_trainer
from vmselect.describing.inputs import DEFAULT_BATCH_SIZE, is_data_set
from vmselect.describing.tally import count_inputs
from vmselect.errors import ArgumentError, RankingError, VmselectError
from vmselect.findings import RecordsNotUsed
from vmselect.probe.description import describe
from vmselect.ranking import Ranking, rank
from vmselect.ranking.next_probe import UNKNOWN_SCRIPT
from vmselect.records import Profile, load_profiles
from vmselect.units import format_count

if TYPE_CHECKING:
    from vmselect.ranking.next_probe import NextProbe

SMALL_GIB = 0.5
"""GPU memory (GiB) below which the memory of a training is not stated in numbers: every GPU has it many times over."""
SOURCE = "git+https://github.com/vmselect/vmselect"
"""What pip installs on a rented machine."""
SKY_CLOUDS = frozenset({
    "aws", "azure", "gcp", "lambda", "runpod", "oci", "nebius", "paperspace", "fluidstack", "cudo", "ibm", "scp",
    "vast", "hyperbolic", "seeweb", "shadeform", "primeintellect", "yotta", "verda",
})  # fmt: skip
"""Clouds that SkyPilot rents machines from, as vmselect spells them."""


def recommend(
    model: Any,
    x: Any = None,
    y: Any = None,
    *,
    epochs: int | Sequence[int] | None = None,
    batch_size: int | None = None,
    examples: int | None = None,
    optimizer: Any = None,
    inputs: Any = None,
    validation_data: Any = None,
    records: str | os.PathLike[str] | Iterable[Profile] | None = None,
    machines: Any = "all",
    **arguments: Any,
) -> Ranking:
    """Rank all machines for the training of ``model``, without a GPU: from its description and from its records.

    ::

        vs.recommend(model, x, y, epochs=50, batch_size=256)

    Args:
        model: a Keras model, a torch module, or a model or configuration of Hugging Face; also a
            :class:`~vmselect.Profile`, such as the result of :func:`vmselect.describe`.
        x: the training data, from which ``examples`` and ``inputs`` are taken: arrays, or a data set or loader, which
            also has a batch size.
        y: the targets; not needed, so that a call of ``fit`` can be changed to this one.
        epochs: number of epochs of the training, or several.
        batch_size: number of examples per step, by default that of the data set, or 32 for arrays.
        examples: number of training examples in an epoch.
        optimizer: the optimizer or its name; by default that of a compiled Keras model.
        inputs: one batch of inputs, or their shapes without the batch size, if the model does not define them.
        validation_data: data of the validation after each epoch, from which its size is taken, as in ``fit``; a size
            alone is passed as ``workload=vmselect.Workload(validation_examples=...)``.
        records: records of the same training, by default those in the folder of the probes: they sharpen the answer.
        machines: machine types to rank, by default all of the catalog.
        arguments: further arguments of :func:`vmselect.rank`, such as ``deadline_hours``, ``region`` and ``provider``.

    >>> import keras
    >>> model = keras.Sequential([keras.Input((64, 64, 3)), keras.layers.Conv2D(64, 3), keras.layers.Flatten()])
    >>> ranking = recommend(model, batch_size=64, examples=50_000, epochs=5, optimizer="sgd", records=[])
    >>> ranking.best.basis
    'described'
    """
    if isinstance(model, Profile):
        described = model
    else:
        size, count = maybe(check_count, "batch_size", batch_size), maybe(check_count, "examples", examples)
        data = x if inputs is None else inputs
        # A data set, a loader and a Trainer have their own batch size; only arrays are divided into batches by fit.
        if size is None and not (is_data_set(data) or is_trainer(model)):
            size = DEFAULT_BATCH_SIZE
        if count is None and not is_data_set(x):
            count = _count_examples(x)
        shapes = _first_batch(x, size) if inputs is None and not is_data_set(x) else data
        described = describe(
            model, batch_size=size, examples=count, optimizer=optimizer, inputs=shapes, validation_data=validation_data
        )
    return rank_training(described, load_own(records), epochs=epochs, machines=machines, **arguments)


def rank_training(described: Profile, records: Sequence[Profile], **arguments: Any) -> Ranking:
    """Rank machines for a described training and those of the ``records`` that are of the same training.

    If those contradict the description, they are left out, with a finding.
    """
    same = [profile for profile in records if is_same_training(described, profile)]
    try:
        return rank([*same, described], **arguments)
    except RankingError as problem:
        # A record that contradicts the description must not hide the answer of the description.
        if not same:
            raise
        try:
            ranking = rank([described], **arguments)
        except VmselectError:
            raise problem from None
        verb = "is" if len(same) == 1 else "are"
        left_out = (
            f"{format_count(len(same), 'record')} of this training {verb} not used, and all times follow from its "
            f"description: {problem}"
        )
        remedy = "Move records of other data or of an earlier version of the script to another folder."
        return ranking.with_findings([RecordsNotUsed("records-not-used", left_out, remedy)])


def load_own(records: str | os.PathLike[str] | Iterable[Profile] | None) -> list[Profile]:
    """The records of trainings in a folder, by default that of the probes; an empty list if it does not exist."""
    if records is None:
        folder = Path(str(default_folder()))
        return list(load_profiles(folder)) if folder.is_dir() and any(folder.glob("*.json")) else []
    if isinstance(records, str | os.PathLike):
        return list(load_profiles(records))
    return list(records)


def is_same_training(described: Profile, profile: Profile) -> bool:
    """Whether ``profile`` measured the training that ``described`` describes: same structure and batch size."""
    if profile.id == described.id or profile.outcome == "described":
        return False
    ours, theirs = described.setup, profile.setup
    if profile.batch_size != described.batch_size:
        return False
    if ours.structure and theirs.structure:
        return ours.structure == theirs.structure
    return ours.model == theirs.model and ours.parameters == theirs.parameters


def newest_description(profiles: Iterable[Profile]) -> Profile:
    """The newest profile that describes its training; raises an error if there is none."""
    described = [profile for profile in profiles if profile.work is not None]
    if not described:
        raise ArgumentError(
            "No record describes its training. Pass a script (vmselect recommend train.py), or make a record with "
            "vmselect describe or vmselect probe."
        )
    return max(described, key=lambda profile: (profile.outcome == "described", profile.created))


def explain_memory(ranking: Ranking, described: Profile) -> str:
    """A line on the GPU memory that the batch needs, and how many machine types have too little."""
    from vmselect.prediction import estimate_memory

    try:
        memory = estimate_memory(described)
    except VmselectError:
        return ""
    peaks = memory[(memory["answer"] == "peak") & (memory["batch_size"] == described.batch_size)]
    if peaks.empty:
        return ""
    row = peaks.iloc[0]
    need = f"about {row['peak_gib']:.1f} GiB ({row['low_gib']:.1f} to {row['high_gib']:.1f})"
    if row["high_gib"] < SMALL_GIB:
        need = f"less than {SMALL_GIB} GiB"
    short = sum(entry.reason_code == "too_little_gpu_memory" for entry in ranking.excluded)
    fits = f"{format_count(short, 'machine')} with less were left out" if short else "it fits on all ranked machines"
    return f"Memory: batch {described.batch_size} needs {need} on a GPU; {fits}."


def probe_commands(probe: NextProbe, words: Sequence[str] = (UNKNOWN_SCRIPT,)) -> list[str]:
    """Commands that run a probe: on the machine of ``probe`` itself, and with SkyPilot if SkyPilot can rent it.

    ``words`` are the script to probe and its arguments, perhaps after ``-m``. SkyPilot rents on demand or on the spot
    market, as the price of the probe is.
    """
    from vmselect.sweeps.runners.skypilot import split_attached  # on use: runners take time to import

    program = shlex.join(words)
    own = f"vmselect probe --instance-type {shlex.quote(probe.instance_type)} {program}"
    commands = [f"pip install {SOURCE} && {own}"]
    if probe.provider in SKY_CLOUDS and probe.nodes == 1 and probe.market in ("on_demand", "spot"):
        machine, accelerators = split_attached(probe.instance_type)
        where = [
            "sky", "launch", "--down", "--workdir", ".", "--infra", f"{probe.provider}/{probe.region}",
            "--instance-type", machine, *(["--gpus", accelerators] if accelerators else []),
            *(["--use-spot"] if probe.market == "spot" else []),
        ]  # fmt: skip
        commands.append(f"{shlex.join(where)} {shlex.quote(commands[0])}")
    return commands


def _count_examples(x: Any) -> int | None:
    """Number of examples in an array, or in the arrays of a list, tuple or dict; None if it is not known."""
    count = count_inputs(x)
    return len(x) if count is None and isinstance(x, Sized) and not isinstance(x, dict | list | tuple) else count


def _first_batch(x: Any, size: int | None) -> Any:
    """The first batch of an array, or of each array in a list, tuple or dict; None if ``x`` is another kind of data."""
    if isinstance(x, dict):
        return {name: _first_batch(part, size) for name, part in x.items()}
    if isinstance(x, list | tuple):
        return [_first_batch(part, size) for part in x]
    return x[:size] if hasattr(x, "shape") and hasattr(x, "__getitem__") else None
