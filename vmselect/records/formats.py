"""The kinds of records, and the parser of record files of every kind and format version.

A new kind requires a module and a line in ``KINDS``. A changed format requires a new format number, an upgrade step,
a line in the history below, and a frozen file of the old format in ``tests/data``.
"""

# History of the formats. Fields that may be absent are added without a new number.
#
# training
#   1  one kind of record, without the field kind; no id
#   2  id; boundaries of epochs have before_validation_seconds
#   3  kind "training"; factors. The labels warmup and steady mean the same: the warm-up is detected from the
#      readings whenever a file is read
# convergence
#   1  no id
#   2  id
# inference, transfer, forecast, outcome
#   1

from __future__ import annotations

import functools
import hashlib
import json
import operator
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import Discriminator, TypeAdapter, ValidationError
from pydantic_core import from_json

from vmselect.errors import ProfileError
from vmselect.records import convergence, forecast, inference, training, transfer
from vmselect.records.base import Record, describe_invalid

REQUIRED = ("format", "id", "created", "writer")
"""Fields that have default values in a new record but must be present in a file."""

Data = dict[str, Any]
Upgrade = Callable[[Data], Data]


class Kind(NamedTuple):
    """One kind of record: its pydantic model, name, newest format, and upgrade steps from older formats."""

    model: type[Record]
    noun: str
    upgrades: Mapping[int, Upgrade] = {}
    remedy: str = "Load it with vmselect.load_records."

    @property
    def format(self) -> int:
        """The number of the format that this version writes."""
        return int(self.model.model_fields["format"].default)


def _identified(data: Data) -> Data:
    """Add an ID to a record of an old format without IDs. Copies of a file get the same ID."""
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    return {**data, "id": digest[:32]}


KINDS: Mapping[str, Kind] = {
    "training": Kind(
        training.Profile,
        "profile",
        {
            # Boundaries had no before_validation_seconds.
            1: lambda data: {**_identified(data), "format": 2},
            # There was one kind, and no factors.
            2: lambda data: {**(data if "id" in data else _identified(data)), "kind": "training", "format": 3},
        },
        "Load it with vmselect.load_profiles.",
    ),
    "convergence": Kind(
        convergence.ConvergenceRecord,
        "convergence study",
        {1: lambda data: {**_identified(data), "format": 2}},
        "Load it with vmselect.ConvergenceStudy.load, or give it to the command line as --study.",
    ),
    "inference": Kind(inference.InferenceRecord, "inference record"),
    "transfer": Kind(transfer.TransferRecord, "transfer record"),
    "forecast": Kind(forecast.Forecast, "forecast"),
    "outcome": Kind(forecast.OutcomeRecord, "outcome"),
}
"""The kinds of records by their name in the field ``kind`` of a file."""


def parse_record(text: bytes, *, source: str, kind: str | None = None) -> Record:
    """Parse the ``text`` of a file as a record of ``kind``, or of any kind if None. Errors name the file ``source``."""
    noun = KINDS[kind].noun if kind else "record"
    text = text.removeprefix(b"\xef\xbb\xbf")
    try:
        record = _adapter().validate_json(text)
    except ValidationError as invalid:
        record = _upgrade(text, invalid, source=source, noun=noun)
    missing = [name for name in REQUIRED if name not in record.model_fields_set]
    if missing:
        problem = "it has no format number" if "format" in missing else f"field {missing[0]} is missing"
        raise ProfileError(f"{source}: this file is not a {noun}: {problem}. Pass a file that vmselect wrote.")
    if kind is not None and record.kind != kind:
        other = KINDS[record.kind]
        raise ProfileError(f"{source}: this file is a {other.noun}, not a {noun}. {other.remedy}")
    return record


@functools.cache
def _adapter() -> TypeAdapter[Record]:
    union: Any = functools.reduce(operator.or_, [kind.model for kind in KINDS.values()])
    return TypeAdapter(Annotated[union, Discriminator("kind")])


def _upgrade(text: bytes, invalid: ValidationError, *, source: str, noun: str) -> Record:
    """Parse a record of an older format version. Raises ProfileError if the file is not a valid record."""
    try:
        data = from_json(text)
    except ValueError as broken:
        reason = (str(broken).splitlines() or [type(broken).__name__])[0][:200]
        raise ProfileError(
            f"{source}: this file is not a {noun}: {reason}. Restore the file, or probe again."
        ) from None
    if not isinstance(data, dict) or not isinstance(data.get("format"), int) or isinstance(data["format"], bool):
        raise ProfileError(
            f"{source}: this file is not a {noun}: it has no format number. Pass a file that vmselect wrote."
        )
    name = data.get("kind", "training")  # profiles of the first format have no kind
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ProfileError(
            f"{source}: this file is not a {noun}: this version of vmselect does not know the kind {str(name)[:60]!r}. "
            "Upgrade vmselect: pip install --upgrade vmselect"
        )
    number = data["format"]
    if number > kind.format:
        raise ProfileError(
            f"{source}: this {kind.noun} has format {number}, and this version of vmselect reads formats up to "
            f"{kind.format}. Upgrade vmselect: pip install --upgrade vmselect"
        )
    if number == kind.format:
        raise ProfileError(f"{source}: {_describe(invalid, kind.noun)}") from None
    for step in range(number, kind.format):
        if step not in kind.upgrades:
            raise ProfileError(f"{source}: a {kind.noun} has no format {step}. Pass a file that vmselect wrote.")
        data = kind.upgrades[step](data)
    try:
        return kind.model.model_validate_json(json.dumps(data))
    except ValidationError as remaining:
        raise ProfileError(f"{source}: {_describe(remaining, kind.noun)}") from None


def _describe(invalid: ValidationError, noun: str) -> str:
    errors = invalid.errors(include_url=False, include_input=False)
    where = errors[0]["loc"]  # begins with the kind
    first = {**errors[0], "loc": where[1:] if where and where[0] in KINDS else where}
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"this {noun} is invalid: {describe_invalid(first)}{more}. Correct the field or probe again."
