"""Base class of all records: writer, time, machine and varied factors.

A record is frozen, strictly validated and versioned. It contains raw readings instead of averages, so that a better
estimation method can be applied to an old file.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from vmselect import __version__
from vmselect._checks import check_name
from vmselect._io import Place
from vmselect.errors import ArgumentError
from vmselect.findings import Finding

Seconds = Annotated[float, Field(ge=0, le=1e10, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=2**62)]
PositiveCount = Annotated[int, Field(ge=1, le=2**62)]
Text = Annotated[str, StringConstraints(max_length=1_000)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Factor = bool | int | Number | Text
"""The value of a varied factor, for example a batch size or a backend."""

Moment = Annotated[datetime, AfterValidator(lambda moment: moment if moment.tzinfo else moment.replace(tzinfo=UTC))]
"""A date and time. A value without a time zone is taken as UTC."""


class Part(BaseModel):
    """Base of the parts of a record. They are frozen and strictly validated; unknown fields raise an error."""

    # Most commands read one kind of record: the validators of the others are never built.
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class Facts(Part):
    """Base of parts of a record to which later versions may add fields; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False, defer_build=True)


class Gpu(Facts):
    """One GPU as its driver reports it."""

    name: Text
    memory_bytes: Count | None = None
    driver: Text | None = None
    power_limit_watts: Annotated[float, Field(ge=0)] | None = None


class GpuMemory(Facts):
    """Details of the peak GPU memory of a training: how it was measured, and parts independent of the batch size."""

    source: Text
    """Counter that was read: ``torch``, ``jax`` or ``tensorflow``; or ``nvml``, which includes other programs."""
    reserved_bytes: Count | None = None
    """Peak memory that the allocator of torch reserved, including unused parts."""
    limit_bytes: Count | None = None
    """Memory of one GPU that the allocator of JAX may use."""
    weights_bytes: Count | None = None
    gradients_bytes: Count | None = None
    optimizer_bytes: Count | None = None


Parallelism = Literal["all_reduce", "data_parallel", "mirrored"]
"""How several GPUs train together. ``all_reduce``: a process per GPU, or a compiled program, sums the gradients in a
ring (torch DDP, Horovod, JAX). ``data_parallel``: torch's ``DataParallel``, in which one process copies the weights to
all GPUs in each step and collects the gradients. ``mirrored``: TensorFlow's ``MirroredStrategy``, a ring in one
process."""


class Environment(Facts):
    """Software and hardware of the machine that was measured."""

    backend: Text | None = None
    versions: Mapping[Text, Text] = Field(default_factory=dict, max_length=50)
    precision: Text | None = None
    tf32: bool | None = None
    """Whether torch multiplies matrices of float32 in TF32 on GPUs that have it; None for other frameworks."""
    convolution_tf32: bool | None = None
    """The same for convolutions and recurrent layers."""
    jit: bool | None = None
    dispatch: Literal["direct", "threaded"] | None = None
    """Whether Keras called ``on_train_batch_end`` directly or from worker threads."""
    step_timing: Literal["steps", "blocks"] | None = None
    """Whether single steps or blocks of steps were timed on the thread of ``fit``; None if the thread is unknown."""
    replicas: PositiveCount = 1
    parallelism: Parallelism | None = None
    worker_index: Count = 0
    workers: PositiveCount = 1
    workers_per_machine: PositiveCount | None = None
    notebook: bool = False
    operating_system: Text | None = None
    cpu_model: Text | None = None
    cpu_cores: PositiveCount | None = None
    usable_cores: PositiveCount | None = None
    memory_bytes: Count | None = None
    gpus: tuple[Gpu, ...] = Field(default=(), max_length=1_000)
    framework_gpus: Count | None = None
    peak_memory_bytes: Count | None = None
    peak_gpu_memory_bytes: Count | None = None
    gpu_memory: GpuMemory | None = None

    @property
    def smallest_gpu_bytes(self) -> int | None:
        """Memory in bytes of the machine's smallest GPU, as its driver reported it; None if unknown."""
        return min((gpu.memory_bytes for gpu in self.gpus if gpu.memory_bytes), default=None)


class Fact(Part):
    """Instance type, region or provider of the machine, and how it was determined (``source``)."""

    value: Name
    source: Literal["argument", "environment", "dmi", "metadata", "given"]


