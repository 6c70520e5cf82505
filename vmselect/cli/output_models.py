# Models that are made from dataclasses are variables for mypy, not types.
# mypy: disable-error-code="valid-type,misc,call-overload"
"""Pydantic models of all JSON that commands print, and JSON Schemas of these models and of records.

A command prints plain dictionaries; tests validate real output against these schemas. A schema that changes needs a new
version in :data:`OUTPUTS`, or for records a new format. ``tests/support/write_schemas.py`` writes the files that ship.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, NamedTuple, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, create_model

from vmselect.catalog import Offer
from vmselect.catalog.refresh import Progress
from vmselect.comparison.output import ChangesOutput, ComparedOutput
from vmselect.estimation.runtime import TERMS
from vmselect.ranking.output import NextProbeOutput, RankingOutput
from vmselect.records.registry import KINDS
from vmselect.records.registry import REQUIRED as REQUIRED_IN_FILES
from vmselect.records.training import METHOD_TIMES, Outcome
from vmselect.scoring.output import ScoreOutput
from vmselect.sweeps.run import Cleaned

Severity = Literal["warning", "info"]
Numbers = dict[str, float]


class Output(BaseModel):
    """Base class of the models. Fields that a model does not define are errors."""

    model_config = ConfigDict(extra="forbid")


class Open(BaseModel):
    """Base class of models that accept further fields, such as one per factor."""

    model_config = ConfigDict(extra="allow")


def _model(source: type, /, **changes: Any) -> type[BaseModel]:
    """Return a model with the fields of the dataclass ``source``, all of them required, updated by ``changes``."""
    hints = get_type_hints(source)
    kinds = {one.name: hints[one.name] for one in fields(source)} | changes
    required: dict[str, Any] = {name: (kind, ...) for name, kind in kinds.items()}
    return create_model(source.__name__, __base__=Output, __doc__=_first_line(source), **required)


def _row(name: str, text: str, /, **kinds: Any) -> type[BaseModel]:
    """Return a model with the required fields ``kinds``, which maps names to types."""
    required: dict[str, Any] = {field: (kind, ...) for field, kind in kinds.items()}
    return create_model(name, __base__=Output, __doc__=text, **required)


def _first_line(source: type) -> str:
    return (inspect.getdoc(source) or "").partition("\n")[0]


# -- parts -------------------------------------------------------------------------------------------------------------


class Finding(Output):
    """A warning or information, with a remedy. Diagnoses also have ``evidence`` and ``bound`` (largest speed-up)."""

    code: str
    message: str
    remedy: str
    severity: Severity
    evidence: Numbers | None = None
    bound: str | None = None


class Spread(Output):
    """A value with the bounds of its interval."""

    value: float
    low: float
    high: float


# -- rows --------------------------------------------------------------------------------------------------------------

CheckRow = _row(
    "CheckRow", "A finding of a profile, or a profile without findings.",
    file=str, instance_type=str | None, batch_size=int | None, model=str | None, outcome=Outcome,
    severity=Literal["warning", "info", "fine"], code=str | None, message=str | None, remedy=str | None,
    **dict.fromkeys(METHOD_TIMES, float | None),
)  # fmt: skip


class _EstimateRow(Output):
    instance_type: str | None
    fit: int | str | None = None
    fits: int | None = None
    name: str | None = None
    batch_size: int | None
    model: str | None
    epochs: float | None
    seconds: float
    low: float
    high: float
    training: float | None
    initialization: float | None
    method: str
    repetitions: int | None


EstimateRow = create_model(
    "EstimateRow",
    __base__=_EstimateRow,
    __doc__="The time of a training on a machine, in seconds; with fields of fits and of terms if there are any.",
    **{name: (float | None, None) for name in TERMS if name not in _EstimateRow.model_fields},
)


class MemoryRow(Output):
    """Peak GPU memory at a batch size, or the largest batch size that fits a GPU type."""

    answer: Literal["peak", "largest"]
    model: str | None
    gpu_model: str | None
    gpu_memory_gib: float | None
    usable_gib: float | None
    batch_size: int | None
    peak_gib: float | None
    low_gib: float | None
    high_gib: float | None
    basis: str | None


Price = _row(
    "Price", _first_line(Offer),
    **{name: one.annotation for name, one in Offer.model_fields.items()}
    | dict.fromkeys(("service", "date", "gpu_model", "source", "note"), str | None),
)  # fmt: skip


class PriceChange(Output):
    """A price that differs between two catalogs."""

    change: Literal["new", "gone", "higher", "lower"]
    provider: str
    service: str | None
    instance_type: str
    region: str
    market: str
    old_usd_per_hour: float | None
    new_usd_per_hour: float | None
    percent: float | None
    old_date: str | None
    new_date: str | None


class HistoryRow(Output):
    """A record in a folder of records."""

    created: str | None
    kind: str
    instance_type: str | None
    gpu: str | None
    model: str | None
    batch_size: int | None
    precision: str | None
    outcome: str | None
    step_seconds: float | None
    total_seconds: float | None
    file: str


class Compaction(Output):
    """Result of ``vmselect history compact``: numbers of records and of Parquet files."""

    records: int
    added: int
    parts: int
    unreadable: int


class SchemaRow(Output):
    """A JSON Schema that ships with vmselect."""

    name: str
    version: int
    title: str


class PlannedTrial(Open):
    """A trial of a plan, with a field per factor."""

    trial: str
    repetition: int
    block: str
    instance_type: str | None
    nodes: int
    usd_per_hour: float
    estimated_usd: float
    worst_usd: float
    command: str


class TrialStatus(Open):
    """The state of a trial, with a field per factor."""

    trial: str
    status: str
    attempts: int
    seconds: float | None
    spent_usd: float
    records: int
    reason: str


class SweepEvent(Open):
    """An event of a running sweep; its further fields depend on the event."""

    event: str
    at: str


class SweepSummary(Output):
    """Summary of a sweep, which is printed as its last line."""

    event: Literal["summary"]
    folder: str
    records: int
    failed: list[str]
    skipped: list[str]
    unproved: list[str]
    spent_usd: float
    worst_usd: float
    sure: list[str]
    added: list[str]
    saved_usd: float
    saved_worst_usd: float
    not_started: list[str]
    url: str | None
    uncopied: dict[str, str]


class InferenceRow(Output):
    """A machine that serves a model under a load."""

    rank: int
    instance_type: str
    provider: str
    region: str
    market: str
    batch_size: int
    clients: int
    load: float | None
    instances: int
    items_per_second: float
    latency_seconds: float
    hourly_usd: float
    hourly_low: float
    hourly_high: float
    usd_per_million_items: float
    tied_with_best: bool


class TransferRow(Output):
    """Measured transfers to and from a store."""

    instance_type: str | None
    url: str
    files: int
    megabytes: float
    streams: int
    upload_seconds_per_mb: float | None
    download_seconds_per_mb: float | None
    first_upload_seconds: float | None
    first_download_seconds: float | None
    cost_usd: float | None


# -- schemas -----------------------------------------------------------------------------------------------------------


class Printed(NamedTuple):
    """One kind of JSON output: its version, its type, and the commands that print it."""

    version: int
    kind: Any
    commands: tuple[str, ...]


OUTPUTS: Mapping[str, Printed] = {
    "check": Printed(1, list[CheckRow], ("check",)),
    "compare": Printed(1, ComparedOutput | list[ComparedOutput], ("compare",)),
    "compare-before": Printed(1, ChangesOutput, ("compare --before",)),
    "estimate": Printed(1, list[EstimateRow], ("estimate",)),
    "estimate-memory": Printed(1, list[MemoryRow], ("estimate --memory",)),
    "history-compact": Printed(1, list[Compaction], ("history compact",)),
    "history-list": Printed(1, list[HistoryRow], ("history list",)),
    "next": Printed(1, list[NextProbeOutput], ("next",)),
    "prices": Printed(1, list[Price], ("prices show",)),
    "prices-check": Printed(1, list[PriceChange], ("prices check",)),
    "prices-refresh": Printed(1, list[_model(Progress)], ("prices refresh",)),
    "ranking": Printed(1, RankingOutput, ("rank", "select", "demo")),
    "schema": Printed(1, list[SchemaRow], ("schema",)),
    "score": Printed(1, ScoreOutput, ("score show",)),
    "serve-inference": Printed(1, list[InferenceRow], ("serve inference",)),
    "serve-transfer": Printed(1, list[TransferRow], ("serve transfer",)),
    "sweep-clean": Printed(1, list[_model(Cleaned)], ("sweep clean",)),
    "sweep-line": Printed(1, SweepSummary | SweepEvent, ("sweep run", "sweep resume")),
    "sweep-plan": Printed(1, list[PlannedTrial], ("sweep plan",)),
    "sweep-status": Printed(1, list[TrialStatus], ("sweep status",)),
}
"""Kinds of JSON that commands print with ``--format json``. A running sweep prints one JSON value per line."""


def schema_names() -> list[str]:
    """Return the names of all schemas: those of records, such as ``record-training``, and of outputs of commands."""
    return sorted([*(f"record-{kind}" for kind in KINDS), *OUTPUTS])


def generate_schema(name: str) -> dict[str, Any]:
    """Generate the JSON Schema ``name``, with its version in ``$id``."""
    version = schema_version(name)
    if name in OUTPUTS:
        used = ", ".join(f"vmselect {command}" for command in OUTPUTS[name].commands)
        model, title = OUTPUTS[name].kind, f"JSON output of {used}"
    else:
        kind = KINDS[name.removeprefix("record-")]
        model, title = kind.model, f"File of a {kind.noun}"
    schema = _shorten(TypeAdapter(model).json_schema(mode="validation"))
    if name not in OUTPUTS:
        del schema["properties"]["writer"]["default"]  # it contains the version of vmselect
        schema["required"] = sorted({*schema.get("required", ()), *REQUIRED_IN_FILES, "kind"})
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:vmselect:{name}:{version}"}
    return {**about, **schema, "title": title}


def _shorten(schema: Any) -> Any:
    """Return ``schema`` with only the first paragraph of each description, because docstrings also contain examples."""
    if isinstance(schema, dict):
        shortened = {key: _shorten(value) for key, value in schema.items()}
        if isinstance(text := schema.get("description"), str):
            shortened["description"] = " ".join(text.partition("\n\n")[0].split())
        return shortened
    return [_shorten(one) for one in schema] if isinstance(schema, list) else schema


def schema_file(name: str) -> str:
    """Return the name of the file that contains the current version of the schema ``name``."""
    return f"{name}-{schema_version(name)}.json"


def schema_version(name: str) -> int:
    """Return the current version of the schema ``name``; for a record, the number of its file format."""
    return OUTPUTS[name].version if name in OUTPUTS else KINDS[name.removeprefix("record-")].format
