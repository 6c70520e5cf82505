"""Validation of arguments: one function, with one error message, for each kind of value.

A number is a finite real number of Python or numpy, not a bool; a whole number may be written ``64.0``. Every check
returns the value as a plain Python type, or raises :class:`~vmselect.errors.ArgumentError`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

from vmselect.errors import ArgumentError

MAX_COUNT = 2**53
"""Larger whole numbers are not exact as floats."""

MAX_NAME = 200
MAX_TEXT = 1_000
MAX_FILE_NAME_BYTES = 255
"""Length of one name in a path, on common file systems."""

_HOST = re.compile(
    r"(?:[a-z0-9_][a-z0-9_.+-]*@)?"  # user
    r"(?:[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?\.?|[0-9a-f:]*:[0-9a-f:.]*(?:%[a-z0-9_.-]+)?)",  # name, or IPv6 address
    re.ASCII | re.IGNORECASE,
)

_URL_START = re.compile(r"(?:[A-Za-z0-9]+::)*[A-Za-z][A-Za-z0-9+.-]+:/")

Value = TypeVar("Value")


def show(value: object, *, longest: int = 60) -> str:
    """``value`` as text for a message: shortened, printable and on one line."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the repr of a caller's value may raise anything
        text = f"<{type(value).__name__}>"
    if not text.isprintable():
        text = text.encode("ascii", "backslashreplace").decode().replace("\n", " ")
    closing = text[-1] if text[:1] in ("'", '"') else ""
    return text if len(text) <= longest + 3 else f"{text[:longest]}...{closing}"


def is_number(value: object) -> bool:
    """Whether ``value`` is a finite number and not a bool."""
    if isinstance(value, bool) or type(value).__name__ == "bool" or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value)
    except (TypeError, ValueError, OverflowError):  # a whole number too large for a float
        return False


def check_count(name: str, value: Any, *, least: int = 1, most: int = MAX_COUNT) -> int:
    """``value`` as an int, if it is a whole number from ``least`` to ``most``."""
    if not is_number(value) or value != int(value) or not least <= value <= most:
        bounds = f"of at least {least}" if most == MAX_COUNT else f"from {least} to {most}"
        raise ArgumentError(f"{name} must be a whole number {bounds}, not {show(value)}.")
    return int(value)


def check_number(
    name: str, value: Any, *, least: float | None = None, most: float | None = None, above: float | None = None
) -> float:
    """``value`` as a float, if it is a finite number from ``least`` to ``most`` and greater than ``above``."""
    fits = is_number(value) and (least is None or value >= least) and (most is None or value <= most)
    if not fits or (above is not None and value <= above):
        parts = [
            f"above {above:g}" if above is not None else "",
            f"of at least {least:g}" if least is not None and most is None else "",
            f"from {least:g} to {most:g}" if least is not None and most is not None else "",
            f"of at most {most:g}" if least is None and most is not None else "",
        ]
        bounds = " and ".join(filter(None, parts))
        kind = f"number {bounds}" if bounds else "finite number"
        raise ArgumentError(f"{name} must be a {kind}, not {show(value)}.")
    return float(value)


def check_seconds(name: str, value: Any, *, above: float | None = None) -> float:
    """``value`` as a float, if it is a duration in seconds of at least 0 (greater than 0 with ``above=0``)."""
    return check_number(name, value, least=0 if above is None else None, above=above)


def check_share(name: str, value: Any, *, least: float = 0.0, most: float = 1.0) -> float:
    """``value`` as a float, if it is a fraction (such as a confidence) from ``least`` to ``most``."""
    return check_number(name, value, least=least, most=most)


def check_name(name: str, value: Any, *, longest: int = MAX_NAME) -> str:
    """``value`` without surrounding blanks, if it is a text of 1 to ``longest`` characters."""
    if not isinstance(value, str) or not value.strip() or len(value) > longest or not _is_encodable(value):
        raise ArgumentError(f"{name} must be a name of 1 to {longest} characters, not {show(value)}.")
    return value.strip()