class Placement(Part):
    """Provider, region and instance type of the machine; None if unknown."""

    instance_type: Fact | None = None
    region: Fact | None = None
    provider: Fact | None = None

    @classmethod
    def given(
        cls, *, instance_type: str | None = None, region: str | None = None, provider: str | None = None
    ) -> Placement:
        """A placement from values that the user gives."""
        names = {"instance_type": instance_type, "region": region, "provider": provider}
        checked = {field: check_name(field, name) for field, name in names.items() if name is not None}
        return cls(**{field: Fact(value=name, source="given") for field, name in checked.items()})


NAME_THE_MACHINE = (
    "name the machine with `vmselect history label FILE --instance-type NAME`, or pass instance_type= to the probe"
)
"""What to do about a record without an instance type, for messages."""

UNKNOWN_INSTANCE_TYPE = Finding(
    "unknown-instance-type",
    "The instance type of this machine is unknown, so no price can be assigned to it.",
    "Run `vmselect history label FILE --instance-type NAME`. For later probes, pass instance_type= or set the "
    "environment variable VMSELECT_INSTANCE_TYPE.",
    "info",
)


def new_id() -> str:
    """A random ID for a new record."""
    return uuid.uuid4().hex


class Record(Part):
    """Base class of records. Copies of a record have the same ``id``. ``factors`` maps varied settings to values."""

    kind: str
    format: int
    id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")] = Field(default_factory=new_id)
    created: Moment = Field(default_factory=lambda: datetime.now(UTC))
    writer: Text = f"vmselect {__version__}"
    environment: Environment = Environment()
    placement: Placement = Placement()
    factors: Mapping[Name, Factor] = Field(default_factory=dict, max_length=100)

    @property
    def instance_type(self) -> str | None:
        """Instance type of the machine, or None if unknown."""
        return self.placement.instance_type.value if self.placement.instance_type else None

    @property
    def region(self) -> str | None:
        """Region of the machine, or None if unknown."""
        return self.placement.region.value if self.placement.region else None

    @property
    def provider(self) -> str | None:
        """Cloud provider of the machine (such as aws), or None if unknown."""
        return self.placement.provider.value if self.placement.provider else None

    def with_placement(
        self, *, instance_type: str | None = None, region: str | None = None, provider: str | None = None
    ) -> Self:
        """A copy of the record that names its machine. Arguments that are None leave that part as it is.

        The placement of the copy states that the user has given these values (source "given").

        >>> from vmselect import Profile
        >>> profile = Profile.from_times(batch_size=8, iteration_seconds=0.1)
        >>> named = profile.with_placement(instance_type="g4dn.xlarge")
        >>> named.instance_type, named.placement.instance_type.source, named.id == profile.id
        ('g4dn.xlarge', 'given', True)
        """
        with given_as("placement"):
            placement = Placement.given(instance_type=instance_type, region=region, provider=provider)
        facts = {name: fact for name in Placement.model_fields if (fact := getattr(placement, name)) is not None}
        return self.model_copy(update={"placement": self.placement.model_copy(update=facts)})

    def find_unknown_machine(self) -> list[Finding]:
        """A list with a finding if the instance type is unknown, otherwise an empty list."""
        return [] if self.instance_type else [UNKNOWN_INSTANCE_TYPE]

    @property
    def file_stem(self) -> str:
        """Start of the file name of this record, before its date."""
        return self.instance_type or "unknown"

    def to_json(self) -> str:
        """The record as indented JSON, with each list of plain values on one line."""
        text = self.model_dump_json(exclude_none=True, indent=1)
        # Line breaks stand only between values (inside strings JSON escapes them), so joining lines changes no value.
        return re.sub(r"\[\n[^\[\]{}]*\]", lambda columns: re.sub(r"\n\s*", " ", columns[0]), text) + "\n"

    def save(self, path: str | os.PathLike[str]) -> Place:
        """Write the record to the file ``path``, or to a new file in the folder ``path``; return the path of the file.

        The path may be a URL, such as ``s3://bucket/folder``. Readers never see an incomplete file.
        """
        from vmselect.records.files import save_record

        return save_record(self, path)


def describe_invalid(problem: Mapping[str, Any]) -> str:
    """Field name and message of a pydantic error."""
    field = ".".join(str(part) for part in problem["loc"]) or "the record"
    return f"field {field}: {problem['msg']}"


@contextmanager
def given_as(noun: str) -> Iterator[None]:
    """Context that turns a pydantic ValidationError into an ArgumentError about the record named ``noun``."""
    try:
        yield
    except ValidationError as invalid:
        problem = describe_invalid(invalid.errors(include_url=False)[0])
        raise ArgumentError(f"The arguments do not make a valid {noun}: {problem}. Correct the argument.") from None
