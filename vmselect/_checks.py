"""Validation of arguments: one function, with one error message, for each kind of value.

Every ``check_`` function gets the ``name`` of an argument, for the error message, and its ``value``. It returns the
value as a plain Python type, or raises :class:`~vmselect.errors.ArgumentError`. A number is a finite real number of
Python or numpy, not a bool; a whole number may be written as ``64.0``.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from numbers import Real
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from vmselect.errors import ArgumentError

MAX_COUNT = 2**53
"""Largest whole number that is accepted: floats represent all whole numbers up to this one exactly."""

MAX_NAME = 200
MAX_TEXT = 1_000
MAX_FILE_NAME_BYTES = 255
"""Largest number of bytes in the name of a file or folder on common file systems."""

_HOST = re.compile(
    r"(?:[a-z0-9_][a-z0-9_.+-]*@)?"  # user
    r"(?:[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?\.?|[0-9a-f:]*:[0-9a-f:.]*(?:%[a-z0-9_.-]+)?)",  # name, or IPv6 address
    re.ASCII | re.IGNORECASE,
)

_URL_START = re.compile(r"(?:[A-Za-z0-9]+::)*[A-Za-z][A-Za-z0-9+.-]+:/")

Value = TypeVar("Value")
Function = TypeVar("Function", bound=Callable[..., Any])


def show(value: object, *, longest: int = 60) -> str:
    """Return the repr of ``value`` for a message: on one line, printable, cut after ``longest`` characters."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the repr of a caller's value may raise anything
        text = f"<{type(value).__name__}>"
    if not text.isprintable():
        text = text.encode("ascii", "backslashreplace").decode().replace("\n", " ")
    closing = text[-1] if text[:1] in ("'", '"') else ""
    return text if len(text) <= longest + 3 else f"{text[:longest]}...{closing}"


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether ``value`` is a finite number and not a bool."""
    # A bool is a Real in Python, but True for a number is a mistake of the caller. numpy's bool is no Real.
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value)
    # OverflowError: a whole number too large for a float. TypeError and ValueError: a Real class of another package
    # may refuse to become a float.
    except (TypeError, ValueError, OverflowError):
        return False


def check_count(name: str, value: Any, *, least: int = 1, most: int = MAX_COUNT) -> int:
    """Return ``value`` as an int. Raise an error unless it is a whole number from ``least`` to ``most``."""
    if not is_number(value) or value != int(value) or not least <= value <= most:
        bounds = f"of at least {least}" if most == MAX_COUNT else f"from {least} to {most}"
        raise ArgumentError(f"{name} must be a whole number {bounds}, not {show(value)}.")
    return int(value)


def check_number(
    name: str, value: Any, *, least: float | None = None, most: float | None = None, above: float | None = None
) -> float:
    """Return ``value`` as a float. Raise an error unless it is in ``least`` to ``most`` and greater than ``above``."""
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
    """Return a duration in seconds as a float. Raise an error if it is negative, or not greater than ``above``."""
    return check_number(name, value, least=0 if above is None else None, above=above)


def check_share(name: str, value: Any, *, least: float = 0.0, most: float = 1.0) -> float:
    """Return a fraction, such as 0.9, as a float. Raise an error unless it is from ``least`` to ``most``."""
    return check_number(name, value, least=least, most=most)


def check_name(name: str, value: Any, *, longest: int = MAX_NAME) -> str:
    """Return a text without surrounding blanks. Raise an error unless it has 1 to ``longest`` characters."""
    if not isinstance(value, str) or not value.strip() or len(value) > longest or not _is_encodable(value):
        raise ArgumentError(f"{name} must be a name of 1 to {longest} characters, not {show(value)}.")
    return value.strip()


def check_host(name: str, value: Any) -> str:
    """Return a host for ssh: a name, an alias or an address, optionally after ``user@``.

    Other texts raise an error, so that no text can act as a command-line option of ssh.
    """
    text = check_name(name, value)
    if not _HOST.fullmatch(text):
        raise ArgumentError(f"{name} must be a host name, an alias, an address or user@host, not {show(value)}.")
    return text


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Return ``value``. Raise an error unless it is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise ArgumentError(f"{name} must be one of {', '.join(choices)}, not {show(value)}.")
    return value


def check_flag(name: str, value: Any) -> bool:
    """Return ``value`` as a bool. Raise an error unless it is True, False, 1 or 0 (of Python or numpy)."""
    if isinstance(value, bool) or (is_number(value) and value in (0, 1)) or type(value).__name__ == "bool":
        return bool(value)
    raise ArgumentError(f"{name} must be True or False, not {show(value)}.")


def check_path(name: str, value: Any) -> Path:
    """Return ``value`` as a Path. Raise an error for URLs and for texts that cannot be a path."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if isinstance(text, str) and _URL_START.match(
        text
    ):  # a Path has lost one of the slashes; a URL may contain a secret
        raise ArgumentError(
            f"{name} looks like a URL, which is not accepted in this form. "
            "Pass a local path or, for a folder of records, the URL as a str instead of a Path."
        )
    if isinstance(text, str) and text and "\0" not in text and _is_encodable(text):
        path = Path(text)
        if all(len(os.fsencode(part)) <= MAX_FILE_NAME_BYTES for part in path.parts):
            return path
    raise ArgumentError(f"{name} must be the path of a file or a folder, not {show(value)}.")


