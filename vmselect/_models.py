"""Base of the pydantic models that are the JSON output of vmselect, and what several of them share.

A result is printed as its model, and the JSON Schemas are generated from the same models, so that output
and schema cannot differ. The models of a result are next to it (``ranking/output.py``), those of the rows
that a command prints in the module of the command.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Literal, Self, get_type_hints

from pydantic import BaseModel, ConfigDict, WithJsonSchema, create_model

from vmselect._checks import check_indent

Numbers = dict[str, float]
# A float field would print 50 epochs as 50.0.
Number = Annotated[int | float, WithJsonSchema({"type": "number"})]
"""A number that is printed as it is: whole or not."""


class Output(BaseModel):
    """A JSON object that is printed. Fields that the model does not define are errors."""

    # A command prints one of the models, so the others are never built.
    model_config = ConfigDict(extra="forbid", defer_build=True)

    @classmethod
    def of(cls, result: object, **values: object) -> Self:
        """The output of ``result``: its attributes with the names of the fields, except the fields in ``values``."""
        names = [name for name in cls.model_fields if name not in values and hasattr(result, name)]
        return cls(**{name: plain(getattr(result, name)) for name in names}, **values)

    def payload(self) -> dict[str, Any]:
        """The fields that were set, as plain values."""
        # A field that was not set, such as the name of a fit in a script with one fit, is absent instead of null.
        return self.model_dump(exclude_unset=True)

    def to_json(self, *, indent: int | None = None) -> str:
        """The fields that were set, as JSON text. NaN and infinity are errors, because JSON lacks them."""
        return json.dumps(self.payload(), indent=check_indent(indent), ensure_ascii=False, allow_nan=False)


class OpenOutput(Output):
    """A JSON object that may have further fields, such as one per factor."""

    model_config = ConfigDict(extra="allow", defer_build=True)


class FindingOutput(Output):
    """A warning or information, with a remedy. Diagnoses also have ``evidence`` and ``bound`` (largest speed-up)."""

    code: str
    message: str
    remedy: str
    severity: Literal["warning", "info"]
    evidence: Numbers | None = None
    bound: str | None = None


class Spread(Output):
    """A value with the bounds of its interval."""

    value: float
    low: float
    high: float


def plain(value: Any) -> Any:
    """``value`` as values that JSON can contain: a table as rows, an object as its fields, NaN and infinity as None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if is_dataclass(value):
        return plain(vars(value))
    if hasattr(value, "columns"):
        return [plain(row) for row in value.to_dict("records")]
    return plain(value.item()) if hasattr(value, "item") else value


def derive_model(source: type, name: str = "", /, **changes: Any) -> type[Output]:
    """A model with the fields of the dataclass ``source``, all of them required, with the types in ``changes``."""
    # A type that is replaced need not be known here: the module of ``source`` may import it for type checkers only.
    unchanged = {name: kind for name, kind in source.__annotations__.items() if name not in changes}
    hints = get_type_hints(type(source.__name__, (), {"__annotations__": unchanged, "__module__": source.__module__}))
    kinds = {field.name: hints.get(field.name) for field in fields(source)} | changes
    text = (inspect.getdoc(source) or "").partition("\n")[0]
    return make_model(name or source.__name__, text, **kinds)


def make_model(name: str, text: str, /, **kinds: Any) -> type[Output]:
    """A model with the required fields ``kinds``, which maps names to types."""
    required: dict[str, Any] = {field: (kind, ...) for field, kind in kinds.items()}
    return create_model(name, __base__=Output, __doc__=text, **required)