def check_host(name: str, value: Any) -> str:
    """``value`` as an ssh host: a name, an alias or an address, optionally after ``user@``; never an option of ssh."""
    text = check_name(name, value)
    if not _HOST.fullmatch(text):
        raise ArgumentError(f"{name} must be a host name, an alias, an address or user@host, not {show(value)}.")
    return text


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """``value``, if it is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise ArgumentError(f"{name} must be one of {', '.join(choices)}, not {show(value)}.")
    return value


def check_flag(name: str, value: Any) -> bool:
    """``value`` as a bool, if it is True, False, 1 or 0 (of Python or numpy)."""
    if isinstance(value, bool) or (is_number(value) and value in (0, 1)) or type(value).__name__ == "bool":
        return bool(value)
    raise ArgumentError(f"{name} must be True or False, not {show(value)}.")


def check_path(name: str, value: Any) -> Path:
    """``value`` as a Path, if a file system accepts it."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if isinstance(text, str) and _URL_START.match(
        text
    ):  # a Path has lost one of the slashes; a URL may contain a secret
        raise ArgumentError(
            f"{name} is a URL where a local path is needed, or a URL that became a Path. "
            "Pass a local path; folders of records may be URLs, as text."
        )
    if isinstance(text, str) and text and "\0" not in text and _is_encodable(text):
        path = Path(text)
        if all(len(os.fsencode(part)) <= MAX_FILE_NAME_BYTES for part in path.parts):
            return path
    raise ArgumentError(f"{name} must be the path of a file or a folder, not {show(value)}.")


def _is_encodable(text: str) -> bool:
    """Whether ``text`` can be encoded as a file name. Undecodable bytes of a path can; other surrogates cannot."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def check_mapping(name: str, value: Any) -> dict[str, Any]:
    """``value`` as a dict, if it is a mapping whose keys are names."""
    if not isinstance(value, Mapping):
        raise ArgumentError(f"{name} must map names to values, not {show(value)}.")
    return {check_name(f"a name in {name}", key): item for key, item in value.items()}


def check_dataclass(name: str, value: Any, kind: type[Value]) -> Value:
    """``value``, if it is an instance of the dataclass ``kind``, or an instance made from a mapping of its fields."""
    if isinstance(value, kind):
        return value
    try:
        return kind(**check_mapping(name, value))
    except TypeError as wrong:
        names = ", ".join(field.name for field in fields(kind))  # type: ignore[arg-type]
        raise ArgumentError(f"{name} is invalid: {wrong}. Its fields are {names}.") from wrong


def check_factors(name: str, value: Any) -> dict[str, bool | int | float | str]:
    """``value`` as a dict of names to numbers, texts and bools; None gives an empty dict."""
    factors = check_mapping(name, {} if value is None else value)
    return {factor: _as_plain(f"{factor} in {name}", given) for factor, given in factors.items()}


def _as_plain(name: str, value: Any) -> bool | int | float | str:
    if isinstance(value, bool) or (isinstance(value, str) and len(value) <= MAX_TEXT and _is_encodable(value)):
        return value
    if not is_number(value):
        raise ArgumentError(f"{name} must be a number, a text, True or False, not {show(value)}.")
    return int(value) if value == int(value) and not isinstance(value, float) else float(value)


def check_callable(name: str, value: Any) -> Callable[..., Any]:
    """``value``, if it is callable."""
    if not callable(value):
        raise ArgumentError(f"{name} must be a function, not {show(value)}.")
    return value  # type: ignore[no-any-return]


def check_indent(value: Any) -> int | None:
    """The indent of JSON text, if it is None (all on one line) or 0 to 16 blanks."""
    return maybe(check_count, "indent", value, least=0, most=16)


def maybe(check: Callable[..., Value], name: str, value: Any, **bounds: Any) -> Value | None:
    """None if ``value`` is None, else the result of ``check``."""
    return None if value is None else check(name, value, **bounds)


def list_items(value: Any) -> list[Any]:
    """The items of ``value`` as a list; a list of ``value`` itself if it is not iterable."""
    if not isinstance(value, Iterable):
        return [value]
    try:
        return list(value)
    except TypeError:  # a numpy array without a dimension
        return [value]


def several(check: Callable[..., Value], name: str, value: Any, **bounds: Any) -> tuple[Value, ...]:
    """Check one value or each value of an iterable; return them without duplicates, in the order given."""
    items = [value] if isinstance(value, (str, bytes, Mapping)) else list_items(value)
    if not items:
        raise ArgumentError(f"{name} is empty. Give at least one value.")
    return tuple(dict.fromkeys(check(name, item, **bounds) for item in items))