def _is_encodable(text: str) -> bool:
    """Return whether the file system can encode ``text`` as a file name."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def check_mapping(name: str, value: Any) -> dict[str, Any]:
    """Return ``value`` as a dict. Raise an error unless it is a mapping whose keys are names."""
    if not isinstance(value, Mapping):
        raise ArgumentError(f"{name} must map names to values, not {show(value)}.")
    return {check_name(f"a name in {name}", key): item for key, item in value.items()}


def check_dataclass(name: str, value: Any, kind: type[Value]) -> Value:
    """Return ``value`` as an instance of the dataclass ``kind``; it may also be a mapping of the fields of ``kind``."""
    if isinstance(value, kind):
        return value
    try:
        return kind(**check_mapping(name, value))
    except TypeError as wrong:
        names = ", ".join(field.name for field in fields(kind))  # type: ignore[arg-type]
        raise ArgumentError(f"{name} is invalid: {wrong}. Pass only these fields: {names}.") from wrong


def check_factors(name: str, value: Any) -> dict[str, bool | int | float | str]:
    """Return ``value`` as a dict that maps names to numbers, texts or bools; None gives an empty dict."""
    factors = check_mapping(name, {} if value is None else value)
    return {factor: _as_plain(f"{factor} in {name}", level) for factor, level in factors.items()}


def _as_plain(name: str, value: Any) -> bool | int | float | str:
    if isinstance(value, bool) or (isinstance(value, str) and len(value) <= MAX_TEXT and _is_encodable(value)):
        return value
    if not is_number(value):
        raise ArgumentError(f"{name} must be a number, a text, True or False, not {show(value)}.")
    return int(value) if value == int(value) and not isinstance(value, float) else float(value)


def check_callable(name: str, value: Any) -> Callable[..., Any]:
    """Return ``value``. Raise an error unless it is callable."""
    if not callable(value):
        raise ArgumentError(f"{name} must be a function, not {show(value)}.")
    return value  # type: ignore[no-any-return]


def check_indent(value: Any) -> int | None:
    """Return the number of blanks per level of indented JSON text: 0 to 16, or None for JSON on one line."""
    return maybe(check_count, "indent", value, least=0, most=16)


def maybe(check: Callable[..., Value], name: str, value: Any, **bounds: Any) -> Value | None:
    """Return None if ``value`` is None, else the result of ``check(name, value, **bounds)``."""
    return None if value is None else check(name, value, **bounds)


def list_items(value: Any) -> list[Any]:
    """Return the items of ``value`` as a list, or ``[value]`` if it is not iterable."""
    if not isinstance(value, Iterable):
        return [value]
    try:
        return list(value)
    except TypeError:  # a numpy array without a dimension
        return [value]


def suggest_arguments(find_home: Callable[[str], str | None] = lambda _: None) -> Callable[[Function], Function]:
    """Return a decorator: an unknown keyword of the function raises an error that names the nearest argument.

    ``find_home`` returns how to pass an option that belongs to an object among the arguments; None if there is none.
    """

    def decorate(function: Function) -> Function:
        parameters = inspect.signature(function).parameters.values()
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            return function  # it takes any name
        names = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL]
        named = [name for name in names if name not in ("self", "cls")]

        @functools.wraps(function)
        def call(*values: Any, **keywords: Any) -> Any:
            for name in keywords:
                if name not in names:
                    title = type(values[0]).__name__ if function.__name__ == "__init__" else function.__name__
                    raise ArgumentError(f"{title} has no argument {name}. {_advise(name, named, find_home)}")
            return function(*values, **keywords)

        return call  # type: ignore[return-value]

    return decorate


def suggest_fields(kind: type[Value]) -> type[Value]:
    """Class decorator: an unknown keyword of the constructor raises an error that names the nearest argument."""
    kind.__init__ = suggest_arguments()(kind.__init__)  # type: ignore[method-assign]
    return kind


def _advise(name: str, names: Sequence[str], find_home: Callable[[str], str | None]) -> str:
    if home := find_home(name):
        return f"Pass {home}."
    if not names:
        return "It takes no argument by name."
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    # A longer name often contains the argument: deadline_chance, services.
    near = near or sorted((candidate for candidate in names if candidate in name), key=len)[-1:]
    return f"Did you mean {near[0]}?" if near else f"Its arguments are {', '.join(names)}."


def several(check: Callable[..., Value], name: str, value: Any, **bounds: Any) -> tuple[Value, ...]:
    """Apply ``check`` to one value or to each value of an iterable. Return the results in order, without duplicates."""
    items = [value] if isinstance(value, (str, bytes, Mapping)) else list_items(value)
    if not items:
        raise ArgumentError(f"{name} is empty. Give at least one value.")
    return tuple(dict.fromkeys(check(name, item, **bounds) for item in items))
